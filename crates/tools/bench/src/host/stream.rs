//! Messages from device memory to device memory through the hosts, in chunks. The copies and the
//! sending of neighbouring chunks overlap.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::local::{Buffer, Local, Pending};
use super::memory::{Room, Span, word_of};
use crate::error::Result;
use crate::plan::{WINDOW, window_of};
use crate::wire::{Ticket, Wire};

/// Number of chunks under way: the window.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const SLOTS: usize = WINDOW as usize;
/// Number of copies that are started before the first chunk is sent. It keeps the device's queue
/// busy, with as many chunks in the network.
const AHEAD: usize = SLOTS / 2;

/// How a message passes through the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Copy, send, receive, copy: each step waits for the previous one.
    Plain,
    /// Chunks of this number of bytes. Copies overlap with sending.
    Copy(u64),
    /// Chunks of this number of bytes, sent from the device's own memory, if that is the host's
    /// memory.
    Map(u64),
}

/// All choices for a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    pub way: Way,
    /// Whether threads that wait for a socket spin.
    pub spins: bool,
}

impl How {
    /// One step after the other, with sleeping waits: the paper's baseline.
    pub const PLAIN: Self = Self { way: Way::Plain, spins: false };

    /// Describes the choices for messages of this size.
    #[must_use]
    pub fn name(self, bytes: u64) -> String {
        let name = match self.way {
            Way::Plain => "copy, send, copy".to_owned(),
            Way::Copy(chunk) if chunk >= bytes => "copies meanwhile".to_owned(),
            Way::Copy(chunk) => format!("copies meanwhile, chunks of {} KiB", chunk >> 10),
            Way::Map(chunk) if chunk >= bytes => "mapped".to_owned(),
            Way::Map(chunk) => format!("mapped, chunks of {} KiB", chunk >> 10),
        };
        if self.spins { name + ", spinning" } else { name }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Messages {
    pub peer: u32,
    /// Bytes of each message.
    pub bytes: usize,
    pub count: u64,
    /// Seed of the content of the whole buffer.
    pub seed: u64,
}

/// One end of a stream of messages: the device's memory, and host memory beside it.
#[derive(Debug)]
pub struct Ends<'a> {
    pub local: &'a Local,
    pub wire: &'a mut dyn Wire,
    /// Place for a window of messages, one behind the other.
    pub buffer: Buffer,
    pub stage: Room,
}

/// The stamps that were compared, and the first wrong one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    pub count: u64,
    pub wrong: u64,
    /// The first wrong stamp.
    pub found: u64,
    /// The value that it should have.
    pub expected: u64,
}

impl Checked {
    /// Compares one stamp with its expected value.
    pub fn compare(&mut self, found: u64, expected: u64) {
        self.count += 1;
        if found != expected {
            if self.wrong == 0 {
                (self.found, self.expected) = (found, expected);
            }
            self.wrong += 1;
        }
    }
}

/// One chunk: its position in the buffer and its length.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    slot: usize,
    offset: usize,
    bytes: usize,
}

/// A chunk that this process receives into a span of memory.
#[derive(Clone, Copy)]
struct Arriving {
    chunk: Chunk,
    span: Span,
    ticket: Ticket,
}

/// A chunk whose part of the buffer is being mapped as a span of memory.
struct Mapping {
    chunk: Chunk,
    span: Span,
    /// Ends when the span may be used.
    mapped: Pending,
}

/// Returns the number of messages that have their own place in the buffer.
fn places(bytes: usize) -> usize {
    usize::try_from(window_of(bytes as u64)).unwrap_or(1)
}

fn chunks(messages: Messages, chunk: usize) -> impl Iterator<Item = Chunk> {
    let size = messages.bytes;
    let chunk = chunk.min(size);
    let each = size.div_ceil(chunk);
    let window = places(size);
    (0..usize::try_from(messages.count).unwrap_or(usize::MAX)).flat_map(move |message| {
        (0..each).map(move |part| {
            let begin = part * chunk;
            let offset = (message % window) * size + begin;
            Chunk { slot: (message * each + part) % SLOTS, offset, bytes: chunk.min(size - begin) }
        })
    })
}

/// A chunk that the sender has under way.
struct Leaving {
    chunk: Chunk,
    span: Span,
    copied: Pending,
}

