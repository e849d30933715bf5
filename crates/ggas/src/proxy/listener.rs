//! The receiving side of a proxy without a socket: for property tests and fuzzing.

use super::input::{Input, Said};
use crate::error::{HeapError, Refusal};
use crate::plan::{Plan, TIMEOUT_DEFAULT};
use crate::segment::Parts;

/// A member with PEs 0 and 2 of a heap of three, which another one sends to.
#[derive(Debug)]
pub struct Listener {
    parts: Parts,
    part_bytes: u64,
    input: Input,
}

impl Listener {
    /// With so many user's bytes for each PE.
    ///
    /// # Errors
    /// As [`crate::Heap::create`].
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

    /// Takes bytes as they would come from a socket, and does what they say.
    ///
    /// # Errors
    /// When they are none of this protocol, or go where nothing is.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Vec<Said>, Refusal> {
        let mut said = Vec::new();
        let heard = self.input.feed(bytes, &self.parts, self.part_bytes, &mut |one| said.push(one));
        heard.map(|()| said).map_err(|_| Refusal::NotGgas)
    }

    /// Bytes of a part, flags included.
    pub fn part(&self, pe: u32) -> Option<Vec<u8>> {
        let length = usize::try_from(self.part_bytes).ok()?;
        let place = self.parts.place(pe, 0, self.part_bytes)?;
        // SAFETY: so many bytes lie there, mapped while `self` lives; nobody else has them.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), length) }.to_vec())
    }
}
