//! Which bytes of which operands a routine of linear algebra touches.

use super::blas::{
    Batch, Call, Factor, Gemm, Matrix, Number, Reduction, Routine, Storage, Stored, Triangle,
    Vector,
};
use super::extent::{area, blocks, span, triangle};
use super::{Access, Extents, Misfit};

/// Size of an address in device memory.
const ADDRESS_BYTES: u64 = 8;

/// Notes the operands of a call in its extents.
struct Toucher<'a> {
    extents: &'a mut Extents,
    number: Number,
}

use Access::{Read, Write};

impl Toucher<'_> {
    fn factor(&mut self, factor: Factor, is_real: bool) -> Result<(), Misfit> {
        let number = if is_real { self.number.part() } else { self.number };
        match factor {
            Factor::Value(..) => Ok(()),
            Factor::At(place) => self.extents.put(place, 1, number.bytes(), Read),
        }
    }

    fn vector(&mut self, vector: Vector, count: u32, access: Access) -> Result<(), Misfit> {
        self.extents.put(vector.at, span(count, vector.step)?, self.number.bytes(), access)
    }

    /// Notes a vector whose step must not be 0.
    fn apart(&mut self, vector: Vector, count: u32, access: Access) -> Result<(), Misfit> {
        if vector.step == 0 {
            return Err(Misfit);
        }
        self.vector(vector, count, access)
    }

    fn matrix(&mut self, it: Matrix, size: (u32, u32), access: Access) -> Result<(), Misfit> {
        self.extents.put(it.at, area(size.0, size.1, it.ld)?, self.number.bytes(), access)
    }

    fn triangle(&mut self, it: Triangle, order: u32, access: Access) -> Result<(), Misfit> {
        let elements = match it.storage {
            Storage::Full { ld } => area(order, order, ld)?,
            Storage::Band { ld, width } => area(width.checked_add(1).ok_or(Misfit)?, order, ld)?,
            Storage::Packed => triangle(order),
        };
        self.extents.put(it.at, elements, self.number.bytes(), access)
    }

    /// Notes a matrix of a product, or the list of its addresses.
    fn operand(
        &mut self,
        it: Matrix,
        size: (u32, u32),
        (stored, access): (Stored, Access),
        (batch, distance): (Batch, i64),
    ) -> Result<(), Misfit> {
        let block = area(size.0, size.1, it.ld)?;
        let bytes = stored.bytes(self.number);
        match batch {
            Batch::One => self.extents.put(it.at, block, bytes, access),
            Batch::Strided { count, .. } => {
                self.extents.put(it.at, blocks(count, distance, block)?, bytes, access)
            }
            Batch::Pointers { count } => {
                self.extents.put(it.at, u64::from(count), ADDRESS_BYTES, Read)
            }
        }
    }

    fn gemm(&mut self, it: &Gemm) -> Result<(), Misfit> {
        let (a, b, c) = match it.batch {
            Batch::Strided { a, b, c, .. } => (a, b, c),
            _ => (0, 0, 0),
        };
        self.factor(it.alpha, false)?;
        self.factor(it.beta, false)?;
        let a_size = it.a.transpose.size(it.m, it.k);
        let b_size = it.b.transpose.size(it.k, it.n);
        self.operand(it.a.matrix, a_size, (it.a.stored, Read), (it.batch, a))?;
        self.operand(it.b.matrix, b_size, (it.b.stored, Read), (it.batch, b))?;
        self.operand(it.c, (it.m, it.n), (it.c_stored, Write), (it.batch, c))
    }
}

impl Call {
    pub(super) fn touch(&self, extents: &mut Extents) -> Result<(), Misfit> {
        let mut it = Toucher { extents, number: self.number };
        match self.routine {
            Routine::Gemm(gemm) => it.gemm(&gemm),
            routine if routine.is_of_vectors() => self.touch_vectors(&mut it),
            routine if routine.is_of_triangles() => self.touch_level_2(&mut it),
            Routine::Gemv { .. } | Routine::Ger { .. } => self.touch_level_2(&mut it),
            _ => self.touch_level_3(&mut it),
        }
    }

    fn touch_vectors(&self, it: &mut Toucher<'_>) -> Result<(), Misfit> {
        match self.routine {
            Routine::Axpy { n, alpha, x, y } => {
                it.factor(alpha, false)?;
                it.vector(x, n, Read)?;
                it.vector(y, n, Write)
            }
            Routine::Scal { n, alpha, is_real, x } => {
                it.factor(alpha, is_real)?;
                it.vector(x, n, Write)
            }
            Routine::Copy { n, x, y } => {
                it.vector(x, n, Read)?;
                it.vector(y, n, Write)
            }
            Routine::Swap { n, x, y } => {
                it.vector(x, n, Write)?;
                it.vector(y, n, Write)
            }
            Routine::Dot { n, x, y, result, .. } => {
                it.vector(x, n, Read)?;
                it.vector(y, n, Read)?;
                it.extents.put(result, 1, self.number.bytes(), Write)
            }
            Routine::Reduce { n, what, x, result } => {
                it.vector(x, n, Read)?;
                let bytes = match what {
                    Reduction::Norm | Reduction::AbsoluteSum => self.number.part().bytes(),
                    Reduction::Largest { is_wide } | Reduction::Smallest { is_wide } => {
                        if is_wide {
                            8
                        } else {
                            4
                        }
                    }
                };
                it.extents.put(result, 1, bytes, Write)
            }
            Routine::Rot { n, x, y, cosine, sine, is_real } => {
                it.vector(x, n, Write)?;
                it.vector(y, n, Write)?;
                it.factor(cosine, true)?;
                it.factor(sine, is_real)
            }
            _ => Err(Misfit),
        }
    }

