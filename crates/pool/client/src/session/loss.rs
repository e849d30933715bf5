//! The loss of a session. Everything in progress ends, once. After that, no thread of the client
//! uses the program's memory for the session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_link::LinkError;
use penstock_wire::{FrameError, Status, Times};

use super::{Open, Session};
use crate::error::Error;

impl Session {
    /// Returns the error for a call that could not be sent. If the call did not just exceed a
    /// limit, the session is lost.
    pub(super) fn not_sent(&self, error: &LinkError) -> Error {
        match error {
            LinkError::Frame(error) if *error != FrameError::Broken => Error::Frame(error.clone()),
            error => self.lose(error),
        }
    }

    /// Ends everything in progress, once. Returns the error for the caller.
    pub(super) fn lose(&self, error: &LinkError) -> Error {
        let reason: Arc<str> = error.to_string().into();
        let open = {
            let mut open = self.open.lock();
            if let Some(reason) = open.lost.clone() {
                drop(open);
                self.tell_loss(error, &reason);
                self.await_copies();
                return Error::Lost { node: self.name.clone(), reason };
            }
            std::mem::replace(&mut *open, Open { lost: Some(reason.clone()), ..Open::default() })
        };
        if let Some(tally) = self.tally() {
            tally.lose();
        }
        // The link of a forked child belongs to its parent.
        if !matches!(error, LinkError::Forked) {
            self.sender.close();
        }
        self.tell_loss(error, &reason);
        self.await_copies();
        for event in open.events.into_values() {
            event.end(Status::NODE_LOST, Times::default());
        }
        for answer in open.requests.into_values() {
            answer.set(Status::NODE_LOST, Vec::new());
        }
        // Under the lock, so that no thread falls asleep between its check of `lost` and its wait.
        drop(self.turn.lock());
        self.served.notify_all();
        self.needed.notify_all();
        Error::Lost { node: self.name.clone(), reason }
    }

    /// Tells the person of the loss, once. Returns when that is done, because the program may end
    /// as soon as any of its threads has the error.
    fn tell_loss(&self, error: &LinkError, reason: &str) {
        let on_loss = self.on_loss.get().filter(|_| !matches!(error, LinkError::Forked));
        let Some((once, tell)) = on_loss else { return };
        // Nothing in here loses a session, so it does not enter itself. If it has panicked on one
        // thread, the next thread tries again, because a panic must not leave a C function.
        once.call_once_force(|_| {
            // Only a fault of a kernel has a code of CUDA.
            let is_of_kernel = self.fault().and_then(penstock_wire::cuda::code).is_some();
            let more = if is_of_kernel { self.notices.suspects() } else { None };
            tell(&format!("{reason}{}", more.unwrap_or_default()));
        });
    }

    /// Waits until no thread copies to or from the program's memory any more, and then shows all
    /// threads that the session is lost.
    ///
    /// Must be called when [`Open::lost`] is set, so that no other read begins to land. The memory
    /// of a command belongs to the program again as soon as the program sees the command's event,
    /// or any wait, fail. At that moment the receiving thread may be in the middle of a read's
    /// bytes, and another thread in the middle of those of a write that was held back. Both copies
    /// stop at the next piece because the link is closed, so the wait takes as long as one piece.
    /// The thread that set [`Open::lost`] may not have closed it yet, so this does, too: a write
    /// that begins after the wait must take no byte.
    pub(super) fn await_copies(&self) {
        // In a forked child the threads that copy do not exist, and their locks are never released.
        if !matches!(self.sender.check(), Err(LinkError::Forked)) {
            self.sender.close();
            drop(self.landing.lock());
            drop(self.departing.lock());
        }
        self.lost.store(true, Ordering::Release);
    }

    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns the status with which the worker has ended the session, if it has.
    pub(crate) fn fault(&self) -> Option<Status> {
        Some(self.fault.load(Ordering::Acquire)).filter(|status| *status != 0).map(Status)
    }

    /// Returns the error for a status that the worker, or the loss of the session, has set.
    pub(crate) fn refused(&self, status: Status) -> Error {
        let lost = self.open.lock().lost.clone();
        let node = self.name.clone();
        match lost {
            Some(reason) => {
                // The program may take this error for the end of all its commands.
                self.await_copies();
                Error::Lost { node, reason }
            }
            None => Error::Refused { node, status },
        }
    }
}
