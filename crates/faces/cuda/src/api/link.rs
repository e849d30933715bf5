use std::ffi::{c_char, c_uint, c_void};

use penstock_cuda_sys::driver::*;
use penstock_process::notice;

use super::module::file;
use crate::core::context::Context;
use crate::core::link::Link;
use crate::edge::{
    Bytes, CuResult, Logs, Object as _, array, check_process, cu_entry, forget, new_number,
    publish, require, store, text,
};

/// The smallest and the largest architecture that `CU_JIT_TARGET` can name, in `CUjit_target`.
const TARGETS: std::ops::RangeInclusive<usize> = 30..=199;

/// Added to an architecture for `sm_90a` and `sm_100f`.
const TARGET_BASES: [usize; 3] = [0, 0x1_0000, 0x2_0000];

/// Checks the options of a link. Those of the compiler have no effect: the code is compiled for the
/// device when a kernel is launched.
///
/// # Safety
/// `names` and `values` are null or have `count` elements.
unsafe fn check_options(
    count: c_uint,
    names: *const c_uint,
    values: *const *mut c_void,
) -> CuResult {
    // SAFETY: the caller promises the elements.
    let (names, values) =
        unsafe { (array(names, count as usize)?, array(values, count as usize)?) };
    let has = |wanted| names.contains(&wanted);
    require(names.iter().all(|name| *name < CU_JIT_NUM_OPTIONS), CUDA_ERROR_INVALID_VALUE)?;
    // "This option cannot be used with cuLink* APIs as the linker requires exact matches."
    require(!has(CU_JIT_FALLBACK_STRATEGY), CUDA_ERROR_INVALID_VALUE)?;
    // Both would be targets, and "Cannot be combined with CU_JIT_THREADS_PER_BLOCK".
    let others = [CU_JIT_TARGET_FROM_CUCONTEXT, CU_JIT_THREADS_PER_BLOCK];
    let is_alone = !has(CU_JIT_TARGET) || !others.into_iter().any(has);
    require(is_alone, CUDA_ERROR_INVALID_VALUE)?;
    if (CU_JIT_GLOBAL_SYMBOL_NAMES..=CU_JIT_GLOBAL_SYMBOL_COUNT).any(has) {
        notice::once_about(
            "linker symbols",
            format_args!("the linker gives variables no addresses of the host"),
        );
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let is_known = |value: usize| {
        let plain = |base: &usize| value.checked_sub(*base).is_some_and(|it| TARGETS.contains(&it));
        TARGET_BASES.iter().any(plain)
    };
    let mut targets = names.iter().zip(values).filter(|(name, _)| **name == CU_JIT_TARGET);
    let are_known = targets.all(|(_, value)| is_known(value.addr() & 0xffff_ffff));
    require(are_known, CUDA_ERROR_INVALID_VALUE)
}

/// # Safety
/// `result` is null or writable. The options are as the interface demands, and stay valid "for the
/// life of the CUlinkState if output options are used".
unsafe fn create(
    count: c_uint,
    options: *const c_uint,
    values: *mut *mut c_void,
    result: *mut CUlinkState,
) -> CuResult {
    require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let context = Context::current()?;
    // SAFETY: the caller promises the options.
    unsafe { check_options(count, options, values) }?;
    // SAFETY: the caller promises the options.
    let logs = unsafe { Logs::of(count, options, values) }?;
    let link = std::sync::Arc::new(Link::new(new_number(), &context.device, logs));
    publish(&link);
    // SAFETY: the caller promises that `result` is null or writable.
    unsafe { store(result, link.raw()) };
    Ok(())
}

/// Checks the options of one input: "This method accepts only compiler options ... and does not
/// accept any of CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER,
/// CU_JIT_TARGET_FROM_CUCONTEXT, or CU_JIT_TARGET."
///
/// # Safety
/// `names` is null or has `count` elements.
unsafe fn check_input_options(count: c_uint, names: *const c_uint) -> CuResult {
    const OF_LINKS: [c_uint; 5] = [
        CU_JIT_WALL_TIME,
        CU_JIT_INFO_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_TARGET_FROM_CUCONTEXT,
        CU_JIT_TARGET,
    ];
    // SAFETY: the caller promises the elements.
    let names = unsafe { array(names, count as usize) }?;
    let is_taken = |name: &c_uint| *name < CU_JIT_NUM_OPTIONS && !OF_LINKS.contains(name);
    require(names.iter().all(is_taken), CUDA_ERROR_INVALID_VALUE)
}

/// Returns the name of an input for messages, if it has one.
///
/// # Safety
/// `name` is null or a string.
unsafe fn name_of(name: *const c_char) -> Option<String> {
    // SAFETY: the caller promises that `name` is null or a string.
    let name = unsafe { text(name) }.ok()?.to_string_lossy().into_owned();
    Some(name).filter(|name| !name.is_empty())
}

cu_entry! {
    fn cuLinkCreate, cuLinkCreate_v2(
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        result: *mut CUlinkState,
    ) {
        // SAFETY: the program promises what `create` demands.
        unsafe { create(count, options, values, result) }
    }
    fn cuLinkAddData, cuLinkAddData_v2(
        link: CUlinkState,
        kind: c_uint,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        _values: *mut *mut c_void,
    ) {
        check_process()?;
        let link = Link::borrow(link)?;
        // SAFETY: the program promises `count` options.
        unsafe { check_input_options(count, options) }?;
        // SAFETY: the program promises `size` bytes at `data`.
        let bytes = unsafe { Bytes::new(data, size) }?;
        // SAFETY: the program promises that `name` is null or a string.
        link.add(kind, unsafe { name_of(name) }, bytes.read())
    }
    fn cuLinkAddFile_v2(
        link: CUlinkState,
        kind: c_uint,
        path: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        _values: *mut *mut c_void,
    ) {
        check_process()?;
        let link = Link::borrow(link)?;
        // SAFETY: the program promises `count` options.
        unsafe { check_input_options(count, options) }?;
        // SAFETY: the program promises that `path` is null or a string.
        let bytes = unsafe { file(path) }?;
        // SAFETY: the program promises that `path` is null or a string.
        link.add(kind, unsafe { name_of(path) }, &bytes)
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
