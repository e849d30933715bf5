//! The scheduler of one rank. It takes jobs, tracks their dependencies, gives them to the back end,
//! moves their bytes, and reports their ends to the ranks that asked. It never blocks, and reads
//! only the clock that it is given.
//!
//! A job waits for other jobs of this rank, and for jobs of other ranks, whose ends arrive as
//! [`Message::Ended`]. A job that waits only for jobs that the back end orders by itself starts at
//! once: the driver keeps the order.

mod blocking;
mod entry;
mod faults;
mod flow;
mod moves;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::backend::{Backend, Ended, Failure};
use crate::clock::Clock;
use crate::command::{
    Command, CommandEnd, CommandId, DeviceInfo, Fault, Job, Outcome, Rank, Times, Wait,
};
use crate::error::code;
use crate::message::Message;
use crate::transport::{Transport, TransportEvent};
use blocking::BlockingCollectives;
use entry::{Entry, Foreign, fails_with, is_ordered};
use faults::Faults;
use moves::{Moves, Start};

/// The scheduler of one rank.
#[derive(Debug)]
pub struct Node {
    rank: Rank,
    hostname: String,
    backend: Box<dyn Backend>,
    clock: Arc<dyn Clock>,
    clock_ahead: i64,
    jobs: FxHashMap<CommandId, Entry>,
    /// Jobs that can start now.
    ready: VecDeque<CommandId>,
    /// Ends of other ranks' jobs, each with the jobs here that wait for it.
    foreign: FxHashMap<CommandId, Foreign>,
    /// Lost ranks, and why each was lost. Jobs do not wait for them.
    lost: FxHashMap<Rank, String>,
    faults: Faults,
    moves: Moves,
    collectives: BlockingCollectives,
    /// Number of jobs that this rank has received.
    given: u64,
    /// Messages to send, by rank.
    messages: FxHashMap<Rank, Vec<Message>>,
    /// Jobs that have ended since `finished` was last called.
    finished: Vec<CommandEnd>,
    /// Operations that failed because of an earlier operation whose own end is not reported yet.
    deferred: Vec<Ended>,
    /// Scratch space of `pump`.
    ended: Vec<Ended>,
}

impl Node {
    pub fn new(
        rank: Rank,
        hostname: String,
        backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            rank,
            hostname,
            backend,
            clock,
            clock_ahead: 0,
            jobs: FxHashMap::default(),
            ready: VecDeque::new(),
            foreign: FxHashMap::default(),
            lost: FxHashMap::default(),
            faults: Faults::default(),
            moves: Moves::default(),
            collectives: BlockingCollectives::default(),
            given: 0,
            messages: FxHashMap::default(),
            finished: Vec::new(),
            deferred: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// Sets how many ns this rank's clock is ahead of the root's. Reported times are in the root's
    /// clock.
    pub fn set_clock_ahead(&mut self, ns: i64) {
        self.clock_ahead = ns;
    }

    /// Whether the rank has neither jobs nor moves.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.moves.is_empty()
    }

    pub fn load(&self) -> usize {
        self.jobs.len()
    }

    /// Takes a job. The jobs of this rank that it waits for must have been accepted before it.
    pub fn accept(&mut self, job: Job) {
        let id = job.id;
        self.given += 1;
        let mut entry = Entry {
            unmet: 0,
            after: Vec::new(),
            successors: Vec::new(),
            tell: Vec::new(),
            started: false,
            ordinal: self.given,
            broken: None,
            times: Times { received: self.clock.now(), ..Times::default() },
            job,
        };
        for index in 0..entry.job.waits.len() {
            let Some(wait) = entry.job.waits.get(index).copied() else { break };
            if wait.rank == self.rank {
                self.wait_for_own(&mut entry, wait.command);
            } else {
                self.wait_for_foreign(&mut entry, wait);
            }
        }
        let ready = entry.unmet == 0;
        if let Some(collective) = entry.job.collective {
            self.collectives.announce(collective, entry.ordinal);
        }
        if let Command::Move(order) = &entry.job.command
            && order.early
        {
            let start = Start { id, ordinal: entry.ordinal, device: entry.job.device };
            self.moves.start_early(start, order.clone(), &*self.backend);
        }
        self.jobs.insert(id, entry);
        if ready {
            self.ready.push_back(id);
        }
    }

