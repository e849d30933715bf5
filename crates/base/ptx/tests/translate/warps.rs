//! Threads of a warp that exchange values, in uniform and in divergent flow.

use super::run;

/// The sum of `%r2` over a warp, by `shfl.sync.down`.
const REDUCE: &str = "
    shfl.sync.down.b32 %r3, %r2, 16, 31, -1; add.u32 %r2, %r2, %r3; shfl.sync.down.b32 %r3, %r2, 8, 31, -1; add.u32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 4, 31, -1; add.u32 %r2, %r2, %r3; shfl.sync.down.b32 %r3, %r2, 2, 31, -1; add.u32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 1, 31, -1; add.u32 %r2, %r2, %r3;";

#[test]
fn shuffles_sum_a_warp_where_all_threads_do() {
    let input: Vec<u32> = (0..256).map(|i| i * i).collect();
    run(
        &format!("ld.global.u32 %r2, [%at]; {REDUCE} st.global.u32 [%to], %r2; ret;"),
        &input,
        0,
        2,
        128,
        256,
        |machine, found| {
            for (warp, part) in input.chunks(32).enumerate() {
                assert_eq!(found[warp * 32], part.iter().sum::<u32>(), "{}", machine.name);
            }
        },
    );
}

#[test]
fn shuffles_sum_a_block_where_only_one_warp_does_the_last_step() {
    let input: Vec<u32> = (0..512).map(|i| i ^ 0x55).collect();
    run(
        &format!(
            ".shared .align 4 .b8 s[128]; ld.global.u32 %r2, [%at]; {REDUCE}
             and.b32 %r4, %t, 31; shr.u32 %r5, %t, 5; shl.b32 %r6, %r5, 2; mov.u32 %r7, s; add.u32 %r8, %r7, %r6;
             setp.ne.u32 %p0, %r4, 0; @%p0 bra WAIT; st.shared.u32 [%r8], %r2;
             WAIT: bar.sync 0; setp.ge.u32 %p1, %t, 32; @%p1 bra DONE;
             mov.u32 %r2, 0; setp.ge.u32 %p2, %t, 8; @%p2 bra SUM; shl.b32 %r9, %t, 2; add.u32 %r9, %r9, %r7; ld.shared.u32 %r2, [%r9];
             SUM: {REDUCE} setp.ne.u32 %p3, %t, 0; @%p3 bra DONE; mov.u32 %r10, %ctaid.x; mul.wide.u32 %rd1, %r10, 4; add.s64 %rd1, %out, %rd1; st.global.u32 [%rd1], %r2;
             DONE: ret;"
        ),
        &input,
        0,
        2,
        256,
        2,
        |machine, found| {
            let sums: Vec<u32> = input.chunks(256).map(|part| part.iter().sum()).collect();
            assert_eq!(found, sums, "{}", machine.name);
        },
    );
}

#[test]
fn every_direction_and_segment_of_a_shuffle_reads_the_right_lane() {
    for (mode, by, range) in [
        ("up", 3, 0),
        ("down", 5, 31),
        ("bfly", 7, 31),
        ("idx", 9, 31),
        ("up", 2, 0x1800),
        ("down", 2, 0x181f),
        ("bfly", 12, 0x1f),
        ("idx", 5, 0x181f),
        ("bfly", 9, 0x181f),
    ] {
        let source = |lane: i32| -> (i32, bool) {
            let (segment, clamp) = ((range >> 8) & 31, range & 31);
            let (most, least) = ((lane & segment) | (clamp & !segment), lane & segment);
            let (from, valid) = match mode {
                "up" => (lane - by, lane - by >= most),
                "down" => (lane + by, lane + by <= most),
                "bfly" => (lane ^ by, lane ^ by <= most),
                _ => (least | (by & !segment), (least | (by & !segment)) <= most),
            };
            (if valid { from } else { lane }, valid)
        };
        let body = format!(
            "mul.lo.u32 %r2, %t, 5; shfl.sync.{mode}.b32 %r3|%p0, %r2, {by}, {range}, -1; selp.u32 %r4, 1000, 0, %p0; add.u32 %r3, %r3, %r4; st.global.u32 [%to], %r3; ret;"
        );
        run(&body, &[], 0, 1, 64, 64, |machine, found| {
            for (thread, value) in (0_i32..).zip(found) {
                let (lane, valid) = source(thread & 31);
                let expected = ((thread & !31) + lane) * 5 + if valid { 1000 } else { 0 };
                assert_eq!(
                    *value, expected as u32,
                    "{}: {mode} {by} {range:#x} of {thread}",
                    machine.name
                );
            }
        });
    }
}

