//! Fills of device memory. They run at once or are nodes of a graph.

use penstock_client::{Range, Want};
use penstock_cuda_sys::driver::CUDA_ERROR_INVALID_VALUE;

use super::context::Context;
use super::stream::Stream;
use crate::edge::{CuResult, require};

/// Rows of elements in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementRows {
    pub(crate) to: u64,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
    /// Elements of a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// A fill: rows of elements that all get the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memset {
    pub(crate) to: u64,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// Size of an element in bytes: 1, 2 or 4.
    pub(crate) element: u32,
    /// Elements of a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Memset {
    /// Checks element size, extent and alignment.
    pub(crate) fn check(&self) -> CuResult {
        require([1, 2, 4].contains(&self.element), CUDA_ERROR_INVALID_VALUE)?;
        require(self.width > 0 && self.height > 0, CUDA_ERROR_INVALID_VALUE)?;
        require(self.to.is_multiple_of(u64::from(self.element)), CUDA_ERROR_INVALID_VALUE)
    }

    fn rows(&self) -> ElementRows {
        let &Self { to, pitch, width, height, .. } = self;
        ElementRows { to, pitch, width, height }
    }

    pub(crate) fn run(&self, context: &Context, stream: &Stream) -> CuResult {
        let bytes = self.value.to_le_bytes();
        let pattern = bytes.get(..self.element as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if self.height == 1 {
            return context.fill(stream, self.to, pattern, self.width);
        }
        context.fill_rows(stream, self.rows(), pattern)
    }
}

impl Context {
    /// Implements `cuMemset...`: writes a pattern `count` times.
    pub(crate) fn fill(&self, stream: &Stream, to: u64, pattern: &[u8], count: u64) -> CuResult {
        self.check()?;
        let size = count.checked_mul(pattern.len() as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if size == 0 {
            return Ok(());
        }
        if !to.is_multiple_of(pattern.len() as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(owner) = self.elsewhere(to)? {
            return owner.as_peer(self, stream, |own| owner.fill(own, to, pattern, count));
        }
        let located = self.device.space.locate(to, size)?;
        let range = Range { offset: located.offset, size };
        self.issue_unnoticed(stream, |queue, waits| {
            queue.fill(&located.memory, pattern, range, waits, Want::Nothing)
        })
        .map(drop)
    }

    /// Fills each element of the rows with the pattern.
    pub(crate) fn fill_rows(
        &self,
        stream: &Stream,
        ElementRows { to, pitch, width, height }: ElementRows,
        pattern: &[u8],
    ) -> CuResult {
        let row = width.checked_mul(pattern.len() as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if height > 1 && pitch < row {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if pitch == row {
            return self.fill(
                stream,
                to,
                pattern,
                width.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?,
            );
        }
        (0..height).try_for_each(|y| self.fill(stream, to + y * pitch, pattern, width))
    }
}
