//! A run under the network simulator SMPI: all ranks are contexts of one process, each with its own copy of the executable and of this
//! library in it, and time is simulated. What only C compiled by `smpicc` can do is in `shim/wtr_smpi.c`; linked into the
//! program, it leaves its functions here before `main`.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::clock::Clock;

/// Functions of `shim/wtr_smpi.c`. The same order is there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// A `struct wtr_mpi_shim`.
    shim: *const c_void,
    now_ns: extern "C" fn() -> u64,
    sleep_ns: extern "C" fn(u64),
    exit: extern "C" fn(c_int),
}

// SAFETY: functions, and a structure that never changes.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Called by `shim/wtr_smpi.c` when the program is loaded.
///
/// # Safety
/// `functions` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_rs_simulator(functions: *const Functions) {
    // SAFETY: the caller's promise. A second call leaves the same functions.
    _ = FUNCTIONS.set(unsafe { *functions });
}

/// The simulator's `struct wtr_mpi_shim`, where this program is linked for it.
pub fn shim() -> Option<*const c_void> {
    FUNCTIONS.get().map(|functions| functions.shim)
}

/// Ends this rank. `std::process::exit` would end all of them.
pub fn exit(code: i32) -> ! {
    if let Some(functions) = FUNCTIONS.get() {
        (functions.exit)(code);
    }
    std::process::exit(code)
}

/// The simulator's clock, and what a rank's own work costs on it.
#[derive(Debug)]
pub struct Simulated {
    functions: Functions,
    /// What a command costs, in ns: at the root, elsewhere.
    root_command_ns: u64,
    node_command_ns: u64,
}

impl Simulated {
    /// The clock, where this program is linked for the simulator. Costs are in µs.
    pub fn new(root_command_us: f64, node_command_us: f64) -> Option<Self> {
        let functions = *FUNCTIONS.get()?;
        Some(Self { functions, root_command_ns: ns(root_command_us), node_command_ns: ns(node_command_us) })
    }
}

/// µs as ns; what is negative or no number is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ns(us: f64) -> u64 {
    (us * 1e3).round().max(0.0) as u64
}

impl Clock for Simulated {
    fn now(&self) -> u64 {
        // 0 is "unknown".
        (self.functions.now_ns)() + 1
    }

    fn sleep(&self, ns: u64) {
        (self.functions.sleep_ns)(ns);
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn charge(&self, planned: usize, accepted: usize) {
        let ns = self.root_command_ns.saturating_mul(planned as u64) + self.node_command_ns.saturating_mul(accepted as u64);
        if ns > 0 {
            (self.functions.sleep_ns)(ns);
        }
    }
}
