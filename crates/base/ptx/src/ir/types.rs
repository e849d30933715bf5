//! PTX's types and state spaces.

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal, $kind:ident;)*) => {
        /// A fundamental or packed type: a suffix of an instruction or a declaration.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Type { $($(#[$doc])* $variant,)* }

        impl Type {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the suffix without its dot, such as `u32`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the type with that suffix, which has no dot.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// Returns the width of a value in bits; 1 for a predicate.
            pub const fn bits(self) -> u32 {
                match self { $(Self::$variant => $bits,)* }
            }

            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)* }
            }
        }
    };
}

/// The kind of value that a [`Type`] describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Untyped bits, which fit every other kind of the same width.
    Bits,
    Unsigned,
    /// A signed integer in two's complement.
    Signed,
    Float,
    /// Two floating-point numbers in one register, the first in the lower half.
    FloatPair,
    /// Two integers of 16 bits in one register.
    IntegerPair,
    Predicate,
    /// A handle of a texture, a sampler or a surface.
    Handle,
}

types! {
    B8 = "b8", 8, Bits;
    B16 = "b16", 16, Bits;
    B32 = "b32", 32, Bits;
    B64 = "b64", 64, Bits;
    B128 = "b128", 128, Bits;
    U8 = "u8", 8, Unsigned;
    U16 = "u16", 16, Unsigned;
    U32 = "u32", 32, Unsigned;
    U64 = "u64", 64, Unsigned;
    S8 = "s8", 8, Signed;
    S16 = "s16", 16, Signed;
    S32 = "s32", 32, Signed;
    S64 = "s64", 64, Signed;
    /// IEEE 754 half precision.
    F16 = "f16", 16, Float;
    /// The upper half of a single-precision number.
    Bf16 = "bf16", 16, Float;
    F32 = "f32", 32, Float;
    F64 = "f64", 64, Float;
    F16x2 = "f16x2", 32, FloatPair;
    Bf16x2 = "bf16x2", 32, FloatPair;
    F32x2 = "f32x2", 64, FloatPair;
    U16x2 = "u16x2", 32, IntegerPair;
    S16x2 = "s16x2", 32, IntegerPair;
    Pred = "pred", 1, Predicate;
    Texref = "texref", 64, Handle;
    Samplerref = "samplerref", 64, Handle;
    Surfref = "surfref", 64, Handle;
}

impl Type {
    /// Returns the size of a value in memory, in bytes. It is 1 for a predicate, which memory
    /// cannot hold.
    pub const fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether the type is a floating-point number or a pair of them.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float | Kind::FloatPair)
    }

    /// Whether the type is a signed or unsigned integer, as opposed to untyped bits.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), Kind::Signed | Kind::Unsigned)
    }

    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), Kind::Signed)
    }
}

/// A state space: the memory that an address refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any space; the window that the address lies in determines it.
    Generic,
    /// `.global`: the device's memory.
    Global,
    /// `.const`: read-only; part of the module's data block, with global addresses.
    Const,
    /// `.shared`: a block's memory; addresses are offsets from its start.
    Shared,
    /// `.local`: a thread's memory; addresses are offsets from its start.
    Local,
    /// `.param`: parameters of a kernel, a function or a call; addresses are offsets.
    Param,
}

impl Space {
    /// Returns the name without its dot; empty for generic addresses.
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
