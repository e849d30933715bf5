//! Memory that handles point to. It is never freed and always begins with a dispatch table, because
//! the ICD loader reads the table through any handle that a program passes, before we see the
//! handle. With ordinary memory a released handle would crash the program in the loader.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, Ordering};

use penstock_process::Lock;

/// "The first field of each object is a pointer to the dispatch table." The second field is the
/// loader's dispatch data (ICD 2.0).
#[derive(Debug)]
#[repr(C, align(16))]
struct Words {
    dispatch: AtomicPtr<()>,
    dispatch_data: AtomicPtr<()>,
}

/// Place of one handle. Dropping it makes the place free.
#[derive(Debug)]
pub(super) struct Slot(&'static Words);

/// Number of slots allocated at a time: 4 KiB.
const SLOTS_PER_CHUNK: usize = 256;

/// Number of free slots that rest before reuse, so that a released handle differs from new ones.
const SLOTS_RESTING_MAX: usize = 1024;

static FREE: Lock<VecDeque<&'static Words>> = Lock::new(VecDeque::new());

fn free() -> MutexGuard<'static, VecDeque<&'static Words>> {
    FREE.lock()
}

impl Slot {
    /// Takes a free slot and sets its dispatch data.
    pub(super) fn take(dispatch_data: *mut ()) -> Self {
        let mut free = free();
        if free.len() <= SLOTS_RESTING_MAX {
            let chunk = Vec::leak((0..SLOTS_PER_CHUNK).map(|_| Words::default()).collect());
            // In front of the resting slots.
            chunk.iter().for_each(|words| free.push_front(words));
        }
        // The queue is not empty: a chunk was added above if it was.
        let words = free.pop_front().unwrap_or_else(|| Box::leak(Box::default()));
        drop(free);
        words.dispatch_data.store(dispatch_data, Ordering::Relaxed);
        Self(words)
    }

    /// Returns the address of the handle.
    pub(super) fn address(&self) -> *mut () {
        std::ptr::from_ref(self.0).cast_mut().cast()
    }

    /// Returns the loader's dispatch data.
    pub(super) fn dispatch_data(&self) -> *mut () {
        self.0.dispatch_data.load(Ordering::Relaxed)
    }

    /// Sets the loader's dispatch data.
    pub(super) fn set_dispatch_data(&self, data: *mut ()) {
        self.0.dispatch_data.store(data, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        free().push_back(self.0);
    }
}

impl Default for Words {
    fn default() -> Self {
        Self {
            dispatch: AtomicPtr::new(crate::api::table::dispatch()),
            dispatch_data: AtomicPtr::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn a_slot_begins_with_the_words_of_the_loader() {
        assert_eq!(std::mem::offset_of!(Words, dispatch), 0);
        assert_eq!(std::mem::offset_of!(Words, dispatch_data), size_of::<usize>());
        let slot = Slot::take(without_provenance_mut(0x77));
        // SAFETY: two words, which no thread changes now.
        let words = unsafe { slot.address().cast::<[usize; 2]>().read() };
        assert_eq!(words, [crate::api::table::dispatch().addr(), 0x77]);
    }

    #[test]
    fn a_slot_rests_before_it_is_used_again_and_stays_readable() {
        let slot = Slot::take(std::ptr::null_mut());
        let address = slot.address();
        drop(slot);
        for _ in 0..SLOTS_RESTING_MAX / 2 {
            assert_ne!(Slot::take(std::ptr::null_mut()).address(), address);
        }
        // SAFETY: slots are never freed.
        assert_eq!(unsafe { address.cast::<usize>().read() }, crate::api::table::dispatch().addr());
    }
}
