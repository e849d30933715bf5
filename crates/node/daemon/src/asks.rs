//! The machines that a daemon asks for its workers, because they make no connections.
//!
//! A worker can have only those machines asked to which the daemon has given it a link. This file
//! decides, and `dial.rs` asks.

use std::time::{Duration, Instant};

use penstock_link::Machine;

use crate::dials::PEERS_PER_SESSION_MAX;

/// Most machines of a worker: one for each peer, and that of its client.
const MACHINES_MAX: usize = PEERS_PER_SESSION_MAX + 1;

/// Questions that a worker may ask at once, and the interval at which it may ask one more. Each of
/// its links asks once in 3 s at most, so this is enough for 60 links that are silent at the same
/// time. A question that is refused is asked again 3 s later.
const AT_ONCE_MAX: u32 = 60;
const ONE_EVERY: Duration = Duration::from_millis(50);

/// What one worker may have asked. Has no clock.
#[derive(Debug)]
pub(crate) struct Asks {
    machines: Vec<Machine>,
    /// Questions that may be asked now.
    left: u32,
    /// When `left` was last counted.
    counted: Instant,
}

impl Asks {
    pub(crate) fn new(now: Instant) -> Self {
        Self { machines: Vec::new(), left: AT_ONCE_MAX, counted: now }
    }

    /// Notes that the worker gets a link to this machine.
    pub(crate) fn learn(&mut self, machine: Option<Machine>) {
        if let Some(machine) = machine
            && self.machines.len() < MACHINES_MAX
            && !self.machines.contains(&machine)
        {
            self.machines.push(machine);
        }
    }

    /// Returns whether the worker may have this machine asked now, and counts the question.
    pub(crate) fn may_ask(&mut self, machine: &Machine, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted);
        let more = u32::try_from(passed.as_millis() / ONE_EVERY.as_millis()).unwrap_or(u32::MAX);
        if more > 0 {
            self.counted = now;
            self.left = self.left.saturating_add(more).min(AT_ONCE_MAX);
        }
        let may = self.left > 0 && self.machines.contains(machine);
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_at_the_end_of_a_link_are_asked() {
        let now = Instant::now();
        let mut asks = Asks::new(now);
        let (own, other) = (Machine::Number(5), Machine::Behind("/run/g".into()));
        assert!(!asks.may_ask(&own, now));
        asks.learn(None);
        asks.learn(Some(own.clone()));
        assert!(asks.may_ask(&own, now) && !asks.may_ask(&other, now));
        asks.learn(Some(other.clone()));
        assert!(asks.may_ask(&other, now));
        for number in 0..2 * u32::try_from(MACHINES_MAX).unwrap() {
            asks.learn(Some(Machine::Number(number)));
        }
        assert_eq!(asks.machines.len(), MACHINES_MAX);
    }

    #[test]
    fn a_worker_asks_no_more_often_than_its_links_need() {
        let start = Instant::now();
        let machine = Machine::Number(5);
        let mut asks = Asks::new(start);
        asks.learn(Some(machine.clone()));
        let mut asked = |at: Duration| {
            let may = (0..1000).filter(|_| asks.may_ask(&machine, start + at));
            u32::try_from(may.count()).unwrap()
        };
        assert_eq!(asked(Duration::ZERO), AT_ONCE_MAX);
        assert_eq!(asked(ONE_EVERY / 2), 0);
        assert_eq!(asked(ONE_EVERY), 1);
        assert_eq!(asked(ONE_EVERY * 11), 10);
        assert_eq!(asked(Duration::from_secs(3600)), AT_ONCE_MAX);
    }
}
