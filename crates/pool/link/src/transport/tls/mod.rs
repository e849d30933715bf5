//! Records of TLS 1.3 over a connection, after the handshake.
//!
//! This is no transport of its own: it wraps a connection of a transport whose bytes leave the
//! host. Nothing is handed out before its record is verified, and a connection that ends without
//! the peer's farewell ends with an error, because somebody in between may have cut it.
//!
//! Small content is received exactly to the end of its record, so that another process can take
//! over in the middle of a stream. Large content is received in large pieces, and its records are
//! opened into the memory of the caller.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use penstock_process::{Guard, Lock};
use penstock_tls::limits::{
    ALERT_RECORD_BYTES, PLAIN_BYTES_MAX, RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES,
    UPDATE_RECORD_BYTES,
};
use penstock_tls::{
    Alert, HANDOVER_BYTES, Intake, Opener, Pieces, RecordError, Records, Sealer, Suite,
};
use penstock_wire::hello::feature;

use super::contract::{Bytes, Connection, Facts};
use super::syscall::Readiness;
use crate::error::LinkError;
use crate::fork::Owner;
use zeroize::Zeroizing;

/// Number of bytes that are sealed before they are sent: 32 records, half of a core's second-level
/// cache, where they stay until the system has copied them. Each part wakes the peer once, so that
/// parts of half the size cost a tenth of the speed on busy cores. Parts of twice the size make
/// reads slower.
const SEAL_AT_ONCE: usize = 32 * PLAIN_BYTES_MAX;

/// Number of bytes that are received before their records are opened, for the same reasons.
const RECEIVE_AT_ONCE: usize = 512 << 10;

/// Number of slices that one call seals. What does not fit comes with the next call.
const PIECES_MAX: usize = 65;

/// Smallest memory into which records are opened directly. It is larger than the beginning of a
/// record, which the intake may hold.
const LANDING_BYTES_MIN: usize = RECORD_BYTES_MAX;

/// Features that need memory beside the connection. What would move there is not encrypted.
const MEMORY_FEATURES: u64 = feature::SHARED_RINGS | feature::SHARED_ARENA | feature::GUEST_MEMORY;

/// Returns this connection, whose handshake is finished, with all that follows encrypted.
pub(crate) fn encrypt(connection: Connection, records: Records) -> Connection {
    with(connection, |over| TlsBytes::new(over, records))
}

/// Continues a connection that another process has encrypted. `state` is what
/// [`Bytes::hand_over`] returned there.
pub(crate) fn resume(connection: Connection, state: &[u8]) -> io::Result<Connection> {
    let refused = || io::Error::from(io::ErrorKind::InvalidInput);
    let (secrets, rest) = state.split_at_checked(HANDOVER_BYTES).ok_or_else(refused)?;
    let (size, rest) = rest.split_first_chunk::<4>().ok_or_else(refused)?;
    let early = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| refused())?;
    let (early, received) = rest.split_at_checked(early).ok_or_else(refused)?;
    if received.len() >= RECORD_BYTES_MAX {
        return Err(refused());
    }
    let mut records = Records::take_over(secrets).map_err(io::Error::other)?;
    let mut intake = Intake::new(0);
    intake.begin_with(received, &mut records.opener).map_err(io::Error::other)?;
    Ok(with(connection, |over| {
        let mut made = TlsBytes::new(over, records);
        let input = made.input.get_mut();
        (input.early, input.intake) = (early.to_vec(), intake);
        made
    }))
}

/// Puts the records over the bytes of a connection. Nothing moves into memory beside it.
fn with(connection: Connection, over: impl FnOnce(Box<dyn Bytes>) -> TlsBytes) -> Connection {
    let Connection { bytes, facts, liveness } = connection;
    let bytes = over(bytes);
    let facts = Facts {
        encryption: Some(bytes.suite.name()),
        passes_descriptors: false,
        features: facts.features & !MEMORY_FEATURES,
        ..*facts
    };
    Connection::new(bytes, facts, liveness)
}

/// Encrypted bytes.
struct TlsBytes {
    /// Carries the records.
    over: Box<dyn Bytes>,
    suite: Suite,
    /// A child of `fork` must not seal: it would use the nonces of its parent for other content.
    owner: Owner,
    out: Lock<Out>,
    input: Lock<In>,
    /// Whether this side has ended the connection.
    ended: AtomicBool,
    /// What was wrong with the records of the peer.
    reason: OnceLock<RecordError>,
}

/// Sending direction.
struct Out {
    /// `None` once another process continues the records.
    sealer: Option<Sealer>,
    /// The records still to send are `buffer[sent..filled]`.
    buffer: Vec<u8>,
    filled: usize,
    sent: usize,
    /// Number of content bytes in these records, of which the caller has not been told yet.
    untold: usize,
}

/// Receiving direction.
struct In {
    /// `None` once another process continues the records.
    opener: Option<Opener>,
    /// Verified bytes that another process has handed over. They come before all others.
    early: Vec<u8>,
    intake: Intake,
    /// Whether the peer has said that it has sent everything.
    closed: bool,
}

