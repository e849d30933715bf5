//! Control flow: branches, loops, switches, calls, barriers.

use super::{BASE, FREE, HEAD, OUT, bytes_of, floats, machines, run, words};

#[test]
fn vectors_are_added_with_a_tail() {
    let input: Vec<u32> = (0..1000).collect();
    run(
        "setp.ge.u32 %p0, %g, %n; @%p0 bra DONE; ld.global.u32 %r2, [%at]; add.u32 %r3, %r2, 7; st.global.u32 [%to], %r3; DONE: ret;",
        &input,
        997,
        16,
        64,
        1024,
        |_, sums| {
            for (index, sum) in sums.iter().enumerate() {
                let index = u32::try_from(index).unwrap();
                assert_eq!(*sum, if index < 997 { index + 7 } else { 0 });
            }
        },
    );
}

/// The branches know their condition before the barrier, so only the barrier precedes them.
#[test]
fn threads_part_right_behind_a_barrier() {
    run(
        "setp.ne.u32 %p1, %t, 0; mov.u32 %r5, 0; setp.gt.u32 %p5, %n, 3; setp.eq.u32 %p6, %t, 0; and.pred %p7, %p5, %p6; not.pred %p8, %p7;
         LOOP: @%p1 bra MEET; st.volatile.global.u32 [%out+8], %r5; MEET: bar.sync 0; @%p8 bra FIRST;
         MORE: ld.volatile.global.u32 %r2, [%out]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%out], %r2; and.b32 %r3, %r2, 1; setp.eq.u32 %p2, %r3, 1; @%p2 bra MORE;
         FIRST: bar.sync 0; @%p1 bra SECOND; ld.volatile.global.u32 %r2, [%out+4]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%out+4], %r2;
         SECOND: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %n; @%p3 bra LOOP; ret;",
        &[],
        50,
        1,
        33,
        2,
        |machine, counts| assert_eq!(counts, [100, 50], "{}", machine.name),
    );
}

/// Tiles in shared memory, and two barriers in a loop with a branch around it, as nvcc compiles the
/// example of CUDA's samples.
const MATRIX: &str = "
.visible .entry mm(.param .u64 c, .param .u64 a, .param .u64 b, .param .u64 n)
{
    .reg .pred %p<4>; .reg .b32 %r<40>; .reg .b64 %rd<30>; .reg .f32 %f<10>;
    .shared .align 4 .b8 As[256]; .shared .align 4 .b8 Bs[256];
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
    shl.b32 %r6, %r5, 3; add.s32 %r7, %r6, %r3; mad.lo.s32 %r8, %r7, %r1, %r2;
    shl.b32 %r9, %r4, 3; add.s32 %r10, %r9, %r2; mad.lo.s32 %r11, %r3, %r1, %r10;
    cvta.to.global.u64 %rd4, %rd1; mul.wide.s32 %rd5, %r8, 4; add.s64 %rd20, %rd4, %rd5;
    cvta.to.global.u64 %rd6, %rd2; mul.wide.s32 %rd7, %r11, 4; add.s64 %rd21, %rd6, %rd7;
    shl.b32 %r12, %r1, 3; mul.wide.s32 %rd8, %r12, 4;
    mov.u32 %r13, As; mov.u32 %r14, Bs; shl.b32 %r15, %r3, 5; shl.b32 %r16, %r2, 2;
    add.s32 %r17, %r13, %r15; add.s32 %r18, %r17, %r16; add.s32 %r19, %r14, %r16; add.s32 %r20, %r19, %r15;
    mov.f32 %f1, 0f00000000; mov.u32 %r30, 0;
    setp.lt.s32 %p1, %r1, 1; @%p1 bra STORE;
LOOP:
    ld.global.f32 %f2, [%rd20]; st.shared.f32 [%r18], %f2; ld.global.f32 %f3, [%rd21]; st.shared.f32 [%r20], %f3;
    bar.sync 0;
    mov.u32 %r31, 0; mov.u32 %r32, %r17; mov.u32 %r33, %r19;
INNER:
    ld.shared.f32 %f4, [%r32]; ld.shared.f32 %f5, [%r33]; fma.rn.f32 %f1, %f4, %f5, %f1;
    add.s32 %r32, %r32, 4; add.s32 %r33, %r33, 32; add.s32 %r31, %r31, 1; setp.lt.s32 %p2, %r31, 8; @%p2 bra INNER;
    bar.sync 0;
    add.s64 %rd20, %rd20, 32; add.s64 %rd21, %rd21, %rd8; add.s32 %r30, %r30, 8; setp.lt.s32 %p3, %r30, %r1; @%p3 bra LOOP;
STORE:
    mad.lo.s32 %r34, %r7, %r1, %r10; cvta.to.global.u64 %rd9, %rd3; mul.wide.s32 %rd10, %r34, 4; add.s64 %rd11, %rd9, %rd10;
    st.global.f32 [%rd11], %f1;
    ret;
}
";

