//! Copies of rows with gaps between them.

use std::sync::Arc;

use penstock_client::summary::Reason;
use penstock_client::{Rect, Want};
use penstock_cuda_sys::driver::*;

use super::block::MemoryOffset;
use super::context::Context;
use super::copy::{CopyMode, CopySide, Joint, WriteReturn};
use super::order::is_taken_later;
use super::own_copy::OwnCopy;
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

/// The size of a rectangle in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RectSize {
    /// Number of bytes in a row.
    pub(crate) width: u64,
    /// Number of rows.
    pub(crate) height: u64,
}

impl RowSide {
    fn address(self) -> u64 {
        match self {
            Self::Host(address) => address as u64,
            Self::Device(address) => address,
        }
    }
}

impl Rows {
    /// Returns the number of bytes from the first to the last byte of the rows.
    fn reach(&self, RectSize { width, height }: RectSize) -> CuResult<u64> {
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

/// A copy whose rows have gaps on at least one side.
#[derive(Clone, Copy)]
struct PitchedCopy {
    to: Rows,
    from: Rows,
    size: RectSize,
}

impl Context {
    /// Copies rows of bytes.
    pub(crate) fn copy_rows(
        &self,
        stream: &Arc<Stream>,
        to: Rows,
        from: Rows,
        size: RectSize,
        when: CopyMode,
    ) -> CuResult {
        self.check()?;
        let RectSize { width, height } = size;
        if width == 0 || height == 0 {
            return Ok(());
        }
        if height == 1 || (to.pitch == width && from.pitch == width) {
            let bytes = width.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let side = |rows: &Rows| match rows.side {
                RowSide::Host(address) => Rows::host(address, bytes).map(CopySide::Host),
                RowSide::Device(address) => Ok(CopySide::Device(address)),
            };
            return self.copy(stream, side(&to)?, side(&from)?, bytes, when);
        }
        let spans = |rows: &Rows| -> CuResult<_> { Ok((rows.side.address(), rows.reach(size)?)) };
        let own = self.own_copy(spans(&to)?, spans(&from)?);
        let sent = own.and_then(|own| self.copy_own_rows(stream, (&to, &from), &own, size, when));
        if let Some(sent) = sent {
            return sent;
        }
        let is_host = |rows: &Rows| -> CuResult<bool> {
            let (address, size) = spans(rows)?;
            Ok(matches!(rows.side, RowSide::Host(_)) && host::is_only_host(address, size))
        };
        let is_on_host = is_host(&to)? && is_host(&from)?;
        let side = |rows: &Rows| {
            let address = rows.side.address();
            Ok(match self.joint(stream, spans(rows)?, when, is_on_host)? {
                Some(Joint::AsHost) => {
                    let address = usize::try_from(address);
                    RowSide::Host(address.map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
                }
                Some(Joint::AsDevice) => RowSide::Device(address),
                None => rows.side,
            })
        };
        let (to, from) = (Rows { side: side(&to)?, ..to }, Rows { side: side(&from)?, ..from });
        let copy = PitchedCopy { to, from, size };
        match (to.side, from.side) {
            (RowSide::Device(to), RowSide::Host(from)) => {
                self.write_rows(stream, &copy, to, from, when)
            }
            (RowSide::Host(to), RowSide::Device(from)) => {
                self.read_rows(stream, &copy, to, from, when)
            }
            (RowSide::Device(to), RowSide::Device(from)) => self.move_rows(stream, &copy, to, from),
            (RowSide::Host(to), RowSide::Host(from)) if when == CopyMode::Unattended => {
                callback::in_stream(self, stream, move |status| {
                    if status == CUDA_SUCCESS {
                        // Cannot fail: the node's creation checked both sides.
                        _ = copy.on_host(to, from);
                    }
                })
            }
            (RowSide::Host(to), RowSide::Host(from)) => {
                self.finish_predecessors(stream)?;
                copy.on_host(to, from)
            }
        }
    }

    fn copy_own_rows(
        &self,
        stream: &Stream,
        (to, from): (&Rows, &Rows),
        own: &OwnCopy,
        RectSize { width, height }: RectSize,
        when: CopyMode,
    ) -> Option<CuResult> {
        let target = (&own.to.memory, rect(own.to.offset, to.pitch));
        let source = (&own.from.memory, rect(own.from.offset, from.pitch));
        self.issue_own_copy(stream, own, when, |queue, waits, want| {
            queue.copy_rect(source, target, [width, height, 1], waits, want)
        })
    }

    fn write_rows(
        &self,
        stream: &Stream,
        copy: &PitchedCopy,
        to: u64,
        from: usize,
        when: CopyMode,
    ) -> CuResult {
        if let Some(owner) = self.elsewhere(to)? {
            return owner
                .as_peer(self, stream, |own| owner.write_rows(own, copy, to, from, CopyMode::Now));
        }
        let located = self.device.space.locate(to, copy.target_reach()?)?;
        let bytes = Rows::host(from, copy.source_reach()?)?;
        let pitch = usize::try_from(copy.from.pitch).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let width = usize::try_from(copy.size.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let source = self.source(stream, HostSource::rows(bytes, width, pitch), when)?;
        let returns =
            WriteReturn::of_write(when, host::is_registered(bytes.address(), bytes.size()));
        let sent = self.issue_as(stream, is_taken_later(&source), |queue, waits| {
            let to = rect(located.offset, copy.to.pitch);
            queue.write_rect(&located.memory, to, copy.region(), &source, waits, returns.wants())
        })?;
        self.written(stream, returns, sent)
    }

    fn read_rows(
        &self,
        stream: &Stream,
        copy: &PitchedCopy,
        to: usize,
        from: u64,
        when: CopyMode,
    ) -> CuResult {
        if let Some(owner) = self.elsewhere(from)? {
            return owner
                .as_peer(self, stream, |own| owner.read_rows(own, copy, to, from, CopyMode::Now));
        }
        let located = self.device.space.locate(from, copy.source_reach()?)?;
        let bytes = Rows::host(to, copy.target_reach()?)?;
        let pitch = usize::try_from(copy.to.pitch).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let width = usize::try_from(copy.size.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let target = HostTarget::rows(bytes, width, pitch);
        let sent = self.issue(stream, |queue, waits| {
            queue.read_rect(
                &located.memory,
                rect(located.offset, copy.from.pitch),
                copy.region(),
                target,
                waits,
            )
        })?;
        if when.is_late(bytes) {
            if let Some(event) = sent.event {
                stream.unawaited_reads.add(event);
            }
            return Ok(());
        }
        stream.queue.waiting(Reason::Read, || {
            // Waits in any case: the read writes into the program's memory until it has ended.
            let finished = self.finish(stream);
            self.await_event(stream, sent).and(finished)
        })
    }

    fn move_rows(&self, stream: &Arc<Stream>, copy: &PitchedCopy, to: u64, from: u64) -> CuResult {
        match (self.elsewhere(from)?, self.elsewhere(to)?) {
            (None, None) => {}
            (Some(source), Some(target)) if source.device.ordinal == target.device.ordinal => {
                return target.as_peer(self, stream, |own| target.move_rows(own, copy, to, from));
            }
            // Between devices, row by row.
            _ => {
                return (0..copy.size.height).try_for_each(|y| {
                    let (to, from) = (to + y * copy.to.pitch, from + y * copy.from.pitch);
                    self.copy(
                        stream,
                        CopySide::Device(to),
                        CopySide::Device(from),
                        copy.size.width,
                        CopyMode::Now,
                    )
                });
            }
        }
        let space = &self.device.space;
        let (source, target) =
            (space.locate(from, copy.source_reach()?)?, space.locate(to, copy.target_reach()?)?);
        // "CL_INVALID_VALUE if src_buffer and dst_buffer are the same buffer object and
        // src_slice_pitch is not equal to dst_slice_pitch and src_row_pitch is not equal to
        // dst_row_pitch." If rows of the copy cross the end of a row of the buffer, the
        // specification's own test for CL_MEM_COPY_OVERLAP also rejects rectangles that are only
        // close together.
        let goes_past = |located: &MemoryOffset, rows: &Rows| {
            located.offset % rows.pitch.max(1) + copy.size.width > rows.pitch
        };
        let is_refused = Arc::ptr_eq(&source.memory, &target.memory)
            && (copy.from.pitch != copy.to.pitch
                || goes_past(&source, &copy.from)
                || goes_past(&target, &copy.to));
        self.issue(stream, |queue, waits| {
            if is_refused && !self.device.is_native {
                for y in 0..copy.size.height {
                    let from = (&source.memory, source.offset + y * copy.from.pitch);
                    let to = (&target.memory, target.offset + y * copy.to.pitch);
                    let waits = if y == 0 { waits } else { &[] };
                    queue.copy(from, to, copy.size.width, waits, Want::Nothing)?;
                }
                return Ok(None);
            }
            let from = (&source.memory, rect(source.offset, copy.from.pitch));
            let to = (&target.memory, rect(target.offset, copy.to.pitch));
            queue.copy_rect(from, to, copy.region(), waits, Want::Nothing)
        })
        .map(drop)
    }
}

impl PitchedCopy {
    fn region(&self) -> [u64; 3] {
        [self.size.width, self.size.height, 1]
    }

    fn target_reach(&self) -> CuResult<u64> {
        self.to.reach(self.size)
    }

    fn source_reach(&self) -> CuResult<u64> {
        self.from.reach(self.size)
    }

    fn on_host(&self, to: usize, from: usize) -> CuResult {
        let (target, source) =
            (Rows::host(to, self.target_reach()?)?, Rows::host(from, self.source_reach()?)?);
        let width = usize::try_from(self.size.width).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        for y in 0..self.size.height {
            let at = |pitch: u64| usize::try_from(y * pitch).unwrap_or(usize::MAX);
            target
                .part(at(self.to.pitch), width)
                .copy_from(source.part(at(self.from.pitch), width));
        }
        Ok(())
    }
}
