//! Attributes of kernels, and how many of their blocks fit on a multiprocessor.

use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_cuda_sys::runtime::FuncAttributes;

use crate::core::context::current;
use crate::core::registry::{add_function, function, kernel};
use crate::core::store;
use crate::edge::{RtError, entry};

entry! {
    /// Returns all attributes of a kernel.
    fn cudaFuncGetAttributes(attributes: *mut FuncAttributes, func: *const c_void) {
        let current = current()?;
        if attributes.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let function = function(current, func)?;
        // Every driver knows this one, and it fails for a kernel that cannot run.
        let mut max_threads_per_block = 0;
        current.driver.cuFuncGetAttribute(
            &raw mut max_threads_per_block,
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            function,
        )?;
        // An attribute that the driver does not know is zero.
        let get = |attribute| {
            let mut value = 0;
            match current.driver.cuFuncGetAttribute(&raw mut value, attribute, function) {
                Ok(()) => value,
                Err(_) => 0,
            }
        };
        let bytes = |attribute| usize::try_from(get(attribute)).unwrap_or(0);
        attributes.write_unaligned(FuncAttributes {
            shared_size_bytes: bytes(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            const_size_bytes: bytes(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
            local_size_bytes: bytes(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            max_threads_per_block,
            num_regs: get(CU_FUNC_ATTRIBUTE_NUM_REGS),
            ptx_version: get(CU_FUNC_ATTRIBUTE_PTX_VERSION),
            binary_version: get(CU_FUNC_ATTRIBUTE_BINARY_VERSION),
            cache_mode_ca: get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA),
            max_dynamic_shared_size_bytes: get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
            preferred_shmem_carveout: get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
            cluster_dim_must_be_set: get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
            required_cluster_width: get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
            required_cluster_height: get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
            required_cluster_depth: get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH),
            cluster_scheduling_policy_preference: get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE),
            non_portable_cluster_size_allowed: get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
            reserved: [0; 16],
        });
        Ok(())
    }
    /// Sets an attribute of a kernel. Driver and runtime use the same attribute numbers.
    fn cudaFuncSetAttribute(func: *const c_void, attribute: c_uint, value: c_int) {
        let current = current()?;
        current.driver.cuFuncSetAttribute(function(current, func)?, attribute, value)
    }
    /// Sets the preferred split of the on-chip memory between cache and shared memory.
    fn cudaFuncSetCacheConfig(func: *const c_void, config: c_uint) {
        let current = current()?;
        current.driver.cuFuncSetCacheConfig(function(current, func)?, config)
    }
    /// Accepts a preferred width of shared memory banks, which has had no effect since 2014.
    fn cudaFuncSetSharedMemConfig(func: *const c_void, config: c_uint) {
        /// `cudaSharedMemBankSizeEightByte`, the largest value.
        const LAST: c_uint = 2;
        if config > LAST {
            return Err(RtError::INVALID_VALUE);
        }
        function(current()?, func).map(drop)
    }
    /// Returns a kernel's name on the device.
    fn cudaFuncGetName(name: *mut *const c_char, func: *const c_void) {
        if name.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        name.write(kernel(func)?.name());
        Ok(())
    }
    /// Returns the offset and the size of a kernel's parameter.
    fn cudaFuncGetParamInfo(func: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize) {
        let current = current()?;
        if offset.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let mut size = 0;
        current.driver.cuFuncGetParamInfo(function(current, func)?, index, offset, &raw mut size)?;
        store(bytes, size);
        Ok(())
    }
    /// Returns the driver's function of a kernel in the current context.
    fn cudaGetFuncBySymbol(found: *mut CUfunction, func: *const c_void) {
        let current = current()?;
        if found.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let function = function(current, func)?;
        add_function(function);
        found.write(function);
        Ok(())
    }
    /// Returns how many blocks of a kernel fit on a multiprocessor at a time.
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, func: *const c_void, block: c_int, dynamic_bytes: usize,
    ) {
        let current = current()?;
        if blocks.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let function = function(current, func)?;
        current.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, dynamic_bytes, 0)
    }
    /// Like the function above, with flags.
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, func: *const c_void, block: c_int, dynamic_bytes: usize, flags: c_uint,
    ) {
        let current = current()?;
        if blocks.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let function = function(current, func)?;
        current.driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, dynamic_bytes, flags)
    }
    /// Returns how much dynamic shared memory a block can have.
    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, func: *const c_void, blocks: c_int, block: c_int,
    ) {
        let current = current()?;
        if bytes.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let function = function(current, func)?;
        current.driver.cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, block)
    }
}
