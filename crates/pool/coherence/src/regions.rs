//! The current copies of each range of bytes, and the places that have them.
//!
//! Each allocation is a list of segments. A segment has a version: the number of the command that
//! wrote it last. Each place has a copy of the segment, with the version that this copy holds. A
//! copy is current while both versions are equal. A write gives the segment a new version, which
//! only the writer's place has. A transfer gives a place the version of its source.
//!
//! All parts and views of an allocation (sub-buffers, images over buffers, mapped regions) are
//! ranges of it, so they share one map.

mod copy;
mod undo;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::command::{Access, Fetch, Plan, Source, Use};
use crate::names::{AllocationId, CommandId, NodeId, Place, QueueId};
use crate::rules::{Rule, Rules};
use copy::Copy;
use undo::{Replaced, Undo};

/// Segments begin at multiples of this number of bytes. A transfer of a page costs little more than
/// one of a byte.
pub const GRAIN_BYTES: u64 = 4096;

/// Number of segments from which on neighbours in the same state are joined. Their commands then
/// wait for each other's transfers, which is safe.
const SEGMENTS_MAX: usize = 64;

/// Version of a copy without useful content.
const STALE: u64 = u64::MAX;
/// Version of a copy whose content may still arrive, but is not waited for.
const DOUBTED: u64 = STALE - 1;
/// Version of a segment that no command has written. Every copy of it is as good as any other.
const UNDEFINED: u64 = 0;
/// Version of the content that was given when the allocation was made.
const INITIAL: u64 = 1;

/// One allocation in all places of its context.
#[derive(Debug)]
pub(crate) struct Allocation {
    size: u64,
    /// Whether transfers always move the whole allocation (images).
    is_indivisible: bool,
    /// Node of each place.
    nodes: Vec<NodeId>,
    /// Segments in order of their offsets. Together they cover the allocation.
    segments: Vec<Segment>,
    /// Number of segments at which neighbours are joined next.
    join_at: usize,
    /// Commands that use the allocation and are being sent now, with their transfers.
    pub(crate) sending: Vec<CommandId>,
    /// For each command or transfer that has not ended: the range in which segments name it, and,
    /// for a command, its place. Segments that were joined and split again may name it outside of
    /// this range, where it has no effect.
    spans: FxHashMap<CommandId, (Span, Option<Place>)>,
}

type Span = std::ops::Range<u64>;

/// A part of an allocation that ends at `end` and begins where the segment before it ends.
#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    version: u64,
    /// The states to which the segment returns if its writers fail, beginning with the oldest
    /// writer that has not ended.
    undos: Vec<Undo>,
    copies: Vec<Copy>,
}

/// The machine's state outside of the allocation.
pub(crate) struct Around<'a> {
    pub(crate) rules: Rules,
    /// Returns whether a command has not ended.
    pub(crate) is_live: &'a dyn Fn(CommandId) -> bool,
    pub(crate) lost: &'a FxHashSet<NodeId>,
    /// Makes a name for a transfer.
    pub(crate) next: &'a mut dyn FnMut() -> CommandId,
}

impl Segment {
    fn is_current(&self, place: Place) -> bool {
        self.copies.get(place).is_some_and(|copy| copy.version == self.version)
    }

    fn can_join(&self, other: &Self) -> bool {
        let is_initial = |segment: &Self| segment.version == INITIAL;
        let is_undefined = |segment: &Self| segment.version == UNDEFINED;
        let kind = |segment: &Self| (is_initial(segment), is_undefined(segment));
        let places = 0..self.copies.len();
        self.undos.is_empty() && other.undos.is_empty() && kind(self) == kind(other) && { places }
            .all(|place| self.is_current(place) == other.is_current(place))
    }
}

/// The source from which a place gets the content of a segment.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    /// The place has the content, or any content is right.
    Nothing,
    Initial,
    From(Place),
    /// No place has the content any more.
    Lost,
}

