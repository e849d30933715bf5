//! Instructions: what to do, in which variant, on what.

use std::sync::Arc;

use super::{FunctionId, Operand, RegisterId, Signature, Space, Type};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant,)* }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// How PTX spells it, without a dot.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The one that PTX spells so.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

/// One instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// Line of the text, from 1.
    pub line: u32,
    /// `@p` or `@!p`: whether it happens.
    pub guard: Option<Guard>,
    /// What to do.
    pub opcode: Opcode,
    /// The type suffixes in the order of the text: the destination's first where there are two (`cvt`, `set`, `slct`, `tex`).
    pub types: Vec<Type>,
    /// Everything else behind the opcode's dots.
    pub modifiers: Modifiers,
    /// The operands in the order of the text; the first [`Instruction::destinations`] are written.
    ///
    /// `p|q` are two destinations; where the text has only `p` there is one. An optional last operand is absent, not a
    /// default. [`Opcode::Call`] has none: see [`Instruction::call`].
    pub operands: Vec<Operand>,
    /// How many leading operands are destinations.
    pub destinations: u8,
    /// Of a call: what and with what.
    pub call: Option<Box<Call>>,
    /// The opcode with all its suffixes as the text has them, for messages.
    pub mnemonic: Arc<str>,
}

impl Instruction {
    /// The first type; predicates for instructions that have none.
    pub fn ty(&self) -> Type {
        self.types.first().copied().unwrap_or(Type::Pred)
    }

    /// The last type: the source's where there are two.
    pub fn source_type(&self) -> Type {
        self.types.last().copied().unwrap_or(Type::Pred)
    }

    /// The operands that are read only.
    pub fn sources(&self) -> &[Operand] {
        &self.operands[usize::from(self.destinations)..]
    }
}

/// `@p` or `@!p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub register: RegisterId,
    /// Whether the instruction happens when it is false.
    pub negated: bool,
}

/// What a call calls, with what.
#[derive(Debug, Clone)]
pub struct Call {
    /// Where the return values go: a [`super::Symbol::Variable`] or [`super::Symbol::Return`] of the param space, a register, or a sink.
    pub returns: Vec<Operand>,
    /// Whom.
    pub target: CallTarget,
    /// The arguments: symbols of the param space, registers or immediates.
    pub arguments: Vec<Operand>,
}

/// Whom a call calls.
#[derive(Debug, Clone)]
pub enum CallTarget {
    /// This function. Without a body it is external: `vprintf`, `__assertfail`, `malloc`, `free`.
    Direct(FunctionId),
    /// The function whose address is in a register.
    Indirect {
        /// Holds [`super::FUNCTION_WINDOW`] + [`FunctionId`].
        register: RegisterId,
        /// From `.callprototype`.
        signature: Arc<Signature>,
        /// From `.calltargets`: whom it can be; `None` when anybody.
        targets: Option<Vec<FunctionId>>,
    },
}

named! {
    /// What an instruction does. `bar` and `barrier` are one here, told apart by [`Modifiers::aligned`].
    Opcode {
        Abs = "abs", Activemask = "activemask", Add = "add", Addc = "addc", And = "and", Atom = "atom",
        /// Operands: barrier, threads.
        BarArrive = "bar.arrive",
        /// Operands: result, barrier, [threads], predicate. Operator in [`Modifiers::reduce`].
        BarRed = "bar.red",
        /// Operands: barrier, [threads].
        BarSync = "bar.sync",
        /// Operand: member mask.
        BarWarpSync = "bar.warp.sync",
        Bfe = "bfe", Bfi = "bfi", Bfind = "bfind", Bmsk = "bmsk", Bra = "bra", Brev = "brev", Brkpt = "brkpt",
        /// Operands: index, [`Operand::Targets`].
        BrxIdx = "brx.idx",
        Call = "call", Clz = "clz", Cnot = "cnot", Copysign = "copysign", Cos = "cos",
        /// `cp.async.ca/cg.shared.global`. Operands: destination, source, bytes, [bytes to read].
        CpAsync = "cp.async",
        /// Also `cp.async.wait_all` and `cp.async.wait_group`: nothing to do where copies are done at once.
        CpAsyncFence = "cp.async.commit_group",
        Cvt = "cvt",
        /// To a generic address, or from one with [`Modifiers::to`].
        Cvta = "cvta",
        /// Nothing to do: `discard`, `applypriority`, `prefetch`, `prefetchu`, `griddepcontrol`, `setmaxnreg`.
        Hint = "prefetch",
        Div = "div", Dp2a = "dp2a", Dp4a = "dp4a",
        Elect = "elect.sync",
        Ex2 = "ex2", Exit = "exit",
        /// `membar` and `fence`.
        Fence = "membar",
        Fma = "fma", Fns = "fns",
        Isspacep = "isspacep", Ld = "ld", Ldu = "ldu", Lg2 = "lg2", Lop3 = "lop3", Mad = "mad", Mad24 = "mad24",
        Madc = "madc",
        /// `match.any.sync` and `match.all.sync`: [`Modifiers::vote`].
        Match = "match",
        Max = "max", Min = "min", Mov = "mov", Mul = "mul",
        Mul24 = "mul24", Nanosleep = "nanosleep", Neg = "neg", Not = "not", Or = "or", Popc = "popc", Prmt = "prmt",
        Rcp = "rcp", Red = "red", Redux = "redux", Rem = "rem", Ret = "ret", Rsqrt = "rsqrt", Sad = "sad", Selp = "selp", Set = "set",
        Setp = "setp", Shf = "shf",
        /// Operands: d, [p], a, b (lane or delta), c (clamp and mask), [member mask: absent without `.sync`].
        Shfl = "shfl",
        Shl = "shl", Shr = "shr", Sin = "sin", Slct = "slct", Sqrt = "sqrt", St = "st", Sub = "sub",
        Subc = "subc", Suld = "suld", Sust = "sust", Szext = "szext", Tanh = "tanh", Testp = "testp", Tex = "tex", Tld4 = "tld4", Trap = "trap",
        /// `txq`: what a texture is. The query is the first word of [`Modifiers::query`].
        Txq = "txq",
        /// Operands: d, [!]p, [member mask: absent without `.sync`].
        Vote = "vote",
        Xor = "xor",
    }
}

