//! What travels between the ranks: commands as self-contained descriptors, and the messages that carry them.
//!
//! The root gives every command an id that no other command of the run has. A command names its buffers, kernels and the
//! commands it waits for by id, so it means the same on every rank.

use std::fmt;

use penstock_wire::describe;
use serde::{Deserialize, Serialize};

use crate::heap::{HeapPlan, Word};

/// A command of this run. The root counts them; 0 is none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct CommandId(pub u64);

/// A buffer or kernel of this run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct ObjectId(pub u64);

/// A process of the run: 0 is the root, which runs the program.
pub type Rank = u32;

/// A command that this one waits for, and the rank that runs it and will tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What is waited for.
    pub command: CommandId,
    /// Who runs it.
    pub rank: Rank,
    /// That it has ended is enough, even if it has failed.
    pub is_lenient: bool,
}

/// One command for one device of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: CommandId,
    /// Index of the device among those of its rank.
    pub device: u32,
    /// What must have ended before it starts.
    pub waits: Vec<Wait>,
    /// What it does.
    pub work: Work,
    /// The blocking collective that it is a part of.
    pub together: Option<Together>,
}

/// A blocking collective, as MPI's are: a rank enters it when all its jobs of it can start, and starts no others until they have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// Which. All ranks enter them in this order.
    pub number: u64,
    /// Jobs of it on this rank.
    pub count: u32,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Makes a buffer of `size` bytes; `flags` are `CL_MEM_*`.
    CreateBuffer {
        /// Its id from now on.
        buffer: ObjectId,
        /// In bytes.
        size: u64,
        /// `CL_MEM_READ_WRITE`, `CL_MEM_WRITE_ONLY` or `CL_MEM_READ_ONLY`.
        flags: u64,
    },
    /// Frees a buffer. Runs also if what it waits for has failed.
    ReleaseBuffer {
        /// Which.
        buffer: ObjectId,
    },
    /// Builds a program and makes one kernel of it.
    CreateKernel {
        /// Its id from now on.
        kernel: ObjectId,
        /// The program.
        code: Code,
        /// Name of the kernel in the program.
        name: String,
        /// Options for the build.
        options: String,
    },
    /// Frees a kernel. Runs also if what it waits for has failed.
    ReleaseKernel {
        /// Which.
        kernel: ObjectId,
    },
    /// Runs a kernel.
    Run {
        /// Which.
        kernel: ObjectId,
        /// Its work-items.
        range: Range,
        /// All its arguments.
        args: Vec<Arg>,
    },
    /// Moves bytes.
    Move(Move),
    /// Does nothing, and ends when what it waits for has ended.
    Marker,
    /// Makes this rank's member of a heap, together with the other members.
    CreateHeap {
        /// The heap, the same for all members.
        plan: Box<HeapPlan>,
        /// Which member this rank is.
        member: u32,
    },
    /// Frees this rank's member of a heap. Runs also if what it waits for has failed.
    ReleaseHeap {
        /// Which.
        heap: ObjectId,
    },
    /// Has all kernels return that wait for others over this heap.
    AbortHeap {
        /// Which.
        heap: ObjectId,
        /// Why.
        reason: String,
    },
    /// Makes this rank's member of an aborted heap usable again.
    ResetHeap {
        /// Which.
        heap: ObjectId,
        /// How often the heap was reset, with this one.
        generation: u64,
    },
}

impl Work {
    /// Whether it runs even if what it waits for has failed: what a program releases is freed.
    pub const fn is_release(&self) -> bool {
        matches!(
            self,
            Self::ReleaseBuffer { .. } | Self::ReleaseKernel { .. } | Self::ReleaseHeap { .. }
        )
    }

    /// The heap over which a kernel talks to others.
    pub fn heap(&self) -> Option<ObjectId> {
        let Self::Run { args, .. } = self else { return None };
        args.iter().find_map(|arg| if let Arg::Heap(heap) = arg { Some(*heap) } else { None })
    }

    /// What to call it in messages, graphs and traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CreateBuffer { .. } => "create_buffer",
            Self::ReleaseBuffer { .. } => "release_buffer",
            Self::CreateKernel { .. } => "create_kernel",
            Self::ReleaseKernel { .. } => "release_kernel",
            Self::Run { .. } => "run_kernel",
            Self::Move(_) => "move",
            Self::Marker => "marker",
            Self::CreateHeap { .. } => "create_heap",
            Self::ReleaseHeap { .. } => "release_heap",
            Self::AbortHeap { .. } => "abort_heap",
            Self::ResetHeap { .. } => "reset_heap",
        }
    }
}

