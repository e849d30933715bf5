//! Votes and reductions that all threads of a block reach together.

use super::{BASE, FREE, HEAD, OUT, kernel, machines, run, words};

/// Bits of the lanes of a block for which something is true, for each thread's warp.
fn ballots(threads: u32, is_true: impl Fn(u32) -> bool) -> Vec<u32> {
    let bit = |thread: u32| u32::from(thread < threads && is_true(thread)) << (thread % 32);
    let warp = |first: u32| (first..first + 32).fold(0, |sum, thread| sum | bit(thread));
    (0..threads).map(|thread| warp(thread & !31)).collect()
}

#[test]
fn each_thread_votes_for_itself_behind_a_barrier() {
    // PoCL takes a branch that is the first thing behind a barrier for one that all threads take
    // alike.
    const THREADS: u32 = 72;
    let lanes = [
        "mov.u32 %r2, %laneid;",
        "mov.u32 %r3, %tid.x; shr.u32 %r4, %r3, 5; shl.b32 %r4, %r4, 5; sub.u32 %r2, %r3, %r4;",
        "mov.u32 %r3, %lanemask_lt; popc.b32 %r2, %r3;",
    ];
    for lane in lanes {
        for condition in ["eq", "ne"] {
            let wanted = ballots(THREADS, |thread| (thread % 32 == 0) == (condition == "eq"));
            for front in ["", "bar.sync 0;", "vote.sync.any.pred %p3, %p2, -1;"] {
                let body = format!(
                    "setp.eq.u32 %p2, %t, 1; {front} {lane} setp.{condition}.u32 %p1, %r2, 0;
                     vote.sync.ballot.b32 %r5, %p1, -1; st.global.u32 [%to], %r5; ret;"
                );
                run(&body, &[], 0, 1, THREADS.into(), THREADS.into(), |machine, found| {
                    assert_eq!(found, wanted, "{}: {body}", machine.name);
                });
            }
        }
    }
}

#[test]
fn each_thread_counts_for_itself_in_a_reduction_behind_a_barrier() {
    const THREADS: u32 = 72;
    for (condition, wanted) in [("eq", 1), ("ne", THREADS - 1)] {
        for front in ["", "bar.sync 0;", "bar.red.or.pred %p3, 0, %p2;"] {
            let body = format!(
                "setp.eq.u32 %p2, %t, 1; {front} setp.{condition}.u32 %p1, %t, 0;
                 bar.red.popc.u32 %r5, 0, %p1; st.global.u32 [%to], %r5; ret;"
            );
            run(&body, &[], 0, 1, THREADS.into(), THREADS.into(), |machine, found| {
                assert_eq!(found, [wanted; THREADS as usize], "{}: {body}", machine.name);
            });
        }
    }
}

#[test]
fn threads_repeat_a_loop_until_none_of_the_block_asks_for_more() {
    const THREADS: u32 = 72;
    let input: Vec<u32> = (0..THREADS).map(|thread| thread * 37 % 23).collect();
    let most = *input.iter().max().unwrap();
    for reduction in [
        "setp.lt.u32 %p1, %r3, %r2; bar.red.or.pred %p2, 0, %p1; @%p2 bra L;",
        "setp.ge.u32 %p1, %r3, %r2; bar.red.and.pred %p2, 0, %p1; @!%p2 bra L;",
        "setp.lt.u32 %p1, %r3, %r2; bar.red.popc.u32 %r4, 0, %p1; setp.ne.u32 %p2, %r4, 0;
         @%p2 bra L;",
    ] {
        let text = format!(
            "{HEAD}{}",
            kernel(&format!(
                "ld.global.u32 %r2, [%at]; mov.u32 %r3, 0;
                 L: add.u32 %r3, %r3, 1; {reduction} st.global.u32 [%to], %r3; ret;"
            ))
        );
        let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_le_bytes()).collect();
        for machine in machines() {
            let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!machine.kernel(&ready, "k").is_machine, "{reduction}");
            machine.write(FREE, &bytes);
            let params = [BASE + FREE, BASE + OUT, 0];
            machine.launch(&ready, "k", &params, 1, THREADS.into(), 0);
            let found = words(&machine, OUT, THREADS.into());
            assert_eq!(found, [most; THREADS as usize], "{}: {reduction}", machine.name);
        }
    }
}

#[test]
fn eight_votes_that_share_a_barrier_take_the_members_of_each_lane() {
    const THREADS: u32 = 72;
    let input: Vec<u32> = (0..THREADS).map(|thread| thread * 151 % 256).collect();
    // Half of the votes are among the lanes of one half of the warp.
    let is_half = |bit: u32| bit % 2 == 1;
    let votes: String = (0..8)
        .map(|bit| {
            let (value, to) = (20 + bit, 30 + bit);
            let members = if is_half(bit) { "%r8" } else { "-1" };
            format!(
                "and.b32 %r{value}, %r2, {}; setp.ne.u32 %p{}, %r{value}, 0;
                 vote.sync.ballot.b32 %r{to}, %p{}, {members}; mad.lo.u32 %r9, %r9, 31, %r{to};",
                1 << bit,
                10 + bit,
                10 + bit
            )
        })
        .collect();
    let body = format!(
        "ld.global.u32 %r2, [%at]; mov.u32 %r9, 1; and.b32 %r3, %t, 16; setp.eq.u32 %p1, %r3, 0;
         selp.u32 %r8, 0x0000ffff, 0xffff0000, %p1; {votes} st.global.u32 [%to], %r9; ret;"
    );
    let wanted = (0..THREADS).map(|thread| {
        (0..8).fold(1_u32, |sum, bit| {
            let all = ballots(THREADS, |other| input[other as usize] >> bit & 1 != 0);
            let half = if thread & 16 == 0 { 0x0000_ffff } else { 0xffff_0000 };
            let members = if is_half(bit) { half } else { u32::MAX };
            sum.wrapping_mul(31).wrapping_add(all[thread as usize] & members)
        })
    });
    let wanted: Vec<u32> = wanted.collect();
    run(&body, &input, 0, 1, THREADS.into(), THREADS.into(), |machine, found| {
        assert_eq!(found, wanted, "{}", machine.name);
    });
}

#[test]
fn a_predicate_that_changes_between_two_votes_has_both_values() {
    const THREADS: u32 = 40;
    let body = "and.b32 %r2, %t, 31;
         setp.lt.u32 %p1, %r2, 3; vote.sync.ballot.b32 %r10, %p1, -1;
         setp.gt.u32 %p1, %r2, 5; vote.sync.ballot.b32 %r11, %p1, -1;
         mad.lo.u32 %r12, %r10, 31, %r11; st.global.u32 [%to], %r12; ret;";
    let (low, high) =
        (ballots(THREADS, |thread| thread % 32 < 3), ballots(THREADS, |thread| thread % 32 > 5));
    let wanted: Vec<u32> =
        low.iter().zip(high).map(|(low, high)| low.wrapping_mul(31).wrapping_add(high)).collect();
    run(body, &[], 0, 1, THREADS.into(), THREADS.into(), |machine, found| {
        assert_eq!(found, wanted, "{}", machine.name);
    });
}
