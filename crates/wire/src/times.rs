//! When a command's phases were.

use crate::calls::to_client::EventDone;
use crate::id::kind;
use crate::{I32, Id, Status, U64};

/// When a command was queued, submitted, started and ended, on its device's clock, in ns. All 0 where the queue does not profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `CL_PROFILING_COMMAND_QUEUED`.
    pub queued: u64,
    /// `CL_PROFILING_COMMAND_SUBMIT`.
    pub submitted: u64,
    /// `CL_PROFILING_COMMAND_START`.
    pub started: u64,
    /// `CL_PROFILING_COMMAND_END`.
    pub ended: u64,
    /// `CL_PROFILING_COMMAND_COMPLETE`.
    pub completed: u64,
}

/// Of which commands the times are told, where a queue profiles. Who reads times can tell what was told without: it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum TimesOf {
    /// Of all that have an event, so each of them takes a turn of its own at the device.
    #[default]
    Commands = 0,
    /// Of markers alone (`cuEventRecord`). Reads and writes of an idle queue then need no turn.
    Markers = 1,
}

impl TimesOf {
    /// The choice with this number.
    pub const fn from_wire(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Commands),
            1 => Some(Self::Markers),
            _ => None,
        }
    }
}

impl EventDone {
    /// Tells of an end. A status above 0 is none of an end, and is taken for 0.
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

    /// The times that it tells.
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
