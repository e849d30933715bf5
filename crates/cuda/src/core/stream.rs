//! Streams, each an in-order queue of the pool.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use penstock_client::{Error, Event, Queue, Want};
use penstock_cuda_sys::driver::*;

use super::context::Context;
use super::device::Device;
use super::graph::capture;
use super::platform;
use super::unseen::Unseen;
use crate::edge::{CuResult, Object, forget, new_number, of_error, of_status, publish};

/// Which default stream a null handle stands for. The two variants of each function differ in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// The legacy default stream of the context. All blocking streams synchronise with it.
    Legacy,
    /// The default stream of the calling thread.
    PerThread,
}

/// Relation of a stream to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream itself.
    Legacy,
    /// Synchronises with the legacy default stream.
    Blocking,
    /// Does not synchronise with it (`CU_STREAM_NON_BLOCKING`).
    NonBlocking,
}

pub(crate) struct Stream {
    number: u64,
    context: Weak<Context>,
    /// Number of the context that owns the stream.
    owner: u64,
    pub(crate) queue: Arc<Queue>,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Held while a command is sent and counted. Otherwise the end of one command could be
    /// attributed to an earlier one.
    sending: Mutex<()>,
    /// Number of commands so far.
    issued: AtomicU64,
    /// Number of commands that have ended, as far as is known.
    done: AtomicU64,
    /// Ordinal of the last command without an event. Its failure becomes known only by waiting for
    /// the queue.
    silent: AtomicU64,
    /// Number of commands that had been issued when the queue was last waited for.
    checked: AtomicU64,
    /// Ordinals up to which the other side has waited: `seen` of the legacy stream's commands by
    /// this stream, `seen_by_legacy` of this stream's commands by the legacy stream.
    pub(crate) seen: AtomicU64,
    pub(crate) seen_by_legacy: AtomicU64,
    /// Set when the program has destroyed the stream. The stream stays in its list until this event
    /// has ended, which follows all its commands. `None` if no command was left, or the node is
    /// lost.
    farewell: OnceLock<Option<Event>>,
    /// A marker for callers that ask whether all commands have ended.
    probe: Mutex<Option<Probe>>,
    /// Reads whose callers do not wait.
    pub(crate) unseen: Unseen,
}

/// A marker behind the first `serial` commands.
struct Probe {
    serial: u64,
    event: Event,
    /// Whether the marker has been flushed to the worker.
    is_flushed: bool,
}

impl Object for Stream {
    type Raw = CUstream_st;
    const INVALID: CUresult = CUDA_ERROR_INVALID_HANDLE;

    fn number(&self) -> u64 {
        self.number
    }

    fn owner(&self) -> u64 {
        self.owner
    }
}

impl Stream {
    /// Makes a queue on a device. Only markers are timed, because only events report times.
    pub(crate) fn queue_on(device: &Device) -> CuResult<Arc<Queue>> {
        Queue::timing_markers(&device.context, &device.pool).map_err(|error| of_error(&error))
    }

    pub(crate) fn new(
        queue: Arc<Queue>,
        (context, owner): (Weak<Context>, u64),
        kind: Kind,
        flags: u32,
        priority: i32,
    ) -> Arc<Self> {
        Arc::new(Self {
            number: new_number(),
            context,
            owner,
            queue,
            kind,
            flags,
            priority,
            sending: Mutex::default(),
            issued: AtomicU64::new(0),
            done: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            seen_by_legacy: AtomicU64::new(0),
            farewell: OnceLock::new(),
            probe: Mutex::default(),
            unseen: Unseen::default(),
        })
    }

    pub(crate) fn create(context: &Arc<Context>, flags: u32, priority: i32) -> CuResult<Arc<Self>> {
        if flags & !CU_STREAM_NON_BLOCKING != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        context.check()?;
        let kind =
            if flags & CU_STREAM_NON_BLOCKING == 0 { Kind::Blocking } else { Kind::NonBlocking };
        let stream =
            Self::new(Self::queue_on(&context.device)?, context.as_owner(), kind, flags, priority);
        context.add(&stream);
        publish(&stream);
        Ok(stream)
    }

