//! The kind, the owner and the permissions of an entry of a tree.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Directory,
    File,
    Link,
    /// A device, a socket or a pipe.
    Special,
}

impl NodeKind {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Directory, "directory"),
        (Self::File, "file"),
        (Self::Link, "link"),
        (Self::Special, "special"),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("special", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, it)| *it == name).map(|(kind, _)| *kind)
    }
}

/// What the user may do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: NodeKind,
    /// The permission bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub bytes: u64,
    /// What the system of the host said about the user that ran the doctor. This counts more than
    /// the permission bits, because an access control list may allow more than they do.
    pub access: Option<Access>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, user, group, bytes, .. } = self;
        write!(f, "{} {mode:04o} {user} {group} {bytes}", self.kind.name())?;
        match self.access {
            Some(Access { read, write }) => {
                write!(f, " {}{}", if read { "r" } else { "-" }, if write { "w" } else { "-" })
            }
            None => Ok(()),
        }
    }
}

impl Node {
    /// Reads what [`Node`]'s `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let kind = NodeKind::parse(words.next()?)?;
        let mode = u32::from_str_radix(words.next()?, 8).ok()? & 0o7777;
        let mut number = || words.next()?.parse::<u64>().ok();
        let user = u32::try_from(number()?).ok()?;
        let group = u32::try_from(number()?).ok()?;
        let bytes = number()?;
        let access =
            words.next().map(|word| Access { read: word.contains('r'), write: word.contains('w') });
        Some(Self { kind, mode, user, group, bytes, access })
    }
}

/// Reads lines of the form `path : node`, and leaves out all others.
pub fn parse(text: &str) -> BTreeMap<String, Node> {
    let pair = |line: &str| {
        let (path, node) = line.rsplit_once(" : ")?;
        Some((path.to_owned(), Node::parse(node)?))
    };
    text.lines().filter_map(pair).collect()
}
