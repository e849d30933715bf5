//! What the implementations in memory have in common: threads that run tasks in a random order, and
//! waits for tasks.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use penstock_process::{Lock, Signal};

use crate::random::Random;

/// What a task does.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Number of threads that run tasks.
const EXECUTORS: usize = 3;
/// Longest wait. Nothing in a test takes this long unless a defect makes it hang.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Code of a wait that has taken too long.
pub(crate) const HANGS: i32 = -9999;

/// The tasks of an implementation, and whatever else a lock protects with them.
pub(crate) trait Tasks: Send + Sized + 'static {
    /// A defect that a test can plant.
    type Defect: Copy + Debug + PartialEq + Send + Sync + 'static;
    /// What the implementation has besides its tasks.
    type Surroundings: Send + Sync + 'static;

    fn random(&mut self) -> &mut Random;

    /// Returns the tasks that may run now, in any order.
    fn ready(&self) -> Vec<usize>;

    fn has_ended(&self, task: usize) -> bool;

    /// Runs a task that is ready.
    fn run(machine: &Machine<Self>, tasks: MutexGuard<'_, Self>, task: usize);
}

/// An implementation without the threads that run its tasks.
pub(crate) struct Machine<T: Tasks> {
    pub(crate) defect: Option<T::Defect>,
    pub(crate) state: Lock<T>,
    pub(crate) surroundings: T::Surroundings,
    pub(crate) changed: Signal,
    over: AtomicBool,
}

impl<T: Tasks> Machine<T> {
    /// Whether this defect is planted.
    pub(crate) fn is(&self, defect: T::Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Ends all waits, and the threads that run tasks.
    pub(crate) fn abandon(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits until tasks have ended. Returns the state of that time, or `None` if that takes too
    /// long.
    pub(crate) fn wait_for(&self, tasks: &[usize]) -> Option<MutexGuard<'_, T>> {
        let start = Instant::now();
        let mut state = self.state.lock();
        while !tasks.iter().all(|&task| state.has_ended(task)) {
            if self.over.load(Ordering::Relaxed) || start.elapsed() > WAIT_MAX {
                return None;
            }
            state = self.pause(state);
        }
        Some(state)
    }

    fn execute(&self) {
        let mut state = self.state.lock();
        while !self.over.load(Ordering::Relaxed) {
            let mut ready = state.ready();
            ready.sort_unstable();
            state = match state.random().pick(&ready) {
                Some(task) => {
                    T::run(self, state, task);
                    self.state.lock()
                }
                None => self.pause(state),
            };
        }
    }

    fn pause<'a>(&self, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(state, Duration::from_millis(20)).0
    }
}

/// A machine whose threads run. They end when this is dropped.
pub(crate) struct Running<T: Tasks> {
    machine: Arc<Machine<T>>,
}

impl<T: Tasks> Running<T> {
    pub(crate) fn start(
        state: T,
        surroundings: T::Surroundings,
        defect: Option<T::Defect>,
    ) -> Self {
        let (state, changed, over) = (Lock::new(state), Signal::new(), AtomicBool::new(false));
        let machine = Arc::new(Machine { defect, state, surroundings, changed, over });
        for _ in 0..EXECUTORS {
            let machine = Arc::clone(&machine);
            let started = penstock_process::start("executor", move || machine.execute());
            assert!(started.is_ok(), "the machine has no thread: {started:?}");
        }
        Self { machine }
    }

    pub(crate) fn share(&self) -> Arc<Machine<T>> {
        Arc::clone(&self.machine)
    }
}

impl<T: Tasks> Deref for Running<T> {
    type Target = Machine<T>;

    fn deref(&self) -> &Machine<T> {
        &self.machine
    }
}

impl<T: Tasks> Debug for Running<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("defect", &self.defect).finish_non_exhaustive()
    }
}

impl<T: Tasks> Drop for Running<T> {
    fn drop(&mut self) {
        self.abandon();
    }
}
