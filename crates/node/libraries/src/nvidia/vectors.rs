//! Level 1: vectors.

use penstock_wire::library::blas::{Reduction, Routine};
use penstock_wire::status::Status;

use super::{Task, call, int};

impl Task<'_> {
    pub(super) fn vectors(&self, routine: &Routine) -> Result<(), Status> {
        match *routine {
            Routine::Axpy { n, alpha, x, y } => {
                let alpha = self.factor(alpha, false)?;
                let (x_at, y_at) = (self.at(x.at)?, self.at(y.at)?);
                call!(self.axpy(int(n)?, alpha.address(), x_at, x.step, y_at, y.step))
            }
            Routine::Scal { n, alpha, is_real, x } => {
                let (n, alpha) = (int(n)?, self.factor(alpha, is_real)?);
                let x_at = self.at(x.at)?;
                if is_real {
                    call!(self.scal_real(n, alpha.address(), x_at, x.step))
                } else {
                    call!(self.scal(n, alpha.address(), x_at, x.step))
                }
            }
            Routine::Copy { n, x, y } => {
                call!(self.copy(int(n)?, self.at(x.at)?, x.step, self.at(y.at)?, y.step))
            }
            Routine::Swap { n, x, y } => {
                call!(self.swap(int(n)?, self.at(x.at)?, x.step, self.at(y.at)?, y.step))
            }
            Routine::Dot { n, conjugate, x, y, result } => {
                let (n, to) = (int(n)?, self.result(result)?);
                let (x_at, y_at) = (self.at(x.at)?, self.at(y.at)?);
                if conjugate {
                    call!(self.dotc(n, x_at, x.step, y_at, y.step, to))
                } else {
                    call!(self.dot(n, x_at, x.step, y_at, y.step, to))
                }
            }
            Routine::Reduce { n, what, x, result } => {
                let (n, to, x_at) = (int(n)?, self.result(result)?, self.at(x.at)?);
                let (long, long_step) = (n.into(), x.step.into());
                match what {
                    Reduction::Norm => call!(self.nrm2(n, x_at, x.step, to)),
                    Reduction::AbsoluteSum => call!(self.asum(n, x_at, x.step, to)),
                    Reduction::Largest { is_wide: false } => {
                        call!(self.amax(n, x_at, x.step, to))
                    }
                    Reduction::Largest { is_wide: true } => {
                        call!(self.amax_wide(long, x_at, long_step, to))
                    }
                    Reduction::Smallest { is_wide: false } => {
                        call!(self.amin(n, x_at, x.step, to))
                    }
                    Reduction::Smallest { is_wide: true } => {
                        call!(self.amin_wide(long, x_at, long_step, to))
                    }
                }
            }
            Routine::Rot { n, x, y, cosine, sine, is_real } => {
                let (cosine, sine) = (self.factor(cosine, true)?, self.factor(sine, is_real)?);
                let (n, x_at, y_at) = (int(n)?, self.at(x.at)?, self.at(y.at)?);
                let (cosine, sine) = (cosine.address(), sine.address());
                if is_real {
                    call!(self.rot_real(n, x_at, x.step, y_at, y.step, cosine, sine))
                } else {
                    call!(self.rot(n, x_at, x.step, y_at, y.step, cosine, sine))
                }
            }
            _ => Err(Status::INVALID_OPERATION),
        }
    }
}