impl Allocation {
    pub(crate) fn new(
        size: u64,
        is_indivisible: bool,
        nodes: Vec<NodeId>,
        has_initial: bool,
    ) -> Self {
        let version = if has_initial { INITIAL } else { UNDEFINED };
        let copy = Copy::new(if has_initial { STALE } else { UNDEFINED });
        let whole =
            Segment { end: size, version, undos: Vec::new(), copies: vec![copy; nodes.len()] };
        let segments = vec![whole];
        let (sending, spans) = (Vec::new(), FxHashMap::default());
        Self { size, is_indivisible, nodes, segments, join_at: SEGMENTS_MAX, sending, spans }
    }

    /// Rounds a use to whole grains. A write over all of its bytes that does not fill its grains
    /// becomes a write of a part.
    fn rounded(&self, it: &Use, rules: Rules) -> Use {
        let (mut start, mut end) = (it.start.min(self.size), it.end.min(self.size));
        if self.is_indivisible || !rules.hold(Rule::SplitByRange) {
            (start, end) = (0, self.size);
        } else {
            start = start / GRAIN_BYTES * GRAIN_BYTES;
            end = end
                .checked_next_multiple_of(GRAIN_BYTES)
                .map_or(self.size, |end| end.min(self.size));
        }
        let is_part =
            (start, end) != (it.start, it.end) && rules.hold(Rule::FetchAroundPartialWrite);
        let is_part = is_part && (self.is_indivisible || rules.hold(Rule::SplitByRange));
        let access =
            if it.access == Access::Overwrite && is_part { Access::Write } else { it.access };
        Use { start, end: end.max(start), access, ..*it }
    }

    /// Returns whether no place has the content that a use needs.
    pub(crate) fn is_lost(
        &self,
        it: &Use,
        place: Place,
        rules: Rules,
        lost: &FxHashSet<NodeId>,
    ) -> bool {
        self.needed(it, rules).any(|segment| self.need(segment, place, rules, lost) == Need::Lost)
    }

    /// Returns the segments whose content a use needs.
    fn needed(&self, it: &Use, rules: Rules) -> impl Iterator<Item = &Segment> {
        let it = self.rounded(it, rules);
        let needed = if it.access == Access::Overwrite { &[] } else { self.used(&it) };
        needed.iter()
    }

    /// Returns the segments that a rounded use overlaps.
    fn used(&self, it: &Use) -> &[Segment] {
        self.segments.get(self.indices(&(it.start..it.end))).unwrap_or_default()
    }

    /// Returns the indices of the segments that overlap these bytes.
    fn indices(&self, bytes: &Span) -> std::ops::Range<usize> {
        let first = self.segments.partition_point(|segment| segment.end <= bytes.start);
        let last = self.segments.partition_point(|segment| segment.end < bytes.end);
        // The segment in which the bytes end begins before that end, unless there are no bytes.
        first..if bytes.is_empty() { first } else { (last + 1).min(self.segments.len()) }
    }

    fn note_span(&mut self, id: CommandId, place: Option<Place>, start: u64, end: u64) {
        let (span, _) = self.spans.entry(id).or_insert((start..end, place));
        *span = span.start.min(start)..span.end.max(end);
    }

    /// Returns the users of the copies that content given at creation will replace. That content is
    /// sent immediately, in the order of the link and without a wait list.
    pub(crate) fn before_initial(
        &self,
        it: &Use,
        place: Place,
        is_live: &dyn Fn(CommandId) -> bool,
        (rules, lost): (Rules, &FxHashSet<NodeId>),
    ) -> Vec<CommandId> {
        if !rules.hold(Rule::InitialAfterUsers) {
            return Vec::new();
        }
        let needed = self.needed(it, rules);
        let initial =
            needed.filter(|segment| self.need(segment, place, rules, lost) == Need::Initial);
        let copies = initial.filter_map(|segment| segment.copies.get(place));
        copies.flat_map(|copy| copy.users(is_live)).collect()
    }

