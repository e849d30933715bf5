//! What each operation uses, and which two uses are in conflict.

use super::{Ledger, MemKind, Places, Prepared, Reject, Work};
use crate::bits::Bits;
use crate::plan::{Act, Cmd, MapMode, Op, Ptr, Style, SvmEnd};

/// Something that operations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The bytes of a memory object and of all objects that share them.
    Root(usize),
    /// The bytes of an area of host memory.
    Area(usize),
    /// A handle. Creating and releasing it counts as a write, using it as a read.
    Handle(Kind, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Queue,
    Mem,
    Area,
    Event,
    Callback,
}

/// Which part of the program makes a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Host(usize),
    Cmd(usize),
}

/// How long a use lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// As long as the operation or the command.
    Moment,
    /// Until the area is unmapped.
    Mapping(usize),
    Always,
}

/// One use of a range of a space.
#[derive(Clone, Debug)]
pub struct Access {
    space: Space,
    range: (usize, usize),
    /// The whole range of the object through which the bytes are used.
    wide: (usize, usize),
    /// Number of that object.
    mem: usize,
    write: bool,
    /// The queue whose order suffices between such uses.
    hot: Option<usize>,
    device: Option<usize>,
    by_cmd: bool,
    span: Span,
    /// The moment at which the use begins.
    from: usize,
    /// The moment at which the use ends, if it is known.
    until: Option<usize>,
    owner: Owner,
}

impl Access {
    fn new(space: Space, range: (usize, usize), write: bool) -> Self {
        Self {
            space,
            range,
            wide: range,
            mem: 0,
            write,
            hot: None,
            device: None,
            by_cmd: false,
            span: Span::Moment,
            from: 0,
            until: None,
            owner: Owner::Host(0),
        }
    }

    fn handle(kind: Kind, id: usize, write: bool) -> Self {
        Self::new(Space::Handle(kind, id), (0, 1), write)
    }

    fn host(at: Ptr, len: usize, write: bool) -> Self {
        Self::new(Space::Area(at.area), (at.offset, at.offset + len), write)
    }

    fn is_handle(&self) -> bool {
        matches!(self.space, Space::Handle(..))
    }

    fn overlaps(&self, other: &Self) -> bool {
        if !self.write && !other.write || self.hot.is_some() && self.hot == other.hot {
            return false;
        }
        let shared = |a: (usize, usize), b: (usize, usize)| a.0 < b.1 && b.0 < a.1;
        // Uses by different devices, or through different objects that share bytes, count as uses
        // of the whole objects.
        let close = self.device == other.device && self.mem == other.mem;
        match self.space {
            Space::Root(_) if !close => shared(self.wide, other.wide),
            _ => shared(self.range, other.range),
        }
    }
}

/// Collects the uses of one operation.
struct Touched<'a> {
    ledger: &'a Ledger,
    /// The device of the command, if there is one.
    device: Option<usize>,
    all: Vec<Access>,
}

