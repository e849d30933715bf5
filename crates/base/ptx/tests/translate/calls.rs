//! Calls through pointers, and calls whose arguments and results share variables.

use super::{BASE, FREE, HEAD, OUT, machines, words};

fn called(functions: &str, body: &str, expected: impl Fn(u32) -> u32) {
    for machine in machines() {
        let ready = machine
            .build(&format!("{HEAD}{functions}{}", super::kernel(body)))
            .unwrap_or_else(|error| panic!("{error}"));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 32, 0);
        for (thread, value) in (0..).zip(words(&machine, OUT, 32)) {
            assert_eq!(value, expected(thread), "{}: {thread}", machine.name);
        }
    }
}

#[test]
fn an_argument_is_kept_when_its_variable_takes_the_result() {
    // The function writes its result before it has read all of its argument.
    let function = ".func (.param .align 8 .b8 r[12]) turn(.param .align 8 .b8 s[12]) { .reg .b32 %r<5>;
        ld.param.u32 %r1, [s]; st.param.u32 [r+8], %r1; ld.param.u32 %r2, [s+8]; st.param.u32 [r], %r2; ld.param.u32 %r3, [s+4]; st.param.u32 [r+4], %r3; ret; }
";
    let body =
        "{ .param .align 8 .b8 v[12]; st.param.u32 [v], %t; st.param.u32 [v+4], 7; st.param.u32 [v+8], 50;
        call (v), turn, (v); ld.param.u32 %r2, [v]; ld.param.u32 %r3, [v+8]; ld.param.u32 %r4, [v+4]; }
        mad.lo.u32 %r5, %r2, 1000, %r3; mad.lo.u32 %r5, %r4, 1000000, %r5; st.global.u32 [%to], %r5; ret;";
    called(function, body, |thread| 7_000_000 + 50_000 + thread);
}

#[test]
fn a_method_may_call_another_one_through_a_pointer() {
    // Both addresses are taken, but the signatures differ, so there is no recursion.
    let functions = ".func (.param .b32 r) leaf(.param .b32 x) { .reg .b32 %r<3>; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, 100; st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) outer(.param .b64 f, .param .b32 x) { .reg .b64 %rd<2>; .reg .b32 %r<4>; ld.param.u64 %rd1, [f]; ld.param.u32 %r1, [x];
    { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; P: .callprototype (.param .b32 _) _ (.param .b32 _); call (q), %rd1, (p), P; ld.param.b32 %r2, [q]; }
    st.param.b32 [r], %r2; ret; }
.global .align 8 .u64 methods[2] = {outer, leaf};
";
    let body = "ld.global.u64 %rd1, [methods]; ld.global.u64 %rd2, [methods+8];
        { .param .b64 f; .param .b32 p; .param .b32 q; st.param.b64 [f], %rd2; st.param.b32 [p], %t; P: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b32 _);
          call (q), %rd1, (f, p), P; ld.param.b32 %r2, [q]; } st.global.u32 [%to], %r2; ret;";
    called(functions, body, |thread| thread + 100);
}
