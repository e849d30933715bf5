//! The threads of a client: one that runs callbacks, one that sends what others must not wait for, and for each session one
//! that receives while nobody else does. All start when they are first needed; a program that only finishes and reads needs
//! none.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A thread and what it has to do, in order.
struct Worker {
    jobs: Mutex<Jobs>,
    added: Condvar,
    name: &'static str,
}

struct Jobs {
    queue: VecDeque<Job>,
    started: bool,
}

static CALLBACKS: Worker = Worker::new("penstock-callback");
/// Not the thread of callbacks: those are the program's, and may take any time.
static SENDS: Worker = Worker::new("penstock-send");

/// Runs `job` in the callback thread: the specification leaves the thread open, and a callback in the middle of somebody's
/// wait could deadlock with it.
pub(crate) fn call_back(job: Job) {
    CALLBACKS.add(job);
}

/// Runs `job`, which sends and may wait for room on a link, in a thread that receives nothing and has no locks.
pub fn send_later(job: Box<dyn FnOnce() + Send>) {
    SENDS.add(job);
}

impl Worker {
    const fn new(name: &'static str) -> Self {
        let jobs = Jobs { queue: VecDeque::new(), started: false };
        Self { jobs: Mutex::new(jobs), added: Condvar::new(), name }
    }

    fn add(&'static self, job: Job) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.queue.push_back(job);
        if !jobs.started {
            let thread = thread::Builder::new().name(self.name.into()).spawn(|| self.run());
            jobs.started = thread.is_ok();
        }
        drop(jobs);
        self.added.notify_one();
    }

    fn run(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = jobs.queue.pop_front() {
                drop(jobs);
                penstock_trial::delay(penstock_trial::Place::ClientJobs);
                // A panic of one callback must not take the others with it.
                _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            } else {
                jobs = self.added.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
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
