//! How a thread waits: it spins briefly, then yields its core, then sleeps.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::LinkError;

/// Time that a caller waits for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Never,
    Until(Instant),
    /// Until a frame comes or the link ends.
    Forever,
}

impl Patience {
    /// Returns the end of the patience; `None` for [`Patience::Forever`].
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Never => Some(penstock_process::now()),
            Self::Until(deadline) => Some(deadline),
            Self::Forever => None,
        }
    }
}

/// How a thread waits before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Time of looking without a pause; a peer that runs on another core answers within it.
    pub spin_for: Duration,
    /// Time of yielding between two looks, after `spin_for`. A peer on this core gets to run, and
    /// waking a sleeping core, which costs 35-45 µs, is avoided.
    pub yield_for: Duration,
    /// If a yield takes longer than this, a computing thread used the core. A scheduler lets such a
    /// thread run for 3 ms, but prefers a thread that wakes from sleep. So waits then sleep at
    /// once.
    pub crowded_after: Duration,
}

impl Policy {
    /// The measured choice; see `examples/ping.rs`.
    pub const DEFAULT: Self = Self {
        spin_for: Duration::from_micros(4),
        yield_for: Duration::from_micros(50),
        crowded_after: Duration::from_micros(100),
    };
    /// For a peer in another machine that shares memory with this one. It is woken through a
    /// connection between the machines, which takes about 200 µs where guests are emulated. A
    /// thread looks about as long as its wake-up would take.
    pub(crate) const ACROSS_MACHINES: Self =
        Self { yield_for: Duration::from_micros(200), ..Self::DEFAULT };
    /// Sleeps without looking first.
    pub const SLEEP: Self =
        Self { spin_for: Duration::ZERO, yield_for: Duration::ZERO, crowded_after: Duration::ZERO };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// After a yield that others used for a long time, this multiple of its length passes before the
/// next yield: 0.4 % of the time is lost on a core where others always compute.
const CROWDED_FACTOR: u32 = 256;

/// Factor on `yield_for` while more bytes of a payload are awaited, because the peer is then at
/// work on them. It gives 500 µs, in which a peer on the same core fills a socket (4 MiB at 8
/// GB/s). A thread that sleeps instead is woken by the first 64 KiB, and stays on one core with the
/// peer.
const FLOW_FACTOR: u32 = 10;

/// A yield in which no other thread ran takes about 0.3 µs, and 1 µs or more if one did.
const TURN_USED_MIN: Duration = Duration::from_nanos(900);

/// Number of looks between two readings of the clock, which cost as much as several looks.
const LOOKS_PER_CLOCK: u32 = 8;

/// Condition to wait for.
pub(crate) trait Await {
    /// Returns whether the condition holds. Must be cheap, and must fail if it can no longer hold.
    fn look(&mut self) -> Result<bool, LinkError>;
    /// Sleeps until the condition may hold, or until the deadline.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), LinkError>;
    /// Returns whether the awaited bytes continue what has begun to come.
    fn flows(&self) -> bool {
        false
    }
    /// Returns whether many bytes came at once, which means that the peer is sending just now.
    fn is_much(&self) -> bool {
        false
    }
}

/// Waiting state of one thread, which learns from earlier waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) policy: Policy,
    /// Other threads compute on this core: sleep at once until this time.
    crowded_until: Option<Instant>,
    /// The peer may want this core, so the next wait starts with a yield; spinning would keep the
    /// peer from running. Set if another thread ran here during the last wait, or if that wait
    /// slept, after which the scheduler tends to put both on one core.
    yield_first: bool,
}

impl Waiter {
    pub(crate) fn new(policy: Policy) -> Self {
        // In a world, one that looks again and again only keeps the others from running.
        #[cfg(feature = "world")]
        let policy = if penstock_process::world::is_member() { Policy::SLEEP } else { policy };
        Self { policy, crowded_until: None, yield_first: true }
    }

    /// Waits for `what`. Returns `false` if the patience ended.
    pub(crate) fn wait(
        &mut self,
        patience: Patience,
        what: &mut dyn Await,
    ) -> Result<bool, LinkError> {
        if what.look()? {
            return Ok(true);
        }
        if patience == Patience::Never {
            return Ok(false);
        }
        let deadline = patience.deadline();
        if self.wait_awake(deadline, what)? {
            return Ok(true);
        }
        loop {
            if deadline.is_some_and(|deadline| penstock_process::now() >= deadline) {
                return what.look();
            }
            what.sleep(deadline)?;
            self.yield_first = true;
            if what.look()? {
                return Ok(true);
            }
        }
    }

