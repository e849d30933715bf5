//! Names of kernels and variables in a module, from PTX text or a cubin's symbol table. Only hints:
//! the driver decides whether the module has them. All bytes may come from a hostile client.

use object::LittleEndian as Le;
use object::elf::{FileHeader64, SHT_SYMTAB, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader as _, Sym as _};

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
    let sections = FileHeader64::<Le>::parse(image).ok()?.sections(Le, image).ok()?;
    let table = sections.symbols(Le, image, SHT_SYMTAB).ok()?;
    let mut names = Names::default();
    // The names of a real module are parts of its image. In a hostile one, many symbols may share
    // one long name, and copies of it would fill the memory.
    let mut room = image.len();
    for symbol in table.iter().take(NAMES_MAX).filter(|symbol| !symbol.is_undefined(Le)) {
        let list = match symbol.st_type() {
            STT_OBJECT => &mut names.globals,
            STT_FUNC => &mut names.kernels,
            _ => continue,
        };
        // A name without an end stops the search. To skip many of them would take too long, because
        // each search for an end reads all strings.
        let Ok(name) = table.symbol_name(Le, symbol) else { break };
        let Some(left) = room.checked_sub(name.len()) else { break };
        room = left;
        let name = str::from_utf8(name).ok();
        list.extend(name.filter(|name| is_name(name)).map(str::to_owned));
    }
    Some(names)
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

    /// Returns an ELF file with these symbols (name, kind, section) and strings.
    fn elf(symbols: &[(u32, u8, u16)], text: &[u8]) -> Vec<u8> {
        // The header, the section headers of symbols and strings, then both contents.
        let mut image = vec![0_u8; 64];
        image.splice(..7, *b"\x7fELF\x02\x01\x01");
        image.splice(40..48, 64_u64.to_le_bytes());
        image.splice(58..60, 64_u16.to_le_bytes());
        image.splice(60..62, 2_u16.to_le_bytes());
        // The names of the sections are in the second one, too.
        image.splice(62..64, 1_u16.to_le_bytes());
        let section = |kind: u32, start: u64, bytes: u64, link: u32| {
            let mut header = vec![0_u8; 64];
            header.splice(4..8, kind.to_le_bytes());
            header.splice(24..32, start.to_le_bytes());
            header.splice(32..40, bytes.to_le_bytes());
            header.splice(40..44, link.to_le_bytes());
            header
        };
        let table = 24 * symbols.len() as u64;
        image.extend(section(2, 192, table, 1));
        image.extend(section(3, 192 + table, text.len() as u64, 0));
        for (name, info, defined) in symbols {
            image.extend(name.to_le_bytes());
            image.extend([*info, 0]);
            image.extend(defined.to_le_bytes());
            image.extend([0; 16]);
        }
        image.extend(text);
        image
    }

    #[test]
    fn elf_files_name_theirs() {
        let symbols = [(1_u32, 0x12_u8, 1_u16), (8, 0x11, 1), (14, 0x12, 0)];
        let image = elf(&symbols, b"\0kernel\0table\0outer\0");
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
    fn many_symbols_with_one_long_name_do_not_fill_the_memory() {
        let text = [vec![b'x'; 100_000], vec![0]].concat();
        let image = elf(&[(0, 0x12, 1); 1000], &text);
        let found: usize = names(&image).kernels.iter().map(String::len).sum();
        assert!((100_000..=image.len()).contains(&found), "{found} bytes of {}", image.len());
    }

    #[test]
    fn what_is_no_module_has_no_names() {
        for bytes in [b"".as_slice(), b"\x7fELF", b"hello .entry x (", b"\xFF\xFE.version"] {
            assert_eq!(names(bytes), Names::default());
        }
    }
}
