//! Symmetric heaps over CUDA devices: memory that kernels of several devices store into.
//! `include/penstock_cuda.h` is the interface.
//!
//! A heap has the same address on all its devices, and each device sees its own view there.
//! Translated kernels have a window of addresses for heaps, and each launch gets the view of its
//! device as an argument. The parameters of the launch determine the heap. On a GPU of CUDA's own
//! driver the view has an address of the GPU, which replaces the heap's address among the
//! parameters.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use penstock_client::{Error, Event, Given, HeapOptions, Queue, Range, Target, Want};
use penstock_cuda_sys::driver::*;
use penstock_process::SharedLock;
use penstock_ptx::translate::{HEAP_BYTES_MAX, HEAP_WINDOW};
use penstock_wire::Status;

use super::device::Device;
use crate::edge::{CuResult, has_handle, new_number, of_error, of_status, publish};

/// Maximum number of heaps of a process: the number that fits into the window of addresses.
const HEAPS_MAX: usize = 64;

/// Bits by which a heap's slot is shifted in its address.
const NUMBER_SHIFT: u32 = HEAP_BYTES_MAX.trailing_zeros();

/// Type that a program's handle of a heap points to.
#[derive(Debug)]
pub enum PenstockHeap {}

pub(crate) struct Heap {
    number: u64,
    /// Index in [`HEAPS`], which is part of its address.
    pub(super) slot: usize,
    pub(crate) pool: Arc<penstock_client::Heap>,
    devices: Vec<Arc<Device>>,
    /// By PE. For reads and writes that need no order with a stream.
    queues: Vec<Arc<Queue>>,
}

/// The heaps of the process, by the slot in their addresses.
static HEAPS: SharedLock<[Option<Arc<Heap>>; HEAPS_MAX]> =
    SharedLock::new([const { None }; HEAPS_MAX]);

/// Number of heaps. Launches look here first.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Message of the last function of the interface that failed in this thread.
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Stores a message for the program, and returns `code`.
pub(crate) fn fail_with(code: CUresult, text: &str) -> CUresult {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    _ = TEXT.try_with(|last| last.replace(text));
    code
}