    fn wait_for_own(&mut self, entry: &mut Entry, command: CommandId) {
        if let Some(fault) = self.faults.get(command) {
            if fails_with(&entry.job, command) {
                entry.broken.get_or_insert(fault);
            }
            return;
        }
        // A job that is not in the table has ended without a fault.
        let Some(earlier) = self.jobs.get_mut(&command) else { return };
        earlier.successors.push(entry.job.id);
        if earlier.started && is_ordered(&*self.backend, &earlier.job, &entry.job) {
            entry.after.push(command);
        } else {
            entry.unmet += 1;
        }
    }

    fn wait_for_foreign(&mut self, entry: &mut Entry, Wait { command, rank, is_lenient }: Wait) {
        let foreign = self.foreign.entry(command).or_default();
        match foreign.arrived.pop_front() {
            Some(outcome) => {
                if let Err(fault) = outcome
                    && !is_lenient
                {
                    entry.broken.get_or_insert(fault);
                }
                if foreign.waiting.is_empty() && foreign.arrived.is_empty() {
                    self.foreign.remove(&command);
                }
            }
            None if self.lost.contains_key(&rank) => {
                self.foreign.remove(&command);
                if !is_lenient {
                    let fault = self.lost_fault(command, rank);
                    entry.broken.get_or_insert(fault);
                }
            }
            None => {
                foreign.waiting.push_back(entry.job.id);
                entry.unmet += 1;
            }
        }
    }

    /// Takes the end of another rank's job, for the one job here that waits for it or will wait for
    /// it.
    pub fn heard(&mut self, command: CommandId, outcome: Outcome) {
        let foreign = self.foreign.entry(command).or_default();
        let Some(waiting) = foreign.waiting.pop_front() else {
            foreign.arrived.push_back(outcome);
            return;
        };
        if foreign.waiting.is_empty() && foreign.arrived.is_empty() {
            self.foreign.remove(&command);
        }
        self.met(waiting, command, outcome.err());
    }

    /// Asks for the end of a command of this rank to be sent to `rank`, once for each call.
    pub fn tell(&mut self, command: CommandId, rank: Rank) {
        if let Some(entry) = self.jobs.get_mut(&command) {
            entry.tell.push(rank);
            return;
        }
        let outcome = self.faults.get(command).map_or(Ok(()), Err);
        self.say(rank, Message::Ended { command, outcome });
    }