#[test]
fn matrices_are_multiplied_in_tiles() {
    const SIDE: u64 = 48;
    let side = usize::try_from(SIDE).unwrap();
    let matrix = |seed: u32| -> Vec<f32> {
        (0..SIDE * SIDE).map(|i| ((i as u32).wrapping_mul(seed) % 17) as f32 - 8.0).collect()
    };
    let (a, b) = (matrix(7), matrix(11));
    for machine in machines() {
        let ready = machine.build(&format!("{HEAD}{MATRIX}")).unwrap();
        assert!(
            !machine.kernel(&ready, "mm").is_machine,
            "all threads come to the barriers together"
        );
        machine.write(FREE, &bytes_of(&a, f32::to_le_bytes));
        machine.write(FREE + (1 << 20), &bytes_of(&b, f32::to_le_bytes));
        let blocks = SIDE / 8;
        machine.launch_with(
            &ready,
            "mm",
            &[BASE + OUT, BASE + FREE, BASE + FREE + (1 << 20), SIDE],
            [blocks, blocks, 1],
            [8, 8, 1],
            0,
            &[0; 256],
        );
        let c = floats(&machine, OUT, SIDE * SIDE);
        for y in 0..side {
            for x in 0..side {
                let sum: f32 = (0..side).map(|k| a[y * side + k] * b[k * side + x]).sum();
                assert_eq!(c[y * side + x], sum, "{}: {x}, {y}", machine.name);
            }
        }
    }
}

#[test]
fn loops_with_two_exits_and_barriers_under_uniform_branches_end() {
    // Every thread adds its neighbour's value n times, with a barrier inside. The loop ends early
    // after 5 turns.
    run(
        ".shared .align 4 .b8 s[512]; .shared .align 4 .b8 u[512];
         shl.b32 %r2, %t, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; add.u32 %r5, %t, 1; and.b32 %r5, %r5, 127; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r3;
         mov.u32 %r10, %t; mov.u32 %r11, 0;
         setp.eq.u32 %p0, %n, 0; @%p0 bra OVER;
         L1: st.shared.u32 [%r4], %r10; bar.sync 0; ld.shared.u32 %r12, [%r5]; bar.sync 0; add.u32 %r10, %r10, %r12; add.u32 %r11, %r11, 1;
         setp.eq.u32 %p1, %r11, 5; @%p1 bra OVER;
         setp.lt.u32 %p2, %r11, %n; @%p2 bra L1;
         OVER: st.global.u32 [%to], %r10; ret;",
        &[],
        9,
        2,
        128,
        256,
        |machine, sums| {
            let mut expected: Vec<u32> = (0..128).collect();
            for _ in 0..5 {
                expected = (0..128).map(|i| expected[i].wrapping_add(expected[(i + 1) % 128])).collect();
            }
            assert_eq!(sums[..128], expected[..], "{}", machine.name);
            assert_eq!(sums[128..], expected[..], "{}", machine.name);
        },
    );
}

#[test]
fn threads_that_leave_early_do_not_hold_up_barriers() {
    run(
        ".shared .align 4 .b8 s[512];
         setp.ge.u32 %p0, %t, %n; @%p0 bra DONE;
         shl.b32 %r2, %t, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %t;
         bar.sync 0;
         sub.u32 %r5, %n, %t; sub.u32 %r5, %r5, 1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5];
         st.global.u32 [%to], %r6; DONE: ret;",
        &[],
        77,
        3,
        128,
        384,
        |machine, found| {
            for (index, value) in found.iter().enumerate() {
                let t = u32::try_from(index % 128).unwrap();
                assert_eq!(*value, if t < 77 { 76 - t } else { 0 }, "{}: {index}", machine.name);
            }
        },
    );
}

