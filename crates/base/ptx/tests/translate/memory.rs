//! Memory: spaces, generic addresses, local arrays, dynamic shared memory, atomics, wide accesses;
//! halves and doubles.

use penstock_trial::{Need, skip};

use super::{BASE, FREE, HEAD, OUT, bytes_of, floats, machines, run, words};

#[test]
fn a_histogram_is_counted_in_shared_memory_and_added_in_global() {
    let input: Vec<u32> = (0..4096_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 27).collect();
    let mut expected = vec![0; 32];
    input.iter().for_each(|value| expected[*value as usize] += 1);
    run(
        ".shared .align 4 .b8 h[128]; mov.u32 %r2, h; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2; setp.ge.u32 %p0, %t, 32;
         @!%p0 st.shared.u32 [%r3], 0; bar.sync 0;
         ld.global.u32 %r4, [%at]; shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r2; atom.shared.add.u32 %r6, [%r5], 1;
         bar.sync 0; @%p0 bra DONE; ld.shared.u32 %r7, [%r3]; mul.wide.u32 %rd1, %t, 4; add.s64 %rd1, %out, %rd1; red.global.add.u32 [%rd1], %r7; DONE: ret;",
        &input,
        0,
        16,
        256,
        32,
        |machine, found| assert_eq!(found, expected, "{}", machine.name),
    );
}

#[test]
fn atomics_of_all_kinds_keep_count() {
    let body = "
        atom.global.add.f32 %f1, [%out], 0f3F800000; red.global.add.f64 [%out+8], 0d3FE0000000000000; atom.global.inc.u32 %r2, [%out+16], 6;
        red.global.max.s32 [%out+20], %g; red.global.or.b32 [%out+24], %g; atom.global.add.u64 %rd2, [%out+32], 5000000000;
        add.u64 %rd3, %out, 40; AGAIN: ld.volatile.global.u32 %r3, [%rd3]; add.u32 %r4, %r3, 2; atom.global.cas.b32 %r5, [%rd3], %r3, %r4; setp.ne.u32 %p1, %r5, %r3; @%p1 bra AGAIN;
        atom.add.u32 %r6, [%rd3+4], 3; red.global.min.s32 [%out+48], -5; ret;";
    run(body, &[], 0, 5, 64, 16, |machine, found| {
        assert_eq!(f32::from_bits(found[0]), 320.0, "{}", machine.name);
        assert_eq!(f64::from_bits(u64::from(found[3]) << 32 | u64::from(found[2])), 160.0);
        assert_eq!(found[4], 320 % 7);
        assert_eq!(found[5], 319);
        assert_eq!(found[6], 511);
        assert_eq!(u64::from(found[9]) << 32 | u64::from(found[8]), 320 * 5_000_000_000);
        assert_eq!((found[10], found[11]), (640, 960));
        assert_eq!(found[12] as i32, -5);
    });
}

#[test]
fn generic_addresses_lead_to_shared_local_and_global_memory() {
    run(
        ".shared .align 4 .b8 s[256]; .local .align 4 .b8 l[16];
         mul.wide.u32 %rd1, %t, 4; mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; add.s64 %rd3, %rd3, %rd1;
         mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4; st.local.u32 [%rd4+8], 7;
         cvta.global.u64 %rd6, %at;
         ld.u32 %r2, [%rd6]; st.u32 [%rd3], %r2; ld.u32 %r3, [%rd5+8]; st.u32 [%rd5+12], %r3; ld.local.u32 %r4, [%rd4+12];
         bar.sync 0; xor.b64 %rd7, %rd3, 4; ld.u32 %r5, [%rd7];
         setp.eq.u32 %p0, %n, 1; selp.b64 %rd8, %rd3, %rd5, %p0; ld.u32 %r8, [%rd8+0];
         isspacep.shared %p1, %rd3; isspacep.shared %p2, %rd5; isspacep.global %p3, %rd6; isspacep.local %p4, %rd5;
         selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2; add.u32 %r6, %r6, %r7; selp.u32 %r7, 4, 0, %p3; add.u32 %r6, %r6, %r7; selp.u32 %r7, 8, 0, %p4; add.u32 %r6, %r6, %r7;
         mul.wide.u32 %rd9, %g, 16; add.s64 %rd9, %out, %rd9; st.global.v4.u32 [%rd9], {%r5, %r4, %r6, %r8}; ret;",
        &(0..64).map(|i| i + 1000).collect::<Vec<u32>>(),
        1,
        1,
        64,
        256,
        |machine, found| {
            for (thread, row) in (0..).zip(found.chunks(4)) {
                assert_eq!(row, [(thread ^ 1) + 1000, 7, 13, thread + 1000], "{}: {thread}", machine.name);
            }
        },
    );
}

