//! Calls of libraries: linear algebra and Fourier transforms on the memory of a device.
//!
//! One [`to_worker::CallLibrary`](crate::calls::to_worker::CallLibrary) is one call of a library.
//! Its payload is an [`Order`]: the operands, as ranges of memory objects, and the typed call. The
//! call names its operands by [`Place`]. The face of the client and the worker use the same
//! functions to find out how many bytes of which operand a call touches ([`LibraryCall::extents`]),
//! so a call that would touch other bytes reaches no library.

pub mod blas;
mod extent;
pub mod fft;
#[cfg(test)]
mod tests;
mod touch;

use serde::{Deserialize, Serialize};

pub use extent::{Extent, Extents};

use crate::frame::{self, FrameError};
use crate::limits::{LIBRARY_ARENAS_MAX, LIBRARY_OPERANDS_MAX};

/// A call of a library.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum LibraryCall {
    Blas(blas::Call),
    Fft(fft::Call),
}

/// Number of the query whose answer says which calls of libraries a device serves, in the form of
/// [`Libraries`]. It is a number of Penstock's own, like those of `CL/cl_ext_penstock.h`. Only
/// devices whose worker serves [`CallLibrary`](crate::calls::to_worker::CallLibrary) have it.
pub const DEVICE_LIBRARIES: u32 = 0x5053_0030;

/// Kinds of calls that a device serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Libraries(u64);

/// A kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Blas,
    Fft,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Blas, Self::Fft];

    /// Returns the kind of a call.
    pub const fn of(call: &LibraryCall) -> Self {
        match call {
            LibraryCall::Blas(_) => Self::Blas,
            LibraryCall::Fft(_) => Self::Fft,
        }
    }

    /// CUDA's name of the library whose calls these are.
    pub const fn face(self) -> &'static str {
        match self {
            Self::Blas => "cuBLAS",
            Self::Fft => "cuFFT",
        }
    }

    /// Name of the library that serves the calls on devices that compute on the host's memory.
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Blas => "OpenBLAS",
            Self::Fft => "FFTW",
        }
    }

    /// The packages of Debian that contain this library.
    pub const fn packages(self) -> &'static str {
        match self {
            Self::Blas => "libopenblas0-pthread",
            Self::Fft => "libfftw3-single3 libfftw3-double3",
        }
    }

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

impl Libraries {
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | kind.bit())
    }

    pub const fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Returns the kinds that are not served.
    pub fn missing(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| !self.has(*kind))
    }

    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Decodes the answer of a peer. Returns no kind if it has another size.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.try_into().map_or(0, u64::from_le_bytes))
    }
}

/// Index of an operand in the list of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place(pub u8);

/// What a call does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Bytes of a memory object. An operand of no bytes names no object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operand {
    /// Id of the memory object.
    pub mem: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// A memory object whose bytes have addresses that programs store in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arena {
    /// Id of the memory object.
    pub mem: u64,
    /// Address of the first byte.
    pub base: u64,
}

/// The payload of a call of a library.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    pub operands: Vec<Operand>,
    /// The arenas, if the call finds addresses in memory ([`LibraryCall::follows_addresses`]).
    pub arenas: Vec<Arena>,
    /// The encoded [`LibraryCall`].
    pub call: Vec<u8>,
}

/// A call that no library could execute: a size that does not fit its operand, or an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sizes of a library call do not fit together")]
pub struct Misfit;

impl LibraryCall {
    /// Returns which bytes of its operands the call touches.
    ///
    /// # Errors
    /// The sizes do not fit together, or a place is used twice or not at all.
    pub fn extents(&self) -> Result<Extents, Misfit> {
        let mut extents = Extents::default();
        match self {
            Self::Blas(call) => call.touch(&mut extents)?,
            Self::Fft(call) => call.touch(&mut extents)?,
        }
        extents.complete()
    }

    /// Returns whether operands contain addresses of further memory.
    pub fn follows_addresses(&self) -> bool {
        matches!(self, Self::Blas(call) if call.follows_addresses())
    }

    pub fn encode(&self) -> Vec<u8> {
        frame::encode_in_place(self)
    }

    /// Decodes a call from a peer.
    ///
    /// # Errors
    /// The bytes are not exactly one call.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        frame::decode("CallLibrary", bytes)
    }
}

impl Order {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = frame::encode_in_place(&(&self.operands, &self.arenas));
        bytes.extend_from_slice(&self.call);
        bytes
    }

    /// Decodes an order from a peer.
    ///
    /// # Errors
    /// The bytes are no order, or its lists are longer than their limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (lists, call) = postcard::take_from_bytes::<(Vec<Operand>, Vec<Arena>)>(bytes)
            .map_err(|_| FrameError::BadPayload("CallLibrary"))?;
        let (operands, arenas) = lists;
        if operands.len() > LIBRARY_OPERANDS_MAX {
            return Err(FrameError::Limit("LIBRARY_OPERANDS_MAX"));
        }
        if arenas.len() > LIBRARY_ARENAS_MAX {
            return Err(FrameError::Limit("LIBRARY_ARENAS_MAX"));
        }
        Ok(Self { operands, arenas, call: call.to_vec() })
    }
}
