//! How long a client waits for a direct connection beside SSH: a decision without I/O or clocks.
//!
//! The client asks the bridge for a sign of life at the moment at which it begins to connect. Both
//! answers take one round trip of the network. The one through SSH is later, because it also wakes
//! four processes. So a direct connection that is not there one more round trip later is not
//! coming: a firewall drops its packets. No wait of a fixed length would fit a rack and a
//! satellite.

use std::time::{Duration, Instant};

/// Shortest wait. The processes of a busy host run some 10 ms late.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// Longest wait, also for the answer through SSH. TCP repeats a lost first packet after 1 s.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Round trips through SSH after which the handshake and the hello must be over. They take three on
/// the network.
const HELLO_ROUND_TRIPS: u32 = 8;

/// Shortest time for them: both sides compute some ms, and a busy host is late.
const HELLO_MIN: Duration = Duration::from_secs(1);

/// A direct connection that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    began: Instant,
    round_trip: Option<Duration>,
}

impl Race {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { began: now, round_trip: None }
    }

    /// Notes that the bridge has answered.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.round_trip = Some(now.saturating_duration_since(self.began));
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.round_trip.is_some()
    }

    /// Returns when the client gives up the direct connection, as far as is known now.
    pub(crate) fn gives_up_at(&self) -> Instant {
        let wait = self.round_trip.map_or(WAIT_MAX, |it| it.saturating_mul(2));
        self.began + wait.clamp(WAIT_MIN, WAIT_MAX)
    }

    /// Returns how long the handshake of a direct connection that was made at `now` may take, and
    /// each step of its hello. `most` is the user's time-out.
    pub(crate) fn hello_max(&self, now: Instant, most: Duration) -> Duration {
        let taken = now.saturating_duration_since(self.began);
        let round_trip = self.round_trip.unwrap_or(taken);
        round_trip.saturating_mul(HELLO_ROUND_TRIPS).max(HELLO_MIN).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_wait_is_two_round_trips_through_ssh_within_limits() {
        let start = Instant::now();
        for (round_trip, wait) in [(0, 50), (10, 50), (25, 50), (80, 160), (500, 1000), (900, 1000)]
        {
            let mut race = Race::begin(start);
            assert!(!race.has_answer());
            assert_eq!(race.gives_up_at(), start + ms(1000));
            race.answered(start + ms(round_trip));
            assert!(race.has_answer());
            assert_eq!(race.gives_up_at(), start + ms(wait), "{round_trip} ms");
        }
    }

    #[test]
    fn a_hello_has_several_round_trips_and_never_more_than_the_user_allows() {
        let start = Instant::now();
        let mut race = Race::begin(start);
        // The direct connection came first, after 300 ms.
        assert_eq!(race.hello_max(start + ms(300), ms(3000)), ms(2400));
        race.answered(start + ms(20));
        assert_eq!(race.hello_max(start + ms(20), ms(3000)), ms(1000));
        assert_eq!(race.hello_max(start + ms(20), ms(500)), ms(500));
    }
}
