//! One link to one worker, and the calls, events and reads in progress over it.
//!
//! The thread that waits also receives: the first waiting thread takes the receiver and serves
//! every frame, including those for other threads, until its own has arrived. So a blocking call
//! costs no hand-over between threads of the client. Penstock's own thread receives only if no
//! thread of the program waits, but a message is needed: for a callback, or for an event that is
//! relayed to another node.

pub(crate) mod failure;
mod incoming;
mod look;
mod loss;
mod notices;
mod receivers;
mod sending;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::Instant;

use penstock_link::{Patience, Received, Receiver, Sender};
use penstock_process::{Lock, Signal};
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{Id, Request, Status, frame};
use rustc_hash::FxHashMap;

use crate::arena;
use crate::error::{Error, Result, refused};
use crate::summary::{self, Reason, Tally};
use failure::Failure;
use incoming::Incoming;
use look::LOOK_EVERY_MS;
use notices::Notices;
use receivers::Answer;
pub(crate) use receivers::Ending;
pub use receivers::Target;

/// Links between the workers of one client.
pub(crate) trait Peers: Send + Sync {
    /// Returns the name under which the worker of `from` knows that of `to`, if they have a link.
    fn between(&self, from: &Arc<Session>, to: &Arc<Session>) -> Option<Id<kind::Peer>>;

    /// Notes that the worker of `node` has lost its link to `peer`. The client relays from now on.
    fn lose(&self, node: usize, peer: Id<kind::Peer>);

    /// Returns the boot id of a node's host and the addresses of its daemon.
    fn reach(&self, node: usize) -> Option<(String, Vec<String>)>;

    /// Makes the missing links among all of `sessions`. Waits for the workers, once for each pair.
    fn link(&self, sessions: &[&Arc<Session>]);

    /// Opens a link of the heap's own between two members. Fails if they do not reach each other.
    fn link_heap(
        &self,
        heap: Id<kind::Heap>,
        one: (&Arc<Session>, u32),
        other: (&Arc<Session>, u32),
    ) -> Result<()>;
}

/// Number of released events that are collected before the worker hears of them. 64 ids are one
/// small frame, and an event kept for that long takes some 200 bytes in the worker.
const RELEASES_PER_FRAME: usize = 64;

/// Number of ids that fit [`penstock_wire::limits::SMALL_BYTES_MAX`].
const RELEASES_PER_FRAME_MAX: usize = 8192;

/// Number of commands with events between two polls for their ends. 4,096 ends are 300 KB, which
/// the link itself can hold.
const COMMANDS_PER_POLL: usize = 4096;

/// One client's connection to one node.
pub struct Session {
    node: usize,
    /// Number of the session in the process, over all pools.
    number: u32,
    name: Arc<str>,
    sender: Sender,
    receiver: Lock<Receiver>,
    turn: Lock<Turn>,
    /// Wakes followers, which wait for their own completion or for the receiver.
    served: Signal,
    /// Wakes the session's own thread, which waits until it is needed.
    needed: Signal,
    interests: AtomicUsize,
    /// Whether a sender waits for room, so that the session's own thread receives.
    relieved: AtomicBool,
    /// Number of commands with events, which determines when to poll for their ends.
    commands: AtomicUsize,
    open: Lock<Open>,
    /// Held while bytes are copied into a read's target. See [`Session::await_copies`].
    landing: Lock<()>,
    /// Held while a command that was held back takes its bytes from the program's memory.
    departing: Lock<()>,
    released: Lock<Vec<u64>>,
    /// Status with which the worker has ended the session; 0 if it has not.
    fault: AtomicI32,
    /// Set when no thread copies into any target, or from the memory of a held command, any more.
    lost: AtomicBool,
    opened_at: Instant,
    look_at_ms: AtomicU64,
    peers: OnceLock<Weak<dyn Peers>>,
    arena: Option<Arc<arena::Shared>>,
    context_errors: Lock<Option<ContextErrors>>,
    /// Failures of the session's queues, by the queue's id.
    failures: Lock<FxHashMap<u64, Arc<Failure>>>,
    on_loss: OnceLock<(Once, OnLoss)>,
    pub(crate) notices: Notices,
    /// Set if the worker takes the files that programs include.
    pub(crate) takes_headers: bool,
    tally: Option<Arc<Tally>>,
}

type OnLoss = Box<dyn Fn(&str) + Send + Sync>;
type ContextErrors = Box<dyn Fn(Id<kind::Context>, &str) + Send + Sync>;

