//! The routines of linear algebra. Matrices are stored in columns, as in Fortran.

use serde::{Deserialize, Serialize};

use super::extent::area;
use super::{Misfit, Place};

/// The type of a call's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
    F32,
    F64,
    C32,
    C64,
}

impl Number {
    /// Size of an element in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }

    /// Returns the type of a real or imaginary part.
    pub const fn part(self) -> Self {
        match self {
            Self::F32 | Self::C32 => Self::F32,
            Self::F64 | Self::C64 => Self::F64,
        }
    }
}

/// The type of a matrix in memory, if it differs from the type in which the product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stored {
    /// As the call computes.
    Same,
    /// IEEE 754 half precision.
    Half,
    /// The upper half of single precision.
    Brain,
}

impl Stored {
    /// Size of an element in bytes, if the product is computed in `number`.
    pub const fn bytes(self, number: Number) -> u64 {
        match self {
            Self::Same => number.bytes(),
            Self::Half | Self::Brain => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transpose {
    No,
    Yes,
    Conjugate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uplo {
    Lower,
    Upper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    Left,
    Right,
}

/// A scalar of the program, or one in device memory (`CUBLAS_POINTER_MODE_DEVICE`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Factor {
    /// Real and imaginary part.
    Value(f64, f64),
    At(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    pub at: Place,
    /// Distance of two elements. If it is negative, the first element is the last one in memory.
    pub step: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    pub at: Place,
    /// Distance of two columns in elements.
    pub ld: u32,
}

impl Matrix {
    /// Returns the number of elements from the first to the last one.
    ///
    /// # Errors
    /// The columns overlap.
    pub fn elements(self, (rows, columns): (u32, u32)) -> Result<u64, Misfit> {
        area(rows, columns, self.ld)
    }
}

/// How a square matrix, or one triangle of it, is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    Full {
        ld: u32,
    },
    /// The main diagonal, and `width` diagonals beside it.
    Band {
        ld: u32,
        width: u32,
    },
    /// The triangle without gaps.
    Packed,
}

/// One triangle of a square matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triangle {
    pub at: Place,
    pub uplo: Uplo,
    pub storage: Storage,
}

/// A triangle that stands for a triangular matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triangular {
    pub triangle: Triangle,
    pub transpose: Transpose,
    /// Whether the diagonal counts as ones.
    pub unit: bool,
}

/// How many products one call has, and where their matrices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Batch {
    One,
    /// The matrices of a product are these numbers of elements behind those of the one before.
    Strided {
        count: u32,
        a: i64,
        b: i64,
        c: i64,
    },
    /// The operands are lists of addresses.
    Pointers {
        count: u32,
    },
}

/// A matrix, and whether the call uses it or its transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transposed {
    pub matrix: Matrix,
    pub transpose: Transpose,
    pub stored: Stored,
}

/// `C = alpha * op(A) * op(B) + beta * C`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gemm {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub alpha: Factor,
    pub a: Transposed,
    pub b: Transposed,
    pub beta: Factor,
    pub c: Matrix,
    pub c_stored: Stored,
    pub batch: Batch,
}

/// What the vectors of a level-1 call give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduction {
    /// Euclidean norm.
    Norm,
    /// Sum of the absolute values of all parts.
    AbsoluteSum,
    /// Index from 1 of the largest element. `is_wide`: as 64 bits.
    Largest {
        is_wide: bool,
    },
    Smallest {
        is_wide: bool,
    },
}

