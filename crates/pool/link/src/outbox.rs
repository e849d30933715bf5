//! Sending from threads that must not block, such as driver callbacks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use penstock_process::{Guard, Lock, Signal};
use penstock_trial::{Defect, planted};
use penstock_wire::id::kind;
use penstock_wire::{Call, Id};
use zerocopy::IntoBytes;

use crate::error::LinkError;
use crate::sender::Sender;
use crate::threads::{HELPER_STACK_BYTES, spawn_quiet};

/// Estimated memory in bytes that an item needs beside its payload.
const ITEM_BYTES: usize = 128;

/// Idle time after which the writer thread ends.
const WRITER_IDLE_MAX: Duration = Duration::from_secs(5);

/// Payload of a posted call.
pub enum Body {
    None,
    /// Bytes that the outbox owns.
    Bytes(Vec<u8>),
    /// Bytes that others may also hold; the outbox drops them when they have been sent.
    Shared(Box<dyn AsRef<[u8]> + Send>),
}

/// Sends calls for threads that must not block, in the order of their posts. Clones share the
/// outbox.
///
/// A call is sent at once if the queue is empty and the link accepts it; otherwise a writer thread
/// sends it later. The caller limits the length of the queue: see [`Outbox::queued_bytes`].
#[derive(Clone)]
pub struct Outbox {
    handle: Arc<Handle>,
}

/// Ends the writer with the last [`Outbox`], after the writer has sent what is queued.
struct Handle(Arc<Shared>);

struct Shared {
    sender: Sender,
    /// Bytes of memory that the queue holds.
    held: AtomicUsize,
    state: Lock<State>,
    /// Signalled when an item was queued or the outbox was closed.
    queued: Signal,
    /// Signalled when the queue ran empty or the outbox was closed.
    drained: Signal,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    /// Payload bytes in the queue and in the writer's hands.
    bytes: usize,
    /// Whether the writer has taken an item and not yet sent it; no call may overtake that item.
    writing: bool,
    /// Whether a writer thread runs.
    writer: bool,
    /// Whether the last [`Outbox`] has been dropped.
    abandoned: bool,
    closed: bool,
}

struct Item {
    head: Vec<u8>,
    body: Body,
}

impl Item {
    fn held(&self) -> usize {
        let body = match &self.body {
            Body::Bytes(bytes) => bytes.capacity(),
            Body::None | Body::Shared(_) => 0,
        };
        ITEM_BYTES + self.head.len() + body
    }
}

impl Outbox {
    /// Makes an outbox over a link.
    pub fn new(sender: Sender) -> Self {
        let (queued, drained) = (Signal::new(), Signal::new());
        let shared =
            Shared { sender, held: AtomicUsize::new(0), state: Lock::default(), queued, drained };
        Self { handle: Arc::new(Handle(Arc::new(shared))) }
    }

    /// Returns the link's [`Sender::arena`].
    pub fn arena(&self) -> Option<&Arc<crate::Arena>> {
        self.handle.0.sender.arena()
    }

    /// See [`Sender::tend`].
    ///
    /// # Errors
    /// See [`Sender::tend`].
    pub fn tend<C: Call>(&self, beat: &C) -> Result<(), LinkError> {
        self.handle.0.sender.tend(beat)
    }

    /// Sends a call now or soon. If the link has ended, the call is dropped; the receiver of the
    /// link reports the end.
    pub fn post<C: Call>(&self, call: &C, waits: &[Id<kind::Event>], body: Body) {
        self.post_with(call, waits, body, false);
    }

    /// Like [`Outbox::post`], for a call before another one: a socket may send both together.
    pub fn post_before<C: Call>(&self, call: &C, waits: &[Id<kind::Event>], body: Body) {
        self.post_with(call, waits, body, true);
    }

    fn post_with<C: Call>(&self, call: &C, waits: &[Id<kind::Event>], body: Body, more: bool) {
        let shared = &self.handle.0;
        let Ok(header) = C::header(waits.len(), body.bytes().len() as u64) else {
            debug_assert!(false, "{} is over a limit", C::NAME);
            return self.close();
        };
        if shared.sender.check().is_err() {
            return;
        }
        let head = [header.as_bytes(), call.as_bytes(), waits.as_bytes()];
        // On every return the lock ends before `body` is dropped, because its owner may then post.
        let mut state = shared.state.lock();
        if state.closed {
            return;
        }
        let is_put_off = penstock_trial::is_put_off(penstock_trial::Place::LinkPutsOff);
        if state.queue.is_empty() && !state.writing && !is_put_off {
            match shared.sender.try_send_now(&head, body.bytes(), more) {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => return shared.end(state),
            }
        }
        state.bytes += body.bytes().len();
        let item = Item { head: head.concat(), body };
        shared.held.fetch_add(item.held(), Relaxed);
        let is_overtaking = planted(Defect::RingOrder) && !state.queue.is_empty();
        let at = state.queue.len() - usize::from(is_overtaking);
        state.queue.insert(at, item);
        shared.call_writer(state);
    }

