//! SharedSession virtual memory: allocations with the same address in the client and here.

use std::collections::BTreeMap;

use penstock_wire::Id;
use penstock_wire::id::kind;

#[derive(Default)]
pub(crate) struct Svm {
    allocations: BTreeMap<u64, Id<kind::Mem>>,
}

impl Svm {
    /// Returns the last allocation that starts at or before `address`.
    pub(super) fn at(&self, address: u64) -> Option<(u64, Id<kind::Mem>)> {
        self.allocations.range(..=address).next_back().map(|(start, mem)| (*start, *mem))
    }

    pub(super) fn insert(&mut self, address: u64, mem: Id<kind::Mem>) {
        self.allocations.insert(address, mem);
    }

    pub(crate) fn forget(&mut self, mem: Id<kind::Mem>) {
        if !self.allocations.is_empty() {
            self.allocations.retain(|_, known| *known != mem);
        }
    }
}
