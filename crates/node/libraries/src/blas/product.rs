//! Products of matrices: one, batches at fixed distances, and batches by lists of addresses.

use std::ffi::c_void;

use penstock_wire::library::blas::{Batch, Gemm, Matrix, Number, Stored};
use penstock_wire::library::{Misfit, Place};
use penstock_wire::status::Status;

use super::element::{from_brain, from_half, to_brain, to_half};
use super::{Task, arg, int, letter};

/// The matrices of one product of a batch.
struct Matrices {
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
}

impl Task<'_> {
    pub(super) fn gemm(&self, gemm: &Gemm) -> Result<(), Status> {
        // A product without columns or rows touches nothing, and its lists may be absent.
        if gemm.m == 0 || gemm.n == 0 {
            return Ok(());
        }
        let is_narrow = gemm.a.stored != Stored::Same
            || gemm.b.stored != Stored::Same
            || gemm.c_stored != Stored::Same;
        let count = match gemm.batch {
            Batch::One => 1,
            Batch::Strided { count, .. } | Batch::Pointers { count } => count,
        };
        for index in 0..count {
            let matrices = self.matrices(gemm, index)?;
            if is_narrow {
                self.narrow_product(gemm, &matrices)?;
            } else {
                let ld = [gemm.a.matrix.ld, gemm.b.matrix.ld, gemm.c.ld];
                self.product(gemm, &matrices, ld)?;
            }
        }
        Ok(())
    }

    /// Returns the matrices of a product of the batch.
    fn matrices(&self, gemm: &Gemm, index: u32) -> Result<Matrices, Status> {
        let (a, b, c) = (gemm.a.matrix.at, gemm.b.matrix.at, gemm.c.at);
        match gemm.batch {
            Batch::One => Ok(Matrices {
                a: self.operands.at(a)?,
                b: self.operands.at(b)?,
                c: self.operands.at(c)?,
            }),
            Batch::Strided { a: a_step, b: b_step, c: c_step, .. } => {
                let block = |place, step: i64, stored| -> Result<*mut c_void, Status> {
                    let bytes = i64::try_from(self.bytes(stored)).map_err(|_| misfit(Misfit))?;
                    let offset =
                        i64::from(index).checked_mul(step).and_then(|it| it.checked_mul(bytes));
                    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
                    let start = self.operands.at(place)?;
                    // The extents of the call say that the block lies within the operand.
                    Ok(start.wrapping_byte_add(offset.ok_or(misfit(Misfit))?))
                };
                Ok(Matrices {
                    a: block(a, a_step, gemm.a.stored)?,
                    b: block(b, b_step, gemm.b.stored)?,
                    c: block(c, c_step, gemm.c_stored)?,
                })
            }
            Batch::Pointers { .. } => {
                let a_size = gemm.a.transpose.size(gemm.m, gemm.k);
                let b_size = gemm.b.transpose.size(gemm.k, gemm.n);
                let bytes = [gemm.a.stored, gemm.b.stored, gemm.c_stored].map(|it| self.bytes(it));
                Ok(Matrices {
                    a: self.pointed((a, index), gemm.a.matrix, a_size, bytes[0])?,
                    b: self.pointed((b, index), gemm.b.matrix, b_size, bytes[1])?,
                    c: self.pointed((c, index), gemm.c, (gemm.m, gemm.n), bytes[2])?,
                })
            }
        }
    }

    fn bytes(&self, stored: Stored) -> u64 {
        if stored == Stored::Same { self.number.bytes() } else { 2 }
    }

    /// Returns the matrix behind an address in a list.
    pub(super) fn pointed(
        &self,
        (list, index): (Place, u32),
        matrix: Matrix,
        size: (u32, u32),
        bytes: u64,
    ) -> Result<*mut c_void, Status> {
        let list = self.operands.at(list)?.cast::<u64>();
        // SAFETY: the list has one address for each product of the batch.
        let address = unsafe { list.wrapping_add(index as usize).read_unaligned() };
        let elements = matrix.elements(size).map_err(misfit)?;
        self.operands.behind(address, elements.checked_mul(bytes).ok_or(misfit(Misfit))?)
    }

    /// Computes one product whose matrices have the type of the call.
    fn product(&self, gemm: &Gemm, at: &Matrices, ld: [u32; 3]) -> Result<(), Status> {
        let (trans_a, trans_b) = (letter(gemm.a.transpose), letter(gemm.b.transpose));
        let sizes = [int(gemm.m)?, int(gemm.n)?, int(gemm.k)?];
        let [ld_a, ld_b, ld_c] = [int(ld[0])?, int(ld[1])?, int(ld[2])?];
        let (alpha, beta) = (self.factor(gemm.alpha, false)?, self.factor(gemm.beta, false)?);
        let letters = [arg(&trans_a), arg(&trans_b)];
        let sizes = [arg(&sizes[0]), arg(&sizes[1]), arg(&sizes[2])];
        let from = [alpha.address(), at.a, arg(&ld_a), at.b, arg(&ld_b)];
        let to = [beta.address(), at.c, arg(&ld_c)];
        let args = [letters.as_slice(), &sizes, &from, &to].concat();
        // SAFETY: these are the arguments of xGEMM, and the matrices lie within the operands.
        unsafe { self.symbols.gemm.run(self.number, &args) }
    }

    /// Computes one product by way of copies in single precision.
    fn narrow_product(&self, gemm: &Gemm, at: &Matrices) -> Result<(), Status> {
        if self.number != Number::F32 {
            return Err(Status::INVALID_OPERATION);
        }
        let a_size = gemm.a.transpose.size(gemm.m, gemm.k);
        let b_size = gemm.b.transpose.size(gemm.k, gemm.n);
        let mut a = widened(at.a, gemm.a.matrix.ld, a_size, gemm.a.stored)?;
        let mut b = widened(at.b, gemm.b.matrix.ld, b_size, gemm.b.stored)?;
        let mut c = widened(at.c, gemm.c.ld, (gemm.m, gemm.n), gemm.c_stored)?;
        let wide = Matrices {
            a: a.as_mut_ptr().cast(),
            b: b.as_mut_ptr().cast(),
            c: c.as_mut_ptr().cast(),
        };
        self.product(gemm, &wide, [a_size.0.max(1), b_size.0.max(1), gemm.m.max(1)])?;
        store(&c, at.c, gemm);
        Ok(())
    }
}

