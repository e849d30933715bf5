//! The root's view of the run: its commands, where they run, and how they ended.
//!
//! The program's commands are collected in a *batch*. The root plans a batch as a whole (`plan`):
//! it sees which transfers belong together, and each rank gets its jobs as one message. A batch is
//! closed when the program waits, when the batch is large, or a moment after its first command.

mod batch;
mod collect;
mod collective;
pub mod cost;
pub mod explain;
mod group;
pub mod mode;
mod plan;
mod planning;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use self::cost::{Link, Shape};
use self::explain::Explain;
use self::mode::Mode;
use self::planning::Planning;
use crate::clock::Clock;
use crate::command::{
    Command, CommandEnd, CommandId, Fault, Job, ObjectId, Outcome, Rank, Times, Wait,
};
use crate::message::Message;
use crate::record::Recorder;
use crate::request::{IssuedCommand, Request};

/// Time from the first command of a batch to its end, in ns. This is the most that a small program
/// pays for the chance that related transfers are found.
pub const BATCH_NS_MAX: u64 = 200_000;

/// Number of commands at which a batch is closed: sixteen for each of 1,024 devices, so that bytes
/// for all devices pass the root's link once. A batch is planned in slices, between which the
/// scheduler does other work.
pub const BATCH_COMMANDS_MAX: usize = 1024 * 16;

/// Number of bytes of kernels and arguments at which a batch is closed. Payload does not count.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// Number of commands that are planned at a time, so that ranks begin while the rest is planned.
pub const SLICE_COMMANDS: usize = 128;

/// The same while this rank's link is busy: planning 64 commands takes no longer than 512 KiB on a
/// link of 3 GB/s.
pub const SLICE_COMMANDS_BUSY: usize = 64;

/// Number of failed commands that are kept without an event, for commands that are issued later and
/// wait for them.
const FAILED_MAX: usize = 1 << 16;

#[derive(Debug)]
struct Track {
    /// The rank that runs the command, or its last part.
    rank: Rank,
    /// The part of a read that runs at the buffer's rank. Later commands on ranks other than the
    /// root wait for this part only, not for the bytes to arrive at the root.
    inner: Option<(Rank, CommandId)>,
    /// Commands that this one's job performs as well. Their `done_by` is this one.
    also: Vec<CommandId>,
    done_by: Option<CommandId>,
    /// It creates an object, and waits for nothing.
    is_creation: bool,
    /// It brings bytes of another rank to the program.
    is_remote_read: bool,
    /// Commands that it waits for but that may end after it. They are reads whose inner part alone
    /// it waits for, and commands that are late because of such a read.
    behind: Vec<CommandId>,
    outcome: Option<Outcome>,
    queued: u64,
    times: Times,
    /// Number of events that refer to it.
    holds: u32,
}

#[derive(Debug)]
pub struct Root {
    clock: Arc<dyn Clock>,
    next_command: u64,
    next_object: u64,
    tracks: FxHashMap<CommandId, Track>,
    batch: Vec<IssuedCommand>,
    batch_bytes: usize,
    /// When the first command of the batch came.
    batch_began: u64,
    /// A closed batch whose planning is not finished.
    planning: Option<Planning>,
    /// Failed commands without an event, oldest first.
    failed: VecDeque<CommandId>,
    /// Unfinished reads, with the memory that they write.
    reads: Vec<HostRange>,
    /// Ends that are made known once another command, the key, has ended.
    followers: FxHashMap<CommandId, Vec<CommandEnd>>,
    outstanding: usize,
    /// Messages to send, by rank.
    messages: Vec<Vec<Message>>,
    /// Failures that were not reported yet.
    #[allow(clippy::vec_box, reason = "an outcome has it in a box, and it stays there")]
    faults: Vec<Box<Fault>>,
    /// Commands whose faults were reported. One root cause has many victims, and is reported once.
    told: FxHashSet<CommandId>,
    /// Why each lost rank was lost, and its host name.
    lost: Vec<Option<(String, String)>>,
    mode: Mode,
    link: Link,
    /// Shape of all replaced groups, if it is set. Otherwise the cost model chooses.
    shape: Option<Shape>,
    explain: Explain,
    /// Records what happens, if that is wanted.
    record: Option<Box<Recorder>>,
    /// For writes whose bytes come from a read of the same batch: the rank that has them.
    feeders: FxHashMap<CommandId, Rank>,
    /// Jobs of the blocking collective that is being planned.
    blocking_jobs: Option<Vec<(Rank, Job)>>,
    /// Number of blocking collectives so far.
    blocking_collectives: u64,
    /// Pairs of such a read and such a write.
    fed_by: FxHashSet<(CommandId, CommandId)>,
    /// How bytes get from a PE of a heap to each of the others.
    paths: FxHashMap<(ObjectId, u32), Vec<u8>>,
}

