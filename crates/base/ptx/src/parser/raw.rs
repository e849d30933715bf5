//! Operands as written in the text, before they are compared with a form.

use super::constant::{self, Number};
use super::cursor::Cursor;
use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{TextPosition, Token};

/// Largest number of operands of an instruction or elements of a vector. The longest have eight.
const ELEMENTS_MAX: usize = 16;

/// Deepest nesting of braces and brackets. PTX needs a vector in an address.
const DEPTH_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct RawOperand<'a> {
    pub(super) kind: RawOperandKind<'a>,
    /// Its start. Of a negated name, that of the name.
    pub(super) position: TextPosition,
    /// Whether it stands behind the `|` of `p|q`.
    pub(super) second: bool,
}

#[derive(Debug)]
pub(super) enum RawOperandKind<'a> {
    /// `!name.component+offset`. Only the name is required.
    Name {
        name: &'a str,
        component: Option<&'a str>,
        offset: Option<i64>,
        negated: bool,
    },
    Number(Number),
    Braces(Vec<RawOperand<'a>>),
    Brackets(Vec<RawOperand<'a>>),
    /// `name[index]`, which no instruction takes here.
    Indexed,
}

/// Reads operands up to the semicolon, and consumes it.
pub(super) fn operands<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<RawOperand<'a>>, ParseError> {
    let mut operands = Vec::new();
    if cursor.accept(';')? {
        return Ok(operands);
    }
    let mut second = false;
    loop {
        let mut operand = raw(cursor, 0)?;
        operand.second = second;
        push(&mut operands, operand)?;
        second = cursor.accept('|')?;
        if !second && !cursor.accept(',')? {
            cursor.expect(';', "`,` or `;`")?;
            return Ok(operands);
        }
    }
}

/// Reads the arguments of a call. The opening parenthesis has been consumed.
pub(super) fn arguments<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<RawOperand<'a>>, ParseError> {
    let mut operands = Vec::new();
    while !cursor.accept(')')? {
        operands.push(raw(cursor, 0)?);
        if !cursor.accept(',')? && cursor.token() != Token::Sign(')') {
            return Err(cursor.unexpected("`,` or `)`"));
        }
    }
    Ok(operands)
}

fn push<'a>(operands: &mut Vec<RawOperand<'a>>, operand: RawOperand<'a>) -> Result<(), ParseError> {
    if operands.len() >= ELEMENTS_MAX {
        return Err(operand
            .position
            .error(ParseErrorKind::TooMany { what: "operands", limit: ELEMENTS_MAX as u64 }));
    }
    operands.push(operand);
    Ok(())
}

fn raw<'a>(cursor: &mut Cursor<'a>, depth: u32) -> Result<RawOperand<'a>, ParseError> {
    let mut position = cursor.position();
    let kind = match cursor.token() {
        token if constant::starts(token) => RawOperandKind::Number(constant::expression(cursor)?),
        Token::Word(_) => name(cursor, false, depth)?,
        Token::Sign('!') => {
            cursor.advance()?;
            position = cursor.position();
            name(cursor, true, depth)?
        }
        Token::Sign('{') => RawOperandKind::Braces(list(cursor, '}', depth)?),
        Token::Sign('[') => RawOperandKind::Brackets(list(cursor, ']', depth)?),
        _ => return Err(cursor.unexpected("an operand")),
    };
    Ok(RawOperand { kind, position, second: false })
}

fn list<'a>(
    cursor: &mut Cursor<'a>,
    end: char,
    depth: u32,
) -> Result<Vec<RawOperand<'a>>, ParseError> {
    if depth >= DEPTH_MAX {
        return Err(cursor.error(ParseErrorKind::TooMany {
            what: "levels of an operand",
            limit: u64::from(DEPTH_MAX),
        }));
    }
    cursor.advance()?;
    let mut elements = Vec::new();
    while !cursor.accept(end)? {
        push(&mut elements, raw(cursor, depth + 1)?)?;
        if !cursor.accept(',')? && cursor.token() != Token::Sign(end) {
            return Err(cursor.unexpected("`,` or the end of the list"));
        }
    }
    Ok(elements)
}

fn name<'a>(
    cursor: &mut Cursor<'a>,
    negated: bool,
    depth: u32,
) -> Result<RawOperandKind<'a>, ParseError> {
    let (name, _) = cursor.word("a name")?;
    if cursor.token() == Token::Sign('[') {
        list(cursor, ']', depth)?;
        return Ok(RawOperandKind::Indexed);
    }
    let mut component = None;
    if let Token::Dotted(word) = cursor.token() {
        component = Some(word);
        cursor.advance()?;
    }
    let has_offset = matches!(cursor.token(), Token::Sign('+' | '-'));
    let offset = if has_offset { Some(constant::integer(cursor)?.cast_signed()) } else { None };
    Ok(RawOperandKind::Name { name, component, offset, negated })
}
