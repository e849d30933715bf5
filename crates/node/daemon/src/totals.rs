//! Figures of a node that never fall, also when a session ends.
//!
//! A tool that draws rates takes a counter that falls for one that began anew, and then counts all
//! of it once more. So each figure of a session is added to its total when it grows, and a session
//! that ends takes nothing away.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// What a session has used since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Core time of its worker.
    pub(crate) cores: Duration,
    /// Time for which it held each device.
    pub(crate) in_use: Vec<Duration>,
}

impl Cost {
    /// Adds what `now` has more than `last`, and makes `last` the larger one of both.
    fn grow(&mut self, last: &mut Self, now: &Self) {
        grow(&mut self.cores, &mut last.cores, now.cores);
        let count = now.in_use.len().max(last.in_use.len());
        last.in_use.resize(count, Duration::ZERO);
        self.in_use.resize(count.max(self.in_use.len()), Duration::ZERO);
        for ((total, last), now) in self.in_use.iter_mut().zip(&mut last.in_use).zip(&now.in_use) {
            grow(total, last, *now);
        }
    }
}

fn grow(total: &mut Duration, last: &mut Duration, now: Duration) {
    *total = total.saturating_add(now.saturating_sub(*last));
    *last = now.max(*last);
}

/// The sessions that a daemon has served, and what they have used.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    begun: u64,
    ended_orderly: u64,
    ended_unexpectedly: u64,
    used: Cost,
    /// What each session had used at the last look.
    last: FxHashMap<u32, Cost>,
}

impl Totals {
    /// Notes that a client has got this worker.
    pub(crate) fn begin(&mut self, worker: u32) {
        self.begun += 1;
        self.last.insert(worker, Cost::default());
    }

    /// Returns the number of clients that ever got a worker.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Notes what the session of a worker has used up to now.
    pub(crate) fn look(&mut self, worker: u32, cost: &Cost) {
        if let Some(last) = self.last.get_mut(&worker) {
            self.used.grow(last, cost);
        }
    }

    /// Notes that a session has ended, and whether its worker has said why.
    pub(crate) fn end(&mut self, worker: u32, orderly: bool) {
        if self.last.remove(&worker).is_some() {
            let count =
                if orderly { &mut self.ended_orderly } else { &mut self.ended_unexpectedly };
            *count += 1;
        }
    }

    /// Returns the totals as JSON.
    pub(crate) fn told(&self) -> Value {
        let in_use = self.used.in_use.iter().map(Duration::as_secs_f64);
        json!({
            "sessions_begun": self.begun,
            "sessions_ended": {
                "orderly": self.ended_orderly,
                "unexpected": self.ended_unexpectedly,
            },
            "core_seconds": self.used.cores.as_secs_f64(),
            "in_use_seconds": in_use.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(cores: u64, in_use: &[u64]) -> Cost {
        let seconds = |s: &u64| Duration::from_secs(*s);
        Cost { cores: Duration::from_secs(cores), in_use: in_use.iter().map(seconds).collect() }
    }

    #[test]
    fn what_ended_sessions_used_stays() {
        let mut totals = Totals::default();
        for worker in [7, 8] {
            totals.begin(worker);
        }
        totals.look(7, &cost(3, &[1, 0]));
        totals.look(8, &cost(5, &[0, 2]));
        totals.look(7, &cost(4, &[1, 1]));
        assert_eq!(totals.used, cost(9, &[1, 3]));
        totals.end(7, true);
        totals.end(8, false);
        // Somebody else looks once more, or a process gets the number of an ended one.
        totals.look(7, &cost(100, &[100]));
        totals.end(7, true);
        assert_eq!(totals.used, cost(9, &[1, 3]));
        totals.begin(7);
        totals.look(7, &cost(1, &[0, 0, 4]));
        assert_eq!(totals.used, cost(10, &[1, 3, 4]));
        let told = totals.told();
        assert_eq!(told["sessions_begun"], 3);
        assert_eq!(told["sessions_ended"], json!({ "orderly": 1, "unexpected": 1 }));
        assert_eq!(told["core_seconds"], 10.0);
        assert_eq!(told["in_use_seconds"], json!([1.0, 3.0, 4.0]));
    }

    #[test]
    fn a_figure_that_falls_or_is_missing_takes_nothing_away() {
        let mut totals = Totals::default();
        totals.begin(1);
        totals.look(1, &cost(10, &[10]));
        totals.look(1, &cost(0, &[]));
        totals.look(1, &cost(2, &[4]));
        assert_eq!(totals.used, cost(10, &[10]), "what was counted is not counted again");
        totals.look(1, &cost(11, &[12]));
        assert_eq!(totals.used, cost(11, &[12]));
    }
}
