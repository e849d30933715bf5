//! Contexts: a device's primary context, under OpenCL's name.

use std::sync::Arc;

use penstock_process::Lock;
use penstock_wire::status::Status;

use super::command::Work;
use super::device::Device;
use super::stream::{Stream, Wish};

pub(super) struct Context {
    pub(super) id: u64,
    pub(super) device: &'static Device,
    /// Stream of the work that its callers wait for. One caller at a time uses it, because a stream
    /// does not tell whose work has failed.
    init: Lock<Option<Arc<Stream>>>,
}

impl Context {
    pub(super) fn new(id: u64, device: &'static Device) -> Result<Arc<Self>, Status> {
        device.enter()?;
        Ok(Arc::new(Self { id, device, init: Lock::default() }))
    }

    /// Runs work that waits for nothing, and blocks until it is done.
    pub(super) fn run(&self, work: Work) -> Result<(), Status> {
        let mut init = self.init.lock();
        let stream = match &mut *init {
            Some(stream) => stream,
            none => none.insert(Stream::new(self.id, self.device, false)?),
        };
        let wish = Wish { waits: Vec::new(), event: false, keep: [None, None] };
        stream.enqueue(work, wish)?;
        stream.finish()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(stream) = self.init.get_mut() {
            stream.close();
        }
    }
}