    /// Makes a stream without a handle. It does not synchronise with the legacy default stream.
    pub(super) fn create_hidden(context: &Arc<Context>) -> CuResult<Arc<Self>> {
        let owner = context.as_owner();
        let queue = Self::queue_on(&context.device)?;
        let stream = Self::new(queue, owner, Kind::NonBlocking, CU_STREAM_NON_BLOCKING, 0);
        context.add(&stream);
        Ok(stream)
    }

    pub(crate) fn context(&self) -> CuResult<Arc<Context>> {
        self.context.upgrade().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Implements `cuStreamDestroy`: "... the function will return immediately and the resources
    /// associated with hStream will be released automatically once the device has completed all
    /// work in hStream."
    pub(crate) fn destroy(self: &Arc<Self>) -> CuResult {
        forget(&**self).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        capture::forget(self);
        if let Some(context) = self.context.upgrade() {
            context.remove(self);
        }
        Ok(())
    }

    /// Keeps other threads from sending until the result is dropped.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command that was sent while [`Self::lock`] was held. Returns its ordinal.
    #[inline]
    pub(crate) fn count(&self, has_event: bool) -> u64 {
        let serial = self.issued.fetch_add(1, Ordering::AcqRel) + 1;
        if !has_event {
            self.note_silent(serial);
        }
        serial
    }

    /// Notes that nobody looks at the event of this command, so only the queue reports its failure.
    pub(super) fn note_silent(&self, serial: u64) {
        self.silent.fetch_max(serial, Ordering::AcqRel);
    }

    /// Notes that the queue was waited for after this number of commands.
    pub(crate) fn check(&self, serial: u64) {
        self.reach(serial);
        self.checked.fetch_max(serial, Ordering::AcqRel);
    }

    /// Returns whether waiting for the queue would bring no news.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_idle()
            && self.checked.load(Ordering::Acquire) >= self.silent.load(Ordering::Acquire)
    }

    /// Returns the number of commands so far.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Notes that this number of commands has ended.
    pub(crate) fn reach(&self, serial: u64) {
        self.done.fetch_max(serial, Ordering::AcqRel);
    }

    /// Returns whether all commands have ended, as far as is known.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.done.load(Ordering::Acquire) >= self.issued()
    }

    /// Returns whether the program has destroyed the stream and all its commands have ended.
    fn has_left(&self) -> bool {
        let Some(farewell) = self.farewell.get() else { return false };
        self.is_settled() || farewell.as_ref().is_none_or(|event| event.poll().is_some())
    }

    /// Returns an event that ends with all commands so far. Callers share it until the next
    /// command. `flush`: send it to the worker at once.
    pub(crate) fn behind(&self, flush: bool) -> Result<Event, Error> {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the marker is sent: the marker may be behind more commands than that.
        let serial = self.issued();
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

    pub(crate) fn query(&self, context: &Context) -> CuResult {
        context.check()?;
        let mut is_new = false;
        if self.kind == Kind::Legacy && context.has_blocking.load(Ordering::Acquire) {
            // The legacy default stream would wait for these streams.
            let others = context.blocking.read().unwrap_or_else(PoisonError::into_inner).clone();
            for other in &others {
                is_new |= other.ask(context)?;
            }
        }
        is_new |= self.ask(context)?;
        if is_new { context.control.look(context) } else { Ok(()) }
    }

    /// Checks that all commands have ended. Returns false if that was known already.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY`, or the failure of a command.
    fn ask(&self, context: &Context) -> CuResult<bool> {
        if self.is_idle() {
            context.look_at_reads(self)?;
            return Ok(false);
        }
        let serial = self.issued();
        let event = self.behind(true).map_err(|error| context.failed(&error))?;
        match event.poll() {
            None => Err(CUDA_ERROR_NOT_READY),
            Some(status) if status.is_error() => Err(context.fail(of_status(status))),
            Some(_) => {
                self.reach(serial);
                context.look_at_reads(self)?;
                Ok(true)
            }
        }
    }

    /// Returns the stream of a handle, and its context.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` if it is not a handle of a stream; the errors of
    /// [`Context::current`] for default streams.
    #[inline]
    pub(crate) fn resolve(raw: CUstream, default: Default) -> CuResult<(Arc<Context>, Arc<Self>)> {
        let per_thread = match raw.addr() {
            0 => default == Default::PerThread,
            CU_STREAM_LEGACY => false,
            CU_STREAM_PER_THREAD => true,
            _ => {
                platform::check_process()?;
                let stream = Self::borrow(raw)?;
                return Ok((stream.context()?, stream));
            }
        };
        let context = Context::current()?;
        let stream = if per_thread { of_thread(&context)? } else { context.legacy.clone() };
        Ok((context, stream))
    }

    /// Returns the stream of a handle in a given context, which need not be current.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` if it is not a handle of a stream of this context.
    pub(crate) fn resolve_in(raw: CUstream, context: &Arc<Context>) -> CuResult<Arc<Self>> {
        match raw.addr() {
            0 | CU_STREAM_LEGACY => Ok(context.legacy.clone()),
            CU_STREAM_PER_THREAD => of_thread(context),
            _ => {
                let stream = Self::borrow(raw)?;
                if stream.owner == context.number() {
                    Ok(stream)
                } else {
                    Err(CUDA_ERROR_INVALID_HANDLE)
                }
            }
        }
    }
}

