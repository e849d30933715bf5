//! Collective launches: one kernel on each device of a heap.

use std::sync::{Arc, MutexGuard};

use penstock_client::HeapLaunch;
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::context::Context;
use super::heap::{Heap, code_of, fail_with, find_among};
use super::module::Function;
use super::shape::LaunchShape;
use super::stream::Stream;
use crate::edge::CuResult;

/// Held during a collective launch. Otherwise two threads that lock the same contexts could
/// deadlock.
static TOGETHER: Lock<()> = Lock::new(());

/// One kernel of a collective launch.
pub(crate) struct HeapKernel {
    pub(crate) function: Arc<Function>,
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) shape: LaunchShape,
    /// Its parameters in one block, in the kernel's layout.
    pub(crate) params: Vec<u8>,
}

impl Heap {
    /// Starts one kernel on each of its devices, all at the same time, or none.
    pub(crate) fn launch(&self, all: &[HeapKernel]) -> CuResult {
        let _together: MutexGuard<'_, ()> = TOGETHER.lock();
        // Each device has one kernel at most, so no lock below is taken twice.
        for (at, kernel) in all.iter().enumerate() {
            let ordinal = kernel.context.device.ordinal;
            if all.iter().take(at).any(|other| other.context.device.ordinal == ordinal) {
                let text = format!(
                    "device {ordinal} appears twice; each device is one PE and runs one kernel"
                );
                return Err(fail_with(CUDA_ERROR_INVALID_VALUE, &text));
            }
            if find_among(&kernel.params)?.is_none_or(|heap| heap.slot != self.slot) {
                let text = format!(
                    "kernel {} does not have this heap among its parameters",
                    kernel.function.entry().name
                );
                return Err(fail_with(CUDA_ERROR_INVALID_VALUE, &text));
            }
        }
        let mut held: Vec<_> =
            all.iter().map(|kernel| kernel.function.bound_with_heap.lock()).collect();
        let mut bound = Vec::with_capacity(all.len());
        for (kernel, held) in all.iter().zip(&mut held) {
            let made = kernel.function.prepare(held, &kernel.shape, &kernel.params, self);
            bound.push(made.map_err(|code| {
                fail_with(
                    code,
                    &format!(
                        "kernel {} cannot be launched with this grid, block or shared memory",
                        kernel.function.entry().name
                    ),
                )
            })?);
        }
        let launches: Vec<HeapLaunch<'_>> = all
            .iter()
            .zip(&bound)
            .map(|(kernel, bound)| HeapLaunch {
                queue: &kernel.stream.queue,
                kernel: &bound.kernel,
                space: kernel.shape.space(),
            })
            .collect();
        let parts: Vec<_> = all.iter().map(|kernel| (&*kernel.context, &*kernel.stream)).collect();
        let sent = Context::issue_together(&parts, |waits| {
            self.pool.launch_each(&launches, waits).map(drop)
        });
        for bound in &bound {
            bound.forget_heap();
        }
        match sent
            .map_err(|code| fail_with(code, "a context of one of the devices has failed before"))?
        {
            Ok(()) => Ok(()),
            // "... too many blocks in cooperative launch": the only code of the interface for
            // kernels that cannot run together.
            Err(error) => Err(code_of(&error, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)),
        }
    }
}
