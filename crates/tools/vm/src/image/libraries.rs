//! The shared libraries of a program, as its own loader finds them.
//!
//! The loader knows more than its list of folders: paths in the file, its cache, the processor's
//! folders. So it is asked (`ld.so --list`), which loads the program's files and runs nothing of
//! them.
//!
//! The file of a program names its loader, and a person may run the program in a guest because they
//! do not trust it. So only loaders run here that the host's administrator has installed.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
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

/// First bytes of a library.
const ELF: [u8; 4] = *b"\x7fELF";

/// Part of the name of every loader.
const SHARED: &[u8] = b".so";

/// Bits of a mode by which users other than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Bit of the mode of a folder in which everybody can remove only files of their own.
const STICKY: u32 = 0o1000;

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
    let mut command = Command::new(trusted(program, &loader)?);
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
    for path in &found {
        check_library(&whole, path)?;
    }
    Ok(found)
}

/// Refuses a listed file that is no library. A program can have names of libraries with line breaks
/// in them, and so add any path to the list.
fn check_library(program: &Path, path: &Path) -> Result<(), VmError> {
    let mut start = [0; ELF.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    if read.is_ok() && start == ELF {
        return Ok(());
    }
    let reason = format!("it needs {}, which is no library", path.display());
    Err(VmError::Image { path: program.into(), reason })
}

/// Returns the file of a loader. Refuses one that is no loader, or that somebody other than root
/// could have put there.
fn trusted(program: &Path, loader: &Path) -> Result<PathBuf, VmError> {
    let wrong = |reason: &str| VmError::Image {
        path: program.into(),
        reason: format!("its loader is {}, which {reason}", loader.display()),
    };
    let whole = fs::canonicalize(loader).map_err(VmError::file(loader, "find"))?;
    let name = whole.file_name().unwrap_or_default().as_bytes();
    // That of musl is the C library itself.
    let is_named_so = [b"ld".as_slice(), b"libc"].iter().any(|start| name.starts_with(start))
        && name.windows(SHARED.len()).any(|part| part == SHARED);
    if !loader.is_absolute() || !is_named_so {
        return Err(wrong("is no loader; this host would have to run it, outside of the guest"));
    }
    for path in whole.ancestors() {
        let about = fs::metadata(path).map_err(VmError::file(path, "read"))?;
        // In a sticky folder, nobody can replace what belongs to root.
        let is_guarded = about.is_dir() && about.mode() & STICKY != 0;
        let is_writable = about.mode() & WRITABLE_BY_OTHERS != 0 && !is_guarded;
        if about.uid() != 0 || is_writable {
            return Err(wrong(
                "others than root can change; this host would have to run it, outside of the guest",
            ));
        }
    }
    Ok(whole)
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
    use std::os::unix::fs::PermissionsExt as _;

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
    fn a_listed_file_that_is_no_library_does_not_go_into_a_guest() {
        let program = Path::new("/bin/true");
        assert!(check_library(program, Path::new(LOADER)).is_ok());
        for path in ["/etc/passwd", "/etc", "/dev/null"] {
            assert!(check_library(program, Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let found = of(&std::env::current_exe().unwrap(), None, &Environment::default()).unwrap();
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        assert!(found.contains(&PathBuf::from(LOADER)), "{found:?}");
    }

    /// The loader of a file runs on the host, and the file comes from anywhere.
    #[test]
    fn a_loader_that_a_user_has_made_does_not_run() {
        let folder = std::env::temp_dir().join(format!("penstock-loader-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (loader, trace) = (folder.join("ld-own.so.2"), folder.join("ran"));
        fs::write(&loader, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
        // Everybody may write to it, so also root's own file is refused.
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o777)).unwrap();
        let program = std::env::current_exe().unwrap();
        for evil in [loader, "/bin/sh".into(), "ld-linux-x86-64.so.2".into()] {
            let found = of(&program, Some(evil.clone()), &Environment::default());
            assert!(found.is_err(), "{}", evil.display());
        }
        assert!(!trace.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
