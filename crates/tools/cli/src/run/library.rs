//! Where `libpenstock_opencl.so` is, and how ICD loaders are led to it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use penstock_process::variable;

use crate::failure::Failure;

const LIBRARY_NAME: &str = "libpenstock_opencl.so";

/// Prefix that a package was built for.
const PREFIX: Option<&str> = option_env!("PENSTOCK_PREFIX");

/// Variables that name the folder with the entries of an ICD loader. ocl-icd and the Khronos loader
/// read the first one, and their older versions the second one.
pub const VENDORS: [&str; 2] = [variable::ICD_VENDORS.name, "OPENCL_VENDOR_PATH"];

/// Returns the value of the variables of [`VENDORS`] for a folder. ocl-icd takes a path for that of
/// a folder only if it is one. Some versions of the Khronos loader append a file name to the path,
/// so the path ends with a slash.
pub fn vendors(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    path.push("/");
    path
}

/// Returns the content of an entry for the ICD loader. A path need not be text.
pub fn entry(library: &Path) -> Vec<u8> {
    [library.as_os_str().as_bytes(), b"\n"].concat()
}

/// Finds the library. Returns its absolute path, which the entry for the ICD loader needs.
pub fn find() -> Result<PathBuf, Failure> {
    if let Some(path) = variable::LIB.path() {
        return std::path::absolute(&path).ok().filter(|path| path.is_file()).ok_or(
            Failure::Missing {
                what: LIBRARY_NAME,
                looked: vec![path],
                remedy: "let the variable PENSTOCK_LIB name it, or unset it",
            },
        );
    }
    let looked = candidates(std::env::current_exe().ok().as_deref().and_then(Path::parent));
    match looked.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Failure::Missing {
            what: LIBRARY_NAME,
            looked,
            remedy: "install it there, or let the variable PENSTOCK_LIB name it",
        }),
    }
}

/// Beside the executable (where cargo builds it), then where packages install it.
fn candidates(bin: Option<&Path>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(bin) = bin {
        folders.push(bin.to_path_buf());
        if let Some(prefix) = bin.parent() {
            folders.push(prefix.join("lib/penstock"));
            folders.push(prefix.join("lib"));
        }
    }
    folders.extend(PREFIX.map(|prefix| Path::new(prefix).join("lib/penstock")));
    folders.into_iter().map(|folder| folder.join(LIBRARY_NAME)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_beside_the_executable_and_in_its_prefix() {
        let found = candidates(Some(Path::new("/opt/penstock/bin")));
        assert_eq!(found[0], Path::new("/opt/penstock/bin/libpenstock_opencl.so"));
        assert_eq!(found[1], Path::new("/opt/penstock/lib/penstock/libpenstock_opencl.so"));
    }
}
