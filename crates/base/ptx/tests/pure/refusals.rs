//! Unsupported PTX is refused with its place and its text, and never read as something else.

use penstock_ptx::module::{OperandProblem, ParseError, ParseErrorKind, parse};

use penstock_ptx::translate::{Options, TranslateError, translate_kernels};

/// Parses a kernel with one line in it, which is the sixth of the text, and registers of every
/// kind. Returns why the module or the kernel is refused.
fn kernel(line: &str) -> Result<(), ParseError> {
    let text = format!(
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n\
         .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .f64 %fd<4>;\n{line}\nret; }}\n"
    );
    let module = parse(&text)?;
    module.functions()[0].refusal.clone().map_or(Ok(()), Err)
}

fn refusal(line: &str) -> ParseError {
    kernel(line).expect_err(line)
}

#[test]
fn an_unknown_instruction_is_named_with_its_place() {
    let error = refusal("  wgmma.fence.sync.aligned;");
    assert_eq!((error.line, error.column), (6, 3));
    assert_eq!(
        error.kind,
        ParseErrorKind::UnknownInstruction("wgmma.fence.sync.aligned".to_owned())
    );
    assert_eq!(
        error.to_string(),
        "ptx:6:3: the instruction `wgmma.fence.sync.aligned` is not supported"
    );
}

/// ptxas takes all of these, and they are not served.
#[test]
fn forms_that_are_not_served_refuse_their_kernel_and_not_the_module() {
    for line in [
        "ld.global.u32 %r1, a[1];",
        "st.global.u32 a[%r2], %r1;",
        "mov.u64 %rd1, a[%r1+1];",
        "vabsdiff4.u32.u32.u32 %r1.b3210, %r2.b7654, %r3.b3210, %r4;",
        "vabsdiff.u32.u32.u32.add %r1, %r2.b0, %r3.h1, %r3;",
        "vadd4.u32.u32.u32.sat %r1, %r2, %r3, %r3;",
        "vset2.u32.u32.gt %r1, %r2, %r3, %r3;",
        "vmad.s32.s32.s32.sat.shr7 %r1, %r2.b0, -%r3.b1, %r3;",
        "alloca.u64 %rd1, %rd2, 8;",
        "stacksave.u64 %rd1;",
        "stackrestore.u64 %rd1;",
        "cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r3;",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r3}, {%r2}, {%r3, %r1};",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r1}, [%r2];",
        "mov.u32 %r1, %pm0;",
    ] {
        let text = format!(
            ".version 9.0\n.target sm_75\n.address_size 64\n.global .u32 a[8];\n\
             .visible .entry bad() {{ .reg .b32 %r<4>; .reg .b64 %rd<4>; {line} ret; }}\n\
             .visible .entry good() {{ ret; }}\n"
        );
        let module = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let refused: Vec<bool> =
            module.functions().iter().map(|function| function.refusal.is_some()).collect();
        assert_eq!(refused, [true, false], "{line}");
    }
}

#[test]
fn an_unknown_form_is_quoted() {
    let error = refusal("@%p1 add.rn.s32\t%r1, %r2, %r3;");
    assert_eq!(error.column, 6);
    assert_eq!(
        error.kind,
        ParseErrorKind::UnknownForm {
            opcode: "add".to_owned(),
            text: "add.rn.s32 %r1, %r2, %r3".to_owned()
        }
    );
    for line in [
        "add.u8 %r1, %r1, %r1;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.equ.s32 %p1, %r1, %r2;",
        "cvt.f32.f64 %f1, %fd1;",
        "cvt.rn.u32.u16 %r1, %rs1;",
        // Conversions that cannot have `.relu`.
        "cvt.rn.relu.f32.bf16 %f1, %rs1;",
        // Memory orders that the instruction does not have, and scopes of weak accesses.
        "ld.acq_rel.gpu.global.u32 %r1, [%rd1];",
        "ld.release.gpu.global.u32 %r1, [%rd1];",
        "ld.gpu.global.u32 %r1, [%rd1];",
        "ld.weak.gpu.global.u32 %r1, [%rd1];",
        "st.acquire.gpu.global.u32 [%rd1], %r1;",
        "atom.weak.global.add.u32 %r1, [%rd1], 1;",
        "red.acquire.gpu.global.add.u32 [%rd1], 1;",
        "fence.weak.cta;",
        "fence.volatile.gpu;",
        // Vector sizes that only global memory supports.
        "ld.shared.v8.f32 {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1}, [%r1];",
        "ld.local.v4.u64 {%rd1, %rd1, %rd1, %rd1}, [%rd1];",
        "mul.u32 %r1, %r1, %r1;",
    ] {
        assert!(matches!(refusal(line).kind, ParseErrorKind::UnknownForm { .. }), "{line}");
    }
}

