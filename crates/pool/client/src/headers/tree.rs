//! Names of files, followed through the folders and links of a file system.

use std::collections::{BTreeMap, BTreeSet};

/// Most links that Linux follows on the way to one file.
const LINKS_MAX: usize = 40;

/// What stands under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing that a compiler could read or go through.
    None,
    Folder,
    File,
    /// A symbolic link and its text.
    Link(Vec<u8>),
}

/// A file system, or a test's picture of one.
pub trait Files {
    /// Returns what stands under an absolute path, whose last component is not followed.
    fn entry(&self, path: &[u8]) -> Entry;

    /// Returns the content of a file, or `None` if it cannot be read or has more than `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// The file is larger.
    fn read(&self, path: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>, TooLarge>;
}

/// A file has more bytes than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// A file that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The path without links.
    pub file: Vec<u8>,
    /// The folder in which the name stands, without links. The compiler searches it for the files
    /// that this file includes. If the name is a link, the file itself lies elsewhere.
    pub folder: Vec<u8>,
}

/// Links and folders on the way to files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
    pub folders: BTreeSet<Vec<u8>>,
}

impl Ways {
    /// Follows a name from a folder, whose path has no links, to a file. Notes the way if there is
    /// such a file.
    pub fn find(&mut self, files: &dyn Files, folder: &[u8], name: &[u8]) -> Option<Found> {
        let (parents, last) = match name.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (name.get(..=slash)?, name.get(slash + 1..)?),
            None => (&b""[..], name),
        };
        let mut walk = Walk { files, ways: Self::default(), links: 0 };
        let folder = walk.folder(folder, parents)?;
        let file = match walk.step(&folder, last)? {
            (path, Entry::File) => path,
            _ => return None,
        };
        let Walk { ways, .. } = walk;
        self.links.extend(ways.links);
        self.folders.extend(ways.folders);
        Some(Found { file, folder })
    }

    /// Returns the path of a folder without links, or `None` if there is none.
    pub fn folder(files: &dyn Files, from: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        Walk { files, ways: Self::default(), links: 0 }.folder(from, name)
    }
}

struct Walk<'a> {
    files: &'a dyn Files,
    ways: Ways,
    links: usize,
}

impl Walk<'_> {
    /// Follows a name to a folder.
    fn folder(&mut self, from: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        match self.end_of(from, name)? {
            (path, Entry::Folder) => Some(path),
            _ => None,
        }
    }

    /// Goes from a folder to one of its entries, and through it if it is a link. The result is
    /// never a link.
    fn step(&mut self, at: &[u8], part: &[u8]) -> Option<(Vec<u8>, Entry)> {
        match part {
            b"" => return None,
            b"." => return Some((at.to_vec(), Entry::Folder)),
            b".." => {
                // The way up exists only from a folder that exists.
                self.ways.folders.insert(at.to_vec());
                return Some((parent(at).to_vec(), Entry::Folder));
            }
            _ => {}
        }
        let path = joined(at, part);
        let target = match self.files.entry(&path) {
            Entry::None => return None,
            Entry::Link(target) => target,
            entry => return Some((path, entry)),
        };
        self.links += 1;
        if self.links > LINKS_MAX {
            return None;
        }
        let end = self.end_of(at, &target)?;
        if end.1 == Entry::Folder {
            self.ways.folders.insert(end.0.clone());
        }
        self.ways.links.insert(path, end.0.clone());
        Some(end)
    }

    /// Follows a name, or the text of a link, from the folder in which it stands.
    fn end_of(&mut self, from: &[u8], name: &[u8]) -> Option<(Vec<u8>, Entry)> {
        let start = if name.starts_with(b"/") { b"/".to_vec() } else { from.to_vec() };
        let mut end = (start, Entry::Folder);
        for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            if end.1 != Entry::Folder {
                return None;
            }
            end = self.step(&end.0, part)?;
        }
        Some(end)
    }
}

/// Returns the path of an entry of a folder.
pub fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => b"/",
        Some(slash) => path.get(..slash).unwrap_or(b"/"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::Picture;
    use super::*;

    fn picture() -> Picture {
        Picture::default()
            .file("/inc/a.h", "")
            .file("/inc/sub/b.h", "")
            .file("/other/c.h", "")
            .link("/inc/out", "../other")
            .link("/inc/named.h", "/other/c.h")
            .link("/abs", "/inc/out")
            .link("/loop", "/loop")
            .link("/gone", "nowhere")
    }

    fn found(file: &str, folder: &str) -> Option<Found> {
        Some(Found { file: file.into(), folder: folder.into() })
    }

    #[test]
    fn names_are_followed_as_the_system_does() {
        for (name, expected) in [
            ("a.h", found("/inc/a.h", "/inc")),
            ("./sub//b.h", found("/inc/sub/b.h", "/inc/sub")),
            ("sub/../a.h", found("/inc/a.h", "/inc")),
            ("out/c.h", found("/other/c.h", "/other")),
            // The way up leads from where the link ends.
            ("out/../inc/a.h", found("/inc/a.h", "/inc")),
            // The including folder is that of the name, and not that of the file.
            ("named.h", found("/other/c.h", "/inc")),
            ("../abs/c.h", found("/other/c.h", "/other")),
            ("/inc/a.h", found("/inc/a.h", "/inc")),
            ("../../../inc/a.h", found("/inc/a.h", "/inc")),
            ("", None),
            ("sub", None),
            ("sub/", None),
            ("..", None),
            ("a.h/x", None),
            ("nowhere/../a.h", None),
            ("../loop/x", None),
            ("../loop", None),
            ("../gone", None),
        ] {
            assert_eq!(
                Ways::default().find(&picture(), b"/inc", name.as_bytes()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn the_way_is_noted_if_it_leads_to_a_file() {
        let mut ways = Ways::default();
        assert!(ways.find(&picture(), b"/inc", b"out/x.h").is_none());
        assert_eq!(ways, Ways::default());
        assert!(ways.find(&picture(), b"/inc", b"sub/../../abs/c.h").is_some());
        let links: Vec<_> =
            ways.links.iter().map(|(path, end)| (path.as_slice(), end.as_slice())).collect();
        assert_eq!(links, [(&b"/abs"[..], &b"/other"[..]), (b"/inc/out", b"/other")]);
        let folders: Vec<_> = ways.folders.iter().map(Vec::as_slice).collect();
        assert_eq!(folders, [&b"/inc"[..], b"/inc/sub", b"/other"]);
    }
}