    /// Makes the bytes of `it` usable at `place`: adds to `plan` the transfers and what the command
    /// must wait for. No thread is sending commands on the allocation, and [`Allocation::is_lost`]
    /// has returned `false`.
    pub(crate) fn acquire(
        &mut self,
        it: &Use,
        place: Place,
        (command, stamp): (CommandId, u64),
        around: &mut Around<'_>,
        plan: &mut Plan,
    ) {
        let rounded = self.rounded(it, around.rules);
        let range = self.split(rounded.start, rounded.end);
        if rounded.access != Access::Overwrite && around.rules.hold(Rule::FetchWhatIsRead) {
            self.fetch(it.allocation, range.clone(), place, around, plan);
        }
        let rules = around.rules;
        let Self { nodes, segments, .. } = self;
        let is_alive =
            |place: Place| nodes.get(place).is_some_and(|node| !around.lost.contains(node));
        for segment in segments.get_mut(range).unwrap_or_default() {
            let is_here = segment.is_current(place);
            let Some(copy) = segment.copies.get_mut(place) else { continue };
            let mut replaced = Vec::new();
            if rounded.access == Access::Overwrite {
                // It no longer matters how the transfer ends, only that it does not end later.
                replaced = std::mem::take(&mut copy.arrivals);
                replaced.retain(|id| (around.is_live)(*id));
                if rules.hold(Rule::OverwriteAfterArrival) {
                    copy.replaced.extend(&replaced);
                }
            } else if rules.hold(Rule::ReadAfterArrival) {
                plan.waits.extend(copy.arrivals.iter().copied().filter(|id| (around.is_live)(*id)));
            }
            plan.ends.extend(copy.replaced.iter().copied().filter(|id| (around.is_live)(*id)));
            if rounded.access != Access::Read && segment.version != stamp {
                let before = segment.version;
                segment.version = stamp;
                copy.version = stamp;
                let is_new =
                    rounded.access == Access::Overwrite && !(is_here && replaced.is_empty());
                let replaced = is_new.then_some(Replaced { is_here, arrivals: replaced });
                let undo = Undo {
                    command,
                    place,
                    version: before,
                    written: stamp,
                    replaced,
                    has_failed: false,
                };
                segment.note_undo(undo, rounded.access, rules, &is_alive);
                if !rules.hold(Rule::WriteMakesOthersOld) {
                    segment.copies.iter_mut().for_each(|copy| copy.version = stamp);
                }
            }
        }
    }

    /// Notes that a command uses bytes at `place`. `queue` is given if it is an in-order queue and
    /// the command ends after the earlier commands there.
    pub(crate) fn record(
        &mut self,
        it: &Use,
        place: Place,
        (queue, command): (Option<QueueId>, CommandId),
        around: &Around<'_>,
    ) {
        let it = self.rounded(it, around.rules);
        self.note_span(command, Some(place), it.start, it.end);
        let range = self.split(it.start, it.end);
        for segment in self.segments.get_mut(range).unwrap_or_default() {
            if let Some(copy) = segment.copies.get_mut(place) {
                let users =
                    if it.access == Access::Read { &mut copy.readers } else { &mut copy.writers };
                users.add(queue, command, around);
            }
        }
        if self.segments.len() > self.join_at {
            self.forget_ended(around.is_live);
            self.join_alike();
        }
    }

    /// Returns the transfer that a command which uses these bytes must wait for first, if more than
    /// `arrivals_max` transfers are on their way to one copy of them. Each use of the copy waits
    /// for all of them.
    pub(crate) fn crowd(
        &self,
        it: &Use,
        arrivals_max: usize,
        is_live: &dyn Fn(CommandId) -> bool,
        rules: Rules,
    ) -> Option<CommandId> {
        let it = self.rounded(it, rules);
        let copies = self.used(&it).iter().flat_map(|segment| &segment.copies);
        let mut crowds = copies.filter(|copy| copy.arrivals.len() > arrivals_max);
        crowds.find_map(|copy| {
            let open: Vec<_> = copy.arrivals.iter().filter(|id| is_live(**id)).collect();
            // Half of the transfers may stay open, so that the next commands need not be held back.
            (open.len() > arrivals_max).then(|| *open[open.len() - 1 - arrivals_max / 2])
        })
    }

