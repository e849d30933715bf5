//! Core time that a session takes and that no work for its client explains.
//!
//! On a device of the host's cores a kernel is code in the worker, and can start threads of its own
//! that compute after its end. No driver knows them, so no event tells of them. But Linux counts
//! the core time of the worker, and the worker knows when it works for its client. What is left is
//! *stray*, and counts as the time of a kernel.
//!
//! A worker explains with an [`Account`], and its daemon judges with a [`Stray`]. A kernel that has
//! taken over its worker can lie about the explanation, and gains nothing that its client could not
//! have by launches of a permitted length. But it cannot keep its worker from explaining: core time
//! that nobody has looked at ends the session, too.

use std::time::Duration;

/// Part of one core that is no stray time: threads of links and drivers look for more work for a
/// while after the last one, and signs of life are sent.
const FORGIVEN: u32 = 16;

/// What a worker sees of itself when it looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doing {
    /// Core time of its process.
    pub used: Duration,
    /// Core time of its own threads: they are those of no driver and of no kernel.
    pub own: Duration,
    /// Whether a device or a compiler works for its client now.
    pub is_busy: bool,
    /// A number that changes with each step of its client's commands and builds.
    pub steps: u64,
    /// Bytes that are staged between its link and its devices.
    pub staged: u64,
}

/// What a worker tells its daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Core time of its process when it last looked.
    pub looked: Duration,
    /// How much of it is stray.
    pub stray: Duration,
}

/// Finds out in a worker which core time is stray.
#[derive(Debug, Default)]
pub struct Account {
    /// The last look, and whether something was done between the two looks before it.
    last: Option<(Doing, bool)>,
    stray: Duration,
}

impl Account {
    /// Looks at the worker. All core time since the last look is explained if something was done
    /// since then. It also is if something was done just before, because the threads of drivers
    /// look for more work for a while.
    pub fn look(&mut self, now: Doing) -> Told {
        let (last, was_done) = self.last.unwrap_or((now, true));
        let has_moved = (now.steps, now.staged) != (last.steps, last.staged);
        let is_done = last.is_busy || now.is_busy || has_moved;
        if !is_done && !was_done {
            let own = now.own.saturating_sub(last.own);
            self.stray += now.used.saturating_sub(last.used).saturating_sub(own);
        }
        self.last = Some((now, is_done));
        Told { looked: now.used, stray: self.stray }
    }

    /// Notes that nobody looks for a while: the core time until the next look is explained.
    pub fn rest(&mut self) {
        self.last = None;
    }
}

/// Judges in the daemon what a worker tells.
#[derive(Debug, Default)]
pub struct Stray {
    /// The limit at the last look.
    max: Option<Duration>,
    /// Core time of the worker at the first look.
    began: Duration,
    /// Stray time that the worker had told at the last look.
    told: Duration,
    /// Stray time that is not forgiven.
    level: Duration,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// More stray time than a kernel may have.
    Stray,
    /// Its worker has not looked for so long that a kernel on all cores would be over its limit.
    Unseen,
}

impl Stray {
    /// Looks at a session that has taken the core time `used`, the time `passed` after the last
    /// look. A kernel may have the time `max`, on all `cores` of the host. What was before a change
    /// of `max` does not count: the worker looked as often as the other limit needed.
    pub fn look(
        &mut self,
        passed: Duration,
        used: Duration,
        told: Told,
        (max, cores): (Duration, u32),
    ) -> Option<Excess> {
        if self.max != Some(max) {
            *self = Self { max: Some(max), began: used, told: told.stray, level: Duration::ZERO };
        }
        let more = told.stray.saturating_sub(self.told);
        self.told = self.told.max(told.stray);
        self.level = (self.level + more).saturating_sub(passed / FORGIVEN);
        let unseen = used.saturating_sub(told.looked.max(self.began));
        if self.level > max {
            Some(Excess::Stray)
        } else if unseen > max.saturating_mul(cores.max(1)) {
            Some(Excess::Unseen)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
