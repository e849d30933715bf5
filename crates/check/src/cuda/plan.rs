//! What a CUDA program is: a list of operations that is complete before the first of them runs.
//!
//! As with OpenCL's programs, the order of the list is one valid order of execution.

use serde::{Deserialize, Serialize};

use crate::interface::Plan;
pub use crate::plan::Op as AnyOp;
use crate::plan::Ptr;

/// One operation of one host thread.
pub type Op = AnyOp<Act>;

/// A device.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Device {
    /// The name that the driver gives the device.
    pub name: String,
    /// Whether it has memory pools.
    pub pools: bool,
}

impl AsRef<str> for Device {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// What the programs run on.
pub type Platform = crate::plan::Platform<Device>;

/// A context of a program.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub struct Context {
    /// A number of the platform's devices.
    pub device: usize,
    /// Whether it is the device's primary context, or one that `cuCtxCreate` makes.
    pub primary: bool,
}

/// An array of host memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Area {
    /// The number of bytes of the memory.
    pub len: usize,
    /// Whether `cuMemHostAlloc` gives it. Others are pageable, and may be registered for some time.
    pub pinned: bool,
}

/// A program and its configuration.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Program {
    /// The seed that it was made from.
    pub seed: u64,
    /// How many host threads it has.
    pub threads: usize,
    /// The contexts that the program uses.
    pub contexts: Vec<Context>,
    /// The pieces of host memory that the program uses.
    pub areas: Vec<Area>,
    /// What it relies on.
    pub relies: Relies,
    /// What is done.
    pub ops: Vec<Op>,
}

/// The program relies on these behaviours of drivers, which the documentation does not state.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Relies {
    /// The end of a synchronous copy from pageable memory to the device when the call returns.
    pub writes_end: bool,
    /// An asynchronous copy reads pageable memory when it is its turn in the stream, or waits for its turn.
    pub pageable_order: bool,
    /// `cuMemFree` lets work end that was queued before.
    pub early_frees: bool,
}

impl Plan for Program {
    type Act = Act;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn with(&self, ops: Vec<Op>) -> Self {
        Self { ops, ..self.clone() }
    }
}

/// A stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// The legacy default stream of a context.
    Legacy(usize),
    /// The default stream that a context has for the calling thread.
    PerThread(usize),
    /// One that the program has made.
    Made(usize),
}

/// One side of a copy.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Side {
    Host(Ptr),
    Device { mem: usize, offset: usize },
}

/// Rows of bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rows {
    pub width: usize,
    pub height: usize,
    /// Bytes from row to row of the target, and of the source.
    pub to_pitch: usize,
    pub from_pitch: usize,
}

impl Rows {
    /// Bytes from the first to the last byte on a side with this pitch.
    pub fn span(&self, pitch: usize) -> usize {
        pitch * (self.height - 1) + self.width
    }
}

/// Which kernel is launched. All work on words.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// `a[i] = pattern(seed, i)`.
    Put,
    /// As `Put`, but the first thread computes for some time before.
    Slow,
    /// `a[i] = mix(a[i], b[i], seed)`.
    Mix,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Put, Self::Slow, Self::Mix];

    /// The name that the PTX module gives the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Slow => "slow",
            Self::Mix => "mix",
        }
    }
}

/// What a function of the program does when its turn in a stream has come.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Job {
    /// Stores the pattern of `seed`.
    Store { to: Ptr, len: usize, seed: u32 },
    /// Compares memory with the model.
    Check { at: Ptr, len: usize },
    /// Copies host memory.
    Move { to: Ptr, from: Ptr, len: usize },
    /// Does nothing but rest.
    Rest,
}

/// Work in a stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the call that the variant names")]
pub enum Work {
    /// `cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync` or `cuMemcpyDtoDAsync`, or the synchronous form.
    Copy { to: Side, from: Side, len: usize },
    /// `cuMemcpy2DAsync` or `cuMemcpy2D`.
    Copy2D { to: Side, from: Side, rows: Rows },
    /// `cuMemcpyPeerAsync` or `cuMemcpyPeer`.
    Peer { to: usize, to_offset: usize, from: usize, from_offset: usize, len: usize },
    /// `cuMemsetD8Async`, `D16` or `D32`, or the synchronous form. `value` is a pattern of `unit` bytes.
    Fill { mem: usize, offset: usize, len: usize, unit: usize, value: u32 },
    /// `cuMemsetD2D32Async`.
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
    /// `cuLaunchHostFunc`.
    Function { job: Job, delay_us: u32 },
}

/// One node of a graph.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Part {
    /// The second branch runs beside what the first one does after the first part of the second.
    pub second: bool,
    /// What is done.
    pub work: Work,
}

/// What an operation does. The fields `stream`, `mem`, `event` and so on are numbers that the program gives its objects.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[allow(missing_docs, reason = "the fields are the arguments of the call that the variant names")]
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
    /// The host looks at memory and compares it with the model.
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
    /// `cuEventSynchronize`, or with `query` `cuEventQuery` until the event has ended.
    EventWait {
        event: usize,
        query: bool,
    },
    /// `cuStreamSynchronize`, or with `query` `cuStreamQuery` until the stream is idle.
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
    /// The synchronous form of a copy or a fill. It works in the legacy default stream of the context.
    Now {
        context: usize,
        work: Work,
    },
    /// Captures the parts, makes a graph of them and makes it ready.
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
