//! A context's control block on the device: kernels write faults and printed output there. The
//! translated code uses the same layout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_client::{Error, Given, Queue, Want};
use penstock_cuda_sys::driver::CU_LIMIT_PRINTF_FIFO_SIZE;

use super::arena::{GRAIN_BYTES, Place};
use super::context::Context;
use super::device::Device;
use super::stream::Stream;
use super::{fault, printf};
use crate::edge::{CuResult, Object, of_error};

const BLOCK_BYTES: usize = 256;

/// Two `u64`: what happened and the address. Then a `u32`: the line of the PTX.
const FAULT_AT: usize = 0;
/// Two `u64`: address and size of the ring.
const RING_AT: usize = 128;
/// Two `u32`: bytes written so far, and records that did not fit.
const HEAD_AT: usize = 144;
/// `u64`: address of the bitmap of allocated memory.
const BITMAP_AT: usize = 160;

/// The block, and a queue for access to it.
pub(crate) struct Control {
    device: Arc<Device>,
    address: u64,
    place: Place,
    ring: OnceLock<Ring>,
    /// Whether waits must look at the block: a loaded kernel may fail or print, or check mode is
    /// on.
    watched: AtomicBool,
    /// Whether the user has been told of the fault. The fault stays in the block.
    told: AtomicBool,
    /// Not a stream of the program, so that reads here wait for no command.
    queue: Arc<Queue>,
    looking: Mutex<()>,
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
        let place = device.space.place(address, BLOCK_BYTES as u64)?;
        Ok(Self {
            device: device.clone(),
            address,
            place,
            ring: OnceLock::new(),
            watched: AtomicBool::new(false),
            told: AtomicBool::new(false),
            queue: Stream::queue_on(device)?,
            looking: Mutex::default(),
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
        queue.write(&self.place.memory, self.place.offset, &Given(&block), &[], Want::Nothing)?;
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

    /// Notes that a kernel is loaded that may fail or print: from now on each wait looks at the
    /// block. Makes the ring if the kernel prints.
    pub(crate) fn watch(&self, context: &Context, prints: bool) -> CuResult {
        self.watched.store(true, Ordering::Release);
        if !prints || self.has_ring() {
            return Ok(());
        }
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ring() {
            return Ok(());
        }
        let size = context.limit(CU_LIMIT_PRINTF_FIFO_SIZE)?.max(GRAIN_BYTES);
        let address = self.device.allocate_block(size, context.number())?.address;
        let mut words = [0; 24];
        words[..8].copy_from_slice(&address.to_le_bytes());
        words[8..16].copy_from_slice(&size.to_le_bytes());
        self.write(RING_AT, &words).map_err(|error| of_error(&error))?;
        _ = self.ring.set(Ring { address, size });
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        self.queue.write(
            &self.place.memory,
            self.place.offset + at as u64,
            &Given(bytes),
            &[],
            Want::Nothing,
        )?;
        self.queue.finish()
    }

    /// Looks for faults and output of kernels. Called after every wait.
    ///
    /// # Errors
    /// The fault of a kernel, which is permanent.
    #[inline]
    pub(crate) fn look(&self, context: &Context) -> CuResult {
        if self.watched.load(Ordering::Acquire) { self.look_closely(context) } else { Ok(()) }
    }

    fn look_closely(&self, context: &Context) -> CuResult {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: Error| context.failed(&error);
        let block = self.read(self.address, BLOCK_BYTES as u64).map_err(failed)?;
        let printed: [u8; 8] = word(&block, HEAD_AT);
        if let Some(ring) = self.ring.get().filter(|_| printed != [0; 8]) {
            let records =
                context.while_idle(|| self.take_records(ring)).transpose().map_err(failed)?;
            printf::print(&records.unwrap_or_default(), &mut |address| self.text(address));
        }
        match u64::from_le_bytes(word(&block, FAULT_AT)) {
            0 => Ok(()),
            kind => {
                let address = u64::from_le_bytes(word(&block, FAULT_AT + 8));
                let line = u32::from_le_bytes(word(&block, FAULT_AT + 16));
                let code = fault::of(kind);
                if !self.told.swap(true, Ordering::AcqRel) {
                    fault::tell(kind, address, line, &self.text(address));
                }
                Err(context.fail(code))
            }
        }
    }

    /// Takes the printed records and empties the ring. No kernel may run or be sent meanwhile: its
    /// records may be half written, and records written between the two steps would be lost.
    fn take_records(&self, ring: &Ring) -> Result<Vec<u8>, Error> {
        let block = self.read(self.address, BLOCK_BYTES as u64)?;
        let head = u64::from(u32::from_le_bytes(word(&block, HEAD_AT)));
        let records = self.read(ring.address, head.min(ring.size))?;
        self.write(HEAD_AT, &[0; 8])?;
        Ok(records)
    }

    /// Reads bytes of the device without waiting for any stream.
    pub(crate) fn read(&self, address: u64, size: u64) -> Result<Vec<u8>, Error> {
        let place = self.device.space.place(address, size);
        let Ok(place) = place else { return Ok(Vec::new()) };
        let bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let bytes = Arc::new(Mutex::new(bytes));
        let range = penstock_client::Range { offset: place.offset, size };
        self.queue.read_now(&place.memory, range, Box::new(bytes.clone()), &[], Want::Nothing)?;
        Ok(std::mem::take(&mut *bytes.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns the string at an address, up to its terminating 0.
    fn text(&self, address: u64) -> Vec<u8> {
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
