//! Programs, as the session keeps them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

use super::headers::{HeadersError, Waiting};
use crate::builder::{Making, Origin};

/// A program. It has no device program while it is being linked.
#[derive(Default)]
pub(crate) struct Program {
    device: OnceLock<device::Program>,
    /// What the client made it from, if a compiler takes it.
    origin: Lock<Option<Arc<Origin>>>,
    /// How it was compiled last, if it was.
    compiled: Lock<Option<Arc<Making>>>,
    /// Whether a build, compile or link is pending.
    busy: AtomicBool,
    /// The files that the next build includes.
    headers: Lock<Option<Result<Waiting, HeadersError>>>,
}

impl Program {
    pub(super) fn new(device: device::Program) -> Arc<Self> {
        Arc::new(Self { device: OnceLock::from(device), ..Self::default() })
    }

    /// Makes a program that a compiler makes from `origin`.
    pub(super) fn of(device: device::Program, origin: Origin) -> Arc<Self> {
        let origin = Lock::new(Some(Arc::new(origin)));
        Arc::new(Self { device: OnceLock::from(device), origin, ..Self::default() })
    }

    /// Returns what the client made the program from, if a compiler takes it.
    pub(super) fn origin(&self) -> Option<Arc<Origin>> {
        self.origin.lock().clone()
    }

    /// Notes a specialization constant for the next build.
    pub(super) fn note_constant(&self, id: u32, value: Vec<u8>) {
        let mut origin = self.origin.lock();
        if let Some(Origin::Il { constants, .. }) = origin.as_mut().map(Arc::make_mut) {
            constants.retain(|(other, _)| *other != id);
            constants.push((id, value));
        }
    }

    /// Returns how the program was compiled last; `None` if it cannot be compiled again.
    pub(super) fn compiled(&self) -> Option<Arc<Making>> {
        self.compiled.lock().clone()
    }

    pub(super) fn note_compiled(&self, making: Option<Making>) {
        *self.compiled.lock() = making.map(Arc::new);
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
