//! Whatever a text says, reading it ends with a module or an error.

use penstock_ptx::fatbin;
use penstock_ptx::module::parse;
use proptest::prelude::*;

const TEXTS: [&str; 5] = [
    include_str!("ptx/inline.ptx"),
    include_str!("ptx/llvm.ptx"),
    include_str!("ptx/memory.ptx"),
    include_str!("ptx/textures.ptx"),
    include_str!("ptx/threads.ptx"),
];

/// Pieces that mean something in PTX, to be put where they do not belong.
const PIECES: [&str; 24] = [
    "{", "}", "(", ")", "[", "]", ";", ",", "|", "!", "@", ".", ":", "<", "-", "%r1", ".reg", ".param",
    ".v4", "0x", "\"", "/*", "call", "\u{e9}",
];

#[test]
fn a_text_that_ends_after_any_line_is_a_module_or_an_error() {
    for text in TEXTS {
        let mut read = 0;
        for (end, _) in text.match_indices('\n') {
            read += u32::from(parse(&text[..end]).is_ok());
        }
        assert!(read > 0, "the whole text is a module");
    }
}

fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0usize..12, 0..PIECES.len());
    (0..TEXTS.len(), prop::collection::vec(change, 1..6)).prop_map(|(text, changes)| {
        let mut text = TEXTS[text].to_owned();
        for (place, length, piece) in changes {
            let start = text.floor_char_boundary(place.index(text.len()));
            let end = text.floor_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, PIECES[piece]);
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_text_is_a_module_or_an_error(text in mutated()) {
        let lines = u32::try_from(text.lines().count()).expect("few");
        if let Err(error) = parse(&text) {
            prop_assert!(error.line <= lines + 1, "{error}");
        }
    }

    #[test]
    fn any_text_is_a_module_or_an_error(rest in "\\PC{0,200}") {
        _ = parse(&rest);
        _ = parse(&format!(".version 9.0\n.target sm_75\n{rest}"));
        _ = parse(&format!(".version 9.0\n.target sm_75\n.entry k() {{ {rest} }}"));
    }

    #[test]
    fn any_bytes_are_images_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = fatbin::images(&bytes);
        let mut fat = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
        fat.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        fat.extend_from_slice(&bytes);
        _ = fatbin::images(&fat);
    }
}
