//! Level 2.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLAS")]

use std::ffi::c_int;

use penstock_wire::library::blas::{Routine, Triangle, Triangular};

use super::entry::routines;
use super::task::{Task, size, transpose, triangular};
use super::{Code, Done, Ptr};

/// A value of one of cuBLAS's enumerations.
type Op = c_int;

/// Address and distance of a vector.
type Strided = (Ptr, i64);

#[rustfmt::skip]
fn gemv(
    it: &mut Task, trans: c_int, m: i64, n: i64, alpha: Ptr, a: Ptr, lda: i64, x: Ptr, incx: i64,
        beta: Ptr, y: Ptr, incy: i64,
) -> Done {
    general(it, trans, (m, n), None, [alpha, beta], (a, lda), [(x, incx), (y, incy)])
}

#[rustfmt::skip]
fn gbmv(
    it: &mut Task, trans: c_int, m: i64, n: i64, kl: i64, ku: i64, alpha: Ptr, a: Ptr, lda: i64,
        x: Ptr, incx: i64, beta: Ptr, y: Ptr, incy: i64,
) -> Done {
    let band = Some((size(kl)?, size(ku)?));
    general(it, trans, (m, n), band, [alpha, beta], (a, lda), [(x, incx), (y, incy)])
}

/// `y = alpha * op(A) * x + beta * y`.
fn general(
    it: &mut Task,
    trans: c_int,
    (m, n): (i64, i64),
    band: Option<(u32, u32)>,
    factors: [Ptr; 2],
    (a, lda): (Ptr, i64),
    vectors: [Strided; 2],
) -> Done {
    let (transpose, m, n) = (transpose(trans)?, size(m)?, size(n)?);
    let [alpha, beta] = factors;
    let (alpha, beta) = (it.factor(alpha, false)?, it.factor(beta, false)?);
    let a = it.matrix(a, lda)?;
    let [(x, incx), (y, incy)] = vectors;
    let (x, y) = (it.vector(x, incx)?, it.vector(y, incy)?);
    it.run(Routine::Gemv { transpose, m, n, band, alpha, a, x, beta, y })
}

/// Adds a product of two vectors to a matrix.
fn outer(
    it: &mut Task,
    conjugate: bool,
    (m, n): (i64, i64),
    alpha: Ptr,
    vectors: [Strided; 2],
    (a, lda): (Ptr, i64),
) -> Done {
    let (m, n, alpha) = (size(m)?, size(n)?, it.factor(alpha, false)?);
    let [(x, incx), (y, incy)] = vectors;
    let (x, y, a) = (it.vector(x, incx)?, it.vector(y, incy)?, it.matrix(a, lda)?);
    it.run(Routine::Ger { m, n, conjugate, alpha, x, y, a })
}

#[rustfmt::skip]
fn ger(
    it: &mut Task, m: i64, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64, a: Ptr,
        lda: i64,
) -> Done {
    outer(it, false, (m, n), alpha, [(x, incx), (y, incy)], (a, lda))
}

#[rustfmt::skip]
fn ger_conjugate(
    it: &mut Task, m: i64, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64, a: Ptr,
        lda: i64,
) -> Done {
    outer(it, true, (m, n), alpha, [(x, incx), (y, incy)], (a, lda))
}

/// `y = alpha * A * x + beta * y` with a symmetric or Hermitian matrix.
fn symmetric(
    it: &mut Task,
    hermitian: bool,
    n: i64,
    a: Triangle,
    factors: [Ptr; 2],
    vectors: [Strided; 2],
) -> Done {
    let n = size(n)?;
    let [alpha, beta] = factors;
    let (alpha, beta) = (it.factor(alpha, false)?, it.factor(beta, false)?);
    let [(x, incx), (y, incy)] = vectors;
    let (x, y) = (it.vector(x, incx)?, it.vector(y, incy)?);
    it.run(Routine::Symv { n, hermitian, alpha, a, x, beta, y })
}

#[rustfmt::skip]
fn symv(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, a: Ptr, lda: i64, x: Ptr, incx: i64, beta: Ptr,
        y: Ptr, incy: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    symmetric(it, false, n, a, [alpha, beta], [(x, incx), (y, incy)])
}

