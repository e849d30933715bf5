//! The text that comes out, where its shape matters: for speed, or for what it must not do.

use super::{Options, Translation, translate};
use crate::module::parse;

const BASE: u64 = 0x7000_0000_0000;

fn options() -> Options {
    Options {
        arenas: vec![(BASE, 1 << 30)],
        fp64: true,
        int64_atomics: true,
        exact_division: true,
        ..Options::default()
    }
}

fn of(body: &str, options: &Options) -> Translation {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{
        .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>; .shared .align 16 .b8 s[512];
        ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x;\n{body}\n}}"
    );
    translate(&parse(&text).unwrap(), options).unwrap()
}

fn source(body: &str) -> String {
    of(body, &options()).source
}

#[test]
fn an_address_becomes_a_base_and_an_index() {
    let text =
        source("mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; ld.global.f32 %f1, [%rd4+8]; ret;");
    assert!(text.contains("((__global a_float *)AT(r0))[(long)((ulong)(long)(int)r2 + 0x2UL)]"), "{text}");
}

#[test]
fn an_index_that_the_size_does_not_divide_stays_in_bytes() {
    let text = source("mul.wide.s32 %rd3, %r1, 6; add.s64 %rd4, %rd2, %rd3; ld.global.f32 %f1, [%rd4]; ret;");
    assert!(!text.contains("(__global a_float *)AT(r0))["), "{text}");
}

#[test]
fn shared_memory_is_indexed_by_elements_and_the_thread_read_again() {
    let text = source(
        "mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; bar.sync 0; ld.shared.f32 %f1, [%r4+16]; ret;",
    );
    assert!(text.contains("sh)[(int)(zero + (int)(uint)get_local_id(0) + 4)]"), "{text}");
}

#[test]
fn a_register_that_changed_since_is_not_looked_through() {
    // %r2 is what %rd3 was made of, but not what it is now.
    let text = source(
        "mov.u32 %r2, 1; mul.wide.s32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3; add.s32 %r2, %r2, 5; ld.global.u32 %r3, [%rd4]; ret;",
    );
    let load = text.lines().find(|line| line.contains("a_uint *)AT")).unwrap();
    assert!(!load.contains("(int)r"), "{load}");
}

#[test]
fn what_other_threads_may_change_is_read_each_time() {
    let wait = |how: &str| {
        source(&format!("L: ld{how}.global.u32 %r3, [%rd2]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; ret;"))
    };
    for how in [".volatile", ".relaxed.gpu", ".acquire.sys", ".cv"] {
        assert!(wait(how).contains("volatile a_uint *)AT"), "{how}: {}", wait(how));
    }
    for how in ["", ".weak", ".ca"] {
        assert!(!wait(how).contains("volatile a_uint *)AT"), "{how}: {}", wait(how));
    }
    assert!(wait(".acquire.gpu").contains("mem_fence("));
    let release = source("st.release.gpu.global.u32 [%rd2], %r1; ret;");
    assert!(release.find("mem_fence(").unwrap() < release.find("volatile a_uint *)AT").unwrap(), "{release}");
}

#[test]
fn pointers_in_loops_are_a_start_and_a_step() {
    let text = source(
        "mul.wide.s32 %rd3, %r1, 4; add.s64 %rd5, %rd2, %rd3; mov.u32 %r2, 0;
         L: ld.global.u32 %r3, [%rd5]; add.s64 %rd5, %rd5, 128; add.s32 %r2, %r2, 1; setp.lt.s32 %p1, %r2, 9; @%p1 bra L; ret;",
    );
    assert!(text.contains(" += (long)(0x8UL);"), "the step counts in 16 bytes: {text}");
    assert!(text.contains("(ulong)q") && text.contains(" * 0x10UL))["), "{text}");
}

#[test]
fn barriers_that_all_threads_reach_need_no_machine() {
    let uniform = "ld.param.u32 %r2, [b]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; bar.sync 0; L: ret;";
    let divergent = "setp.eq.u32 %p1, %r1, 0; @%p1 bra L; bar.sync 0; L: ret;";
    let kernel = |body: &str| of(body, &options()).kernels.remove(0);
    assert!(!kernel(uniform).is_machine);
    assert!(kernel(divergent).is_machine);
    assert!(kernel(divergent).uses_barriers);
}

#[test]
fn only_what_is_used_of_the_prelude_is_there() {
    assert!(!source("ret;").contains("ps_"));
    let text = source("div.s32 %r2, %r1, %r1; ret;");
    assert!(text.contains("int ps_idiv_int(") && !text.contains("ps_irem_int("));
}

#[test]
fn several_arenas_are_chosen_by_the_address() {
    let two = Options { arenas: vec![(BASE, 1 << 20), (BASE + (1 << 40), 1 << 20)], ..options() };
    let text = of("ld.global.u32 %r2, [%rd2]; ret;", &two).source;
    assert!(text.contains("__global uchar *arena0, __global uchar *arena1, const struct"), "{text}");
    assert!(
        text.contains("a - 0x700000000000UL < 0x100000UL ? arena0 + (a - 0x700000000000UL) : arena1"),
        "{text}"
    );
}

#[test]
fn nothing_is_contracted() {
    let text = source("mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f2; fma.rn.f32 %f5, %f1, %f2, %f3; ret;");
    assert!(text.starts_with("#pragma OPENCL FP_CONTRACT OFF"));
    assert!(text.contains("fma("));
}