/// Everything behind the opcode's dots but the types. What an instruction does not have stays at its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `.rn` and the like.
    pub rounding: Option<Rounding>,
    /// `.ftz`: denormal inputs and results of single precision are zero.
    pub ftz: bool,
    /// `.sat`: floats to [0, 1], integers to their range.
    pub sat: bool,
    /// `.satfinite`: conversions to narrow floats.
    pub satfinite: bool,
    /// `.relu`: negative results are 0.
    pub relu: bool,
    /// `.approx`
    pub approx: bool,
    /// `.full` of `div`.
    pub full: bool,
    /// `.NaN` of `min` and `max`: a NaN operand makes the result NaN.
    pub nan: bool,
    /// `.xorsign` of `min` and `max`.
    pub xorsign: bool,
    /// `.abs` of `min` and `max`.
    pub abs: bool,
    /// `.noftz` of atomics on f16.
    pub noftz: bool,
    /// `.cc`: writes the carry flag.
    pub carry: bool,
    /// Comparison of `setp` and `set`.
    pub compare: Option<Compare>,
    /// How `setp` and `set` combine the comparison with the last operand.
    pub bool_op: Option<BoolOp>,
    /// Where the memory is; generic if the text names no space. For `cvta` and `isspacep` the space they speak of.
    pub space: Option<Space>,
    /// `.shared::cluster`, which is the block's own shared memory here.
    pub cluster: bool,
    /// `cvta.to`: from a generic address.
    pub to: bool,
    /// `.v2`, `.v4`, `.v8`: elements; 0 without.
    pub vector: u8,
    /// `.volatile`
    pub volatile: bool,
    /// `.nc`: read only data.
    pub non_coherent: bool,
    /// `.weak`, `.relaxed`, `.acquire`, ...
    pub semantics: Option<Semantics>,
    /// `.cta`, `.gpu`, `.sys`; of `membar` `.gl` is [`Scope::Gpu`].
    pub scope: Option<Scope>,
    /// `.ca`, `.cg`, ...: a hint.
    pub cache: Option<Cache>,
    /// Operation of `atom` and `red`.
    pub atomic: Option<Atomic>,
    /// `.lo`, `.hi`, `.wide`; of `dp2a` which half.
    pub half: Option<Half>,
    /// `.wrap` or `.clamp` of `shf`, `bmsk` and `szext`.
    pub shift: Option<ShiftMode>,
    /// `.l` of `shf`: true for left, false for right.
    pub left: bool,
    /// `.shiftamt` of `bfind`.
    pub shiftamt: bool,
    /// Direction of `shfl`.
    pub shuffle: Option<ShuffleMode>,
    /// Kind of `vote` and `match`.
    pub vote: Option<VoteMode>,
    /// Operator of `redux` and `bar.red`.
    pub reduce: Option<Reduce>,
    /// `.sync`
    pub sync: bool,
    /// `.aligned`: every thread of the warp does it together. `bar.sync` always is.
    pub aligned: bool,
    /// `.uni`: the whole warp goes the same way.
    pub uniform: bool,
    /// Mode of `prmt`.
    pub permute: Option<PermuteMode>,
    /// What `testp` tests.
    pub test: Option<FloatTest>,
    /// Shape of the texture or surface.
    pub geometry: Option<Geometry>,
    /// `.level` of `tex`.
    pub level: bool,
    /// `.grad` of `tex`.
    pub grad: bool,
    /// Of a [`Opcode::BarWarpSync`] that no text has: why the translation put it in.
    pub stop: Option<Stop>,
    /// Other words in the order of the text: the query of `txq`, `.trap`/`.clamp`/`.zero` of surfaces, the component of `tld4`.
    pub query: Vec<&'static str>,
}