    /// Notes that a command that uses this allocation was sent.
    pub(crate) fn sent(&mut self, command: CommandId, only_wait: Option<CommandId>, rules: Rules) {
        self.sending.retain(|id| *id != command);
        let Some((span, _)) = self.spans.get(&command) else { return };
        let range = self.indices(span);
        let segments = self.segments.get_mut(range).unwrap_or_default();
        for copy in segments.iter_mut().flat_map(|segment| &mut segment.copies) {
            copy.writers.stand_for_all(command, only_wait, rules);
            copy.readers.stand_for_all(command, only_wait, rules);
        }
    }

    /// Notes that a command or transfer that uses this allocation has ended.
    pub(crate) fn ended(
        &mut self,
        command: CommandId,
        is_ok: bool,
        (rules, lost): (Rules, &FxHashSet<NodeId>),
    ) {
        self.sending.retain(|id| *id != command);
        let Some((span, place)) = self.spans.remove(&command) else { return };
        let range = self.indices(&span);
        let Self { nodes, segments, .. } = self;
        let is_alive = |place: Place| nodes.get(place).is_some_and(|node| !lost.contains(node));
        for segment in segments.get_mut(range).unwrap_or_default() {
            segment.end_undo(command, is_ok);
            segment.end_replaced(command, is_ok);
            if let Some(place) = place
                && !is_ok
                && rules.hold(Rule::FailedUseBringsAgain)
            {
                segment.doubt(place, &is_alive);
            }
            for copy in &mut segment.copies {
                let before = copy.arrivals.len();
                copy.arrivals.retain(|id| *id != command);
                let failed = copy.arrivals.len() < before && !is_ok;
                copy.replaced.retain(|id| *id != command);
                if failed && rules.hold(Rule::FailedArrivalIsNone) {
                    copy.version = STALE;
                }
            }
            segment.settle_undos(&is_alive);
        }
    }

    fn need(
        &self,
        segment: &Segment,
        place: Place,
        rules: Rules,
        lost: &FxHashSet<NodeId>,
    ) -> Need {
        if segment.is_current(place) {
            return Need::Nothing;
        }
        let node = |place: Place| self.nodes.get(place);
        let is_lost = |place: Place| node(place).is_none_or(|node| lost.contains(node));
        let current = || (0..segment.copies.len()).filter(|place| segment.is_current(*place));
        // A copy on the same node is the nearest. The copy of a lost node is the last resort: then
        // the loss is reported, not hidden.
        let near = current().find(|other| node(*other) == node(place));
        match near.or_else(|| current().find(|other| !is_lost(*other))).or_else(|| current().next())
        {
            Some(source) => Need::From(source),
            None if segment.version == INITIAL && rules.hold(Rule::FetchInitial) => Need::Initial,
            None if segment.version == UNDEFINED || segment.version == INITIAL => Need::Nothing,
            None => Need::Lost,
        }
    }

    /// Brings the content of segments to `place` from the places where it is current.
    fn fetch(
        &mut self,
        allocation: AllocationId,
        range: std::ops::Range<usize>,
        place: Place,
        around: &mut Around<'_>,
        plan: &mut Plan,
    ) {
        let mut first = range.start;
        while first < range.end {
            let Some(segment) = self.segments.get(first) else { return };
            let need = self.need(segment, place, around.rules, around.lost);
            // Neighbours that come from the same place come in one transfer.
            let more = self.segments.get(first..range.end).unwrap_or_default().iter();
            let count = more
                .take_while(|it| self.need(it, place, around.rules, around.lost) == need)
                .count();
            let run = first..first + count.max(1);
            match need {
                Need::Nothing | Need::Lost => {}
                Need::Initial => self.bring(allocation, run.clone(), (None, place), around, plan),
                Need::From(source) => {
                    self.bring(allocation, run.clone(), (Some(source), place), around, plan);
                }
            }
            first = run.end;
        }
    }

