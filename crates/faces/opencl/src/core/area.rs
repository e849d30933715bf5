//! Allocations of shared virtual memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_cl_sys::CL_INVALID_VALUE;
use penstock_client::{Memory, Range};
use penstock_process::{Lock, SharedLock};

use super::mapping::Outcome;
use super::shadow::Pages;
use crate::edge::{ClError, ClResult};

/// One allocation of shared virtual memory.
#[derive(Debug)]
pub(crate) struct Area {
    /// Released before the pages.
    pub(crate) pool: Arc<Memory>,
    pub(super) pages: Pages,
    pub(super) size: usize,
    pub(super) maps: Lock<Vec<MappedRange>>,
}

/// A range that the program has mapped.
#[derive(Debug)]
pub(super) struct MappedRange {
    pub(super) start: usize,
    pub(super) size: usize,
    pub(super) writes: bool,
    pub(super) outcome: Outcome,
}

/// Allocations of a context by address.
#[derive(Debug, Default)]
pub(crate) struct Areas(SharedLock<BTreeMap<usize, Arc<Area>>>);

impl Areas {
    /// Returns the allocation that contains an address.
    pub(crate) fn at(&self, address: usize) -> Option<Arc<Area>> {
        let areas = self.0.read();
        let (start, area) = areas.range(..=address).next_back()?;
        (address - start < area.size).then(|| area.clone())
    }

    pub(super) fn insert(&self, address: usize, area: Arc<Area>) {
        self.0.write().insert(address, area);
    }

    /// Removes the allocation that starts at an address.
    pub(crate) fn remove(&self, address: usize) -> Option<Arc<Area>> {
        self.0.write().remove(&address)
    }
}

impl Area {
    pub(crate) fn address(&self) -> usize {
        self.pages.address().addr()
    }

    /// Returns the offset of a range if it lies in this allocation.
    pub(super) fn offset(&self, address: usize, size: usize) -> Option<usize> {
        let offset = address.checked_sub(self.address())?;
        (offset.checked_add(size)? <= self.size).then_some(offset)
    }

    pub(super) fn range(&self, address: usize, size: usize) -> ClResult<Range> {
        let offset = self.offset(address, size).ok_or(ClError(CL_INVALID_VALUE))?;
        Ok(Range { offset: offset as u64, size: size as u64 })
    }

    /// Returns whether the program has a range mapped, so that its own memory holds the content.
    pub(super) fn is_mapped(&self, address: usize, size: usize) -> bool {
        self.maps
            .lock()
            .iter()
            .any(|it| it.start <= address && address + size <= it.start + it.size)
    }

    /// Returns the host address of an address in this allocation.
    pub(super) fn host(&self, address: usize) -> *mut u8 {
        self.pages.address().wrapping_add(address - self.address())
    }
}
