//! Random delays.
//!
//! The environment variable `PENSTOCK_TEST_DELAYS` has the seed. Without it, there are no delays.
//! Each place counts its visits. A number that is made of the seed, the place and the count decides
//! whether a visit rests, and for how long. So the same seed gives the same rests, as far as the
//! threads visit the places in the same order.

#[cfg(feature = "test-delays")]
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};
#[cfg(feature = "test-delays")]
use std::time::Duration;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Where a delay may happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Place {
            $($(#[$doc])* $name,)*
        }

        impl Place {
            /// All places.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

places! {
    /// A client sends a call to a worker.
    ClientSends,
    /// A client takes a frame from a link.
    ClientReceives,
    /// A thread of the client sends what was held back, or calls a function of the program.
    ClientJobs,
    /// A worker takes a frame from its client.
    WorkerReceives,
    /// A worker gives a command to a driver.
    WorkerSubmits,
    /// A worker reports the end of a command.
    WorkerReports,
    /// A worker hands a frame to the thread that writes, although the link would take the frame at
    /// once.
    LinkPutsOff,
    /// The thread that writes puts a frame on the link.
    LinkWrites,
    /// A worker sends content to another worker.
    TransferLeaves,
    /// A worker takes a frame from another worker.
    TransferArrives,
    /// A device starts a command.
    DeviceStarts,
}

/// Rests now and then.
#[inline]
pub fn delay(place: Place) {
    #[cfg(feature = "test-delays")]
    rest(place);
    #[cfg(not(feature = "test-delays"))]
    let _ = place;
}

/// Whether something that could be done at once is left to another thread. Always `false` without
/// the feature.
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

/// So many visits of a place in a row have the same mood: calm, restless or slow.
#[cfg(feature = "test-delays")]
const VISITS_PER_MOOD: u64 = 128;

#[cfg(feature = "test-delays")]
static VISITS: [AtomicU64; Place::ALL.len()] = [const { AtomicU64::new(0) }; Place::ALL.len()];

#[cfg(feature = "test-delays")]
fn seed() -> Option<u64> {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    *SEED.get_or_init(|| std::env::var("PENSTOCK_TEST_DELAYS").ok()?.parse().ok())
}

/// A number of 48 random bits for this visit of the place. The 16 bits above are the same for some
/// visits in a row: the mood.
#[cfg(feature = "test-delays")]
fn draw(place: Place) -> Option<u64> {
    let seed = seed()?;
    let index = place as usize;
    let visit = VISITS.get(index)?.fetch_add(1, Ordering::Relaxed);
    let of_place = mixed(seed ^ mixed(index as u64 + 1));
    let mood = mixed(of_place ^ mixed(visit / VISITS_PER_MOOD)) >> 48;
    Some(mood << 48 | mixed(of_place.wrapping_add(visit)) >> 16)
}

/// The mixing function of the generator SplitMix64.
#[cfg(feature = "test-delays")]
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Whether this visit is one of those that rest: about one in `calm`, and most of them in a slow
/// mood.
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
