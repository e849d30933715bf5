//! Makes all objects of a context.

use std::sync::Arc;

use penstock_wire::describe::ImageDescription;
use penstock_wire::status::Status;

use super::context::Context;
use super::device::Device as OwnDevice;
use super::event::Event as OwnEvent;
use super::memory::Mem as OwnMem;
use super::program::Program as OwnProgram;
use super::queue::Queue;
use super::retire::KeptQueue;
use super::sampler::Sampler;
use crate::account::Share;
use crate::driver::{
    Backing, ContextDriver, Device, Mem, MemDriver, Program, ProgramDriver, QueueDriver,
    SamplerDriver,
};
use crate::event::Event;

fn boxed(program: OwnProgram) -> Box<dyn ProgramDriver> {
    Box::new(program)
}

impl ContextDriver for Context {
    fn id(&self) -> u64 {
        Context::id(self)
    }

    fn user_event(&self) -> Result<Event, Status> {
        Ok(Event(OwnEvent::user(self)?))
    }

    fn queue(
        &self,
        device: &Device,
        properties: u64,
        size: u32,
    ) -> Result<Box<dyn QueueDriver>, Status> {
        let device = device.driver::<OwnDevice>()?;
        let raw = KeptQueue::create(self.owned(), self.platform(), device, properties, size)?;
        Ok(Box::new(Queue::new(Arc::new(raw), self, device, properties)))
    }

    fn transfer_queue(
        &self,
        device: &Device,
        properties: u64,
    ) -> Result<Box<dyn QueueDriver>, Status> {
        let device = device.driver::<OwnDevice>()?;
        let raw = self.shared_queue(device, properties)?;
        Ok(Box::new(Queue::new(raw, self, device, properties)))
    }

    fn buffer(
        &self,
        flags: u64,
        bytes: usize,
        backing: Backing,
    ) -> Result<Box<dyn MemDriver>, Status> {
        Ok(Box::new(OwnMem::buffer(self, flags, bytes, backing)?))
    }

    fn pipe(
        &self,
        flags: u64,
        packet_size: u32,
        packets_max: u32,
    ) -> Result<Box<dyn MemDriver>, Status> {
        Ok(Box::new(OwnMem::pipe(self, flags, packet_size, packets_max)?))
    }

    fn image(
        &self,
        flags: u64,
        description: &ImageDescription,
        parent: Option<&Mem>,
        share: Option<Share>,
    ) -> Result<(Box<dyn MemDriver>, u64), Status> {
        let (image, pixel) = OwnMem::image(self, flags, description, parent, share)?;
        Ok((Box::new(image), pixel))
    }

    fn image_formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
        self.formats(flags, image_type)
    }

    fn sampler(&self, properties: &[u64]) -> Result<Box<dyn SamplerDriver>, Status> {
        Ok(Box::new(Sampler::new(self, properties)?))
    }

    fn program_with_source(&self, source: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        OwnProgram::with_source(self, source).map(boxed)
    }

    fn program_with_binaries(
        &self,
        binaries: &[(Device, Vec<u8>)],
        codes: &mut [i32],
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        OwnProgram::with_binaries(self, binaries, codes).map(boxed)
    }

    fn program_with_il(&self, il: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        OwnProgram::with_il(self, il).map(boxed)
    }

    fn program_with_built_in(
        &self,
        devices: &[Device],
        names: &str,
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        OwnProgram::with_built_in(self, devices, names).map(boxed)
    }

    fn link(
        &self,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[Program],
    ) -> (Result<(), Status>, Option<Box<dyn ProgramDriver>>) {
        let (status, made) = OwnProgram::link(self, devices, options, inputs);
        (status, made.map(boxed))
    }
}
