//! The threads of a client. One runs callbacks, one sends what other threads must not wait for, and
//! one per session receives while no other thread does. Each starts when it is first needed. A
//! program that only finishes and reads needs none.

use std::collections::VecDeque;

use penstock_process::{Lock, Signal};

use crate::summary::{self, Reason};

type Job = Box<dyn FnOnce() + Send>;

/// A thread and its jobs, in order.
struct Worker {
    jobs: Lock<Jobs>,
    added: Signal,
    name: &'static str,
}

struct Jobs {
    queue: VecDeque<Job>,
    started: bool,
}

static CALLBACKS: Worker = Worker::new("penstock-callback");
/// Separate from the callback thread, because callbacks belong to the program and may take any
/// time.
static SENDS: Worker = Worker::new("penstock-send");

/// Runs `job` in the callback thread. The specification leaves the thread open. A callback in the
/// middle of another thread's wait could deadlock with that thread.
pub(crate) fn call_back(job: Job) {
    CALLBACKS.add(job);
}

/// Runs `job`, which sends and may wait for room on a link, in a thread that does not receive and
/// holds no locks.
pub fn send_later(job: Box<dyn FnOnce() + Send>) {
    SENDS.add(job);
}

impl Worker {
    const fn new(name: &'static str) -> Self {
        let jobs = Jobs { queue: VecDeque::new(), started: false };
        Self { jobs: Lock::new(jobs), added: Signal::new(), name }
    }

    fn add(&'static self, job: Job) {
        let mut jobs = self.jobs.lock();
        jobs.queue.push_back(job);
        if !jobs.started {
            jobs.started = penstock_process::start(self.name, || self.run()).is_ok();
        }
        drop(jobs);
        self.added.notify_one();
    }

    fn run(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.queue.pop_front() {
                drop(jobs);
                penstock_trial::delay(penstock_trial::Place::ClientJobs);
                // A panic of one job must not prevent the others.
                _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                jobs = self.jobs.lock();
            } else {
                jobs = self.added.wait(jobs);
            }
        }
    }
}

static USER_EVENTS: Lock<()> = Lock::new(());
static USER_EVENT_ENDED: Signal = Signal::new();

/// Waits until `done` returns true. It is checked again after each [`user_event_ended`].
pub(crate) fn wait_for_user_event(done: &dyn Fn() -> bool) {
    summary::waiting(summary::others(), Reason::Event, || {
        let mut guard = USER_EVENTS.lock();
        while !done() {
            guard = USER_EVENT_ENDED.wait(guard);
        }
    });
}

/// Wakes the threads in [`wait_for_user_event`].
pub(crate) fn user_event_ended() {
    drop(USER_EVENTS.lock());
    USER_EVENT_ENDED.notify_all();
}
