//! Frames over a pair of rings: the sender writes directly into memory that the reader sees.

use std::io::IoSlice;
use std::time::Instant;

use crate::error::LinkError;
use crate::joint::{Joint, STALL_MIN};
use crate::stream::Stream;
use crate::transport::rings::ring::{Reader, STEP_BYTES, Writer};
use crate::transport::syscall::Readiness;
use crate::wait::{Await, Patience, Policy, Waiter, for_room};

/// Doorbell bytes taken from a socket at once. More than a few come only from needless rings.
const DOORBELLS_MAX: usize = 64;

/// Sending half of a link over rings.
#[derive(Debug)]
pub(crate) struct RingOut {
    ring: Writer,
    waiter: Waiter,
}

impl RingOut {
    pub(crate) fn new(ring: Writer, policy: Policy) -> Self {
        Self { ring, waiter: Waiter::new(policy) }
    }

    /// Writes a frame; waits if there is no room.
    pub(crate) fn frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        for part in head {
            self.put(joint, part)?;
        }
        for piece in pieces {
            self.put(joint, piece)?;
        }
        self.tell(joint)
    }

    /// Like [`RingOut::frame`], if the whole frame fits now. Returns `false` if nothing was sent.
    pub(crate) fn try_frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        payload: &[u8],
    ) -> Result<bool, LinkError> {
        let bytes = head.iter().map(|part| part.len()).sum::<usize>() + payload.len();
        if self.ring.room(bytes)? < bytes {
            return Ok(false);
        }
        self.frame(joint, head, &mut std::iter::once(payload))?;
        Ok(true)
    }

    /// Writes bytes. Stops between two pieces of [`STEP_BYTES`] if this side closes the link: the
    /// closing thread may wait for the end of this copy, and a peer that keeps reading must not
    /// prolong that wait.
    fn put(&mut self, joint: &Joint, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let step = bytes.len().min(STEP_BYTES);
            if self.ring.room(step)? < step {
                joint.check()?;
                self.tell(joint)?;
                for_room(|| self.wait_for_room(joint, step))?;
            }
            let (now, rest) = bytes.split_at(step);
            self.ring.put(now);
            bytes = rest;
            if self.ring.untold() >= STEP_BYTES {
                joint.check()?;
                self.tell(joint)?;
            }
        }
        Ok(())
    }

    fn wait_for_room(&mut self, joint: &Joint, step: usize) -> Result<(), LinkError> {
        let mut room = Room { ring: &mut self.ring, joint, step };
        let stalled = penstock_process::now() + STALL_MIN;
        if !self.waiter.wait(Patience::Until(stalled), &mut room)? {
            joint.tell_stall();
            self.waiter.wait(Patience::Forever, &mut room)?;
        }
        Ok(())
    }

    fn tell(&mut self, joint: &Joint) -> Result<(), LinkError> {
        if self.ring.tell() { ring_doorbell(&joint.stream) } else { Ok(()) }
    }
}

/// Awaits room in the ring.
struct Room<'a> {
    ring: &'a mut Writer,
    joint: &'a Joint,
    step: usize,
}

impl Await for Room<'_> {
    fn look(&mut self) -> Result<bool, LinkError> {
        Ok(self.ring.room(self.step)? >= self.step)
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), LinkError> {
        self.joint.check()?;
        let Some(space) = &self.joint.space else { return Err(LinkError::Closed) };
        self.ring.announce_sleep();
        if !self.look()? {
            self.joint.wait(space, Readiness::Readable, deadline)?;
        }
        self.ring.awake();
        // A reader that has hung up makes no more room.
        if take_doorbells(space)? { Err(LinkError::Closed) } else { Ok(()) }
    }
}

/// Receiving half of a link over rings.
#[derive(Debug)]
pub(crate) struct RingIn {
    ring: Reader,
    waiter: Waiter,
    /// Whether the writer has hung up, so that nothing follows the bytes in the ring.
    ended: bool,
}

impl RingIn {
    pub(crate) fn new(ring: Reader, policy: Policy) -> Self {
        Self { ring, waiter: Waiter::new(policy), ended: false }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.waiter = Waiter::new(policy);
    }

