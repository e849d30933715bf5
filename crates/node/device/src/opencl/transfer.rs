//! Commands on buffers: writes, reads, copies, fills.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_cl_sys::{CL_FALSE, cl_event, cl_int, cl_uint};
use penstock_wire::status::Status;

use super::api::function;
use super::event::Event as OwnEvent;
use super::memory::raw;
use super::queue::Queue;
use super::reclaim::{LARGE_BYTES_MIN, SMALL_BYTES_MAX};
use super::watch::Inside;
use crate::driver::{Mem, Want};
use crate::event::{Event, EventDriver};
use crate::region::Placed;
use crate::staging::Staged;

type Enqueued = Result<Option<Arc<OwnEvent>>, Status>;

/// Calls the function for a rectangle of a buffer and a region of the host without gaps.
macro_rules! rect {
    ($f:ident, $queue:expr, $mem:ident, $at:ident, $size:ident, $host:expr, $($wait:ident),+) => {
        $f(
            $queue,
            $mem,
            CL_FALSE,
            $at.origin.as_ptr(),
            [0; 3].as_ptr(),
            $size.as_ptr(),
            $at.row_pitch,
            $at.slice_pitch,
            $size[0],
            $size[0] * $size[1],
            $host,
            $($wait),+
        )
    };
}

impl Queue {
    /// `clEnqueueWriteBuffer`.
    pub(super) fn write(
        &self,
        mem: &Mem,
        offset: usize,
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let write = function!(clEnqueueWriteBuffer)?;
        let (mem, length) = (raw(mem)?, bytes.len());
        self.give(bytes, waits, want, |start, number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; `give` keeps the `length`
            // bytes.
            unsafe { write(self.raw(), mem, CL_FALSE, offset, length, start, number, list, event) }
        })
    }

    /// `clEnqueueReadBuffer`. The caller keeps the memory until the event has ended.
    pub(super) fn read_buffer(
        &self,
        mem: &Mem,
        offset: usize,
        length: usize,
        to: *mut u8,
        waits: &[&Event],
    ) -> Result<Arc<OwnEvent>, Status> {
        let read = function!(clEnqueueReadBuffer)?;
        let (mem, to) = (raw(mem)?, to.cast());
        self.enqueue_with_event(waits, |number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; the caller keeps the memory,
            // which has `length` bytes.
            unsafe { read(self.raw(), mem, CL_FALSE, offset, length, to, number, list, event) }
        })
    }

    /// `clEnqueueWriteBufferRect` of a region without gaps.
    pub(super) fn write_rect(
        &self,
        mem: &Mem,
        at: &Placed,
        size: [usize; 3],
        bytes: Staged,
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let write = function!(clEnqueueWriteBufferRect)?;
        let mem = raw(mem)?;
        self.give(bytes, waits, want, |start, number, list, event| {
            // SAFETY: queue and buffer live; the rectangle lies within; `start` has all its bytes.
            unsafe { rect!(write, self.raw(), mem, at, size, start, number, list, event) }
        })
    }

    /// `clEnqueueReadBufferRect` into a region without gaps. The caller keeps the memory until the
    /// event has ended.
    pub(super) fn read_rect(
        &self,
        mem: &Mem,
        at: &Placed,
        size: [usize; 3],
        to: *mut u8,
        waits: &[&Event],
    ) -> Result<Arc<OwnEvent>, Status> {
        let read = function!(clEnqueueReadBufferRect)?;
        let mem = raw(mem)?;
        self.enqueue_with_event(waits, |number, list, event| {
            // SAFETY: queue and buffer live; the rectangle lies within; the caller keeps the
            // memory, which has room for it.
            unsafe { rect!(read, self.raw(), mem, at, size, to.cast(), number, list, event) }
        })
    }

    /// `clEnqueueCopyBuffer`.
    pub(super) fn copy(
        &self,
        (source, from): (&Mem, usize),
        (target, to): (&Mem, usize),
        length: usize,
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let copy = function!(clEnqueueCopyBuffer)?;
        let (source, target) = (raw(source)?, raw(target)?);
        self.enqueue_with(waits, want, |number, list, event| {
            // SAFETY: queue and buffers live; both ranges lie within.
            unsafe { copy(self.raw(), source, target, from, to, length, number, list, event) }
        })
    }

    /// `clEnqueueCopyBufferRect`.
    pub(super) fn copy_rect(
        &self,
        (source, from): (&Mem, &Placed),
        (target, to): (&Mem, &Placed),
        size: [usize; 3],
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let copy = function!(clEnqueueCopyBufferRect)?;
        let (source, target) = (raw(source)?, raw(target)?);
        self.enqueue_with(waits, want, |number, list, event| {
            // SAFETY: queue and buffers live; both rectangles lie within.
            unsafe {
                copy(
                    self.raw(),
                    source,
                    target,
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
    pub(super) fn fill(
        &self,
        mem: &Mem,
        pattern: &[u8],
        (offset, length): (usize, usize),
        waits: &[&Event],
        want: Want,
    ) -> Enqueued {
        let fill = function!(clEnqueueFillBuffer)?;
        let mem = raw(mem)?;
        let (start, step) = (pattern.as_ptr().cast(), pattern.len());
        self.enqueue_with(waits, want, |number, list, event| {
            // SAFETY: queue and buffer live; the range lies within; the driver copies the pattern.
            unsafe { fill(self.raw(), mem, start, step, offset, length, number, list, event) }
        })
    }

    /// Enqueues a command that reads `bytes`, and keeps them until it has ended.
    pub(super) fn give(
        &self,
        bytes: Staged,
        waits: &[&Event],
        want: Want,
        call: impl FnOnce(*const c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int,
    ) -> Enqueued {
        let _inside = Inside::enter();
        if bytes.len() <= SMALL_BYTES_MAX {
            let mut reclaim = self.reclaim_state();
            let marker = || self.marker(&[], Want::Event)?.ok_or(Status::OUT_OF_RESOURCES);
            let start = reclaim.place(&bytes, marker)?;
            return self.enqueue_with(waits, want, |number, list, event| {
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
            event.clone().on_complete(Box::new(move |_, _| drop(bytes)));
        }
        Ok(Some(event).filter(|_| want == Want::Event))
    }
}
