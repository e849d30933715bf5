//! Primary contexts: the context of each device that the runtime interface and most programs use.

use std::sync::{Arc, MutexGuard};

use penstock_cuda_sys::driver::{
    CU_CTX_FLAGS_MASK, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE,
};
use penstock_process::Lock;

use super::address::DEVICES_MAX;
use super::context::Context;
use super::destroy;
use super::device::{Device, PerDevice};
use crate::edge::{CuResult, require};

struct Primary {
    context: Option<Arc<Context>>,
    /// Number of calls that retained the context minus the number of calls that released it.
    retained: u32,
    flags: u32,
}

static PRIMARIES: PerDevice<Lock<Primary>> = PerDevice::new(
    [const { Lock::new(Primary { context: None, retained: 0, flags: 0 }) }; DEVICES_MAX],
);

fn primary(device: &Device) -> MutexGuard<'static, Primary> {
    PRIMARIES.of(device).lock()
}

/// Implements `cuDevicePrimaryCtxRetain`. Creates the context if it does not exist.
pub(crate) fn retain(device: &Arc<Device>) -> CuResult<Arc<Context>> {
    let mut primary = primary(device);
    let context = match &primary.context {
        Some(context) => context.clone(),
        None => {
            let context = Context::new(device, primary.flags, true)?;
            primary.context.insert(context).clone()
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// Returns the primary context, if it exists now.
pub(crate) fn existing(device: &Device) -> Option<Arc<Context>> {
    primary(device).context.clone()
}

/// Implements `cuDevicePrimaryCtxRelease`. The last release destroys the context.
pub(crate) fn release(device: &Device) -> CuResult {
    let mut primary = primary(device);
    primary.retained = primary.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let last = if primary.retained == 0 { primary.context.take() } else { None };
    drop(primary);
    last.map_or(Ok(()), |context| destroy::context(&context))
}

/// Implements `cuDevicePrimaryCtxReset`: destroys the context, whoever has retained it.
pub(crate) fn reset(device: &Device) -> CuResult {
    let context = primary(device).context.take();
    context.map_or(Ok(()), |context| destroy::context(&context))
}

/// Implements `cuDevicePrimaryCtxGetState`: returns its flags, and whether it exists.
pub(crate) fn state(device: &Device) -> (u32, bool) {
    let primary = primary(device);
    (primary.flags, primary.context.is_some())
}

/// Implements `cuDevicePrimaryCtxSetFlags`.
pub(crate) fn set_flags(device: &Device, flags: u32) -> CuResult {
    require(flags & !CU_CTX_FLAGS_MASK == 0, CUDA_ERROR_INVALID_VALUE)?;
    let mut primary = primary(device);
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.set_flags(flags);
    }
    Ok(())
}
