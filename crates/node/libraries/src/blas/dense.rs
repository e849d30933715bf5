//! Level 2 and 3 with whole matrices, except for products.

use penstock_wire::library::blas::{
    Factor, Matrix, Routine, Side, Storage, Transpose, Transposed, Triangle, Triangular, Uplo,
    Vector,
};
use penstock_wire::status::Status;

use super::element::{Complex, View, add, mul};
use super::{Task, arg, half, int, letter};

/// The sizes of a rank-k update, and whether it is Hermitian.
#[derive(Clone, Copy)]
struct Update {
    n: u32,
    k: u32,
    hermitian: bool,
    transpose: Transpose,
}

impl Task<'_> {
    pub(super) fn dense(&self, routine: &Routine) -> Result<(), Status> {
        match *routine {
            Routine::Gemv { .. } => self.gemv(routine),
            Routine::Ger { m, n, conjugate, alpha, x, y, a } => {
                self.ger((m, n), conjugate, alpha, (x, y), a)
            }
            Routine::Symm { .. } => self.symm(routine),
            Routine::Syrk { n, k, hermitian, transpose, alpha, a, beta, c } => {
                let update = Update { n, k, hermitian, transpose };
                self.syrk(update, (alpha, beta), &[a], c)
            }
            Routine::Syr2k { n, k, hermitian, is_single, transpose, alpha, a, b, beta, c } => {
                let update = Update { n, k, hermitian, transpose };
                if is_single {
                    self.syrkx(update, (alpha, beta), (a, b), c)
                } else {
                    self.syrk(update, (alpha, beta), &[a, b], c)
                }
            }
            Routine::Trmm { side, m, n, alpha, a, b, c } => {
                self.move_columns((m, n), b, c)?;
                let entry = &self.symbols.trmm;
                let at = (self.operands.at(a.triangle.at)?, self.operands.at(c.at)?);
                self.triangular(entry, side, (m, n), alpha, a, (at, c.ld))
            }
            Routine::Trsm { side, m, n, alpha, a, b, pointers } => {
                self.trsm(side, (m, n), alpha, a, b, pointers)
            }
            Routine::Geam { m, n, alpha, a, beta, b, c } => {
                self.geam((m, n), (alpha, a), (beta, b), c)
            }
            Routine::Dgmm { side, m, n, a, x, c } => self.dgmm(side, (m, n), a, x, c),
            _ => Err(Status::INVALID_OPERATION),
        }
    }

    fn gemv(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Gemv { transpose, m, n, band, alpha, a, x, beta, y } = *routine else {
            return Err(Status::INVALID_OPERATION);
        };
        let (trans, m, n, ld) = (letter(transpose), int(m)?, int(n)?, int(a.ld)?);
        let (below, above) = band.unwrap_or_default();
        let (below, above) = (int(below)?, int(above)?);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
        let mut args = vec![arg(&trans), arg(&m), arg(&n)];
        let entry = if band.is_some() {
            args.extend([arg(&below), arg(&above)]);
            &self.symbols.gbmv
        } else {
            &self.symbols.gemv
        };
        args.extend([alpha.address(), self.operands.at(a.at)?.cast_const(), arg(&ld)]);
        args.extend([self.operands.at(x.at)?.cast_const(), arg(&x.step), beta.address()]);
        args.extend([self.operands.at(y.at)?.cast_const(), arg(&y.step)]);
        // SAFETY: these are the arguments of xGEMV or xGBMV, and the operands have the bytes that
        // the call touches.
        unsafe { entry.run(self.number, &args) }
    }

    fn ger(
        &self,
        (m, n): (u32, u32),
        conjugate: bool,
        alpha: Factor,
        (x, y): (Vector, Vector),
        a: Matrix,
    ) -> Result<(), Status> {
        let entry = if conjugate { &self.symbols.gerc } else { &self.symbols.ger };
        let (m, n, ld, alpha) = (int(m)?, int(n)?, int(a.ld)?, self.factor(alpha, false)?);
        let (x_at, y_at, a_at) =
            (self.operands.at(x.at)?, self.operands.at(y.at)?, self.operands.at(a.at)?);
        let vectors = [x_at.cast_const(), arg(&x.step), y_at.cast_const(), arg(&y.step)];
        let mut args = vec![arg(&m), arg(&n), alpha.address()];
        args.extend(vectors);
        args.extend([a_at.cast_const(), arg(&ld)]);
        // SAFETY: as above, of xGER.
        unsafe { entry.run(self.number, &args) }
    }

    fn symm(&self, routine: &Routine) -> Result<(), Status> {
        let Routine::Symm { side, m, n, hermitian, alpha, a, b, beta, c } = *routine else {
            return Err(Status::INVALID_OPERATION);
        };
        let entry = if hermitian { &self.symbols.hemm } else { &self.symbols.symm };
        let Storage::Full { ld } = a.storage else { return Err(Status::INVALID_OPERATION) };
        let (side, uplo, m, n) = (side_letter(side), half(a.uplo), int(m)?, int(n)?);
        let (ld_a, ld_b, ld_c) = (int(ld)?, int(b.ld)?, int(c.ld)?);
        let (alpha, beta) = (self.factor(alpha, false)?, self.factor(beta, false)?);
        let mut args = vec![arg(&side), arg(&uplo), arg(&m), arg(&n), alpha.address()];
        args.extend([self.operands.at(a.at)?.cast_const(), arg(&ld_a)]);
        args.extend([self.operands.at(b.at)?.cast_const(), arg(&ld_b), beta.address()]);
        args.extend([self.operands.at(c.at)?.cast_const(), arg(&ld_c)]);
        // SAFETY: as above, of xSYMM or xHEMM.
        unsafe { entry.run(self.number, &args) }
    }

    /// Updates a triangle by the product of one matrix with itself, or by those of two matrices.
    fn syrk(
        &self,
        Update { n, k, hermitian, transpose }: Update,
        (alpha, beta): (Factor, Factor),
        matrices: &[Matrix],
        c: Triangle,
    ) -> Result<(), Status> {
        let s = self.symbols;
        let is_one = matches!(matrices, [_]);
        let entry = match (is_one, hermitian) {
            (true, false) => &s.syrk,
            (true, true) => &s.herk,
            (false, false) => &s.syr2k,
            (false, true) => &s.her2k,
        };
        let Storage::Full { ld } = c.storage else { return Err(Status::INVALID_OPERATION) };
        let (uplo, trans, n, k) = (half(c.uplo), letter(transpose), int(n)?, int(k)?);
        let alpha = self.factor(alpha, hermitian && is_one)?;
        let (beta, ld_c) = (self.factor(beta, hermitian)?, int(ld)?);
        let lds: Vec<i32> = matrices.iter().map(|it| int(it.ld)).collect::<Result<_, _>>()?;
        let mut args = vec![arg(&uplo), arg(&trans), arg(&n), arg(&k), alpha.address()];
        for (matrix, ld) in matrices.iter().zip(&lds) {
            args.extend([self.operands.at(matrix.at)?.cast_const(), arg(ld)]);
        }
        args.extend([beta.address(), self.operands.at(c.at)?.cast_const(), arg(&ld_c)]);
        // SAFETY: as above, of xSYRK, xHERK, xSYR2K or xHER2K.
        unsafe { entry.run(self.number, &args) }
    }

    /// Updates a triangle by the product of two matrices, of which the program says that it is
    /// symmetric or Hermitian. OpenBLAS has no such routine, so this makes the whole product.
    fn syrkx(
        &self,
        Update { n, k, hermitian, transpose }: Update,
        (alpha, beta): (Factor, Factor),
        (a, b): (Matrix, Matrix),
        c: Triangle,
    ) -> Result<(), Status> {
        let Storage::Full { ld } = c.storage else { return Err(Status::INVALID_OPERATION) };
        let bytes = u64::from(n) * u64::from(n) * self.number.bytes();
        let bytes = usize::try_from(bytes).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
        let mut product: Vec<u8> = Vec::new();
        product.try_reserve_exact(bytes.max(16)).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
        product.resize(bytes.max(16), 0);
        let adjoint = if hermitian { Transpose::Conjugate } else { Transpose::Yes };
        let of_b = if transpose == Transpose::No { adjoint } else { Transpose::No };
        let (trans_a, trans_b) = (letter(transpose), letter(of_b));
        let (size, depth, ld_a, ld_b) = (int(n)?, int(k)?, int(a.ld)?, int(b.ld)?);
        let (one, zero) = (
            self.factor(Factor::Value(1.0, 0.0), false)?,
            self.factor(Factor::Value(0.0, 0.0), false)?,
        );
        let mut args = vec![arg(&trans_a), arg(&trans_b), arg(&size), arg(&size), arg(&depth)];
        args.extend([one.address(), self.operands.at(a.at)?.cast_const(), arg(&ld_a)]);
        args.extend([self.operands.at(b.at)?.cast_const(), arg(&ld_b), zero.address()]);
        args.extend([product.as_mut_ptr().cast::<std::ffi::c_void>().cast_const(), arg(&size)]);
        if n > 0 {
            // SAFETY: as above, of xGEMM; the product has n columns of n elements.
            unsafe { self.symbols.gemm.run(self.number, &args) }?;
        }
        let (alpha, beta) = (self.value(alpha, false)?, self.value(beta, hermitian)?);
        let from = View { number: self.number, start: product.as_mut_ptr().cast(), ld: n };
        let to = View { number: self.number, start: self.operands.at(c.at)?, ld };
        for column in 0..n {
            let rows = if c.uplo == Uplo::Lower { column..n } else { 0..column + 1 };
            for row in rows {
                // SAFETY: the element lies within the product.
                let new = mul(alpha, unsafe { from.get(row, column) });
                // SAFETY: the element lies within the operand.
                let old = scaled(beta, || unsafe { to.get(row, column) });
                let (re, im) = add(new, old);
                let im = if hermitian && row == column { 0.0 } else { im };
                // SAFETY: as above.
                unsafe { to.set(row, column, (re, im)) };
            }
        }
        Ok(())
    }

    /// Copies a matrix to where a routine changes it in place.
    fn move_columns(&self, (m, n): (u32, u32), b: Matrix, c: Matrix) -> Result<(), Status> {
        let (from, to) = (self.operands.at(b.at)?, self.operands.at(c.at)?);
        if from == to && b.ld == c.ld {
            return Ok(());
        }
        let size =
            |count: u32| usize::try_from(u64::from(count) * self.number.bytes()).unwrap_or(0);
        for column in 0..n as usize {
            let source = from.wrapping_byte_add(column * size(b.ld)).cast::<u8>();
            let target = to.wrapping_byte_add(column * size(c.ld)).cast::<u8>();
            // SAFETY: the columns lie within the operands; `copy` allows overlap.
            unsafe { std::ptr::copy(source, target, size(m)) };
        }
        Ok(())
    }

    fn trsm(
        &self,
        side: Side,
        (m, n): (u32, u32),
        alpha: Factor,
        a: Triangular,
        b: Matrix,
        pointers: Option<u32>,
    ) -> Result<(), Status> {
        let entry = &self.symbols.trsm;
        let Some(count) = pointers else {
            let at = (self.operands.at(a.triangle.at)?, self.operands.at(b.at)?);
            return self.triangular(entry, side, (m, n), alpha, a, (at, b.ld));
        };
        let Storage::Full { ld } = a.triangle.storage else {
            return Err(Status::INVALID_OPERATION);
        };
        let (order, bytes) = (side.order(m, n), self.number.bytes());
        let matrix = Matrix { at: a.triangle.at, ld };
        for index in 0..count {
            let a_at = self.pointed((matrix.at, index), matrix, (order, order), bytes)?;
            let b_at = self.pointed((b.at, index), b, (m, n), bytes)?;
            self.triangular(entry, side, (m, n), alpha, a, ((a_at, b_at), b.ld))?;
        }
        Ok(())
    }

    /// Multiplies with a triangular matrix, or solves, in the memory of the other matrix.
    fn triangular(
        &self,
        entry: &super::symbols::Entry,
        side: Side,
        (m, n): (u32, u32),
        alpha: Factor,
        a: Triangular,
        ((a_at, b_at), ld_b): ((*mut std::ffi::c_void, *mut std::ffi::c_void), u32),
    ) -> Result<(), Status> {
        let Storage::Full { ld } = a.triangle.storage else {
            return Err(Status::INVALID_OPERATION);
        };
        let letters = [
            side_letter(side),
            half(a.triangle.uplo),
            letter(a.transpose),
            if a.unit { b'U' } else { b'N' },
        ];
        let (m, n, ld_a, ld_b) = (int(m)?, int(n)?, int(ld)?, int(ld_b)?);
        let alpha = self.factor(alpha, false)?;
        let mut args: Vec<_> = letters.iter().map(arg).collect();
        args.extend([arg(&m), arg(&n), alpha.address(), a_at.cast_const(), arg(&ld_a)]);
        args.extend([b_at.cast_const(), arg(&ld_b)]);
        // SAFETY: these are the arguments of xTRMM or xTRSM, and the matrices lie within the
        // operands.
        unsafe { entry.run(self.number, &args) }
    }

    fn geam(
        &self,
        (m, n): (u32, u32),
        a: (Factor, Option<Transposed>),
        b: (Factor, Option<Transposed>),
        c: Matrix,
    ) -> Result<(), Status> {
        let number = self.number;
        let to = View { number, start: self.operands.at(c.at)?, ld: c.ld };
        let mut terms = Vec::new();
        for (factor, matrix) in [a, b] {
            let Some(matrix) = matrix else { continue };
            let start = self.operands.at(matrix.matrix.at)?;
            let view = View { number, start, ld: matrix.matrix.ld };
            terms.push((self.value(factor, false)?, view, matrix.transpose));
        }
        for column in 0..n {
            for row in 0..m {
                let mut sum = (0.0, 0.0);
                for (factor, view, transpose) in &terms {
                    // SAFETY: the element lies within the operand.
                    sum = add(
                        sum,
                        scaled(*factor, || unsafe { element(*view, *transpose, row, column) }),
                    );
                }
                // SAFETY: as above.
                unsafe { to.set(row, column, sum) };
            }
        }
        Ok(())
    }

    fn dgmm(
        &self,
        side: Side,
        (m, n): (u32, u32),
        a: Matrix,
        x: Vector,
        c: Matrix,
    ) -> Result<(), Status> {
        let number = self.number;
        let from = View { number, start: self.operands.at(a.at)?, ld: a.ld };
        let to = View { number, start: self.operands.at(c.at)?, ld: c.ld };
        let vector = View { number, start: self.operands.at(x.at)?, ld: x.step.unsigned_abs() };
        let count = side.order(m, n);
        for column in 0..n {
            for row in 0..m {
                let index = side.order(row, column);
                // With a negative step, the first element is the last one in memory.
                let index = if x.step < 0 { count - 1 - index } else { index };
                // SAFETY: the element lies within the operand.
                let factor = unsafe { vector.get(0, index) };
                // SAFETY: as above.
                let value = mul(factor, unsafe { from.get(row, column) });
                // SAFETY: as above.
                unsafe { to.set(row, column, value) };
            }
        }
        Ok(())
    }
}

/// Returns a product with an element that is read only if the factor is not 0.
fn scaled(factor: Complex, element: impl FnOnce() -> Complex) -> Complex {
    if factor == (0.0, 0.0) { factor } else { mul(factor, element()) }
}

/// Returns an element of a matrix, or of its transpose.
///
/// # Safety
/// The element lies within the operand.
unsafe fn element(view: View, transpose: Transpose, row: u32, column: u32) -> Complex {
    if transpose == Transpose::No {
        // SAFETY: the caller promises that the element lies within the operand.
        return unsafe { view.get(row, column) };
    }
    // SAFETY: as above.
    let (re, im) = unsafe { view.get(column, row) };
    if transpose == Transpose::Conjugate { (re, -im) } else { (re, im) }
}

const fn side_letter(side: Side) -> u8 {
    match side {
        Side::Left => b'L',
        Side::Right => b'R',
    }
}