#[test]
fn barriers_with_numbers_and_counts_join_producers_and_consumers() {
    // The first 64 threads write and arrive at barrier 1; the other 64 wait there and read.
    run(
        ".shared .align 4 .b8 s[512];
         shl.b32 %r2, %t, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
         setp.ge.u32 %p0, %t, 64; @%p0 bra READ;
         mul.lo.u32 %r5, %t, 3; st.shared.u32 [%r4], %r5; bar.arrive 1, 128; bra DONE;
         READ: bar.sync 1, 128; ld.shared.u32 %r6, [%r4+-256]; st.global.u32 [%to], %r6;
         DONE: ret;",
        &[],
        0,
        2,
        128,
        256,
        |machine, found| {
            for (index, value) in found.iter().enumerate() {
                let t = u32::try_from(index % 128).unwrap();
                assert_eq!(
                    *value,
                    if t >= 64 { (t - 64) * 3 } else { 0 },
                    "{}: {index}",
                    machine.name
                );
            }
        },
    );
}

#[test]
fn bar_red_counts_in_uniform_and_in_divergent_flow() {
    let body = |guard: &str| {
        format!(
            "{guard} setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r2, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, %p1;
             selp.u32 %r3, 256, 0, %p2; selp.u32 %r4, 512, 0, %p3; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%to], %r2; DONE: ret;"
        )
    };
    run(&body(""), &[], 0, 1, 96, 96, |machine, found| {
        assert!(found.iter().all(|value| *value == 40 + 512), "{}: {found:?}", machine.name)
    });
    let divergent = "setp.ge.u32 %p0, %t, 40; @%p0 bra DONE;";
    run(&body(divergent), &[], 0, 1, 96, 96, |machine, found| {
        assert!(
            found[..40].iter().all(|value| *value == 40 + 256 + 512),
            "{}: {found:?}",
            machine.name
        );
    });
}

#[test]
fn a_switch_takes_the_branch_of_its_index() {
    run(
        "ld.global.u32 %r2, [%at]; TABLE: .branchtargets B0, B1, B2, B3; setp.gt.u32 %p0, %r2, 3; @%p0 bra B1; brx.idx %r2, TABLE;
         B0: mov.u32 %r3, 100; bra JOIN; B1: mov.u32 %r3, 200; bra JOIN; B2: mov.u32 %r3, 300; B3: add.u32 %r3, %r2, 400;
         JOIN: st.global.u32 [%to], %r3; ret;",
        &[0, 1, 2, 3, 9],
        0,
        1,
        5,
        5,
        |machine, found| assert_eq!(found, [100, 200, 402, 403, 200], "{}", machine.name),
    );
}

#[test]
fn functions_are_called_with_values_structures_and_results() {
    let functions = "
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; .reg .pred %p<2>; ld.param.u32 %r1, [x];
    setp.gt.u32 %p1, %r1, 100; @%p1 bra BIG; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; BIG: st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) sum(.param .align 8 .b8 s[16], .param .b64 out) { .reg .b32 %r<8>; .reg .b64 %rd<3>;
    ld.param.u32 %r1, [s]; ld.param.u32 %r2, [s+4]; ld.param.v2.u32 {%r3, %r4}, [s+8]; add.u32 %r5, %r1, %r2; add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r4;
    { .param .b32 p; st.param.b32 [p], %r5; .param .b32 q; call (q), twice, (p); ld.param.b32 %r6, [q]; }
    ld.param.u64 %rd1, [out]; st.u32 [%rd1], %r1; st.param.b32 [r], %r6; ret; }
