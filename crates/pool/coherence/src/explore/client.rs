//! The client's part for a command: it asks the machine, then sends, holds back, or copies in
//! place.

use super::effects::{host_use, initial};
use super::program::{Act, CELL_BYTES, Command, Fault, Op, Program, Span, host_cells};
use super::world::{
    CONTEXT, Doing, Job, Work, World, allocation_of, event_of, fetch_cells, marker_of, namer,
};
use crate::command::{InPlace, Plan, Source, Submit, Sync, Verdict};
use crate::names::{AllocationId, CommandId, QueueId};
use crate::{Access, Use};

impl World<'_> {
    pub(super) fn enqueue(&mut self, index: usize, command: &Command) -> Doing {
        let id = event_of(index);
        let waits: Vec<CommandId> = command.waits.iter().map(|of| event_of(*of)).collect();
        let in_order = self.program.queues[command.queue].1;
        if waits.iter().any(|id| self.known.get(id) == Some(&false)) {
            // The client fails such a command without asking the machine.
            self.known.insert(id, false);
            self.ended.insert(id, false);
            return Doing::Next;
        }
        let (reads_host, writes_host) = host_use(command);
        let in_place = InPlace {
            queue: QueueId(command.queue as u64),
            in_order,
            context: CONTEXT,
            is_idle: self.sent[command.queue].iter().all(|id| self.known.contains_key(id)),
            waits_ended: waits
                .iter()
                .all(|id| self.known.get(id) == Some(&true) && self.is_known(*id)),
        };
        if is_shared(self.program, command) && self.machine.may_copy(&in_place) {
            self.in_place += 1;
            self.copy_in_place(index);
            self.ran.insert(index);
            self.end_client_event(id, true);
            return Doing::Next;
        }
        let waits: Vec<_> = waits.into_iter().filter(|id| !self.is_known(*id)).collect();
        let uses = self.uses(command);
        let sync = match command.act {
            Act::Marker => Some(Sync { is_listed: !command.waits.is_empty(), is_barrier: false }),
            Act::Barrier => Some(Sync { is_listed: !command.waits.is_empty(), is_barrier: true }),
            _ => None,
        };
        let name = sent_name(self.program, index, command);
        let verdict = self.machine.submit(
            &Submit {
                id: name,
                queue: QueueId(command.queue as u64),
                in_order,
                context: CONTEXT,
                place: self.program.queues[command.queue].0,
                waits: &waits,
                sync,
                uses: &uses,
                reads_host,
                writes_host,
                gate: (name != id).then_some(id),
            },
            &mut namer(&mut self.names),
        );
        match verdict {
            Verdict::Send { plan, .. } => {
                self.locked.insert(command.queue);
                Doing::Sending(index, plan)
            }
            Verdict::Hold { .. } => {
                self.held += 1;
                if !command.is_blocking {
                    return Doing::Next;
                }
                match command.act {
                    Act::Write(..) => Doing::UntilPassed(index),
                    _ => self.after_send(index, command),
                }
            }
            Verdict::ContentLost => {
                self.excuse(index);
                self.known.insert(id, false);
                self.ended.insert(id, false);
                Doing::Next
            }
        }
    }

    pub(super) fn after_send(&mut self, index: usize, command: &Command) -> Doing {
        match command.act {
            _ if !command.is_blocking => Doing::Next,
            Act::Write(..) if !self.is_behind_writers.contains(&event_of(index)) => {
                self.settle(index, command);
                Doing::Next
            }
            _ if reads_in_place(self.program, command) => Doing::UntilReached(index),
            _ => Doing::UntilKnown(index),
        }
    }

    /// Notes that a blocking write has returned, so that other queues of the context see its bytes.
    fn settle(&mut self, index: usize, command: &Command) {
        let id = event_of(index);
        if !self.known.contains_key(&id) {
            let (queue, in_order) =
                (QueueId(command.queue as u64), self.program.queues[command.queue].1);
            self.machine.settle(CONTEXT, queue, in_order, id);
        }
    }

    fn uses(&self, command: &Command) -> Vec<Use> {
        if self.program.nodes.len() == 1 {
            return Vec::new();
        }
        let of = |span: &Span, access| Use {
            allocation: AllocationId(span.of as u64),
            start: span.at as u64 * CELL_BYTES,
            end: (span.at + span.count) as u64 * CELL_BYTES,
            access,
        };
        match &command.act {
            Act::Kernel(uses) => uses.iter().map(|(span, access)| of(span, *access)).collect(),
            Act::Write(span, ..) => vec![of(span, Access::Overwrite)],
            Act::Read(span, ..) => vec![of(span, Access::Read)],
            Act::Copy(from, to) => vec![of(from, Access::Read), of(to, Access::Overwrite)],
            Act::Marker | Act::Barrier | Act::Run(_) => Vec::new(),
        }
    }

    pub(super) fn send(&mut self, index: usize, plan: &Plan) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        let has_started = self.send_fetches(plan);
        let id = sent_name(self.program, index, command);
        let place = self.program.queues[command.queue].0;
        // The client itself fails a command if it now knows that something that the command waits
        // for has failed, or that the command's node is lost. The machine has already decided about
        // client events. The transfers of the plan take place nevertheless, because the machine
        // counts on them.
        let has_failed = |of: &usize| {
            let id = event_of(*of);
            self.told_workers.contains(&id) && self.known.get(&id) == Some(&false)
        };
        let is_lost = !has_started || self.is_lost(place);
        if is_lost || command.waits.iter().any(has_failed) {
            if is_lost {
                self.excuse(index);
            }
            self.machine.ended(id, false);
            return self.fail_held(id);
        }
        // Workers know nothing of client events.
        let mut waits: Vec<CommandId> = command.waits.iter().map(|of| event_of(*of)).collect();
        waits.retain(|id| self.told_workers.contains(id));
        waits.extend(&plan.waits);
        let work = match &command.act {
            _ if id != event_of(index) => Work::Marker,
            Act::Write(span, first, pitch) => {
                let payload =
                    host_cells(*first, *pitch, span.count).map(|cell| self.host[cell]).collect();
                Work::Command { payload }
            }
            _ => Work::Command { payload: Vec::new() },
        };
        self.behind.insert(id, plan.behind.clone());
        // A blocking write whose wait list is open also waits for its end.
        let is_open = |of: &usize| !self.known.contains_key(&event_of(*of));
        if plan.is_behind_writers || command.waits.iter().any(is_open) {
            self.is_behind_writers.insert(id);
        }
        self.sent[command.queue].push(id);
        self.told_workers.insert(id);
        let of = Some((command.queue, index));
        self.jobs.push(Job { id, place, of, waits, ends: plan.ends.clone(), work });
    }

    /// Starts transfers. Returns `false` if one could not be started because a node is lost. The
    /// transfers after it are then not started either.
    pub(super) fn send_fetches(&mut self, plan: &Plan) -> bool {
        let mut has_started = true;
        for fetch in &plan.fetches {
            let source = match fetch.source {
                Source::Initial if self.has_no_memory(fetch.target) => continue,
                Source::Initial => {
                    for cell in fetch_cells(fetch) {
                        let of = allocation_of(fetch);
                        self.memory[fetch.target][of][cell] = initial(of, cell);
                    }
                    continue;
                }
                Source::Place(source) => source,
            };
            if !has_started || self.is_lost(source) || self.is_lost(fetch.target) {
                has_started = false;
                for id in [fetch.departure, fetch.arrival] {
                    self.end_client_event(id, false);
                }
                continue;
            }
            if self.program.fault == Some(Fault::Transfer(self.started)) {
                self.has_struck = true;
                self.failing_arrivals.insert(fetch.arrival);
            }
            if self.has_no_memory(source) || self.has_no_memory(fetch.target) {
                self.failing_arrivals.insert(fetch.arrival);
            }
            self.started += 1;
            let job = |id, place, ends: &[CommandId], work| Job {
                id,
                place,
                of: None,
                waits: Vec::new(),
                ends: ends.to_vec(),
                work,
            };
            let depart = Work::Depart(fetch.clone());
            self.jobs.push(job(fetch.departure, source, &fetch.source_waits, depart));
            let arrive = Work::Arrive(fetch.clone());
            self.jobs.push(job(fetch.arrival, fetch.target, &fetch.target_waits, arrive));
        }
        has_started
    }

    pub(super) fn copy_in_place(&mut self, index: usize) {
        let Op::Enqueue(command) = &self.program.ops[index].1 else { return };
        match &command.act {
            Act::Write(span, first, pitch) => {
                for (cell, host) in (span.at..).zip(host_cells(*first, *pitch, span.count)) {
                    self.memory[0][span.of][cell] = self.host[host];
                }
            }
            Act::Read(span, first, pitch) => {
                for (cell, host) in (span.at..).zip(host_cells(*first, *pitch, span.count)) {
                    self.host[host] = self.memory[0][span.of][cell];
                }
            }
            _ => {}
        }
    }
}

/// Returns the name of the command that is sent for an operation: the command itself, or the marker
/// before the client's own work.
pub(super) fn sent_name(program: &Program, index: usize, command: &Command) -> CommandId {
    let is_marker = matches!(command.act, Act::Run(_)) || reads_in_place(program, command);
    if is_marker { marker_of(index) } else { event_of(index) }
}

/// Returns whether the host shares the memory of a transfer with the device, so that it may copy in
/// place. Images are not shared.
pub(super) fn is_shared(program: &Program, command: &Command) -> bool {
    program.nodes.len() == 1
        && matches!(&command.act, Act::Write(span, ..) | Act::Read(span, ..) if !program.allocations[span.of].is_indivisible)
}

/// Returns whether the command is a blocking read of shared memory. The host waits for its turn and
/// copies itself.
fn reads_in_place(program: &Program, command: &Command) -> bool {
    is_shared(program, command) && command.is_blocking && matches!(command.act, Act::Read(..))
}
