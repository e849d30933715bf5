//! Events: how a command ended, and when.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, TryLockError};

use penstock_cl_sys::{
    CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_COMPLETE, CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_SUBMIT, cl_event,
};
pub use penstock_wire::Times;
use penstock_wire::status::Status;

use super::api::{self, function, owned};
use super::context::Context;
use super::queue::Queue;
use super::watch::{self, Inside};

owned!(
    /// One reference to a `cl_event`.
    OwnedEvent(cl_event),
    clReleaseEvent
);

/// What PoCL gives a command that fails because another one did. As a code it is `CL_DEVICE_NOT_FOUND`, which no command
/// ends with.
const POCL_FAILED: i32 = -1;

/// The completion of one command, or a user event. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Event(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Released by `drop`.
    raw: ManuallyDrop<OwnedEvent>,
    context: Context,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Command {
        profiles: bool,
        /// Whether it had a wait list.
        waited: bool,
    },
    /// A user event, and whether nobody has set it.
    User { is_open: AtomicBool },
    /// An event without times.
    Other,
}

impl Event {
    /// Takes over the event of a command of `queue`.
    pub(super) fn of_command(raw: cl_event, queue: &Queue, waited: bool) -> Self {
        let kind = Kind::Command { profiles: queue.profiles(), waited };
        Self::of_kind(raw, queue.context(), kind)
    }

    /// Takes over an event without times.
    pub(super) fn of_context(raw: cl_event, context: &Context) -> Self {
        Self::of_kind(raw, context, Kind::Other)
    }

    fn of_kind(raw: cl_event, context: &Context, kind: Kind) -> Self {
        let raw = ManuallyDrop::new(OwnedEvent::take(raw));
        Self(Arc::new(Inner { raw, context: context.clone(), kind }))
    }

    /// `clCreateUserEvent`.
    ///
    /// # Errors
    /// The driver's.
    pub fn user(context: &Context) -> Result<Self, Status> {
        let create = function!(clCreateUserEvent)?;
        let mut code = 0;
        // SAFETY: the context lives.
        let raw = unsafe { create(context.raw(), &mut code) };
        let raw = api::made(raw, code)?;
        context.note_user_event();
        Ok(Self::of_kind(raw, context, Kind::User { is_open: AtomicBool::new(true) }))
    }

