//! The file system of this process.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::tree::{Entry, Files, TooLarge};

/// The files that this process can read.
pub struct Disk;

impl Files for Disk {
    fn entry(&self, path: &[u8]) -> Entry {
        let path = Path::new(OsStr::from_bytes(path));
        let Ok(about) = fs::symlink_metadata(path) else { return Entry::None };
        if about.is_file() {
            Entry::File
        } else if about.is_dir() {
            Entry::Folder
        } else if about.is_symlink() {
            let target = fs::read_link(path);
            target.map_or(Entry::None, |target| Entry::Link(target.into_os_string().into_vec()))
        } else {
            Entry::None
        }
    }

    fn read(&self, path: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, TooLarge> {
        // If something else has taken the file's place, such as a pipe, the call must not wait.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.cast_signed());
        let Ok(file) = options.open(Path::new(OsStr::from_bytes(path))) else { return Ok(None) };
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Ok(None);
        }
        let mut content = Vec::new();
        if file.take(bytes_max as u64 + 1).read_to_end(&mut content).is_err() {
            return Ok(None);
        }
        if content.len() > bytes_max { Err(TooLarge) } else { Ok(Some(content)) }
    }
}
