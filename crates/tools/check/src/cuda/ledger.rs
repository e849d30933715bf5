//! The order of a CUDA program: which operations and commands happen before which others, and what
//! each of them uses.
//!
//! This ledger is separate from that of OpenCL. CUDA's order has no user events, so no command is
//! held back, and every moment is complete when it is added. It has implicit order between streams,
//! and operations with several commands, which OpenCL's queues do not have.

mod access;
mod order;
mod validity;

use std::collections::{BTreeMap, HashMap};

pub use access::Space;
pub(crate) use order::mems_of;

use super::plan::{Act, Context, Op, Part, Program, Relies, Stream};
use crate::bits::Bits;
pub use crate::ledger::Reject;
use crate::moments::Moments;
use access::{Access, Touch};

/// Kind of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The start of the program.
    Root,
    /// The host's own part of an operation.
    Start(usize),
    /// The command of an operation.
    Cmd(usize),
    /// A synchronous copy reads its bytes from pageable memory.
    Take(usize),
    /// The return of an operation that waits.
    End(usize),
}

/// A stream with its context. Each thread has its own per-thread default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Legacy(usize),
    PerThread { context: usize, thread: usize },
    Made { context: usize, stream: usize, blocking: bool },
}

impl Key {
    pub fn context(self) -> usize {
        match self {
            Self::Legacy(context)
            | Self::PerThread { context, .. }
            | Self::Made { context, .. } => context,
        }
    }

    /// "The per-thread default stream is not a non-blocking stream and will synchronize with the
    /// legacy default stream if both are used in a program."
    fn is_blocking(self) -> bool {
        matches!(self, Self::PerThread { .. } | Self::Made { blocking: true, .. })
    }
}

/// A stream that the program has created.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub context: usize,
    pub blocking: bool,
    pub alive: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub context: usize,
    pub alive: bool,
    /// The command that recorded the event last.
    pub recorded: Option<usize>,
}

/// Memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    pub context: usize,
    pub size: usize,
    pub alive: bool,
    /// Whether `cuMemAllocAsync` allocated it.
    pub pooled: bool,
}

/// An array of host memory.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub len: usize,
    pub pinned: bool,
    pub registered: bool,
}

impl Area {
    /// Whether copies treat it as pinned memory: "memory registered with cuMemHostRegister is
    /// page-locked".
    pub fn is_pinned(self) -> bool {
        self.pinned || self.registered
    }
}

#[derive(Clone, Debug)]
pub struct Graph {
    pub context: usize,
    pub parts: Vec<Part>,
    /// The commands of the graph's launches.
    launches: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Command {
    pub op: usize,
    pub thread: usize,
    pub node: usize,
    pub start: usize,
    /// The streams in whose order the command is: its own and, for a synchronous copy between
    /// contexts, that of the other context.
    pub keys: Vec<Key>,
}

impl Command {
    /// Returns the stream in which the command is enqueued.
    pub fn key(&self) -> Key {
        self.keys[0]
    }
}

/// What an operation adds if the ledger accepts it.
#[derive(Clone, Debug)]
pub struct Prepared {
    start: Bits,
    cmds: Vec<NewCommand>,
    /// The moments that the operation waits for before it returns, and the number of its own
    /// commands that it waits for.
    awaited: Vec<usize>,
    awaits_own: usize,
    touches: Vec<Touch>,
}

#[derive(Clone, Debug)]
struct NewCommand {
    before: Bits,
    keys: Vec<Key>,
    /// Whether this command is the part of a copy that reads the bytes.
    takes: bool,
}

/// The order of a program, up to the operations added so far.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub contexts: Vec<Context>,
    pub nodes: Moments<Moment>,
    pub streams: BTreeMap<usize, Made>,
    pub events: BTreeMap<usize, Event>,
    pub mems: BTreeMap<usize, Mem>,
    pub areas: Vec<Area>,
    pub graphs: BTreeMap<usize, Graph>,
    pub cmds: Vec<Command>,
    pools: Vec<bool>,
    relies: Relies,
    ops: usize,
    signals: HashMap<usize, usize>,
    threads: Vec<usize>,
    accesses: HashMap<Space, Vec<Access>>,
}

impl Ledger {
    /// Creates the ledger of a program without its operations.
    pub fn new(platform: &super::plan::Platform, program: &Program) -> Self {
        let area = |area: &super::plan::Area| Area {
            len: area.len,
            pinned: area.pinned,
            registered: false,
        };
        let pools =
            |context: &Context| platform.devices.get(context.device).is_some_and(|it| it.pools);
        Self {
            contexts: program.contexts.clone(),
            nodes: Moments::new(Moment::Root),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            mems: BTreeMap::new(),
            areas: program.areas.iter().map(area).collect(),
            graphs: BTreeMap::new(),
            cmds: Vec::new(),
            pools: program.contexts.iter().map(pools).collect(),
            relies: program.relies,
            ops: 0,
            signals: HashMap::new(),
            threads: vec![0; program.threads],
            accesses: HashMap::new(),
        }
    }

