//! Which kernels are state machines, and their form.

use super::{of, options, source};

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
fn a_machine_has_cases_only_behind_meetings_and_where_it_jumps_back() {
    let text = source(
        "mov.u32 %r2, 0; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; bar.sync 0;
         L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 9; @%p2 bra L; @!%p1 bra E;
         st.global.u32 [%rd2], %r2; E: ret;",
    );
    let states = text.split_once("switch (pc) {").unwrap().1.split_once("MEET:;").unwrap().0;
    // The begin, the loop, and behind the barrier.
    assert_eq!(states.matches("case ").count(), 3, "{states}");
    assert_eq!(states.matches("continue;").count(), 1, "one jump back: {states}");
    assert!(states.matches("goto S").count() >= 3, "{states}");
}
