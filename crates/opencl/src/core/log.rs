//! Messages for people. A driver in a foreign program prints nothing unasked: only with `PENSTOCK_LOG` set.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// Asks for messages on standard error; any value but 0 and the empty one.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";

/// Prints a line if that was asked for.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted = || std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if *WANTED.get_or_init(wanted) {
        // Nobody to tell if standard error is closed.
        _ = std::io::stderr().write_all(format!("penstock: {text}\n").as_bytes());
    }
}
