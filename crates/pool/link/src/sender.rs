//! The sending end of a link.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_process::{Guard, Lock, Signal};
use penstock_wire::id::kind;
use penstock_wire::{Call, FrameError, Header, Id};
use zerocopy::IntoBytes;

use crate::arena::Arena;
use crate::error::LinkError;
use crate::joint::Joint;
use crate::shared::RingOut;
use crate::socket::SocketOut;
use crate::threads::{HELPER_STACK_BYTES, spawn_quiet};
use crate::transport::syscall::Readiness;

/// Longest time that small frames stay in a socket's batch without a flush: five round trips of a
/// fast network, or the time in which a program makes about a hundred calls.
const BATCH_AGE_MAX: Duration = Duration::from_micros(200);

/// Interval at which the helper looks while there is traffic. Waking the helper costs the sender 2
/// µs and more, so the helper stays awake as long as frames were gathered since its last look. Its
/// looks cost 1 % of a core, and each may interrupt a thread of the device.
const HELPER_NAP: Duration = Duration::from_micros(300);
/// Idle time after which the helper thread ends.
const HELPER_IDLE_MAX: Duration = Duration::from_secs(5);

/// Number of attempts to lock the writer while another thread holds it, before it counts as busy.
const TRY_LOCK_SPINS: u32 = 200;

/// Sending end of a link. Clones send over the same link; their frames do not mix.
#[derive(Clone)]
pub struct Sender {
    handle: Arc<Handle>,
}

/// Ends the helper with the last [`Sender`].
struct Handle(Arc<Shared>);

struct Shared {
    joint: Arc<Joint>,
    state: Lock<State>,
    /// Signalled when the helper has work or its link has ended.
    changed: Signal,
}

struct State {
    out: Out,
    helper: Helper,
    /// Whether a frame was left in the batch since the helper's last look.
    has_gathered: bool,
    /// Whether the last [`Sender`] has been dropped.
    orphan: bool,
}

enum Out {
    Socket(SocketOut),
    Ring(RingOut),
}

/// State of the helper, the thread that flushes what no other thread flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Helper {
    None,
    /// It looks for work at an interval.
    Awake,
    /// It waits for `changed`.
    Asleep,
}

/// Next step of the helper.
enum Step {
    /// End: the link has ended or nothing is left to do.
    End,
    /// Sleep for this time.
    Sleep(Duration),
    /// Wait until the socket accepts more.
    AwaitRoom,
    /// Wait to be called.
    Rest,
}

impl Sender {
    pub(crate) fn over_socket(joint: Arc<Joint>) -> Self {
        Self::new(joint, Out::Socket(SocketOut::default()))
    }

    pub(crate) fn over_ring(joint: Arc<Joint>, ring: RingOut) -> Self {
        Self::new(joint, Out::Ring(ring))
    }

    fn new(joint: Arc<Joint>, out: Out) -> Self {
        let state =
            Lock::new(State { out, helper: Helper::None, has_gathered: false, orphan: false });
        Self { handle: Arc::new(Handle(Arc::new(Shared { joint, state, changed: Signal::new() }))) }
    }

    /// Sends a call. Blocks only while the link is full. On sockets small calls are gathered until
    /// [`Sender::flush`], a larger payload, or 200 µs have passed.
    ///
    /// # Errors
    /// Fails if the call exceeds a limit or the link has ended.
    pub fn send<C: Call>(
        &self,
        call: &C,
        waits: &[Id<kind::Event>],
        payload: &[u8],
    ) -> Result<(), LinkError> {
        let header = C::header(waits.len(), payload.len() as u64)?;
        self.send_head(&head(&header, call, waits), payload)
    }

    /// Like [`Sender::send`], with a payload of `bytes` bytes in pieces (rows of a rectangle).
    ///
    /// # Errors
    /// See [`Sender::send`]. If the pieces have more or fewer bytes, the link is closed, because
    /// the peer could not know where the next frame starts.
    pub fn send_pieces<C: Call>(
        &self,
        call: &C,
        waits: &[Id<kind::Event>],
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        let header = C::header(waits.len(), bytes)?;
        let mut given = 0;
        let mut counted = pieces.map_while(|piece| {
            given += piece.len() as u64;
            (given <= bytes).then_some(piece)
        });
        self.write(&head(&header, call, waits), bytes, &mut counted)?;
        if given != bytes {
            self.close();
            return Err(LinkError::Pieces { announced: bytes, given });
        }
        Ok(())
    }