#[test]
fn local_arrays_are_each_threads_own() {
    run(
        ".local .align 8 .b8 l[64]; mov.u64 %rd1, l; mov.u32 %r2, 0;
         FILL: mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; mad.lo.u32 %r3, %r2, 10, %g; st.local.u32 [%rd3], %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, 16; @%p0 bra FILL;
         bar.sync 0; and.b32 %r4, %g, 15; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd5, %rd1, %rd4; ld.local.u32 %r5, [%rd5]; st.global.u32 [%to], %r5; ret;",
        &[],
        0,
        2,
        64,
        128,
        |machine, found| {
            for (thread, value) in (0..).zip(found) {
                assert_eq!(*value, thread % 16 * 10 + thread, "{}: {thread}", machine.name);
            }
        },
    );
}

#[test]
fn dynamic_shared_memory_lies_behind_static() {
    let text = format!(
        "{HEAD}.extern .shared .align 16 .b8 dyn[]; {}",
        super::kernel(
            ".shared .align 4 .b8 fixed[100]; mov.u32 %r2, dyn; mov.u32 %r3, fixed; shl.b32 %r4, %t, 2; add.u32 %r5, %r2, %r4; st.shared.u32 [%r5], %g;
             setp.lt.u32 %p0, %t, 25; add.u32 %r6, %r3, %r4; @%p0 st.shared.u32 [%r6], -1; bar.sync 0;
             not.b32 %r7, %r4; add.u32 %r7, %r7, 253; add.u32 %r8, %r2, %r7; ld.shared.u32 %r9, [%r8]; st.global.u32 [%to], %r9; ret;"
        )
    );
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 2, 64, 256);
        for (thread, value) in (0_u32..).zip(words(&machine, OUT, 128)) {
            assert_eq!(value, thread / 64 * 64 + 63 - thread % 64, "{}: {thread}", machine.name);
        }
    }
}

#[test]
fn variables_of_the_module_and_pointers_to_them_are_found() {
    let text = format!(
        "{HEAD}.const .align 4 .b32 table[4] = {{10, 20, 30, 40}}; .global .align 8 .u64 where = generic(count); .global .align 4 .u32 count = 5; {}",
        super::kernel(
            "and.b32 %r2, %t, 3; mov.u64 %rd1, table; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; ld.const.u32 %r3, [%rd3];
             ld.const.u32 %r4, [table+4]; ld.global.u64 %rd4, [where]; ld.u32 %r5, [%rd4]; add.u32 %r6, %r3, %r4; add.u32 %r6, %r6, %r5; st.global.u32 [%to], %r6; ret;"
        )
    );
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 8, 0);
        assert_eq!(words(&machine, OUT, 8), [35, 45, 55, 65, 35, 45, 55, 65], "{}", machine.name);
    }
}

