//! The worker's side of a session. The module `call` has the handlers of the client's calls. The
//! other modules have the objects and decisions that the handlers use.
//!
//! One thread reads the client's link and serves its calls in order ([`Session::run`]). It waits
//! for a device only in calls that say so, and at the limit of staged bytes. The driver's callbacks
//! report later ends through the [`penstock_link::Outbox`], which never blocks either.

pub(crate) mod allowance;
mod backlog;
mod builds;
mod call;
mod compiles;
mod end_order;
mod ends;
mod event;
mod flights;
mod grant;
mod headers;
mod heap;
mod heap_view;
pub(crate) mod launches;
mod limits;
mod output;
mod peer;
mod pieces;
mod program;
mod queue;
mod rehearse;
mod rest;
mod send_gate;
mod shared;
mod shared_session;
mod svm;
mod table;
pub(crate) mod times;
mod transfer;
pub(crate) mod turns;

use std::sync::Arc;

use penstock_device as device;
use penstock_link::{LinkError, OwnThread, Patience, Received, Receiver, Sender};
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::limits::UNTAKEN_BYTES_MAX;
use penstock_wire::{Call as _, Frame, FrameError, Id, Status};
use rustc_hash::FxHashSet;

use crate::builder::Rehearsals;
use crate::node::Node;
use crate::usage::{Meter, Usage};
use allowance::Allowance;
use compiles::Compiler;
use flights::Stall;
use heap_view::Views;
use launches::Kernel;
pub use output::Output;
pub use peer::{Admissions, Dialer, PeerSetup};
use program::Program;
use queue::Queue;
pub use shared_session::SharedSession;
use svm::Svm;
use table::Table;

/// A client's session in its worker.
pub struct Session {
    pub(crate) shared: Arc<SharedSession>,
    queues: Table<kind::Queue, Queue>,
    objects: Objects,
    /// Queues with commands that the device may not have got yet.
    unflushed: Vec<Id<kind::Queue>>,
    stall: Stall,
}

/// Objects that commands use.
struct Objects {
    /// Devices by node-wide index; sub-devices follow.
    devices: Vec<device::Device>,
    /// Devices that this client may not use.
    forbidden: FxHashSet<u32>,
    /// For each device its own index or, for parts, that of the whole device.
    wholes: Vec<u32>,
    rehearsals: Option<Arc<Rehearsals>>,
    /// Counters of the devices' use, by the same index. There may be fewer than devices.
    meters: Vec<Arc<Meter>>,
    platforms: Vec<device::Platform>,
    contexts: Table<kind::Context, device::Context>,
    mems: Table<kind::Mem, device::Mem>,
    samplers: Table<kind::Sampler, device::Sampler>,
    programs: Table<kind::Program, Arc<Program>>,
    kernels: Table<kind::Kernel, Kernel>,
    views: Views,
    svm: Svm,
}

impl Session {
    /// Makes a session over a link to a client.
    pub fn new(node: &Node, sender: Sender, setup: PeerSetup, output: Option<Arc<Output>>) -> Self {
        Self::within(Arc::new(Allowance::unlimited()), node, sender, setup, output)
    }

    /// Does the same for a session that may have only what `allowance` gives it.
    pub(crate) fn within(
        allowance: Arc<Allowance>,
        node: &Node,
        sender: Sender,
        setup: PeerSetup,
        output: Option<Arc<Output>>,
    ) -> Self {
        let queues = Table::new("a queue", Status::INVALID_COMMAND_QUEUE);
        let contexts = Table::new("a context", Status::INVALID_CONTEXT);
        let mems = Table::new("a memory object", Status::INVALID_MEM_OBJECT);
        let samplers = Table::new("a sampler", Status::INVALID_SAMPLER);
        let programs = Table::new("a program", Status::INVALID_PROGRAM);
        let kernels = Table::new("a kernel", Status::INVALID_KERNEL);
        let rehearsals = node.rehearsals();
        let tally = node.usage().map(Usage::tally);
        let compiler = rehearsals.as_ref().and_then(|it| Compiler::of(node.devices(), it.limits()));
        Self {
            queues: queues.counted(&allowance),
            objects: Objects {
                devices: node.devices().to_vec(),
                forbidden: FxHashSet::default(),
                wholes: (0..).take(node.devices().len()).collect(),
                rehearsals,
                meters: node.usage().map(|usage| usage.meters().to_vec()).unwrap_or_default(),
                platforms: node.platforms().to_vec(),
                contexts: contexts.counted(&allowance),
                mems: mems.counted(&allowance),
                samplers: samplers.counted(&allowance),
                programs: programs.counted(&allowance),
                kernels: kernels.counted(&allowance),
                views: Views::default(),
                svm: Svm::default(),
            },
            unflushed: Vec::new(),
            stall: Stall::default(),
            shared: SharedSession::new(sender, setup, output, allowance, compiler, tally),
        }
    }

    /// Forbids the client to use other devices than those with these numbers. Call it before the
    /// session runs. Parts of devices get numbers of their own later, and only an allowed device
    /// has any.
    pub(crate) fn leave_only(&mut self, devices: &[u32]) {
        let all = (0..).take(self.objects.devices.len());
        self.objects.forbidden = all.filter(|index| !devices.contains(index)).collect();
    }

    /// Returns the state that other threads of the worker need.
    pub fn shared(&self) -> Arc<SharedSession> {
        self.shared.clone()
    }

    /// Serves the client until the session ends. Returns the reason: [`LinkError::Closed`] if the
    /// client closed the link.
    pub fn run(mut self, mut receiver: Receiver) -> LinkError {
        let _own = OwnThread::begin();
        let error = loop {
            let patience =
                if self.unflushed.is_empty() { Patience::Forever } else { Patience::Never };
            let received = receiver.receive(patience, &mut |frame, payload| {
                if self.shared.outbox.held_bytes() > UNTAKEN_BYTES_MAX {
                    return Err(FrameError::Limit("UNTAKEN_BYTES_MAX"));
                }
                self.shared.note_frame(&frame.header);
                if self.stall.is_due(self.shared.flights.given()) && is_command(frame) {
                    self.wait_for_flights()?;
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

    /// Flushes all queues with commands that the devices may not have got.
    fn flush_queues(&mut self) {
        for id in std::mem::take(&mut self.unflushed) {
            if let Ok(queue) = self.queues.get_mut(id) {
                queue.flush();
            }
        }
    }

    /// Notes a queue with commands that the device may not have got.
    fn note_unflushed(&mut self, id: Id<kind::Queue>) {
        if self.queues.get(id).is_ok_and(|queue| queue.dirty) && !self.unflushed.contains(&id) {
            self.unflushed.push(id);
        }
    }
}

impl Objects {
    fn device(&self, index: u32) -> Result<&device::Device, Status> {
        if self.forbidden.contains(&index) {
            return Err(Status::INVALID_DEVICE);
        }
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

/// Whether the frame is a command of a queue, or another call with a wait list.
fn is_command(frame: &Frame<'_>) -> bool {
    let commands = to_worker::LaunchKernel::OPCODE..to_worker::ReleaseEvents::OPCODE;
    commands.contains(&frame.header.opcode.get()) || !frame.waits.is_empty()
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
