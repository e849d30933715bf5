//! Splits PTX text into tokens.
//!
//! A token is a slice of the text and its position; nothing is copied. `add.rn.f32` is the word
//! `add` and the dotted words `rn` and `f32`. `%tid.x` is split in the same way.

use crate::error::{ParseError, ParseErrorKind};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    /// A name: letters, digits, `_`, `$`, `%`.
    Word(&'a str),
    /// A dot and a word, stored without the dot. The word may contain `::`, and may start with a
    /// digit (`.2d`).
    Dotted(&'a str),
    /// A number without its sign.
    Integer(u64),
    /// A decimal number with a point or an exponent.
    Decimal(f64),
    /// `0f` and eight hexadecimal digits.
    Single(u32),
    /// `0d` and sixteen hexadecimal digits.
    Double(u64),
    /// A string, without its quotes and with its escapes unchanged.
    Text(&'a str),
    /// A punctuation character, such as `;`.
    Sign(char),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextPosition {
    /// Bytes from the start of the text.
    pub offset: usize,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in bytes, counted from 1.
    pub column: u32,
}

impl TextPosition {
    pub fn error(self, kind: ParseErrorKind) -> ParseError {
        ParseError { line: self.line, column: self.column, kind }
    }
}

#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    text: &'a str,
    /// Number of bytes already read.
    offset: usize,
    line: u32,
    /// Offset of the current line's start.
    line_start: usize,
}

impl<'a> Lexer<'a> {
    /// Creates a lexer at the beginning of `text`. A NUL counts as the end of the text.
    pub fn new(text: &'a str) -> Self {
        Self { text, offset: 0, line: 1, line_start: 0 }
    }

    /// Returns the next token and its position.
    pub fn next(&mut self) -> Result<(Token<'a>, TextPosition), ParseError> {
        self.skip_blank()?;
        let position = self.position();
        let Some(first) = self.byte(0) else { return Ok((Token::End, position)) };
        let token = match first {
            0 => Token::End,
            b'.' if self.byte(1).is_some_and(is_word_byte) => {
                self.offset += 1;
                Token::Dotted(self.dotted_word())
            }
            b'0'..=b'9' => self.number(position)?,
            _ if is_word_byte(first) => Token::Word(self.word()),
            b'"' => self.string(position)?,
            _ if first.is_ascii_punctuation() => {
                self.offset += 1;
                Token::Sign(char::from(first))
            }
            _ => {
                let found = self.text[self.offset..].chars().next().unwrap_or('\0');
                return Err(position.error(ParseErrorKind::Character(found)));
            }
        };
        Ok((token, position))
    }

    /// Returns the number of bytes already read.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Skips to the end of the line, which is the only end of `.loc`, `.file` and `@@DWARF`.
    pub fn skip_line(&mut self) {
        let rest = &self.text.as_bytes()[self.offset..];
        self.offset +=
            rest.iter().position(|byte| *byte == b'\n' || *byte == 0).unwrap_or(rest.len());
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.offset + ahead).copied()
    }

    fn position(&self) -> TextPosition {
        let column =
            u32::try_from(self.offset - self.line_start).unwrap_or(u32::MAX).saturating_add(1);
        TextPosition { offset: self.offset, line: self.line, column }
    }

    fn new_line(&mut self) {
        self.line = self.line.saturating_add(1);
        self.line_start = self.offset;
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        while let Some(byte) = self.byte(0) {
            match (byte, self.byte(1)) {
                (b'\n', _) => {
                    self.offset += 1;
                    self.new_line();
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.offset += 1,
                (b'/', Some(b'/')) => self.skip_line(),
                (b'/', Some(b'*')) => self.skip_comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn skip_comment(&mut self) -> Result<(), ParseError> {
        let start = self.position();
        self.offset += 2;
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b'*'), Some(b'/')) => {
                    self.offset += 2;
                    return Ok(());
                }
                (Some(b'\n'), _) => {
                    self.offset += 1;
                    self.new_line();
                }
                (Some(_), _) => self.offset += 1,
                (None, _) => {
                    return Err(start.error(ParseErrorKind::Unexpected {
                        found: "the end of the text".to_owned(),
                        expected: "the end of the comment",
                    }));
                }
            }
        }
    }

    fn word(&mut self) -> &'a str {
        let start = self.offset;
        while self.byte(0).is_some_and(is_word_byte) {
            self.offset += 1;
        }
        &self.text[start..self.offset]
    }

    /// Reads a word that may contain `::`, such as `shared::cta` and `L2::128B`.
    fn dotted_word(&mut self) -> &'a str {
        let start = self.offset;
        loop {
            self.word();
            let joined = self.byte(0) == Some(b':')
                && self.byte(1) == Some(b':')
                && self.byte(2).is_some_and(is_word_byte);
            if !joined {
                return &self.text[start..self.offset];
            }
            self.offset += 2;
        }
    }

    fn string(&mut self, position: TextPosition) -> Result<Token<'a>, ParseError> {
        self.offset += 1;
        let start = self.offset;
        loop {
            match self.byte(0) {
                Some(b'"') => break,
                Some(b'\\') if self.byte(1).is_some_and(|byte| byte != b'\n') => self.offset += 1,
                Some(b'\n') | None => {
                    return Err(position.error(ParseErrorKind::Unexpected {
                        found: "the end of the line".to_owned(),
                        expected: "the end of the string",
                    }));
                }
                Some(_) => {}
            }
            self.offset += 1;
        }
        // `get` cannot fail here: although an escape skips only one byte of a longer character, the
        // quote that ends the string is at a character boundary.
        let content = self.text.get(start..self.offset).unwrap_or("");
        self.offset += 1;
        Ok(Token::Text(content))
    }

    fn number(&mut self, position: TextPosition) -> Result<Token<'a>, ParseError> {
        let start = self.offset;
        let word = self.word();
        let rest = word.get(2..).unwrap_or("");
        let bits = |digits: &str, count: usize| match u64::from_str_radix(digits, 16) {
            Ok(bits) if digits.len() == count => Ok(bits),
            _ => Err(position.error(ParseErrorKind::Number(word.to_owned()))),
        };
        let integer = |digits: &str, radix: u32| {
            let digits = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
            let value = if digits.starts_with('+') {
                None
            } else {
                u64::from_str_radix(digits, radix).ok()
            };
            value
                .map(Token::Integer)
                .ok_or_else(|| position.error(ParseErrorKind::Number(word.to_owned())))
        };
        match word.get(..2) {
            Some("0f" | "0F") => {
                return bits(rest, 8).map(|bits| Token::Single(u32::try_from(bits).unwrap_or(0)));
            }
            Some("0d" | "0D") => return bits(rest, 16).map(Token::Double),
            Some("0x" | "0X") => return integer(rest, 16),
            Some("0b" | "0B") => return integer(rest, 2),
            _ => {}
        }
        let has_point = self.byte(0) == Some(b'.')
            && self.byte(1).is_none_or(|byte| byte.is_ascii_digit() || !is_word_byte(byte));
        let has_exponent = word.contains(['e', 'E']);
        if !has_point && !has_exponent {
            return if word.len() > 1 && word.starts_with('0') {
                integer(&word[1..], 8)
            } else {
                integer(word, 10)
            };
        }
        self.decimal(start, position)
    }

    /// Reads the decimal number that starts at `start`, whose first word has been read.
    fn decimal(&mut self, start: usize, position: TextPosition) -> Result<Token<'a>, ParseError> {
        if self.byte(0) == Some(b'.') {
            self.offset += 1;
            self.word();
        }
        let ends_in_exponent = self.text[start..self.offset].ends_with(['e', 'E']);
        if ends_in_exponent && matches!(self.byte(0), Some(b'+' | b'-')) {
            self.offset += 1;
            self.word();
        }
        let text = &self.text[start..self.offset];
        text.parse::<f64>()
            .map(Token::Decimal)
            .map_err(|_| position.error(ParseErrorKind::Number(text.to_owned())))
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next().unwrap_or_else(|error| panic!("{text}: {error}")).0 {
                Token::End => return tokens,
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn opcodes_and_components_are_words_with_dotted_words() {
        use Token::{Dotted, Sign, Word};
        assert_eq!(
            tokens("tex.2d.v4 %tid.x;"),
            [Word("tex"), Dotted("2d"), Dotted("v4"), Word("%tid"), Dotted("x"), Sign(';')]
        );
        assert_eq!(
            tokens("ld.shared::cta.L2::128B"),
            [Word("ld"), Dotted("shared::cta"), Dotted("L2::128B")]
        );
        assert_eq!(tokens("$L__BB0_1:"), [Word("$L__BB0_1"), Sign(':')]);
    }

    #[test]
    fn numbers_of_every_spelling() {
        use Token::{Decimal, Double, Integer, Single};
        let text = "42 0x2A 052 0b101010 42U 0f3F800000 0d3FF0000000000000 1.5 2e3 2.5e-1 18446744073709551615 0";
        let expected = [
            Integer(42),
            Integer(42),
            Integer(42),
            Integer(42),
            Integer(42),
            Single(0x3F80_0000),
            Double(0x3FF0_0000_0000_0000),
            Decimal(1.5),
            Decimal(2000.0),
            Decimal(0.25),
            Integer(u64::MAX),
            Integer(0),
        ];
        assert_eq!(tokens(text), expected);
    }

    #[test]
    fn numbers_that_are_none_are_errors_with_their_place() {
        for text in ["0f3F8", "0x", "18446744073709551616", "12ab", "0d1", "1.5x", "09"] {
            let line = format!("\n {text}");
            let error = Lexer::new(&line).next().expect_err(text);
            assert_eq!((error.line, error.column), (2, 2), "{text}: {error}");
        }
    }

    #[test]
    fn comments_and_lines_are_skipped_and_counted() {
        let mut lexer = Lexer::new("// one\n/* two\nthree */ add\n");
        let (token, position) = lexer.next().expect("a word");
        assert_eq!((token, position.line, position.column), (Token::Word("add"), 3, 10));
        assert_eq!(lexer.next().expect("the end").0, Token::End);
        assert!(Lexer::new("/* never ends").next().is_err());
    }

    #[test]
    fn a_nul_ends_the_text() {
        assert_eq!(tokens("ret;\0\u{1}\u{2}"), [Token::Word("ret"), Token::Sign(';')]);
    }
}
