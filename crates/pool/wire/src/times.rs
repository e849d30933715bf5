//! The times of a command's phases.

use crate::calls::to_client::EventDone;
use crate::id::kind;
use crate::{I32, Id, Status, U64};

/// Times of a command's phases on its device's clock, in ns. All are 0 if the queue does not
/// profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub queued: u64,
    pub submitted: u64,
    pub started: u64,
    pub ended: u64,
    /// Time of `CL_PROFILING_COMMAND_COMPLETE`: the end of the command and of all that it enqueued
    /// on the device.
    pub completed: u64,
}

/// Selects the commands whose times a profiling queue tells. The times of all other commands are
/// told as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum TimesOf {
    /// All commands that have an event. Each of them then takes a turn of its own at the device.
    #[default]
    Commands = 0,
    /// Only markers (`cuEventRecord`). Reads and writes of an idle queue then need no turn at the
    /// device.
    Markers = 1,
}

impl TimesOf {
    /// Returns the choice with this number.
    pub const fn from_wire(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Commands),
            1 => Some(Self::Markers),
            _ => None,
        }
    }
}

impl EventDone {
    /// Makes the message that tells the end of a command. A positive `status` is not that of an
    /// ended command and becomes 0.
    pub fn new(event: Id<kind::Event>, status: Status, times: Times) -> Self {
        Self {
            event,
            status: I32::new(status.0.min(0)),
            queued: U64::new(times.queued),
            submitted: U64::new(times.submitted),
            started: U64::new(times.started),
            ended: U64::new(times.ended),
            completed: U64::new(times.completed),
        }
    }

    /// Returns the times that the message carries.
    pub fn times(&self) -> Times {
        Times {
            queued: self.queued.get(),
            submitted: self.submitted.get(),
            started: self.started.get(),
            ended: self.ended.get(),
            completed: self.completed.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_told_end_are_those_it_was_told_with() {
        let times = Times { queued: 1, submitted: 2, started: 3, ended: 4, completed: 5 };
        let told = EventDone::new(Id::new(7), Status::OK, times);
        assert_eq!((told.event, told.status, told.times()), (Id::new(7), I32::ZERO, times));
        assert_eq!(told.queued.get(), 1);
        assert_eq!(EventDone::new(Id::new(7), Status(3), times).status, I32::ZERO);
    }
}
