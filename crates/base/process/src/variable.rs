//! The environment variables that Penstock reads, and how it reads them.
//!
//! The table in `table.rs` lists all of them. An empty variable counts as unset. A value that
//! cannot be read counts as unset, too, and gives one line that names the variable, the value and
//! the values that are accepted.

mod table;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

pub use table::*;

use crate::notice;
use crate::privilege::is_elevated;

/// A variable of the environment that Penstock reads.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    pub kind: Kind,
    /// The value that an unset variable stands for, as `docs/configuration.md` writes it.
    pub default: &'static str,
    /// What the variable says, in one line.
    pub about: &'static str,
    pub group: Group,
}

/// The kind of text that a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `1`, `true`, `yes` or `on`; or `0`, `false`, `no` or `off`. Holds the default.
    Flag(bool),
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// 0, which stands for no limit, or a whole number from the first to the second.
    NumberOrNone(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A file or directory.
    Path,
    /// Text with rules of its own, as `docs/configuration.md` or `docs/libwater.md` describes it.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(_) => f.write_str("1 (true, yes, on) or 0 (false, no, off)"),
            Self::Number(first, u64::MAX) => write!(f, "a number, at least {first}"),
            Self::Number(first, last) => write!(f, "a number from {first} to {last}"),
            Self::NumberOrNone(first, last) => write!(f, "0 or a number from {first} to {last}"),
            Self::Choice(words) => f.write_str(&words.join(" or ")),
            Self::Path => f.write_str("a path"),
            Self::Text => f.write_str("text in UTF-8"),
        }
    }
}

/// What a group of variables is for. The documents list the variables in these groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Users,
    Cuda,
    Daemons,
    Places,
    Water,
    Tests,
    /// Variables that other software defines.
    Others,
}

impl Group {
    pub const ALL: [Self; 7] = [
        Self::Users,
        Self::Cuda,
        Self::Daemons,
        Self::Places,
        Self::Water,
        Self::Tests,
        Self::Others,
    ];

    /// Returns the title of the group in lists.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Users => "Variables for users",
            Self::Cuda => "Variables of CUDA programs",
            Self::Daemons => "Variables of daemons",
            Self::Places => "Variables that say where things are",
            Self::Water => "Variables of libWater programs",
            Self::Tests => "Variables of builds for tests",
            Self::Others => "Variables that other software defines",
        }
    }
}

/// Returns the value of a variable, or `None` if the variable is unset or empty. A program with
/// more rights than its user sees no variable, see [`is_elevated`].
#[must_use]
pub fn value(name: &str) -> Option<OsString> {
    value_even_empty(name).filter(|value| !value.is_empty())
}

/// Returns the value of a variable of other software, to which an empty value has a meaning.
/// Returns `None` if the variable is unset.
#[must_use]
pub fn value_even_empty(name: &str) -> Option<OsString> {
    if is_elevated() { None } else { std::env::var_os(name) }
}

/// Returns all variables of the environment, to choose those of another process.
pub fn everything() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

/// Returns the text of a variable, or `None` if the variable is unset, empty or no UTF-8 text.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    value(name)?.into_string().ok()
}

/// Returns all variables, for a program that this one starts. A program with more rights than its
/// user passes none on.
pub fn for_child() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|_| !is_elevated())
}

/// Returns the names of the variables that look like Penstock's and that Penstock does not read.
#[must_use]
pub fn unknown() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_ours = |name: &str| name.starts_with("PENSTOCK_") || name.starts_with("WTR_");
    names.filter(|name| is_ours(name) && ALL.iter().all(|it| it.name != name)).collect()
}

/// Reads a value that says yes or no.
#[must_use]
pub fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A value that its variable cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    name: &'static str,
    value: OsString,
    kind: Kind,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, kind } = self;
        write!(f, "variable {name}: `{}` is not {kind}", value.display())
    }
}

impl std::error::Error for Unreadable {}

impl Variable {
    /// Returns the value, or `None` if the variable is unset or empty.
    #[must_use]
    pub fn value(&self) -> Option<OsString> {
        value(self.name)
    }

    /// Returns whether the variable has a value.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.value().is_some()
    }

    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.value().map(PathBuf::from)
    }

    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.read(|text| Some(text.to_owned()))
    }

    /// Returns the text also if it is empty, for variables whose empty value has a meaning.
    #[must_use]
    pub fn text_even_empty(&self) -> Option<String> {
        value_even_empty(self.name)?.into_string().ok()
    }

    /// Returns the value of a [`Kind::Flag`], or its default.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.read(flag).unwrap_or(self.kind == Kind::Flag(true))
    }

    /// Returns the value of a [`Kind::Number`].
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.read(|text| self.kind.number(text))
    }

    /// Returns whether `value` can be read.
    ///
    /// # Errors
    /// The value is of another kind. The error names the values that are accepted.
    pub fn check(&self, value: &OsStr) -> Result<(), Unreadable> {
        let text = value.to_str();
        let is_right = match self.kind {
            Kind::Path => true,
            Kind::Text => text.is_some(),
            Kind::Flag(_) => text.and_then(flag).is_some(),
            Kind::Number(..) | Kind::NumberOrNone(..) => {
                text.and_then(|text| self.kind.number(text)).is_some()
            }
            Kind::Choice(words) => text.is_some_and(|text| words.contains(&text.trim())),
        };
        let unreadable =
            || Unreadable { name: self.name, value: value.to_owned(), kind: self.kind };
        if is_right { Ok(()) } else { Err(unreadable()) }
    }

    fn read<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = self.value()?;
        if let Err(unreadable) = self.check(&value) {
            notice::once(format_args!("{unreadable}"));
            return None;
        }
        parse(value.to_str()?)
    }
}

impl Kind {
    fn number(self, text: &str) -> Option<u64> {
        let number = text.trim().parse().ok()?;
        let is_right = match self {
            Self::Number(first, last) => (first..=last).contains(&number),
            Self::NumberOrNone(first, last) => number == 0 || (first..=last).contains(&number),
            Self::Flag(_) | Self::Choice(_) | Self::Path | Self::Text => false,
        };
        is_right.then_some(number)
    }
}

#[cfg(test)]
mod tests;