    /// `clSetUserEventStatus`: [`Status::OK`] or a failure. Whatever waits for the event, directly or not, then ends with
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`. May be called from anywhere, also from a completion.
    ///
    /// # Errors
    /// The driver's, so `CL_INVALID_OPERATION` the second time.
    pub fn complete(&self, status: Status) -> Result<(), Status> {
        if !status.is_error() {
            return self.set_status(Status::OK);
        }
        let context = &self.0.context;
        context.note_user_event_failed();
        // Not to be waited for: who enqueues may be below us on this very stack, inside the driver, or wait for a
        // completion that we are part of.
        match context.failing().try_write() {
            Ok(_nobody_enqueues) => self.set_status(status)?,
            Err(TryLockError::Poisoned(_)) => self.set_status(status)?,
            Err(TryLockError::WouldBlock) => {
                watch::fail_later(self.clone(), status);
                return Ok(());
            }
        }
        watch::look_for_failures();
        Ok(())
    }

    /// As [`Self::complete`] with a failure, where waiting is no danger.
    pub(super) fn fail_now(&self, status: Status) {
        {
            let _nobody_enqueues = loop {
                match self.0.context.failing().try_write() {
                    Ok(guard) => break guard,
                    Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
                    // Enqueuing takes microseconds. A waiting writer would make later readers wait, of whom one may hold
                    // the lock already, further down its stack.
                    Err(TryLockError::WouldBlock) => {
                        std::thread::sleep(std::time::Duration::from_micros(50))
                    }
                }
            };
            let _ = self.set_status(status);
        }
        watch::look_for_failures();
    }

    fn set_status(&self, status: Status) -> Result<(), Status> {
        let set = function!(clSetUserEventStatus)?;
        let _inside = Inside::enter();
        // SAFETY: the event lives.
        api::check(unsafe { set(self.raw(), status.0) })?;
        if let Kind::User { is_open } = &self.0.kind
            && is_open.swap(false, Ordering::AcqRel)
        {
            self.0.context.note_user_event_ended();
        }
        Ok(())
    }

    pub(super) fn raw(&self) -> cl_event {
        self.0.raw.raw()
    }

    /// The number of its context, see [`Context::id`].
    pub fn context_id(&self) -> u64 {
        self.0.context.id()
    }

    /// How its command stands: positive (`CL_QUEUED`, `CL_SUBMITTED`, `CL_RUNNING`) while it has not ended.
    pub fn status(&self) -> Status {
        match raw_status(&self.0.raw) {
            // "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the execution status of any of the events in the wait list is
            // a negative integer value": PoCL 3.1 has a code of its own for it, Oclgrind hands on the first failure's.
            Ok(code)
                if code < 0
                    && (self.has_waited() || code == POCL_FAILED)
                    && self.0.context.has_failed_user_event() =>
            {
                Status::WAIT_LIST_FAILED
            }
            Ok(code) => Status(code),
            Err(status) => status,
        }
    }

    fn has_waited(&self) -> bool {
        matches!(self.0.kind, Kind::Command { waited: true, .. })
    }

    /// When its command's phases were.
    pub fn times(&self) -> Times {
        if !matches!(self.0.kind, Kind::Command { profiles: true, .. }) {
            return Times::default();
        }
        let started = self.time(CL_PROFILING_COMMAND_START);
        let ended = self.time(CL_PROFILING_COMMAND_END);
        // Intel's runtime gives a marker no time at which it was queued. No phase begins later than the one after it, so
        // that one's time stands in.
        let submitted = known_or(self.time(CL_PROFILING_COMMAND_SUBMIT), started);
        Times {
            queued: known_or(self.time(CL_PROFILING_COMMAND_QUEUED), submitted),
            submitted,
            started,
            ended,
            // A driver older than 2.0 does not know it: there, no kernel has children that end later.
            completed: known_or(self.time(CL_PROFILING_COMMAND_COMPLETE), ended),
        }
    }

    fn time(&self, name: u32) -> u64 {
        let Ok(get) = function!(clGetEventProfilingInfo) else { return 0 };
        // SAFETY: the event lives, and `number` gives a place of the size it names.
        api::number(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
        .unwrap_or(0)
    }

    /// Blocks until it has ended.
    ///
    /// # Errors
    /// How its command failed.
    pub fn wait(&self) -> Result<(), Status> {
        let wait = function!(clWaitForEvents)?;
        let list = [self.raw()];
        let waited = {
            let _inside = Inside::enter();
            // SAFETY: the list has one event, which lives.
            api::check(unsafe { wait(1, list.as_ptr()) })
        };
        let status = self.status();
        if status.is_error() { Err(status) } else { waited }
    }

    /// Calls `done` once when the event has ended, well or not: in a thread of the driver or a helper's, or in this one
    /// before this returns. It must not block. The queue must be flushed, or it may never be called.
    pub fn on_complete(&self, done: Box<dyn FnOnce(Status, Times) + Send>) {
        watch::on_complete(self, done);
    }
}

impl Drop for Inner {
    /// Releases the event, or keeps it until that does no harm.
    ///
    /// PoCL 3.1 aborts the process where a command fails whose event has no other reference than its queue's: it gives that
    /// one back and then unlocks the event. It does the same where something that a failed command waited for ends later,
    /// which may be the command before it in its queue: it still tells the failed one. Commands fail with a user event, in
    /// the call that sets it. So while a context has user events, and after one has failed, only the event of a command
    /// that has succeeded is released, and not within such a call.
    fn drop(&mut self) {
        // SAFETY: This is done once, and nobody uses the place again.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        let context = &self.context;
        if let Kind::User { is_open } = &self.kind {
            if is_open.load(Ordering::Acquire) {
                context.note_user_event_ended();
            }
            return drop(raw);
        }
        if !context.may_fail() {
            return drop(raw);
        }
        let nobody_fails = match context.failing().try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match raw_status(&raw) {
            Ok(status) if status > 0 || (status == Status::OK.0 && nobody_fails.is_none()) => {
                let kind = std::mem::replace(&mut self.kind, Kind::Other);
                let (raw, context) = (ManuallyDrop::new(raw), context.clone());
                watch::keep(Event(Arc::new(Self { raw, context, kind })));
            }
            // While no user event can fail.
            Ok(0) => drop(raw),
            _ => context.keep_failed(raw),
        }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}
impl Eq for Event {}

/// `CL_EVENT_COMMAND_EXECUTION_STATUS` as the driver says it.
fn raw_status(event: &OwnedEvent) -> Result<i32, Status> {
    let get = function!(clGetEventInfo)?;
    // SAFETY: the event lives, and `number` gives a place of the size it names.
    api::number::<i32>(|size, value, true_size| unsafe {
        get(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS, size, value, true_size)
    })
}

/// A time that the driver gave, or the other one where it gave 0.
fn known_or(time: u64, other: u64) -> u64 {
    if time == 0 { other } else { time }
}
