//! Messages to the user of a program. A library in a foreign program prints only what the user must
//! know: which node is left out or lost, and why the program waits.

use std::fmt;
use std::time::{Duration, Instant};

use penstock_link::LinkError;
pub use penstock_process::notice::{once, print};

use crate::config::TIMEOUT_VARIABLE;

/// Function with which a face shows a line to the user of the program.
pub type Tell = fn(fmt::Arguments<'_>);

/// Time in line after which a program says that it waits.
const LINE_TOLD_AFTER: Duration = Duration::from_secs(1);
/// Interval at which the program says so again.
const LINE_TOLD_AGAIN: Duration = Duration::from_secs(30);

/// Returns why a node is left out, and the setting that may be the reason. `patience` is the time
/// that the node had for each answer.
pub fn why_absent(reason: &LinkError, patience: Duration) -> String {
    let is_late = match reason {
        LinkError::HelloTimeout { .. } => true,
        LinkError::Connect { source, .. } => source.kind() == std::io::ErrorKind::TimedOut,
        _ => false,
    };
    if is_late {
        return format!("{reason} ({TIMEOUT_VARIABLE} is {})", patience.as_millis());
    }
    reason.to_string()
}

/// Timer that decides when a program that waits in line says so.
#[derive(Debug, Default)]
pub(crate) struct LineReport {
    next: Option<Instant>,
}

impl LineReport {
    /// Returns whether to say it now. Must be asked each time the daemon tells that it lives.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let next = *self.next.get_or_insert(now + LINE_TOLD_AFTER);
        let is_due = now >= next;
        if is_due {
            self.next = Some(now + LINE_TOLD_AGAIN);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_late_is_told_with_the_setting() {
        let late = LinkError::HelloTimeout { peer: "tcp:a:1".into() };
        let text = why_absent(&late, Duration::from_millis(20));
        assert_eq!(text, "tcp:a:1 did not finish the hello in time (PENSTOCK_TIMEOUT_MS is 20)");
        assert_eq!(why_absent(&LinkError::Closed, Duration::ZERO), "the link is closed");
    }

    #[test]
    fn who_waits_says_so_after_a_second_and_then_rarely() {
        let (mut report, start) = (LineReport::default(), Instant::now());
        let told = (0..100).filter(|second| report.is_due(start + Duration::from_secs(*second)));
        assert_eq!(told.collect::<Vec<_>>(), [1, 31, 61, 91]);
    }
}
