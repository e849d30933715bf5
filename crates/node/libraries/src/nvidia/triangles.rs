//! Level 2 with one triangle of a matrix.

use penstock_wire::library::blas::{Routine, Storage};
use penstock_wire::status::Status;

use super::{Task, call, half, int, op};

const OTHER: Status = Status::INVALID_OPERATION;

impl Task<'_> {
    pub(super) fn triangles(&self, routine: &Routine) -> Result<(), Status> {
        match routine {
            Routine::Symv { .. } => self.symv(routine),
            Routine::Syr { .. } => self.syr(routine),
            Routine::Syr2 { .. } => self.syr2(routine),
            _ => self.trmv(routine),
        }
    }

    #[rustfmt::skip]
    fn symv(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Symv { n, hermitian, alpha, a, x, beta, y } = *routine else {
            return Err(OTHER);
        };
        let (uplo, n, storage) = (half(a.uplo), int(n)?, a.storage);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
        let (alpha, beta) = (alpha.address(), beta.address());
        let (a, x_at, y_at) = (self.at(a.at)?, self.at(x.at)?, self.at(y.at)?);
        let (inc_x, inc_y) = (x.step, y.step);
        match (storage, hermitian) {
            (Storage::Full { ld }, true) => call!(self.hemv(
                uplo, n, alpha, a, int(ld)?, x_at, inc_x, beta, y_at, inc_y
            )),
            (Storage::Full { ld }, false) => call!(self.symv(
                uplo, n, alpha, a, int(ld)?, x_at, inc_x, beta, y_at, inc_y
            )),
            (Storage::Band { ld, width }, true) => call!(self.hbmv(
                uplo, n, int(width)?, alpha, a, int(ld)?, x_at, inc_x, beta, y_at, inc_y
            )),
            (Storage::Band { ld, width }, false) => call!(self.sbmv(
                uplo, n, int(width)?, alpha, a, int(ld)?, x_at, inc_x, beta, y_at, inc_y
            )),
            (Storage::Packed, true) => {
                call!(self.hpmv(uplo, n, alpha, a, x_at, inc_x, beta, y_at, inc_y))
            }
            (Storage::Packed, false) => {
                call!(self.spmv(uplo, n, alpha, a, x_at, inc_x, beta, y_at, inc_y))
            }
        }
    }

    fn syr(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Syr { n, hermitian, alpha, x, a } = *routine else { return Err(OTHER) };
        let (uplo, n, alpha) = (half(a.uplo), int(n)?, self.factor(alpha, hermitian)?);
        let (alpha, x_at, a_at) = (alpha.address(), self.at(x.at)?, self.at(a.at)?);
        match (a.storage, hermitian) {
            (Storage::Full { ld }, true) => {
                call!(self.her(uplo, n, alpha, x_at, x.step, a_at, int(ld)?))
            }
            (Storage::Full { ld }, false) => {
                call!(self.syr(uplo, n, alpha, x_at, x.step, a_at, int(ld)?))
            }
            (Storage::Packed, true) => call!(self.hpr(uplo, n, alpha, x_at, x.step, a_at)),
            (Storage::Packed, false) => call!(self.spr(uplo, n, alpha, x_at, x.step, a_at)),
            (Storage::Band { .. }, _) => Err(OTHER),
        }
    }

    #[rustfmt::skip]
    fn syr2(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Syr2 { n, hermitian, alpha, x, y, a } = *routine else { return Err(OTHER) };
        let (uplo, n, alpha) = (half(a.uplo), int(n)?, self.factor(alpha, false)?);
        let (x_at, y_at, a_at) = (self.at(x.at)?, self.at(y.at)?, self.at(a.at)?);
        let (alpha, inc_x, inc_y) = (alpha.address(), x.step, y.step);
        match (a.storage, hermitian) {
            (Storage::Full { ld }, true) => {
                call!(self.her2(uplo, n, alpha, x_at, inc_x, y_at, inc_y, a_at, int(ld)?))
            }
            (Storage::Full { ld }, false) => {
                call!(self.syr2(uplo, n, alpha, x_at, inc_x, y_at, inc_y, a_at, int(ld)?))
            }
            (Storage::Packed, true) => {
                call!(self.hpr2(uplo, n, alpha, x_at, inc_x, y_at, inc_y, a_at))
            }
            (Storage::Packed, false) => {
                call!(self.spr2(uplo, n, alpha, x_at, inc_x, y_at, inc_y, a_at))
            }
            (Storage::Band { .. }, _) => Err(OTHER),
        }
    }

    #[rustfmt::skip]
    fn trmv(&self, routine: &Routine) -> Result<(), Status> {
        let (Routine::Trmv { n, a, x } | Routine::Trsv { n, a, x }) = *routine else {
            return Err(OTHER);
        };
        let (uplo, trans, diag) = (half(a.triangle.uplo), op(a.transpose), a.unit.into());
        let (n, a_at, x_at) = (int(n)?, self.at(a.triangle.at)?, self.at(x.at)?);
        match (a.triangle.storage, matches!(routine, Routine::Trsv { .. })) {
            (Storage::Full { ld }, false) => {
                call!(self.trmv(uplo, trans, diag, n, a_at, int(ld)?, x_at, x.step))
            }
            (Storage::Full { ld }, true) => {
                call!(self.trsv(uplo, trans, diag, n, a_at, int(ld)?, x_at, x.step))
            }
            (Storage::Band { ld, width }, false) => call!(self.tbmv(
                uplo, trans, diag, n, int(width)?, a_at, int(ld)?, x_at, x.step
            )),
            (Storage::Band { ld, width }, true) => call!(self.tbsv(
                uplo, trans, diag, n, int(width)?, a_at, int(ld)?, x_at, x.step
            )),
            (Storage::Packed, false) => {
                call!(self.tpmv(uplo, trans, diag, n, a_at, x_at, x.step))
            }
            (Storage::Packed, true) => {
                call!(self.tpsv(uplo, trans, diag, n, a_at, x_at, x.step))
            }
        }
    }
}
