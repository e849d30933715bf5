//! Attributes that CUDA's own driver reports of its GPUs.

use penstock_client::Device as PoolDevice;
use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
};

/// Returns an attribute from the driver, or `None` if it does not describe the GPU alone.
pub(crate) fn of_gpu(device: &PoolDevice, attribute: u32) -> Option<i32> {
    // Attributes that depend on the access to the GPU differ here: mapped host memory, managed
    // memory, handles of other processes.
    let is_physical = matches!(
        attribute,
        1..=13 | 16..=18 | 32..=39 | 50 | 75 | 76 | 81 | 82 | 87 | 97 | 106 | 108 | 111
    );
    if is_physical { reported(device, attribute) } else { None }
}

fn reported(device: &PoolDevice, attribute: u32) -> Option<i32> {
    device.gpu()?.attributes.get(attribute)
}

/// Returns an attribute that is a size; 0 if the driver does not report it.
pub(crate) fn size(device: &PoolDevice, attribute: u32) -> u32 {
    reported(device, attribute).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

/// Returns the shared memory in bytes that a block may use without and with opting in.
pub(crate) fn shared_bytes(device: &PoolDevice) -> (u32, u32) {
    let plain = size(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    (plain, plain.max(size(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)))
}
