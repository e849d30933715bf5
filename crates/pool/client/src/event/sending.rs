//! The sending of a command that was held back, and the end that waits for it.
//!
//! A thread of the client sends such a command, and reads the program's memory while it does. The
//! program may free that memory as soon as it learns that the command has ended. But the end may
//! come first: the node is lost, or the worker refuses the command after it has read the head. So
//! there are three cases, and [`Stage`] decides between them.
//!
//! * An end that comes before the sending begins is told at once. The sending then never begins.
//! * An end that comes during the sending is kept. The sending thread tells it when it has let go
//!   of the memory. The thread always comes to that point: [`Sending`] takes the step even if the
//!   thread panics, and a link that a loss has closed takes no more bytes.
//! * An end that comes later is told at once. So is each end of a command that was not held back.
//!
//! The event's lock is held for each step, so each end belongs to exactly one case.

use std::sync::atomic::Ordering;

use penstock_wire::{Status, Times};

use super::Event;
use crate::progress;

/// How far the sending of a command is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// No thread reads the program's memory yet.
    #[default]
    Held,
    /// A thread sends the command. This is the first end that has come meanwhile.
    UnderWay(Option<Box<(Status, Times)>>),
    /// The command was sent, or never will be.
    Over,
}

impl Stage {
    /// Begins the sending. Returns `false` if the command must not be sent, because it has ended.
    fn begin(&mut self) -> bool {
        let may_begin = matches!(self, Self::Held);
        if may_begin {
            *self = Self::UnderWay(None);
        }
        may_begin
    }

    /// Takes an end. Returns whether the caller tells it. If not, it is kept or is not the first.
    pub(super) fn end(&mut self, status: Status, times: Times) -> bool {
        if let Self::UnderWay(kept) = self {
            kept.get_or_insert_with(|| Box::new((status, times)));
            return false;
        }
        *self = Self::Over;
        true
    }

    /// Ends the sending. Returns the kept end, which the caller tells.
    fn finish(&mut self) -> Option<Box<(Status, Times)>> {
        match std::mem::replace(self, Self::Over) {
            Self::UnderWay(kept) => kept,
            Self::Held | Self::Over => None,
        }
    }
}

/// A command that is being sent. While this exists, no thread learns that the command has ended.
#[must_use]
pub(crate) struct Sending<'a> {
    event: &'a Event,
    outcome: Status,
}

impl Sending<'_> {
    /// Notes how the sending has ended. A failure ends the event, if no other end came first.
    pub(crate) fn finish(mut self, outcome: Status) {
        self.outcome = outcome;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.outcome.is_error() {
            self.event.end(self.outcome, Times::default());
        }
        self.event.mark_sent();
    }
}

impl Event {
    /// Begins to send a command that was held back. Returns `None` if it has ended already.
    pub(crate) fn begin_sending(&self) -> Option<Sending<'_>> {
        let may_begin = self.0.shared.lock().stage.begin();
        // The outcome is that of a thread that panics while it sends.
        may_begin.then(|| Sending { event: self, outcome: Status::OUT_OF_RESOURCES })
    }

    /// Notes that the command was sent, or never will be. The caller then calls
    /// [`progress::user_event_ended`].
    pub(crate) fn mark_sent(&self) {
        let kept = self.0.shared.lock().stage.finish();
        // The end comes first: a thread that finds the command sent waits for the worker, which
        // does not tell this end again.
        if let Some(end) = kept {
            self.tell_end(end.0, end.1);
        }
        self.0.is_sent.store(true, Ordering::Release);
    }

    /// Waits until the command was sent or has failed.
    pub(crate) fn wait_until_sent(&self) {
        if !self.is_sent() {
            progress::wait_for_user_event(&|| self.is_sent());
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.0.is_sent.load(Ordering::Acquire) || self.raw_status().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use penstock_cl_sys::CL_SUBMITTED;
    use penstock_process::Lock;

    use super::*;

    /// What may happen to a command that is held back.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        /// The sending ends, or, if it has not begun, the command is given up.
        Finish,
        /// The worker or a loss ends the command.
        End(Status),
    }

    fn held() -> Event {
        Event::new(None, crate::ids::next_id(), CL_SUBMITTED, false)
    }

    /// Calls `check` with all orders of `left` behind `done`.
    fn each_order(done: &mut Vec<Step>, left: &[Step], check: &mut dyn FnMut(&[Step])) {
        if left.is_empty() {
            check(done);
        }
        for (index, step) in left.iter().enumerate() {
            done.push(*step);
            each_order(done, &[&left[..index], &left[index + 1..]].concat(), check);
            done.pop();
        }
    }

    fn first_end_counts(order: &[Step], outcome: Status) {
        let (event, told) = (held(), Arc::new(Lock::new(Vec::new())));
        let hears = told.clone();
        event.when_ended(move |status| hears.lock().push(status));
        let (mut sending, mut first) = (None, None);
        for step in order {
            match step {
                Step::Begin => {
                    let may_begin = !event.is_sent();
                    sending = event.begin_sending();
                    assert_eq!(sending.is_some(), may_begin, "{order:?}");
                }
                Step::Finish => match sending.take() {
                    Some(sending) => {
                        sending.finish(outcome);
                        first = first.or(Some(outcome).filter(|status| status.is_error()));
                    }
                    None => event.mark_sent(),
                },
                Step::End(status) => {
                    event.end(*status, Times::default());
                    first = first.or(Some(*status));
                }
            }
            let expected = first.filter(|_| sending.is_none());
            assert_eq!(event.raw_status(), expected, "{order:?}");
            assert_eq!(told.lock().as_slice(), expected.as_slice(), "{order:?}");
        }
        assert!(event.is_sent());
    }

    #[test]
    fn the_first_end_is_told_once_and_never_while_the_command_is_sent() {
        let steps = [Step::Begin, Step::Finish, Step::End(Status(-5)), Step::End(Status::OK)];
        let mut orders = 0;
        each_order(&mut Vec::new(), &steps, &mut |order| {
            orders += 1;
            first_end_counts(order, Status::OK);
            first_end_counts(order, Status(-7));
        });
        assert_eq!(orders, 24);
    }

    #[test]
    fn a_thread_that_panics_while_it_sends_ends_the_command() {
        for (end, told) in [(None, Status::OUT_OF_RESOURCES), (Some(Status(-5)), Status(-5))] {
            let event = held();
            let sent = catch_unwind(AssertUnwindSafe(|| {
                let _sending = event.begin_sending();
                if let Some(status) = end {
                    event.end(status, Times::default());
                }
                panic!("a panic of the test");
            }));
            assert!(sent.is_err());
            assert_eq!(event.raw_status(), Some(told));
        }
    }
}
