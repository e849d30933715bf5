//! The functions that the statements of translated kernels call. A program gets the ones that it
//! uses.
//!
//! `prelude/*.cl` consist of parts. Each part follows a line `//@ name name ...` with the names
//! that it defines.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::options::Options;
use crate::ir::{HEAP_BYTES_MAX, HEAP_SHIFT, HEAP_WINDOW};

const FILES: &[&str] = &[
    include_str!("prelude/memory.cl"),
    include_str!("prelude/malloc.cl"),
    include_str!("prelude/integer.cl"),
    include_str!("prelude/float.cl"),
    include_str!("prelude/convert.cl"),
    include_str!("prelude/half.cl"),
    include_str!("prelude/atomic.cl"),
    include_str!("prelude/warp.cl"),
    include_str!("prelude/texture.cl"),
];

/// Returns the parts that `code` uses, and the parts that these use, in the order of the files.
pub(super) fn parts(code: &str, options: &Options, exchanges_wide: bool) -> String {
    let all: Vec<(Vec<&str>, &str)> = FILES.iter().flat_map(|file| split(file)).collect();
    let mut known = HashMap::new();
    for (index, (names, _)) in all.iter().enumerate() {
        for name in names {
            known.insert(*name, index);
        }
    }
    let mut wanted = vec![false; all.len()];
    let mut queue = vec![code];
    while let Some(text) = queue.pop() {
        for word in words(text) {
            if let Some(&index) = known.get(word)
                && !std::mem::replace(&mut wanted[index], true)
            {
                queue.push(all[index].1);
            }
        }
    }
    let mut text = types();
    if code.contains("ps_word") {
        // The type of the values that threads of a warp exchange.
        let _ =
            writeln!(text, "typedef {} ps_word;", if exchanges_wide { "ulong" } else { "uint" });
    }
    if options.fp64 {
        text.push_str("#define WITH_DOUBLE\n");
    }
    text.push_str(&arenas(options));
    for ((_, part), _) in all.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
        // A part that can work without double precision names this part.
        if !options.fp64
            && part.lines().any(|line| !line.starts_with("//") && line.contains("double "))
            && !part.contains("#ifdef WITH_DOUBLE")
        {
            continue;
        }
        text.push_str(part);
    }
    text
}

fn split(file: &'static str) -> Vec<(Vec<&'static str>, &'static str)> {
    let mut parts = Vec::new();
    for part in file.split("//@ ").skip(1) {
        let (head, body) = part.split_once('\n').unwrap_or((part, ""));
        parts.push((head.split_whitespace().collect(), body));
    }
    parts
}

/// Returns the words of a text that can be names of the prelude.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("ps_"))
}

/// Returns the types with which memory is accessed. Programs store one type and load another, so
/// these types may alias each other; vectors may in any case.
fn types() -> String {
    let mut text = String::new();
    for name in ["uchar", "char", "ushort", "short", "uint", "int", "ulong", "long", "float"] {
        let _ = writeln!(text, "typedef {name} __attribute__((may_alias)) a_{name};");
        for lanes in [2, 4, 8] {
            let _ = writeln!(text, "typedef {name}{lanes} a_{name}{lanes};");
        }
    }
    text.push_str("#ifdef cl_khr_fp64\ntypedef double __attribute__((may_alias)) a_double;\ntypedef double2 a_double2;\ntypedef double4 a_double4;\n#endif\n");
    text
}

/// Defines `AT(address)`, the place of a device address. With several arenas, it is in the arena
/// that contains the address, or the last arena if none does. With a heap, also defines
/// `IN_HEAP(address)`: whether the address lies in the heap.
fn arenas(options: &Options) -> String {
    let mut text = String::new();
    if let [(base, size)] = options.arenas[..] {
        let _ = write!(text, "#define ARENA_BASE {base:#x}UL\n#define ARENA_SIZE {size:#x}UL\n");
        if !options.heap {
            text.push_str("#define AT(a) (arena0 + ((ulong)(a) - ARENA_BASE))\n");
            return text;
        }
    }
    let (mut head, mut parameters, mut body) = (String::new(), String::new(), String::new());
    let last = options.arenas.len() - 1;
    for (index, (base, size)) in options.arenas.iter().enumerate() {
        let _ = write!(head, "arena{index}, ");
        let _ = write!(parameters, "__global uchar *arena{index}, ");
        let offset = format!("a - {base:#x}UL");
        let _ = match index == last {
            true => write!(body, "arena{index} + ({offset})"),
            false => write!(body, "{offset} < {size:#x}UL ? arena{index} + ({offset}) : "),
        };
    }
    if options.heap {
        let _ = writeln!(
            text,
            "#define IN_HEAP(a) ((ulong)(a) >> {HEAP_SHIFT} == {:#x}UL)",
            HEAP_WINDOW >> HEAP_SHIFT
        );
        body = format!("IN_HEAP(a) ? heap + (a & {:#x}UL) : {body}", HEAP_BYTES_MAX - 1);
        head.insert_str(0, "heap, ");
        parameters.insert_str(0, "__global uchar *heap, ");
    }
    let _ = write!(
        text,
        "__global uchar *at_address({parameters}ulong a) {{ return {body}; }}\n#define AT(a) at_address({head}(ulong)(a))\n"
    );
    text
}