    fn bring(
        &mut self,
        allocation: AllocationId,
        run: std::ops::Range<usize>,
        (source, place): (Option<Place>, Place),
        around: &mut Around<'_>,
        plan: &mut Plan,
    ) {
        let start =
            run.start.checked_sub(1).and_then(|it| self.segments.get(it)).map_or(0, |it| it.end);
        let segments = self.segments.get_mut(run).unwrap_or_default();
        let end = segments.last().map_or(start, |it| it.end);
        let mut source_waits = Vec::new();
        let mut target_waits = Vec::new();
        for segment in segments.iter() {
            if let Some(from) = source.and_then(|source| segment.copies.get(source)) {
                if around.rules.hold(Rule::LeaveAfterArrival) {
                    source_waits
                        .extend(from.arrivals.iter().copied().filter(|id| (around.is_live)(*id)));
                }
                if around.rules.hold(Rule::LeaveAfterWriters) {
                    source_waits.extend(from.writers.open(around.is_live));
                }
            }
            if let Some(to) = segment.copies.get(place)
                && around.rules.hold(Rule::ArriveAfterUsers)
            {
                target_waits.extend(to.users(around.is_live));
            }
        }
        dedup(&mut source_waits);
        dedup(&mut target_waits);
        let (departure, arrival) = ((around.next)(), (around.next)());
        for segment in segments {
            let version = segment.version;
            // If the source itself still waits for its content and that does not arrive, the target
            // has nothing.
            let mut before = Vec::new();
            if let Some(from) = source.and_then(|source| segment.copies.get_mut(source)) {
                from.departures.add(None, departure, around);
                if around.rules.hold(Rule::DoubtTravelsOn) {
                    before.extend(from.arrivals.iter().copied().filter(|id| (around.is_live)(*id)));
                }
            }
            if let Some(to) = segment.copies.get_mut(place) {
                *to = Copy::new(version);
                // Initial content is sent in the order of the link, so nothing has to wait for it.
                // No command uses the copy: `before_initial` has returned its users.
                if source.is_some() {
                    to.arrivals = before;
                    to.arrivals.push(arrival);
                }
            }
        }
        // The machine is not told the arrival of content given at creation.
        if source.is_some() {
            self.note_span(departure, None, start, end);
            self.note_span(arrival, None, start, end);
        }
        let source = source.map_or(Source::Initial, Source::Place);
        let target = place;
        plan.fetches.push(Fetch {
            allocation,
            start,
            end,
            source,
            target,
            departure,
            arrival,
            source_waits,
            target_waits,
        });
    }

    /// Splits segments so that some begin at `start` and end at `end`. Returns their indices.
    fn split(&mut self, start: u64, end: u64) -> std::ops::Range<usize> {
        if start >= end {
            return 0..0;
        }
        let first = if start == 0 { 0 } else { self.split_at(start) };
        first..self.split_at(end)
    }

    /// Splits the segment that contains `at`. Returns the index of the segment that begins there.
    fn split_at(&mut self, at: u64) -> usize {
        let index = self.segments.partition_point(|segment| segment.end < at);
        if let Some(segment) = self.segments.get(index).filter(|segment| segment.end != at) {
            let front = Segment { end: at, ..segment.clone() };
            self.segments.insert(index, front);
        }
        (index + 1).min(self.segments.len())
    }

    /// Removes the names of transfers that have ended. Segments that were joined and split again
    /// may have names of transfers that do not concern them, which are removed nowhere else.
    fn forget_ended(&mut self, is_live: &dyn Fn(CommandId) -> bool) {
        for copy in self.segments.iter_mut().flat_map(|segment| &mut segment.copies) {
            copy.arrivals.retain(|id| is_live(*id));
            copy.replaced.retain(|id| is_live(*id));
        }
    }

