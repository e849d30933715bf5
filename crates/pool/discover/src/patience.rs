//! Decides when a search is over. No clock.

use std::time::Duration;

/// Longest search. A second question follows after one second (RFC 6762, 5.2: "the interval between
/// the first two queries MUST be at least one second"), so that a lost packet is made up for. An
/// answer may take 120 ms (RFC 6762, 6), and the system needs some time.
pub const SEARCH_MAX: Duration = Duration::from_millis(1_300);

/// A search ends earlier if somebody has answered and nobody else has for this time: three times
/// the 120 ms in which RFC 6762, 6 has everybody answer.
pub const QUIET: Duration = Duration::from_millis(360);

/// Returns how long to wait for the next answer, or `None` if the search is over.
///
/// `elapsed` is the time since the first question, and `silent` the time since the newest answer,
/// if there is one.
pub(crate) fn wait(elapsed: Duration, silent: Option<Duration>) -> Option<Duration> {
    let left = SEARCH_MAX.saturating_sub(elapsed);
    let left = silent.map_or(left, |silent| left.min(QUIET.saturating_sub(silent)));
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn without_an_answer_the_search_takes_its_longest_time() {
        assert_eq!(wait(ms(0), None), Some(SEARCH_MAX));
        assert_eq!(wait(ms(1_250), None), Some(ms(50)));
        assert_eq!(wait(SEARCH_MAX, None), None);
        assert_eq!(wait(ms(9_000), None), None);
    }

    #[test]
    fn after_an_answer_the_search_ends_when_nobody_else_answers() {
        assert_eq!(wait(ms(100), Some(ms(0))), Some(QUIET));
        assert_eq!(wait(ms(400), Some(ms(300))), Some(ms(60)));
        assert_eq!(wait(ms(500), Some(QUIET)), None);
        assert_eq!(wait(ms(1_299), Some(ms(0))), Some(ms(1)));
    }
}
