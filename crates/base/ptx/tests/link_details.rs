//! Linking modules that are unusual: aliases, comments inside operands, statements that are not
//! supported, contradictions inside one module.

use penstock_ptx::ir::Module;
use penstock_ptx::link::{Input, LinkError, Linked, link};
use penstock_ptx::module::parse;

const HEAD: &str = ".version 7.8\n.target sm_75\n.address_size 64\n";

fn linked(texts: &[&str]) -> Result<Linked, LinkError> {
    let read = |(index, text): (usize, &&str)| {
        let text =
            if text.contains(".version") { (*text).into() } else { format!("{HEAD}{text}\n") };
        Input::read(format!("m{index}"), text.into()).unwrap_or_else(|error| panic!("{error}"))
    };
    link(&texts.iter().enumerate().map(read).collect::<Vec<_>>())
}

fn text_of(texts: &[&str]) -> String {
    linked(texts).unwrap_or_else(|error| panic!("{texts:?}: {error}")).text
}

fn parsed(text: &str) -> Module {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A pointer that is taken before the `.alias` statement is one that a call can follow.
#[test]
fn a_pointer_to_an_alias_reaches_it() {
    let taker = ".visible .func (.param .b64 r) t() { .reg .b64 %rd; mov.u64 %rd, f; \
                 st.param.b64 [r], %rd; ret; }";
    let defined = ".visible .func f();\n.visible .func g() { ret; }\n.alias f, g;";
    let one = format!("{HEAD}.visible .func f();\n{taker}\n{defined}");
    let two = text_of(&[&format!(".extern .func f();\n{taker}"), defined]);
    for text in [one, two] {
        let module = parsed(&text);
        let alias = module.functions().iter().find(|it| it.name == "f").expect("the alias");
        assert!(alias.address_taken && alias.body.is_some(), "{text}");
    }
}

/// The name starts behind the sign and the comment.
#[test]
fn a_negated_name_is_renamed_at_its_place() {
    let text = |name: &str| {
        format!(
            ".global .u32 vabc;\n.visible .func {name}() {{ .reg .b32 %r1; \
             mov.b32 %r1, !/*ééé*/vabc; ret; }}"
        )
    };
    let text = text_of(&[&text("one"), &text("two")]);
    assert_eq!(text.matches("!/*ééé*/vabc;").count(), 1, "{text}");
    assert_eq!(text.matches("!/*ééé*/vabc$link2$;").count(), 1, "{text}");
    parsed(&text);
}

/// In a statement that is not supported, the opcode, its predicate and labels are no variables.
#[test]
fn only_operands_of_skipped_statements_are_names_of_the_module() {
    let text = |name: &str| {
        format!(
            ".global .u32 v, wgmma, there, p;\n.visible .func {name}() {{ .reg .pred p; \
             @p wgmma.mma [v], there; wgmma.fence [v+4], there; @!p wgmma.mma [v+8]; \
             {{ there: wgmma.wait wgmma; }} ret; }}"
        )
    };
    let result = text_of(&[&text("one"), &text("two")]);
    for kept in [
        "@p wgmma.mma [v$link2$], there;",
        "wgmma.fence [v$link2$+4], there;",
        "@!p wgmma.mma [v$link2$+8];",
        "{ there: wgmma.wait wgmma$link2$; }",
    ] {
        assert!(result.contains(kept), "{kept} is not in {result}");
    }
    parsed(&result);
}

/// The target with the largest number is chosen, and of those the one whose code suits only it.
/// Other words of the first module's target stay.
#[test]
fn only_the_architecture_of_the_target_changes() {
    for (one, two, expected) in [
        ("sm_75, texmode_independent", "sm_90", ".target sm_90, texmode_independent\n"),
        ("sm_90", "sm_90a", ".target sm_90a\n"),
        ("sm_90a", "sm_90", ".target sm_90a\n"),
        ("debug, sm_75", "sm_80, debug", ".target debug, sm_80\n"),
        ("sm_100", "sm_90a", ".target sm_100\n"),
    ] {
        let text = |target: &str| format!(".version 8.0\n.target {target}\n.address_size 64\n");
        let result = text_of(&[&text(one), &text(two)]);
        assert!(result.contains(expected), "{one}; {two}: {result}");
    }
}

/// A program that launches kernels on the device links. Its kernels that do so are refused when
/// they are launched, and its others are not.
#[test]
fn functions_of_the_device_runtime_are_not_missed() {
    for name in ["cudaLaunchDeviceV2", "cudaGetParameterBufferV2", "cudaDeviceSynchronize"] {
        let calls = format!(
            ".extern .func (.param .b32 r) {name}(.param .b64 a);\n.visible .entry e() {{ \
             {{ .param .b64 a; .param .b32 r; call.uni (r), {name}, (a); }} ret; }}"
        );
        parsed(&text_of(&[&calls, ".visible .entry other() { ret; }"]));
    }
}

#[test]
fn a_module_that_contradicts_itself_is_none() {
    for (text, is_right) in [
        (".extern .const .u32 v; .visible .global .u32 v;", false),
        (".extern .global .u32 v; .visible .global .u32 v[2];", false),
        (".visible .global .u32 v; .extern .global .u32 v[2];", false),
        (".extern .global .u32 v[3]; .extern .global .u32 v[2];", false),
        (".extern .shared .u32 v; .shared .u32 v[2];", false),
        (".extern .global .u32 v[]; .visible .global .u32 v[2];", true),
        (".visible .global .u32 v; .extern .global .b8 v[4];", true),
        (".extern .shared .u32 v[]; .shared .u32 v[2];", true),
    ] {
        let text = format!("{HEAD}{text}");
        assert_eq!(parse(&text).is_ok(), is_right, "{text}");
        assert_eq!(Input::read("m".into(), text.as_str().into()).is_ok(), is_right, "{text}");
    }
}

/// The message names the modules, and not a text that the program has never seen.
#[test]
fn two_aliases_of_external_declarations_are_two_definitions() {
    let text = |name: &str| {
        format!(".extern .func f();\n.visible .func {name}() {{ ret; }}\n.alias f, {name};")
    };
    let error = linked(&[&text("g"), &text("h")]).expect_err("f is defined twice");
    assert_eq!(
        error.to_string(),
        "error   : Multiple definition of 'f' in 'm1', first defined in 'm0'"
    );
}

/// Two modules may number their files alike, but one module may not do so.
#[test]
fn only_one_module_keeps_its_lines() {
    let text = |name: &str| {
        format!(
            ".visible .func {name}() {{ .loc 1 2 3\n{name}_label:\n.loc 1 3 4\nret; }}\n\
             .file 1 \"{name}.cu\"\n.section .debug_{name} {{ .b8 1 }}"
        )
    };
    let result = text_of(&[&text("one"), &text("two")]);
    for (word, count) in [(".file", 1), (".loc", 2), (".section", 1), ("one.cu", 1)] {
        assert_eq!(result.matches(word).count(), count, "{word}: {result}");
    }
    parsed(&result);
    let bare = ".visible .func three() { ret; }";
    let result = text_of(&[bare, &text("one")]);
    assert_eq!(result.matches(".loc").count(), 2, "{result}");
}
