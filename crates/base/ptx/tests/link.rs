//! Linking modules: what nvlink takes is taken and means the same, what it refuses is refused with
//! its words. ptxas and nvlink of CUDA 13 were given the pairs here, and nvlink agrees about all
//! that ptxas compiles.

use std::fmt::Write as _;

use penstock_ptx::ir::{CallTarget, FunctionId, Module, Operand, Statement, Symbol};
use penstock_ptx::link::{Input, LinkError, Linked, link};
use penstock_ptx::module::parse;
use penstock_trial::in_time;
use proptest::prelude::*;

const HEAD: &str = ".version 7.8\n.target sm_75\n.address_size 64\n";

fn linked(texts: &[&str]) -> Result<Linked, LinkError> {
    let read = |(index, text): (usize, &&str)| {
        let text =
            if text.contains(".version") { (*text).into() } else { format!("{HEAD}{text}\n") };
        Input::read(format!("m{index}"), text.into()).unwrap_or_else(|error| panic!("{error}"))
    };
    link(&texts.iter().enumerate().map(read).collect::<Vec<_>>())
}

/// Links texts without a head and parses the result.
fn module(texts: &[&str]) -> Module {
    let linked = linked(texts).unwrap_or_else(|error| panic!("{texts:?}: {error}"));
    parse(&linked.text).unwrap_or_else(|error| panic!("{error}\n{}", linked.text))
}

/// A kernel with a body. `%r1` is what it computes.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        "{declarations}\n.visible .entry e(.param .u64 p) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; \
         {body} ret; }}"
    )
}

/// A function that adds a number to its argument.
fn adds(linkage: &str, name: &str, number: u32) -> String {
    format!(
        "{linkage} .func (.param .b32 r) {name}(.param .b32 x) {{ .reg .b32 %r<9>; \
         ld.param.b32 %r1, [x]; add.s32 %r1, %r1, {number}; st.param.b32 [r], %r1; ret; }}"
    )
}

fn call(name: &str) -> String {
    format!(
        "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], 7; call.uni (b), {name}, (a); \
         ld.param.b32 %r1, [b]; }}"
    )
}

const F: &str = ".extern .func (.param .b32 r) f(.param .b32 x);";

/// Returns the number that a function of [`adds`] adds.
fn added(module: &Module, id: FunctionId) -> Option<u64> {
    let body = module.function(id).body.as_ref()?;
    body.iter().find_map(|statement| match statement {
        Statement::Instruction(it) => it.operands.iter().find_map(|operand| match operand {
            Operand::Immediate(penstock_ptx::ir::Immediate::Integer(number)) => Some(*number),
            _ => None,
        }),
        Statement::Label(_) => None,
    })
}

/// Returns the functions that a function calls.
fn called(module: &Module, name: &str) -> Vec<FunctionId> {
    let function = module.functions().iter().find(|function| function.name == name);
    let body = function.and_then(|function| function.body.as_ref()).expect("a body");
    let target = |statement: &Statement| match statement {
        Statement::Instruction(it) => match it.call.as_ref()?.target {
            CallTarget::Direct(id) => Some(id),
            CallTarget::Indirect { .. } => None,
        },
        Statement::Label(_) => None,
    };
    body.iter().filter_map(target).collect()
}

/// Returns what the function that `name` calls adds.
fn sum_of(module: &Module, name: &str) -> u64 {
    let [callee] = called(module, name)[..] else { panic!("{name} calls one function") };
    added(module, callee).expect("it adds a number")
}

/// Returns the first four bytes of the variable whose address a function names.
fn value_in(module: &Module, function: &str) -> u32 {
    let function = module.functions().iter().find(|it| it.name == function).expect("a function");
    let symbol = function.body.iter().flatten().find_map(|statement| match statement {
        Statement::Instruction(it) => it.operands.iter().find_map(|operand| match operand {
            Operand::Address(address) => match address.base {
                penstock_ptx::ir::Base::Symbol(Symbol::Global(id)) => Some(id),
                _ => None,
            },
            _ => None,
        }),
        Statement::Label(_) => None,
    });
    let global = &module.globals()[symbol.expect("it names a variable").index()];
    assert!(global.size >= 4, "{} is defined", global.name);
    let start = usize::try_from(global.offset).expect("small");
    // The bytes end with the last that is not zero.
    let byte = |at| module.data().bytes.get(start + at).copied().unwrap_or(0);
    u32::from_le_bytes([0, 1, 2, 3].map(byte))
}