impl Ends<'_> {
    /// Sends messages from the buffer. Returns when the bytes may be changed.
    ///
    /// # Errors
    /// Returns the device's or the wire's error.
    pub fn send(&mut self, messages: Messages, way: Way) -> Result<()> {
        match way {
            Way::Plain => self.send_plain(messages),
            Way::Copy(chunk) => self.send_chunks(messages, to_usize(chunk), false),
            Way::Map(chunk) => self.send_chunks(messages, to_usize(chunk), true),
        }
    }

    /// Receives messages into the buffer. Returns when they have arrived.
    ///
    /// # Errors
    /// Returns the device's or the wire's error.
    pub fn receive(&mut self, messages: Messages, way: Way, checked: &mut Checked) -> Result<()> {
        match way {
            Way::Plain => self.receive_plain(messages, checked),
            Way::Copy(chunk) => self.receive_copied(messages, to_usize(chunk), checked),
            Way::Map(chunk) => self.receive_mapped(messages, to_usize(chunk), checked),
        }
    }

    fn send_plain(&mut self, messages: Messages) -> Result<()> {
        for chunk in chunks(messages, messages.bytes) {
            let span = self.stage.span(0, chunk.bytes);
            self.local.read(self.buffer, chunk.offset, span)?;
            self.wire.send(messages.peer, span)?;
        }
        Ok(())
    }

    fn receive_plain(&mut self, messages: Messages, checked: &mut Checked) -> Result<()> {
        for chunk in chunks(messages, messages.bytes) {
            let span = self.stage.span(0, chunk.bytes);
            poison(span);
            self.wire.receive(messages.peer, span)?;
            check(span, chunk, messages, checked);
            self.local.write(self.buffer, chunk.offset, span)?;
        }
        Ok(())
    }

    fn send_chunks(&mut self, messages: Messages, chunk_bytes: usize, mapped: bool) -> Result<()> {
        let room = chunk_bytes.min(messages.bytes);
        let mut copying: VecDeque<Leaving> = VecDeque::new();
        let mut sending: [Option<(Ticket, Span)>; SLOTS] = [None; SLOTS];
        for chunk in chunks(messages, chunk_bytes) {
            if copying.len() >= AHEAD
                && let Some(leaving) = copying.pop_front()
            {
                self.start(leaving, messages.peer, &mut sending)?;
            }
            self.settle(&mut sending, chunk.slot, mapped)?;
            let (span, copied) = if mapped {
                self.local.start_map(self.buffer, chunk.offset, chunk.bytes, false)?
            } else {
                let span = self.stage.span(chunk.slot * room, chunk.bytes);
                (span, self.local.start_read(self.buffer, chunk.offset, span)?)
            };
            self.local.flush()?;
            copying.push_back(Leaving { chunk, span, copied });
        }
        while let Some(leaving) = copying.pop_front() {
            self.start(leaving, messages.peer, &mut sending)?;
        }
        for slot in 0..sending.len() {
            self.settle(&mut sending, slot, mapped)?;
        }
        if mapped { self.local.flush() } else { Ok(()) }
    }

    fn start(
        &mut self,
        leaving: Leaving,
        peer: u32,
        sending: &mut [Option<(Ticket, Span)>],
    ) -> Result<()> {
        self.local.wait(leaving.copied)?;
        let ticket = self.wire.start_send(peer, leaving.span)?;
        if let Some(place) = sending.get_mut(leaving.chunk.slot) {
            *place = Some((ticket, leaving.span));
        }
        Ok(())
    }

    /// Waits until the chunk in a slot has been sent.
    fn settle(
        &mut self,
        sending: &mut [Option<(Ticket, Span)>],
        slot: usize,
        mapped: bool,
    ) -> Result<()> {
        let Some((ticket, span)) = sending.get_mut(slot).and_then(Option::take) else {
            return Ok(());
        };
        self.wire.wait(ticket)?;
        if mapped { self.local.unmap(self.buffer, span) } else { Ok(()) }
    }

    fn receive_copied(
        &mut self,
        messages: Messages,
        chunk_bytes: usize,
        checked: &mut Checked,
    ) -> Result<()> {
        let room = chunk_bytes.min(messages.bytes);
        let mut arriving: VecDeque<Arriving> = VecDeque::new();
        let mut writing: VecDeque<Pending> = VecDeque::new();
        let mut all = chunks(messages, chunk_bytes);
        loop {
            // As many chunks are awaited as there is room for. A slot is free when its copy has
            // ended, and copies end in order.
            while arriving.len() < AHEAD
                && let Some(chunk) = all.next()
            {
                if writing.len() >= AHEAD
                    && let Some(oldest) = writing.pop_front()
                {
                    self.local.wait(oldest)?;
                }
                let span = self.stage.span(chunk.slot * room, chunk.bytes);
                poison(span);
                let ticket = self.wire.start_receive(messages.peer, span)?;
                arriving.push_back(Arriving { chunk, span, ticket });
            }
            let Some(next) = arriving.pop_front() else { break };
            self.take(next, messages, checked)?;
            writing.push_back(self.local.start_write(self.buffer, next.chunk.offset, next.span)?);
            self.local.flush()?;
        }
        for pending in writing {
            self.local.wait(pending)?;
        }
        Ok(())
    }

    fn receive_mapped(
        &mut self,
        messages: Messages,
        chunk_bytes: usize,
        checked: &mut Checked,
    ) -> Result<()> {
        let mut mapping: VecDeque<Mapping> = VecDeque::new();
        let mut arriving: VecDeque<Arriving> = VecDeque::new();
        let mut all = chunks(messages, chunk_bytes);
        // Bytes that are mapped for writing must not be mapped twice at the same time.
        let each = messages.bytes.div_ceil(chunk_bytes.min(messages.bytes));
        let most = SLOTS.min(places(messages.bytes) * each);
        loop {
            while mapping.len() + arriving.len() < most
                && let Some(chunk) = all.next()
            {
                let (span, mapped) =
                    self.local.start_map(self.buffer, chunk.offset, chunk.bytes, true)?;
                mapping.push_back(Mapping { chunk, span, mapped });
            }
            self.local.flush()?;
            while arriving.len() < AHEAD
                && let Some(Mapping { chunk, span, mapped }) = mapping.pop_front()
            {
                self.local.wait(mapped)?;
                poison(span);
                let ticket = self.wire.start_receive(messages.peer, span)?;
                arriving.push_back(Arriving { chunk, span, ticket });
            }
            let Some(next) = arriving.pop_front() else { break };
            self.take(next, messages, checked)?;
            self.local.unmap(self.buffer, next.span)?;
        }
        self.local.finish()
    }

    /// Waits until a chunk has arrived, and checks it.
    fn take(&mut self, chunk: Arriving, messages: Messages, checked: &mut Checked) -> Result<()> {
        self.wire.wait(chunk.ticket)?;
        check(chunk.span, chunk.chunk, messages, checked);
        Ok(())
    }
}

