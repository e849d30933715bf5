//! What of the program's memory may still be written by what is under way: there a copy to the device must not take its bytes before
//! that has ended, although it comes later in the stream.

use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_client::Event;

/// Ranges that are told apart, and functions; beyond, all memory counts. A program that pipelines its copies has a few buffers.
const RANGES_MAX: usize = 64;

/// The memory that reads and functions of the program, sent and not ended as far as is known, may write.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Start and end of each read's target, and what ends with it.
    reads: Vec<(usize, usize, Event)>,
    /// What ends with each function of the program, which may write anything.
    calls: Vec<Event>,
    /// There were too many at once: until all is waited for, everything counts.
    all: bool,
    /// Reads and functions so far.
    sent: u64,
}

fn is_under_way(event: &Event) -> bool {
    event.known_status().is_none()
}

impl Late {
    /// A read was sent that writes there until `event` has ended.
    pub(crate) fn read(&self, address: usize, size: usize, event: Event) {
        let mut state = self.state();
        state.sent += 1;
        state.reads.retain(|(.., event)| is_under_way(event));
        if state.reads.len() < RANGES_MAX {
            state.reads.push((address, address.saturating_add(size), event));
        } else {
            state.all = true;
        }
    }

    /// A function of the program will be called, and has returned when `event` has ended.
    pub(crate) fn call(&self, event: Event) {
        let mut state = self.state();
        state.sent += 1;
        state.calls.retain(is_under_way);
        if state.calls.len() < RANGES_MAX {
            state.calls.push(event);
        } else {
            state.all = true;
        }
    }

    /// Whether these bytes may still change.
    pub(crate) fn may_write(&self, address: usize, size: usize) -> bool {
        let (state, end) = (self.state(), address.saturating_add(size));
        let mut reads = state.reads.iter().filter(|(start, over, _)| *start < end && address < *over);
        state.all || state.calls.iter().any(is_under_way) || reads.any(|(.., event)| is_under_way(event))
    }

    /// How many were sent: to be asked before everything is waited for.
    pub(crate) fn sent(&self) -> u64 {
        self.state().sent
    }

    /// So many have ended. If more were sent meanwhile, nothing is forgotten.
    pub(crate) fn ended(&self, sent: u64) {
        let mut state = self.state();
        if state.sent == sent {
            *state = State { sent, ..State::default() };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use penstock_wire::Status;

    use super::*;

    #[test]
    fn what_reads_write_is_known_until_they_have_ended() {
        let (late, first, second) = (Late::default(), Event::user(), Event::user());
        assert!(!late.may_write(0, usize::MAX));
        late.read(100, 10, first.clone());
        assert!(late.may_write(109, 1) && late.may_write(90, 11));
        assert!(!late.may_write(110, 5) && !late.may_write(90, 10));
        let sent = late.sent();
        late.read(102, 4, second.clone());
        late.ended(sent);
        assert!(late.may_write(100, 1), "another one was sent meanwhile");
        first.set_status(Status::OK);
        assert!(!late.may_write(100, 2) && late.may_write(100, 3));
        // Where all has been waited for, nothing is under way, whatever the link has brought.
        late.ended(late.sent());
        assert!(!late.may_write(100, 10));
    }

    #[test]
    fn functions_and_too_many_ranges_may_write_anything() {
        let (late, called) = (Late::default(), Event::user());
        late.call(called.clone());
        assert!(late.may_write(0, 1));
        called.set_status(Status::OK);
        assert!(!late.may_write(0, 1));
        // As many as are told apart one after the other, and one more at once.
        let reads: Vec<_> = (0..=RANGES_MAX).map(|_| Event::user()).collect();
        for read in &reads {
            late.read(1000, 1, read.clone());
            read.set_status(Status::OK);
        }
        assert!(!late.may_write(0, usize::MAX));
        for start in 0..=RANGES_MAX {
            late.read(1000 * start, 1, Event::user());
        }
        assert!(late.may_write(1, 1));
        late.ended(late.sent());
        assert!(!late.may_write(0, usize::MAX));
    }
}