fn misfit(_: Misfit) -> Status {
    Status::INVALID_VALUE
}

/// Returns a copy of a matrix in single precision, without gaps.
fn widened(
    from: *mut c_void,
    ld: u32,
    (rows, columns): (u32, u32),
    stored: Stored,
) -> Result<Vec<f32>, Status> {
    let elements = u64::from(rows) * u64::from(columns);
    let elements = usize::try_from(elements).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
    let mut copy = Vec::new();
    copy.try_reserve_exact(elements.max(1)).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
    for column in 0..columns as usize {
        let start = column * ld as usize;
        for row in 0..rows as usize {
            let index = start + row;
            let narrow = from.cast::<u16>().wrapping_add(index);
            copy.push(match stored {
                // SAFETY: the element lies within the matrix.
                Stored::Same => unsafe { from.cast::<f32>().wrapping_add(index).read_unaligned() },
                // SAFETY: as above.
                Stored::Half => unsafe { from_half(narrow.read_unaligned()) },
                // SAFETY: as above.
                Stored::Brain => unsafe { from_brain(narrow.read_unaligned()) },
            });
        }
    }
    Ok(copy)
}

/// Stores the result of a product in its own type.
fn store(values: &[f32], to: *mut c_void, gemm: &Gemm) {
    // A matrix without rows has no values, and a chunk has at least one.
    let rows = gemm.m.max(1) as usize;
    for (column, values) in values.chunks_exact(rows).enumerate() {
        let start = column * gemm.c.ld as usize;
        for (row, value) in values.iter().enumerate() {
            let index = start + row;
            let narrow = match gemm.c_stored {
                Stored::Same => {
                    // SAFETY: the element lies within the matrix.
                    unsafe { to.cast::<f32>().wrapping_add(index).write_unaligned(*value) };
                    continue;
                }
                Stored::Half => to_half(*value),
                Stored::Brain => to_brain(*value),
            };
            // SAFETY: as above.
            unsafe { to.cast::<u16>().wrapping_add(index).write_unaligned(narrow) };
        }
    }
}
