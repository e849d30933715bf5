//! The file of limits:
//!
//! ```toml
//! [total]                   # all users together
//! sessions = 64
//! device_memory = "40G"
//!
//! [user.default]            # each user
//! sessions = 8
//! kernel_time_s = 60
//!
//! [user.1000]               # this user instead
//! sessions = 16
//! kernel_time_s = "unlimited"
//! device_share = 2
//!
//! [user."host:10.0.0.7"]
//! sessions = 2
//! ```
//! Every entry may be left out. An unknown name is an error, because it is most likely a typing
//! error, and a limit that is not enforced must not look as if it were.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::limit::{Limit, NOT_ENFORCED, Unit};
use crate::limits::{Limits, Origin, Rule, Rules};
use crate::user::{NotAUser, User};

/// Size of the file in bytes: sections of ten lines for each of 1,024 users.
pub const FILE_BYTES_MAX: u64 = 512 << 10;

const TOTAL: &str = "total";
const USER: &str = "user";
const DEFAULT: &str = "default";
const UNLIMITED: &str = "unlimited";

/// Why the file cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, line {line}: {problem}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
    pub problem: Problem,
}

/// What is wrong with a line, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("{0}")]
    Syntax(String),
    #[error("`{0}` is not a section; write [total], [user.default] or [user.NUMBER]")]
    Section(String),
    #[error("`{0}` stands outside of a section; write it below [total] or [user.default]")]
    Outside(String),
    #[error(transparent)]
    User(#[from] NotAUser),
    #[error("`{name}` is a second section of user {user}; join the two")]
    UserTwice { name: String, user: User },
    #[error("`{name}` is not a limit; the limits are {}", names())]
    Unknown { name: String },
    #[error("`{name}` cannot be enforced, so remove this line: {why}")]
    NotEnforced { name: &'static str, why: &'static str },
    #[error("`{limit}` is one of each user; write it below [user.default] or [user.NUMBER]")]
    NoTotal { limit: Limit },
    #[error("the value of `{limit}` is not {}", expected(*limit))]
    Value { limit: Limit },
    #[error("`{limit}` is 0, which would refuse everything; write at least 1")]
    Zero { limit: Limit },
    #[error(
        "`{limit}` is more than the built-in limit {max} (SESSIONS_PER_DAEMON_MAX); write less"
    )]
    BeyondBuiltIn { limit: Limit, max: u64 },
}

fn names() -> String {
    Limit::ALL.map(Limit::name).join(", ")
}

fn expected(limit: Limit) -> &'static str {
    match limit.unit() {
        _ if limit == Limit::DeviceShare => "a whole number",
        Unit::Count => "a whole number, or \"unlimited\"",
        Unit::Bytes => {
            "a number of bytes, or a number with K, M, G or T such as \"4G\", or \"unlimited\""
        }
        Unit::Seconds => "a whole number of seconds, or \"unlimited\"",
    }
}

impl Limits {
    /// Reads the text of a file. `path` need not exist; it appears in messages.
    ///
    /// # Errors
    /// Fails if the text is not understood, or asks for something that is not enforced.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let reader = Reader { text, path: path.into() };
        let table = DeTable::parse(text).map_err(|error| {
            let problem = Problem::Syntax(error.message().lines().collect::<Vec<_>>().join(", "));
            reader.fail(error.span().unwrap_or_default(), problem)
        })?;
        let mut limits = Self::default();
        for (name, section) in table.get_ref() {
            let DeValue::Table(content) = section.get_ref() else {
                let name = name.get_ref().to_string();
                return Err(reader.fail(section.span(), Problem::Outside(name)));
            };
            match &**name.get_ref() {
                TOTAL => reader.total(content, &mut limits)?,
                USER => reader.users(content, &mut limits)?,
                other => return Err(reader.fail(name.span(), Problem::Section(other.to_owned()))),
            }
        }
        Ok(limits)
    }
}

struct Reader<'a> {
    text: &'a str,
    path: Arc<Path>,
}

