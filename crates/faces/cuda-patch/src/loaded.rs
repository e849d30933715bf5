//! Libraries with a runtime inside that a running program loads, such as Python's modules.
//!
//! The preloaded library intercepts the program's calls of `dlopen` (`tools/cuda/patch.c`). It
//! notes the loaded libraries before the call and redirects the new ones after it. By then the
//! constructors of the new libraries have registered their kernels with the runtime inside, so they
//! are called again to register with the replacement.
//!
//! A library may be new to several loads at the same time: those of other threads, and that of a
//! library whose constructor loads it. One thread redirects it, and the others wait until its
//! kernels are registered.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use penstock_process::Lock;

use crate::redirect::{redirect, say};

/// Held by the thread that redirects. That thread also redirects what its constructors load.
static TURN: Lock<()> = Lock::new(());

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// The libraries that were loaded at one moment.
#[derive(Debug)]
pub struct Loaded(Vec<Object>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    file: PathBuf,
    base: u64,
}

/// Notes the loaded libraries for [`penstock_cuda_redirect_loaded`]. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_cuda_loaded() -> *mut Loaded {
    std::panic::catch_unwind(|| Box::into_raw(Box::new(Loaded(objects()))))
        .unwrap_or(std::ptr::null_mut())
}

/// Redirects the runtimes inside the libraries loaded since `before`, and frees the note. Reports a
/// failure in one line on standard error.
///
/// # Safety
/// `before` comes from [`penstock_cuda_loaded`] and has not been passed here yet. No other thread
/// uses a library that was loaded since and is not redirected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_cuda_redirect_loaded(before: *mut Loaded) {
    if before.is_null() {
        return;
    }
    // SAFETY: `Box::into_raw` made the pointer, and the caller passes it only once.
    let before = unsafe { Box::from_raw(before) };
    let is_inner = IS_OURS.replace(true);
    let turn = (!is_inner).then(|| TURN.lock());
    // The panic was reported on standard error. The program goes on without the replacement.
    _ = std::panic::catch_unwind(move || {
        for object in objects().iter().filter(|object| !before.0.contains(object)) {
            // SAFETY: the loader has listed the object, and the caller guarantees that no thread
            // uses it before it is redirected.
            match unsafe { redirect(&object.file, object.base) } {
                Ok(constructors) => constructors.iter().for_each(|address| {
                    let place: *const c_void =
                        std::ptr::with_exposed_provenance(usize::try_from(*address).unwrap_or(0));
                    // SAFETY: the file names the address of the compiler's constructor, which takes
                    // and returns nothing.
                    let register: extern "C" fn() = unsafe { std::mem::transmute(place) };
                    register();
                }),
                Err(error) => say(&object.file.display().to_string(), &error),
            }
        }
    });
    drop(turn);
    IS_OURS.set(is_inner);
}

/// Returns the libraries of this process that were loaded from files.
fn objects() -> Vec<Object> {
    extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, list: *mut c_void) -> c_int {
        // SAFETY: the loader's information is valid until this function returns.
        let (name, base) = unsafe { ((*info).dlpi_name, (*info).dlpi_addr) };
        if !name.is_null() {
            // SAFETY: the name is a C string of the loader.
            let file = PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
            if file.is_absolute() {
                // SAFETY: `list` is the vector below.
                unsafe { (*list.cast::<Vec<Object>>()).push(Object { file, base }) };
            }
        }
        0
    }
    let mut list = Vec::<Object>::new();
    // SAFETY: `note` has the form that the loader requires, and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    list
}
