//! Random parts of memory objects and of host memory.

use super::Planner;
use crate::feature::Feature;
use crate::ledger::MemKind;
use crate::plan::{Ptr, Rect};

/// Largest number of rows in a rectangle. Each row is a separate copy.
const ROWS_MAX: usize = 24;

impl Planner {
    /// Returns a part of a memory object: offset and length, both multiples of `unit`.
    pub(super) fn part(&mut self, mem: usize, unit: usize) -> Option<(usize, usize)> {
        let size = self.ledger.mems[&mem].size / unit;
        if size == 0 {
            return None;
        }
        if self.random.chance(40) {
            return Some((0, size * unit));
        }
        let len = self.random.between(1, size);
        let offset = self.random.below(size - len + 1);
        Some((offset * unit, len * unit))
    }

    /// Returns the unit of a transfer in bytes: mostly whole words.
    pub(super) fn unit(&mut self) -> usize {
        if self.random.chance(85) { 4 } else { 1 }
    }

    /// Returns host memory for a transfer of at most `len` bytes: a position and a number of bytes.
    ///
    /// With the feature of chains, it often overlaps with the memory of an earlier transfer.
    pub(super) fn host(&mut self, len: usize, into: bool) -> Option<(Ptr, usize)> {
        if self.has(Feature::HostChains)
            && self.random.chance(65)
            && let Some((mut at, old)) = self.random.pick(&self.recent)
            && self.usable(at, old, into)
        {
            let room = self.ledger.areas[&at.area].len;
            if self.random.chance(25) {
                at.offset += self.random.below(old.div_ceil(8) + 1) / 4 * 4;
            }
            let len = len.min(room.saturating_sub(at.offset));
            return (len > 0).then_some((at, len));
        }
        let maps = self.has(Feature::Maps) && self.random.chance(20);
        let fit = self.ledger.areas.iter().filter(|(id, area)| {
            area.alive && area.map.is_some() == maps && !self.own.private_areas.contains(id)
        });
        let all: Vec<usize> = fit.map(|(&id, _)| id).collect();
        let area = self.random.pick(&all)?;
        let room = self.ledger.areas[&area].len;
        let len = len.min(room);
        let unit = if self.random.chance(85) { 4 } else { 1 };
        let offset = if self.random.chance(50) {
            0
        } else {
            self.random.below(room - len + 1) / unit * unit
        };
        let at = Ptr { area, offset };
        self.usable(at, len, into).then_some((at, len))
    }

    fn usable(&self, at: Ptr, len: usize, into: bool) -> bool {
        let Some(area) = self.ledger.areas.get(&at.area) else { return false };
        let writable = area.map.is_none_or(|map| map.mode.writes());
        area.alive && at.offset + len <= area.len && (writable || !into)
    }

    /// Returns a rectangle in an object of `size` bytes and in `other` bytes on the other side.
    pub(super) fn rect(&mut self, size: usize, other: usize) -> Option<Rect> {
        let height = self.random.between(1, ROWS_MAX);
        let (mem_pitch, other_pitch) = (size / height / 4 * 4, other / height / 4 * 4);
        let widest = mem_pitch.min(other_pitch) / 4;
        if widest == 0 {
            return None;
        }
        let width = self.random.between(1, widest) * 4;
        let mem_pitch = self.random.between(width / 4, mem_pitch / 4) * 4;
        let other_pitch = self.random.between(width / 4, other_pitch / 4) * 4;
        let mem_offset = self.random.below((mem_pitch - width) / 4 + 1) * 4;
        Some(Rect { width, height, mem_offset, mem_pitch, other_pitch })
    }

    /// Returns a random size for a new buffer.
    pub(super) fn new_size(&mut self) -> usize {
        match self.random.below(4) {
            0 => (self.size / 2).max(64),
            1 => self.size * 2,
            _ => self.size,
        }
    }

    /// Returns a duration for a slow kernel, in rounds of about a nanosecond.
    pub(super) fn spin(&mut self) -> u32 {
        self.random.pick(&[20_000, 100_000, 300_000, 1_000_000, 3_000_000]).unwrap_or(100_000)
    }
}

/// Kinds that transfers and copies of buffers accept.
pub(super) fn is_buffer(kind: MemKind) -> bool {
    matches!(kind, MemKind::Buffer | MemKind::Sub)
}

/// Kinds that kernels and mappings accept.
pub(super) fn is_linear(kind: MemKind) -> bool {
    matches!(kind, MemKind::Buffer | MemKind::Sub | MemKind::Svm)
}

/// Kinds that image commands accept.
pub(super) fn is_image(kind: MemKind) -> bool {
    matches!(kind, MemKind::Image { .. } | MemKind::View { .. })
}