    fn touch_level_2(&self, it: &mut Toucher<'_>) -> Result<(), Misfit> {
        match self.routine {
            Routine::Gemv { transpose, m, n, band, alpha, a, x, beta, y } => {
                it.factor(alpha, false)?;
                it.factor(beta, false)?;
                let rows = match band {
                    None => m,
                    Some((below, above)) => {
                        below.checked_add(above).and_then(|it| it.checked_add(1)).ok_or(Misfit)?
                    }
                };
                it.matrix(a, (rows, n), Read)?;
                let (y_count, x_count) = transpose.size(m, n);
                it.apart(x, x_count, Read)?;
                it.apart(y, y_count, Write)
            }
            Routine::Ger { m, n, alpha, x, y, a, .. } => {
                it.factor(alpha, false)?;
                it.apart(x, m, Read)?;
                it.apart(y, n, Read)?;
                it.matrix(a, (m, n), Write)
            }
            Routine::Symv { n, alpha, a, x, beta, y, .. } => {
                it.factor(alpha, false)?;
                it.factor(beta, false)?;
                it.triangle(a, n, Read)?;
                it.apart(x, n, Read)?;
                it.apart(y, n, Write)
            }
            Routine::Syr { n, hermitian, alpha, x, a } => {
                it.factor(alpha, hermitian)?;
                it.apart(x, n, Read)?;
                it.triangle(a, n, Write)
            }
            Routine::Syr2 { n, alpha, x, y, a, .. } => {
                it.factor(alpha, false)?;
                it.apart(x, n, Read)?;
                it.apart(y, n, Read)?;
                it.triangle(a, n, Write)
            }
            Routine::Trmv { n, a, x } | Routine::Trsv { n, a, x } => {
                it.triangle(a.triangle, n, Read)?;
                it.apart(x, n, Write)
            }
            _ => Err(Misfit),
        }
    }

    fn touch_level_3(&self, it: &mut Toucher<'_>) -> Result<(), Misfit> {
        match self.routine {
            Routine::Symm { side, m, n, alpha, a, b, beta, c, .. } => {
                it.factor(alpha, false)?;
                it.factor(beta, false)?;
                it.triangle(a, side.order(m, n), Read)?;
                it.matrix(b, (m, n), Read)?;
                it.matrix(c, (m, n), Write)
            }
            Routine::Syrk { n, k, hermitian, transpose, alpha, a, beta, c } => {
                it.factor(alpha, hermitian)?;
                it.factor(beta, hermitian)?;
                it.matrix(a, transpose.size(n, k), Read)?;
                it.triangle(c, n, Write)
            }
            Routine::Syr2k { n, k, hermitian, transpose, alpha, a, b, beta, c, .. } => {
                it.factor(alpha, false)?;
                it.factor(beta, hermitian)?;
                it.matrix(a, transpose.size(n, k), Read)?;
                it.matrix(b, transpose.size(n, k), Read)?;
                it.triangle(c, n, Write)
            }
            Routine::Trmm { side, m, n, alpha, a, b, c } => {
                it.factor(alpha, false)?;
                it.triangle(a.triangle, side.order(m, n), Read)?;
                it.matrix(b, (m, n), Read)?;
                it.matrix(c, (m, n), Write)
            }
            Routine::Trsm { side, m, n, alpha, a, b, pointers } => {
                it.factor(alpha, false)?;
                let Storage::Full { ld } = a.triangle.storage else { return Err(Misfit) };
                let batch = pointers.map_or(Batch::One, |count| Batch::Pointers { count });
                let (a, order) = (Matrix { at: a.triangle.at, ld }, side.order(m, n));
                it.operand(a, (order, order), (Stored::Same, Read), (batch, 0))?;
                it.operand(b, (m, n), (Stored::Same, Write), (batch, 0))
            }
            Routine::Geam { m, n, alpha, a, beta, b, c } => {
                it.factor(alpha, false)?;
                it.factor(beta, false)?;
                for term in [a, b].into_iter().flatten() {
                    it.matrix(term.matrix, term.transpose.size(m, n), Read)?;
                }
                it.matrix(c, (m, n), Write)
            }
            Routine::Dgmm { side, m, n, a, x, c } => {
                it.matrix(a, (m, n), Read)?;
                it.vector(x, side.order(m, n), Read)?;
                it.matrix(c, (m, n), Write)
            }
            _ => Err(Misfit),
        }
    }
}
