//! Moves of bytes between ranks, and within a rank from one source to several sinks.
//!
//! All bytes of a move pass through one place, its *base*: the program's or a buffer's memory if it
//! can be accessed in place, otherwise a block of its own. Pieces arrive there, and each sink takes
//! the bytes that have arrived in order. A large stream between ranks starts when its receiver has
//! said [`Message::Ready`] (see [`admission`]), so a piece that the transport was given never waits
//! for a receiver. A few pieces under way keep the link busy. Streams are served one after the
//! other, so that the first one is complete first.
//!
//! A move that fails breaks its streams off: the receiver gets the remaining pieces with 0 bytes
//! each, and the fault in [`Message::Broken`]. It takes all these pieces, so nobody waits for a
//! piece that never comes.

mod admission;
mod pieces;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::flow::{
    self, Base, Broken, CommandPhase, Flow, SinkProgress, SourcePhase, SourceProgress, arrive,
    block, scratch_block,
};
use crate::backend::{Backend, Failure};
use crate::command::{CommandId, End, Fault, Move, Rank, Stream};
use crate::error::code;
use crate::message::Message;
use crate::transport::{Token, Transport, TransportEvent};
use admission::Admission;

/// Largest stream that is sent without waiting for [`Message::Ready`], in bytes. For a small stream
/// the copy that a transport makes while no receiver is ready costs less than two messages.
pub const EAGER_BYTES_MAX: u64 = 16 << 10;

/// Least number of large pieces under way to other ranks. Two keep a link busy if the second is
/// given before the first ends; the other two cover the time until the scheduler looks again.
const SENDS_MIN: u64 = 4;

/// The same for pieces above [`LARGE_BYTES`]. A link carries one of them for milliseconds, and the
/// scheduler looks again before the second has ended.
const SENDS_MIN_LARGE: u64 = 2;
const LARGE_BYTES: u64 = 4 << 20;

/// Bytes of smaller pieces that may be under way. A scheduler naps for 20 µs or more, in which a
/// link of 3 GB/s carries 64 KiB, and the link is to idle for less than a tenth of the time. Twice
/// this would gain little, and pieces on a fairly shared link would arrive later.
const WINDOW_BYTES: u64 = 512 << 10;

/// Half of the pieces under way may begin within this time, in ns. On a fairly shared link, pieces
/// that begin together end together; the other half keeps the link busy until the scheduler looks
/// again. A burst is over early if all its pieces have ended, because no timer wakes the scheduler.
const BURST_NS: u64 = 10_000;

/// Pieces of a stream that may be awaited, per piece that may be under way. With 2, a sender never
/// waits for a napping receiver.
const RECEIVES_PER_SEND: u64 = 2;

/// Returns how many pieces of `segment` bytes may be under way to other ranks.
fn sends_max(segment: u64) -> u64 {
    let least = if segment > LARGE_BYTES { SENDS_MIN_LARGE } else { SENDS_MIN };
    least.max(WINDOW_BYTES / segment.max(1))
}

/// Bit that marks the id of an operation that is a part of a move. No command's id has it.
const PART: u64 = 1 << 63;

#[derive(Debug, Default)]
pub struct Moves {
    /// Ordered by id, so that moves that the program issued earlier are served first.
    flows: BTreeMap<CommandId, Flow>,
    /// The move of each operation, and what the operation does for it.
    parts: FxHashMap<CommandId, (CommandId, Part)>,
    tokens: FxHashMap<Token, (CommandId, Part)>,
    next_part: u64,
    next_token: u64,
    /// Number of large pieces under way to other ranks.
    sends: u64,
    admission: Admission,
    /// Number of large pieces sent since `burst_began` (in ns), and whether more pieces wait for
    /// the end of the burst. After it, [`Self::advance`] lifts the limit if `sends` is 0; otherwise
    /// the end of a piece, or the loss of its rank, makes it run again.
    burst: u64,
    burst_began: u64,
    is_limited: bool,
    /// Streams whose receivers are ready.
    ready: FxHashSet<(Rank, Stream)>,
    /// Faults of streams that their senders broke off.
    faults: FxHashMap<(Rank, Stream), Box<Fault>>,
    /// Lost ranks, and why each was lost. Later moves must not wait for them.
    lost: FxHashMap<Rank, String>,
    done: Vec<(CommandId, Result<(), Broken>)>,
    messages: Vec<(Rank, Message)>,
    changed: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub id: CommandId,
    /// Ordinal of its job on this rank.
    pub ordinal: u64,
    pub device: u32,
}

