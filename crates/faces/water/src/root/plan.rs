//! Turns single commands into the jobs of the ranks.

use super::cost::SEGMENT_BYTES;
use super::{HostRange, Root};
use crate::command::{Command, CommandId, DeviceId, End, Job, Move, Rank, Sink, Stream, Wait};
use crate::request::IssuedCommand;

/// The device that jobs of the root name if they need none.
const ROOT_DEVICE: DeviceId = DeviceId { rank: 0, index: 0 };

/// A write or a read of the program's memory.
struct HostTransfer {
    device: DeviceId,
    waits: Vec<CommandId>,
    /// The bytes in the buffer.
    buffer: End,
    size: u64,
    /// Address of the bytes in the program's memory.
    address: u64,
}

/// A copy from a buffer to a buffer.
struct DeviceCopy {
    from: DeviceId,
    source: End,
    to: DeviceId,
    target: End,
    waits: Vec<CommandId>,
    size: u64,
}

impl Root {
    pub(super) fn plan(&mut self, issue: IssuedCommand) {
        let IssuedCommand { id, rank, device, source, waits, after, command } = issue;
        let device = DeviceId { rank, index: device };
        match command {
            Command::Write { buffer, offset, size, address } => {
                let buffer = End::Buffer { buffer, offset };
                self.plan_write(id, HostTransfer { device, waits, buffer, size, address });
            }
            Command::Read { buffer, offset, size, address } => {
                let buffer = End::Buffer { buffer, offset };
                self.plan_read(id, HostTransfer { device, waits, buffer, size, address });
            }
            Command::Copy { from, from_offset, to, to_offset, size } => {
                let copy = DeviceCopy {
                    from: source,
                    source: End::Buffer { buffer: from, offset: from_offset },
                    to: device,
                    target: End::Buffer { buffer: to, offset: to_offset },
                    waits,
                    size,
                };
                self.plan_copy(id, copy);
            }
            command => {
                let waits = self.waits_also(rank, &waits, after);
                self.send_to(device, id, waits, command);
            }
        }
    }

    fn send_to(&mut self, to: DeviceId, id: CommandId, waits: Vec<Wait>, command: Command) {
        self.send(to.rank, Job { id, device: to.index, waits, command, collective: None });
    }

    /// Sends bytes to a rank that discards them. The command ends when they have arrived: the end
    /// of sending would say little, because buffers on the way take bytes faster than the link.
    pub fn probe(&mut self, rank: Rank, address: u64, size: u64, segment: u64) -> CommandId {
        let id = self.track(rank);
        let (part, stream) = (self.command(), Stream::of(id.0));
        let take = Move {
            source: End::Rank { rank: 0, stream },
            sinks: Vec::new(),
            size,
            segment,
            early: false,
        };
        let device = DeviceId { rank, index: 0 };
        self.send_to(device, id, Vec::new(), Command::Move(take));
        let sinks = vec![Sink { to: End::Rank { rank, stream }, first: 0, size }];
        let give = Move { source: End::Host { address }, sinks, size, segment, early: false };
        self.send_to(ROOT_DEVICE, part, Vec::new(), Command::Move(give));
        id
    }

    /// Plans a write of the program's bytes to a buffer. The bytes are read at once, except for
    /// those that an unfinished read will write: the program does not change them until the command
    /// has ended.
    fn plan_write(&mut self, id: CommandId, write: HostTransfer) {
        let HostTransfer { device, waits, buffer, size, address } = write;
        let rank = device.rank;
        let mut hazards = self.reads_into(address, size);
        if rank == 0 {
            hazards.extend_from_slice(&waits);
            hazards.sort_unstable();
            hazards.dedup();
            let waits = self.waits(0, &hazards);
            return self.send_to(device, id, waits, one(End::Host { address }, buffer, size));
        }
        let stream = Stream::of(id.0);
        let waits = self.waits(rank, &waits);
        self.send_to(device, id, waits, one(End::Rank { rank: 0, stream }, buffer, size));
        let part = self.command();
        let waits = self.waits(0, &hazards);
        let give = one(End::Host { address }, End::Rank { rank, stream }, size);
        self.send_to(ROOT_DEVICE, part, waits, give);
    }

    /// Plans a read of a buffer's bytes into the program's memory.
    fn plan_read(&mut self, id: CommandId, read: HostTransfer) {
        let HostTransfer { device, waits, buffer, size, address } = read;
        let rank = device.rank;
        self.reads.push(HostRange {
            start: address,
            end: address.saturating_add(size),
            command: id,
        });
        if rank == 0 {
            let waits = self.waits(0, &waits);
            return self.send_to(device, id, waits, one(buffer, End::Host { address }, size));
        }
        let (part, stream) = (self.command(), Stream::of(id.0));
        let waits = self.waits(rank, &waits);
        self.send_to(device, part, waits, one(buffer, End::Rank { rank: 0, stream }, size));
        let take = one(End::Rank { rank, stream }, End::Host { address }, size);
        self.send_to(ROOT_DEVICE, id, Vec::new(), take);
        if let Some(track) = self.tracks.get_mut(&id) {
            track.rank = 0;
            track.inner = Some((rank, part));
        }
    }

    fn plan_copy(&mut self, id: CommandId, copy: DeviceCopy) {
        let DeviceCopy { from, source, to, target, waits, size } = copy;
        let here = self.waits(to.rank, &waits);
        if from.rank == to.rank {
            return self.send_to(to, id, here, one(source, target, size));
        }
        let (part, stream) = (self.command(), Stream::of(id.0));
        self.send_to(to, id, here, one(End::Rank { rank: from.rank, stream }, target, size));
        let there = self.waits(from.rank, &waits);
        let give = one(source, End::Rank { rank: to.rank, stream }, size);
        self.send_to(from, part, there, give);
    }

    /// Returns the unfinished reads that write to this memory.
    pub(super) fn reads_into(&self, address: u64, size: u64) -> Vec<CommandId> {
        let end = address.saturating_add(size);
        self.reads
            .iter()
            .filter(|range| range.start < end && address < range.end)
            .map(|range| range.command)
            .collect()
    }
}

/// Returns a move of `size` bytes to one sink.
fn one(source: End, to: End, size: u64) -> Command {
    Command::Move(Move {
        source,
        sinks: vec![Sink { to, first: 0, size }],
        size,
        segment: SEGMENT_BYTES,
        early: false,
    })
}
