//! The linker.

use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;

use super::module::{Log, file};
use crate::core::context::Context;
use crate::core::link::Link;
use crate::core::log;
use crate::core::platform;
use crate::edge::{
    Bytes, CuResult, Object as _, cu_entry, forget, new_number, publish, require, store,
};

/// # Safety
/// `result` is `NULL` or a place for a handle.
unsafe fn create(result: *mut CUlinkState) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    Context::current()?;
    let link = std::sync::Arc::new(Link::new(new_number()));
    publish(&link);
    // SAFETY: the caller's promise.
    unsafe { store(result, link.raw()) };
    Ok(())
}

fn add(link: CUlinkState, kind: c_uint, bytes: &[u8], log: &Log) -> CuResult {
    let link = Link::borrow(link)?;
    if ![CU_JIT_INPUT_PTX, CU_JIT_INPUT_FATBINARY].contains(&kind) {
        log::once("linker input", format_args!("the linker takes PTX alone"));
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
    platform::check_process()?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { Bytes::new(data, size) }?;
    add(link, kind, bytes.read(), log)
}

cu_entry! {
    /// `cuLinkCreate`.
    fn cuLinkCreate(_count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void, result: *mut CUlinkState) {
        // SAFETY: the program's place.
        unsafe { create(result) }
    }
    /// `cuLinkCreate`.
    fn cuLinkCreate_v2(_count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void, result: *mut CUlinkState) {
        // SAFETY: the program's place.
        unsafe { create(result) }
    }
    /// `cuLinkAddData`.
    fn cuLinkAddData(
        link: CUlinkState,
        kind: c_uint,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program's options.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program's bytes.
        unsafe { add_data(link, kind, data, size, &log) }
    }
    /// `cuLinkAddData`.
    fn cuLinkAddData_v2(
        link: CUlinkState,
        kind: c_uint,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        // SAFETY: the program's options.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: the program's bytes.
        unsafe { add_data(link, kind, data, size, &log) }
    }
    /// `cuLinkAddFile`.
    fn cuLinkAddFile_v2(
        link: CUlinkState,
        kind: c_uint,
        path: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        platform::check_process()?;
        // SAFETY: the program's options.
        let log = unsafe { Log::of(count, options, values) }?;
        // SAFETY: a string of the program.
        add(link, kind, &unsafe { file(path) }?, &log)
    }
    /// `cuLinkComplete`: "cubinOut ... is owned by state".
    fn cuLinkComplete(link: CUlinkState, result: *mut *mut c_void, size: *mut usize) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        let (bytes, count) = Link::borrow(link)?.complete()?;
        // SAFETY: a place for the address.
        unsafe { store(result, bytes.cast_mut().cast()) };
        // SAFETY: a place for the number.
        unsafe { store(size, count) };
        Ok(())
    }
    /// `cuLinkDestroy`.
    fn cuLinkDestroy(link: CUlinkState) {
        platform::check_process()?;
        forget(&*Link::borrow(link)?).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
