//! How many bytes of its operands a call touches. All arithmetic is checked.

use super::{Access, Misfit, Place};
use crate::limits::LIBRARY_OPERANDS_MAX;

/// The bytes of one operand that a call touches, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub bytes: u64,
    pub access: Access,
}

/// The extents of all operands of a call, by place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extents {
    list: [Option<Extent>; LIBRARY_OPERANDS_MAX],
}

impl Extents {
    /// Notes that the call touches `elements` elements of `size` bytes.
    pub(super) fn put(
        &mut self,
        place: Place,
        elements: u64,
        size: u64,
        access: Access,
    ) -> Result<(), Misfit> {
        let bytes = elements.checked_mul(size).ok_or(Misfit)?;
        let entry = self.list.get_mut(usize::from(place.0)).ok_or(Misfit)?;
        if entry.is_some() {
            return Err(Misfit);
        }
        *entry = Some(Extent { bytes, access });
        Ok(())
    }

    /// Returns the extents if the places are those from 0 on, without a gap.
    pub(super) fn complete(self) -> Result<Self, Misfit> {
        let is_complete = self.list.iter().skip(self.len()).all(Option::is_none);
        if is_complete { Ok(self) } else { Err(Misfit) }
    }

    /// Number of operands.
    #[allow(clippy::len_without_is_empty, reason = "every call has an operand")]
    pub fn len(&self) -> usize {
        self.list.iter().take_while(|entry| entry.is_some()).count()
    }

    /// Returns the extents in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.list.iter().map_while(|entry| *entry)
    }
}

/// Returns the number of elements from the first to the last element of a vector.
pub(super) fn span(count: u32, step: i32) -> Result<u64, Misfit> {
    let Some(gaps) = count.checked_sub(1) else { return Ok(0) };
    let steps = u64::from(gaps).checked_mul(u64::from(step.unsigned_abs())).ok_or(Misfit)?;
    steps.checked_add(1).ok_or(Misfit)
}

/// Returns the number of elements from the first to the last element of a matrix in columns.
pub(super) fn area(rows: u32, columns: u32, ld: u32) -> Result<u64, Misfit> {
    if ld < rows.max(1) {
        return Err(Misfit);
    }
    let Some(gaps) = columns.checked_sub(1).filter(|_| rows > 0) else { return Ok(0) };
    let before = u64::from(gaps).checked_mul(u64::from(ld)).ok_or(Misfit)?;
    before.checked_add(u64::from(rows)).ok_or(Misfit)
}

/// Returns the number of elements of a triangle without gaps.
pub(super) fn triangle(order: u32) -> u64 {
    // No overflow: both factors are below 2^33, and one of them is even.
    u64::from(order) * (u64::from(order) + 1) / 2
}

/// Returns the elements of `count` blocks, each `distance` elements behind the one before.
pub(super) fn blocks(count: u32, distance: i64, block: u64) -> Result<u64, Misfit> {
    let Some(gaps) = count.checked_sub(1).filter(|_| block > 0) else { return Ok(0) };
    let distance = u64::try_from(distance).map_err(|_| Misfit)?;
    let before = u64::from(gaps).checked_mul(distance).ok_or(Misfit)?;
    before.checked_add(block).ok_or(Misfit)
}
