//! What drives a rank's devices. One trait; behind it the node's OpenCL platforms (`opencl`), devices of the pool, simulated
//! devices, and devices that do nothing (`null`).
//!
//! A back end never blocks its caller. It starts commands, orders those of one domain among each other by itself (the third
//! level of scheduling: the driver's own queue), and reports what has ended when it is asked, ringing the bell it was given.

pub mod null;
pub mod opencl;
pub mod pool;
pub mod sim;

use crate::command::{Arg, Code, CommandId, DeviceInfo, ObjectId, Range, Rank, Times};
use crate::doorbell::Doorbell;
use crate::heap::{HeapPlan, Word};
use crate::transport::Span;

/// One operation of one device.
#[derive(Debug)]
pub enum Operation<'a> {
    /// See `Work::CreateBuffer`.
    CreateBuffer {
        /// Its id from now on.
        buffer: ObjectId,
        /// In bytes.
        size: u64,
        /// `CL_MEM_*`.
        flags: u64,
    },
    /// See `Work::ReleaseBuffer`.
    ReleaseBuffer {
        /// Which.
        buffer: ObjectId,
    },
    /// See `Work::CreateKernel`.
    CreateKernel {
        /// Its id from now on.
        kernel: ObjectId,
        /// The program.
        code: &'a Code,
        /// The kernel's name.
        name: &'a str,
        /// Options for the build.
        options: &'a str,
    },
    /// See `Work::ReleaseKernel`.
    ReleaseKernel {
        /// Which.
        kernel: ObjectId,
    },
    /// See `Work::Run`.
    Run {
        /// Which.
        kernel: ObjectId,
        /// The work-items.
        range: &'a Range,
        /// The arguments.
        args: &'a [Arg],
    },
    /// Copies bytes to a buffer. They stay as they are until the operation has ended.
    Write {
        /// Which.
        buffer: ObjectId,
        /// First byte in it.
        offset: u64,
        /// The bytes.
        from: Span,
    },
    /// Copies bytes from a buffer. Nobody uses the memory until the operation has ended.
    Read {
        /// Which.
        buffer: ObjectId,
        /// First byte in it.
        offset: u64,
        /// Where to.
        into: Span,
    },
    /// Copies bytes between buffers of the back end.
    Copy {
        /// From which.
        from: ObjectId,
        /// First byte in it.
        from_offset: u64,
        /// To which.
        to: ObjectId,
        /// First byte in it.
        to_offset: u64,
        /// How many.
        size: u64,
    },
    /// See `Work::CreateHeap`.
    CreateHeap {
        /// The heap.
        plan: &'a HeapPlan,
        /// Which member this back end is.
        member: u32,
    },
    /// See `Work::ReleaseHeap`.
    ReleaseHeap {
        /// Which.
        heap: ObjectId,
    },
    /// See `Work::AbortHeap`.
    AbortHeap {
        /// Which.
        heap: ObjectId,
        /// Why.
        reason: &'a str,
    },
    /// See `Work::ResetHeap`. All launches over it have ended, at all ranks.
    ResetHeap {
        /// Which.
        heap: ObjectId,
        /// How often it was reset, with this one.
        generation: u64,
    },
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct Failure {
    /// `CL_*` or `WTR_E*`.
    pub code: i32,
    /// What happened.
    pub message: String,
    /// The build log, where there is one.
    pub log: String,
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Which, as it was started.
    pub operation: CommandId,
    /// How.
    pub outcome: Result<(), Failure>,
    /// When, as far as the device tells, in ns of the caller's clock; 0 is unknown.
    pub times: Times,
}

/// Memory of a buffer, there as long as this is.
pub struct Memory {
    /// Where.
    pub span: Span,
    /// What keeps it.
    pub keep: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("span", &self.span).finish_non_exhaustive()
    }
}

/// Drives devices.
pub trait Backend: Send + std::fmt::Debug {
    /// Its devices, in the order of their indices.
    fn devices(&self) -> &[DeviceInfo];

    /// Whether an operation on `device` can be started before one on `earlier` has ended, and the back end will keep their order.
    fn orders(&self, earlier: u32, device: u32) -> bool;

    /// Starts an operation after those of `after` (started before and perhaps not ended). Its end is reported by
    /// [`Backend::poll`], failures too.
    ///
    /// # Safety
    /// Spans stay valid until the operation has been reported.
    unsafe fn start(
        &mut self,
        id: CommandId,
        device: u32,
        operation: &Operation<'_>,
        after: &[CommandId],
    );

    /// Passes on what was started since the last time, and tells what has ended. Never blocks.
    fn poll(&mut self, ended: &mut Vec<Ended>);

    /// A buffer's memory where it can be used in place: on the host, of a device that computes there.
    fn memory(&self, _buffer: ObjectId, _offset: u64, _size: u64) -> Option<Memory> {
        None
    }

    /// The moment of the clock at which something will have ended, where that is known: a simulated device.
    fn next_end(&self) -> Option<u64> {
        None
    }

    /// Whom to wake when something has ended.
    fn wake_with(&mut self, wake: Doorbell);

    /// Whether buffers have no bytes, because only time is simulated: then nothing is copied.
    fn is_hollow(&self) -> bool {
        false
    }

    /// Whether bytes take time between the host and this device of a hollow back end: then writes and reads are started too.
    fn takes_time(&self, _device: u32) -> bool {
        false
    }

    /// Another member of a heap says something to this one.
    fn hear(&mut self, _heap: ObjectId, _word: Word) {}

    /// What is to be said to other members of heaps, and to the root.
    fn words(&mut self) -> Vec<(Rank, ObjectId, Word)> {
        Vec::new()
    }

    /// A kernel that others wait for over this heap will not run: they return.
    fn abort_heap(&mut self, _heap: ObjectId, _reason: &str) {}

    /// Ranks that may be gone: a heap that they are members of was aborted.
    fn doubts(&mut self) -> Vec<Rank> {
        Vec::new()
    }
}

/// What a back end says that has no heaps: `why` ends the sentence.
pub fn no_heaps(why: &str) -> Failure {
    Failure {
        code: crate::error::code::INVALID,
        message: format!("there are no heaps here: {why}"),
        log: String::new(),
    }
}
