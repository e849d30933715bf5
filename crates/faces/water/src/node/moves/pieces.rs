//! Asks the source for pieces, and gives them to the sinks.

use super::super::flow::{CommandPhase, Flow, SourcePhase, copy};
use super::{EAGER_BYTES_MAX, Moves, PART, Part, RECEIVES_PER_SEND, sends_max};
use crate::backend::Backend;
use crate::command::{Command, CommandId, End, Rank, Sink, Stream};
use crate::message::Message;
use crate::transport::{Span, Token, Transport};

impl Moves {
    /// Asks the source for the next pieces.
    pub(super) fn ask_source(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) {
        match flow.order.source {
            End::Host { .. } => flow.source.arrived = flow.order.size,
            End::Buffer { .. }
                if (flow.is_hollow && !backend.takes_time(flow.device))
                    || flow
                        .base
                        .as_ref()
                        .is_some_and(|base| base.is_live && base.sink.is_none()) =>
            {
                flow.source.arrived = flow.order.size;
            }
            End::Buffer { buffer, offset } => {
                while flow.source.next < flow.pieces()
                    && flow.source.awaited < RECEIVES_PER_SEND * sends_max(flow.order.segment)
                {
                    let (start, size) = flow.piece(flow.source.next);
                    let part = self.part(id, Part::Arrived { index: flow.source.next, size });
                    let Some(base) = &flow.base else { return };
                    let address = base.at(start, size).address();
                    let read = Command::Read { buffer, offset: offset + start, size, address };
                    // SAFETY: the base lives until the flow is forgotten, which waits for all
                    // its parts.
                    unsafe { backend.start(part, flow.device, &read, &[]) };
                    flow.source.next += 1;
                    flow.source.awaited += 1;
                }
            }
            End::Rank { .. } if flow.source.phase == SourcePhase::Waiting => {}
            End::Rank { rank, stream } => {
                while flow.source.next < flow.pieces()
                    && flow.source.awaited < RECEIVES_PER_SEND * sends_max(flow.order.segment)
                {
                    let (start, size) = flow.piece(flow.source.next);
                    let token = self.token(id, Part::Arrived { index: flow.source.next, size });
                    let Some(base) = &flow.base else { return };
                    let place =
                        if flow.is_hollow { base.at(0, size) } else { base.at(start, size) };
                    // SAFETY: as above, and nobody reads bytes of the base that have not arrived.
                    unsafe { transport.receive(rank, stream, place, token) };
                    flow.source.next += 1;
                    flow.source.awaited += 1;
                }
            }
        }
    }

    /// Gives all sinks the bytes that have arrived. Other ranks get single pieces in turn, so that
    /// no subtree waits until another one has everything.
    pub(super) fn feed_all(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) {
        let mut turns: Vec<usize> = (0..flow.sinks.len()).collect();
        loop {
            turns.sort_by_key(|sink| flow.sinks.get(*sink).map(|state| state.given));
            if !turns.iter().any(|sink| self.feed(id, flow, *sink, backend, transport)) {
                return;
            }
        }
    }

    /// Gives a sink the bytes that have arrived, or one piece of them if the sink is another rank.
    /// Returns whether that rank may get more.
    fn feed(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        index: usize,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) -> bool {
        let Some(sink) = flow.order.sinks.get(index).copied() else { return false };
        let available = flow.source.arrived.saturating_sub(sink.first).min(sink.size);
        if let End::Rank { rank, stream } = sink.to {
            return self.feed_rank(id, flow, (index, &sink), available, (rank, stream), transport);
        }
        self.feed_here(id, flow, (index, &sink), available, backend);
        false
    }

    /// Gives another rank one piece of the bytes that have arrived. Returns whether it may get
    /// more.
    fn feed_rank(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        (index, sink): (usize, &Sink),
        available: u64,
        to: (Rank, Stream),
        transport: &mut dyn Transport,
    ) -> bool {
        let (Some(base), Some(state)) = (flow.base.as_ref(), flow.sinks.get_mut(index)) else {
            return false;
        };
        let is_broken = flow.broken.is_some();
        let is_large = sink.size > EAGER_BYTES_MAX;
        if is_large && state.given < sink.size && !self.ready.contains(&to) {
            if (available > 0 || is_broken) && !std::mem::replace(&mut state.is_offered, true) {
                self.messages.push((to.0, Message::Offer { stream: to.1 }));
            }
            return false;
        }
        if state.given >= sink.size || (is_large && self.sends >= sends_max(flow.order.segment)) {
            return false;
        }
        let size = flow.order.segment.max(1).min(sink.size - state.given);
        if state.given + size > available && !is_broken {
            return false;
        }
        if is_large && self.burst >= sends_max(flow.order.segment).div_ceil(2) {
            self.is_limited = true;
            return false;
        }
        self.burst += u64::from(is_large);
        let start = if flow.is_hollow { 0 } else { sink.first + state.given };
        let mut piece = base.at(start, size);
        if is_broken {
            piece.length = 0;
        }
        let token = self.token(id, Part::Sent { sink: index, is_large });
        state.given += size;
        state.under_way += 1;
        self.sends += u64::from(is_large);
        // SAFETY: the base lives until the flow is forgotten, and bytes that have arrived do not
        // change.
        unsafe { transport.send(to.0, to.1, piece, token) };
        true
    }

    /// Gives the program's memory or a buffer all bytes that have arrived.
    fn feed_here(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        (index, sink): (usize, &Sink),
        available: u64,
        backend: &mut dyn Backend,
    ) {
        let (Some(base), Some(state)) = (flow.base.as_ref(), flow.sinks.get_mut(index)) else {
            return;
        };
        if flow.command == CommandPhase::Held || flow.broken.is_some() || state.given >= available {
            return;
        }
        let size = available - state.given;
        let from = base.at(sink.first + state.given, size);
        let is_there = base.sink == Some(index)
            || match sink.to {
                End::Rank { .. } => false,
                End::Host { .. } if flow.is_hollow => true,
                End::Buffer { .. } if flow.is_hollow && !backend.takes_time(flow.device) => true,
                End::Host { address } => {
                    copy(from, Span::of_address(address + state.given, size));
                    true
                }
                End::Buffer { buffer, offset } => {
                    let memory = backend.memory(buffer, offset + state.given, size);
                    memory.map(|memory| copy(from, memory.span)).is_some()
                }
            };
        if is_there {
            state.there += size;
        } else if let End::Buffer { buffer, offset } = sink.to {
            let part = self.part(id, Part::Written { sink: index, size });
            let (offset, address) = (offset + state.given, from.address());
            let write = Command::Write { buffer, offset, size, address };
            state.under_way += 1;
            // SAFETY: the base lives until the flow is forgotten, which waits for all its parts.
            unsafe { backend.start(part, flow.device, &write, &[]) };
        }
        state.given = available;
    }

    fn part(&mut self, id: CommandId, part: Part) -> CommandId {
        self.next_part += 1;
        let operation = CommandId(PART | self.next_part);
        self.parts.insert(operation, (id, part));
        operation
    }

    fn token(&mut self, id: CommandId, part: Part) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.tokens.insert(token, (id, part));
        token
    }
}
