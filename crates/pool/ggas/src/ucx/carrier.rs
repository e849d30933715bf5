//! UCX between two members, as a stream of bytes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_link::Stream;
use rustix::event::{PollFd, PollFlags};

use super::arrivals::{HEADER_BYTES, Label, MESSAGE_BYTES_MAX};
use super::engine::{EndPoint, Engine, SendSlot};
use crate::proxy::carrier::{Carrier, CarrierError};

/// Maximum number of messages under way to one member: 512 KiB, which a fast network and a busy
/// peer need to keep each other busy.
const SLOTS_MAX: usize = 16;

/// Interval of looks at the stream while nothing sleeps on it: waits for the dead must end in a
/// second.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Time to wait for the last messages of a member that has said goodbye. It has completed sending
/// them, so they are in the network.
const LAST_FOR: Duration = Duration::from_millis(200);

/// Start of a goodbye; the number of messages follows.
const GOODBYE: [u8; 8] = *b"GGASLEFT";
/// Size of a goodbye in bytes.
const GOODBYE_BYTES: usize = 16;

pub(crate) struct UcxCarrier {
    engine: Arc<Engine>,
    end_point: EndPoint,
    is_open: bool,
    /// Inbox for the member's messages.
    inbox: u32,
    /// Label that the member expects in our messages.
    label: Label,
    /// Number of messages sent so far.
    sent: u64,
    free: Vec<SendSlot>,
    busy: VecDeque<SendSlot>,
    /// Stream over which the member joined; it reveals the member's end at once.
    stream: Stream,
    received: Vec<u8>,
    end: StreamEnd,
    looked: Instant,
}

/// What the stream has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    No,
    /// The member has left after this number of messages; the last may take until then.
    Left(u64, Instant),
    /// The stream is closed.
    Closed,
}

/// Parses the received part of a goodbye; `None` until it is complete.
fn goodbye(received: &[u8]) -> Result<Option<u64>, CarrierError> {
    let magic = received.get(..GOODBYE.len().min(received.len())).unwrap_or_default();
    if !GOODBYE.starts_with(magic) || received.len() > GOODBYE_BYTES {
        return Err(CarrierError::Protocol);
    }
    Ok(received
        .get(GOODBYE.len()..)
        .and_then(|count| count.try_into().ok())
        .map(u64::from_le_bytes))
}

impl UcxCarrier {
    /// Makes a carrier of an end point over which one message has gone in each direction.
    pub(super) fn new(
        engine: Arc<Engine>,
        end_point: EndPoint,
        inbox: u32,
        label: Label,
        stream: Stream,
    ) -> Self {
        Self {
            engine,
            end_point,
            is_open: true,
            inbox,
            label,
            sent: 1,
            free: Vec::new(),
            busy: VecDeque::new(),
            stream,
            received: Vec::new(),
            end: StreamEnd::No,
            looked: Instant::now(),
        }
    }

    /// Returns a slot that is not being sent; `None` if enough are under way.
    fn free_slot(&mut self) -> Option<SendSlot> {
        self.reap();
        if self.free.is_empty() && self.busy.len() < SLOTS_MAX {
            self.free.push(SendSlot::new());
        }
        if self.free.is_empty() {
            self.engine.progress();
            self.reap();
        }
        self.free.pop()
    }

    fn reap(&mut self) {
        while let Some(first) = self.busy.front_mut()
            && self.engine.is_done(first)
        {
            self.free.extend(self.busy.pop_front());
        }
    }

