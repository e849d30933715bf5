//! Events: the status of commands, callbacks, and what other commands wait for.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use penstock_cl_sys::{
    _cl_event, CL_COMMAND_USER, CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS,
    CL_EVENT_COMMAND_TYPE, CL_PROFILING_COMMAND_COMPLETE, CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_SUBMIT,
    CL_PROFILING_INFO_NOT_AVAILABLE, CL_QUEUED, CL_SUBMITTED, cl_context, cl_event, cl_event_info,
    cl_int, cl_profiling_info, cl_uint,
};
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::clock::Stamp;
use super::context::Context;
use super::object::{self, Address, Body, Object, Ref};

pub(super) struct Event {
    command: u32,
    /// Number of the stream; `None` for a user event.
    stream: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// `CL_QUEUED`, `CL_SUBMITTED`, `CL_COMPLETE`, or a negative error code.
    status: cl_int,
    /// End of the command in its stream, once it has been issued.
    stamp: Option<Arc<Stamp>>,
    /// Whether the host still has to copy bytes when the device reaches `stamp`.
    lands: bool,
    told: Vec<Told>,
    times: Option<Times>,
}

/// Times of a command's phases, in ns on the host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) queued: u64,
    pub(super) submitted: u64,
    pub(super) started: u64,
    pub(super) ended: u64,
}

type Callback = unsafe extern "C" fn(cl_event, cl_int, *mut c_void);

/// A callback that is due at `status`.
struct Told {
    status: cl_int,
    callback: Callback,
    data: Address<c_void>,
}

/// Callbacks that are due. They must be called without any lock.
#[must_use]
pub(super) struct Callbacks {
    event: Ref<Event>,
    status: cl_int,
    due: Vec<Told>,
}

