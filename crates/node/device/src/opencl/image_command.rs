//! Commands on images.

use std::sync::Arc;

use penstock_cl_sys::CL_FALSE;
use penstock_wire::status::Status;

use super::api::function;
use super::event::Event as OwnEvent;
use super::memory::raw;
use super::queue::Queue;
use crate::driver::{Mem, Want};
use crate::event::Event;
use crate::image_command::{ImageCommand, Place};

impl Queue {
    pub(super) fn enqueue_image(
        &self,
        command: ImageCommand<'_>,
        waits: &[&Event],
        want: Want,
    ) -> Result<Option<Arc<OwnEvent>>, Status> {
        match command {
            ImageCommand::Write { mem, at, bytes } => {
                let (write, mem) = (function!(clEnqueueWriteImage)?, raw(mem)?);
                let (origin, size) = (at.origin.as_ptr(), at.region.as_ptr());
                self.give(bytes, waits, want, |start, number, list, event| {
                    let queue = self.raw();
                    // SAFETY: queue and image live; the region lies within the image, and `start`
                    // has its size.
                    unsafe {
                        write(queue, mem, CL_FALSE, origin, size, 0, 0, start, number, list, event)
                    }
                })
            }
            ImageCommand::Copy { source, from, target, to } => {
                let copy = function!(clEnqueueCopyImage)?;
                let (source, target) = (raw(source)?, raw(target)?);
                let (start, size) = (from.origin.as_ptr(), from.region.as_ptr());
                self.enqueue_with(waits, want, |number, list, event| {
                    let (queue, to) = (self.raw(), to.as_ptr());
                    // SAFETY: queue and images live; both regions lie within; elements have the
                    // same size.
                    unsafe { copy(queue, source, target, start, to, size, number, list, event) }
                })
            }
            ImageCommand::ToBuffer { source, from, target, to } => {
                let copy = function!(clEnqueueCopyImageToBuffer)?;
                let (source, target) = (raw(source)?, raw(target)?);
                let (start, size) = (from.origin.as_ptr(), from.region.as_ptr());
                self.enqueue_with(waits, want, |number, list, event| {
                    let queue = self.raw();
                    // SAFETY: queue, image and buffer live; region and range lie within them.
                    unsafe { copy(queue, source, target, start, size, to, number, list, event) }
                })
            }
            ImageCommand::OfBuffer { source, from, target, to } => {
                let copy = function!(clEnqueueCopyBufferToImage)?;
                let (source, target) = (raw(source)?, raw(target)?);
                let (start, size) = (to.origin.as_ptr(), to.region.as_ptr());
                self.enqueue_with(waits, want, |number, list, event| {
                    let queue = self.raw();
                    // SAFETY: queue, image and buffer live; region and range lie within them.
                    unsafe { copy(queue, source, target, from, start, size, number, list, event) }
                })
            }
            ImageCommand::Fill { mem, colour, at } => {
                let (fill, mem) = (function!(clEnqueueFillImage)?, raw(mem)?);
                let (origin, size) = (at.origin.as_ptr(), at.region.as_ptr());
                self.enqueue_with(waits, want, |number, list, event| {
                    let (queue, colour) = (self.raw(), colour.as_ptr().cast());
                    // SAFETY: queue and image live; the region lies within the image; the colour
                    // has the four words of any format.
                    unsafe { fill(queue, mem, colour, origin, size, number, list, event) }
                })
            }
        }
    }

    /// `clEnqueueReadImage` into rows and slices without gaps. The caller keeps the memory until
    /// the event has ended.
    pub(super) fn read_image(
        &self,
        mem: &Mem,
        at: Place,
        to: *mut u8,
        waits: &[&Event],
    ) -> Result<Arc<OwnEvent>, Status> {
        let (read, mem) = (function!(clEnqueueReadImage)?, raw(mem)?);
        let (origin, size) = (at.origin.as_ptr(), at.region.as_ptr());
        self.enqueue_with_event(waits, |number, list, event| {
            let (queue, to) = (self.raw(), to.cast());
            // SAFETY: queue and image live; the region lies within the image; the caller keeps the
            // memory, which has its size.
            unsafe { read(queue, mem, CL_FALSE, origin, size, 0, 0, to, number, list, event) }
        })
    }
}
