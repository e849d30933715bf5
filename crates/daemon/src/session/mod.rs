//! The worker's side of a session. Each kind of object has a file with the handlers of its calls.
//!
//! One thread reads the client's link and serves its calls in order ([`Session::run`]). It waits
//! for a device only in calls that say so, and at the limit of staged bytes. The driver's callbacks
//! report later ends through the [`penstock_link::Outbox`], which never blocks either.

mod builds;
mod command;
mod context;
mod event;
mod heap;
mod heap_transport;
mod heap_view;
mod image;
mod kernel;
mod limits;
mod line;
mod memory;
mod output;
mod peer;
mod pieces;
mod program;
mod queue;
mod read;
mod sensors;
mod shared;
mod svm;
mod table;
mod transfer;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_device as device;
use penstock_link::{Body, LinkError, Outbox, Patience, Received, Receiver, Sender};
use penstock_process::Lock;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::limits::UNTAKEN_BYTES_MAX;
use penstock_wire::{FrameError, I32, Id, Status, frame};

use rustc_hash::FxHashMap;

use crate::log::Throttle;
use crate::node::Node;
use crate::usage::Meter;
use event::Events;
pub use output::Output;
use peer::Peers;
pub use peer::{Admissions, PeerSetup};
use queue::Queue;
use table::Table;
use transfer::Transfers;

/// Time that the reason of a session's end has to reach the client.
const FAULT_MAX: Duration = Duration::from_millis(200);

/// A client's session in its worker.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    queues: Table<kind::Queue, Queue>,
    objects: Objects,
    /// Queues with commands that the device may not have got yet.
    unflushed: Vec<Id<kind::Queue>>,
}

/// Objects that commands use.
struct Objects {
    /// Devices by node-wide index; sub-devices follow.
    devices: Vec<device::Device>,
    /// Counters of the devices' use, by the same index. There may be fewer than devices.
    meters: Vec<Arc<Meter>>,
    platforms: Vec<device::Platform>,
    contexts: Table<kind::Context, device::Context>,
    mems: Table<kind::Mem, device::Mem>,
    samplers: Table<kind::Sampler, device::Sampler>,
    programs: Table<kind::Program, Arc<program::Program>>,
    kernels: Table<kind::Kernel, device::Kernel>,
    views: heap_view::Views,
    svm: svm::Svm,
}

/// State that the driver's callbacks and the worker's other threads need.
pub struct Shared {
    pub(crate) outbox: Outbox,
    events: Events,
    transfers: Transfers,
    /// All queues, for threads that wait for room for staged bytes.
    queues: Lock<FxHashMap<Id<kind::Queue>, device::Queue>>,
    pub(crate) peers: Peers,
    heaps: heap::Heaps,
    output: Option<Arc<Output>>,
    /// Whether a program of this session may print. Its output is then sent before a command's end.
    prints: AtomicBool,
    /// Set when the session ends, so that no wait outlasts it.
    ended: AtomicBool,
    builds: Arc<builds::Builds>,
    /// Set if waiting at the limit of staged bytes may depend on a message from the client.
    gated: AtomicBool,
    /// Limits the log lines about peers, which a client can cause.
    complaints: Throttle,
    started: Instant,
}

impl Session {
    /// Makes a session over a link to a client.
    pub fn new(node: &Node, sender: Sender, setup: PeerSetup, output: Option<Arc<Output>>) -> Self {
        let shared = Arc::new(Shared {
            outbox: Outbox::new(sender),
            events: Events::default(),
            transfers: Transfers::default(),
            queues: Lock::default(),
            peers: Peers::new(setup),
            heaps: heap::heaps(),
            output,
            prints: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            builds: Arc::default(),
            gated: AtomicBool::new(false),
            complaints: Throttle::default(),
            started: Instant::now(),
        });
        if let Some(output) = &shared.output {
            output.attach(&shared);
        }
        Self {
            shared,
            queues: Table::new("a queue", Status::INVALID_COMMAND_QUEUE),
            objects: Objects {
                devices: node.devices().to_vec(),
                meters: node.usage().map(|usage| usage.meters().to_vec()).unwrap_or_default(),
                platforms: node.platforms().to_vec(),
                contexts: Table::new("a context", Status::INVALID_CONTEXT),
                mems: Table::new("a memory object", Status::INVALID_MEM_OBJECT),
                samplers: Table::new("a sampler", Status::INVALID_SAMPLER),
                programs: Table::new("a program", Status::INVALID_PROGRAM),
                kernels: Table::new("a kernel", Status::INVALID_KERNEL),
                views: heap_view::Views::default(),
                svm: svm::Svm::default(),
            },
            unflushed: Vec::new(),
        }
    }

