//! Libraries that have the runtime inside and are loaded by a program that runs: extension modules of Python, above all.
//!
//! The preloaded library has the program's calls of `dlopen` first (`tools/cuda/patch.c`): it notes what is loaded before, and has what is new
//! redirected afterwards. Constructors of the new libraries have run by then, and have registered their kernels with the runtime inside: they
//! are called once more, and register them with the one that replaces it.
//!
//! A library may be new to several who load at the same time: to other threads, and to a library whose constructor loads it. One of them redirects
//! it, and the others wait until its kernels are registered.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::redirect::{redirect, say};

/// Held by the one thread that redirects. What its constructors load is redirected by that thread, too.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// What is loaded at a time.
#[derive(Debug)]
pub struct Loaded(Vec<Object>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    file: PathBuf,
    base: u64,
}

/// Notes what is loaded now; null if that cannot be told. To be given to [`penstock_cuda_redirect_loaded`].
#[unsafe(no_mangle)]
pub extern "C" fn penstock_cuda_loaded() -> *mut Loaded {
    std::panic::catch_unwind(|| Box::into_raw(Box::new(Loaded(objects()))))
        .unwrap_or(std::ptr::null_mut())
}

/// Redirects the runtimes inside what has been loaded since, and forgets the note. Says in one line if that does not work.
///
/// # Safety
/// `before` is of [`penstock_cuda_loaded`] and was not given here yet; no other thread uses what has been loaded since and was not redirected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_cuda_redirect_loaded(before: *mut Loaded) {
    if before.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw`, and not given here before.
    let before = unsafe { Box::from_raw(before) };
    let is_inner = IS_OURS.replace(true);
    let turn = (!is_inner).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    // A panic has said what it is; the program goes on without the replacement.
    _ = std::panic::catch_unwind(move || {
        for object in objects().iter().filter(|object| !before.0.contains(object)) {
            // SAFETY: the loader says that it is there; who uses it has had it redirected, as the caller promises.
            match unsafe { redirect(&object.file, object.base) } {
                Ok(constructors) => constructors.iter().for_each(|address| {
                    let place: *const c_void =
                        std::ptr::with_exposed_provenance(usize::try_from(*address).unwrap_or(0));
                    // SAFETY: the compiler's constructor, which takes and gives nothing, at the address that the file says.
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

/// The libraries of this process that come of files.
fn objects() -> Vec<Object> {
    extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, list: *mut c_void) -> c_int {
        // SAFETY: the loader's information, which lives until this returns.
        let (name, base) = unsafe { ((*info).dlpi_name, (*info).dlpi_addr) };
        if !name.is_null() {
            // SAFETY: a string of the loader's.
            let file = PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
            if file.is_absolute() {
                // SAFETY: the list below.
                unsafe { (*list.cast::<Vec<Object>>()).push(Object { file, base }) };
            }
        }
        0
    }
    let mut list = Vec::<Object>::new();
    // SAFETY: a function of the loader's form, and a list that lives until it returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    list
}
