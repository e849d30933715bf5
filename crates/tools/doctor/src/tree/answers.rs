//! What no file of a tree says.

use std::fmt;

/// Answers to questions that only a process of the host can answer, such as variables of the
/// environment: pairs of a name and a value. A name may have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers(Vec<(String, String)>);

impl Answers {
    /// Adds an answer. A line break in the value becomes a space.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.replace(['\n', '\r'], " ").trim().to_owned()));
    }

    /// Returns the first value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Reads lines of the form `name = value`, and leaves out all others.
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(name, value)| (name.trim().into(), value.trim().into())).collect())
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
    }
}