#[test]
fn operands_of_the_wrong_type_are_refused() {
    for line in [
        "add.s32 %r1, %f2, %r3;",
        "add.s32 %rd1, %r2, %r3;",
        "add.f32 %f1, %f2, 1;",
        "add.s32 %r1, %r2, %p1;",
        "selp.b32 %r1, %r2, %r3, %r1;",
        "@%r1 ret;",
        "mov.u32 %r1, a[%r2];",
        "ld.global.u32 %r1, [a[1]];",
        "mul.wide.u32 %r1, %r2, %r3;",
        "ld.global.u64 %r1, [%rd1];",
        "ld.global.v2.u32 %r1, [%rd1];",
        "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];",
        "ld.global.u32 %r1, %rd1;",
        "ld.global.u32 %r1, [%f1];",
        "ld.global.u32 %r1, [a];",
        "mov.b64 %rd1, {%r1, %rs1};",
        "add.s32 %r1, %r2, !%r3;",
        "add.s32 1, %r2, %r3;",
        "add.s32 %tid.x, %r2, %r3;",
    ] {
        assert!(
            matches!(refusal(line).kind, ParseErrorKind::Operand { .. }),
            "{line}: {}",
            refusal(line)
        );
    }
    let ParseErrorKind::Operand { number, problem, .. } = refusal("add.s32 %r1, %r2, %f3;").kind
    else {
        panic!("an operand")
    };
    assert_eq!(number, 3);
    assert_eq!(
        problem,
        OperandProblem::Type { name: "%f3".to_owned(), found: "f32", needed: "s32" }
    );
}

#[test]
fn names_and_counts_are_checked() {
    assert_eq!(
        refusal("add.s32 %r1, %r2, %r9;").kind,
        ParseErrorKind::UnknownName("%r9".to_owned()),
        "%r<4> ends at %r3"
    );
    assert_eq!(refusal("bra nowhere;").kind, ParseErrorKind::UnknownName("nowhere".to_owned()));
    assert_eq!(refusal("call nobody, ();").kind, ParseErrorKind::UnknownName("nobody".to_owned()));
    assert!(matches!(refusal("add.s32 %r1, %r2;").kind, ParseErrorKind::OperandCount(_)));
    assert!(matches!(refusal("add.s32 %r1, %r2, %r3, %r3;").kind, ParseErrorKind::OperandCount(_)));
    assert!(matches!(refusal("add.s32 %r1|%r2, %r2, %r3;").kind, ParseErrorKind::OperandCount(_)));
    assert!(matches!(refusal("x: x: ret;").kind, ParseErrorKind::Duplicate(_)));
    assert!(matches!(refusal(".reg .b32 %r<3>;").kind, ParseErrorKind::Duplicate(_)));
}

#[test]
fn a_label_of_an_inner_block_is_not_seen_outside() {
    assert!(kernel("{ inner: bra inner; bra outer; } outer: ret;").is_ok());
    assert!(matches!(refusal("{ inner: ret; } bra inner;").kind, ParseErrorKind::UnknownName(_)));
}

#[test]
fn an_alias_is_declared_and_stands_for_one_function() {
    let text = |aliases: &str| {
        format!(
            ".version 9.0\n.target sm_75\n.visible .func a();\n.visible .func b() {{ ret; }}\n\
             .visible .func c() {{ ret; }}\n{aliases}"
        )
    };
    let kind = |aliases: &str| parse(&text(aliases)).expect_err(aliases).kind;
    assert!(parse(&text(".alias a, b;")).is_ok());
    assert_eq!(kind(".alias a, b; .alias a, c;"), ParseErrorKind::Duplicate("a".to_owned()));
    assert_eq!(kind(".alias b, c;"), ParseErrorKind::Duplicate("b".to_owned()));
    assert_eq!(kind(".alias d, c;"), ParseErrorKind::UnknownName("d".to_owned()));
}

#[test]
fn a_definition_may_follow_the_use_of_a_variable() {
    let text = |space: &str, value: &str| {
        format!(
            ".version 9.0\n.target sm_75\n.extern .{space} .u32 x;\n\
             .entry k() {{ .reg .b32 %r; ld.{space}.u32 %r, [x]; }}\n\
             .visible .{space} .u32 x{value};"
        )
    };
    let module = parse(&text("global", " = 7")).expect("a module");
    assert_eq!((module.globals().len(), module.globals()[0].size), (1, 4));
    assert_eq!(module.data().bytes, [7, 0, 0, 0]);
    assert!(parse(&text("const", " = 7")).is_ok());
    let module = parse(&text("shared", "")).expect("a module");
    assert_eq!((module.shared().len(), module.entries()[0].static_shared), (1, 4));
    assert!(!module.entries()[0].uses_dynamic_shared);
}

#[test]
fn variables_of_other_modules_are_refused_where_they_are_used() {
    let text = |body: &str| {
        format!(
            ".version 9.0\n.target sm_75\n.extern .global .u32 x;\n.entry k() {{ .reg .b32 %r; {body} }}"
        )
    };
    assert!(parse(&text("ret;")).is_ok());
    let error = parse(&text("ld.global.u32 %r, [x];")).expect_err("another module has it");
    assert_eq!(error.kind, ParseErrorKind::ExternalVariable("x".to_owned()));
}

