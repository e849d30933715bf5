//! The definition of a CUDA program: a list of operations that is complete before the first of them
//! runs.
//!
//! As with OpenCL programs, the order of the list is one valid order of execution.

use serde::{Deserialize, Serialize};

pub use crate::plan::Op as AnyOp;
use crate::plan::Ptr;

/// One operation of one host thread.
pub type Op = AnyOp<Act>;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Device {
    /// The name that the driver gives the device.
    pub name: String,
    /// Whether the device has memory pools.
    pub pools: bool,
}

impl AsRef<str> for Device {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// The platform that the programs run on.
pub type Platform = crate::plan::Platform<Device>;

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub struct Context {
    /// Index of the device in the platform.
    pub device: usize,
    /// Whether it is the device's primary context. Otherwise `cuCtxCreate` makes it.
    pub primary: bool,
}

/// An array of host memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Area {
    pub len: usize,
    /// Whether `cuMemHostAlloc` allocates it. Other arrays are pageable, and may be registered for
    /// some time.
    pub pinned: bool,
}

/// A program and its configuration.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Program {
    pub seed: u64,
    /// Number of host threads.
    pub threads: usize,
    pub contexts: Vec<Context>,
    /// The arrays of host memory.
    pub areas: Vec<Area>,
    pub relies: Relies,
    pub ops: Vec<Op>,
}

/// Undocumented behaviours of drivers that the program relies on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Relies {
    /// A synchronous copy from pageable memory to the device has ended when the call returns.
    pub writes_end: bool,
    /// An asynchronous copy reads pageable memory in its turn in the stream, or waits for its turn.
    pub pageable_order: bool,
    /// `cuMemFree` waits for work that was enqueued before.
    pub early_frees: bool,
}

crate::interface::plan!(Program, Act);

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// The legacy default stream of a context.
    Legacy(usize),
    /// The per-thread default stream of a context for the calling thread.
    PerThread(usize),
    /// A stream that the program has created.
    Made(usize),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Side {
    Host(Ptr),
    Device { mem: usize, offset: usize },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Rows {
    pub width: usize,
    pub height: usize,
    /// Bytes from one row to the next in the target and in the source.
    pub to_pitch: usize,
    pub from_pitch: usize,
}

impl Rows {
    /// Number of bytes from the first to the last byte on a side with this pitch.
    pub fn span(&self, pitch: usize) -> usize {
        pitch * (self.height - 1) + self.width
    }
}

/// Kernels. All of them work on words of four bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `a[i] = pattern(seed, i)`.
    Put,
    /// As `Put`, but the first thread computes for some time first.
    Slow,
    /// `a[i] = mix(a[i], b[i], seed)`.
    Mix,
}

impl Kernel {
    pub const ALL: [Self; 3] = [Self::Put, Self::Slow, Self::Mix];

    /// The name of the kernel in the PTX module.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Slow => "slow",
            Self::Mix => "mix",
        }
    }
}

/// What a host function does when its turn in a stream has come.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Job {
    /// Stores the pattern of `seed`.
    Store {
        to: Ptr,
        len: usize,
        seed: u32,
    },
    /// Compares memory with the model.
    Check {
        at: Ptr,
        len: usize,
    },
    Move {
        to: Ptr,
        from: Ptr,
        len: usize,
    },
    /// Only sleeps for its delay.
    Rest,
}

/// Work in a stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Work {
    /// `cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync` or `cuMemcpyDtoDAsync`, or the synchronous form.
    Copy { to: Side, from: Side, len: usize },
    /// The call `cuMemcpy2DAsync` or `cuMemcpy2D`.
    Copy2D { to: Side, from: Side, rows: Rows },
    /// The call `cuMemcpyPeerAsync` or `cuMemcpyPeer`.
    Peer { to: usize, to_offset: usize, from: usize, from_offset: usize, len: usize },
    /// `cuMemsetD8Async`, `D16` or `D32`, or the synchronous form. `value` is a pattern of `unit`
    /// bytes.
    Fill { mem: usize, offset: usize, len: usize, unit: usize, value: u32 },
    /// The call `cuMemsetD2D32Async` only.
    Fill2D { mem: usize, offset: usize, rows: Rows, value: u32 },
    /// `a_offset`, `b_offset` and `count` are in words.
    Launch {
        kernel: Kernel,
        a: usize,
        a_offset: usize,
        b: Option<usize>,
        b_offset: usize,
        count: usize,
        seed: u32,
        spin: u32,
    },
    /// The call `cuLaunchHostFunc` only.
    Function { job: Job, delay_us: u32 },
}

/// One node of a graph.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Part {
    /// Whether the node is in the second branch. That branch runs beside the nodes of the first
    /// branch that follow its first node.
    pub second: bool,
    pub work: Work,
}

/// What an operation does. The fields `stream`, `mem`, `event` and so on are numbers that the
/// program gives its objects.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Act {
    /// Lets one other thread pass its `Await` with the same number.
    Signal {
        id: usize,
    },
    /// Waits for the `Signal` with the same number.
    Await {
        id: usize,
    },
    NewStream {
        stream: usize,
        context: usize,
        blocking: bool,
    },
    DropStream {
        stream: usize,
    },
    NewEvent {
        event: usize,
        context: usize,
        timing: bool,
    },
    DropEvent {
        event: usize,
    },
    Alloc {
        mem: usize,
        context: usize,
        size: usize,
    },
    Free {
        mem: usize,
    },
    AllocAsync {
        mem: usize,
        stream: Stream,
        size: usize,
    },
    FreeAsync {
        mem: usize,
        stream: Stream,
    },
    /// `cuMemHostRegister` of a whole array.
    Register {
        area: usize,
    },
    Unregister {
        area: usize,
    },
    /// The host stores the pattern of `seed`.
    Store {
        to: Ptr,
        len: usize,
        seed: u32,
    },
    /// The host compares memory with the model.
    Check {
        at: Ptr,
        len: usize,
    },
    Record {
        event: usize,
        stream: Stream,
    },
    StreamWait {
        stream: Stream,
        event: usize,
    },
    /// `cuEventSynchronize`. With `query`, `cuEventQuery` until the event has ended.
    EventWait {
        event: usize,
        query: bool,
    },
    /// `cuStreamSynchronize`. With `query`, `cuStreamQuery` until the stream is idle.
    StreamSync {
        stream: Stream,
        query: bool,
    },
    ContextSync {
        context: usize,
    },
    /// Work in a stream, by the asynchronous form of the call.
    Enqueue {
        stream: Stream,
        work: Work,
    },
    /// The synchronous form of a copy or a fill, in the legacy default stream of the context.
    Now {
        context: usize,
        work: Work,
    },
    /// Captures the parts into a graph and instantiates it.
    NewGraph {
        graph: usize,
        context: usize,
        parts: Vec<Part>,
    },
    Graph {
        stream: Stream,
        graph: usize,
    },
}

impl Act {
    /// Returns the stream that an operation names.
    pub fn stream(&self) -> Option<Stream> {
        match self {
            Self::Record { stream, .. }
            | Self::StreamWait { stream, .. }
            | Self::StreamSync { stream, .. }
            | Self::AllocAsync { stream, .. }
            | Self::FreeAsync { stream, .. }
            | Self::Enqueue { stream, .. }
            | Self::Graph { stream, .. } => Some(*stream),
            _ => None,
        }
    }
}