    /// Returns the state that other threads of the worker need.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Serves the client until the session ends. Returns the reason: [`LinkError::Closed`] if the
    /// client closed the link.
    pub fn run(mut self, mut receiver: Receiver) -> LinkError {
        let error = loop {
            let patience =
                if self.unflushed.is_empty() { Patience::Forever } else { Patience::Never };
            let received = receiver.receive(patience, &mut |frame, payload| {
                if self.shared.outbox.held_bytes() > UNTAKEN_BYTES_MAX {
                    return Err(FrameError::Limit("UNTAKEN_BYTES_MAX"));
                }
                penstock_trial::delay(penstock_trial::Place::WorkerReceives);
                to_worker::dispatch(&mut self, frame, payload)
            });
            match received {
                Ok(Received::Frame) => {}
                // No more calls have come for now, so the devices get the commands that have.
                Ok(Received::TimedOut) => self.flush_queues(),
                Err(error) => break error,
            }
        };
        self.shared.end(&error);
        error
    }
}

impl Shared {
    /// Ends the waits of this session. Tells a client that broke the protocol why the session ends.
    fn end(&self, error: &LinkError) {
        self.ended.store(true, Ordering::Release);
        if let LinkError::Frame(error) = error
            && *error != FrameError::Broken
        {
            self.fault(Status::INVALID_OPERATION, &error.to_string());
        }
        self.heaps.end_all("the session of a member has ended");
        self.peers.close();
    }

    /// Sends the session's last frame: why it ends.
    pub fn fault(&self, status: Status, why: &str) {
        let call = to_client::Fault { status: I32::new(status.0) };
        self.outbox.post(&call, &[], Body::Bytes(why.as_bytes().to_vec()));
        // A client that does not take the frame still sees the hang-up.
        self.outbox.drain(Instant::now() + FAULT_MAX);
        self.outbox.close();
    }

    /// Logs an event that a client or peer can cause, unless there are too many.
    fn complain(&self, event: &str, error: &LinkError) {
        if let Some(suppressed) = self.complaints.pass(self.started.elapsed().as_secs()) {
            tracing::warn!(%error, suppressed, "{event}");
        }
    }

    /// Whether the session has ended; threads that wait for it then give up.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn reply<T: serde::Serialize>(&self, request: Id<kind::Request>, answer: &Result<T, Status>) {
        match answer {
            Ok(value) => self.reply_bytes(request, Status::OK, frame::encode(value)),
            Err(status) => self.reply_bytes(request, *status, Vec::new()),
        }
    }

    /// Answers a request whose answer is encoded already, or that fails with an answer.
    fn reply_bytes(&self, request: Id<kind::Request>, status: Status, bytes: Vec<u8>) {
        let body = if bytes.is_empty() { Body::None } else { Body::Bytes(bytes) };
        self.outbox.post(&to_client::Reply { request, status: I32::new(status.0) }, &[], body);
    }
}

impl Objects {
    fn device(&self, index: u32) -> Result<&device::Device, Status> {
        let index = usize::try_from(index).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get(index).ok_or(Status::INVALID_DEVICE)
    }

    fn meter(&self, index: u32) -> Option<Arc<Meter>> {
        self.meters.get(usize::try_from(index).ok()?).cloned()
    }

    fn devices(&self, indices: &[u32]) -> Result<Vec<device::Device>, Status> {
        indices.iter().map(|index| self.device(*index).cloned()).collect()
    }

    fn devices_with_indices(&self, indices: &[u32]) -> Result<Vec<(u32, device::Device)>, Status> {
        indices.iter().map(|index| Ok((*index, self.device(*index)?.clone()))).collect()
    }

    fn platform(&self, index: u32) -> Result<&device::Platform, Status> {
        let index = usize::try_from(index).map_err(|_| Status::INVALID_VALUE)?;
        self.platforms.get(index).ok_or(Status::INVALID_VALUE)
    }
}

/// Converts the numbers of a call.
fn triple(wire: penstock_wire::calls::Triple) -> [u64; 3] {
    wire.map(|word| word.get())
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
