//! What was counted, as plain numbers.

use std::time::Duration;

use super::kinds::{COMMANDS, Command, REASONS, Reason};

/// A number of commands with their bytes, or a number of waits with their ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) count: u64,
    pub(super) sum: u64,
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// Returns the time of waits.
    pub(super) fn time(self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the time of one wait.
    pub(super) fn average(self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count).unwrap_or_default())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) commands: [Amount; COMMANDS],
    pub(super) waits: [Amount; REASONS],
}

impl Counts {
    pub(super) fn command(&self, command: Command) -> Amount {
        self.commands[command as usize]
    }

    pub(super) fn wait(&self, reason: Reason) -> Amount {
        self.waits[reason as usize]
    }

    /// Returns the time of all waits.
    pub(super) fn waited(&self) -> Duration {
        self.waits.iter().map(|wait| wait.time()).sum()
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            commands: std::array::from_fn(|at| self.commands[at].plus(other.commands[at])),
            waits: std::array::from_fn(|at| self.waits[at].plus(other.waits[at])),
        }
    }
}

/// What a process has counted until its end.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) process: u32,
    pub(super) program: String,
    pub(super) face: &'static str,
    /// Time since the program's first call that opened the pool.
    pub(super) ran: Duration,
    /// Number of threads of the program that have waited.
    pub(super) threads: u64,
    /// Number of waits that have not ended.
    pub(super) open: u64,
    /// Waits for no particular node.
    pub(super) others: Counts,
    pub(super) nodes: Vec<NodeFigures>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeFigures {
    pub(super) name: String,
    pub(super) is_lost: bool,
    pub(super) counts: Counts,
}

impl Figures {
    pub(super) fn total(&self) -> Counts {
        self.nodes.iter().fold(self.others, |sum, node| sum.plus(&node.counts))
    }
}
