//! Files in which the kernel shows numbers and names.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::channel::{LiveChannel, Scale, Sensor};
use crate::reason::Reason;

/// Maximum size of a kernel file that is read: a page, which is sysfs's limit for an attribute.
const FILE_BYTES_MAX: u64 = 4096;
/// Maximum length of a number: 20 digits and an end of line fit well.
const NUMBER_BYTES_MAX: usize = 32;

/// A file of the kernel that contains a number.
#[derive(Debug)]
pub(super) struct NumberFile {
    file: File,
    path: PathBuf,
}

impl NumberFile {
    pub(super) fn open(path: PathBuf) -> Result<Self, Reason> {
        let file = File::open(&path).map_err(|error| Reason::of_file(&path, &error))?;
        Ok(Self { file, path })
    }

    pub(super) fn channel(path: PathBuf, scale: Scale) -> Result<LiveChannel, Reason> {
        Ok(LiveChannel { sensor: Box::new(Self::open(path)?), scale })
    }
}

impl Sensor for NumberFile {
    fn read(&mut self) -> Result<u64, Reason> {
        let mut bytes = [0; NUMBER_BYTES_MAX];
        // Reads from the start, because the kernel makes the text anew each time.
        let read = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(|error| Reason::of_file(&self.path, &error))?;
        number(&self.path, &String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()))
    }
}

pub(super) fn number(path: &Path, text: &str) -> Result<u64, Reason> {
    text.trim().parse().map_err(|_| Reason::malformed(path, text, "number that is not negative"))
}

/// Reads a file of the kernel as text, without surrounding whitespace.
pub(super) fn text(path: &Path) -> Result<String, Reason> {
    let failed = |error| Reason::of_file(path, &error);
    let mut text = Vec::new();
    File::open(path)
        .map_err(failed)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Reads a text of the kernel. Returns `None` if it is missing or empty.
pub(super) fn text_if_any(path: &Path) -> Option<String> {
    text(path).ok().filter(|text| !text.is_empty())
}

/// Returns the names in a directory. Names that end in numbers are in the order of these.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, Reason> {
    let entries = fs::read_dir(directory).map_err(|error| Reason::of_file(directory, &error))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names)
}
