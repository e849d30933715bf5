//! Releases queues that a driver must not free on its own threads.
//!
//! Intel's runtime for CPUs keeps a released queue until its last command has ended, and then
//! destroys it on the thread that ran that command. The destructor waits for all tasks of the
//! queue, including that thread's own, so the thread and everything that needs it hang
//! (`tests/model/found/intel-queue-release.c`). This driver's queues are therefore released here,
//! when their commands have ended and the driver's threads have finished with them.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::queue::RawQueue;

/// Time that a driver's thread may still work on a command whose end it has reported. That takes
/// some microseconds; this is ten thousand times as long, in case the system does not let it run.
const PATIENCE: Duration = Duration::from_millis(250);

#[derive(Default)]
struct State {
    retired: Vec<RawQueue>,
    is_started: bool,
}

static STATE: Mutex<State> = Mutex::new(State { retired: Vec::new(), is_started: false });
static WAKE: Condvar = Condvar::new();

/// Releases a queue when its commands have ended.
pub(super) fn retire(queue: RawQueue) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.retired.push(queue);
    if !state.is_started {
        let thread = std::thread::Builder::new().name("penstock-retire".to_owned());
        // If no thread starts, the queues stay. The process serves one client and ends with it.
        state.is_started = thread.stack_size(128 << 10).spawn(release_all).is_ok();
    }
    WAKE.notify_one();
}

fn release_all() {
    loop {
        let retired = {
            let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = WAKE
                .wait_while(state, |state| state.retired.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut state.retired)
        };
        for queue in &retired {
            // The result does not matter: a command that failed has ended, too.
            _ = queue.finish();
        }
        std::thread::sleep(PATIENCE);
        drop(retired);
    }
}
