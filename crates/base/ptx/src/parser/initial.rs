//! Initial values of variables.

use super::constant::{self, Number};
use super::cursor::Cursor;
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{Kind, Type};
use crate::lexer::{TextPosition, Token};

/// Deepest nesting of braces, which is the number of dimensions of an array.
const DEPTH_MAX: u32 = 16;

/// Largest total size of a module's initial values: far above the 64 KiB of constant memory and any
/// table in a program's text.
pub(super) const INITIAL_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct Initial<'a> {
    /// The first bytes; the bytes behind them are zero.
    pub(super) bytes: Vec<u8>,
    /// The addresses of variables that the value contains.
    pub(super) pointers: Vec<Pointer<'a>>,
    /// The names that the value contains, and their places.
    pub(super) mentions: Vec<(&'a str, TextPosition)>,
    /// Offset behind the last value: the size of an array that is declared without one.
    pub(super) end: u64,
}

/// The address of a variable in an initial value.
#[derive(Debug)]
pub(super) struct Pointer<'a> {
    /// Offset in the variable that holds the address, in bytes.
    pub(super) offset: u64,
    /// Name of the variable whose address it is.
    pub(super) name: &'a str,
    pub(super) addend: i64,
    /// Number of bytes to write: 4 or 8.
    pub(super) width: u8,
    pub(super) position: TextPosition,
}

/// The shape of the variable that is being initialised.
#[derive(Debug, Clone, Copy)]
pub(super) struct InitialisedShape<'s> {
    pub(super) name: &'s str,
    pub(super) ty: Type,
    /// Size in bytes of each dimension's element, outermost first: 16, 4 for `[3][4]` of 4 bytes.
    pub(super) strides: &'s [u64],
    /// Size in bytes; `None` for an array whose size follows from the values.
    pub(super) size: Option<u64>,
}

/// Reads the initial value behind `=`.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    shape: InitialisedShape<'_>,
) -> Result<Initial<'a>, ParseError> {
    let mut filler = InitialReader { shape, initial: Initial::default(), masked: None };
    filler.value(cursor, 0, 0)?;
    filler.end_of_masked(cursor.position())?;
    Ok(filler.initial)
}

/// One pointer whose bytes are written one by one, as `0xFF(x), 0xFF00(x), ...`.
#[derive(Debug)]
struct PartialPointer<'a> {
    pointer: Pointer<'a>,
    bytes: u8,
}

struct InitialReader<'a, 's> {
    shape: InitialisedShape<'s>,
    initial: Initial<'a>,
    masked: Option<PartialPointer<'a>>,
}

