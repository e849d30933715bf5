//! Level 1.
#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuBLAS")]

use penstock_wire::library::blas::{Reduction, Routine};

use super::entry::routines;
use super::task::{Task, length};
use super::{Done, Ptr};

fn axpy(it: &mut Task, n: i64, alpha: Ptr, x: Ptr, incx: i64, y: Ptr, incy: i64) -> Done {
    let (n, alpha) = (length(n)?, it.factor(alpha, false)?);
    let (x, y) = (it.vector(x, incx)?, it.vector(y, incy)?);
    it.run(Routine::Axpy { n, alpha, x, y })
}

fn scaled(it: &mut Task, n: i64, (alpha, is_real): (Ptr, bool), x: Ptr, incx: i64) -> Done {
    let (n, alpha) = (length(n)?, it.factor(alpha, is_real)?);
    let x = it.vector(x, incx)?;
    it.run(Routine::Scal { n, alpha, is_real, x })
}

fn scal(it: &mut Task, n: i64, alpha: Ptr, x: Ptr, incx: i64) -> Done {
    scaled(it, n, (alpha, false), x, incx)
}

fn scal_real(it: &mut Task, n: i64, alpha: Ptr, x: Ptr, incx: i64) -> Done {
    scaled(it, n, (alpha, true), x, incx)
}

fn copy(it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64) -> Done {
    let (n, x, y) = (length(n)?, it.vector(x, incx)?, it.vector(y, incy)?);
    it.run(Routine::Copy { n, x, y })
}

fn swap(it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64) -> Done {
    let (n, x, y) = (length(n)?, it.vector(x, incx)?, it.vector(y, incy)?);
    it.run(Routine::Swap { n, x, y })
}

/// The vectors of a dot product: address and distance of each.
type Vectors = [(Ptr, i64); 2];

fn product(it: &mut Task, n: i64, vectors: Vectors, conjugate: bool, result: Ptr) -> Done {
    let [(x, incx), (y, incy)] = vectors;
    let (n, x, y) = (length(n)?, it.vector(x, incx)?, it.vector(y, incy)?);
    let make = |result| Routine::Dot { n, conjugate, x, y, result };
    it.run_with_result(result, it.number.bytes(), make)
}

fn dot(it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64, result: Ptr) -> Done {
    product(it, n, [(x, incx), (y, incy)], false, result)
}

fn dot_conjugate(it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64, result: Ptr) -> Done {
    product(it, n, [(x, incx), (y, incy)], true, result)
}

fn reduced(it: &mut Task, n: i64, (x, incx): (Ptr, i64), what: Reduction, result: Ptr) -> Done {
    let bytes = match what {
        Reduction::Norm | Reduction::AbsoluteSum => it.number.part().bytes(),
        _ if it.is_wide => 8,
        _ => 4,
    };
    let (n, x) = (length(n)?, it.vector(x, incx)?);
    it.run_with_result(result, bytes, |result| Routine::Reduce { n, what, x, result })
}

fn norm(it: &mut Task, n: i64, x: Ptr, incx: i64, result: Ptr) -> Done {
    reduced(it, n, (x, incx), Reduction::Norm, result)
}

fn absolute_sum(it: &mut Task, n: i64, x: Ptr, incx: i64, result: Ptr) -> Done {
    reduced(it, n, (x, incx), Reduction::AbsoluteSum, result)
}

fn largest(it: &mut Task, n: i64, x: Ptr, incx: i64, result: Ptr) -> Done {
    let is_wide = it.is_wide;
    reduced(it, n, (x, incx), Reduction::Largest { is_wide }, result)
}

fn smallest(it: &mut Task, n: i64, x: Ptr, incx: i64, result: Ptr) -> Done {
    let is_wide = it.is_wide;
    reduced(it, n, (x, incx), Reduction::Smallest { is_wide }, result)
}

/// Rotates two vectors. `angles` are cosine and sine.
fn rotated(it: &mut Task, n: i64, vectors: Vectors, angles: [Ptr; 2], is_real: bool) -> Done {
    let [(x, incx), (y, incy)] = vectors;
    let (n, x, y) = (length(n)?, it.vector(x, incx)?, it.vector(y, incy)?);
    let [cosine, sine] = angles;
    let (cosine, sine) = (it.factor(cosine, true)?, it.factor(sine, is_real)?);
    it.run(Routine::Rot { n, x, y, cosine, sine, is_real })
}

#[rustfmt::skip]
fn rot(
    it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64, c: Ptr, s: Ptr,
) -> Done {
    rotated(it, n, [(x, incx), (y, incy)], [c, s], false)
}

