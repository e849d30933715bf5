//! PTX's types and state spaces.

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal, $kind:ident;)*) => {
        /// A fundamental or packed type, as the suffix of an instruction or a declaration names it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Type { $($(#[$doc])* $variant,)* }

        impl Type {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The suffix without its dot, such as `u32`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The type with that suffix (without its dot).
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// Width of a value in bits; 1 for a predicate.
            pub const fn bits(self) -> u32 {
                match self { $(Self::$variant => $bits,)* }
            }

            /// What kind of value it is.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)* }
            }
        }
    };
}

/// What kind of value a [`Type`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only bits: fits every other kind of the same width.
    Bits,
    /// An unsigned integer.
    Unsigned,
    /// A signed integer, two's complement.
    Signed,
    /// A floating-point number.
    Float,
    /// Two floating-point numbers in one register, the first in the lower half.
    FloatPair,
    /// Two integers of 16 bits in one register.
    IntegerPair,
    /// A truth value.
    Predicate,
    /// A handle of a texture, a sampler or a surface.
    Handle,
}

types! {
    /// 8 bits.
    B8 = "b8", 8, Bits;
    /// 16 bits.
    B16 = "b16", 16, Bits;
    /// 32 bits.
    B32 = "b32", 32, Bits;
    /// 64 bits.
    B64 = "b64", 64, Bits;
    /// 128 bits.
    B128 = "b128", 128, Bits;
    /// Unsigned, 8 bits.
    U8 = "u8", 8, Unsigned;
    /// Unsigned, 16 bits.
    U16 = "u16", 16, Unsigned;
    /// Unsigned, 32 bits.
    U32 = "u32", 32, Unsigned;
    /// Unsigned, 64 bits.
    U64 = "u64", 64, Unsigned;
    /// Signed, 8 bits.
    S8 = "s8", 8, Signed;
    /// Signed, 16 bits.
    S16 = "s16", 16, Signed;
    /// Signed, 32 bits.
    S32 = "s32", 32, Signed;
    /// Signed, 64 bits.
    S64 = "s64", 64, Signed;
    /// IEEE half precision.
    F16 = "f16", 16, Float;
    /// The upper half of a single-precision number.
    Bf16 = "bf16", 16, Float;
    /// IEEE single precision.
    F32 = "f32", 32, Float;
    /// IEEE double precision.
    F64 = "f64", 64, Float;
    /// Two half-precision numbers.
    F16x2 = "f16x2", 32, FloatPair;
    /// Two `bf16`.
    Bf16x2 = "bf16x2", 32, FloatPair;
    /// Two single-precision numbers.
    F32x2 = "f32x2", 64, FloatPair;
    /// Two unsigned integers of 16 bits.
    U16x2 = "u16x2", 32, IntegerPair;
    /// Two signed integers of 16 bits.
    S16x2 = "s16x2", 32, IntegerPair;
    /// A truth value.
    Pred = "pred", 1, Predicate;
    /// A texture; the handle is 64 bits.
    Texref = "texref", 64, Handle;
    /// A sampler; the handle is 64 bits.
    Samplerref = "samplerref", 64, Handle;
    /// A surface; the handle is 64 bits.
    Surfref = "surfref", 64, Handle;
}

impl Type {
    /// Size of a value in memory, in bytes; 1 for a predicate, which memory cannot hold.
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether it is one floating-point number or two in a register.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float | Kind::FloatPair)
    }

    /// Whether it is a signed or unsigned integer, not only bits.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), Kind::Signed | Kind::Unsigned)
    }

    /// Whether it is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), Kind::Signed)
    }
}

/// A state space: where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any of them: the address says which by its window.
    Generic,
    /// `.global`: the device's memory.
    Global,
    /// `.const`: read only; lies in the module's data block, with plain global addresses.
    Const,
    /// `.shared`: a block's memory; addresses are offsets from its start.
    Shared,
    /// `.local`: a thread's memory; addresses are offsets from its start.
    Local,
    /// `.param`: parameters of the kernel or function, and of a call; addresses are offsets.
    Param,
}

impl Space {
    /// The name without its dot; empty for generic addresses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "",
            Self::Global => "global",
            Self::Const => "const",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Param => "param",
        }
    }
}