#[test]
fn pointers_that_move_in_nested_loops_read_what_they_point_at() {
    // Sum of a matrix with rows of 8, with a pointer to the row and one inside the row.
    run(
        "mov.u64 %rd1, %in; mov.u32 %r2, 0; mov.u32 %r9, 0;
         ROW: mov.u64 %rd2, %rd1; mov.u32 %r3, 0;
         COLUMN: ld.global.u32 %r4, [%rd2]; mad.lo.u32 %r9, %r4, %t, %r9; ld.global.u32 %r5, [%rd2+4]; add.u32 %r9, %r9, %r5;
         add.s64 %rd2, %rd2, 8; add.u32 %r3, %r3, 2; setp.lt.u32 %p0, %r3, 8; @%p0 bra COLUMN;
         mul.wide.u32 %rd3, %n, 4; add.s64 %rd1, %rd1, %rd3; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra ROW;
         st.global.u32 [%to], %r9; ret;",
        &(0..40).map(|i| i * i).collect::<Vec<u32>>(),
        10,
        1,
        32,
        32,
        |machine, found| {
            let at = |row: u32, column: u32| (row * 10 + column) * (row * 10 + column);
            for (thread, value) in (0..).zip(found) {
                let sum: u32 = (0..4).flat_map(|row| (0..4).map(move |pair| at(row, 2 * pair) * thread + at(row, 2 * pair + 1))).sum();
                assert_eq!(*value, sum, "{}: {thread}", machine.name);
            }
        },
    );
}

#[test]
fn doubles_and_halves_are_computed() {
    let input: Vec<f32> = (0..64).map(|i| i as f32 * 0.75 - 10.0).collect();
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            ".reg .b16 %h<8>;
             ld.global.f32 %f1, [%at]; cvt.f64.f32 %d1, %f1; mul.f64 %d2, %d1, %d1; add.f64 %d2, %d2, 0d3FF0000000000000; sqrt.rn.f64 %d3, %d2; div.rn.f64 %d4, %d1, %d3; cvt.rn.f32.f64 %f2, %d4;
             cvt.rn.f16.f32 %h1, %f1; fma.rn.f16 %h2, %h1, %h1, %h1; cvt.f32.f16 %f3, %h2;
             mul.wide.u32 %rd1, %g, 8; add.s64 %rd1, %out, %rd1; st.global.v2.f32 [%rd1], {%f2, %f3}; ret;"
        )
    );
    for machine in machines() {
        if !machine.options.fp64 {
            skip(Need::Ability, format_args!("{} has no double precision", machine.name));
            continue;
        }
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(FREE, &bytes_of(&input, f32::to_le_bytes));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 64, 0);
        for (x, pair) in input.iter().zip(floats(&machine, OUT, 128).chunks(2)) {
            let wide = f64::from(*x);
            assert_eq!(
                pair[0],
                (wide / (wide * wide + 1.0).sqrt()) as f32,
                "{}: {x}",
                machine.name
            );
            // Quarters below 64 are exact in half precision; their squares have a few bits more.
            let exact = x * x + x;
            assert!(
                (pair[1] - exact).abs() <= exact.abs() / 2048.0,
                "{}: {x}: {} for {exact}",
                machine.name,
                pair[1]
            );
        }
    }
}

#[test]
fn a_program_for_several_arenas_builds() {
    let body = ".shared .align 4 .b8 s[64]; ld.u32 %r2, [%at]; st.shared.u32 [s], %r2; atom.add.u32 %r3, [%out], 1; ld.global.v2.u32 {%r4, %r5}, [%at]; st.global.u32 [%to], %r4; ret;";
    for mut machine in machines() {
        machine.options.arenas.push((BASE + (1 << 40), 1 << 20));
        let built = machine.build(&format!("{HEAD}{}", super::kernel(body)));
        assert!(built.is_ok(), "{}: {:?}", machine.name, built.err());
    }
}

