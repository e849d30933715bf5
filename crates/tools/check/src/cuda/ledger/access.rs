//! What each operation uses, and which two uses are in conflict.

use super::{Ledger, Prepared, Reject, mems_of};
use crate::cuda::plan::{Act, Job, Op, Part, Side, Work};

/// Something that operations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The bytes of device memory.
    Mem(usize),
    /// The bytes of an array of host memory.
    Area(usize),
    /// Whether an array is registered.
    Kind(usize),
    /// The address of device memory.
    Address(usize),
    /// The handle of a stream.
    Stream(usize),
    /// An event and its record.
    Event(usize),
    Graph(usize),
    /// The set of blocking streams of a context, which its legacy default stream depends on.
    Blocking(usize),
    /// Whether a stream of a context captures. `cuCtxSynchronize` fails during a capture.
    Capture(usize),
}

/// A use of a space by a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    start: usize,
    end: usize,
    write: bool,
    node: usize,
    thread: usize,
    cmd: Option<usize>,
}

/// A use by an operation that is not added yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    space: Space,
    start: usize,
    end: usize,
    write: bool,
    /// Index of the operation's command that makes the use. `None` means the host's own part.
    by: Option<usize>,
}

/// The range of a space that has no bytes.
const WHOLE: (usize, usize) = (0, usize::MAX);

impl Ledger {
    pub(super) fn touches(&self, op: &Op, settled: bool) -> Vec<Touch> {
        let mut all = Vec::new();
        let mut host = |space: Space, write: bool| {
            all.push(Touch { space, start: WHOLE.0, end: WHOLE.1, write, by: None });
        };
        match &op.act {
            Act::NewStream { stream, .. } => host(Space::Stream(*stream), true),
            Act::DropStream { stream } => {
                host(Space::Stream(*stream), true);
                host(Space::Blocking(self.streams[stream].context), true);
            }
            Act::NewEvent { event, .. } | Act::DropEvent { event } | Act::Record { event, .. } => {
                host(Space::Event(*event), true);
            }
            Act::StreamWait { event, .. } | Act::EventWait { event, .. } => {
                host(Space::Event(*event), false)
            }
            Act::Alloc { mem, .. } => host(Space::Address(*mem), true),
            Act::Free { mem } => {
                host(Space::Address(*mem), true);
                host(Space::Mem(*mem), true);
            }
            Act::AllocAsync { mem, .. } | Act::FreeAsync { mem, .. } => {
                host(Space::Address(*mem), true);
                all.push(Touch {
                    space: Space::Mem(*mem),
                    start: 0,
                    end: usize::MAX,
                    write: true,
                    by: Some(0),
                });
            }
            Act::Register { area } | Act::Unregister { area } => {
                host(Space::Kind(*area), true);
                host(Space::Area(*area), true);
            }
            Act::Store { to: at, len, .. } | Act::Check { at, len } => {
                let write = matches!(op.act, Act::Store { .. });
                let space = Space::Area(at.area);
                all.push(Touch { space, start: at.offset, end: at.offset + len, write, by: None });
            }
            Act::ContextSync { context } => host(Space::Capture(*context), false),
            Act::NewGraph { graph, context, parts } => {
                host(Space::Graph(*graph), true);
                host(Space::Capture(*context), true);
                // From its capture on, a node of a graph holds the address of its memory.
                for mem in parts.iter().flat_map(|part| mems_of(&part.work)) {
                    host(Space::Address(mem), false);
                }
            }
            // "A graph object is not threadsafe". The ledger assumes the same of an executable
            // graph.
            Act::Graph { graph, .. } => host(Space::Graph(*graph), true),
            _ => {}
        }
        self.stream_touches(op, &mut all);
        for work in self.works(op) {
            self.work_touches(op, work, settled, &mut all);
        }
        all
    }

