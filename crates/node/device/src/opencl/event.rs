//! Events: how and when a command ended.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, TryLockError};

use penstock_cl_sys::{
    CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_COMPLETE, CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_SUBMIT, cl_event,
};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::owned::OwnedEvent;
use super::watch::{self, Inside};
use crate::event::{Done, EventDriver, Times};

/// Status that PoCL gives a command that fails because another one did. As a code it is
/// `CL_DEVICE_NOT_FOUND`, which no command ends with.
const POCL_FAILED: i32 = -1;

/// The completion of a command, or a user event.
#[derive(Debug)]
pub(super) struct Event {
    /// Released by `drop` of this type.
    raw: ManuallyDrop<OwnedEvent>,
    context: Context,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Command {
        profiles: bool,
        /// Whether the command had a wait list.
        waited: bool,
    },
    /// A user event; `is_open` until its status is set.
    User { is_open: AtomicBool },
    /// An event without times.
    Other,
}

impl Event {
    /// Takes over the event of a command of a queue.
    pub(super) fn of_command(
        raw: cl_event,
        context: &Context,
        profiles: bool,
        waited: bool,
    ) -> Arc<Self> {
        Self::of_kind(raw, context, Kind::Command { profiles, waited })
    }

    /// Takes over an event without times.
    pub(super) fn of_context(raw: cl_event, context: &Context) -> Arc<Self> {
        Self::of_kind(raw, context, Kind::Other)
    }

    fn of_kind(raw: cl_event, context: &Context, kind: Kind) -> Arc<Self> {
        let raw = ManuallyDrop::new(OwnedEvent::take(raw));
        Arc::new(Self { raw, context: context.clone(), kind })
    }

    /// `clCreateUserEvent`.
    pub(super) fn user(context: &Context) -> Result<Arc<Self>, Status> {
        let create = function!(clCreateUserEvent)?;
        let mut code = 0;
        // SAFETY: the context lives.
        let raw = unsafe { create(context.raw(), &mut code) };
        let raw = api::made(raw, code)?;
        context.note_user_event();
        Ok(Self::of_kind(raw, context, Kind::User { is_open: AtomicBool::new(true) }))
    }

    /// As [`EventDriver::complete`] with a failure, for threads that may block.
    pub(super) fn fail_now(&self, status: Status) {
        {
            let _nobody_enqueues = loop {
                match self.context.failing().try_write() {
                    Ok(guard) => break guard,
                    Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
                    // Enqueueing takes microseconds. A blocked writer would block later readers,
                    // and such a reader may hold the lock already, further down its stack.
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
        if let Kind::User { is_open } = &self.kind
            && is_open.swap(false, Ordering::AcqRel)
        {
            self.context.note_user_event_ended();
        }
        Ok(())
    }

    pub(super) fn raw(&self) -> cl_event {
        self.raw.raw()
    }

    fn has_waited(&self) -> bool {
        matches!(self.kind, Kind::Command { waited: true, .. })
    }

    fn time(&self, name: u32) -> u64 {
        let Ok(get) = function!(clGetEventProfilingInfo) else { return 0 };
        // SAFETY: the event lives, and `number` passes a location of the given size.
        api::number(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
        .unwrap_or(0)
    }
}

impl EventDriver for Event {
    fn context_id(&self) -> u64 {
        self.context.id()
    }

    fn status(&self) -> Status {
        match raw_status(&self.raw) {
            // "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST if the execution status of any of the
            // events in the wait list is a negative integer value": PoCL 3.1 uses its own code;
            // Oclgrind passes the first failure's code on.
            Ok(code)
                if code < 0
                    && (self.has_waited() || code == POCL_FAILED)
                    && self.context.has_failed_user_event() =>
            {
                Status::WAIT_LIST_FAILED
            }
            Ok(code) => Status(code),
            Err(status) => status,
        }
    }

    fn times(&self) -> Times {
        if !matches!(self.kind, Kind::Command { profiles: true, .. }) {
            return Times::default();
        }
        let started = self.time(CL_PROFILING_COMMAND_START);
        let ended = self.time(CL_PROFILING_COMMAND_END);
        // Intel's runtime gives a marker no queueing time; the next phase's time stands in.
        let submitted = known_or(self.time(CL_PROFILING_COMMAND_SUBMIT), started);
        Times {
            queued: known_or(self.time(CL_PROFILING_COMMAND_QUEUED), submitted),
            submitted,
            started,
            ended,
            // A driver older than 2.0 has no such time; its kernels have no children.
            completed: known_or(self.time(CL_PROFILING_COMMAND_COMPLETE), ended),
        }
    }

    fn wait(&self) -> Result<(), Status> {
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

    fn complete(self: Arc<Self>, status: Status) -> Result<(), Status> {
        if !status.is_error() {
            return self.set_status(Status::OK);
        }
        let context = &self.context;
        context.note_user_event_failed();
        // This must not block: the thread that enqueues may be this one, further down the stack
        // inside the driver, or it may wait for the completion callback that runs this.
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

    fn on_complete(self: Arc<Self>, done: Done) {
        watch::on_complete(self, done);
    }
}

impl Drop for Event {
    /// Releases the event, or keeps it until releasing it does no harm.
    ///
    /// PoCL 3.1 aborts the process if a command fails whose event only its queue holds: it drops
    /// that reference and then unlocks the event. The same happens if something that a failed
    /// command waited for ends later, for example the command before it in its queue, because it
    /// still notifies the failed one. Commands fail with a user event, within the call that sets
    /// it. So while a context has user events, and after one has failed, only events of commands
    /// that succeeded are released, and not within such a call.
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and nothing uses the field afterwards.
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
                watch::keep(Arc::new(Self { raw, context, kind }));
            }
            // No user event can fail meanwhile.
            Ok(0) => drop(raw),
            _ => context.keep_failed(raw),
        }
    }
}

/// Returns `CL_EVENT_COMMAND_EXECUTION_STATUS` as the driver reports it.
fn raw_status(event: &OwnedEvent) -> Result<i32, Status> {
    let get = function!(clGetEventInfo)?;
    // SAFETY: the event lives, and `number` passes a location of the given size.
    api::number::<i32>(|size, value, true_size| unsafe {
        get(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS, size, value, true_size)
    })
}

/// Returns the driver's time, or `other` if the driver gave 0.
fn known_or(time: u64, other: u64) -> u64 {
    if time == 0 { other } else { time }
}
