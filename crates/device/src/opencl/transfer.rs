//! Commands on buffers: writes, reads, copies, fills.

use std::ffi::c_void;
use std::fmt;

use penstock_cl_sys::{CL_FALSE, cl_event, cl_int, cl_uint};
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::event::{Event, Times};
use super::memory::Mem;
use super::queue::{Queue, Want};
use super::reclaim::{LARGE_BYTES_MIN, SMALL_BYTES_MAX};
use super::region::{self, Rect};
use super::watch::Inside;
use crate::staging::Staged;

/// A pending read. If dropped, it still keeps the bytes until the command has ended.
pub struct Reading {
    event: Event,
    bytes: Option<Staged>,
}

impl Reading {
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// As [`Event::on_complete`], with the bytes; their content is unspecified if the read failed.
    pub fn on_complete(mut self, done: Box<dyn FnOnce(Status, Times, Staged) + Send>) {
        if let Some(bytes) = self.bytes.take() {
            self.event.on_complete(Box::new(move |status, times| done(status, times, bytes)));
        }
    }

    /// Blocks until the bytes are there.
    ///
    /// # Errors
    /// The error with which the read failed.
    pub fn wait(mut self) -> Result<Staged, Status> {
        self.event.wait()?;
        self.bytes.take().ok_or(Status::OUT_OF_RESOURCES)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.event.on_complete(Box::new(move |_, _| drop(bytes)));
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("event", &self.event).finish_non_exhaustive()
    }
}

