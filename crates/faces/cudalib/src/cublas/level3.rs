//! Level 3, except for products of general matrices.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLAS")]

use std::ffi::c_int;

use penstock_wire::library::blas::{Factor, Routine, Transpose, Transposed};

use super::entry::routines;
use super::task::{Task, side as side_of, size, transpose, triangular};
use super::{Code, Done, Ptr};

/// A value of one of cuBLAS's enumerations.
type Op = c_int;

#[rustfmt::skip]
fn symmetric(
    it: &mut Task, hermitian: bool, side: c_int, uplo: c_int, m: i64, n: i64, alpha: Ptr, a: Ptr,
        lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    let (side, m, n) = (side_of(side)?, size(m)?, size(n)?);
    let (alpha, beta) = (it.factor(alpha, false)?, it.factor(beta, false)?);
    let (a, b, c) = (it.full(uplo, a, lda)?, it.matrix(b, ldb)?, it.matrix(c, ldc)?);
    it.run(Routine::Symm { side, m, n, hermitian, alpha, a, b, beta, c })
}

#[rustfmt::skip]
fn symm(
    it: &mut Task, side: c_int, uplo: c_int, m: i64, n: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    symmetric(it, false, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

#[rustfmt::skip]
fn hemm(
    it: &mut Task, side: c_int, uplo: c_int, m: i64, n: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    symmetric(it, true, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

/// Checks the operation of an update of rank k: a symmetric one of complex elements has no
/// conjugates, and a Hermitian one has.
fn update(it: &Task, trans: c_int, hermitian: bool) -> Done<Transpose> {
    match transpose(trans)? {
        Transpose::Conjugate if it.number.is_complex() && !hermitian => Err(Code::INVALID_VALUE),
        Transpose::Yes if hermitian => Err(Code::INVALID_VALUE),
        transpose => Ok(transpose),
    }
}

#[rustfmt::skip]
fn rank_k(
    it: &mut Task, hermitian: bool, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr,
        lda: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    let (transpose, n, k) = (update(it, trans, hermitian)?, size(n)?, size(k)?);
    let (alpha, beta) = (it.factor(alpha, hermitian)?, it.factor(beta, hermitian)?);
    let (a, c) = (it.matrix(a, lda)?, it.full(uplo, c, ldc)?);
    it.run(Routine::Syrk { n, k, hermitian, transpose, alpha, a, beta, c })
}

#[rustfmt::skip]
fn syrk(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64,
        beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_k(it, false, uplo, trans, n, k, alpha, a, lda, beta, c, ldc)
}

#[rustfmt::skip]
fn herk(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64,
        beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_k(it, true, uplo, trans, n, k, alpha, a, lda, beta, c, ldc)
}

/// `form`: whether it is Hermitian, and whether it has only one product.
#[rustfmt::skip]
fn rank_2k(
    it: &mut Task, form: (bool, bool), uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr,
        a: Ptr, lda: i64, b: Ptr, ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    let (hermitian, is_single) = form;
    let (transpose, n, k) = (update(it, trans, hermitian)?, size(n)?, size(k)?);
    let (alpha, beta) = (it.factor(alpha, false)?, it.factor(beta, hermitian)?);
    let (a, b, c) = (it.matrix(a, lda)?, it.matrix(b, ldb)?, it.full(uplo, c, ldc)?);
    it.run(Routine::Syr2k { n, k, hermitian, is_single, transpose, alpha, a, b, beta, c })
}

#[rustfmt::skip]
fn syr2k(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_2k(it, (false, false), uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

#[rustfmt::skip]
fn her2k(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_2k(it, (true, false), uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

#[rustfmt::skip]
fn syrkx(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_2k(it, (false, true), uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

#[rustfmt::skip]
fn herkx(
    it: &mut Task, uplo: c_int, trans: c_int, n: i64, k: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr,
        ldb: i64, beta: Ptr, c: Ptr, ldc: i64,
) -> Done {
    rank_2k(it, (true, true), uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

#[rustfmt::skip]
fn trmm(
    it: &mut Task, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: i64, n: i64, alpha: Ptr,
        a: Ptr, lda: i64, b: Ptr, ldb: i64, c: Ptr, ldc: i64,
) -> Done {
    let (side, m, n, alpha) = (side_of(side)?, size(m)?, size(n)?, it.factor(alpha, false)?);
    let a = triangular(it.full(uplo, a, lda)?, trans, diag)?;
    let (b, c) = (it.matrix(b, ldb)?, it.matrix(c, ldc)?);
    it.run(Routine::Trmm { side, m, n, alpha, a, b, c })
}

#[rustfmt::skip]
fn solve(
    it: &mut Task, pointers: Option<u32>, side: c_int, uplo: c_int, trans: c_int, diag: c_int,
        m: i64, n: i64, alpha: Ptr, a: Ptr, lda: i64, b: Ptr, ldb: i64,
) -> Done {
    let (side, m, n, alpha) = (side_of(side)?, size(m)?, size(n)?, it.factor(alpha, false)?);
    let a = triangular(it.full(uplo, a, lda)?, trans, diag)?;
    let b = it.matrix(b, ldb)?;
    it.run(Routine::Trsm { side, m, n, alpha, a, b, pointers })
}

#[rustfmt::skip]
fn trsm(
    it: &mut Task, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: i64, n: i64, alpha: Ptr,
        a: Ptr, lda: i64, b: Ptr, ldb: i64,
) -> Done {
    solve(it, None, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)
}

#[rustfmt::skip]
fn trsm_batched(
    it: &mut Task, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: i64, n: i64, alpha: Ptr,
        a: Ptr, lda: i64, b: Ptr, ldb: i64, count: i64,
) -> Done {
    solve(it, Some(size(count)?), side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)
}

/// Takes a term of a sum, which may be absent if its factor is 0.
fn term(it: &mut Task, op: c_int, factor: Factor, at: Ptr, ld: i64) -> Done<Option<Transposed>> {
    if factor == Factor::Value(0.0, 0.0) {
        return transpose(op).map(|_| None);
    }
    it.transposed(op, at, ld).map(Some)
}

#[rustfmt::skip]
fn geam(
    it: &mut Task, transa: c_int, transb: c_int, m: i64, n: i64, alpha: Ptr, a: Ptr, lda: i64,
        beta: Ptr, b: Ptr, ldb: i64, c: Ptr, ldc: i64,
) -> Done {
    let (m, n) = (size(m)?, size(n)?);
    let (alpha, beta) = (it.factor(alpha, false)?, it.factor(beta, false)?);
    let (a, b) = (term(it, transa, alpha, a, lda)?, term(it, transb, beta, b, ldb)?);
    let c = it.matrix(c, ldc)?;
    it.run(Routine::Geam { m, n, alpha, a, beta, b, c })
}

#[rustfmt::skip]
fn dgmm(
    it: &mut Task, side: c_int, m: i64, n: i64, a: Ptr, lda: i64, x: Ptr, incx: i64, c: Ptr,
        ldc: i64,
) -> Done {
    let (side, m, n) = (side_of(side)?, size(m)?, size(n)?);
    let (a, x, c) = (it.matrix(a, lda)?, it.vector(x, incx)?, it.matrix(c, ldc)?);
    it.run(Routine::Dgmm { side, m, n, a, x, c })
}

routines! {
    symm(side: Op, uplo: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        F32: cublasSsymm_v2, cublasSsymm_v2_64;
        F64: cublasDsymm_v2, cublasDsymm_v2_64;
        C32: cublasCsymm_v2, cublasCsymm_v2_64;
        C64: cublasZsymm_v2, cublasZsymm_v2_64;
    }
    hemm(side: Op, uplo: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        C32: cublasChemm_v2, cublasChemm_v2_64;
        C64: cublasZhemm_v2, cublasZhemm_v2_64;
    }
    syrk(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, beta: Ptr, c: Ptr,
        ldc: Int) {
        F32: cublasSsyrk_v2, cublasSsyrk_v2_64;
        F64: cublasDsyrk_v2, cublasDsyrk_v2_64;
        C32: cublasCsyrk_v2, cublasCsyrk_v2_64;
        C64: cublasZsyrk_v2, cublasZsyrk_v2_64;
    }
    herk(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, beta: Ptr, c: Ptr,
        ldc: Int) {
        C32: cublasCherk_v2, cublasCherk_v2_64;
        C64: cublasZherk_v2, cublasZherk_v2_64;
    }
    syr2k(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        F32: cublasSsyr2k_v2, cublasSsyr2k_v2_64;
        F64: cublasDsyr2k_v2, cublasDsyr2k_v2_64;
        C32: cublasCsyr2k_v2, cublasCsyr2k_v2_64;
        C64: cublasZsyr2k_v2, cublasZsyr2k_v2_64;
    }
    her2k(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        C32: cublasCher2k_v2, cublasCher2k_v2_64;
        C64: cublasZher2k_v2, cublasZher2k_v2_64;
    }
    syrkx(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        F32: cublasSsyrkx, cublasSsyrkx_64;
        F64: cublasDsyrkx, cublasDsyrkx_64;
        C32: cublasCsyrkx, cublasCsyrkx_64;
        C64: cublasZsyrkx, cublasZsyrkx_64;
    }
    herkx(uplo: Op, trans: Op, n: Int, k: Int, alpha: Ptr, a: Ptr, lda: Int, b: Ptr, ldb: Int,
        beta: Ptr, c: Ptr, ldc: Int) {
        C32: cublasCherkx, cublasCherkx_64;
        C64: cublasZherkx, cublasZherkx_64;
    }
    trmm(side: Op, uplo: Op, trans: Op, diag: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int,
        b: Ptr, ldb: Int, c: Ptr, ldc: Int) {
        F32: cublasStrmm_v2, cublasStrmm_v2_64;
        F64: cublasDtrmm_v2, cublasDtrmm_v2_64;
        C32: cublasCtrmm_v2, cublasCtrmm_v2_64;
        C64: cublasZtrmm_v2, cublasZtrmm_v2_64;
    }
    trsm(side: Op, uplo: Op, trans: Op, diag: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int,
        b: Ptr, ldb: Int) {
        F32: cublasStrsm_v2, cublasStrsm_v2_64;
        F64: cublasDtrsm_v2, cublasDtrsm_v2_64;
        C32: cublasCtrsm_v2, cublasCtrsm_v2_64;
        C64: cublasZtrsm_v2, cublasZtrsm_v2_64;
    }
    trsm_batched(side: Op, uplo: Op, trans: Op, diag: Op, m: Int, n: Int, alpha: Ptr, a: Ptr,
        lda: Int, b: Ptr, ldb: Int, count: Int) {
        F32: cublasStrsmBatched, cublasStrsmBatched_64;
        F64: cublasDtrsmBatched, cublasDtrsmBatched_64;
        C32: cublasCtrsmBatched, cublasCtrsmBatched_64;
        C64: cublasZtrsmBatched, cublasZtrsmBatched_64;
    }
    geam(transa: Op, transb: Op, m: Int, n: Int, alpha: Ptr, a: Ptr, lda: Int, beta: Ptr, b: Ptr,
        ldb: Int, c: Ptr, ldc: Int) {
        F32: cublasSgeam, cublasSgeam_64;
        F64: cublasDgeam, cublasDgeam_64;
        C32: cublasCgeam, cublasCgeam_64;
        C64: cublasZgeam, cublasZgeam_64;
    }
    dgmm(side: Op, m: Int, n: Int, a: Ptr, lda: Int, x: Ptr, incx: Int, c: Ptr, ldc: Int) {
        F32: cublasSdgmm, cublasSdgmm_64;
        F64: cublasDdgmm, cublasDdgmm_64;
        C32: cublasCdgmm, cublasCdgmm_64;
        C64: cublasZdgmm, cublasZdgmm_64;
    }
}
