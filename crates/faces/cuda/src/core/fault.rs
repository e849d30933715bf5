//! Faults of kernels: their numbers, their codes, and the messages about them.

use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, log, notice, variable};
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

/// Stores the name of a kernel for later reports. Returns the number that identifies it.
pub(crate) fn remember_kernel(name: &str) -> u64 {
    let number = name_number(name);
    NAMES.lock().entry(number).or_insert_with(|| name.to_owned());
    number
}

/// Returns the name of a kernel in PTX, if it is known.
pub(super) fn name_of(number: u64) -> String {
    let names = NAMES.lock();
    names.get(&number).cloned().unwrap_or_else(|| String::from("(unknown)"))
}

/// Says which kernels had not ended when the node of their device was lost. One of them may have
/// ended its worker, for example by an address of the host.
pub(crate) fn report_open(names: &[String]) {
    if names.is_empty() {
        return;
    }
    notice::print(format_args!(
        "kernel {} had not ended there; if it used an address that is not its device's, {}=1 finds \
         it",
        names.join(", "),
        variable::CHECK.name
    ));
}

/// Reports a fault. Failed assertions are always printed, as C's are; `text` is then the assertion.
/// Stuck threads are always printed, too, and so are wrong addresses that check mode finds.
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
    let text = format_args!("a kernel {what}: address {address:#x}, line {line} of its PTX");
    // A trap is the program's own. Addresses are only looked at because a person asked for it.
    if kind == 3 { log!(Error, "{text}") } else { notice::print(text) }
}