impl TlsBytes {
    fn new(over: Box<dyn Bytes>, records: Records) -> Self {
        let Records { sealer, opener } = records;
        Self {
            over,
            suite: sealer.suite(),
            owner: Owner::this_process(),
            out: Lock::new(Out {
                sealer: Some(sealer),
                buffer: Vec::new(),
                filled: 0,
                sent: 0,
                untold: 0,
            }),
            input: Lock::new(In {
                opener: Some(opener),
                early: Vec::new(),
                intake: Intake::new(0),
                closed: false,
            }),
            ended: AtomicBool::new(false),
            reason: OnceLock::new(),
        }
    }

    /// Returns the sending direction, if this process is the one that made the connection. A child
    /// of `fork` does not even lock: a thread of its parent may have held the lock.
    fn out(&self) -> Result<Guard<'_, Out>, LinkError> {
        self.check_owner()?;
        Ok(self.out.lock())
    }

    fn input(&self) -> Result<Guard<'_, In>, LinkError> {
        self.check_owner()?;
        Ok(self.input.lock())
    }

    fn check_owner(&self) -> Result<(), LinkError> {
        if self.owner.is_this_process() { Ok(()) } else { Err(LinkError::Forked) }
    }

    /// Says what the peer did wrong, as far as that is possible without waiting, and hangs up.
    fn end_with(&self, error: RecordError) {
        // Another thread that sees the hang-up can ask for the reason at once.
        _ = self.reason.set(error);
        if let (Some(alert), Ok(mut out)) = (error.alert(), self.out()) {
            out.say_last(&*self.over, alert);
        }
        self.over.shutdown();
    }

    /// Returns the error for an end of the records below.
    fn end_of(&self, input: &mut In) -> LinkError {
        let ending = input.opener.as_mut().map_or(Ok(()), Opener::end_of_stream);
        match ending {
            Err(error) if !self.ended.load(Relaxed) => {
                _ = self.reason.set(error);
                LinkError::Record(error)
            }
            _ => LinkError::Closed,
        }
    }
}

impl Out {
    /// Sends what fits now, and tells how many bytes of content have left entirely. If records are
    /// left over, the caller is told of none of their content and must come again with the same
    /// bytes: they are sealed already.
    fn send(
        &mut self,
        over: &dyn Bytes,
        pieces: &[IoSlice<'_>],
    ) -> Result<Option<usize>, LinkError> {
        if self.untold == 0 && self.is_sent() {
            self.seal(pieces)?;
        }
        if !self.push(over)? {
            return Ok(None);
        }
        let given: usize = pieces.iter().map(|piece| piece.len()).sum();
        let told = self.untold.min(given);
        self.untold -= told;
        Ok(Some(told))
    }

    fn is_sent(&self) -> bool {
        self.sent == self.filled
    }

    /// Seals as much as one turn sends.
    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> Result<(), LinkError> {
        let sealer = self.sealer.as_mut().ok_or(LinkError::Closed)?;
        let mut left = SEAL_AT_ONCE;
        let mut slices: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = piece.get(..left.min(piece.len())).unwrap_or_default();
            left -= slice.len();
            count += 1;
        }
        let mut content = Pieces::new(slices.get(..count).unwrap_or_default());
        let before = content.left();
        let room =
            before + before.div_ceil(PLAIN_BYTES_MAX) * RECORD_OVERHEAD_BYTES + UPDATE_RECORD_BYTES;
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        self.filled = sealer.seal(&mut content, &mut self.buffer).map_err(|error| match error {
            RecordError::Closed => LinkError::Closed,
            error => LinkError::Record(error),
        })?;
        self.sent = 0;
        self.untold = before - content.left();
        Ok(())
    }

