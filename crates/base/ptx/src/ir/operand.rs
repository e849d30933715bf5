//! Operands of instructions.

use super::id::{FunctionId, GlobalId, LabelId, RegisterId, SharedId, VariableId};

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register of any type, including predicates.
    Register(RegisterId),
    /// `!p`: the negation of a predicate.
    Not(RegisterId),
    /// `%v.y`: one component (0 to 3) of a register declared as a vector.
    Component(RegisterId, u8),
    /// A read-only register such as `%tid.x`.
    Special(Special),
    Immediate(Immediate),
    /// `{a, b, c, d}`: 2, 4 or 8 operands, each a register, an immediate or [`Operand::Sink`].
    Vector(Vec<Operand>),
    /// `_`: a destination whose value is discarded.
    Sink,
    /// The address of a variable or function plus bytes, as in `mov.u64 %rd1, table+8`.
    Symbol {
        symbol: Symbol,
        offset: i64,
    },
    /// `[...]`: the memory at an address.
    Address(Address),
    /// `[texture, {x, y}]`: the texel that a texture or surface instruction reads or writes.
    Texture(Box<TextureAddress>),
    /// The target of a `bra`.
    Label(LabelId),
    /// The list of `brx.idx`: the labels for index 0, 1, ...
    Targets(Vec<LabelId>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Address {
    pub base: Base,
    /// Bytes to add to the base.
    pub offset: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Base {
    /// The value of a register of 32 or 64 bits.
    Register(RegisterId),
    /// The address of a variable or parameter.
    Symbol(Symbol),
    /// No base: the offset is the address.
    Absolute,
}

/// The operand `[texture, sampler, {coordinates}]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TextureAddress {
    /// The texture object: a register of 64 bits, or the symbol of a `.texref`.
    pub texture: Operand,
    /// The sampler, if the instruction names one.
    pub sampler: Option<Operand>,
    /// The coordinates in the text: the layer first for arrays, then x, y, z, possibly padded to 4.
    pub coordinates: Vec<Operand>,
    /// The level or the gradients, which follow the coordinates.
    pub extra: Vec<Operand>,
}

/// A number in the text. A decimal number with a point already has the width of the instruction's
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    /// An integer, as 64 bits of two's complement. The instruction's type determines how many bits
    /// count.
    Integer(u64),
    /// The bits of a single-precision number (`0f3F800000`).
    Single(u32),
    /// The bits of a double-precision number (`0d3FF0000000000000`).
    Double(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A `.global` or `.const` variable of the module.
    Global(GlobalId),
    /// A `.shared` variable of the module or of a function, static or dynamic.
    Shared(SharedId),
    /// A `.local` variable, or a `.param` variable of a call, of this function.
    Variable(VariableId),
    /// The formal parameter with that index of this function.
    Param(u32),
    /// The return value with that index of this function.
    Return(u32),
    Function(FunctionId),
}

/// A component of `%tid` and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    X,
    Y,
    Z,
    /// `.w`: always 0, or 1 for sizes.
    W,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// `%tid`: index of the thread in the block.
    Tid(Axis),
    /// `%ntid`: number of threads in a block.
    Ntid(Axis),
    /// `%ctaid`: index of the block in the grid.
    Ctaid(Axis),
    /// `%nctaid`: number of blocks in the grid.
    Nctaid(Axis),
    /// `%laneid`: index of the thread in the warp.
    Laneid,
    /// `%warpid`: index of the warp in the block.
    Warpid,
    /// `%nwarpid`: largest number of warps on a multiprocessor.
    Nwarpid,
    /// `%smid`: index of the multiprocessor.
    Smid,
    /// `%nsmid`: number of multiprocessors.
    Nsmid,
    /// `%gridid`: number of the launch.
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    /// `%clock`: lower 32 bits of a cycle counter.
    Clock,
    /// `%clock_hi`: upper 32 bits of a cycle counter.
    ClockHi,
    Clock64,
    /// `%globaltimer`: a clock in nanoseconds.
    Globaltimer,
    GlobaltimerLo,
    GlobaltimerHi,
    /// `%dynamic_smem_size`: bytes of the launch's dynamic shared memory.
    DynamicSmemSize,
    /// `%total_smem_size`: bytes of shared memory of a block.
    TotalSmemSize,
    /// `%envreg0` to `%envreg31`: values chosen by the driver; always 0.
    Envreg(u8),
    /// `%clusterid`: every block counts as a cluster of one.
    Clusterid(Axis),
    Nclusterid(Axis),
    /// `%cluster_ctaid`: always 0 here.
    ClusterCtaid(Axis),
    /// `%cluster_nctaid`: always 1 here.
    ClusterNctaid(Axis),
    /// `%cluster_ctarank`: always 0 here.
    ClusterCtarank,
    /// `%cluster_nctarank`: always 1 here.
    ClusterNctarank,
}
