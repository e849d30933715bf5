//! Instructions with their opcode, modifiers and operands.

use std::sync::Arc;

use super::id::{FunctionId, RegisterId};
use super::operand::Operand;
use super::signature::Signature;
use super::types::{Space, Type};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns PTX's spelling, without a dot.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the variant with this spelling.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

#[derive(Debug, Clone)]
pub struct Instruction {
    /// Line of the text, counted from 1.
    pub line: u32,
    /// `@p` or `@!p`: the condition under which the instruction runs.
    pub guard: Option<Guard>,
    pub opcode: Opcode,
    /// The type suffixes in the order of the text. If there are two (`cvt`, `set`, `slct`, `tex`),
    /// the destination's comes first.
    pub types: Vec<Type>,
    /// All other suffixes of the opcode.
    pub modifiers: Modifiers,
    /// The operands in the order of the text. The first [`Instruction::destinations`] are written.
    ///
    /// `p|q` are two destinations; if the text has only `p`, there is one. The list omits optional
    /// operands that the text omits. [`Opcode::Call`] has no operands: see [`Instruction::call`].
    pub operands: Vec<Operand>,
    /// Number of leading operands that are written.
    pub destinations: u8,
    /// Function and arguments of a call.
    pub call: Option<Box<Call>>,
    /// The opcode with all its suffixes as written in the text, for messages.
    pub mnemonic: Arc<str>,
}

impl Instruction {
    /// Returns the first type suffix, or a predicate if the instruction has none.
    pub fn ty(&self) -> Type {
        self.types.first().copied().unwrap_or(Type::Pred)
    }

    /// Returns the last type suffix: the source's if there are two.
    pub fn source_type(&self) -> Type {
        self.types.last().copied().unwrap_or(Type::Pred)
    }

    /// Returns the operands that are only read.
    pub fn sources(&self) -> &[Operand] {
        &self.operands[usize::from(self.destinations)..]
    }
}

/// The guard `@p` or `@!p` of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub register: RegisterId,
    /// Whether the instruction runs if the predicate is false.
    pub negated: bool,
}

/// Function and arguments of a call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Destinations of the return values: a [`super::Symbol::Variable`] or
    /// [`super::Symbol::Return`] of the param space, a register, or a sink.
    pub returns: Vec<Operand>,
    pub target: CallTarget,
    /// The arguments: symbols of the param space, registers or immediates.
    pub arguments: Vec<Operand>,
}

#[derive(Debug, Clone)]
pub enum CallTarget {
    /// A named function. One without a body is external: `vprintf`, `__assertfail`, `malloc`,
    /// `free`.
    Direct(FunctionId),
    /// The function whose address a register holds.
    Indirect {
        /// Holds [`super::FUNCTION_WINDOW`] + [`FunctionId`].
        register: RegisterId,
        /// The signature from the call's `.callprototype`.
        signature: Arc<Signature>,
        /// The functions that `.calltargets` lists, or `None` if the call may reach any function.
        targets: Option<Vec<FunctionId>>,
    },
}

named! {
    /// What an instruction does. `bar` and `barrier` are one opcode; [`Modifiers::aligned`] tells
    /// them apart.
    Opcode {
        Abs = "abs", Activemask = "activemask", Add = "add", Addc = "addc", And = "and", Atom = "atom",
        /// Operands: barrier, number of threads.
        BarArrive = "bar.arrive",
        /// Operands: result, barrier, [number of threads], predicate. Operator in
        /// [`Modifiers::reduce`].
        BarRed = "bar.red",
        /// Operands: barrier, [number of threads].
        BarSync = "bar.sync",
        /// Operand: mask of the member lanes.
        BarWarpSync = "bar.warp.sync",
        Bfe = "bfe", Bfi = "bfi", Bfind = "bfind", Bmsk = "bmsk", Bra = "bra", Brev = "brev", Brkpt = "brkpt",
        /// Operands: index, list of targets ([`Operand::Targets`]).
        BrxIdx = "brx.idx",
        Call = "call", Clz = "clz", Cnot = "cnot", Copysign = "copysign", Cos = "cos",
        /// `cp.async.ca/cg.shared.global`. Operands: destination, source, bytes, [bytes to read].
        CpAsync = "cp.async",
        /// Also `cp.async.wait_all` and `cp.async.wait_group`: no-ops, because copies are done at
        /// once.
        CpAsyncFence = "cp.async.commit_group",
        Cvt = "cvt",
        /// Converts to a generic address, or from one with [`Modifiers::to`].
        Cvta = "cvta",
        /// No-ops: `discard`, `applypriority`, `prefetch`, `prefetchu`, `griddepcontrol`,
        /// `setmaxnreg`.
        Hint = "prefetch",
        Div = "div", Dp2a = "dp2a", Dp4a = "dp4a",
        Elect = "elect.sync",
        Ex2 = "ex2", Exit = "exit",
        /// Both `membar` and `fence`.
        Fence = "membar",
        Fma = "fma", Fns = "fns",
        Isspacep = "isspacep", Ld = "ld", Ldu = "ldu", Lg2 = "lg2", Lop3 = "lop3", Mad = "mad", Mad24 = "mad24",
        Madc = "madc",
        /// `match.any.sync` and `match.all.sync`; [`Modifiers::vote`] has the mode.
        Match = "match",
        Max = "max", Min = "min", Mov = "mov", Mul = "mul",
        Mul24 = "mul24", Nanosleep = "nanosleep", Neg = "neg", Not = "not", Or = "or", Popc = "popc", Prmt = "prmt",
        Rcp = "rcp", Red = "red", Redux = "redux", Rem = "rem", Ret = "ret", Rsqrt = "rsqrt", Sad = "sad", Selp = "selp", Set = "set",
        Setp = "setp", Shf = "shf",
        /// Operands: `d`, `p` (optional), `a`, `b` (lane or delta), `c` (clamp and mask), and a member
        /// mask (absent without `.sync`).
        Shfl = "shfl",
        Shl = "shl", Shr = "shr", Sin = "sin", Slct = "slct", Sqrt = "sqrt", St = "st", Sub = "sub",
        Subc = "subc", Suld = "suld", Sust = "sust", Szext = "szext", Tanh = "tanh", Testp = "testp", Tex = "tex", Tld4 = "tld4", Trap = "trap",
        /// `txq`: queries a property of a texture, the first word of [`Modifiers::query`].
        Txq = "txq",
        /// [`Modifiers::reduce`] is set if the differences are added up.
        Vabsdiff2 = "vabsdiff2", Vabsdiff4 = "vabsdiff4",
        /// Operands: d, [!]p, [member mask: absent without `.sync`].
        Vote = "vote",
        Xor = "xor",
    }
}

