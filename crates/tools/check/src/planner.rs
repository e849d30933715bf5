//! Makes a program from a seed.
//!
//! The planner picks an operation and asks the ledger. If the ledger misses some order, the planner
//! adds it before the operation: a wait, an event in the wait list, a flush, a signal from another
//! thread, or the setting of a user event. So every complete program is valid, and no part of it
//! depends on how it runs.

mod motifs;
mod pieces;
mod steps;

use crate::draft::{self, Draft, Kind};
use crate::feature::{Feature, Named as _};
use crate::ledger::{Ledger, MemKind, Prepared, Reject, Source};
use crate::plan::{Act, Cmd, Op, Platform, Program};
use crate::random::Random;
use crate::run::THREADS_MAX;

/// The bounds of programs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Approximate number of operations in a program.
    pub ops: usize,
    /// The features that programs may contain.
    pub features: Vec<Feature>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ops: OPS_DEFAULT, features: Feature::ALL.to_vec() }
    }
}

/// Enough for a chain of a dozen commands with what they need, but so few that a program takes some
/// milliseconds.
pub const OPS_DEFAULT: usize = 60;

/// Returns the program of a seed.
///
/// Sometimes the planner ends with a user event that it can no longer set: what must happen before
/// cannot be waited for without the commands that the event holds back. Then the planner starts
/// again with other random numbers from the same seed.
pub fn plan(seed: u64, platform: &Platform, limits: &Limits) -> Program {
    for attempt in 0..ATTEMPTS_MAX {
        let mut planner = Planner::new(seed, attempt, platform, limits);
        planner.make(limits.ops);
        if planner.ledger.is_complete() {
            return planner.program;
        }
    }
    // A program without operations is always valid.
    Planner::new(seed, 0, platform, limits).program
}

/// Number of attempts. One program in a thousand needs a second one.
const ATTEMPTS_MAX: u64 = 20;
/// Deepest recursion to make an operation possible, as when a wait needs a user event that needs a
/// wait.
const DEPTH_MAX: usize = 6;
/// Number of obstacles that the planner removes from one operation before it gives up.
const OBSTACLES_MAX: usize = 24;

type Planner = Draft<OpenCl>;

/// What only the planner of OpenCL programs remembers.
struct OpenCl {
    /// Objects that belong to a motif.
    private_mems: Vec<usize>,
    private_queues: Vec<usize>,
    private_areas: Vec<usize>,
    callbacks: Vec<usize>,
    /// Area that the reads of a shared queue write to.
    hot_area: Option<usize>,
    /// Area for the results of launches that cannot run.
    failed_area: Option<usize>,
}

impl Kind for OpenCl {
    type Program = Program;
    type Ledger = Ledger;
    type Feature = Feature;
}

impl Planner {
    fn new(seed: u64, attempt: u64, platform: &Platform, limits: &Limits) -> Self {
        let mut random = Random::new(seed ^ attempt << 48);
        let on = draft::some_of(&limits.features, &mut random);
        let has = |feature| on.contains(&feature);
        let threads = if has(Feature::Threads) { random.between(2, THREADS_MAX - 1) } else { 1 };
        let count = platform.devices.len();
        let mut contexts = Vec::new();
        for _ in 0..if has(Feature::Contexts) { random.between(1, 2) } else { 1 } {
            let mut devices: Vec<usize> = (0..count).collect();
            let wanted = if has(Feature::Devices) { random.between(1, count.min(4)) } else { 1 };
            while devices.len() > wanted {
                devices.remove(random.below(devices.len()));
            }
            contexts.push(devices);
        }
        let size = draft::size(has(Feature::Large), &mut random);
        let mut arrays: Vec<usize> =
            (0..random.between(2, 3)).map(|_| size * random.between(1, 2)).collect();
        let failed_area = arrays.len();
        arrays.push(64);
        let mut hot_area = None;
        if has(Feature::SharedQueues) && threads > 1 {
            hot_area = Some(arrays.len());
            let most = if has(Feature::Large) { 4 << 20 } else { 256 << 10 };
            arrays.push(random.pick(&[4096, 64 << 10, most]).unwrap_or(4096));
        }
        // The last array takes the results at the end.
        arrays.push(size * 2);
        let writes_end = has(Feature::WritesEnd);
        let program = Program { seed, threads, contexts, arrays, writes_end, ops: Vec::new() };
        let ledger = Ledger::new(platform, &program);
        let last = program.arrays.len() - 1;
        let own = OpenCl {
            private_mems: Vec::new(),
            private_queues: Vec::new(),
            private_areas: (failed_area..=last).collect(),
            callbacks: Vec::new(),
            hot_area,
            failed_area: Some(failed_area),
        };
        let (thread, recent, last) = (0, Vec::new(), program.arrays.len());
        Self { random, program, ledger, on, thread, size, last, recent, own }
    }

