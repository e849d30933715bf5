//! The directives of a source that name other files.
//!
//! This is less than a preprocessor: it does not know which conditions hold. So it finds more
//! directives than the compiler follows, and never fewer.

use std::borrow::Cow;

use penstock_wire::headers::ABSOLUTE;

/// What editors of some systems put in front of a text in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How a directive names its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `"file.h"`, also searched for in the folder of the including file.
    Quote,
    /// `<file.h>`.
    Angle,
}

/// The name of a file in a directive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub form: Form,
    pub path: Vec<u8>,
}

/// A directive that includes a file, or that asks whether there is such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    pub name: Name,
    /// Offset of the name's first byte in the source, behind `"` or `<`.
    pub at: usize,
    /// Whether the search goes on behind the folder of the including file (`#include_next`).
    pub next: bool,
}

/// The value of a macro that can be the operand of an `#include`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Name(Name),
    /// Another macro.
    Macro(Vec<u8>),
}

/// The definition of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    pub macro_name: Vec<u8>,
    pub value: Value,
}

/// What a source says about other files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    pub includes: Vec<Include>,
    /// Operands of includes that the preprocessor computes: the name of a macro, or `None` if the
    /// operand is more than a name.
    pub computed: Vec<Option<Vec<u8>>>,
    pub defines: Vec<Define>,
}

impl Directives {
    /// Returns the directives of a source, or `None` if it includes nothing. A source without an
    /// `#include` costs one search for `#`.
    pub fn of(source: &[u8]) -> Option<Self> {
        if !may_include(source) {
            return None;
        }
        let directives = Self::read(source);
        (!directives.includes.is_empty() || !directives.computed.is_empty()).then_some(directives)
    }

    /// Reads any text.
    pub fn read(text: &[u8]) -> Self {
        let mut reader = Reader { text, at: 0, found: Self::default() };
        reader.read();
        reader.found
    }

    /// Returns whether a file is included by its absolute path.
    pub fn has_absolute(&self) -> bool {
        self.includes.iter().any(|include| include.name.is_absolute())
    }

    /// Returns the source that the compiler gets: [`ABSOLUTE`] stands in front of the absolute
    /// names.
    pub fn relocated<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.has_absolute() {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len() + ABSOLUTE.len() * self.includes.len());
        let mut taken = 0;
        for include in self.includes.iter().filter(|include| include.name.is_absolute()) {
            out.extend_from_slice(text.get(taken..include.at).unwrap_or_default());
            out.extend_from_slice(ABSOLUTE.as_bytes());
            taken = include.at;
        }
        out.extend_from_slice(text.get(taken..).unwrap_or_default());
        Cow::Owned(out)
    }
}

impl Name {
    pub fn is_absolute(&self) -> bool {
        self.path.first() == Some(&b'/')
    }
}

impl Define {
    /// Returns the definition in an option `-DNAME=VALUE`, or `None` if the value names no file.
    pub fn of_option(definition: &[u8]) -> Option<Self> {
        let equals = definition.iter().position(|byte| *byte == b'=')?;
        let (macro_name, value) = definition.split_at(equals);
        let mut reader = Reader { text: value, at: 1, found: Directives::default() };
        Some(Self { macro_name: macro_name.to_vec(), value: reader.value()? })
    }
}

/// Returns whether a text may have a directive that includes files. If it says no, there is none.
fn may_include(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'#') {
        rest = rest.get(at + 1..).unwrap_or_default();
        let word = rest.trim_ascii_start();
        // A comment or a continued line may stand before the word, or inside it.
        let starts = [&b"in"[..], b"im", b"i\\", b"\\", b"/", b"\x0b"];
        if starts.iter().any(|start| word.starts_with(start)) {
            return true;
        }
    }
    let has = |what: &[u8]| memchr::memmem::find(text, what).is_some();
    // The other spelling of `#`, and the question for a file.
    has(b"%:") || has(b"__has_include")
}

/// Reads a text as the first phases of a compiler do: continued lines, comments, literals.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    found: Directives,
}