";
    let kernel = super::kernel(
        ".local .align 8 .b8 place[8]; .reg .b64 %own;
         mov.u64 %own, place; cvta.local.u64 %rd1, %own;
         { .param .align 8 .b8 s[16]; st.param.b32 [s], %g; st.param.b32 [s+4], 1; st.param.v2.b32 [s+8], {2, %n}; .param .b64 o; st.param.b64 [o], %rd1; .param .b32 q;
           call (q), sum, (s, o); ld.param.b32 %r2, [q]; }
         ld.local.u32 %r3, [%own]; mad.lo.u32 %r4, %r3, 1000, %r2; st.global.u32 [%to], %r4; ret;",
    );
    for machine in machines() {
        let ready = machine
            .build(&format!("{HEAD}{functions}{kernel}"))
            .unwrap_or_else(|error| panic!("{error}"));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 40], 2, 64, 0);
        for (index, value) in words(&machine, OUT, 128).into_iter().enumerate() {
            let g = u32::try_from(index).unwrap();
            let sum = g + 43;
            assert_eq!(
                value,
                g * 1000 + if sum > 100 { sum } else { 2 * sum },
                "{}: {g}",
                machine.name
            );
        }
    }
}

#[test]
fn a_barrier_in_a_function_is_one_of_the_kernel() {
    let function = ".shared .align 4 .b8 line[512];
.func (.param .b32 r) neighbour(.param .b32 x) { .reg .b32 %r<9>; ld.param.u32 %r1, [x]; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; mov.u32 %r4, line; add.u32 %r5, %r4, %r3;
    bar.sync 0; st.shared.u32 [%r5], %r1; bar.sync 0; xor.b32 %r6, %r3, 4; add.u32 %r6, %r6, %r4; ld.shared.u32 %r7, [%r6]; st.param.b32 [r], %r7; ret; }
";
    let kernel = super::kernel(
        "mov.u32 %r2, %t; mov.u32 %r3, 0;
         AGAIN: { .param .b32 p; st.param.b32 [p], %r2; .param .b32 q; call (q), neighbour, (p); ld.param.b32 %r4, [q]; } add.u32 %r2, %r4, 10;
         add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %n; @%p1 bra AGAIN; st.global.u32 [%to], %r2; ret;",
    );
    for machine in machines() {
        let ready = machine
            .build(&format!("{HEAD}{function}{kernel}"))
            .unwrap_or_else(|error| panic!("{error}"));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 3], 1, 64, 0);
        for (index, value) in words(&machine, OUT, 64).into_iter().enumerate() {
            assert_eq!(
                value,
                (u32::try_from(index).unwrap() ^ 1) + 30,
                "{}: {index}",
                machine.name
            );
        }
    }
}

#[test]
fn a_warp_counts_as_a_whole_at_a_barrier_with_a_count() {
    // One and a half warps: the barrier waits for 64 threads.
    run(
        ".shared .align 4 .b8 s[256]; mov.u32 %r3, s; shl.b32 %r2, %t, 2; add.u32 %r4, %r3, %r2; setp.eq.u32 %p0, %n, 0; setp.gt.u32 %p1, %t, 100; @%p1 bra DONE;
         st.shared.u32 [%r4], %t; bar.sync 1, 64; xor.b32 %r5, %t, 15; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; st.global.u32 [%to], %r6; DONE: ret;",
        &[],
        0,
        1,
        48,
        48,
        |machine, found| {
            for (thread, value) in (0_u32..).zip(found) {
                assert_eq!(*value, thread ^ 15, "{}: {thread}", machine.name);
            }
            assert_eq!(machine.fault().0, 0, "{}: no thread waits forever", machine.name);
        },
    );
    // Producers and consumers. Each of the two warps has one lane that has ended before.
    run(
        ".shared .align 4 .b8 s[512]; mov.u32 %r3, s; shl.b32 %r2, %t, 2; add.u32 %r4, %r3, %r2; and.b32 %r7, %t, 31; setp.eq.u32 %p2, %r7, 31; @%p2 bra DONE;
         setp.ge.u32 %p0, %t, 32; @%p0 bra READ; mul.lo.u32 %r5, %t, 3; st.shared.u32 [%r4], %r5; bar.arrive 1, 64; bra DONE;
         READ: bar.sync 1, 64; ld.shared.u32 %r6, [%r4+-128]; st.global.u32 [%to], %r6; bar.sync 2, 32; bar.sync 1, 32; DONE: ret;",
        &[],
        0,
        2,
        64,
        128,
        |machine, found| {
            for (index, value) in (0_u32..).zip(found) {
                let t = index % 64;
                assert_eq!(*value, if t >= 32 && t != 63 { (t - 32) * 3 } else { 0 }, "{}: {index}", machine.name);
            }
            assert_eq!(machine.fault().0, 0, "{}: no thread waits forever", machine.name);
        },
    );
}