    /// Adds the stream handles that an operation uses.
    fn stream_touches(&self, op: &Op, all: &mut Vec<Touch>) {
        use crate::cuda::plan::Stream;
        let mut host = |space: Space| {
            all.push(Touch { space, start: WHOLE.0, end: WHOLE.1, write: false, by: None });
        };
        match op.act.stream() {
            Some(Stream::Made(stream)) => host(Space::Stream(stream)),
            Some(Stream::Legacy(context)) => host(Space::Blocking(context)),
            Some(Stream::PerThread(_)) | None => {}
        }
        if let Act::Now { context, work } = &op.act {
            host(Space::Blocking(*context));
            for mem in mems_of(work) {
                host(Space::Blocking(self.mems[&mem].context));
            }
        }
    }

    /// Returns the work of an operation's command.
    fn works<'a>(&'a self, op: &'a Op) -> Vec<&'a Work> {
        match &op.act {
            Act::Enqueue { work, .. } | Act::Now { work, .. } => vec![work],
            Act::NewGraph { .. } => Vec::new(),
            Act::Graph { graph, .. } => {
                self.graphs[graph].parts.iter().map(|part| &part.work).collect()
            }
            _ => Vec::new(),
        }
    }

    fn work_touches(&self, op: &Op, work: &Work, settled: bool, all: &mut Vec<Touch>) {
        let is_now = matches!(op.act, Act::Now { .. });
        let is_graph = matches!(op.act, Act::Graph { .. });
        for Piece { space, start, end, write } in pieces(work) {
            let Space::Area(area) = space else {
                if let Space::Mem(mem) = space {
                    let (space, by) = (Space::Address(mem), None);
                    all.push(Touch { space, start: WHOLE.0, end: WHOLE.1, write: false, by });
                }
                // A copy that first takes its bytes has a second command, which writes the device
                // memory.
                let by = Some(usize::from(is_now && self.is_taken(work)));
                all.push(Touch { space, start, end, write, by });
                continue;
            };
            let copies = !matches!(work, Work::Function { .. });
            if copies {
                let (space, by) = (Space::Kind(area), None);
                all.push(Touch { space, start: WHOLE.0, end: WHOLE.1, write: false, by });
            }
            all.push(Touch { space, start, end, write, by: Some(0) });
            // "If pageable memory must first be staged to pinned memory, the driver may synchronize
            // with the stream and stage the copy into pinned memory." This sentence allows staging
            // during the call, too.
            let staged = copies && !write && !is_now && !self.areas[area].is_pinned();
            if staged && !is_graph && !self.relies.pageable_order || settled {
                all.push(Touch { space, start, end, write, by: None });
            }
        }
    }

    /// Whether a synchronous copy reads its bytes from pageable memory.
    fn is_taken(&self, work: &Work) -> bool {
        let (Work::Copy { to, from, .. } | Work::Copy2D { to, from, .. }) = work else {
            return false;
        };
        match (to, from) {
            (Side::Device { .. }, Side::Host(from)) => !self.areas[from.area].is_pinned(),
            _ => false,
        }
    }

    /// Rejects an operation that conflicts with a use that is not ordered before it.
    pub(super) fn conflicts(&self, op: &Op, prepared: &Prepared) -> Result<(), Reject> {
        for touch in &prepared.touches {
            let own = touch.by.and_then(|by| prepared.cmds.get(by));
            let before = own.map_or(&prepared.start, |cmd| &cmd.before);
            for access in self.accesses.get(&touch.space).map_or(&[][..], Vec::as_slice) {
                let apart = access.end <= touch.start || touch.end <= access.start;
                if apart || !(access.write || touch.write) || before.has(access.node) {
                    continue;
                }
                if self.may_free_early(op, touch, access) {
                    continue;
                }
                return Err(match access.cmd {
                    Some(cmd) if own.is_none() => {
                        Reject::CallAfterCommand { cmd, op: self.cmds[cmd].op }
                    }
                    Some(cmd) => Reject::Command { cmd, op: self.cmds[cmd].op },
                    None => Reject::Thread { thread: access.thread },
                });
            }
        }
        Ok(())
    }

    /// The documentation of cuMemFree says of memory from `cuMemAlloc`: "this API may perform
    /// implicit synchronization". That cannot mean work in another context.
    fn may_free_early(&self, op: &Op, touch: &Touch, access: &Access) -> bool {
        let (Act::Free { mem }, Space::Mem(_)) = (&op.act, touch.space) else { return false };
        let known = self.mems[mem];
        let own = |cmd: usize| self.cmds[cmd].keys.iter().all(|key| key.context() == known.context);
        self.relies.early_frees && !known.pooled && access.cmd.is_some_and(own)
    }