    /// Like [`Sender::send`], but never blocks. Returns `false` if nothing was sent.
    ///
    /// # Errors
    /// See [`Sender::send`].
    pub fn try_send<C: Call>(
        &self,
        call: &C,
        waits: &[Id<kind::Event>],
        payload: &[u8],
    ) -> Result<bool, LinkError> {
        let header = C::header(waits.len(), payload.len() as u64)?;
        self.try_send_head(&head(&header, call, waits), payload)
    }

    /// Sends the gathered calls. Does nothing on rings, where every call is visible at once.
    ///
    /// # Errors
    /// Fails if the link has ended.
    pub fn flush(&self) -> Result<(), LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        let mut state = shared.state.lock();
        shared.ended(state.out.flush(&shared.joint))
    }

    /// Like [`Sender::flush`], but leaves what would block to another thread.
    ///
    /// # Errors
    /// See [`Sender::flush`].
    pub fn flush_soon(&self) -> Result<(), LinkError> {
        self.flush_now()
    }

    /// Sets a callback for a sender that has long waited for room: the peer may be waiting until
    /// this side takes what the peer sends. `tell` must not send over this link, nor wait for a
    /// thread that does.
    pub fn on_stall(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.handle.0.joint.on_stall(Box::new(tell));
    }

    /// Returns the memory for buffers that both sides share, if the link has any.
    pub fn arena(&self) -> Option<&Arc<Arena>> {
        self.handle.0.joint.arena.as_ref()
    }

    /// Ends the link and wakes all threads that wait for it, in both directions and on both sides.
    pub fn close(&self) {
        self.handle.0.joint.close();
        self.handle.0.changed.notify_all();
    }

    /// Like [`Sender::check`], and asks the system whether the peer is still there. This costs
    /// about 0.3 µs with shared memory, and some more system calls without. For callers that use
    /// the shared memory without sending anything, and those that only poll.
    ///
    /// # Errors
    /// See [`Sender::check`].
    pub fn check_peer(&self) -> Result<(), LinkError> {
        self.check()?;
        let joint = &self.handle.0.joint;
        if joint.stream.has_hung_up() {
            return Err(joint.explained(joint.stream.why_hung_up()));
        }
        joint.look()
    }

    /// Looks for signs of life at a time that a test gives.
    #[cfg(test)]
    pub(crate) fn look_at(&self, now: Instant) -> Result<(), LinkError> {
        self.handle.0.joint.look_at(now)
    }

    /// Returns whether the peer has sent bytes, or finds no room for them.
    #[cfg(test)]
    pub(crate) fn has_come(&self) -> bool {
        self.handle.0.joint.hears()
    }

    /// Sends a sign of life to the peer, and checks whether the peer has vanished. Does not block.
    /// A thread of a worker calls this every [`BEAT_MS`], because the thread that serves the link
    /// may be inside a driver.
    ///
    /// [`BEAT_MS`]: penstock_wire::limits::BEAT_MS
    ///
    /// # Errors
    /// Fails if the link has ended, and ends the link if the peer has vanished.
    pub fn tend<C: Call>(&self, beat: &C) -> Result<(), LinkError> {
        // If a frame is being sent or the link is full, the peer can see bytes in its place.
        if self.try_send(beat, &[], &[])? {
            self.flush_now()?;
        }
        self.handle.0.joint.look()
    }

    /// Returns whether the link was closed by this side or because of a failure.
    pub fn is_closed(&self) -> bool {
        self.handle.0.joint.is_closed()
    }

    /// Checks whether this process may still use the link and its memory.
    ///
    /// # Errors
    /// The reason of the link's end, [`LinkError::Closed`] if none is known, or
    /// [`LinkError::Forked`] in a child of the opening process.
    pub fn check(&self) -> Result<(), LinkError> {
        self.handle.0.joint.check()
    }

    /// Like [`Sender::flush`], but leaves what would block to the helper.
    pub(crate) fn flush_now(&self) -> Result<(), LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        // The thread that holds the lock sends. If that thread is flushing and has passed our
        // frame, the helper sends the frame.
        let Some(mut state) = shared.try_lock() else { return Ok(()) };
        shared.ended(state.out.flush_now(&shared.joint))?;
        shared.call_helper(&mut state);
        Ok(())
    }

    /// Sends a frame whose head is already encoded.
    pub(crate) fn send_head(&self, head: &[&[u8]], payload: &[u8]) -> Result<(), LinkError> {
        let pieces = (!payload.is_empty()).then_some(payload);
        self.write(head, payload.len() as u64, &mut pieces.into_iter())
    }

    /// Like [`Sender::send_head`], for a thread that sends more or flushes before it waits. It
    /// leaves the helper asleep.
    pub(crate) fn gather_head(&self, head: &[&[u8]], payload: &[u8]) -> Result<(), LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        let mut state = shared.state.lock();
        let pieces = (!payload.is_empty()).then_some(payload);
        let bytes = payload.len() as u64;
        shared.ended(state.out.frame(&shared.joint, head, bytes, &mut pieces.into_iter()))
    }

    /// Sends a frame that was encoded before: its head (header, body and wait list) and its
    /// payload. The peer checks the frame as any other.
    ///
    /// # Errors
    /// Fails if the header does not tell the size of the payload, or the link has ended.
    pub fn send_encoded(&self, head: &[u8], payload: &[u8]) -> Result<(), LinkError> {
        let frame = penstock_wire::trace::head(head)?;
        if frame.header.payload.get() != payload.len() as u64 {
            return Err(FrameError::PayloadTooShort.into());
        }
        self.send_head(&[head], payload)
    }

    /// Like [`Sender::try_send`] followed by [`Sender::flush_now`], for a frame whose head is
    /// already encoded. With `more` it does not flush: the caller sends another frame at once.
    pub(crate) fn try_send_now(
        &self,
        head: &[&[u8]],
        payload: &[u8],
        more: bool,
    ) -> Result<bool, LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        let Some(mut state) = shared.try_lock() else { return Ok(false) };
        let sent = shared.ended(state.out.try_frame(&shared.joint, head, payload))?;
        if !more {
            if sent {
                shared.ended(state.out.flush_now(&shared.joint))?;
            }
            // Waking the helper costs as much as sending, so only for what is left.
            shared.call_helper(&mut state);
        }
        Ok(sent)
    }

    fn try_send_head(&self, head: &[&[u8]], payload: &[u8]) -> Result<bool, LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        let Some(mut state) = shared.try_lock() else { return Ok(false) };
        let sent = shared.ended(state.out.try_frame(&shared.joint, head, payload))?;
        shared.call_helper(&mut state);
        Ok(sent)
    }

    fn write(
        &self,
        head: &[&[u8]],
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        let shared = &self.handle.0;
        shared.joint.check()?;
        let mut state = shared.state.lock();
        shared.ended(state.out.frame(&shared.joint, head, bytes, pieces))?;
        shared.call_helper(&mut state);
        Ok(())
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("joint", &self.handle.0.joint).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever by a thread that does not exist there.
        if self.0.joint.check().is_err() {
            return;
        }
        let mut state = self.0.state.lock();
        state.orphan = true;
        let _ = state.out.flush_now(&self.0.joint);
        self.0.call_helper(&mut state);
        drop(state);
        self.0.changed.notify_all();
    }
}

