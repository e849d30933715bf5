//! Host memory that the GPU accesses by itself. Copies of other memory block the calling thread.
//!
//! Staged bytes are pinned in place ([`Pinned`]); all others go through slots, which are reused.

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

/// Size of a large slot. At 25 GB/s it takes the bus 170 µs; issuing a command takes 10 µs.
pub(super) const SLOT_BYTES: usize = 4 << 20;
/// Size of a small slot; most reads fit.
pub(super) const SMALL_SLOT_BYTES: usize = 64 << 10;
/// Most large slots: the host fills or empties one while the bus works on another, for two queues.
const SLOTS_MAX: usize = 4;
/// Most small slots: 4 MiB in total.
const SMALL_SLOTS_MAX: usize = 64;

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

/// A slot of pinned memory, free again when dropped.
pub(super) struct Slot {
    address: Address<u8>,
    class: &'static Class,
}

impl Slots {
    /// Takes a slot for `bytes`, at most [`SLOT_BYTES`]. If all are in use, waits for one if
    /// `may_wait` is set, and returns `None` otherwise. The device's context is current.
    ///
    /// A slot becomes free when the commands that use it have ended, so the wait ends if they do.
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
                    // The slots that exist suffice, if there is at least one.
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
    // SAFETY: the output location outlives the call.
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
    /// Returns the first byte's address. The slot has at least the bytes that were asked for.
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

/// Length of each range that is pinned in place, by its start.
static RANGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn ranges() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the GPU can access this memory by itself.
pub(super) fn is_pinned(start: *const u8, bytes: usize) -> bool {
    let ranges = ranges();
    let Some((&known, &length)) = ranges.range(..=start.addr()).next_back() else { return false };
    start.addr() - known <= length && length - (start.addr() - known) >= bytes
}

/// Keeps someone's memory pinned. It must be dropped before the memory is freed.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: usize,
    device: &'static Object<Device>,
}

impl Pinned {
    /// Pins whole pages. Returns `None` if that fails or CUDA's driver is not in use.
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
            // SAFETY: `new` registered the range. If this fails, the pages merely stay pinned.
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
