//! The part of a session that all threads of its worker use.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_device as device;
use penstock_link::{Body, LinkError, Outbox, Sender};
use penstock_process::Lock;
use penstock_quota::Resource;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{Call as _, FrameError, Header, I32, Id, Status, frame};
use rustc_hash::FxHashMap;

use super::allowance::{Allowance, Refused};
use super::builds::Builds;
use super::compiles::Compiler;
use super::event::Events;
use super::flights::Flights;
use super::grant::Grants;
use super::headers::HeaderFolder;
use super::heap::{self, Heaps};
use super::launches::Launches;
use super::output::Output;
use super::peer::{PeerSetup, Peers};
use super::rest::Probes;
use super::transfer::Transfers;
use crate::log::Throttle;
use crate::usage::Tally;

/// Time that the reason of a session's end has to reach the client.
const FAULT_MAX: Duration = Duration::from_millis(200);

/// State that the driver's callbacks and the worker's other threads need.
pub struct SharedSession {
    pub(crate) outbox: Arc<Outbox>,
    pub(super) events: Events,
    pub(super) transfers: Transfers,
    /// All queues, for threads that wait for room for staged bytes.
    pub(super) queues: Lock<FxHashMap<Id<kind::Queue>, device::Queue>>,
    pub(crate) peers: Peers,
    pub(super) grants: Grants,
    pub(super) heaps: Heaps,
    output: Option<Arc<Output>>,
    /// Whether a program of this session may print. Its output is then sent before a command's end.
    pub(super) prints: AtomicBool,
    /// Set when the session ends, so that no wait outlasts it.
    ended: AtomicBool,
    pub(super) builds: Arc<Builds>,
    /// What this session may have.
    pub(crate) allowance: Arc<Allowance>,
    pub(super) flights: Arc<Flights>,
    /// The commands that are watched.
    pub(crate) launches: Launches,
    /// The compiler that works when kernels are launched, if it has limits.
    pub(super) compiler: Option<Arc<Compiler>>,
    pub(super) probes: Probes,
    /// Number of frames that the client has sent.
    frames: AtomicU64,
    /// Counts for the daemon.
    tally: Option<Tally>,
    pub(super) headers: Arc<HeaderFolder>,
    /// Set if waiting at the limit of staged bytes may depend on a message from the client.
    pub(super) gated: AtomicBool,
    /// Limits the log lines about peers, which a client can cause.
    complaints: Throttle,
    started: Instant,
}

impl SharedSession {
    pub(super) fn new(
        sender: Sender,
        setup: PeerSetup,
        output: Option<Arc<Output>>,
        allowance: Arc<Allowance>,
        compiler: Option<Arc<Compiler>>,
        tally: Option<Tally>,
    ) -> Arc<Self> {
        let shared = Arc::new(Self {
            outbox: Arc::new(Outbox::new(sender)),
            events: Events::default(),
            transfers: Transfers::default(),
            queues: Lock::default(),
            peers: Peers::new(setup),
            grants: Grants::default(),
            heaps: heap::heaps(),
            output,
            prints: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            builds: Arc::default(),
            allowance,
            flights: Arc::default(),
            launches: Launches::default(),
            compiler,
            probes: Probes::default(),
            frames: AtomicU64::new(0),
            tally,
            headers: Arc::default(),
            gated: AtomicBool::new(false),
            complaints: Throttle::default(),
            started: penstock_process::now(),
        });
        if let Some(output) = &shared.output {
            output.attach(&shared.outbox);
        }
        shared
    }

    /// Says in which folder of the session's own the files lie that programs include, as compilers
    /// see it. Without it, no program that includes files can be built.
    pub fn keep_headers_in(&self, folder: PathBuf) {
        self.headers.set_base(folder);
    }

    /// Sends a sign of life to the workers that this one has links to and, with `beats`, to the
    /// client. Gives up what the daemon leaves unanswered.
    ///
    /// # Errors
    /// Fails if the link to the client has ended.
    pub fn tend(self: &Arc<Self>, beats: bool) -> Result<(), LinkError> {
        // The threads that serve the links to other workers find out whether these have ended.
        self.peers.tend();
        self.grants.tend();
        let tended = if beats { self.outbox.tend(&to_client::Beat {}) } else { Ok(()) };
        self.give_up_admissions();
        tended
    }

