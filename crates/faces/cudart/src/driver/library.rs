//! Finds and opens the driver.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

/// The name that every program uses.
const NAME: &CStr = c"libcuda.so.1";

/// A loaded shared library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(*mut c_void);

/// Opens the driver: the one that the program already has, otherwise the one beside this library,
/// otherwise the system's.
pub(crate) fn open() -> Option<Library> {
    // A program that calls the driver too must not get a second one, which has other handles.
    // SAFETY: the name is a C string, and nothing is loaded.
    let present = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if !present.is_null() {
        return Some(Library(present));
    }
    beside().and_then(|path| load(&path)).or_else(|| load(NAME))
}

impl Library {
    /// Returns the address of a function.
    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle belongs to a library that is never closed, and the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }
}

fn load(name: &CStr) -> Option<Library> {
    // SAFETY: the name is a C string. The driver's constructors run, as in every program that is
    // linked with the driver.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(Library(handle))
}

/// Returns the path of the driver in the folder of this library.
fn beside() -> Option<CString> {
    // SAFETY: all zeros is a valid value of this structure of pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside: *const c_void = open as fn() -> Option<Library> as *const c_void;
    // SAFETY: `inside` is an address of this library, and `found` is valid for the write.
    if unsafe { libc::dladdr(inside, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name of this library, a C string, while it is loaded.
    let library = unsafe { CStr::from_ptr(found.dli_fname) };
    let folder = Path::new(std::ffi::OsStr::from_bytes(library.to_bytes())).parent()?;
    CString::new(folder.join(std::ffi::OsStr::from_bytes(NAME.to_bytes())).as_os_str().as_bytes())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_looked_for_in_the_folder_of_this_file() {
        let here = std::env::current_exe().unwrap();
        let beside = beside().unwrap();
        assert_eq!(
            Path::new(beside.to_str().unwrap()).parent().unwrap().canonicalize().unwrap(),
            here.parent().unwrap().canonicalize().unwrap()
        );
        assert!(beside.to_bytes().ends_with(b"/libcuda.so.1"));
    }
}