impl<'a> InitialReader<'a, '_> {
    /// Reads a value, or values in braces, for `offset`. Returns the offset behind it.
    fn value(
        &mut self,
        cursor: &mut Cursor<'a>,
        offset: u64,
        depth: u32,
    ) -> Result<u64, ParseError> {
        if !cursor.accept('{')? {
            return self.element(cursor, offset);
        }
        if depth >= DEPTH_MAX {
            return Err(cursor.error(ParseErrorKind::TooMany {
                what: "levels of an initial value",
                limit: u64::from(DEPTH_MAX),
            }));
        }
        let stride = self
            .shape
            .strides
            .get(depth as usize)
            .copied()
            .unwrap_or_else(|| u64::from(self.shape.ty.bytes()));
        let mut next = offset;
        while !cursor.accept('}')? {
            let is_group = cursor.token() == Token::Sign('{');
            let end = self.value(cursor, next, depth + 1)?;
            // Values in inner braces fill one element of this dimension, even if some are missing.
            next = if is_group { next.saturating_add(stride) } else { end };
            if !cursor.accept(',')? && cursor.token() != Token::Sign('}') {
                return Err(cursor.unexpected("`,` or `}`"));
            }
        }
        Ok(next)
    }

    fn element(&mut self, cursor: &mut Cursor<'a>, offset: u64) -> Result<u64, ParseError> {
        let position = cursor.position();
        let end = offset.saturating_add(u64::from(self.shape.ty.bytes()));
        if self.shape.size.is_some_and(|size| end > size) {
            return Err(self.problem(position, "more values than elements"));
        }
        if end > INITIAL_BYTES_MAX {
            return Err(position.error(ParseErrorKind::TooMany {
                what: "bytes of initial values",
                limit: INITIAL_BYTES_MAX,
            }));
        }
        self.initial.end = self.initial.end.max(end);
        match cursor.token() {
            Token::Word(word) if word != "WARP_SZ" => {
                let pointer = pointer(cursor, offset, self.shape.ty)?;
                self.initial.mentions.push((pointer.name, pointer.position));
                self.end_of_masked(position)?;
                self.add_pointer(pointer)?;
            }
            _ => {
                let value = constant::expression(cursor)?;
                if cursor.token() == Token::Sign('(') {
                    self.masked_byte(cursor, value, offset, position)?;
                } else {
                    self.end_of_masked(position)?;
                    self.number(value, offset, position)?;
                }
            }
        }
        Ok(end)
    }

    fn number(
        &mut self,
        value: Number,
        offset: u64,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        let bits = element_bits(value, self.shape.ty)
            .ok_or_else(|| self.problem(position, "the number is of another kind"))?;
        let width = self.shape.ty.bytes() as usize;
        let bytes = u128::from(bits).to_le_bytes();
        // Zeros at the end of a variable are not stored.
        if bits != 0 {
            self.write(offset, &bytes[..width.min(bytes.len())]);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        // The offset is below `INITIAL_BYTES_MAX`.
        let start = usize::try_from(offset).unwrap_or(0);
        let end = start + bytes.len();
        if self.initial.bytes.len() < end {
            self.initial.bytes.resize(end, 0);
        }
        self.initial.bytes[start..end].copy_from_slice(bytes);
    }

    fn add_pointer(&mut self, pointer: Pointer<'a>) -> Result<(), ParseError> {
        if pointer.width != 8 && pointer.width != 4 {
            return Err(self.problem(pointer.position, "an address needs 4 or 8 bytes"));
        }
        self.write(pointer.offset, &[0; 8][..usize::from(pointer.width)]);
        self.initial.pointers.push(pointer);
        Ok(())
    }

    /// Reads `0xFF00(x)`, one byte of an address. Supported only if all eight bytes follow each
    /// other.
    fn masked_byte(
        &mut self,
        cursor: &mut Cursor<'a>,
        mask: Number,
        offset: u64,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        cursor.expect('(', "`(`")?;
        let mut pointer = pointer(cursor, offset, Type::B64)?;
        self.initial.mentions.push((pointer.name, pointer.position));
        cursor.expect(')', "`)`")?;
        let shift = match mask {
            Number::Integer(mask) if self.shape.ty.bytes() == 1 => {
                (0..8u8).find(|byte| mask == 0xFF << (8 * byte))
            }
            _ => None,
        };
        let Some(byte) = shift else {
            return Err(self.problem(position, "this mask of an address"));
        };
        match &mut self.masked {
            None if byte == 0 => {
                pointer.width = 8;
                self.masked = Some(PartialPointer { pointer, bytes: 1 });
            }
            Some(masked)
                if masked.bytes == byte
                    && masked.pointer.name == pointer.name
                    && masked.pointer.addend == pointer.addend =>
            {
                masked.bytes += 1;
            }
            _ => return Err(self.problem(position, "a part of an address")),
        }
        if self.masked.as_ref().is_some_and(|masked| masked.bytes == 8)
            && let Some(whole) = self.masked.take()
        {
            self.add_pointer(whole.pointer)?;
        }
        Ok(())
    }

    /// Returns an error if an address that was written byte by byte is incomplete.
    fn end_of_masked(&self, position: TextPosition) -> Result<(), ParseError> {
        if self.masked.is_some() {
            Err(self.problem(position, "a part of an address"))
        } else {
            Ok(())
        }
    }

    fn problem(&self, position: TextPosition, problem: &'static str) -> ParseError {
        position.error(ParseErrorKind::Initialiser { name: self.shape.name.to_owned(), problem })
    }
}

/// Reads `x`, `x+4`, `generic(x)` or `generic(x)+4`.
fn pointer<'a>(cursor: &mut Cursor<'a>, offset: u64, ty: Type) -> Result<Pointer<'a>, ParseError> {
    let (mut name, mut position) = cursor.word("the name of a variable")?;
    if name == "generic" && cursor.accept('(')? {
        (name, position) = cursor.word("the name of a variable")?;
        cursor.expect(')', "`)`")?;
    }
    let has_addend = matches!(cursor.token(), Token::Sign('+' | '-'));
    let addend = if has_addend { constant::integer(cursor)?.cast_signed() } else { 0 };
    let width = u8::try_from(ty.bytes()).unwrap_or(u8::MAX);
    Ok(Pointer { offset, name, addend, width, position })
}