#[test]
fn votes_matches_and_reductions_agree_in_both_kinds_of_flow() {
    let body = "
        and.b32 %r2, %t, 31; setp.lt.u32 %p1, %r2, %n; shr.u32 %r9, %r2, 2;
        vote.sync.ballot.b32 %r3, %p1, MASK; vote.sync.any.pred %p2, %p1, MASK; vote.sync.all.pred %p3, %p1, MASK; vote.sync.uni.pred %p4, %p1, MASK;
        match.any.sync.b32 %r4, %r9, MASK; match.all.sync.b32 %r5|%p5, %r9, MASK;
        redux.sync.add.u32 %r6, %r2, MASK; redux.sync.max.s32 %r7, %r2, MASK; redux.sync.xor.b32 %r8, %r2, MASK;
        selp.u32 %r10, 1, 0, %p2; selp.u32 %r11, 2, 0, %p3; selp.u32 %r12, 4, 0, %p4; selp.u32 %r13, 8, 0, %p5; or.b32 %r10, %r10, %r11; or.b32 %r10, %r10, %r12; or.b32 %r10, %r10, %r13;
        mul.wide.u32 %rd1, %g, 32; add.s64 %rd1, %out, %rd1; st.global.v4.u32 [%rd1], {%r3, %r10, %r4, %r5}; st.global.v4.u32 [%rd1+16], {%r6, %r7, %r8, 1}; DONE: ret;";
    for (guard, mask) in [("", u32::MAX), ("setp.ge.u32 %p0, %t, 24; @%p0 bra DONE;", 0x00ff_ffff)]
    {
        let text = format!("{guard}{}", body.replace("MASK", &(mask as i32).to_string()));
        run(&text, &[], 10, 1, 32, 32 * 8, |machine, found| {
            let lanes: Vec<u32> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
            for &lane in &lanes {
                let row = &found[lane as usize * 8..][..8];
                let same = lanes
                    .iter()
                    .filter(|other| **other / 4 == lane / 4)
                    .map(|other| 1 << other)
                    .sum::<u32>();
                let expected = [
                    0x3ff,
                    1,
                    same,
                    0,
                    lanes.iter().sum(),
                    *lanes.iter().max().unwrap(),
                    lanes.iter().fold(0, |sum, lane| sum ^ lane),
                    1,
                ];
                assert_eq!(row, expected, "{}: lane {lane} of {mask:#x}", machine.name);
            }
        });
    }
}

#[test]
fn active_lanes_are_those_that_come_together() {
    run(
        "and.b32 %r2, %t, 3; setp.ne.u32 %p0, %r2, 1; @%p0 bra DONE; activemask.b32 %r3; st.global.u32 [%to], %r3; DONE: ret;",
        &[],
        0,
        1,
        64,
        64,
        |machine, found| {
            for (thread, value) in found.iter().enumerate() {
                assert_eq!(
                    *value,
                    if thread % 4 == 1 { 0x2222_2222 } else { 0 },
                    "{}: {thread}",
                    machine.name
                );
            }
        },
    );
}

#[test]
fn threads_that_wait_for_each_other_for_ever_are_a_fault() {
    // Half of the warp waits for the whole warp, the other half for a barrier of the block.
    run(
        "setp.lt.u32 %p0, %t, 16; @%p0 bra LOW; bar.warp.sync -1; bra DONE; LOW: bar.sync 0; DONE: st.global.u32 [%to], 1; ret;",
        &[],
        0,
        1,
        32,
        32,
        |machine, _| assert_eq!(machine.fault().0, 3, "{}", machine.name),
    );
}