impl Reader<'_> {
    fn read(&mut self) {
        if self.text.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len();
        }
        let mut at_start = true;
        while let Some(byte) = self.peek() {
            match byte {
                byte if is_line_end(byte) => {
                    at_start = true;
                    self.at += 1;
                    continue;
                }
                byte if is_blank(byte) => {
                    self.at += 1;
                    continue;
                }
                b'/' if self.skip_comment() => continue,
                b'#' if at_start => {
                    self.at += 1;
                    self.directive();
                }
                b'%' if at_start && self.text.get(self.at + 1) == Some(&b':') => {
                    self.at += 2;
                    self.directive();
                }
                b'"' | b'\'' => self.skip_literal(byte),
                byte if is_of_word(byte) => self.word_of_code(),
                _ => self.at += 1,
            }
            at_start = false;
        }
    }

    /// Returns the next byte behind continued lines.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = self.text.get(self.at..)?;
            match continued(rest) {
                Some(bytes) => self.at += bytes,
                None => return rest.first().copied(),
            }
        }
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            let skipped = match byte {
                b'/' => self.skip_comment(),
                byte if is_blank(byte) => {
                    self.at += 1;
                    true
                }
                _ => false,
            };
            if !skipped {
                return;
            }
        }
    }

    /// Skips a comment, if there is one here. The end of a line comment stays.
    fn skip_comment(&mut self) -> bool {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'/') => {
                self.skip_line();
                true
            }
            Some(b'*') => {
                self.at += 1;
                let mut star = false;
                while let Some(byte) = self.peek() {
                    self.at += 1;
                    if star && byte == b'/' {
                        break;
                    }
                    star = byte == b'*';
                }
                true
            }
            _ => {
                self.at = start;
                false
            }
        }
    }

    /// Skips all bytes until the end of the line.
    fn skip_line(&mut self) {
        while self.peek().is_some_and(|byte| !is_line_end(byte)) {
            self.at += 1;
        }
    }

    /// Skips a literal. One without an end ends with its line: an apostrophe in text that a
    /// condition excludes.
    fn skip_literal(&mut self, quote: u8) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            match byte {
                byte if is_line_end(byte) => return,
                b'\\' => {
                    self.at += 1;
                    if self.peek().is_none_or(is_line_end) {
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
            if byte == quote {
                return;
            }
        }
    }

    fn word(&mut self) -> Vec<u8> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| is_of_word(*byte)) {
            word.push(byte);
            self.at += 1;
        }
        word
    }

    /// Reads a word outside the names of directives. `__has_include` is one.
    fn word_of_code(&mut self) {
        let word = self.word();
        let next = word == b"__has_include_next";
        if next || word == b"__has_include" {
            self.skip_blanks();
            if self.peek() == Some(b'(') {
                self.at += 1;
                self.skip_blanks();
                self.include(next);
            }
        }
    }

    fn directive(&mut self) {
        self.skip_blanks();
        match self.word().as_slice() {
            b"include" | b"import" => self.operand(false),
            b"include_next" => self.operand(true),
            b"define" => self.define(),
            // The rest is a message, in which neither comments nor literals begin.
            b"warning" => self.skip_line(),
            _ => {}
        }
    }

    fn operand(&mut self, next: bool) {
        self.skip_blanks();
        if self.include(next) {
            return;
        }
        let word = self.word();
        if word.is_empty() {
            return;
        }
        self.skip_blanks();
        let is_all = self.peek().is_none_or(is_line_end);
        self.found.computed.push(is_all.then_some(word));
    }

    /// Reads a name in quotes or angle brackets, if there is one here.
    fn include(&mut self, next: bool) -> bool {
        let start = self.at;
        let Some(name) = self.name() else {
            self.at = start;
            return false;
        };
        self.found.includes.push(Include { name, at: start + 1, next });
        true
    }

    fn name(&mut self) -> Option<Name> {
        let (form, end) = match self.peek()? {
            b'"' => (Form::Quote, b'"'),
            b'<' => (Form::Angle, b'>'),
            _ => return None,
        };
        self.at += 1;
        let mut path = Vec::new();
        loop {
            match self.peek()? {
                byte if is_line_end(byte) => return None,
                byte if byte == end => break,
                byte => path.push(byte),
            }
            self.at += 1;
        }
        self.at += 1;
        (!path.is_empty()).then_some(Name { form, path })
    }

    fn define(&mut self) {
        self.skip_blanks();
        let macro_name = self.word();
        // A macro with parameters computes more than a name.
        if macro_name.is_empty() || self.peek() == Some(b'(') {
            return;
        }
        self.skip_blanks();
        let start = self.at;
        match self.value() {
            Some(value) => self.found.defines.push(Define { macro_name, value }),
            // A comment or literal may begin here.
            None => self.at = start,
        }
    }

    /// Reads the whole value of a macro.
    fn value(&mut self) -> Option<Value> {
        let value = match self.peek()? {
            b'"' | b'<' => Value::Name(self.name()?),
            _ => Value::Macro(Some(self.word()).filter(|word| !word.is_empty())?),
        };
        self.skip_blanks();
        self.peek().is_none_or(is_line_end).then_some(value)
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c)
}

