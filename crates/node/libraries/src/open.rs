//! How libraries are found and opened.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

macro_rules! concat_arch {
    ($before:literal, $after:literal) => {
        if cfg!(target_arch = "x86_64") {
            concat!($before, "x86_64", $after)
        } else {
            concat!($before, "aarch64", $after)
        }
    };
}

/// Folders in which distributions have their libraries. A worker reads no variables for this: its
/// environment is that of the daemon's user, not of the program.
pub(crate) const FOLDERS: &[&str] = &[
    concat_arch!("/usr/lib/", "-linux-gnu"),
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
];

/// Returns the path of a library.
pub(crate) fn find(file: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(file)).find(|path| path.exists())
}

/// Opens a library for the life of the process.
pub(crate) fn open(file: &str) -> Option<&'static Library> {
    let path = find(file)?;
    // SAFETY: the library is the system's, and its constructors do what they do in every program
    // that is linked with it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
    Some(Box::leak(Box::new(library)))
}