#[test]
fn a_lock_that_all_threads_wait_for_goes_from_one_to_the_other() {
    run(
        ".shared .align 4 .u32 lock; .shared .align 4 .u32 count;
         setp.ne.u32 %p1, %t, 0; @%p1 bra READY; st.shared.u32 [lock], 0; st.volatile.shared.u32 [count], 0;
         READY: bar.sync 0;
         AGAIN: mov.u32 %r4, 1; mov.u32 %r5, 0; atom.shared.cas.b32 %r6, [lock], %r5, %r4; setp.ne.s32 %p2, %r6, 0; @%p2 bra AGAIN;
         ld.volatile.shared.u32 %r7, [count]; add.u32 %r8, %r7, 1; st.volatile.shared.u32 [count], %r8; membar.cta; atom.shared.exch.b32 %r9, [lock], 0;
         bar.sync 0; ld.shared.u32 %r10, [count]; st.global.u32 [%to], %r10; ret;",
        &[],
        0,
        2,
        64,
        128,
        |machine, counts| assert_eq!(counts, [64; 128], "{}", machine.name),
    );
}

#[test]
fn a_loop_that_does_not_use_what_it_finds_in_memory_does_not_part_lanes() {
    // Some lanes load in a loop of one turn. Behind it, each lane stores into two words, and the
    // second store goes over the first one of another lane.
    run(
        ".shared .align 4 .b8 s[132]; mov.u32 %r2, s; shl.b32 %r3, %t, 2;
         add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %t; bar.sync 0;
         xor.b32 %r5, %t, 15; shl.b32 %r6, %r5, 2; add.u32 %r7, %r6, %r2;
         ld.shared.u32 %r8, [%r7]; and.b32 %r9, %r8, 1; setp.ne.u32 %p1, %r9, 0;
         @!%p1 bra J; mov.u32 %r10, 0;
         L: ld.volatile.shared.u32 %r11, [%r4+4]; add.u32 %r10, %r10, 1;
         setp.lt.u32 %p2, %r10, 1; @%p2 bra L;
         J: mov.u32 %r10, 0;
         M: st.shared.u32 [%r4], 7; mad.lo.u32 %r12, %t, 13, 13; and.b32 %r13, %r12, 31;
         shl.b32 %r14, %r13, 2; add.u32 %r15, %r14, %r2; add.u32 %r16, %t, 100;
         st.volatile.shared.u32 [%r15], %r16; add.u32 %r10, %r10, 1;
         setp.lt.u32 %p3, %r10, 1; @%p3 bra M;
         bar.warp.sync -1; ld.shared.u32 %r17, [%r4]; st.global.u32 [%to], %r17; ret;",
        &[],
        0,
        1,
        32,
        32,
        |machine, found| {
            let mut wanted = [0; 32];
            (0..32).for_each(|lane| wanted[(lane * 13 + 13) % 32] = lane as u32 + 100);
            assert_eq!(found, wanted, "{}", machine.name);
        },
    );
}

#[test]
fn a_loop_that_waits_for_what_a_loop_in_it_finds_lets_other_threads_run() {
    // The outer loop also stores, so that only the inner one lets other threads run.
    run(
        ".shared .align 4 .u32 s; st.volatile.shared.u32 [s], 0; bar.sync 0;
         setp.ne.u32 %p0, %t, 0; @%p0 bra OTHER;
         L: mov.u32 %r2, 0; M: ld.volatile.shared.u32 %r3, [s]; add.u32 %r2, %r2, 1;
         setp.lt.u32 %p1, %r2, 2; @%p1 bra M; st.global.u32 [%to], %r3;
         setp.eq.u32 %p2, %r3, 0; @%p2 bra L; ret;
         OTHER: st.volatile.shared.u32 [s], 9; ret;",
        &[],
        0,
        1,
        2,
        2,
        |machine, found| assert_eq!(found, [9, 0], "{}", machine.name),
    );
}

