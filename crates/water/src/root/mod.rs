//! The root's view of the run: which commands there are, where they run, and how they ended.
//!
//! What the program asks for is collected in a *batch*. A batch is planned as a whole (`plan`): there the runtime sees which transfers belong
//! together, and each rank gets its part as one message. A batch is closed when the program waits, when it is large, or a
//! moment after its first command.

mod collect;
pub mod collective;
pub mod cost;
pub mod explain;
mod group;
mod plan;
mod request;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::Clock;
use crate::command::{CommandId, Fault, Job, Message, ObjectId, Outcome, Rank, Times, Wait};
use crate::record::Recorder;
use collective::{Mode, Planning};
use cost::{Link, Shape};
use explain::Explain;
pub use request::Request;

/// A batch is closed so long after its first command: what a small program pays at most for the chance that its transfers are
/// found to belong together.
pub const BATCH_NS_MAX: u64 = 200_000;

/// A batch is closed when it has so many commands: sixteen for each of 1,024 devices, so that what all of them get goes through the
/// root's link once. It is planned in steps, between which the scheduler does other work.
pub const BATCH_COMMANDS_MAX: usize = 1024 * 16;

/// A batch is closed when its commands carry so many bytes (kernels and arguments; payload does not count).
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// So many commands of a batch are planned before their ranks get them: the ranks begin while the rest is planned.
pub const SLICE_COMMANDS: usize = 128;

/// Fewer, if this rank's link is in use meanwhile: planning them takes no longer than 512 KiB on a link of 3 GB/s.
pub const SLICE_COMMANDS_BUSY: usize = 64;

/// Failed commands that are remembered when no event means them any more: commands that wait for them may come later.
const FAILED_MAX: usize = 1 << 16;

/// One command, as the program issued it.
#[derive(Debug)]
pub struct Issue {
    /// Its id.
    pub id: CommandId,
    /// The rank of its device.
    pub rank: Rank,
    /// Its device, among those of the rank.
    pub device: u32,
    /// What it waits for.
    pub waits: Vec<CommandId>,
    /// What it does.
    pub request: Request,
}

/// What the root knows of a command.
#[derive(Debug)]
struct Track {
    /// Who runs it, or its last part.
    rank: Rank,
    /// The part of a read that runs where the buffer is: what comes after it there need not wait for the bytes to arrive here.
    inner: Option<(Rank, CommandId)>,
    /// Commands that this one's job does as well, and for each of them this one.
    also: Vec<CommandId>,
    done_by: Option<CommandId>,
    /// It makes something, and waits for nothing.
    is_creation: bool,
    /// It brings bytes of another rank to the program.
    is_remote_read: bool,
    /// Those that it waits for which may end after it: reads of which it waited for the inner part only, and what waits for such.
    behind: Vec<CommandId>,
    outcome: Option<Outcome>,
    /// When the program issued it.
    queued: u64,
    times: Times,
    /// Events that mean it.
    holds: u32,
}

