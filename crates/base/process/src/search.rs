//! Where programs are: the directories of `PATH`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::variable;

/// Search path for programs if `PATH` is not set, as in the C library.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Returns the file that the system runs for a program's name. A name with a slash is the file's
/// path, whether the file exists or not.
#[must_use]
pub fn program(name: &OsStr) -> Option<PathBuf> {
    program_in(name, variable::PATH.value().as_deref())
}

/// Returns the paths at which the system looks for a program, in its order.
#[must_use]
pub fn places(name: &OsStr) -> Vec<PathBuf> {
    places_in(name, variable::PATH.value().as_deref()).collect()
}

fn program_in(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    places_in(name, path).find(|file| is_program(file))
}

fn places_in<'a>(
    name: &'a OsStr,
    path: Option<&'a OsStr>,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    std::env::split_paths(path.unwrap_or(OsStr::new(PATH_DEFAULT)))
        .map(move |directory| directory.join(name))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_the_system_finds_them() {
        let find = |name: &str, path: &str| program_in(OsStr::new(name), Some(OsStr::new(path)));
        assert_eq!(find("sh", "/nonexistent:/bin"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find("./sh", "/bin"), Some(PathBuf::from("./sh")));
        assert_eq!(find("/usr/bin/env", ""), Some(PathBuf::from("/usr/bin/env")));
        assert_eq!(find("no-such-program", "/bin"), None);
        // /etc/passwd is a file, but nobody may execute it.
        assert_eq!(find("passwd", "/etc"), None);
    }

    #[test]
    fn the_c_library_s_path_stands_for_an_unset_one() {
        assert_eq!(program_in(OsStr::new("sh"), None), Some(PathBuf::from("/bin/sh")));
        let looked: Vec<_> = places_in(OsStr::new("sh"), None).collect();
        assert_eq!(looked, [PathBuf::from("/bin/sh"), PathBuf::from("/usr/bin/sh")]);
    }
}