/// The only place that sends frames.
impl Out {
    /// Sends a frame with a payload of `bytes` bytes, or gathers it. Blocks while the link is full.
    fn frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        let Some(trace) = &joint.trace else { return self.put(joint, head, bytes, pieces) };
        trace.sent(head);
        let mut traced = pieces.inspect(|piece| trace.sent_payload(piece));
        self.put(joint, head, bytes, &mut traced)
    }

    fn put(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        bytes: u64,
        pieces: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<(), LinkError> {
        match self {
            Self::Socket(socket) => socket.frame(joint, head, bytes, pieces),
            Self::Ring(ring) => ring.frame(joint, head, pieces),
        }
    }

    /// Like [`Out::frame`], but never blocks. Returns `false` if nothing was sent.
    fn try_frame(
        &mut self,
        joint: &Joint,
        head: &[&[u8]],
        payload: &[u8],
    ) -> Result<bool, LinkError> {
        let mut put = || match self {
            Self::Socket(socket) => socket.try_frame(joint, head, payload),
            Self::Ring(ring) => ring.try_frame(joint, head, payload),
        };
        match &joint.trace {
            Some(trace) => trace.sent_if(head, payload, put),
            None => put(),
        }
    }

    /// Sends what is gathered. A ring gathers nothing: the peer sees every frame at once.
    fn flush(&mut self, joint: &Joint) -> Result<(), LinkError> {
        match self {
            Self::Socket(socket) => socket.flush(joint),
            Self::Ring(_) => Ok(()),
        }
    }

    /// Like [`Out::flush`], but never blocks. Returns `false` if something is left.
    fn flush_now(&mut self, joint: &Joint) -> Result<bool, LinkError> {
        match self {
            Self::Socket(socket) => socket.flush_now(joint),
            Self::Ring(_) => Ok(true),
        }
    }

    /// Returns since when a frame has been gathered.
    fn since(&self) -> Option<Instant> {
        match self {
            Self::Socket(socket) => socket.since(),
            Self::Ring(_) => None,
        }
    }
}