impl Reader<'_> {
    fn total(&self, content: &DeTable<'_>, limits: &mut Limits) -> Result<(), FileError> {
        for (limit, entry) in self.rules(content)? {
            let Entry { rule, span } = entry;
            if !limit.has_total() {
                return Err(self.fail(span, Problem::NoTotal { limit }));
            }
            // The daemon's memory and descriptors are laid out for the built-in number.
            let built_in = limits.of_all(limit).and_then(|rule| rule.max);
            if let Some(max) = built_in
                && rule.max.is_none_or(|asked| asked > max)
            {
                return Err(self.fail(span, Problem::BeyondBuiltIn { limit, max }));
            }
            limits.total.insert(limit, rule);
        }
        Ok(())
    }

    fn users(&self, content: &DeTable<'_>, limits: &mut Limits) -> Result<(), FileError> {
        for (name, section) in content {
            let text: &str = name.get_ref();
            let DeValue::Table(entries) = section.get_ref() else {
                return Err(self.fail(section.span(), Problem::Outside(text.to_owned())));
            };
            let rules: Rules =
                self.rules(entries)?.into_iter().map(|(limit, it)| (limit, it.rule)).collect();
            if text == DEFAULT {
                limits.default = rules;
                continue;
            }
            let user: User =
                text.parse().map_err(|why: NotAUser| self.fail(name.span(), why.into()))?;
            if limits.users.contains_key(&user) {
                let problem = Problem::UserTwice { name: text.to_owned(), user };
                return Err(self.fail(name.span(), problem));
            }
            limits.users.insert(user, rules);
        }
        Ok(())
    }

    fn rules(&self, content: &DeTable<'_>) -> Result<Vec<(Limit, Entry)>, FileError> {
        let mut rules = Vec::new();
        for (name, value) in content {
            let text: &str = name.get_ref();
            let Some(limit) = Limit::of_name(text) else {
                let known = NOT_ENFORCED.iter().find(|it| it.name == text);
                let problem = match known {
                    Some(it) => Problem::NotEnforced { name: it.name, why: it.why },
                    None => Problem::Unknown { name: text.to_owned() },
                };
                return Err(self.fail(name.span(), problem));
            };
            let max = self.value(limit, value)?;
            let origin = Origin::File { path: self.path.clone(), line: self.line(&name.span()) };
            rules.push((limit, Entry { rule: Rule { max, origin }, span: name.span() }));
        }
        Ok(rules)
    }

    fn value(&self, limit: Limit, value: &Spanned<DeValue<'_>>) -> Result<Option<u64>, FileError> {
        let amount = match value.get_ref() {
            DeValue::String(text) if **text == *UNLIMITED && limit != Limit::DeviceShare => {
                return Ok(None);
            }
            DeValue::String(text) if limit.unit() == Unit::Bytes => Unit::read_bytes(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match amount {
            Some(0) => Err(self.fail(value.span(), Problem::Zero { limit })),
            Some(amount) => Ok(Some(amount)),
            None => Err(self.fail(value.span(), Problem::Value { limit })),
        }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|&byte| byte == b'\n').count() + 1
    }

    fn fail(&self, span: Range<usize>, problem: Problem) -> FileError {
        FileError { path: self.path.to_path_buf(), line: self.line(&span), problem }
    }
}

/// A rule and its place in the text.
struct Entry {
    rule: Rule,
    span: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Limits, String> {
        Limits::parse(text, Path::new("/l.toml")).map_err(|error| error.to_string())
    }

    const ALL: &str = "\
[total]
sessions = 64
device_memory = \"40G\"

[user.default]
sessions = 8
kernel_time_s = 60

[user.1000]
kernel_time_s = \"unlimited\"

[user.\"host:10.0.0.7\"]
bytes_in_flight = 1_048_576
";

    #[test]
    fn a_file_sets_limits_with_their_lines() {
        let limits = parse(ALL).unwrap();
        let rule = |max, line| Rule {
            max,
            origin: Origin::File { path: Path::new("/l.toml").into(), line },
        };
        let (plain, named) = (User::Number(5), User::Number(1000));
        let host: User = "host:10.0.0.7".parse().unwrap();
        assert_eq!(limits.of_all(Limit::Sessions), Some(&rule(Some(64), 2)));
        assert_eq!(limits.of_all(Limit::DeviceMemory), Some(&rule(Some(40 << 30), 3)));
        assert_eq!(limits.of_user(&plain, Limit::KernelTime), Some(&rule(Some(60), 7)));
        assert_eq!(limits.of_user(&named, Limit::KernelTime), Some(&rule(None, 10)));
        assert_eq!(limits.of_user(&named, Limit::Sessions), Some(&rule(Some(8), 6)));
        assert_eq!(limits.of_user(&host, Limit::BytesInFlight), Some(&rule(Some(1 << 20), 13)));
        assert_eq!(limits.of_user(&host, Limit::HostMemory), None);
        assert!(limits.named().eq([&named, &host]));
    }

    #[test]
    fn an_empty_file_leaves_the_built_in_limits() {
        let limits = parse("# nothing\n").unwrap();
        let sessions = limits.of_all(Limit::Sessions).unwrap();
        assert_eq!(sessions.max, Some(256));
        assert_eq!(sessions.origin.to_string(), "the built-in default SESSIONS_PER_DAEMON_MAX");
    }

    #[test]
    fn a_wrong_file_is_refused_with_line_reason_and_remedy() {
        for (text, line, words) in [
            ("[total]\nsessions = \n", 2, ""),
            ("[totals]\nsessions = 1\n", 1, "write [total]"),
            ("\nsessions = 1\n", 2, "write it below [total]"),
            ("[user]\nsessions = 1\n", 2, "write it below [total]"),
            ("[user.alice]\n", 1, "`id -u NAME`"),
            ("[user.\"host:::1\"]\n\n[user.\"host:0:0:0:0::2\"]\n", 1, "join the two"),
            ("[total]\nsession = 1\n", 2, "the limits are sessions, device_memory"),
            ("[total]\n\ncompile_memory = 1\n", 3, "cannot be enforced, so remove this line"),
            ("[total]\nidle_time_s = 1\n", 2, "write it below [user.default]"),
            ("[total]\ndevice_share = 2\n", 2, "write it below [user.default]"),
            ("[user.1]\ndevice_share = \"unlimited\"\n", 2, "is not a whole number"),
            ("[total]\nsessions = -1\n", 2, "a whole number"),
            ("[total]\nsessions = \"8\"\n", 2, "a whole number"),
            ("[total]\nsessions = 1.5\n", 2, "a whole number"),
            ("[total]\nhost_memory = \"4X\"\n", 2, "such as \"4G\""),
            ("[user.default]\nkernel_time_s = 0\n", 2, "write at least 1"),
            ("[total]\nsessions = 257\n", 2, "built-in limit 256"),
            ("[total]\nsessions = \"unlimited\"\n", 2, "built-in limit 256"),
            ("[total]\nsessions = 1\nsessions = 2\n", 3, ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("/l.toml, line {line}: ")), "{text}: {error}");
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
