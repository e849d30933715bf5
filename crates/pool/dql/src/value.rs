//! Values of attributes, and comparisons of numbers and versions.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A value of an attribute, or for a hole of a template.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    Bool(bool),
    /// A whole number. Sizes are in bytes, frequencies in MHz; flags and enumerations have OpenCL's
    /// numbers.
    Int(i128),
    /// Any number. A number that is not finite counts as unknown.
    Float(f64),
    Text(Cow<'a, str>),
    Version(Version),
    Ints(Vec<i128>),
    Names(Vec<Cow<'a, str>>),
    Versions(Vec<Version>),
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value.into())
    }
}

/// A version of up to three numbers. Missing numbers are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    /// Creates a version of two numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, patch: 0 }
    }

    /// Unpacks a `cl_version`: 10 bits, 10 bits, 12 bits.
    pub const fn from_cl(packed: u32) -> Self {
        Self { major: packed >> 22, minor: packed >> 12 & 0x3FF, patch: packed & 0xFFF }
    }

    /// Returns the first version in `text`, as in "OpenCL 3.0 PoCL", "535.154.05" or "3.1+debian".
    /// A number with a point is preferred to one without.
    pub fn find(text: &str) -> Option<Self> {
        let numbers = || {
            text.split(|c: char| !c.is_ascii_digit() && c != '.')
                .map(|part| part.trim_matches('.'))
                .filter(|part| !part.is_empty())
        };
        numbers().find(|part| part.contains('.')).or_else(|| numbers().next()).and_then(Self::parse)
    }

    /// Parses "3", "3.0" or "3.0.1". Further numbers are ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let first = parts.next()??;
        let mut next = || parts.next().unwrap_or(Some(0));
        Some(Self { major: first, minor: next()?, patch: next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

/// A number in a query, or of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    /// A number, which is finite.
    Float(f64),
}

impl Number {
    /// Compares two numbers without rounding.
    pub(crate) fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(one), Self::Int(two)) => one.cmp(&two),
            (Self::Float(one), Self::Float(two)) => {
                one.partial_cmp(&two).unwrap_or(Ordering::Equal)
            }
            (Self::Int(one), Self::Float(two)) => order_mixed(one, two),
            (Self::Float(one), Self::Int(two)) => order_mixed(two, one).reverse(),
        }
    }

    /// Multiplies the number. Returns `None` if the product is too large.
    pub(crate) fn times(self, factor: u64) -> Option<Self> {
        match self {
            Self::Int(number) => number.checked_mul(factor.into()).map(Self::Int),
            #[expect(clippy::cast_precision_loss, reason = "factors of units are exact")]
            Self::Float(number) => {
                Some(number * factor as f64).filter(|it| it.is_finite()).map(Self::Float)
            }
        }
    }

    /// Divides the number. The result stays a whole number if it is one.
    pub(crate) fn over(self, divisor: u64) -> Self {
        match self {
            Self::Int(number) if number % i128::from(divisor) == 0 => {
                Self::Int(number / i128::from(divisor))
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "only what is no whole number comes here"
            )]
            Self::Int(number) => Self::Float(number as f64 / divisor as f64),
            #[expect(clippy::cast_precision_loss, reason = "divisors of units are exact")]
            Self::Float(number) => Self::Float(number / divisor as f64),
        }
    }
}

fn order_mixed(int: i128, float: f64) -> Ordering {
    // There is no i128 from 2^127 on.
    const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if float >= END {
        return Ordering::Less;
    }
    if float < -END {
        return Ordering::Greater;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "that is the purpose, and it is within bounds"
    )]
    let whole = float.trunc() as i128;
    int.cmp(&whole).then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

impl Value<'_> {
    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Self::Bool(value) => Some(Number::Int((*value).into())),
            Self::Int(value) => Some(Number::Int(*value)),
            Self::Float(value) if value.is_finite() => Some(Number::Float(*value)),
            _ => None,
        }
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Int(value) => Some(*value != 0),
            _ => None,
        }
    }

    /// Returns the bits of a number.
    pub(crate) fn bits(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Self::Version(version) => Some(*version),
            Self::Text(text) => Version::find(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_texts() {
        for (text, found) in [
            ("OpenCL 3.0 PoCL HSTR: pthread", Some((3, 0, 0))),
            ("OpenCL C 1.2 PoCL", Some((1, 2, 0))),
            ("3.1+debian", Some((3, 1, 0))),
            ("535.154.05", Some((535, 154, 5))),
            ("2766.0 (PAL,LC)", Some((2766, 0, 0))),
            ("version 2 of x", Some((2, 0, 0))),
            ("2 times 3.1", Some((3, 1, 0))),
            ("2023.16.12.0.12_1", Some((2023, 16, 12))),
            ("99999999999.1", None),
            ("none", None),
            ("", None),
            ("...", None),
        ] {
            let version = Version::find(text).map(|it| (it.major, it.minor, it.patch));
            assert_eq!(version, found, "{text}");
        }
    }

    #[test]
    fn packed_versions_are_taken_apart() {
        assert_eq!(Version::from_cl(0xC0_0000).to_string(), "3.0");
        assert_eq!(Version::from_cl(1 << 22 | 2 << 12 | 7).to_string(), "1.2.7");
    }

    #[test]
    fn numbers_compare_without_rounding() {
        let int = Number::Int;
        let float = Number::Float;
        // 2^53 + 1 is not an f64.
        assert_eq!(int((1 << 53) + 1).order(float(9_007_199_254_740_992.0)), Ordering::Greater);
        assert_eq!(float(1.5).order(int(1)), Ordering::Greater);
        assert_eq!(int(-1).order(float(-1.5)), Ordering::Greater);
        assert_eq!(int(2).order(float(2.0)), Ordering::Equal);
        assert_eq!(int(i128::MAX).order(float(1e300)), Ordering::Less);
        assert_eq!(int(i128::MIN).order(float(-1e300)), Ordering::Greater);
    }

    #[test]
    fn division_stays_exact_where_it_can() {
        assert_eq!(Number::Int(3_000_000).over(1_000_000), Number::Int(3));
        assert_eq!(Number::Int(2_500_000).over(1_000_000), Number::Float(2.5));
        assert_eq!(Number::Int(i128::MAX).times(2), None);
        assert_eq!(Number::Float(1e308).times(1 << 40), None);
    }
}
