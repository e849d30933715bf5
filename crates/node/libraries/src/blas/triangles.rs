//! Level 2 with one triangle of a matrix: symmetric, Hermitian and triangular ones.

use std::ffi::c_void;

use penstock_wire::library::blas::{Factor, Routine, Storage, Triangle, Triangular, Uplo, Vector};
use penstock_wire::status::Status;

use super::element::{View, add, mul};
use super::symbols::Entry;
use super::{Task, arg, half, int, letter};

impl Task<'_> {
    pub(super) fn triangles(&self, routine: &Routine) -> Result<(), Status> {
        let s = self.symbols;
        match *routine {
            Routine::Symv { n, hermitian, alpha, a, x, beta, y } => {
                self.symv(n, hermitian, (alpha, beta), a, (x, y))
            }
            Routine::Syr { n, hermitian, alpha, x, a } => {
                let entry = self.pick(a.storage, hermitian, [&s.syr, &s.her, &s.hpr])?;
                self.update(entry, n, (alpha, hermitian), &[x], a)
            }
            Routine::Syr2 { n, hermitian, alpha, x, y, a } => {
                if self.number.is_complex() && !hermitian {
                    return self.syr2(n, alpha, (x, y), a);
                }
                let entry = self.pick(a.storage, hermitian, [&s.syr2, &s.her2, &s.hpr2])?;
                self.update(entry, n, (alpha, false), &[x, y], a)
            }
            Routine::Trmv { n, a, x } => self.trmv([&s.trmv, &s.tbmv, &s.tpmv], n, a, x),
            Routine::Trsv { n, a, x } => self.trmv([&s.trsv, &s.tbsv, &s.tpsv], n, a, x),
            _ => Err(Status::INVALID_OPERATION),
        }
    }

    /// Returns the symmetric, the Hermitian or the packed form of an update.
    fn pick<'a>(
        &self,
        storage: Storage,
        hermitian: bool,
        [symmetric, full, packed]: [&'a Entry; 3],
    ) -> Result<&'a Entry, Status> {
        match storage {
            Storage::Full { .. } => Ok(if hermitian { full } else { symmetric }),
            Storage::Packed if hermitian || !self.number.is_complex() => Ok(packed),
            _ => Err(Status::INVALID_OPERATION),
        }
    }

    fn symv(
        &self,
        n: u32,
        hermitian: bool,
        (alpha, beta): (Factor, Factor),
        a: Triangle,
        (x, y): (Vector, Vector),
    ) -> Result<(), Status> {
        let s = self.symbols;
        let (uplo, n) = (half(a.uplo), int(n)?);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
        let (a_at, x_at, y_at) =
            (self.operands.at(a.at)?, self.operands.at(x.at)?, self.operands.at(y.at)?);
        let behind = [x_at.cast_const(), arg(&x.step), beta.address(), y_at, arg(&y.step)];
        let is_served = hermitian || !self.number.is_complex();
        let (entry, before, ld, width);
        match a.storage {
            Storage::Full { ld: columns } => {
                ld = int(columns)?;
                entry = if hermitian { &s.hemv } else { &s.symv };
                before = vec![arg(&uplo), arg(&n), alpha.address(), a_at.cast_const(), arg(&ld)];
            }
            Storage::Band { ld: columns, width: beside } if is_served => {
                (ld, width) = (int(columns)?, int(beside)?);
                entry = &s.hbmv;
                let sizes = [arg(&uplo), arg(&n), arg(&width), alpha.address()];
                before = [sizes.as_slice(), &[a_at.cast_const(), arg(&ld)]].concat();
            }
            Storage::Packed if is_served => {
                entry = &s.hpmv;
                before = vec![arg(&uplo), arg(&n), alpha.address(), a_at.cast_const()];
            }
            _ => return Err(Status::INVALID_OPERATION),
        }
        // SAFETY: these are the arguments of xSYMV, xSBMV or xSPMV, and the operands have the bytes
        // that the call touches.
        unsafe { entry.run(self.number, &[before.as_slice(), &behind].concat()) }
    }

    /// Adds a product of vectors to a triangle.
    fn update(
        &self,
        entry: &Entry,
        n: u32,
        (alpha, is_real): (Factor, bool),
        vectors: &[Vector],
        a: Triangle,
    ) -> Result<(), Status> {
        let (uplo, n, alpha) = (half(a.uplo), int(n)?, self.factor(alpha, is_real)?);
        let mut args = vec![arg(&uplo), arg(&n), alpha.address()];
        for vector in vectors {
            args.extend([self.operands.at(vector.at)?.cast_const(), arg(&vector.step)]);
        }
        args.push(self.operands.at(a.at)?);
        let ld;
        if let Storage::Full { ld: columns } = a.storage {
            ld = int(columns)?;
            args.push(arg(&ld));
        }
        // SAFETY: these are the arguments of xSYR, xSPR, xSYR2 or xSPR2, and the operands have the
        // bytes that the call touches.
        unsafe { entry.run(self.number, &args) }
    }

    fn trmv(
        &self,
        [full, band, packed]: [&Entry; 3],
        n: u32,
        a: Triangular,
        x: Vector,
    ) -> Result<(), Status> {
        let (uplo, trans, n) = (half(a.triangle.uplo), letter(a.transpose), int(n)?);
        let diag = if a.unit { b'U' } else { b'N' };
        let a_at = self.operands.at(a.triangle.at)?.cast_const();
        let mut args: Vec<*const c_void> = vec![arg(&uplo), arg(&trans), arg(&diag), arg(&n)];
        let (ld, width);
        let entry = match a.triangle.storage {
            Storage::Full { ld: columns } => {
                ld = int(columns)?;
                args.extend([a_at, arg(&ld)]);
                full
            }
            Storage::Band { ld: columns, width: beside } => {
                (ld, width) = (int(columns)?, int(beside)?);
                args.extend([arg(&width), a_at, arg(&ld)]);
                band
            }
            Storage::Packed => {
                args.push(a_at);
                packed
            }
        };
        args.extend([self.operands.at(x.at)?.cast_const(), arg(&x.step)]);
        // SAFETY: these are the arguments of xTRMV, xTBMV, xTPMV or the solvers of these names, and
        // the operands have the bytes that the call touches.
        unsafe { entry.run(self.number, &args) }
    }

    /// Adds `alpha * (x * y' + y * x')` to a triangle of complex elements. The routine of OpenBLAS
    /// 0.3.21 is wrong for vectors with a negative distance.
    fn syr2(
        &self,
        n: u32,
        alpha: Factor,
        (x, y): (Vector, Vector),
        a: Triangle,
    ) -> Result<(), Status> {
        let Storage::Full { ld } = a.storage else { return Err(Status::INVALID_OPERATION) };
        let number = self.number;
        let alpha = self.value(alpha, false)?;
        let to = View { number, start: self.operands.at(a.at)?, ld };
        let view = |it: Vector| -> Result<View, Status> {
            Ok(View { number, start: self.operands.at(it.at)?, ld: it.step.unsigned_abs() })
        };
        let (x_view, y_view) = (view(x)?, view(y)?);
        let element = |view: View, step: i32, index: u32| {
            // With a negative step, the first element is the last one in memory.
            let index = if step < 0 { n - 1 - index } else { index };
            // SAFETY: the element is one of the vector's.
            unsafe { view.get(0, index) }
        };
        for column in 0..n {
            let (x_column, y_column) =
                (element(x_view, x.step, column), element(y_view, y.step, column));
            let rows = if a.uplo == Uplo::Lower { column..n } else { 0..column + 1 };
            for row in rows {
                let (x_row, y_row) = (element(x_view, x.step, row), element(y_view, y.step, row));
                let products = add(mul(x_row, y_column), mul(y_row, x_column));
                // SAFETY: the element lies within the operand.
                let old = unsafe { to.get(row, column) };
                // SAFETY: as above.
                unsafe { to.set(row, column, add(old, mul(alpha, products))) };
            }
        }
        Ok(())
    }
}