#[test]
fn bar_red_with_a_count_is_of_those_threads() {
    // Each warp has its own barrier, and counts its own threads.
    run(
        "shr.u32 %r2, %t, 5; add.u32 %r3, %r2, 3; setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r4, %r2, 32, %p1; bar.red.and.pred %p2, %r3, 32, %p1; selp.u32 %r5, 100, 0, %p2; add.u32 %r4, %r4, %r5; st.global.u32 [%to], %r4; ret;",
        &[],
        0,
        1,
        96,
        96,
        |machine, found| {
            for (thread, value) in found.iter().enumerate() {
                assert_eq!(*value, [132, 8, 0][thread / 32], "{}: {thread}", machine.name);
            }
        },
    );
}

#[test]
fn a_flag_that_decides_a_barrier_is_the_same_for_all_threads() {
    // The first thread that sees the flag changes it. Without an agreement the others would leave
    // before the barrier.
    run(
        ".shared .align 4 .b8 s[512]; mov.u32 %r3, s; shl.b32 %r2, %t, 2; add.u32 %r4, %r3, %r2; mov.u32 %r9, 0;
         AGAIN: ld.global.v2.u32 {%r5, %r8}, [%out]; setp.ge.u32 %p0, %r5, 3; @%p0 bra DONE; add.u32 %r6, %r5, 1; st.global.u32 [%out], %r6;
         st.shared.u32 [%r4], %r9; bar.sync 0; xor.b32 %r7, %r2, 4; add.u32 %r7, %r7, %r3; ld.shared.u32 %r8, [%r7]; add.u32 %r9, %r8, 1; bar.sync 0; bra AGAIN;
         DONE: mul.wide.u32 %rd1, %t, 4; add.s64 %rd1, %out, %rd1; st.global.u32 [%rd1+64], %r9; ret;",
        &[],
        0,
        1,
        64,
        96,
        |machine, found| {
            assert_eq!(found[0], 3, "{}", machine.name);
            assert_eq!(found[16..80], [3; 64], "{}", machine.name);
        },
    );
}

#[test]
fn two_ways_behind_a_barrier_meet_a_third_one() {
    // PoCL ended the process for a block of two threads, for which it makes no loop.
    let body =
        ".shared .align 4 .b8 s[16]; mov.u32 %r10, s; ld.global.u32 %r3, [%at]; mov.u32 %r2, 5;
         setp.ne.u32 %p1, %r0, 0; @%p1 bra JOIN;
         setp.ne.u32 %p2, %t, 0; @%p2 bra MEET; st.shared.u32 [%r10+4], %r3; MEET: bar.sync 0;
         ld.shared.u32 %r2, [%r10+4]; setp.eq.u32 %p3, %n, 0; @%p3 bra JOIN; mov.u32 %r2, %t;
         JOIN: setp.lt.s32 %p4, %t, 2; @%p4 sad.u32 %r3, %t, 19, %r2;
         st.global.u32 [%to], %r3; ret;";
    for threads in [1, 2, 3, 40] {
        for n in [0, 1] {
            let input: Vec<u32> = (0..2 * threads).map(|at| 1000 + 7 * at).collect();
            let wanted = (0..2 * threads).map(|at| {
                let (block, thread) = (at / threads, at % threads);
                let shared = if n == 0 { input[0] } else { thread };
                let other = if block == 0 { shared } else { 5 };
                if thread < 2 { thread.abs_diff(19) + other } else { input[at as usize] }
            });
            let wanted: Vec<u32> = wanted.collect();
            let all = u64::from(2 * threads);
            run(body, &input, n, 2, threads.into(), all, |machine, found| {
                assert_eq!(found, wanted, "{}: {threads} threads, {n}", machine.name);
            });
        }
    }
}

