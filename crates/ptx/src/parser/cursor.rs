//! One token ahead, and the small questions every part of the parser asks.

use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{Lexer, Place, Token};

/// Most characters of an instruction that an error repeats: enough for the longest that compilers write, short enough for a line.
const QUOTE_CHARS_MAX: usize = 120;

/// A reader of tokens that knows the next one.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    place: Place,
    text: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, ParseError> {
        let mut lexer = Lexer::new(text);
        let (token, place) = lexer.next()?;
        Ok(Self { lexer, token, place, text })
    }

    /// The next token.
    pub(super) fn token(&self) -> Token<'a> {
        self.token
    }

    /// Where the next token starts.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Takes the next token.
    pub(super) fn advance(&mut self) -> Result<Token<'a>, ParseError> {
        let taken = self.token;
        (self.token, self.place) = self.lexer.next()?;
        Ok(taken)
    }

    /// Takes the next token and the rest of its line.
    pub(super) fn skip_line(&mut self) -> Result<(), ParseError> {
        // The token ahead may be on the line already; the line that counts is the one it is on.
        self.lexer.skip_line();
        self.advance().map(drop)
    }

    /// Takes a sign if it is the next token.
    pub(super) fn accept(&mut self, sign: char) -> Result<bool, ParseError> {
        let is_there = self.token == Token::Sign(sign);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Takes a sign that must be there.
    pub(super) fn expect(&mut self, sign: char, expected: &'static str) -> Result<(), ParseError> {
        if self.accept(sign)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Takes a dotted word if it is the next token.
    pub(super) fn accept_dotted(&mut self, word: &str) -> Result<bool, ParseError> {
        let is_there = self.token == Token::Dotted(word);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Takes a name that must be there.
    pub(super) fn word(&mut self, expected: &'static str) -> Result<(&'a str, Place), ParseError> {
        let place = self.place;
        match self.token {
            Token::Word(word) => {
                self.advance()?;
                Ok((word, place))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// The next token is not what the grammar needs.
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
        self.place.error(ParseErrorKind::Unexpected { found, expected })
    }

    /// An error at the next token.
    pub(super) fn error(&self, kind: ParseErrorKind) -> ParseError {
        self.place.error(kind)
    }

    /// The statement that starts at `start`, up to its semicolon, in one line, for messages.
    pub(super) fn quote(&self, start: Place) -> String {
        let rest = self.text.get(start.offset..).unwrap_or("");
        let end = rest.find(';').unwrap_or(rest.len());
        let words: Vec<&str> = rest[..end].split_whitespace().take(QUOTE_CHARS_MAX).collect();
        shorten(&words.join(" ")).to_owned()
    }

    /// The text from `start` up to the next token, without the blanks behind it.
    pub(super) fn text_from(&self, start: Place) -> &'a str {
        self.text.get(start.offset..self.place.offset).unwrap_or("").trim_end()
    }
}

/// At most [`QUOTE_CHARS_MAX`] characters of a text.
pub(super) fn shorten(text: &str) -> &str {
    text.char_indices().nth(QUOTE_CHARS_MAX).map_or(text, |(at, _)| &text[..at])
}
