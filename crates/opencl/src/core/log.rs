//! Messages that a person can ask for with `PENSTOCK_LOG`. What a person has to know unasked is in
//! [`penstock_client::notice`].

use std::fmt;
use std::sync::OnceLock;

use penstock_client::notice;

/// Asks for messages on standard error; any value but 0 and the empty one.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";

/// Prints a line if that was asked for.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted =
        || std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if *WANTED.get_or_init(wanted) {
        notice::print(text);
    }
}