impl Touched<'_> {
    fn makes(&mut self, kind: Kind, id: usize) {
        self.all.push(Access::handle(kind, id, true));
    }

    fn uses(&mut self, kind: Kind, id: usize) {
        self.all.push(Access::handle(kind, id, false));
    }

    fn host(&mut self, at: Ptr, len: usize, write: bool) {
        let mut access = Access::host(at, len, write);
        access.device = self.device;
        access.by_cmd = self.device.is_some();
        self.all.push(access);
        if self.ledger.areas.get(&at.area).is_some_and(|area| area.map.is_some()) {
            self.uses(Kind::Area, at.area);
        }
    }

    fn object(&mut self, mem: usize, offset: usize, len: usize, write: bool) {
        let known = &self.ledger.mems[&mem];
        let low = known.offset + offset;
        let mut access = Access::new(Space::Root(known.root), (low, low + len), write);
        access.wide = (known.offset, known.offset + known.size);
        access.mem = mem;
        access.device = self.device;
        access.by_cmd = self.device.is_some();
        self.all.push(access);
        self.uses(Kind::Mem, mem);
    }

    fn whole(&mut self, mem: usize, write: bool) {
        self.object(mem, 0, self.ledger.mems[&mem].size, write);
    }

    fn hot(&mut self, mem: usize, write: bool, queue: usize) {
        self.whole(mem, write);
        for access in &mut self.all {
            if matches!(access.space, Space::Root(_)) {
                access.hot = Some(queue);
            }
        }
    }

    fn command(&mut self, cmd: &Cmd, queue: usize) {
        match cmd {
            Cmd::Read { mem, offset, len, to } => {
                self.object(*mem, *offset, *len, false);
                self.host(*to, *len, true);
            }
            Cmd::Write { mem, offset, len, from } => {
                self.object(*mem, *offset, *len, true);
                self.host(*from, *len, false);
            }
            Cmd::ReadRect { mem, rect, to } => {
                self.object(*mem, rect.mem_offset, rect.mem_span(), false);
                self.host(*to, rect.other_span(), true);
            }
            Cmd::WriteRect { mem, rect, from } => {
                self.object(*mem, rect.mem_offset, rect.mem_span(), true);
                self.host(*from, rect.other_span(), false);
            }
            Cmd::Copy { from, from_offset, to, to_offset, len } => {
                self.object(*from, *from_offset, *len, false);
                self.object(*to, *to_offset, *len, true);
            }
            Cmd::CopyRect { from, to, to_offset, rect } => {
                self.object(*from, rect.mem_offset, rect.mem_span(), false);
                self.object(*to, *to_offset, rect.other_span(), true);
            }
            Cmd::Fill { mem, offset, len, .. } | Cmd::SvmFill { mem, offset, len, .. } => {
                self.object(*mem, *offset, *len, true);
            }
            Cmd::Launch { a, a_offset, b, b_offset, count, .. } => {
                self.object(*a, a_offset * 4, count * 4, true);
                if let Some(b) = b {
                    self.object(*b, b_offset * 4, count * 4, false);
                }
            }
            Cmd::Marker | Cmd::Barrier => {}
            Cmd::Migrate { mems, undefined, .. } => {
                for &mem in mems {
                    self.whole(mem, *undefined);
                }
            }
            Cmd::Map { .. } | Cmd::Unmap { .. } => self.mapping(cmd),
            Cmd::ReadImage { mem, to } => {
                self.whole(*mem, false);
                self.host(*to, self.ledger.mems[mem].size, true);
            }
            Cmd::WriteImage { mem, from } => {
                self.whole(*mem, true);
                self.host(*from, self.ledger.mems[mem].size, false);
            }
            Cmd::FillImage { mem, .. } => self.whole(*mem, true),
            Cmd::ImageToBuffer { image, mem, offset } => {
                self.whole(*image, false);
                self.object(*mem, *offset, self.ledger.mems[image].size, true);
            }
            Cmd::BufferToImage { mem, offset, image } => {
                self.object(*mem, *offset, self.ledger.mems[image].size, false);
                self.whole(*image, true);
            }
            Cmd::SvmCopy { to, from, len } => {
                for (end, write) in [(from, false), (to, true)] {
                    match end {
                        SvmEnd::Svm { mem, offset } => self.object(*mem, *offset, *len, write),
                        SvmEnd::Host(at) => self.host(*at, *len, write),
                    }
                }
            }
            Cmd::HotFill { mem, .. } => self.hot(*mem, true, queue),
            Cmd::HotRead { mem, to } => {
                self.hot(*mem, false, queue);
                self.host(*to, self.ledger.mems[mem].size, true);
            }
        }
    }

    fn mapping(&mut self, cmd: &Cmd) {
        let (area, len) = match cmd {
            Cmd::Map { mem, offset, len, mode, area } => {
                self.object(*mem, *offset, *len, mode.writes());
                for access in &mut self.all {
                    if matches!(access.space, Space::Root(_)) {
                        access.span = Span::Mapping(*area);
                    }
                }
                (*area, *len)
            }
            Cmd::Unmap { area } => {
                let known = &self.ledger.areas[area];
                if let Some(map) = known.map {
                    self.uses(Kind::Mem, map.mem);
                }
                (*area, known.len)
            }
            _ => return,
        };
        self.makes(Kind::Area, area);
        let mut access = Access::new(Space::Area(area), (0, len), true);
        access.device = self.device;
        access.by_cmd = true;
        self.all.push(access);
    }
}

impl Ledger {
    /// Whether a command that happens before has filled a buffer that several threads fill and
    /// read.
    pub(super) fn is_filled(&self, mem: usize, before: &Bits) -> bool {
        let root = Space::Root(self.mems[&mem].root);
        let known = self.accesses.get(&root).map(Vec::as_slice).unwrap_or_default();
        known.iter().filter(|it| it.write && it.hot.is_some()).any(|it| match it.owner {
            Owner::Cmd(cmd) => before.has(self.cmds[cmd].node),
            Owner::Host(_) => false,
        })
    }

