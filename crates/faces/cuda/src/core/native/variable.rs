//! Variables of modules that CUDA's own driver has loaded.

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_client::Memory;
use penstock_cuda_sys::driver::CUDA_ERROR_NOT_SUPPORTED;
use penstock_process::Lock;

use super::arena;
use crate::core::arena::AddressSpace;
use crate::core::block::Arena;
use crate::core::device::Device;
use crate::core::reserved;
use crate::edge::{CuResult, of_error};

/// Addresses of one module's variables that are also buffers of the pool, so that copies can use
/// them.
#[derive(Debug, Default)]
pub(crate) struct Variables(Lock<Vec<u64>>);

impl Variables {
    /// Registers a variable as part of the device's memory, once. Waits for the worker.
    pub(crate) fn add(&self, device: &Device, owner: u64, address: u64, size: u64) -> CuResult {
        let mut known = self.0.lock();
        if size == 0 || known.contains(&address) {
            return Ok(());
        }
        if !reserved::reserve(device.space.key(), address, size) {
            // Copies could not tell the variable from the memory that is already at this address.
            arena::log_taken();
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let memory = Memory::variable(&device.context, CL_MEM_READ_WRITE, size, address)
            .map_err(|error| of_error(&error))?;
        device.space.add_foreign(Arena { base: address, size, memory, joined: false }, owner);
        known.push(address);
        Ok(())
    }

    /// Forgets all variables, because the module is unloaded.
    pub(crate) fn forget(&self, space: &AddressSpace) {
        for address in std::mem::take(&mut *self.0.lock()) {
            space.forget_foreign(address);
        }
    }
}
