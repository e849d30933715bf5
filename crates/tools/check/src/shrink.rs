//! Makes a failing program smaller.
//!
//! The shrinker drops operations in groups, first large ones and then single operations. It also
//! drops what depended on a dropped operation, so every candidate is valid. Candidates run several
//! times, because many findings depend on timing.

use std::time::{Duration, Instant};

use crate::interface::{ActOf, Interface, Plan as _};
use crate::ledger::Ledger;
use crate::plan::{Act, Cmd, Kernel, Op, Platform, Program};

/// Decides whether a program fails as the original does. It may run the program several times.
pub trait Judge<I: Interface> {
    fn fails(&mut self, program: &I::Program) -> bool;
}

/// Returns the smallest failing program that was found within `time`, and the number of candidates
/// that were tried.
pub fn shrink<I: Interface>(
    program: &I::Program,
    platform: &Platform<I::Device>,
    failed_op: Option<usize>,
    judge: &mut dyn Judge<I>,
    time: Duration,
) -> (I::Program, usize) {
    let mut it = Shrinker::<I> {
        best: program.clone(),
        platform,
        judge,
        end: Instant::now() + time,
        tried: 0,
    };
    if let Some(op) = failed_op {
        it.end_after(op);
    }
    it.use_one_thread();
    let mut before = usize::MAX;
    while it.best.ops().len() < before && !it.is_over() {
        before = it.best.ops().len();
        it.drop_groups();
        it.simplify();
    }
    it.use_one_thread();
    (it.best, it.tried)
}

struct Shrinker<'a, I: Interface> {
    best: I::Program,
    platform: &'a Platform<I::Device>,
    judge: &'a mut dyn Judge<I>,
    end: Instant,
    tried: usize,
}

type Ops<I> = Vec<Op<ActOf<I>>>;

impl<I: Interface> Shrinker<'_, I> {
    fn is_over(&self) -> bool {
        Instant::now() > self.end
    }

    /// Takes a candidate if it differs and fails, too.
    fn consider(&mut self, ops: Ops<I>) -> bool {
        if self.is_over() {
            return false;
        }
        let candidate = self.best.with(ops);
        let Some(candidate) = I::repair(&candidate, self.platform) else { return false };
        if candidate.ops() == self.best.ops() || candidate.ops().len() > self.best.ops().len() {
            return false;
        }
        self.tried += 1;
        let fails = self.judge.fails(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn end_after(&mut self, op: usize) {
        let ops = self.best.ops().iter().take(op + 1).cloned().collect();
        self.consider(ops);
    }

    /// Moves all operations to one thread. The order of the list is valid for a single thread.
    fn use_one_thread(&mut self) {
        let ops = self.best.ops().iter().filter(|op| !I::is_between_threads(&op.act));
        let ops = ops.map(|op| Op { thread: 0, ..op.clone() }).collect();
        self.consider(ops);
    }

    fn drop_groups(&mut self) {
        let mut size = self.best.ops().len().div_ceil(2);
        loop {
            // From the end, because late operations often do not matter.
            let mut end = self.best.ops().len();
            while end > 0 && !self.is_over() {
                let start = end.saturating_sub(size);
                let mut ops = self.best.ops().to_vec();
                ops.drain(start..end.min(ops.len()));
                self.consider(ops);
                end = start.min(self.best.ops().len());
            }
            if size <= 1 || self.is_over() {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Replaces single operations by simpler forms.
    fn simplify(&mut self) {
        let ops = self.best.ops().iter().map(|op| Op { delay_us: 0, ..op.clone() }).collect();
        self.consider(ops);
        let mut index = 0;
        while index < self.best.ops().len() && !self.is_over() {
            for simpler in simpler_ops::<I>(&self.best.ops()[index]) {
                let mut ops = self.best.ops().to_vec();
                let Some(place) = ops.get_mut(index) else { break };
                *place = simpler;
                self.consider(ops);
            }
            index += 1;
        }
    }
}

fn simpler_ops<I: Interface>(op: &Op<ActOf<I>>) -> Ops<I> {
    let still = (op.delay_us > 0).then(|| op.act.clone());
    let acts = still.into_iter().chain(I::simpler(&op.act));
    acts.map(|act| Op { act, delay_us: 0, thread: op.thread }).collect()
}

/// Returns simpler forms of an OpenCL operation.
pub(crate) fn simpler(act: &Act) -> Vec<Act> {
    let mut all = Vec::new();
    let mut add = |act: Act| all.push(act);
    match act {
        Act::Enqueue { queue, cmd, wait, event, blocking } => {
            let with = |cmd: Cmd, wait: Vec<usize>, event: Option<usize>| Act::Enqueue {
                queue: *queue,
                cmd,
                wait,
                event,
                blocking: *blocking,
            };
            for index in 0..wait.len() {
                let mut fewer = wait.clone();
                fewer.remove(index);
                add(with(cmd.clone(), fewer, *event));
            }
            if event.is_some() {
                add(with(cmd.clone(), wait.clone(), None));
            }
            if let Cmd::Launch { kernel, a, a_offset, b, count, seed, .. } = cmd
                && *kernel != Kernel::Put
            {
                let put = Cmd::Launch {
                    kernel: Kernel::Put,
                    a: *a,
                    a_offset: *a_offset,
                    b: None,
                    b_offset: 0,
                    count: *count,
                    seed: *seed,
                    spin: 0,
                };
                add(with(put, wait.clone(), *event));
                if *kernel == Kernel::MixPlain && b.is_some() {
                    let mut plain = cmd.clone();
                    if let Cmd::Launch { kernel, .. } = &mut plain {
                        *kernel = Kernel::Mix;
                    }
                    add(with(plain, wait.clone(), *event));
                }
            }
        }
        Act::NewQueue { queue, context, device, out_of_order, profiling } => {
            let with = |out_of_order, profiling| Act::NewQueue {
                queue: *queue,
                context: *context,
                device: *device,
                out_of_order,
                profiling,
            };
            if *out_of_order {
                add(with(false, *profiling));
            }
            if *profiling {
                add(with(*out_of_order, false));
            }
        }
        _ => {}
    }
    all
}

/// Drops the operations that the ledger rejects, and wait-list entries whose events are gone.
/// Returns `None` if a user event that holds back a command is never set.
pub fn repair(program: &Program, platform: &Platform) -> Option<Program> {
    let mut ledger = Ledger::new(platform, program);
    let mut ops = Vec::new();
    for op in &program.ops {
        let mut op = op.clone();
        if let Act::Enqueue { wait, .. } = &mut op.act {
            wait.retain(|event| ledger.events.get(event).is_some_and(|event| event.alive));
        }
        if let Ok(prepared) = ledger.prepare(&op, true) {
            ledger.admit(&op, prepared);
            ops.push(op);
        }
    }
    ledger.is_complete().then(|| Program { ops, ..program.clone() })
}