const LOAD: &str = "ld.global.u32 %r1, [v];";
const V: &str = ".extern .global .align 4 .u32 v;";

/// Two texts are one module, in any order, and the kernel has the expected function.
#[test]
fn functions_of_two_modules() {
    for (what, kernels, other, expected) in [
        ("external", kernel(F, &call("f")), adds(".visible", "f", 5), 5),
        ("weak, twice", kernel(&adds(".weak", "f", 6), &call("f")), adds(".weak", "f", 6), 6),
        (
            "weak and strong",
            kernel(&adds(".weak", "f", 6), &call("f")),
            adds(".visible", "f", 8),
            8,
        ),
        ("external and weak", kernel(F, &call("f")), adds(".weak", "f", 9), 9),
        (
            "declared, weak, and strong",
            kernel(
                &format!(".weak .func (.param .b32 r) f(.param .b32 x);{}", adds(".weak", "f", 6)),
                &call("f"),
            ),
            adds(".visible", "f", 8),
            8,
        ),
        ("static", kernel(&adds("", "f", 6), &call("f")), adds("", "f", 7), 6),
        ("static and visible", kernel(&adds("", "f", 6), &call("f")), adds(".visible", "f", 7), 6),
        (
            "an alias",
            kernel(F, &call("f")),
            format!(
                "{}.visible .func (.param .b32 r) f(.param .b32 x);\n.alias f, g;",
                adds(".visible", "g", 4)
            ),
            4,
        ),
        (
            "signs and alignments of parameters differ",
            kernel(F, &call("f")),
            ".visible .func (.param .s32 r) f(.param .align 8 .u32 x) { .reg .b32 %a; \
             ld.param.b32 %a, [x]; add.u32 %a, %a, 3; ret; }"
                .to_owned(),
            3,
        ),
    ] {
        for texts in [[&kernels, &other], [&other, &kernels]] {
            let module = module(&texts.map(String::as_str));
            assert_eq!(sum_of(&module, "e"), expected, "{what}");
        }
    }
}

#[test]
fn variables_of_two_modules() {
    for (what, declared, other, expected) in [
        ("external", V, ".visible .global .align 4 .u32 v = 9;", 9),
        ("external, another type", V, ".visible .global .align 4 .b8 v[4] = {1};", 1),
        ("without a size", ".extern .global .u32 v[];", ".visible .global .u32 v[4] = {2};", 2),
        ("weak and strong", ".weak .global .u32 v = 3;", ".visible .global .u32 v = 4;", 4),
        ("weak and external", ".weak .global .u32 v = 3;", V, 3),
        ("static", ".global .u32 v = 5;", ".global .u32 v = 6;", 5),
        ("static and visible", ".global .u32 v = 5;", ".visible .global .u32 v = 6;", 5),
        ("common", ".common .global .u32 v;", ".common .global .u32 v = 7;", 7),
        ("common and strong", ".common .global .u32 v;", ".visible .global .u32 v[2] = {8};", 8),
        ("common and external", ".common .global .u32 v;", V, 0),
        (
            "the last of a list",
            ".weak .global .u32 w = 1, v = 2;",
            ".visible .global .u32 v = 3;",
            3,
        ),
        (
            "the first of a list",
            ".weak .global .u32 v = 2, w = 1;",
            ".visible .global .u32 v = 3;",
            3,
        ),
        (
            "a name in brackets of another",
            ".weak .global .u32 w, v, x;",
            ".visible .global .u32 x = 5, w, v = 4;",
            4,
        ),
        (
            "declared before and after",
            ".extern .global .u32 v; .visible .global .u32 v = 2; .extern .global .u32 v;",
            ".extern .global .u32 v;",
            2,
        ),
    ] {
        let kernels = kernel(declared, LOAD);
        for texts in [[kernels.as_str(), other], [other, kernels.as_str()]] {
            let module = module(&texts);
            assert_eq!(value_in(&module, "e"), expected, "{what}");
        }
    }
}

