//! The receivers of what a worker sends: the targets of reads, those that wait for the ends of
//! commands, and the answers to requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_coherence::HostShape;
use penstock_process::Lock;
use penstock_wire::{FrameError, Payload, Status, Times};

/// The destination of the bytes of a read: memory of the program that only the face knows.
pub trait Target: Send {
    /// Writes all of `payload` at `offset` of the read's own range.
    ///
    /// # Errors
    /// If the payload does not fit the range, or the link broke.
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError>;

    /// Returns where the bytes go in the program's memory, or `None` for memory that the program
    /// does not see.
    fn shape(&self) -> Option<HostShape> {
        None
    }
}

impl Target for Arc<Lock<Vec<u8>>> {
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        let mut bytes = self.lock();
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (start, count) = range.ok_or(FrameError::PayloadTooShort)?;
        let end = start.checked_add(count).ok_or(FrameError::PayloadTooShort)?;
        payload.read(bytes.get_mut(start..end).ok_or(FrameError::PayloadTooShort)?)
    }
}

/// The receiver of a command's end.
pub(crate) trait Ending: Send + Sync {
    fn end(self: Arc<Self>, status: Status, times: Times);
}

/// The answer to a request.
#[derive(Default)]
pub(super) struct Answer {
    /// Read without the lock by the waiting thread.
    there: AtomicBool,
    value: Lock<Option<(Status, Vec<u8>)>>,
}

impl Answer {
    pub(super) fn set(&self, status: Status, bytes: Vec<u8>) {
        *self.value.lock() = Some((status, bytes));
        self.there.store(true, Ordering::Release);
    }

    pub(super) fn is_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Option<(Status, Vec<u8>)> {
        self.value.lock().take()
    }
}
