//! How long a test waits before it says that something hangs.
//!
//! A host may be slow for many reasons, so a time is no proof of a defect. These functions are the
//! only place where a test fails because something took too long, and that time is a minute.

use std::process::Command;
use std::time::{Duration, Instant};

/// Variable with a number by which every patience of a test is multiplied.
const SLOWNESS: &str = "PENSTOCK_TEST_SLOWNESS";

/// Nothing that a test waits for takes this long, unless it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Time between two looks at a state that nobody reports.
const LOOK: Duration = Duration::from_millis(5);

/// Returns the time after which a test says that something hangs.
///
/// # Panics
/// If `PENSTOCK_TEST_SLOWNESS` is no number from 0.01 to 1000.
#[must_use]
pub fn patience() -> Duration {
    HANGS.mul_f64(slowness(std::env::var(SLOWNESS).ok().as_deref()))
}

/// Takes all of the caller's environment from a command, except how patient tests are.
pub fn isolate(command: &mut Command) {
    command.env_clear().envs(std::env::var_os(SLOWNESS).map(|factor| (SLOWNESS, factor)));
}

fn slowness(text: Option<&str>) -> f64 {
    let Some(text) = text else { return 1.0 };
    let factor = text.parse().ok().filter(|factor| (0.01..=1000.0).contains(factor));
    factor.unwrap_or_else(|| panic!("{SLOWNESS} is `{text}`, and no number from 0.01 to 1000"))
}

/// Returns the moment at which a wait that begins now has lasted for [`patience`].
#[must_use]
pub fn deadline() -> Instant {
    Instant::now() + patience()
}

/// Waits until `is_so` returns `true`.
///
/// # Panics
/// If that does not happen within [`patience`].
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = deadline();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(LOOK);
    }
}

/// Runs `act`, which may not hang, and prints how long it took.
///
/// # Panics
/// If it took longer than [`patience`].
#[track_caller]
pub fn in_time<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = act();
    let took = began.elapsed();
    println!("{what} took {took:?}");
    assert!(took < patience(), "{what} took {took:?}");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_a_number() {
        assert_eq!([None, Some("1"), Some("2.5")].map(slowness), [1.0, 1.0, 2.5]);
        for wrong in ["", "much", "0", "-1", "inf", "NaN"] {
            assert!(std::panic::catch_unwind(|| slowness(Some(wrong))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wait_ends_with_the_state_and_returns_what_was_done() {
        let mut looks = 0;
        wait_for("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(in_time("nothing", || 7), 7);
    }
}
