//! Hands folders from the daemon to the user of a worker, and back.
//!
//! A kernel may leave anything in its folder: links to files of others, second names of such files,
//! sockets. Only what belongs to this folder alone changes its owner. No process that could change
//! the folder may live meanwhile.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;

/// Gives a folder that the daemon has made, or has taken before, to a user and its group.
///
/// # Errors
/// Fails if the system refuses.
pub(super) fn give(top: &Path, user: u32) -> io::Result<()> {
    each_below(
        top,
        |path, about| {
            if is_plain(about) { lchown(path, Some(user), Some(user)) } else { Ok(()) }
        },
    )
}

/// Takes a folder from a user. Removes what is no folder and no file, and files that have a second
/// name or belong to somebody else.
///
/// # Errors
/// Fails if the folder cannot be taken as a whole. Then nobody may use it.
pub(super) fn take(top: &Path, user: u32) -> io::Result<()> {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    each_below(top, |path, about| {
        if is_plain(about) && about.uid() == user {
            lchown(path, Some(own.0), Some(own.1))?;
            // Nobody else needs it, and a program must not run as the daemon's user.
            return fs::set_permissions(path, Permissions::from_mode(about.mode() & 0o700));
        }
        if about.is_dir() {
            return Err(io::Error::other(format!("{} has another owner", path.display())));
        }
        fs::remove_file(path)
    })
}

/// Returns whether this is a folder, or a file with no other name.
fn is_plain(about: &Metadata) -> bool {
    about.is_dir() || about.is_file() && about.nlink() == 1
}

/// Visits a folder and all that is below it. A folder is visited before what is in it.
fn each_below(
    top: &Path,
    mut visit: impl FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut paths = vec![top.to_owned()];
    while let Some(path) = paths.pop() {
        let about = fs::symlink_metadata(&path)?;
        visit(&path, &about)?;
        if about.is_dir() {
            for entry in fs::read_dir(&path)? {
                paths.push(entry?.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_belongs_to_a_folder_alone_changes_its_owner() {
        let me = rustix::process::geteuid().as_raw();
        let base = std::env::temp_dir().join(format!("penstock-owner-{}", std::process::id()));
        let (top, outside) = (base.join("top"), base.join("outside"));
        fs::create_dir_all(top.join("inner")).unwrap();
        fs::write(&outside, "of somebody else").unwrap();
        fs::write(top.join("inner/file"), "own").unwrap();
        fs::set_permissions(top.join("inner/file"), Permissions::from_mode(0o4755)).unwrap();
        fs::hard_link(&outside, top.join("second-name")).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            top.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let mode = fs::metadata(&outside).unwrap().mode();
        take(&top, me).unwrap();
        let names = |folder| {
            let mut names: Vec<_> =
                fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&top), ["inner"]);
        assert_eq!(names(&top.join("inner")), ["file"]);
        assert_eq!(fs::metadata(top.join("inner/file")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(&outside).unwrap().mode(), mode);
        give(&top, me).unwrap();
        // A folder of another user is not taken.
        assert!(take(&top, me.wrapping_add(1)).is_err());
        if me == 0 {
            give(&top, 600_000).unwrap();
            assert_eq!(fs::metadata(top.join("inner/file")).unwrap().uid(), 600_000);
            take(&top, 600_000).unwrap();
            let about = fs::metadata(top.join("inner/file")).unwrap();
            assert_eq!((about.uid(), about.gid()), (0, rustix::process::getegid().as_raw()));
        }
        fs::remove_dir_all(base).unwrap();
    }
}
