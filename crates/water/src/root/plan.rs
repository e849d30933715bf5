//! Turns single commands into the jobs of the ranks.

use super::cost::SEGMENT_BYTES;
use super::issued::IssuedCommand;
use super::request::Request;
use super::{HostRange, Root};
use crate::command::{CommandId, End, Job, Move, ObjectId, Rank, Sink, Stream, Work};

impl Root {
    pub(super) fn plan(&mut self, issue: IssuedCommand) {
        let IssuedCommand { id, rank, device, waits, request } = issue;
        let work = match request {
            Request::CreateBuffer { buffer, size, flags } => {
                Work::CreateBuffer { buffer, size, flags }
            }
            Request::ReleaseBuffer { buffer } => Work::ReleaseBuffer { buffer },
            Request::CreateKernel { kernel, code, name, options } => {
                Work::CreateKernel { kernel, code, name, options }
            }
            Request::ReleaseKernel { kernel } => Work::ReleaseKernel { kernel },
            Request::Run { kernel, range, args } => Work::Run { kernel, range, args },
            Request::Marker => Work::Marker,
            Request::CreateHeap { plan, member } => Work::CreateHeap { plan, member },
            Request::ReleaseHeap { heap } => Work::ReleaseHeap { heap },
            Request::AbortHeap { heap, reason } => Work::AbortHeap { heap, reason },
            Request::ResetHeap { heap, generation, after } => {
                let waits = self.waits_also(rank, &waits, after);
                let work = Work::ResetHeap { heap, generation };
                return self.send(rank, Job { id, device, waits, work, together: None });
            }
            Request::Collective { kernel, range, args, after } => {
                let waits = self.waits_also(rank, &waits, after);
                let work = Work::Run { kernel, range, args };
                return self.send(rank, Job { id, device, waits, work, together: None });
            }
            Request::Write { buffer, offset, size, address } => {
                return self.plan_write(
                    id,
                    (rank, device),
                    &waits,
                    (buffer, offset),
                    size,
                    address,
                );
            }
            Request::Read { buffer, offset, size, address } => {
                return self.plan_read(id, (rank, device), &waits, (buffer, offset), size, address);
            }
            Request::Copy { from, from_rank, from_device, from_offset, to, to_offset, size } => {
                let source = (from_rank, from_device, from, from_offset);
                return self.plan_copy(id, source, (rank, device, to, to_offset), &waits, size);
            }
        };
        let waits = self.waits(rank, &waits);
        self.send(rank, Job { id, device, waits, work, together: None });
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
        self.send(
            rank,
            Job { id, device: 0, waits: Vec::new(), work: Work::Move(take), together: None },
        );
        let sinks = vec![Sink { to: End::Rank { rank, stream }, first: 0, size }];
        let work =
            Work::Move(Move { source: End::Host { address }, sinks, size, segment, early: false });
        self.send(0, Job { id: part, device: 0, waits: Vec::new(), work, together: None });
        id
    }

    /// Plans a write of the program's bytes to a buffer. The bytes are read at once, except for
    /// those that an unfinished read will write: the program does not change them until the command
    /// has ended.
    fn plan_write(
        &mut self,
        id: CommandId,
        (rank, device): (Rank, u32),
        waits: &[CommandId],
        (buffer, offset): (ObjectId, u64),
        size: u64,
        address: u64,
    ) {
        let mut hazards = self.reads_into(address, size);
        let target = End::Buffer { buffer, offset };
        if rank == 0 {
            hazards.extend_from_slice(waits);
            hazards.sort_unstable();
            hazards.dedup();
            let waits = self.waits(0, &hazards);
            self.send(
                0,
                Job {
                    id,
                    device,
                    waits,
                    work: one(End::Host { address }, target, size),
                    together: None,
                },
            );
            return;
        }
        let stream = Stream::of(id.0);
        let waits = self.waits(rank, waits);
        self.send(
            rank,
            Job {
                id,
                device,
                waits,
                work: one(End::Rank { rank: 0, stream }, target, size),
                together: None,
            },
        );
        let part = self.command();
        let waits = self.waits(0, &hazards);
        let work = one(End::Host { address }, End::Rank { rank, stream }, size);
        self.send(0, Job { id: part, device: 0, waits, work, together: None });
    }

    /// Plans a read of a buffer's bytes into the program's memory.
    fn plan_read(
        &mut self,
        id: CommandId,
        (rank, device): (Rank, u32),
        waits: &[CommandId],
        (buffer, offset): (ObjectId, u64),
        size: u64,
        address: u64,
    ) {
        self.reads.push(HostRange {
            start: address,
            end: address.saturating_add(size),
            command: id,
        });
        let source = End::Buffer { buffer, offset };
        if rank == 0 {
            let waits = self.waits(0, waits);
            self.send(
                0,
                Job {
                    id,
                    device,
                    waits,
                    work: one(source, End::Host { address }, size),
                    together: None,
                },
            );
            return;
        }
        let (part, stream) = (self.command(), Stream::of(id.0));
        let waits = self.waits(rank, waits);
        self.send(
            rank,
            Job {
                id: part,
                device,
                waits,
                work: one(source, End::Rank { rank: 0, stream }, size),
                together: None,
            },
        );
        let work = one(End::Rank { rank, stream }, End::Host { address }, size);
        self.send(0, Job { id, device: 0, waits: Vec::new(), work, together: None });
        if let Some(track) = self.tracks.get_mut(&id) {
            track.rank = 0;
            track.inner = Some((rank, part));
        }
    }

    fn plan_copy(
        &mut self,
        id: CommandId,
        (from_rank, from_device, from, from_offset): (Rank, u32, ObjectId, u64),
        (rank, device, to, to_offset): (Rank, u32, ObjectId, u64),
        waits: &[CommandId],
        size: u64,
    ) {
        let (source, target) = (
            End::Buffer { buffer: from, offset: from_offset },
            End::Buffer { buffer: to, offset: to_offset },
        );
        let here = self.waits(rank, waits);
        if from_rank == rank {
            return self.send(
                rank,
                Job { id, device, waits: here, work: one(source, target, size), together: None },
            );
        }
        let (part, stream) = (self.command(), Stream::of(id.0));
        self.send(
            rank,
            Job {
                id,
                device,
                waits: here,
                work: one(End::Rank { rank: from_rank, stream }, target, size),
                together: None,
            },
        );
        let there = self.waits(from_rank, waits);
        let work = one(source, End::Rank { rank, stream }, size);
        self.send(
            from_rank,
            Job { id: part, device: from_device, waits: there, work, together: None },
        );
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
fn one(source: End, to: End, size: u64) -> Work {
    Work::Move(Move {
        source,
        sinks: vec![Sink { to, first: 0, size }],
        size,
        segment: SEGMENT_BYTES,
        early: false,
    })
}
