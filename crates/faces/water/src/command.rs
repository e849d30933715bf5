//! Commands as self-contained descriptors, which travel between the ranks.
//!
//! The root gives every command an id that is unique in the run. A command names its buffers, its
//! kernels and the commands it waits for by id, so it means the same on every rank.

use std::fmt;

use penstock_cl_sys::CL_DEVICE_NAME;
pub use penstock_wire::IndexSpace;
use penstock_wire::describe;
use serde::{Deserialize, Serialize};

use crate::heap::HeapPlan;

/// Id of a command of this run. The root counts them from 1; 0 stands for no command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct CommandId(pub u64);

/// Id of a buffer, a kernel or a heap of this run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct ObjectId(pub u64);

/// Number of a process of the run. Rank 0 is the root, which runs the program.
pub type Rank = u32;

/// A command that another one waits for. The rank that runs it reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub command: CommandId,
    pub rank: Rank,
    /// The waiting command runs even if this one has failed.
    pub is_lenient: bool,
}

/// A device of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId {
    pub rank: Rank,
    /// Index among the devices of `rank`.
    pub index: u32,
}

impl DeviceId {
    pub const fn new(rank: Rank, index: u32) -> Self {
        Self { rank, index }
    }
}

/// One command for one device of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: CommandId,
    /// Index of the device on its rank.
    pub device: u32,
    /// Commands that must have ended before this one starts.
    pub waits: Vec<Wait>,
    pub command: Command,
    /// The blocking collective that the job belongs to.
    pub collective: Option<BlockingCollective>,
}

/// A blocking collective, as in MPI: a rank enters it when all its jobs of the collective can
/// start, and starts no other job until they have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingCollective {
    /// All ranks enter collectives in the order of these numbers.
    pub number: u64,
    /// Number of its jobs on this rank.
    pub count: u32,
}

/// What a device does, or the program asks for. This is the only list of commands: the program's
/// calls, the planner, the messages between ranks and the back ends all use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    CreateBuffer {
        buffer: ObjectId,
        /// Size in bytes, not zero.
        size: u64,
        /// `CL_MEM_READ_WRITE`, `CL_MEM_WRITE_ONLY` or `CL_MEM_READ_ONLY`.
        flags: u64,
    },
    /// Frees a buffer, even if a command that this one waits for has failed.
    ReleaseBuffer { buffer: ObjectId },
    /// Builds a program and creates one of its kernels.
    CreateKernel {
        kernel: ObjectId,
        code: Code,
        /// Name of the kernel in the program.
        name: String,
        options: String,
    },
    /// Frees a kernel, even if a command that this one waits for has failed.
    ReleaseKernel { kernel: ObjectId },
    /// Runs a kernel. If an argument is a heap, the other devices of the heap run it as well.
    Run {
        kernel: ObjectId,
        range: IndexSpace,
        /// All arguments, in order.
        args: Vec<Arg>,
    },
    /// Moves bytes between ranks, or from one source to several sinks. The planner turns the
    /// transfers of the program into moves, and the node drives them.
    Move(Move),
    /// Does nothing. It ends when the commands that it waits for have ended.
    Marker,
    /// Creates this rank's member of a heap, together with the other members.
    CreateHeap {
        /// The plan of the heap, which is the same for all members.
        plan: Box<HeapPlan>,
        /// Index of this rank's member.
        member: u32,
    },
    /// Frees this rank's member of a heap, even if a command that this one waits for has failed.
    ReleaseHeap { heap: ObjectId },
    /// Aborts a heap: kernels that wait for others over it return.
    AbortHeap { heap: ObjectId, reason: String },
    /// Makes this rank's member of an aborted heap usable again. All launches over the heap have
    /// ended, at all ranks.
    ResetHeap {
        heap: ObjectId,
        /// Number of resets of this heap, including this one.
        generation: u64,
    },
    /// Copies bytes of this process to a buffer. The bytes must not change until the command has
    /// ended. Addresses mean nothing on other ranks, so this command does not travel.
    #[serde(skip)]
    Write { buffer: ObjectId, offset: u64, size: u64, address: u64 },
    /// Copies bytes from a buffer to memory of this process. Only this command may use that memory
    /// until it has ended. It does not travel either.
    #[serde(skip)]
    Read { buffer: ObjectId, offset: u64, size: u64, address: u64 },
    /// Copies bytes between buffers. A copy between two devices runs at the target. Ranks get it as
    /// a [`Command::Move`], so it does not travel.
    #[serde(skip)]
    Copy { from: ObjectId, from_offset: u64, to: ObjectId, to_offset: u64, size: u64 },
}