/// Overwrites the stamps, so that old bytes do not look like a message.
fn poison(span: Span) {
    span.set_stamps(0);
}

fn check(span: Span, chunk: Chunk, messages: Messages, checked: &mut Checked) {
    let (first, words) = (chunk.offset as u64 / 8, chunk.bytes as u64 / 8);
    checked.compare(span.stamp(), word_of(messages.seed, first));
    if words > 1 {
        checked.compare(span.last_stamp(), word_of(messages.seed, first + words - 1));
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_message_once() {
        let messages = Messages { peer: 1, bytes: 40, count: 10, seed: 0 };
        let all: Vec<_> = chunks(messages, 16).collect();
        assert_eq!(all.len(), 30);
        for (index, message) in all.chunks(3).enumerate() {
            let begin = index % SLOTS * 40;
            assert_eq!(
                message.iter().map(|it| it.offset).collect::<Vec<_>>(),
                [begin, begin + 16, begin + 32]
            );
            assert_eq!(message.iter().map(|it| it.bytes).sum::<usize>(), 40);
        }
        // Neighbours never share room.
        for some in all.windows(SLOTS) {
            let mut slots: Vec<_> = some.iter().map(|it| it.slot).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), SLOTS);
        }
    }

    #[test]
    fn a_wrong_stamp_is_told_of() {
        let mut checked = Checked::default();
        checked.compare(1, 1);
        checked.compare(2, 3);
        checked.compare(4, 5);
        assert_eq!((checked.count, checked.wrong, checked.found, checked.expected), (3, 2, 2, 3));
    }
}
