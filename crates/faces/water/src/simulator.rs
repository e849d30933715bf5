//! The functions of the network simulator SMPI. All ranks are contexts of one process, each with its own
//! copy of the executable and of the libwater in it, and time is simulated. `shim/wtr_smpi.c` has
//! the code that only C compiled by `smpicc` can have. The program links it, and it registers its
//! functions here before `main`.

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;

use crate::transport::mpi::{Shim, Unusable};

/// Functions of `shim/wtr_smpi.c`, in the same order as there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// The C type `struct wtr_mpi_shim`.
    shim: *const Shim,
    pub(crate) now_ns: extern "C" fn() -> u64,
    pub(crate) sleep_ns: extern "C" fn(u64),
    pub(crate) exit: extern "C" fn(c_int),
    room: extern "C" fn(u64) -> *mut u8,
    /// Waits until a control message is sent to this rank, for at most this number of ns.
    pub(crate) wait_ns: extern "C" fn(u64),
}

// SAFETY: these are functions, and a structure that never changes.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Registers the functions. `shim/wtr_smpi.c` calls this when the program is loaded.
///
/// # Safety
/// `functions` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_rs_simulator(functions: *const Functions) {
    // SAFETY: the caller guarantees it. A second call brings the same functions.
    _ = FUNCTIONS.set(unsafe { *functions });
}

/// Whether this program is linked for the simulator.
pub fn is_there() -> bool {
    FUNCTIONS.get().is_some()
}

/// Returns memory of this size for bytes that nobody reads, or `None` without the simulator. All
/// ranks share it, and sends from it copy nothing.
pub fn room(bytes: u64) -> Option<*mut u8> {
    let start = (FUNCTIONS.get()?.room)(bytes);
    (!start.is_null()).then_some(start)
}

/// Returns the simulator's functions, or `None` without the simulator.
pub(crate) fn functions() -> Option<Functions> {
    FUNCTIONS.get().copied()
}

impl Functions {
    /// Returns the shim that the simulator brings.
    ///
    /// # Errors
    /// The shim is of another version.
    pub(crate) fn shim(&self) -> Result<&'static Shim, Unusable> {
        // SAFETY: the shim's table is linked into the program.
        unsafe { Shim::of(self.shim, Path::new("the simulator's shim")) }
    }
}
