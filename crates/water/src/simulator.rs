//! A run under the network simulator SMPI: all ranks are contexts of one process, each with its own copy of the executable and of this
//! library in it, and time is simulated. What only C compiled by `smpicc` can do is in `shim/wtr_smpi.c`; linked into the
//! program, it leaves its functions here before `main`.

use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::backend::sim::{Model, Sim};
use crate::clock::Clock;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::transport::mpi::{Mpi, Options, SILENCE_NS, Shim};

/// Functions of `shim/wtr_smpi.c`. The same order is there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// A `struct wtr_mpi_shim`.
    shim: *const Shim,
    now_ns: extern "C" fn() -> u64,
    sleep_ns: extern "C" fn(u64),
    exit: extern "C" fn(c_int),
    room: extern "C" fn(u64) -> *mut u8,
    /// Waits until a control message is sent to this rank, at most so many ns.
    wait_ns: extern "C" fn(u64),
}

// SAFETY: functions, and a structure that never changes.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// A rank waits no longer than this at a time for a message, in ns: whoever has a time limit of its own looks at it.
const WAIT_NS_MAX: u64 = 1_000_000_000;

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

/// Whether this program is linked for the simulator.
pub fn is_there() -> bool {
    FUNCTIONS.get().is_some()
}

/// Under the simulator, room for so many bytes that nobody looks at: all ranks have the same, and nothing is copied there.
pub fn room(bytes: u64) -> Option<*mut u8> {
    let start = (FUNCTIONS.get()?.room)(bytes);
    (!start.is_null()).then_some(start)
}

/// Starts this rank's part of a run, where the program is linked for the simulator. Only the root returns; the others end with the run.
///
/// # Errors
/// No model of devices, or ranks that do not come.
pub fn start() -> Result<Option<Runtime>, Error> {
    let Some(functions) = FUNCTIONS.get() else { return Ok(None) };
    let model = Model::of_environment()?;
    let model = model.ok_or_else(|| {
        Error::Invalid("the simulator has no devices of its own: let WTR_SIM name a model of them, as those in tools/sim/models".into())
    })?;
    let simulated = Arc::new(Simulated::new(functions, &model));
    let clock: Arc<dyn Clock> = Arc::<Simulated>::clone(&simulated);
    // SAFETY: the shim's table, which is linked into the program.
    let shim = unsafe { Shim::of(functions.shim, Path::new("the simulator's shim")) };
    let options = Options { beats: false, silence_ns: SILENCE_NS };
    let unusable = |error: crate::transport::mpi::Unusable| Error::Transport(error.to_string());
    let transport =
        Mpi::open(shim.map_err(unusable)?, Arc::clone(&clock), options).map_err(unusable)?;
    let rank = crate::transport::Transport::rank(&transport);
    let nap_us = model.nap_us;
    let devices = Box::new(Sim::of_model(model, rank, &clock));
    if rank == 0 {
        return Runtime::root(Box::new(transport), devices, clock, false).map(Some);
    }
    simulated.nap_at_least(ns(nap_us));
    Runtime::serve(Box::new(transport), devices, clock);
    exit(0)
}

/// Ends this rank. `std::process::exit` would end all of them.
fn exit(code: i32) -> ! {
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
    /// What a look for news costs before each nap, in ns.
    look_ns: u64,
    /// No nap is shorter, in ns.
    nap_ns_min: AtomicU64,
}

impl Simulated {
    fn new(functions: &Functions, model: &Model) -> Self {
        Self {
            functions: *functions,
            root_command_ns: ns(model.root_command_us),
            node_command_ns: ns(model.node_command_us),
            look_ns: ns(model.look_us),
            nap_ns_min: AtomicU64::new(0),
        }
    }

    /// A nap with the look that comes before it, in ns.
    fn whole_nap(&self, ns: u64) -> u64 {
        ns.max(self.nap_ns_min.load(Ordering::Relaxed)).saturating_add(self.look_ns).max(1)
    }

    /// Has all naps be at least so long, in ns.
    fn nap_at_least(&self, ns: u64) {
        self.nap_ns_min.store(ns, Ordering::Relaxed);
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
        (self.functions.sleep_ns)(self.whole_nap(ns));
    }

    /// What happens is what happens with a look after each nap, but for 1 ns here and there; and naps in which nothing comes are no events of
    /// the simulation. Only where the model has long naps: other figures stay as they are to the last digit.
    fn naps(&self, end: Option<u64>, nap: &mut dyn FnMut(u64) -> u64) {
        let mut look = self.now();
        if self.nap_ns_min.load(Ordering::Relaxed) == 0 {
            return self.sleep(nap(look));
        }
        let most = end.map_or(WAIT_NS_MAX, |end| end.saturating_sub(look).min(WAIT_NS_MAX));
        (self.functions.wait_ns)(most);
        let now = self.now();
        loop {
            look = look.saturating_add(self.whole_nap(nap(look)));
            if look >= now {
                break;
            }
        }
        (self.functions.sleep_ns)(look - now);
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn charge(&self, planned: usize, accepted: usize) {
        let ns = self.root_command_ns.saturating_mul(planned as u64)
            + self.node_command_ns.saturating_mul(accepted as u64);
        if ns > 0 {
            (self.functions.sleep_ns)(ns);
        }
    }
}
