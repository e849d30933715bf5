//! The libraries of a node: OpenBLAS and FFTW, which compute on the host's memory, and NVIDIA's
//! cuBLAS and cuFFT, which enqueue their work into streams of CUDA's driver.
//!
//! All are opened at run time, when the first call needs them. [`is_present`] only looks for their
//! files, so a worker that calls no library has neither their threads nor their memory.
//!
//! * `operands`: the memory of a call, whose bounds have been checked;
//! * `open`: how a library is found and opened;
//! * [`Library`]: what a library on the host's memory must be able to do. `blas` and `fft`
//!   implement it;
//! * `nvidia`: cuBLAS and cuFFT.

mod blas;
mod fft;
pub mod nvidia;
mod open;
mod operands;

use penstock_wire::library::{Kind, LibraryCall};
use penstock_wire::status::Status;

pub use operands::{Operands, Region};

/// A library that computes on the host's memory.
pub trait Library: Send + Sync {
    /// Makes the call, and returns when it has ended.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` if the library lacks the routine, `CL_OUT_OF_HOST_MEMORY`, or
    /// `CL_INVALID_VALUE` if an address in a list leads outside of the arenas.
    fn call(&self, call: &LibraryCall, operands: &Operands) -> Result<(), Status>;
}

/// Returns whether the files of the library for a kind of calls are on this host.
pub fn is_present(kind: Kind) -> bool {
    match kind {
        Kind::Blas => open::find(blas::FILE).is_some(),
        Kind::Fft => fft::FILES.iter().all(|file| open::find(file).is_some()),
    }
}

/// Returns the library for a kind of calls, which the first call opens.
///
/// # Errors
/// `CL_INVALID_OPERATION` if the library is not on this host.
pub fn library(kind: Kind) -> Result<&'static dyn Library, Status> {
    let opened: Option<&'static dyn Library> = match kind {
        Kind::Blas => blas::opened().map(|library| library as _),
        Kind::Fft => fft::opened().map(|library| library as _),
    };
    opened.ok_or(Status::INVALID_OPERATION)
}
