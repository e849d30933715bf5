//! The loader's functions, found by name at run time, and helpers for their codes and handles.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use penstock_cl_sys::{CL_SUCCESS, SLOT_NAMES, SLOTS, cl_icd_dispatch, cl_int};
use penstock_wire::status::Status;

/// Longest answer of a driver. A reply may carry no more; a program's binaries are the largest.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// Functions of the loader, in the form of a dispatch table; missing ones are `None`.
pub(super) struct Functions {
    table: cl_icd_dispatch,
}

// SAFETY: the table is never changed, and all its pointers (also `void *`) are to code.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static LOADED: OnceLock<Functions> = OnceLock::new();
static NONE: Functions = Functions::from_slots([std::ptr::null(); SLOTS]);

impl Functions {
    const fn from_slots(slots: [*const c_void; SLOTS]) -> Self {
        // SAFETY: the table is `SLOTS` pointers; each slot holds null or the function of its name.
        let table =
            unsafe { std::mem::transmute::<[*const c_void; SLOTS], cl_icd_dispatch>(slots) };
        Self { table }
    }

    /// Keeps every function that `find` finds, for the life of the process.
    pub(super) fn load(find: &dyn Fn(&CString) -> Option<*const c_void>) {
        let _ = LOADED.set(Self::found(find));
    }

    fn found(find: &dyn Fn(&CString) -> Option<*const c_void>) -> Self {
        let mut slots = [std::ptr::null(); SLOTS];
        for (place, name) in slots.iter_mut().zip(SLOT_NAMES) {
            if let Ok(name) = CString::new(*name) {
                *place = find(&name).unwrap_or(std::ptr::null());
            }
        }
        Self::from_slots(slots)
    }

    pub(super) fn get() -> &'static cl_icd_dispatch {
        &LOADED.get().unwrap_or(&NONE).table
    }
}

/// Returns the loader's function, or `CL_INVALID_OPERATION` if it has none of this name.
macro_rules! function {
    ($name:ident) => {
        $crate::opencl::api::Functions::get()
            .$name
            .ok_or(penstock_wire::status::Status::INVALID_OPERATION)
    };
}
pub(super) use function;

pub(super) fn check(code: cl_int) -> Result<(), Status> {
    if code == CL_SUCCESS { Ok(()) } else { Err(failure(code)) }
}

/// Converts a code to a failure. Positive codes are not OpenCL's and must not pass for success.
fn failure(code: cl_int) -> Status {
    if code < 0 { Status(code) } else { Status::OUT_OF_RESOURCES }
}

/// Returns the handle that a call made, or its code.
pub(super) fn made<T>(handle: *mut T, code: cl_int) -> Result<*mut T, Status> {
    check(code)?;
    // A driver that reports success must return a handle; a null is the driver's defect.
    if handle.is_null() { Err(Status::OUT_OF_RESOURCES) } else { Ok(handle) }
}

/// Runs a `clGet*Info` query, first for the size and then for the bytes. `ask` gets the size, the
/// value's location and the true size's location.
pub(super) fn query(
    ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<Vec<u8>, Status> {
    let mut size = 0;
    check(ask(0, std::ptr::null_mut(), &mut size))?;
    if size > ANSWER_BYTES_MAX {
        return Err(Status::OUT_OF_HOST_MEMORY);
    }
    let mut bytes = vec![0; size];
    if size > 0 {
        let mut written = size;
        check(ask(size, bytes.as_mut_ptr().cast(), &mut written))?;
        bytes.truncate(written);
    }
    Ok(bytes)
}

/// Runs a `clGet*Info` query for a number of fixed size.
pub(super) fn number<T: Number>(
    ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<T, Status> {
    let mut value = T::default();
    check(ask(size_of::<T>(), (&raw mut value).cast(), std::ptr::null_mut()))?;
    Ok(value)
}

/// Numbers for which any bytes are a valid value.
pub(super) trait Number: Default + Copy {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for u64 {}
impl Number for usize {}

/// Returns an answer's text up to its NUL.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Converts a length to OpenCL's counts.
pub(super) fn count(length: usize) -> Result<u32, Status> {
    u32::try_from(length).map_err(|_| Status::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_stands_in_the_slot_of_its_name() {
        let code = what_is_not_loaded_is_refused as *const c_void;
        let table =
            Functions::found(&|name| (name.as_c_str() == c"clFinish").then_some(code)).table;
        assert_eq!(table.clFinish.map(|function| function as *const c_void), Some(code));
        assert!(table.clFlush.is_none() && table.clEnqueueSVMMemcpy.is_none());
    }

    #[test]
    fn what_is_not_loaded_is_refused() {
        assert!(NONE.table.clFinish.is_none());
        assert_eq!(check(-5), Err(Status(-5)));
        assert!(check(7).is_err());
        assert!(made(std::ptr::null_mut::<u8>(), 0).is_err());
    }

    #[test]
    fn text_ends_at_the_nul() {
        assert_eq!(text(b"abc\0def"), "abc");
        assert_eq!(text(b""), "");
    }
}