    /// Returns all uses of an operation.
    pub(super) fn accesses_of(&self, op: &Op, runs: bool) -> Result<Vec<Access>, Reject> {
        let mut it = Touched { ledger: self, device: None, all: Vec::new() };
        match &op.act {
            Act::Signal { .. } | Act::Await { .. } => {}
            Act::NewQueue { queue, .. } | Act::DropQueue { queue } => it.makes(Kind::Queue, *queue),
            Act::NewBuffer { mem, size, style, init, .. } => {
                it.makes(Kind::Mem, *mem);
                if let Some(at) = init {
                    let mut access = Access::host(*at, *size, *style == Style::Use);
                    access.span = if *style == Style::Use { Span::Always } else { Span::Moment };
                    it.all.push(access);
                }
            }
            Act::NewImage { mem, width, height, init, .. } => {
                it.makes(Kind::Mem, *mem);
                if let Some(at) = init {
                    it.host(*at, width * height * 4, false);
                }
            }
            Act::NewSub { mem, parent, .. } | Act::NewView { mem, parent, .. } => {
                it.makes(Kind::Mem, *mem);
                it.uses(Kind::Mem, *parent);
            }
            Act::NewSvm { mem, .. } => it.makes(Kind::Mem, *mem),
            Act::DropMem { mem } => {
                it.makes(Kind::Mem, *mem);
                let known = &self.mems[mem];
                if known.kind == MemKind::Svm {
                    it.all.push(Access::new(Space::Root(*mem), (0, known.size), true));
                }
            }
            Act::NewGate { event, .. } | Act::DropEvent { event } => it.makes(Kind::Event, *event),
            Act::SetGate { event, .. } | Act::Times { event } | Act::Status { event } => {
                it.uses(Kind::Event, *event);
            }
            Act::Store { to, len, .. } => it.host(*to, *len, true),
            Act::Check { at, len } => it.host(*at, *len, false),
            Act::Flush { queue } | Act::Finish { queue } => it.uses(Kind::Queue, *queue),
            Act::Wait { events } => events.iter().for_each(|&event| it.uses(Kind::Event, event)),
            Act::Callback { event, callback, sets } => {
                it.makes(Kind::Callback, *callback);
                it.uses(Kind::Event, *event);
                if let Some(event) = sets {
                    it.uses(Kind::Event, *event);
                }
            }
            Act::AwaitCallback { callback } => it.uses(Kind::Callback, *callback),
            Act::Enqueue { queue, cmd, wait, event, .. } => {
                it.uses(Kind::Queue, *queue);
                wait.iter().for_each(|&event| it.uses(Kind::Event, event));
                if let Some(event) = event {
                    it.makes(Kind::Event, *event);
                }
                let first = it.all.len();
                it.device = Some(self.queues[queue].device);
                it.command(cmd, *queue);
                if self.takes_early(&op.act) {
                    let in_host = |it: &&mut Access| matches!(it.space, Space::Area(_));
                    it.all.iter_mut().filter(in_host).for_each(|access| access.by_cmd = false);
                }
                clash(&it.all[first..])?;
                if !runs {
                    // A command that fails touches no bytes.
                    it.all.retain(Access::is_handle);
                }
            }
            Act::TooBig { queue, source, scratch, .. } => {
                it.uses(Kind::Queue, *queue);
                it.device = Some(self.queues[queue].device);
                it.object(*source, 0, 4, false);
                it.object(*scratch, 0, 4, true);
            }
            Act::ReadTooBig { queue, scratch, to, .. } => {
                it.uses(Kind::Queue, *queue);
                it.device = Some(self.queues[queue].device);
                it.object(*scratch, 0, 4, false);
                it.host(*to, 4, true);
            }
        }
        Ok(it.all)
    }

    /// Rejects an operation that conflicts with a use that is not ordered with it.
    pub(super) fn conflicts(&self, new: &mut Prepared, owing: bool) -> Result<(), Reject> {
        let gated = new.cmd.as_ref().is_some_and(|cmd| !cmd.gates.is_empty());
        let mut owed_to = Vec::new();
        // Nothing that a user event holds back may be ordered before the end of a mapping or of
        // shared virtual memory.
        let ends =
            |it: &Access| it.write && matches!(it.space, Space::Handle(Kind::Area | Kind::Mem, _));
        let owing = owing && !new.accesses.iter().any(ends);
        // Handles come first, because the order of other uses depends on them.
        for handles in [true, false] {
            for access in new.accesses.iter().filter(|it| it.is_handle() == handles) {
                let before = match &new.cmd {
                    Some(cmd) if access.by_cmd => &cmd.before,
                    _ => &new.start,
                };
                let may_owe = owing && !gated && !handles && access.span == Span::Moment;
                for old in self.accesses.get(&access.space).into_iter().flatten() {
                    if !old.overlaps(access) || old.until.is_some_and(|node| before.has(node)) {
                        continue;
                    }
                    match self.gate_behind(old).filter(|_| may_owe) {
                        Some(gate) => owed_to.push(gate),
                        None => return Err(self.remedy(old)),
                    }
                }
            }
        }
        owed_to.sort_unstable();
        owed_to.dedup();
        new.owed_to = owed_to;
        Ok(())
    }

