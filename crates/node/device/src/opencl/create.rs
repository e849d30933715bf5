//! Makes all objects of a context.

use std::ffi::CString;
use std::sync::Arc;

use penstock_cl_sys::cl_program;
use penstock_wire::describe::ImageDescription;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::{Context, handles};
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

/// Takes over a program.
fn boxed(raw: cl_program, context: &Context, is_of_il: bool) -> Box<dyn ProgramDriver> {
    Box::new(OwnProgram::of(raw, context, is_of_il))
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
        Ok(Box::new(OwnProgram::with_source(self, source)?))
    }

    fn program_with_binaries(
        &self,
        binaries: &[(Device, Vec<u8>)],
        codes: &mut [i32],
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        let create = function!(clCreateProgramWithBinary)?;
        let devices: Vec<Device> = binaries.iter().map(|(device, _)| device.clone()).collect();
        let devices = handles(&devices)?;
        let lengths: Vec<_> = binaries.iter().map(|(_, binary)| binary.len()).collect();
        let mut starts: Vec<_> = binaries.iter().map(|(_, binary)| binary.as_ptr()).collect();
        let number = api::count(binaries.len())?;
        let mut code = 0;
        // SAFETY: all lists have `number` entries, each binary its length; the driver copies them.
        let raw = unsafe {
            create(
                self.raw(),
                number,
                devices.as_ptr(),
                lengths.as_ptr(),
                starts.as_mut_ptr(),
                codes.as_mut_ptr(),
                &mut code,
            )
        };
        Ok(boxed(api::made(raw, code)?, self, false))
    }

    fn program_with_il(&self, il: &[u8]) -> Result<Box<dyn ProgramDriver>, Status> {
        self.platform().needs(2, 1)?;
        if il.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        let create = function!(clCreateProgramWithIL)?;
        let mut code = 0;
        // SAFETY: the IL has its length; the driver copies it.
        let raw = unsafe { create(self.raw(), il.as_ptr().cast(), il.len(), &mut code) };
        Ok(boxed(api::made(raw, code)?, self, true))
    }

    fn program_with_built_in(
        &self,
        devices: &[Device],
        names: &str,
    ) -> Result<Box<dyn ProgramDriver>, Status> {
        let create = function!(clCreateProgramWithBuiltInKernels)?;
        let names = CString::new(names).map_err(|_| Status::INVALID_VALUE)?;
        let list = handles(devices)?;
        let number = api::count(list.len())?;
        let mut code = 0;
        // SAFETY: the list has `number` devices; the names end with a NUL.
        let raw = unsafe { create(self.raw(), number, list.as_ptr(), names.as_ptr(), &mut code) };
        Ok(boxed(api::made(raw, code)?, self, false))
    }

    fn link(
        &self,
        devices: &[Device],
        options: Option<&str>,
        inputs: &[Program],
    ) -> (Result<(), Status>, Option<Box<dyn ProgramDriver>>) {
        let mut code = 0;
        match OwnProgram::link(self, devices, options, inputs, &mut code) {
            Ok(raw) if raw.is_null() => (api::check(code).and(Err(Status::OUT_OF_RESOURCES)), None),
            Ok(raw) => (api::check(code), Some(boxed(raw, self, false))),
            Err(status) => (Err(status), None),
        }
    }
}