    /// Adds an operation of the current thread, with everything that it needs before it.
    fn emit(&mut self, act: Act) -> Option<usize> {
        self.emit_by(self.thread, act, 0)
    }

    fn emit_by(&mut self, thread: usize, act: Act, depth: usize) -> Option<usize> {
        if depth > DEPTH_MAX {
            return None;
        }
        let delay_us = self.delay(Feature::Delays);
        let mut op = Op { thread, delay_us, act };
        let owing = self.random.chance(60);
        for _ in 0..OBSTACLES_MAX {
            match self.ledger.prepare(&op, owing) {
                Ok(prepared) if self.is_held_wrongly(&op, prepared.gates()) => {
                    let reject = Reject::Gated { gates: prepared.gates().to_vec() };
                    self.remove_obstacle(&mut op, reject, depth + 1)?;
                }
                Ok(prepared) if self.is_chained(&prepared).is_some() => {
                    let cmd = self.is_chained(&prepared)?;
                    self.wait_for(op.thread, cmd, depth + 1)?;
                }
                Ok(prepared) => {
                    // A thread has to wait for this command before it sets a user event. A wait for
                    // the whole queue could wait for the user event itself, so the command gets its
                    // own event.
                    if let Act::Enqueue { event: event @ None, .. } = &mut op.act
                        && prepared.is_owed()
                    {
                        *event = Some(self.fresh());
                        continue;
                    }
                    self.ledger.admit(&op, prepared);
                    self.program.ops.push(op);
                    return Some(self.program.ops.len() - 1);
                }
                Err(reject) => self.remove_obstacle(&mut op, reject, depth + 1)?,
            }
        }
        None
    }

    /// Without the feature of chains, the host waits for commands that use its memory before
    /// another command uses it. Returns such a command.
    fn is_chained(&self, prepared: &Prepared) -> Option<usize> {
        if self.has(Feature::HostChains) { None } else { self.ledger.chained(prepared) }
    }

    /// Whether user events would hold back a command of an out-of-order queue although that feature
    /// is off.
    fn is_held_wrongly(&self, op: &Op, gates: &[usize]) -> bool {
        let out_of_order = crate::ledger::queue_of(&op.act)
            .is_some_and(|queue| self.ledger.queues[&queue].out_of_order);
        !gates.is_empty() && out_of_order && !self.has(Feature::UserEventsOutOfOrder)
    }

    fn remove_obstacle(&mut self, op: &mut Op, reject: Reject, depth: usize) -> Option<()> {
        match reject {
            Reject::Thread { thread } if thread != op.thread => self.sync(thread, op.thread, depth),
            Reject::Command { cmd, .. } => self.order_after(op, cmd, depth),
            Reject::Mapped { area } => self.unmap(op.thread, area, depth),
            Reject::Gated { gates } => {
                gates.into_iter().try_for_each(|gate| self.set_gate(gate, depth))
            }
            Reject::Unflushed { queue } if self.ledger.queues[&queue].alive => {
                self.emit_by(op.thread, Act::Flush { queue }, depth).map(drop)
            }
            _ => None,
        }
    }

    /// Orders everything that one thread has done before everything that another thread does next.
    fn sync(&mut self, from: usize, to: usize, depth: usize) -> Option<()> {
        let id = self.fresh();
        self.emit_by(from, Act::Signal { id }, depth)?;
        self.emit_by(to, Act::Await { id }, depth).map(drop)
    }

    /// Orders a command before an operation.
    fn order_after(&mut self, op: &mut Op, cmd: usize, depth: usize) -> Option<()> {
        let known = self.ledger.cmds[cmd].clone();
        let queue = self.ledger.queues[&known.queue].clone();
        let event = known.event.filter(|event| self.ledger.events[event].alive);
        let by_event = self.random.chance(65);
        if let (Act::Enqueue { queue: own, wait, .. }, Some(event)) = (&mut op.act, event)
            && by_event
            && self.ledger.queues[own].context == queue.context
            && !wait.contains(&event)
        {
            wait.push(event);
            return Some(());
        }
        let by_barrier = self.has(Feature::Markers) && self.random.chance(30);
        if let Act::Enqueue { queue: own, .. } = &op.act
            && by_barrier
            && *own == known.queue
            && queue.out_of_order
            && queue.alive
        {
            let act = Act::Enqueue {
                queue: *own,
                cmd: Cmd::Barrier,
                wait: Vec::new(),
                event: None,
                blocking: false,
            };
            return self.emit_by(op.thread, act, depth).map(drop);
        }
        self.wait_for(op.thread, cmd, depth)
    }

