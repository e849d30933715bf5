//! Constant expressions.

use super::cursor::Cursor;
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::WARP_SIZE;
use crate::lexer::Token;

/// Deepest nesting of a constant expression. The parser recurses for each level, and must not
/// exhaust the stack.
const DEPTH_MAX: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// An integer as 64 bits of two's complement.
    Integer(u64),
    /// A number with a point or an exponent.
    Decimal(f64),
    /// Exact bits, written with `0f`.
    Single(u32),
    /// Exact bits, written with `0d`.
    Double(u64),
}

impl Number {
    fn negated(self) -> Self {
        match self {
            Self::Integer(value) => Self::Integer(value.wrapping_neg()),
            Self::Decimal(value) => Self::Decimal(-value),
            Self::Single(bits) => Self::Single(bits ^ (1 << 31)),
            Self::Double(bits) => Self::Double(bits ^ (1 << 63)),
        }
    }

    fn as_decimal(self) -> f64 {
        match self {
            Self::Integer(value) => value.cast_signed() as f64,
            Self::Decimal(value) => value,
            Self::Single(bits) => f64::from(f32::from_bits(bits)),
            Self::Double(bits) => f64::from_bits(bits),
        }
    }
}

/// Whether a constant expression can start with this token.
pub(super) fn starts(token: Token<'_>) -> bool {
    match token {
        Token::Integer(_) | Token::Decimal(_) | Token::Single(_) | Token::Double(_) => true,
        Token::Word(word) => word == "WARP_SZ",
        Token::Sign(sign) => matches!(sign, '-' | '+' | '~' | '('),
        _ => false,
    }
}

/// Reads a constant expression.
pub(super) fn expression(cursor: &mut Cursor<'_>) -> Result<Number, ParseError> {
    binary(cursor, 0, 0)
}

/// Reads a constant expression whose value is an integer.
pub(super) fn integer(cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    let position = cursor.position();
    match expression(cursor)? {
        Number::Integer(value) => Ok(value),
        other => Err(position.error(ParseErrorKind::Number(other.as_decimal().to_string()))),
    }
}

fn binary(cursor: &mut Cursor<'_>, strength_min: u8, depth: u32) -> Result<Number, ParseError> {
    let mut left = unary(cursor, depth)?;
    while let Some((operator, strength)) = operator(cursor)? {
        if strength < strength_min {
            break;
        }
        let position = cursor.position();
        cursor.advance()?;
        if operator.len() == 2 {
            cursor.advance()?;
        }
        let right = binary(cursor, strength + 1, depth + 1)?;
        left = combine(operator, left, right)
            .ok_or_else(|| position.error(ParseErrorKind::Number(operator.to_owned())))?;
    }
    Ok(left)
}

/// Returns the next operator and how strongly it binds, without consuming it. A shift has two
/// signs.
fn operator(cursor: &Cursor<'_>) -> Result<Option<(&'static str, u8)>, ParseError> {
    let Token::Sign(first) = cursor.token() else { return Ok(None) };
    Ok(match first {
        '|' => Some(("|", 1)),
        '^' => Some(("^", 2)),
        '&' => Some(("&", 3)),
        '<' | '>' => {
            let mut ahead = cursor.clone();
            ahead.advance()?;
            let is_shift = ahead.token() == Token::Sign(first);
            is_shift.then_some((if first == '<' { "<<" } else { ">>" }, 4))
        }
        '+' => Some(("+", 5)),
        '-' => Some(("-", 5)),
        '*' => Some(("*", 6)),
        '/' => Some(("/", 6)),
        '%' => Some(("%", 6)),
        _ => None,
    })
}

fn unary(cursor: &mut Cursor<'_>, depth: u32) -> Result<Number, ParseError> {
    if depth >= DEPTH_MAX {
        return Err(cursor.error(ParseErrorKind::TooMany {
            what: "levels of a constant expression",
            limit: u64::from(DEPTH_MAX),
        }));
    }
    let position = cursor.position();
    match cursor.token() {
        Token::Integer(value) => cursor.advance().map(|_| Number::Integer(value)),
        Token::Decimal(value) => cursor.advance().map(|_| Number::Decimal(value)),
        Token::Single(bits) => cursor.advance().map(|_| Number::Single(bits)),
        Token::Double(bits) => cursor.advance().map(|_| Number::Double(bits)),
        Token::Word("WARP_SZ") => cursor.advance().map(|_| Number::Integer(u64::from(WARP_SIZE))),
        Token::Sign('+') => {
            cursor.advance()?;
            unary(cursor, depth + 1)
        }
        Token::Sign('-') => {
            cursor.advance()?;
            unary(cursor, depth + 1).map(Number::negated)
        }
        Token::Sign('~') => {
            cursor.advance()?;
            match unary(cursor, depth + 1)? {
                Number::Integer(value) => Ok(Number::Integer(!value)),
                other => {
                    Err(position.error(ParseErrorKind::Number(other.as_decimal().to_string())))
                }
            }
        }
        Token::Sign('(') => {
            cursor.advance()?;
            let value = binary(cursor, 0, depth + 1)?;
            cursor.expect(')', "`)`")?;
            Ok(value)
        }
        _ => Err(cursor.unexpected("a number")),
    }
}

/// Returns the result of an operator, or `None` for a division by zero and for operators that are
/// not defined for the operands.
fn combine(operator: &str, left: Number, right: Number) -> Option<Number> {
    let (Number::Integer(a), Number::Integer(b)) = (left, right) else {
        let (a, b) = (left.as_decimal(), right.as_decimal());
        return Some(Number::Decimal(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => return None,
        }));
    };
    let shift = u32::try_from(b).ok();
    Some(Number::Integer(match operator {
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "<<" => shift.and_then(|shift| a.checked_shl(shift)).unwrap_or(0),
        ">>" => shift.and_then(|shift| a.checked_shr(shift)).unwrap_or(0),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.cast_signed().checked_div(b.cast_signed())?.cast_unsigned(),
        "%" => a.cast_signed().checked_rem(b.cast_signed())?.cast_unsigned(),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Number, ParseError> {
        expression(&mut Cursor::new(text)?)
    }

    #[test]
    fn operators_bind_as_in_c() {
        assert_eq!(value("1+2*3"), Ok(Number::Integer(7)));
        assert_eq!(value("(1+2)*3"), Ok(Number::Integer(9)));
        assert_eq!(value("1<<4|1"), Ok(Number::Integer(17)));
        assert_eq!(value("10-3-2"), Ok(Number::Integer(5)));
        assert_eq!(value("-1"), Ok(Number::Integer(u64::MAX)));
        assert_eq!(value("~0 >> 63"), Ok(Number::Integer(1)));
        assert_eq!(value("WARP_SZ-1"), Ok(Number::Integer(31)));
        assert_eq!(value("1 << 64"), Ok(Number::Integer(0)));
    }

    #[test]
    fn numbers_keep_their_bits() {
        assert_eq!(value("-0f00000000"), Ok(Number::Single(0x8000_0000)));
        assert_eq!(value("-1.5"), Ok(Number::Decimal(-1.5)));
        assert_eq!(value("1.5*2"), Ok(Number::Decimal(3.0)));
    }

    #[test]
    fn what_has_no_value_is_an_error() {
        for text in ["1/0", "0%0", "1+", "~1.5", "1.5<<1", ")"] {
            assert!(value(text).is_err(), "{text}");
        }
        assert!(value(&"(".repeat(100_000)).is_err());
        assert!(value(&"-".repeat(100_000)).is_err());
    }
}