#[test]
fn the_largest_common_variable_is_chosen() {
    let sizes =
        [".common .global .u32 v;", ".common .global .u32 v[3];", ".common .global .u32 v[2];"];
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let module = module(&order.map(|index| sizes[index]));
        let globals: Vec<_> = module.globals().iter().filter(|it| it.name == "v").collect();
        assert_eq!((globals.len(), globals[0].size), (1, 12), "{order:?}");
    }
}

/// nvlink's words.
#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let function = |signature: &str| format!(".visible .func {signature} {{ ret; }}");
    let calls = kernel(F, &call("f"));
    let loads = kernel(V, LOAD);
    let prototype = "Prototype doesn't match for 'f' in 'm1', first defined in 'm0'";
    let size = "Size doesn't match for 'v' in 'm1', first specified in 'm0'";
    let twice = "Multiple definition of 'v' in 'm1', first defined in 'm0'";
    let space = "Memory space doesn't match for 'v' in 'm1', first specified in 'm0'";
    let larger = "Common symbol 'v' in file 'm0' has larger size than initialization";
    for (one, two, expected) in [
        (
            kernel("", ""),
            kernel("", ""),
            "Multiple definition of 'e' in 'm1', first defined in 'm0'",
        ),
        (
            adds(".visible", "f", 1),
            adds(".visible", "f", 1),
            "Multiple definition of 'f' in 'm1', first defined in 'm0'",
        ),
        (calls.clone(), function("(.param .b32 r) f(.param .b64 x)"), prototype),
        (calls.clone(), function("(.param .b32 r) f(.param .f32 x)"), prototype),
        (calls.clone(), function("(.param .b32 r) f(.param .b32 x, .param .b32 y)"), prototype),
        (calls.clone(), function("f(.param .b32 x)"), prototype),
        (calls.clone(), function("(.param .b32 r) f(.param .align 4 .b8 x[4])"), prototype),
        (adds(".weak", "f", 1), function("(.param .b32 r) f(.param .b64 x)"), prototype),
        (
            adds(".weak", "e", 1),
            kernel("", ""),
            "Function 'e' not declared __global__ in all source files: 'm0', 'm1'",
        ),
        (loads.clone(), adds(".visible", "v", 1), space),
        (loads.clone(), ".visible .const .u32 v = 1;".into(), space),
        (loads.clone(), ".visible .global .u32 v[2];".into(), size),
        (".weak .global .u32 v = 1;".into(), ".weak .global .u32 v[2];".into(), size),
        (".visible .global .u32 v;".into(), ".visible .global .u32 v;".into(), twice),
        (".visible .shared .u32 v;".into(), ".visible .shared .u32 v;".into(), twice),
        (".common .global .u32 v = 1;".into(), ".common .global .u32 v = 1;".into(), twice),
        (".common .global .u32 v[2];".into(), ".visible .global .u32 v;".into(), larger),
        (".common .global .u32 v[2];".into(), ".common .global .u32 v = 1;".into(), larger),
        (loads.clone(), ".common .global .u32 v[2];".into(), size),
        (
            loads.clone(),
            ".visible .global .attribute(.managed) .u32 v;".into(),
            "Managed attribute doesn't match for 'v' in 'm1', first specified in 'm0'",
        ),
    ] {
        let error = linked(&[&one, &two]).expect_err(expected);
        assert_eq!(error.to_string(), format!("error   : {expected}"), "{one}\n{two}");
    }
}