/// A program to build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    /// OpenCL C.
    Source(Vec<u8>),
    /// What `clCreateProgramWithBinary` takes.
    Binary(Vec<u8>),
}

/// The work-items of a launch, as `clEnqueueNDRangeKernel` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// 1 to 3.
    pub dims: u32,
    /// First global id in each dimension.
    pub offset: [u64; 3],
    /// Work-items in each dimension.
    pub global: [u64; 3],
    /// Work-items of a group; where there is none, the driver chooses.
    pub local: Option<[u64; 3]>,
}

/// A kernel argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    /// A value.
    Bytes(Vec<u8>),
    /// A buffer of the same device.
    Buffer(ObjectId),
    /// So many bytes of local memory.
    Local(u64),
    /// The device's view of a heap.
    Heap(ObjectId),
}

/// Bytes on their way: from one source to any number of sinks. A write to a device, a read, a copy, a broadcast's inner
/// node and a transfer from device to device are all of this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Where they come from.
    pub source: End,
    /// Where they go.
    pub sinks: Vec<Sink>,
    /// How many.
    pub size: u64,
    /// Between ranks they travel in pieces of this size, all but the last. Both ends must name the same.
    pub segment: u64,
    /// Bytes from another rank are taken before what the command waits for has ended, and kept: others wait for them to be passed on, or
    /// for their sender to have sent them.
    pub early: bool,
}

/// One target of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// Where.
    pub to: End,
    /// The first of the move's bytes that goes there.
    pub first: u64,
    /// How many go there.
    pub size: u64,
}

/// One end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Memory of the program, only on the root. It stays valid until the command has ended: the API says so.
    Host {
        /// The address.
        address: u64,
    },
    /// A buffer of this rank.
    Buffer {
        /// Which.
        buffer: ObjectId,
        /// First byte in it.
        offset: u64,
    },
    /// Another rank, whose move names this rank and the same stream.
    Rank {
        /// Which.
        rank: Rank,
        /// Tells streams between the same two ranks apart.
        stream: Stream,
    },
}

/// A stream of bytes between two ranks. MPI promises tags of 15 bits only, all libraries have at least 24 (MPICH: 28): the root
/// counts them round, so two streams of one pair are the same only if 2^23 are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stream(pub u32);

impl Stream {
    /// Streams there are.
    pub const COUNT: u32 = 1 << 23;

    /// The stream of a command.
    pub fn of(count: u64) -> Self {
        Self(u32::try_from(count % u64::from(Self::COUNT)).unwrap_or(0))
    }
}

/// When a command ran, in ns of the run's common clock (see `clock`). 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// It reached its rank.
    pub received: u64,
    /// It was given to its device, or its first byte moved.
    pub started: u64,
    /// It ended.
    pub ended: u64,
}

/// Why a command failed. Those that depended on it carry the same fault: the root cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// `CL_*`, or `WTR_E*` from `wtr_ext.h`.
    pub code: i32,
    /// The command that failed first.
    pub command: CommandId,
    /// What it was.
    pub work: String,
    /// Host name of its rank.
    pub node: String,
    /// Its rank.
    pub rank: Rank,
    /// Name of the device.
    pub device: String,
    /// What happened.
    pub message: String,
    /// The build log, where there is one.
    pub log: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (command {}) failed on node {} (rank {})",
            self.work, self.command.0, self.node, self.rank
        )?;
        if !self.device.is_empty() {
            write!(f, ", device {}", self.device)?;
        }
        write!(f, ": {} (code {})", self.message, self.code)?;
        if !self.log.is_empty() {
            write!(f, "\n{}", self.log.trim_end())?;
        }
        Ok(())
    }
}

/// How a command ended.
pub type Outcome = Result<(), Box<Fault>>;

/// One device of a rank, as the root learns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Answers of `clGetDeviceInfo`, by code.
    pub info: Vec<(u32, Vec<u8>)>,
    /// Name of its platform.
    pub platform: String,
    /// Version of its platform.
    pub platform_version: String,
    /// The host it is in.
    pub hostname: String,
    /// Where it is in the pool, if a daemon has it: then its rank does not tell. Only the root has such devices, so no rank sends it.
    #[serde(skip)]
    pub in_pool: Option<InPool>,
}

