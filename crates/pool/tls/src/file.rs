//! Small files that must be whole and safe: reading with checks, and writing so that no reader sees
//! a part.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustix::fs::{FlockOperation, Mode, OFlags};

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    System { path: PathBuf, source: io::Error },
    #[error("{} is a symbolic link; put the file itself there", path.display())]
    Link { path: PathBuf },
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("others may read {} (mode {mode:03o}); run chmod 600 on it", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("others may write to {} (mode {mode:03o}); run chmod go-w on it", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} belongs to user {owner}, not to user {user}", path.display())]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error("{} has more than {bytes_max} bytes", path.display())]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{} has bytes that are not text", path.display())]
    NotText { path: PathBuf },
}

impl FileError {
    pub(crate) fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn is_there_already(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Who besides the owner may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Nobody.
    Secret,
    /// Everybody.
    Public,
}

impl Secrecy {
    fn mode(self) -> Mode {
        match self {
            Self::Secret => Mode::RUSR | Mode::WUSR,
            Self::Public => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH,
        }
    }
}

/// Reads a file of at most `bytes_max` bytes that only its owner can have written.
pub(crate) fn read(path: &Path, secrecy: Secrecy, bytes_max: u64) -> Result<String, FileError> {
    // NONBLOCK: a pipe must not block us.
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(FileError::Link { path: path.to_owned() }),
        Err(error) => return Err(FileError::system(path)(error.into())),
    };
    let about = file.metadata().map_err(FileError::system(path))?;
    if !about.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let mode = about.mode() & 0o777;
    if secrecy == Secrecy::Secret && mode & 0o077 != 0 {
        return Err(FileError::Readable { path: path.to_owned(), mode });
    }
    if mode & 0o022 != 0 {
        return Err(FileError::Writable { path: path.to_owned(), mode });
    }
    let (owner, user) = (about.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 {
        return Err(FileError::Owner { path: path.to_owned(), owner, user });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(FileError::system(path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes_max });
    }
    String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Writes a file that must not exist yet. A reader sees all of it or nothing.
pub(crate) fn create(path: &Path, secrecy: Secrecy, text: &str) -> Result<(), FileError> {
    let folder = made_folder(path)?;
    let draft = Draft::write(&folder, secrecy, text)?;
    // A second name for the same file: unlike a renaming, this fails if the name is taken, also by
    // a symbolic link, and unlike `RENAME_NOREPLACE` every file system can do it.
    fs::hard_link(&draft.0, path).map_err(FileError::system(path))?;
    drop(draft);
    sync(&folder)
}

/// Writes a file anew. A reader sees the old text or the new one.
pub(crate) fn replace(path: &Path, secrecy: Secrecy, text: &str) -> Result<(), FileError> {
    let folder = made_folder(path)?;
    let draft = Draft::write(&folder, secrecy, text)?;
    fs::rename(&draft.0, path).map_err(FileError::system(path))?;
    sync(&folder)
}

/// Waits until no other process changes the file, and keeps others waiting until the result is
/// dropped. The lock is a file beside it, because each change makes a new file.
pub(crate) fn lock(path: &Path) -> Result<File, FileError> {
    made_folder(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let path = path.with_file_name(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Secrecy::Secret.mode())
        .map_err(|error| FileError::system(&path)(error.into()))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|error| FileError::system(&path)(error.into()))?;
    Ok(file.into())
}

/// File under a name of its own, which it loses when it is dropped.
struct Draft(PathBuf);

impl Draft {
    fn write(folder: &Path, secrecy: Secrecy, text: &str) -> Result<Self, FileError> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| FileError::system(folder)(io::ErrorKind::Other.into()))?;
        let path = folder.join(format!(".penstock-{:016x}", u64::from_be_bytes(random)));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags | OFlags::NOFOLLOW, secrecy.mode())
            .map_err(|error| FileError::system(&path)(error.into()))?;
        let draft = Self(path);
        let mut file = File::from(file);
        // On the disk before it gets its name: after a power failure the file is not empty.
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(FileError::system(&draft.0))?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a renaming there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the folder of a file, which is made for this user alone if it is missing.
fn made_folder(path: &Path) -> Result<PathBuf, FileError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(FileError::system(folder))?;
    Ok(folder.to_owned())
}

/// Puts the names in a folder on the disk.
fn sync(folder: &Path) -> Result<(), FileError> {
    File::open(folder).and_then(|opened| opened.sync_all()).map_err(FileError::system(folder))
}