#[test]
fn what_nobody_defines_is_refused_by_name() {
    let undefined =
        |name, module| format!("error   : Undefined reference to '{name}' in '{module}'");
    let calls = |linkage: &str, name: &str| {
        format!("{F}\n{linkage} .func {name}() {{ .reg .b32 %r1; {} ret; }}", call("f"))
    };
    for (one, two, expected) in [
        (kernel(V, LOAD), String::new(), vec![undefined("v", "m0")]),
        (kernel(V, ""), String::new(), vec![undefined("v", "m0")]),
        (kernel(V, LOAD), ".global .u32 v;".to_owned(), vec![undefined("v", "m0")]),
        (kernel("", ""), format!("{V} .global .u64 q = v;"), vec![undefined("v", "m1")]),
        (kernel(F, &call("f")), adds("", "f", 1), vec![undefined("f", "m0")]),
        (kernel(F, ""), String::new(), vec![]),
        (kernel(F, ""), calls("", "g"), vec![]),
        (kernel(F, ""), calls(".visible", "g"), vec![]),
        (
            kernel(".extern .func g();", "call.uni g;"),
            calls(".visible", "g"),
            vec![undefined("f", "m1")],
        ),
        (kernel("", ""), format!("{F} .global .u64 q = f;"), vec![undefined("f", "m1")]),
        (
            kernel("", ""),
            format!("{F} .func g() {{ .reg .b64 %a; mov.u64 %a, f; }}"),
            vec![undefined("f", "m1")],
        ),
        (
            kernel(&format!("{F}{V}"), &(call("f") + LOAD)),
            kernel(&format!("{F}{V}"), &(call("f") + LOAD)).replace(" e(", " e2("),
            vec![
                undefined("v", "m0"),
                undefined("v", "m1"),
                undefined("f", "m0"),
                undefined("f", "m1"),
            ],
        ),
        (
            ".extern .shared .u32 s; .visible .entry e() { st.shared.u32 [s], 1; }".to_owned(),
            String::new(),
            vec![undefined("s", "m0")],
        ),
        (
            ".extern .shared .align 4 .b8 s[]; \
             .visible .entry e() { st.shared.u32 [s], 1; }"
                .to_owned(),
            String::new(),
            vec![],
        ),
        (
            ".extern .func vprintf(.param .b64 a, .param .b64 b); \
             .visible .entry e() { call.uni vprintf, (1, 2); }"
                .to_owned(),
            String::new(),
            vec![],
        ),
    ] {
        let told = linked(&[&one, &two]).err().map_or(String::new(), |error| error.to_string());
        assert_eq!(told, expected.join("\n"), "{one}\n{two}");
    }
}

