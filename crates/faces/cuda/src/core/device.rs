//! Devices: their properties and their memory.

use std::fmt;
use std::sync::{Arc, OnceLock};

use penstock_client::{Event, Queue};
use penstock_cuda_sys::driver::CUdevice;
use penstock_process::{log, variable};

use super::address::DEVICES_MAX;
use super::arena::{AddressSpace, DeviceMemory};
use super::block::{ArenaSource, Block};
use super::check::{self, CheckBitmap};
use super::facts::{DeviceFacts, MemorySizes};
use super::program::ProgramCache;
use crate::edge::{CuResult, of_error};

pub(crate) struct Device {
    pub(crate) ordinal: usize,
    /// The device as the pool knows it.
    pub(crate) pool: Arc<penstock_client::Device>,
    /// Context of the pool in which its memory, queues and programs are made.
    pub(crate) context: Arc<penstock_client::Context>,
    pub(crate) facts: DeviceFacts,
    pub(crate) space: AddressSpace,
    /// Host memory that the device copies by itself ([`super::pinned`]).
    pub(super) pinned: AddressSpace,
    pub(crate) programs: ProgramCache,
    /// Whether its node drives the device through CUDA's own driver.
    pub(crate) is_native: bool,
    check: OnceLock<Option<CheckBitmap>>,
}

/// One value for each device of the process.
pub(crate) struct PerDevice<T>([T; DEVICES_MAX]);

impl<T> PerDevice<T> {
    pub(crate) const fn new(values: [T; DEVICES_MAX]) -> Self {
        Self(values)
    }

    pub(crate) fn of(&self, device: &Device) -> &T {
        // No panic: `platform` makes at most this number of devices.
        &self.0[device.ordinal]
    }
}

impl Device {
    /// `neighbours`: number of devices in its context, which share the memory of the context.
    pub(crate) fn new(
        ordinal: usize,
        pool: Arc<penstock_client::Device>,
        context: Arc<penstock_client::Context>,
        neighbours: usize,
    ) -> Self {
        let lazy = pool.shares_host_memory();
        // Check mode has one bitmap, and it covers one arena.
        let has_one_arena = check::is_checking();
        let is_native = pool.is_cuda();
        let MemorySizes { total, largest_buffer } = MemorySizes::of(&pool);
        let share = if lazy { total / (neighbours.max(1) as u64) } else { total };
        let source = if is_native { ArenaSource::Driver } else { ArenaSource::Pool };
        let memory =
            DeviceMemory { largest: largest_buffer, total: share, lazy, has_one_arena, source };
        Self {
            facts: DeviceFacts::of(&pool),
            space: AddressSpace::new(&context, ordinal, memory),
            pinned: AddressSpace::new(&context, ordinal, DeviceMemory::SHARED),
            is_native,
            ordinal,
            pool,
            context,
            programs: ProgramCache::default(),
            check: OnceLock::new(),
        }
    }

    /// Returns whether kernels can use host memory in place: all memory of the device is memory
    /// that this process has mapped, too.
    pub(crate) fn can_map_host_memory(&self) -> bool {
        !self.is_native && self.pool.shares_client_memory()
    }

    pub(crate) fn number(&self) -> CUdevice {
        CUdevice::try_from(self.ordinal).unwrap_or(CUdevice::MAX)
    }

    /// Makes a queue on the device. Only markers are timed, because only events report times.
    pub(crate) fn new_queue(&self) -> CuResult<Arc<Queue>> {
        Queue::timing_markers(&self.context, &self.pool).map_err(|error| of_error(&error))
    }

    /// Returns the device's bitmap if check mode is enabled.
    pub(crate) fn check(&self) -> Option<&CheckBitmap> {
        if !check::is_checking() {
            return None;
        }
        self.check
            .get_or_init(|| {
                self.new_queue()
                    .and_then(|queue| CheckBitmap::new(&self.space, queue))
                    .inspect_err(|_| log!(Warn, "no memory for {}", variable::CHECK.name))
                    .ok()
            })
            .as_ref()
    }

    /// Allocates memory for `owner` that the program may free. Returns its address.
    pub(crate) fn allocate(&self, size: u64, owner: u64) -> CuResult<u64> {
        Ok(self.marked(self.space.allocate(size, owner, true)?, size)?.address)
    }

    /// Allocates memory for `owner` that the program cannot free.
    pub(crate) fn allocate_block(&self, size: u64, owner: u64) -> CuResult<Block> {
        self.marked(self.space.allocate(size, owner, false)?, size)
    }

    fn marked(&self, block: Block, size: u64) -> CuResult<Block> {
        if let Some(check) = self.check() {
            check.mark(block.address, size, true)?;
        }
        Ok(block)
    }

    /// Frees the program's memory. It is used again once `busy` have ended.
    pub(crate) fn release(&self, address: u64, busy: Vec<Event>) -> CuResult {
        let size = self.space.free_of_program(address, self.unless_checking(busy))?;
        self.check().map_or(Ok(()), |check| check.mark(address, size, false))
    }

    /// Frees a block. Its memory is used again once `busy` have ended.
    pub(crate) fn release_block(&self, block: Block, busy: Vec<Event>) -> CuResult {
        let size = self.space.free_block(block, self.unless_checking(busy))?;
        self.check().map_or(Ok(()), |check| check.mark(block.address, size, false))
    }

    /// Frees everything that a destroyed context owned.
    pub(crate) fn free_of(&self, owner: u64) {
        let freed = self.space.free_of(owner);
        if let Some(check) = self.check() {
            for (address, size) in freed {
                // The device of a lost node checks nothing.
                _ = check.mark(address, size, false);
            }
        }
    }

    /// Returns the events that freed memory waits for. Check mode waits here instead: earlier
    /// kernels must still find the memory allocated, and later kernels must not.
    fn unless_checking(&self, busy: Vec<Event>) -> Vec<Event> {
        if self.check().is_none() {
            return busy;
        }
        for event in busy {
            _ = event.wait();
        }
        Vec::new()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.ordinal)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
