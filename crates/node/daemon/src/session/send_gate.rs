//! Gates: a queue's later commands wait at one until home memory is sent.

use std::sync::atomic::{AtomicBool, Ordering};

use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

/// Holds commands back that could change home memory which is on its way to the client.
#[derive(Default)]
pub(crate) struct SendGate {
    sent: AtomicBool,
    /// The user event that the held commands wait for, if there are such commands.
    held: Lock<Option<device::Event>>,
}

impl SendGate {
    /// Whether all bytes are sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns a user event that ends when all bytes are sent; `None` if they are.
    pub(crate) fn close(&self, context: &device::Context) -> Result<Option<device::Event>, Status> {
        let mut held = self.held.lock();
        if self.is_sent() {
            return Ok(None);
        }
        let made = device::Event::user(context)?;
        *held = Some(made.clone());
        Ok(Some(made))
    }

    /// Notes that all bytes are sent. The caller must then complete the returned user event, if
    /// commands wait for one.
    pub(crate) fn note_sent(&self) -> Option<device::Event> {
        let mut held = self.held.lock();
        self.sent.store(true, Ordering::Release);
        held.take()
    }
}
