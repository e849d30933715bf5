//! Makes a program from a seed.
//!
//! The planner picks an operation and asks the ledger. What the ledger misses, the planner adds before: a wait, an event in
//! the wait list, a flush, a signal from another thread, the setting of a user event. So every program is in order when it
//! is complete, and nothing of it depends on how it runs.

mod motifs;
mod pieces;
mod steps;

use crate::feature::{Feature, Named as _};
use crate::ledger::{Ledger, MemKind, Prepared, Reject, Source};
use crate::plan::{Act, Cmd, Op, Platform, Program, Ptr};
use crate::random::Random;
use crate::run::THREADS_MAX;

/// What bounds the programs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Roughly how many operations a program has.
    pub ops: usize,
    /// What programs may contain.
    pub features: Vec<Feature>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ops: OPS_DEFAULT, features: Feature::ALL.to_vec() }
    }
}

/// Enough for a chain of a dozen commands with what they need, and so few that a program takes some milliseconds.
pub const OPS_DEFAULT: usize = 60;

/// The program of a seed.
///
/// Now and then the planner ends with a user event that it cannot set any more: what must happen before cannot be waited for
/// without what the event holds back. Then it starts again with other numbers that the same seed gives.
pub fn plan(seed: u64, platform: &Platform, limits: &Limits) -> Program {
    for attempt in 0..ATTEMPTS_MAX {
        let mut planner = Planner::new(seed, attempt, platform, limits);
        planner.prologue();
        let ops = planner.random.between(limits.ops / 3 + 4, limits.ops + 4);
        // A step that leads nowhere adds nothing.
        for _ in 0..ops * 3 {
            if planner.program.ops.len() >= ops {
                break;
            }
            planner.step();
        }
        planner.epilogue();
        if planner.ledger.is_complete() {
            return planner.program;
        }
    }
    // Without operations, every program is in order.
    Planner::new(seed, 0, platform, limits).program
}

/// One program in a thousand needs a second attempt.
const ATTEMPTS_MAX: u64 = 20;
/// How deep the planner goes to make something possible: a wait that needs a user event that needs a wait, and so on.
const DEPTH_MAX: usize = 6;
/// How many obstacles of one operation the planner removes before it gives up.
const OBSTACLES_MAX: usize = 24;

struct Planner {
    random: Random,
    program: Program,
    ledger: Ledger,
    on: Vec<Feature>,
    thread: usize,
    /// The typical size of a buffer.
    size: usize,
    next: usize,
    /// Objects that belong to a motif.
    private_mems: Vec<usize>,
    private_queues: Vec<usize>,
    private_areas: Vec<usize>,
    /// Where the last transfers from and to host memory were.
    recent: Vec<(Ptr, usize)>,
    callbacks: Vec<usize>,
    /// Where the reads of a shared queue go.
    hot_area: Option<usize>,
    /// Where the results of launches that cannot run go.
    failed_area: Option<usize>,
}

impl Planner {
    fn new(seed: u64, attempt: u64, platform: &Platform, limits: &Limits) -> Self {
        let mut random = Random::new(seed ^ attempt << 48);
        // Each program leaves out about half of the features, so that the others meet more often.
        let on: Vec<Feature> =
            limits.features.iter().copied().filter(|_| random.chance(55)).collect();
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
        let mut sizes = vec![64, 256, 1024, 4096, 4096, 16 << 10, 64 << 10];
        if has(Feature::Large) {
            sizes.extend([256 << 10, 1 << 20, 1 << 20, 4 << 20]);
        }
        let size = random.pick(&sizes).unwrap_or(1024);
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
        Self {
            random,
            program,
            ledger,
            on,
            thread: 0,
            size,
            next: 0,
            private_mems: Vec::new(),
            private_queues: Vec::new(),
            private_areas: (failed_area..=last).collect(),
            recent: Vec::new(),
            callbacks: Vec::new(),
            hot_area,
            failed_area: Some(failed_area),
        }
    }

    fn has(&self, feature: Feature) -> bool {
        self.on.contains(&feature)
    }