    /// Sends records until none are left or the connection takes no more. Returns whether none are
    /// left.
    fn push(&mut self, over: &dyn Bytes) -> Result<bool, LinkError> {
        while !self.is_sent() {
            let rest = self.buffer.get(self.sent..self.filled).unwrap_or_default();
            match over.send_now(&[IoSlice::new(rest)])? {
                Some(bytes) => self.sent += bytes,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends a last record if it can be sent without waiting. In the middle of another record there
    /// is no place for it: the peer then sees a connection that was cut, which is the truth.
    fn say_last(&mut self, over: &dyn Bytes, alert: Alert) {
        let (true, Some(sealer)) = (self.sent == self.filled, self.sealer.as_mut()) else { return };
        let mut record = [0; ALERT_RECORD_BYTES];
        let sealed = match alert {
            Alert::CLOSE_NOTIFY => sealer.close(&mut record),
            alert => sealer.alert(alert, &mut record),
        };
        if let Ok(bytes) = sealed {
            // If it does not leave, the peer reports a cut connection.
            _ = over.send_now(&[IoSlice::new(record.get(..bytes).unwrap_or_default())]);
        }
    }
}

impl In {
    fn has_verified(&self) -> bool {
        !self.early.is_empty() || !self.intake.verified().is_empty()
    }

    /// Hands out verified bytes that have come before. Returns 0 if there are none.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let from_early = !self.early.is_empty();
        let here = if from_early { self.early.as_slice() } else { self.intake.verified() };
        let count = here.len().min(into.len());
        for (to, from) in into.iter_mut().zip(here) {
            *to = *from;
        }
        if from_early {
            self.early.drain(..count);
        } else {
            self.intake.take(count);
        }
        count
    }

    /// Receives what is there. Returns `None` if no record is complete.
    fn receive(&mut self, over: &dyn Bytes, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        if self.has_verified() || into.is_empty() {
            return Ok(Some(self.take(into)));
        }
        if self.closed {
            return Err(LinkError::Closed);
        }
        if into.len() < LANDING_BYTES_MIN {
            return self.receive_exactly(over, into);
        }
        let opener = self.opener.as_mut().ok_or(LinkError::Closed)?;
        loop {
            // All content that can come of these bytes has its place in `into`: a record is longer
            // than its content.
            let most = RECEIVE_AT_ONCE.min(into.len() - self.intake.unopened().len());
            let room = self.intake.room_for(most).get_mut(..most).unwrap_or_default();
            let Some(bytes) = over.recv_now(room)? else { return Ok(None) };
            let verified = self.intake.filled_into(bytes, opener, into)?;
            self.closed = self.intake.is_closed();
            if verified > 0 {
                return Ok(Some(verified));
            }
            if self.closed {
                return Err(LinkError::Closed);
            }
        }
    }

    /// Receives no byte behind the next record.
    fn receive_exactly(
        &mut self,
        over: &dyn Bytes,
        into: &mut [u8],
    ) -> Result<Option<usize>, LinkError> {
        let opener = self.opener.as_mut().ok_or(LinkError::Closed)?;
        loop {
            let missing = self.intake.missing(opener)?;
            let room = self.intake.room().get_mut(..missing).unwrap_or_default();
            match over.recv_now(room)? {
                Some(bytes) => self.intake.filled(bytes, opener)?,
                None => return Ok(None),
            }
            if !self.intake.verified().is_empty() {
                self.closed = self.intake.is_closed();
                return Ok(Some(self.take(into)));
            }
            if self.intake.is_closed() {
                self.closed = true;
                return Err(LinkError::Closed);
            }
        }
    }
}

impl AsFd for TlsBytes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }
}

impl Bytes for TlsBytes {
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.out()?.send(&*self.over, pieces)
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let mut input = self.input()?;
        let received = input.receive(&*self.over, into);
        match received {
            Err(LinkError::Closed) => Err(self.end_of(&mut input)),
            Err(LinkError::Record(error)) => {
                drop(input);
                self.end_with(error);
                Err(LinkError::Record(error))
            }
            received => received,
        }
    }

    fn has_waiting(&self) -> bool {
        self.over.has_waiting() || self.input().is_ok_and(|input| input.has_verified())
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        // Verified bytes may wait here while the socket has none.
        if what == Readiness::Readable && self.input()?.has_verified() {
            return Ok(true);
        }
        self.over.wait(what, deadline)
    }

    fn shutdown(&self) {
        self.farewell();
        self.over.shutdown();
    }

    fn why_hung_up(&self) -> LinkError {
        self.reason.get().map_or_else(|| self.over.why_hung_up(), |it| LinkError::Record(*it))
    }

    /// Returns the secrets, the verified bytes that nobody has taken, and the bytes of records that
    /// are not complete.
    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError> {
        let (mut out, mut input) = (self.out()?, self.input()?);
        if !out.is_sent() || out.untold > 0 {
            return Err(LinkError::Record(RecordError::MidMessage));
        }
        let (Some(sealer), Some(opener)) = (out.sealer.take(), input.opener.take()) else {
            return Err(LinkError::Closed);
        };
        let secrets = Records { sealer, opener }.hand_over()?;
        let mut verified = std::mem::take(&mut input.early);
        verified.extend_from_slice(input.intake.verified());
        let size = u32::try_from(verified.len()).map_err(|_| RecordError::MidMessage)?;
        // All at once, so that no copy stays behind in memory that was too small.
        let received = input.intake.unopened();
        Ok(Some([&secrets[..], &size.to_be_bytes(), &verified, received].concat().into()))
    }
}

impl TlsBytes {
    /// Says once that this side has sent everything, as far as that is possible without waiting.
    fn farewell(&self) {
        if self.owner.is_this_process()
            && !self.ended.swap(true, Relaxed)
            && let Ok(mut out) = self.out()
        {
            out.say_last(&*self.over, Alert::CLOSE_NOTIFY);
        }
    }
}

impl Drop for TlsBytes {
    fn drop(&mut self) {
        self.farewell();
    }
}

impl fmt::Debug for TlsBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsBytes")
            .field("over", &self.over)
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
