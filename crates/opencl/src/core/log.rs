//! Messages that a person requests with `PENSTOCK_LOG`. Unrequested messages are in
//! [`penstock_client::notice`].

use std::fmt;
use std::sync::OnceLock;

use penstock_client::notice;

/// Requests messages on standard error if it is neither empty nor 0.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";

/// Prints a line if messages were requested.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted =
        || std::env::var_os(LOG_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    if *WANTED.get_or_init(wanted) {
        notice::print(text);
    }
}
