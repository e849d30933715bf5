//! The references to queues, and the release of queues that a driver must not free on its own
//! threads.
//!
//! Intel's runtime for CPUs keeps a released queue until its last command has ended, and then
//! destroys it on the thread that ran that command. The destructor waits for all tasks of the
//! queue, including that thread's own, so the thread and everything that needs it hang
//! (`tests/model/found/intel-queue-release.c`). This driver's queues are therefore released here,
//! when their commands have ended and the driver's threads have finished with them.

use std::time::Duration;

use penstock_cl_sys::{CL_QUEUE_PROPERTIES, CL_QUEUE_SIZE, cl_command_queue};
use penstock_process::{Lock, Signal};
use penstock_wire::status::Status;

use super::api::{self, function};
use super::device::Device;
use super::owned::{OwnedContext, OwnedQueue};
use super::platform::Platform;

/// Time that a driver's thread may still work on a command whose end it has reported. That takes
/// some microseconds; this is ten thousand times as long, in case the system does not let it run.
const PATIENCE: Duration = Duration::from_millis(250);

/// A queue that is released when the driver can take it.
#[derive(Debug)]
pub(super) struct KeptQueue {
    /// `None` only while the queue is dropped.
    raw: Option<OwnedQueue>,
    /// Whether the driver must not free it earlier, see [`Device::keeps_queues_until_idle`].
    is_kept_until_idle: bool,
}

impl KeptQueue {
    pub(super) fn create(
        context: &OwnedContext,
        platform: Platform,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Self, Status> {
        let mut code = 0;
        if platform.is_at_least(2, 0) {
            let create = function!(clCreateCommandQueueWithProperties)?;
            let mut list = vec![u64::from(CL_QUEUE_PROPERTIES), properties];
            if size != 0 {
                list.extend([u64::from(CL_QUEUE_SIZE), u64::from(size)]);
            }
            list.push(0);
            // SAFETY: context and device live; the list ends with 0.
            let handle = unsafe { create(context.raw(), device.raw(), list.as_ptr(), &mut code) };
            return api::made(handle, code).map(|raw| Self::of(raw, device));
        }
        if size != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let create = function!(clCreateCommandQueue)?;
        // SAFETY: context and device live.
        let handle = unsafe { create(context.raw(), device.raw(), properties, &mut code) };
        api::made(handle, code).map(|raw| Self::of(raw, device))
    }
    fn of(raw: cl_command_queue, device: &Device) -> Self {
        let raw = Some(OwnedQueue::take(raw));
        Self { raw, is_kept_until_idle: device.keeps_queues_until_idle() }
    }

    pub(super) fn raw(&self) -> cl_command_queue {
        self.raw.as_ref().map_or(std::ptr::null_mut(), OwnedQueue::raw)
    }

    /// `clFinish`. After a blocking write of Intel's runtime, other queues see the bytes only
    /// later.
    pub(super) fn finish(&self) -> Result<(), Status> {
        self.raw.as_ref().map_or(Ok(()), OwnedQueue::finish)
    }
}

impl Drop for KeptQueue {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take().filter(|_| self.is_kept_until_idle) {
            retire(raw);
        }
    }
}

#[derive(Default)]
struct State {
    retired: Vec<OwnedQueue>,
    is_started: bool,
}

static STATE: Lock<State> = Lock::new(State { retired: Vec::new(), is_started: false });
static WAKE: Signal = Signal::new();

/// Releases a queue when its commands have ended.
fn retire(queue: OwnedQueue) {
    let mut state = STATE.lock();
    state.retired.push(queue);
    if !state.is_started {
        // If no thread starts, the queues stay. The process serves one client and ends with it.
        let started = penstock_process::start_with_stack("penstock-retire", 128 << 10, release_all);
        state.is_started = started.is_ok();
    }
    WAKE.notify_one();
}

fn release_all() {
    loop {
        let retired = {
            let state = STATE.lock();
            let mut state = WAKE.wait_while(state, |state| state.retired.is_empty());
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