#[derive(Default)]
struct Turn {
    receiving: bool,
    followers: usize,
    thread_started: bool,
}

/// The events, reads and requests in progress.
#[derive(Default)]
struct Open {
    events: FxHashMap<u64, Arc<dyn Ending>>,
    reads: FxHashMap<u64, Box<dyn Target>>,
    requests: FxHashMap<u64, Arc<Answer>>,
    /// The reason of the session's loss, or `None` while it is not lost.
    lost: Option<Arc<str>>,
}

/// A request in progress. Dropping it discards the answer.
#[must_use]
pub struct Pending<R> {
    session: Arc<Session>,
    name: &'static str,
    answer: Arc<Answer>,
    reply: std::marker::PhantomData<fn() -> R>,
}

impl Session {
    pub(crate) fn new(
        node: usize,
        name: Arc<str>,
        takes_headers: bool,
        tally: Option<Arc<Tally>>,
        (sender, receiver): (Sender, Receiver),
    ) -> Arc<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let session = Arc::new(Self {
            node,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            name,
            arena: sender.arena().map(|arena| arena::Shared::new(arena.clone())),
            sender,
            receiver: Lock::new(receiver),
            turn: Lock::default(),
            served: Signal::new(),
            needed: Signal::new(),
            interests: AtomicUsize::new(0),
            relieved: AtomicBool::new(false),
            fault: AtomicI32::new(0),
            commands: AtomicUsize::new(0),
            open: Lock::default(),
            landing: Lock::default(),
            departing: Lock::default(),
            released: Lock::default(),
            lost: AtomicBool::new(false),
            opened_at: penstock_process::now(),
            look_at_ms: AtomicU64::new(LOOK_EVERY_MS),
            peers: OnceLock::new(),
            context_errors: Lock::new(None),
            failures: Lock::default(),
            on_loss: OnceLock::new(),
            notices: Notices::default(),
            takes_headers,
            tally,
        });
        let stalled = Arc::downgrade(&session);
        session.sender.on_stall(move || {
            if let Some(session) = stalled.upgrade() {
                session.relieve();
            }
        });
        session
    }

    /// Returns the index of the node in the pool.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Returns the session's number in the process, over all pools.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the figures of this session, if the process counts.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        self.tally.as_deref()
    }

    pub(crate) fn arena(&self) -> Option<&Arc<arena::Shared>> {
        self.arena.as_ref()
    }

    /// Has `tell` called with errors that a driver reports through a context (`pfn_notify`).
    pub fn on_context_error(&self, tell: impl Fn(Id<kind::Context>, &str) + Send + Sync + 'static) {
        *self.context_errors.lock() = Some(Box::new(tell));
    }

    /// Has `tell` called with the reason when the worker is lost.
    pub(crate) fn on_loss(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.on_loss.set((Once::new(), Box::new(tell)));
    }

    pub(crate) fn set_peers(&self, peers: Weak<dyn Peers>) {
        _ = self.peers.set(peers);
    }

    // -- what is in progress ----------------------------------------------------------------------

    pub fn request<C: Request>(self: &Arc<Self>, mut call: C, payload: &[u8]) -> Pending<C::Reply> {
        let id = crate::ids::next_id();
        call.set_request(id);
        let answer = Arc::new(Answer::default());
        // Registered before it is sent, because the answer may come at once. The wait notices a
        // lost session.
        if self.opened(|open| open.requests.insert(id.get(), answer.clone())).is_ok()
            && let Err(error) = self.send(&call, &[], payload)
        {
            self.open.lock().requests.remove(&id.get());
            answer.set(error.status(), Vec::new());
        }
        Pending { session: self.clone(), name: C::NAME, answer, reply: std::marker::PhantomData }
    }

    /// Makes an event known before its command is sent.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn expect(&self, id: Id<kind::Event>, event: Arc<dyn Ending>) -> Result<()> {
        self.opened(|open| open.events.insert(id.get(), event)).map(drop)
    }

    /// As [`Session::expect`], with the target for the bytes of the read.
    ///
    /// # Errors
    /// If the session is lost.
    pub(crate) fn expect_read(
        &self,
        id: Id<kind::Event>,
        event: Arc<dyn Ending>,
        target: Box<dyn Target>,
    ) -> Result<()> {
        self.opened(|open| {
            open.events.insert(id.get(), event);
            open.reads.insert(id.get(), target);
        })
    }

    /// Forgets the event of a command that was not sent, and the target of a read.
    pub(crate) fn forget(&self, id: Id<kind::Event>) {
        let mut open = self.open.lock();
        let gone = (open.events.remove(&id.get()), open.reads.remove(&id.get()));
        drop(open);
        // Without the lock: an object that the target keeps alive may send something.
        drop(gone);
    }

    /// Returns whether bytes of a read are still to come.
    pub(crate) fn has_reads(&self) -> bool {
        !self.open.lock().reads.is_empty()
    }

    fn opened<R>(&self, open: impl FnOnce(&mut Open) -> R) -> Result<R> {
        let mut guard = self.open.lock();
        let Some(reason) = guard.lost.clone() else { return Ok(open(&mut guard)) };
        drop(guard);
        // The program may take this error for the end of all its commands.
        self.await_copies();
        Err(Error::Lost { node: self.name.clone(), reason })
    }

    /// Notes that nobody can ask for this event any more.
    pub(crate) fn release_event(&self, event: Id<kind::Event>) {
        if self.is_lost() {
            return;
        }
        let mut released = self.released.lock();
        released.push(event.get());
        if released.len() >= RELEASES_PER_FRAME {
            let mut ids = std::mem::take(&mut *released);
            drop(released);
            let more = ids.split_off(ids.len().min(RELEASES_PER_FRAME_MAX));
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            // Without waiting: this may be the thread that receives what the worker must deliver
            // before it takes anything from a waiting sender. A lost session has released
            // everything.
            if !matches!(self.sender.try_send(&to_worker::ReleaseEvents {}, &[], &bytes), Ok(false))
            {
                ids.clear();
            }
            if !(ids.is_empty() && more.is_empty()) {
                self.released.lock().extend(ids.into_iter().chain(more));
            }
        }
    }

    /// Has this session's worker tell the worker of `other` when `event` ends. Returns `false` if
    /// the workers have no link.
    pub(crate) fn tell_peer(self: &Arc<Self>, event: Id<kind::Event>, other: &Arc<Self>) -> bool {
        let Some(peer) = self.peer(other) else { return false };
        // Flushed, because the program may wait for the other worker without sending anything more
        // to this one.
        self.send(&to_worker::TellPeer { event, peer }, &[], &[]).is_ok() && self.flush().is_ok()
    }

    pub(crate) fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.peers.get()?.upgrade()
    }

    /// Returns the name of `other`'s worker at this session's worker, if they have a link.
    pub(crate) fn peer(self: &Arc<Self>, other: &Arc<Self>) -> Option<Id<kind::Peer>> {
        self.peers()?.between(self, other)
    }

    // -- receiving --------------------------------------------------------------------------------

    /// Waits until `done` returns true, which a frame of this session brings about, or until the
    /// session is lost.
    pub(crate) fn wait(self: &Arc<Self>, reason: Reason, done: &dyn Fn() -> bool) {
        summary::waiting(self.tally(), reason, || {
            // A failure has ended everything that can be waited for.
            _ = self.flush();
            self.serve_until(done);
        });
    }

    /// As [`Session::wait`], for a thread that has sent nothing.
    fn serve_until(self: &Arc<Self>, done: &dyn Fn() -> bool) {
        while !done() {
            if !self.take_turn(done) {
                return;
            }
            let mut receiver = self.receiver.lock();
            while !done() && !self.is_lost() {
                self.receive(&mut receiver, Patience::Forever);
            }
            drop(receiver);
            self.end_turn();
            if self.is_lost() {
                return;
            }
        }
    }

    /// Occasionally receives what has already arrived: a program that keeps sending and never waits
    /// must not leave all completions in its worker's memory. Must be called after each command
    /// with an event, without locks.
    pub(crate) fn poll_now_and_then(self: &Arc<Self>) {
        if self.commands.fetch_add(1, Ordering::Relaxed) % COMMANDS_PER_POLL
            == COMMANDS_PER_POLL - 1
        {
            self.poll();
        }
    }

    /// Receives what has already arrived.
    pub fn poll(self: &Arc<Self>) {
        let mut turn = self.turn.lock();
        if turn.receiving || self.is_lost() {
            return;
        }
        turn.receiving = true;
        drop(turn);
        // The flush does not wait, because no other thread could receive during the wait. The calls
        // below notice if it fails.
        _ = self.sender.flush_soon();
        // Shared memory does not report the end of its writer. The frames that a dead worker has
        // left there are taken before the session is lost.
        let looked = self.look();
        let mut receiver = self.receiver.lock();
        while self.receive(&mut receiver, Patience::Never) {}
        drop(receiver);
        if let Err(error) = looked {
            self.lose(&error);
        }
        self.end_turn();
    }

    /// Makes this thread the one that receives. Returns `false` if `done` came true before, or the
    /// session is lost.
    fn take_turn(&self, done: &dyn Fn() -> bool) -> bool {
        let mut turn = self.turn.lock();
        loop {
            if done() || self.is_lost() {
                return false;
            }
            if !turn.receiving {
                turn.receiving = true;
                return true;
            }
            turn.followers += 1;
            turn = self.served.wait(turn);
            turn.followers -= 1;
        }
    }

    fn end_turn(&self) {
        let mut turn = self.turn.lock();
        turn.receiving = false;
        let followers = turn.followers;
        drop(turn);
        if followers > 0 {
            self.served.notify_all();
        } else if self.interests.load(Ordering::Acquire) > 0 {
            self.needed.notify_one();
        }
    }

    /// Serves one frame, if one comes in time.
    fn receive(self: &Arc<Self>, receiver: &mut Receiver, patience: Patience) -> bool {
        penstock_trial::delay(penstock_trial::Place::ClientReceives);
        let mut incoming = Incoming { session: self };
        let received = receiver.receive(patience, &mut |frame, payload| {
            to_client::dispatch(&mut incoming, frame, payload)
        });
        match received {
            Ok(Received::Frame) => true,
            Ok(Received::TimedOut) => false,
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    fn served(&self) {
        if self.turn.lock().followers > 0 {
            self.served.notify_all();
        }
    }

    /// Has the session's own thread receive while no other thread does.
    pub(crate) fn add_interest(self: &Arc<Self>) {
        if self.interests.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let mut turn = self.turn.lock();
        if !turn.thread_started {
            let session = Arc::downgrade(self);
            let receive = move || receive_for_others(&session);
            turn.thread_started =
                penstock_process::start(format!("penstock-{}", self.name), receive).is_ok();
        }
        drop(turn);
        self.needed.notify_one();
    }

    pub(crate) fn drop_interest(&self) {
        self.interests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes the link. The worker sees the hang-up and ends.
impl Drop for Session {
    fn drop(&mut self) {
        self.sender.close();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("node", &self.name)
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

pub(crate) fn no_refusal(member: &Session, why: Option<String>) -> Result<()> {
    match why {
        None => Ok(()),
        Some(why) => Err(refused(&format!("node {}: {why}", member.name()))),
    }
}

/// Receives while no other thread does. The session's own thread runs this.
fn receive_for_others(session: &Weak<Session>) {
    loop {
        let Some(session) = session.upgrade() else { return };
        if session.is_lost() {
            return;
        }
        if session.interests.load(Ordering::Acquire) > 0 {
            _ = session.sender.flush_soon();
            session.serve_until(&|| session.interests.load(Ordering::Acquire) == 0);
            continue;
        }
        let turn = session.turn.lock();
        if session.interests.load(Ordering::Acquire) == 0 && !session.is_lost() {
            // The thread wakes up every 5 s, so that it ends with its session.
            let pause = std::time::Duration::from_secs(5);
            drop(session.needed.wait_timeout(turn, pause));
        }
    }
}

impl<R: serde::de::DeserializeOwned> Pending<R> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// If the worker refused, or is lost.
    pub fn wait(self) -> Result<R> {
        let (status, bytes) = self.raw();
        if status.is_error() {
            return Err(self.session.refused(status));
        }
        frame::decode(self.name, &bytes).map_err(Error::Frame)
    }

    /// Waits for an answer that carries information even if its status is an error: the report of a
    /// build.
    ///
    /// # Errors
    /// If the worker is lost, or answered with a status alone.
    pub fn wait_report(self) -> Result<(Status, R)> {
        let (status, bytes) = self.raw();
        if bytes.is_empty() {
            return Err(self.session.refused(status));
        }
        Ok((status, frame::decode(self.name, &bytes).map_err(Error::Frame)?))
    }

    fn raw(&self) -> (Status, Vec<u8>) {
        self.session.wait(Reason::of_request(self.name), &|| self.answer.is_there());
        self.answer.take().unwrap_or((Status::NODE_LOST, Vec::new()))
    }
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("call", &self.name).finish_non_exhaustive()
    }
}
