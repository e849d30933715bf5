//! The files that a program's source includes. They travel from the client with the next build of
//! the program, and the worker lays them out as a part of the client's file system: each file under
//! its own path, below a folder that only the session has.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{HEADER_DEPTH_MAX, HEADER_ENTRIES_MAX, HEADER_PATH_BYTES_MAX};

/// First component of the name of an absolute path in an `#include`. The client writes this word
/// in front of such names, and the worker has a folder to search that contains only this name.
pub const ABSOLUTE: &str = "penstock-absolute";

/// A part of a client's file system, and the options of the build that uses it. All paths are
/// absolute paths of the client. [`components`] says which ones a worker accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    #[serde(deserialize_with = "short_list")]
    pub files: Vec<HeaderFile>,
    /// Symbolic links on the way to the files. No file lies below one of these paths.
    #[serde(deserialize_with = "short_list")]
    pub links: Vec<HeaderLink>,
    /// Folders that must exist although no file lies in them, because a name goes through them.
    #[serde(deserialize_with = "short_list")]
    pub folders: Vec<Vec<u8>>,
    /// The folders that options name.
    #[serde(deserialize_with = "short_list")]
    pub search: Vec<SearchFolder>,
    /// The options of the build. They replace those of the [`crate::describe::BuildOrder`].
    #[serde(deserialize_with = "short_list")]
    pub options: Vec<OptionPart>,
}

/// A file, and the text that the compiler shall see in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderFile {
    pub path: Vec<u8>,
    /// Megabytes, which are copied as a whole and not byte by byte.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
}

/// A symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderLink {
    pub path: Vec<u8>,
    /// Where the link ends, when all links on the way have been followed.
    pub target: Vec<u8>,
}

/// A folder in which the compiler searches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchFolder {
    /// The folder, or `None` if the client has no such folder.
    pub path: Option<Vec<u8>>,
    /// The folder as the program named it, for messages of the compiler.
    pub named: Vec<u8>,
}

/// A piece of the options of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OptionPart {
    Text(String),
    /// The path of the search folder with this number, as the worker has it.
    Folder(u32),
    /// The path of the folder that contains [`ABSOLUTE`].
    Absolute,
}

/// Longest list of [`Headers`]: two parts of the options for each folder, and as much again. An
/// entry has one byte on the wire and up to 56 in memory, so a list without a limit would take
/// gigabytes.
const LIST_MAX: usize = 4 * HEADER_ENTRIES_MAX;

/// Reads a list of at most [`LIST_MAX`] entries.
fn short_list<'a, T: Deserialize<'a>, D: Deserializer<'a>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(ShortList(PhantomData))
}

struct ShortList<T>(PhantomData<T>);

impl<'a, T: Deserialize<'a>> Visitor<'a> for ShortList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {LIST_MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if list.len() >= LIST_MAX {
                return Err(A::Error::custom("a list of included files is too long"));
            }
            list.push(entry);
        }
        Ok(list)
    }
}

/// Returns the components of a path below the root, or `None` if a worker accepts no such path:
/// it is relative or too long, has more than [`HEADER_DEPTH_MAX`] components, or one of them is
/// empty, `.`, `..` or no name of a file. The path of the root itself has no components.
pub fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    /// Longest name of a file on Linux (`NAME_MAX`).
    const NAME_BYTES_MAX: usize = 255;
    let rest = path.strip_prefix(b"/")?;
    if path.len() > HEADER_PATH_BYTES_MAX {
        return None;
    }
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let parts: Vec<&[u8]> = rest.split(|byte| *byte == b'/').collect();
    let is_name = |part: &&[u8]| {
        !part.is_empty()
            && part.len() <= NAME_BYTES_MAX
            && *part != b"."
            && *part != b".."
            && !part.contains(&0)
    };
    (parts.len() <= HEADER_DEPTH_MAX && parts.iter().all(is_name)).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[test]
    fn a_path_has_names_only() {
        assert_eq!(components(b"/a/b c/d.h"), Some(vec![&b"a"[..], b"b c", b"d.h"]));
        assert_eq!(components(b"/"), Some(vec![]));
        assert_eq!(components(b"/..a/.b/c.."), Some(vec![&b"..a"[..], b".b", b"c.."]));
        for path in [
            &b""[..],
            b"a",
            b"./a",
            b"../a",
            b"//a",
            b"/a/",
            b"/a//b",
            b"/.",
            b"/..",
            b"/a/../b",
            b"/a/./b",
            b"/a/..",
            b"/a\0b",
        ] {
            assert_eq!(components(path), None, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn a_list_that_is_short_on_the_wire_is_not_long_in_memory() {
        let folders = |count| Headers { folders: vec![Vec::new(); count], ..Headers::default() };
        let most = folders(LIST_MAX);
        let decoded =
            |headers: &Headers| frame::decode::<Headers>("headers", &frame::encode(headers));
        assert_eq!(decoded(&most).unwrap(), most);
        assert!(decoded(&folders(LIST_MAX + 1)).is_err());
        let options = vec![OptionPart::Absolute; LIST_MAX + 1];
        assert!(decoded(&Headers { options, ..Headers::default() }).is_err());
    }

    #[test]
    fn a_path_has_limits() {
        let deep = |parts: usize| "/a".repeat(parts);
        assert!(components(deep(HEADER_DEPTH_MAX).as_bytes()).is_some());
        assert!(components(deep(HEADER_DEPTH_MAX + 1).as_bytes()).is_none());
        let named = |bytes: usize| format!("/{}", "n".repeat(bytes));
        assert!(components(named(255).as_bytes()).is_some());
        assert!(components(named(256).as_bytes()).is_none());
        let long = named(255).repeat(HEADER_PATH_BYTES_MAX / 256 + 1);
        assert!(components(long.as_bytes()).is_none());
    }
}
