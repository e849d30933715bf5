//! Copies of rows with gaps between them.

use std::sync::Arc;

use penstock_client::{Rect, Want};
use penstock_cuda_sys::driver::*;

use super::block::Place;
use super::context::Context;
use super::copy::{Returns, Side, When};
use super::stream::Stream;
use super::{callback, host};
use crate::edge::{Bytes, CuResult, HostSource, HostTarget};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Where the first row begins.
    pub(crate) side: RowSide,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RowSide {
    /// Address in the program's memory.
    Host(usize),
    /// Address on any device.
    Device(u64),
}

impl Rows {
    /// Returns the number of bytes from the first to the last byte of the rows.
    fn reach(&self, (width, height): (u64, u64)) -> CuResult<u64> {
        if height > 1 && self.pitch < width {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let last = self
            .pitch
            .checked_mul(height.saturating_sub(1))
            .and_then(|last| last.checked_add(width));
        last.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the program's memory that the rows span.
    fn host(address: usize, size: u64) -> CuResult<Bytes> {
        let size = usize::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises with its copy that these rows may be accessed.
        unsafe { Bytes::new(std::ptr::with_exposed_provenance(address), size) }
    }
}

fn rect(offset: u64, pitch: u64) -> Rect {
    let pitch = pitch.max(1);
    Rect { origin: [offset % pitch, offset / pitch, 0], row_pitch: pitch, slice_pitch: 0 }
}

/// A copy whose rows have gaps on at least one side: `height` rows of `width` bytes.
#[derive(Clone, Copy)]
struct Apart {
    to: Rows,
    from: Rows,
    width: u64,
    height: u64,
}

impl Context {
    /// Copies `height` rows of `width` bytes.
    pub(crate) fn copy_rows(
        &self,
        stream: &Arc<Stream>,
        to: Rows,
        from: Rows,
        (width, height): (u64, u64),
        when: When,
    ) -> CuResult {
        self.check()?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        if height == 1 || (to.pitch == width && from.pitch == width) {
            let size = width.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let side = |rows: &Rows| match rows.side {
                RowSide::Host(address) => Rows::host(address, size).map(Side::Host),
                RowSide::Device(address) => Ok(Side::Device(address)),
            };
            return self.copy(stream, side(&to)?, side(&from)?, size, when);
        }
        let apart = Apart { to, from, width, height };
        match (to.side, from.side) {
            (RowSide::Device(to), RowSide::Host(from)) => {
                self.write_rows(stream, &apart, to, from, when)
            }
            (RowSide::Host(to), RowSide::Device(from)) => {
                self.read_rows(stream, &apart, to, from, when)
            }
            (RowSide::Device(to), RowSide::Device(from)) => {
                self.move_rows(stream, &apart, to, from)
            }
            (RowSide::Host(to), RowSide::Host(from)) if when == When::Unattended => {
                callback::in_stream(self, stream, move |status| {
                    if status == CUDA_SUCCESS {
                        // Cannot fail: the node's creation checked both sides.
                        _ = apart.on_host(to, from);
                    }
                })
            }
            (RowSide::Host(to), RowSide::Host(from)) => {
                self.finish_predecessors(stream)?;
                apart.on_host(to, from)
            }
        }
    }

    fn write_rows(
        &self,
        stream: &Stream,
        apart: &Apart,
        to: u64,
        from: usize,
        when: When,
    ) -> CuResult {
        if let Some(owner) = self.elsewhere(to)? {
            return owner
                .as_peer(self, stream, |own| owner.write_rows(own, apart, to, from, When::Now));
        }
        let place = self.device.space.place(to, apart.target_reach()?)?;
        let bytes = Rows::host(from, apart.source_reach()?)?;
        let pitch = usize::try_from(apart.from.pitch).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let width = usize::try_from(apart.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let source = self.source(stream, HostSource::rows(bytes, width, pitch), when)?;
        let returns = Returns::of_write(when, host::is_registered(bytes.address(), bytes.size()));
        let sent = self.issue(stream, |queue, waits| {
            let to = rect(place.offset, apart.to.pitch);
            queue.write_rect(&place.memory, to, apart.region(), &source, waits, returns.wants())
        })?;
        self.written(stream, returns, sent)
    }

    fn read_rows(
        &self,
        stream: &Stream,
        apart: &Apart,
        to: usize,
        from: u64,
        when: When,
    ) -> CuResult {
        if let Some(owner) = self.elsewhere(from)? {
            return owner
                .as_peer(self, stream, |own| owner.read_rows(own, apart, to, from, When::Now));
        }
        let place = self.device.space.place(from, apart.source_reach()?)?;
        let bytes = Rows::host(to, apart.target_reach()?)?;
        let pitch = usize::try_from(apart.to.pitch).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let width = usize::try_from(apart.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let target = HostTarget::rows(bytes, width, pitch);
        let (event, serial) = self.issue(stream, |queue, waits| {
            queue.read_rect(
                &place.memory,
                rect(place.offset, apart.from.pitch),
                apart.region(),
                target,
                waits,
            )
        })?;
        if when.is_late(bytes) {
            if let Some(event) = event {
                stream.unawaited_reads.add(event);
            }
            return Ok(());
        }
        // Waits in any case, because the read writes into the program's memory until it has ended.
        let finished = self.finish(stream);
        self.await_event(stream, event, serial).and(finished)
    }

    fn move_rows(&self, stream: &Arc<Stream>, apart: &Apart, to: u64, from: u64) -> CuResult {
        match (self.elsewhere(from)?, self.elsewhere(to)?) {
            (None, None) => {}
            (Some(source), Some(target)) if source.device.ordinal == target.device.ordinal => {
                return target.as_peer(self, stream, |own| target.move_rows(own, apart, to, from));
            }
            // Between devices, row by row.
            _ => {
                return (0..apart.height).try_for_each(|y| {
                    let (to, from) = (to + y * apart.to.pitch, from + y * apart.from.pitch);
                    self.copy(stream, Side::Device(to), Side::Device(from), apart.width, When::Now)
                });
            }
        }
        let space = &self.device.space;
        let (source, target) =
            (space.place(from, apart.source_reach()?)?, space.place(to, apart.target_reach()?)?);
        // "CL_INVALID_VALUE if src_buffer and dst_buffer are the same buffer object and
        // src_slice_pitch is not equal to dst_slice_pitch and src_row_pitch is not equal to
        // dst_row_pitch." If rows of the copy cross the end of a row of the buffer, the
        // specification's own test for CL_MEM_COPY_OVERLAP also rejects rectangles that are only
        // close together.
        let goes_past = |place: &Place, rows: &Rows| {
            place.offset % rows.pitch.max(1) + apart.width > rows.pitch
        };
        let is_refused = Arc::ptr_eq(&source.memory, &target.memory)
            && (apart.from.pitch != apart.to.pitch
                || goes_past(&source, &apart.from)
                || goes_past(&target, &apart.to));
        self.issue(stream, |queue, waits| {
            if is_refused && !self.device.is_native {
                for y in 0..apart.height {
                    let from = (&source.memory, source.offset + y * apart.from.pitch);
                    let to = (&target.memory, target.offset + y * apart.to.pitch);
                    let waits = if y == 0 { waits } else { &[] };
                    queue.copy(from, to, apart.width, waits, Want::Nothing)?;
                }
                return Ok(None);
            }
            let from = (&source.memory, rect(source.offset, apart.from.pitch));
            let to = (&target.memory, rect(target.offset, apart.to.pitch));
            queue.copy_rect(from, to, apart.region(), waits, Want::Nothing)
        })
        .map(drop)
    }
}

impl Apart {
    fn region(&self) -> [u64; 3] {
        [self.width, self.height, 1]
    }

    fn target_reach(&self) -> CuResult<u64> {
        self.to.reach((self.width, self.height))
    }

    fn source_reach(&self) -> CuResult<u64> {
        self.from.reach((self.width, self.height))
    }

    fn on_host(&self, to: usize, from: usize) -> CuResult {
        let (target, source) =
            (Rows::host(to, self.target_reach()?)?, Rows::host(from, self.source_reach()?)?);
        let width = usize::try_from(self.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        for y in 0..self.height {
            let at = |pitch: u64| usize::try_from(y * pitch).unwrap_or(usize::MAX);
            target
                .part(at(self.to.pitch), width)
                .copy_from(source.part(at(self.from.pitch), width));
        }
        Ok(())
    }
}