/// Kind of an object that commands use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Buffer,
    Kernel,
    Heap,
}

impl Command {
    /// Whether the command is done even if a command that it waits for has failed: a release is.
    pub const fn is_release(&self) -> bool {
        matches!(
            self,
            Self::ReleaseBuffer { .. } | Self::ReleaseKernel { .. } | Self::ReleaseHeap { .. }
        )
    }

    /// Whether the command creates an object of one device.
    pub const fn is_creation(&self) -> bool {
        matches!(self, Self::CreateBuffer { .. } | Self::CreateKernel { .. })
    }

    /// Returns the heap over which the kernel talks to others.
    pub fn heap(&self) -> Option<ObjectId> {
        let Self::Run { args, .. } = self else { return None };
        args.iter().find_map(|arg| if let Arg::Heap(heap) = arg { Some(*heap) } else { None })
    }

    /// Returns the objects that must exist before the command runs, and that it does not free.
    pub fn objects(&self) -> Vec<(ObjectKind, ObjectId)> {
        match self {
            Self::Run { kernel, args, .. } => {
                let args = args.iter().filter_map(|arg| match arg {
                    Arg::Buffer(buffer) => Some((ObjectKind::Buffer, *buffer)),
                    Arg::Heap(heap) => Some((ObjectKind::Heap, *heap)),
                    Arg::Bytes(_) | Arg::Local(_) => None,
                });
                std::iter::once((ObjectKind::Kernel, *kernel)).chain(args).collect()
            }
            Self::Write { buffer, .. } | Self::Read { buffer, .. } => {
                vec![(ObjectKind::Buffer, *buffer)]
            }
            Self::Copy { from, to, .. } => {
                vec![(ObjectKind::Buffer, *from), (ObjectKind::Buffer, *to)]
            }
            Self::AbortHeap { heap, .. } | Self::ResetHeap { heap, .. } => {
                vec![(ObjectKind::Heap, *heap)]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the name of the command in messages, graphs and traces.
    pub const fn name(&self) -> &'static str {
        self.words().0
    }

    /// Returns the words after "cannot" in messages.
    pub const fn phrase(&self) -> &'static str {
        self.words().1
    }

    const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::CreateBuffer { .. } => ("create_buffer", "create a buffer"),
            Self::ReleaseBuffer { .. } => ("release_buffer", "release a buffer"),
            Self::CreateKernel { .. } => ("create_kernel", "create a kernel"),
            Self::ReleaseKernel { .. } => ("release_kernel", "release a kernel"),
            Self::Run { .. } => ("run_kernel", "run a kernel"),
            Self::Write { .. } => ("write_buffer", "write a buffer"),
            Self::Read { .. } => ("read_buffer", "read a buffer"),
            Self::Copy { .. } => ("copy_buffer", "copy a buffer"),
            Self::Move(_) => ("move", "move bytes"),
            Self::Marker => ("marker", "wait"),
            Self::CreateHeap { .. } => ("create_heap", "create a heap"),
            Self::ReleaseHeap { .. } => ("release_heap", "release a heap"),
            Self::AbortHeap { .. } => ("abort_heap", "abort a heap"),
            Self::ResetHeap { .. } => ("reset_heap", "reset a heap"),
        }
    }

    /// Names the command's object for graphs and traces. `kernel_name` returns the name of a
    /// kernel.
    pub fn subject(&self, kernel_name: impl Fn(ObjectId) -> String) -> String {
        match self {
            Self::CreateBuffer { buffer, .. }
            | Self::ReleaseBuffer { buffer }
            | Self::Write { buffer, .. }
            | Self::Read { buffer, .. } => format!("buffer {}", buffer.0),
            Self::CreateKernel { name, .. } => name.clone(),
            Self::ReleaseKernel { kernel } | Self::Run { kernel, .. } => kernel_name(*kernel),
            Self::Copy { from, to, .. } => format!("buffer {} to {}", from.0, to.0),
            Self::Move(order) => order.ends(),
            Self::Marker => String::new(),
            Self::CreateHeap { plan, .. } => format!("heap {}", plan.heap.0),
            Self::ReleaseHeap { heap }
            | Self::AbortHeap { heap, .. }
            | Self::ResetHeap { heap, .. } => format!("heap {}", heap.0),
        }
    }

    /// Number of bytes that the command allocates or moves.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::CreateBuffer { size, .. }
            | Self::Write { size, .. }
            | Self::Read { size, .. }
            | Self::Copy { size, .. } => *size,
            Self::Move(order) => order.size,
            Self::CreateHeap { plan, .. } => plan.bytes,
            _ => 0,
        }
    }

    /// Number of bytes of code and arguments that a batch carries for the command.
    pub fn batch_bytes(&self) -> usize {
        match self {
            Self::CreateKernel { code: Code::Source(code) | Code::Binary(code), .. } => code.len(),
            Self::Run { args, .. } => args.len() * 16,
            _ => 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    Source(Vec<u8>),
    /// A binary for `clCreateProgramWithBinary`.
    Binary(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    Bytes(Vec<u8>),
    /// A buffer of the same device.
    Buffer(ObjectId),
    /// Local memory of this size in bytes.
    Local(u64),
    /// The device's view of a heap.
    Heap(ObjectId),
}

/// A move of bytes from one source to any number of sinks. Writes to a device, reads, copies, inner
/// nodes of a broadcast and transfers from device to device all have this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub source: End,
    pub sinks: Vec<Sink>,
    /// Number of bytes to move.
    pub size: u64,
    /// Size in bytes of the pieces between ranks; only the last one may be smaller. Both ends of a
    /// stream must use the same size.
    pub segment: u64,
    /// Whether bytes from another rank are received, and kept, before the commands that this one
    /// waits for have ended. Otherwise ranks that wait for these bytes to be passed on, or to be
    /// sent, would wait as well.
    pub early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    pub to: End,
    /// Offset of its bytes among those of the move.
    pub first: u64,
    /// Size of its part in bytes.
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Memory of the program, only on the root. The API requires it to stay valid until the command
    /// has ended.
    Host { address: u64 },
    /// A buffer of this rank.
    Buffer {
        buffer: ObjectId,
        /// Offset of the first byte in it.
        offset: u64,
    },
    /// Another rank, whose own move names this rank and the same stream.
    Rank {
        rank: Rank,
        /// Distinguishes streams between the same two ranks.
        stream: Stream,
    },
}

/// Number of a stream of bytes between two ranks. MPI only promises tags of 15 bits, but all
/// libraries have at least 24 (MPICH has 28). The root's counter wraps, so two streams of one pair
/// of ranks would only collide if 2^23 were under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stream(pub u32);

impl Stream {
    /// Number of distinct streams.
    pub const COUNT: u32 = 1 << 23;

    /// Returns the stream number for the value of the root's counter.
    pub fn of(count: u64) -> Self {
        Self(u32::try_from(count % u64::from(Self::COUNT)).unwrap_or(0))
    }
}

/// When a command ran, in ns of the run's common clock (see `clock`). 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When it reached its rank.
    pub received: u64,
    /// When it was given to its device, or its first byte moved.
    pub started: u64,
    pub ended: u64,
}

