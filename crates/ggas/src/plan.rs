//! What all members of a heap agree on.

use std::time::Duration;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::error::HeapError;
use crate::layout::{BYTES_MAX, PES_MAX, VERSION};

/// The longest bound of waits in kernels: a day. Beyond it nobody waits for a result, only for a defect.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

/// The bound of waits in kernels unless something else is asked for. Some drivers compile a kernel when it is first launched, while the
/// others wait already: 14 s were seen on a busy machine.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// What a heap shall be. All members make theirs of the same plan, but for `me`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Tells this heap from others among the same members; any number, the same for all members.
    pub id: u64,
    /// The member that holds each PE; the index is the PE's number.
    pub members: Vec<u32>,
    /// This process, among them.
    pub me: u32,
    /// The user's bytes in each PE's part.
    pub bytes: u64,
    /// How long a kernel waits, in steps of a millisecond.
    pub timeout: Duration,
    /// Has all members reached by the proxy, also those on this host. PEs of one member share memory all the same.
    pub force_proxy: bool,
}

impl Plan {
    /// Checks all limits.
    pub(crate) fn check(&self) -> Result<(), HeapError> {
        let within = |what, given: u64, min: u64, max: u64| {
            if (min..=max).contains(&given) {
                Ok(())
            } else {
                Err(HeapError::Limit { what, given, min, max })
            }
        };
        within("PEs", self.members.len() as u64, 1, u64::from(PES_MAX))?;
        within("bytes per PE", self.bytes, 1, BYTES_MAX)?;
        within("milliseconds of timeout", self.timeout_ms(), 1, millis(TIMEOUT_MAX))?;
        if self.members.contains(&self.me) {
            Ok(())
        } else {
            Err(HeapError::NoOwnPe { me: self.me })
        }
    }

    /// How many PEs there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        millis(self.timeout)
    }

    /// The PEs of a member, in order.
    pub(crate) fn pes_of(&self, member: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).zip(&self.members).filter(move |(_, of)| **of == member).map(|(pe, _)| pe)
    }

    /// The other members, each once, in order.
    pub(crate) fn others(&self) -> Vec<u32> {
        let mut others: Vec<u32> =
            self.members.iter().copied().filter(|&member| member != self.me).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// What two members compare: everything but who they are.
    pub(crate) fn digest(&self) -> [u8; SHA256_OUTPUT_LEN] {
        let mut text = Vec::new();
        text.extend(b"penstock heap");
        text.extend(VERSION.to_le_bytes());
        text.extend(self.id.to_le_bytes());
        text.extend(self.bytes.to_le_bytes());
        text.extend(self.timeout_ms().to_le_bytes());
        text.push(self.force_proxy.into());
        text.extend(self.count().to_le_bytes());
        for member in &self.members {
            text.extend(member.to_le_bytes());
        }
        let mut out = [0; SHA256_OUTPUT_LEN];
        out.copy_from_slice(digest(&SHA256, &text).as_ref());
        out
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
