//! Frames over a socket: small frames are gathered into one send, large payloads are not copied.

use std::io::IoSlice;
use std::time::Instant;

use crate::error::LinkError;
use crate::joint::{Joint, STALL_MIN};
use crate::transport::syscall::Readiness;
use crate::wait::{Await, Patience, Policy, Waiter, for_room};

/// Number of bytes of small frames that are gathered before they are sent. TCP sends 256 messages
/// of 64 B at 20 ns each, while a single message costs 2.5-3 µs. Above 32 KiB nothing is gained.
pub(crate) const BATCH_BYTES_MAX: usize = 32 << 10;

/// Largest payload in bytes that is copied into the batch. Sending a larger one without a copy is
/// cheaper.
const SMALL_PAYLOAD_BYTES_MAX: usize = 4 << 10;

/// Largest payload in bytes that is attempted without blocking. What does not fit the socket is
/// copied into the batch.
const TRY_BYTES_MAX: usize = 256 << 10;

/// Number of pieces of a payload in one send. The system takes 1,024; a few dozen suffice.
const PIECES_MAX: usize = 64;

/// Size in bytes of the receive buffer for heads and small payloads: two batches.
const RECEIVE_BYTES: usize = 64 << 10;

/// Smallest rest of a payload in bytes that is read directly to its target. Less goes through the
/// buffer, together with the frames behind it.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Sending half of a link over a socket.
#[derive(Debug, Default)]
pub(crate) struct SocketOut {
    /// The bytes still to send are `batch[sent..]`.
    batch: Vec<u8>,
    sent: usize,
    /// When the oldest of these bytes was put there.
    since: Option<Instant>,
}

impl SocketOut {
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Sends a frame, or puts it into the batch.
    pub(crate) fn frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        let head_bytes = head.iter().map(|part| part.len()).sum::<usize>();
        if head_bytes + self.pending().len() > BATCH_BYTES_MAX {
            self.flush(joint)?;
        }
        for part in head {
            self.put(part);
        }
        if bytes == 0 {
            return Ok(());
        }
        let small = usize::try_from(bytes).is_ok_and(|bytes| bytes <= SMALL_PAYLOAD_BYTES_MAX);
        if small && self.pending().len() < BATCH_BYTES_MAX {
            for piece in pieces {
                self.put(piece);
            }
            return Ok(());
        }
        loop {
            let some: Vec<&[u8]> = pieces.take(PIECES_MAX).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.send_all(joint, &some)?;
        }
    }

    /// Like [`SocketOut::frame`], but never blocks. Returns `false` if nothing was sent.
    pub(crate) fn try_frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        payload: &[u8],
    ) -> Result<bool, LinkError> {
        if payload.len() > TRY_BYTES_MAX {
            return Ok(false);
        }
        if self.pending().len() > BATCH_BYTES_MAX && !self.flush_now(joint)? {
            return Ok(false);
        }
        if payload.len() <= SMALL_PAYLOAD_BYTES_MAX {
            for part in head {
                self.put(part);
            }
            self.put(payload);
            return Ok(true);
        }
        if !self.flush_now(joint)? {
            return Ok(false);
        }
        for part in head {
            self.put(part);
        }
        let all = self.pending().len() + payload.len();
        let slices = [IoSlice::new(self.pending()), IoSlice::new(payload)];
        let sent = joint.stream.send_now(&slices)?.unwrap_or(0);
        if sent == all {
            self.clear();
            return Ok(true);
        }
        let head_left = self.pending().len();
        self.take(sent.min(head_left));
        // The frame has begun and must end: the helper sends what the socket does not take now.
        self.put(payload.get(sent.saturating_sub(head_left)..).unwrap_or_default());
        Ok(true)
    }

    /// Sends the whole batch.
    pub(crate) fn flush(&mut self, joint: &Joint) -> Result<(), LinkError> {
        if self.since.is_none() {
            return Ok(());
        }
        self.send_all(joint, &[])
    }

    /// Sends the part of the batch that does not block. Returns `false` if some of it is left.
    pub(crate) fn flush_now(&mut self, joint: &Joint) -> Result<bool, LinkError> {
        while self.since.is_some() {
            match joint.stream.send_now(&[IoSlice::new(self.pending())])? {
                Some(sent) => self.take(sent),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends the batch and then the pieces, in as few system calls as the socket allows.
    fn send_all(&mut self, joint: &Joint, pieces: &[&[u8]]) -> Result<(), LinkError> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(1 + pieces.len());
        slices.push(IoSlice::new(self.batch.get(self.sent..).unwrap_or_default()));
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0); // drops empty slices
        while !rest.is_empty() {
            match joint.stream.send_now(rest)? {
                Some(sent) => IoSlice::advance_slices(&mut rest, sent),
                None => {
                    for_room(|| wait_for_room(joint))?;
                    joint.check()?;
                }
            }
        }
        self.clear();
        Ok(())
    }

    fn pending(&self) -> &[u8] {
        self.batch.get(self.sent..).unwrap_or_default()
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.since.is_none() {
            self.since = Some(penstock_process::now());
        }
        self.batch.extend_from_slice(bytes);
    }

    fn take(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= self.batch.len() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.batch.shrink_to(2 * BATCH_BYTES_MAX);
        self.sent = 0;
        self.since = None;
    }
}