impl Shared {
    fn try_lock(&self) -> Option<Guard<'_, State>> {
        for _ in 0..TRY_LOCK_SPINS {
            if let Some(state) = self.state.try_lock() {
                return Some(state);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Ends the link on failure: after a failure inside a frame the peer cannot find the next one.
    fn ended<T>(&self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.map_err(|error| {
            let error = self.joint.end(error);
            self.changed.notify_all();
            error
        })
    }

    /// Ensures that the helper sends what is left in the batch.
    fn call_helper(self: &Arc<Self>, state: &mut State) {
        if state.out.since().is_none() {
            return;
        }
        state.has_gathered = true;
        match state.helper {
            Helper::Awake => {}
            Helper::Asleep => {
                state.helper = Helper::Awake;
                self.changed.notify_all();
            }
            Helper::None => {
                let shared = self.clone();
                let started =
                    spawn_quiet("penstock-flush", HELPER_STACK_BYTES, move || shared.help());
                // Without a thread the batch waits for the next flush.
                if started.is_ok() {
                    state.helper = Helper::Awake;
                }
            }
        }
    }

    /// Runs the helper, which sends what has been in the batch for too long.
    fn help(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            match self.next_step(&mut state) {
                Step::End => break,
                Step::Sleep(time) => {
                    drop(state);
                    penstock_process::sleep(time);
                    state = self.state.lock();
                }
                Step::AwaitRoom => {
                    drop(state);
                    let until = penstock_process::now() + HELPER_IDLE_MAX;
                    let waited =
                        self.joint.wait(&self.joint.stream, Readiness::Writable, Some(until));
                    state = self.state.lock();
                    // A peer that does not read ends the helper only if no sender is left.
                    let gone = matches!(waited, Ok(false)) && state.orphan;
                    if self.ended(waited).is_err() || gone {
                        break;
                    }
                }
                Step::Rest => {
                    state.helper = Helper::Asleep;
                    state = self.rest(state, penstock_process::now() + HELPER_IDLE_MAX);
                    if state.helper == Helper::Asleep {
                        break;
                    }
                }
            }
        }
        state.helper = Helper::None;
    }

    fn next_step(&self, state: &mut State) -> Step {
        if self.joint.is_closed() {
            return Step::End;
        }
        let has_gathered = std::mem::take(&mut state.has_gathered);
        let State { out, orphan, .. } = state;
        let Some(since) = out.since() else {
            return match (*orphan, has_gathered) {
                (true, _) => Step::End,
                (false, true) => Step::Sleep(HELPER_NAP),
                (false, false) => Step::Rest,
            };
        };
        let left = BATCH_AGE_MAX.saturating_sub(penstock_process::since(since));
        if !left.is_zero() {
            return Step::Sleep(left);
        }
        match self.ended(out.flush_now(&self.joint)) {
            Ok(true) => Step::Sleep(HELPER_NAP),
            Ok(false) => Step::AwaitRoom,
            Err(_) => Step::End,
        }
    }

    /// Waits until the helper is called, the link ends, or `until` passes.
    fn rest<'a>(&'a self, mut state: Guard<'a, State>, until: Instant) -> Guard<'a, State> {
        while state.helper == Helper::Asleep && !state.orphan && !self.joint.is_closed() {
            let left = until.saturating_duration_since(penstock_process::now());
            if left.is_zero() {
                break;
            }
            (state, _) = self.changed.wait_timeout(state, left);
        }
        state
    }
}

fn head<'a, C: Call>(
    header: &'a Header,
    call: &'a C,
    waits: &'a [Id<kind::Event>],
) -> [&'a [u8]; 3] {
    [header.as_bytes(), call.as_bytes(), waits.as_bytes()]
}

#[cfg(test)]
mod tests;
