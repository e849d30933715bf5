//! Threads behind a fault: they access no memory any more, and end.

use super::faults::checked;
use super::{BASE, FREE, HEAD, OUT, machines, run, words};

const ASSERT: &str = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n";

/// `assert(t < 8)` before a store that is only in range for such threads, in a kernel with
/// barriers.
const ASSERTING: &str = "
    .shared .align 4 .b8 s[32]; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r2, %r2, %r3; mov.u32 %r9, 0;
    setp.lt.u32 %p0, %t, 8; @%p0 bra FINE;
    { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 z;
      st.param.b64 [m], 0; st.param.b64 [f], 0; st.param.b32 [l], 1; st.param.b64 [n], 0; st.param.b64 [z], 1;
      call __assertfail, (m, f, l, n, z); }
    FINE: setp.ge.u32 %p1, %t, 8; selp.u32 %r4, 0x7fff0000, 0, %p1; add.u32 %r2, %r2, %r4; st.shared.u32 [%r2], %t;
    mul.wide.u32 %rd1, %r4, 4096; add.u64 %rd2, %at, %rd1; ld.global.u32 %r5, [%rd2]; add.u64 %rd3, %to, %rd1; red.global.add.u32 [%rd3], %r5;
    bar.sync 0; ld.shared.u32 %r6, [s+12];
    WAIT: ld.volatile.global.u32 %r7, [%at]; add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, %r7; @%p2 bra WAIT;
    bar.sync 0; st.global.u32 [%to], %r6; ret;";

#[test]
fn a_failed_assertion_stops_the_accesses_of_its_thread() {
    let text = format!("{HEAD}{ASSERT}{}", super::kernel(ASSERTING));
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!machine.kernel(&ready, "k").is_machine, "all come to the barriers");
        machine.write(FREE, &[3; 64]);
        machine.write(OUT, &[0; 64]);
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 12, 0);
        assert_eq!(
            words(&machine, OUT, 12),
            [3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0],
            "{}",
            machine.name
        );
        assert_eq!(machine.fault().0, 4, "{}", machine.name);
    }
}

#[test]
fn a_loop_on_an_address_that_is_not_there_ends_where_addresses_are_checked() {
    // A refused load returns zeros, so without an end these loops would wait forever.
    let wait = "L: ld.volatile.global.u32 %r2, [%in+4096]; setp.eq.u32 %p0, %r2, 0; @%p0 bra L;";
    let address = BASE + FREE + 4096;
    checked(&format!("{wait} st.global.u32 [%to], 1; ret;"), (1, address), &[0; 4]);
    let barrier = format!("bar.sync 0; {wait} bar.sync 0; st.global.u32 [%to], 2; ret;");
    checked(&barrier, (1, address), &[2; 4]);
    let head = "H: ld.volatile.global.u32 %r2, [%in+4096]; setp.ne.u32 %p0, %r2, 0; @%p0 bra E; add.u32 %r3, %r3, 1; bra H; E:";
    checked(
        &format!("bar.sync 0; {head} bar.sync 0; st.global.u32 [%to], 3; ret;"),
        (1, address),
        &[3; 4],
    );
    let machine = format!("setp.eq.u32 %p1, %t, 3; @%p1 bra D; bar.sync 0; {wait} D: ret;");
    checked(&machine, (1, address), &[0; 4]);
}

