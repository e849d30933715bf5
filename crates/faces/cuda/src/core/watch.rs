//! What each wait looks for: faults and printed output of kernels.

use std::sync::MutexGuard;

use penstock_client::Error;
use penstock_cuda_sys::driver::CU_LIMIT_PRINTF_FIFO_SIZE;

use super::context::Context;
use super::{fault, printf};
use crate::edge::{CuResult, Object as _};

impl Context {
    /// Notes that a kernel is loaded that may fail or print: from now on each wait looks at the
    /// control block. Makes the ring for printed output if the kernel prints.
    pub(crate) fn watch_kernels(&self, prints: bool) -> CuResult {
        self.control.watch();
        if !prints || self.control.has_ring() {
            return Ok(());
        }
        self.control.make_ring(self.limit(CU_LIMIT_PRINTF_FIFO_SIZE)?, self.number())
    }

    /// Looks for faults and output of kernels. Called after every wait.
    ///
    /// # Errors
    /// The fault of a kernel, which is permanent.
    #[inline]
    pub(crate) fn look_at_kernels(&self) -> CuResult {
        if self.control.is_watched() { self.look_closely() } else { Ok(()) }
    }

    fn look_closely(&self) -> CuResult {
        let control = &self.control;
        let _looking: MutexGuard<'_, ()> = control.lock();
        let failed = |error: Error| self.failed(&error);
        let report = control.report().map_err(failed)?;
        if report.has_output {
            // No kernel may run or be sent meanwhile: its records may be half written, and records
            // written while the ring is emptied would be lost.
            let records = self.while_idle(|| control.take_output()).transpose().map_err(failed)?;
            printf::print(&records.unwrap_or_default(), &mut |address| control.text(address));
        }
        let Some(found) = report.fault else { return Ok(()) };
        let code = fault::code_of(found.kind);
        if control.is_first_report() {
            fault::report(found.kind, found.address, found.line, &control.text(found.address));
        }
        Err(self.fail(code))
    }

    /// Runs `work` while all streams are idle and locked. Returns `None` if a stream is busy.
    fn while_idle<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let blocking = self.blocking.read();
        let others = self.non_blocking.read();
        let streams = || [&self.legacy].into_iter().chain(blocking.iter()).chain(others.iter());
        let _held: Vec<_> = streams().map(|stream| stream.lock()).collect();
        streams().all(|stream| stream.clock.is_idle()).then(work)
    }
}
