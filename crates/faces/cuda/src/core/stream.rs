//! Streams, each an in-order queue of the pool.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use penstock_client::{Error, Event, Queue, Want};
use penstock_cuda_sys::driver::*;
use penstock_process::Lock;

use super::clock::StreamClock;
use super::context::Context;
use super::unawaited::UnawaitedReads;
use crate::edge::{CuResult, has_handle, new_number};

/// Relation of a stream to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The legacy default stream itself.
    Legacy,
    /// Synchronises with the legacy default stream.
    Blocking,
    /// Does not synchronise with it (`CU_STREAM_NON_BLOCKING`).
    NonBlocking,
}

/// The context that owns a stream.
pub(crate) struct StreamOwner {
    pub(crate) context: Weak<Context>,
    /// Number of the context.
    pub(crate) number: u64,
}

pub(crate) struct Stream {
    number: u64,
    owner: StreamOwner,
    pub(crate) queue: Arc<Queue>,
    pub(crate) kind: StreamKind,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Held while a command is sent and counted. Otherwise the end of one command could be
    /// attributed to an earlier one.
    sending: Lock<()>,
    pub(super) clock: StreamClock,
    /// Set when the program has destroyed the stream. The stream stays in its list until this event
    /// has ended, which follows all its commands. `None` if no command was left, or the node is
    /// lost.
    farewell: OnceLock<Option<Event>>,
    /// A marker for callers that ask whether all commands have ended.
    probe: Lock<Option<Probe>>,
    pub(crate) unawaited_reads: UnawaitedReads,
    /// Number of the name of the last kernel that was launched here ([`super::fault`]); 0 if there
    /// was none.
    pub(super) last_kernel: AtomicU64,
}

/// A marker behind the first `serial` commands.
struct Probe {
    serial: u64,
    event: Event,
    /// Whether the marker has been flushed to the worker.
    is_flushed: bool,
}

has_handle!(Stream: CUstream_st, CUDA_ERROR_INVALID_HANDLE, ends with owner.number);

impl Stream {
    pub(crate) fn new(
        queue: Arc<Queue>,
        owner: StreamOwner,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> Arc<Self> {
        Arc::new(Self {
            number: new_number(),
            owner,
            queue,
            kind,
            flags,
            priority,
            sending: Lock::default(),
            clock: StreamClock::default(),
            farewell: OnceLock::new(),
            probe: Lock::default(),
            unawaited_reads: UnawaitedReads::default(),
            last_kernel: AtomicU64::new(0),
        })
    }

    pub(crate) fn context(&self) -> CuResult<Arc<Context>> {
        self.owner.context.upgrade().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Keeps other threads from sending until the result is dropped.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.sending.lock()
    }

    /// Notes that the program has destroyed the stream. Returns false if that was known.
    pub(super) fn note_destroyed(&self) -> bool {
        let farewell = if self.clock.is_settled() { None } else { self.marker_event(false).ok() };
        self.farewell.set(farewell).is_ok()
    }

    /// Returns whether the context of the stream has ended.
    pub(super) fn has_lost_context(&self) -> bool {
        self.owner.context.strong_count() == 0
    }

    /// Returns whether the program has destroyed the stream and all its commands have ended.
    pub(super) fn has_finished(&self) -> bool {
        let Some(farewell) = self.farewell.get() else { return false };
        self.clock.is_settled() || farewell.as_ref().is_none_or(|event| event.poll().is_some())
    }

    /// Returns an event that ends with all commands so far. Callers share it until the next
    /// command. `flush`: send it to the worker at once.
    pub(crate) fn marker_event(&self, flush: bool) -> Result<Event, Error> {
        let mut probe = self.probe.lock();
        // Read before the marker is sent: the marker may be behind more commands than that.
        let serial = self.clock.issued();
        if probe.as_ref().is_none_or(|probe| probe.serial < serial) {
            let marker = self.queue.marker(None, &[], Want::Event)?;
            let event = marker.unwrap_or_else(|| Event::ended(penstock_wire::Status::OK));
            *probe = Some(Probe { serial, event, is_flushed: false });
        }
        let Some(probe) = probe.as_mut() else {
            return Ok(Event::ended(penstock_wire::Status::OK));
        };
        if flush && !std::mem::replace(&mut probe.is_flushed, true) {
            self.queue.flush()?;
        }
        Ok(probe.event.clone())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