/// Clang ends lines at either byte.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Returns the size of the backslash and the line end with which a text begins, if it begins so.
/// Clang accepts blanks between them, with a warning.
fn continued(text: &[u8]) -> Option<usize> {
    let behind = text.strip_prefix(b"\\")?;
    let blanks = behind.iter().take_while(|byte| is_blank(**byte)).count();
    match behind.get(blanks..)? {
        [b'\r', b'\n', ..] => Some(blanks + 3),
        [b'\n' | b'\r', ..] => Some(blanks + 2),
        _ => None,
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let shown = |include: &Include| {
            let path = String::from_utf8(include.name.path.clone()).unwrap();
            assert!(text[include.at..].starts_with(&path) || text.contains('\\'), "{text}");
            match include.name.form {
                Form::Quote => format!("\"{path}\""),
                Form::Angle => format!("<{path}>"),
            }
        };
        Directives::read(text.as_bytes()).includes.iter().map(shown).collect()
    }

    #[test]
    fn every_spelling_of_an_include_is_found() {
        for text in [
            "#include \"a/b.h\"",
            "  #  include\t\"a/b.h\" // why",
            "#include\"a/b.h\"\r\n",
            "/* one\ntwo */ #include \"a/b.h\"",
            "# /* x */ include /* y */ \"a/b.h\"",
            "#inc\\\nlude \\\r\n \"a/b.h\"",
            "%:include \"a/b.h\"",
            "#import \"a/b.h\"",
            "#include_next \"a/b.h\"",
            "int a = '\\'';\n#include \"a/b.h\"\n",
            "char *s = \"\\\\\";\n#include \"a/b.h\"\n",
            "#if 0\nthis isn't code\n#endif\n#include \"a/b.h\"\n",
            "#if defined __has_include && __has_include(\"a/b.h\")\n#endif",
            "# if __has_include ( \"a/b.h\" )\n#endif",
            "__has_include(\"a/b.h\")",
            "// a comment\n#include \"a/b.h\"",
            "int a; // \"\n#include \"a/b.h\"",
            "\u{feff}#include \"a/b.h\"",
            "#warning see kernels/*.cl\n#include \"a/b.h\"",
            "// old line ends\r#include \"a/b.h\"\r",
            "#include \\ \n \"a/b.h\"",
            "#\u{b}include \"a/b.h\"",
        ] {
            assert_eq!(names(text), ["\"a/b.h\""], "{text}");
            assert!(Directives::of(text.as_bytes()).is_some(), "{text}");
        }
        assert_eq!(names("#include <x.h>\n#include <y z.h>"), ["<x.h>", "<y z.h>"]);
    }

    #[test]
    fn what_only_looks_like_an_include_is_none() {
        for text in [
            "",
            "kernel void f() {}",
            "// #include \"a.h\"",
            "/*\n#include \"a.h\"\n*/",
            "char *s = \"\\\n#include <a.h>\\\n\";",
            "int a; #include \"a.h\"",
            "int a; /*\n*/ #include \"a.h\"",
            "#define X #include \"a.h\"",
            "#include \"a.h\n",
            "#include \"\"",
            "#includes \"a.h\"",
            "// continued \\\n#include \"a.h\"",
            "#pragma once\n#if 1\n#endif\n#line 3 \"a.h\"\n# 3 \"a.h\"",
        ] {
            assert_eq!(names(text), Vec::<String>::new(), "{text}");
            assert_eq!(Directives::of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn operands_that_are_macros_are_known() {
        let found = Directives::read(
            b"#define A \"a.h\"\n#define B <b.h> // b\n#define C A\n#define D(x) #x\n\
              #define E \"a\" \"b\"\n#define F 1 + 2\n#include A\n#include D(x)\n\
              #include C /* */\n",
        );
        let defined: Vec<&[u8]> = found.defines.iter().map(|it| it.macro_name.as_slice()).collect();
        assert_eq!(defined, [b"A", b"B", b"C"]);
        assert_eq!(found.defines[2].value, Value::Macro(b"A".to_vec()));
        assert_eq!(found.computed, [Some(b"A".to_vec()), None, Some(b"C".to_vec())]);
        let option = Define::of_option(b"HEADER=\"x.h\"").unwrap();
        let name = Name { form: Form::Quote, path: b"x.h".to_vec() };
        assert_eq!(
            (option.macro_name.as_slice(), option.value),
            (&b"HEADER"[..], Value::Name(name))
        );
        assert_eq!(Define::of_option(b"N=3 + 4"), None);
        assert_eq!(Define::of_option(b"N"), None);
    }

    #[test]
    fn absolute_names_get_the_worker_s_word_and_lines_stay() {
        let text = b"#include \"/a/b.h\"\n#include \"c.h\"\n#include </d.h> /* x */\n";
        let found = Directives::read(text);
        assert!(found.has_absolute());
        assert_eq!(
            String::from_utf8(found.relocated(text).into_owned()).unwrap(),
            "#include \"penstock-absolute/a/b.h\"\n#include \"c.h\"\n\
             #include <penstock-absolute/d.h> /* x */\n"
        );
        let plain = b"#include \"c.h\"\n";
        assert!(matches!(Directives::read(plain).relocated(plain), Cow::Borrowed(_)));
    }

    proptest! {
        /// Pieces that directives are made of, in any order.
        #[test]
        fn any_text_is_read(
            text in "([#%:\"'<>/*\\\\\\n\\r (]|include|define|__has_include|a|/x)*",
        ) {
            let found = Directives::read(text.as_bytes());
            if Directives::of(text.as_bytes()).is_none() {
                // The quick look never hides an include.
                prop_assert!(found.includes.is_empty() && found.computed.is_empty(), "{text:?}");
            }
            let absolute =
                found.includes.iter().filter(|include| include.name.is_absolute()).count();
            let relocated = found.relocated(text.as_bytes());
            prop_assert_eq!(relocated.len(), text.len() + absolute * ABSOLUTE.len());
        }
    }
}
