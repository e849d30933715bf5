//! What each thread has.

use std::cell::Cell;
use std::ffi::c_int;

use penstock_cuda_sys::driver::CUstream;
use penstock_cuda_sys::runtime::Dim3;

use super::{RtError, RtResult};

/// Launches whose arguments contain launches whose arguments ...: no program nests them deeper than a handful.
const NESTED_LAUNCHES_MAX: usize = 16;

/// Kernels whose functions a thread remembers: programs launch few in turn.
const REMEMBERED: usize = 32;

/// What stands between `<<<` and `>>>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: CUstream,
}

/// The driver's function of a kernel, as it was found once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// What the program passes as the kernel.
    pub(crate) host: usize,
    pub(crate) context: usize,
    /// How often the registry had lost something then.
    pub(crate) losses: u64,
    pub(crate) function: usize,
}

/// One thread's. Nothing here needs to be dropped: functions are called from destructors that run after those of the thread.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The device it chose: 0 at first.
    pub(crate) device: Cell<c_int>,
    /// The context that the runtime made current here, and the device's count of resets then.
    pub(crate) bound: Cell<(usize, u64)>,
    /// For `cudaGetLastError`.
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
    /// Where the function of a kernel is remembered: functions of programs are some 16 bytes apart.
    pub(crate) fn place_of(&self, host: usize) -> &Cell<Option<Found>> {
        &self.found[(host >> 4 ^ host >> 9) % REMEMBERED]
    }

    /// # Errors
    /// Nested too deep.
    pub(crate) fn push(&self, configuration: Configuration) -> RtResult {
        let slot = self.configurations.get(self.depth.get()).ok_or(RtError::INVALID_VALUE)?;
        slot.set(Some(configuration));
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    /// The innermost configuration.
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