/// The suffixes of an opcode other than types. A suffix that an instruction does not have keeps its
/// default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// Rounding mode, such as `.rn`.
    pub rounding: Option<Rounding>,
    /// `.ftz`: denormal inputs and results of single precision are zero.
    pub ftz: bool,
    /// `.sat`: clamps floats to [0, 1] and integers to their range.
    pub sat: bool,
    /// `.satfinite`: a conversion to a narrow float clamps to the largest finite value.
    pub satfinite: bool,
    /// `.relu`: negative results are 0.
    pub relu: bool,
    pub approx: bool,
    pub full: bool,
    /// `.NaN` of `min` and `max`: a NaN operand makes the result NaN.
    pub nan: bool,
    /// `.xorsign`, only of `min` and `max`.
    pub xorsign: bool,
    /// `.abs`, only of `min` and `max`.
    pub abs: bool,
    /// `.noftz` of atomics on `f16`.
    pub noftz: bool,
    /// `.cc`: writes the carry flag.
    pub carry: bool,
    /// Comparison of `setp` and `set`.
    pub compare: Option<Compare>,
    /// How `setp` and `set` combine the comparison with the last operand.
    pub bool_op: Option<BoolOp>,
    /// Space of the memory; generic if the text names no space. For `cvta` and `isspacep`, the
    /// space that they convert or test.
    pub space: Option<Space>,
    /// `.shared::cluster`, which here is the block's own shared memory.
    pub cluster: bool,
    /// `.to` of `cvta`: converts from a generic address.
    pub to: bool,
    /// Number of elements of `.v2`, `.v4` or `.v8`; 0 without.
    pub vector: u8,
    pub volatile: bool,
    /// `.nc`: the data is read-only.
    pub non_coherent: bool,
    /// `.weak`, `.relaxed`, `.acquire` and the like.
    pub semantics: Option<Semantics>,
    /// `.cta`, `.gpu` or `.sys`; `.gl` of `membar` is [`Scope::Gpu`].
    pub scope: Option<Scope>,
    /// `.ca`, `.cg` and the like: a hint.
    pub cache: Option<Cache>,
    /// Operation of `atom` and `red`.
    pub atomic: Option<Atomic>,
    /// `.lo`, `.hi` or `.wide`; the half that `dp2a` uses.
    pub half: Option<Half>,
    /// `.wrap` or `.clamp` of `shf`, `bmsk` and `szext`.
    pub shift: Option<ShiftMode>,
    /// `.l` or `.r` of `shf`: true for left, false for right.
    pub left: bool,
    /// `.shiftamt`, only of `bfind`.
    pub shiftamt: bool,
    pub shuffle: Option<ShuffleMode>,
    /// Mode of `vote` and `match`.
    pub vote: Option<VoteMode>,
    /// Operator of `redux` and `bar.red`.
    pub reduce: Option<Reduce>,
    pub sync: bool,
    /// `.aligned`: all threads of the warp execute the instruction together. `bar.sync` is always
    /// aligned.
    pub aligned: bool,
    /// `.uni`: the whole warp takes the same branch.
    pub uniform: bool,
    pub permute: Option<PermuteMode>,
    pub test: Option<FloatTest>,
    pub geometry: Option<Geometry>,
    pub level: bool,
    pub grad: bool,
    /// Why the translation inserted a [`Opcode::BarWarpSync`] that the text does not have.
    pub stop: Option<Stop>,
    /// Other words in the order of the text: the query of `txq`, `.trap`, `.clamp` or `.zero` of
    /// surfaces, the component of `tld4`.
    pub query: Vec<&'static str>,
}

