//! Which copies of a memory object are current, and what must have ended before one may be used.
//!
//! Only contexts over several places need this; within a place the driver does it. The rules are those of one cache line
//! in a directory protocol: many copies may be current while nobody writes; a write leaves one. They hold for each
//! segment of an object by itself, so that parts of a buffer can be worked on in several places at once. OpenCL orders
//! commands only through queues, wait lists and waits of the host, so between those the order in which the client sees
//! the commands is as good as any other.
//!
//! A command claims its objects from the look at their copies until it is sent and noted ([`Claim`]): a command of
//! another thread in between would not be waited for by the transfer of what it writes.
//!
//! Known limit: a transfer waits for all earlier writers of the segment, also for one that the program has not ordered
//! before the command that needs the transfer. Such a writer may be one only by its signature (a kernel that reads through
//! a pointer without `const`); if it waits for a user event that the host sets only after a wait for that command, both
//! wait for ever. PoCL does the same between its devices.

use std::sync::{Arc, MutexGuard};

use penstock_wire::Id;
use penstock_wire::id::kind;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::{Memory, MemoryKind};
use crate::queue::{Access, Range};
use crate::transfer;

/// Segments begin at multiples of so many bytes. A transfer of a page costs little more than one of a byte.
const GRAIN_BYTES: u64 = 4096;

/// From so many segments on, neighbours in the same state become one: their commands then wait for each other's transfers.
const SEGMENTS_MAX: usize = 64;

/// How a command uses a memory object.
pub(crate) struct Use<'a> {
    memory: &'a Memory,
    access: Access,
    /// Bytes of the root object.
    start: u64,
    end: u64,
}

impl<'a> Use<'a> {
    /// Of all of it.
    pub(crate) fn all(memory: &'a Arc<Memory>, access: Access) -> Self {
        Self::part(memory, access, Range { offset: 0, size: memory.size() })
    }

    /// Of some of its bytes.
    pub(crate) fn part(memory: &'a Arc<Memory>, access: Access, range: Range) -> Self {
        let size = memory.root().size();
        let (start, end) = match place_in_root(memory) {
            Some(origin) => {
                let start = origin.saturating_add(range.offset).min(size);
                (start, start.saturating_add(range.size).min(size))
            }
            None => (0, size),
        };
        Self::rounded(memory, access, (start, end), size)
    }

    fn rounded(memory: &'a Memory, access: Access, (start, end): (u64, u64), size: u64) -> Self {
        let first = start / GRAIN_BYTES * GRAIN_BYTES;
        let last = end.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(size).min(size);
        let whole = (first, last) == (start, end) && (is_buffer(memory) || (start, end) == (0, size));
        let access = if access == Access::Overwrite && !whole { Access::Write } else { access };
        Self { memory, access, start: first, end: last.max(first) }
    }
}

fn is_buffer(memory: &Memory) -> bool {
    matches!(memory.kind(), MemoryKind::Buffer)
}

/// Where an object begins in its root; `None` for a view that is no range of bytes.
fn place_in_root(memory: &Memory) -> Option<u64> {
    match memory.parent() {
        None if is_buffer(memory) => Some(0),
        Some(parent) if is_buffer(memory) => place_in_root(parent)?.checked_add(memory.origin()),
        _ => None,
    }
}

/// The copies of one memory object.
pub(crate) struct Copies {
    /// In order; together all of the object.
    segments: Vec<Segment>,
    /// Content given at creation that some place may not have yet.
    initial: Option<Arc<[u8]>>,
    /// At so many segments those in the same state are made one again.
    join_at: usize,
}

/// Part of an object, up to `end`, from where the one before ends.
#[derive(Clone)]
struct Segment {
    end: u64,
    /// Its content is that given at creation.
    initial: bool,
    /// Somebody has written to it: if no copy is current, the content is lost.
    written: bool,
    copies: Vec<Copy>,
}

#[derive(Clone, Default)]
struct Copy {
    current: bool,
    /// The transfers that brought the content.
    arrivals: Vec<Event>,
    /// Commands that use the copy.
    writers: Users,
    readers: Users,
    /// Transfers that read it.
    departures: Users,
}

/// Commands that use a copy.
#[derive(Clone, Default)]
struct Users(Vec<(Id<kind::Queue>, Event)>);

