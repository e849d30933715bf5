use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_process::{log, notice};

use crate::core::context::Context;
use crate::core::module::Module;
use crate::core::program::Refusal;
use crate::core::{build, platform};
use crate::edge::{
    self, Bytes, CuResult, Object as _, array, check_process, cu_entry, require, store, text,
};

/// Where the program wants the reason for an error.
pub(super) struct Log {
    buffer: Option<Bytes>,
    /// Option that holds the size of the buffer, and later the number of bytes written.
    size: *mut *mut c_void,
}

impl Log {
    /// Finds the error log among the options of a compilation.
    ///
    /// # Safety
    /// The options are as the interface demands.
    pub(super) unsafe fn of(
        count: c_uint,
        names: *const c_uint,
        values: *mut *mut c_void,
    ) -> CuResult<Self> {
        // SAFETY: the caller promises that `names` and `values` are null or have `count` elements.
        let (names, given) =
            unsafe { (array(names, count as usize)?, array(values, count as usize)?) };
        let find = |wanted| names.iter().position(|name| *name == wanted);
        // The information log stays empty: successful compilations have no messages.
        if let Some(index) = find(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
            // SAFETY: `index` is below `count`, the length of the array.
            unsafe { store(values.add(index), std::ptr::null_mut()) };
        }
        let size = find(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
        let bytes =
            size.and_then(|index| given.get(index)).map_or(0, |value| value.addr() & 0xffff_ffff);
        let buffer = find(CU_JIT_ERROR_LOG_BUFFER)
            .and_then(|index| given.get(index))
            .filter(|it| !it.is_null());
        // SAFETY: the program promises a buffer of this size.
        let buffer = buffer.map(|address| unsafe { Bytes::new(*address, bytes) }).transpose()?;
        // SAFETY: `index` is below `count`, the length of the array.
        let size = size.map_or(std::ptr::null_mut(), |index| unsafe { values.add(index) });
        Ok(Self { buffer, size })
    }

    /// Returns a log without a buffer.
    pub(super) const fn none() -> Self {
        Self { buffer: None, size: std::ptr::null_mut() }
    }

    /// Writes the reason for a refusal to the program's buffer, or to our log if there is none.
    /// Returns the result with its code.
    pub(super) fn tell<T>(&self, result: Result<T, Refusal>) -> CuResult<T> {
        let told = result.as_ref().err().map_or("", |refusal| refusal.log.as_str());
        let mut written = 0;
        if let Some(buffer) = self.buffer.filter(|buffer| buffer.size() > 0) {
            let cut = told.as_bytes().get(..buffer.size() - 1).unwrap_or(told.as_bytes());
            buffer.write(&[cut, &[0]].concat());
            written = cut.len();
        } else if matches!(&result, Err(refusal) if refusal.code == CUDA_ERROR_NOT_SUPPORTED) {
            // The program asks for something that this device lacks, and nobody else says what.
            notice::once(format_args!("{told}"));
        } else if !told.is_empty() {
            log!(Warn, "refused a module: {told}");
        }
        // SAFETY: null, or an element of the program's array: "the option is the size on input, and
        // on output the bytes filled".
        unsafe { store(self.size, std::ptr::without_provenance_mut(written)) };
        result.map_err(|refusal| refusal.code)
    }
}

/// # Safety
/// `result` is null or writable, `image` is null or leads to a module.
unsafe fn load(result: *mut CUmodule, image: *const c_void, log: &Log) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::current()?;
    // SAFETY: the caller promises that `image` is null or leads to a module.
    let bytes = unsafe { edge::image(image) }?;
    let module = log.tell(Module::load(&context, &bytes))?;
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
        let module = Log::none().tell(Module::load(&context, &bytes))?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, module.raw()) };
        Ok(())
    }
    fn cuModuleLoadData(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, &Log::none()) }
    }
    fn cuModuleLoadDataEx(
        result: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program promises what `Log::of` demands.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, &log) }
    }
    fn cuModuleLoadFatBinary(result: *mut CUmodule, image: *const c_void) {
        // SAFETY: the program promises that `result` is null or readable.
        unsafe { load(result, image, &Log::none()) }
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