fn wait_for_room(joint: &Joint) -> Result<(), LinkError> {
    let stalled = Some(penstock_process::now() + STALL_MIN);
    if !joint.wait(&joint.stream, Readiness::Writable, stalled)? {
        joint.tell_stall();
        joint.wait(&joint.stream, Readiness::Writable, None)?;
    }
    Ok(())
}

/// Receiving half of a link over a socket.
#[derive(Debug)]
pub(crate) struct SocketIn {
    buffer: Vec<u8>,
    /// The bytes not yet taken are `buffer[start..end]`.
    start: usize,
    end: usize,
    waiter: Waiter,
}

impl SocketIn {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { buffer: vec![0; RECEIVE_BYTES], start: 0, end: 0, waiter: Waiter::new(policy) }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.waiter = Waiter::new(policy);
    }

    /// Waits for the next `bytes` bytes and returns, but keeps them. `None`: the patience ended.
    pub(crate) fn peek(
        &mut self,
        joint: &Joint,
        bytes: usize,
        patience: Patience,
    ) -> Result<Option<&[u8]>, LinkError> {
        while self.end - self.start < bytes {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            if self.buffer.len() < bytes {
                self.buffer.resize(bytes, 0);
            }
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            let mut arrival = Arrival { joint, room, got: 0, flows: false };
            if !self.waiter.wait(patience, &mut arrival)? {
                return Ok(None);
            }
            self.end += arrival.got;
        }
        Ok(self.buffer.get(self.start..self.start + bytes))
    }

    /// Takes bytes that [`SocketIn::peek`] has returned.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Fills `into`. Stops between two system calls if this side closes the link: the system still
    /// delivers what came before, and over TCP also what comes afterwards. One call takes no more
    /// than the socket's buffer holds.
    pub(crate) fn read(&mut self, joint: &Joint, mut into: &mut [u8]) -> Result<(), LinkError> {
        while !into.is_empty() {
            joint.check()?;
            let here = (self.end - self.start).min(into.len());
            if here > 0 {
                let (now, rest) = into.split_at_mut(here);
                now.copy_from_slice(
                    self.buffer.get(self.start..self.start + here).unwrap_or_default(),
                );
                self.skip(here);
                into = rest;
            } else if into.len() >= DIRECT_BYTES_MIN {
                let mut arrival = Arrival { joint, room: into, got: 0, flows: true };
                self.waiter.wait(Patience::Forever, &mut arrival)?;
                let got = arrival.got;
                into = into.get_mut(got..).unwrap_or_default();
            } else {
                self.peek(joint, 1, Patience::Forever)?;
            }
        }
        Ok(())
    }

    /// Discards payload bytes. Stops if this side closes the link.
    pub(crate) fn discard(&mut self, joint: &Joint, mut bytes: u64) -> Result<(), LinkError> {
        while bytes > 0 {
            joint.check()?;
            self.peek(joint, 1, Patience::Forever)?;
            let here = (self.end - self.start) as u64;
            let now = here.min(bytes);
            bytes -= now;
            self.skip(usize::try_from(now).unwrap_or(usize::MAX));
        }
        Ok(())
    }
}

/// Awaits bytes on a socket.
struct Arrival<'a> {
    joint: &'a Joint,
    room: &'a mut [u8],
    got: usize,
    /// Whether the bytes continue a payload.
    flows: bool,
}

impl Await for Arrival<'_> {
    fn look(&mut self) -> Result<bool, LinkError> {
        self.got = self.joint.stream.recv_now(self.room)?.unwrap_or(0);
        if self.got > 0 {
            self.joint.hear();
        }
        Ok(self.got > 0)
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), LinkError> {
        self.joint.check()?;
        self.joint.wait(&self.joint.stream, Readiness::Readable, deadline).map(|_| ())
    }

    fn flows(&self) -> bool {
        self.flows
    }

    fn is_much(&self) -> bool {
        self.got >= DIRECT_BYTES_MIN
    }
}
