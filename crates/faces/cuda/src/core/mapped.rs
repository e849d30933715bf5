//! Host memory that kernels use in place. It is a block of the device's memory. The device works on
//! the host's memory there, and this process has mapped the same memory. So nothing is copied, and
//! a store is visible on the other side at once.
//!
//! If the device's addresses are reserved in this process, the block has the same address for the
//! program and for kernels (`crate::edge::window`).

use std::sync::Arc;

use penstock_cuda_sys::driver::CUDA_ERROR_OUT_OF_MEMORY;

use super::block::Block;
use super::device::Device;
use super::stream_list;
use crate::edge::{Bytes, CuResult, window};

/// A block of a device's memory that has an address in this process.
pub(crate) struct MappedBlock {
    device: Arc<Device>,
    block: Block,
    size: usize,
    /// Number of the context that owns the block.
    owner: u64,
    /// Address of the block in this process.
    address: usize,
}

impl MappedBlock {
    /// Allocates cleared memory. The caller has asked [`Device::can_map_host_memory`].
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the device has no memory that this process has mapped.
    pub(crate) fn new(device: &Arc<Device>, owner: u64, size: usize) -> CuResult<Self> {
        let block = device.allocate_block(size as u64, owner)?;
        let Some(address) = address_of(device, block, size) else {
            device.release_block(block, Vec::new())?;
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        };
        Ok(Self { device: device.clone(), block, size, owner, address })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the address at which kernels of the device see the byte at `offset`.
    pub(crate) fn device_address(&self, offset: usize) -> u64 {
        self.block.address + offset as u64
    }

    pub(crate) fn is_of(&self, owner: u64) -> bool {
        self.owner == owner
    }

    /// Returns whether the program and kernels use the same address.
    pub(crate) fn has_one_address(&self) -> bool {
        self.address as u64 == self.block.address
    }

    /// Frees the block. Its memory is used again when no command on the device can use it any more.
    pub(crate) fn free(self) -> CuResult {
        if self.has_one_address() {
            window::close(self.block.address, self.size as u64);
        }
        self.device.release_block(self.block, stream_list::busy_on(&self.device))
    }
}

/// Clears a new block, and returns its address in this process. `None` if this process has not
/// mapped it.
fn address_of(device: &Device, block: Block, size: usize) -> Option<usize> {
    if device.space.is_joined(block.address) {
        window::open(block.address, size as u64).ok()?;
        window::clear(block.address, size as u64);
        return usize::try_from(block.address).ok();
    }
    let located = device.space.locate(block.address, size as u64).ok()?;
    let start = located.memory.shared_pointer()?.as_ptr();
    let start = start.wrapping_add(usize::try_from(located.offset).ok()?);
    // SAFETY: the block lies in the shared memory, which stays mapped until the process ends. No
    // command uses the block yet.
    let bytes = unsafe { Bytes::new(start.cast(), size) }.ok()?;
    bytes.clear();
    Some(bytes.address())
}
