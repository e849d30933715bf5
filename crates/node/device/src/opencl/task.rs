//! Tasks for the host in the turn of a command: `clEnqueueNativeKernel`.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_process::Lock;

use super::api::function;
use super::command::Enqueued;
use super::queue::Queue;
use crate::command::Task;
use crate::driver::Want;
use crate::event::{Event, EventDriver as _};

/// A task that the driver or the end of its command takes.
type Slot = Lock<Option<Task>>;

/// Runs a task on a thread of the driver. `args` is the driver's copy of one pointer.
unsafe extern "C" fn run(args: *mut c_void) {
    // SAFETY: the command was enqueued with the bytes of one pointer from `Arc::into_raw`.
    let slot = unsafe { args.cast::<*const Slot>().read_unaligned() };
    // SAFETY: the command owns one reference, and the driver runs a command once.
    let slot = unsafe { Arc::from_raw(slot) };
    let task = slot.lock().take();
    // A panic is a defect of ours and must not unwind into the driver.
    _ = catch_unwind(AssertUnwindSafe(|| task.map(|task| task())));
}

impl Queue {
    pub(super) fn enqueue_task(&self, task: Task, waits: &[&Event], want: Want) -> Enqueued {
        let native = function!(clEnqueueNativeKernel)?;
        let slot = Arc::new(Slot::new(Some(task)));
        let mut args = Arc::into_raw(slot.clone());
        // A command whose wait list fails never runs. Its end then drops the task.
        let follow = if waits.is_empty() { want } else { Want::Event };
        let enqueued = self.enqueue_with(waits, follow, |length, list, event| {
            // SAFETY: the queue lives; the driver copies the bytes of the pointer before it
            // returns, and needs no memory objects; `enqueue_with` made list and event.
            unsafe {
                native(
                    self.raw(),
                    Some(run),
                    (&raw mut args).cast(),
                    size_of::<*const Slot>(),
                    0,
                    std::ptr::null(),
                    std::ptr::null_mut(),
                    length,
                    list,
                    event,
                )
            }
        });
        match enqueued {
            Ok(Some(event)) if !waits.is_empty() => {
                event.clone().on_complete(Box::new(move |_, _| drop(slot.lock().take())));
                Ok((want == Want::Event).then_some(event))
            }
            Err(status) => {
                // SAFETY: the driver has refused the command, so nobody else has this reference.
                drop(unsafe { Arc::from_raw(args) });
                Err(status)
            }
            done => done,
        }
    }
}
