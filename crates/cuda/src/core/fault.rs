//! Faults of kernels, and check mode, which detects invalid addresses.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_client::{Event, Given, Queue, Want};
use penstock_cuda_sys::driver::*;
use penstock_ptx::translate::name_number;
use rustc_hash::FxHashMap;

use super::arena::{Block, GRAIN_BYTES, Place};
use super::device::Device;
use super::log;
use super::stream::Stream;
use crate::edge::{CuResult, of_error};

/// Environment variable that enables check mode: kernels look at each address before they use it.
/// Any value except 0 and the empty one.
const CHECK_VARIABLE: &str = "PENSTOCK_CHECK";

/// Returns whether check mode is enabled.
pub(crate) fn is_checking() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted =
        || std::env::var_os(CHECK_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
    *WANTED.get_or_init(wanted)
}

/// Returns the code for a fault in the control block.
pub(crate) fn of(kind: u64) -> CUresult {
    match kind {
        1 => CUDA_ERROR_ILLEGAL_ADDRESS,
        2 => CUDA_ERROR_MISALIGNED_ADDRESS,
        ASSERTION => CUDA_ERROR_ASSERT,
        _ => CUDA_ERROR_LAUNCH_FAILED,
    }
}

/// Fault number of a failed assertion.
const ASSERTION: u64 = 4;

/// Fault number of threads that wait for an event that cannot happen.
const STUCK: u64 = 5;

/// Names of kernels that can fault, by the numbers that identify them in faults.
static NAMES: Mutex<FxHashMap<u64, String>> =
    Mutex::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher));

/// Stores the name of a kernel for later reports of its faults.
pub(crate) fn remember(name: &str) {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name_number(name)).or_insert_with(|| name.to_owned());
}

/// Returns the name of a kernel in PTX, if it is known.
fn name_of(number: u64) -> String {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get(&number).cloned().unwrap_or_else(|| String::from("(unknown)"))
}

/// Reports a fault. Failed assertions are always printed, as C's are; `text` is then the assertion.
/// Stuck threads are always printed, too.
pub(crate) fn tell(kind: u64, address: u64, line: u32, text: &[u8]) {
    let what = match kind {
        1 => "used an address that is not allocated",
        2 => "used a misaligned address",
        3 => "stopped at a trap",
        ASSERTION => {
            return log::always(format_args!(
                "Assertion `{}` failed in a kernel",
                String::from_utf8_lossy(text)
            ));
        }
        STUCK => {
            let name = name_of(address);
            return log::always(format_args!(
                "kernel {name}: its threads wait for a value in shared memory, or for each \
                 other, but no running thread can end the wait"
            ));
        }
        _ => "failed in an unknown way",
    };
    log::line(format_args!("a kernel {what}: address {address:#x}, line {line} of its PTX"));
}

/// Bitmap of the allocated parts of a device's first arena, for kernels in check mode. It has one
/// bit for each [`GRAIN_BYTES`].
pub(crate) struct Check {
    address: u64,
    first: u64,
    place: Place,
    queue: Arc<Queue>,
    bits: Mutex<Vec<u8>>,
}

impl Check {
    /// Makes the bitmap of a device whose memory has just been made.
    fn new(device: &Device) -> CuResult<Self> {
        let arenas = device.space.arenas();
        let arena = arenas.first().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = arena.size / GRAIN_BYTES / 8 + 1;
        // Without an owner, so no context frees it.
        let address = device.space.allocate(bytes, 0, false)?.address;
        let check = Self {
            address,
            first: arena.base,
            place: device.space.place(address, bytes)?,
            queue: Stream::queue_on(device)?,
            bits: Mutex::new(vec![
                0;
                usize::try_from(bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?
            ]),
        };
        let mut all = Vec::new();
        device.space.each(|start, size| all.push((start, size)));
        for (start, size) in all {
            check.mark(start, size, true)?;
        }
        Ok(check)
    }

    /// Returns the bitmap's address on the device.
    pub(crate) fn bitmap(&self) -> u64 {
        self.address
    }

    fn mark(&self, start: u64, size: u64, allocated: bool) -> CuResult {
        let from = start.saturating_sub(self.first) / GRAIN_BYTES;
        let to = from + size.div_ceil(GRAIN_BYTES);
        let mut bits = self.bits.lock().unwrap_or_else(PoisonError::into_inner);
        let byte = |bit: u64| usize::try_from(bit / 8).unwrap_or(usize::MAX);
        for bit in from..to {
            // Only the first arena is checked.
            let Some(at) = bits.get_mut(byte(bit)) else { return Ok(()) };
            let mask = 1 << (bit % 8);
            *at = if allocated { *at | mask } else { *at & !mask };
        }
        let range = byte(from)..byte(to.max(from + 1) - 1) + 1;
        let changed = bits.get(range.clone()).unwrap_or_default();
        let offset = self.place.offset + range.start as u64;
        self.queue
            .write(&self.place.memory, offset, &Given(changed), &[], Want::Nothing)
            .and_then(|_| self.queue.finish())
            .map_err(|error| of_error(&error))
    }
}

impl Device {
    /// Returns the device's bitmap if check mode is enabled.
    pub(crate) fn check(&self) -> Option<&Check> {
        if !is_checking() {
            return None;
        }
        self.check_cell()
            .get_or_init(|| {
                Check::new(self)
                    .inspect_err(|_| log::line(format_args!("no memory for {CHECK_VARIABLE}")))
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
        let size = self.space.free_own(address, self.unless_checking(busy))?;
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
