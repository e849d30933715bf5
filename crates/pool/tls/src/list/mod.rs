//! Lists of names and keys in text files: one entry a line, comments behind `#`.
//!
//! A line that is not understood fails the whole file, with its number. A line that is skipped
//! could be the one that somebody meant to protect a node with.

mod clients;
mod nodes;

use std::fmt;
use std::path::{Path, PathBuf};

pub use clients::{AuthorizedClients, Client, ClientOptions, Devices};
pub use nodes::{KnownNodes, Pin, PinError};

use crate::file::{self, FileError, Secrecy};
use crate::key::{KeyError, PublicKey};
use crate::limits::{LIST_FILE_BYTES_MAX, NAME_BYTES_MAX};

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        why: LineError,
    },
    #[error("{} cannot have this entry: {why}", path.display())]
    Entry { path: PathBuf, why: LineError },
}

/// What is wrong with a line of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    #[error("a line has a name and a key, separated by white space")]
    Short,
    #[error(
        "`{0}` is not a name: a name has 1 to {NAME_BYTES_MAX} printable ASCII characters and no \
         `#`"
    )]
    Name(String),
    #[error("`{text}` is not a key: {why}")]
    Key { text: String, why: KeyError },
    #[error("`{0}` is unexpected behind the key; a comment begins with `#`")]
    Rest(String),
    #[error("`{0}` is not an option; there are devices=ID,..., quota=NAME and revoked")]
    Option(String),
    #[error("the option `{0}` stands there twice")]
    OptionTwice(&'static str),
    #[error("the option `{0}` has no value, or an empty one in a list")]
    OptionValue(&'static str),
    #[error("`{0}` would be read as something else; a word has no white space, comma or `#` in it")]
    Unwritable(String),
    #[error("the name `{name}` is already in line {line}")]
    NameTwice { name: String, line: usize },
    #[error("the key is already in line {line}, under the name `{name}`")]
    KeyTwice { name: String, line: usize },
}

/// Kind of entry.
trait Entry: Sized + PartialEq {
    /// Whether one key can have several names.
    const KEYS_REPEAT: bool;

    fn name(&self) -> &str;
    fn key(&self) -> &PublicKey;

    /// Makes an entry of a name, a key and the words behind them.
    fn read(name: &str, key: PublicKey, rest: &[&str]) -> Result<Self, LineError>;

    /// Returns the entry as a line without its end.
    fn to_text(&self) -> String;
}

/// Lines of a file, in their order.
#[derive(Debug)]
struct Lines<E> {
    path: PathBuf,
    lines: Vec<Line<E>>,
}

#[derive(Debug)]
struct Line<E> {
    /// The line as it was written, without its end.
    text: String,
    /// `None` for an empty line or one that is only a comment.
    entry: Option<E>,
}

impl<E: Entry> Lines<E> {
    fn parse(path: &Path, text: &str) -> Result<Self, ListError> {
        let mut list = Self { path: path.to_owned(), lines: Vec::new() };
        // Not `lines`, which would take a carriage return away.
        for (at, text) in text.split_terminator('\n').enumerate() {
            let line = Line::parse(text).and_then(|line| {
                line.entry.iter().try_for_each(|entry| list.check_new(entry))?;
                Ok(line)
            });
            match line {
                Ok(line) => list.lines.push(line),
                Err(why) => {
                    return Err(ListError::Line { path: path.to_owned(), line: at + 1, why });
                }
            }
        }
        Ok(list)
    }

    /// Reads a file. A file that does not exist is an empty list.
    fn load(path: &Path) -> Result<Self, ListError> {
        match file::read(path, Secrecy::Public, LIST_FILE_BYTES_MAX) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.is_absent() => Self::parse(path, ""),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a file, changes the list, and writes the file anew if `change` returns `Ok`. No other
    /// process can change the file meanwhile.
    fn update<T, F: From<ListError>>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, F>,
    ) -> Result<T, F> {
        let _lock = file::lock(path).map_err(ListError::from)?;
        let mut list = Self::load(path)?;
        let before = list.to_string();
        let done = change(&mut list)?;
        let after = list.to_string();
        if after != before {
            file::replace(path, Secrecy::Public, &after).map_err(ListError::from)?;
        }
        Ok(done)
    }

    /// Fails if the list has the name, or the key where keys do not repeat.
    fn check_new(&self, new: &E) -> Result<(), LineError> {
        for (at, entry) in self.lines.iter().map(|line| line.entry.as_ref()).enumerate() {
            let Some(entry) = entry else { continue };
            let (name, line) = (entry.name().to_owned(), at + 1);
            if entry.name() == new.name() {
                return Err(LineError::NameTwice { name, line });
            }
            if !E::KEYS_REPEAT && entry.key() == new.key() {
                return Err(LineError::KeyTwice { name, line });
            }
        }
        Ok(())
    }

    fn add(&mut self, entry: E) -> Result<(), ListError> {
        let written = self.check_new(&entry).and_then(|()| Line::write(&entry));
        let line = written.map_err(|why| ListError::Entry { path: self.path.clone(), why })?;
        self.lines.push(line);
        Ok(())
    }

    /// Removes the entry with this name, and its line.
    fn remove(&mut self, name: &str) -> Option<E> {
        let is_it = |line: &Line<E>| line.entry.as_ref().is_some_and(|entry| entry.name() == name);
        let at = self.lines.iter().position(is_it)?;
        self.lines.remove(at).entry
    }

    fn entries(&self) -> impl Iterator<Item = &E> {
        self.lines.iter().filter_map(|line| line.entry.as_ref())
    }

    /// Returns the entry with this name and the number of its line.
    fn find(&self, name: &str) -> Option<(&E, usize)> {
        self.lines.iter().enumerate().find_map(|(at, line)| {
            line.entry.as_ref().filter(|entry| entry.name() == name).map(|entry| (entry, at + 1))
        })
    }
}

impl<E: Entry> Line<E> {
    fn parse(text: &str) -> Result<Self, LineError> {
        let content = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = content.split_ascii_whitespace().collect();
        let entry = match *words.as_slice() {
            [] => None,
            [_] => return Err(LineError::Short),
            [name, key, ref rest @ ..] => {
                check_name(name)?;
                let key =
                    key.parse().map_err(|why| LineError::Key { text: key.to_owned(), why })?;
                Some(E::read(name, key, rest)?)
            }
        };
        Ok(Self { text: text.to_owned(), entry })
    }

    /// Makes the line of an entry. Fails if the line would be read as another entry, for example
    /// because a word has white space.
    fn write(entry: &E) -> Result<Self, LineError> {
        let text = entry.to_text();
        let line = Self::parse(&text)?;
        let is_same = line.entry.as_ref().is_some_and(|read| read == entry);
        if is_same && text.lines().eq([text.as_str()]) {
            Ok(line)
        } else {
            Err(LineError::Unwritable(text))
        }
    }
}

impl<E: Entry> fmt::Display for Lines<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{}", line.text))
    }
}

fn check_name(name: &str) -> Result<(), LineError> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if is_good { Ok(()) } else { Err(LineError::Name(name.to_owned())) }
}