#[rustfmt::skip]
fn hemv(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, a: Ptr, lda: i64, x: Ptr, incx: i64, beta: Ptr,
        y: Ptr, incy: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    symmetric(it, true, n, a, [alpha, beta], [(x, incx), (y, incy)])
}

#[rustfmt::skip]
fn sbmv(
    it: &mut Task, uplo: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64, x: Ptr, incx: i64,
        beta: Ptr, y: Ptr, incy: i64,
) -> Done {
    let a = it.band(uplo, k, a, lda)?;
    symmetric(it, true, n, a, [alpha, beta], [(x, incx), (y, incy)])
}

#[rustfmt::skip]
fn spmv(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, a: Ptr, x: Ptr, incx: i64, beta: Ptr, y: Ptr,
        incy: i64,
) -> Done {
    let a = it.packed(uplo, a)?;
    symmetric(it, true, n, a, [alpha, beta], [(x, incx), (y, incy)])
}

/// Adds a product of one vector with itself, or of two vectors with each other, to a symmetric or
/// Hermitian matrix.
fn update(
    it: &mut Task,
    hermitian: bool,
    n: i64,
    alpha: Ptr,
    vectors: &[Strided],
    a: Triangle,
) -> Done {
    let n = size(n)?;
    match vectors {
        [(x, incx)] => {
            let (alpha, x) = (it.factor(alpha, hermitian)?, it.vector(*x, *incx)?);
            it.run(Routine::Syr { n, hermitian, alpha, x, a })
        }
        [(x, incx), (y, incy)] => {
            let alpha = it.factor(alpha, false)?;
            let (x, y) = (it.vector(*x, *incx)?, it.vector(*y, *incy)?);
            it.run(Routine::Syr2 { n, hermitian, alpha, x, y, a })
        }
        _ => Err(Code::INTERNAL_ERROR),
    }
}

#[rustfmt::skip]
fn syr(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, a: Ptr, lda: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    update(it, false, n, alpha, &[(x, incx)], a)
}

#[rustfmt::skip]
fn her(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, a: Ptr, lda: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    update(it, true, n, alpha, &[(x, incx)], a)
}

#[rustfmt::skip]
fn spr(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, a: Ptr,
) -> Done {
    let a = it.packed(uplo, a)?;
    update(it, true, n, alpha, &[(x, incx)], a)
}

#[rustfmt::skip]
fn syr2(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64, a: Ptr,
        lda: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    update(it, false, n, alpha, &[(x, incx), (y, incy)], a)
}

#[rustfmt::skip]
fn her2(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64, a: Ptr,
        lda: i64,
) -> Done {
    let a = it.full(uplo, a, lda)?;
    update(it, true, n, alpha, &[(x, incx), (y, incy)], a)
}

#[rustfmt::skip]
fn spr2(
    it: &mut Task, uplo: c_int, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64, a: Ptr,
) -> Done {
    let a = it.packed(uplo, a)?;
    update(it, true, n, alpha, &[(x, incx), (y, incy)], a)
}

/// Multiplies a vector with a triangular matrix, or solves for it.
fn by_triangle(it: &mut Task, solves: bool, n: i64, a: Triangular, (x, incx): Strided) -> Done {
    let (n, x) = (size(n)?, it.vector(x, incx)?);
    it.run(if solves { Routine::Trsv { n, a, x } } else { Routine::Trmv { n, a, x } })
}

#[rustfmt::skip]
fn trmv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, a: Ptr, lda: i64, x: Ptr,
        incx: i64,
) -> Done {
    let a = triangular(it.full(uplo, a, lda)?, trans, diag)?;
    by_triangle(it, false, n, a, (x, incx))
}

#[rustfmt::skip]
fn tbmv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, k: i64, a: Ptr, lda: i64,
        x: Ptr, incx: i64,
) -> Done {
    let a = triangular(it.band(uplo, k, a, lda)?, trans, diag)?;
    by_triangle(it, false, n, a, (x, incx))
}

#[rustfmt::skip]
fn tpmv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, a: Ptr, x: Ptr, incx: i64,
) -> Done {
    let a = triangular(it.packed(uplo, a)?, trans, diag)?;
    by_triangle(it, false, n, a, (x, incx))
}

#[rustfmt::skip]
fn trsv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, a: Ptr, lda: i64, x: Ptr,
        incx: i64,
) -> Done {
    let a = triangular(it.full(uplo, a, lda)?, trans, diag)?;
    by_triangle(it, true, n, a, (x, incx))
}