/// The root's state.
#[derive(Debug)]
pub struct Root {
    clock: Arc<dyn Clock>,
    next_command: u64,
    next_object: u64,
    tracks: FxHashMap<CommandId, Track>,
    batch: Vec<Issue>,
    batch_bytes: usize,
    /// When the batch's first command came.
    batch_began: u64,
    /// A batch that was closed, and is not planned to its end.
    planning: Option<Planning>,
    /// Those without an event, the oldest first.
    failed: VecDeque<CommandId>,
    /// Reads that have not ended, and where they write.
    reads: Vec<HostRange>,
    /// Ends that are told when another command, which is late, has ended.
    followers: FxHashMap<CommandId, Vec<(CommandId, Outcome, Times)>>,
    /// Commands that have not ended.
    outstanding: usize,
    /// For each rank, what is to be sent to it.
    letters: Vec<Vec<Message>>,
    /// Failures that nobody has been told of.
    #[allow(clippy::vec_box, reason = "an outcome has it in a box, and it stays there")]
    faults: Vec<Box<Fault>>,
    /// Root causes that were told, by command: one failure has many victims.
    told: FxHashSet<CommandId>,
    /// Ranks that are gone: why, and their hosts.
    lost: Vec<Option<(String, String)>>,
    mode: Mode,
    link: Link,
    /// How all groups are replaced, if that is not the cost model's choice.
    shape: Option<Shape>,
    explain: Explain,
    /// What happened, if somebody wants to see it.
    record: Option<Box<Recorder>>,
    /// For writes whose bytes come from a read in the same batch: the rank that has them.
    feeders: FxHashMap<CommandId, Rank>,
    /// Jobs of a blocking collective that is being planned.
    gathered: Option<Vec<(Rank, Job)>>,
    gatherings: u64,
    /// Such reads and writes.
    fed_by: FxHashSet<(CommandId, CommandId)>,
    /// How bytes get from each PE of a heap (and its number) to the others.
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
    /// For a run of so many ranks.
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
            letters: (0..ranks).map(|_| Vec::new()).collect(),
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
            gathered: None,
            gatherings: 0,
        }
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.letters.len()).unwrap_or(u32::MAX)
    }

    /// Whatever happens is told there from now on.
    pub fn set_recorder(&mut self, recorder: Recorder) {
        self.record = Some(Box::new(recorder));
    }

    /// What happened, if it is recorded.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.record.as_deref()
    }

    /// One command is done by another's job.
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

    /// A new object's id.
    pub fn object(&mut self) -> ObjectId {
        self.objects(1)
    }

    /// So many new ids, one after the other; the first of them.
    pub fn objects(&mut self, count: u64) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += count;
        id
    }

    /// A member of a heap says how one of its PEs reaches the others.
    pub fn heard_paths(&mut self, heap: ObjectId, pe: u32, paths: Vec<u8>) {
        self.paths.insert((heap, pe), paths);
    }

    /// How bytes get from one PE of a heap to another, by the numbers of [`crate::heap::Path`].
    pub fn path(&self, heap: ObjectId, from: u32, to: u32) -> Option<u8> {
        self.paths.get(&(heap, from))?.get(to as usize).copied()
    }

    /// A heap is released.
    pub fn forget_paths(&mut self, heap: ObjectId) {
        self.paths.retain(|(of, _), _| *of != heap);
    }

    fn command(&mut self) -> CommandId {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        id
    }

    /// A new command that has not ended; it is held once.
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

    /// Takes a command of the program; it is held for one event.
    pub fn issue(
        &mut self,
        rank: Rank,
        device: u32,
        mut waits: Vec<CommandId>,
        request: Request,
    ) -> CommandId {
        waits.sort_unstable();
        waits.dedup();
        let id = self.track(rank);
        if self.batch.is_empty() {
            self.batch_began = self.clock.now();
        }
        self.batch_bytes += request.bytes();
        let behind = self.not_before(&waits);
        if let Some(track) = self.tracks.get_mut(&id) {
            track.is_remote_read = rank != 0 && matches!(request, Request::Read { .. });
            track.behind = behind;
        }
        let is_creation =
            matches!(request, Request::CreateBuffer { .. } | Request::CreateKernel { .. });
        if is_creation
            && waits.is_empty()
            && let Some(track) = self.tracks.get_mut(&id)
        {
            track.is_creation = true;
        }
        if let Some(record) = &mut self.record {
            record.issued(id, (rank, device), &waits, &request, self.clock.now());
        }
        self.batch.push(Issue { id, rank, device, waits, request });
        id
    }

    /// One more event means this command.
    pub fn hold(&mut self, id: CommandId) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.holds += 1;
        }
    }

    /// One event less means this command.
    pub fn let_go(&mut self, id: CommandId) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.holds = track.holds.saturating_sub(1);
            if track.holds == 0 && track.outcome.is_some() {
                self.forget(id);
            }
        }
    }

    /// No event means this command, which has ended.
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

    /// Whether it made something on another rank, and waited for nothing.
    fn is_creation_elsewhere(&self, id: CommandId, rank: Rank) -> bool {
        self.tracks.get(&id).is_some_and(|track| track.is_creation && track.rank != rank)
    }

    /// How a command ended; `None` if it has not. One that is not known has ended well.
    pub fn outcome(&self, id: CommandId) -> Option<Outcome> {
        self.tracks.get(&id).map_or(Some(Ok(())), |track| track.outcome.clone())
    }

    /// When a command was issued, and when it ran.
    pub fn times(&self, id: CommandId) -> Option<(u64, Times)> {
        self.tracks.get(&id).map(|track| (track.queued, track.times))
    }

    /// Commands that have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// When the batch has to be closed: now (0), at a time, or never.
    pub fn batch_end(&self) -> Option<u64> {
        if self.batch.is_empty() {
            None
        } else if self.batch.len() >= BATCH_COMMANDS_MAX || self.batch_bytes >= BATCH_BYTES_MAX {
            Some(0)
        } else {
            Some(self.batch_began + BATCH_NS_MAX)
        }
    }

    /// Those of `waits` that may end after what waits for them.
    fn not_before(&self, waits: &[CommandId]) -> Vec<CommandId> {
        let may_be_late = |wait: &&CommandId| {
            self.tracks.get(wait).is_some_and(|track| {
                track.outcome.is_none() && (track.is_remote_read || !track.behind.is_empty())
            })
        };
        waits.iter().filter(may_be_late).copied().collect()
    }

    /// A command has ended. Who asks for it is told when all that it waited for has ended as well: that a kernel has ended says that
    /// the bytes of the read before it are there.
    pub fn ended(&mut self, id: CommandId, outcome: Outcome, times: Times) {
        if let Some(record) = &mut self.record {
            record.ended(id, &outcome, times);
        }
        let mut settled = vec![(id, outcome, times)];
        while let Some((id, outcome, times)) = settled.pop() {
            let late = self.tracks.get(&id).and_then(|track| {
                let is_open =
                    |it: &&CommandId| self.tracks.get(it).is_some_and(|it| it.outcome.is_none());
                track.behind.iter().find(is_open).copied()
            });
            match late {
                Some(late) if outcome.is_ok() => {
                    self.followers.entry(late).or_default().push((id, outcome, times));
                }
                _ => {
                    self.settle(id, outcome, times);
                    settled.extend(self.followers.remove(&id).into_iter().flatten());
                }
            }
        }
    }

    fn settle(&mut self, id: CommandId, outcome: Outcome, times: Times) {
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
        self.explain_end(id);
        for other in also {
            self.ended(other, outcome.clone(), times);
        }
    }

    /// A rank is gone: its commands have failed, and will. Whether that is new.
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

    /// A rank that is gone, and why.
    pub fn first_lost(&self) -> Option<(Rank, &str)> {
        (0..)
            .zip(&self.lost)
            .find_map(|(rank, lost)| lost.as_ref().map(|(reason, _)| (rank, reason.as_str())))
    }

    /// A command of a rank that is gone has failed.
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
        self.ended(id, Err(Box::new(fault)), Times::default());
    }

    /// Root causes that nobody has been told of.
    #[allow(clippy::vec_box, reason = "as above")]
    pub fn faults(&mut self) -> Vec<Box<Fault>> {
        std::mem::take(&mut self.faults)
    }

    /// Takes what is to be told to each rank.
    pub fn letters(&mut self) -> impl Iterator<Item = (Rank, Vec<Message>)> + '_ {
        (0..)
            .zip(&mut self.letters)
            .filter(|(_, letters)| !letters.is_empty())
            .map(|(rank, letters)| (rank, std::mem::take(letters)))
    }

    /// Gives a job to a rank.
    fn send(&mut self, rank: Rank, job: Job) {
        if let Some(record) = &mut self.record {
            record.sent(rank, &job, self.clock.now());
        }
        if let Some(jobs) = &mut self.gathered {
            jobs.push((rank, job));
            return;
        }
        if self.is_lost(rank) {
            return self.fail_lost(job.id, rank);
        }
        let Some(letters) = self.letters.get_mut(rank as usize) else { return };
        if let Some(Message::Jobs(jobs)) = letters.last_mut() {
            jobs.push(job);
        } else {
            letters.push(Message::Jobs(vec![job]));
        }
    }

    /// The waits of a job on `rank`; other ranks are asked to tell.
    fn waits(&mut self, rank: Rank, commands: &[CommandId]) -> Vec<Wait> {
        let mut waits = Vec::with_capacity(commands.len());
        for command in commands {
            let Some(track) = self.tracks.get(command) else { continue };
            if matches!(track.outcome, Some(Ok(()))) {
                continue;
            }
            // A read's part on its device is enough for other devices: what they do does not see the program's memory.
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
                && let Some(letters) = self.letters.get_mut(at as usize)
            {
                letters.push(Message::Tell { command, rank });
            }
        }
        waits
    }

    /// The same, and the ends of `also`, however they end.
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
