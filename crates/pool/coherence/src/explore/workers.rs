//! Ends of commands, and the steps of workers.

use super::effects::{apply, stored};
use super::program::{Act, Op};
use super::random::mix;
use super::world::{
    Job, OF_TRANSFERS, Told, Work, World, allocation_of, event_of, fetch_cells, index_of, marker_of,
};
use crate::names::{CommandId, NodeId};

/// Content of memory that has no useful content.
const GARBAGE: u64 = 0xDEAD_BEEF;

impl World<'_> {
    // -- ends -------------------------------------------------------------------------------------

    pub(super) fn end_client_event(&mut self, id: CommandId, is_ok: bool) {
        self.ended.insert(id, is_ok);
        self.known.insert(id, is_ok);
        self.machine.ended(id, is_ok);
    }

    pub(super) fn fail_held(&mut self, id: CommandId) {
        self.ended.insert(id, false);
        self.known.insert(id, false);
        let index = index_of(id);
        if id == marker_of(index) {
            self.after_marker(index, false);
        }
    }

    /// Continues after the marker before the client's own work has ended.
    pub(super) fn after_marker(&mut self, index: usize, is_ok: bool) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        match command.act {
            Act::Run(_) if is_ok => self.functions.push(index),
            Act::Run(_) => self.end_client_event(event_of(index), false),
            // The waiting thread copies.
            _ => {}
        }
    }

    pub(super) fn run_function(&mut self, at: usize) {
        let index = self.functions.swap_remove(at);
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        if let Act::Run(cell) = command.act {
            self.host[cell] = mix(self.host[cell] ^ stored(index));
        }
        self.ran.insert(index);
        self.end_client_event(event_of(index), true);
    }

    pub(super) fn hear(&mut self, link: usize) {
        let told = self.links[link].remove(0);
        for (cell, value) in told.data {
            self.host[cell] = value;
        }
        self.heard_end(told.id, told.is_ok);
    }

    fn heard_end(&mut self, id: CommandId, is_ok: bool) {
        self.known.insert(id, is_ok);
        self.machine.ended(id, is_ok);
        let index = index_of(id);
        if id.0 < OF_TRANSFERS && id == marker_of(index) {
            self.after_marker(index, is_ok);
        }
    }

    // -- workers ----------------------------------------------------------------------------------

    pub(super) fn can_run(&self, at: usize) -> bool {
        let job = &self.jobs[at];
        let has_ended = |id: &CommandId| self.ended.contains_key(id);
        if !job.waits.iter().chain(&job.ends).all(has_ended) {
            return false;
        }
        if let Work::Arrive(fetch) = &job.work {
            let has_come = self.arriving.contains_key(&fetch.arrival);
            return has_come || self.failing_arrivals.contains(&fetch.arrival);
        }
        self.is_next(at)
    }

    /// Returns whether a command can fail now, without waiting for everything or for its turn in
    /// its queue, because something that it waits for has failed.
    pub(super) fn can_fail(&self, at: usize) -> bool {
        let job = &self.jobs[at];
        let has_ended = |id: &CommandId| self.ended.contains_key(id);
        let has_failed = |id: &CommandId| self.ended.get(id) == Some(&false);
        job.waits.iter().any(has_failed)
            && !(job.waits.iter().chain(&job.ends).all(has_ended) && self.is_next(at))
    }

    /// Returns whether it is the command's turn in its queue.
    fn is_next(&self, at: usize) -> bool {
        let job = &self.jobs[at];
        let Some((queue, index)) = job.of else { return true };
        let mut before =
            self.jobs[..at].iter().filter(|it| it.of.is_some_and(|(of, _)| of == queue));
        if self.program.queues[queue].1 {
            return before.next().is_none();
        }
        let act = |index: usize| match &self.program.ops[index].1 {
            Op::Enqueue(command) => Some(command),
            _ => None,
        };
        let waits_for_all = act(index)
            .is_some_and(|it| matches!(it.act, Act::Marker | Act::Barrier) && it.waits.is_empty());
        let is_barrier = |job: &Job| {
            job.of
                .and_then(|(_, index)| act(index))
                .is_some_and(|it| matches!(it.act, Act::Barrier))
        };
        if waits_for_all { before.next().is_none() } else { !before.any(is_barrier) }
    }

    pub(super) fn run_job(&mut self, at: usize) {
        if self.jobs[at].waits.iter().any(|id| self.ended.get(id) == Some(&false)) {
            return self.fail_job(at);
        }
        let job = self.jobs.remove(at);
        let mut told = Told { id: job.id, is_ok: true, data: Vec::new() };
        match &job.work {
            Work::Marker => {}
            Work::Depart(fetch) => {
                // Workers send nothing that a failed transfer has left. The client does not check
                // this.
                let is_arrival = |id: &&CommandId| self.failing_arrivals.contains(*id);
                if !self.is_relaying && fetch.source_waits.iter().any(|id| is_arrival(&id)) {
                    self.failing_arrivals.insert(fetch.arrival);
                }
                let of = allocation_of(fetch);
                let cells =
                    fetch_cells(fetch).map(|cell| self.memory[job.place][of][cell]).collect();
                self.arriving.insert(fetch.arrival, cells);
            }
            Work::Arrive(fetch) => {
                let values = self.arriving.remove(&fetch.arrival).unwrap_or_default();
                told.is_ok = !self.failing_arrivals.contains(&fetch.arrival);
                let of = allocation_of(fetch);
                for (nth, cell) in fetch_cells(fetch).enumerate() {
                    let value = values.get(nth).filter(|_| told.is_ok).copied();
                    self.memory[job.place][of][cell] = value.unwrap_or(GARBAGE);
                }
            }
            Work::Command { payload } => {
                let index = job.of.map_or(0, |(_, index)| index);
                (told.is_ok, told.data) = self.run_command(index, job.place, payload);
            }
        }
        self.end_job(&job, told);
    }

    /// Ends a command without running it, because something that it waits for has failed.
    pub(super) fn fail_job(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        // Failures of the program's wait lists are checked elsewhere.
        if let Some((_, index)) = job.of
            && job.waits.iter().any(|id| id.0 > OF_TRANSFERS && self.ended.get(id) == Some(&false))
        {
            self.excuse(index);
        }
        let told = Told { id: job.id, is_ok: false, data: Vec::new() };
        self.end_job(&job, told);
    }

    fn end_job(&mut self, job: &Job, told: Told) {
        self.ended.insert(job.id, told.is_ok);
        let link = job.of.map_or(self.program.queues.len() + job.place, |(queue, _)| queue);
        self.links[link].push(told);
    }

    fn run_command(
        &mut self,
        index: usize,
        place: usize,
        payload: &[u64],
    ) -> (bool, Vec<(usize, u64)>) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return (true, Vec::new()) };
        self.ran.insert(index);
        let mut data = Vec::new();
        if command.is_refused || self.program.lacks_memory(command) {
            return (false, data);
        }
        apply(index, &command.act, &mut self.memory[place], &mut |cell, value| match value {
            Some(value) => {
                data.push((cell, value));
                0
            }
            None => payload.get(cell).copied().unwrap_or_default(),
        });
        (true, data)
    }

    // -- the loss of a node -----------------------------------------------------------------------

    /// Loses a node: every command there whose end the client has not heard of ends with an error.
    pub(super) fn lose(&mut self, node: u32) {
        self.has_struck = true;
        self.lost.insert(node);
        self.machine.lost(NodeId(node));
        let is_lost = |place: usize| self.program.nodes[place] == node;
        let (gone, stay) =
            std::mem::take(&mut self.jobs).into_iter().partition(|job| is_lost(job.place));
        self.jobs = stay;
        let mut ends: Vec<CommandId> = Vec::new();
        for job in gone {
            self.ended.insert(job.id, false);
            ends.push(job.id);
            // Nothing more comes for the other end of the transfer.
            if let Work::Depart(fetch) = &job.work {
                self.failing_arrivals.insert(fetch.arrival);
            }
        }
        let queues = self.program.queues.len();
        for (link, told) in self.links.iter_mut().enumerate() {
            let place = if link < queues { self.program.queues[link].0 } else { link - queues };
            if self.program.nodes[place] == node {
                ends.extend(told.drain(..).map(|told| told.id));
            }
        }
        for id in ends {
            if id.0 < OF_TRANSFERS {
                self.excused.insert(index_of(id));
            }
            self.heard_end(id, false);
        }
        for place in
            (0..self.program.nodes.len()).filter(|place| self.program.nodes[*place] == node)
        {
            self.memory[place].iter_mut().flatten().for_each(|value| *value = GARBAGE);
        }
    }
}