impl Callbacks {
    pub(super) fn call(self) {
        for told in self.due {
            // "event_command_status ... if the command was abnormally terminated, the error code".
            // Otherwise it is the status that the callback was registered for.
            let status = if self.status < 0 { self.status } else { told.status };
            // SAFETY: function and data come from `clSetEventCallback`; called once, and the event
            // lives.
            unsafe { (told.callback)(self.event.handle(), status, told.data.get()) };
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

impl Body for Event {
    type Raw = _cl_event;
    const TAG: usize = 0x5043_4406;
    const WRONG: Status = Status::INVALID_EVENT;
}

impl Event {
    pub(super) fn of_command(command: u32, stream: u64) -> Ref<Self> {
        Self::new(command, Some(stream), CL_QUEUED)
    }

    fn new(command: u32, stream: Option<u64>, status: cl_int) -> Ref<Self> {
        Object::new(Self {
            command,
            stream,
            state: Mutex::new(State {
                status,
                stamp: None,
                lands: false,
                told: Vec::new(),
                times: None,
            }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> cl_int {
        self.lock().status
    }

    /// Returns what a command of this stream must do about the event.
    pub(super) fn wait_in(&self, stream: u64) -> Wait {
        let state = self.lock();
        match (&state.stamp, state.status) {
            (_, ..0) => Wait::Failed,
            (_, 0) => Wait::Over,
            (Some(_), _) if self.stream == Some(stream) => Wait::Over,
            (Some(stamp), _) => Wait::Stamp(stamp.clone(), state.lands),
            (None, _) => Wait::Host,
        }
    }

    /// Blocks until the event has a stamp or has ended.
    pub(super) fn wait_until_sent(&self) {
        let mut state = self.lock();
        while state.status > 0 && state.stamp.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until it has ended.
    pub(super) fn wait_until_ended(&self) -> cl_int {
        let mut state = self.lock();
        while state.status > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.status
    }
}

impl Object<Event> {
    /// Marks the command as issued. `lands`: the host has to copy bytes when the device is done.
    pub(super) fn sent(self: &Ref<Event>, stamp: Arc<Stamp>, lands: bool) -> Callbacks {
        self.change(CL_SUBMITTED, |state| {
            state.stamp = Some(stamp);
            state.lands = lands;
        })
    }

    /// Ends the event with `CL_COMPLETE` or a failure. Only the first call counts.
    pub(super) fn end(self: &Ref<Event>, status: cl_int, times: Option<Times>) -> Callbacks {
        self.change(status, |state| {
            state.times = times;
            state.stamp = None;
        })
    }

    fn change(self: &Ref<Event>, status: cl_int, set: impl FnOnce(&mut State)) -> Callbacks {
        let mut state = self.lock();
        let mut due = Vec::new();
        if state.status > status.max(0) {
            state.status = status;
            set(&mut state);
            let (now, later) =
                std::mem::take(&mut state.told).into_iter().partition(|told| status <= told.status);
            (due, state.told) = (now, later);
            self.changed.notify_all();
        }
        Callbacks { event: self.clone(), status, due }
    }

    /// Registers a callback, or returns it if it is due already.
    fn tell(self: &Ref<Event>, told: Told) -> Callbacks {
        let mut state = self.lock();
        let status = state.status;
        let mut due = Vec::new();
        if status <= told.status {
            due.push(told);
        } else {
            state.told.push(told);
        }
        Callbacks { event: self.clone(), status, due }
    }
}

pub(super) unsafe extern "C" fn create_user(context: cl_context, code: *mut cl_int) -> cl_event {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        unsafe { object::get::<Context>(context) }?;
        Ok(object::give(Event::new(CL_COMMAND_USER, None, CL_SUBMITTED)))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

pub(super) unsafe extern "C" fn set_user_status(event: cl_event, status: cl_int) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let event = unsafe { object::share::<Event>(event) }?;
        // "CL_INVALID_VALUE if the execution_status is not CL_COMPLETE or a negative integer
        // value."
        if status > 0 {
            return Err(Status::INVALID_VALUE);
        }
        // "CL_INVALID_OPERATION if the execution_status for event has already been changed by a
        // previous call".
        if event.command != CL_COMMAND_USER || event.status() <= 0 {
            return Err(Status::INVALID_OPERATION);
        }
        event.end(status, None).call();
        Ok(())
    })
}

pub(super) unsafe extern "C" fn set_callback(
    event: cl_event,
    status: cl_int,
    callback: Option<Callback>,
    data: *mut c_void,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let event = unsafe { object::share::<Event>(event) }?;
        let callback = callback.ok_or(Status::INVALID_VALUE)?;
        if !(CL_COMPLETE..=CL_SUBMITTED).contains(&status) {
            return Err(Status::INVALID_VALUE);
        }
        event.tell(Told { status, callback, data: Address::new(data) }).call();
        Ok(())
    })
}

pub(super) unsafe extern "C" fn release(event: cl_event) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Event>(event) }
}

pub(super) unsafe extern "C" fn wait(count: cl_uint, list: *const cl_event) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes `count` live events.
        let events = unsafe { object::share_list::<Event>(count, list, Status::INVALID_VALUE) }?;
        let failed = events.iter().map(|event| event.wait_until_ended()).any(|status| status < 0);
        if failed { Err(Status::WAIT_LIST_FAILED) } else { Ok(()) }
    })
}

pub(super) unsafe extern "C" fn get_info(
    event: cl_event,
    name: cl_event_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let event = unsafe { object::get::<Event>(event) }?;
        let answer = match name {
            CL_EVENT_COMMAND_EXECUTION_STATUS => Answer::int(event.status()),
            CL_EVENT_COMMAND_TYPE => Answer::uint(event.command),
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&answer) }
    })
}

pub(super) unsafe extern "C" fn get_profiling_info(
    event: cl_event,
    name: cl_profiling_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let event = unsafe { object::get::<Event>(event) }?;
        let times = event.lock().times.ok_or(Status(CL_PROFILING_INFO_NOT_AVAILABLE))?;
        let time = match name {
            CL_PROFILING_COMMAND_QUEUED => times.queued,
            CL_PROFILING_COMMAND_SUBMIT => times.submitted,
            CL_PROFILING_COMMAND_START => times.started,
            CL_PROFILING_COMMAND_END | CL_PROFILING_COMMAND_COMPLETE => times.ended,
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&Answer::ulong(time)) }
    })
}
