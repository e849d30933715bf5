//! The end of a context: everything that belongs to the context ends with it.

use penstock_cuda_sys::driver::{CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT};

use super::context::Context;
use super::{host, library, texture};
use crate::edge::{CuResult, Object as _, forget, forget_of, require};

/// Implements `cuCtxDestroy`: "... it is the responsibility of the calling function to ensure that
/// no API call issues using ctx while cuCtxDestroy() is executing." Waits for all commands.
pub(crate) fn context(context: &Context) -> CuResult {
    require(context.refuse_calls(), CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    forget(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    context.drain();
    _ = context.look_at_kernels();
    context.drop_all_streams();
    // Handles of this context must not free what another context gets at the same address.
    library::forget_of(context.number());
    forget_of(context.number());
    texture::forget_of(context.number());
    host::free_of(context.number());
    context.leave_device();
    context.device.free_of(context.number());
    Ok(())
}
