//! Where the bytes of a stream belong until their records are complete.
//!
//! In a piece of memory the verified bytes come first. Behind them, with a gap, are the received
//! bytes of records that are not complete:
//!
//! ```text
//!   | verified | gap | received | room |
//!   0        opened from        to
//! ```
//! A record is opened where it lies, and its content moves down to the end of the verified bytes.
//! So the content of many records becomes one slice without a copy of its own.

use std::fmt;

use super::open::{Message, Opener};
use crate::error::RecordError;
use crate::limits::{HEADER_BYTES, RECORD_BYTES_MAX};

/// Places in a piece of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// End of the verified bytes.
    opened: usize,
    /// Start of the received bytes.
    from: usize,
    /// End of the received bytes.
    to: usize,
    /// Whether the peer has sent everything.
    closed: bool,
}

impl Marks {
    /// Opens the records that are complete.
    fn open(&mut self, memory: &mut [u8], opener: &mut Opener) -> Result<(), RecordError> {
        while let Some(end) = self.next_end(memory, opener)? {
            if end > self.to {
                break;
            }
            let at = self.from - self.opened;
            let room = memory.get_mut(self.opened..end).unwrap_or_default();
            match opener.open_down(room, at)? {
                Message::Data(data) => self.opened += data.len(),
                Message::Handled => {}
                Message::Closed => self.closed = true,
            }
            self.from = end;
        }
        if self.from == self.to {
            (self.from, self.to) = (self.opened, self.opened);
        }
        Ok(())
    }

    /// Returns where the next record ends. `None` if its header is not complete.
    fn next_end(&self, memory: &[u8], opener: &mut Opener) -> Result<Option<usize>, RecordError> {
        let received = memory.get(self.from..self.to).unwrap_or_default();
        // Behind the end of the stream nothing has a meaning.
        let Some(header) = received.first_chunk::<HEADER_BYTES>().filter(|_| !self.closed) else {
            return Ok(None);
        };
        Ok(Some(self.from + HEADER_BYTES + opener.expect(header)?))
    }

    /// Takes note of bytes that were received into the room.
    fn filled(&mut self, bytes: usize, room: usize) {
        self.to += bytes.min(room - self.to);
    }
}

/// Buffer of a stream of records, of which the verified bytes are taken from the front.
pub struct Intake {
    memory: Vec<u8>,
    /// Number of verified bytes that were taken.
    taken: usize,
    marks: Marks,
}

