//! A token stream with one token of lookahead, and the basic operations of all parsers.

use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{Lexer, TextPosition, Token};

/// Largest number of characters of an instruction that an error quotes: enough for the longest
/// instruction that compilers write, short enough for one line.
const QUOTE_CHARS_MAX: usize = 120;

/// A reader of tokens with one token of lookahead.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    position: TextPosition,
    /// Offset behind the last token that was consumed.
    end: usize,
    text: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, ParseError> {
        let mut lexer = Lexer::new(text);
        let (token, position) = lexer.next()?;
        Ok(Self { lexer, token, position, end: 0, text })
    }

    /// Returns the next token without consuming it.
    pub(super) fn token(&self) -> Token<'a> {
        self.token
    }

    /// Returns the position of the next token.
    pub(super) fn position(&self) -> TextPosition {
        self.position
    }

    /// Returns the offset behind the last token that was consumed, in bytes.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Consumes the next token and returns it.
    pub(super) fn advance(&mut self) -> Result<Token<'a>, ParseError> {
        let taken = self.token;
        self.end = self.lexer.offset();
        (self.token, self.position) = self.lexer.next()?;
        Ok(taken)
    }

    /// Consumes the next token and the rest of the line on which that token ends.
    pub(super) fn skip_line(&mut self) -> Result<(), ParseError> {
        // The lexer stands behind the token ahead, so it skips the rest of that token's line.
        self.lexer.skip_line();
        self.advance().map(drop)
    }

    /// Consumes the tokens of a statement, with its semicolon.
    pub(super) fn skip_statement(&mut self) -> Result<(), ParseError> {
        let mut open = 0_usize;
        loop {
            match self.token {
                Token::End => return Err(self.unexpected("`;`")),
                Token::Sign('{' | '[' | '(') => open += 1,
                Token::Sign('}' | ']' | ')') => {
                    open = open.checked_sub(1).ok_or_else(|| self.unexpected("`;`"))?;
                }
                Token::Sign(';') if open == 0 => return self.advance().map(drop),
                _ => {}
            }
            self.advance()?;
        }
    }

    /// Consumes a sign if it is the next token, and returns whether it was.
    pub(super) fn accept(&mut self, sign: char) -> Result<bool, ParseError> {
        let is_there = self.token == Token::Sign(sign);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Consumes a required sign.
    pub(super) fn expect(&mut self, sign: char, expected: &'static str) -> Result<(), ParseError> {
        if self.accept(sign)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Consumes a dotted word if it is the next token, and returns whether it was.
    pub(super) fn accept_dotted(&mut self, word: &str) -> Result<bool, ParseError> {
        let is_there = self.token == Token::Dotted(word);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Consumes a required name.
    pub(super) fn word(
        &mut self,
        expected: &'static str,
    ) -> Result<(&'a str, TextPosition), ParseError> {
        let position = self.position;
        match self.token {
            Token::Word(word) => {
                self.advance()?;
                Ok((word, position))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Returns the error that the next token is not what the grammar requires.
    pub(super) fn unexpected(&self, expected: &'static str) -> ParseError {
        let found = match self.token {
            Token::End => "the end of the text".to_owned(),
            Token::Word(word) => format!("`{}`", shorten(word)),
            Token::Dotted(word) => format!("`.{}`", shorten(word)),
            Token::Text(_) => "a string".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::Integer(_) | Token::Decimal(_) | Token::Single(_) | Token::Double(_) => {
                "a number".to_owned()
            }
        };
        self.position.error(ParseErrorKind::Unexpected { found, expected })
    }

    /// Returns an error at the place of the next token.
    pub(super) fn error(&self, kind: ParseErrorKind) -> ParseError {
        self.position.error(kind)
    }

    /// Returns the statement from `start` up to its semicolon, on one line, for messages.
    pub(super) fn quote(&self, start: TextPosition) -> String {
        let rest = self.text.get(start.offset..).unwrap_or("");
        let end = rest.find(';').unwrap_or(rest.len());
        let words: Vec<&str> = rest[..end].split_whitespace().take(QUOTE_CHARS_MAX).collect();
        shorten(&words.join(" ")).to_owned()
    }

    /// Returns the text from `start` up to the next token, without trailing blanks.
    pub(super) fn text_from(&self, start: TextPosition) -> &'a str {
        self.text.get(start.offset..self.position.offset).unwrap_or("").trim_end()
    }
}

/// Returns at most the first [`QUOTE_CHARS_MAX`] characters of a text.
pub(super) fn shorten(text: &str) -> &str {
    text.char_indices().nth(QUOTE_CHARS_MAX).map_or(text, |(at, _)| &text[..at])
}
