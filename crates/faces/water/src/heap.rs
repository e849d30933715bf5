//! Heaps. A heap has a part of equal size on each of several devices. The kernels of these devices
//! reach all parts (`ggas.h`), so they communicate without the host. This file has what the ranks
//! agree on. `penstock_ggas::host` connects the members.

pub mod resident;

use std::time::Duration;

use penstock_ggas::host::{MeetingMessage, SECRET_BYTES};
use serde::{Deserialize, Serialize};

use crate::command::{DeviceId, ObjectId, Rank};

/// The plan of a heap, which is the same for all members.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapPlan {
    /// Id of the heap. The ids after it are the buffers of the parts, see [`HeapPlan::part`].
    pub heap: ObjectId,
    /// Number of bytes of each device's part.
    pub bytes: u64,
    /// The devices that take part, by PE number.
    pub pes: Vec<Pe>,
    /// Host name of each member's rank.
    pub hosts: Vec<String>,
    /// Time in ms that a kernel waits for another. 0 selects the default of `ggas.h`.
    pub timeout_ms: u64,
    /// Whether all bytes for other members go through the proxies, even if memory could be shared.
    pub force_proxy: bool,
    /// With this secret members prove to each other that they belong together. It travels in the
    /// messages of the run.
    pub secret: [u8; SECRET_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pe {
    pub rank: Rank,
    /// Its index among the devices of its rank.
    pub device: u32,
}

/// A message of a heap's member to another member, or to the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapMessage {
    /// To another member, while the members connect to each other.
    Meeting(MeetingMessage),
    /// To the root: how bytes get from this PE to each PE.
    Paths {
        pe: u32,
        /// For each PE a number of [`Path`].
        paths: Vec<u8>,
    },
}

/// A heap's message, and the rank that gets it.
#[derive(Debug)]
pub struct HeapMessageTo {
    pub to: Rank,
    pub heap: ObjectId,
    pub message: HeapMessage,
}

/// How bytes get from one PE to another. The numbers are those of `wtr_ext.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// Both PEs belong to the same process, or are the same.
    Own = 1,
    /// Both processes have mapped the same memory of their host.
    Shared = 2,
    /// A thread of the process sends the bytes.
    Proxy = 3,
}

impl Pe {
    pub const fn id(&self) -> DeviceId {
        DeviceId { rank: self.rank, index: self.device }
    }
}

impl HeapPlan {
    /// Returns the ranks that have PEs, in the order of their first PEs. The index of a rank is its
    /// member number.
    pub fn members(&self) -> Vec<Rank> {
        let mut members = Vec::new();
        for pe in &self.pes {
            if !members.contains(&pe.rank) {
                members.push(pe.rank);
            }
        }
        members
    }

    /// Returns the member number of each PE.
    pub fn member_of_each(&self) -> Vec<u32> {
        let members = self.members();
        let place = |rank| members.iter().position(|member| *member == rank).unwrap_or_default();
        self.pes.iter().map(|pe| u32::try_from(place(pe.rank)).unwrap_or(u32::MAX)).collect()
    }

    /// Returns the buffer of a PE's part.
    pub fn part(&self, pe: u32) -> ObjectId {
        ObjectId(self.heap.0 + 1 + u64::from(pe))
    }

    /// Number of ids that a heap of `pes` PEs takes.
    pub const fn ids(pes: u64) -> u64 {
        1 + pes
    }

    /// Returns the PEs of a rank: their numbers and device indices.
    pub fn own(&self, rank: Rank) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..)
            .zip(&self.pes)
            .filter(move |(_, pe)| pe.rank == rank)
            .map(|(number, pe)| (number, pe.device))
    }

    /// Returns how long a kernel waits; `None` selects the default of `ggas.h`.
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout_ms > 0).then(|| Duration::from_millis(self.timeout_ms))
    }
}

impl std::fmt::Debug for HeapPlan {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapPlan")
            .field("heap", &self.heap)
            .field("bytes", &self.bytes)
            .field("pes", &self.pes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_ranks_in_the_order_of_their_first_device() {
        let pe = |rank, device| Pe { rank, device };
        let plan = HeapPlan {
            heap: ObjectId(7),
            bytes: 64,
            pes: vec![pe(3, 0), pe(0, 1), pe(3, 1), pe(0, 0)],
            hosts: vec!["a".into(), "b".into()],
            timeout_ms: 0,
            force_proxy: false,
            secret: [9; SECRET_BYTES],
        };
        assert_eq!(plan.members(), [3, 0]);
        assert_eq!(plan.member_of_each(), [0, 1, 0, 1]);
        assert_eq!(plan.own(0).collect::<Vec<_>>(), [(1, 1), (3, 0)]);
        assert_eq!((plan.part(0), plan.part(3)), (ObjectId(8), ObjectId(11)));
        assert_eq!(HeapPlan::ids(4), 5);
        assert!(!format!("{plan:?}").contains("[9, 9"), "the secret must not be printed");
    }
}
