//! Messages for the user. A driver prints nothing unasked in a foreign program. Exceptions:
//! messages that the interface demands, and one line for a problem that stops the program and that
//! it cannot find out otherwise.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use penstock_process::Lock;
use rustc_hash::FxHashSet;

/// Environment variable that enables messages on standard error. Any value except 0 and the empty
/// one.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";

/// Prints a line if messages are enabled.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted =
        || std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if *WANTED.get_or_init(wanted) {
        print(text);
    }
}

/// Always prints a line, for text that the interface demands.
pub(crate) fn always(text: fmt::Arguments<'_>) {
    print(text);
}

/// Always prints a line, but only the first for each `topic`.
pub(crate) fn once(topic: &'static str, text: fmt::Arguments<'_>) {
    static TOLD: Lock<FxHashSet<&str>> =
        Lock::new(FxHashSet::with_hasher(rustc_hash::FxBuildHasher));
    if TOLD.lock().insert(topic) {
        print(text);
    }
}

/// Reports once that a function is not served.
pub(crate) fn not_served(name: &'static str) {
    once(name, format_args!("{name} is not served"));
}

fn print(text: fmt::Arguments<'_>) {
    // A closed standard error is no reason to fail.
    _ = std::io::stderr().write_all(format!("penstock: {text}\n").as_bytes());
}
