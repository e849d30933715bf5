//! Discrete Fourier transforms, not scaled.

use serde::{Deserialize, Serialize};

use super::{Access, Extents, Misfit, Place};

/// Number of dimensions of a transform, as in cuFFT.
pub const RANK_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Complex to complex. `forward`: the exponent has a minus sign.
    Complex { forward: bool },
    /// Real to complex. The output has only the elements that are not conjugates of others.
    FromReal,
    /// Complex to real.
    ToReal,
}

/// Where the elements of one side of a transform are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Sizes of the array that contains the elements. The first size does not matter.
    pub embed: [u32; RANK_MAX],
    /// Distance of two elements of the last dimension.
    pub stride: u32,
    /// Distance of the first elements of two transforms.
    pub distance: u64,
}

/// A batch of transforms of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    pub kind: Kind,
    pub is_double: bool,
    /// Number of dimensions that count.
    pub rank: u8,
    /// Sizes of the transform, the slowest first.
    pub sizes: [u32; RANK_MAX],
    pub batch: u32,
    pub input: Layout,
    pub output: Layout,
}

/// A call of a transform. A transform in place has one operand for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub shape: Shape,
    pub input: Place,
    /// `None` if the transform is in place.
    pub output: Option<Place>,
}

impl Shape {
    /// Returns the sizes of the transform.
    pub fn sizes(&self) -> &[u32] {
        self.sizes.get(..usize::from(self.rank)).unwrap_or_default()
    }

    /// Returns the sizes of one side: those of a transform of real elements are smaller on the
    /// complex side.
    fn side(&self, is_input: bool) -> [u32; RANK_MAX] {
        let halved = match self.kind {
            Kind::Complex { .. } => false,
            Kind::FromReal => !is_input,
            Kind::ToReal => is_input,
        };
        let mut sizes = self.sizes;
        if let Some(last) = sizes.get_mut(usize::from(self.rank).wrapping_sub(1)) {
            *last = if halved { *last / 2 + 1 } else { *last };
        }
        sizes
    }

    /// Returns the number of bytes from the first to the last element of one side.
    ///
    /// # Errors
    /// A size is 0, an embedding is smaller than what it contains, or the number overflows. Two
    /// elements of the output may have the same place. Transforms may read the same elements:
    /// programs transform windows of a signal that overlap.
    pub fn bytes(&self, is_input: bool) -> Result<u64, Misfit> {
        let layout = if is_input { &self.input } else { &self.output };
        let rank = usize::from(self.rank);
        let sizes = self.side(is_input);
        let sizes = sizes.get(..rank).ok_or(Misfit)?;
        let embed = layout.embed.get(..rank).ok_or(Misfit)?;
        if rank == 0 || self.batch == 0 || layout.stride == 0 || sizes.contains(&0) {
            return Err(Misfit);
        }
        let mut last = 0_u64;
        for (dimension, (size, room)) in sizes.iter().zip(embed).enumerate() {
            if dimension > 0 && room < size {
                return Err(Misfit);
            }
            let scale = if dimension == 0 { 1 } else { u64::from(*room) };
            last = last
                .checked_mul(scale)
                .and_then(|last| last.checked_add(u64::from(*size) - 1))
                .ok_or(Misfit)?;
        }
        if !is_input && !self.is_apart(sizes, embed, layout) {
            return Err(Misfit);
        }
        let batches = u64::from(self.batch - 1).checked_mul(layout.distance).ok_or(Misfit)?;
        let elements = last
            .checked_mul(u64::from(layout.stride))
            .and_then(|last| last.checked_add(batches))
            .and_then(|last| last.checked_add(1))
            .ok_or(Misfit)?;
        elements.checked_mul(self.element_bytes(is_input)).ok_or(Misfit)
    }

    /// Returns whether the steps of the dimensions and of the batch nest: each step is longer than
    /// all of the shorter ones together. Then all elements of a side have places of their own, and
    /// the memory of a transform is bounded by that of its output.
    fn is_apart(&self, sizes: &[u32], embed: &[u32], layout: &Layout) -> bool {
        let mut steps = [(0_u64, 0_u64); RANK_MAX + 1];
        let [of_batch, of_dimensions @ ..] = &mut steps;
        *of_batch = (layout.distance, u64::from(self.batch) - 1);
        let mut step = u64::from(layout.stride);
        for ((size, room), slot) in sizes.iter().zip(embed).rev().zip(of_dimensions) {
            *slot = (step, u64::from(*size) - 1);
            step = step.saturating_mul((*room).into());
        }
        steps.sort_unstable();
        let mut reach = 0_u64;
        steps.iter().filter(|(_, more)| *more > 0).all(|(step, more)| {
            let is_longer = *step > reach;
            reach = reach.saturating_add(step.saturating_mul(*more));
            is_longer
        })
    }

    fn element_bytes(&self, is_input: bool) -> u64 {
        let is_real = match self.kind {
            Kind::Complex { .. } => false,
            Kind::FromReal => is_input,
            Kind::ToReal => !is_input,
        };
        let part = if self.is_double { 8 } else { 4 };
        if is_real { part } else { 2 * part }
    }
}

impl Call {
    pub(super) fn touch(&self, extents: &mut Extents) -> Result<(), Misfit> {
        let (input, output) = (self.shape.bytes(true)?, self.shape.bytes(false)?);
        match self.output {
            None => extents.put(self.input, input.max(output), 1, Access::Write),
            Some(place) => {
                // Transforms of several dimensions to real elements may overwrite their input.
                let overwrites = self.shape.kind == Kind::ToReal && self.shape.rank > 1;
                let access = if overwrites { Access::Write } else { Access::Read };
                extents.put(self.input, input, 1, access)?;
                extents.put(place, output, 1, Access::Write)
            }
        }
    }
}