#[test]
fn products_with_a_number_are_as_wide_as_their_instruction() {
    // As 32 bits, 0xFFFFFFFC is -4, and -4 without a sign is 4294967292.
    run(
        "add.u32 %r2, %t, 1; mul.wide.s32 %rd1, %r2, 0xFFFFFFFC; add.s64 %rd2, %in, %rd1; ld.global.u32 %r3, [%rd2+64];
         mul.wide.u32 %rd3, %r2, -4; cvt.u64.u32 %rd4, %r2; shl.b64 %rd4, %rd4, 32; sub.s64 %rd5, %rd3, %rd4; add.s64 %rd6, %in, %rd5; ld.global.u32 %r4, [%rd6+64];
         mad.wide.s32 %rd7, %r2, 0xFFFFFFFC, %in; ld.global.u32 %r5, [%rd7+64];
         .shared .align 4 .b8 s[64]; mov.u32 %r6, s; shl.b32 %r7, %t, 2; add.u32 %r8, %r6, %r7; st.shared.u32 [%r8], %t; bar.sync 0;
         mad.lo.u32 %r9, %t, 0xFFFFFFFC, %r6; ld.shared.u32 %r10, [%r9+60];
         mul.wide.u32 %rd8, %g, 16; add.s64 %rd8, %out, %rd8; st.global.v4.u32 [%rd8], {%r3, %r4, %r5, %r10}; ret;",
        &(0..17).collect::<Vec<u32>>(),
        0,
        1,
        16,
        64,
        |machine, found| {
            for (thread, row) in (0..).zip(found.chunks(4)) {
                assert_eq!(row, [15 - thread; 4], "{}: {thread}", machine.name);
            }
        },
    );
}

#[test]
fn sums_of_halves_are_no_sums_of_addresses() {
    run(
        ".shared .align 4 .b8 s[64]; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r4, %r2, %r3; add.u32 %r5, %t, 50; st.shared.u32 [%r4], %r5; bar.sync 0;
         mov.u32 %r6, 0xfffc; add.u32 %r7, %r3, 8; add.u16x2 %r8, %r6, %r7; and.b32 %r8, %r8, 63; mov.u32 %r9, 0xfff8; add.u16x2 %r9, %r9, 16; ld.shared.u32 %r10, [%r9]; st.global.u32 [%to], %r10; ret;",
        &[],
        0,
        1,
        16,
        16,
        |machine, found| assert_eq!(found, [52; 16], "{}", machine.name),
    );
}

#[test]
fn doubles_are_copied_on_a_device_without_them() {
    let text = format!(
        "{HEAD}{}",
        super::kernel(
            "mul.wide.u32 %rd1, %g, 8; add.s64 %rd2, %in, %rd1; add.s64 %rd3, %out, %rd1; ld.global.f64 %d1, [%rd2]; mov.f64 %d2, %d1; mov.f64 %d3, 0d3FF8000000000000;
             setp.eq.u32 %p0, %t, 3; @%p0 mov.f64 %d2, %d3; st.global.f64 [%rd3], %d2; ret;"
        )
    );
    for mut machine in machines() {
        machine.options.fp64 = false;
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut values: Vec<u64> = (0..8).map(|index| f64::from(index).to_bits() + 1).collect();
        machine.write(FREE, &bytes_of(&values, u64::to_le_bytes));
        machine.launch(&ready, "k", &[BASE + FREE, BASE + OUT, 0], 1, 8, 0);
        values[3] = 1.5_f64.to_bits();
        assert_eq!(machine.read(OUT, 64), bytes_of(&values, u64::to_le_bytes), "{}", machine.name);
    }
}

#[test]
fn fences_of_every_kind_are_built() {
    // A message: the data, then the flag that announces it.
    run(
        "setp.ne.u32 %p0, %t, 0; @%p0 bra DONE; st.global.u32 [%out], 7; membar.gl; st.relaxed.gpu.global.u32 [%out+4], 1; fence.acq_rel.sys; st.release.gpu.global.u32 [%out+8], 2; fence.sc.cta;
         ld.acquire.gpu.global.u32 %r2, [%out+8]; atom.acq_rel.gpu.global.add.u32 %r3, [%out+12], %r2; atom.acquire.gpu.global.exch.b32 %r4, [%out+16], 4; red.release.gpu.global.add.u32 [%out+20], 5; DONE: ret;",
        &[],
        0,
        2,
        32,
        6,
        |machine, found| assert_eq!((&found[..3], &found[4..5]), (&[7, 1, 2][..], &[4][..]), "{}", machine.name),
    );
}
