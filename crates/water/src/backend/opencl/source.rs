//! `#include <ggas.h>` in a kernel's source: the header is in this library, so no folder has to be named.

use std::borrow::Cow;

/// The source, with the header in the place of each line that includes it. What comes after it keeps its line numbers.
pub(super) fn with_header(source: &[u8]) -> Cow<'_, [u8]> {
    let includes = |line: &[u8]| is_include(line);
    if !source.split(|byte| *byte == b'\n').any(includes) {
        return Cow::Borrowed(source);
    }
    let mut text = Vec::with_capacity(source.len() + penstock_ggas::HEADER.len());
    for (line, bytes) in (1_u32..).zip(source.split(|byte| *byte == b'\n')) {
        if line > 1 {
            text.push(b'\n');
        }
        if is_include(bytes) {
            text.extend_from_slice(penstock_ggas::HEADER.as_bytes());
            text.extend_from_slice(format!("\n#line {line}").as_bytes());
        } else {
            text.extend_from_slice(bytes);
        }
    }
    Cow::Owned(text)
}

/// Whether a line includes the header, with brackets or with quotes.
fn is_include(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let Some(rest) = line.trim_start().strip_prefix('#') else { return false };
    let Some(name) = rest.trim_start().strip_prefix("include") else { return false };
    let name = name.trim_start();
    ["<ggas.h>", "\"ggas.h\""].iter().any(|header| name.starts_with(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str) -> String {
        String::from_utf8(with_header(source.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn a_source_without_it_stays_as_it_is() {
        for source in ["", "kernel void f() {}\n", "// #include of ggas.h\n", "#include \"other.h\"\n"] {
            assert!(matches!(with_header(source.as_bytes()), Cow::Borrowed(_)), "{source}");
        }
    }

    #[test]
    fn the_header_stands_where_it_is_included_and_lines_are_counted_on() {
        for include in ["#include <ggas.h>", "  #  include \"ggas.h\" // talk"] {
            let made = text(&format!("// first\n{include}\nkernel void f() {{}}\n"));
            assert_eq!(made, format!("// first\n{}\n#line 2\nkernel void f() {{}}\n", penstock_ggas::HEADER));
        }
    }
}
