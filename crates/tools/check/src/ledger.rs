//! The order of a program: which operations and commands happen before which others, and what each
//! of them uses.
//!
//! The planner asks the ledger before it adds an operation, and adds the order that is missing. The
//! runner and the shrinker check a whole program with the ledger, and refuse the program if the
//! ledger rejects one operation.

mod access;
mod order;
mod validity;

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use crate::bits::Bits;
use crate::moments::Moments;
use crate::plan::{Act, Cmd, MapMode, Op, Platform, Program};

pub use access::{Access, Kind, Owner, Space};
pub use order::queue_of;

/// Why an operation cannot be added as it is, and what would help.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// The operation names an object that does not exist, or does what no program may do.
    #[error("{0}")]
    Invalid(&'static str),
    /// The operation must come after what the thread has done so far.
    #[error("it is not ordered after thread {thread}")]
    Thread { thread: usize },
    /// The operation must come after a command, which the operation `op` has enqueued. `cmd` is the
    /// command's index in the ledger.
    #[error("it is not ordered after the command of operation {op}")]
    Command { cmd: usize, op: usize },
    /// As `Command`, and not only the work that the call enqueues must come after the command, but
    /// the call itself. Only programs of CUDA make this difference.
    #[error("it is not ordered after the command of operation {op}")]
    CallAfterCommand { cmd: usize, op: usize },
    /// The operation touches bytes that are mapped.
    #[error("it touches what is mapped as area {area}")]
    Mapped { area: usize },
    /// The operation would wait for user events that are not set yet.
    #[error("it would wait for user events that are not set yet: {gates:?}")]
    Gated { gates: Vec<usize> },
    /// In the complete program, the operation is not ordered with another one that touches the
    /// same.
    #[error("it is not ordered with operation {first}, and both touch the same")]
    Race { first: usize },
    #[error("queue {queue} must be flushed first")]
    Unflushed { queue: usize },
}

/// Rejects an operation unless `holds`.
pub(crate) fn ensure(holds: bool, reason: &'static str) -> Result<(), Reject> {
    if holds { Ok(()) } else { Err(Reject::Invalid(reason)) }
}

/// Whether a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Runs,
    /// The command ends with an error and does nothing, because an event in its wait list has
    /// failed.
    Fails,
}

#[derive(Clone, Debug)]
pub struct Moment {
    /// User events that must be set before this moment and are not set yet.
    pub gates: Vec<usize>,
    pub work: Work,
}

/// What happens in a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The start of the program.
    Root,
    /// The host's own part of an operation.
    Start(usize),
    /// The command of an operation.
    Cmd(usize),
    /// The return of an operation that waits.
    End(usize),
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub context: usize,
    pub device: usize,
    pub out_of_order: bool,
    pub profiling: bool,
    pub alive: bool,
    /// The queue's commands, by their index in the ledger.
    pub cmds: Vec<usize>,
    /// Whether a launch that cannot run was enqueued. Then only some operations may use the queue.
    pub broken: bool,
    /// The last use by each thread.
    users: Vec<Option<usize>>,
    /// The moments of its flushes.
    flushes: Vec<usize>,
}

/// Kind of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemKind {
    Buffer,
    Sub,
    Image { width: usize, height: usize },
    View { pixels: usize },
    Svm,
}

#[derive(Clone, Debug)]
pub struct Mem {
    pub context: usize,
    pub kind: MemKind,
    /// The object that owns its bytes.
    pub root: usize,
    /// Offset in the root object.
    pub offset: usize,
    pub size: usize,
    pub alive: bool,
}

/// An area of host memory.
#[derive(Clone, Debug)]
pub struct Area {
    pub len: usize,
    pub alive: bool,
    /// The mapping that created the area. Arrays have none.
    pub map: Option<Mapping>,
}

#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub mem: usize,
    pub offset: usize,
    pub mode: MapMode,
    pub cmd: usize,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub context: usize,
    pub alive: bool,
    pub source: Source,
    /// The ends of calls that have waited for the event.
    pub waits: Vec<usize>,
}

