//! Decides which devices can be PEs of a heap.

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_INTEGRATED,
};

use super::described;
use crate::pool::Device;

/// Returns why a device cannot be a PE and what to do, or `None` if it can.
pub(super) fn refusal_of(device: &Device) -> Option<String> {
    if device.shares_host_memory() {
        return None;
    }
    let name = described(device);
    let Some(gpu) = device.gpu() else {
        return Some(format!(
            "{name} does not compute on its host's memory, so other devices' kernels can not reach \
             it; use CPU devices, or GPUs that CUDA's own driver drives"
        ));
    };
    let attribute = |number| gpu.attributes.get(number).is_some_and(|value| value != 0);
    let why = if attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) {
        "is an integrated GPU (CU_DEVICE_ATTRIBUTE_INTEGRATED), and it is not known whether it \
         sees memory as other GPUs do"
    } else if !attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) {
        "has a driver that cannot register memory of the host \
         (CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED is 0)"
    } else if !attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) {
        "cannot map memory of the host (CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY is 0)"
    } else {
        return None;
    };
    Some(format!(
        "{name} {why}, so other devices' kernels can not reach it; use CPU devices, or other GPUs"
    ))
}
