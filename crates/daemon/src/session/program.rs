//! Programs, as the session keeps them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

use super::headers::{HeadersError, Waiting};

/// A program. It has no device program while it is being linked.
#[derive(Default)]
pub(crate) struct Program {
    device: OnceLock<device::Program>,
    /// Whether a build, compile or link is pending.
    busy: AtomicBool,
    /// The files that the next build includes.
    headers: Lock<Option<Result<Waiting, HeadersError>>>,
}

impl Program {
    pub(super) fn new(device: device::Program) -> Arc<Self> {
        Arc::new(Self { device: OnceLock::from(device), ..Self::default() })
    }

    pub(crate) fn device(&self) -> Result<&device::Program, Status> {
        self.device.get().ok_or(Status::INVALID_PROGRAM)
    }

    /// Gives a program that was linked its device program.
    pub(super) fn set_device(&self, linked: device::Program) -> &device::Program {
        self.device.get_or_init(|| linked)
    }

    /// Keeps the files that the next build includes.
    pub(super) fn set_headers(&self, headers: Result<Waiting, HeadersError>) {
        *self.headers.lock() = Some(headers);
    }

    pub(super) fn take_headers(&self) -> Option<Result<Waiting, HeadersError>> {
        self.headers.lock().take()
    }

    /// Marks the program as being built.
    ///
    /// "CL_INVALID_OPERATION if the build of a program executable ... by a previous call to
    /// clBuildProgram for program has not completed."
    pub(super) fn begin_build(self: &Arc<Self>) -> Result<BuildGuard, Status> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(Status::INVALID_OPERATION);
        }
        Ok(BuildGuard(self.clone()))
    }
}

/// A program that is being built, until this is dropped.
pub(super) struct BuildGuard(pub(super) Arc<Program>);

impl Drop for BuildGuard {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
