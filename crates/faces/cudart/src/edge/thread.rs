//! State of a thread.

use std::cell::Cell;
use std::ffi::c_int;

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::Dim3;

use super::{RtError, RtResult};

/// Maximum depth of launches in the arguments of launches. Programs use only a few levels.
const NESTED_LAUNCHES_MAX: usize = 16;

/// Number of driver functions that a thread remembers. Programs launch few kernels in turn.
const REMEMBERED: usize = 32;

/// The values between `<<<` and `>>>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: CUstream,
}

/// A kernel's driver function that a thread has looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The pointer that the program passes as the kernel.
    pub(crate) host: usize,
    pub(crate) context: usize,
    /// Value of `registry::LOSSES` at the time of the lookup.
    pub(crate) losses: u64,
    pub(crate) function: usize,
}

/// State of one thread. Nothing here needs to be dropped, because functions are also called from
/// destructors that run after the thread's own.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Device that the thread chose, initially 0.
    pub(crate) device: Cell<c_int>,
    /// Context that the runtime made current on this thread, and the count of resets at that time.
    pub(crate) bound: Cell<(usize, u64)>,
    pub(crate) last_error: Cell<c_int>,
    found: [Cell<Option<Found>>; REMEMBERED],
    configurations: [Cell<Option<Configuration>>; NESTED_LAUNCHES_MAX],
    depth: Cell<usize>,
}

thread_local! {
    pub(crate) static THREAD: Thread = const {
        Thread {
            device: Cell::new(0),
            bound: Cell::new((0, 0)),
            last_error: Cell::new(0),
            found: [const { Cell::new(None) }; REMEMBERED],
            configurations: [const { Cell::new(None) }; NESTED_LAUNCHES_MAX],
            depth: Cell::new(0),
        }
    };
}

impl Thread {
    /// Returns the slot for a kernel's function. Functions of programs are about 16 bytes apart.
    pub(crate) fn place_of(&self, host: usize) -> &Cell<Option<Found>> {
        &self.found[(host >> 4 ^ host >> 9) % REMEMBERED]
    }

    /// # Errors
    /// The launches are nested too deeply.
    pub(crate) fn push(&self, configuration: Configuration) -> RtResult {
        let slot = self.configurations.get(self.depth.get()).ok_or(RtError::INVALID_VALUE)?;
        slot.set(Some(configuration));
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    /// Removes and returns the innermost configuration.
    pub(crate) fn pop(&self) -> Option<Configuration> {
        let depth = self.depth.get().checked_sub(1)?;
        self.depth.set(depth);
        self.configurations.get(depth)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_come_back_in_reverse_order_and_have_a_limit() {
        let configuration = |x| Configuration {
            grid: Dim3 { x, y: 1, z: 1 },
            block: Dim3 { x: 1, y: 1, z: 1 },
            shared_bytes: 0,
            stream: std::ptr::null_mut(),
        };
        THREAD.with(|thread| {
            for x in 0..u32::try_from(NESTED_LAUNCHES_MAX).unwrap() {
                thread.push(configuration(x)).unwrap();
            }
            assert_eq!(thread.push(configuration(99)), Err(RtError::INVALID_VALUE));
            for x in (0..u32::try_from(NESTED_LAUNCHES_MAX).unwrap()).rev() {
                assert_eq!(thread.pop().unwrap().grid.x, x);
            }
            assert!(thread.pop().is_none());
        });
    }
}
