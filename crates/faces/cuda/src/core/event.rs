//! Events: marks in streams.

use std::fmt;
use std::sync::{Arc, Weak};

use penstock_client::{Event as PoolEvent, Want};
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::context::Context;
use super::order::SentCommand;
use super::stream::Stream;
use crate::edge::{CuResult, Object, has_handle, new_number, publish};

pub(crate) struct Event {
    number: u64,
    /// Number of the context that owns the event.
    context: u64,
    pub(super) device: usize,
    pub(super) flags: u32,
    mark: Lock<LastRecord>,
}

/// The last record of an event.
#[derive(Clone, Default)]
pub(super) enum LastRecord {
    #[default]
    Never,
    InStream(EventMark),
    /// In a captured stream: no command was sent.
    InCapture(CapturedPosition),
}

/// The position of an event that was recorded in a capture.
#[derive(Clone, Debug)]
pub(crate) struct CapturedPosition {
    /// Number of the capture.
    pub(super) capture: u64,
    /// Nodes that a wait for the event follows.
    pub(super) tail: Vec<u64>,
}

/// Where an event was recorded last.
#[derive(Clone)]
pub(super) struct EventMark {
    pub(super) context: Weak<Context>,
    /// Upgrades to `None` if the program has destroyed the stream and all its commands have ended.
    pub(super) stream: Weak<Stream>,
    pub(super) serial: u64,
    pub(super) event: PoolEvent,
}

has_handle!(Event: CUevent_st, CUDA_ERROR_INVALID_HANDLE, ends with context);

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
            mark: Lock::default(),
        });
        publish(&event);
        Ok(event)
    }

    pub(super) fn last_record(&self) -> LastRecord {
        self.mark.lock().clone()
    }

    /// Returns the captured position, if the event was recorded last in a capture.
    pub(crate) fn captured(&self) -> Option<CapturedPosition> {
        match self.last_record() {
            LastRecord::InCapture(captured) => Some(captured),
            _ => None,
        }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(self.last_record(), LastRecord::Never)
    }

    pub(crate) fn home(&self) -> CuResult<Arc<Context>> {
        Context::of_number(self.context).map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Returns whether both events belong to one context.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.context == other.context
    }

    pub(super) fn set(&self, recorded: LastRecord) {
        let mut mark = self.mark.lock();
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
        let SentCommand { event, serial } =
            context.issue(stream, |queue, waits| queue.marker(None, waits, Want::Event))?;
        let event = event.unwrap_or_else(|| PoolEvent::ended(penstock_wire::Status::OK));
        let (context, stream) = (Arc::downgrade(context), Arc::downgrade(stream));
        let mark = EventMark { context, stream, serial, event };
        self.set(LastRecord::InStream(mark));
        Ok(())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("number", &self.number).finish_non_exhaustive()
    }
}