/// Why a command failed. Commands that depended on it get the same fault, which is the root cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// `CL_*`, or `WTR_E*` from `wtr_ext.h`.
    pub code: i32,
    /// The command that failed first.
    pub command: CommandId,
    /// Name of the command that failed first, see [`Command::name`].
    pub work: String,
    /// Host name of its rank.
    pub node: String,
    pub rank: Rank,
    /// Name of its device.
    pub device: String,
    pub message: String,
    /// The build log; empty if there is none.
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
        write!(f, ": {}", self.message)?;
        // A message with the name of the status has its number, too.
        if !self.message.contains(&format!("({})", self.code)) {
            write!(f, " (code {})", self.code)?;
        }
        if !self.log.is_empty() {
            write!(f, "\n{}", self.log.trim_end())?;
        }
        Ok(())
    }
}

pub type Outcome = Result<(), Box<Fault>>;

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    pub id: CommandId,
    pub outcome: Outcome,
    pub times: Times,
}

/// One device of a rank, as its rank describes it to the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Answers of `clGetDeviceInfo`, by code.
    pub info: Vec<(u32, Vec<u8>)>,
    pub platform: String,
    pub platform_version: String,
    pub hostname: String,
    /// Its position in the pool, if a daemon serves it. The rank does not give this position. Only
    /// the root has such devices, so ranks never send this field.
    #[serde(skip)]
    pub in_pool: Option<InPool>,
}

