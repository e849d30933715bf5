//! Products of general matrices, with elements of one type or of several.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLAS")]

use std::ffi::c_int;

use penstock_wire::library::blas::{Batch, Factor, Gemm, Number, Routine, Stored};

use super::entry::routines;
use super::task::{Task, size};
use super::{Code, Done, Ptr};

/// A value of one of the enumerations.
type Op = c_int;
/// C's `long long`.
type Long = i64;

/// The parts that the forms of a product have in common.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) operations: [c_int; 2],
    pub(super) sizes: [i64; 3],
    pub(super) factors: [Ptr; 2],
    /// Address and distance of two columns of A, B and C.
    pub(super) matrices: [(Ptr, i64); 3],
    pub(super) stored: [Stored; 3],
    /// Whether the factors on the host have half precision.
    pub(super) has_half_factors: bool,
}

impl Default for Product {
    fn default() -> Self {
        let none = std::ptr::null();
        Self {
            operations: [0; 2],
            sizes: [0; 3],
            factors: [none; 2],
            matrices: [(none, 0); 3],
            stored: [Stored::Same; 3],
            has_half_factors: false,
        }
    }
}

fn product(it: &mut Task, of: &Product, batch: Batch) -> Done {
    let routine = routine(it, of, batch)?;
    it.run(routine)
}

fn routine(it: &mut Task, of: &Product, batch: Batch) -> Done<Routine> {
    let [m, n, k] = of.sizes;
    let [alpha, beta] = of.factors;
    let [(a, lda), (b, ldb), (c, ldc)] = of.matrices;
    let [stored_a, stored_b, c_stored] = of.stored;
    let [transa, transb] = of.operations;
    let (m, n, k) = (size(m)?, size(n)?, size(k)?);
    let factor = |it: &mut Task, at| {
        if of.has_half_factors { half_factor(it, at) } else { it.factor(at, false) }
    };
    let (alpha, beta) = (factor(it, alpha)?, factor(it, beta)?);
    let (mut a, mut b) = (it.transposed(transa, a, lda)?, it.transposed(transb, b, ldb)?);
    (a.stored, b.stored) = (stored_a, stored_b);
    let c = it.matrix(c, ldc)?;
    Ok(Routine::Gemm(Gemm { m, n, k, alpha, a, b, beta, c, c_stored, batch }))
}

/// Takes a factor in half precision.
fn half_factor(it: &Task, at: Ptr) -> Done<Factor> {
    if it.handle.is_device_mode() {
        return Err(Code::NOT_SUPPORTED);
    }
    if at.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the program promises that a factor on the host can be read.
    let bits = unsafe { at.cast::<u16>().read_unaligned() };
    Ok(Factor::Value(half(bits), 0.0))
}

/// Returns the value of a number in half precision.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

pub(super) const R_32F: c_int = 0;
pub(super) const R_64F: c_int = 1;
pub(super) const R_16F: c_int = 2;
pub(super) const C_32F: c_int = 4;
pub(super) const C_64F: c_int = 5;
pub(super) const R_16BF: c_int = 14;

/// Returns how matrices of these `cudaDataType`s are stored if the product is computed in `number`.
/// NVIDIA's library has these products: A and B have one type, and C has that type or `number`.
pub(super) fn all_stored(kinds: [c_int; 3], number: Number) -> Done<[Stored; 3]> {
    let [a, b, c] = kinds;
    let all = [stored(a, number)?, stored(b, number)?, stored(c, number)?];
    if a == b && (c == a || c == kind_of(number)) { Ok(all) } else { Err(Code::NOT_SUPPORTED) }
}

