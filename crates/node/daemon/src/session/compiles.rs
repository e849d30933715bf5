//! How long a driver compiles kernels when they are launched: decided without a driver and a clock.
//!
//! PoCL compiles a kernel for its work-group size at the first launch, on a thread of the device.
//! The launch is `CL_QUEUED` while it waits for other commands. Then it joins the device's line,
//! and is `CL_SUBMITTED` until the kernel itself begins. Threads take commands from the front of
//! the line. So a launch that is submitted waits for a thread, or is being compiled. It is being
//! compiled if one of these holds:
//!
//! * A command that joined the line later has been taken.
//! * Between two looks, no command of the device ran, began to run or ended: all threads compile
//!   or have nothing to do. Which of the submitted launches they compile is not known, but each of
//!   them for all of this time. So the time counts for all, until one of them goes on.
//!
//! The driver makes code for one kernel at a time, and the others wait. So the time is divided
//! between builds and launches, but into few parts: more of them may not make a limit useless.

use std::time::Duration;

use penstock_cl_sys::{CL_QUEUED, CL_SUBMITTED};
use penstock_wire::Status;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::builder::BuildLimits;

/// Most parts into which time is divided. With 16 threads that compile at the same time, the last
/// one counts for five times the time of its kernel.
const PARTS_MAX: usize = 4;

/// A device, or a part of one: only the line of a part is in order, and only the whole device is
/// known to have all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) part: u32,
    pub(crate) whole: u32,
}

/// What is known of one command's turn. Looks are numbered by their ends.
#[derive(Debug)]
pub(super) struct Turn {
    line: Line,
    is_kernel: bool,
    /// It had not joined the line when this look had ended.
    not_by: u64,
    /// It had joined the line when this look ended.
    by: Option<u64>,
    is_taken: bool,
    /// Time for which it was compiled.
    spent: Duration,
}

impl Turn {
    /// Begins with a command that is given to the device after the look with this number.
    pub(super) fn new(line: Line, is_kernel: bool, last: u64) -> Self {
        Self { line, is_kernel, not_by: last, by: None, is_taken: false, spent: Duration::ZERO }
    }

    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Whether it is a kernel that is submitted, and may be being compiled.
    pub(super) fn is_submitted(&self, status: Status) -> bool {
        self.is_kernel && status == Status(CL_SUBMITTED)
    }
}

/// One look at all commands of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Number of looks that had ended when this one began, and when it had ended.
    pub(super) began: u64,
    pub(super) ended: u64,
    /// Time since the last look.
    pub(super) passed: Duration,
    /// Number of builds that run.
    pub(super) builds: usize,
}

/// Notes the status of each command. Returns the number of kernels that are submitted.
pub(super) fn look(look: Look, commands: &mut [(Status, &mut Turn)]) -> usize {
    let mut busy: FxHashSet<u32> = FxHashSet::default();
    let mut taken: FxHashMap<Line, u64> = FxHashMap::default();
    let mut submitted = 0;
    for (status, turn) in &mut *commands {
        match *status {
            Status(CL_QUEUED) => turn.not_by = turn.not_by.max(look.began),
            Status(CL_SUBMITTED) => submitted += usize::from(turn.is_kernel),
            // It runs, or has ended since the last look.
            _ => {
                busy.insert(turn.line.whole);
                let last = taken.entry(turn.line).or_default();
                *last = turn.not_by.max(*last);
            }
        }
    }
    let part = |sharers: usize| {
        look.passed / u32::try_from(sharers.clamp(1, PARTS_MAX)).unwrap_or(u32::MAX)
    };
    for (status, turn) in commands {
        if !turn.is_submitted(*status) {
            continue;
        }
        let Some(by) = turn.by else {
            turn.by = Some(look.ended);
            continue;
        };
        // One look more than needed: a driver that is interrupted may say that a command is
        // submitted before the command joins the line.
        turn.is_taken |= taken.get(&turn.line).is_some_and(|not_by| *not_by > by);
        if turn.is_taken {
            turn.spent += part(submitted + look.builds);
        } else if busy.contains(&turn.line.whole) {
            turn.spent = Duration::ZERO;
        } else {
            turn.spent += part(1 + look.builds);
        }
    }
    submitted
}

/// What compilations have taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    /// The longest time of a kernel.
    pub(super) longest: Duration,
    /// Memory of the process, without that of objects and content, beyond what it had before.
    pub(super) grown: u64,
    /// Number of kernels that are submitted, and of builds that run.
    pub(super) kernels: usize,
    pub(super) builds: usize,
}

/// Returns why the session ends, if the compilations have taken too much. `kernel` is the one that
/// has taken longest.
pub(super) fn excess(limits: &BuildLimits, taken: &Taken, kernel: &str) -> Option<String> {
    let (most, grown) = (limits.bytes_max >> 20, taken.grown >> 20);
    let parts = taken.builds + taken.kernels.clamp(1, PARTS_MAX);
    let (what, setting) = if taken.longest > Duration::from_secs(limits.seconds_max) {
        (format!("for longer than {} s", limits.seconds_max), "PENSTOCK_BUILD_SECONDS")
    } else if taken.grown > limits.bytes_max.saturating_mul(parts as u64) {
        (format!("and took {grown} MiB for it, and may take {most} MiB"), "PENSTOCK_BUILD_MIB")
    } else {
        return None;
    };
    Some(format!(
        "the driver compiled the kernel {kernel} at its first launch {what}: make the kernel \
         smaller, or ask the administrator of the node to raise {setting} for its daemon"
    ))
}

#[cfg(test)]
mod tests;
