//! Level 1.

use penstock_wire::library::Place;
use penstock_wire::library::blas::{Number, Reduction, Routine, Vector};
use penstock_wire::status::Status;

use super::element::{View, write};
use super::{Task, arg, int};

impl Task<'_> {
    pub(super) fn vectors(&self, routine: &Routine) -> Result<(), Status> {
        let symbols = self.symbols;
        match *routine {
            Routine::Axpy { n, alpha, x, y } => {
                let (n, alpha) = (int(n)?, self.factor(alpha, false)?);
                let (x_at, y_at) = (self.operands.at(x.at)?, self.operands.at(y.at)?);
                let args = [arg(&n), alpha.address(), x_at, arg(&x.step), y_at, arg(&y.step)];
                // SAFETY: these are the arguments of xAXPY, and the operands have the bytes that
                // the call touches.
                unsafe { symbols.axpy.run(self.number, &args) }
            }
            Routine::Scal { n, alpha, is_real, x } => {
                if x.step <= 0 {
                    return Ok(());
                }
                let (n, alpha) = (int(n)?, self.factor(alpha, is_real)?);
                let entry = if is_real { &symbols.scal_real } else { &symbols.scal };
                let args = [arg(&n), alpha.address(), self.operands.at(x.at)?, arg(&x.step)];
                // SAFETY: as above, of xSCAL.
                unsafe { entry.run(self.number, &args) }
            }
            Routine::Copy { n, x, y } | Routine::Swap { n, x, y } => {
                let is_copy = matches!(routine, Routine::Copy { .. });
                let entry = if is_copy { &symbols.copy } else { &symbols.swap };
                let (n, x_at, y_at) = (int(n)?, self.operands.at(x.at)?, self.operands.at(y.at)?);
                let args = [arg(&n), x_at, arg(&x.step), y_at, arg(&y.step)];
                // SAFETY: as above, of xCOPY and xSWAP.
                unsafe { entry.run(self.number, &args) }
            }
            Routine::Rot { n, x, y, cosine, sine, is_real } => {
                let entry = if is_real { &symbols.rot_real } else { &symbols.rot };
                let (cosine, sine) = (self.factor(cosine, true)?, self.factor(sine, is_real)?);
                let (n, x_at, y_at) = (int(n)?, self.operands.at(x.at)?, self.operands.at(y.at)?);
                let angles = [cosine.address(), sine.address()];
                let args = [arg(&n), x_at, arg(&x.step), y_at, arg(&y.step), angles[0], angles[1]];
                // SAFETY: as above, of xROT.
                unsafe { entry.run(self.number, &args) }
            }
            Routine::Dot { n, conjugate, x, y, result } => self.dot(n, conjugate, (x, y), result),
            Routine::Reduce { n, what, x, result } => self.reduce(n, what, x, result),
            _ => Err(Status::INVALID_OPERATION),
        }
    }

    fn dot(
        &self,
        n: u32,
        conjugate: bool,
        (x, y): (Vector, Vector),
        result: Place,
    ) -> Result<(), Status> {
        let to = self.operands.at(result)?;
        let (n, x_at, y_at) = (int(n)?, self.operands.at(x.at)?, self.operands.at(y.at)?);
        if self.number.is_complex() {
            let symbols = self.symbols;
            let entry = if conjugate { &symbols.dotc } else { &symbols.dotu };
            let (x, y) = ((x_at.cast_const(), x.step), (y_at.cast_const(), y.step));
            // SAFETY: the operands have the bytes that the call touches.
            return unsafe { entry.dot_sub(self.number, n, x, y, to) };
        }
        let args = [arg(&n), x_at, arg(&x.step), y_at, arg(&y.step)];
        let value = if self.number == Number::F32 {
            // SAFETY: SDOT returns a float, and the operands have the bytes that it touches.
            f64::from(unsafe { self.symbols.dot.dot::<f32>(self.number, args) }?)
        } else {
            // SAFETY: DDOT returns a double, and the operands have the bytes that it touches.
            unsafe { self.symbols.dot.dot::<f64>(self.number, args) }?
        };
        // SAFETY: the operand has the bytes of the result.
        unsafe { write(self.number, to, (value, 0.0)) };
        Ok(())
    }

    fn reduce(&self, n: u32, what: Reduction, x: Vector, result: Place) -> Result<(), Status> {
        let to = self.operands.at(result)?;
        let from = self.operands.at(x.at)?;
        // "If incx is not positive, the result is 0."
        let is_empty = n == 0 || x.step <= 0;
        let (count, part) = (int(n)?, self.number.part());
        let args = [arg(&count), from.cast_const(), arg(&x.step)];
        match what {
            Reduction::AbsoluteSum => {
                let value = if is_empty { 0.0 } else { self.absolute_sum(n, x)? };
                // SAFETY: the operand has the bytes of the result.
                unsafe { write(part, to, (value, 0.0)) };
            }
            Reduction::Norm => {
                let entry = &self.symbols.nrm2;
                let value = match part {
                    _ if is_empty => 0.0,
                    // SAFETY: the function returns a float, and the operand has the bytes that it
                    // touches.
                    Number::F32 => f64::from(unsafe { entry.reduce::<f32>(self.number, args) }?),
                    // SAFETY: as above, with a double.
                    _ => unsafe { entry.reduce::<f64>(self.number, args) }?,
                };
                // SAFETY: the operand has the bytes of the result.
                unsafe { write(part, to, (value, 0.0)) };
            }
            Reduction::Largest { is_wide } | Reduction::Smallest { is_wide } => {
                let index = match what {
                    _ if is_empty => 0,
                    Reduction::Largest { .. } => {
                        // SAFETY: the function returns an integer, and the operand has the bytes
                        // that it touches.
                        unsafe { self.symbols.iamax.reduce::<i32>(self.number, args) }?
                    }
                    _ => self.smallest(n, x)?,
                };
                let index = i64::from(index);
                let size = if is_wide { 8 } else { 4 };
                let bytes = index.to_le_bytes();
                // SAFETY: the operand has the bytes of the result.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), size) };
            }
        }
        Ok(())
    }

    /// Returns the sizes of the elements of a vector with a positive step. The size of a complex
    /// number is |re| + |im| here.
    fn sizes(&self, n: u32, x: Vector) -> Result<impl Iterator<Item = f64>, Status> {
        let view =
            View { number: self.number, start: self.operands.at(x.at)?, ld: x.step.unsigned_abs() };
        Ok((0..n).map(move |index| {
            // SAFETY: the element is one of the vector's.
            let (re, im) = unsafe { view.get(0, index) };
            re.abs() + im.abs()
        }))
    }

    /// Returns the sum of the sizes. The library is not asked: OpenBLAS before 0.3.26 can add wrong
    /// elements of single complex numbers on processors with AVX-512 (its pull request 4326).
    fn absolute_sum(&self, n: u32, x: Vector) -> Result<f64, Status> {
        Ok(self.sizes(n, x)?.sum())
    }

    /// Returns the index from 1 of the first element with the smallest size.
    fn smallest(&self, n: u32, x: Vector) -> Result<i32, Status> {
        let (mut found, mut least) = (0, f64::INFINITY);
        for (size, at) in self.sizes(n, x)?.zip(1..=i32::MAX) {
            if size < least || found == 0 {
                (found, least) = (at, size);
            }
        }
        Ok(found)
    }
}
