//! Events: the status of commands, callbacks, and what other commands wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_cl_sys::{CL_QUEUED, CL_SUBMITTED};
use penstock_process::{Guard, Lock, Signal};
use penstock_wire::status::Status;

use super::clock::Stamp;
use crate::event::{Done, EventDriver, Times};

pub(super) struct Event {
    /// Number of the context.
    context: u64,
    /// Number of the stream; `None` for a user event.
    stream: Option<u64>,
    progress: Lock<Progress>,
    changed: Signal,
}

struct Progress {
    /// `CL_QUEUED`, `CL_SUBMITTED`, `CL_COMPLETE`, or a failure.
    status: Status,
    /// End of the command in its stream, once it has been issued.
    stamp: Option<Arc<Stamp>>,
    /// Whether the host still has to copy bytes when the device reaches `stamp`.
    lands: bool,
    told: Vec<Done>,
    times: Times,
}

/// Callbacks that are due. They must be called without any lock.
#[must_use]
pub(super) struct Callbacks {
    status: Status,
    times: Times,
    due: Vec<Done>,
}

impl Callbacks {
    pub(super) fn call(self) {
        for done in self.due {
            // A panic must not end the thread, which other commands need. Such a panic is a defect
            // that tests must find.
            _ = catch_unwind(AssertUnwindSafe(|| done(self.status, self.times)));
        }
    }
}

/// What a command must do about an event in its wait list.
pub(super) enum Wait {
    /// Nothing: the event has ended, or is earlier in the same stream.
    Over,
    Failed,
    /// The command's stream waits for the stamp. If the flag is set, the host has work after it.
    Stamp(Arc<Stamp>, bool),
    /// The host must wait for the event.
    Host,
}

impl Event {
    pub(super) fn of_command(context: u64, stream: u64) -> Arc<Self> {
        Self::new(context, Some(stream), Status(CL_QUEUED))
    }

    pub(super) fn of_user(context: u64) -> Arc<Self> {
        Self::new(context, None, Status(CL_SUBMITTED))
    }

    fn new(context: u64, stream: Option<u64>, status: Status) -> Arc<Self> {
        let (told, times) = (Vec::new(), Times::default());
        let progress = Progress { status, stamp: None, lands: false, told, times };
        let (progress, changed) = (Lock::new(progress), Signal::new());
        Arc::new(Self { context, stream, progress, changed })
    }

    fn lock(&self) -> Guard<'_, Progress> {
        self.progress.lock()
    }

    /// Returns what a command of this stream must do about the event.
    pub(super) fn wait_in(&self, stream: u64) -> Wait {
        let progress = self.lock();
        match (&progress.stamp, progress.status.0) {
            (_, ..0) => Wait::Failed,
            (_, 0) => Wait::Over,
            (Some(_), _) if self.stream == Some(stream) => Wait::Over,
            (Some(stamp), _) => Wait::Stamp(stamp.clone(), progress.lands),
            (None, _) => Wait::Host,
        }
    }

    /// Blocks until the event has a stamp or has ended.
    pub(super) fn wait_until_sent(&self) {
        let is_open = |it: &mut Progress| it.status.0 > 0 && it.stamp.is_none();
        let sent = self.changed.wait_while(self.lock(), is_open);
        drop(sent);
    }

    /// Blocks until it has ended.
    pub(super) fn wait_until_ended(&self) -> Status {
        let ended = self.changed.wait_while(self.lock(), |progress| progress.status.0 > 0);
        ended.status
    }

    /// Marks the command as issued. `lands`: the host has to copy bytes when the device is done.
    pub(super) fn sent(&self, stamp: Arc<Stamp>, lands: bool) {
        let mut progress = self.lock();
        if progress.status.0 > 0 {
            progress.status = Status(CL_SUBMITTED);
            (progress.stamp, progress.lands) = (Some(stamp), lands);
            self.changed.notify_all();
        }
    }

    /// Ends the event with [`Status::OK`] or a failure. Only the first call counts.
    pub(super) fn end(&self, status: Status, times: Times) -> Callbacks {
        let mut progress = self.lock();
        let mut due = Vec::new();
        if progress.status.0 > 0 {
            (progress.status, progress.times) = (status, times);
            progress.stamp = None;
            due = std::mem::take(&mut progress.told);
            self.changed.notify_all();
        }
        Callbacks { status, times, due }
    }
}

impl EventDriver for Event {
    fn context_id(&self) -> u64 {
        self.context
    }

    fn status(&self) -> Status {
        self.lock().status
    }

    fn times(&self) -> Times {
        self.lock().times
    }

    fn wait(&self) -> Result<(), Status> {
        self.wait_until_ended().ok()
    }

    fn complete(self: Arc<Self>, status: Status) -> Result<(), Status> {
        // "CL_INVALID_OPERATION if the execution_status for event has already been changed by a
        // previous call".
        if self.stream.is_some() || self.status().0 <= 0 {
            return Err(Status::INVALID_OPERATION);
        }
        let status = if status.is_error() { status } else { Status::OK };
        self.end(status, Times::default()).call();
        Ok(())
    }

    fn on_complete(self: Arc<Self>, done: Done) {
        let mut progress = self.lock();
        if progress.status.0 > 0 {
            return progress.told.push(done);
        }
        let (status, times) = (progress.status, progress.times);
        drop(progress);
        Callbacks { status, times, due: vec![done] }.call();
    }
}
