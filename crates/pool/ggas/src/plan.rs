//! The properties of a heap on which all members agree.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::error::HeapError;
use crate::layout::{BYTES_MAX, PES_MAX, VERSION, stride};

/// Largest bound of waits in kernels: a day. Nobody waits longer for a result, only for a defect.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

/// Default bound of waits in kernels. Some drivers compile a kernel at its first launch, while the
/// others already wait: 14 s were seen on a busy machine.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Description of a heap, the same for all members except `me`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Distinguishes heaps of the same members; any number, the same for all members.
    pub id: u64,
    /// Member that holds each PE; the index is the PE's number.
    pub members: Vec<u32>,
    /// Member number of this process.
    pub me: u32,
    /// Number of user bytes in each PE's part.
    pub bytes: u64,
    /// Bound of a kernel's waits, with a resolution of 1 ms.
    pub timeout: Duration,
    /// Makes the proxy reach all other members, even on this host. PEs of one member share memory.
    pub force_proxy: bool,
}

impl Plan {
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

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        millis(self.timeout)
    }

    /// Returns the PEs of a member in order.
    pub(crate) fn pes_of(&self, member: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).zip(&self.members).filter(move |(_, of)| **of == member).map(|(pe, _)| pe)
    }

    /// Returns the PEs of this process in order.
    pub fn own_pes(&self) -> impl Iterator<Item = u32> + '_ {
        self.pes_of(self.me)
    }

    /// Returns the size of the memory that this process makes for its PEs, in bytes. A size beyond
    /// the limit of a part counts as that limit.
    pub fn own_bytes(&self) -> u64 {
        stride(self.bytes.min(BYTES_MAX)).saturating_mul(self.own_pes().count() as u64)
    }

    /// Returns the other members in order, without duplicates.
    pub fn others(&self) -> Vec<u32> {
        let mut others: Vec<u32> =
            self.members.iter().copied().filter(|&member| member != self.me).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Returns the digest that two members compare: of everything except `me`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FLAGS_BYTES;

    fn plan(members: &[u32], me: u32, bytes: u64) -> Plan {
        let members = members.to_vec();
        Plan { id: 0, members, me, bytes, timeout: TIMEOUT_DEFAULT, force_proxy: false }
    }

    #[test]
    fn a_member_makes_whole_pages_for_each_of_its_pes() {
        let flags = FLAGS_BYTES as u64;
        assert_eq!(plan(&[0, 1, 0], 0, 1).own_bytes(), 2 * (flags + 4096));
        assert_eq!(plan(&[0, 1, 0], 1, 4097).own_bytes(), flags + 8192);
        assert_eq!(plan(&[0, 1, 0], 2, 4097).own_bytes(), 0);
        assert_eq!(plan(&[0], 0, u64::MAX).own_bytes(), flags + BYTES_MAX);
    }

    #[test]
    fn members_know_their_pes_and_each_other() {
        let plan = plan(&[3, 0, 3, 7], 3, 1);
        assert_eq!(plan.own_pes().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(plan.others(), [0, 7]);
    }
}
