//! A context's control block on the device: kernels write faults and printed output there. The
//! translated code uses the same layout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use penstock_client::{Error, Given, Queue, Want};
use penstock_process::Lock;
use penstock_ptx::translate::MALLOC_UNIT_BYTES;

use super::block::{GRAIN_BYTES, MemoryOffset};
use super::device::Device;
use crate::edge::{CuResult, of_error};

const BLOCK_BYTES: usize = 256;

/// Two `u64`: what happened and the address. Then a `u32`: the line of the PTX.
const FAULT_AT: usize = 0;
/// Two `u64`: address and size of the ring.
const RING_AT: usize = 128;
/// Two `u32`: bytes written so far, and records that did not fit.
const HEAD_AT: usize = 144;
/// `u64`: address of the bitmap of allocated memory.
const BITMAP_AT: usize = 160;

/// `u64`: address of the table of the memory that kernels allocate. Then three `u32`: the number of
/// units, the sum that says where the next search begins, and the number of free units.
const MALLOC_AT: usize = 168;
/// Bytes of one word of that table.
const MALLOC_WORD_BYTES: u64 = 4;
/// The number of units is a multiple of this, so that the first unit, which is behind the table, is
/// aligned.
const MALLOC_UNITS_STEP: u64 = MALLOC_UNIT_BYTES / MALLOC_WORD_BYTES;
/// The largest number of units, which are 64 GiB. Kernels count units in `u32`, and all ones in the
/// table mean something else than a number.
const MALLOC_UNITS_MAX: u64 = 1 << 30;

/// The block, and a queue for access to it.
pub(crate) struct Control {
    device: Arc<Device>,
    address: u64,
    located: MemoryOffset,
    ring: OnceLock<Ring>,
    /// Whether there is memory that kernels allocate.
    has_malloc: AtomicBool,
    /// Whether waits must look at the block: a loaded kernel may fail or print, or check mode is
    /// on.
    watched: AtomicBool,
    /// Whether the user has been told of the fault. The fault stays in the block.
    told: AtomicBool,
    /// Not a stream of the program, so that reads here wait for no command.
    queue: Arc<Queue>,
    looking: Lock<()>,
}

/// What kernels have told through the block.
pub(crate) struct KernelReport {
    /// Whether the ring holds printed output.
    pub(crate) has_output: bool,
    pub(crate) fault: Option<KernelFault>,
}

/// The first fault of a kernel.
pub(crate) struct KernelFault {
    /// See [`super::fault`].
    pub(crate) kind: u64,
    /// The invalid address, or another value that depends on the kind.
    pub(crate) address: u64,
    /// Line of the PTX.
    pub(crate) line: u32,
}