#[test]
fn three_branches_with_barriers_meet() {
    let way = |label: &str, adds: u32| {
        format!("{label} bar.sync 0; @%p3 bra JOIN; add.u32 %r2, %r2, {adds}; bra JOIN;")
    };
    // A fourth way has no barrier.
    for fourth in ["", "setp.eq.u32 %p4, %n, 3; @%p4 bra JOIN;"] {
        let body = format!(
            "mul.lo.u32 %r2, %t, 10; setp.eq.u32 %p3, %t, 0; {fourth}
             setp.eq.u32 %p1, %n, 1; @%p1 bra B; setp.eq.u32 %p2, %n, 2; @%p2 bra C;
             {} {} {} JOIN: st.global.u32 [%to], %r2; ret;",
            way("", 1),
            way("B:", 2),
            way("C:", 3),
        );
        for (threads, n) in
            [1_u32, 2, 3, 40].into_iter().flat_map(|it| (0..4_u32).map(move |n| (it, n)))
        {
            let adds = match n {
                3 if !fourth.is_empty() => 0,
                3 => 1,
                n => n + 1,
            };
            let wanted: Vec<u32> =
                (0..threads).map(|at| 10 * at + if at == 0 { 0 } else { adds }).collect();
            let input = vec![0; threads as usize];
            run(&body, &input, n.into(), 1, threads.into(), threads.into(), |machine, found| {
                assert_eq!(found, wanted, "{}: {threads} threads, {n}", machine.name);
            });
        }
    }
}

#[test]
fn a_branch_with_a_barrier_meets_two_without() {
    // The ways come in any order.
    let ways = [
        "add.u32 %r2, %r2, %n; bra JOIN;",
        "mul.lo.u32 %r2, %r2, 3; bra JOIN;",
        "bar.sync 0; @%p3 bra JOIN; add.u32 %r2, %r2, 9; bra JOIN;",
    ];
    for first in 0..3 {
        let way = |at: usize| ways[(first + at) % 3];
        let body = format!(
            "mul.lo.u32 %r2, %t, 10; setp.eq.u32 %p3, %t, 0;
             setp.eq.u32 %p1, %n, 1; @%p1 bra B; setp.eq.u32 %p2, %n, 2; @%p2 bra C;
             {} B: {} C: {} JOIN: st.global.u32 [%to], %r2; ret;",
            way(0),
            way(1),
            way(2),
        );
        for (threads, n) in
            [1_u32, 2, 40].into_iter().flat_map(|it| (0..3_u32).map(move |n| (it, n)))
        {
            let wanted = (0..threads).map(|at| match (first + n as usize) % 3 {
                0 => 10 * at + n,
                1 => 30 * at,
                _ => 10 * at + if at == 0 { 0 } else { 9 },
            });
            let (wanted, input) = (wanted.collect::<Vec<u32>>(), vec![0; threads as usize]);
            run(&body, &input, n.into(), 1, threads.into(), threads.into(), |machine, found| {
                assert_eq!(found, wanted, "{}: {first}, {threads} threads, {n}", machine.name);
            });
        }
    }
}

#[test]
fn differences_that_are_too_large_for_a_signed_number_are_right() {
    // Compilers know that the number of a thread is not negative.
    let body = "sad.s32 %r3, %t, 0x80000000, -1; st.global.u32 [%to], %r3;
         cvt.u64.u32 %rd1, %t; sad.s64 %rd2, %rd1, 0x8000000000000000, -1;
         mul.wide.u32 %rd3, %t, 8; add.s64 %rd3, %out, %rd3; st.global.u64 [%rd3+256], %rd2; ret;";
    run(body, &[], 0, 1, 64, 192, |machine, found| {
        let wanted: Vec<u32> = (0..64).map(|thread| 0x7fff_ffff + thread).collect();
        assert_eq!(found[..64], wanted, "{}", machine.name);
        let long: Vec<u64> = found[64..]
            .as_chunks()
            .0
            .iter()
            .map(|[low, high]| u64::from(*high) << 32 | u64::from(*low))
            .collect();
        let wanted: Vec<u64> = (0..64).map(|thread| 0x7fff_ffff_ffff_ffff + thread).collect();
        assert_eq!(long, wanted, "{}", machine.name);
    });
}
