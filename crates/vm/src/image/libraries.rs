//! The shared libraries of a program, as its own loader finds them.
//!
//! The loader knows more than its list of folders: paths in the file, its cache, the processor's
//! folders. So it is asked (`ld.so --list`), which loads the program's files and runs nothing of
//! them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::VmError;

/// Folders that the loaders of Debian and its relatives search by themselves.
const USUAL: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Loader of a library, which names none itself.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Variables that tell the loader where to look.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Value of `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
}

/// Whether the loader searches this folder by itself.
pub fn is_usual(folder: &Path) -> bool {
    USUAL.iter().any(|usual| Path::new(usual) == folder)
}

/// Returns the loader and the libraries of a program or library.
pub fn of(
    program: &Path,
    loader: Option<PathBuf>,
    environment: &Environment,
) -> Result<Vec<PathBuf>, VmError> {
    let loader = loader.unwrap_or_else(|| LOADER.into());
    // A relative path without a slash would be searched for among the libraries.
    let whole = std::path::absolute(program).map_err(VmError::file(program, "find"))?;
    let mut command = Command::new(&loader);
    command.arg("--list").arg(&whole).stdin(Stdio::null());
    // Libraries that this process preloads are none of the program's.
    command.env_clear();
    if let Some(path) = &environment.library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(VmError::file(&loader, "run"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(VmError::Process {
            what: format!("the loader of {}", whole.display()),
            how: said,
        });
    }
    let mut found = listed(&String::from_utf8_lossy(&output.stdout))
        .map_err(|library| VmError::Library { program: whole.display().to_string(), library })?;
    if !found.contains(&loader) {
        found.push(loader);
    }
    Ok(found)
}

/// Reads the loader's list. Fails with the name of a library that was not found.
fn listed(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in text.lines() {
        // Either `NAME => PATH (ADDRESS)`, `NAME => not found`, or `PATH (ADDRESS)`.
        let (name, place) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
        if place == "not found" {
            return Err(name.to_owned());
        }
        let place = place.rsplit_once(" (").map_or(place, |(path, _)| path);
        // Others are the kernel's own (linux-vdso.so.1), or a sentence.
        if place.starts_with('/') {
            found.push(PathBuf::from(place));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_loader_is_understood() {
        let text = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x2)\n";
        let found = listed(text).unwrap();
        assert_eq!(found, [Path::new("/lib/libm.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
        assert_eq!(listed("\tlibx.so => not found\n"), Err("libx.so".to_owned()));
        assert_eq!(listed("\tstatically linked\n"), Ok(Vec::new()));
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let found = of(&std::env::current_exe().unwrap(), None, &Environment::default()).unwrap();
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        assert!(found.contains(&PathBuf::from(LOADER)), "{found:?}");
    }
}
