//! What an instruction works on.

use super::{FunctionId, GlobalId, LabelId, RegisterId, SharedId, VariableId};

/// One operand of an instruction. The order is the text's: destinations first.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register (of any type, a predicate too).
    Register(RegisterId),
    /// `!p`: the opposite of a predicate.
    Not(RegisterId),
    /// `%v.y`: one component (0 to 3) of a register declared as a vector.
    Component(RegisterId, u8),
    /// `%tid.x` and the like: read only.
    Special(Special),
    /// A number.
    Immediate(Immediate),
    /// `{a, b, c, d}`: 2, 4 or 8 operands, each a register, an immediate or [`Operand::Sink`].
    Vector(Vec<Operand>),
    /// `_`: a destination nobody wants.
    Sink,
    /// The address of a variable or function plus bytes, as in `mov.u64 %rd1, table+8`.
    Symbol {
        /// Whose address.
        symbol: Symbol,
        /// Bytes to add.
        offset: i64,
    },
    /// `[...]`: the memory at an address.
    Address(Address),
    /// `[texture, {x, y}]`: what a texture or surface instruction reads or writes.
    Texture(Box<TextureAddress>),
    /// Where `bra` goes.
    Label(LabelId),
    /// The list of `brx.idx`: the label for index 0, 1, ...
    Targets(Vec<LabelId>),
}

/// An address in brackets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Address {
    /// What the address starts from.
    pub base: Base,
    /// Bytes to add.
    pub offset: i64,
}

/// What an [`Address`] starts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Base {
    /// The value of a register of 32 or 64 bits.
    Register(RegisterId),
    /// A variable or parameter.
    Symbol(Symbol),
    /// Nothing: the offset is the address.
    Absolute,
}

/// `[texture, sampler, {coordinates}]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TextureAddress {
    /// The texture object: a register of 64 bits, or the symbol of a `.texref`.
    pub texture: Operand,
    /// The sampler, where the instruction names one.
    pub sampler: Option<Operand>,
    /// Layer first for arrays, then x, y, z; what the text gives (it may pad to 4).
    pub coordinates: Vec<Operand>,
    /// Level or gradients that follow the coordinates.
    pub extra: Vec<Operand>,
}

/// A number in the text. Decimal numbers with a point are already of the width that the instruction's type asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    /// An integer, as two's complement of 64 bits; the instruction's type says how many of them count.
    Integer(u64),
    /// The bits of a single-precision number (`0f3F800000`).
    Single(u32),
    /// The bits of a double-precision number (`0d3FF0000000000000`).
    Double(u64),
}

/// A name that has an address.
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
    /// A function.
    Function(FunctionId),
}

/// A component of `%tid` and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// `.x`
    X,
    /// `.y`
    Y,
    /// `.z`
    Z,
    /// `.w`: always 0, or 1 for the sizes.
    W,
}

/// A read-only register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// `%tid`: thread in the block.
    Tid(Axis),
    /// `%ntid`: threads of a block.
    Ntid(Axis),
    /// `%ctaid`: block in the grid.
    Ctaid(Axis),
    /// `%nctaid`: blocks of the grid.
    Nctaid(Axis),
    /// `%laneid`: thread in the warp.
    Laneid,
    /// `%warpid`: warp in the block.
    Warpid,
    /// `%nwarpid`: most warps of a multiprocessor.
    Nwarpid,
    /// `%smid`: multiprocessor.
    Smid,
    /// `%nsmid`: multiprocessors.
    Nsmid,
    /// `%gridid`: number of the launch.
    Gridid,
    /// `%lanemask_eq`
    LanemaskEq,
    /// `%lanemask_le`
    LanemaskLe,
    /// `%lanemask_lt`
    LanemaskLt,
    /// `%lanemask_ge`
    LanemaskGe,
    /// `%lanemask_gt`
    LanemaskGt,
    /// `%clock`: 32 bits of a cycle counter.
    Clock,
    /// `%clock_hi`: the upper 32 bits.
    ClockHi,
    /// `%clock64`
    Clock64,
    /// `%globaltimer`: nanoseconds.
    Globaltimer,
    /// `%globaltimer_lo`
    GlobaltimerLo,
    /// `%globaltimer_hi`
    GlobaltimerHi,
    /// `%dynamic_smem_size`: bytes of the launch's dynamic shared memory.
    DynamicSmemSize,
    /// `%total_smem_size`: bytes of shared memory of a block.
    TotalSmemSize,
    /// `%envreg0` to `%envreg31`: what the driver chose; 0.
    Envreg(u8),
    /// `%clusterid`: as if every block were a cluster of one.
    Clusterid(Axis),
    /// `%nclusterid`
    Nclusterid(Axis),
    /// `%cluster_ctaid`: 0.
    ClusterCtaid(Axis),
    /// `%cluster_nctaid`: 1.
    ClusterNctaid(Axis),
    /// `%cluster_ctarank`: 0.
    ClusterCtarank,
    /// `%cluster_nctarank`: 1.
    ClusterNctarank,
}