/// Returns how a matrix of a `cudaDataType` is stored if the product is computed in `number`.
fn stored(kind: c_int, number: Number) -> Done<Stored> {
    match (kind, number) {
        (R_32F, Number::F32)
        | (R_64F, Number::F64)
        | (C_32F, Number::C32)
        | (C_64F, Number::C64) => Ok(Stored::Same),
        (R_16F, Number::F32) => Ok(Stored::Half),
        (R_16BF, Number::F32) => Ok(Stored::Brain),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Returns the type in which a product is computed, and whether its factors have half precision.
pub(super) fn computed(compute: c_int, c_kind: c_int) -> Done<(Number, bool)> {
    match (compute, c_kind) {
        // CUBLAS_COMPUTE_16F and its pedantic form. Here, sums have single precision.
        (64 | 65, R_16F) => Ok((Number::F32, true)),
        // The forms of CUBLAS_COMPUTE_32F. All of them have the full precision here.
        (68 | 69 | 74 | 75 | 77 | 78, C_32F) => Ok((Number::C32, false)),
        (68 | 69 | 74 | 75 | 77 | 78, _) => Ok((Number::F32, false)),
        (70 | 71, C_64F) => Ok((Number::C64, false)),
        (70 | 71, _) => Ok((Number::F64, false)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Returns the `cudaDataType` of a number.
pub(super) const fn kind_of(number: Number) -> c_int {
    match number {
        Number::F32 => R_32F,
        Number::F64 => R_64F,
        Number::C32 => C_32F,
        Number::C64 => C_64F,
    }
}

/// Computes a product of matrices of the given types. `compute`: a `cublasComputeType_t`, or
/// `None` if the function's name says in which type it computes.
pub(super) fn mixed(
    it: &mut Task,
    of: Product,
    kinds: [c_int; 3],
    compute: Option<c_int>,
    batch: Batch,
) -> Done {
    let routine = of_types(it, of, kinds, compute, batch)?;
    it.run(routine)
}

/// Refuses what [`mixed`] would refuse.
pub(super) fn check_mixed(
    it: &mut Task,
    of: Product,
    kinds: [c_int; 3],
    compute: Option<c_int>,
    batch: Batch,
) -> Done {
    let routine = of_types(it, of, kinds, compute, batch)?;
    it.check(routine)
}

fn of_types(
    it: &mut Task,
    mut of: Product,
    kinds: [c_int; 3],
    compute: Option<c_int>,
    batch: Batch,
) -> Done<Routine> {
    if let Some(compute) = compute {
        let [.., c] = kinds;
        (it.number, of.has_half_factors) = computed(compute, c)?;
    }
    of.stored = all_stored(kinds, it.number)?;
    routine(it, &of, batch)
}

#[rustfmt::skip]
fn gemm(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    product(it, &of, Batch::One)
}

#[rustfmt::skip]
fn gemm_batched(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64, count: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    product(it, &of, Batch::Pointers { count: size(count)? })
}

#[rustfmt::skip]
fn gemm_strided(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, stridea: i64, b: Ptr, ldb: i64, strideb: i64, beta: Ptr, c: Ptr, ldc: i64,
            stridec: i64, count: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    product(it, &of, Batch::Strided { count: size(count)?, a: stridea, b: strideb, c: stridec })
}

#[rustfmt::skip]
fn half_gemm(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Half; 3], has_half_factors: true,
    };
    product(it, &of, Batch::One)
}

#[rustfmt::skip]
fn half_gemm_batched(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64, count: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Half; 3], has_half_factors: true,
    };
    product(it, &of, Batch::Pointers { count: size(count)? })
}

#[rustfmt::skip]
fn half_gemm_strided(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, stridea: i64, b: Ptr, ldb: i64, strideb: i64, beta: Ptr, c: Ptr, ldc: i64,
            stridec: i64, count: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Half; 3], has_half_factors: true,
    };
    product(it, &of, Batch::Strided { count: size(count)?, a: stridea, b: strideb, c: stridec })
}

#[rustfmt::skip]
fn gemm_of_types(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        atype: c_int, lda: i64, b: Ptr, btype: c_int, ldb: i64, beta: Ptr, c: Ptr, ctype: c_int,
            ldc: i64,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    mixed(it, of, [atype, btype, ctype], None, Batch::One)
}

#[rustfmt::skip]
fn gemm_ex(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        atype: c_int, lda: i64, b: Ptr, btype: c_int, ldb: i64, beta: Ptr, c: Ptr, ctype: c_int,
            ldc: i64, compute: c_int, _algo: c_int,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    mixed(it, of, [atype, btype, ctype], Some(compute), Batch::One)
}

#[rustfmt::skip]
fn gemm_batched_ex(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        atype: c_int, lda: i64, b: Ptr, btype: c_int, ldb: i64, beta: Ptr, c: Ptr, ctype: c_int,
            ldc: i64, count: i64, compute: c_int, _algo: c_int,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    mixed(it, of, [atype, btype, ctype], Some(compute), Batch::Pointers { count: size(count)? })
}

