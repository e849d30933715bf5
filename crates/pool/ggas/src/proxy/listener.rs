//! The receiving side of a proxy without a socket, for property tests and fuzzing.

use super::input::{Input, PeerMessage};
use crate::error::{HeapError, Refusal};
use crate::plan::{Plan, TIMEOUT_DEFAULT};
use crate::segment::Parts;

/// Member with PEs 0 and 2 of a heap of three PEs, to which another member sends.
#[derive(Debug)]
pub struct Listener {
    parts: Parts,
    part_bytes: u64,
    input: Input,
}

impl Listener {
    /// Makes a member whose PEs have `bytes` user bytes each.
    ///
    /// # Errors
    /// See [`crate::Heap::create`].
    pub fn new(bytes: u64) -> Result<Self, HeapError> {
        let plan = Plan {
            id: 0,
            members: vec![0, 1, 0],
            me: 0,
            bytes,
            timeout: TIMEOUT_DEFAULT,
            force_proxy: true,
        };
        plan.check()?;
        let part_bytes = crate::layout::FLAGS_BYTES as u64 + bytes;
        Ok(Self { parts: Parts::create(&plan)?, part_bytes, input: Input::new() })
    }

    /// Handles bytes as if they came from a socket.
    ///
    /// # Errors
    /// Fails if the bytes violate the protocol or their target is outside of the parts.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Vec<PeerMessage>, Refusal> {
        let mut messages = Vec::new();
        let received = self
            .input
            .feed(bytes, &self.parts, self.part_bytes, &mut |message| messages.push(message));
        received.map(|()| messages).map_err(|_| Refusal::NotGgas)
    }

    /// Returns the bytes of a part, flags included.
    pub fn part(&self, pe: u32) -> Option<Vec<u8>> {
        let length = usize::try_from(self.part_bytes).ok()?;
        let place = self.parts.place(pe, 0, self.part_bytes)?;
        // SAFETY: `length` bytes lie there, mapped while `self` lives; nobody else uses them.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), length) }.to_vec())
    }
}
