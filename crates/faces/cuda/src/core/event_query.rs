//! Records, queries and waits of events. A stream capture can contain a record. Queries and waits
//! make a capture invalid.

use std::sync::Arc;

use penstock_client::Event as PoolEvent;
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::event::{Event, EventMark, LastRecord};
use super::graph::capture::{self, EventRecord};
use super::stream::Stream;
use crate::edge::{CuResult, of_status};

impl Event {
    /// Returns where the event was recorded last, or `None` if it never was.
    ///
    /// # Errors
    /// "CUDA_ERROR_CAPTURED_EVENT: ... an event which was last recorded in a capturing stream". The
    /// capture becomes invalid.
    fn mark(&self) -> CuResult<Option<EventMark>> {
        match self.last_record() {
            LastRecord::Never => Ok(None),
            LastRecord::InStream(mark) => Ok(Some(mark)),
            LastRecord::InCapture(captured) => Err(capture::invalidate_of(&captured)),
        }
    }

    /// The program's `cuEventRecord`: in a captured stream the event only takes the captured
    /// position.
    pub(crate) fn take_record(
        self: &Arc<Self>,
        context: &Arc<Context>,
        stream: &Arc<Stream>,
        is_external: bool,
    ) -> CuResult {
        match capture::record(context, stream, self, is_external)? {
            EventRecord::Not => self.record(context, stream),
            EventRecord::Node => Ok(()),
            EventRecord::Here(captured) => {
                self.set(LastRecord::InCapture(captured));
                Ok(())
            }
        }
    }

    /// Returns the event of the pool that a waiting command or thread needs. `None` if the event
    /// was never recorded.
    pub(crate) fn awaited(&self) -> CuResult<Option<PoolEvent>> {
        Ok(self.mark()?.map(|mark| mark.event))
    }

    /// Implements `cuEventQuery`. An event that was never recorded counts as complete.
    pub(crate) fn query(&self) -> CuResult {
        let Some(mark) = self.mark()? else { return Ok(()) };
        capture::check_safe()?;
        let known = mark.event.known_status();
        if known.is_none()
            && let Some(stream) = mark.stream.upgrade()
        {
            let context = mark.context()?;
            stream.queue.flush().map_err(|error| context.failed(&error))?;
        }
        match mark.event.poll() {
            None => Err(CUDA_ERROR_NOT_READY),
            Some(_) => mark.ended(),
        }
    }

    pub(crate) fn synchronize(&self) -> CuResult {
        let Some(mark) = self.mark()? else { return Ok(()) };
        mark.event.wait();
        mark.ended()
    }

    /// Implements `cuEventElapsedTime`: milliseconds on the device's clock.
    pub(crate) fn elapsed_ms(&self, end: &Self) -> CuResult<f32> {
        // "If either event was created with the CU_EVENT_DISABLE_TIMING flag, then
        // CUDA_ERROR_INVALID_HANDLE is returned." The same holds for events of different devices
        // and events without a record.
        if (self.flags | end.flags) & CU_EVENT_DISABLE_TIMING != 0 || self.device != end.device {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let (Some(start), Some(end)) = (self.mark()?, end.mark()?) else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        for mark in [&start, &end] {
            if mark.event.poll().is_none() {
                return Err(CUDA_ERROR_NOT_READY);
            }
            mark.ended()?;
        }
        let (from, to) = (start.event.times().ended, end.event.times().ended);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "the result is a float"
        )]
        let ms = (i128::from(to) - i128::from(from)) as f64 / 1e6;
        #[allow(clippy::cast_possible_truncation, reason = "the result is a float")]
        Ok(ms as f32)
    }
}

impl EventMark {
    fn context(&self) -> CuResult<Arc<Context>> {
        self.context.upgrade().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Handles an event that has ended: returns the error of a failed one, and updates the stream
    /// otherwise.
    fn ended(&self) -> CuResult {
        let context = self.context()?;
        context.check()?;
        match self.event.known_status() {
            Some(status) if status.is_error() => Err(context.fail(of_status(status))),
            _ => {
                if let Some(stream) = self.stream.upgrade() {
                    stream.clock.note_ended(self.serial);
                    context.look_at_reads(&stream)?;
                }
                context.look_at_kernels()
            }
        }
    }
}
