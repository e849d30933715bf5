//! A run under the network simulator SMPI: its start, and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::sim::{Model, Sim};
use crate::clock::Clock;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::simulator::{self, Functions};
use crate::transport::mpi::{Mpi, Options, SILENCE_NS};

/// Longest single wait of a rank for a message, in ns, so that callers can check their own time
/// limits.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// Starts this rank's part of a run if the program is linked for the simulator. Only the root
/// returns; the other ranks end with the run.
///
/// # Errors
/// Fails if `WTR_SIM` names no model of devices, or if a rank does not join the run.
pub fn start() -> Result<Option<Runtime>, Error> {
    let Some(functions) = simulator::functions() else { return Ok(None) };
    let model = Model::of_environment()?;
    let model = model.ok_or_else(|| {
        Error::Invalid(
            "WTR_SIM must name a model of the simulator's devices, such as those in \
             tools/sim/models"
                .into(),
        )
    })?;
    let simulated = Arc::new(Simulated::new(functions, &model));
    let clock: Arc<dyn Clock> = Arc::<Simulated>::clone(&simulated);
    let options = Options { beats: false, silence_ns: SILENCE_NS };
    let unusable = |error: crate::transport::mpi::Unusable| Error::Transport(error.to_string());
    let transport = Mpi::open(functions.shim().map_err(unusable)?, Arc::clone(&clock), options)
        .map_err(unusable)?;
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

/// Ends this rank. `std::process::exit` would end all ranks.
fn exit(code: i32) -> ! {
    if let Some(functions) = simulator::functions() {
        (functions.exit)(code);
    }
    std::process::exit(code)
}

/// The simulator's clock, with the costs of a rank's own work.
#[derive(Debug)]
pub struct Simulated {
    functions: Functions,
    /// Cost of a command on the root, and on the rank that runs it, in ns.
    root_command_ns: u64,
    node_command_ns: u64,
    /// Cost of a poll before each nap, in ns.
    look_ns: u64,
    /// Shortest nap in ns.
    nap_ns_min: AtomicU64,
}

impl Simulated {
    fn new(functions: Functions, model: &Model) -> Self {
        Self {
            functions,
            root_command_ns: ns(model.root_command_us),
            node_command_ns: ns(model.node_command_us),
            look_ns: ns(model.look_us),
            nap_ns_min: AtomicU64::new(0),
        }
    }

    /// Returns the length of a nap including the poll before it, in ns.
    fn whole_nap(&self, ns: u64) -> u64 {
        ns.max(self.nap_ns_min.load(Ordering::Relaxed)).saturating_add(self.look_ns).max(1)
    }

    /// Sets the shortest nap in ns.
    fn nap_at_least(&self, ns: u64) {
        self.nap_ns_min.store(ns, Ordering::Relaxed);
    }
}

/// Converts µs to ns. Negative values and NaN become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ns(us: f64) -> u64 {
    (us * 1e3).round().max(0.0) as u64
}

impl Clock for Simulated {
    fn now(&self) -> u64 {
        // 0 means "unknown".
        (self.functions.now_ns)() + 1
    }

    fn sleep(&self, ns: u64) {
        (self.functions.sleep_ns)(self.whole_nap(ns));
    }

    /// Skips naps in which nothing arrives, so that they are no events of the simulation. The
    /// result is the same as with a poll after each nap, except for a difference of 1 ns now and
    /// then. This only happens if the model has a shortest nap, so results of other models stay
    /// exactly the same.
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
