//! The holes of a template.

use crate::value::Value;

/// The C type that a hole takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoleKind {
    /// `%d`, `%i`: takes an `int`.
    Int,
    /// `%u`: takes an `unsigned`.
    Unsigned,
    /// `%x`: takes an `unsigned`.
    Hex,
    /// `%ld`: takes a `long`.
    Long,
    /// `%lu`: takes an `unsigned long`.
    UnsignedLong,
    /// `%zu`: takes a `size_t`.
    Size,
    /// `%lld`: takes a `long long`.
    LongLong,
    /// `%llu`: takes an `unsigned long long`.
    UnsignedLongLong,
    /// `%s`: takes a text.
    Text,
    /// `%f`, `%g`: takes a `double`.
    Float,
}

impl HoleKind {
    /// Whether the hole takes a whole number.
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::Text | Self::Float)
    }

    /// Describes the accepted values, for messages.
    pub(crate) fn takes(self) -> &'static str {
        match self {
            Self::Int => "a whole number of 32 bits",
            Self::Unsigned | Self::Hex => "a whole number of 32 bits that is not negative",
            Self::Long | Self::LongLong => "a whole number of 64 bits",
            Self::UnsignedLong | Self::Size | Self::UnsignedLongLong => {
                "a whole number of 64 bits that is not negative"
            }
            Self::Text => "a text",
            Self::Float => "a finite number",
        }
    }

    pub(crate) fn accepts(self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Int, Value::Int(value)) => i32::try_from(*value).is_ok(),
            (Self::Unsigned | Self::Hex, Value::Int(value)) => u32::try_from(*value).is_ok(),
            (Self::Long | Self::LongLong, Value::Int(value)) => i64::try_from(*value).is_ok(),
            (Self::UnsignedLong | Self::Size | Self::UnsignedLongLong, Value::Int(value)) => {
                u64::try_from(*value).is_ok()
            }
            (Self::Text, Value::Text(_)) => true,
            (Self::Float, Value::Float(value)) => value.is_finite(),
            _ => false,
        }
    }
}
