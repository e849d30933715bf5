//! The threads of a client: one that runs callbacks, and for each session one that receives while nobody else does. Both
//! start when they are first needed; a program that only finishes and reads needs neither.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

struct Callbacks {
    jobs: VecDeque<Job>,
    started: bool,
}

static CALLBACKS: Mutex<Callbacks> = Mutex::new(Callbacks { jobs: VecDeque::new(), started: false });
static CALLBACK_ADDED: Condvar = Condvar::new();

/// Runs `job` in the callback thread: the specification leaves the thread open, and a callback in the middle of somebody's
/// wait could deadlock with it.
pub(crate) fn call_back(job: Job) {
    let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    callbacks.jobs.push_back(job);
    if !callbacks.started {
        let thread = thread::Builder::new().name("penstock-callback".into()).spawn(run_callbacks);
        callbacks.started = thread.is_ok();
    }
    drop(callbacks);
    CALLBACK_ADDED.notify_one();
}

fn run_callbacks() {
    let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = callbacks.jobs.pop_front() {
            drop(callbacks);
            // A panic of one callback must not take the others with it.
            _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        } else {
            callbacks = CALLBACK_ADDED.wait(callbacks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

static USER_EVENTS: Mutex<()> = Mutex::new(());
static USER_EVENT_ENDED: Condvar = Condvar::new();

/// Waits for a user event, which another thread of the program ends.
pub(crate) fn wait_for_user_event(done: &dyn Fn() -> bool) {
    let mut guard = USER_EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    while !done() {
        guard = USER_EVENT_ENDED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Wakes those who wait for user events.
pub(crate) fn user_event_ended() {
    drop(USER_EVENTS.lock().unwrap_or_else(PoisonError::into_inner));
    USER_EVENT_ENDED.notify_all();
}