impl Users {
    /// Adds a command. In an in-order queue (`queue` given) it stands for all before it.
    fn add(&mut self, queue: Id<kind::Queue>, event: Event) {
        self.0
            .retain(|(known, event)| (queue.is_none() || *known != queue) && event.known_status().is_none());
        self.0.push((queue, event));
    }

    fn open(&self) -> impl Iterator<Item = Event> {
        self.0.iter().map(|(_, event)| event).filter(|event| event.known_status().is_none()).cloned()
    }

    fn join(&mut self, other: Self) {
        for (queue, event) in other.0 {
            if event.known_status().is_none() && !self.0.iter().any(|(_, known)| known.is(&event)) {
                self.0.push((queue, event));
            }
        }
    }
}

impl Copy {
    /// What brought the content has failed: it is not here.
    fn settle(&mut self) {
        if self.arrivals.iter().any(|event| event.known_status().is_some_and(|status| status.is_error())) {
            self.current = false;
        }
        self.arrivals.retain(|event| event.known_status().is_none());
    }

    /// All that a transfer to here must wait for.
    fn users(&self) -> impl Iterator<Item = Event> {
        let arrivals = self.arrivals.iter().cloned();
        arrivals.chain(self.writers.open()).chain(self.readers.open()).chain(self.departures.open())
    }

    fn join(&mut self, other: Self) {
        for event in other.arrivals {
            if !self.arrivals.iter().any(|known| known.is(&event)) {
                self.arrivals.push(event);
            }
        }
        self.writers.join(other.writers);
        self.readers.join(other.readers);
        self.departures.join(other.departures);
    }
}

impl Segment {
    fn is_like(&self, other: &Self) -> bool {
        let mut pairs = self.copies.iter().zip(&other.copies);
        let alike = self.initial == other.initial && self.written == other.written;
        alike && pairs.all(|(one, other)| one.current == other.current)
    }
}

impl Copies {
    pub(crate) fn new(places: usize, size: u64) -> Self {
        let whole =
            Segment { end: size, initial: false, written: false, copies: vec![Copy::default(); places] };
        Self { segments: vec![whole], initial: None, join_at: SEGMENTS_MAX }
    }

    pub(crate) fn set_initial(&mut self, bytes: Arc<[u8]>) {
        self.initial = Some(bytes);
        self.segments.iter_mut().for_each(|segment| segment.initial = true);
    }

    /// Indices of the segments that are `start..end`, which begin and end there.
    fn split(&mut self, start: u64, end: u64) -> std::ops::Range<usize> {
        if start >= end {
            return 0..0;
        }
        let first = if start == 0 { 0 } else { self.split_at(start) };
        first..self.split_at(end)
    }

    /// Index of the segment behind `at`, where one ends.
    fn split_at(&mut self, at: u64) -> usize {
        let index = self.segments.partition_point(|segment| segment.end < at);
        if let Some(segment) = self.segments.get(index).filter(|segment| segment.end != at) {
            let front = Segment { end: at, ..segment.clone() };
            self.segments.insert(index, front);
        }
        (index + 1).min(self.segments.len())
    }

    /// Makes neighbours in the same state one.
    fn join_alike(&mut self) {
        for segment in &mut self.segments {
            segment.copies.iter_mut().for_each(Copy::settle);
        }
        self.segments.dedup_by(|next, kept| {
            let alike = kept.is_like(next);
            if alike {
                kept.end = next.end;
                for (to, from) in kept.copies.iter_mut().zip(next.copies.drain(..)) {
                    to.join(from);
                }
            }
            alike
        });
        // What stays is in different states: looking again at each command would cost more than it gains.
        self.join_at = SEGMENTS_MAX.max(2 * self.segments.len());
    }
}

/// What a command must wait for because of what it uses.
#[derive(Default)]
pub(crate) struct Waits {
    /// Transfers that bring what it needs.
    pub(crate) arrivals: Vec<Event>,
    /// What must only have ended, well or not.
    pub(crate) ends: Vec<Event>,
}

/// The memory objects of one command, kept from others' commands until it is noted.
pub(crate) struct Claim<'a> {
    roots: Vec<(&'a Memory, MutexGuard<'a, Copies>)>,
    uses: &'a [Use<'a>],
}