    /// Creates the ledger of a whole program.
    ///
    /// # Errors
    ///
    /// The first operation that the ledger rejects, and why.
    pub fn of(
        program: &Program,
        platform: &super::plan::Platform,
    ) -> Result<Self, (usize, Reject)> {
        let devices = platform.devices.len();
        if program.contexts.iter().any(|context| context.device >= devices) {
            return Err((0, Reject::Invalid("the program needs more devices")));
        }
        let mut ledger = Self::new(platform, program);
        for (index, op) in program.ops.iter().enumerate() {
            let prepared = ledger.prepare(op, false).map_err(|reject| (index, reject))?;
            ledger.admit(op, prepared);
        }
        Ok(ledger)
    }

    /// Returns the latest moment of a thread.
    pub fn now(&self, thread: usize) -> usize {
        self.threads[thread]
    }

    /// Returns the stream that a thread means by `stream`.
    pub fn key(&self, stream: Stream, thread: usize) -> Option<Key> {
        match stream {
            Stream::Legacy(context) => Some(Key::Legacy(context)),
            Stream::PerThread(context) => Some(Key::PerThread { context, thread }),
            Stream::Made(stream) => {
                let made = self.streams.get(&stream)?;
                Some(Key::Made { context: made.context, stream, blocking: made.blocking })
            }
        }
    }

    /// Checks an operation. With `settled`, the host must first wait for commands that use host
    /// memory before the operation may use that memory.
    ///
    /// # Errors
    ///
    /// Why the operation cannot be added.
    pub fn prepare(&self, op: &Op, settled: bool) -> Result<Prepared, Reject> {
        self.valid(op)?;
        let mut prepared = self.ordered(op)?;
        prepared.touches = self.touches(op, settled);
        self.conflicts(op, &prepared)?;
        Ok(prepared)
    }

    /// Adds an operation that [`Self::prepare`] has checked.
    pub fn admit(&mut self, op: &Op, prepared: Prepared) {
        let index = self.ops;
        self.ops += 1;
        let Prepared { start, cmds, mut awaited, awaits_own, touches } = prepared;
        let start = self.nodes.add(start, Moment::Start(index));
        let mut own = Vec::new();
        for new in cmds {
            let mut before = new.before;
            before.insert(start);
            if let Some(&(node, _)) = own.last() {
                self.nodes.put_before(node, &mut before);
            }
            let moment = if new.takes { Moment::Take(index) } else { Moment::Cmd(index) };
            let node = self.nodes.add(before, moment);
            own.push((node, self.cmds.len()));
            self.cmds.push(Command { op: index, thread: op.thread, node, start, keys: new.keys });
        }
        awaited.extend(own.iter().take(awaits_own).map(|(node, _)| *node));
        let mut end = start;
        if !awaited.is_empty() {
            let mut before = self.nodes.until(start);
            for node in awaited {
                self.nodes.put_before(node, &mut before);
            }
            end = self.nodes.add(before, Moment::End(index));
        }
        self.threads[op.thread] = end;
        self.record(touches, start, op.thread, &own);
        self.enter(op, end, own.last().map(|(_, cmd)| *cmd));
    }

    /// Records the changes that an operation makes.
    fn enter(&mut self, op: &Op, end: usize, cmd: Option<usize>) {
        match &op.act {
            Act::Signal { id } => {
                self.signals.insert(*id, end);
            }
            Act::NewStream { stream, context, blocking } => {
                let made = Made { context: *context, blocking: *blocking, alive: true };
                self.streams.insert(*stream, made);
            }
            Act::DropStream { stream } => {
                self.streams.entry(*stream).and_modify(|it| it.alive = false);
            }
            Act::NewEvent { event, context, .. } => {
                self.events
                    .insert(*event, Event { context: *context, alive: true, recorded: None });
            }
            Act::DropEvent { event } => {
                self.events.entry(*event).and_modify(|it| it.alive = false);
            }
            Act::Alloc { mem, context, size } => {
                let new = Mem { context: *context, size: *size, alive: true, pooled: false };
                self.mems.insert(*mem, new);
            }
            Act::AllocAsync { mem, stream, size } => {
                let context = self.key(*stream, op.thread).map_or(0, Key::context);
                self.mems.insert(*mem, Mem { context, size: *size, alive: true, pooled: true });
            }
            Act::Free { mem } | Act::FreeAsync { mem, .. } => {
                self.mems.entry(*mem).and_modify(|it| it.alive = false);
            }
            Act::Register { area } => self.areas[*area].registered = true,
            Act::Unregister { area } => self.areas[*area].registered = false,
            Act::Record { event, .. } => {
                self.events.entry(*event).and_modify(|it| it.recorded = cmd);
            }
            Act::NewGraph { graph, context, parts } => {
                let new = Graph { context: *context, parts: parts.clone(), launches: Vec::new() };
                self.graphs.insert(*graph, new);
            }
            Act::Graph { graph, .. } => {
                if let (Some(known), Some(cmd)) = (self.graphs.get_mut(graph), cmd) {
                    known.launches.push(cmd);
                }
            }
            _ => {}
        }
    }
}
