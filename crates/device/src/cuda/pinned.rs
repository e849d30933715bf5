//! Host memory that the GPU reads and writes by itself. Copies from and to other memory stop the thread that asks for them.
//!
//! What the session stages is pinned where it lies ([`Pinned`]); all else goes through slots, which are used again.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use penstock_cuda_sys::driver::{
    CU_MEMHOSTALLOC_PORTABLE, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
};
use penstock_wire::status::Status;

use super::device::Device;
use super::driver::check;
use super::object::{Address, Object};
use super::platform;

/// What a large slot holds. At 25 GB/s it takes the bus 170 µs, against some 10 µs for a command; two are 8 MiB.
pub(super) const SLOT_BYTES: usize = 4 << 20;
/// What a small slot holds: the content of most reads.
pub(super) const SMALL_SLOT_BYTES: usize = 64 << 10;
/// Large slots: while the bus works on one, the host fills or empties another; four serve two queues.
const SLOTS_MAX: usize = 4;
/// Small slots: 4 MiB.
const SMALL_SLOTS_MAX: usize = 64;

/// The slots of a device.
#[derive(Default)]
pub(super) struct Slots {
    small: Class,
    large: Class,
}

#[derive(Default)]
struct Class {
    state: Mutex<Made>,
    freed: Condvar,
}

#[derive(Default)]
struct Made {
    free: Vec<Address<u8>>,
    made: usize,
}

/// Some pinned memory of this process, free again when dropped.
pub(super) struct Slot {
    address: Address<u8>,
    class: &'static Class,
}

impl Slots {
    /// A slot for `bytes`, at most [`SLOT_BYTES`]. Where all are in use: none, or, if it `may_wait`, the first that gets free. The device's
    /// context is current.
    ///
    /// Slots get free when the device has done what was enqueued before, so that waiting for one ends if that does.
    pub(super) fn take(
        device: &'static Device,
        bytes: usize,
        may_wait: bool,
    ) -> Result<Option<Slot>, Status> {
        let slots = device.slots();
        let (class, size, max) = if bytes <= SMALL_SLOT_BYTES {
            (&slots.small, SMALL_SLOT_BYTES, SMALL_SLOTS_MAX)
        } else {
            (&slots.large, SLOT_BYTES, SLOTS_MAX)
        };
        let mut state = class.lock();
        loop {
            if let Some(address) = state.free.pop() {
                return Ok(Some(Slot { address, class }));
            }
            if state.made < max {
                match allocate(device, size) {
                    Ok(address) => {
                        state.made += 1;
                        return Ok(Some(Slot { address, class }));
                    }
                    // Fewer do as well, if there is one.
                    Err(status) if state.made == 0 => return Err(status),
                    Err(_) => {}
                }
            }
            if !may_wait {
                return Ok(None);
            }
            state = class.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Class {
    fn lock(&self) -> MutexGuard<'_, Made> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn allocate(device: &Device, bytes: usize) -> Result<Address<u8>, Status> {
    let mut address: *mut c_void = std::ptr::null_mut();
    // SAFETY: the place lives through the call.
    check(unsafe {
        (device.cuda().cuMemHostAlloc)(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE)
    })?;
    if address.is_null() {
        Err(Status::OUT_OF_HOST_MEMORY)
    } else {
        Ok(Address::new(address.cast()))
    }
}

impl Slot {
    /// Its first byte. It has the bytes that were asked for.
    pub(super) fn address(&self) -> *mut u8 {
        self.address.get()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.class.lock().free.push(self.address);
        self.class.freed.notify_one();
    }
}

/// Memory that is pinned where it lies, by its start; with how many bytes.
static RANGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn ranges() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the GPU can use this memory by itself.
pub(super) fn is_pinned(start: *const u8, bytes: usize) -> bool {
    let ranges = ranges();
    let Some((&known, &length)) = ranges.range(..=start.addr()).next_back() else { return false };
    start.addr() - known <= length && length - (start.addr() - known) >= bytes
}

/// Pins memory that somebody has, until it is dropped. That must be before the memory goes away.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: usize,
    device: &'static Object<Device>,
}

impl Pinned {
    /// Pins memory of whole pages, where CUDA's driver is in use; it is not worth it else. None where it can not be.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Option<Self> {
        let device = *platform::known_devices().iter().find(|device| device.is_used())?;
        device.enter().ok()?;
        // SAFETY: the memory is the caller's until this is dropped.
        let code = unsafe {
            (device.cuda().cuMemHostRegister)(start.cast(), bytes, CU_MEMHOSTALLOC_PORTABLE)
        };
        if code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED {
            return None;
        }
        check(code).ok()?;
        ranges().insert(start.expose_provenance(), bytes);
        Some(Self { start: start.addr(), device })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        ranges().remove(&self.start);
        if self.device.enter().is_ok() {
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.start);
            // SAFETY: it was registered when this was made. That it fails is of no consequence: the pages stay pinned.
            let _ = check(unsafe { (self.device.cuda().cuMemHostUnregister)(start) });
        }
    }
}

impl std::fmt::Debug for Object<Device> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_within_a_pinned_range_is_pinned() {
        let at = |address: usize| std::ptr::without_provenance::<u8>(address);
        assert!(!is_pinned(at(0x5000), 1));
        ranges().insert(0x5000, 0x1000);
        assert!(is_pinned(at(0x5000), 0x1000));
        assert!(is_pinned(at(0x5FFF), 1));
        assert!(!is_pinned(at(0x5FFF), 2));
        assert!(!is_pinned(at(0x4FFF), 2));
        assert!(!is_pinned(at(0x6001), 1));
        ranges().remove(&0x5000);
    }
}