named! {
    /// How a result is rounded.
    Rounding {
        /// To nearest, ties to even.
        Rn = "rn",
        /// Towards zero.
        Rz = "rz",
        /// Down.
        Rm = "rm",
        /// Up.
        Rp = "rp",
        /// To nearest, ties away from zero.
        Rna = "rna",
        /// To an integer, to nearest, ties to even.
        Rni = "rni",
        /// To an integer, towards zero.
        Rzi = "rzi",
        /// To an integer, down.
        Rmi = "rmi",
        /// To an integer, up.
        Rpi = "rpi",
    }
}

named! {
    /// A comparison. The ones with `u` at the end hold when an operand is NaN.
    Compare {
        Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge",
        /// Unsigned `<`.
        Lo = "lo",
        /// Unsigned `<=`.
        Ls = "ls",
        /// Unsigned `>`.
        Hi = "hi",
        /// Unsigned `>=`.
        Hs = "hs",
        Equ = "equ", Neu = "neu", Ltu = "ltu", Leu = "leu", Gtu = "gtu", Geu = "geu",
        /// Neither is NaN.
        Num = "num",
        /// One is NaN.
        Nan = "nan",
    }
}

named! {
    /// How a comparison is combined with a predicate.
    BoolOp { And = "and", Or = "or", Xor = "xor", }
}

named! {
    /// What other threads see, and when.
    Semantics {
        Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel", Sc = "sc", Mmio = "mmio",
    }
}

named! {
    /// Which other threads.
    Scope { Cta = "cta", Cluster = "cluster", Gpu = "gpu", Sys = "sys", }
}

named! {
    /// Which caches to use.
    Cache { Ca = "ca", Cg = "cg", Cs = "cs", Lu = "lu", Cv = "cv", Wb = "wb", Wt = "wt", }
}

named! {
    /// What `atom` and `red` do.
    Atomic {
        And = "and", Or = "or", Xor = "xor", Cas = "cas", Exch = "exch", Add = "add", Inc = "inc", Dec = "dec", Min = "min", Max = "max",
    }
}

named! {
    /// Which half of a product.
    Half { Lo = "lo", Hi = "hi", Wide = "wide", }
}

named! {
    /// What a shift by more than the width does.
    ShiftMode { Wrap = "wrap", Clamp = "clamp", }
}

named! {
    /// From which lane `shfl` reads.
    ShuffleMode { Up = "up", Down = "down", Bfly = "bfly", Idx = "idx", }
}

named! {
    /// What `vote` and `match` ask.
    VoteMode { All = "all", Any = "any", Uni = "uni", Ballot = "ballot", }
}

named! {
    /// How `redux` and `bar.red` combine.
    Reduce { Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", Popc = "popc", }
}

named! {
    /// How `prmt` chooses bytes, where it does not take a selector for each.
    PermuteMode { F4e = "f4e", B4e = "b4e", Rc8 = "rc8", Ecl = "ecl", Ecr = "ecr", Rc16 = "rc16", }
}

named! {
    /// What `testp` asks.
    FloatTest {
        Finite = "finite", Infinite = "infinite", Number = "number", Notanumber = "notanumber", Normal = "normal", Subnormal = "subnormal",
    }
}

named! {
    /// Why the threads of a warp stop where the text of the program has no instruction for it.
    Stop {
        /// The lanes that are here together have done all that comes before, when any of them goes on.
        Order = "order",
        /// The lanes that went different ways come together again.
        Rejoin = "rejoin",
        /// A loop waits for a value that another thread stores: the other threads run meanwhile.
        Yield = "yield",
        /// The same for a value that may come from outside of the block.
        Pause = "pause",
    }
}

named! {
    /// Shape of a texture or surface.
    Geometry {
        OneD = "1d", TwoD = "2d", ThreeD = "3d", OneDArray = "a1d", TwoDArray = "a2d", Cube = "cube", CubeArray = "acube",
        TwoDMultisample = "2dms", TwoDMultisampleArray = "a2dms",
    }
}
