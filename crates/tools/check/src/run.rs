//! Runs a program on an implementation and compares what it sees with the model.

pub(crate) mod course;
mod perform;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use penstock_process::{Lock, Signal};

use crate::backend::{Backend, Handle};
use crate::finding::{Finding, Kind};
use crate::ledger::{Ledger, MemKind, Reject};
use crate::model::{self, Expected};
use crate::plan::{Platform, Program};
use course::Course;

/// A valid program, with what it must see.
#[derive(Debug)]
pub struct Prepared<'a> {
    pub program: &'a Program,
    /// The order of the program's operations.
    pub ledger: Ledger,
    /// What the program must see.
    pub expected: Expected,
}

impl<'a> Prepared<'a> {
    /// Checks a program and predicts what it sees.
    ///
    /// # Errors
    ///
    /// The first operation that the ledger rejects.
    pub fn new(program: &'a Program, platform: &Platform) -> Result<Self, (usize, Reject)> {
        let ledger = Ledger::of(program, platform)?;
        let expected = model::predict(program, &ledger, &ledger.nodes.sequence());
        Ok(Self { program, ledger, expected })
    }
}

/// The operation that each thread performs, for the watchdog.
#[derive(Debug)]
pub struct Progress {
    threads: [AtomicUsize; THREADS_MAX],
    /// Longest time of a callback after the end of its event.
    patience: Duration,
}

/// Largest number of threads in a program.
pub const THREADS_MAX: usize = 4;

impl Progress {
    /// Creates the progress of a program that has not started. It is a finding if a callback has
    /// not run `patience` after a thread began to wait for it.
    pub fn new(patience: Duration) -> Self {
        Self { threads: Default::default(), patience }
    }

    /// Returns the operation that each thread performs. The number of operations means that the
    /// thread has ended.
    pub fn positions(&self, threads: usize) -> Vec<usize> {
        self.threads[..threads.min(THREADS_MAX)]
            .iter()
            .map(|at| at.load(Ordering::Relaxed))
            .collect()
    }
}

/// Runs a program. Calls `report` at once with the first finding, because the program's other
/// threads may never end then.
pub fn run(
    prepared: &Prepared<'_>,
    backend: &dyn Backend,
    progress: &Progress,
    report: &(dyn Fn(Finding) + Sync),
) {
    let state = State {
        prepared,
        backend,
        course: Course::new(report),
        patience: progress.patience,
        table: Lock::default(),
        refused: Lock::default(),
        shared_callbacks: std::sync::Arc::default(),
    };
    if let Err(finding) = state.open() {
        state.fail(finding);
        return;
    }
    let Program { threads, ops, .. } = prepared.program;
    state.course.run(*threads, ops, progress, |index, op| {
        state.perform(index, op).map_err(|finding| state.fail(finding)).is_ok()
    });
    if !state.course.has_failed() {
        state.close();
    }
}

#[derive(Default)]
struct Table {
    contexts: Vec<Handle>,
    // Ordered by number, because the objects are released in this order at the end.
    queues: BTreeMap<usize, Handle>,
    mems: BTreeMap<usize, Handle>,
    events: BTreeMap<usize, Handle>,
    areas: HashMap<usize, Handle>,
}

/// The statuses that each callback received.
type Callbacks = std::sync::Arc<(Lock<HashMap<usize, Vec<i32>>>, Signal)>;

struct State<'a> {
    prepared: &'a Prepared<'a>,
    backend: &'a dyn Backend,
    course: Course<'a>,
    patience: Duration,
    table: Lock<Table>,
    /// Queues with a launch that the device refused at once.
    refused: Lock<HashSet<usize>>,
    shared_callbacks: Callbacks,
}

impl State<'_> {
    fn fail(&self, finding: Finding) {
        if self.course.fail(finding) {
            self.backend.abandon();
            self.shared_callbacks.1.notify_all();
        }
    }

    fn open(&self) -> Result<(), Finding> {
        let mut table = self.table.lock();
        for devices in &self.prepared.program.contexts {
            let context = self.backend.new_context(devices).map_err(|code| Finding {
                kind: Kind::WrongCode,
                op: None,
                at: None,
                what: format!(
                    "the context of devices {devices:?} or its program cannot be made: {code}"
                ),
            })?;
            table.contexts.push(context);
        }
        for (id, &len) in self.prepared.program.arrays.iter().enumerate() {
            table.areas.insert(id, self.backend.new_area(len));
        }
        Ok(())
    }

    /// Releases the objects that the program leaves.
    fn close(&self) {
        let table = std::mem::take(&mut *self.table.lock());
        // A shrunk program may have lost its last waits. Then commands may still use the memory, so
        // it is not freed.
        let settled = self.prepared.ledger.is_settled();
        for event in table.events.values() {
            self.backend.drop_event(*event);
        }
        for (id, mem) in &table.mems {
            let known = &self.prepared.ledger.mems[id];
            let svm = (known.kind == MemKind::Svm).then(|| table.contexts[known.context]);
            if svm.is_some() && !settled {
                continue;
            }
            self.backend.drop_mem(*mem, svm);
        }
        for queue in table.queues.values() {
            self.backend.drop_queue(*queue);
        }
        if !settled {
            return;
        }
        for id in 0..self.prepared.program.arrays.len() {
            self.backend.drop_area(table.areas[&id]);
        }
    }
}

/// Rests for some time. Short rests spin and keep the processor.
pub(crate) fn rest(us: u32) {
    let time = Duration::from_micros(u64::from(us));
    if us >= 60 {
        std::thread::sleep(time);
    } else if us > 0 {
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}