    /// Notes that `command`, one of the commands that the job `id` waits for, has ended.
    fn met(&mut self, id: CommandId, command: CommandId, fault: Option<Box<Fault>>) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if let Some(fault) = fault
            && fails_with(&entry.job, command)
        {
            entry.broken.get_or_insert(fault);
        }
        entry.unmet = entry.unmet.saturating_sub(1);
        if entry.unmet == 0 && !entry.started {
            self.ready.push_back(id);
        }
    }

    fn say(&mut self, rank: Rank, message: Message) {
        self.messages.entry(rank).or_default().push(message);
    }

    pub fn messages(&mut self) -> impl Iterator<Item = (Rank, Vec<Message>)> + '_ {
        self.messages.iter_mut().filter_map(|(rank, messages)| {
            (!messages.is_empty()).then(|| (*rank, std::mem::take(messages)))
        })
    }

    /// Takes the jobs that have ended.
    pub fn finished(&mut self) -> std::vec::Drain<'_, CommandEnd> {
        self.finished.drain(..)
    }

    /// Starts ready jobs and takes in ended operations until nothing changes. Returns whether
    /// anything did.
    pub fn pump(&mut self, transport: &mut dyn Transport) -> bool {
        let mut moved = false;
        loop {
            let mut again = false;
            while let Some(id) = self.ready.pop_front() {
                again = true;
                self.start(id);
            }
            let mut ended = std::mem::take(&mut self.ended);
            self.backend.poll(&mut ended);
            again |= !ended.is_empty();
            for end in ended.drain(..) {
                self.operation_ended(end);
            }
            self.ended = ended;
            if again {
                for end in std::mem::take(&mut self.deferred) {
                    self.operation_ended(end);
                }
            }
            again |= self.advance_moves(transport);
            moved |= again;
            if !again {
                return moved;
            }
        }
    }

    pub fn moves(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// Takes an event of the transport: an end of a send or a receive, or the loss of a rank.
    pub fn take_event(&mut self, event: &TransportEvent) {
        self.moves.take_event(event);
    }

    /// Notes that a rank is lost. Jobs that wait for its jobs fail.
    pub fn lost(&mut self, rank: Rank, reason: &str) {
        self.lost.insert(rank, reason.to_owned());
        let waiting: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, entry)| !entry.started)
            .flat_map(|(id, entry)| {
                entry
                    .job
                    .waits
                    .iter()
                    .filter(|wait| wait.rank == rank)
                    .map(|wait| (*id, wait.command))
            })
            .collect();
        for (id, command) in waiting {
            let Some(foreign) = self.foreign.get_mut(&command) else { continue };
            let Some(place) = foreign.waiting.iter().position(|waiting| *waiting == id) else {
                continue;
            };
            foreign.waiting.remove(place);
            if foreign.waiting.is_empty() && foreign.arrived.is_empty() {
                self.foreign.remove(&command);
            }
            let fault = self.lost_fault(command, rank);
            self.met(id, command, Some(fault));
        }
    }

    /// Returns the fault of a command of a lost rank.
    fn lost_fault(&self, command: CommandId, rank: Rank) -> Box<Fault> {
        let reason = self.lost.get(&rank).map(String::as_str).unwrap_or_default();
        let fault = self.fault(
            command,
            "a command",
            code::NODE_LOST,
            format!("the rank is lost: {reason}"),
        );
        Box::new(Fault { rank, node: String::new(), ..fault })
    }

    fn start(&mut self, id: CommandId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.started {
            return;
        }
        if let Some(instead) = self.collectives.must_wait(id, entry.job.collective, entry.ordinal) {
            self.ready.extend(instead);
            return;
        }
        entry.started = true;
        entry.times.started = self.clock.now();
        if self.moves.let_through(id, entry.broken.clone()) {
            return;
        }
        let start = Start { id, ordinal: entry.ordinal, device: entry.job.device };
        if let Some(fault) = entry.broken.clone()
            && !entry.job.command.is_release()
        {
            if let Command::Move(order) = &entry.job.command
                && order.crosses_ranks()
            {
                // The other ends must not wait for bytes that never come.
                let order = order.clone();
                self.moves.start_broken(start, order, fault);
                return;
            }
            self.end(id, Err(fault));
            return;
        }
        let whole;
        let command = match &entry.job.command {
            Command::Marker => return self.end(id, Ok(())),
            Command::Move(order) => match order.as_command() {
                Some(command) => {
                    whole = command;
                    &whole
                }
                None => return self.moves.start(start, order.clone(), &*self.backend),
            },
            command => command,
        };
        // SAFETY: the host memory of a command stays valid until the command has ended, see
        // `End::Host`.
        unsafe { self.backend.start(id, entry.job.device, command, &entry.after) };
        self.order_successors(id);
    }

    /// Lets the successors of a started job start as well if the back end keeps their order.
    fn order_successors(&mut self, id: CommandId) {
        let Some(entry) = self.jobs.get(&id) else { return };
        if entry.successors.is_empty() {
            return;
        }
        let ordered: Vec<CommandId> = entry
            .successors
            .iter()
            .filter(|successor| {
                self.jobs
                    .get(successor)
                    .is_some_and(|later| is_ordered(&*self.backend, &entry.job, &later.job))
            })
            .copied()
            .collect();
        for successor in ordered {
            let Some(later) = self.jobs.get_mut(&successor) else { continue };
            if later.started || later.after.contains(&id) {
                continue;
            }
            later.after.push(id);
            later.unmet = later.unmet.saturating_sub(1);
            if later.unmet == 0 {
                self.ready.push_back(successor);
            }
        }
    }

    fn operation_ended(&mut self, end: Ended) {
        let id = end.operation;
        if self.moves.operation_ended(id, &end.outcome) {
            return;
        }
        if matches!(&end.outcome, Err(failure) if failure.code == code::WAIT_LIST_FAILED)
            && self.jobs.get(&id).is_some_and(|entry| {
                entry.after.iter().any(|earlier| self.jobs.contains_key(earlier))
            })
        {
            self.deferred.push(end);
            return;
        }
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if end.times.ended != 0 {
            entry.times.started = end.times.started;
            entry.times.ended = end.times.ended;
        }
        let outcome = match end.outcome {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.root_cause(id, failure)),
        };
        self.end(id, outcome);
    }

    /// Returns the fault of a failed operation, or of the earlier operation that made it fail.
    fn root_cause(&mut self, id: CommandId, failure: Failure) -> Box<Fault> {
        let inherited = self.jobs.get(&id).and_then(|entry| {
            let broken = entry.broken.clone();
            broken.or_else(|| entry.after.iter().find_map(|&earlier| self.faults.get(earlier)))
        });
        if let Some(fault) = inherited {
            return fault;
        }
        let (work, device) = self
            .jobs
            .get(&id)
            .map_or(("a command", 0), |entry| (entry.job.command.name(), entry.job.device));
        let mut fault = self.fault(id, work, failure.code, failure.message);
        fault.device = self.device_name(device);
        if let Some(info) = self.backend.devices().get(device as usize)
            && let Some(place) = info.in_pool
        {
            fault.node.clone_from(&info.hostname);
            fault.rank = place.node;
        }
        fault.log = failure.log;
        Box::new(fault)
    }

    fn fault(&self, command: CommandId, work: &str, code: i32, message: String) -> Fault {
        Fault {
            code,
            command,
            work: work.to_owned(),
            node: self.hostname.clone(),
            rank: self.rank,
            device: String::new(),
            message,
            log: String::new(),
        }
    }

    fn device_name(&self, device: u32) -> String {
        self.backend.devices().get(device as usize).map(DeviceInfo::name).unwrap_or_default()
    }

    /// Ends a job, and tells the jobs and ranks that wait for it.
    fn end(&mut self, id: CommandId, outcome: Outcome) {
        let Some(mut entry) = self.jobs.remove(&id) else { return };
        if let Some(collective) = entry.job.collective {
            self.ready.extend(self.collectives.ended(collective));
        }
        if entry.times.ended == 0 {
            entry.times.ended = self.clock.now();
        }
        if let Err(fault) = &outcome {
            self.faults.insert(id, fault.clone());
            if let Some(heap) = entry.job.command.heap() {
                // Kernels on other devices may wait for this one, which has not run.
                self.backend.abort_heap(heap, &fault.message);
            }
        }
        for successor in std::mem::take(&mut entry.successors) {
            let Some(later) = self.jobs.get_mut(&successor) else { continue };
            let fault = outcome.as_ref().err().cloned();
            if later.after.contains(&id) {
                // The back end orders launches over one heap, so a failed one does not fail the
                // next.
                if let Some(fault) = fault
                    && (later.job.command.heap().is_none() || fails_with(&later.job, id))
                {
                    later.broken.get_or_insert(fault);
                }
            } else {
                self.met(successor, id, fault);
            }
        }
        for rank in std::mem::take(&mut entry.tell) {
            self.say(rank, Message::Ended { command: id, outcome: outcome.clone() });
        }
        let common = |time: u64| time.saturating_add_signed(self.clock_ahead.saturating_neg());
        let Times { received, started, ended } = entry.times;
        let times =
            Times { received: common(received), started: common(started), ended: common(ended) };
        self.finished.push(CommandEnd { id, outcome, times });
    }

    fn advance_moves(&mut self, transport: &mut dyn Transport) -> bool {
        let advanced = self.moves.advance(self.clock.now(), &mut *self.backend, transport);
        for (rank, mut message) in self.moves.messages() {
            if let Message::Broken { fault, .. } = &mut message
                && fault.node.is_empty()
            {
                fault.node.clone_from(&self.hostname);
                fault.rank = self.rank;
            }
            self.say(rank, message);
        }
        let done: Vec<_> = self.moves.done().collect();
        let moved = advanced || !done.is_empty();
        for (id, outcome) in done {
            let outcome = match outcome {
                Ok(()) => Ok(()),
                Err(flow::Broken::Fault(fault)) => Err(fault),
                Err(flow::Broken::Failure(failure)) => Err(self.root_cause(id, failure)),
            };
            self.end(id, outcome);
        }
        moved
    }
}
