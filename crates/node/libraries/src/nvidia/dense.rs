//! General matrices of level 2, and level 3 without products of general matrices.

use penstock_wire::library::blas::{
    Matrix, Routine, Storage, Stored, Transpose, Transposed, Triangle,
};
use penstock_wire::status::Status;

use super::functions::Int;
use super::{Task, call, half, int, op, side};

const OTHER: Status = Status::INVALID_OPERATION;

/// Returns the distance of two columns of a triangle that is stored as a matrix.
fn ld_of(triangle: Triangle) -> Result<Int, Status> {
    match triangle.storage {
        Storage::Full { ld } => int(ld),
        _ => Err(OTHER),
    }
}

impl Task<'_> {
    pub(super) fn dense(&self, routine: &Routine) -> Result<(), Status> {
        match routine {
            Routine::Gemv { .. } | Routine::Ger { .. } => self.level_2(routine),
            Routine::Symm { .. } => self.symm(routine),
            Routine::Syrk { .. } => self.syrk(routine),
            Routine::Syr2k { .. } => self.syr2k(routine),
            Routine::Trmm { .. } | Routine::Trsm { .. } => self.triangular(routine),
            Routine::Geam { .. } | Routine::Dgmm { .. } => self.sums(routine),
            _ => Err(OTHER),
        }
    }

    #[rustfmt::skip]
    fn level_2(&self, routine: &Routine) -> Result<(), Status> {
        match *routine {
            Routine::Gemv { transpose, m, n, band, alpha, a, x, beta, y } => {
                let (trans, m, n, lda) = (op(transpose), int(m)?, int(n)?, int(a.ld)?);
                let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
                let (alpha, beta) = (alpha.address(), beta.address());
                let (a, x_at, y_at) = (self.at(a.at)?, self.at(x.at)?, self.at(y.at)?);
                match band {
                    None => call!(self.gemv(
                        trans, m, n, alpha, a, lda, x_at, x.step, beta, y_at, y.step
                    )),
                    Some((below, above)) => call!(self.gbmv(
                        trans, m, n, int(below)?, int(above)?, alpha, a, lda, x_at, x.step, beta,
                        y_at, y.step
                    )),
                }
            }
            Routine::Ger { m, n, conjugate, alpha, x, y, a } => {
                let (m, n, alpha) = (int(m)?, int(n)?, self.factor(alpha, false)?);
                let (x_at, y_at, a_at) = (self.at(x.at)?, self.at(y.at)?, self.at(a.at)?);
                let (alpha, ld) = (alpha.address(), int(a.ld)?);
                if conjugate {
                    call!(self.gerc(m, n, alpha, x_at, x.step, y_at, y.step, a_at, ld))
                } else {
                    call!(self.ger(m, n, alpha, x_at, x.step, y_at, y.step, a_at, ld))
                }
            }
            _ => Err(OTHER),
        }
    }

    fn symm(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Symm { side: at, m, n, hermitian, alpha, a, b, beta, c } = *routine else {
            return Err(OTHER);
        };
        let (s, uplo, m, n) = (side(at), half(a.uplo), int(m)?, int(n)?);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
        let (alpha, beta) = (alpha.address(), beta.address());
        let (lda, ldb, ldc) = (ld_of(a)?, int(b.ld)?, int(c.ld)?);
        let (a, b, c) = (self.at(a.at)?, self.at(b.at)?, self.at(c.at)?);
        if hermitian {
            call!(self.hemm(s, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc))
        } else {
            call!(self.symm(s, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc))
        }
    }

    fn syrk(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Syrk { n, k, hermitian, transpose, alpha, a, beta, c } = *routine else {
            return Err(OTHER);
        };
        let (uplo, trans, n, k) = (half(c.uplo), op(transpose), int(n)?, int(k)?);
        let (alpha, beta) = (self.factor(alpha, hermitian)?, self.factor(beta, hermitian)?);
        let (alpha, beta) = (alpha.address(), beta.address());
        let (a_at, lda, c_at, ldc) = (self.at(a.at)?, int(a.ld)?, self.at(c.at)?, ld_of(c)?);
        if hermitian {
            call!(self.herk(uplo, trans, n, k, alpha, a_at, lda, beta, c_at, ldc))
        } else {
            call!(self.syrk(uplo, trans, n, k, alpha, a_at, lda, beta, c_at, ldc))
        }
    }

    #[rustfmt::skip]
    fn syr2k(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Syr2k { n, k, hermitian, is_single, transpose, alpha, a, b, beta, c } =
            *routine else { return Err(OTHER) };
        let (uplo, trans, n, k) = (half(c.uplo), op(transpose), int(n)?, int(k)?);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, hermitian)?);
        let (alpha, beta) = (alpha.address(), beta.address());
        let (lda, ldb, ldc) = (int(a.ld)?, int(b.ld)?, ld_of(c)?);
        let (a, b, c) = (self.at(a.at)?, self.at(b.at)?, self.at(c.at)?);
        match (is_single, hermitian) {
            (false, false) => {
                call!(self.syr2k(uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
            (false, true) => {
                call!(self.her2k(uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
            (true, false) => {
                call!(self.syrkx(uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
            (true, true) => {
                call!(self.herkx(uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
        }
    }

    #[rustfmt::skip]
    fn triangular(&self, routine: &Routine) -> Result<(), Status> {
        let (Routine::Trmm { side: at, m, n, alpha, a, b, .. }
            | Routine::Trsm { side: at, m, n, alpha, a, b, .. }) = *routine
        else {
            return Err(OTHER);
        };
        let (s, m, n, alpha) = (side(at), int(m)?, int(n)?, self.factor(alpha, false)?);
        let (uplo, trans, diag) = (half(a.triangle.uplo), op(a.transpose), a.unit.into());
        let (a, lda) = (self.at(a.triangle.at)?, ld_of(a.triangle)?);
        let (alpha, b, ldb) = (alpha.address(), self.at(b.at)?, int(b.ld)?);
        match *routine {
            Routine::Trmm { c, .. } => {
                let (c, ldc) = (self.at(c.at)?, int(c.ld)?);
                call!(self.trmm(s, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, c, ldc))
            }
            Routine::Trsm { pointers: Some(count), .. } => call!(self.trsm_batched(
                s, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, int(count)?
            )),
            _ => call!(self.trsm(s, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)),
        }
    }

    fn sums(&self, routine: &Routine) -> Result<(), Status> {
        match *routine {
            Routine::Geam { m, n, alpha, a, beta, b, c } => {
                let (a, b, m, n) = (term(a, c), term(b, c), int(m)?, int(n)?);
                let (ta, lda) = (op(a.transpose), int(a.matrix.ld)?);
                let (tb, ldb) = (op(b.transpose), int(b.matrix.ld)?);
                let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
                let (alpha, beta) = (alpha.address(), beta.address());
                let (a, b, ldc) = (self.at(a.matrix.at)?, self.at(b.matrix.at)?, int(c.ld)?);
                let c = self.at(c.at)?;
                call!(self.geam(ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc))
            }
            Routine::Dgmm { side: at, m, n, a, x, c } => {
                let (s, m, n, lda, ldc) = (side(at), int(m)?, int(n)?, int(a.ld)?, int(c.ld)?);
                let (a, x_at, c) = (self.at(a.at)?, self.at(x.at)?, self.at(c.at)?);
                call!(self.dgmm(s, m, n, a, lda, x_at, x.step, c, ldc))
            }
            _ => Err(OTHER),
        }
    }
}

/// Returns a term of a sum. An absent one, whose factor is 0, is the result itself: the only form
/// in which both may be the same memory.
fn term(term: Option<Transposed>, c: Matrix) -> Transposed {
    let none = Transposed { matrix: c, transpose: Transpose::No, stored: Stored::Same };
    term.unwrap_or(none)
}