impl DeviceInfo {
    /// Returns the answer of `clGetDeviceInfo` for this code.
    pub fn get(&self, name: u32) -> Option<&[u8]> {
        describe::find(&self.info, name)
    }

    /// Returns the name that its driver reports, or an empty string if there is none.
    pub fn name(&self) -> String {
        let name = String::from_utf8_lossy(self.get(CL_DEVICE_NAME).unwrap_or_default());
        name.trim_end_matches('\0').to_owned()
    }
}

/// What a rank says about itself when it joins the run.
#[derive(Clone, Debug)]
pub struct RankInfo {
    pub hostname: String,
    pub devices: Vec<DeviceInfo>,
}

/// Position of a daemon's device in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPool {
    /// Index of its node among those of the pool that answered.
    pub node: u32,
    /// Its index among the devices of its node.
    pub index: u32,
    /// Number of devices of its node.
    pub count: u32,
    /// Whether its node is this host.
    pub is_local: bool,
}

impl Move {
    /// Whether an end is on another rank.
    pub fn crosses_ranks(&self) -> bool {
        matches!(self.source, End::Rank { .. })
            || self.sinks.iter().any(|sink| matches!(sink.to, End::Rank { .. }))
    }

    /// Returns the command of a back end that does the whole move: one write, read or copy of all
    /// its bytes within the rank. `None` if the node has to drive the move.
    pub fn as_command(&self) -> Option<Command> {
        let [sink] = self.sinks.as_slice() else { return None };
        if sink.first != 0 || sink.size != self.size {
            return None;
        }
        let size = self.size;
        match (self.source, sink.to) {
            (End::Host { address }, End::Buffer { buffer, offset }) => {
                Some(Command::Write { buffer, offset, size, address })
            }
            (End::Buffer { buffer, offset }, End::Host { address }) => {
                Some(Command::Read { buffer, offset, size, address })
            }
            (
                End::Buffer { buffer: from, offset: from_offset },
                End::Buffer { buffer: to, offset: to_offset },
            ) => Some(Command::Copy { from, from_offset, to, to_offset, size }),
            _ => None,
        }
    }

    /// Returns a text like "program to buffer 3, rank 2".
    fn ends(&self) -> String {
        let end = |end: &End| match end {
            End::Host { .. } => "program".to_owned(),
            End::Buffer { buffer, .. } => format!("buffer {}", buffer.0),
            End::Rank { rank, .. } => format!("rank {rank}"),
        };
        let sinks: Vec<String> = self.sinks.iter().map(|sink| end(&sink.to)).collect();
        format!("{} to {}", end(&self.source), sinks.join(", "))
    }
}
