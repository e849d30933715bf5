//! Launches of kernels and of host functions.

use std::ffi::{c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CUfunction,
    CUhostFn, CUlaunchConfig, CUstream,
};
use penstock_cuda_sys::runtime::{Dim3, LaunchConfig, launch_attribute};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::{Current, current, current_ordinal, device};
use crate::core::registry::function;
use crate::core::{per_thread, store};
use crate::edge::{Configuration, RtError, RtResult, THREAD, entry, on_stream};

#[derive(Clone, Copy)]
struct Launch {
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CUstream,
    cooperative: bool,
}

impl Launch {
    /// # Safety
    /// `arguments` has a pointer to a valid value for each of the kernel's parameters.
    #[inline]
    unsafe fn run(self) -> RtResult {
        let current = current()?;
        let function = function(current, self.host)?;
        let Self { grid, block, .. } = self;
        let shared = c_uint::try_from(self.shared_bytes).map_err(|_| RtError::INVALID_VALUE)?;
        macro_rules! call {
            ($name:ident $(, $last:expr)?) => {
                current.driver.$name(
                    function,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    shared,
                    self.stream,
                    self.arguments
                    $(, $last)?
                )
            };
        }
        // SAFETY: the caller upholds the contract of this function.
        let launched = unsafe {
            if self.cooperative {
                call!(cuLaunchCooperativeKernel)
            } else {
                call!(cuLaunchKernel, std::ptr::null_mut())
            }
        };
        launched.map_err(|error| explain(error, current, function, grid, block))
    }
}

/// Refines the driver's "invalid value": the runtime has separate codes for sizes that no launch
/// can have, and for blocks that are too large for this kernel.
#[cold]
fn explain(
    error: RtError,
    current: Current,
    function: CUfunction,
    grid: Dim3,
    block: Dim3,
) -> RtError {
    if error != RtError::INVALID_VALUE {
        return error;
    }
    let Ok(device) = current_ordinal().and_then(device) else { return error };
    let limit = |attribute| u64::try_from(device.attribute(attribute)).unwrap_or(0);
    let wrong = |size: Dim3, first: c_uint| {
        [size.x, size.y, size.z]
            .into_iter()
            .zip(first..)
            .any(|(size, attribute)| size == 0 || u64::from(size) > limit(attribute))
    };
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    if wrong(grid, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)
        || wrong(block, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)
        || threads > limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    {
        return RtError(code::INVALID_CONFIGURATION);
    }
    let mut most = 0;
    // SAFETY: the pointer is valid for a write of the answer, and `function` belongs to the driver.
    let known = unsafe {
        current.driver.cuFuncGetAttribute(
            &raw mut most,
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            function,
        )
    };
    if known.is_ok() && threads > u64::try_from(most).unwrap_or(u64::MAX) {
        return RtError(code::LAUNCH_OUT_OF_RESOURCES);
    }
    error
}

/// Keeps the values between `<<<` and `>>>`. Returns 0 on success.
///
/// # Safety
/// Safe with any argument.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: CUstream,
) -> c_uint {
    let configuration = Configuration { grid, block, shared_bytes, stream };
    c_uint::from(THREAD.with(|thread| thread.push(configuration)).is_err())
}

entry! {
    /// Returns and forgets the values that [`__cudaPushCallConfiguration`] kept last.
    fn __cudaPopCallConfiguration(
        grid: *mut Dim3,
        block: *mut Dim3,
        shared_bytes: *mut usize,
        stream: *mut CUstream,
    ) {
        let kept = THREAD.with(|thread| thread.pop()).ok_or(RtError(code::MISSING_CONFIGURATION))?;
        store(grid, kept.grid);
        store(block, kept.block);
        store(shared_bytes, kept.shared_bytes);
        store(stream, kept.stream);
        Ok(())
    }
}