#[test]
fn sizes_have_limits() {
    let head = ".version 9.0\n.target sm_75\n";
    for rest in [
        ".global .b8 x[99999999999999999];",
        ".global .b8 x[4294967296][4294967296];",
        ".shared .b8 x[4194304]; .entry k() { ret; }",
        ".entry k() { .local .b8 x[4194304]; ret; }",
        ".global .b32 x[100000000] = {1}; .global .b32 y = 2; .global .b32 z = 1",
        ".global .align 3 .b32 x;",
        ".global .align 1073741824 .b32 x;",
        ".entry k(.param .b8 x[2097152]) { ret; }",
        ".entry k() .reqntid 65536, 65536, 1 { ret; }",
        ".entry k() .reqntid 32, 33 { ret; }",
        ".entry k() .reqntid 0 { ret; }",
        ".entry k() { bar.sync 16; ret; }",
        ".entry k() { bar.arrive 99, 32; ret; }",
        ".entry k() { .reg .pred %p; .reg .b32 %r; bar.red.popc.u32 %r, 16, %p; ret; }",
    ] {
        assert!(parse(&format!("{head}{rest}")).is_err(), "{rest}");
    }
}

#[test]
fn the_head_is_needed() {
    for text in [
        "",
        ".target sm_75",
        ".version 9.0",
        ".version 9\n.target sm_75",
        ".version 9.0\n.target sm_75\n.address_size 32",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

/// Returns the kernels that can be translated, and the others with the reasons.
fn kernels_of(text: &str) -> (Vec<String>, Vec<(String, TranslateError)>) {
    let module = parse(&format!(".version 9.0\n.target sm_75\n{text}")).expect("a module");
    let all: Vec<usize> = (0..module.entries().len()).collect();
    let options = Options { arenas: vec![(1 << 40, 1 << 30)], ..Options::default() };
    let made = translate_kernels(&module, &all, &options).expect("an arena");
    assert!(!made.source.contains("nonsense"));
    let refused = made.refused.into_iter().map(|kernel| (kernel.name, kernel.error));
    (made.kernels.into_iter().map(|kernel| kernel.name).collect(), refused.collect())
}

#[test]
fn an_unknown_instruction_refuses_only_the_kernels_that_reach_it() {
    let (served, refused) = kernels_of(
        ".global .u32 x = 5;
         .func f() { .reg .b32 %r<3>;
           nonsense.v4 {%r1, %r2}, [x+4], {1; 2}; add.u32 %r1, %r1, 1; ret; }
         .func over() { call f; ret; }
         .func unused() { nonsense; }
         .entry plain() { ret; }
         .entry own() { .reg .b32 %r<3>; L:
           add.u32 %r1, %r2, 1; nonsense %r1; more.nonsense; bra L; }
         .entry calls() { call f; ret; }
         .entry deep() { call over; ret; }
         .entry late() { ret; }",
    );
    assert_eq!(served, ["plain", "late"]);
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["own", "calls", "deep"]);
    let reasons: Vec<String> = refused.iter().map(|(_, error)| error.to_string()).collect();
    let own = "the instruction `nonsense %r1` is not supported, in the function own";
    assert!(reasons[0].starts_with("ptx:10:") && reasons[0].ends_with(own), "{}", reasons[0]);
    assert!(reasons[1].starts_with("ptx:5:") && reasons[1].ends_with("function f"), "{reasons:?}");
    assert_eq!(reasons[1], reasons[2]);
}

#[test]
fn a_function_behind_a_pointer_refuses_the_kernels_that_may_call_it() {
    let (served, refused) = kernels_of(
        ".func f(.param .b32 a) { nonsense; ret; }
         .func g(.param .b64 a) { ret; }
         .global .u64 table[2] = {f, g};
         .entry narrow() { .reg .b64 %rd; ld.global.u64 %rd, [table]; .param .b32 a;
           p: .callprototype _ (.param .b32 _); call %rd, (a), p; ret; }
         .entry wide() { .reg .b64 %rd; ld.global.u64 %rd, [table]; .param .b64 a;
           p: .callprototype _ (.param .b64 _); call %rd, (a), p; ret; }",
    );
    assert_eq!(served, ["wide"]);
    assert_eq!(refused[0].0, "narrow");
}

#[test]
fn what_cannot_be_read_refuses_the_module() {
    for body in [
        "nonsense %r1",
        "nonsense {%r1;",
        "nonsense %r1]; ret;",
        "nonsense; add.u32 %r1, %r1 1;",
        "nonsense; bra nowhere;",
        "nonsense; x: x: ret;",
        "nonsense; .reg .b32 %r<3>;",
        "nonsense \"text;",
        "call nobody;",
        "add.u32 %r1, %r1, name;",
    ] {
        let head = ".version 9.0\n.target sm_75\n";
        let text = format!("{head}.entry k() {{ .reg .b32 %r<3>; {body} }}");
        assert!(parse(&text).is_err(), "{body}");
    }
}
