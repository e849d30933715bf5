//! The nodes that a user has met, and their keys.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Entry, LineError, Lines, ListError};
use crate::key::PublicKey;

/// Keys of nodes under the names by which this user reaches them, in the spirit of SSH's
/// `known_hosts`. A line has a name and a key.
#[derive(Debug)]
pub struct KnownNodes(Lines<Node>);

/// What is known of a node that shows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The node is known with this key.
    Known,
    /// Nothing is known of the node.
    Unknown,
}

/// Why a node's key is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    #[error(
        "the key of {name} has changed. {}, line {line} has {pinned} (fingerprint {}), but the \
         node shows {found} (fingerprint {}). Either its identity was made anew, or another \
         machine answers in its place. Ask the node's administrator for the fingerprint; if it is \
         the new one, run `penstock key revoke {name}` and connect again",
        path.display(), pinned.fingerprint(), found.fingerprint()
    )]
    OtherKey { name: String, path: PathBuf, line: usize, pinned: PublicKey, found: PublicKey },
    #[error(transparent)]
    List(#[from] ListError),
}

#[derive(Debug, PartialEq)]
struct Node {
    name: String,
    key: PublicKey,
}

impl KnownNodes {
    /// Reads the text of a file. `path` is for messages.
    ///
    /// # Errors
    /// Fails if a line is not understood.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ListError> {
        Lines::parse(path, text).map(Self)
    }

    /// Reads a file. A file that does not exist has no nodes.
    ///
    /// # Errors
    /// Fails if the file cannot be used or a line is not understood.
    pub fn load(path: &Path) -> Result<Self, ListError> {
        Lines::load(path).map(Self)
    }

    /// Pins a node's key in a file.
    ///
    /// # Errors
    /// Fails if the node is known with another key, or the file cannot be used.
    pub fn pin(path: &Path, name: &str, key: PublicKey) -> Result<(), PinError> {
        Lines::update(path, |lines| Self::add(lines, name, key))
    }

    /// Removes a node from a file. Returns its key if it was there.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub fn revoke(path: &Path, name: &str) -> Result<Option<PublicKey>, ListError> {
        Lines::<Node>::update(path, |lines| Ok(lines.remove(name).map(|node| node.key)))
    }

    /// Compares a node's key with the one that is pinned.
    ///
    /// # Errors
    /// Fails if the node is known with another key.
    pub fn check(&self, name: &str, key: &PublicKey) -> Result<Pin, PinError> {
        check(&self.0, name, key)
    }

    /// Returns the key that is pinned for a node.
    pub fn key_of(&self, name: &str) -> Option<PublicKey> {
        self.0.find(name).map(|(node, _)| node.key)
    }

    /// Returns names and keys in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.0.entries().map(|node| (node.name.as_str(), &node.key))
    }

    fn add(lines: &mut Lines<Node>, name: &str, key: PublicKey) -> Result<(), PinError> {
        match check(lines, name, &key)? {
            Pin::Known => Ok(()),
            Pin::Unknown => Ok(lines.add(Node { name: name.to_owned(), key })?),
        }
    }
}

fn check(lines: &Lines<Node>, name: &str, found: &PublicKey) -> Result<Pin, PinError> {
    match lines.find(name) {
        None => Ok(Pin::Unknown),
        Some((node, _)) if node.key == *found => Ok(Pin::Known),
        Some((node, line)) => Err(PinError::OtherKey {
            name: name.to_owned(),
            path: lines.path.clone(),
            line,
            pinned: node.key,
            found: *found,
        }),
    }
}

impl fmt::Display for KnownNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Entry for Node {
    /// A node has a name for each address by which it is reached.
    const KEYS_REPEAT: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    fn key(&self) -> &PublicKey {
        &self.key
    }

    fn read(name: &str, key: PublicKey, rest: &[&str]) -> Result<Self, LineError> {
        match rest.first() {
            Some(word) => Err(LineError::Rest((*word).to_owned())),
            None => Ok(Self { name: name.to_owned(), key }),
        }
    }

    fn to_text(&self) -> String {
        format!("{} {}", self.name, self.key)
    }
}