on_stream! {
    fn cudaLaunchKernel, cudaLaunchKernel_ptsz(
        func: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared_bytes: usize;
        stream
    ) {
        Launch { host: func, grid, block, arguments, shared_bytes, stream, cooperative: false }.run()
    }
    /// Launches a kernel by its handle. The compiler translates `<<<>>>` to this call.
    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz(
        kernel: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared_bytes: usize;
        stream
    ) {
        Launch { host: kernel, grid, block, arguments, shared_bytes, stream, cooperative: false }.run()
    }
    /// Launches a kernel whose blocks all run at the same time.
    fn cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz(
        func: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared_bytes: usize;
        stream
    ) {
        Launch { host: func, grid, block, arguments, shared_bytes, stream, cooperative: true }.run()
    }
}

/// Launches a kernel with attributes. `stream` maps the configuration's stream to the one to use.
///
/// # Safety
/// Arguments are as `cudaLaunchKernelExC` requires.
unsafe fn launch_with(
    config: *const LaunchConfig,
    func: *const c_void,
    arguments: *mut *mut c_void,
    stream: impl FnOnce(CUstream) -> CUstream,
) -> RtResult {
    if config.is_null() {
        return Err(RtError::INVALID_VALUE);
    }
    // SAFETY: the caller upholds the contract of this function.
    let config = unsafe { config.read_unaligned() };
    let attributes = match config.num_attrs as usize {
        0 => &[],
        _ if config.attrs.is_null() => return Err(RtError::INVALID_VALUE),
        // SAFETY: the caller guarantees that `attrs` points to `numAttrs` attributes.
        count => unsafe { std::slice::from_raw_parts(config.attrs, count) },
    };
    let stream = stream(config.stream.cast());
    let simple = |id| matches!(id, launch_attribute::IGNORE | launch_attribute::COOPERATIVE);
    if attributes.iter().all(|attribute| simple(attribute.id)) {
        // The value is a 32-bit number at the start of the union.
        let cooperative = attributes.iter().any(|attribute| {
            attribute.id == launch_attribute::COOPERATIVE
                && attribute.value[0] & u64::from(u32::MAX) != 0
        });
        let (grid, block, shared_bytes) = (config.grid, config.block, config.dynamic_smem_bytes);
        // SAFETY: the caller upholds the contract of this function.
        return unsafe {
            Launch { host: func, grid, block, arguments, shared_bytes, stream, cooperative }.run()
        };
    }
    let current = current()?;
    let function = function(current, func)?;
    let driver_config = CUlaunchConfig {
        gridDimX: config.grid.x,
        gridDimY: config.grid.y,
        gridDimZ: config.grid.z,
        blockDimX: config.block.x,
        blockDimY: config.block.y,
        blockDimZ: config.block.z,
        sharedMemBytes: c_uint::try_from(config.dynamic_smem_bytes)
            .map_err(|_| RtError::INVALID_VALUE)?,
        hStream: stream,
        attrs: config.attrs.cast(),
        numAttrs: config.num_attrs,
    };
    // SAFETY: the caller upholds this function's contract. The driver uses the same attributes.
    unsafe {
        current.driver.cuLaunchKernelEx(
            &raw const driver_config,
            function,
            arguments,
            std::ptr::null_mut(),
        )
    }
    .map_err(|error| explain(error, current, function, config.grid, config.block))
}

entry! {
    /// Launches a kernel with attributes.
    fn cudaLaunchKernelExC(config: *const LaunchConfig, func: *const c_void, arguments: *mut *mut c_void) {
        launch_with(config, func, arguments, |stream| stream)
    }
    /// Like the function above, for programs in which each thread has its own default stream.
    fn cudaLaunchKernelExC_ptsz(config: *const LaunchConfig, func: *const c_void, arguments: *mut *mut c_void) {
        launch_with(config, func, arguments, per_thread)
    }
    /// Calls a function of the program in the order of a stream.
    fn cudaLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        current()?.driver.cuLaunchHostFunc(stream, function, data)
    }
    /// Like the function above, for programs in which each thread has its own default stream.
    fn cudaLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        current()?.driver.cuLaunchHostFunc(per_thread(stream), function, data)
    }
}