    /// Looks at the stream at an interval, or after a wake-up.
    fn look(&mut self) -> Result<(), CarrierError> {
        let now = Instant::now();
        if self.end == StreamEnd::No && now.duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            let mut bytes = [0; GOODBYE_BYTES + 1];
            match self.stream.recv_now(&mut bytes) {
                Ok(Some(got)) => {
                    self.received.extend_from_slice(bytes.get(..got).unwrap_or_default());
                    if let Some(count) = goodbye(&self.received)? {
                        self.end = StreamEnd::Left(count, now + LAST_FOR);
                    }
                }
                Ok(None) => {}
                // What has arrived is read before this counts.
                Err(_) => self.end = StreamEnd::Closed,
            }
        }
        let inbox = self.engine.arrivals().status(self.inbox);
        match self.end {
            _ if inbox.waits => Ok(()),
            _ if inbox.is_wrong => Err(CarrierError::Protocol),
            StreamEnd::Closed => Err(CarrierError::Closed),
            StreamEnd::Left(count, until) if inbox.count >= count || now >= until => {
                Err(CarrierError::Closed)
            }
            StreamEnd::Left(..) => Ok(()),
            // UCX may notice the end before the stream does.
            StreamEnd::No if self.end_point.has_failed() => Err(CarrierError::Closed),
            StreamEnd::No => Ok(()),
        }
    }

    fn close_now(&mut self) {
        if self.is_open {
            self.is_open = false;
            self.engine.let_go(&mut self.engine.close(&self.end_point, true));
        }
        self.engine.keep(self.busy.drain(..));
    }
}

impl Carrier for UcxCarrier {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, CarrierError> {
        let mut pieces = pieces.iter().map(|piece| &**piece).filter(|piece| !piece.is_empty());
        let (mut piece, mut total) = (pieces.next(), 0);
        while piece.is_some() {
            if !self.is_open || self.end_point.has_failed() {
                return Err(CarrierError::Closed);
            }
            let Some(mut slot) = self.free_slot() else { break };
            let mut length = 0;
            while let Some(rest) = piece
                && length < MESSAGE_BYTES_MAX
            {
                let room = slot.bytes().get_mut(length..).unwrap_or_default();
                let (now, later) = rest.split_at(rest.len().min(room.len()));
                if let Some(room) = room.get_mut(..now.len()) {
                    room.copy_from_slice(now);
                }
                length += now.len();
                piece = if later.is_empty() { pieces.next() } else { Some(later) };
            }
            let header: [u8; HEADER_BYTES] = self.label.header(self.sent);
            let began = self.engine.send(&self.end_point, &mut slot, header, length);
            self.busy.push_back(slot);
            began.map_err(|_| CarrierError::Closed)?;
            self.sent += 1;
            total += length;
        }
        Ok((total > 0).then_some(total))
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, CarrierError> {
        let got = self.engine.read(self.inbox, into);
        if got == 0 {
            self.look()?;
        }
        Ok((got > 0).then_some(got))
    }

    fn watch<'a>(&'a mut self, _: bool, fds: &mut Vec<PollFd<'a>>) -> bool {
        // The stream may cause the wake-up, so the next look must not be skipped.
        self.looked = self.looked.checked_sub(LOOK_EVERY).unwrap_or(self.looked);
        let sleeps = self.engine.arm()
            && !self.engine.arrivals().status(self.inbox).waits
            && self.end == StreamEnd::No;
        fds.push(PollFd::from_borrowed_fd(self.engine.as_fd(), PollFlags::IN));
        if self.end == StreamEnd::No {
            fds.push(PollFd::new(&self.stream, PollFlags::IN));
        }
        sleeps
    }

    fn vanished(&self) -> bool {
        self.stream.vanished()
    }

    fn end(&mut self) {
        self.close_now();
        self.stream.shutdown();
    }

    fn finish(&mut self, until: Instant) {
        let is_over = |of: &Self| of.end_point.has_failed() || Instant::now() >= until;
        while !self.busy.is_empty() && !is_over(self) {
            self.engine.progress();
            self.reap();
            std::thread::yield_now();
        }
        if self.is_open && self.busy.is_empty() && !self.end_point.has_failed() {
            self.is_open = false;
            let mut closing = self.engine.close(&self.end_point, false);
            while !self.engine.is_closed(&mut closing) && !is_over(self) {
                self.engine.progress();
                std::thread::yield_now();
            }
            self.engine.let_go(&mut closing);
        }
        let mut note = GOODBYE.to_vec();
        note.extend(self.sent.to_le_bytes());
        // A member that cannot be told sees the stream close.
        _ = self.stream.write_all_until(&note, until);
    }
}

impl Drop for UcxCarrier {
    fn drop(&mut self) {
        self.close_now();
    }
}
