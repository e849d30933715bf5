use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_process::{log, notice};

use crate::core::context::Context;
use crate::core::module::Module;
use crate::core::program::Refusal;
use crate::core::{build, platform};
use crate::edge::{
    self, CuResult, Logs, Object as _, check_process, cu_entry, require, store, text,
};

/// Writes the reason for a refusal to the program's buffer, or to our log if there is none. Returns
/// the result with its code.
pub(super) fn tell<T>(mut logs: Logs, result: Result<T, Refusal>) -> CuResult<T> {
    let told = result.as_ref().err().map_or("", |refusal| refusal.log.as_str());
    if logs.error(told) {
        // The program has it.
    } else if matches!(&result, Err(refusal) if refusal.code == CUDA_ERROR_NOT_SUPPORTED) {
        // The program asks for something that this device lacks, and nobody else says what.
        notice::once(format_args!("{told}"));
    } else if !told.is_empty() {
        log!(Warn, "refused a module: {told}");
    }
    logs.settle();
    result.map_err(|refusal| refusal.code)
}

/// # Safety
/// `result` is null or writable, `image` is null or leads to a module.
unsafe fn load(result: *mut CUmodule, image: *const c_void, logs: Logs) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::current()?;
    // SAFETY: the caller promises that `image` is null or leads to a module.
    let bytes = unsafe { edge::image(image) }?;
    let module = tell(logs, Module::load(&context, &bytes))?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, module.raw()) };
    Ok(())
}

/// Reads the file that a program names.
///
/// # Safety
/// `path` is null or a string.
pub(super) unsafe fn file(path: *const c_char) -> CuResult<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: the caller promises that `path` is null or a string.
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(unsafe { text(path) }?.to_bytes()));
    std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

/// # Safety
/// `name` is null or a string.
pub(super) unsafe fn utf8<'a>(name: *const c_char) -> CuResult<&'a str> {
    // SAFETY: the caller promises that `name` is null or a string.
    unsafe { text(name) }?.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)
}

cu_entry! {
    fn cuModuleLoad(result: *mut CUmodule, path: *const c_char) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        // SAFETY: the program promises that `path` is null or a string.
        let bytes = unsafe { file(path) }?;
        let module = tell(Logs::default(), Module::load(&context, &bytes))?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, module.raw()) };
        Ok(())
    }
    fn cuModuleLoadData(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, Logs::default()) }
    }
    fn cuModuleLoadDataEx(
        result: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program promises what `Logs::of` demands.
        let logs = unsafe { Logs::of(count, options, values) }?;
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, logs) }
    }
    fn cuModuleLoadFatBinary(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, Logs::default()) }
    }
    fn cuModuleUnload(module: CUmodule) {
        Context::current()?;
        Module::borrow(module)?.unload()
    }
    /// Returns lazy loading, unless the program asks for eager loading. In both modes, a text that
    /// cannot be read is an error when it is loaded, and a kernel that cannot run is one when it is
    /// launched.
    fn cuModuleGetLoadingMode(mode: *mut c_uint) {
        platform::devices()?;
        require(!mode.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `mode` is null or writable.
        unsafe { store(mode, if build::is_eager() { 1 } else { 2 }) };
        Ok(())
    }
    /// Also finds a kernel that cannot run on this device. Programs look up all kernels of a module
    /// when they start, and its parameters are known without its code.
    fn cuModuleGetFunction(result: *mut CUfunction, module: CUmodule, name: *const c_char) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        Context::current()?;
        let module = Module::borrow(module)?;
        // SAFETY: the program promises that `name` is null or a string.
        let function = module.function(unsafe { utf8(name) }?)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, function.raw()) };
        Ok(())
    }
    fn cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let kernels = Module::borrow(module)?.kernel_names().count();
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, c_uint::try_from(kernels).unwrap_or(c_uint::MAX)) };
        Ok(())
    }
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, room: c_uint, module: CUmodule) {
        require(!functions.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let module = Module::borrow(module)?;
        for (index, name) in module.kernel_names().take(room as usize).enumerate() {
            let raw = module.function(name)?.raw();
            // SAFETY: the program promises room for `room` handles, and `index` is below `room`.
            unsafe { store(functions.add(index), raw) };
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, size: *mut usize, module: CUmodule, name: *const c_char) {
        Context::current()?;
        let module = Module::borrow(module)?;
        // SAFETY: the program promises that `name` is null or a string.
        let (at, bytes) = module.global(unsafe { utf8(name) }?)?;
        // SAFETY: the program promises that `address` is null or writable.
        unsafe { store(address, at) };
        // SAFETY: the program promises that `size` is null or writable.
        unsafe { store(size, usize::try_from(bytes).unwrap_or(usize::MAX)) };
        Ok(())
    }
}
