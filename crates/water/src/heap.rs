//! Heaps: memory of equal size for each of several devices, which kernels of all of them reach (`ggas.h`), so that they talk to each
//! other without the host. Here is what the ranks agree on; `heap/meet.rs` connects the ranks' members.

pub mod meet;
pub mod resident;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::{ObjectId, Rank};

/// Bytes of a heap's secret: as long as the keys and tickets that it becomes.
pub const SECRET_BYTES: usize = 32;

/// One heap, as all its members see it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapPlan {
    /// Its id. Those after it are the buffers of the parts, see [`HeapPlan::part`].
    pub heap: ObjectId,
    /// Bytes of each device's part.
    pub bytes: u64,
    /// The devices that take part (PEs), by number.
    pub pes: Vec<Pe>,
    /// Host name of each member's rank.
    pub hosts: Vec<String>,
    /// How long a kernel waits for another, in ms, if it is to be other than what `ggas.h` says; 0: as it says.
    pub timeout_ms: u64,
    /// Whether all that goes to other members takes the way through their proxies, even where memory could be shared.
    pub force_proxy: bool,
    /// What members prove to each other that they belong together. It travels where all of the run's messages do.
    pub secret: [u8; SECRET_BYTES],
}

/// One device of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pe {
    /// Its rank.
    pub rank: Rank,
    /// Its place among the devices of its rank.
    pub device: u32,
}

/// What one member of a heap says to another, or to the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Where members of higher numbers connect to this one.
    Door {
        /// Who says it.
        member: u32,
        /// Where, as `penstock_link::Address` writes it.
        addresses: Vec<String>,
    },
    /// This member cannot be made, so nobody has to wait for it.
    Refused {
        /// Who says it.
        member: u32,
        /// Why.
        reason: String,
    },
    /// To the root: how bytes get from this PE to each other one, by the numbers of [`Path`].
    Paths {
        /// Which.
        pe: u32,
        /// To each.
        paths: Vec<u8>,
    },
}

/// How bytes get from one PE to another. The numbers are those of `wtr_ext.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// It is the same, or one of the same process.
    Own = 1,
    /// Memory of the host that both processes have mapped.
    Shared = 2,
    /// A thread of the process sends them.
    Proxy = 3,
}

impl HeapPlan {
    /// The ranks that have PEs, in the order in which they first appear: their places are the members' numbers.
    pub fn members(&self) -> Vec<Rank> {
        let mut members = Vec::new();
        for pe in &self.pes {
            if !members.contains(&pe.rank) {
                members.push(pe.rank);
            }
        }
        members
    }

    /// The member of each PE.
    pub fn member_of_each(&self) -> Vec<u32> {
        let members = self.members();
        let place = |rank| members.iter().position(|member| *member == rank).unwrap_or_default();
        self.pes.iter().map(|pe| u32::try_from(place(pe.rank)).unwrap_or(u32::MAX)).collect()
    }

    /// The buffer that a PE's part is.
    pub fn part(&self, pe: u32) -> ObjectId {
        ObjectId(self.heap.0 + 1 + u64::from(pe))
    }

    /// Ids that a heap of so many PEs takes.
    pub const fn ids(pes: u64) -> u64 {
        1 + pes
    }

    /// PEs of this rank, with their numbers.
    pub fn own(&self, rank: Rank) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..)
            .zip(&self.pes)
            .filter(move |(_, pe)| pe.rank == rank)
            .map(|(number, pe)| (number, pe.device))
    }

    /// How long a kernel waits; none is what `ggas.h` says.
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout_ms > 0).then(|| Duration::from_millis(self.timeout_ms))
    }
}

impl std::fmt::Debug for HeapPlan {
    /// Without the secret.
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
        assert!(!format!("{plan:?}").contains("[9, 9"), "the secret stays where it is");
    }
}