impl<'a> Claim<'a> {
    pub(crate) fn new(uses: &'a [Use<'a>]) -> Self {
        let mut roots: Vec<&Memory> = uses.iter().map(|it| it.memory.root()).collect();
        // One order for all, so that two commands never have what the other one waits for.
        roots.sort_by_key(|root| std::ptr::from_ref(*root));
        roots.dedup_by_key(|root| std::ptr::from_ref(*root));
        Self { roots: roots.into_iter().map(|root| (root, root.copies())).collect(), uses }
    }

    /// Makes all objects usable in `place`: there, and current unless all of a segment is overwritten. Adds to `waits` what
    /// the command must wait for.
    pub(crate) fn acquire(&mut self, place: usize, waits: &mut Waits) -> Result<()> {
        for it in self.uses {
            it.memory.create_in(place)?;
            if let Some((root, copies)) = find(&mut self.roots, it.memory) {
                acquire(root, copies, place, it, waits)?;
            }
        }
        Ok(())
    }

    /// Notes that a command with `event` uses the objects in `place`.
    pub(crate) fn record(mut self, place: usize, queue: Id<kind::Queue>, event: &Event) {
        for it in self.uses {
            let Some((_, copies)) = find(&mut self.roots, it.memory) else { continue };
            let range = copies.split(it.start, it.end);
            for copy in copies.segments[range].iter_mut().filter_map(|segment| segment.copies.get_mut(place))
            {
                let users = if it.access == Access::Read { &mut copy.readers } else { &mut copy.writers };
                users.add(queue, event.clone());
            }
            if copies.segments.len() > copies.join_at {
                copies.join_alike();
            }
        }
    }
}

fn find<'b, 'a>(
    roots: &'b mut [(&'a Memory, MutexGuard<'a, Copies>)],
    memory: &Memory,
) -> Option<(&'a Memory, &'b mut Copies)> {
    let found = roots.iter_mut().find(|(root, _)| std::ptr::eq(*root, memory.root()));
    found.map(|(root, copies)| (*root, &mut **copies))
}

fn acquire(root: &Memory, copies: &mut Copies, place: usize, it: &Use<'_>, waits: &mut Waits) -> Result<()> {
    let range = copies.split(it.start, it.end);
    for segment in &mut copies.segments[range.clone()] {
        segment.copies.iter_mut().for_each(Copy::settle);
    }
    if it.access != Access::Overwrite {
        fetch(root, copies, range.clone(), place)?;
    }
    for segment in &mut copies.segments[range] {
        if let Some(copy) = segment.copies.get_mut(place) {
            copy.current = true;
            if it.access != Access::Read {
                waits.ends.extend(copy.departures.open());
            }
            if it.access == Access::Overwrite {
                // Whether it succeeds does not matter any more, only that it does not come later.
                for event in std::mem::take(&mut copy.arrivals) {
                    waits.ends.push(event.clone());
                    copy.writers.add(Id::NONE, event);
                }
            }
            waits.arrivals.extend(copy.arrivals.iter().cloned());
        }
        if it.access != Access::Read {
            segment.initial = false;
            segment.written = true;
            for (_, other) in segment.copies.iter_mut().enumerate().filter(|(index, _)| *index != place) {
                other.current = false;
            }
        }
    }
    if copies.initial.is_some() && !copies.segments.iter().any(|segment| segment.initial) {
        copies.initial = None;
    }
    Ok(())
}

/// Brings the content of segments to `place` from where it is current, if it is anywhere.
fn fetch(root: &Memory, copies: &mut Copies, range: std::ops::Range<usize>, place: usize) -> Result<()> {
    let Copies { segments, initial, .. } = copies;
    let mut start = range.start.checked_sub(1).and_then(|before| segments.get(before)).map_or(0, |it| it.end);
    let mut rest = segments.get_mut(range).unwrap_or_default();
    while let Some(first) = rest.first() {
        let need = need(root, first, place);
        // Neighbours that come from the same place come together.
        let count = rest.iter().take_while(|segment| self::need(root, segment, place) == need).count();
        let (run, others) = rest.split_at_mut(count);
        let end = run.last().map_or(start, |segment| segment.end);
        match need {
            Need::Nothing => {}
            Need::Lost => return Err(Error::ContentLost),
            Need::Initial => {
                if let Some(bytes) = initial {
                    root.init_at(place, start, end, bytes)?;
                }
            }
            Need::From(source) => {
                let part = Range { offset: start, size: end - start };
                bring(root, run, part, source, place)?;
            }
        }
        for copy in run.iter_mut().filter_map(|segment| segment.copies.get_mut(place)) {
            copy.current = true;
        }
        (start, rest) = (end, others);
    }
    Ok(())
}

