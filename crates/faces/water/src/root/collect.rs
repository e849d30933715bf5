//! Finds commands of a batch that belong together: writes of the same bytes to several devices (a
//! broadcast), copies of the same bytes of a buffer to several devices (a broadcast from there),
//! writes of bytes that a read brings (which need not pass the root), and transfers that form a
//! scatter or a gather.
//!
//! Only commands of equal *level* are grouped. The level of a command is the length of the longest
//! path to it from a command without dependencies. Every dependency goes to a higher level, so
//! grouping within a level cannot create a cycle.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::command::{Command, CommandId, ObjectId, Rank};
use crate::request::IssuedCommand;

/// Transfers of the same bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// Indices of the writes or copies in the batch.
    pub members: Vec<usize>,
    /// Where the bytes are.
    pub source: Source,
}

/// Where the bytes of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In the program's memory.
    Memory,
    /// On the device of the read at this index of the batch.
    Read(usize),
    /// In the source buffer of the copies, on this rank.
    Buffer(Rank),
}

/// Transfers of one level that form a scatter or a gather: each uses different memory of the
/// program.
#[derive(Debug, PartialEq, Eq)]
pub struct Spread {
    pub is_scatter: bool,
    /// Indices in the batch.
    pub members: Vec<usize>,
    pub bytes: u64,
    /// Whether their ranges of the program's memory adjoin without a gap.
    pub is_contiguous: bool,
}

/// The groups and spreads of a batch.
#[derive(Debug, Default)]
pub struct Found {
    /// Ordered by the first member's index.
    pub groups: Vec<Group>,
    /// Ordered by the first member's index.
    pub spreads: Vec<Spread>,
}

/// Returns the level of each command of a batch.
pub fn levels(batch: &[IssuedCommand]) -> Vec<u32> {
    let mut by_id: FxHashMap<CommandId, u32> = FxHashMap::default();
    let mut levels = Vec::with_capacity(batch.len());
    for issue in batch {
        let below = issue.waits.iter().filter_map(|wait| by_id.get(wait)).max();
        let level = below.map_or(0, |level| level + 1);
        by_id.insert(issue.id, level);
        levels.push(level);
    }
    levels
}

/// Finds groups and spreads.
pub fn find(batch: &[IssuedCommand]) -> Found {
    let levels = levels(batch);
    let places: FxHashMap<CommandId, usize> =
        batch.iter().enumerate().map(|(place, issue)| (issue.id, place)).collect();
    let mut keys: FxHashMap<GroupKey, usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    let mut add = |place: usize, level: u32, bytes: Bytes, source: Source| {
        let group = *keys.entry(GroupKey { level, bytes, source }).or_insert_with(|| {
            groups.push(Group { members: Vec::new(), source });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(group) {
            group.members.push(place);
        }
    };
    let mut scatters: FxHashMap<(u32, bool), Vec<usize>> = FxHashMap::default();
    for (place, issue) in batch.iter().enumerate() {
        let level = levels.get(place).copied().unwrap_or_default();
        match issue.command {
            Command::Write { size, address, .. } => {
                let source = feed(batch, &levels, &places, issue, address, size)
                    .map_or(Source::Memory, Source::Read);
                add(place, level, Bytes { buffer: None, start: address, size }, source);
            }
            Command::Copy { from, from_offset, size, .. } if issue.source.rank != issue.rank => {
                let bytes = Bytes { buffer: Some(from), start: from_offset, size };
                add(place, level, bytes, Source::Buffer(issue.source.rank));
            }
            Command::Read { .. } => scatters.entry((level, false)).or_default().push(place),
            _ => {}
        }
    }
    groups.retain(|group| match group.source {
        Source::Memory => ranks(batch, &group.members, 0) > 1,
        Source::Read(_) => true,
        Source::Buffer(rank) => ranks(batch, &group.members, rank) > 1,
    });
    let grouped: FxHashSet<usize> =
        groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    for (place, issue) in batch.iter().enumerate() {
        if matches!(issue.command, Command::Write { .. }) && !grouped.contains(&place) {
            let level = levels.get(place).copied().unwrap_or_default();
            scatters.entry((level, true)).or_default().push(place);
        }
    }
    let mut spreads: Vec<Spread> = scatters
        .into_iter()
        .filter_map(|((_, is_scatter), members)| spread(batch, is_scatter, members))
        .collect();
    spreads.sort_by_key(|spread| spread.members.first().copied());
    Found { groups, spreads }
}

/// What all members of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    level: u32,
    bytes: Bytes,
    source: Source,
}

/// Bytes of a buffer, or of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bytes {
    buffer: Option<ObjectId>,
    start: u64,
    size: u64,
}

