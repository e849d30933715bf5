//! Messages for people. A driver in a foreign program prints nothing unasked: only with `PENSTOCK_LOG` set, and one line for
//! what a program cannot go on without and nobody else can tell it.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashSet;

/// Asks for messages on standard error; any value but 0 and the empty one.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";

/// Prints a line if that was asked for.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted =
        || std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if *WANTED.get_or_init(wanted) {
        print(text);
    }
}

/// Prints a line in any case: what the interface says is printed.
pub(crate) fn always(text: fmt::Arguments<'_>) {
    print(text);
}

/// Prints a line in any case, once for each `topic`.
pub(crate) fn once(topic: &'static str, text: fmt::Arguments<'_>) {
    static TOLD: Mutex<FxHashSet<&str>> =
        Mutex::new(FxHashSet::with_hasher(rustc_hash::FxBuildHasher));
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(topic) {
        print(text);
    }
}

/// Says once that a function is not served.
pub(crate) fn not_served(name: &'static str) {
    once(name, format_args!("{name} is not served"));
}

fn print(text: fmt::Arguments<'_>) {
    // Nobody to tell if standard error is closed.
    _ = std::io::stderr().write_all(format!("penstock: {text}\n").as_bytes());
}
