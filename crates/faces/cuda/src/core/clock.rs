//! How far a stream is, as far as the client knows.
//!
//! The commands of a stream have the ordinals 1, 2, 3 and so on. A clock holds marks on that line:
//!
//! ```text
//! ordinals   1    2    3    4    5    6    7    8
//!                 ^         ^         ^         ^
//!                 checked   ended     silent    issued
//! ```
//!
//! * `issued`: the last command that was sent.
//! * `ended`: the last command that is known to have ended. All commands before it have ended, too,
//!   because the queue is in order.
//! * `silent`: the last command whose event nobody looks at. Only a wait for the queue reports its
//!   failure.
//! * `checked`: the last command that had been sent when the queue was last waited for.
//! * `noticed`: the last command whose end the program can notice without a wait of its own. Fills,
//!   copies on one device, copies to the device whose bytes are taken, and kernels only change
//!   memory of the device, if the program and kernels never had memory together.
//!
//! The stream is idle if `ended` has reached `issued`. A wait for its queue brings no news if also
//! `checked` has reached `silent`.
//!
//! Two more marks say which commands of the other side later commands wait for already, so that no
//! wait list names a command twice. The legacy default stream and the blocking streams have them:
//!
//! * `legacy_seen`: the last command *of the legacy default stream* for which commands of this
//!   stream wait.
//! * `seen_by_legacy`: the last command of this stream for which commands of the legacy default
//!   stream wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// The marks of one stream. They only grow, except for the two that [`StreamClock::forget_legacy`]
/// and [`StreamClock::forget_seen_by_legacy`] reset.
#[derive(Debug, Default)]
pub(crate) struct StreamClock {
    issued: AtomicU64,
    ended: AtomicU64,
    silent: AtomicU64,
    checked: AtomicU64,
    noticed: AtomicU64,
    legacy_seen: AtomicU64,
    seen_by_legacy: AtomicU64,
}

impl StreamClock {
    /// Counts a command that was sent. Returns its ordinal.
    #[inline]
    pub(crate) fn count(&self, has_event: bool, is_noticed: bool) -> u64 {
        let serial = self.issued.fetch_add(1, Ordering::AcqRel) + 1;
        if !has_event {
            self.note_silent(serial);
        }
        if is_noticed {
            self.noticed.fetch_max(serial, Ordering::AcqRel);
        }
        serial
    }

    /// Notes that nobody looks at the event of this command, so only the queue reports its failure.
    pub(crate) fn note_silent(&self, serial: u64) {
        self.silent.fetch_max(serial, Ordering::AcqRel);
    }

    /// Notes that this number of commands has ended.
    pub(crate) fn note_ended(&self, serial: u64) {
        self.ended.fetch_max(serial, Ordering::AcqRel);
    }

    /// Notes that the queue was waited for after this number of commands.
    pub(crate) fn note_checked(&self, serial: u64) {
        self.note_ended(serial);
        self.checked.fetch_max(serial, Ordering::AcqRel);
    }

    /// Returns the number of commands so far.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Returns whether all commands have ended, as far as is known.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.ended.load(Ordering::Acquire) >= self.issued()
    }

    /// Returns whether the program can notice the end of no command that is still open, as far as
    /// is known.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ended.load(Ordering::Acquire) >= self.noticed.load(Ordering::Acquire)
    }

    /// Returns whether a wait for the queue is superfluous: all commands have ended, and the queue
    /// has reported every failure that only a wait reports.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_idle()
            && self.checked.load(Ordering::Acquire) >= self.silent.load(Ordering::Acquire)
    }

    /// Notes that the next command of this stream waits for the first `issued` commands of the
    /// legacy default stream. Returns false if commands of this stream wait for all of them
    /// already.
    pub(crate) fn see_legacy(&self, issued: u64) -> bool {
        self.legacy_seen.swap(issued, Ordering::AcqRel) < issued
    }

    /// Notes that the next command of the legacy default stream waits for the first `issued`
    /// commands of this stream. Returns false if commands there wait for all of them already.
    pub(crate) fn be_seen_by_legacy(&self, issued: u64) -> bool {
        self.seen_by_legacy.swap(issued, Ordering::AcqRel) < issued
    }

    /// Makes the next command of this stream wait again for all of the legacy default stream.
    pub(crate) fn forget_legacy(&self) {
        self.legacy_seen.store(0, Ordering::Release);
    }

    /// Makes the next command of the legacy default stream wait again for all of this stream.
    pub(crate) fn forget_seen_by_legacy(&self) {
        self.seen_by_legacy.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_stream_with_a_silent_command_still_has_news() {
        let clock = StreamClock::default();
        assert!(clock.is_idle() && clock.is_settled());
        assert_eq!((clock.count(true, true), clock.count(false, true)), (1, 2));
        assert!(!clock.is_idle() && !clock.is_settled());
        // An event told the end of both commands, but the failure of the second one is not known.
        clock.note_ended(2);
        assert!(clock.is_idle() && !clock.is_settled());
        clock.note_checked(2);
        assert!(clock.is_settled());
        // The end of an earlier command is no news.
        clock.note_ended(1);
        assert!(clock.is_idle());
    }

    #[test]
    fn only_an_open_command_that_the_program_can_notice_disturbs() {
        let clock = StreamClock::default();
        clock.count(false, false);
        assert!(clock.is_quiet() && !clock.is_idle());
        clock.count(false, true);
        clock.count(false, false);
        assert!(!clock.is_quiet());
        clock.note_ended(2);
        assert!(clock.is_quiet() && !clock.is_idle());
    }

    #[test]
    fn each_side_waits_for_the_other_once() {
        let clock = StreamClock::default();
        assert!(clock.see_legacy(3) && !clock.see_legacy(3) && clock.see_legacy(4));
        assert!(clock.be_seen_by_legacy(1) && !clock.be_seen_by_legacy(1));
        clock.forget_legacy();
        assert!(clock.see_legacy(4) && !clock.be_seen_by_legacy(1));
        clock.forget_seen_by_legacy();
        assert!(clock.be_seen_by_legacy(1) && !clock.see_legacy(4));
    }
}
