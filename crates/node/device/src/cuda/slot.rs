//! Slots: pinned host memory, through which the GPU copies bytes that are not pinned themselves. A
//! copy of other memory would block the calling thread.

use std::ffi::c_void;

use penstock_cuda_sys::driver::CU_MEMHOSTALLOC_PORTABLE;
use penstock_process::{Guard, Lock, Signal};
use penstock_wire::status::Status;

use super::address::Address;
use super::driver::{Cuda, check};

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
    state: Lock<Made>,
    freed: Signal,
}

#[derive(Default)]
struct Made {
    free: Vec<Address<u8>>,
    made: usize,
}

/// A slot of pinned memory, free again when dropped.
pub(super) struct Slot {
    address: Address<u8>,
    size: usize,
    class: &'static Class,
}

impl Slots {
    /// Takes a slot for `bytes`, at most [`SLOT_BYTES`]. If all are in use, waits for one if
    /// `may_wait` is set, and returns `None` otherwise. The device's context is current.
    ///
    /// A slot becomes free when the commands that use it have ended, so the wait ends if they do.
    pub(super) fn take(
        &'static self,
        cuda: &Cuda,
        bytes: usize,
        may_wait: bool,
    ) -> Result<Option<Slot>, Status> {
        let (class, size, max) = if bytes <= SMALL_SLOT_BYTES {
            (&self.small, SMALL_SLOT_BYTES, SMALL_SLOTS_MAX)
        } else {
            (&self.large, SLOT_BYTES, SLOTS_MAX)
        };
        let mut state = class.lock();
        loop {
            if let Some(address) = state.free.pop() {
                return Ok(Some(Slot { address, size, class }));
            }
            if state.made < max {
                match allocate(cuda, size) {
                    Ok(address) => {
                        state.made += 1;
                        return Ok(Some(Slot { address, size, class }));
                    }
                    // The slots that exist suffice, if there is at least one.
                    Err(status) if state.made == 0 => return Err(status),
                    Err(_) => {}
                }
            }
            if !may_wait {
                return Ok(None);
            }
            state = class.freed.wait(state);
        }
    }
}

impl Class {
    fn lock(&self) -> Guard<'_, Made> {
        self.state.lock()
    }
}

fn allocate(cuda: &Cuda, bytes: usize) -> Result<Address<u8>, Status> {
    let mut address: *mut c_void = std::ptr::null_mut();
    // SAFETY: the output location outlives the call.
    check(unsafe { (cuda.cuMemHostAlloc)(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE) })?;
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

    /// Copies bytes to the slot. Panics if they are more than were asked for.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.size);
        // SAFETY: the slot is ours and has room; `bytes` is elsewhere.
        unsafe { self.address().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of the slot, which the device has filled. Panics if they are more than were
    /// asked for.
    pub(super) fn empty(&self, into: &mut [u8]) {
        assert!(into.len() <= self.size);
        // SAFETY: the slot is ours and has the bytes; `into` is elsewhere.
        unsafe { self.address().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.class.lock().free.push(self.address);
        self.class.freed.notify_one();
    }
}