/// Returns the number of ranks other than `source` among these commands.
pub fn ranks(batch: &[IssuedCommand], members: &[usize], source: Rank) -> usize {
    let mut ranks: Vec<_> = members
        .iter()
        .filter_map(|place| batch.get(*place))
        .map(|issue| issue.rank)
        .filter(|rank| *rank != source)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len()
}

/// Returns the read in the batch whose bytes a write passes on. The bytes may come straight from
/// the read's device only if no other command that the write waits for may wait for the read,
/// because the device serves the read and the write together.
fn feed(
    batch: &[IssuedCommand],
    levels: &[u32],
    places: &FxHashMap<CommandId, usize>,
    write: &IssuedCommand,
    address: u64,
    size: u64,
) -> Option<usize> {
    let waits: Vec<usize> =
        write.waits.iter().filter_map(|wait| places.get(wait).copied()).collect();
    let holds = |place: &usize| match batch.get(*place).map(|issue| &issue.command) {
        Some(Command::Read { address: start, size: length, .. }) => {
            *start <= address && address + size <= start + length
        }
        _ => false,
    };
    let read = waits.iter().copied().find(|place| holds(place))?;
    let level = levels.get(read)?;
    // The root has its own devices at hand, so nothing is gained there.
    let is_remote = batch.get(read)?.rank != 0 || write.rank != 0;
    let is_free = waits
        .iter()
        .all(|place| *place == read || levels.get(*place).is_some_and(|other| other <= level));
    // Another read into the same memory after this one would change the bytes.
    let is_only = waits.iter().filter(|place| overlaps(batch, **place, address, size)).count() == 1;
    (is_remote && is_free && is_only && batch.get(read)?.rank != write.rank).then_some(read)
}

fn overlaps(batch: &[IssuedCommand], place: usize, address: u64, size: u64) -> bool {
    match batch.get(place).map(|issue| &issue.command) {
        Some(Command::Read { address: start, size: length, .. }) => {
            *start < address + size && address < start + length
        }
        _ => false,
    }
}