/// What the end of an operation or transfer means for its move.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The piece of this index has arrived at the base.
    Arrived { index: u64, size: u64 },
    /// A piece has left for another rank, the sink of this index.
    Sent { sink: usize, is_large: bool },
    /// A piece has been written to the sink of this index.
    Written { sink: usize, size: u64 },
}

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether large pieces are under way to other ranks.
    pub fn is_sending(&self) -> bool {
        self.sends > 0
    }

    /// Starts a move whose waits have ended.
    pub fn start(&mut self, start: Start, order: Move, backend: &dyn Backend) {
        let base = flow::base(&order, backend);
        self.insert(start, order, base, None, backend.is_hollow(), false);
    }

    /// Receives the bytes of a move whose waits have not ended.
    pub fn start_early(&mut self, start: Start, order: Move, backend: &dyn Backend) {
        // The move gets a base when it is admitted.
        self.insert(start, order, None, None, backend.is_hollow(), true);
    }

    /// Notes that the waits of a move that was started early have ended. If one failed, the local
    /// sinks get nothing. Returns whether `id` is such a move.
    pub fn let_through(&mut self, id: CommandId, fault: Option<Box<Fault>>) -> bool {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.command == CommandPhase::Held)
        else {
            return false;
        };
        flow.command = CommandPhase::Running;
        self.changed = true;
        if let Some(fault) = fault {
            for (sink, state) in flow
                .order
                .sinks
                .iter()
                .zip(&mut flow.sinks)
                .filter(|(sink, _)| Flow::is_local(sink))
            {
                *state =
                    SinkProgress { given: sink.size, there: sink.size, ..SinkProgress::default() };
            }
            flow.command = CommandPhase::Reported;
            self.done.push((id, Err(Broken::Fault(fault))));
        }
        true
    }

    /// Starts a move that cannot be done: breaks its streams off.
    pub fn start_broken(&mut self, start: Start, order: Move, fault: Box<Fault>) {
        self.done.push((start.id, Err(Broken::Fault(fault.clone()))));
        // Bytes that still arrive need a place.
        let base = scratch_block(&order);
        self.insert(start, order, Some(base), Some(Broken::Fault(fault)), true, false);
    }

    fn insert(
        &mut self,
        Start { id, ordinal, device }: Start,
        order: Move,
        base: Option<Base>,
        broken: Option<Broken>,
        is_hollow: bool,
        is_held: bool,
    ) {
        let sinks = order.sinks.iter().map(|_| SinkProgress::default()).collect();
        let command = match (is_held, &broken) {
            (true, _) => CommandPhase::Held,
            (false, None) => CommandPhase::Running,
            // The caller has reported the fault.
            (false, Some(_)) => CommandPhase::Reported,
        };
        let mut flow = Flow {
            id,
            device,
            ordinal,
            order,
            base,
            source: SourceProgress::default(),
            sinks,
            command,
            broken: None,
            is_hollow,
        };
        self.admit_new(&mut flow, is_held);
        if flow.base.is_none() && !is_held {
            self.has_no_memory(&mut flow);
        }
        if let Some(broken) = broken {
            self.break_off(&mut flow, broken);
        }
        let ends = flow.order.sinks.iter().map(|sink| sink.to).chain([flow.order.source]);
        let ranks =
            ends.filter_map(|end| if let End::Rank { rank, .. } = end { Some(rank) } else { None });
        let lost: Vec<_> =
            ranks.filter_map(|rank| Some((rank, self.lost.get(&rank)?.clone()))).collect();
        self.flows.insert(id, flow);
        self.changed = true;
        for (rank, reason) in lost {
            self.lost(rank, &reason);
        }
    }

    /// Admits a new move from another rank, now or later.
    fn admit_new(&mut self, flow: &mut Flow, is_early: bool) {
        let End::Rank { rank, stream } = flow.order.source else { return };
        if is_early && self.admission.add(flow.ordinal, flow.id, (rank, stream)) {
            flow.source.phase = SourcePhase::Waiting;
            return;
        }
        self.await_stream(flow);
    }

    /// Takes the offer of a sender that has bytes but no `Ready` for their stream.
    pub fn stream_offered(&mut self, rank: Rank, stream: Stream) {
        if let Some(id) = self.admission.offered((rank, stream)) {
            self.admit(id);
        }
    }

    fn admit_more(&mut self) {
        while let Some(id) = self.admission.next() {
            self.admit(id);
        }
    }

    fn admit(&mut self, id: CommandId) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        self.await_stream(&mut flow);
        self.flows.insert(id, flow);
        self.changed = true;
    }

    fn await_stream(&mut self, flow: &mut Flow) {
        flow.source.phase = SourcePhase::Admitted;
        if let End::Rank { rank, stream } = flow.order.source
            && flow.order.size > EAGER_BYTES_MAX
        {
            self.messages.push((rank, Message::Ready { stream }));
        }
    }

    /// Gives a base to a move that was started early.
    fn make_room(&mut self, flow: &mut Flow) {
        let is_unused = flow.is_hollow || flow.broken.is_some();
        flow.base = if is_unused { Some(scratch_block(&flow.order)) } else { block(&flow.order) };
        if flow.base.is_none() {
            self.has_no_memory(flow);
        }
    }

    fn has_no_memory(&mut self, flow: &mut Flow) {
        let message = format!("not enough memory for a transfer of {} bytes", flow.order.size);
        // Bytes that still arrive need a place.
        flow.base = Some(scratch_block(&flow.order));
        flow.is_hollow = true;
        let failure = Failure { code: code::OUT_OF_HOST_MEMORY, message, log: String::new() };
        self.break_off(flow, Broken::Failure(failure));
    }

    /// Breaks a move off: local sinks get nothing more, and the other ranks are told the fault.
    fn break_off(&mut self, flow: &mut Flow, broken: Broken) {
        if flow.broken.is_some() {
            return;
        }
        for (sink, state) in flow.order.sinks.iter().zip(&mut flow.sinks) {
            match sink.to {
                End::Rank { rank, stream } => {
                    let fault = match &broken {
                        Broken::Fault(fault) => Some(fault.clone()),
                        Broken::Failure(failure) => Some(Box::new(Fault {
                            code: failure.code,
                            command: flow.id,
                            work: "a move".into(),
                            node: String::new(),
                            rank: 0,
                            device: String::new(),
                            message: failure.message.clone(),
                            log: String::new(),
                        })),
                    };
                    if let Some(fault) = fault {
                        self.messages.push((rank, Message::Broken { stream, fault }));
                    }
                }
                _ => {
                    // Writes under way still end; the remaining bytes count as written.
                    state.there += sink.size - state.given;
                    state.given = sink.size;
                }
            }
        }
        if !matches!(flow.order.source, End::Rank { .. }) {
            // Reads under way still end.
            flow.source.next = flow.pieces();
            flow.source.arrived = flow.order.size;
        }
        flow.broken = Some(broken);
    }

    /// Notes that the receiver of a stream is ready.
    pub fn receiver_ready(&mut self, rank: Rank, stream: Stream) {
        self.ready.insert((rank, stream));
        self.changed = true;
    }

    /// Notes that the sender of a stream has broken it off.
    pub fn stream_broken(&mut self, rank: Rank, stream: Stream, fault: Box<Fault>) {
        self.faults.insert((rank, stream), fault);
        self.changed = true;
    }

    pub fn messages(&mut self) -> Vec<(Rank, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Takes the moves that have ended, with their outcomes.
    pub fn done(&mut self) -> std::vec::Drain<'_, (CommandId, Result<(), Broken>)> {
        self.done.drain(..)
    }

    /// Takes an event of the transport.
    pub fn take_event(&mut self, event: &TransportEvent) {
        match event {
            TransportEvent::Sent(token) => {
                if let Some((id, Part::Sent { sink, is_large })) = self.tokens.remove(token) {
                    if is_large {
                        self.sends = self.sends.saturating_sub(1);
                    }
                    self.sent(id, sink);
                }
            }
            TransportEvent::Received(token, length) => {
                if let Some((id, Part::Arrived { index, size })) = self.tokens.remove(token) {
                    self.received(id, index, size, *length as u64);
                }
            }
            TransportEvent::Lost(rank, reason) => self.lost(*rank, reason),
            TransportEvent::Control(..) => {}
        }
        self.changed = true;
    }

    fn sent(&mut self, id: CommandId, sink: usize) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if let Some(state) = flow.sinks.get_mut(sink) {
            state.under_way = state.under_way.saturating_sub(1);
            if state.under_way == 0 {
                state.there = state.given;
            }
        }
    }

    fn received(&mut self, id: CommandId, index: u64, size: u64, length: u64) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        flow.source.awaited = flow.source.awaited.saturating_sub(1);
        if length < size && flow.broken.is_none() {
            flow.source.phase = SourcePhase::AwaitsFault;
        }
        arrive(&mut flow, index);
        self.flows.insert(id, flow);
    }

    fn lost(&mut self, lost: Rank, reason: &str) {
        self.lost.insert(lost, reason.to_owned());
        let failure = |what: &str| Failure {
            code: code::NODE_LOST,
            message: format!("rank {lost}, {what}, is lost: {reason}"),
            log: String::new(),
        };
        let ids: Vec<_> = self.flows.keys().copied().collect();
        for id in ids {
            let Some(mut flow) = self.flows.remove(&id) else { continue };
            for (index, (sink, state)) in flow.order.sinks.iter().zip(&mut flow.sinks).enumerate() {
                if matches!(sink.to, End::Rank { rank, .. } if rank == lost) {
                    // Nobody is there to take the rest. The other receivers of these bytes are not
                    // affected.
                    *state = SinkProgress {
                        given: sink.size,
                        there: sink.size,
                        ..SinkProgress::default()
                    };
                    let mine = |part: &(CommandId, Part)| {
                        part.0 == id && matches!(part.1, Part::Sent { sink, .. } if sink == index)
                    };
                    let large = self
                        .tokens
                        .values()
                        .filter(|part| {
                            mine(part) && matches!(part.1, Part::Sent { is_large: true, .. })
                        })
                        .count();
                    self.sends = self.sends.saturating_sub(large as u64);
                    self.tokens.retain(|_, part| !mine(part));
                }
            }
            // The sender of a broken stream may be lost before it has sent the fault.
            let lacks = !flow.has_all() || flow.source.phase == SourcePhase::AwaitsFault;
            if matches!(flow.order.source, End::Rank { rank, .. } if rank == lost) && lacks {
                self.tokens
                    .retain(|_, part| part.0 != id || !matches!(part.1, Part::Arrived { .. }));
                flow.source.awaited = 0;
                flow.source.phase = SourcePhase::Admitted;
                flow.source.next = flow.pieces();
                flow.source.arrived = flow.order.size;
                self.break_off(&mut flow, Broken::Failure(failure("which had the bytes")));
            }
            self.flows.insert(id, flow);
        }
        self.ready.retain(|(rank, _)| *rank != lost);
    }

    /// Takes the end of an operation. Returns whether the operation was a part of a move.
    pub fn operation_ended(&mut self, id: CommandId, outcome: &Result<(), Failure>) -> bool {
        if id.0 & PART == 0 {
            return false;
        }
        self.changed = true;
        let Some((owner, part)) = self.parts.remove(&id) else { return true };
        let Some(mut flow) = self.flows.remove(&owner) else { return true };
        match part {
            Part::Arrived { index, .. } => {
                flow.source.awaited = flow.source.awaited.saturating_sub(1);
                if flow.broken.is_none() {
                    arrive(&mut flow, index);
                }
            }
            Part::Written { sink, size } => {
                if let Some(state) = flow.sinks.get_mut(sink) {
                    state.there += size;
                    state.under_way = state.under_way.saturating_sub(1);
                }
            }
            Part::Sent { .. } => {}
        }
        if let Err(failure) = outcome {
            self.break_off(&mut flow, Broken::Failure(failure.clone()));
        }
        self.flows.insert(owner, flow);
        true
    }

    /// Advances all moves as far as possible. Returns whether it had anything to look at.
    pub fn advance(
        &mut self,
        now: u64,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) -> bool {
        // The end of a piece wakes a sleeping scheduler, the end of a burst does not. So the end of
        // the last piece ends the burst as well.
        let is_over = now.saturating_sub(self.burst_began) >= BURST_NS;
        if is_over || (self.is_limited && self.sends == 0) {
            self.burst = 0;
            self.burst_began = now;
            self.changed |= std::mem::take(&mut self.is_limited);
        }
        if !std::mem::take(&mut self.changed) {
            return false;
        }
        self.admit_more();
        let ids: Vec<CommandId> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.source.phase != SourcePhase::Waiting)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(mut flow) = self.flows.remove(&id) else { continue };
            if flow.base.is_none() {
                self.make_room(&mut flow);
            }
            self.find_fault(&mut flow);
            self.ask_source(id, &mut flow, backend, transport);
            self.feed_all(id, &mut flow, backend, transport);
            if flow.has_all() && self.admission.end(id) {
                self.changed = true;
            }
            if flow.command == CommandPhase::Running
                && (flow.is_done() || flow.broken.is_some())
                && flow.source.phase != SourcePhase::AwaitsFault
                && self.may_end(&flow)
            {
                flow.command = CommandPhase::Reported;
                let outcome = flow.broken.clone().map_or(Ok(()), Err);
                self.done.push((id, outcome));
            }
            if flow.is_over() && flow.command == CommandPhase::Reported {
                self.forget(&flow);
            } else {
                self.flows.insert(id, flow);
            }
        }
        true
    }

    /// Whether a failed move may end: nobody writes to the program's memory any more.
    fn may_end(&self, flow: &Flow) -> bool {
        flow.broken.is_none()
            || (flow.source.awaited == 0 && flow.sinks.iter().all(|state| state.under_way == 0))
    }

    fn forget(&mut self, flow: &Flow) {
        for sink in &flow.order.sinks {
            if let End::Rank { rank, stream } = sink.to {
                self.ready.remove(&(rank, stream));
            }
        }
        if let End::Rank { rank, stream } = flow.order.source {
            self.faults.remove(&(rank, stream));
            self.admission.forget(flow.ordinal, flow.id, (rank, stream));
        }
    }

    fn find_fault(&mut self, flow: &mut Flow) {
        if flow.source.phase != SourcePhase::AwaitsFault {
            return;
        }
        if let End::Rank { rank, stream } = flow.order.source
            && let Some(fault) = self.faults.remove(&(rank, stream))
        {
            flow.source.phase = SourcePhase::Admitted;
            self.break_off(flow, Broken::Fault(fault));
        }
    }
}
