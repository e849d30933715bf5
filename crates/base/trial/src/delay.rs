//! Random delays.
//!
//! The environment variable `PENSTOCK_TEST_DELAYS` holds the seed. If it is not set, there are no
//! delays. Each place counts its visits. The seed, the place and the count determine whether a
//! visit is delayed, and for how long. So a seed causes the same delays again if the threads visit
//! the places in the same order.

#[cfg(feature = "test-delays")]
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};
#[cfg(feature = "test-delays")]
use std::time::Duration;

#[cfg(feature = "test-delays")]
use crate::random::mixed;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A place where a delay may happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Place {
            $($(#[$doc])* $name,)*
        }

        impl Place {
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

places! {
    /// A client sends a call to a worker.
    ClientSends,
    /// A client takes a frame from a link.
    ClientReceives,
    /// A thread of the client sends held commands, or calls a function of the program.
    ClientJobs,
    /// A worker takes a frame from its client.
    WorkerReceives,
    /// A worker passes a command to a driver.
    WorkerSubmits,
    /// A worker reports the end of a command.
    WorkerReports,
    /// A worker hands a frame to the writing thread, although the link has room for it.
    LinkPutsOff,
    /// The writing thread puts a frame on the link.
    LinkWrites,
    /// A worker sends content to another worker.
    TransferLeaves,
    /// A worker takes a frame from another worker.
    TransferArrives,
    /// A device starts a command.
    DeviceStarts,
}

/// Delays some visits. Does nothing without the feature `test-delays`.
#[inline]
pub fn delay(place: Place) {
    #[cfg(feature = "test-delays")]
    rest(place);
    #[cfg(not(feature = "test-delays"))]
    let _ = place;
}

/// Whether work that could be done at once is left to another thread. Always `false` without the
/// feature `test-delays`.
#[inline]
#[must_use]
pub fn is_put_off(place: Place) -> bool {
    #[cfg(feature = "test-delays")]
    return draw(place).is_some_and(|number| weight(number, 4));
    #[cfg(not(feature = "test-delays"))]
    {
        let _ = place;
        false
    }
}

/// Number of consecutive visits of a place with the same mood: calm, restless or slow.
#[cfg(feature = "test-delays")]
const VISITS_PER_MOOD: u64 = 128;

#[cfg(feature = "test-delays")]
static VISITS: [AtomicU64; Place::ALL.len()] = [const { AtomicU64::new(0) }; Place::ALL.len()];

#[cfg(feature = "test-delays")]
fn seed() -> Option<u64> {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    *SEED.get_or_init(|| std::env::var("PENSTOCK_TEST_DELAYS").ok()?.parse().ok())
}

/// Returns a number for this visit of the place. Its lower 48 bits are random. The upper 16 bits,
/// the mood, are the same for `VISITS_PER_MOOD` visits.
#[cfg(feature = "test-delays")]
fn draw(place: Place) -> Option<u64> {
    let seed = seed()?;
    let index = place as usize;
    let visit = VISITS.get(index)?.fetch_add(1, Ordering::Relaxed);
    let of_place = mixed(seed ^ mixed(index as u64 + 1));
    let mood = mixed(of_place ^ mixed(visit / VISITS_PER_MOOD)) >> 48;
    Some(mood << 48 | mixed(of_place.wrapping_add(visit)) >> 16)
}

/// Whether a visit rests. In a slow mood, one in `calm` visits rests, in a restless mood a quarter
/// as many, and in a calm mood none.
#[cfg(feature = "test-delays")]
fn weight(number: u64, calm: u64) -> bool {
    let per_mille = match number >> 48 & 7 {
        0..4 => 0,
        4..7 => 1000 / (calm * 4),
        _ => 1000 / calm,
    };
    number % 1000 < per_mille
}

#[cfg(feature = "test-delays")]
fn rest(place: Place) {
    let Some(number) = draw(place) else { return };
    if !weight(number, 3) {
        return;
    }
    let micros = number / 1000 % 1000;
    match number / 1_000_000 % 100 {
        0..30 => std::thread::yield_now(),
        30..75 => std::thread::sleep(Duration::from_micros(10 + micros / 10)),
        75..95 => std::thread::sleep(Duration::from_micros(100 + micros)),
        _ => std::thread::sleep(Duration::from_micros(1000 + micros * 2)),
    }
}

#[cfg(all(test, feature = "test-delays"))]
mod tests {
    use super::*;

    #[test]
    fn some_visits_rest_and_most_do_not() {
        let rests = |mood: u64| {
            let visits = (0..10_000).map(|visit| mood << 48 | mixed(visit) >> 16);
            visits.filter(|number| weight(*number, 3)).count()
        };
        assert_eq!(rests(0), 0);
        assert!((500..1200).contains(&rests(5)), "{}", rests(5));
        assert!((3000..3700).contains(&rests(7)), "{}", rests(7));
    }
}
