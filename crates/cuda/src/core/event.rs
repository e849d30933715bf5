//! Events: marks in streams.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use penstock_client::{Event as PoolEvent, Want};
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::graph::capture::{self, Captured};
use super::stream::Stream;
use crate::edge::{CuResult, Object, new_number, of_status, publish};

pub(crate) struct Event {
    number: u64,
    /// Number of the context that owns the event.
    context: u64,
    device: usize,
    flags: u32,
    mark: Mutex<Recorded>,
}

/// The last record of an event.
#[derive(Clone, Default)]
enum Recorded {
    #[default]
    Never,
    InStream(Mark),
    /// In a captured stream: no command was sent.
    InCapture(Captured),
}

/// Where an event was recorded last.
#[derive(Clone)]
struct Mark {
    context: Weak<Context>,
    /// Upgrades to `None` if the program has destroyed the stream and all its commands have ended.
    stream: Weak<Stream>,
    serial: u64,
    event: PoolEvent,
}

impl Object for Event {
    type Raw = CUevent_st;
    const INVALID: CUresult = CUDA_ERROR_INVALID_HANDLE;

    fn number(&self) -> u64 {
        self.number
    }

    fn owner(&self) -> u64 {
        self.context
    }
}

impl Event {
    pub(crate) fn create(context: &Context, flags: u32) -> CuResult<Arc<Self>> {
        const KNOWN: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
        if flags & CU_EVENT_INTERPROCESS != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if flags & !KNOWN != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        context.check()?;
        let event = Arc::new(Self {
            number: new_number(),
            context: context.number(),
            device: context.device.ordinal,
            flags,
            mark: Mutex::default(),
        });
        publish(&event);
        Ok(event)
    }

    fn recorded(&self) -> Recorded {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns where the event was recorded last, or `None` if it never was.
    ///
    /// # Errors
    /// "CUDA_ERROR_CAPTURED_EVENT: ... an event which was last recorded in a capturing stream". The
    /// capture becomes invalid.
    fn mark(&self) -> CuResult<Option<Mark>> {
        match self.recorded() {
            Recorded::Never => Ok(None),
            Recorded::InStream(mark) => Ok(Some(mark)),
            Recorded::InCapture(captured) => Err(capture::spoil(&captured)),
        }
    }

    /// Returns the captured position, if the event was recorded last in a capture.
    pub(crate) fn captured(&self) -> Option<Captured> {
        match self.recorded() {
            Recorded::InCapture(captured) => Some(captured),
            _ => None,
        }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(self.recorded(), Recorded::Never)
    }

    pub(crate) fn home(&self) -> CuResult<Arc<Context>> {
        Context::of_number(self.context).map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Returns whether both events belong to one context.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.context == other.context
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
            capture::Recorded::Not => self.record(context, stream),
            capture::Recorded::Node => Ok(()),
            capture::Recorded::Here(captured) => {
                self.set(Recorded::InCapture(captured));
                Ok(())
            }
        }
    }

    fn set(&self, recorded: Recorded) {
        let mut mark = self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *mark, recorded);
        // The old record is dropped without the lock.
        drop(mark);
        drop(old);
    }

    /// Implements `cuEventRecord` in a stream that is not captured.
    pub(crate) fn record(&self, context: &Arc<Context>, stream: &Arc<Stream>) -> CuResult {
        // "CUDA_ERROR_INVALID_HANDLE ... hEvent and hStream must be from the same context"
        if context.device.ordinal != self.device {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let (event, serial) =
            context.issue(stream, |queue, waits| queue.marker(None, waits, Want::Event))?;
        let event = event.unwrap_or_else(|| PoolEvent::ended(penstock_wire::Status::OK));
        let (context, stream) = (Arc::downgrade(context), Arc::downgrade(stream));
        let mark = Mark { context, stream, serial, event };
        self.set(Recorded::InStream(mark));
        Ok(())
    }

    /// Returns the event of the pool that a waiting command or thread needs. `None` if the event
    /// was never recorded.
    pub(crate) fn awaited(&self) -> CuResult<Option<PoolEvent>> {
        Ok(self.mark()?.map(|mark| mark.event))
    }

    /// Implements `cuEventQuery`. "... or if cuEventRecord() has not been called on hEvent": then
    /// the event counts as complete.
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

impl Mark {
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
                    stream.reach(self.serial);
                    context.look_at_reads(&stream)?;
                }
                context.control.look(&context)
            }
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("number", &self.number).finish_non_exhaustive()
    }
}
