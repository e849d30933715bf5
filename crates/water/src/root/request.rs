//! What a program can ask the root for.

use crate::command::{Arg, Code, CommandId, ObjectId, Range, Rank};
use crate::heap::HeapPlan;

/// What a program can ask for.
#[derive(Clone, Debug)]
pub enum Request {
    /// `wtr_create_buffer`.
    CreateBuffer {
        /// Its id.
        buffer: ObjectId,
        /// In bytes.
        size: u64,
        /// `CL_MEM_*`.
        flags: u64,
    },
    /// `wtr_release_buffer`.
    ReleaseBuffer {
        /// Which.
        buffer: ObjectId,
    },
    /// `wtr_create_kernel`.
    CreateKernel {
        /// Its id.
        kernel: ObjectId,
        /// The program.
        code: Code,
        /// The kernel's name.
        name: String,
        /// Build options.
        options: String,
    },
    /// `wtr_release_kernel`.
    ReleaseKernel {
        /// Which.
        kernel: ObjectId,
    },
    /// `wtr_run_kernel`.
    Run {
        /// Which.
        kernel: ObjectId,
        /// The work-items.
        range: Range,
        /// The arguments.
        args: Vec<Arg>,
    },
    /// `wtr_write_buffer`.
    Write {
        /// To which.
        buffer: ObjectId,
        /// First byte in it.
        offset: u64,
        /// How many bytes.
        size: u64,
        /// Where they are in the program's memory.
        address: u64,
    },
    /// `wtr_read_buffer`.
    Read {
        /// From which.
        buffer: ObjectId,
        /// First byte in it.
        offset: u64,
        /// How many bytes.
        size: u64,
        /// Where they go in the program's memory.
        address: u64,
    },
    /// `wtr_copy_buffer`. The command runs where the target is.
    Copy {
        /// From which.
        from: ObjectId,
        /// The rank that has it.
        from_rank: Rank,
        /// The device that has it.
        from_device: u32,
        /// First byte in it.
        from_offset: u64,
        /// To which.
        to: ObjectId,
        /// First byte in it.
        to_offset: u64,
        /// How many bytes.
        size: u64,
    },
    /// Nothing.
    Marker,
    /// One member's part of `wtr_create_heap`.
    CreateHeap {
        /// The heap.
        plan: Box<HeapPlan>,
        /// The member.
        member: u32,
    },
    /// One member's part of `wtr_release_heap`.
    ReleaseHeap {
        /// Which.
        heap: ObjectId,
    },
    /// `wtr_abort_heap`.
    AbortHeap {
        /// Which.
        heap: ObjectId,
        /// Why.
        reason: String,
    },
    /// One member's part of `wtr_reset_heap`.
    ResetHeap {
        /// Which.
        heap: ObjectId,
        /// How often it was reset, with this one.
        generation: u64,
        /// The last launch over it, or reset, which must have ended, however.
        after: Vec<CommandId>,
    },
    /// One device's part of `wtr_run_collective`.
    Collective {
        /// Which.
        kernel: ObjectId,
        /// The work-items.
        range: Range,
        /// The arguments.
        args: Vec<Arg>,
        /// The launch before it: two in different orders on two devices would wait for each other.
        after: Vec<CommandId>,
    },
}

impl Request {
    /// What it counts for `BATCH_BYTES_MAX`.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::CreateKernel { code: Code::Source(code) | Code::Binary(code), .. } => code.len(),
            Self::Run { args, .. } | Self::Collective { args, .. } => args.len() * 16,
            _ => 0,
        }
    }
}
