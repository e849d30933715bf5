//! Buffers and sub-buffers: memory of one GPU at a fixed address.

use std::sync::Arc;

use penstock_cuda_sys::driver::CUdeviceptr;
use penstock_wire::status::Status;

use super::command::Work;
use super::context::Context;
use super::driver::check;
use super::mapped::Mapped;
use super::module::{self, Module};
use super::parts::Layout;
use super::reaper::{self, Reaper, Remains};
use crate::account::Share;
use crate::driver;
use crate::driver::MemDriver;
use crate::home::HostMemory;
use crate::region::Placed;
use crate::staging::Staged;

pub(super) struct Memory {
    context: Arc<Context>,
    address: CUdeviceptr,
    /// `None` only while the buffer is dropped.
    owner: Option<Owner>,
}

/// What owns a buffer's memory, kept so that the memory stays.
#[allow(dead_code, reason = "some owners are only kept to be dropped")]
enum Owner {
    /// The buffer itself.
    Own(Share),
    Buffer(Arc<Memory>),
    Variable(Arc<Module>),
    Mapped(Mapped),
}

/// Returns the memory of an object.
pub(super) fn memory(mem: &driver::Mem) -> Result<&Arc<Memory>, Status> {
    mem.driver::<Arc<Memory>>()
}

impl Memory {
    /// Allocates memory that is zero.
    pub(super) fn new(
        context: &Arc<Context>,
        bytes: usize,
        share: Share,
    ) -> Result<Arc<Self>, Status> {
        let device = context.device;
        device.enter()?;
        let address = reaper::with_memory(device, || {
            let mut address = 0;
            // SAFETY: the output location outlives the call.
            check(unsafe { (device.cuda().cuMemAlloc)(&mut address, bytes) }).map(|()| address)
        })?;
        let memory = Self::of(context, address, Owner::Own(share));
        // A client must not see what another one left in the device's memory.
        context.run(Work::Fill { to: address, bytes, pattern: vec![0] })?;
        Ok(memory)
    }

    fn of(context: &Arc<Context>, address: CUdeviceptr, owner: Owner) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), address, owner: Some(owner) })
    }

    /// Makes a buffer at the GPU's addresses for memory of the host.
    pub(super) fn mapped(
        context: &Arc<Context>,
        memory: Box<dyn HostMemory>,
    ) -> Result<Arc<Self>, Status> {
        let mapped = Mapped::new(context.device, memory)?;
        Ok(Self::of(context, mapped.address(), Owner::Mapped(mapped)))
    }

    /// Makes a buffer of a part of a module's variable.
    pub(super) fn variable(
        context: &Arc<Context>,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Result<Arc<Self>, Status> {
        let module = module::with_variable(address, bytes)
            .filter(|module| std::ptr::eq(module.device(), context.device))
            .ok_or(Status::INVALID_HOST_PTR)?;
        Ok(Self::of(context, address, Owner::Variable(module)))
    }

    /// Returns the address of a byte on the GPU less its address in this process, if the bytes are
    /// memory of the host.
    pub(super) fn host_distance(&self) -> Option<u64> {
        match self.owner.as_ref()? {
            Owner::Mapped(mapped) => Some(mapped.distance()),
            Owner::Buffer(parent) => parent.host_distance(),
            Owner::Own(_) | Owner::Variable(_) => None,
        }
    }

    /// Returns the layout of `bytes` bytes at `offset`.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> Layout {
        Layout::linear(self.address + offset as u64, bytes)
    }

    pub(super) fn rect(&self, at: &Placed, region: [usize; 3]) -> Layout {
        Layout::rect(self.address, at, region)
    }
}

impl MemDriver for Arc<Memory> {
    fn part(
        &self,
        _flags: u64,
        offset: usize,
        _bytes: usize,
    ) -> Result<Box<dyn MemDriver>, Status> {
        let address = self.address + offset as u64;
        Ok(Box::new(Memory::of(&self.context, address, Owner::Buffer(self.clone()))))
    }

    fn init(&self, offset: usize, bytes: &[u8]) -> Result<(), Status> {
        let mut from = Staged::new(bytes.len())?;
        from.copy_from_slice(bytes);
        let to = self.range(offset, bytes.len());
        self.context.run(Work::Write { from, to, done: 0 })
    }

    fn device_address(&self) -> Result<u64, Status> {
        Ok(self.address)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let remains = match self.owner.take() {
            Some(Owner::Own(share)) => Remains::Memory(self.address, share),
            Some(Owner::Mapped(mapped)) => Remains::Kept(Box::new(mapped)),
            Some(Owner::Buffer(_) | Owner::Variable(_)) | None => return,
        };
        Reaper::take(self.context.device, remains);
    }
}
