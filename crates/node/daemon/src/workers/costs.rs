//! What sessions have used, and the totals of that.

use super::{Session, State, Workers};
use crate::message::Found;
use crate::totals::Cost;

impl Session {
    /// Returns what it has used up to now. `devices` is the number of the node's devices.
    pub(super) fn cost(&self, devices: usize) -> Cost {
        let cores = penstock_energy::cores::of_process(self.worker);
        // A worker that has been taken over can write any number.
        let possible = self.since.elapsed();
        let used = self.usage.iter().flat_map(|usage| usage.all(devices));
        let in_use = used.map(|(_, time)| time.min(possible)).collect();
        let done = self.usage.as_ref().map(|usage| usage.done().possible(possible));
        let done = done.unwrap_or_default();
        Cost { cores: cores.map_err(|error| error.to_string()), in_use, done }
    }
}

impl Workers {
    /// Notes that the client of a worker has got it.
    pub(crate) fn note_begun(&mut self, id: u32) {
        if let Some(worker) = self.table.get_mut(&id)
            && let State::Serving(session) = &mut worker.state
        {
            self.totals.begin(&mut session.counted);
        }
    }

    /// Adds what the open sessions have used to the totals. Calls `tell` with each session, what it
    /// has used, and the devices, and returns the results.
    pub(crate) fn look<T>(&mut self, tell: impl Fn(&Session, &Cost, &[Found]) -> T) -> Vec<T> {
        let look = |session: &mut Session| {
            let cost = session.cost(self.devices.len());
            self.totals.look(&mut session.counted, &cost);
            tell(session, &cost, &self.devices)
        };
        let serving = self.table.values_mut().filter_map(|worker| match &mut worker.state {
            State::Serving(session) => Some(&mut **session),
            _ => None,
        });
        serving.map(look).collect()
    }
}
