//! Makes a CUDA program from a seed.
//!
//! The planner picks an operation and asks the ledger. If the ledger misses some order, the planner
//! adds it before the operation: an event and a stream that waits for it, a wait of the host, or a
//! signal from another thread. So every complete program is valid.

mod motifs;
mod steps;
mod works;

use super::feature::Feature;
use super::ledger::{Key, Ledger, Reject};
use super::plan::{Act, Area, Context, Op, Platform, Program, Relies, Stream};
use crate::draft::{self, Draft, Kind};
use crate::random::Random;

/// Returns the program of a seed.
pub fn plan(seed: u64, platform: &Platform, ops: usize, features: &[Feature]) -> Program {
    let mut planner = Planner::new(seed, platform, features);
    planner.make(ops);
    planner.program
}

/// Deepest recursion to make an operation possible, as when a wait needs a signal that needs a
/// wait.
const DEPTH_MAX: usize = 6;
/// Number of obstacles that the planner removes from one operation before it gives up.
const OBSTACLES_MAX: usize = 24;
/// Largest number of host threads: one fewer than a run can have.
const THREADS_MAX: usize = crate::run::THREADS_MAX - 1;

type Planner = Draft<Cuda>;

struct Cuda;

impl Kind for Cuda {
    type Program = Program;
    type Ledger = Ledger;
    type Feature = Feature;
}