    fn wait_awake(
        &mut self,
        deadline: Option<Instant>,
        what: &mut dyn Await,
    ) -> Result<bool, LinkError> {
        let mut now = penstock_process::now();
        if self.crowded_until.is_some_and(|until| now < until) {
            return Ok(false);
        }
        let yields = !self.policy.yield_for.is_zero();
        let mut used = false;
        if self.yield_first && yields {
            match self.give_way(now, what)? {
                Turn::Come => return Ok(true),
                Turn::Crowded => return Ok(false),
                Turn::Used(back) => (now, used) = (back, true),
                Turn::Unused(back) => now = back,
            }
        }
        self.yield_first = false;
        let spin_until = now + self.policy.spin_for;
        while !used && now < spin_until {
            for _ in 0..LOOKS_PER_CLOCK {
                std::hint::spin_loop();
                if what.look()? {
                    return Ok(true);
                }
            }
            now = penstock_process::now();
        }
        let yield_for = if what.flows() { FLOW_FACTOR } else { 1 } * self.policy.yield_for;
        let yield_until = now + yield_for;
        while now < yield_until && deadline.is_none_or(|deadline| now < deadline) {
            match self.give_way(now, what)? {
                Turn::Come => return Ok(true),
                Turn::Crowded => return Ok(false),
                Turn::Used(back) | Turn::Unused(back) => now = back,
            }
        }
        Ok(false)
    }

    fn give_way(&mut self, now: Instant, what: &mut dyn Await) -> Result<Turn, LinkError> {
        rustix::thread::sched_yield();
        let back = penstock_process::now();
        let turn = back - now;
        let used = turn > TURN_USED_MIN;
        let come = what.look()?;
        // This also counts if the awaited bytes have come, because they may have come long ago, but
        // not if the peer used the turn to send them.
        let crowded = turn > self.policy.crowded_after && !(come && what.is_much());
        if crowded {
            self.crowded_until = Some(back + turn * CROWDED_FACTOR);
        }
        if come {
            self.yield_first = used;
            return Ok(Turn::Come);
        }
        Ok(match (crowded, used) {
            (true, _) => Turn::Crowded,
            (false, true) => Turn::Used(back),
            (false, false) => Turn::Unused(back),
        })
    }
}

/// Number of threads that wait for room.
static WAITING_FOR_ROOM: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static ROOM_WAIT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs `wait`, in which this thread waits until a link has room for what it sends.
pub(crate) fn for_room<T>(wait: impl FnOnce() -> T) -> T {
    WAITING_FOR_ROOM.fetch_add(1, Ordering::Relaxed);
    let since = penstock_process::now();
    let waited = wait();
    WAITING_FOR_ROOM.fetch_sub(1, Ordering::Relaxed);
    ROOM_WAIT.set(ROOM_WAIT.get().saturating_add(penstock_process::since(since)));
    waited
}

/// Returns the number of threads of this process that wait for room on a link now.
#[must_use]
pub fn waiting_for_room() -> u64 {
    WAITING_FOR_ROOM.load(Ordering::Relaxed)
}

/// Returns the time in which this thread has waited for room on any link, since the last call.
#[must_use]
pub fn take_room_wait() -> Duration {
    ROOM_WAIT.take()
}

/// Result of a yield, and the time of its end.
enum Turn {
    Come,
    Crowded,
    Used(Instant),
    Unused(Instant),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comes with the second look.
    struct Coming {
        looks: u32,
        much: bool,
    }

    impl Await for Coming {
        fn look(&mut self) -> Result<bool, LinkError> {
            self.looks += 1;
            Ok(self.looks > 1)
        }

        fn sleep(&mut self, _: Option<Instant>) -> Result<(), LinkError> {
            Ok(())
        }

        fn is_much(&self) -> bool {
            self.much
        }
    }

    /// Returns whether a turn that counts as long is taken for a crowd.
    fn is_crowded_after_a_long_turn(much: bool) -> bool {
        let mut waiter = Waiter::new(Policy { crowded_after: Duration::ZERO, ..Policy::DEFAULT });
        let came = waiter.wait(Patience::Forever, &mut Coming { looks: 0, much });
        assert!(matches!(came, Ok(true)));
        waiter.crowded_until.is_some()
    }

    #[test]
    fn a_turn_in_which_the_peer_sent_much_is_no_sign_of_a_crowd() {
        assert!(is_crowded_after_a_long_turn(false));
        assert!(!is_crowded_after_a_long_turn(true));
    }
}
