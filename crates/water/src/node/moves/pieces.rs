//! Pieces: asked for at the source, given to the sinks.

use super::super::flow::{Flow, copy};
use super::super::span;
use super::{EAGER_BYTES_MAX, Moves, PART, Part, RECEIVES_PER_SEND, sends_max};
use crate::backend::{Backend, Operation};
use crate::command::{CommandId, End, Message};
use crate::transport::{Token, Transport};

impl Moves {
    /// Asks for the next pieces.
    pub(super) fn ask_source(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) {
        match flow.order.source {
            End::Host { .. } => flow.arrived = flow.order.size,
            End::Buffer { .. }
                if (flow.hollow && !backend.takes_time(flow.device))
                    || flow.base.as_ref().is_some_and(|base| base.is_live && base.sink.is_none()) =>
            {
                flow.arrived = flow.order.size;
            }
            End::Buffer { buffer, offset } => {
                while flow.next < flow.pieces()
                    && flow.awaited < RECEIVES_PER_SEND * sends_max(flow.order.segment)
                {
                    let (start, size) = flow.piece(flow.next);
                    let part = self.part(id, Part::Arrived { index: flow.next, size });
                    let Some(base) = &flow.base else { return };
                    let operation =
                        Operation::Read { buffer, offset: offset + start, into: base.at(start, size) };
                    // SAFETY: the base lives until the flow is forgotten, which waits for all its parts.
                    unsafe { backend.start(part, flow.device, &operation, &[]) };
                    flow.next += 1;
                    flow.awaited += 1;
                }
            }
            End::Rank { .. } if !flow.is_admitted => {}
            End::Rank { rank, stream } => {
                while flow.next < flow.pieces()
                    && flow.awaited < RECEIVES_PER_SEND * sends_max(flow.order.segment)
                {
                    let (start, size) = flow.piece(flow.next);
                    let token = self.token(id, Part::Arrived { index: flow.next, size });
                    let Some(base) = &flow.base else { return };
                    let place = if flow.hollow { base.at(0, size) } else { base.at(start, size) };
                    // SAFETY: as above; nobody reads bytes of the base that have not arrived.
                    unsafe { transport.receive(rank, stream, place, token) };
                    flow.next += 1;
                    flow.awaited += 1;
                }
            }
        }
    }

    /// Gives all sinks what has arrived, other ranks piece by piece in turns: of a tree's subtrees none waits until another has all.
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

    /// Gives a sink what has arrived; another rank one piece of it. Whether that rank may get more.
    fn feed(
        &mut self,
        id: CommandId,
        flow: &mut Flow,
        index: usize,
        backend: &mut dyn Backend,
        transport: &mut dyn Transport,
    ) -> bool {
        let (Some(sink), Some(base)) = (flow.order.sinks.get(index).copied(), flow.base.as_ref()) else {
            return false;
        };
        let Some(state) = flow.sinks.get_mut(index) else { return false };
        let available = flow.arrived.saturating_sub(sink.first).min(sink.size);
        match sink.to {
            End::Rank { rank, stream } => {
                let is_large = sink.size > EAGER_BYTES_MAX;
                if is_large && state.given < sink.size && !self.ready.contains(&(rank, stream)) {
                    if (available > 0 || flow.broken.is_some())
                        && !std::mem::replace(&mut state.is_offered, true)
                    {
                        self.letters.push((rank, Message::Offer { stream }));
                    }
                    return false;
                }
                if state.given < sink.size && (!is_large || self.sends < sends_max(flow.order.segment)) {
                    let size = flow.order.segment.max(1).min(sink.size - state.given);
                    if state.given + size > available && flow.broken.is_none() {
                        return false;
                    }
                    if is_large && self.burst >= sends_max(flow.order.segment).div_ceil(2) {
                        self.is_limited = true;
                        return false;
                    }
                    self.burst += u64::from(is_large);
                    let mut piece =
                        if flow.hollow { base.at(0, size) } else { base.at(sink.first + state.given, size) };
                    if flow.broken.is_some() {
                        piece.length = 0;
                    }
                    self.next_token += 1;
                    let token = Token(self.next_token);
                    self.tokens.insert(token, (id, Part::Sent { sink: index, is_large }));
                    state.given += size;
                    state.under_way += 1;
                    self.sends += u64::from(is_large);
                    // SAFETY: the base lives until the flow is forgotten; bytes that have arrived change no more.
                    unsafe { transport.send(rank, stream, piece, token) };
                    return true;
                }
            }
            _ if flow.is_held || flow.broken.is_some() || state.given >= available => {}
            _ if base.sink == Some(index) => {
                state.given = available;
                state.there = available;
            }
            End::Host { .. } if flow.hollow => {
                state.given = available;
                state.there = available;
            }
            End::Buffer { .. } if flow.hollow && !backend.takes_time(flow.device) => {
                state.given = available;
                state.there = available;
            }
            End::Host { address } => {
                copy(
                    base.at(sink.first + state.given, available - state.given),
                    span(address + state.given, available - state.given),
                );
                state.given = available;
                state.there = available;
            }
            End::Buffer { buffer, offset } => {
                let size = available - state.given;
                if let Some(memory) = backend.memory(buffer, offset + state.given, size) {
                    copy(base.at(sink.first + state.given, size), memory.span);
                    state.there += size;
                } else {
                    self.next_part += 1;
                    let part = CommandId(PART | self.next_part);
                    self.parts.insert(part, (id, Part::Written { sink: index, size }));
                    let from = base.at(sink.first + state.given, size);
                    let operation = Operation::Write { buffer, offset: offset + state.given, from };
                    state.under_way += 1;
                    // SAFETY: as above.
                    unsafe { backend.start(part, flow.device, &operation, &[]) };
                }
                state.given = available;
            }
        }
        false
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
