//! Copies and fills.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_client::{Error, Range, Want};
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::device::Device;
use super::stream::{Kind, Stream};
use super::{host, platform};
use crate::edge::{Bytes, CuResult, HostTarget, of_status};

/// One side of a copy: so many bytes somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// In the program's memory.
    Host(Bytes),
    /// On a device, from this address on.
    Device(u64),
}

/// Whether a copy has to have ended when its function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// It has, as far as the program can tell.
    Now,
    /// It need not.
    Later,
}

/// Copies between devices that cannot reach each other go through the program's memory in pieces of this size.
const PIECE_BYTES: u64 = 8 << 20;

impl Context {
    /// Copies `size` bytes.
    pub(crate) fn copy(&self, stream: &Arc<Stream>, to: Side, from: Side, size: u64, when: When) -> CuResult {
        self.check()?;
        if size == 0 {
            return Ok(());
        }
        match (to, from) {
            (Side::Host(to), Side::Host(from)) => {
                // In the order of the stream.
                self.synchronize_stream(stream)?;
                to.copy_from(from);
                Ok(())
            }
            (Side::Device(to), Side::Host(from)) => self.write(stream, to, from),
            (Side::Host(to), Side::Device(from)) => self.read(stream, to, from, when),
            (Side::Device(to), Side::Device(from)) => self.copy_on_device(stream, to, from, size),
        }
    }

