//! Completion callbacks: each is called exactly once, whatever the driver does.
//!
//! Drivers differ when commands fail. PoCL 3.1 does not call back for a command that failed because
//! of its wait list; if the callback is set after the failure, it calls back at once, with success.
//! So a driver's callback is only a hint to look. Awaited events are kept here and checked after
//! each failure of a user event, and every [`LOOK_EVERY`] in any case.
//!
//! A driver may also call back within a call of ours on the same thread. A completion could then
//! make further calls and meet a lock that is held further down the stack. So completions are
//! collected within our calls ([`Inside`]), and run when the outermost call returns.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use penstock_cl_sys::{CL_COMPLETE, cl_event, cl_int};
use penstock_process::{Guard, Lock, Signal};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::event::Event;
use crate::event::{Done, EventDriver, Times};

/// Longest time that an end without a callback stays unseen. Ten looks per second cost next to
/// nothing, and happen only while something is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same for events whose callback the driver refused.
const LOOK_OFTEN: Duration = Duration::from_millis(1);
/// Most events that one round checks, the oldest first: 200 µs.
const LOOKS_MAX: usize = 4096;

struct Awaited {
    event: Arc<Event>,
    done: Done,
    /// Whether the driver refused the callback.
    only_looked_at: bool,
    /// Whether the last look found it ended. If no callback comes until the next look, none will.
    had_ended: bool,
}

#[derive(Default)]
struct State {
    next: usize,
    awaited: BTreeMap<usize, Awaited>,
    failures: Vec<(Arc<Event>, Status)>,
    /// Events that nobody holds any more, but that must not be released yet.
    kept: Vec<Arc<Event>>,
    only_looked_at: usize,
    helper: Helper,
}

#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum Helper {
    #[default]
    NotStarted,
    Working,
    /// Nothing is awaited; the helper sleeps until it is woken.
    Asleep,
}

static STATE: Lock<State> = Lock::new(State {
    next: 1,
    awaited: BTreeMap::new(),
    failures: Vec::new(),
    kept: Vec::new(),
    only_looked_at: 0,
    helper: Helper::NotStarted,
});
static WAKE: Signal = Signal::new();

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static COLLECTED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Delays completions on this thread while it lives. Make it before any lock that they may need.
#[derive(Debug)]
pub(super) struct Inside(());

impl Inside {
    pub(super) fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let left = DEPTH.with(|depth| {
            depth.set(depth.get() - 1);
            depth.get() == 0
        });
        if left {
            // A completion may collect more.
            while let Some(number) = COLLECTED.with(|collected| collected.borrow_mut().pop()) {
                tell(number);
            }
        }
    }
}

pub(super) fn on_complete(event: Arc<Event>, done: Done) {
    let number = {
        let mut state = lock();
        let number = state.next;
        state.next += 1;
        let awaited =
            Awaited { event: event.clone(), done, only_looked_at: false, had_ended: false };
        state.awaited.insert(number, awaited);
        state.wake_helper();
        number
    };
    let data = std::ptr::without_provenance_mut::<c_void>(number);
    let inside = Inside::enter();
    let set = function!(clSetEventCallback).and_then(|set| {
        // SAFETY: the event lives; `called_back` takes a number, so a second call is harmless.
        api::check(unsafe { set(event.raw(), CL_COMPLETE, Some(called_back), data) })
    });
    drop(inside);
    // Oclgrind does not call back for an event that ended before. `tell` runs each completion once.
    if event.status().0 <= 0 {
        return tell(number);
    }
    if set.is_err() {
        let mut state = lock();
        if let Some(awaited) = state.awaited.get_mut(&number) {
            awaited.only_looked_at = true;
            state.only_looked_at += 1;
            WAKE.notify_one();
        }
    }
}

/// Fails a user event as soon as nobody is enqueueing.
pub(super) fn fail_later(event: Arc<Event>, status: Status) {
    let mut state = lock();
    state.failures.push((event, status));
    state.wake_helper();
    WAKE.notify_one();
}

/// Keeps an event until it may be released. Nobody waits for that, so it is not urgent.
pub(super) fn keep(event: Arc<Event>) {
    let mut state = lock();
    state.kept.push(event);
    state.wake_helper();
}

/// Runs the completions of all events that have failed.
pub(super) fn look_for_failures() {
    look(usize::MAX, false);
}

unsafe extern "C" fn called_back(_event: cl_event, _status: cl_int, data: *mut c_void) {
    let number = data.addr();
    if DEPTH.with(Cell::get) > 0 {
        COLLECTED.with(|collected| collected.borrow_mut().push(number));
    } else {
        tell(number);
    }
}

/// Runs a completion, unless that has been done.
fn tell(number: usize) {
    let awaited = {
        let mut state = lock();
        let awaited = state.awaited.remove(&number);
        if awaited.as_ref().is_some_and(|awaited| awaited.only_looked_at) {
            state.only_looked_at -= 1;
        }
        awaited
    };
    let Some(Awaited { event, done, .. }) = awaited else { return };
    // The code that comes with a callback is not reliable, see above.
    let status = event.status();
    let status = if status.0 > 0 { Status::OK } else { status };
    let times = if status.is_error() { Times::default() } else { event.times() };
    // A panic must not reach the driver's code. Such a panic is a defect that tests must find.
    let _ = catch_unwind(AssertUnwindSafe(move || {
        done(status, times);
        drop(event);
    }));
}

/// Checks the awaited events. Reports failures at once, successes only on the second look.
fn look(most: usize, for_successes: bool) {
    let events: Vec<(usize, Arc<Event>)> = {
        let state = lock();
        state
            .awaited
            .iter()
            .take(most)
            .map(|(&number, awaited)| (number, awaited.event.clone()))
            .collect()
    };
    for (number, event) in events {
        let status = event.status();
        if status.is_error() || (for_successes && status == Status::OK && is_overdue(number)) {
            tell(number);
        }
    }
}

fn is_overdue(number: usize) -> bool {
    let mut state = lock();
    state.awaited.get_mut(&number).is_some_and(|awaited| {
        std::mem::replace(&mut awaited.had_ended, true) || awaited.only_looked_at
    })
}

fn lock() -> Guard<'static, State> {
    STATE.lock()
}

impl State {
    fn wake_helper(&mut self) {
        match self.helper {
            Helper::Working => {}
            Helper::Asleep => {
                self.helper = Helper::Working;
                WAKE.notify_one();
            }
            Helper::NotStarted => {
                // Without it callbacks still work; the next completion tries again.
                if penstock_process::start_with_stack("penstock-watch", 128 << 10, help).is_ok() {
                    self.helper = Helper::Working;
                }
            }
        }
    }
}

fn help() {
    loop {
        let failures = {
            let mut state = lock();
            if state.awaited.is_empty() && state.failures.is_empty() && state.kept.is_empty() {
                state.helper = Helper::Asleep;
                while state.helper == Helper::Asleep {
                    state = WAKE.wait(state);
                }
            }
            if state.failures.is_empty() {
                let patience = if state.only_looked_at > 0 { LOOK_OFTEN } else { LOOK_EVERY };
                state = WAKE.wait_timeout(state, patience).0;
            }
            std::mem::take(&mut state.failures)
        };
        for (event, status) in failures {
            event.fail_now(status);
        }
        look(LOOKS_MAX, true);
        let kept = std::mem::take(&mut lock().kept);
        // Those that still must not be released put themselves back.
        drop(kept);
        super::pins::look();
    }
}