impl DeviceInfo {
    /// The bytes that answer a query.
    pub fn get(&self, name: u32) -> Option<&[u8]> {
        describe::find(&self.info, name)
    }

    /// What its driver calls it; empty where that says nothing.
    pub fn name(&self) -> String {
        const CL_DEVICE_NAME: u32 = 0x102B;
        let name = String::from_utf8_lossy(self.get(CL_DEVICE_NAME).unwrap_or_default());
        name.trim_end_matches('\0').to_owned()
    }
}

/// Where a device of a daemon is in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPool {
    /// Its node: 0 is the first of the pool that answered.
    pub node: u32,
    /// Its place among those of its node.
    pub index: u32,
    /// How many its node has.
    pub count: u32,
    /// Whether its node is this host.
    pub is_local: bool,
}

/// What ranks say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To the root, first of all: who is there.
    Hello {
        /// Version of these messages; must be [`VERSION`].
        version: u32,
        /// Name of the host.
        hostname: String,
        /// Its devices.
        devices: Vec<DeviceInfo>,
    },
    /// From the root to a rank: commands, in the order in which they were issued.
    Jobs(Vec<Job>),
    /// From the root: when this command has ended, tell that rank, once.
    Tell {
        /// Which.
        command: CommandId,
        /// Whom.
        rank: Rank,
    },
    /// From whoever ran it: this command has ended.
    Ended {
        /// Which.
        command: CommandId,
        /// How.
        outcome: Outcome,
    },
    /// To the root: commands that have ended since the last report.
    Report(Vec<(CommandId, Outcome, Times)>),
    /// To the sender of a large stream: its receiver is ready.
    Ready {
        /// Which.
        stream: Stream,
    },
    /// To the receiver of a large stream, from whom its sender has not heard: there are bytes.
    Offer {
        /// Which.
        stream: Stream,
    },
    /// To the receiver of a stream: its sender can not send it, and sends pieces of 0 bytes instead.
    Broken {
        /// Which.
        stream: Stream,
        /// Why.
        fault: Box<Fault>,
    },
    /// From the root: what is your clock? The rank answers with `Clock`.
    AskClock {
        /// The root's clock when it asked, in ns.
        asked: u64,
    },
    /// The answer.
    Clock {
        /// As it was asked.
        asked: u64,
        /// The rank's own clock, in ns.
        now: u64,
    },
    /// From the root: how many ns the rank's clock is ahead of the root's.
    ClockAhead(i64),
    /// From the root: nothing more will come.
    Bye,
    /// The answer to `Bye`: all is released.
    Farewell,
    /// "I live", when nothing else was said for a while.
    Beat,
    /// From one member of a heap to another, or to the root.
    Heap {
        /// Which.
        heap: ObjectId,
        /// What.
        word: Word,
    },
}

/// Version of [`Message`]. Ranks of one run are of one version.
pub const VERSION: u32 = 3;

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("a message of {length} bytes from rank {rank} cannot be read: {reason}")]
pub struct Garbled {
    /// Who sent it.
    pub rank: Rank,
    /// How long it was.
    pub length: usize,
    /// What is wrong.
    pub reason: postcard::Error,
}

/// The bytes of a batch of messages.
pub fn encode(messages: &[Message]) -> Vec<u8> {
    // Serialising into memory does not fail: no type here refuses to be serialised.
    postcard::to_allocvec(messages).unwrap_or_default()
}

/// The messages of a batch.
///
/// # Errors
/// Bytes that are no batch.
pub fn decode(rank: Rank, bytes: &[u8]) -> Result<Vec<Message>, Garbled> {
    postcard::from_bytes(bytes).map_err(|reason| Garbled { rank, length: bytes.len(), reason })
}

impl Move {
    /// Whether an end is on another rank.
    pub fn crosses_ranks(&self) -> bool {
        matches!(self.source, End::Rank { .. })
            || self.sinks.iter().any(|sink| matches!(sink.to, End::Rank { .. }))
    }

    /// Whether it is one write, read or copy, of the whole.
    pub fn is_single(&self) -> bool {
        match self.sinks.as_slice() {
            [sink] => {
                sink.first == 0
                    && sink.size == self.size
                    && !(matches!(self.source, End::Host { .. })
                        && matches!(sink.to, End::Host { .. }))
            }
            _ => false,
        }
    }
}