/// Returns a scatter or gather if there are at least two ranks and no byte of the program's memory
/// occurs twice.
fn spread(batch: &[IssuedCommand], is_scatter: bool, members: Vec<usize>) -> Option<Spread> {
    if ranks(batch, &members, 0) < 2 {
        return None;
    }
    let mut ranges: Vec<(u64, u64)> = members
        .iter()
        .filter_map(|place| match batch.get(*place)?.command {
            Command::Write { address, size, .. } | Command::Read { address, size, .. } => {
                Some((address, size))
            }
            _ => None,
        })
        .collect();
    ranges.sort_unstable();
    let apart = ranges
        .windows(2)
        .all(|pair| matches!(pair, [(start, size), (next, _)] if start + size <= *next));
    let bytes = ranges.iter().map(|(_, size)| size).sum();
    let is_contiguous = ranges
        .windows(2)
        .all(|pair| matches!(pair, [(start, size), (next, _)] if start + size == *next));
    apart.then_some(Spread { is_scatter, members, bytes, is_contiguous })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::DeviceId;

    fn write(id: u64, rank: Rank, address: u64, waits: &[u64]) -> IssuedCommand {
        let command = Command::Write { buffer: ObjectId(id), offset: 0, size: 100, address };
        IssuedCommand {
            id: CommandId(id),
            rank,
            device: 0,
            source: DeviceId { rank, index: 0 },
            waits: waits.iter().map(|id| CommandId(*id)).collect(),
            after: Vec::new(),
            command,
        }
    }

    fn read(id: u64, rank: Rank, address: u64, waits: &[u64]) -> IssuedCommand {
        let command = Command::Read { buffer: ObjectId(id), offset: 0, size: 100, address };
        IssuedCommand { command, ..write(id, rank, address, waits) }
    }

    #[test]
    fn the_same_bytes_are_a_broadcast_and_others_beside_them_a_scatter() {
        let batch = [
            write(1, 1, 1000, &[]),
            write(2, 1, 0, &[]),
            write(3, 2, 1000, &[]),
            write(4, 2, 100, &[]),
            write(5, 3, 200, &[]),
        ];
        let found = find(&batch);
        assert_eq!(found.groups, [Group { members: vec![0, 2], source: Source::Memory }]);
        assert_eq!(
            found.spreads,
            [Spread { is_scatter: true, members: vec![1, 3, 4], bytes: 300, is_contiguous: true }]
        );
    }

    fn copy(id: u64, rank: Rank, from: (Rank, u64), offset: u64, waits: &[u64]) -> IssuedCommand {
        let command = Command::Copy {
            from: ObjectId(from.1),
            from_offset: offset,
            to: ObjectId(id),
            to_offset: 0,
            size: 100,
        };
        let source = DeviceId { rank: from.0, index: 0 };
        IssuedCommand { command, source, ..write(id, rank, 0, waits) }
    }

    #[test]
    fn copies_of_the_same_bytes_to_other_ranks_are_a_broadcast() {
        let batch = [
            copy(1, 0, (2, 77), 0, &[]),
            copy(2, 1, (2, 77), 0, &[]),
            copy(3, 2, (2, 77), 0, &[]),
            copy(4, 3, (2, 77), 0, &[]),
            copy(5, 3, (2, 77), 50, &[]),
            copy(6, 3, (2, 78), 0, &[]),
            copy(7, 1, (2, 77), 0, &[1]),
        ];
        assert_eq!(
            find(&batch).groups,
            [Group { members: vec![0, 1, 3], source: Source::Buffer(2) }]
        );
    }

    #[test]
    fn different_levels_are_not_put_together() {
        let batch = [write(1, 1, 1000, &[]), write(2, 2, 1000, &[1])];
        assert!(find(&batch).groups.is_empty());
    }

    #[test]
    fn reads_into_the_same_bytes_are_no_gather() {
        // The paper's algorithm would replace this race with a gather.
        assert!(find(&[read(1, 1, 0, &[]), read(2, 2, 0, &[])]).spreads.is_empty());
        let found = find(&[read(1, 1, 0, &[]), read(2, 2, 200, &[])]);
        assert_eq!(
            found.spreads,
            [Spread { is_scatter: false, members: vec![0, 1], bytes: 200, is_contiguous: false }]
        );
    }

    #[test]
    fn a_write_of_what_a_read_brings_comes_from_the_read() {
        let batch = [read(1, 1, 0, &[]), write(2, 2, 0, &[1]), write(3, 3, 0, &[1])];
        assert_eq!(find(&batch).groups, [Group { members: vec![1, 2], source: Source::Read(0) }]);
        // This does not apply if the write also waits for a command that waits for the read: the
        // read's device would wait for its receiver.
        let batch = [read(1, 1, 0, &[]), read(2, 2, 500, &[1]), write(3, 2, 0, &[1, 2])];
        assert!(find(&batch).groups.is_empty());
    }
}