impl Intake {
    /// Makes a buffer of `bytes` bytes, or of one record if that is more.
    pub fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes.max(RECORD_BYTES_MAX)], taken: 0, marks: Marks::default() }
    }

    /// Returns the verified bytes that were not taken yet.
    pub fn verified(&self) -> &[u8] {
        self.memory.get(self.taken..self.marks.opened).unwrap_or_default()
    }

    /// Takes verified bytes from the front.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes.min(self.marks.opened - self.taken);
    }

    /// Returns whether the peer has sent everything. [`Intake::verified`] may still have bytes.
    pub fn is_closed(&self) -> bool {
        self.marks.closed
    }

    /// Returns room for received bytes, at least for the rest of the next record. The buffer grows
    /// if the caller leaves more verified bytes there than it holds.
    pub fn room(&mut self) -> &mut [u8] {
        let Marks { opened, from, to, .. } = self.marks;
        if self.memory.len() - from < RECORD_BYTES_MAX {
            let verified = opened - self.taken;
            self.memory.copy_within(self.taken..opened, 0);
            self.memory.copy_within(from..to, verified);
            self.taken = 0;
            self.marks =
                Marks { opened: verified, from: verified, to: verified + to - from, ..self.marks };
            self.memory.resize(self.memory.len().max(verified + RECORD_BYTES_MAX), 0);
        }
        self.memory.get_mut(self.marks.to..).unwrap_or_default()
    }

    /// Takes note of bytes that were received into [`Intake::room`], and opens the records that are
    /// complete.
    ///
    /// # Errors
    /// Fails if a record is not what the peer may send. The bytes before it are still there.
    pub fn filled(&mut self, bytes: usize, opener: &mut Opener) -> Result<(), RecordError> {
        self.marks.filled(bytes, self.memory.len());
        self.marks.open(&mut self.memory, opener)
    }

    /// Returns the number of bytes that complete the next record, as far as its length is known.
    /// A caller that must not receive anything behind that record receives no more than this.
    ///
    /// # Errors
    /// Fails if the header cannot be that of the next record.
    pub fn missing(&mut self, opener: &mut Opener) -> Result<usize, RecordError> {
        let Marks { from, to, .. } = self.marks;
        let end = self.marks.next_end(&self.memory, opener)?;
        Ok(end.unwrap_or(from + HEADER_BYTES).saturating_sub(to))
    }

    /// Takes back what a [`Landing`] has received and not opened. The buffer must be empty.
    ///
    /// # Errors
    /// See [`Intake::filled`].
    pub fn begin_with(&mut self, rest: &[u8], opener: &mut Opener) -> Result<(), RecordError> {
        debug_assert!(self.is_empty(), "two parts of a stream would be mixed");
        let room = self.room();
        let count = rest.len().min(room.len());
        room.get_mut(..count)
            .unwrap_or_default()
            .copy_from_slice(rest.get(..count).unwrap_or_default());
        self.filled(count, opener)
    }

    /// Returns whether the buffer has neither verified nor other bytes.
    pub fn is_empty(&self) -> bool {
        self.taken == self.marks.opened && self.marks.from == self.marks.to
    }

    /// Returns the received bytes of records that are not complete.
    pub fn unopened(&self) -> &[u8] {
        self.memory.get(self.marks.from..self.marks.to).unwrap_or_default()
    }

    /// Returns the received bytes that are not opened, and removes them.
    fn take_rest(&mut self) -> &[u8] {
        let Marks { from, to, opened, .. } = self.marks;
        (self.marks.from, self.marks.to) = (opened, opened);
        self.memory.get(from..to).unwrap_or_default()
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("marks", &self.marks).finish_non_exhaustive()
    }
}

/// Memory of the caller into which records are received, and in which they are opened, so that
/// large content is not copied once more.
pub struct Landing<'a> {
    target: &'a mut [u8],
    marks: Marks,
}

impl<'a> Landing<'a> {
    /// Starts to fill `target`, first from the intake of the same stream.
    pub fn new(target: &'a mut [u8], intake: &mut Intake) -> Self {
        let count = intake.verified().len().min(target.len());
        target
            .get_mut(..count)
            .unwrap_or_default()
            .copy_from_slice(intake.verified().get(..count).unwrap_or_default());
        intake.take(count);
        let mut marks = Marks { opened: count, from: count, to: count, closed: intake.is_closed() };
        let received = intake.marks.to - intake.marks.from;
        if intake.verified().is_empty() && received <= target.len() - count {
            let rest = intake.take_rest();
            target.get_mut(count..count + received).unwrap_or_default().copy_from_slice(rest);
            marks.to += received;
        }
        Self { target, marks }
    }

    /// Returns the number of bytes that are verified and in their place.
    pub fn verified(&self) -> usize {
        self.marks.opened
    }

    /// Returns whether the peer has sent everything.
    pub fn is_closed(&self) -> bool {
        self.marks.closed
    }

    /// Returns room for received bytes. If the room is empty, the rest goes through the [`Intake`].
    pub fn room(&mut self) -> &mut [u8] {
        self.target.get_mut(self.marks.to..).unwrap_or_default()
    }

    /// Takes note of bytes that were received into [`Landing::room`], and opens the records that
    /// are complete.
    ///
    /// # Errors
    /// Fails if a record is not what the peer may send. [`Landing::verified`] tells how many bytes
    /// were good.
    pub fn filled(&mut self, bytes: usize, opener: &mut Opener) -> Result<(), RecordError> {
        self.marks.filled(bytes, self.target.len());
        self.marks.open(self.target, opener)
    }

    /// Returns the received bytes that are not opened, for [`Intake::begin_with`].
    pub fn rest(&self) -> &[u8] {
        self.target.get(self.marks.from..self.marks.to).unwrap_or_default()
    }
}

impl fmt::Debug for Landing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").field("marks", &self.marks).finish_non_exhaustive()
    }
}