#[rustfmt::skip]
fn gemm_strided_ex(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: Ptr, a: Ptr,
        atype: c_int, lda: i64, stridea: i64, b: Ptr, btype: c_int, ldb: i64, strideb: i64,
            beta: Ptr, c: Ptr, ctype: c_int, ldc: i64, stridec: i64, count: i64, compute: c_int,
                _algo: c_int,
) -> Done {
    let of = Product {
        operations: [transa, transb], sizes: [m, n, k], factors: [alpha, beta],
        matrices: [(a, lda), (b, ldb), (c, ldc)], stored: [Stored::Same; 3],
            has_half_factors: false,
    };
    mixed(it, of, [atype, btype, ctype], Some(compute), Batch::Strided { count: size(count)?,
        a: stridea, b: strideb, c: stridec })
}

routines! {
    gemm(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr,
        ldb: Int, beta: Ptr, c: Ptr, ldc: Int) {
        F32: cublasSgemm_v2, cublasSgemm_v2_64;
        F64: cublasDgemm_v2, cublasDgemm_v2_64;
        C32: cublasCgemm_v2, cublasCgemm_v2_64;
        C64: cublasZgemm_v2, cublasZgemm_v2_64;
        C32: cublasCgemm3m, cublasCgemm3m_64;
        C64: cublasZgemm3m, cublasZgemm3m_64;
    }
    gemm_batched(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int,
        b: Ptr, ldb: Int, beta: Ptr, c: Ptr, ldc: Int, count: Int) {
        F32: cublasSgemmBatched, cublasSgemmBatched_64;
        F64: cublasDgemmBatched, cublasDgemmBatched_64;
        C32: cublasCgemmBatched, cublasCgemmBatched_64;
        C64: cublasZgemmBatched, cublasZgemmBatched_64;
        C32: cublasCgemm3mBatched, cublasCgemm3mBatched_64;
    }
    gemm_strided(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int,
        stridea: Long, b: Ptr, ldb: Int, strideb: Long, beta: Ptr, c: Ptr, ldc: Int, stridec: Long,
            count: Int) {
        F32: cublasSgemmStridedBatched, cublasSgemmStridedBatched_64;
        F64: cublasDgemmStridedBatched, cublasDgemmStridedBatched_64;
        C32: cublasCgemmStridedBatched, cublasCgemmStridedBatched_64;
        C64: cublasZgemmStridedBatched, cublasZgemmStridedBatched_64;
        C32: cublasCgemm3mStridedBatched, cublasCgemm3mStridedBatched_64;
    }
    half_gemm(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr,
        ldb: Int, beta: Ptr, c: Ptr, ldc: Int) {
        F32: cublasHgemm, cublasHgemm_64;
    }
    half_gemm_batched(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int,
        b: Ptr, ldb: Int, beta: Ptr, c: Ptr, ldc: Int, count: Int) {
        F32: cublasHgemmBatched, cublasHgemmBatched_64;
    }
    half_gemm_strided(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int,
        stridea: Long, b: Ptr, ldb: Int, strideb: Long, beta: Ptr, c: Ptr, ldc: Int, stridec: Long,
            count: Int) {
        F32: cublasHgemmStridedBatched, cublasHgemmStridedBatched_64;
    }
    gemm_of_types(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, atype: Op,
        lda: Int, b: Ptr, btype: Op, ldb: Int, beta: Ptr, c: Ptr, ctype: Op, ldc: Int) {
        F32: cublasSgemmEx, cublasSgemmEx_64;
        C32: cublasCgemmEx, cublasCgemmEx_64;
        C32: cublasCgemm3mEx, cublasCgemm3mEx_64;
    }
    gemm_ex(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, atype: Op,
        lda: Int, b: Ptr, btype: Op, ldb: Int, beta: Ptr, c: Ptr, ctype: Op, ldc: Int, compute: Op,
            _algo: Op) {
        F32: cublasGemmEx, cublasGemmEx_64;
    }
    gemm_batched_ex(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, atype: Op,
        lda: Int, b: Ptr, btype: Op, ldb: Int, beta: Ptr, c: Ptr, ctype: Op, ldc: Int, count: Int,
            compute: Op, _algo: Op) {
        F32: cublasGemmBatchedEx, cublasGemmBatchedEx_64;
    }
    gemm_strided_ex(transa: Op, transb: Op, m: Int, n: Int, k: Int, alpha: Ptr, a: Ptr, atype: Op,
        lda: Int, stridea: Long, b: Ptr, btype: Op, ldb: Int, strideb: Long, beta: Ptr, c: Ptr,
            ctype: Op, ldc: Int, stridec: Long, count: Int, compute: Op, _algo: Op) {
        F32: cublasGemmStridedBatchedEx, cublasGemmStridedBatchedEx_64;
    }
}
