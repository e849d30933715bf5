//! Where the libraries are. Toolkits have folders of their own, which the loader need not know.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
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
    /// The versions whose functions have the types that this module declares. Each has the version
    /// of CUDA that it is a part of.
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
    /// runs. The file can be read and is a library of this machine's kind; whether it opens, the
    /// first call finds out.
    pub(super) fn find(&self, driver_version: u32) -> Option<PathBuf> {
        if let Some(named) = self.variable.path() {
            return Some(named).filter(|path| self.is_run_by(path, driver_version));
        }
        let folders = toolkits().into_iter().chain(FOLDERS.iter().map(PathBuf::from));
        self.newest(&folders.collect::<Vec<_>>(), driver_version)
    }

    /// Returns the newest version in these folders.
    fn newest(&self, folders: &[PathBuf], driver_version: u32) -> Option<PathBuf> {
        let names = self.versions.map(|(version, _)| format!("{}.{version}", self.name));
        let all = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        let run = all.filter(|path| self.is_run_by(path, driver_version));
        // Of equal versions, the one in the first folder.
        run.reduce(
            |best, next| {
                if self.version_of(&next) > self.version_of(&best) { next } else { best }
            },
        )
    }

    /// Returns whether a file is a library that a driver of this version runs. A name without a
    /// version says nothing against it: a user has named it.
    fn is_run_by(&self, path: &Path, driver_version: u32) -> bool {
        let version = self.version_of(path);
        let cuda = version.first().map_or(Some(0), |major| {
            self.versions.iter().find(|(version, _)| version == major).map(|(_, cuda)| *cuda)
        });
        cuda.is_some_and(|cuda| cuda <= driver_version / DRIVER_STEP) && is_library(path)
    }

    /// Returns the version in the name of the file that a path leads to: `libcublas.so.13` is a
    /// link to `libcublas.so.13.0.2.14`. Empty if the name has none.
    fn version_of(&self, path: &Path) -> Vec<u32> {
        let file = path.canonicalize().unwrap_or_else(|_| path.into());
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbers = name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('.'));
        let numbers = numbers.unwrap_or_default().split('.');
        numbers.map_while(|number| number.parse().ok()).collect()
    }
}

/// Bytes of an ELF file up to the kind of machine, which are its last two.
const ELF_BYTES: usize = 20;
/// `EM_X86_64` or `EM_AARCH64`.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// Returns whether this process can read a file, and the file is a library for this machine.
fn is_library(path: &Path) -> bool {
    let mut start = [0; ELF_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start.starts_with(b"\x7fELF") && start.ends_with(&MACHINE.to_le_bytes())
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder that ends with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        /// Makes a toolkit with one library, which has a name with its major version.
        fn toolkit(&self, name: &str, file: &str, bytes: &[u8]) -> PathBuf {
            let toolkit = self.0.join(name);
            std::fs::create_dir_all(&toolkit).unwrap();
            std::fs::write(toolkit.join(file), bytes).unwrap();
            let short: Vec<&str> = file.splitn(4, '.').take(3).collect();
            _ = symlink(file, toolkit.join(short.join(".")));
            toolkit
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; ELF_BYTES];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[ELF_BYTES - 2..].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn the_newest_library_that_the_driver_runs_is_found() {
        let folder = Folder::new("newest");
        let elf = elf(MACHINE);
        let toolkits = [
            ("cuda-12.9", "libcublas.so.12.9.1.4"),
            ("cuda-13.0", "libcublas.so.13.0.2.14"),
            ("cuda-13.10", "libcublas.so.13.10.0.3"),
            ("cuda-13.2", "libcublas.so.13.2.0.9"),
            ("cuda-14.0", "libcublas.so.14.0.0.1"),
        ];
        let mut folders = toolkits.map(|(name, file)| folder.toolkit(name, file, &elf));
        let found = |folders: &[PathBuf], driver| {
            CUBLAS.newest(folders, driver).map(|path| CUBLAS.version_of(&path))
        };
        for _ in 0..2 {
            assert_eq!(found(&folders, 13_000), Some(vec![13, 10, 0, 3]));
            assert_eq!(found(&folders, 12_040), Some(vec![12, 9, 1, 4]));
            assert_eq!(found(&folders, 11_080), None);
            folders.reverse();
        }
        // Of two equal ones, the first.
        let twin = folder.toolkit("twin", "libcublas.so.13.10.0.3", &elf);
        let twins = [twin.clone(), folder.0.join("cuda-13.10")];
        assert_eq!(CUBLAS.newest(&twins, 13_000), Some(twin.join("libcublas.so.13")));
    }

    #[test]
    fn a_file_that_cannot_be_the_library_is_not_found() {
        let folder = Folder::new("refused");
        let name = "libcufft.so.12.0.0.61";
        for (toolkit, bytes) in [
            ("empty", Vec::new()),
            ("text", b"INPUT ( libcufft.so.12 )".to_vec()),
            ("other machine", elf(MACHINE + 1)),
        ] {
            assert_eq!(CUFFT.newest(&[folder.toolkit(toolkit, name, &bytes)], 13_000), None);
        }
        std::fs::create_dir_all(folder.0.join("folder/libcufft.so.12")).unwrap();
        assert_eq!(CUFFT.newest(&[folder.0.join("folder")], 13_000), None);
    }

    #[test]
    fn a_named_library_needs_its_driver_too() {
        let folder = Folder::new("named");
        let elf = elf(MACHINE);
        let in_toolkit = folder.toolkit("named", "libcublas.so.13.0.2.14", &elf);
        let named = |name: &str, driver| CUBLAS.is_run_by(&in_toolkit.join(name), driver);
        for name in ["libcublas.so.13", "libcublas.so.13.0.2.14"] {
            assert!(named(name, 13_000) && named(name, 14_000) && !named(name, 12_090), "{name}");
        }
        // Without a version in its name.
        std::fs::write(in_toolkit.join("mine.so"), &elf).unwrap();
        assert!(named("mine.so", 12_000) && !named("none.so", 13_000));
        // A version whose functions may have other types.
        folder.toolkit("named", "libcublas.so.11.4.1.1043", &elf);
        assert!(!named("libcublas.so.11", 13_000));
    }
}
