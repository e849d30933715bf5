//! Parsing any text ends with a module or an error.

use std::fmt::Write as _;

use penstock_ptx::fatbin;
use penstock_ptx::module::parse;
use penstock_ptx::translate::{Options, TranslateError, Translation, translate};
use penstock_trial::in_time;
use proptest::prelude::*;

const TEXTS: [&str; 5] = [
    include_str!("../ptx/inline.ptx"),
    include_str!("../ptx/llvm.ptx"),
    include_str!("../ptx/memory.ptx"),
    include_str!("../ptx/textures.ptx"),
    include_str!("../ptx/threads.ptx"),
];

/// Pieces that have a meaning in PTX, to be inserted where they do not belong.
const PIECES: [&str; 24] = [
    "{", "}", "(", ")", "[", "]", ";", ",", "|", "!", "@", ".", ":", "<", "-", "%r1", ".reg",
    ".param", ".v4", "0x", "\"", "/*", "call", "\u{e9}",
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

/// Translates the body of a kernel that declares many registers `%rI`, `%pI` and `%rdI`.
fn translated(head: &str, body: &str) -> Result<Translation, TranslateError> {
    let text = format!(
        ".version 9.0\n.target sm_75\n{head}\n.entry k(.param .u64 a) {{ .reg .b32 %r<200000>; .reg .pred %p<200000>; .reg .b64 %rd<200000>;\n{body}\nret; }}"
    );
    let module = parse(&text).expect("a module");
    let options = Options { arenas: vec![(1 << 40, 1 << 30)], ..Options::default() };
    // A quadratic translation takes longer.
    in_time(&format!("{} bytes", text.len()), || translate(&module, &options))
}

#[test]
fn a_chain_of_values_in_opposite_order_takes_no_time() {
    // In each turn of the loop the thread's number moves one register further.
    const LENGTH: usize = 60_000;
    let mut body = String::from("L:\n");
    for index in (1..LENGTH).rev() {
        let _ = writeln!(body, "mov.u32 %r{index}, %r{};", index - 1);
    }
    let _ = writeln!(
        body,
        "mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r{}, 0; @%p1 bra E; bar.sync 0; bra L; E:",
        LENGTH - 1
    );
    assert!(
        translated("", &body).expect("nothing is too large").kernels[0].is_machine,
        "it gets there"
    );
}

#[test]
fn many_endless_loops_and_nested_branches_take_no_time() {
    const LOOPS: usize = 20_000;
    let mut body = String::from("mov.u32 %r1, %tid.x;\n");
    for index in 0..LOOPS {
        let _ = writeln!(
            body,
            "setp.eq.u32 %p{index}, %r1, {index}; @!%p{index} bra N{index}; L{index}: bra L{index}; N{index}:"
        );
    }
    assert!(translated("", &body).is_ok());
    let mut body = String::from("mov.u32 %r1, %tid.x;\n");
    for index in 0..LOOPS {
        let _ = writeln!(body, "setp.eq.u32 %p{index}, %r1, {index}; @%p{index} bra N{index};");
    }
    for index in (0..LOOPS).rev() {
        let _ = writeln!(body, "N{index}: add.u32 %r2, %r2, 1;");
    }
    assert!(translated("", &body).is_ok());
}

#[test]
fn many_loops_in_one_loop_take_no_time() {
    // Those that look at memory may wait for another thread, so each of them costs more.
    let kinds = [("", 20_000), ("ld.volatile.shared.u32 %r2, [s];", 1_000)];
    for (look, loops) in kinds {
        let mut body = String::from(".shared .align 4 .u32 s;\nO: mov.u32 %r1, 0;\n");
        for index in 0..loops {
            let _ = writeln!(
                body,
                "L{index}: {look} add.u32 %r1, %r1, 1;
                 setp.lt.u32 %p{index}, %r1, {index}; @%p{index} bra L{index};"
            );
        }
        body.push_str("bra O;\n");
        assert!(translated("", &body).is_ok());
    }
}

#[test]
fn sums_of_sums_take_no_time() {
    // Each register is incremented by the sum of the two before it, so their steps are queried many
    // times.
    const REGISTERS: usize = 90;
    let mut body = String::from("ld.param.u64 %rd1, [a];\n");
    for index in 0..REGISTERS {
        let _ = writeln!(body, "mov.u64 %rd{}, {index};", 100 + index);
    }
    body.push_str("L:\n");
    for index in 2..REGISTERS {
        let (own, sum) = (100 + index, 300 + index);
        let _ = writeln!(
            body,
            "add.u64 %rd{sum}, %rd{}, %rd{}; add.u64 %rd{own}, %rd{own}, %rd{sum};",
            own - 1,
            own - 2
        );
        let _ = writeln!(body, "add.u64 %rd2, %rd1, %rd{own}; ld.global.u32 %r1, [%rd2];");
    }
    body.push_str(
        "setp.eq.u32 %p1, %r1, 0; add.u64 %rd100, %rd100, 4; add.u64 %rd101, %rd101, 4; @%p1 bra L;",
    );
    assert!(translated("", &body).is_ok());
}

#[test]
fn a_register_that_is_written_everywhere_takes_no_time() {
    let mut body = String::from("ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x;\n");
    for _ in 0..15_000 {
        body.push_str("add.u32 %r1, %r1, 3; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;\n");
    }
    assert!(translated("", &body).is_ok());
}

#[test]
fn many_rows_of_votes_take_no_time() {
    // Each vote is a row of its own, because it needs the result of the one before.
    let mut body = String::from("mov.u32 %r1, %tid.x; mov.u32 %r2, -1;\n");
    for _ in 0..80_000 {
        body.push_str("setp.gt.u32 %p1, %r2, %r1; vote.sync.ballot.b32 %r2, %p1, -1;\n");
    }
    assert!(translated("", &body).is_ok());
}

#[test]
fn copies_of_functions_are_bounded_by_all_that_they_hold() {
    let names =
        |count: usize| (0..count).map(|index| format!("%r{index}")).collect::<Vec<_>>().join(", ");
    let calls = "call f, ();\n".repeat(2000);
    let many = format!(
        ".func f() {{ .reg .b32 %r<2000>; {} ret; }}",
        (0..1000).map(|index| format!("mov.u32 %r{index}, %r{};", index + 1)).collect::<String>()
    );
    assert!(matches!(translated(&many, &calls), Err(TranslateError::TooLarge { .. })));
    let formals = vec![".param .b32 _"; 3000].join(", ");
    let wide = format!(
        ".extern .func g({formals});\n.func f() {{ .reg .b32 %r<3000>; call g, ({}); ret; }}",
        names(3000)
    );
    let error = translated(&wide, &calls).expect_err("six million registers");
    assert!(matches!(error, TranslateError::TooLarge { what: "registers", .. }), "{error}");
    let same = format!(
        ".extern .func g({formals});\n.func f() {{ .reg .b32 %r0; call g, ({}); ret; }}",
        vec!["%r0"; 3000].join(", ")
    );
    let error = translated(&same, &calls).expect_err("six million arguments");
    assert!(matches!(error, TranslateError::TooLarge { what: "operands", .. }), "{error}");
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
    fn a_changed_text_is_a_module_or_an_error_and_so_is_its_translation(text in mutated()) {
        let lines = u32::try_from(text.lines().count()).expect("few");
        match parse(&text) {
            Err(error) => prop_assert!(error.line <= lines + 1, "{error}"),
            Ok(module) => {
                for check in [false, true] {
                    let options = Options { arenas: vec![(1 << 40, 1 << 30)], fp64: !check, check, ..Options::default() };
                    _ = translate(&module, &options);
                }
            }
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
