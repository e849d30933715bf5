//! Gives drivers' threads that are tied to one CPU all CPUs of the process back.
//!
//! A driver for CPUs may assume that it has the host to itself. Intel's runtime ties its threads to
//! CPUs and starts at the same CPU in each process. Each client's worker has its own driver, so the
//! first threads of all workers share one CPU while others idle: a launch of 0.1 ms beside another
//! client's long queue took 4 ms, a tick of the scheduler. A worker unties each thread only once: a
//! driver that ties it again is left alone.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use penstock_process::Lock;
use penstock_process::variable::{self, Variable};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// If one of these is set, the operator has chosen how the threads are placed.
const PLACEMENTS: [&Variable; 3] =
    [&variable::POCL_AFFINITY, &variable::DPCPP_AFFINITY, &variable::SYCL_AFFINITY];

/// CPUs of this process, set if its drivers share them with other processes.
static SHARED: OnceLock<CpuSet> = OnceLock::new();
static STATE: Lock<Option<State>> = Lock::new(None);
/// Longest time that a thread stays tied. Checking 100 threads takes 0.3 ms: 0.1 % of a CPU.
const LOOK_EVERY: Duration = Duration::from_millis(250);

struct State {
    next_look: Instant,
    freed: HashSet<i32>,
}

/// From now on, gives drivers' threads in this process all its CPUs. For a process that shares the
/// host's devices with similar processes; call it before a driver is loaded.
pub fn share_cpus() {
    if PLACEMENTS.iter().any(|placement| placement.is_set()) {
        return;
    }
    // If the host has more CPUs than a `CpuSet` can hold, the threads stay where they are.
    if let Ok(cpus) = sched_getaffinity(None) {
        SHARED.get_or_init(|| cpus);
    }
}

/// Unties the threads that were tied lately. Does nothing until the next look is due.
pub(super) fn look() {
    let Some(cpus) = SHARED.get() else { return };
    let now = Instant::now();
    let mut state = STATE.lock();
    let state = state.get_or_insert_with(|| State { next_look: now, freed: HashSet::new() });
    if now >= state.next_look {
        state.next_look = now + LOOK_EVERY;
        free(cpus, &mut state.freed);
    }
}

fn free(cpus: &CpuSet, freed: &mut HashSet<i32>) {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
    for task in tasks.flatten() {
        let Some(number) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Some(thread) = Pid::from_raw(number) else { continue };
        let tied = sched_getaffinity(Some(thread)).is_ok_and(|its| its.count() < cpus.count());
        // The thread may have ended meanwhile.
        if tied && freed.insert(number) {
            _ = sched_setaffinity(Some(thread), cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_tied_thread_is_freed_once() {
        let all = sched_getaffinity(None).unwrap();
        if all.count() < 2 {
            return penstock_trial::skip(penstock_trial::Need::Cores, "this host has one CPU only");
        }
        let mut freed = HashSet::new();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
        let (tied, when_tied) = mpsc::channel();
        let (looked, when_looked) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for _ in 0..2 {
                sched_setaffinity(None, &one).unwrap();
                tied.send(()).unwrap();
                when_looked.recv().unwrap();
                seen.push(sched_getaffinity(None).unwrap().count());
            }
            seen
        });
        for _ in 0..2 {
            when_tied.recv().unwrap();
            free(&all, &mut freed);
            looked.send(()).unwrap();
        }
        assert_eq!(
            thread.join().unwrap(),
            [all.count(), 1],
            "the first look frees the thread; a thread that is tied again stays tied"
        );
    }
}
