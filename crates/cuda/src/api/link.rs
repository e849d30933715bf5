use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_process::notice;

use super::module::{Log, file};
use crate::core::context::Context;
use crate::core::link::Link;
use crate::edge::{
    Bytes, CuResult, Object as _, check_process, cu_entry, forget, new_number, publish, require,
    store,
};

/// # Safety
/// `result` is null or writable.
unsafe fn create(result: *mut CUlinkState) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    Context::current()?;
    let link = std::sync::Arc::new(Link::new(new_number()));
    publish(&link);
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, link.raw()) };
    Ok(())
}

fn add(link: CUlinkState, kind: c_uint, bytes: &[u8], log: &Log) -> CuResult {
    let link = Link::borrow(link)?;
    if ![CU_JIT_INPUT_PTX, CU_JIT_INPUT_FATBINARY].contains(&kind) {
        notice::once_about("linker input", format_args!("the linker accepts only PTX"));
        return Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    log.tell(link.add(bytes))
}

/// # Safety
/// `data` leads to `size` bytes.
unsafe fn add_data(
    link: CUlinkState,
    kind: c_uint,
    data: *mut c_void,
    size: usize,
    log: &Log,
) -> CuResult {
    check_process()?;
    // SAFETY: the caller promises `size` bytes at `data`.
    let bytes = unsafe { Bytes::new(data, size) }?;
    add(link, kind, bytes.read(), log)
}

cu_entry! {
    fn cuLinkCreate, cuLinkCreate_v2(_count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void, result: *mut CUlinkState) {
        // SAFETY: the program promises what `create` demands.
        unsafe { create(result) }
    }
    fn cuLinkAddData, cuLinkAddData_v2(
        link: CUlinkState,
        kind: c_uint,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program promises what `Log::of` demands.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program promises what `add_data` demands.
        unsafe { add_data(link, kind, data, size, &log) }
    }
    fn cuLinkAddFile_v2(
        link: CUlinkState,
        kind: c_uint,
        path: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        check_process()?;
        // SAFETY: the program promises what `Log::of` demands.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program promises that `path` is null or a string.
        add(link, kind, &unsafe { file(path) }?, &log)
    }
    /// "cubinOut ... is owned by state".
    fn cuLinkComplete(link: CUlinkState, result: *mut *mut c_void, size: *mut usize) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let (bytes, count) = Link::borrow(link)?.complete()?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, bytes.cast_mut().cast()) };
        // SAFETY: the program promises that `size` is null or writable.
        unsafe { store(size, count) };
        Ok(())
    }
    fn cuLinkDestroy(link: CUlinkState) {
        check_process()?;
        forget(&*Link::borrow(link)?).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
