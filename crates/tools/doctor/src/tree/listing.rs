//! A tree in memory, and as one text file.
//!
//! ```text
//! penstock-tree 1
//! # a comment
//! sys/class/net/eth0/mtu = 1500
//! sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
//! proc/meminfo <<
//! |MemTotal: 4096 kB
//! |HugePages_Total: 0
//! sys/devices/pci0000:00/0000:00:03.0/config hex f41a4110
//! dev/kvm : special 0660 0 104 0 rw
//! etc/OpenCL/vendors /
//! ```
//!
//! A path has no symbolic link in it and does not start with `/`. White space and `%` in a path or
//! a link, and a sign such as `#` at its start, are written as `%` and two hexadecimal digits for
//! each byte. A file may have a line `:` besides its content.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::NODES;
use super::node::{Node, NodeKind};
use crate::limits::ENTRIES_MAX;

const HEAD: &str = "penstock-tree 1";

/// Why a text is no listing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListingError {
    #[error("it is no tree of penstock doctor: its first line is not `{HEAD}`")]
    Head,
    #[error("line {line}: it has no form that a tree of penstock doctor has")]
    Form { line: usize },
    #[error("line {line}: the path starts with `/`, or has an empty name, `.` or `..` in it")]
    Path { line: usize },
}

/// The tree; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    entries: BTreeMap<String, Entry>,
    nodes: BTreeMap<String, Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File(Vec<u8>),
    Link(String),
}

impl Listing {
    /// Reads what `Display` writes.
    ///
    /// # Errors
    /// Fails if the text is no listing.
    pub fn parse(text: &str) -> Result<Self, ListingError> {
        let Some(lines) = text.strip_prefix(HEAD) else { return Err(ListingError::Head) };
        let mut listing = Self::default();
        listing.apply(lines)?;
        Ok(listing)
    }

    /// Adds the entries of a text without the first line of a listing, and replaces those that are
    /// there. A line `- PATH` removes a path and everything below it.
    ///
    /// # Errors
    /// Fails if a line is not understood.
    pub fn apply(&mut self, text: &str) -> Result<(), ListingError> {
        let mut lines = (1..).zip(text.lines()).peekable();
        while let Some((line, words)) = lines.next() {
            if words.trim().is_empty() || words.starts_with('#') {
                continue;
            }
            let form = ListingError::Form { line };
            let (path, rest) = words.split_once(' ').ok_or(form)?;
            if path == "-" {
                self.remove(rest.trim());
                continue;
            }
            let path = decoded(path).ok_or(ListingError::Path { line })?;
            let (sign, value) = rest.split_once(' ').unwrap_or((rest, ""));
            match sign {
                "=" => self.add_file(&path, value.as_bytes()),
                "->" => {
                    let target = unescaped(value).ok_or(ListingError::Form { line })?;
                    self.add_link(&path, &target);
                }
                "/" => self.put(&path, Entry::Directory),
                "hex" => {
                    let bytes = bytes_of(value).ok_or(ListingError::Form { line })?;
                    self.add_file(&path, &bytes);
                }
                ":" => {
                    let node = Node::parse(value).ok_or(ListingError::Form { line })?;
                    self.add_node(&path, node);
                }
                "<<" => {
                    let mut text = Vec::new();
                    while let Some((_, next)) = lines.next_if(|(_, next)| next.starts_with('|')) {
                        text.push(next.strip_prefix('|').unwrap_or_default());
                    }
                    self.add_file(&path, text.join("\n").as_bytes());
                }
                _ => return Err(ListingError::Form { line }),
            }
        }
        Ok(())
    }

    pub(super) fn add_file(&mut self, path: &str, content: &[u8]) {
        self.put(path, Entry::File(content.to_vec()));
    }

    pub(super) fn add_link(&mut self, path: &str, target: &str) {
        self.put(path, Entry::Link(target.to_owned()));
    }

    pub(super) fn add_node(&mut self, path: &str, node: Node) {
        self.nodes.insert(path.to_owned(), node);
        self.add_place(path, node.kind);
    }

    /// Adds an entry of which only the existence is known.
    pub(super) fn add_place(&mut self, path: &str, kind: NodeKind) {
        let entry = match kind {
            NodeKind::Directory => Entry::Directory,
            NodeKind::Link => return,
            NodeKind::File | NodeKind::Special => Entry::File(Vec::new()),
        };
        if !path.is_empty() && !self.entries.contains_key(path) {
            self.put(path, entry);
        }
    }

    /// Adds an entry, and the directories above it.
    fn put(&mut self, path: &str, entry: Entry) {
        let is_known_directory =
            entry == Entry::Directory && matches!(self.entries.get(path), Some(Entry::Directory));
        if !is_known_directory {
            let replaced = self.entries.insert(path.to_owned(), entry);
            // Nothing is below a file or a link.
            if replaced == Some(Entry::Directory) {
                let below = format!("{path}/");
                self.entries.retain(|name, _| !name.starts_with(&below));
                self.nodes.retain(|name, _| !name.starts_with(&below));
            }
        }
        let mut above = path;
        while let Some((directory, _)) = above.rsplit_once('/') {
            // An entry that was only known by its name turns out to be a directory.
            let known = self.entries.insert(directory.to_owned(), Entry::Directory);
            if known == Some(Entry::Directory) {
                break;
            }
            above = directory;
        }
    }

    fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.entries.retain(|name, _| name != path && !name.starts_with(&below));
        self.nodes.retain(|name, _| name != path && !name.starts_with(&below));
    }

    pub(super) fn kind(&self, path: &str) -> Option<NodeKind> {
        Some(match (self.entries.get(path)?, self.nodes.get(path)) {
            (Entry::Link(_), _) => NodeKind::Link,
            (Entry::Directory, _) => NodeKind::Directory,
            (Entry::File(_), Some(node)) if node.kind == NodeKind::Special => node.kind,
            (Entry::File(_), _) => NodeKind::File,
        })
    }

    pub(super) fn link(&self, path: &str) -> Option<String> {
        match self.entries.get(path)? {
            Entry::Link(target) => Some(target.clone()),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        match self.entries.get(path)? {
            Entry::File(content) => Some(content.clone()),
            _ => None,
        }
    }

    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let below = if path.is_empty() { String::new() } else { format!("{path}/") };
        let names = self.entries.range(below.clone()..);
        let names = names.map_while(|(name, _)| name.strip_prefix(&below));
        names.filter(|name| !name.contains('/')).take(ENTRIES_MAX).map(str::to_owned).collect()
    }

    /// Returns the node of an entry. An entry without a line of its own belongs to root, and
    /// everybody may read it.
    pub(super) fn node(&self, path: &str, kind: NodeKind) -> Node {
        let bytes = self.bytes(path).map_or(0, |content| content.len() as u64);
        let usual = Node { kind, mode: 0o644, user: 0, group: 0, bytes, access: None };
        self.nodes.get(path).copied().unwrap_or(usual)
    }

    /// Returns this listing with every path, link and text changed by `rename`, which gets the path
    /// of the entry and the text to change.
    #[must_use]
    pub fn renamed(&self, rename: impl Fn(&str, &str) -> String) -> Self {
        let mut renamed = Self::default();
        for (path, entry) in &self.entries {
            let entry = match entry {
                Entry::Directory => Entry::Directory,
                Entry::Link(target) => Entry::Link(rename(path, target)),
                Entry::File(content) => match std::str::from_utf8(content) {
                    Ok(text) if is_text(text) => Entry::File(rename(path, text).into_bytes()),
                    _ => entry.clone(),
                },
            };
            renamed.entries.insert(rename(path, path), entry);
        }
        let nodes = self.nodes.iter();
        renamed.nodes = nodes.map(|(path, node)| (rename(path, path), *node)).collect();
        renamed
    }

    /// Writes the tree into a directory. Entries that the user cannot make, such as device nodes,
    /// are empty files there, and the file [`NODES`] says what they are.
    ///
    /// # Errors
    /// Fails if the directory exists and is not empty, or cannot be written.
    pub fn write_into(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        if fs::read_dir(directory)?.next().is_some() {
            return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
        }
        // The entries are in alphabetical order, so a directory comes before what is in it.
        for (path, entry) in &self.entries {
            let place = directory.join(path);
            match entry {
                Entry::Directory => fs::create_dir_all(&place)?,
                Entry::File(content) => fs::write(&place, content)?,
                Entry::Link(target) => symlink(target, &place)?,
            }
        }
        let lines = self.nodes.iter().map(|(path, node)| format!("{path} : {node}\n"));
        let place = directory.join(NODES);
        fs::create_dir_all(place.parent().unwrap_or(directory))?;
        fs::write(place, lines.collect::<String>())
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (path, entry) in &self.entries {
            let name = encoded(path);
            match entry {
                Entry::Directory => writeln!(f, "{name} /")?,
                Entry::Link(target) => writeln!(f, "{name} -> {}", encoded(target))?,
                Entry::File(content) => match std::str::from_utf8(content) {
                    Ok(text) if is_text(text) && !text.contains('\n') => {
                        writeln!(f, "{name} = {text}")?;
                    }
                    Ok(text) if is_text(text) => {
                        writeln!(f, "{name} <<")?;
                        text.split('\n').try_for_each(|line| writeln!(f, "|{line}"))?;
                    }
                    _ => {
                        write!(f, "{name} hex ")?;
                        content.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                        writeln!(f)?;
                    }
                },
            }
        }
        self.nodes.iter().try_for_each(|(path, node)| writeln!(f, "{} : {node}", encoded(path)))
    }
}

/// Returns whether a content can stand in a line of a listing.
fn is_text(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t')
}

fn encoded(path: &str) -> String {
    let mut text = String::new();
    for (index, letter) in path.chars().enumerate() {
        // The signs at the start of a line that is no entry.
        let is_sign = index == 0 && "|#-".contains(letter);
        if is_sign || letter == '%' || letter.is_whitespace() || letter.is_control() {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                _ = write!(text, "%{byte:02x}");
            }
        } else {
            text.push(letter);
        }
    }
    text
}

/// Returns the path that a line names, if it leads to a place below the root.
fn decoded(text: &str) -> Option<String> {
    let path = unescaped(text)?;
    let sound = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    path.split('/').all(sound).then_some(path)
}

/// Undoes [`encoded`].
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect()
}