    /// Ends the waits of this session. Tells a client that broke the protocol why the session ends.
    pub(super) fn end(&self, error: &LinkError) {
        self.ended.store(true, Ordering::Release);
        if let LinkError::Frame(error) = error
            && *error != FrameError::Broken
        {
            self.fault(Status::INVALID_OPERATION, &error.to_string());
        }
        self.heaps.end_all("the session of a member has ended");
        self.peers.close();
        self.grants.close();
    }

    /// Sends the session's last frame: why it ends.
    pub fn fault(&self, status: Status, why: &str) {
        let call = to_client::Fault { status: I32::new(status.0) };
        self.outbox.post(&call, &[], Body::Bytes(why.as_bytes().to_vec()));
        // A client that does not take the frame still sees the hang-up.
        self.outbox.drain(penstock_process::now() + FAULT_MAX);
        self.outbox.close();
    }

    /// Tells the person who runs the program that a limit was reached, once for each resource.
    pub(crate) fn tell_refusal(&self, resource: Resource, Refused(why): &Refused) {
        if !self.allowance.tells(resource) {
            return;
        }
        tracing::info!(why, "refused");
        let call = to_client::ContextError { context: Id::NONE };
        self.outbox.post(&call, &[], Body::Bytes(why.as_bytes().to_vec()));
    }

    /// Notes a frame of the client. Only the session's thread does this.
    pub(super) fn note_frame(&self, header: &Header) {
        self.frames.store(self.frames() + 1, Ordering::Relaxed);
        if let Some(tally) = &self.tally
            && header.opcode.get() == to_worker::LaunchKernel::OPCODE
        {
            tally.launched();
        }
        self.note_moved(header.payload.get());
    }

    /// Notes that content has come, or goes away.
    pub(super) fn note_moved(&self, bytes: u64) {
        if let Some(tally) = self.tally.as_ref().filter(|_| bytes > 0) {
            tally.moved(bytes);
        }
    }

    /// Returns content as the body of a call, and counts it.
    pub(super) fn content(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Body {
        self.note_moved(bytes.as_ref().len() as u64);
        Body::Shared(Box::new(bytes))
    }

    /// Returns a number that changes with each step of the session's commands and builds.
    pub(super) fn steps(&self) -> u64 {
        self.flights.steps() + self.launches.steps() + self.builds.begun()
    }

    /// Returns the number of frames that the client has sent.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Logs an event that a client or peer can cause, unless there are too many.
    pub(super) fn complain(&self, event: &str, error: &dyn Display) {
        if let Some(suppressed) =
            self.complaints.pass(penstock_process::since(self.started).as_secs())
        {
            tracing::warn!(%error, suppressed, "{event}");
        }
    }

    /// Whether the session has ended; threads that wait for it then give up.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn reply<T: serde::Serialize>(
        &self,
        request: Id<kind::Request>,
        answer: &Result<T, Status>,
    ) {
        match answer {
            Ok(value) => self.reply_bytes(request, Status::OK, frame::encode(value)),
            Err(status) => self.reply_bytes(request, *status, Vec::new()),
        }
    }

    /// Answers a request whose answer is encoded already, or that fails with an answer.
    pub(super) fn reply_bytes(&self, request: Id<kind::Request>, status: Status, bytes: Vec<u8>) {
        let body = if bytes.is_empty() { Body::None } else { Body::Bytes(bytes) };
        self.outbox.post(&to_client::Reply { request, status: I32::new(status.0) }, &[], body);
    }

    /// Sends the output so far to the client, before the frames that follow.
    pub(super) fn drain_output(&self) {
        if self.prints.load(Ordering::Acquire)
            && let Some(output) = &self.output
        {
            crate::sys::flush_stdio();
            output.drain(&self.outbox);
        }
    }
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSession").finish_non_exhaustive()
    }
}