/// What ends an event.
#[derive(Clone, Debug)]
pub enum Source {
    Cmd(usize),
    /// A user event. `set` is the moment at which the program sets it. Everything in `owed` must
    /// happen before that.
    Gate {
        fails: bool,
        set: Option<usize>,
        owed: Vec<(usize, Owner)>,
        callback: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Command {
    pub op: usize,
    pub thread: usize,
    pub node: usize,
    pub start: usize,
    pub queue: usize,
    pub event: Option<usize>,
    pub fate: Fate,
    /// Whether all later commands of its queue wait for the command.
    pub barrier: bool,
}

/// The moments of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub start: usize,
    pub cmd: Option<usize>,
    pub end: usize,
}

/// What an operation adds if the ledger accepts it.
#[derive(Clone, Debug)]
pub struct Prepared {
    start: Bits,
    cmd: Option<NewCommand>,
    /// The moments that the operation waits for before it returns.
    awaited: Vec<usize>,
    awaits: bool,
    accesses: Vec<Access>,
    /// User events that must be set after this operation.
    owed_to: Vec<usize>,
}

impl Prepared {
    /// Whether a user event must be set after the operation.
    pub fn is_owed(&self) -> bool {
        !self.owed_to.is_empty()
    }

    /// Returns the user events that hold back the operation's command.
    pub fn gates(&self) -> &[usize] {
        self.cmd.as_ref().map_or(&[], |cmd| &cmd.gates)
    }
}

#[derive(Clone, Debug)]
struct NewCommand {
    before: Bits,
    gates: Vec<usize>,
    fate: Fate,
    barrier: bool,
    queue: usize,
}

/// The order of a program, up to the operations added so far.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub platform: Platform,
    pub contexts: Vec<Vec<usize>>,
    pub nodes: Moments<Moment>,
    pub places: Vec<Places>,
    pub queues: BTreeMap<usize, Queue>,
    pub mems: BTreeMap<usize, Mem>,
    pub areas: BTreeMap<usize, Area>,
    pub events: BTreeMap<usize, Event>,
    pub cmds: Vec<Command>,
    writes_end: bool,
    signals: HashMap<usize, usize>,
    callbacks: HashMap<usize, (usize, bool)>,
    threads: Vec<usize>,
    accesses: HashMap<Space, Vec<Access>>,
}

impl Ledger {
    /// Creates the ledger of a program without its operations.
    pub fn new(platform: &Platform, program: &Program) -> Self {
        let Program { threads, contexts, arrays, .. } = program;
        let areas =
            arrays.iter().map(|&len| Area { len, alive: true, map: None }).enumerate().collect();
        Self {
            platform: platform.clone(),
            contexts: contexts.clone(),
            nodes: Moments::new(Moment { gates: Vec::new(), work: Work::Root }),
            places: Vec::new(),
            queues: BTreeMap::new(),
            mems: BTreeMap::new(),
            areas,
            events: BTreeMap::new(),
            cmds: Vec::new(),
            writes_end: program.writes_end,
            signals: HashMap::new(),
            callbacks: HashMap::new(),
            threads: vec![0; *threads],
            accesses: HashMap::new(),
        }
    }

    /// Creates the ledger of a whole program.
    ///
    /// # Errors
    ///
    /// The first operation that the ledger rejects, and why.
    pub fn of(program: &Program, platform: &Platform) -> Result<Self, (usize, Reject)> {
        let mut ledger = Self::new(platform, program);
        for (index, op) in program.ops.iter().enumerate() {
            let prepared = ledger.prepare(op, true).map_err(|reject| (index, reject))?;
            ledger.admit(op, prepared);
        }
        if !ledger.is_complete() {
            return Err((
                program.ops.len(),
                Reject::Invalid("a user event that holds something back is never set"),
            ));
        }
        match ledger.race() {
            Some((first, second)) => Err((second, Reject::Race { first })),
            None => Ok(ledger),
        }
    }

    /// Whether an operation reads host memory during the call, and may return before it is
    /// performed: "If blocking_write is CL_TRUE, the OpenCL implementation copies the data referred
    /// to by ptr and enqueues the write operation in the command-queue."
    pub fn takes_early(&self, act: &Act) -> bool {
        !self.writes_end && is_write(act)
    }

    /// Whether no user event holds back a command at the end.
    pub fn is_complete(&self) -> bool {
        self.nodes.iter().all(|node| node.moment.gates.is_empty())
    }

    /// Whether the host knows at the end that all commands have ended.
    pub fn is_settled(&self) -> bool {
        let known = |node: usize| self.threads.iter().any(|&last| self.nodes.is_before(node, last));
        self.cmds.iter().all(|cmd| cmd.fate == Fate::Runs && known(cmd.node))
    }