#[rustfmt::skip]
fn tbsv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, k: i64, a: Ptr, lda: i64,
        x: Ptr, incx: i64,
) -> Done {
    let a = triangular(it.band(uplo, k, a, lda)?, trans, diag)?;
    by_triangle(it, true, n, a, (x, incx))
}

#[rustfmt::skip]
fn tpsv(
    it: &mut Task, uplo: c_int, trans: c_int, diag: c_int, n: i64, a: Ptr, x: Ptr, incx: i64,
) -> Done {
    let a = triangular(it.packed(uplo, a)?, trans, diag)?;
    by_triangle(it, true, n, a, (x, incx))
}

routines! {
    gemv(trans: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int, x: Ptr, incx: Int, beta: Ptr,
        y: Ptr, incy: Int) {
        F32: cublasSgemv_v2, cublasSgemv_v2_64;
        F64: cublasDgemv_v2, cublasDgemv_v2_64;
        C32: cublasCgemv_v2, cublasCgemv_v2_64;
        C64: cublasZgemv_v2, cublasZgemv_v2_64;
    }
    gbmv(trans: Op, m: Int, n: Int, kl: Int, ku: Int, alpha: Ptr, a: Ptr, lda: Int, x: Ptr,
        incx: Int, beta: Ptr, y: Ptr, incy: Int) {
        F32: cublasSgbmv_v2, cublasSgbmv_v2_64;
        F64: cublasDgbmv_v2, cublasDgbmv_v2_64;
        C32: cublasCgbmv_v2, cublasCgbmv_v2_64;
        C64: cublasZgbmv_v2, cublasZgbmv_v2_64;
    }
    ger(m: Int, n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int, a: Ptr, lda: Int) {
        F32: cublasSger_v2, cublasSger_v2_64;
        F64: cublasDger_v2, cublasDger_v2_64;
        C32: cublasCgeru_v2, cublasCgeru_v2_64;
        C64: cublasZgeru_v2, cublasZgeru_v2_64;
    }
    ger_conjugate(m: Int, n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int, a: Ptr,
        lda: Int) {
        C32: cublasCgerc_v2, cublasCgerc_v2_64;
        C64: cublasZgerc_v2, cublasZgerc_v2_64;
    }
    symv(uplo: Op, n: Int, alpha: Ptr, a: Ptr, lda: Int, x: Ptr, incx: Int, beta: Ptr, y: Ptr,
        incy: Int) {
        F32: cublasSsymv_v2, cublasSsymv_v2_64;
        F64: cublasDsymv_v2, cublasDsymv_v2_64;
        C32: cublasCsymv_v2, cublasCsymv_v2_64;
        C64: cublasZsymv_v2, cublasZsymv_v2_64;
    }
    hemv(uplo: Op, n: Int, alpha: Ptr, a: Ptr, lda: Int, x: Ptr, incx: Int, beta: Ptr, y: Ptr,
        incy: Int) {
        C32: cublasChemv_v2, cublasChemv_v2_64;
        C64: cublasZhemv_v2, cublasZhemv_v2_64;
    }
    sbmv(uplo: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, x: Ptr, incx: Int, beta: Ptr,
        y: Ptr, incy: Int) {
        F32: cublasSsbmv_v2, cublasSsbmv_v2_64;
        F64: cublasDsbmv_v2, cublasDsbmv_v2_64;
        C32: cublasChbmv_v2, cublasChbmv_v2_64;
        C64: cublasZhbmv_v2, cublasZhbmv_v2_64;
    }
    spmv(uplo: Op, n: Int, alpha: Ptr, a: Ptr, x: Ptr, incx: Int, beta: Ptr, y: Ptr, incy: Int) {
        F32: cublasSspmv_v2, cublasSspmv_v2_64;
        F64: cublasDspmv_v2, cublasDspmv_v2_64;
        C32: cublasChpmv_v2, cublasChpmv_v2_64;
        C64: cublasZhpmv_v2, cublasZhpmv_v2_64;
    }
    syr(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, a: Ptr, lda: Int) {
        F32: cublasSsyr_v2, cublasSsyr_v2_64;
        F64: cublasDsyr_v2, cublasDsyr_v2_64;
        C32: cublasCsyr_v2, cublasCsyr_v2_64;
        C64: cublasZsyr_v2, cublasZsyr_v2_64;
    }
    her(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, a: Ptr, lda: Int) {
        C32: cublasCher_v2, cublasCher_v2_64;
        C64: cublasZher_v2, cublasZher_v2_64;
    }
    spr(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, a: Ptr) {
        F32: cublasSspr_v2, cublasSspr_v2_64;
        F64: cublasDspr_v2, cublasDspr_v2_64;
        C32: cublasChpr_v2, cublasChpr_v2_64;
        C64: cublasZhpr_v2, cublasZhpr_v2_64;
    }
    syr2(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int, a: Ptr, lda: Int) {
        F32: cublasSsyr2_v2, cublasSsyr2_v2_64;
        F64: cublasDsyr2_v2, cublasDsyr2_v2_64;
        C32: cublasCsyr2_v2, cublasCsyr2_v2_64;
        C64: cublasZsyr2_v2, cublasZsyr2_v2_64;
    }
    her2(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int, a: Ptr, lda: Int) {
        C32: cublasCher2_v2, cublasCher2_v2_64;
        C64: cublasZher2_v2, cublasZher2_v2_64;
    }
    spr2(uplo: Op, n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int, a: Ptr) {
        F32: cublasSspr2_v2, cublasSspr2_v2_64;
        F64: cublasDspr2_v2, cublasDspr2_v2_64;
        C32: cublasChpr2_v2, cublasChpr2_v2_64;
        C64: cublasZhpr2_v2, cublasZhpr2_v2_64;
    }
    trmv(uplo: Op, trans: Op, diag: Op, n: Int, a: Ptr, lda: Int, x: Ptr, incx: Int) {
        F32: cublasStrmv_v2, cublasStrmv_v2_64;
        F64: cublasDtrmv_v2, cublasDtrmv_v2_64;
        C32: cublasCtrmv_v2, cublasCtrmv_v2_64;
        C64: cublasZtrmv_v2, cublasZtrmv_v2_64;
    }
    tbmv(uplo: Op, trans: Op, diag: Op, n: Int, k: Int, a: Ptr, lda: Int, x: Ptr, incx: Int) {
        F32: cublasStbmv_v2, cublasStbmv_v2_64;
        F64: cublasDtbmv_v2, cublasDtbmv_v2_64;
        C32: cublasCtbmv_v2, cublasCtbmv_v2_64;
        C64: cublasZtbmv_v2, cublasZtbmv_v2_64;
    }
    tpmv(uplo: Op, trans: Op, diag: Op, n: Int, a: Ptr, x: Ptr, incx: Int) {
        F32: cublasStpmv_v2, cublasStpmv_v2_64;
        F64: cublasDtpmv_v2, cublasDtpmv_v2_64;
        C32: cublasCtpmv_v2, cublasCtpmv_v2_64;
        C64: cublasZtpmv_v2, cublasZtpmv_v2_64;
    }
    trsv(uplo: Op, trans: Op, diag: Op, n: Int, a: Ptr, lda: Int, x: Ptr, incx: Int) {
        F32: cublasStrsv_v2, cublasStrsv_v2_64;
        F64: cublasDtrsv_v2, cublasDtrsv_v2_64;
        C32: cublasCtrsv_v2, cublasCtrsv_v2_64;
        C64: cublasZtrsv_v2, cublasZtrsv_v2_64;
    }
    tbsv(uplo: Op, trans: Op, diag: Op, n: Int, k: Int, a: Ptr, lda: Int, x: Ptr, incx: Int) {
        F32: cublasStbsv_v2, cublasStbsv_v2_64;
        F64: cublasDtbsv_v2, cublasDtbsv_v2_64;
        C32: cublasCtbsv_v2, cublasCtbsv_v2_64;
        C64: cublasZtbsv_v2, cublasZtbsv_v2_64;
    }
    tpsv(uplo: Op, trans: Op, diag: Op, n: Int, a: Ptr, x: Ptr, incx: Int) {
        F32: cublasStpsv_v2, cublasStpsv_v2_64;
        F64: cublasDtpsv_v2, cublasDtpsv_v2_64;
        C32: cublasCtpsv_v2, cublasCtpsv_v2_64;
        C64: cublasZtpsv_v2, cublasZtpsv_v2_64;
    }
}