#[rustfmt::skip]
fn rot_real(
    it: &mut Task, n: i64, x: Ptr, incx: i64, y: Ptr, incy: i64, c: Ptr, s: Ptr,
) -> Done {
    rotated(it, n, [(x, incx), (y, incy)], [c, s], true)
}

routines! {
    axpy(n: Int, alpha: Ptr, x: Ptr, incx: Int, y: Ptr, incy: Int) {
        F32: cublasSaxpy_v2, cublasSaxpy_v2_64;
        F64: cublasDaxpy_v2, cublasDaxpy_v2_64;
        C32: cublasCaxpy_v2, cublasCaxpy_v2_64;
        C64: cublasZaxpy_v2, cublasZaxpy_v2_64;
    }
    scal(n: Int, alpha: Ptr, x: Ptr, incx: Int) {
        F32: cublasSscal_v2, cublasSscal_v2_64;
        F64: cublasDscal_v2, cublasDscal_v2_64;
        C32: cublasCscal_v2, cublasCscal_v2_64;
        C64: cublasZscal_v2, cublasZscal_v2_64;
    }
    scal_real(n: Int, alpha: Ptr, x: Ptr, incx: Int) {
        C32: cublasCsscal_v2, cublasCsscal_v2_64;
        C64: cublasZdscal_v2, cublasZdscal_v2_64;
    }
    copy(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int) {
        F32: cublasScopy_v2, cublasScopy_v2_64;
        F64: cublasDcopy_v2, cublasDcopy_v2_64;
        C32: cublasCcopy_v2, cublasCcopy_v2_64;
        C64: cublasZcopy_v2, cublasZcopy_v2_64;
    }
    swap(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int) {
        F32: cublasSswap_v2, cublasSswap_v2_64;
        F64: cublasDswap_v2, cublasDswap_v2_64;
        C32: cublasCswap_v2, cublasCswap_v2_64;
        C64: cublasZswap_v2, cublasZswap_v2_64;
    }
    dot(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int, result: Ptr) {
        F32: cublasSdot_v2, cublasSdot_v2_64;
        F64: cublasDdot_v2, cublasDdot_v2_64;
        C32: cublasCdotu_v2, cublasCdotu_v2_64;
        C64: cublasZdotu_v2, cublasZdotu_v2_64;
    }
    dot_conjugate(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int, result: Ptr) {
        C32: cublasCdotc_v2, cublasCdotc_v2_64;
        C64: cublasZdotc_v2, cublasZdotc_v2_64;
    }
    norm(n: Int, x: Ptr, incx: Int, result: Ptr) {
        F32: cublasSnrm2_v2, cublasSnrm2_v2_64;
        F64: cublasDnrm2_v2, cublasDnrm2_v2_64;
        C32: cublasScnrm2_v2, cublasScnrm2_v2_64;
        C64: cublasDznrm2_v2, cublasDznrm2_v2_64;
    }
    absolute_sum(n: Int, x: Ptr, incx: Int, result: Ptr) {
        F32: cublasSasum_v2, cublasSasum_v2_64;
        F64: cublasDasum_v2, cublasDasum_v2_64;
        C32: cublasScasum_v2, cublasScasum_v2_64;
        C64: cublasDzasum_v2, cublasDzasum_v2_64;
    }
    largest(n: Int, x: Ptr, incx: Int, result: Ptr) {
        F32: cublasIsamax_v2, cublasIsamax_v2_64;
        F64: cublasIdamax_v2, cublasIdamax_v2_64;
        C32: cublasIcamax_v2, cublasIcamax_v2_64;
        C64: cublasIzamax_v2, cublasIzamax_v2_64;
    }
    smallest(n: Int, x: Ptr, incx: Int, result: Ptr) {
        F32: cublasIsamin_v2, cublasIsamin_v2_64;
        F64: cublasIdamin_v2, cublasIdamin_v2_64;
        C32: cublasIcamin_v2, cublasIcamin_v2_64;
        C64: cublasIzamin_v2, cublasIzamin_v2_64;
    }
    rot(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int, c: Ptr, s: Ptr) {
        F32: cublasSrot_v2, cublasSrot_v2_64;
        F64: cublasDrot_v2, cublasDrot_v2_64;
        C32: cublasCrot_v2, cublasCrot_v2_64;
        C64: cublasZrot_v2, cublasZrot_v2_64;
    }
    rot_real(n: Int, x: Ptr, incx: Int, y: Ptr, incy: Int, c: Ptr, s: Ptr) {
        C32: cublasCsrot_v2, cublasCsrot_v2_64;
        C64: cublasZdrot_v2, cublasZdrot_v2_64;
    }
}