/// One call. `is_real` marks factors that are real although the elements are complex.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Routine {
    Axpy {
        n: u32,
        alpha: Factor,
        x: Vector,
        y: Vector,
    },
    Scal {
        n: u32,
        alpha: Factor,
        is_real: bool,
        x: Vector,
    },
    Copy {
        n: u32,
        x: Vector,
        y: Vector,
    },
    Swap {
        n: u32,
        x: Vector,
        y: Vector,
    },
    Dot {
        n: u32,
        conjugate: bool,
        x: Vector,
        y: Vector,
        result: Place,
    },
    Reduce {
        n: u32,
        what: Reduction,
        x: Vector,
        result: Place,
    },
    /// `is_real`: the sine is real.
    Rot {
        n: u32,
        x: Vector,
        y: Vector,
        cosine: Factor,
        sine: Factor,
        is_real: bool,
    },
    /// `band`: the numbers of diagonals below and above the main one.
    Gemv {
        transpose: Transpose,
        m: u32,
        n: u32,
        band: Option<(u32, u32)>,
        alpha: Factor,
        a: Matrix,
        x: Vector,
        beta: Factor,
        y: Vector,
    },
    Ger {
        m: u32,
        n: u32,
        conjugate: bool,
        alpha: Factor,
        x: Vector,
        y: Vector,
        a: Matrix,
    },
    /// Symmetric, or Hermitian.
    Symv {
        n: u32,
        hermitian: bool,
        alpha: Factor,
        a: Triangle,
        x: Vector,
        beta: Factor,
        y: Vector,
    },
    Syr {
        n: u32,
        hermitian: bool,
        alpha: Factor,
        x: Vector,
        a: Triangle,
    },
    Syr2 {
        n: u32,
        hermitian: bool,
        alpha: Factor,
        x: Vector,
        y: Vector,
        a: Triangle,
    },
    Trmv {
        n: u32,
        a: Triangular,
        x: Vector,
    },
    Trsv {
        n: u32,
        a: Triangular,
        x: Vector,
    },
    Gemm(Gemm),
    Symm {
        side: Side,
        m: u32,
        n: u32,
        hermitian: bool,
        alpha: Factor,
        a: Triangle,
        b: Matrix,
        beta: Factor,
        c: Matrix,
    },
    /// `C = alpha * op(A) * op(A)' + beta * C`, one triangle of it.
    Syrk {
        n: u32,
        k: u32,
        hermitian: bool,
        transpose: Transpose,
        alpha: Factor,
        a: Matrix,
        beta: Factor,
        c: Triangle,
    },
    /// With `op(A) * op(B)' + op(B) * op(A)'`, or if `is_single`, only the first product.
    Syr2k {
        n: u32,
        k: u32,
        hermitian: bool,
        is_single: bool,
        transpose: Transpose,
        alpha: Factor,
        a: Matrix,
        b: Matrix,
        beta: Factor,
        c: Triangle,
    },
    /// `C = alpha * op(A) * B`, or with the factors exchanged. `B` and `C` may be the same memory.
    Trmm {
        side: Side,
        m: u32,
        n: u32,
        alpha: Factor,
        a: Triangular,
        b: Matrix,
        c: Matrix,
    },
    /// Solves `op(A) * X = alpha * B` in the memory of `B`.
    Trsm {
        side: Side,
        m: u32,
        n: u32,
        alpha: Factor,
        a: Triangular,
        b: Matrix,
        /// The number of systems, if the operands are lists of addresses.
        pointers: Option<u32>,
    },
    /// `C = alpha * op(A) + beta * op(B)`. A matrix whose factor is 0 may be absent.
    Geam {
        m: u32,
        n: u32,
        alpha: Factor,
        a: Option<Transposed>,
        beta: Factor,
        b: Option<Transposed>,
        c: Matrix,
    },
    /// `C = diag(x) * A` or `C = A * diag(x)`.
    Dgmm {
        side: Side,
        m: u32,
        n: u32,
        a: Matrix,
        x: Vector,
        c: Matrix,
    },
}

/// A call of linear algebra.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub number: Number,
    pub routine: Routine,
}

impl Transpose {
    /// Returns the size of the stored matrix whose product has this size.
    pub fn size(self, rows: u32, columns: u32) -> (u32, u32) {
        if self == Self::No { (rows, columns) } else { (columns, rows) }
    }
}

impl Side {
    /// Returns the order of the square matrix at this side of a matrix.
    pub fn order(self, rows: u32, columns: u32) -> u32 {
        if self == Self::Left { rows } else { columns }
    }
}

impl Call {
    pub(super) fn follows_addresses(&self) -> bool {
        match self.routine {
            Routine::Gemm(gemm) => matches!(gemm.batch, Batch::Pointers { .. }),
            Routine::Trsm { pointers, .. } => pointers.is_some(),
            _ => false,
        }
    }
}

impl Routine {
    /// Returns whether the routine is one of level 1, which has only vectors.
    pub const fn is_of_vectors(&self) -> bool {
        matches!(
            self,
            Self::Axpy { .. }
                | Self::Scal { .. }
                | Self::Copy { .. }
                | Self::Swap { .. }
                | Self::Dot { .. }
                | Self::Reduce { .. }
                | Self::Rot { .. }
        )
    }

    /// Returns whether the routine has one triangle of a matrix, and vectors.
    pub const fn is_of_triangles(&self) -> bool {
        matches!(
            self,
            Self::Symv { .. }
                | Self::Syr { .. }
                | Self::Syr2 { .. }
                | Self::Trmv { .. }
                | Self::Trsv { .. }
        )
    }
}
