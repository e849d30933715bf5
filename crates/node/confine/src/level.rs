//! How far a worker is confined: names, their order, and what each one means.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far a worker is confined. A higher level has everything that the lower ones have.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is restricted.
    Off,
    /// The worker cannot gain rights, has no capabilities, cannot be inspected by others of its
    /// user, and has a small environment and limits.
    Basic,
    /// System calls that no driver needs fail.
    Calls,
    /// Files outside the system's folders and the worker's own folder are out of reach.
    Files,
    /// Signals and abstract sockets end at the border of the worker, too.
    #[default]
    Full,
}

/// A word that names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no level of confinement; write off, basic, calls, files or full")]
pub struct UnknownLevel(String);

impl Level {
    pub const ALL: [Self; 5] = [Self::Off, Self::Basic, Self::Calls, Self::Files, Self::Full];

    /// Words in the order of [`Level::ALL`].
    pub const NAMES: [&str; 5] = ["off", "basic", "calls", "files", "full"];

    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns what a kernel in such a worker cannot do, in plain words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Off => "kernels can do what the user of the daemon can do",
            Self::Basic => "kernels gain no rights and see no variables of the daemon",
            Self::Calls => "kernels cannot reach other processes by system calls",
            Self::Files => "kernels cannot reach other processes or files of users",
            Self::Full => {
                "kernels cannot reach other processes, files of users or abstract sockets"
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_an_order_and_names() {
        assert!(Level::ALL.windows(2).all(|two| two[0] < two[1]));
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
            assert!(!level.about().is_empty());
        }
        assert_eq!(Level::default(), Level::Full);
        let error = "most".parse::<Level>().unwrap_err().to_string();
        for name in Level::NAMES {
            assert!(error.contains(name), "{error}");
        }
    }
}