    /// A number for a new object. Numbers of all kinds are different, so that a program is easy to read.
    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.program.arrays.len() + self.next
    }

    /// Adds an operation of the current thread, with all that it needs before.
    fn emit(&mut self, act: Act) -> Option<usize> {
        self.emit_by(self.thread, act, 0)
    }

    fn emit_by(&mut self, thread: usize, act: Act, depth: usize) -> Option<usize> {
        if depth > DEPTH_MAX {
            return None;
        }
        let delay_us = if self.has(Feature::Delays) && self.random.chance(12) {
            self.random.pick(&[1, 5, 20, 100, 400, 1500]).unwrap_or(0)
        } else {
            0
        };
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
                    // What must happen before a user event is set has to be waited for, and waiting for its queue may be
                    // waiting for the user event.
                    if let Act::Enqueue { event: event @ None, .. } = &mut op.act
                        && prepared.is_owed()
                    {
                        self.next += 1;
                        *event = Some(self.program.arrays.len() + self.next);
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

    /// Without chains, the host waits for what uses its memory before it gives the memory to the next command.
    fn is_chained(&self, prepared: &Prepared) -> Option<usize> {
        if self.has(Feature::HostChains) { None } else { self.ledger.chained(prepared) }
    }

    /// Whether user events would hold back a command of an out-of-order queue although that is left out.
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

    /// Puts all that one thread has done before all that another one does next.
    fn sync(&mut self, from: usize, to: usize, depth: usize) -> Option<()> {
        let id = self.fresh();
        self.emit_by(from, Act::Signal { id }, depth)?;
        self.emit_by(to, Act::Await { id }, depth).map(drop)
    }

    /// Puts a command before an operation.
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

    /// Lets a thread wait for a command.
    fn wait_for(&mut self, thread: usize, cmd: usize, depth: usize) -> Option<()> {
        let known = self.ledger.cmds[cmd].clone();
        // A thread that does not know of the command waits for nothing with `clFinish`.
        if known.thread != thread && !self.ledger.is_before(known.start, self.ledger.now(thread)) {
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
        // Who set up a failing event also sets it: no call may see it too early.
        let thread = if fails || self.random.chance(40) {
            self.thread
        } else {
            self.random.below(self.program.threads)
        };
        let status =
            if fails { -i32::try_from(self.random.between(1, 60)).unwrap_or(1) } else { 0 };
        self.emit_by(thread, Act::SetGate { event, status }, depth).map(drop)
    }

    /// A queue that may be used, of a context or of any.
    fn a_queue(&mut self, context: Option<usize>) -> Option<usize> {
        let fit = |(id, queue): (&usize, &crate::ledger::Queue)| {
            let usable = queue.alive && !queue.broken && !self.private_queues.contains(id);
            (usable && context.is_none_or(|context| queue.context == context)).then_some(*id)
        };
        let all: Vec<usize> = self.ledger.queues.iter().filter_map(fit).collect();
        self.random.pick(&all)
    }

    /// A memory object of one of some kinds.
    fn a_mem(&mut self, context: usize, fits: impl Fn(MemKind) -> bool) -> Option<usize> {
        let mems = self.ledger.mems.iter().filter(|(id, mem)| {
            mem.alive && mem.context == context && fits(mem.kind) && !self.private_mems.contains(id)
        });
        let all: Vec<usize> = mems.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }

    /// Wants an event of most commands, and of each command of a queue with profiling.
    fn maybe_event(&mut self, queue: usize) -> Option<usize> {
        let wanted = self.ledger.queues[&queue].profiling || self.random.chance(60);
        if wanted { Some(self.fresh()) } else { None }
    }

    /// A user event that is not set, of a context.
    fn an_unset_gate(&mut self, context: usize) -> Option<usize> {
        let unset = self.ledger.unset_gates();
        let fit = unset.into_iter().filter(|gate| {
            let event = &self.ledger.events[gate];
            event.alive && event.context == context && !self.ledger.fails(*gate)
        });
        let all: Vec<usize> = fit.collect();
        self.random.pick(&all)
    }

    /// An event of a command of a context.
    fn an_event(&mut self, context: usize) -> Option<usize> {
        let fit = self.ledger.events.iter().filter(|(id, event)| {
            let of_cmd = matches!(event.source, Source::Cmd(_));
            event.alive && event.context == context && of_cmd && !self.ledger.fails(**id)
        });
        let all: Vec<usize> = fit.map(|(&id, _)| id).collect();
        self.random.pick(&all)
    }
}
