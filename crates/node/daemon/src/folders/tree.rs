//! Trees of files that kernels have made.
//!
//! A kernel may nest folders deeper than a path is long, and take away the rights to a folder. So
//! the size of a tree tells whether something is hidden, and a tree is removed without a descriptor
//! or a stack frame for each of its levels, as [`fs::remove_dir_all`] needs them: a kernel could
//! use up the descriptors of the daemon, and keep the disk full for ever.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// What is in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Whether a folder cannot be looked into, because it is closed or its path is too long.
    pub(super) hides: bool,
}

impl Size {
    /// Returns whether the folder has more than this, or may have.
    pub(super) fn exceeds(&self, bytes_max: u64, files_max: u64) -> bool {
        self.bytes > bytes_max || self.files > files_max || self.hides
    }
}

/// Measures a folder. Stops when its size exceeds these limits.
pub(super) fn measure(folder: &Path, bytes_max: u64, files_max: u64) -> Size {
    let mut size = Size::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                size.hides |= hides(&error);
                // Otherwise it has gone away meanwhile, and takes no room.
                continue;
            }
        };
        for entry in entries.flatten() {
            let Ok(about) = entry.metadata() else { continue };
            size.files += 1;
            if about.is_dir() {
                folders.push(entry.path());
            } else {
                // A file with holes takes the blocks that it has, in units of 512 bytes.
                size.bytes += about.blocks().saturating_mul(512);
            }
            if size.exceeds(bytes_max, files_max) {
                return size;
            }
        }
    }
    size
}

fn hides(error: &io::Error) -> bool {
    let errors = [Errno::ACCESS, Errno::PERM, Errno::NAMETOOLONG].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// Returns whether this is a folder and no link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// Removes a folder and all that is in it. No process may change it any more.
///
/// Two descriptors are enough for any depth: a folder within a folder first moves to the top.
///
/// # Errors
/// Fails if the system refuses. A folder that does not exist is no error.
pub(super) fn remove(top: &Path) -> io::Result<()> {
    if !is_folder(top) {
        return Ok(());
    }
    let mut moves = Moves { top, next: 0 };
    empty(top, |folder| {
        empty(folder, |inner| moves.move_up(inner))?;
        fs::remove_dir(folder)
    })?;
    fs::remove_dir(top)
}

/// Removes the files of a folder, and has the caller take its folders away.
fn empty(folder: &Path, mut take_away: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut is_done = false;
    // Names that are added or removed while a folder is read may or may not be seen.
    while !is_done {
        is_done = true;
        for entry in open(folder)? {
            is_done = false;
            let path = entry?.path();
            if is_folder(&path) {
                take_away(&path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// Folders that move to the top of a tree, each with a name of its own.
struct Moves<'a> {
    top: &'a Path,
    next: u64,
}

impl Moves<'_> {
    fn move_up(&mut self, folder: &Path) -> io::Result<()> {
        // rename(2) changes the entry `..` of a folder, and needs the right to write to it.
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        loop {
            let name: PathBuf = self.top.join(format!("{}.moved", self.next));
            self.next += 1;
            match fs::rename(folder, name) {
                // A kernel may have files with such names.
                Err(error) if is_taken(&error) => {}
                moved => return moved,
            }
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    let errors = [Errno::EXIST, Errno::NOTEMPTY, Errno::NOTDIR].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// Opens a folder, also one whose owner has no right to look into it.
fn open(folder: &Path) -> io::Result<fs::ReadDir> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    fs::read_dir(folder)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    use super::*;

    /// Returns a folder with a tree of this depth, whose names have 200 letters.
    fn nested(name: &str, depth: usize) -> PathBuf {
        let top = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        fs::create_dir(&top).unwrap();
        let inner = "n".repeat(200);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&top, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&folder, &*inner, Mode::RWXU).unwrap();
            folder = openat(&folder, &*inner, flags, Mode::empty()).unwrap();
        }
        let file = openat(&folder, "file", OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
        rustix::io::write(&file, &[1; 10_000]).unwrap();
        top
    }

    #[test]
    fn a_tree_deeper_than_a_path_is_seen_as_hiding_and_is_removed() {
        // More levels than a process usually has descriptors.
        let top = nested("deep", 3_000);
        let size = measure(&top, u64::MAX, u64::MAX);
        assert!(size.hides && size.exceeds(u64::MAX, u64::MAX), "{size:?}");
        remove(&top).unwrap();
        assert!(!top.exists());
        remove(&top).unwrap();
    }

    #[test]
    fn a_tree_has_a_size() {
        let top = nested("size", 3);
        fs::write(top.join("other"), []).unwrap();
        let size = measure(&top, u64::MAX, u64::MAX);
        assert!(size.files == 5 && (8_192..40_000).contains(&size.bytes) && !size.hides);
        assert!(measure(&top, 4_096, u64::MAX).exceeds(4_096, u64::MAX));
        assert!(measure(&top, u64::MAX, 3).exceeds(u64::MAX, 3));
        remove(&top).unwrap();
    }

    #[test]
    fn names_that_are_taken_and_closed_folders_are_removed() {
        let top = nested("taken", 2);
        let inner = top.join("n".repeat(200));
        for name in ["0.moved", "1.moved"] {
            fs::write(top.join(name), "file").unwrap();
            fs::create_dir_all(inner.join(name).join("full")).unwrap();
        }
        let target = top.with_extension("target");
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, inner.join("link")).unwrap();
        fs::write(target.join("file"), "stays").unwrap();
        for closed in [inner.join("0.moved"), inner] {
            fs::set_permissions(closed, Permissions::from_mode(0o0)).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists() && target.join("file").exists());
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o755);
        fs::remove_dir_all(target).unwrap();
    }
}
