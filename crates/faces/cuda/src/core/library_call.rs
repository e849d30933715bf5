//! Calls of CUDA's libraries (cuBLAS, cuFFT) on device memory. They run at once or are nodes of a
//! graph.

use penstock_client::{LibraryMemory, LibraryOperand, Range, Want};
use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;
use penstock_wire::library::Access;

use super::context::Context;
use super::stream::Stream;
use crate::edge::CuResult;

/// An operand as a library's face gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressedOperand {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// A call, encoded, and its operands.
#[derive(Clone, Debug)]
pub(crate) struct LibraryWork {
    pub(crate) call: Vec<u8>,
    pub(crate) operands: Vec<AddressedOperand>,
    /// Whether operands contain addresses.
    pub(crate) follows_addresses: bool,
}

impl LibraryWork {
    /// Runs the call in a stream, without waiting for it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if an operand does not lie in one allocation of the device.
    pub(crate) fn run(&self, context: &Context, stream: &Stream) -> CuResult {
        let space = &context.device.space;
        let mut memory = LibraryMemory::default();
        for &AddressedOperand { address, bytes, access } in &self.operands {
            let (of, offset) = if bytes == 0 {
                (None, 0)
            } else {
                let located = space.locate(address, bytes)?;
                (Some(located.memory), located.offset)
            };
            let range = Range { offset, size: bytes };
            memory.operands.push(LibraryOperand { memory: of, range, access });
        }
        if self.follows_addresses {
            let arenas = space.arenas();
            memory.arenas = arenas.into_iter().map(|arena| (arena.memory, arena.base)).collect();
        }
        context
            .issue(stream, |queue, waits| {
                queue.call_library(&self.call, &memory, waits, Want::Nothing)
            })
            .map(drop)
    }

    /// Checks that all operands lie in allocations of the device.
    pub(crate) fn check(&self, context: &Context) -> CuResult {
        let is_there = |it: &AddressedOperand| {
            it.bytes == 0 || context.device.space.locate(it.address, it.bytes).is_ok()
        };
        if self.operands.iter().all(is_there) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