struct Ring {
    address: u64,
    size: u64,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

impl Control {
    pub(crate) fn new(device: &Arc<Device>, owner: u64) -> CuResult<Self> {
        let address = device.allocate_block(BLOCK_BYTES as u64, owner)?.address;
        let located = device.space.locate(address, BLOCK_BYTES as u64)?;
        Ok(Self {
            device: device.clone(),
            address,
            located,
            ring: OnceLock::new(),
            has_malloc: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            told: AtomicBool::new(false),
            queue: device.new_queue()?,
            looking: Lock::default(),
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Writes the block and waits for the device. Its answer shows whether the queue and the memory
    /// could be made.
    pub(crate) fn begin(&self, queue: &Arc<Queue>) -> Result<(), Error> {
        let mut block = [0; BLOCK_BYTES];
        if let Some(check) = self.device.check() {
            block[BITMAP_AT..BITMAP_AT + 8].copy_from_slice(&check.bitmap().to_le_bytes());
        }
        queue.write(
            &self.located.memory,
            self.located.offset,
            &Given(&block),
            &[],
            Want::Nothing,
        )?;
        queue.finish()?;
        if self.device.check().is_some() {
            self.watched.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether there is a ring for printed output.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.get().is_some()
    }

    /// Makes each later wait read the control block for faults and printed output.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::Release);
    }

    /// Returns whether waits must look at the block.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Keeps other threads from looking at the block until the result is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.looking.lock()
    }

    /// Makes the ring for printed output, unless there is one. `owner`: number of the context.
    pub(crate) fn make_ring(&self, bytes: u64, owner: u64) -> CuResult {
        let _looking = self.lock();
        if self.has_ring() {
            return Ok(());
        }
        let size = bytes.max(GRAIN_BYTES);
        let address = self.device.allocate_block(size, owner)?.address;
        let mut words = [0; 24];
        words[..8].copy_from_slice(&address.to_le_bytes());
        words[8..16].copy_from_slice(&size.to_le_bytes());
        self.write(RING_AT, &words).map_err(|error| of_error(&error))?;
        _ = self.ring.set(Ring { address, size });
        Ok(())
    }

    /// Returns whether kernels can allocate memory.
    pub(crate) fn has_malloc(&self) -> bool {
        self.has_malloc.load(Ordering::Acquire)
    }

    /// Makes the memory that kernels allocate, unless it is there. `owner`: number of the context.
    pub(crate) fn make_malloc(&self, bytes: u64, owner: u64) -> CuResult {
        let _looking = self.lock();
        if self.has_malloc() {
            return Ok(());
        }
        let units = bytes
            .div_ceil(MALLOC_UNIT_BYTES)
            .clamp(1, MALLOC_UNITS_MAX)
            .next_multiple_of(MALLOC_UNITS_STEP);
        let table = units * MALLOC_WORD_BYTES;
        let address = self.device.allocate_block(table + units * MALLOC_UNIT_BYTES, owner)?.address;
        let located = self.device.space.locate(address, table)?;
        let range = penstock_client::Range { offset: located.offset, size: table };
        self.queue
            .fill(&located.memory, &[0; 4], range, &[], Want::Nothing)
            .map_err(|error| of_error(&error))?;
        // The `u64` with the number of units has 0 for the sum in its upper half.
        let mut words = [0; 24];
        words[..8].copy_from_slice(&address.to_le_bytes());
        words[8..16].copy_from_slice(&units.to_le_bytes());
        words[16..].copy_from_slice(&units.to_le_bytes());
        self.write(MALLOC_AT, &words).map_err(|error| of_error(&error))?;
        self.has_malloc.store(true, Ordering::Release);
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.queue.write(
            &self.located.memory,
            self.located.offset + at as u64,
            &Given(bytes),
            &[],
            Want::Nothing,
        )?;
        self.queue.finish()
    }

    /// Returns what kernels have written into the block.
    pub(crate) fn report(&self) -> Result<KernelReport, Error> {
        let block = self.read(self.address, BLOCK_BYTES as u64)?;
        let printed: [u8; 8] = word(&block, HEAD_AT);
        let kind = u64::from_le_bytes(word(&block, FAULT_AT));
        let fault = KernelFault {
            kind,
            address: u64::from_le_bytes(word(&block, FAULT_AT + 8)),
            line: u32::from_le_bytes(word(&block, FAULT_AT + 16)),
        };
        Ok(KernelReport {
            has_output: self.has_ring() && printed != [0; 8],
            fault: (kind != 0).then_some(fault),
        })
    }

    /// Returns whether the fault in the block is reported to the user for the first time.
    pub(crate) fn is_first_report(&self) -> bool {
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// Takes the printed records and empties the ring. The caller makes sure that no kernel runs or
    /// is sent meanwhile.
    pub(crate) fn take_output(&self) -> Result<Vec<u8>, Error> {
        let Some(ring) = self.ring.get() else { return Ok(Vec::new()) };
        let block = self.read(self.address, BLOCK_BYTES as u64)?;
        let head = u64::from(u32::from_le_bytes(word(&block, HEAD_AT)));
        let records = self.read(ring.address, head.min(ring.size))?;
        self.write(HEAD_AT, &[0; 8])?;
        Ok(records)
    }

    /// Reads bytes of the device without waiting for any stream.
    fn read(&self, address: u64, size: u64) -> Result<Vec<u8>, Error> {
        let located = self.device.space.locate(address, size);
        let Ok(located) = located else { return Ok(Vec::new()) };
        let bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let bytes = Arc::new(Lock::new(bytes));
        let range = penstock_client::Range { offset: located.offset, size };
        self.queue.read_now(&located.memory, range, Box::new(bytes.clone()), &[], Want::Nothing)?;
        Ok(std::mem::take(&mut *bytes.lock()))
    }

    /// Returns the string at an address, up to its terminating 0.
    pub(crate) fn text(&self, address: u64) -> Vec<u8> {
        /// The longest string that is printed. A longer one comes from a wrong pointer.
        const TEXT_BYTES_MAX: u64 = 64 << 10;
        let Some((start, live)) = self.device.space.find(address) else { return Vec::new() };
        let size = (start + live.size - address).min(TEXT_BYTES_MAX);
        let mut bytes = self.read(address, size).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        bytes
    }
}
