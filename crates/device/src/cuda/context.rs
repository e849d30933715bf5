//! Contexts: a device's primary context, under OpenCL's name.

use std::sync::{Arc, OnceLock};

use penstock_wire::status::Status;

use super::command::Work;
use super::device::Device;
use super::stream::{Stream, Wish};

pub(super) struct Context {
    pub(super) id: u64,
    pub(super) device: &'static Device,
    /// Stream of the work that its callers wait for.
    init: OnceLock<Result<Arc<Stream>, Status>>,
}

impl Context {
    pub(super) fn new(id: u64, device: &'static Device) -> Result<Arc<Self>, Status> {
        device.enter()?;
        Ok(Arc::new(Self { id, device, init: OnceLock::new() }))
    }

    /// Runs work that waits for nothing, and blocks until it is done.
    pub(super) fn run(&self, work: Work) -> Result<(), Status> {
        let make = || Stream::new(self.id, self.device, false);
        let stream = self.init.get_or_init(make).as_ref().map_err(|&status| status)?;
        let wish = Wish { waits: Vec::new(), event: false, keep: [None, None] };
        stream.enqueue(work, wish)?;
        stream.finish()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.init.get() {
            stream.close();
        }
    }
}