#[test]
fn all_threads_leave_a_loop_with_barriers_together_where_addresses_are_checked() {
    // A refused load returns zero, so without an end these loops would wait for ever.
    let address = BASE + FREE + 4096;
    let look = "ld.global.u32 %r2, [%in+4096]; setp.eq.u32 %p0, %r2, 0;";
    let ends = |body: &str, result: u32| checked(body, (1, address), &[result; 4]);
    ends(&format!("L: bar.sync 0; {look} @%p0 bra L; st.global.u32 [%to], 1; ret;"), 1);
    ends(&format!("L: {look} @!%p0 bra E; bar.sync 0; bra L; E: st.global.u32 [%to], 2; ret;"), 2);
    ends(&format!("st.global.u32 [%to], 3; L: {look} @!%p0 ret; bar.sync 0; bra L;"), 3);
    // Two edges lead back to the loop's beginning.
    let turns = "bar.sync 0; add.u32 %r3, %r3, 1; and.b32 %r4, %r3, 1;
         setp.eq.u32 %p1, %r4, 0; @%p1 bra L;";
    let twice = format!("mov.u32 %r3, 0; L: {turns} {look} @%p0 bra L;");
    ends(&format!("{twice} st.global.u32 [%to], 4; ret;"), 4);
    // A loop in a loop. The inner one only has a shuffle.
    let inner = "M: shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1; add.u32 %r3, %r3, 1;
         setp.lt.u32 %p1, %r3, 3; @%p1 bra M;";
    let nested = format!("L: mov.u32 %r3, 0; {inner} bar.sync 0; {look} @%p0 bra L;");
    ends(&format!("{nested} st.global.u32 [%to], 5; ret;"), 5);
    // All threads take the value of the first one, so that this loop has a barrier.
    let agreed = format!("L: {look} @%p0 bra L; setp.eq.u32 %p1, %r2, 2; @%p1 bra D; bar.sync 0;");
    ends(&format!("{agreed} D: st.global.u32 [%to], 6; ret;"), 6);
}

#[test]
fn all_threads_leave_a_long_loop_with_barriers_in_the_same_turn() {
    // One thread fails in the third turn of two thousand million.
    let fails = "setp.eq.u32 %p1, %t, 2; setp.eq.and.u32 %p1, %r3, 3, %p1;
         @%p1 ld.global.u32 %r2, [%in+4096];";
    let compares = ".shared .align 4 .u32 s; setp.eq.u32 %p2, %t, 0;
         @%p2 st.shared.u32 [s], %r3; bar.sync 0; ld.shared.u32 %r4, [s];
         sub.u32 %r5, %r4, %r3; setp.lt.u32 %p3, %r3, 6; selp.u32 %r6, 7, 8, %p3;
         add.u32 %r5, %r5, %r6;";
    checked(
        &format!(
            "mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; {fails} bar.sync 0;
             setp.lt.u32 %p0, %r3, 2000000000; @%p0 bra L;
             {compares} st.global.u32 [%to], %r5; ret;"
        ),
        (1, BASE + FREE + 4096),
        &[7; 4],
    );
}

#[test]
fn a_failed_thread_keeps_no_loop_over_a_reduction_of_the_block_alive() {
    // The third thread asks for another turn until it has stored something, and it never does.
    run(
        "mov.u32 %r3, 0; setp.eq.u32 %p0, %t, 2;
         L: add.u32 %r3, %r3, 1;
         @%p0 trap;
         @%p0 st.global.u32 [%to], 1; ld.global.u32 %r4, [%to]; setp.eq.and.u32 %p1, %r4, 0, %p0;
         setp.lt.or.u32 %p2, %r3, 5, %p1; bar.red.or.pred %p3, 0, %p2; @%p3 bra L;
         st.global.u32 [%to], %r3; ret;",
        &[],
        0,
        1,
        4,
        4,
        |machine, found| {
            assert_eq!(found, [5, 5, 0, 5], "{}", machine.name);
            assert_eq!(machine.fault(), (3, 14), "{}", machine.name);
        },
    );
    // A refused load returns zeros, which ask for another turn.
    let refused = "setp.eq.u32 %p0, %t, 2; selp.u32 %r2, 4096, 0, %p0; cvt.u64.u32 %rd1, %r2;
         add.s64 %rd2, %in, %rd1; L: ld.global.u32 %r3, [%rd2]; setp.eq.and.u32 %p1, %r3, 0, %p0;
         bar.red.or.pred %p2, 0, %p1; @%p2 bra L; st.global.u32 [%to], 1; ret;";
    checked(refused, (1, BASE + FREE + 4096), &[0; 4]);
}
