//! OpenBLAS, by its Fortran interface: every argument is an address, so one type of function serves
//! all four types of elements.

mod dense;
mod element;
mod product;
mod symbols;
mod triangles;
mod vectors;

use std::ffi::c_void;
use std::sync::OnceLock;

use penstock_wire::library::LibraryCall;
use penstock_wire::library::blas::{Call, Factor, Number, Routine, Transpose, Uplo};
use penstock_wire::status::Status;

use crate::{Library, Operands, open};
use symbols::Symbols;

pub(crate) const FILE: &str = "libopenblas.so.0";

/// OpenBLAS, opened.
pub(crate) struct OpenBlas {
    symbols: Symbols,
}

/// Returns OpenBLAS, which the first call opens.
pub(crate) fn opened() -> Option<&'static OpenBlas> {
    static OPENED: OnceLock<Option<OpenBlas>> = OnceLock::new();
    let open = || Some(OpenBlas { symbols: Symbols::of(open::open(FILE)?) });
    OPENED.get_or_init(open).as_ref()
}

impl Library for OpenBlas {
    fn call(&self, call: &LibraryCall, operands: &Operands) -> Result<(), Status> {
        let LibraryCall::Blas(Call { number, routine }) = call else {
            return Err(Status::INVALID_OPERATION);
        };
        let it = Task { symbols: &self.symbols, number: *number, operands };
        match routine {
            routine if routine.is_of_vectors() => it.vectors(routine),
            routine if routine.is_of_triangles() => it.triangles(routine),
            Routine::Gemm(gemm) => it.gemm(gemm),
            _ => it.dense(routine),
        }
    }
}

/// One call under way.
struct Task<'a> {
    symbols: &'a Symbols,
    number: Number,
    operands: &'a Operands,
}

/// A factor as the library reads it: in the type of the call.
#[repr(C, align(16))]
pub(crate) struct Scalar([u8; 16]);

impl Scalar {
    pub(crate) fn of(number: Number, re: f64, im: f64) -> Self {
        Self(element::bytes_of(number, re, im))
    }

    pub(crate) fn address(&self) -> *const c_void {
        (&raw const self.0).cast()
    }
}

/// A factor that is in this process, or the address of one in an operand.
enum Held {
    Here(Scalar),
    There(*mut c_void),
}

impl Held {
    fn address(&self) -> *const c_void {
        match self {
            Self::Here(scalar) => scalar.address(),
            Self::There(address) => *address,
        }
    }
}

impl Task<'_> {
    /// Returns a factor in the type of the call, or of its parts.
    fn factor(&self, factor: Factor, is_real: bool) -> Result<Held, Status> {
        let number = if is_real { self.number.part() } else { self.number };
        match factor {
            Factor::At(place) => self.operands.at(place).map(Held::There),
            Factor::Value(re, im) => Ok(Held::Here(Scalar::of(number, re, im))),
        }
    }

    /// Reads a factor.
    fn value(&self, factor: Factor, is_real: bool) -> Result<(f64, f64), Status> {
        match factor {
            Factor::Value(re, im) => Ok((re, im)),
            Factor::At(place) => {
                let number = if is_real { self.number.part() } else { self.number };
                // SAFETY: the operand has the bytes of one number of this type.
                Ok(unsafe { element::read(number, self.operands.at(place)?) })
            }
        }
    }
}

/// Converts a size to that of Fortran's interface, and of cuBLAS.
pub(crate) fn int(size: u32) -> Result<i32, Status> {
    i32::try_from(size).map_err(|_| Status::INVALID_OPERATION)
}

/// Returns the address of an argument.
fn arg<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

const fn letter(transpose: Transpose) -> u8 {
    match transpose {
        Transpose::No => b'N',
        Transpose::Yes => b'T',
        Transpose::Conjugate => b'C',
    }
}

const fn half(uplo: Uplo) -> u8 {
    match uplo {
        Uplo::Lower => b'L',
        Uplo::Upper => b'U',
    }
}