/// What a segment needs to be current in a place.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    /// It is current, or was never written: then any content is right.
    Nothing,
    Initial,
    From(usize),
    /// No transfer of it succeeded, and nobody has it any more.
    Lost,
}

fn need(root: &Memory, segment: &Segment, place: usize) -> Need {
    let places = root.context().places();
    let node = |index: usize| places.get(index).map(|place| place.session().node());
    let lost = |index: usize| places.get(index).is_none_or(|place| place.session().is_lost());
    let current = || (0..segment.copies.len()).filter(|index| segment.copies[*index].current);
    if current().any(|index| index == place) {
        return Need::Nothing;
    }
    // Within a node is nearest; a lost node's copy is the last resort, so that the loss is reported and not hidden.
    let near = current().find(|index| node(*index) == node(place));
    let source = near.or_else(|| current().find(|index| !lost(*index))).or_else(|| current().next());
    match source {
        Some(source) => Need::From(source),
        None if segment.initial => Need::Initial,
        None if segment.written => Need::Lost,
        None => Need::Nothing,
    }
}

fn bring(root: &Memory, run: &mut [Segment], part: Range, source: usize, place: usize) -> Result<()> {
    let copies = |at: usize| run.iter().filter_map(move |segment| segment.copies.get(at));
    let sent = |copy: &Copy| copy.arrivals.iter().cloned().chain(copy.writers.open()).collect::<Vec<_>>();
    let source_waits: Vec<Event> = copies(source).flat_map(sent).collect();
    let target_waits: Vec<Event> = copies(place).flat_map(Copy::users).collect();
    let moved = transfer::start(root, part, (source, &source_waits), (place, &target_waits))?;
    for segment in run {
        if let Some(from) = segment.copies.get_mut(source) {
            from.departures.add(Id::NONE, moved.departure.clone());
        }
        if let Some(to) = segment.copies.get_mut(place) {
            to.arrivals = vec![moved.arrival.clone()];
            to.writers = Users::default();
            to.readers = Users::default();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use penstock_wire::Status;

    use super::*;

    fn ends(copies: &Copies) -> Vec<u64> {
        copies.segments.iter().map(|segment| segment.end).collect()
    }

    #[test]
    fn segments_are_split_where_uses_begin_and_end() {
        let mut copies = Copies::new(2, 100);
        assert_eq!(copies.split(0, 100), 0..1);
        assert_eq!(copies.split(20, 60), 1..2);
        assert_eq!(ends(&copies), [20, 60, 100]);
        assert_eq!(copies.split(20, 100), 1..3);
        assert_eq!(copies.split(0, 10), 0..1);
        assert_eq!(copies.split(50, 50), 0..0, "no bytes are no segment");
        assert_eq!(ends(&copies), [10, 20, 60, 100]);
    }

    #[test]
    fn segments_in_the_same_state_become_one() {
        let mut copies = Copies::new(2, 100);
        let written = copies.split(20, 60);
        copies.segments[written.start].copies[1].current = true;
        copies.split(80, 90);
        copies.join_alike();
        assert_eq!(ends(&copies), [20, 60, 100]);
        copies.segments[1].copies[1].current = false;
        copies.join_alike();
        assert_eq!(ends(&copies), [100]);
    }

    #[test]
    fn users_of_joined_segments_are_all_kept_once() {
        let mut copies = Copies::new(1, 100);
        let (one, other) = (Event::user(), Event::user());
        copies.split(0, 50);
        copies.segments[0].copies[0].writers.add(Id::NONE, one.clone());
        for segment in &mut copies.segments {
            segment.copies[0].writers.add(Id::NONE, other.clone());
        }
        copies.join_alike();
        assert_eq!(copies.segments[0].copies[0].writers.open().count(), 2);
    }

    #[test]
    fn what_a_failed_transfer_brings_is_not_current() {
        let mut copy = Copy { current: true, arrivals: vec![Event::user()], ..Copy::default() };
        copy.settle();
        assert!(copy.current, "on its way");
        copy.arrivals[0].set_status(Status::NODE_LOST);
        copy.settle();
        assert!(!copy.current);
    }

    #[test]
    fn an_in_order_queue_is_one_user() {
        let mut users = Users::default();
        for queue in [7, 7, 8] {
            users.add(Id::new(queue), Event::user());
        }
        assert_eq!(users.open().count(), 2);
    }
}
