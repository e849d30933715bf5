//! Modules.

use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::module::Module;
use crate::core::program::{self, Refusal};
use crate::core::{log, platform};
use crate::edge::{self, Bytes, CuResult, Object as _, array, cu_entry, require, store, text};

/// Where a program wants to read why something was refused.
pub(super) struct Log {
    buffer: Option<Bytes>,
    /// Where its size is, and where the bytes written are to be told.
    size: *mut *mut c_void,
}

impl Log {
    /// The error log among the options of a compilation.
    ///
    /// # Safety
    /// As the interface says of such options.
    pub(super) unsafe fn of(
        count: c_uint,
        names: *const c_uint,
        values: *mut *mut c_void,
    ) -> CuResult<Self> {
        // SAFETY: arrays of so many elements.
        let (names, given) =
            unsafe { (array(names, count as usize)?, array(values, count as usize)?) };
        let find = |wanted| names.iter().position(|name| *name == wanted);
        // Nothing is ever written there: compilations that succeed have nothing to tell.
        if let Some(index) = find(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
            // SAFETY: within the array.
            unsafe { store(values.add(index), std::ptr::null_mut()) };
        }
        let size = find(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
        let bytes =
            size.and_then(|index| given.get(index)).map_or(0, |value| value.addr() & 0xffff_ffff);
        let buffer = find(CU_JIT_ERROR_LOG_BUFFER)
            .and_then(|index| given.get(index))
            .filter(|it| !it.is_null());
        // SAFETY: a buffer of that size.
        let buffer = buffer.map(|address| unsafe { Bytes::new(*address, bytes) }).transpose()?;
        // SAFETY: within the array.
        let size = size.map_or(std::ptr::null_mut(), |index| unsafe { values.add(index) });
        Ok(Self { buffer, size })
    }

    /// No log is wanted.
    pub(super) const fn none() -> Self {
        Self { buffer: None, size: std::ptr::null_mut() }
    }

    /// The result of a compilation; a refusal is written where the program wants it, else to the log.
    pub(super) fn tell<T>(&self, result: Result<T, Refusal>) -> CuResult<T> {
        let told = result.as_ref().err().map_or("", |refusal| refusal.log.as_str());
        let mut written = 0;
        if let Some(buffer) = self.buffer.filter(|buffer| buffer.size() > 0) {
            let cut = told.as_bytes().get(..buffer.size() - 1).unwrap_or(told.as_bytes());
            buffer.write(&[cut, &[0]].concat());
            written = cut.len();
        } else if !told.is_empty() {
            log::line(format_args!("a module is refused: {told}"));
        }
        // SAFETY: found in the program's array; "the option is the size on input, and on output the bytes filled".
        unsafe { store(self.size, std::ptr::without_provenance_mut(written)) };
        result.map_err(|refusal| refusal.code)
    }
}

/// # Safety
/// `result` is a place for a handle, `image` leads to a module.
unsafe fn load(result: *mut CUmodule, image: *const c_void, log: &Log) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::current()?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { edge::image(image) }?;
    let module = log.tell(Module::load(&context, &bytes))?;
    // SAFETY: the caller's promise.
    unsafe { store(result, module.raw()) };
    Ok(())
}

/// The content of a file that a program names.
///
/// # Safety
/// `path` is `NULL` or a string.
pub(super) unsafe fn file(path: *const c_char) -> CuResult<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: the caller's promise.
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(unsafe { text(path) }?.to_bytes()));
    std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

/// # Safety
/// `name` is `NULL` or a string.
pub(super) unsafe fn utf8<'a>(name: *const c_char) -> CuResult<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { text(name) }?.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)
}

cu_entry! {
    /// `cuModuleLoad`.
    fn cuModuleLoad(result: *mut CUmodule, path: *const c_char) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        // SAFETY: a string of the program.
        let bytes = unsafe { file(path) }?;
        let module = Log::none().tell(Module::load(&context, &bytes))?;
        // SAFETY: a place for the handle.
        unsafe { store(result, module.raw()) };
        Ok(())
    }
    /// `cuModuleLoadData`.
    fn cuModuleLoadData(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program's module.
        unsafe { load(result, image, &Log::none()) }
    }
    /// `cuModuleLoadDataEx`.
    fn cuModuleLoadDataEx(
        result: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program's options.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program's module.
        unsafe { load(result, image, &log) }
    }
    /// `cuModuleLoadFatBinary`.
    fn cuModuleLoadFatBinary(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program's module.
        unsafe { load(result, image, &Log::none()) }
    }
    /// `cuModuleUnload`.
    fn cuModuleUnload(module: CUmodule) {
        Context::current()?;
        Module::borrow(module)?.unload()
    }
    /// `cuModuleGetLoadingMode`: lazy, unless the program wants otherwise; what is wrong is found at load in any case.
    fn cuModuleGetLoadingMode(mode: *mut c_uint) {
        platform::devices()?;
        require(!mode.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a place for the number.
        unsafe { store(mode, if program::is_eager() { 1 } else { 2 }) };
        Ok(())
    }
    /// `cuModuleGetFunction`.
    fn cuModuleGetFunction(result: *mut CUfunction, module: CUmodule, name: *const c_char) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        Context::current()?;
        let module = Module::borrow(module)?;
        // SAFETY: a string of the program.
        let function = module.function(unsafe { utf8(name) }?)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, function.raw()) };
        Ok(())
    }
    /// `cuModuleGetFunctionCount`.
    fn cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) {
        require(!count.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let kernels = Module::borrow(module)?.kernel_names().count();
        // SAFETY: a place for the number.
        unsafe { store(count, c_uint::try_from(kernels).unwrap_or(c_uint::MAX)) };
        Ok(())
    }
    /// `cuModuleEnumerateFunctions`.
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, room: c_uint, module: CUmodule) {
        require(!functions.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let module = Module::borrow(module)?;
        for (index, name) in module.kernel_names().take(room as usize).enumerate() {
            let raw = module.function(name)?.raw();
            // SAFETY: there is room for so many.
            unsafe { store(functions.add(index), raw) };
        }
        Ok(())
    }
    /// `cuModuleGetGlobal`.
    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, size: *mut usize, module: CUmodule, name: *const c_char) {
        Context::current()?;
        let module = Module::borrow(module)?;
        // SAFETY: a string of the program.
        let (at, bytes) = module.global(unsafe { utf8(name) }?)?;
        // SAFETY: a place for the address.
        unsafe { store(address, at) };
        // SAFETY: a place for the number.
        unsafe { store(size, usize::try_from(bytes).unwrap_or(usize::MAX)) };
        Ok(())
    }
}