#[test]
fn a_loop_inside_one_that_waits_lets_other_threads_run() {
    // The outer loop waits for a word that it loads itself, for one that goes through memory, or
    // for the carry of a subtraction. It also stores, so only the inner loop can let others run.
    let waits = [
        "ld.volatile.shared.u32 %r4, [s+4]; setp.eq.u32 %p2, %r4, 0;",
        "st.shared.u32 [s+8], %r3; ld.shared.u32 %r4, [s+8]; setp.eq.u32 %p2, %r4, 0;",
        "sub.cc.u32 %r5, %r3, 1; subc.u32 %r4, 0, 0; setp.ne.u32 %p2, %r4, 0;",
    ];
    for wait in waits {
        let body = format!(
            ".shared .align 4 .b8 s[12]; mov.u32 %r2, s;
             st.volatile.shared.u32 [s], 0; st.volatile.shared.u32 [s+4], 0; bar.sync 0;
             setp.ne.u32 %p0, %t, 0; @%p0 bra OTHER;
             L: mov.u32 %r2, 0; M: ld.volatile.shared.u32 %r3, [s]; add.u32 %r2, %r2, 1;
             setp.lt.u32 %p1, %r2, 2; @%p1 bra M; st.global.u32 [%to], %r3;
             {wait} @%p2 bra L; st.global.u32 [%to], 9; ret;
             OTHER: st.volatile.shared.u32 [s], 9; st.volatile.shared.u32 [s+4], 9; ret;"
        );
        run(&body, &[], 0, 1, 2, 2, |machine, found| assert_eq!(found, [9, 0], "{}", machine.name));
    }
}

#[test]
fn votes_that_share_a_barrier_have_results_of_their_own() {
    // Seven rounds, because the words of the votes alternate. The last warp has eight lanes.
    const ROUNDS: u32 = 7;
    const THREADS: u32 = 72;
    let bit = |index: u32, members: &str| {
        let (value, to) = (20 + index, 30 + index);
        format!(
            "and.b32 %r{value}, %r2, {}; setp.ne.u32 %p{index}, %r{value}, 0;
             vote.sync.ballot.b32 %r{to}, %p{index}, {members}; mad.lo.u32 %r9, %r9, 31, %r{to};",
            1 << index
        )
    };
    let all = "setp.gt.u32 %p5, %r2, 40; vote.sync.any.pred %p6, %p5, -1;
         selp.u32 %r40, 7, 3, %p6; mad.lo.u32 %r9, %r9, 31, %r40;";
    let body = format!(
        "ld.global.u32 %r2, [%at]; mov.u32 %r3, 0; mov.u32 %r9, 1; mov.u32 %r8, -1;
         L: {} {} {} {all} mad.lo.u32 %r2, %r2, 5, %r3; and.b32 %r2, %r2, 63; add.u32 %r3, %r3, 1;
         setp.lt.u32 %p7, %r3, {ROUNDS}; @%p7 bra L; st.global.u32 [%to], %r9; ret;",
        bit(0, "-1"),
        bit(1, "%r8"),
        bit(2, "-1"),
    );
    let mut values: Vec<u32> = (0..THREADS).map(|thread| thread * thread % 61).collect();
    let input = values.clone();
    let mut wanted = vec![1_u32; values.len()];
    for round in 0..ROUNDS {
        for (warp, sums) in values.chunks(32).zip(wanted.chunks_mut(32)) {
            let ballot = |is_true: &dyn Fn(u32) -> bool| {
                let lanes = (0..32).zip(warp).filter(|(_, value)| is_true(**value));
                lanes.fold(0, |sum: u32, (lane, _)| sum | 1 << lane)
            };
            let any = if ballot(&|value| value > 40) == 0 { 3 } else { 7 };
            let bits = [0, 1, 2].map(|bit| ballot(&|value| value >> bit & 1 != 0));
            let results = bits.into_iter().chain([any]);
            for sum in sums {
                *sum = results
                    .clone()
                    .fold(*sum, |sum, result| sum.wrapping_mul(31).wrapping_add(result));
            }
        }
        values.iter_mut().for_each(|value| *value = (*value * 5 + round) & 63);
    }
    run(&body, &input, 0, 1, THREADS.into(), THREADS.into(), |machine, found| {
        assert_eq!(found, wanted, "{}", machine.name);
    });
}
