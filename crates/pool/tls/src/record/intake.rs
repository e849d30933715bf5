//! Where the bytes of a stream belong until their records are complete.
//!
//! In the buffer the verified bytes come first. Behind them, with a gap, are the received bytes of
//! records that are not complete:
//!
//! ```text
//!   | taken | verified | gap | received | room |
//!   0                opened from        to
//! ```
//! A record of small content is opened where it lies, and its content moves down to the end of the
//! verified bytes. A record of large content is opened into the caller's memory at once, so that
//! the content is not copied once more.

use std::fmt;

use super::open::{Message, Opener, opened_bytes};
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
        while let Some(end) = self.complete(memory, opener)? {
            self.open_one(memory, end, opener)?;
        }
        self.settle();
        Ok(())
    }

    /// Opens the next record, which ends at `end`, and moves its content down.
    fn open_one(
        &mut self,
        memory: &mut [u8],
        end: usize,
        opener: &mut Opener,
    ) -> Result<(), RecordError> {
        let at = self.from - self.opened;
        let room = memory.get_mut(self.opened..end).unwrap_or_default();
        let message = opener.open_down(room, at)?;
        self.opened += self.pass(message, end);
        Ok(())
    }

    /// Takes note that the next record, which ends at `end`, is opened. Returns the number of bytes
    /// of its content.
    fn pass(&mut self, message: Message<'_>, end: usize) -> usize {
        self.from = end;
        match message {
            Message::Data(data) => return data.len(),
            Message::Handled => {}
            Message::Closed => self.closed = true,
        }
        0
    }

    /// Takes the memory of opened records as room again if nothing is behind them.
    fn settle(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (self.opened, self.opened);
        }
    }

    /// Returns where the next record ends, if all of it has come.
    fn complete(&self, memory: &[u8], opener: &mut Opener) -> Result<Option<usize>, RecordError> {
        Ok(self.next_end(memory, opener)?.filter(|&end| end <= self.to))
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

    /// Takes verified bytes from the front to the start of `target`. Returns their number.
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let count = self.verified().len().min(target.len());
        let (now, _) = target.split_at_mut(count);
        now.copy_from_slice(self.verified().get(..count).unwrap_or_default());
        self.take(count);
        count
    }

    /// Returns room for received bytes, at least for the rest of the next record. The buffer grows
    /// if the caller leaves more verified bytes there than it holds.
    pub fn room(&mut self) -> &mut [u8] {
        self.room_for(0)
    }

    /// Returns room for at least `bytes` received bytes, and for the rest of the next record.
    pub fn room_for(&mut self, bytes: usize) -> &mut [u8] {
        let Marks { opened, from, to, .. } = self.marks;
        let need = RECORD_BYTES_MAX.max(to - from + bytes);
        if self.memory.len() - from < need {
            let verified = opened - self.taken;
            self.memory.copy_within(self.taken..opened, 0);
            self.memory.copy_within(from..to, verified);
            self.taken = 0;
            self.marks =
                Marks { opened: verified, from: verified, to: verified + to - from, ..self.marks };
            self.memory.resize(self.memory.len().max(verified + need), 0);
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

    /// Like [`Intake::filled`], but hands out verified bytes to the start of `target`. Returns
    /// their number.
    ///
    /// Content goes there directly if its place in `target` has room for the whole opened record.
    /// The order of the bytes holds, because a record is opened there only while the buffer has no
    /// verified bytes. If the last record does not fit, its rest waits in the buffer.
    ///
    /// # Errors
    /// See [`Intake::filled`]. The start of `target` may have content of records that were good.
    pub fn filled_into(
        &mut self,
        bytes: usize,
        opener: &mut Opener,
        target: &mut [u8],
    ) -> Result<usize, RecordError> {
        self.marks.filled(bytes, self.memory.len());
        let mut done = self.take_into(target);
        while let Some(end) = self.marks.complete(&self.memory, opener)? {
            let rest = target.get_mut(done..).unwrap_or_default();
            let record = self.memory.get(self.marks.from..end).unwrap_or_default();
            done += if self.verified().is_empty() && opened_bytes(record) <= rest.len() {
                let message = opener.open_apart(record, rest)?;
                self.marks.pass(message, end)
            } else {
                self.marks.open_one(&mut self.memory, end, opener)?;
                self.take_into(rest)
            };
        }
        self.marks.settle();
        Ok(done)
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

    /// Begins with bytes that another process has received and not opened. The buffer must be
    /// empty.
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
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("marks", &self.marks).finish_non_exhaustive()
    }
}
