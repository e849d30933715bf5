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

/// The translation itself asserts that each jump of a machine leads to a state.
#[test]
fn jumps_of_all_kinds_lead_to_states() {
    let meets = "setp.eq.u32 %p1, %r1, 0; @%p1 bra M; bar.sync 0; M:";
    for body in [
        // A table that leads back, to itself and forward.
        "A: add.u32 %r2, %r1, 1; B: brx.idx %r2, t; C: add.u32 %r2, %r2, 1; D: ret;",
        // Meetings of some threads, at the end of a block and in front of a jump back.
        "A: @%p1 bar.sync 1; @%p1 shfl.sync.down.b32 %r3, %r1, 1, 31, -1; @%p1 bra A; ret;",
        // Ends in the middle of the text.
        "@%p1 ret; setp.gt.u32 %p2, %r1, 5; @%p2 trap; @%p2 bra E; ret; E: bar.sync 0; trap;",
    ] {
        let translation = of(&format!("t: .branchtargets A, B, C, D; {meets} {body}"), &options());
        assert!(translation.kernels[0].is_machine, "{body}");
        assert!(translation.source.contains("goto S"), "{body}");
    }
}