/// Returns a number as the bits of an element, or `None` if it does not fit the type's kind.
fn element_bits(value: Number, ty: Type) -> Option<u64> {
    let kind = ty.kind();
    match (value, ty) {
        (Number::Integer(0), _) => Some(0),
        (Number::Integer(value), _) if kind != Kind::Float => Some(value),
        (Number::Integer(value), Type::F16 | Type::Bf16) => Some(value),
        (Number::Single(bits), Type::F32 | Type::B32) => Some(u64::from(bits)),
        (Number::Double(bits), Type::F64 | Type::B64) => Some(bits),
        (Number::Decimal(value), Type::F64) => Some(value.to_bits()),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a decimal number is rounded to the element's type"
        )]
        (Number::Decimal(value), Type::F32) => Some(u64::from((value as f32).to_bits())),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a double is rounded to the element's type"
        )]
        (Number::Double(bits), Type::F32) => {
            Some(u64::from((f64::from_bits(bits) as f32).to_bits()))
        }
        (Number::Single(bits), Type::F64) => Some(f64::from(f32::from_bits(bits)).to_bits()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, ty: Type, strides: &[u64], size: u64) -> Result<Vec<u8>, ParseError> {
        let shape = InitialisedShape { name: "x", ty, strides, size: Some(size) };
        read(&mut Cursor::new(text)?, shape).map(|initial| initial.bytes)
    }

    #[test]
    fn numbers_are_written_in_little_endian_order() {
        assert_eq!(fill("258", Type::U32, &[], 4), Ok(vec![2, 1, 0, 0]));
        assert_eq!(fill("{1, -1}", Type::S16, &[2], 4), Ok(vec![1, 0, 255, 255]));
        assert_eq!(
            fill("{0f3F800000, 1.0}", Type::F32, &[4], 8),
            Ok(vec![0, 0, 128, 63, 0, 0, 128, 63])
        );
        assert_eq!(
            fill("{1, 0, 0}", Type::U8, &[1], 3),
            Ok(vec![1]),
            "zeros at the end need no bytes"
        );
    }

    #[test]
    fn inner_braces_fill_one_row_each() {
        assert_eq!(fill("{{1}, {2, 3}}", Type::U8, &[2, 1], 4), Ok(vec![1, 0, 2, 3]));
        assert_eq!(fill("{1, 2, 3}", Type::U8, &[2, 1], 4), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(fill("{1, 2, 3}", Type::U8, &[1], 2).is_err());
        assert!(fill("{1.5}", Type::U32, &[4], 4).is_err());
        assert!(fill("{1", Type::U32, &[4], 4).is_err());
        assert!(fill("{x}", Type::U16, &[2], 4).is_err(), "an address in two bytes");
        assert!(fill(&"{".repeat(1000), Type::U8, &[1], 4).is_err());
    }

    #[test]
    fn an_address_in_bytes_is_one_pointer() {
        let masks: Vec<String> =
            (0..8).map(|byte| format!("{:#X}(generic(y)+4)", 0xFFu64 << (8 * byte))).collect();
        let text = format!("{{7, {}, 9}}", masks.join(", "));
        let shape = InitialisedShape { name: "x", ty: Type::U8, strides: &[1], size: Some(10) };
        let initial = Cursor::new(&text)
            .and_then(|mut cursor| read(&mut cursor, shape))
            .expect("the form that LLVM writes");
        assert_eq!(initial.bytes, [7, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(initial.pointers.len(), 1);
        let pointer = &initial.pointers[0];
        assert_eq!((pointer.offset, pointer.name, pointer.addend, pointer.width), (1, "y", 4, 8));
        assert!(fill("{0xFF(y), 0xFF0000(y)}", Type::U8, &[1], 10).is_err(), "a byte is left out");
        assert!(fill("{0xFF(y), 1}", Type::U8, &[1], 10).is_err(), "not whole");
    }
}
