//! Events: how and when a command ended. The lowest part of the interface, because every driver
//! makes them and takes them in wait lists.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use penstock_process::Lock;
pub use penstock_wire::Times;
use penstock_wire::status::Status;

use crate::staging::Staged;

/// Function that is called once when an event has ended, with its status and the times of its
/// command.
pub type Done = Box<dyn FnOnce(Status, Times) + Send>;

/// A driver's event.
pub(crate) trait EventDriver: Any + Send + Sync {
    /// Returns the number of its context, see [`crate::Context::id`].
    fn context_id(&self) -> u64;

    /// Returns the status: positive until the end, then [`Status::OK`] or a failure.
    fn status(&self) -> Status;

    /// Returns the times of its command's phases; all are 0 if the driver does not know them.
    fn times(&self) -> Times;

    /// Blocks until the event has ended; fails with the error of its command.
    fn wait(&self) -> Result<(), Status>;

    /// Sets the status of a user event.
    fn complete(self: Arc<Self>, status: Status) -> Result<(), Status>;

    /// Calls `done` once when the event has ended.
    fn on_complete(self: Arc<Self>, done: Done);
}

/// The completion of a command, or a user event. Cheap to clone.
#[derive(Clone)]
pub struct Event(pub(crate) Arc<dyn EventDriver>);

impl Event {
    /// Returns the driver's object if the event is of this kind.
    pub(crate) fn driver<T: EventDriver>(&self) -> Result<&T, Status> {
        let any: &dyn Any = self.0.as_ref();
        any.downcast_ref().ok_or(Status::INVALID_CONTEXT)
    }

    /// As [`Event::driver`], and keeps the object.
    pub(crate) fn shared_driver<T: EventDriver>(&self) -> Result<Arc<T>, Status> {
        let any: Arc<dyn Any + Send + Sync> = self.0.clone();
        any.downcast().map_err(|_| Status::INVALID_CONTEXT)
    }

    /// Returns the number of its context, see [`crate::Context::id`].
    pub fn context_id(&self) -> u64 {
        self.0.context_id()
    }

    /// Returns the status: positive (`CL_QUEUED`, `CL_SUBMITTED`, `CL_RUNNING`) until the end.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Returns the times of its command's phases; all are 0 if the queue does not profile.
    pub fn times(&self) -> Times {
        self.0.times()
    }

    /// Blocks until the event has ended.
    ///
    /// # Errors
    /// The error with which its command failed.
    pub fn wait(&self) -> Result<(), Status> {
        self.0.wait()
    }

    /// `clSetUserEventStatus` with [`Status::OK`] or a failure. After a failure, all commands that
    /// wait for the event, directly or not, end with
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`. Completion callbacks may call this.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` for the second call.
    pub fn complete(&self, status: Status) -> Result<(), Status> {
        self.0.clone().complete(status)
    }

    /// Calls `done` once when the event has ended, on a thread of the driver, a helper or the
    /// caller. `done` must not block. Unless the queue is flushed, it may never be called.
    pub fn on_complete(&self, done: Done) {
        self.0.clone().on_complete(done);
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// A pending read. If dropped, it still keeps the bytes until the command has ended.
pub struct Reading {
    event: Event,
    bytes: Option<ReadBytes>,
}

/// Where the bytes of a read are until the command has ended.
pub(crate) enum ReadBytes {
    /// The reading keeps the bytes. The driver writes to them until the event has ended.
    Kept(Staged),
    /// The driver keeps the bytes, too.
    Shared(Arc<Lock<Staged>>),
}

impl ReadBytes {
    /// Returns the bytes of a command that has ended.
    fn take(self, status: Status) -> Staged {
        match self {
            Self::Kept(bytes) => bytes,
            // Parts of a command that failed may still be under way.
            Self::Shared(_) if status.is_error() => Staged::default(),
            Self::Shared(bytes) => std::mem::take(&mut *bytes.lock()),
        }
    }
}

impl Reading {
    pub(crate) fn new(event: Event, bytes: ReadBytes) -> Self {
        Self { event, bytes: Some(bytes) }
    }

    pub fn event(&self) -> &Event {
        &self.event
    }

    /// As [`Event::on_complete`], with the bytes; their content and number are unspecified if the
    /// read failed.
    pub fn on_complete(mut self, done: Box<dyn FnOnce(Status, Times, Staged) + Send>) {
        if let Some(bytes) = self.bytes.take() {
            let end = move |status, times| done(status, times, bytes.take(status));
            self.event.on_complete(Box::new(end));
        }
    }

    /// Blocks until the bytes are there.
    ///
    /// # Errors
    /// The error with which the read failed.
    pub fn wait(mut self) -> Result<Staged, Status> {
        self.event.wait()?;
        self.bytes.take().map(|bytes| bytes.take(Status::OK)).ok_or(Status::OUT_OF_RESOURCES)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(bytes @ ReadBytes::Kept(_)) = self.bytes.take() {
            self.event.on_complete(Box::new(move |_, _| drop(bytes)));
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("event", &self.event).finish_non_exhaustive()
    }
}