impl Context {
    fn list_for(&self, stream: &Stream) -> &std::sync::RwLock<Vec<Arc<Stream>>> {
        if stream.kind == Kind::NonBlocking { &self.others } else { &self.blocking }
    }

    pub(super) fn add(&self, stream: &Arc<Stream>) {
        self.let_go();
        self.list_for(stream).write().unwrap_or_else(PoisonError::into_inner).push(stream.clone());
        if stream.kind == Kind::Blocking {
            self.has_blocking.store(true, Ordering::Release);
        }
    }

    /// Notes that the program has destroyed the stream. Its commands continue, and waits for the
    /// context include them.
    pub(super) fn remove(&self, stream: &Stream) {
        let farewell = if stream.is_settled() { None } else { stream.behind(false).ok() };
        if stream.farewell.set(farewell).is_ok() {
            self.leaving.fetch_add(1, Ordering::AcqRel);
        }
        self.let_go();
    }

    /// Drops destroyed streams whose commands have all ended.
    pub(super) fn let_go(&self) {
        if self.leaving.load(Ordering::Acquire) == 0 {
            return;
        }
        for list in [&self.blocking, &self.others] {
            // Without the lock, because the question may receive messages.
            let known = list.read().unwrap_or_else(PoisonError::into_inner).clone();
            for gone in known.iter().filter(|stream| stream.has_left()) {
                let mut list = list.write().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = list.iter().position(|stream| Arc::ptr_eq(stream, gone)) else {
                    continue;
                };
                list.swap_remove(index);
                drop(list);
                self.leaving.fetch_sub(1, Ordering::AcqRel);
                // This is the last chance to report the failure of a command without an event. All
                // commands have ended, so it takes one round trip.
                _ = self.finish(gone);
            }
        }
    }

    /// Returns the number of streams, including destroyed ones whose commands are not known to have
    /// ended.
    pub(crate) fn stream_count(&self) -> usize {
        self.let_go();
        self.streams().len()
    }
}

/// The default streams of this thread, one for each context in which the thread used one.
struct OfThread(Vec<(u64, Arc<Stream>)>);

impl Drop for OfThread {
    fn drop(&mut self) {
        // A forked child must not wait for a lock that a thread of its parent held.
        if platform::check_process().is_err() {
            std::mem::take(&mut self.0).into_iter().for_each(std::mem::forget);
            return;
        }
        for (_, stream) in self.0.drain(..) {
            if let Ok(context) = stream.context() {
                context.remove(&stream);
            }
        }
    }
}

thread_local! {
    static OF_THREAD: RefCell<OfThread> = const { RefCell::new(OfThread(Vec::new())) };
}

/// Returns the calling thread's default stream in a context.
fn of_thread(context: &Arc<Context>) -> CuResult<Arc<Stream>> {
    let number = context.number();
    let known = OF_THREAD
        .with_borrow(|all| all.0.iter().find(|(of, _)| *of == number).map(|(_, it)| it.clone()));
    if let Some(stream) = known {
        return Ok(stream);
    }
    let stream =
        Stream::new(Stream::queue_on(&context.device)?, context.as_owner(), Kind::Blocking, 0, 0);
    context.add(&stream);
    OF_THREAD.with_borrow_mut(|all| {
        // Drops the streams of contexts that are gone.
        all.0.retain(|(_, stream)| stream.context.strong_count() > 0);
        all.0.push((number, stream.clone()));
    });
    Ok(stream)
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
