//! An archive in the format "newc" of cpio, which Linux unpacks as its first file system.
//!
//! The format is that of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

/// Bit of the mode that says that an entry is a directory.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// Bits of the mode that an entry may have besides its kind.
const PERMISSIONS: u32 = 0o7777;

const TRAILER: &str = "TRAILER!!!";

/// Files of an archive. All of them belong to root.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    // A directory comes before what is in it, because paths are sorted by their components.
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mode: u32,
    content: Vec<u8>,
}

impl Archive {
    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &Path) {
        let mut whole = PathBuf::new();
        for part in inside(path).components() {
            whole.push(part);
            let directory = Entry { mode: DIRECTORY | 0o755, content: Vec::new() };
            self.entries.entry(whole.clone()).or_insert(directory);
        }
    }

    /// Adds a file and the directories above it. Replaces an earlier entry with this path.
    pub fn file(&mut self, path: &Path, permissions: u32, content: Vec<u8>) {
        self.add(path, REGULAR | permissions & PERMISSIONS, content);
    }

    /// Adds a symbolic link that leads to `target`.
    pub fn link(&mut self, path: &Path, target: &Path) {
        self.add(path, LINK | 0o777, target.as_os_str().as_encoded_bytes().to_vec());
    }

    fn add(&mut self, path: &Path, mode: u32, content: Vec<u8>) {
        let path = inside(path);
        if let Some(above) = path.parent() {
            self.directory(above);
        }
        self.entries.insert(path, Entry { mode, content });
    }

    pub fn has(&self, path: &Path) -> bool {
        self.entries.contains_key(&inside(path))
    }

    /// Returns the number of bytes of all contents.
    pub fn content_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.content.len() as u64).sum()
    }

    pub fn write(&self, target: &mut impl Write) -> io::Result<()> {
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let name = path.as_os_str().as_encoded_bytes();
            write_entry(target, number, name, entry)?;
        }
        let trailer = Entry { mode: 0, content: Vec::new() };
        write_entry(target, 0, TRAILER.as_bytes(), &trailer)
    }
}

/// Returns the path as a name in the archive: without the root, and without `.` and `..`.
fn inside(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn write_entry(
    target: &mut impl Write,
    number: usize,
    name: &[u8],
    entry: &Entry,
) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let size = u32::try_from(entry.content.len()).map_err(too_long)?;
    // The name ends with a zero byte.
    let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
    let links = if entry.mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
    let number = u32::try_from(number).map_err(too_long)?;
    // Number, mode, user, group, links, time, size, major and minor number of the device and of a
    // device node, size of the name, checksum.
    let fields = [number, entry.mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
    let mut header = b"070701".to_vec();
    for field in fields {
        header.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    header.extend_from_slice(name);
    header.push(0);
    pad(&mut header);
    target.write_all(&header)?;
    target.write_all(&entry.content)?;
    let mut rest = vec![0; entry.content.len() % 4];
    pad(&mut rest);
    target.write_all(rest.get(entry.content.len() % 4..).unwrap_or_default())
}

/// Fills up to a multiple of four bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_no_name_leaves_the_archive() {
        let mut archive = Archive::default();
        archive.file(Path::new("/b/c/d"), 0o755, b"hello".to_vec());
        archive.link(Path::new("/a"), Path::new("b/c"));
        archive.directory(Path::new("/b/../../e/."));
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let names: Vec<String> = read(&bytes).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a", "b", "b/c", "b/c/d", "b/e"]);
        assert!(archive.has(Path::new("/b/c/d")) && !archive.has(Path::new("/c")));
    }

    #[test]
    fn entries_have_their_modes_and_sizes() {
        let mut archive = Archive::default();
        archive.file(Path::new("/bin/x"), 0o4711, vec![7; 1001]);
        archive.link(Path::new("/sbin"), Path::new("bin"));
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let found: Vec<String> = read(&bytes)
            .into_iter()
            .map(|entry| format!("{} {:o} {}", entry.name, entry.mode, entry.size))
            .collect();
        assert_eq!(found, ["bin 40755 0", "bin/x 104711 1001", "sbin 120777 3"]);
    }

    #[derive(Debug)]
    struct Found {
        name: String,
        mode: usize,
        size: usize,
    }

    /// Reads names, modes and sizes by the positions in the format's description.
    fn read(mut bytes: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        loop {
            let field = |index: usize| {
                let digits = &bytes[6 + 8 * index..14 + 8 * index];
                usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6), field(11));
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            if name == TRAILER {
                return found;
            }
            found.push(Found { name, mode, size });
            let content = (110 + name_size).next_multiple_of(4);
            bytes = &bytes[content + size.next_multiple_of(4)..];
        }
    }
}