    pub(super) fn record(
        &mut self,
        touches: Vec<Touch>,
        start: usize,
        thread: usize,
        own: &[(usize, usize)],
    ) {
        for Touch { space, start: first, end, write, by } in touches {
            let cmd = by.and_then(|by| own.get(by));
            let (node, cmd) = cmd.map_or((start, None), |&(node, cmd)| (node, Some(cmd)));
            let access = Access { start: first, end, write, node, thread, cmd };
            self.accesses.entry(space).or_default().push(access);
        }
    }
}

/// Bytes that some work uses.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) space: Space,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether the work writes the bytes.
    pub(super) write: bool,
}

impl Piece {
    fn new(space: Space, start: usize, end: usize, write: bool) -> Self {
        Self { space, start, end, write }
    }

    /// Returns whether the pieces have no byte in common.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        self.space != other.space || self.end <= other.start || other.end <= self.start
    }
}

/// Returns the bytes that some work uses. Rows count from their first to their last byte.
pub(super) fn pieces(work: &Work) -> Vec<Piece> {
    let side = |side: &Side, len: usize, write: bool| match side {
        Side::Host(at) => Piece::new(Space::Area(at.area), at.offset, at.offset + len, write),
        Side::Device { mem, offset } => Piece::new(Space::Mem(*mem), *offset, offset + len, write),
    };
    match work {
        Work::Copy { to, from, len } => vec![side(from, *len, false), side(to, *len, true)],
        Work::Copy2D { to, from, rows } => {
            vec![
                side(from, rows.span(rows.from_pitch), false),
                side(to, rows.span(rows.to_pitch), true),
            ]
        }
        Work::Peer { to, to_offset, from, from_offset, len } => vec![
            Piece::new(Space::Mem(*from), *from_offset, from_offset + len, false),
            Piece::new(Space::Mem(*to), *to_offset, to_offset + len, true),
        ],
        Work::Fill { mem, offset, len, .. } => {
            vec![Piece::new(Space::Mem(*mem), *offset, offset + len, true)]
        }
        Work::Fill2D { mem, offset, rows, .. } => {
            vec![Piece::new(Space::Mem(*mem), *offset, offset + rows.span(rows.to_pitch), true)]
        }
        Work::Launch { a, a_offset, b, b_offset, count, .. } => {
            let words = |mem: usize, offset: usize, write: bool| {
                Piece::new(Space::Mem(mem), offset * 4, (offset + count) * 4, write)
            };
            let source = b.map(|b| words(b, *b_offset, false));
            source.into_iter().chain([words(*a, *a_offset, true)]).collect()
        }
        Work::Function { job, .. } => {
            let host = |at: &crate::plan::Ptr, len: usize, write: bool| {
                Piece::new(Space::Area(at.area), at.offset, at.offset + len, write)
            };
            match job {
                Job::Store { to, len, .. } => vec![host(to, *len, true)],
                Job::Check { at, len } => vec![host(at, *len, false)],
                Job::Move { to, from, len } => vec![host(from, *len, false), host(to, *len, true)],
                Job::Rest => Vec::new(),
            }
        }
    }
}

/// Whether two pieces of work may run at the same time.
pub(super) fn are_apart(one: &Work, other: &Work) -> bool {
    let others = pieces(other);
    pieces(one)
        .iter()
        .all(|own| others.iter().all(|it| own.is_apart_from(it) || !(own.write || it.write)))
}

/// Whether no branch of a graph writes memory that the other branch uses.
pub(super) fn branches_are_apart(parts: &[Part]) -> bool {
    let fork = parts.iter().position(|part| part.second).unwrap_or(parts.len());
    let beside = &parts[fork..];
    let (second, first): (Vec<&Part>, Vec<&Part>) = beside.iter().partition(|part| part.second);
    second.iter().all(|one| first.iter().all(|other| are_apart(&one.work, &other.work)))
}