/// Memory of the program that a command writes.
#[derive(Debug)]
struct HostRange {
    start: u64,
    end: u64,
    command: CommandId,
}

impl Root {
    /// Creates the state for a run of `ranks` ranks.
    pub fn new(ranks: u32, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            next_command: 1,
            next_object: 1,
            tracks: FxHashMap::default(),
            batch: Vec::new(),
            batch_bytes: 0,
            batch_began: 0,
            planning: None,
            failed: VecDeque::new(),
            reads: Vec::new(),
            followers: FxHashMap::default(),
            outstanding: 0,
            messages: (0..ranks).map(|_| Vec::new()).collect(),
            faults: Vec::new(),
            told: FxHashSet::default(),
            lost: (0..ranks).map(|_| None).collect(),
            mode: Mode::default(),
            link: Link::default(),
            shape: None,
            explain: Explain::default(),
            record: None,
            feeders: FxHashMap::default(),
            fed_by: FxHashSet::default(),
            paths: FxHashMap::default(),
            blocking_jobs: None,
            blocking_collectives: 0,
        }
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.messages.len()).unwrap_or(u32::MAX)
    }

    /// Sets where decisions are explained from now on.
    pub fn set_explain(&mut self, explain: Explain) {
        self.explain = explain;
    }

    /// Sets the link's costs. `Runtime` measures them when the run begins, unless `WTR_LINK` gives
    /// them.
    pub fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// Replaces all groups in this shape, in pieces of 64 KiB, to show its effect where the cost
    /// model would not choose it.
    pub fn set_shape(&mut self, shape: Option<Shape>) {
        self.shape = shape;
    }

    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Sets the recorder of everything that happens from now on.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.record = Some(Box::new(recorder));
    }

    /// Returns the recorder, if there is one.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.record.as_deref()
    }

    /// Notes that the job of `other` performs `command` as well.
    fn same_as(&mut self, command: CommandId, other: CommandId) {
        if let Some(record) = &mut self.record {
            record.same_as(command, other);
        }
        if let Some(track) = self.tracks.get_mut(&command) {
            track.done_by = Some(other);
        }
        if let Some(track) = self.tracks.get_mut(&other) {
            track.also.push(command);
        }
    }

    pub fn object(&mut self) -> ObjectId {
        self.objects(1)
    }

    /// Reserves `count` consecutive object ids, and returns the first.
    pub fn objects(&mut self, count: u64) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += count;
        id
    }

    /// Stores how a PE of a heap reaches the others.
    pub fn heard_paths(&mut self, heap: ObjectId, pe: u32, paths: Vec<u8>) {
        self.paths.insert((heap, pe), paths);
    }

    /// Returns how bytes get from one PE of a heap to another, as a number of
    /// [`crate::heap::Path`].
    pub fn path(&self, heap: ObjectId, from: u32, to: u32) -> Option<u8> {
        self.paths.get(&(heap, from))?.get(to as usize).copied()
    }

    /// Forgets the paths of a released heap.
    pub fn forget_paths(&mut self, heap: ObjectId) {
        self.paths.retain(|(of, _), _| *of != heap);
    }

    fn command(&mut self) -> CommandId {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        id
    }

    /// Creates an unfinished command, with one event that refers to it.
    fn track(&mut self, rank: Rank) -> CommandId {
        let id = self.command();
        let queued = self.clock.now();
        let track = Track {
            rank,
            inner: None,
            also: Vec::new(),
            done_by: None,
            is_creation: false,
            is_remote_read: false,
            behind: Vec::new(),
            outcome: None,
            queued,
            times: Times::default(),
            holds: 1,
        };
        self.tracks.insert(id, track);
        self.outstanding += 1;
        id
    }

    /// Takes a command of the program, with one event that refers to it.
    pub fn issue(&mut self, mut waits: Vec<CommandId>, request: Request) -> CommandId {
        let Request { device, command, source, after } = request;
        let rank = device.rank;
        waits.sort_unstable();
        waits.dedup();
        let id = self.track(rank);
        if self.batch.is_empty() {
            self.batch_began = self.clock.now();
        }
        self.batch_bytes += command.batch_bytes();
        let behind = self.not_before(&waits);
        if let Some(track) = self.tracks.get_mut(&id) {
            track.is_remote_read = rank != 0 && matches!(command, Command::Read { .. });
            track.behind = behind;
        }
        if command.is_creation()
            && waits.is_empty()
            && let Some(track) = self.tracks.get_mut(&id)
        {
            track.is_creation = true;
        }
        let issued =
            IssuedCommand { id, rank, device: device.index, source, waits, after, command };
        if let Some(record) = &mut self.record {
            record.issued(&issued, self.clock.now());
        }
        self.batch.push(issued);
        id
    }

    /// Adds an event that refers to this command.
    pub fn hold(&mut self, id: CommandId) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.holds += 1;
        }
    }

    /// Removes an event that referred to this command.
    pub fn let_go(&mut self, id: CommandId) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.holds = track.holds.saturating_sub(1);
            if track.holds == 0 && track.outcome.is_some() {
                self.forget(id);
            }
        }
    }

    /// Forgets an ended command without events, unless it failed.
    fn forget(&mut self, id: CommandId) {
        if !matches!(self.tracks.get(&id), Some(Track { outcome: Some(Err(_)), .. })) {
            self.tracks.remove(&id);
            return;
        }
        self.failed.push_back(id);
        if self.failed.len() > FAILED_MAX
            && let Some(oldest) = self.failed.pop_front()
            && self.tracks.get(&oldest).is_some_and(|track| track.holds == 0)
        {
            self.tracks.remove(&oldest);
        }
    }

    /// Whether a command of another rank creates an object and waits for nothing.
    fn is_creation_elsewhere(&self, id: CommandId, rank: Rank) -> bool {
        self.tracks.get(&id).is_some_and(|track| track.is_creation && track.rank != rank)
    }

    /// Returns the outcome of a command, or `None` if it has not ended. An unknown command has
    /// succeeded.
    pub fn outcome(&self, id: CommandId) -> Option<Outcome> {
        self.tracks.get(&id).map_or(Some(Ok(())), |track| track.outcome.clone())
    }

    /// Returns when a command was issued, and when it ran.
    pub fn times(&self, id: CommandId) -> Option<(u64, Times)> {
        self.tracks.get(&id).map(|track| (track.queued, track.times))
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Returns when the batch must be closed: 0 means now, `None` that it is empty.
    pub fn batch_end(&self) -> Option<u64> {
        if self.batch.is_empty() {
            None
        } else if self.batch.len() >= BATCH_COMMANDS_MAX || self.batch_bytes >= BATCH_BYTES_MAX {
            Some(0)
        } else {
            Some(self.batch_began + BATCH_NS_MAX)
        }
    }

    /// Returns those of `waits` that may end after the command that waits for them.
    fn not_before(&self, waits: &[CommandId]) -> Vec<CommandId> {
        let may_be_late = |wait: &&CommandId| {
            self.tracks.get(wait).is_some_and(|track| {
                track.outcome.is_none() && (track.is_remote_read || !track.behind.is_empty())
            })
        };
        waits.iter().filter(may_be_late).copied().collect()
    }

    /// Takes the end of a command. A success is made known once the commands that it waited for
    /// have ended as well: a program that learns of a kernel's end may rely on the bytes of the
    /// read before it.
    pub fn ended(&mut self, end: CommandEnd) {
        if let Some(record) = &mut self.record {
            record.ended(end.id, &end.outcome, end.times);
        }
        let mut known = vec![end];
        while let Some(end) = known.pop() {
            let late = self.tracks.get(&end.id).and_then(|track| {
                let is_open =
                    |it: &&CommandId| self.tracks.get(it).is_some_and(|it| it.outcome.is_none());
                track.behind.iter().find(is_open).copied()
            });
            match late {
                Some(late) if end.outcome.is_ok() => {
                    self.followers.entry(late).or_default().push(end);
                }
                _ => {
                    let id = end.id;
                    self.end_command(end);
                    known.extend(self.followers.remove(&id).into_iter().flatten());
                }
            }
        }
    }

    fn end_command(&mut self, CommandEnd { id, outcome, times }: CommandEnd) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        if track.outcome.is_some() {
            return;
        }
        if let Err(fault) = &outcome
            && self.told.insert(fault.command)
        {
            self.faults.push(fault.clone());
        }
        let also = std::mem::take(&mut track.also);
        track.outcome = Some(outcome.clone());
        track.times = times;
        self.outstanding -= 1;
        self.reads.retain(|range| range.command != id);
        if track.holds == 0 {
            self.forget(id);
        }
        self.explain.ended(id, &*self.clock);
        for other in also {
            self.ended(CommandEnd { id: other, outcome: outcome.clone(), times });
        }
    }

    /// Notes that a rank is lost: its unfinished commands have failed, and later ones will. Returns
    /// whether that is new.
    pub fn lost(&mut self, rank: Rank, reason: &str, hostname: &str) -> bool {
        match self.lost.get_mut(rank as usize) {
            Some(lost @ None) => *lost = Some((reason.to_owned(), hostname.to_owned())),
            _ => return false,
        }
        let ids: Vec<_> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.rank == rank && track.outcome.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.fail_lost(id, rank);
        }
        true
    }

    fn is_lost(&self, rank: Rank) -> bool {
        matches!(self.lost.get(rank as usize), Some(Some(_)))
    }

    /// Returns the lost rank with the lowest number, and why it was lost.
    pub fn first_lost(&self) -> Option<(Rank, &str)> {
        (0..)
            .zip(&self.lost)
            .find_map(|(rank, lost)| lost.as_ref().map(|(reason, _)| (rank, reason.as_str())))
    }

    /// Fails a command of a lost rank.
    fn fail_lost(&mut self, id: CommandId, rank: Rank) {
        let Some(Some((reason, hostname))) = self.lost.get(rank as usize) else { return };
        let fault = Fault {
            code: crate::error::code::NODE_LOST,
            command: id,
            work: "a command".into(),
            node: hostname.clone(),
            rank,
            device: String::new(),
            message: format!("the rank is lost: {reason}"),
            log: String::new(),
        };
        let outcome = Err(Box::new(fault));
        self.ended(CommandEnd { id, outcome, times: Times::default() });
    }

    /// Takes the root causes that were not reported yet.
    #[allow(clippy::vec_box, reason = "as above")]
    pub fn faults(&mut self) -> Vec<Box<Fault>> {
        std::mem::take(&mut self.faults)
    }

    /// Takes the messages for each rank.
    pub fn messages(&mut self) -> impl Iterator<Item = (Rank, Vec<Message>)> + '_ {
        (0..)
            .zip(&mut self.messages)
            .filter(|(_, messages)| !messages.is_empty())
            .map(|(rank, messages)| (rank, std::mem::take(messages)))
    }

    fn send(&mut self, rank: Rank, job: Job) {
        if let Some(record) = &mut self.record {
            record.sent(rank, &job, self.clock.now());
        }
        if let Some(jobs) = &mut self.blocking_jobs {
            jobs.push((rank, job));
            return;
        }
        if self.is_lost(rank) {
            return self.fail_lost(job.id, rank);
        }
        let Some(messages) = self.messages.get_mut(rank as usize) else { return };
        if let Some(Message::Jobs(jobs)) = messages.last_mut() {
            jobs.push(job);
        } else {
            messages.push(Message::Jobs(vec![job]));
        }
    }

    /// Returns the waits of a job on `rank`, and asks other ranks to tell it of the ends.
    fn waits(&mut self, rank: Rank, commands: &[CommandId]) -> Vec<Wait> {
        let mut waits = Vec::with_capacity(commands.len());
        for command in commands {
            let Some(track) = self.tracks.get(command) else { continue };
            if matches!(track.outcome, Some(Ok(()))) {
                continue;
            }
            // The part of a read on its device is enough for other devices, which do not see the
            // program's memory.
            let (at, command) = match track.inner {
                Some((at, part)) if rank != 0 && track.outcome.is_none() => (at, part),
                _ => (track.rank, track.done_by.unwrap_or(*command)),
            };
            let wait = Wait { command, rank: at, is_lenient: false };
            if waits.contains(&wait) {
                continue;
            }
            waits.push(wait);
            if at != rank
                && let Some(messages) = self.messages.get_mut(at as usize)
            {
                messages.push(Message::Tell { command, rank });
            }
        }
        waits
    }

    /// Does the same, and adds lenient waits for `also`, whose failure does not matter.
    fn waits_also(
        &mut self,
        rank: Rank,
        commands: &[CommandId],
        mut also: Vec<CommandId>,
    ) -> Vec<Wait> {
        let mut waits = self.waits(rank, commands);
        also.retain(|it| waits.iter().all(|wait| wait.command != *it));
        let also = self.waits(rank, &also).into_iter();
        waits.extend(also.map(|wait| Wait { is_lenient: true, ..wait }));
        waits
    }
}

#[cfg(test)]
mod tests;
