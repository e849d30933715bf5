//! Where the libraries are. Toolkits have folders of their own, which the loader need not know.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use penstock_process::notice;
use penstock_process::variable::{self, Variable};

use crate::open::FOLDERS;

/// A library of NVIDIA.
#[derive(Clone, Copy)]
pub(super) struct Named {
    variable: Variable,
    name: &'static str,
    /// The versions whose functions have the types that this module declares, the newest first.
    /// Each has the version of CUDA that it is a part of.
    versions: [(u32, u32); 2],
}

pub(super) const CUBLAS: Named =
    Named { variable: variable::LIBCUBLAS, name: "libcublas.so", versions: [(13, 13), (12, 12)] };
pub(super) const CUFFT: Named =
    Named { variable: variable::LIBCUFFT, name: "libcufft.so", versions: [(12, 13), (11, 12)] };
/// `cuDriverGetVersion` counts versions of CUDA in thousands.
const DRIVER_STEP: u32 = 1000;
/// Folder in which toolkits of NVIDIA are, each in a folder `cuda` or `cuda-VERSION`.
const TOOLKITS: &str = "/usr/local";

impl Named {
    /// Returns the library that the user named, or the newest one that a driver of this version
    /// runs.
    pub(super) fn find(&self, driver_version: u32) -> Option<PathBuf> {
        if let Some(named) = self.variable.path() {
            return Some(named).filter(|path| path.exists());
        }
        let folders: Vec<PathBuf> =
            toolkits().into_iter().chain(FOLDERS.iter().map(PathBuf::from)).collect();
        let runs = |(_, cuda): &&(u32, u32)| *cuda <= driver_version / DRIVER_STEP;
        self.versions.iter().filter(runs).find_map(|(version, _)| {
            let name = format!("{}.{version}", self.name);
            folders.iter().map(|folder| folder.join(&name)).find(|path| path.exists())
        })
    }
}

/// Returns a function of a library.
///
/// # Safety
/// The function with this name has the type `F`.
pub(super) unsafe fn get<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    // SAFETY: the caller promises the type.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.ok().map(|found| *found)
}

/// Returns the folders of the toolkits' libraries.
fn toolkits() -> Vec<PathBuf> {
    let listed = std::fs::read_dir(TOOLKITS).into_iter().flatten().flatten();
    let named = listed.filter(|it| it.file_name().to_string_lossy().starts_with("cuda"));
    let mut toolkits: Vec<PathBuf> = named.map(|it| it.path().join("lib64")).collect();
    toolkits.sort();
    toolkits.push("/opt/cuda/lib64".into());
    toolkits
}

/// Opens the library for the life of the process.
pub(super) fn open(path: &Path) -> Option<&'static Library> {
    // cuBLAS needs libcublasLt, which lies beside it. The loader does not look there in every
    // packaging, but takes one that is open already.
    let beside = path.file_name()?.to_string_lossy().replace("libcublas.", "libcublasLt.");
    let beside = path.with_file_name(beside);
    if beside != path {
        // SAFETY: the constructors are NVIDIA's, and run as in every program that is linked with
        // the library.
        let opened = unsafe { Library::open(Some(beside), RTLD_NOW | RTLD_LOCAL) };
        std::mem::forget(opened);
    }
    // SAFETY: as above.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => Some(Box::leak(Box::new(library))),
        Err(error) => {
            notice::once(format_args!("a library of CUDA does not open: {error}"));
            None
        }
    }
}