    /// Returns the number of payload bytes that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        if self.handle.0.sender.check().is_err() {
            return 0;
        }
        self.handle.0.state.lock().bytes
    }

    /// Returns the bytes of memory that waiting calls hold, without shared bodies, which their
    /// owners count. Costs one load.
    pub fn held_bytes(&self) -> usize {
        self.handle.0.held.load(Relaxed)
    }

    /// Waits until everything posted so far has been handed to the link. Returns `false` if the
    /// deadline passed or the link ended.
    pub fn drain(&self, deadline: Instant) -> bool {
        if self.handle.0.sender.check().is_err() {
            return false;
        }
        let shared = &self.handle.0;
        let mut state = shared.state.lock();
        while !state.closed && (state.writing || !state.queue.is_empty()) {
            let left = deadline.saturating_duration_since(penstock_process::now());
            if left.is_zero() {
                return false;
            }
            (state, _) = shared.drained.wait_timeout(state, left);
        }
        !state.closed
    }

    /// Drops what is queued and closes the link.
    pub fn close(&self) {
        let shared = &self.handle.0;
        // Closes the link first, because the writer may be blocked in it.
        shared.sender.close();
        if !matches!(shared.sender.check(), Err(LinkError::Forked)) {
            shared.end(shared.state.lock());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever by a thread that does not exist there.
        if self.0.sender.check().is_ok() {
            self.0.state.lock().abandoned = true;
            self.0.queued.notify_all();
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("sender", &self.handle.0.sender).finish_non_exhaustive()
    }
}

impl Body {
    /// Returns the payload bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Bytes(bytes) => bytes,
            Self::Shared(bytes) => (**bytes).as_ref(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.bytes().len())
    }
}

impl Shared {
    fn end(&self, mut state: Guard<'_, State>) {
        state.closed = true;
        state.bytes = 0;
        let dropped = std::mem::take(&mut state.queue);
        self.held.fetch_sub(dropped.iter().map(Item::held).sum(), Relaxed);
        drop(state);
        self.queued.notify_all();
        self.drained.notify_all();
        // Dropped without the lock: the owner of the bytes may post when they are dropped.
        drop(dropped);
    }

    fn call_writer(self: &Arc<Self>, mut state: Guard<'_, State>) {
        if state.writer {
            self.queued.notify_all();
            return;
        }
        let shared = self.clone();
        match spawn_quiet("penstock-outbox", HELPER_STACK_BYTES, move || shared.write()) {
            Ok(_) => state.writer = true,
            // Calls must not be lost silently: the hang-up tells the peer.
            Err(_) => {
                self.sender.close();
                self.end(state);
            }
        }
    }

    /// Runs the writer thread, which sends what is queued, in order.
    fn write(self: Arc<Self>) {
        let mut state = self.state.lock();
        while !state.closed {
            let Some(item) = state.queue.pop_front() else {
                let ends;
                (state, ends) = self.await_item(state);
                if ends {
                    break;
                }
                continue;
            };
            state.writing = true;
            drop(state);
            let (bytes, held) = (item.body.bytes().len(), item.held());
            penstock_trial::delay(penstock_trial::Place::LinkWrites);
            let mut sent = self.sender.gather_head(&[&item.head], item.body.bytes());
            drop(item);
            self.held.fetch_sub(held, Relaxed);
            state = self.state.lock();
            if sent.is_ok() && state.queue.is_empty() {
                drop(state);
                sent = self.sender.flush();
                state = self.state.lock();
            }
            state.writing = false;
            state.bytes = state.bytes.saturating_sub(bytes);
            if sent.is_err() {
                self.end(state);
                state = self.state.lock();
            } else if state.queue.is_empty() {
                self.drained.notify_all();
            }
        }
        state.writer = false;
    }

    /// Waits for an item. Returns `true` if the thread may end because none came or none will come.
    fn await_item<'a>(&'a self, state: Guard<'a, State>) -> (Guard<'a, State>, bool) {
        let quiet = |state: &mut State| state.queue.is_empty() && !state.closed && !state.abandoned;
        let (state, timeout) = self.queued.wait_timeout_while(state, WRITER_IDLE_MAX, quiet);
        let ends = state.queue.is_empty() && (timeout.timed_out() || state.abandoned);
        (state, ends)
    }
}
