//! Figures of a node that never fall, also when a session ends.
//!
//! A tool that draws rates takes a counter that falls for one that began anew, and then counts all
//! of it once more. So each figure of a session is added to its total when it grows, and a session
//! that ends takes nothing away.

use std::time::Duration;

use serde_json::{Value, json};

use crate::usage::Done;

/// What a session has used since it began, as one look finds it.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// Core time of its worker, or why it is unknown.
    pub(crate) cores: Result<Duration, String>,
    /// Time for which it held each device. Empty if its worker does not count that.
    pub(crate) in_use: Vec<Duration>,
    pub(crate) done: Done,
}

/// What the totals have of a session; `None` before its client has got the worker.
pub(crate) type Counted = Option<Used>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    cores: Duration,
    in_use: Vec<Duration>,
    done: Done,
}

impl Used {
    /// Adds what `now` has more than `last`, and makes `last` the larger one of both.
    fn grow(&mut self, last: &mut Self, now: &Cost) {
        grow(&mut self.cores, &mut last.cores, *now.cores.as_ref().unwrap_or(&Duration::ZERO));
        count(&mut self.done.launches, &mut last.done.launches, now.done.launches);
        count(&mut self.done.moved_bytes, &mut last.done.moved_bytes, now.done.moved_bytes);
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

fn count(total: &mut u64, last: &mut u64, now: u64) {
    *total = total.saturating_add(now.saturating_sub(*last));
    *last = now.max(*last);
}

/// The sessions that a daemon has served, and what they have used.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    begun: u64,
    ended_orderly: u64,
    ended_unexpectedly: u64,
    used: Used,
}

impl Totals {
    /// Notes that the client of a session has got its worker.
    pub(crate) fn begin(&mut self, counted: &mut Counted) {
        self.begun += 1;
        *counted = Some(Used::default());
    }

    /// Notes what a session has used up to now.
    pub(crate) fn look(&mut self, counted: &mut Counted, cost: &Cost) {
        if let Some(last) = counted {
            self.used.grow(last, cost);
        }
    }

    /// Notes that a session has ended, and whether its worker has said why.
    pub(crate) fn end(&mut self, counted: &Counted, orderly: bool) {
        if counted.is_some() {
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
            "launches": self.used.done.launches,
            "moved_bytes": self.used.done.moved_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(cores: u64, in_use: &[u64]) -> Used {
        let seconds = |s: &u64| Duration::from_secs(*s);
        let in_use = in_use.iter().map(seconds).collect();
        Used { cores: Duration::from_secs(cores), in_use, done: done(cores) }
    }

    /// A session that has launched as many kernels as it has core-seconds.
    fn done(cores: u64) -> Done {
        Done { launches: cores, moved_bytes: 2 * cores }
    }

    fn cost(cores: u64, in_use: &[u64]) -> Cost {
        let Used { cores, in_use, done } = used(cores, in_use);
        Cost { cores: Ok(cores), in_use, done }
    }

    #[test]
    fn what_ended_sessions_used_stays() {
        let mut totals = Totals::default();
        let [mut a, mut b, mut c] = [(); 3].map(|()| Counted::default());
        totals.begin(&mut a);
        totals.begin(&mut b);
        totals.look(&mut a, &cost(3, &[1, 0]));
        totals.look(&mut b, &cost(5, &[0, 2]));
        totals.look(&mut a, &cost(4, &[1, 1]));
        assert_eq!(totals.used, used(9, &[1, 3]));
        totals.end(&a, true);
        totals.end(&b, false);
        assert_eq!(totals.used, used(9, &[1, 3]));
        totals.begin(&mut c);
        totals.look(&mut c, &cost(1, &[0, 0, 4]));
        assert_eq!(totals.used, used(10, &[1, 3, 4]));
        let told = totals.told();
        assert_eq!(told["sessions_begun"], 3);
        assert_eq!(told["sessions_ended"], json!({ "orderly": 1, "unexpected": 1 }));
        assert_eq!(told["core_seconds"], 10.0);
        assert_eq!(told["in_use_seconds"], json!([1.0, 3.0, 4.0]));
        assert_eq!((&told["launches"], &told["moved_bytes"]), (&json!(10), &json!(20)));
    }

    #[test]
    fn a_client_that_hangs_up_before_it_has_its_worker_begins_and_ends_no_session() {
        let mut totals = Totals::default();
        let mut counted = Counted::default();
        totals.look(&mut counted, &cost(2, &[0]));
        totals.end(&counted, false);
        let told = totals.told();
        assert_eq!(told["sessions_begun"], 0);
        assert_eq!(told["sessions_ended"], json!({ "orderly": 0, "unexpected": 0 }));
        assert_eq!(told["core_seconds"], 0.0, "of no session");
    }

    #[test]
    fn a_figure_that_falls_or_is_missing_takes_nothing_away() {
        let mut totals = Totals::default();
        let mut counted = Counted::default();
        totals.begin(&mut counted);
        let cores = Err("the process is gone".to_owned());
        let unknown = Cost { cores, in_use: Vec::new(), done: Done::default() };
        for cost in [cost(10, &[10]), unknown, cost(2, &[4])] {
            totals.look(&mut counted, &cost);
            assert_eq!(totals.used, used(10, &[10]), "what was counted is not counted again");
        }
        totals.look(&mut counted, &cost(11, &[12]));
        assert_eq!(totals.used, used(11, &[12]));
    }
}
