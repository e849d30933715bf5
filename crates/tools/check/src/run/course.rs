//! The threads of a running program: what each of them performs, the signals between them, and the
//! end of all of them after the first finding.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_process::{Lock, Signal};

use super::{Progress, rest};
use crate::finding::Finding;
use crate::plan::Op;

/// How often a thread that waits looks whether another thread has failed.
pub(crate) const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Course<'a> {
    report: &'a (dyn Fn(Finding) + Sync),
    failed: AtomicBool,
    signals: Lock<HashSet<usize>>,
    changed: Signal,
}

impl<'a> Course<'a> {
    pub(crate) fn new(report: &'a (dyn Fn(Finding) + Sync)) -> Self {
        let (signals, changed) = (Lock::default(), Signal::new());
        Self { report, failed: AtomicBool::new(false), signals, changed }
    }

    /// Reports a finding if it is the first one, and returns whether it is. All threads end then.
    pub(crate) fn fail(&self, finding: Finding) -> bool {
        let is_first = !self.failed.swap(true, Ordering::Relaxed);
        if is_first {
            (self.report)(finding);
            self.changed.notify_all();
        }
        is_first
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn signal(&self, id: usize) {
        self.signals.lock().insert(id);
        self.changed.notify_all();
    }

    pub(crate) fn await_signal(&self, id: usize) {
        let mut signals = self.signals.lock();
        while !signals.contains(&id) && !self.has_failed() {
            signals = self.changed.wait_timeout(signals, POLL).0;
        }
    }

    /// Runs the threads of a program, each of which performs its operations. `perform` gets the
    /// index of an operation, too, and returns whether the thread goes on.
    pub(crate) fn run<A: Sync>(
        &self,
        threads: usize,
        ops: &[Op<A>],
        progress: &Progress,
        perform: impl Fn(usize, &Op<A>) -> bool + Sync,
    ) {
        let run = |thread: usize| {
            let place = &progress.threads[thread];
            for (index, op) in ops.iter().enumerate().filter(|(_, op)| op.thread == thread) {
                if self.has_failed() {
                    return;
                }
                place.store(index, Ordering::Relaxed);
                rest(op.delay_us);
                if !perform(index, op) {
                    return;
                }
            }
            place.store(ops.len(), Ordering::Relaxed);
        };
        let ended = penstock_process::at_once("course", 0..threads, run);
        for thread in ended {
            thread.expect("all threads of the program end");
        }
    }
}
