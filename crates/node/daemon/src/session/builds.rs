//! The builds of a session: a few run at the same time, and the others wait for their turn.
//!
//! A program may ask for more builds at once than a host can run. The thread that reads the
//! client's link only adds a build to the line. Up to [`at_once`] threads take builds from the line
//! in order, and end when the line is empty.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use penstock_process::Lock;
use penstock_wire::Status;

use crate::builder::{BUILD_STACK_BYTES, BUILDS_AT_ONCE_MAX};

/// Fewest builds of a session that run at the same time, also on a host with few cores: one or two
/// long builds must not hold up the short ones behind them.
const BUILDS_AT_ONCE_MIN: usize = 4;

/// Most builds of a session that wait; one more fails. Each is a call that waits on a client's
/// thread, and Linux gives all processes of a host 32,768 threads by default (`pid_max`). A waiting
/// build takes some 1 KiB (its options and devices): 32 MiB in all.
const BUILDS_WAITING_MAX: usize = 32_768;

/// A build, including the answer to the client.
type Build = Box<dyn FnOnce() + Send>;

/// The builds of a session.
pub(crate) struct Builds {
    at_once: usize,
    line: Lock<BuildLine>,
}

#[derive(Default)]
struct BuildLine {
    waiting: VecDeque<Build>,
    /// Number of threads that take builds from the line.
    threads: usize,
    /// Number of builds that were begun.
    begun: u64,
    /// The builds that run, by their numbers, and when each began.
    running: BTreeMap<u64, Instant>,
}

impl Default for Builds {
    fn default() -> Self {
        Self { at_once: at_once(), line: Lock::default() }
    }
}

/// Returns the number of builds that run at the same time: one per core, within the limits.
fn at_once() -> usize {
    let cores = thread::available_parallelism().map_or(BUILDS_AT_ONCE_MIN, usize::from);
    cores.clamp(BUILDS_AT_ONCE_MIN, BUILDS_AT_ONCE_MAX)
}

impl Builds {
    /// Makes a thread call `build` in its turn. Does not wait for that.
    ///
    /// # Errors
    /// Too many builds wait, or the host gives no thread. `build` is then not called.
    pub(crate) fn add(
        self: &Arc<Self>,
        build: impl FnOnce() + Send + 'static,
    ) -> Result<(), Status> {
        let mut line = self.line.lock();
        if line.waiting.len() >= BUILDS_WAITING_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        line.waiting.push_back(Box::new(build));
        if line.threads >= self.at_once {
            return Ok(());
        }
        let builds = self.clone();
        let run = move || builds.run();
        if penstock_process::start_with_stack("build", BUILD_STACK_BYTES, run).is_ok() {
            line.threads += 1;
            return Ok(());
        }
        if line.threads > 0 {
            // Another thread takes the build in its turn.
            return Ok(());
        }
        let refused = line.waiting.pop_back();
        drop(line);
        drop(refused);
        Err(Status::OUT_OF_HOST_MEMORY)
    }

    fn run(&self) {
        while let Some((number, build)) = self.next() {
            // After a panic the builds behind still get their turn.
            _ = catch_unwind(AssertUnwindSafe(build));
            self.line.lock().running.remove(&number);
        }
    }

    /// Returns the next build and its number. If there is none, the calling thread counts as ended.
    fn next(&self) -> Option<(u64, Build)> {
        let mut line = self.line.lock();
        let Some(next) = line.waiting.pop_front() else {
            line.threads -= 1;
            return None;
        };
        line.begun += 1;
        let number = line.begun;
        line.running.insert(number, penstock_process::now());
        Some((number, next))
    }

    /// Returns the time for which the oldest build has been running.
    pub(super) fn longest(&self, now: Instant) -> Option<Duration> {
        let line = self.line.lock();
        line.running.values().min().map(|since| now.saturating_duration_since(*since))
    }

    /// Returns the number of builds that run.
    pub(super) fn running(&self) -> usize {
        self.line.lock().running.len()
    }

    /// Returns the number of builds that were begun.
    pub(super) fn begun(&self) -> u64 {
        self.line.lock().begun
    }

    /// Returns whether no build runs or waits.
    pub(super) fn are_idle(&self) -> bool {
        let line = self.line.lock();
        line.running.is_empty() && line.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// Starts builds that all wait until the test lets them go.
    fn held_up(at_once: usize) -> (Arc<Builds>, Arc<Barrier>) {
        let builds = Arc::new(Builds { at_once, line: Lock::default() });
        let gate = Arc::new(Barrier::new(at_once + 1));
        for _ in 0..at_once {
            let gate = gate.clone();
            let hold = move || {
                gate.wait();
                gate.wait();
            };
            builds.add(hold).expect("the line is empty");
        }
        // All of them run now.
        gate.wait();
        (builds, gate)
    }

    #[test]
    fn builds_beyond_those_that_run_wait_and_run_in_order() {
        const LATER: usize = 200;
        let (builds, gate) = held_up(1);
        let (tell, told) = channel();
        for number in 0..LATER {
            let tell = tell.clone();
            builds
                .add(move || tell.send(number).expect("the test listens"))
                .expect("under the limit");
        }
        assert!(told.try_recv().is_err(), "a build ran before its turn");
        gate.wait();
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), (0..LATER).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_builds_run_at_the_same_time_than_they_may() {
        const AT_ONCE: usize = 3;
        let (builds, gate) = held_up(AT_ONCE);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tell, told) = channel();
        for _ in 0..50 {
            let (running, most, tell) = (running.clone(), most.clone(), tell.clone());
            let build = move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
                tell.send(()).expect("the test listens");
            };
            builds.add(build).expect("under the limit");
        }
        gate.wait();
        drop(tell);
        assert_eq!(told.iter().count(), 50);
        assert!(most.load(Ordering::SeqCst) <= AT_ONCE, "{most:?} ran at the same time");
    }

    #[test]
    fn the_line_is_bounded() {
        let (builds, gate) = held_up(1);
        for _ in 0..BUILDS_WAITING_MAX {
            builds.add(|| ()).expect("under the limit");
        }
        assert_eq!(builds.add(|| ()), Err(Status::OUT_OF_RESOURCES));
        gate.wait();
    }

    #[test]
    fn a_build_that_panics_leaves_the_others_their_turn() {
        let (builds, gate) = held_up(1);
        let (tell, told) = channel();
        builds.add(|| panic!("a planted panic")).expect("under the limit");
        builds.add(move || tell.send(()).expect("the test listens")).expect("under the limit");
        gate.wait();
        assert_eq!(told.recv(), Ok(()));
    }
}