/// Returns the last message of [`fail_with`] in this thread. It is valid until the next one.
pub(crate) fn last_message() -> *const c_char {
    TEXT.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the code for an error of the pool, and stores its message. `refused`: the code for
/// `INVALID_OPERATION`.
pub(super) fn code_of(error: &Error, refused: CUresult) -> CUresult {
    let code = match error {
        Error::Heap { status: Status::INVALID_OPERATION, .. } => refused,
        other => of_error(other),
    };
    fail_with(code, &error.to_string())
}

/// Returns whether an address is in the window of heaps.
pub(crate) fn is_address(address: u64) -> bool {
    address / HEAP_WINDOW == 1
}

/// Returns whether the process has heaps.
#[inline]
pub(crate) fn any_exist() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Finds the heap whose address is among the parameters of a launch.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if there are two heaps.
pub(crate) fn find_among(params: &[u8]) -> CuResult<Option<Arc<Heap>>> {
    let mut found: Option<Arc<Heap>> = None;
    for word in params.as_chunks::<8>().0 {
        let address = u64::from_le_bytes(*word);
        let Some(heap) = of_address(address) else { continue };
        if found.as_ref().is_some_and(|known| known.slot != heap.slot) {
            return Err(fail_with(
                CUDA_ERROR_INVALID_VALUE,
                "a launch has two heaps among its parameters; a kernel can use only one",
            ));
        }
        found = Some(heap);
    }
    Ok(found)
}

/// Returns the index in [`HEAPS`] that an address stands for.
fn slot_of(address: u64) -> Option<usize> {
    if !is_address(address) {
        return None;
    }
    usize::try_from((address - HEAP_WINDOW) >> NUMBER_SHIFT).ok()
}

fn of_address(address: u64) -> Option<Arc<Heap>> {
    let slot = slot_of(address)?;
    HEAPS.read().get(slot)?.clone()
}

has_handle!(Heap: PenstockHeap, CUDA_ERROR_INVALID_HANDLE);

impl Heap {
    /// Makes a heap with a part of `bytes` on each device; the first device is PE 0. Waits for the
    /// nodes.
    pub(crate) fn create(
        devices: Vec<Arc<Device>>,
        bytes: u64,
        timeout: Option<Duration>,
        force_proxy: Option<bool>,
    ) -> CuResult<Arc<Self>> {
        let mut options = HeapOptions { force_proxy, ..HeapOptions::default() };
        if let Some(timeout) = timeout {
            options.timeout = timeout;
        }
        // Half of a heap's addresses; the other half is for the data beside the parts.
        if bytes.saturating_mul(devices.len() as u64) > HEAP_BYTES_MAX / 2 {
            let text = format!(
                "a heap of {bytes} bytes on each of {} devices exceeds the address range of a heap",
                devices.len()
            );
            return Err(fail_with(CUDA_ERROR_OUT_OF_MEMORY, &text));
        }
        let seats: Vec<_> = devices.iter().map(|device| (&device.context, &device.pool)).collect();
        let pool = penstock_client::Heap::create_over(&seats, bytes, options);
        let pool = pool.map_err(|error| code_of(&error, CUDA_ERROR_NOT_SUPPORTED))?;
        let queues =
            devices.iter().map(|device| device.new_queue()).collect::<CuResult<Vec<_>>>()?;
        let mut heaps = HEAPS.write();
        let free = heaps.iter_mut().enumerate().find(|(_, heap)| heap.is_none());
        let (slot, entry) = free.ok_or_else(|| {
            fail_with(
                CUDA_ERROR_OUT_OF_MEMORY,
                "the process has 64 heaps, the most that it can have; close one first",
            )
        })?;
        let heap = Arc::new(Self { number: new_number(), slot, pool, devices, queues });
        *entry = Some(heap.clone());
        COUNT.fetch_add(1, Ordering::AcqRel);
        publish(&heap);
        Ok(heap)
    }

    /// Ends the program's handle. Running kernels keep the heap until they have ended.
    pub(crate) fn close(&self) -> CuResult {
        crate::edge::forget(self).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let mut heaps = HEAPS.write();
        let gone = heaps.get_mut(self.slot).and_then(Option::take);
        drop(heaps);
        if gone.is_some() {
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Returns its address, at which each device sees its own view.
    pub(crate) fn address(&self) -> u64 {
        HEAP_WINDOW + ((self.slot as u64) << NUMBER_SHIFT)
    }

    /// Replaces the heap's address among a launch's parameters by the address that the device has
    /// for it. Does nothing for translated kernels, which use the heap's own address.
    pub(super) fn write_address_on(&self, device: &Device, params: &mut [u8]) {
        let Some(there) = self.pool.address_on(&device.pool) else { return };
        for word in params.as_chunks_mut::<8>().0 {
            let address = u64::from_le_bytes(*word);
            if slot_of(address) == Some(self.slot) {
                // Keeps the offset from the start of the heap.
                *word = there.wrapping_add(address - self.address()).to_le_bytes();
            }
        }
    }

    /// Returns the bytes of each part.
    pub(crate) fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Returns the number of PEs.
    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the device of a PE.
    pub(crate) fn device(&self, pe: u32) -> CuResult<&Arc<Device>> {
        self.devices.get(pe as usize).ok_or_else(|| self.no_pe(pe))
    }

    fn no_pe(&self, pe: u32) -> CUresult {
        fail_with(
            CUDA_ERROR_INVALID_VALUE,
            &format!("there is no PE {pe}; the heap has {}", self.count()),
        )
    }

    fn queue(&self, pe: u32) -> CuResult<&Arc<Queue>> {
        self.queues.get(pe as usize).ok_or_else(|| self.no_pe(pe))
    }

    /// Returns how PE `from` reaches PE `to`.
    pub(crate) fn path(&self, from: u32, to: u32) -> CuResult<penstock_wire::describe::HeapPath> {
        let row = self.pool.paths().get(from as usize).ok_or_else(|| self.no_pe(from))?;
        row.get(to as usize).copied().ok_or_else(|| self.no_pe(to))
    }

    /// Writes into a PE's part. Waits until the write has ended.
    pub(crate) fn write(&self, pe: u32, offset: u64, bytes: &[u8]) -> CuResult {
        let queue = self.queue(pe)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.await_end(self.pool.write(queue, offset, &Given(bytes), &[], Want::Event))
    }

    /// Reads from a PE's part. Waits until the read has ended.
    pub(crate) fn read(&self, pe: u32, range: Range, target: Box<dyn Target>) -> CuResult {
        let queue = self.queue(pe)?;
        if range.size == 0 {
            return Ok(());
        }
        self.await_end(self.pool.read(queue, range, target, &[]))
    }

    fn await_end(&self, sent: Result<Option<Event>, Error>) -> CuResult {
        let event = sent.map_err(|error| code_of(&error, CUDA_ERROR_INVALID_VALUE))?;
        let status = event.map_or(Status::OK, |event| event.wait());
        if !status.is_error() {
            return Ok(());
        }
        Err(fail_with(of_status(status), &format!("a copy to or from the heap failed: {status}")))
    }

    /// Ends all waits of kernels on the heap, now and later, until [`Heap::reset`].
    pub(crate) fn abort(&self, reason: &str) -> CuResult {
        self.pool.abort(reason).map_err(|error| code_of(&error, CUDA_ERROR_INVALID_VALUE))
    }

    /// Returns why the heap was aborted, if it was. Asks the nodes.
    pub(crate) fn aborted(&self) -> Option<String> {
        self.pool.aborted()
    }

    /// Makes the heap usable again after an abort or a time-out.
    pub(crate) fn reset(&self) -> CuResult {
        self.pool.reset().map_err(|error| code_of(&error, CUDA_ERROR_DEVICE_UNAVAILABLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_heaps_are_nobody_elses() {
        assert!(is_address(HEAP_WINDOW) && is_address(HEAP_WINDOW + 64 * HEAP_BYTES_MAX - 1));
        for other in [
            0,
            0x7fff_ffff_ffff,
            super::super::address::first(63) + (1 << 42) - 1,
            2 * HEAP_WINDOW,
            1 << 56,
        ] {
            assert!(!is_address(other), "{other:#x}");
        }
        // The window is exactly as large as all heaps together.
        assert_eq!(HEAP_BYTES_MAX * HEAPS_MAX as u64, HEAP_WINDOW);
    }

    #[test]
    fn a_sentence_stays_until_the_next_one() {
        assert_eq!(fail_with(CUDA_ERROR_INVALID_VALUE, "why\0not"), CUDA_ERROR_INVALID_VALUE);
        // SAFETY: `last_message` returns a string of this thread, which stays until the next
        // `fail_with`.
        let text = unsafe { std::ffi::CStr::from_ptr(last_message()) };
        assert_eq!(text, c"why not");
    }
}
