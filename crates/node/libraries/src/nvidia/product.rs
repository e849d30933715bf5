//! Products of general matrices.

use penstock_wire::library::blas::{Batch, Gemm, Number, Stored};
use penstock_wire::status::Status;

use super::functions::Op;
use super::{Task, call, int, op};

/// `CUBLAS_COMPUTE_32F`: products of half-precision elements are summed in single precision.
const COMPUTE_32F: Op = 68;
/// `CUBLAS_GEMM_DEFAULT`: cuBLAS chooses the kernel.
const ALGORITHM: Op = -1;

/// Returns the `cudaDataType` of a matrix whose product is computed in single precision.
const fn kind(stored: Stored) -> Op {
    match stored {
        Stored::Same => 0,
        Stored::Half => 2,
        Stored::Brain => 14,
    }
}

impl Task<'_> {
    #[rustfmt::skip]
    pub(super) fn gemm(&self, it: &Gemm) -> Result<(), Status> {
        let (ta, tb) = (op(it.a.transpose), op(it.b.transpose));
        let (m, n, k) = (int(it.m)?, int(it.n)?, int(it.k)?);
        let (alpha, beta) = (self.factor(it.alpha, false)?, self.factor(it.beta, false)?);
        let (alpha, beta) = (alpha.address(), beta.address());
        let (a, lda) = (self.at(it.a.matrix.at)?, int(it.a.matrix.ld)?);
        let (b, ldb) = (self.at(it.b.matrix.at)?, int(it.b.matrix.ld)?);
        let (c, ldc) = (self.at(it.c.at)?, int(it.c.ld)?);
        let stored = [it.a.stored, it.b.stored, it.c_stored];
        if stored == [Stored::Same; 3] {
            return match it.batch {
                Batch::One => {
                    call!(self.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
                }
                Batch::Strided { count, a: far_a, b: far_b, c: far_c } => call!(self.gemm_strided(
                    ta, tb, m, n, k, alpha, a, lda, far_a, b, ldb, far_b, beta, c, ldc, far_c,
                    int(count)?
                )),
                Batch::Pointers { count } => call!(self.gemm_batched(
                    ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, int(count)?
                )),
            };
        }
        if self.number != Number::F32 {
            return Err(Status::INVALID_OPERATION);
        }
        let [of_a, of_b, of_c] = stored.map(kind);
        let (how, which) = (COMPUTE_32F, ALGORITHM);
        match it.batch {
            Batch::One => call!(self.gemm_ex(
                ta, tb, m, n, k, alpha, a, of_a, lda, b, of_b, ldb, beta, c, of_c, ldc, how, which
            )),
            Batch::Strided { count, a: far_a, b: far_b, c: far_c } => call!(self.gemm_strided_ex(
                ta, tb, m, n, k, alpha, a, of_a, lda, far_a, b, of_b, ldb, far_b, beta, c, of_c,
                ldc, far_c, int(count)?, how, which
            )),
            Batch::Pointers { count } => call!(self.gemm_batched_ex(
                ta, tb, m, n, k, alpha, a, of_a, lda, b, of_b, ldb, beta, c, of_c, ldc,
                int(count)?, how, which
            )),
        }
    }
}
