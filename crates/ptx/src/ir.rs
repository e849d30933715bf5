//! What a PTX module says, with every name resolved.
//!
//! The parser makes these types, the translation reads them. Names are gone: a register, a label, a variable or a function
//! is a number into a table, blocks with registers of their own are flattened, and `.branchtargets` are part of the `brx.idx`
//! that uses them. A function's body is a flat list of labels and instructions in the order of the text.

mod instruction;
mod module;
mod operand;
mod types;

pub use instruction::{
    Atomic, BoolOp, Cache, Call, CallTarget, Compare, FloatTest, Geometry, Guard, Half,
    Instruction, Modifiers, Opcode, PermuteMode, Reduce, Rounding, Scope, Semantics, ShiftMode,
    ShuffleMode, Stop, VoteMode,
};
pub use module::{
    Entry, Formal, Function, FunctionId, Global, GlobalId, Label, LabelId, Module, ModuleData,
    Opaque, Param, Register, RegisterId, Relocation, SharedId, SharedVariable, Signature,
    Statement, Variable, VariableId,
};
pub use operand::{Address, Axis, Base, Immediate, Operand, Special, Symbol, TextureAddress};
pub use types::{Kind, Space, Type};

/// Generic addresses of shared memory start here: the address is this plus the offset in the block's shared memory, where the
/// static part comes first. No arena is near it.
pub const SHARED_WINDOW: u64 = 0x0100_0000_0000_0000;

/// Generic addresses of a thread's local memory start here.
pub const LOCAL_WINDOW: u64 = 0x0200_0000_0000_0000;

/// Generic addresses of a kernel's parameters (`cvta.param`) start here.
pub const PARAM_WINDOW: u64 = 0x0300_0000_0000_0000;

/// The address of the function with [`FunctionId`] `n` is this plus `n`. What has it can compare it, store it and call it.
pub const FUNCTION_WINDOW: u64 = 0x0400_0000_0000_0000;

/// Addresses of symmetric heaps start here: this, plus a number of the heap times [`HEAP_BYTES_MAX`], plus the offset in the device's view
/// of it. Behind all arenas, and far below the windows above.
pub const HEAP_WINDOW: u64 = 1 << HEAP_SHIFT;

/// An address is one of a heap if shifting it so far to the right leaves 1.
pub const HEAP_SHIFT: u32 = 52;

/// Bytes that one heap has addresses for, a power of two: 64 parts of 1 TiB. Of such there is room for 64.
pub const HEAP_BYTES_MAX: u64 = 1 << 46;

/// Threads in a warp; the value of `WARP_SZ`.
pub const WARP_SIZE: u32 = 32;

/// Threads of a block: CUDA's limit.
pub const BLOCK_THREADS_MAX: u32 = 1024;

/// Barriers of a block: CUDA's number.
pub const BARRIERS: u32 = 16;
