//! What of the program's memory may still be written by what is under way: there a copy to the device must not take its bytes before
//! that has ended, although it comes later in the stream.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ranges that are told apart; beyond, all memory counts. A program that pipelines its copies has a few buffers.
const RANGES_MAX: usize = 64;

/// The memory that reads and functions of the program, sent and not waited for, may write.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Start and end of each read's target.
    ranges: Vec<(usize, usize)>,
    /// A function of the program may write anything.
    all: bool,
    /// Reads and functions so far.
    sent: u64,
}

impl Late {
    /// A read will write there.
    pub(crate) fn read(&self, address: usize, size: usize) {
        let mut state = self.state();
        state.sent += 1;
        let range = (address, address.saturating_add(size));
        if state.ranges.iter().any(|known| known.0 <= range.0 && range.1 <= known.1) {
            return;
        }
        if state.ranges.len() < RANGES_MAX {
            state.ranges.push(range);
        } else {
            state.all = true;
        }
    }

    /// A function of the program will be called.
    pub(crate) fn call(&self) {
        let mut state = self.state();
        state.sent += 1;
        state.all = true;
    }

    /// Whether these bytes may still change.
    pub(crate) fn may_write(&self, address: usize, size: usize) -> bool {
        let (state, end) = (self.state(), address.saturating_add(size));
        state.all || state.ranges.iter().any(|range| range.0 < end && address < range.1)
    }

    /// How many were sent: to be asked before everything is waited for.
    pub(crate) fn sent(&self) -> u64 {
        self.state().sent
    }

    /// So many have ended. If more were sent meanwhile, nothing is forgotten.
    pub(crate) fn ended(&self, sent: u64) {
        let mut state = self.state();
        if state.sent == sent {
            state.ranges.clear();
            state.all = false;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_write_is_known_until_they_have_ended() {
        let late = Late::default();
        assert!(!late.may_write(0, usize::MAX));
        late.read(100, 10);
        assert!(late.may_write(109, 1) && late.may_write(90, 11));
        assert!(!late.may_write(110, 5) && !late.may_write(90, 10));
        let sent = late.sent();
        late.read(102, 4);
        late.ended(sent);
        assert!(late.may_write(100, 1), "another one was sent meanwhile");
        late.ended(late.sent());
        assert!(!late.may_write(100, 10));
    }

    #[test]
    fn functions_and_too_many_ranges_may_write_anything() {
        let late = Late::default();
        late.call();
        assert!(late.may_write(0, 1));
        late.ended(late.sent());
        assert!(!late.may_write(0, 1));
        for start in 0..=RANGES_MAX {
            late.read(1000 * start, 1);
        }
        assert!(late.may_write(1, 1));
    }
}