impl Planner {
    fn new(seed: u64, platform: &Platform, features: &[Feature]) -> Self {
        let mut random = Random::new(seed);
        let on = draft::some_of(features, &mut random);
        let has = |feature| on.contains(&feature);
        let threads = if has(Feature::Threads) { random.between(2, THREADS_MAX) } else { 1 };
        let mut devices: Vec<usize> = (0..platform.devices.len()).collect();
        let wanted =
            if has(Feature::Devices) { random.between(1, devices.len().min(3)) } else { 1 };
        while devices.len() > wanted {
            devices.remove(random.below(devices.len()));
        }
        let mut contexts: Vec<Context> =
            devices.into_iter().map(|device| Context { device, primary: true }).collect();
        if has(Feature::Contexts) {
            let device = contexts[random.below(contexts.len())].device;
            contexts.push(Context { device, primary: false });
        }
        let size = draft::size(has(Feature::Large), &mut random);
        let mut areas = Vec::new();
        for _ in 0..random.between(2, 4) {
            let pinned = has(Feature::Pinned) && random.chance(60);
            areas.push(Area { len: size * random.between(1, 2), pinned });
        }
        // The last array takes the results at the end.
        areas.push(Area { len: size * 2, pinned: false });
        let relies = Relies {
            writes_end: has(Feature::WritesEnd),
            pageable_order: has(Feature::PageableChains),
            early_frees: has(Feature::EarlyFrees),
        };
        let program = Program { seed, threads, contexts, areas, relies, ops: Vec::new() };
        let ledger = Ledger::new(platform, &program);
        let (thread, last, recent) = (0, 0, Vec::new());
        Self { random, program, ledger, on, thread, size, last, recent, own: Cuda }
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
        let op = Op { thread, delay_us, act };
        for _ in 0..OBSTACLES_MAX {
            match self.ledger.prepare(&op, !self.has(Feature::HostChains)) {
                Ok(prepared) => {
                    self.ledger.admit(&op, prepared);
                    self.program.ops.push(op);
                    return Some(self.program.ops.len() - 1);
                }
                Err(Reject::Thread { thread: other }) if other != thread => {
                    self.sync(other, thread, depth + 1)?;
                }
                Err(Reject::Command { cmd, .. }) => self.order_after(&op, cmd, false, depth + 1)?,
                Err(Reject::CallAfterCommand { cmd, .. }) => {
                    self.order_after(&op, cmd, true, depth + 1)?
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// Orders everything that one thread has done before everything that another thread does next.
    fn sync(&mut self, from: usize, to: usize, depth: usize) -> Option<()> {
        let id = self.fresh();
        self.emit_by(from, Act::Signal { id }, depth)?;
        self.emit_by(to, Act::Await { id }, depth).map(drop)
    }

    /// Orders a command before an operation. With `host`, the call itself must come after the
    /// command.
    fn order_after(&mut self, op: &Op, cmd: usize, host: bool, depth: usize) -> Option<()> {
        let stream = stream_of(&op.act).filter(|_| !host && self.has(Feature::StreamWaits));
        if let Some(stream) = stream
            && self.random.chance(70)
            && let Some(event) = self.event_after(op.thread, cmd, depth)
        {
            return self.emit_by(op.thread, Act::StreamWait { stream, event }, depth).map(drop);
        }
        self.wait_for(op.thread, cmd, depth)
    }

    /// Returns an event that ends with a command or later: an existing one, or a new record. The
    /// thread then knows of the event.
    fn event_after(&mut self, thread: usize, cmd: usize, depth: usize) -> Option<usize> {
        let known = self.ledger.cmds[cmd].clone();
        let covers = |event: &super::ledger::Event| {
            let recorded = event.recorded.map(|cmd| self.ledger.cmds[cmd].node);
            event.alive
                && recorded.is_some_and(|node| self.ledger.nodes.is_before(known.node, node))
        };
        let there: Vec<usize> =
            self.ledger.events.iter().filter(|(_, it)| covers(it)).map(|(&id, _)| id).collect();
        if let Some(event) = self.random.pick(&there).filter(|_| self.random.chance(75)) {
            return Some(event);
        }
        let (stream, by) = self.usable(known.key(), known.thread, thread)?;
        if by != thread && !self.ledger.nodes.is_before(known.start, self.ledger.now(thread)) {
            self.sync(by, thread, depth)?;
        } else if by == thread && !self.ledger.nodes.is_before(known.start, self.ledger.now(thread))
        {
            self.sync(known.thread, thread, depth)?;
        }
        let event = self.an_event(known.key().context(), by, depth)?;
        self.emit_by(by, Act::Record { event, stream }, depth)?;
        if by != thread {
            self.sync(by, thread, depth)?;
        }
        Some(event)
    }

    /// Returns a name for a command's stream, and the thread to use it: `own` if only that thread
    /// can name the stream, otherwise `other`.
    fn usable(&self, key: Key, own: usize, other: usize) -> Option<(Stream, usize)> {
        match key {
            Key::Legacy(context) => Some((Stream::Legacy(context), other)),
            Key::PerThread { context, .. } => Some((Stream::PerThread(context), own)),
            Key::Made { stream, .. } => {
                self.ledger.streams[&stream].alive.then_some((Stream::Made(stream), other))
            }
        }
    }

    /// Returns an event of a context: a new one, or one whose last record is no longer needed.
    fn an_event(&mut self, context: usize, thread: usize, depth: usize) -> Option<usize> {
        let fits = |event: &super::ledger::Event| event.alive && event.context == context;
        let all: Vec<usize> =
            self.ledger.events.iter().filter(|(_, it)| fits(it)).map(|(&id, _)| id).collect();
        if all.len() > 2 || self.random.chance(40) && !all.is_empty() {
            return self.random.pick(&all);
        }
        let (event, timing) = (self.fresh(), self.random.chance(40));
        self.emit_by(thread, Act::NewEvent { event, context, timing }, depth)?;
        Some(event)
    }

    /// Makes a thread wait for a command.
    fn wait_for(&mut self, thread: usize, cmd: usize, depth: usize) -> Option<()> {
        let known = self.ledger.cmds[cmd].clone();
        let query = self.has(Feature::Queries) && self.random.chance(35);
        if self.random.chance(35)
            && let Some(event) = self.event_after(thread, cmd, depth)
        {
            return self.emit_by(thread, Act::EventWait { event, query }, depth).map(drop);
        }
        // If the thread does not know of the command, a wait in that thread does not cover it.
        if !self.ledger.nodes.is_before(known.start, self.ledger.now(thread)) {
            self.sync(known.thread, thread, depth)?;
        }
        let context = known.key().context();
        let act = match self.usable(known.key(), known.thread, thread) {
            Some((stream, by)) if by == thread && self.random.chance(80) => {
                Act::StreamSync { stream, query }
            }
            _ => Act::ContextSync { context },
        };
        self.emit_by(thread, act, depth).map(drop)
    }
}

/// Returns the stream in which an operation enqueues work, if an event can delay that work.
fn stream_of(act: &Act) -> Option<Stream> {
    match act {
        Act::Enqueue { stream, .. }
        | Act::Graph { stream, .. }
        | Act::AllocAsync { stream, .. }
        | Act::FreeAsync { stream, .. } => Some(*stream),
        Act::Now { context, .. } => Some(Stream::Legacy(*context)),
        _ => None,
    }
}