    /// Waits for `bytes` bytes. Returns `false` if the patience ended.
    pub(crate) fn wait(
        &mut self,
        joint: &Joint,
        bytes: usize,
        patience: Patience,
    ) -> Result<bool, LinkError> {
        if self.ring.there(bytes)? >= bytes {
            return Ok(true);
        }
        if bytes > self.ring.size() {
            return Err(LinkError::Ring("a frame's head is larger than the ring"));
        }
        // The writer may be waiting for room that it has not been told of.
        self.tell(joint)?;
        let mut arrival = Arrival { ring: &mut self.ring, joint, bytes, ended: &mut self.ended };
        self.waiter.wait(patience, &mut arrival)
    }

    /// Copies bytes that were awaited, without taking them.
    pub(crate) fn peek(&self, skip: usize, into: &mut [u8]) {
        self.ring.copy(skip, into);
    }

    /// Takes bytes that were awaited.
    pub(crate) fn skip(&mut self, joint: &Joint, bytes: usize) -> Result<(), LinkError> {
        self.ring.take(bytes);
        if self.ring.untold() >= STEP_BYTES { self.tell(joint) } else { Ok(()) }
    }

    /// Fills `into`. Stops between two pieces of [`STEP_BYTES`] if this side closes the link: the
    /// closing thread may wait for the end of this copy, and a peer that keeps the ring full must
    /// not prolong that wait.
    pub(crate) fn read(&mut self, joint: &Joint, mut into: &mut [u8]) -> Result<(), LinkError> {
        while !into.is_empty() {
            joint.check()?;
            self.wait(joint, 1, Patience::Forever)?;
            let step = self.ring.there(1)?.min(into.len()).min(STEP_BYTES);
            let (now, rest) = into.split_at_mut(step);
            self.ring.copy(0, now);
            self.skip(joint, step)?;
            into = rest;
        }
        Ok(())
    }

    /// Discards payload bytes. Stops if this side closes the link.
    pub(crate) fn discard(&mut self, joint: &Joint, mut bytes: u64) -> Result<(), LinkError> {
        while bytes > 0 {
            joint.check()?;
            self.wait(joint, 1, Patience::Forever)?;
            let here = self.ring.there(1)?;
            let step = usize::try_from(bytes).map_or(here, |bytes| bytes.min(here));
            self.skip(joint, step)?;
            bytes -= step as u64;
        }
        Ok(())
    }

    fn tell(&mut self, joint: &Joint) -> Result<(), LinkError> {
        match &joint.space {
            Some(space) if self.ring.tell() => ring_doorbell(space),
            _ => Ok(()),
        }
    }
}

/// Awaits bytes in the ring.
struct Arrival<'a> {
    ring: &'a mut Reader,
    joint: &'a Joint,
    bytes: usize,
    ended: &'a mut bool,
}

impl Await for Arrival<'_> {
    fn look(&mut self) -> Result<bool, LinkError> {
        // The flag is read first, so that bytes written before the hang-up are still seen.
        let ended = *self.ended;
        if self.ring.there(self.bytes)? >= self.bytes {
            return Ok(true);
        }
        if ended { Err(LinkError::Closed) } else { Ok(false) }
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), LinkError> {
        self.joint.check()?;
        self.ring.announce_sleep();
        if !self.look()? {
            self.joint.wait(&self.joint.stream, Readiness::Readable, deadline)?;
        }
        self.ring.awake();
        *self.ended = take_doorbells(&self.joint.stream)?;
        Ok(())
    }
}

/// Wakes the peer. If the socket is full, doorbells are already pending. The receiver reports a
/// hang-up, after it has read what the peer left.
fn ring_doorbell(socket: &Stream) -> Result<(), LinkError> {
    match socket.send_now(&[IoSlice::new(&[1])]) {
        Ok(_) | Err(LinkError::Closed) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes the pending doorbells. Returns `true` if the peer has hung up.
fn take_doorbells(socket: &Stream) -> Result<bool, LinkError> {
    let mut bytes = [0; DOORBELLS_MAX];
    match socket.recv_now(&mut bytes) {
        Ok(_) => Ok(false),
        Err(LinkError::Closed) => Ok(true),
        Err(error) => Err(error),
    }
}