    /// Joins neighbours in the same state.
    fn join_alike(&mut self) {
        self.segments.dedup_by(|next, kept| {
            let can_join = kept.can_join(next);
            if can_join {
                kept.end = next.end;
                let (version, next_version) = (kept.version, next.version);
                for (to, from) in kept.copies.iter_mut().zip(next.copies.drain(..)) {
                    // An old version must not become current by chance.
                    let is_current = to.version == version && from.version == next_version;
                    to.version = if is_current { version } else { STALE };
                    to.join(from);
                }
            }
            can_join
        });
        // The remaining segments are in different states. Looking again for each command would cost
        // more than it gains.
        self.join_at = SEGMENTS_MAX.max(2 * self.segments.len());
    }
}

fn dedup(ids: &mut Vec<CommandId>) {
    ids.sort_unstable();
    ids.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(allocation: &Allocation) -> Vec<u64> {
        allocation.segments.iter().map(|segment| segment.end).collect()
    }

    fn two_places(size: u64) -> Allocation {
        Allocation::new(size, false, vec![NodeId(0), NodeId(1)], false)
    }

    #[test]
    fn segments_are_split_where_uses_begin_and_end() {
        let mut allocation = two_places(100);
        assert_eq!(allocation.split(0, 100), 0..1);
        assert_eq!(allocation.split(20, 60), 1..2);
        assert_eq!(ends(&allocation), [20, 60, 100]);
        assert_eq!(allocation.split(20, 100), 1..3);
        assert_eq!(allocation.split(0, 10), 0..1);
        assert_eq!(allocation.split(50, 50), 0..0, "zero bytes are no segment");
        assert_eq!(ends(&allocation), [10, 20, 60, 100]);
    }

    #[test]
    fn segments_in_the_same_state_are_joined() {
        let mut allocation = two_places(100);
        let written = allocation.split(20, 60);
        allocation.segments[written.start].version = 7;
        allocation.segments[written.start].copies[1].version = 7;
        allocation.split(80, 90);
        allocation.join_alike();
        assert_eq!(ends(&allocation), [20, 60, 100]);
        allocation.segments[0].version = 5;
        allocation.segments[0].copies[1].version = 5;
        allocation.join_alike();
        assert_eq!(ends(&allocation), [60, 100]);
        let joined = &allocation.segments[0];
        assert!(joined.is_current(1) && !joined.is_current(0));
    }

    #[test]
    fn users_of_joined_segments_are_all_kept_once() {
        let mut allocation = two_places(100);
        allocation.split(0, 50);
        allocation.segments[0].copies[0].writers.0.push((None, CommandId(1)));
        for segment in &mut allocation.segments {
            segment.copies[0].writers.0.push((None, CommandId(2)));
        }
        allocation.join_alike();
        assert_eq!(allocation.segments[0].copies[0].writers.0.len(), 2);
    }

    #[test]
    fn a_write_that_does_not_fill_its_grains_writes_a_part() {
        let allocation = two_places(3 * GRAIN_BYTES + 10);
        let rounded = |start, end| {
            let it = Use { allocation: AllocationId(1), start, end, access: Access::Overwrite };
            let it = allocation.rounded(&it, Rules::default());
            (it.start, it.end, it.access)
        };
        assert_eq!(rounded(0, GRAIN_BYTES), (0, GRAIN_BYTES, Access::Overwrite));
        assert_eq!(rounded(0, GRAIN_BYTES - 1), (0, GRAIN_BYTES, Access::Write));
        assert_eq!(rounded(1, GRAIN_BYTES + 1), (0, 2 * GRAIN_BYTES, Access::Write));
        let size = allocation.size;
        assert_eq!(rounded(3 * GRAIN_BYTES, size), (3 * GRAIN_BYTES, size, Access::Overwrite));
    }
}
