//! The header for kernels. Every program may include it, although no node has it as a file.

use std::borrow::Cow;

/// Text of `ggas.h`, for OpenCL C 1.2 to 3.0 and CUDA C++.
pub const HEADER: &str = include_str!("../include/ggas.h");

/// Replaces each line of a program's source that includes `ggas.h` with the text of the header.
/// Other lines keep their numbers.
pub fn with_header(source: &[u8]) -> Cow<'_, [u8]> {
    if !contains(source, b"ggas.h") {
        return Cow::Borrowed(source);
    }
    let mut out = Vec::with_capacity(source.len() + HEADER.len());
    let mut in_comment = false;
    let mut found = false;
    for (line, number) in source.split_inclusive(|byte| *byte == b'\n').zip(1_usize..) {
        let replaced = !in_comment && includes_header(line);
        in_comment = ends_in_comment(line, in_comment);
        if replaced {
            found = true;
            out.extend_from_slice(HEADER.as_bytes());
            // The number is that of the next line. A comment behind the include goes on there.
            let open = if in_comment { "/*" } else { "" };
            out.extend_from_slice(format!("\n#line {}\n{open}", number + 1).as_bytes());
        } else {
            out.extend_from_slice(line);
        }
    }
    if found { Cow::Owned(out) } else { Cow::Borrowed(source) }
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(text, what).is_some()
}

/// Returns whether a line is `#include <ggas.h>` or `#include "ggas.h"`, with any allowed spaces.
fn includes_header(line: &[u8]) -> bool {
    let name =
        behind(line, b"#").and_then(|rest| behind(rest, b"include")).map(<[u8]>::trim_ascii_start);
    name.is_some_and(|name| name.starts_with(b"<ggas.h>") || name.starts_with(b"\"ggas.h\""))
}

/// Returns the text behind a word at the beginning.
fn behind<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    text.trim_ascii_start().strip_prefix(word)
}

/// Returns whether a multi-line comment is open at the end of a line.
fn ends_in_comment(line: &[u8], mut inside: bool) -> bool {
    let mut at = 0;
    let mut quote = None;
    while let Some(byte) = line.get(at).copied() {
        let next = line.get(at + 1).copied();
        match (inside, quote, byte, next) {
            (true, _, b'*', Some(b'/')) => {
                inside = false;
                at += 1;
            }
            (true, ..) => {}
            (false, Some(_), b'\\', _) => at += 1,
            (false, Some(open), close, _) if open == close => quote = None,
            (false, Some(_), ..) => {}
            (false, None, b'/', Some(b'/')) => return false,
            (false, None, b'/', Some(b'*')) => {
                inside = true;
                at += 1;
            }
            (false, None, b'"' | b'\'', _) => quote = Some(byte),
            _ => {}
        }
        at += 1;
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(source: &str) -> String {
        String::from_utf8(with_header(source.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn the_header_stands_where_it_is_included_and_lines_keep_their_numbers() {
        for include in [
            "#include <ggas.h>",
            "  # include \"ggas.h\" // heaps",
            "  #  include \"ggas.h\" /* heaps */",
            "#include<ggas.h>\r",
        ] {
            let source = format!("int a;\n{include}\nint b;\n");
            assert_eq!(made(&source), format!("int a;\n{HEADER}\n#line 3\nint b;\n"), "{include}");
        }
        assert!(made("#include <ggas.h>").starts_with(HEADER), "without an end of line");
    }

    #[test]
    fn a_comment_that_begins_behind_the_include_goes_on() {
        let source = "#include <ggas.h> /* for\n  heaps */ int a;\n";
        assert_eq!(made(source), format!("{HEADER}\n#line 2\n/*  heaps */ int a;\n"));
    }

    #[test]
    fn other_sources_stay_as_they_are() {
        for source in [
            "",
            "kernel void f() {}\n",
            "// see ggas.h\n",
            "// #include <ggas.h>\n",
            "// #include of ggas.h\n",
            "/* once:\n#include <ggas.h>\n*/ kernel void f() {}\n",
            "/* \" */ int a; /*\n#include <ggas.h>\n*/\n",
            "#include <ggas.hpp>\n",
            "#include \"other.h\"\n",
            "#define include_ggas.h\n",
        ] {
            assert!(matches!(with_header(source.as_bytes()), Cow::Borrowed(_)), "{source}");
        }
    }

    #[test]
    fn what_only_looks_like_a_comment_opens_none() {
        for beginning in ["char *s = \"/*\";", "// /*", "int a; /* b */", "char c = '\"'; /* */"] {
            let source = format!("{beginning}\n#include <ggas.h>\n");
            assert!(made(&source).contains(HEADER), "{beginning}");
        }
    }
}