    /// Returns the latest moment of a thread.
    pub fn now(&self, thread: usize) -> usize {
        self.threads[thread]
    }

    /// Returns all moments that have happened when the next operation of a thread begins.
    fn started(&self, thread: usize) -> Bits {
        self.nodes.until(self.threads[thread])
    }

    /// Returns the user events that still hold back a command.
    pub fn gates_of(&self, cmd: usize) -> &[usize] {
        &self.nodes[self.cmds[cmd].node].moment.gates
    }

    pub fn unset_gates(&self) -> Vec<usize> {
        let unset = |event: &Event| matches!(event.source, Source::Gate { set: None, .. });
        self.events.iter().filter(|(_, event)| unset(event)).map(|(&id, _)| id).collect()
    }

    /// Whether a callback sets the user event.
    pub fn is_set_by_callback(&self, event: usize) -> bool {
        matches!(
            self.events.get(&event).map(|it| &it.source),
            Some(Source::Gate { callback: true, .. })
        )
    }

    /// Whether a user event will be set to an error, or the command of an event fails.
    pub fn fails(&self, event: usize) -> bool {
        match self.events.get(&event).map(|it| &it.source) {
            Some(Source::Gate { fails, .. }) => *fails,
            Some(Source::Cmd(cmd)) => self.cmds[*cmd].fate == Fate::Fails,
            None => false,
        }
    }

    /// Checks an operation. With `owing`, an operation may also be ordered before a command that an
    /// unset user event holds back. That event must then be set after the operation.
    ///
    /// # Errors
    ///
    /// Why the operation cannot be added.
    pub fn prepare(&self, op: &Op, owing: bool) -> Result<Prepared, Reject> {
        self.valid(op)?;
        let mut prepared = self.ordered(op)?;
        let runs = prepared.cmd.as_ref().is_none_or(|cmd| cmd.fate == Fate::Runs);
        prepared.accesses = self.accesses_of(op, runs)?;
        self.conflicts(&mut prepared, owing)?;
        Ok(prepared)
    }

    /// Adds an operation that [`Self::prepare`] has checked.
    pub fn admit(&mut self, op: &Op, prepared: Prepared) {
        let index = self.places.len();
        let Prepared { start, cmd, awaited, awaits, accesses, owed_to } = prepared;
        let start = self.node(start, Vec::new(), Work::Start(index));
        let mut places = Places { start, cmd: None, end: start };
        let mut number = None;
        if let Some(new) = cmd {
            let mut before = new.before;
            before.insert(start);
            let node = self.node(before, new.gates, Work::Cmd(index));
            places.cmd = Some(node);
            number = Some(self.cmds.len());
            let event = match &op.act {
                Act::Enqueue { event, .. } => *event,
                _ => None,
            };
            self.cmds.push(Command {
                op: index,
                thread: op.thread,
                node,
                start,
                queue: new.queue,
                event,
                fate: new.fate,
                barrier: new.barrier,
            });
        }
        if awaits {
            let mut before = self.nodes.until(start);
            let early = self.takes_early(&op.act);
            let own = number.filter(|&cmd| !early && self.cmds[cmd].fate == Fate::Runs);
            let own = own.map(|cmd| self.cmds[cmd].node);
            for node in awaited.into_iter().chain(own) {
                self.nodes.put_before(node, &mut before);
            }
            places.end = self.node(before, Vec::new(), Work::End(index));
        }
        self.threads[op.thread] = places.end;
        self.places.push(places);
        self.record(accesses, places, op.thread, number);
        self.enter(op, places, number);
        for gate in owed_to {
            let owner = number.map_or(Owner::Host(op.thread), Owner::Cmd);
            if let Some(Event { source: Source::Gate { owed, .. }, .. }) =
                self.events.get_mut(&gate)
            {
                owed.push((places.cmd.unwrap_or(places.start), owner));
            }
        }
    }

    fn node(&mut self, before: Bits, gates: Vec<usize>, work: Work) -> usize {
        self.nodes.add(before, Moment { gates, work })
    }
}

/// Whether an operation is a blocking write.
fn is_write(act: &Act) -> bool {
    let Act::Enqueue { cmd, blocking, .. } = act else { return false };
    *blocking && matches!(cmd, Cmd::Write { .. } | Cmd::WriteRect { .. } | Cmd::WriteImage { .. })
}