    /// The device of an address, if it is not this context's.
    fn foreign(&self, address: u64) -> Option<&'static Arc<Device>> {
        platform::device_of(address).filter(|device| device.ordinal != self.device.ordinal)
    }

    /// Waits, if something under way in the stream, or before it, may still write these bytes of the program.
    pub(super) fn until_written(&self, stream: &Stream, address: usize, size: usize) -> CuResult {
        if !self.late.may_write(address, size) {
            return Ok(());
        }
        if stream.kind == Kind::Blocking {
            self.finish(&self.legacy)?;
        }
        self.synchronize_stream(stream)
    }

    /// The bytes are taken before this returns: so it is right for memory that is registered and for all other.
    fn write(&self, stream: &Stream, to: u64, from: Bytes) -> CuResult {
        self.until_written(stream, from.address(), from.size())?;
        if let Some(other) = self.foreign(to) {
            self.finish(stream)?;
            return other.write_now(to, from.read()).map_err(|error| self.failed(&error));
        }
        let place = self.device.space.place(to, from.size() as u64)?;
        self.issue_write(stream, &place, from.read())
    }

    fn read(&self, stream: &Stream, to: Bytes, from: u64, when: When) -> CuResult {
        if let Some(other) = self.foreign(from) {
            self.finish(stream)?;
            return other.read_now(from, to).map_err(|error| self.failed(&error))?;
        }
        let size = to.size() as u64;
        let place = self.device.space.place(from, size)?;
        let range = Range { offset: place.offset, size };
        let target = HostTarget::linear(to);
        // "For transfers from device memory to pageable host memory, the function will return only once the copy has completed."
        if when == When::Later && host::is_registered(to.address(), to.size()) {
            self.late.read(to.address(), to.size());
            let sent = self
                .issue(stream, |queue, waits| queue.read(&place.memory, range, target, waits, Want::Nothing));
            return sent.map(drop);
        }
        if place.memory.shared_pointer().is_some() {
            // What is waited for is the queue, so that a failure of what it has done is known now.
            self.finish(stream)?;
            let is_free = stream.kind == Kind::NonBlocking || !self.has_blocking.load(Ordering::Acquire);
            if is_free {
                let read = stream.queue.read_now(&place.memory, range, target, &[], Want::Nothing);
                let failed =
                    read.map_err(|error| self.failed(&error))?.and_then(|event| event.known_status());
                return match failed.filter(|status| status.is_error()) {
                    Some(status) => Err(self.fail(of_status(status))),
                    None => self.control.look(self),
                };
            }
            return self.issue_and_wait(stream, |queue, waits| {
                queue.read_now(&place.memory, range, target, waits, Want::Nothing)
            });
        }
        let (event, serial) =
            self.issue(stream, |queue, waits| queue.read(&place.memory, range, target, waits, Want::Event))?;
        self.finish(stream)?;
        self.await_event(stream, event, serial)
    }

    fn copy_on_device(&self, stream: &Arc<Stream>, to: u64, from: u64, size: u64) -> CuResult {
        if self.foreign(to).is_some() || self.foreign(from).is_some() {
            return self.copy_across(stream, to, from, size);
        }
        let space = &self.device.space;
        let (source, target) = (space.place(from, size)?, space.place(to, size)?);
        if from.abs_diff(to) >= size {
            return self
                .issue(stream, |queue, waits| {
                    let (source, target) = ((&source.memory, source.offset), (&target.memory, target.offset));
                    queue.copy(source, target, size, waits, Want::Nothing)
                })
                .map(drop);
        }
        if from == to {
            return Ok(());
        }
        // OpenCL refuses copies within one buffer that overlap.
        let between = self.device.allocate(size, 0, false)?;
        let copied = self
            .copy_on_device(stream, between, from, size)
            .and_then(|()| self.copy_on_device(stream, to, between, size));
        let busy = self.marker(stream).map(|event| event.into_iter().collect()).unwrap_or_default();
        self.device.release(between, false, busy)?;
        copied
    }

    /// Between devices. Within one node and platform its driver does it, else their workers; where those do not reach each other, it
    /// goes through the program's memory.
    fn copy_across(&self, stream: &Arc<Stream>, to: u64, from: u64, size: u64) -> CuResult {
        let device = |address| platform::device_of(address).ok_or(CUDA_ERROR_INVALID_VALUE);
        let (source, target) = (device(from)?, device(to)?);
        let (source_place, target_place) = (source.space.place(from, size)?, target.space.place(to, size)?);
        let home = &self.device.context;
        let together = [source, target].iter().all(|device| Arc::ptr_eq(&device.context, home));
        if together {
            return self.issue_and_wait(stream, |queue, waits| {
                let from = (&source_place.memory, source_place.offset);
                queue.copy(from, (&target_place.memory, target_place.offset), size, waits, Want::Event)
            });
        }
        self.finish(stream)?;
        // From worker to worker, where they reach each other.
        let (from_place, to_place) = (&source_place, &target_place);
        let moved = from_place.memory.copy_to(from_place.offset, &to_place.memory, to_place.offset, size);
        if let Some(arrival) = moved.map_err(|error| self.failed(&error))? {
            let status = arrival.wait();
            return if status.is_error() { Err(self.fail(of_status(status))) } else { Ok(()) };
        }
        let mut room =
            vec![0u8; usize::try_from(size.min(PIECE_BYTES)).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?];
        let mut at = 0;
        while at < size {
            let now = usize::try_from((size - at).min(PIECE_BYTES)).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
            let piece = room.get_mut(..now).ok_or(CUDA_ERROR_UNKNOWN)?;
            // SAFETY: `piece` is ours, and is written before this returns.
            let bytes = unsafe { Bytes::new(piece.as_mut_ptr().cast(), now) }?;
            source.read_now(from + at, bytes).map_err(|error| self.failed(&error))??;
            target.write_now(to + at, bytes.read()).map_err(|error| self.failed(&error))?;
            at += now as u64;
        }
        Ok(())
    }

    /// `cuMemset...`: `count` times a pattern.
    pub(crate) fn fill(&self, stream: &Stream, to: u64, pattern: &[u8], count: u64) -> CuResult {
        self.check()?;
        let size = count.checked_mul(pattern.len() as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if size == 0 {
            return Ok(());
        }
        if !to.is_multiple_of(pattern.len() as u64) || self.foreign(to).is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let place = self.device.space.place(to, size)?;
        let range = Range { offset: place.offset, size };
        self.issue(stream, |queue, waits| queue.fill(&place.memory, pattern, range, waits, Want::Nothing))
            .map(drop)
    }

    /// Fills rows: `width` times a pattern, `pitch` bytes apart.
    pub(crate) fn fill_rows(
        &self,
        stream: &Stream,
        (to, pitch): (u64, u64),
        pattern: &[u8],
        (width, height): (u64, u64),
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

impl Device {
    /// Writes bytes, after everything that was sent to the device before by whoever waited for it.
    pub(crate) fn write_now(&self, to: u64, bytes: &[u8]) -> Result<(), Error> {
        let wrong = |_| Error::Config("an address that is not allocated".into());
        let place = self.space.place(to, bytes.len() as u64).map_err(wrong)?;
        let queue = Stream::queue_on(self).map_err(|_| Error::Config("no queue".into()))?;
        queue.write(&place.memory, place.offset, bytes, &[], Want::Nothing)?;
        queue.finish()
    }

    fn read_now(&self, from: u64, to: Bytes) -> Result<CuResult, Error> {
        let Ok(place) = self.space.place(from, to.size() as u64) else {
            return Ok(Err(CUDA_ERROR_INVALID_VALUE));
        };
        let queue = match Stream::queue_on(self) {
            Ok(queue) => queue,
            Err(code) => return Ok(Err(code)),
        };
        let range = Range { offset: place.offset, size: to.size() as u64 };
        let event = queue.read_now(&place.memory, range, HostTarget::linear(to), &[], Want::Event)?;
        let failed = event.map(|event| event.wait()).filter(|status| status.is_error());
        Ok(failed.map_or(Ok(()), |status| Err(of_status(status))))
    }
}