    /// Makes a thread wait for a command.
    fn wait_for(&mut self, thread: usize, cmd: usize, depth: usize) -> Option<()> {
        let known = self.ledger.cmds[cmd].clone();
        // If the thread does not know of the command, `clFinish` does not wait for it.
        if known.thread != thread
            && !self.ledger.nodes.is_before(known.start, self.ledger.now(thread))
        {
            self.sync(known.thread, thread, depth)?;
        }
        let alive = self.ledger.queues[&known.queue].alive;
        let event = known.event.filter(|event| self.ledger.events[event].alive);
        let wait = event.map(|event| Act::Wait { events: vec![event] });
        let finish = alive.then_some(Act::Finish { queue: known.queue });
        let act = match (wait, finish) {
            (Some(wait), Some(finish)) => {
                if self.random.chance(70) {
                    wait
                } else {
                    finish
                }
            }
            (wait, finish) => wait.or(finish)?,
        };
        self.emit_by(thread, act, depth).map(drop)
    }

    fn unmap(&mut self, thread: usize, area: usize, depth: usize) -> Option<()> {
        let map = self.ledger.areas[&area].map?;
        let context = self.ledger.mems[&map.mem].context;
        let queue = self.a_queue(Some(context))?;
        let event = self.maybe_event(queue);
        let cmd = Cmd::Unmap { area };
        let act = Act::Enqueue { queue, cmd, wait: Vec::new(), event, blocking: false };
        self.emit_by(thread, act, depth).map(drop)
    }

    fn set_gate(&mut self, event: usize, depth: usize) -> Option<()> {
        let fails = self.ledger.fails(event);
        // The thread that created a failing event also sets it, so that no call sees the failure
        // too early.
        let thread = if fails || self.random.chance(40) {
            self.thread
        } else {
            self.random.below(self.program.threads)
        };
        let status =
            if fails { -i32::try_from(self.random.between(1, 60)).unwrap_or(1) } else { 0 };
        self.emit_by(thread, Act::SetGate { event, status }, depth).map(drop)
    }

    /// Returns a usable queue of a context, or of any context.
    fn a_queue(&mut self, context: Option<usize>) -> Option<usize> {
        let fit = |(id, queue): (&usize, &crate::ledger::Queue)| {
            let usable = queue.alive && !queue.broken && !self.own.private_queues.contains(id);
            (usable && context.is_none_or(|context| queue.context == context)).then_some(*id)
        };
        let all: Vec<usize> = self.ledger.queues.iter().filter_map(fit).collect();
        self.random.pick(&all)
    }

    /// Returns a memory object whose kind fits.
    fn a_mem(&mut self, context: usize, fits: impl Fn(MemKind) -> bool) -> Option<usize> {
        let mems = self.ledger.mems.iter().filter(|(id, mem)| {
            mem.alive
                && mem.context == context
                && fits(mem.kind)
                && !self.own.private_mems.contains(id)
        });
        let all: Vec<usize> = mems.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }

    /// Returns a new event for most commands, and for each command of a queue with profiling.
    fn maybe_event(&mut self, queue: usize) -> Option<usize> {
        let wanted = self.ledger.queues[&queue].profiling || self.random.chance(60);
        if wanted { Some(self.fresh()) } else { None }
    }

    /// Returns an unset user event of a context.
    fn an_unset_gate(&mut self, context: usize) -> Option<usize> {
        let unset = self.ledger.unset_gates();
        let fit = unset.into_iter().filter(|gate| {
            let event = &self.ledger.events[gate];
            event.alive && event.context == context && !self.ledger.fails(*gate)
        });
        let all: Vec<usize> = fit.collect();
        self.random.pick(&all)
    }

    /// Returns an event of a command of a context.
    fn an_event(&mut self, context: usize) -> Option<usize> {
        let fit = self.ledger.events.iter().filter(|(id, event)| {
            let of_cmd = matches!(event.source, Source::Cmd(_));
            event.alive && event.context == context && of_cmd && !self.ledger.fails(**id)
        });
        let all: Vec<usize> = fit.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }
}