named! {
    /// How a result is rounded: `rn` to nearest with ties to even, `rna` to nearest with ties away
    /// from zero, `rz` towards zero, `rm` down, `rp` up. The modes that end in `i` round to an
    /// integer.
    Rounding {
        Rn = "rn",
        Rz = "rz",
        Rm = "rm",
        Rp = "rp",
        Rna = "rna",
        Rni = "rni",
        Rzi = "rzi",
        Rmi = "rmi",
        Rpi = "rpi",
    }
}

named! {
    /// A comparison. Those that end in `u` are true if an operand is NaN. `lo`, `ls`, `hi` and `hs`
    /// are the unsigned `<`, `<=`, `>` and `>=`.
    Compare {
        Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge",
        Lo = "lo",
        Ls = "ls",
        Hi = "hi",
        Hs = "hs",
        Equ = "equ", Neu = "neu", Ltu = "ltu", Leu = "leu", Gtu = "gtu", Geu = "geu",
        /// True if neither operand is NaN.
        Num = "num",
        /// True if an operand is NaN.
        Nan = "nan",
    }
}

named! {
    /// How a comparison is combined with a predicate.
    BoolOp { And = "and", Or = "or", Xor = "xor", }
}

named! {
    /// Memory semantics of an access or a fence.
    Semantics {
        Weak = "weak", Relaxed = "relaxed", Acquire = "acquire", Release = "release", AcqRel = "acq_rel", Sc = "sc", Mmio = "mmio",
    }
}

named! {
    /// The threads that a memory access synchronises with.
    Scope { Cta = "cta", Cluster = "cluster", Gpu = "gpu", Sys = "sys", }
}

named! {
    Cache { Ca = "ca", Cg = "cg", Cs = "cs", Lu = "lu", Cv = "cv", Wb = "wb", Wt = "wt", }
}

named! {
    /// Operation of `atom` and `red`.
    Atomic {
        And = "and", Or = "or", Xor = "xor", Cas = "cas", Exch = "exch", Add = "add", Inc = "inc", Dec = "dec", Min = "min", Max = "max",
    }
}

named! {
    /// The half of a product that an instruction returns.
    Half { Lo = "lo", Hi = "hi", Wide = "wide", }
}

named! {
    /// The result of a shift by more than the width.
    ShiftMode { Wrap = "wrap", Clamp = "clamp", }
}

named! {
    /// The lane that `shfl` reads from.
    ShuffleMode { Up = "up", Down = "down", Bfly = "bfly", Idx = "idx", }
}

named! {
    /// The question that `vote` or `match` asks.
    VoteMode { All = "all", Any = "any", Uni = "uni", Ballot = "ballot", }
}

named! {
    /// Operator of `redux` and `bar.red`.
    Reduce { Add = "add", Min = "min", Max = "max", And = "and", Or = "or", Xor = "xor", Popc = "popc", }
}

named! {
    /// How `prmt` chooses bytes if it has no selector for each byte.
    PermuteMode { F4e = "f4e", B4e = "b4e", Rc8 = "rc8", Ecl = "ecl", Ecr = "ecr", Rc16 = "rc16", }
}

named! {
    /// The class of numbers that `testp` tests for.
    FloatTest {
        Finite = "finite", Infinite = "infinite", Number = "number", Notanumber = "notanumber", Normal = "normal", Subnormal = "subnormal",
    }
}

named! {
    /// Why the threads of a warp stop at a place where the program's text has no instruction for
    /// it.
    Stop {
        /// Before any of the lanes that are here together continues, all of them have executed what
        /// precedes the stop.
        Order = "order",
        /// Lanes that took different paths come together again.
        Rejoin = "rejoin",
        /// A loop waits for a value that another thread of the block stores. The other threads run
        /// meanwhile.
        Yield = "yield",
        /// A loop waits for a value that may come from outside the block. The other threads run
        /// meanwhile.
        Pause = "pause",
        /// All threads of the block leave a branch that contains a barrier. Only PoCL needs a
        /// barrier here.
        Close = "close",
    }
}

named! {
    Geometry {
        OneD = "1d", TwoD = "2d", ThreeD = "3d", OneDArray = "a1d", TwoDArray = "a2d", Cube = "cube", CubeArray = "acube",
        TwoDMultisample = "2dms", TwoDMultisampleArray = "a2dms",
    }
}