#[test]
fn names_of_two_modules_stay_apart_wherever_they_are_used() {
    // A register, a label and a parameter of this name are not the variable. The name in the
    // instruction that is not supported is.
    let text = |number: u32, name: &str| {
        format!(
            ".global .u32 v = {number};\n.global .u64 p[2] = {{v, generic(v)+4}};\n\
             .global .b8 q[8] = {{{}}};\n.func own() {{ ret; }}\n\
             .visible .func {name}_hidden(.param .b32 v) {{ .reg .b32 %a; \
             ld.param.b32 %a, [v]; ret; }}\n\
             .visible .func {name}_label() {{ .reg .b32 v; mov.b32 v, 1; ret; }}\n\
             .visible .func {name}_refused() {{ .reg .b32 %a; wgmma.{name} %a, [v+4]; ret; }}\n\
             .visible .entry {name}(.param .u64 x) {{ .reg .b32 %v<3>; .reg .b64 %d; \
             ld.global.u32 %v1, [v]; \
             mov.u64 %d, own; call own; bra v; v: ret; }}",
            (0..8)
                .map(|byte| format!("{:#x}(v)", 0xff_u64 << (8 * byte)))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let (one, two) = (text(1, "one"), text(2, "two"));
    let result = linked(&[&one, &two]).expect("nothing is visible");
    // v, p, q and own of the second module.
    assert_eq!(result.renamed, 4);
    let module = parse(&result.text).expect("a module");
    assert_eq!((value_in(&module, "one"), value_in(&module, "two")), (1, 2));
    assert_ne!(called(&module, "one"), called(&module, "two"));
    assert!(result.text.contains("wgmma.two %a, [v$link2$+4]"), "{}", result.text);
    assert!(result.text.contains("wgmma.one %a, [v+4]"));
    let offset_of =
        |name: &str| module.globals().iter().find(|it| it.name == name).map(|it| it.offset);
    let own = |from: &str, to: &str| {
        let (from, to) = (offset_of(from).expect(from), offset_of(to).expect(to));
        let pointing = |it: &&penstock_ptx::ir::Relocation| (from..from + 16).contains(&it.offset);
        let targets = module.data().relocations.iter().filter(pointing);
        targets.map(|it| it.target - to.cast_signed()).collect::<Vec<_>>()
    };
    assert_eq!(own("p", "v"), [0, 4]);
    assert_eq!(own("p$link2$", "v$link2$"), [0, 4]);
    // Linked once more, the new names stay apart, too.
    let three = text(3, "three");
    let again = linked(&[&result.text, &two.replace("two", "four"), &three]).expect("linked again");
    let module = parse(&again.text).expect("a module");
    let values = ["one", "two", "three", "four"].map(|name| value_in(&module, name));
    assert_eq!(values, [1, 2, 3, 2]);
}

/// What was the whole linker.
fn joined(texts: &[&str]) -> String {
    let mut text = texts[0].to_owned();
    for other in &texts[1..] {
        let body = other.lines().filter(|line| {
            let line = line.trim_start();
            ![".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word))
        });
        text.push('\n');
        body.for_each(|line| text.extend([line, "\n"]));
    }
    text
}

#[test]
fn modules_without_a_common_name_are_joined() {
    let one = format!("// a comment\n{HEAD}{}", kernel(&adds("", "f", 1), &call("f")));
    let two = format!("//\n{HEAD}\n.file 1 \"a.cu\"\n{}\n\n", adds(".visible", "g", 2));
    let three = format!("{HEAD}.visible .global .u32 v = 1;\n.extern .shared .align 4 .b8 s[];");
    let texts = [one.as_str(), two.as_str(), three.as_str()];
    let result = linked(&texts).expect("nothing in common");
    assert_eq!(result.text, joined(&texts));
    assert_eq!((result.renamed, result.merged), (0, 0));
    assert_eq!(linked(&texts[..1]).expect("one module").text, one);
}

#[test]
fn the_newest_version_and_target_are_those_of_the_result() {
    let old = ".version 7.0 .target sm_70 .address_size 64 .visible .global .u32 a;";
    let new = ".version 8.1\n.target sm_75\n.visible .global .u32 b;";
    for texts in [[old, new], [new, old]] {
        let module = module(&texts);
        assert_eq!((module.version(), module.target()), ((8, 1), 75));
        assert_eq!(module.globals().len(), 2);
    }
}

#[test]
fn shared_memory_of_two_modules() {
    let kernels =
        |declared: &str| format!("{declared} .visible .entry e() {{ st.shared.u32 [s], 1; }}");
    let function = ".visible .func f() { st.shared.u32 [s], 2; }";
    for (one, two, expected) in [
        (".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b32 s[];", vec![(0, 16)]),
        (
            ".extern .shared .align 4 .b8 s[];",
            ".visible .shared .align 4 .b8 s[16];",
            vec![(16, 4)],
        ),
        (".extern .shared .align 4 .u32 s;", ".visible .shared .align 4 .u32 s;", vec![(4, 4)]),
        (".weak .shared .align 4 .u32 s;", ".weak .shared .align 4 .u32 s;", vec![(4, 4)]),
        (".shared .align 4 .u32 s;", ".shared .align 8 .u64 s;", vec![(4, 4), (8, 8)]),
    ] {
        let module = module(&[&kernels(one), &format!("{two}{function}")]);
        let found: Vec<_> = module.shared().iter().map(|it| (it.size, it.align)).collect();
        assert_eq!(found, expected, "{one} {two}");
    }
}

/// Returns a text with this number of variables and functions, whose names are static or external.
fn large(count: u32, module: u32) -> String {
    let mut text = String::from(HEAD);
    for index in 0..count {
        let _ = writeln!(
            text,
            ".global .u32 v{index} = 1;\n.weak .global .u32 w{index};\n\
             .func f{index}() {{ .reg .b32 %r<9>; \
             ld.global.u32 %r1, [v{index}]; st.global.u32 [w{index}], %r1; ret; }}\n\
             .visible .func g{module}_{index}() {{ call f{index}; ret; }}"
        );
    }
    text
}

#[test]
fn many_names_take_no_time() {
    let texts: Vec<String> = (0..4).map(|module| large(3_000, module)).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    let result = in_time(&format!("{bytes} bytes"), || {
        linked(&texts.iter().map(String::as_str).collect::<Vec<_>>()).expect("nothing contradicts")
    });
    assert_eq!((result.renamed, result.merged), (3 * 6_000, 3 * 3_000));
}

#[test]
fn problems_are_counted_when_they_are_many() {
    let mut text = String::new();
    for index in 0..150 {
        let _ = writeln!(text, ".visible .global .u32 v{index};");
    }
    let error = linked(&[&text, &text]).expect_err("all names are defined twice");
    assert_eq!(error.problems().len(), 100);
    assert!(error.to_string().ends_with("error   : 50 more problems"), "{error}");
    assert_eq!(
        link(&[]).expect_err("nothing").to_string(),
        "error   : no module was added to the linker"
    );
}

#[test]
fn parts_of_texts_are_refused_or_linked() {
    let whole = format!("{HEAD}{}", kernel(&adds(".weak", "f", 1), &call("f")));
    let other = format!("{HEAD}{}", adds(".weak", "f", 1));
    for end in 0..whole.len() {
        let inputs = [&whole[..end], &other].map(|text| Input::read("m".into(), text.into()));
        let [Ok(one), Ok(two)] = inputs else { continue };
        if let Ok(linked) = link(&[one, two]) {
            assert!(parse(&linked.text).is_ok(), "{}", linked.text);
        }
    }
}

/// A declaration of a random module. All modules have the same few names.
fn declaration(kind: u8, linkage: u8, one: usize, two: usize) -> String {
    let linkage = ["", ".visible", ".weak", ".weak"][usize::from(linkage)];
    let (f, v) = (["f", "g", "h"][one], ["v", "w", "x"][one]);
    let (callee, other) = (["f", "g", "h"][two], ["v", "w", "x"][two]);
    let signature = format!("(.param .b32 r) {f}(.param .b32 x)");
    match kind {
        0 => format!(".extern .func {signature};"),
        1 => format!("{linkage} .func {signature};"),
        2 => format!("{linkage} .func {signature} {{ ret; }}"),
        3 => format!("{linkage} .func {signature} {{ {} ret; }}", call(callee)),
        4 => format!(".extern .global .u64 {v};"),
        5 => format!("{linkage} .global .u64 {v} = 1;"),
        6 => format!("{linkage} .global .u64 {v} = {other}, {other} = {callee};"),
        7 => format!(".common .global .u64 {v}, {other}[2];"),
        8 => format!("{linkage} .shared .u32 s{one};"),
        9 => format!(".extern .shared .b8 s{one}[];"),
        10 => format!("{linkage} .func {signature} {{ .reg .b64 %d; mov.u64 %d, {other}; ret; }}"),
        11 => format!(".alias {f}, {callee};"),
        _ => format!("{linkage} .entry k{one}() {{ .reg .b32 %r1; wgmma {other}, s{two}; ret; }}"),
    }
}

proptest! {
    /// The result of a link is a module if each input is one.
    #[test]
    fn random_modules_are_refused_or_linked(
        chosen in proptest::collection::vec(
            (0_usize..3, 0_u8..13, 0_u8..4, 0_usize..3, 0_usize..3),
            1..14,
        )
    ) {
        let mut texts = [HEAD; 3].map(str::to_owned);
        for (module, kind, linkage, one, two) in chosen {
            let text = &mut texts[module];
            // A module that contradicts itself is none.
            let longer = format!("{text}{}\n", declaration(kind, linkage, one, two));
            if Input::read(String::new(), longer.as_str().into()).is_ok() {
                *text = longer;
            }
        }
        if let Ok(result) = linked(&texts.each_ref().map(String::as_str)) {
            prop_assert!(parse(&result.text).is_ok(), "{}\n{}", texts.concat(), result.text);
        }
    }
}
