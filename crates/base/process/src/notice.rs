//! Lines for the person in front of a program. A library in a foreign program prints only what that
//! person must know, or has asked for.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;

use crate::Lock;

/// Number of different lines that [`once`] remembers: one for each node of the largest pool, which
/// has 1,024. After that [`once`] prints nothing, so that a defect cannot fill the memory.
const LINES_MAX: usize = 1024;

/// Prints a line on standard error.
pub fn print(text: fmt::Arguments<'_>) {
    // One write, so that lines of several programs do not mix. If standard error is closed, nobody
    // can be told.
    _ = std::io::stderr().write_all(format!("penstock: {text}\n").as_bytes());
}

/// Prints a line on standard error, once in this process, because a program may do the same thing
/// many times.
pub fn once(text: fmt::Arguments<'_>) {
    once_about(&text.to_string(), text);
}

/// Prints the first line about `topic` in this process, and no further lines about it.
pub fn once_about(topic: &str, text: fmt::Arguments<'_>) {
    static TOLD: Lock<BTreeSet<String>> = Lock::new(BTreeSet::new());
    let mut told = TOLD.lock();
    if told.len() < LINES_MAX && told.insert(topic.to_owned()) {
        drop(told);
        print(text);
    }
}