impl Queue {
    /// `clEnqueueWriteBuffer`. Keeps the bytes until the device has them.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds.
    pub fn write(
        &self,
        mem: &Mem,
        offset: u64,
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let write = function!(clEnqueueWriteBuffer)?;
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let (place, length) = region::range(mem.size(), offset, bytes.len() as u64)?;
        self.give(bytes, waits, want, |start, number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; `give` keeps the `length`
            // bytes.
            unsafe {
                write(self.raw(), mem.raw(), CL_FALSE, place, length, start, number, list, event)
            }
        })
    }

    /// `clEnqueueReadBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds.
    pub fn read(
        &self,
        mem: &Mem,
        offset: u64,
        size: u64,
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        let read = function!(clEnqueueReadBuffer)?;
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let (place, length) = region::range(mem.size(), offset, size)?;
        self.take(size, waits, |start, number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; `take` keeps the `length`
            // bytes.
            unsafe {
                read(self.raw(), mem.raw(), CL_FALSE, place, length, start, number, list, event)
            }
        })
    }

    /// `clEnqueueWriteBufferRect` of a region without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds or has another size
    /// than `bytes`.
    pub fn write_rect(
        &self,
        mem: &Mem,
        rect: &Rect,
        region: [u64; 3],
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let write = function!(clEnqueueWriteBufferRect)?;
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let at = region::rect(mem.size(), rect, region)?;
        if region::bytes(region, 1)? != bytes.len() as u64 {
            return Err(Status::INVALID_VALUE);
        }
        let size = region::extent(region)?;
        self.give(bytes, waits, want, |start, number, list, event| {
            // SAFETY: queue and buffer live; the rectangle lies within; `start` has all its bytes.
            unsafe {
                write(
                    self.raw(),
                    mem.raw(),
                    CL_FALSE,
                    at.origin.as_ptr(),
                    [0; 3].as_ptr(),
                    size.as_ptr(),
                    at.row_pitch,
                    at.slice_pitch,
                    size[0],
                    size[0] * size[1],
                    start,
                    number,
                    list,
                    event,
                )
            }
        })
    }

    /// `clEnqueueReadBufferRect` into a region without gaps.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the region is out of bounds.
    pub fn read_rect(
        &self,
        mem: &Mem,
        rect: &Rect,
        region: [u64; 3],
        waits: &[&Event],
    ) -> Result<Reading, Status> {
        let read = function!(clEnqueueReadBufferRect)?;
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let at = region::rect(mem.size(), rect, region)?;
        let size = region::extent(region)?;
        self.take(region::bytes(region, 1)?, waits, |start, number, list, event| {
            // SAFETY: queue and buffer live; the rectangle lies within; `start` has room for it.
            unsafe {
                read(
                    self.raw(),
                    mem.raw(),
                    CL_FALSE,
                    at.origin.as_ptr(),
                    [0; 3].as_ptr(),
                    size.as_ptr(),
                    at.row_pitch,
                    at.slice_pitch,
                    size[0],
                    size[0] * size[1],
                    start,
                    number,
                    list,
                    event,
                )
            }
        })
    }

    /// `clEnqueueCopyBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if a range is out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy(
        &self,
        source: &Mem,
        source_offset: u64,
        target: &Mem,
        target_offset: u64,
        size: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let copy = function!(clEnqueueCopyBuffer)?;
        source.expect_buffer()?;
        target.expect_buffer()?;
        self.expect_same_context(&[source, target])?;
        let (from, length) = region::range(source.size(), source_offset, size)?;
        let (to, _) = region::range(target.size(), target_offset, size)?;
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue and buffers live; both ranges lie within.
            unsafe {
                copy(self.raw(), source.raw(), target.raw(), from, to, length, number, list, event)
            }
        })
    }

    /// `clEnqueueCopyBufferRect`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if a region is out of bounds.
    #[allow(clippy::too_many_arguments, reason = "they are those of the OpenCL call")]
    pub fn copy_rect(
        &self,
        source: &Mem,
        from: &Rect,
        target: &Mem,
        to: &Rect,
        region: [u64; 3],
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let copy = function!(clEnqueueCopyBufferRect)?;
        source.expect_buffer()?;
        target.expect_buffer()?;
        self.expect_same_context(&[source, target])?;
        let from = region::rect(source.size(), from, region)?;
        let to = region::rect(target.size(), to, region)?;
        let size = region::extent(region)?;
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue and buffers live; both rectangles lie within.
            unsafe {
                copy(
                    self.raw(),
                    source.raw(),
                    target.raw(),
                    from.origin.as_ptr(),
                    to.origin.as_ptr(),
                    size.as_ptr(),
                    from.row_pitch,
                    from.slice_pitch,
                    to.row_pitch,
                    to.slice_pitch,
                    number,
                    list,
                    event,
                )
            }
        })
    }

    /// `clEnqueueFillBuffer`.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_VALUE` if the range is out of bounds or not a multiple of
    /// the pattern.
    pub fn fill(
        &self,
        mem: &Mem,
        pattern: &[u8],
        offset: u64,
        size: u64,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Event>, Status> {
        let fill = function!(clEnqueueFillBuffer)?;
        mem.expect_buffer()?;
        self.expect_same_context(&[mem])?;
        let (place, length) = region::range(mem.size(), offset, size)?;
        // "pattern_size must be one of { 1, 2, 4, 8, 16, 32, 64, 128 }"; "CL_INVALID_VALUE if
        // offset and size are not a multiple of pattern_size."
        let step = pattern.len();
        let fits = step.is_power_of_two() && step <= limits::PATTERN_BYTES_MAX;
        if !fits || place % step != 0 || length % step != 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.enqueue(waits, want, |number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; the driver copies the pattern.
            unsafe {
                fill(
                    self.raw(),
                    mem.raw(),
                    pattern.as_ptr().cast(),
                    step,
                    place,
                    length,
                    number,
                    list,
                    event,
                )
            }
        })
    }

    /// Enqueues a command that reads `bytes`, and keeps them until it has ended.
    pub(super) fn give(
        &self,
        bytes: Staged,
        waits: &[&Event],
        want: Want,
        call: impl FnOnce(*const c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Option<Event>, Status> {
        let _inside = Inside::enter();
        if bytes.len() <= SMALL_BYTES_MAX {
            let mut reclaim = self.reclaim_state();
            let start = reclaim.place(self, &bytes)?;
            return self.enqueue(waits, want, |number, list, event| {
                call(start.cast(), number, list, event)
            });
        }
        let start = bytes.as_ptr();
        let event = self.enqueue_with_event(waits, |number, list, event| {
            call(start.cast(), number, list, event)
        })?;
        if bytes.len() < LARGE_BYTES_MIN {
            self.reclaim_state().keep(event.clone(), bytes);
        } else {
            event.on_complete(Box::new(move |_, _| drop(bytes)));
        }
        Ok(Some(event).filter(|_| want == Want::Event))
    }

    /// Enqueues a command that writes `size` bytes to the address that `call` gets.
    pub(super) fn take(
        &self,
        size: u64,
        waits: &[&Event],
        call: impl FnOnce(*mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Result<Reading, Status> {
        let mut bytes = Staged::new(api::size(size)?)?;
        let start = bytes.as_mut_ptr();
        let event = self.enqueue_with_event(waits, |number, list, event| {
            call(start.cast(), number, list, event)
        })?;
        Ok(Reading { event, bytes: Some(bytes) })
    }
}
