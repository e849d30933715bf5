//! Faults of kernels: their numbers, their codes, and the messages about them.

use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, log, notice};
use penstock_ptx::translate::name_number;
use rustc_hash::FxHashMap;

/// Returns the code for a fault in the control block.
pub(crate) fn code_of(kind: u64) -> CUresult {
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
static NAMES: Lock<FxHashMap<u64, String>> =
    Lock::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher));

/// Stores the name of a kernel for later reports of its faults.
pub(crate) fn remember_kernel(name: &str) {
    let mut names = NAMES.lock();
    names.entry(name_number(name)).or_insert_with(|| name.to_owned());
}

/// Returns the name of a kernel in PTX, if it is known.
fn name_of(number: u64) -> String {
    let names = NAMES.lock();
    names.get(&number).cloned().unwrap_or_else(|| String::from("(unknown)"))
}

/// Reports a fault. Failed assertions are always printed, as C's are; `text` is then the assertion.
/// Stuck threads are always printed, too.
pub(crate) fn report(kind: u64, address: u64, line: u32, text: &[u8]) {
    let what = match kind {
        1 => "used an address that is not allocated",
        2 => "used a misaligned address",
        3 => "stopped at a trap",
        ASSERTION => {
            return notice::print(format_args!(
                "Assertion `{}` failed in a kernel",
                String::from_utf8_lossy(text)
            ));
        }
        STUCK => {
            let name = name_of(address);
            return notice::print(format_args!(
                "kernel {name}: its threads wait for a value in shared memory, or for each \
                 other, but no running thread can end the wait"
            ));
        }
        _ => "failed in an unknown way",
    };
    log!(Error, "a kernel {what}: address {address:#x}, line {line} of its PTX");
}
