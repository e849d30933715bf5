//! Commands on their way to the devices, and how many there may be.
//!
//! The worker does not know the end of a command that has no event. So it puts a marker into each
//! queue now and then, and counts everything before the marker as ended when the marker has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_wire::limits;

/// Part of the limit after which the session looks: 1/4 of the commands. A marker for each 16,384
/// commands costs nothing, and the devices still have 3/4 of the commands while the session waits.
const LOOKS: u64 = 4;

/// The limit grows by this factor while the ends of commands may depend on the client.
const GATED_FACTOR: u64 = 4;

/// Time without an end after which the next end may depend on the client's next message. The same
/// as for staged bytes: see `limits.rs`.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Time without an end at the grown limit after which the session ends. A kernel may run that long
/// while an unrelated user event is open.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// Numbers of commands of all queues. A command counts more often if it has a long wait list.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    given: AtomicU64,
    ended: AtomicU64,
}

impl Flights {
    /// Notes commands that were given to a device. Only the session's thread does this.
    pub(crate) fn began(&self, count: u64) {
        self.given.store(self.given() + count, Ordering::Relaxed);
    }

    /// Notes that commands have ended.
    pub(crate) fn ended(&self, count: u64) {
        self.ended.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes a transfer with a wait list of this length, until the result is dropped.
    pub(super) fn transfer(self: &Arc<Self>, waits: usize) -> Flight {
        let count = 1 + (waits / limits::WAITS_PER_COMMAND) as u64;
        self.began(count);
        Flight { flights: self.clone(), count }
    }

    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Returns the number of commands that were given, and of those that are known to have ended.
    pub(super) fn steps(&self) -> u64 {
        self.given() + self.ended.load(Ordering::Relaxed)
    }

    /// Returns the number of commands that have not ended, as far as is known.
    pub(crate) fn now(&self) -> u64 {
        self.given().saturating_sub(self.ended.load(Ordering::Relaxed))
    }
}

/// A transfer on its way.
#[must_use]
pub(super) struct Flight {
    flights: Arc<Flights>,
    count: u64,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.ended(self.count);
    }
}

/// What a session at its limit does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reads the next command.
    GoOn,
    /// Waits, and decides again.
    Wait,
    /// Ends.
    GiveUp,
}

/// A session at its limit: decides what it does, without a clock.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// Number of commands at which the next look is due.
    look_at: u64,
    /// Fewest commands since the session began to wait, and when there were so many for the first
    /// time.
    least: Option<(u64, Instant)>,
}

impl Stall {
    pub(super) fn is_due(&self, given: u64) -> bool {
        given >= self.look_at
    }

    /// Decides what a session with `flying` commands does if at most `max` may be on their way.
    /// `awaits` returns whether an end may depend on the client; `may_grow` is whether the limit
    /// then grows.
    pub(super) fn decide(
        &mut self,
        flying: u64,
        max: u64,
        may_grow: bool,
        now: Instant,
        awaits: impl FnOnce() -> bool,
    ) -> Step {
        if flying + max / LOOKS <= max {
            self.least = None;
            return Step::GoOn;
        }
        let (least, since) = *self.least.get_or_insert((flying, now));
        if flying < least {
            self.least = Some((flying, now));
            return Step::Wait;
        }
        let stuck = now.saturating_duration_since(since);
        if stuck <= STUCK_AFTER || !awaits() {
            return Step::Wait;
        }
        if may_grow && flying <= max.saturating_mul(GATED_FACTOR) {
            return Step::GoOn;
        }
        if stuck > GIVE_UP_AFTER { Step::GiveUp } else { Step::Wait }
    }

    /// Notes the look, after which the session reads on.
    pub(super) fn looked(&mut self, given: u64, max: u64) {
        self.look_at = given + (max / LOOKS).max(1);
    }
}

const _: () = assert!(limits::COMMANDS_IN_FLIGHT_MAX >= LOOKS);

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1_000;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_waits_at_its_limit_until_commands_end() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let mut decide =
            |flying, seconds| stall.decide(flying, MAX, true, at(start, seconds), || false);
        assert_eq!(decide(750, 0), Step::GoOn);
        assert_eq!(decide(751, 1), Step::Wait);
        // A kernel may run for ever if nothing depends on the client.
        assert_eq!(decide(751, 100_000), Step::Wait);
        assert_eq!(decide(750, 100_001), Step::GoOn);
    }

    #[test]
    fn a_session_that_may_wait_for_its_client_reads_on() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let mut decide = |flying, seconds, may_grow| {
            stall.decide(flying, MAX, may_grow, at(start, seconds), || true)
        };
        assert_eq!(decide(1_000, 0, true), Step::Wait);
        assert_eq!(decide(1_000, 3, true), Step::GoOn);
        assert_eq!(decide(4_000, 4, true), Step::GoOn);
        assert_eq!(decide(4_001, 5, true), Step::Wait);
        assert_eq!(decide(4_001, 61, true), Step::GiveUp);
        // Fewer commands are progress.
        assert_eq!(decide(999, 62, true), Step::Wait);
        assert_eq!(decide(999, 122, false), Step::Wait);
        assert_eq!(decide(999, 123, false), Step::GiveUp);
    }

    #[test]
    fn looks_are_rare() {
        let mut stall = Stall::default();
        assert!(stall.is_due(0));
        stall.looked(0, MAX);
        assert!(!stall.is_due(249) && stall.is_due(250));
        stall.looked(250, 1);
        assert!(!stall.is_due(250) && stall.is_due(251));
    }

    #[test]
    fn commands_are_counted_from_both_sides() {
        let flights = Arc::new(Flights::default());
        flights.began(5);
        flights.ended(3);
        assert_eq!((flights.given(), flights.now()), (5, 2));
        let transfer = flights.transfer(32);
        assert_eq!(flights.now(), 5);
        drop(transfer);
        assert_eq!(flights.now(), 2);
    }
}
