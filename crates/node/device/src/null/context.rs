use std::sync::Arc;

use penstock_cl_sys::{
    CL_INVALID_BINARY, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
};
use penstock_wire::status::Status;

use super::engine::{Engine, Event as OwnEvent, Line};
use super::memory::Buffer;
use super::program::Program;
use super::queue::Queue;
use crate::driver::{self, Backing, ContextDriver, Device, MemDriver, ProgramDriver, QueueDriver};
use crate::event::Event;

/// What queues may have.
pub(super) const QUEUE_PROPERTIES: u64 =
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;

pub(super) struct Context(Arc<Engine>);

impl Context {
    pub(super) fn new(line: Line) -> Self {
        Self(Engine::new(driver::next_context_id(), line))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ContextDriver for Context {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn user_event(&self) -> Result<Event, Status> {
        let made = self.0.change(|state| state.machine.add_user_event());
        Ok(Event(OwnEvent::new(&self.0, made, false)))
    }

    fn queue(
        &self,
        _device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Box<dyn QueueDriver>, Status> {
        // "CL_INVALID_QUEUE_PROPERTIES if values specified in properties are valid but are not
        // supported by the device."
        if properties & !QUEUE_PROPERTIES != 0 || size != 0 {
            return Err(Status::INVALID_QUEUE_PROPERTIES);
        }
        let in_order = properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        Ok(Box::new(Queue::new(&self.0, properties, in_order)))
    }

    fn buffer(
        &self,
        _flags: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Box<dyn MemDriver>, Status> {
        self.0.take_buffer()?;
        Ok(Box::new(Buffer::new(bytes, backing)?))
    }

    fn program_with_source(&self, source: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        Ok(Box::new(Program::new(source.to_vec())))
    }

    /// Programs have no binaries.
    fn program_with_binaries(
        &self,
        _binaries: &[(Device, Vec<u8>)],
        codes: &mut [i32],
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        codes.fill(CL_INVALID_BINARY);
        Err(Status(CL_INVALID_BINARY))
    }
}
