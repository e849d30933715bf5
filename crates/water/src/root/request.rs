use crate::command::{Arg, Code, CommandId, ObjectId, Range, Rank};
use crate::heap::HeapPlan;

/// A command as the program requests it. The fields are those of [`crate::command::Work`].
#[derive(Clone, Debug)]
pub enum Request {
    CreateBuffer {
        buffer: ObjectId,
        size: u64,
        flags: u64,
    },
    ReleaseBuffer {
        buffer: ObjectId,
    },
    CreateKernel {
        kernel: ObjectId,
        code: Code,
        name: String,
        options: String,
    },
    ReleaseKernel {
        kernel: ObjectId,
    },
    Run {
        kernel: ObjectId,
        range: Range,
        args: Vec<Arg>,
    },
    Write {
        buffer: ObjectId,
        offset: u64,
        size: u64,
        /// Address of the bytes in the program's memory.
        address: u64,
    },
    Read {
        buffer: ObjectId,
        offset: u64,
        size: u64,
        /// Address for the bytes in the program's memory.
        address: u64,
    },
    /// `wtr_copy_buffer`. The command runs at the target.
    Copy {
        from: ObjectId,
        /// The rank that has the source.
        from_rank: Rank,
        /// The device that has the source.
        from_device: u32,
        from_offset: u64,
        to: ObjectId,
        to_offset: u64,
        size: u64,
    },
    Marker,
    /// One member's part of `wtr_create_heap`.
    CreateHeap {
        plan: Box<HeapPlan>,
        member: u32,
    },
    /// One member's part of `wtr_release_heap`.
    ReleaseHeap {
        heap: ObjectId,
    },
    AbortHeap {
        heap: ObjectId,
        reason: String,
    },
    /// One member's part of `wtr_reset_heap`.
    ResetHeap {
        heap: ObjectId,
        /// Number of resets of this heap, including this one.
        generation: u64,
        /// The previous launch over the heap, or reset, which must have ended in any way.
        after: Vec<CommandId>,
    },
    /// One device's part of `wtr_run_collective`.
    Collective {
        kernel: ObjectId,
        range: Range,
        args: Vec<Arg>,
        /// The previous launch over the heap. Two launches in different orders on two devices would
        /// wait for each other.
        after: Vec<CommandId>,
    },
}

impl Request {
    /// Number of bytes that count for `BATCH_BYTES_MAX`.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::CreateKernel { code: Code::Source(code) | Code::Binary(code), .. } => code.len(),
            Self::Run { args, .. } | Self::Collective { args, .. } => args.len() * 16,
            _ => 0,
        }
    }
}
