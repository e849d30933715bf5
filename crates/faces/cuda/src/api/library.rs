use std::ffi::{c_char, c_int, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use super::function::store_param;
use super::module::{file, tell, utf8};
use crate::core::context::Context;
use crate::core::library::{Kernel, Library};
use crate::core::module::Function;
use crate::core::{platform, primary};
use crate::edge::{self, CuResult, Logs, Object as _, check_process, cu_entry, require, store};

/// # Safety
/// `result` is null or writable; the options are as the interface demands.
unsafe fn load(
    result: *mut CUlibrary,
    bytes: &[u8],
    count: c_uint,
    names: *const c_uint,
    values: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller promises what `Logs::of` demands.
    let logs = unsafe { Logs::of(count, names, values) }?;
    let library = tell(logs, Library::load(bytes))?;
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, library.raw()) };
    Ok(())
}

/// Returns the function of a kernel on a device: in the current context if it is on that device,
/// otherwise in the device's primary context.
fn function_on(kernel: &Kernel, dev: CUdevice) -> CuResult<std::sync::Arc<Function>> {
    let device = platform::device(dev)?;
    let current = Context::peek().filter(|context| context.device.ordinal == device.ordinal);
    let context =
        current.or_else(|| primary::existing(device)).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    kernel.function_in(&context)
}

cu_entry! {
    fn cuLibraryLoadData(
        result: *mut CUlibrary,
        code: *const c_void,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
        _library_options: *mut c_uint,
        _library_values: *mut *mut c_void,
        _library_count: c_uint,
    ) {
        platform::devices()?;
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `code` is null or leads to a module.
        let bytes = unsafe { edge::image(code) }?;
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, &bytes, count, options, values) }
    }
    fn cuLibraryLoadFromFile(
        result: *mut CUlibrary,
        path: *const c_char,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
        _library_options: *mut c_uint,
        _library_values: *mut *mut c_void,
        _library_count: c_uint,
    ) {
        platform::devices()?;
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `path` is null or a string.
        let bytes = unsafe { file(path) }?;
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, &bytes, count, options, values) }
    }
    fn cuLibraryUnload(library: CUlibrary) {
        platform::devices()?;
        Library::borrow(library)?.unload()
    }
    fn cuLibraryGetKernel(result: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let library = Library::borrow(library)?;
        // SAFETY: the program promises that `name` is null or a string.
        let kernel = library.kernel(unsafe { utf8(name) }?)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, kernel.raw()) };
        Ok(())
    }
    fn cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let kernels = Library::borrow(library)?.names().count();
        // SAFETY: the program promises that `count` is null or writable.
        unsafe { store(count, c_uint::try_from(kernels).unwrap_or(c_uint::MAX)) };
        Ok(())
    }
    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: c_uint, library: CUlibrary) {
        require(!kernels.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let library = Library::borrow(library)?;
        for (index, name) in library.names().take(room as usize).enumerate() {
            let raw = library.kernel(name)?.raw();
            // SAFETY: the program promises room for `room` handles, and `index` is below `room`.
            unsafe { store(kernels.add(index), raw) };
        }
        Ok(())
    }
    fn cuLibraryGetModule(result: *mut CUmodule, library: CUlibrary) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        let module = Library::borrow(library)?.module_in(&context)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, module.raw()) };
        Ok(())
    }
    /// The variable in the current context.
    fn cuLibraryGetGlobal(address: *mut CUdeviceptr, size: *mut usize, library: CUlibrary, name: *const c_char) {
        let context = Context::current()?;
        let module = Library::borrow(library)?.module_in(&context)?;
        // SAFETY: the program promises that `name` is null or a string.
        let (at, bytes) = module.global(unsafe { utf8(name) }?)?;
        // SAFETY: the program promises that `address` is null or writable.
        unsafe { store(address, at) };
        // SAFETY: the program promises that `size` is null or writable.
        unsafe { store(size, usize::try_from(bytes).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// The variable in the current context.
    fn cuLibraryGetManaged(
        address: *mut CUdeviceptr,
        size: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) {
        let context = Context::current()?;
        let library = Library::borrow(library)?;
        // SAFETY: the program promises that `name` is null or a string.
        let name = unsafe { utf8(name) }?;
        require(library.has_managed(name), CUDA_ERROR_NOT_FOUND)?;
        let (at, bytes) = library.module_in(&context)?.global(name)?;
        // SAFETY: the program promises that `address` is null or writable.
        unsafe { store(address, at) };
        // SAFETY: the program promises that `size` is null or writable.
        unsafe { store(size, usize::try_from(bytes).unwrap_or(usize::MAX)) };
        Ok(())
    }
    /// The function in the current context.
    fn cuKernelGetFunction(result: *mut CUfunction, kernel: CUkernel) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        let function = Kernel::borrow(kernel)?.function_in(&context)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, function.raw()) };
        Ok(())
    }
    fn cuKernelGetLibrary(result: *mut CUlibrary, kernel: CUkernel) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let kernel = Kernel::borrow(kernel)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, kernel.library.raw()) };
        Ok(())
    }
    /// The name lives as long as the library.
    fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) {
        require(!name.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let kernel = Kernel::borrow(kernel)?;
        // SAFETY: the program promises that `name` is null or writable.
        unsafe { store(name, kernel.c_name.as_ptr()) };
        Ok(())
    }
    fn cuKernelGetAttribute(value: *mut c_int, attribute: c_uint, kernel: CUkernel, dev: CUdevice) {
        require(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let kernel = Kernel::borrow(kernel)?;
        let answer = function_on(&kernel, dev)?.attribute(attribute)?;
        // SAFETY: the program promises that `value` is null or writable.
        unsafe { store(value, answer) };
        Ok(())
    }
    fn cuKernelSetAttribute(attribute: c_uint, value: c_int, kernel: CUkernel, dev: CUdevice) {
        let kernel = Kernel::borrow(kernel)?;
        function_on(&kernel, dev)?.set_attribute(attribute, value)
    }
    /// Ignores the hint, because devices here have no such setting.
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, dev: CUdevice) {
        require(config <= 3, CUDA_ERROR_INVALID_VALUE)?;
        platform::device(dev)?;
        Kernel::borrow(kernel).map(drop)
    }
    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        check_process()?;
        let kernel = Kernel::borrow(kernel)?;
        let entry = kernel.library.entry(&kernel.name).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        // SAFETY: the program promises what `store_param` demands.
        unsafe { store_param(entry, index, offset, size) }
    }
}
