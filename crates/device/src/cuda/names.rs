//! Names of kernels and variables in a module, from PTX text or a cubin's symbol table. Only hints:
//! the driver decides whether the module has them. All bytes may come from a hostile client.

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) kernels: Vec<String>,
    pub(super) globals: Vec<String>,
}

/// Most names taken from one module, more than any real module has.
const NAMES_MAX: usize = 1 << 16;

/// Finds the names in a module image, if its format is a known one.
pub(super) fn names(image: &[u8]) -> Names {
    if image.starts_with(b"\x7fELF") {
        return symbols(image).unwrap_or_default();
    }
    let end = image.iter().position(|&byte| byte == 0).unwrap_or(image.len());
    match std::str::from_utf8(image.get(..end).unwrap_or_default()) {
        Ok(text) if text.contains(".version") => in_text(text),
        _ => Names::default(),
    }
}

/// PTX: `.visible .entry NAME (` and, outside of functions, `.global .align 4 .u32 NAME[4] = ...;`.
fn in_text(text: &str) -> Names {
    let mut names = Names::default();
    let mut depth = 0_usize;
    let (mut is_variable, mut last, mut wants_entry) = (false, "", false);
    for token in tokens(text) {
        match token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            ".entry" => wants_entry = true,
            ".global" | ".const" => (is_variable, last) = (true, ""),
            ";" | "=" | "[" | "(" => {
                if is_variable && is_name(last) && names.globals.len() < NAMES_MAX {
                    names.globals.push(last.to_owned());
                }
                (is_variable, last) = (false, "");
            }
            _ if wants_entry => {
                wants_entry = false;
                if is_name(token) && names.kernels.len() < NAMES_MAX {
                    names.kernels.push(token.to_owned());
                }
            }
            _ => last = token,
        }
    }
    names
}

/// Splits the text into words and the punctuation that matters, without comments.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start();
            if let Some(comment) = rest.strip_prefix("//") {
                rest = comment.split_once('\n').map_or("", |(_, after)| after);
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/").map_or("", |(_, after)| after);
            } else {
                break;
            }
        }
        let first = rest.chars().next()?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%'))
}

/// Finds the functions and objects in the symbol table of a 64-bit little-endian ELF file.
fn symbols(image: &[u8]) -> Option<Names> {
    const SYMBOL_TABLE: u32 = 2;
    const SECTION_BYTES: usize = 64;
    const SYMBOL_BYTES: usize = 24;
    let mut names = Names::default();
    let sections = size(word::<8>(image, 40)?)?;
    let count = usize::from(u16::from_le_bytes(word::<2>(image, 60)?));
    let section = |index: usize| sections.checked_add(index.checked_mul(SECTION_BYTES)?);
    for index in 0..count {
        let header = section(index)?;
        if u32::from_le_bytes(word::<4>(image, header + 4)?) != SYMBOL_TABLE {
            continue;
        }
        let (start, bytes) =
            (size(word::<8>(image, header + 24)?)?, size(word::<8>(image, header + 32)?)?);
        let strings =
            section(usize::try_from(u32::from_le_bytes(word::<4>(image, header + 40)?)).ok()?)?;
        let (text, text_bytes) =
            (size(word::<8>(image, strings + 24)?)?, size(word::<8>(image, strings + 32)?)?);
        let text = image.get(text..text.checked_add(text_bytes)?)?;
        for at in (0..bytes / SYMBOL_BYTES).take(NAMES_MAX) {
            let symbol = image.get(start.checked_add(at * SYMBOL_BYTES)?..)?.get(..SYMBOL_BYTES)?;
            let name = usize::try_from(u32::from_le_bytes(word::<4>(symbol, 0)?)).ok()?;
            let is_defined = word::<2>(symbol, 6)? != [0; 2];
            let end = text.get(name..)?.iter().position(|&byte| byte == 0)?;
            let name = std::str::from_utf8(text.get(name..name + end)?).ok()?;
            match symbol.get(4)? & 0xF {
                1 if is_defined && is_name(name) => names.globals.push(name.to_owned()),
                2 if is_defined && is_name(name) => names.kernels.push(name.to_owned()),
                _ => {}
            }
        }
    }
    Some(names)
}

fn word<const BYTES: usize>(image: &[u8], at: usize) -> Option<[u8; BYTES]> {
    image.get(at..)?.first_chunk().copied()
}

fn size(word: [u8; 8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(word)).ok().filter(|&size| size <= isize::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_text_names_its_kernels_and_variables() {
        let text = b".version 9.0\n.target sm_75\n.address_size 64\n// .entry no (\n\
            .visible .global .align 4 .b8 table[16] = {1, 2};\n.const .align 8 .f64 factor;\n\
            .extern .func (.param .b32 r) vprintf (.param .b64 a);\n\
            .visible .entry _Z3addPfS_(\n.param .u64 p0\n)\n{ .reg .b32 %r<4>; .shared .b32 s; .global .u32 inner; ret; }\n\
            /* .entry neither( */ .entry second() { ret; }\0garbage .entry third(";
        let names = names(text);
        assert_eq!(names.kernels, ["_Z3addPfS_", "second"]);
        assert_eq!(names.globals, ["table", "factor"]);
    }

    #[test]
    fn elf_files_name_theirs() {
        // The header, the section headers of symbols and strings, then both contents.
        let mut image = vec![0_u8; 64];
        image.splice(..4, *b"\x7fELF");
        image.splice(40..48, 64_u64.to_le_bytes());
        image.splice(60..62, 2_u16.to_le_bytes());
        let text = b"\0kernel\0table\0outer\0";
        let symbols = [(1_u32, 0x12_u8, 1_u16), (8, 0x11, 1), (14, 0x12, 0)];
        let section = |kind: u32, start: u64, bytes: u64, link: u32| {
            let mut header = vec![0_u8; 64];
            header.splice(4..8, kind.to_le_bytes());
            header.splice(24..32, start.to_le_bytes());
            header.splice(32..40, bytes.to_le_bytes());
            header.splice(40..44, link.to_le_bytes());
            header
        };
        image.extend(section(2, 192, 72, 1));
        image.extend(section(3, 264, text.len() as u64, 0));
        for (name, info, defined) in symbols {
            image.extend(name.to_le_bytes());
            image.extend([info, 0]);
            image.extend(defined.to_le_bytes());
            image.extend([0; 16]);
        }
        image.extend(text);
        let found = names(&image);
        assert_eq!(
            (found.kernels, found.globals),
            (vec!["kernel".to_owned()], vec!["table".to_owned()])
        );
        // However the image is cut off or changed, nothing outside it is read.
        for length in 0..image.len() {
            _ = names(image.get(..length).unwrap());
            let mut wild = image.clone();
            wild[length] = 0xFF;
            _ = names(&wild);
        }
    }

    #[test]
    fn what_is_no_module_has_no_names() {
        for bytes in [b"".as_slice(), b"\x7fELF", b"hello .entry x (", b"\xFF\xFE.version"] {
            assert_eq!(names(bytes), Names::default());
        }
    }
}
