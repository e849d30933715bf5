//! One call under way: its parameters become a call of the protocol.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_cuda_sys::driver::CUstream;
use penstock_wire::library::LibraryCall;
use penstock_wire::library::blas::Stored;
use penstock_wire::library::blas::{
    Call, Factor, Matrix, Number, Routine, Side, Storage, Transpose, Transposed, Triangle,
    Triangular, Uplo, Vector,
};

use super::handle::{Handle, code_of};
use super::{Code, Done, Ptr};
use crate::device_call::{Addresses, Refusal, check, send};

pub(super) struct Task {
    pub(super) handle: Arc<Handle>,
    pub(super) number: Number,
    /// Whether the function has 64-bit sizes.
    pub(super) is_wide: bool,
    addresses: Addresses,
}

impl Task {
    pub(super) fn of(handle: Ptr, number: Number, is_wide: bool) -> Done<Self> {
        let handle = Handle::of(handle)?;
        handle.check_served()?;
        Ok(Self { handle, number, is_wide, addresses: Addresses::default() })
    }

    /// Makes a task in a stream of the current context.
    pub(super) fn on(stream: CUstream, number: Number, is_device_mode: bool) -> Done<Self> {
        let handle = Handle::new()?;
        handle.check_served()?;
        handle.set_stream(stream);
        handle.pointer_mode.store(is_device_mode.into(), Ordering::Relaxed);
        let addresses = Addresses::default();
        Ok(Self { handle: Arc::new(handle), number, is_wide: false, addresses })
    }

    /// Makes another task of the same handle.
    pub(super) fn beside(&self) -> Self {
        let (handle, addresses) = (self.handle.clone(), Addresses::default());
        Self { handle, number: self.number, is_wide: self.is_wide, addresses }
    }

    pub(super) fn run(&self, routine: Routine) -> Done {
        let call = LibraryCall::Blas(Call { number: self.number, routine });
        send(self.handle.driver, self.handle.place(), &call, &self.addresses).map_err(refused)
    }

    /// Refuses what [`Task::run`] would refuse.
    pub(super) fn check(&self, routine: Routine) -> Done {
        let call = LibraryCall::Blas(Call { number: self.number, routine });
        check(self.handle.driver, self.handle.place(), &call, &self.addresses).map_err(refused)
    }

    /// Runs a routine that has a result. `make` gets the result's place.
    pub(super) fn run_with_result(
        &mut self,
        to: Ptr,
        bytes: u64,
        make: impl FnOnce(penstock_wire::library::Place) -> Routine,
    ) -> Done {
        if to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if self.handle.is_device_mode() {
            let place = self.addresses.add(to);
            return self.run(make(place));
        }
        let handle = self.handle.clone();
        let bytes = usize::try_from(bytes).map_err(|_| Code::INTERNAL_ERROR)?;
        handle.fetch(to, bytes, |scratch| {
            let place = self.addresses.add(scratch);
            self.run(make(place))
        })
    }

    /// Takes a factor, which is in the memory that the pointer mode says.
    pub(super) fn factor(&mut self, at: Ptr, is_real: bool) -> Done<Factor> {
        let number = if is_real { self.number.part() } else { self.number };
        if at.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if self.handle.is_device_mode() {
            return Ok(Factor::At(self.addresses.add(at)));
        }
        // SAFETY: the program promises that a factor on the host can be read.
        let (re, im) = unsafe {
            match number {
                Number::F32 => (f64::from(at.cast::<f32>().read_unaligned()), 0.0),
                Number::F64 => (at.cast::<f64>().read_unaligned(), 0.0),
                Number::C32 => {
                    let [re, im] = at.cast::<[f32; 2]>().read_unaligned();
                    (f64::from(re), f64::from(im))
                }
                Number::C64 => at.cast::<(f64, f64)>().read_unaligned(),
            }
        };
        Ok(Factor::Value(re, im))
    }

    pub(super) fn vector(&mut self, at: Ptr, step: i64) -> Done<Vector> {
        let step = i32::try_from(step).map_err(|_| Code::NOT_SUPPORTED)?;
        Ok(Vector { at: self.addresses.add(at), step })
    }

    pub(super) fn matrix(&mut self, at: Ptr, ld: i64) -> Done<Matrix> {
        Ok(Matrix { at: self.addresses.add(at), ld: size(ld)? })
    }

    pub(super) fn full(&mut self, uplo: c_int, at: Ptr, ld: i64) -> Done<Triangle> {
        let (uplo, ld) = (uplo_of(uplo)?, size(ld)?);
        Ok(Triangle { at: self.addresses.add(at), uplo, storage: Storage::Full { ld } })
    }

    pub(super) fn band(&mut self, uplo: c_int, width: i64, at: Ptr, ld: i64) -> Done<Triangle> {
        let (uplo, storage) =
            (uplo_of(uplo)?, Storage::Band { ld: size(ld)?, width: size(width)? });
        Ok(Triangle { at: self.addresses.add(at), uplo, storage })
    }

    pub(super) fn packed(&mut self, uplo: c_int, at: Ptr) -> Done<Triangle> {
        let uplo = uplo_of(uplo)?;
        Ok(Triangle { at: self.addresses.add(at), uplo, storage: Storage::Packed })
    }

    pub(super) fn transposed(&mut self, op: c_int, at: Ptr, ld: i64) -> Done<Transposed> {
        let (transpose, matrix) = (transpose(op)?, self.matrix(at, ld)?);
        Ok(Transposed { matrix, transpose, stored: Stored::Same })
    }
}

/// Converts a size that must not be negative.
pub(super) fn size(value: i64) -> Done<u32> {
    if value < 0 {
        return Err(Code::INVALID_VALUE);
    }
    // The libraries of the nodes have 32-bit sizes.
    i32::try_from(value).map_or(Err(Code::NOT_SUPPORTED), |value| Ok(value.unsigned_abs()))
}

/// Converts the length of a vector. "If n is not positive, nothing is done."
pub(super) fn length(value: i64) -> Done<u32> {
    size(value.max(0))
}

pub(super) fn transpose(op: c_int) -> Done<Transpose> {
    match op {
        0 => Ok(Transpose::No),
        1 => Ok(Transpose::Yes),
        2 => Ok(Transpose::Conjugate),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn uplo_of(uplo: c_int) -> Done<Uplo> {
    match uplo {
        0 => Ok(Uplo::Lower),
        1 => Ok(Uplo::Upper),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(super) fn side(side: c_int) -> Done<Side> {
    match side {
        0 => Ok(Side::Left),
        1 => Ok(Side::Right),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(super) fn triangular(triangle: Triangle, op: c_int, diag: c_int) -> Done<Triangular> {
    let unit = match diag {
        0 => false,
        1 => true,
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(Triangular { triangle, transpose: transpose(op)?, unit })
}

fn refused(refusal: Refusal) -> Code {
    match refusal {
        Refusal::Misfit => Code::INVALID_VALUE,
        Refusal::Driver(code) => code_of(code),
    }
}
