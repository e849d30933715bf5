//! A parsed PTX module, with all names resolved.
//!
//! The parser creates these types and the translation reads them. A register, a label, a variable
//! or a function is an index into a table. Nested blocks with registers of their own are flattened,
//! and `.branchtargets` are part of the `brx.idx` that uses them. A function's body is a flat list
//! of labels and instructions in the order of the text.

mod id;
mod instruction;
mod module;
mod operand;
mod signature;
mod types;

pub use id::{FunctionId, GlobalId, LabelId, RegisterId, SharedId, VariableId};
pub use instruction::{
    Atomic, BoolOp, Cache, Call, CallTarget, Compare, FloatTest, Geometry, Guard, Half,
    Instruction, Modifiers, Opcode, PermuteMode, Reduce, Rounding, Scope, Semantics, ShiftMode,
    ShuffleMode, Stop, VoteMode,
};
pub use module::{
    Entry, Function, Global, Label, Module, ModuleData, Opaque, Param, Register, Relocation,
    SharedVariable, Statement, Variable,
};
pub use operand::{Address, Axis, Base, Immediate, Operand, Special, Symbol, TextureAddress};
pub use signature::{Formal, Signature};
pub use types::{Kind, Space, Type};

/// Start of the generic addresses of shared memory. A generic address is this plus the offset in
/// the block's shared memory, which starts with the static part. No arena is near this range.
pub const SHARED_WINDOW: u64 = 0x0100_0000_0000_0000;

/// Start of the generic addresses of a thread's local memory.
pub const LOCAL_WINDOW: u64 = 0x0200_0000_0000_0000;

/// Start of the generic addresses of a kernel's parameters (`cvta.param`).
pub const PARAM_WINDOW: u64 = 0x0300_0000_0000_0000;

/// Start of the addresses of functions: function [`FunctionId`] `n` has this address plus `n`.
/// Programs can compare, store and call such an address.
pub const FUNCTION_WINDOW: u64 = 0x0400_0000_0000_0000;

/// Start of the addresses of symmetric heaps. An address is this, plus the heap's number times
/// [`HEAP_BYTES_MAX`], plus the offset in the device's view of the heap. The range is above all
/// arenas and far below the windows above.
pub const HEAP_WINDOW: u64 = 1 << HEAP_SHIFT;

/// An address belongs to a heap if a right shift by this number of bits yields 1.
pub const HEAP_SHIFT: u32 = 52;

/// Bytes of address space for one heap, a power of two: 64 parts of 1 TiB. There is room for 64
/// heaps.
pub const HEAP_BYTES_MAX: u64 = 1 << 46;

/// Threads in a warp; the value of `WARP_SZ`.
pub const WARP_SIZE: u32 = 32;

/// Largest number of threads in a block: CUDA's limit.
pub const BLOCK_THREADS_MAX: u32 = 1024;

/// Number of barriers of a block, as in CUDA.
pub const BARRIERS: u32 = 16;
