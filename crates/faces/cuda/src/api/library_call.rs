//! Functions for the faces of CUDA's libraries, which CUDA does not have.
//! `crates/faces/cudalib/src/driver.rs` calls them.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use penstock_cuda_sys::driver::*;
use penstock_wire::library::Access;

use crate::core::context::Context;
use crate::core::graph::capture;
use crate::core::graph::work::Work;
use crate::core::library_call::{AddressedOperand, LibraryWork};
use crate::core::stream::Stream;
use crate::edge::{Bytes, CuResult, DefaultStream, array, cu_entry, require, store};

/// An operand of a call of a library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PenstockOperand {
    pub address: u64,
    pub bytes: u64,
    /// Not 0 if the call writes it.
    pub is_written: u64,
}

/// Reads the operands of a call.
///
/// # Safety
/// `operands` is null or has `count` elements.
unsafe fn addressed(
    operands: *const PenstockOperand,
    count: usize,
) -> CuResult<Vec<AddressedOperand>> {
    // SAFETY: the caller promises the elements.
    let operands = unsafe { array(operands, count) }?;
    let one = |it: &PenstockOperand| AddressedOperand {
        address: it.address,
        bytes: it.bytes,
        access: if it.is_written == 0 { Access::Read } else { Access::Write },
    };
    Ok(operands.iter().map(one).collect())
}

cu_entry! {
    /// Enqueues an encoded call of a library. `follows_addresses`: its operands contain addresses.
    fn penstockLibraryCall(
        stream: CUstream,
        call: *const c_void,
        call_bytes: usize,
        operands: *const PenstockOperand,
        count: usize,
        follows_addresses: c_uint,
    ) {
        let (context, stream) = Stream::resolve(stream, DefaultStream::Legacy)?;
        // SAFETY: the face promises `call_bytes` bytes at `call`.
        let call = unsafe { Bytes::new(call, call_bytes) }?.read().to_vec();
        // SAFETY: the face promises what `addressed` demands.
        let operands = unsafe { addressed(operands, count) }?;
        let work = LibraryWork { call, operands, follows_addresses: follows_addresses != 0 };
        let as_node = || {
            work.check(&context)?;
            Ok(Work::Library(Arc::downgrade(&context), Arc::new(work.clone())))
        };
        if capture::takes(&context, &stream, as_node)? {
            return Ok(());
        }
        work.run(&context, &stream)
    }
    /// Checks that operands lie in allocations of a stream's device, as a call in this stream does.
    fn penstockLibraryCheck(
        stream: CUstream,
        operands: *const PenstockOperand,
        count: usize,
    ) {
        let (context, _) = Stream::resolve(stream, DefaultStream::Legacy)?;
        // SAFETY: the face promises what `addressed` demands.
        let operands = unsafe { addressed(operands, count) }?;
        LibraryWork { call: Vec::new(), operands, follows_addresses: false }.check(&context)
    }
    /// Stores which calls of libraries the device of the current context serves, as the bits of
    /// `penstock_wire::library::Libraries`.
    fn penstockLibrarySupport(served: *mut u64) {
        require(!served.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let libraries = Context::current()?.device.pool.libraries();
        // SAFETY: the face promises that `served` is null or writable.
        unsafe { store(served, u64::from_le_bytes(libraries.to_bytes())) };
        Ok(())
    }
}
