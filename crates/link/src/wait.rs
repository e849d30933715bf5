//! How long to wait, and how: spin a little, then give way to others on this core, then sleep.

use std::time::{Duration, Instant};

use crate::error::LinkError;

/// How long a caller waits for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    Never,
    /// Until then.
    Until(Instant),
    /// Until a frame comes or the link ends.
    Forever,
}

impl Patience {
    /// When it ends; nothing for [`Patience::Forever`].
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Never => Some(Instant::now()),
            Self::Until(deadline) => Some(deadline),
            Self::Forever => None,
        }
    }
}

/// How a thread waits before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Looks without a pause so long: a peer that runs on another core answers within it.
    pub spin_for: Duration,
    /// Then gives way to others between two looks so long: a peer on this core gets to run, and waking a sleeping core,
    /// which costs 35-45 µs, is avoided.
    pub yield_for: Duration,
    /// A turn of giving way that took longer than this was used by somebody who computes: a scheduler lets such a one run
    /// for 3 ms, but prefers to it a thread that wakes from sleep. So for some time one sleeps at once.
    pub crowded_after: Duration,
}

impl Policy {
    /// The measured choice; see `examples/ping.rs`.
    pub const DEFAULT: Self = Self {
        spin_for: Duration::from_micros(4),
        yield_for: Duration::from_micros(50),
        crowded_after: Duration::from_micros(100),
    };
    /// Sleeps at once.
    pub const SLEEP: Self =
        Self { spin_for: Duration::ZERO, yield_for: Duration::ZERO, crowded_after: Duration::ZERO };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// After a turn that others used for long, so many times its length passes before the next one: 0.4 % of the time is lost
/// on a core where others compute all the time.
const CROWDED_FACTOR: u32 = 256;

/// Where bytes of a payload are awaited that has begun to come, the peer is at work on them, so giving way goes on so many times as long:
/// 500 µs, in which a peer on the same core fills a socket (4 MiB at 8 GB/s). Who sleeps instead is woken by the first 64 KiB, and has the
/// scheduler keep both on one core.
const FLOW_FACTOR: u32 = 10;

/// A turn of giving way in which nobody else ran takes some 0.3 µs, one in which somebody did 1 µs and more.
const TURN_USED_MIN: Duration = Duration::from_nanos(900);

/// Looks between two readings of the clock, which cost as much as several looks.
const LOOKS_PER_CLOCK: u32 = 8;

/// Something to wait for.
pub(crate) trait Await {
    /// Whether it has come. Must be cheap, and must fail when it can come no more.
    fn look(&mut self) -> Result<bool, LinkError>;
    /// Sleeps until it may have come, or the deadline.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), LinkError>;
    /// Whether it is more of what has begun to come.
    fn flows(&self) -> bool {
        false
    }
    /// Whether so much has come that the peer was at work on it just now.
    fn is_much(&self) -> bool {
        false
    }
}

/// One thread's waiting, which learns from its past.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) policy: Policy,
    /// Others compute on this core: until then, sleep at once.
    crowded_until: Option<Instant>,
    /// The peer may want this core, so the next wait starts with giving way: looking without a pause would only keep it from
    /// running. Known when the last wait ended because another thread had run here, or in sleep, after which the
    /// scheduler likes to put both on one core.
    yield_first: bool,
}

impl Waiter {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, crowded_until: None, yield_first: true }
    }

    /// Waits; `false`: patience ended.
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
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
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
        let mut now = Instant::now();
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
            now = Instant::now();
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
        let back = Instant::now();
        let turn = back - now;
        let used = turn > TURN_USED_MIN;
        let come = what.look()?;
        // Also when what we wait for has come: it may have come long ago. But not when the peer had the turn, to send it.
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

/// How a turn of giving way ended, and when.
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

    /// Whether a turn that counts as long, however short it was, is taken for a crowd.
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
