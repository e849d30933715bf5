//! Collective launches: one kernel on each device of a heap.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_client::HeapLaunch;
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::heap::{Heap, among, code_of, tell};
use super::module::Function;
use super::shape::LaunchShape;
use super::stream::Stream;
use crate::edge::CuResult;

/// Held during a collective launch. Otherwise two threads that lock the same contexts could
/// deadlock.
static TOGETHER: Mutex<()> = Mutex::new(());

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
        let _together: MutexGuard<'_, ()> = TOGETHER.lock().unwrap_or_else(PoisonError::into_inner);
        // Each device has one kernel at most, so no lock below is taken twice.
        for (at, one) in all.iter().enumerate() {
            let ordinal = one.context.device.ordinal;
            if all.iter().take(at).any(|other| other.context.device.ordinal == ordinal) {
                let text = format!(
                    "device {ordinal} appears twice; each device is one PE and runs one kernel"
                );
                return Err(tell(CUDA_ERROR_INVALID_VALUE, &text));
            }
            if among(&one.params)?.is_none_or(|heap| heap.slot != self.slot) {
                let text = format!(
                    "kernel {} does not have this heap among its parameters",
                    one.function.entry().name
                );
                return Err(tell(CUDA_ERROR_INVALID_VALUE, &text));
            }
        }
        let mut held: Vec<_> = all
            .iter()
            .map(|one| one.function.bound_with_heap.lock().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let mut bound = Vec::with_capacity(all.len());
        for (one, held) in all.iter().zip(&mut held) {
            let made = one.function.prepare(held, &one.shape, &one.params, self);
            bound.push(made.map_err(|code| {
                tell(
                    code,
                    &format!(
                        "kernel {} cannot be launched with this grid, block or shared memory",
                        one.function.entry().name
                    ),
                )
            })?);
        }
        let launches: Vec<HeapLaunch<'_>> = all
            .iter()
            .zip(&bound)
            .map(|(one, bound)| (&one.stream.queue, &bound.kernel, one.shape.space()))
            .collect();
        let parts: Vec<_> = all.iter().map(|one| (&*one.context, &*one.stream)).collect();
        let sent = Context::issue_together(&parts, |waits| {
            self.pool.launch_each(&launches, waits).map(drop)
        });
        for bound in &bound {
            bound.forget_heap();
        }
        match sent
            .map_err(|code| tell(code, "a context of one of the devices has failed before"))?
        {
            Ok(()) => Ok(()),
            // "... too many blocks in cooperative launch": the only code of the interface for
            // kernels that cannot run together.
            Err(error) => Err(code_of(&error, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)),
        }
    }
}