    /// Returns a command that uses the same host memory as a new operation, comes before it, and is
    /// not known to have ended.
    pub fn chained(&self, new: &Prepared) -> Option<usize> {
        let in_host = |it: &&Access| it.by_cmd && matches!(it.space, Space::Area(_));
        for access in new.accesses.iter().filter(in_host) {
            for old in self.accesses.get(&access.space).into_iter().flatten() {
                let ended = old.until.is_none_or(|node| new.start.has(node));
                if let (Owner::Cmd(cmd), false, true) = (old.owner, ended, old.overlaps(access)) {
                    return Some(cmd);
                }
            }
        }
        None
    }

    /// Returns a user event that still holds back the command of a use.
    fn gate_behind(&self, old: &Access) -> Option<usize> {
        if let Span::Mapping(area) = old.span {
            // What comes before the unmapping must also come before the mapping.
            let map = self.areas.get(&area).and_then(|area| area.map);
            return map.and_then(|map| self.gates_of(map.cmd).iter().min().copied());
        }
        match old.owner {
            // No operation can use a mapping before it exists.
            Owner::Cmd(cmd) if self.makes_area(old.space, cmd) => None,
            Owner::Cmd(cmd) => self.gates_of(cmd).iter().min().copied(),
            Owner::Host(_) => None,
        }
    }

    fn makes_area(&self, space: Space, cmd: usize) -> bool {
        matches!(space, Space::Area(area) if self.areas[&area].map.is_some_and(|map| map.cmd == cmd))
    }

    fn remedy(&self, old: &Access) -> Reject {
        match (old.until, old.span, old.owner) {
            (None, Span::Mapping(area), _) => Reject::Mapped { area },
            (None, ..) => Reject::Invalid("it touches memory that a buffer has taken over"),
            (_, _, Owner::Host(thread)) => Reject::Thread { thread },
            (_, _, Owner::Cmd(cmd)) => Reject::Command { cmd, op: self.cmds[cmd].op },
        }
    }

    /// Stores the uses of an operation that was added.
    pub(super) fn record(
        &mut self,
        accesses: Vec<Access>,
        places: Places,
        thread: usize,
        cmd: Option<usize>,
    ) {
        for mut access in accesses {
            let by_cmd = if access.by_cmd { places.cmd.zip(cmd) } else { None };
            let (node, owner) = match by_cmd {
                Some((node, cmd)) => (node, Owner::Cmd(cmd)),
                None => (places.start, Owner::Host(thread)),
            };
            access.owner = owner;
            access.from = node;
            access.until = (access.span == Span::Moment).then_some(node);
            self.accesses.entry(access.space).or_default().push(access);
        }
    }

    /// Returns two operations of a complete program that touch the same bytes or handle and are not
    /// ordered, if there are any.
    ///
    /// This function examines the final order of the whole program, while [`Self::prepare`] decides
    /// for one operation at a time, with user events that are not set yet. So the two check each
    /// other.
    pub fn race(&self) -> Option<(usize, usize)> {
        let ordered = |one: &Access, other: &Access| {
            one.until.is_some_and(|end| self.nodes.is_before(end, other.from) || end == other.from)
        };
        for all in self.accesses.values() {
            for (index, one) in all.iter().enumerate() {
                for other in &all[index + 1..] {
                    // One operation may use a handle twice.
                    let same = self.op_of(one.from) == self.op_of(other.from);
                    if !same && one.overlaps(other) && !ordered(one, other) && !ordered(other, one)
                    {
                        return Some((self.op_of(one.from), self.op_of(other.from)));
                    }
                }
            }
        }
        None
    }

    fn op_of(&self, node: usize) -> usize {
        match self.nodes[node].moment.work {
            Work::Start(op) | Work::Cmd(op) | Work::End(op) => op,
            Work::Root => usize::MAX,
        }
    }

    /// Ends the use of an object by a mapping.
    pub(super) fn unmapped(&mut self, root: usize, area: usize, node: usize, cmd: usize) {
        for access in self.accesses.get_mut(&Space::Root(root)).into_iter().flatten() {
            if access.until.is_none() && access.span == Span::Mapping(area) {
                access.until = Some(node);
                access.owner = Owner::Cmd(cmd);
            }
        }
    }

    /// Whether the host may store at this position.
    pub(super) fn may_store(&self, at: Ptr) -> bool {
        self.areas
            .get(&at.area)
            .and_then(|area| area.map)
            .is_none_or(|map| map.mode != MapMode::Read)
    }
}

/// Rejects a command that touches the same bytes twice, or uses two objects that share bytes.
fn clash(accesses: &[Access]) -> Result<(), Reject> {
    for (index, one) in accesses.iter().enumerate() {
        for other in &accesses[index + 1..] {
            if one.space == other.space && !one.is_handle() && one.overlaps(other) {
                return Err(Reject::Invalid("the command touches the same bytes twice"));
            }
        }
    }
    Ok(())
}
