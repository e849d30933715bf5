//! Ends, and what workers do.

use super::effects::{apply, stored};
use super::plan::{Act, Op};
use super::random::mix;
use super::world::{
    Job, OF_TRANSFERS, Told, Work, World, allocation_of, event_of, fetch_cells, index_of, marker_of,
};
use crate::names::CommandId;

impl World<'_> {
    // -- ends ----------------------------------------------------------------------------------------------------

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

    /// The marker of something that the client runs itself has ended.
    pub(super) fn after_marker(&mut self, index: usize, is_ok: bool) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        match command.act {
            Act::Run(_) if is_ok => self.functions.push(index),
            Act::Run(_) => self.end_client_event(event_of(index), false),
            // The thread that waits copies.
            _ => {}
        }
    }

    pub(super) fn run_function(&mut self, at: usize) {
        let index = self.functions.swap_remove(at);
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        if let Act::Run(cell) = command.act {
            self.host[cell] = mix(self.host[cell] ^ stored(index));
        }
        self.end_client_event(event_of(index), true);
    }

    pub(super) fn hear(&mut self, link: usize) {
        let told = self.links[link].remove(0);
        for (cell, value) in told.data {
            self.host[cell] = value;
        }
        self.known.insert(told.id, told.is_ok);
        self.machine.ended(told.id, told.is_ok);
        let index = index_of(told.id);
        if told.id.0 < OF_TRANSFERS && told.id == marker_of(index) {
            self.after_marker(index, told.is_ok);
        }
    }

    // -- workers -------------------------------------------------------------------------------------------------

    pub(super) fn can_run(&self, at: usize) -> bool {
        let job = &self.jobs[at];
        let has_ended = |id: &CommandId| self.ended.contains_key(id);
        if !job.waits.iter().chain(&job.ends).all(has_ended) {
            return false;
        }
        if let Work::Arrive(fetch) = &job.work {
            return self.arriving.contains_key(&fetch.arrival);
        }
        let Some((queue, index)) = job.of else { return true };
        let mut before = self.jobs[..at].iter().filter(|it| it.of.is_some_and(|(of, _)| of == queue));
        if self.program.queues[queue].1 {
            return before.next().is_none();
        }
        let act = |index: usize| match &self.program.ops[index].1 {
            Op::Enqueue(command) => Some(command),
            _ => None,
        };
        let waits_for_all =
            act(index).is_some_and(|it| matches!(it.act, Act::Marker | Act::Barrier) && it.waits.is_empty());
        let is_barrier = |job: &Job| {
            job.of.and_then(|(_, index)| act(index)).is_some_and(|it| matches!(it.act, Act::Barrier))
        };
        if waits_for_all { before.next().is_none() } else { !before.any(is_barrier) }
    }

    pub(super) fn run_job(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        let failed = job.waits.iter().any(|id| self.ended.get(id) == Some(&false));
        let mut told = Told { id: job.id, is_ok: !failed, data: Vec::new() };
        if !failed {
            match &job.work {
                Work::Marker => {}
                Work::Depart(fetch) => {
                    let of = allocation_of(fetch);
                    let cells = fetch_cells(fetch).map(|cell| self.memory[job.place][of][cell]).collect();
                    self.arriving.insert(fetch.arrival, cells);
                }
                Work::Arrive(fetch) => {
                    let values = self.arriving.remove(&fetch.arrival).unwrap_or_default();
                    let of = allocation_of(fetch);
                    for (cell, value) in fetch_cells(fetch).zip(values) {
                        self.memory[job.place][of][cell] = value;
                    }
                }
                Work::Command { payload } => {
                    let index = job.of.map_or(0, |(_, index)| index);
                    (told.is_ok, told.data) = self.run_command(index, job.place, payload);
                }
            }
        }
        self.ended.insert(job.id, told.is_ok);
        let link = job.of.map_or(self.program.queues.len() + job.place, |(queue, _)| queue);
        self.links[link].push(told);
    }

    pub(super) fn run_command(
        &mut self,
        index: usize,
        place: usize,
        payload: &[u64],
    ) -> (bool, Vec<(usize, u64)>) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return (true, Vec::new()) };
        let mut data = Vec::new();
        let is_ok = apply(index, &command.act, &mut self.memory[place], &mut |cell, value| match value {
            Some(value) => {
                data.push((cell, value));
                0
            }
            None => payload.get(cell).copied().unwrap_or_default(),
        });
        (is_ok, data)
    }
}
