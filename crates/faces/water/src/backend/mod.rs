//! Back ends: what drives a rank's devices. They share one trait. The implementations are the
//! node's OpenCL platforms (`opencl`), devices of the pool (`pool`), simulated devices (`sim`), and
//! devices that do nothing (`null`).
//!
//! A back end never blocks its caller. It starts commands, keeps the order of those of one domain
//! (the third level of scheduling: the driver's own queue), reports ended commands when it is
//! polled, and rings a bell when there are some.

pub mod null;
pub mod opencl;
pub mod pool;
pub mod sim;

use penstock_wire::Status;

use crate::command::{Command, CommandId, DeviceInfo, ObjectId, ObjectKind, Rank, Times};
use crate::doorbell::Doorbell;
use crate::error::code;
use crate::heap::{HeapMessage, HeapMessageTo};
use crate::transport::Span;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct Failure {
    /// A `CL_*` or `WTR_E*` code.
    pub code: i32,
    pub message: String,
    /// The build log; empty if there is none.
    pub log: String,
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its id, as given to [`Backend::start`].
    pub operation: CommandId,
    pub outcome: Result<(), Failure>,
    /// In ns of the caller's clock, as far as the device tells; 0 means unknown.
    pub times: Times,
}

/// Memory of a buffer, valid as long as this value lives.
pub struct Memory {
    pub span: Span,
    /// Keeps the memory alive.
    pub keep: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("span", &self.span).finish_non_exhaustive()
    }
}

/// What drives the devices of a rank.
pub trait Backend: Send + std::fmt::Debug {
    /// Returns its devices, by index.
    fn devices(&self) -> &[DeviceInfo];

    /// Whether an operation on `device` may be started before an earlier one on `earlier` has
    /// ended, so that the back end keeps their order.
    fn orders(&self, earlier: u32, device: u32) -> bool;

    /// Starts a command of one device. The command runs after those in `after`, which were started
    /// before it. [`Backend::poll`] reports its end, and also its failure. The command is neither a
    /// marker nor a move.
    ///
    /// # Safety
    /// All memory that the command names stays valid until the end of the command has been
    /// reported.
    unsafe fn start(&mut self, id: CommandId, device: u32, command: &Command, after: &[CommandId]);

    /// Flushes the operations started since the last call, and appends those that have ended. Never
    /// blocks.
    fn poll(&mut self, ended: &mut Vec<Ended>);

    /// Returns a part of a buffer's memory if the host can use it in place: the device computes on
    /// the host's memory.
    fn memory(&self, _buffer: ObjectId, _offset: u64, _size: u64) -> Option<Memory> {
        None
    }

    /// Returns the time at which the next operation will have ended, if it is known: on simulated
    /// devices.
    fn next_end(&self) -> Option<u64> {
        None
    }

    /// Sets the bell to ring when an operation has ended.
    fn wake_with(&mut self, wake: Doorbell);

    /// Returns whether buffers have no bytes because only time is simulated. Such a back end copies
    /// nothing.
    fn is_hollow(&self) -> bool {
        false
    }

    /// Whether transfers to and from this device of a hollow back end take time. Writes and reads
    /// are started then, too.
    fn takes_time(&self, _device: u32) -> bool {
        false
    }

    /// Takes a message of another member of a heap.
    fn hear(&mut self, _heap: ObjectId, _message: HeapMessage) {}

    /// Takes the messages for other members of heaps, and for the root.
    fn heap_messages(&mut self) -> Vec<HeapMessageTo> {
        Vec::new()
    }

    /// Aborts a heap, so that kernels stop waiting for one that will not run.
    fn abort_heap(&mut self, _heap: ObjectId, _reason: &str) {}

    /// Returns the ranks that may be lost: members of heaps that were aborted since the last call.
    fn doubts(&mut self) -> Vec<Rank> {
        Vec::new()
    }
}

/// Returns the failure of a back end without heaps; `why` ends the sentence.
pub fn no_heaps(why: &str) -> Failure {
    Failure {
        code: code::INVALID,
        message: format!("there are no heaps here: {why}"),
        log: String::new(),
    }
}

/// Returns the failure with an OpenCL status; `what` is what could not be done.
pub(crate) fn refused(status: i32, what: &str) -> Failure {
    let message = format!("cannot {what}: {}", Status(status));
    Failure { code: status, message, log: String::new() }
}

/// Returns the failure of a command whose object does not exist.
pub(crate) fn gone(kind: ObjectKind) -> Failure {
    let (code, what) = match kind {
        ObjectKind::Buffer => (code::INVALID_MEM_OBJECT, "buffer"),
        ObjectKind::Kernel => (code::INVALID_KERNEL, "kernel"),
        ObjectKind::Heap => (code::INVALID_MEM_OBJECT, "heap"),
    };
    let message = format!("the {what} does not exist or was released");
    Failure { code, message, log: String::new() }
}

/// Returns the failure of a command that a back end does not perform.
pub(crate) fn not_performed(command: &Command) -> Failure {
    let message = format!("a back end cannot {}", command.phrase());
    Failure { code: code::INVALID_VALUE, message, log: String::new() }
}
