//! Instructions for several threads (warps, barriers, contended atomics), and control flow.

use penstock_trial::{Need, skip};

use crate::machine::{BASE, FREE, Machine, machines};

/// Threads of a block in these tests: four warps.
const THREADS: u64 = 128;

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

/// Offset of the results.
const OUT: u64 = FREE + (1 << 20);

/// Returns a kernel that gives each thread its own word of the input in `%v`, and stores `%d`.
fn kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 p0, .param .u64 p1)\n{{\n.reg .b64 %in, %out, %at;\n.reg .b32 %i, %n, %t, %v, %d, %x, %y, %z;\n\
         .reg .pred %p, %q;\nmov.u32 %i, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %t, %tid.x;\nmad.lo.s32 %i, %i, %n, %t;\n\
         mul.wide.s32 %at, %i, 4;\nld.param.u64 %in, [p0];\nld.param.u64 %out, [p1];\nadd.s64 %in, %in, %at;\nadd.s64 %out, %out, %at;\n\
         ld.global.u32 %v, [%in];\n{body}\nst.global.u32 [%out], %d;\nret;\n}}\n"
    )
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// Returns the words that the threads store, for an input of one word per thread.
fn results(machine: &Machine, text: &str, input: &[u32]) -> Vec<u32> {
    let ready = machine.build(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    machine.write(FREE, &bytes);
    machine.write(OUT, &vec![0xee; bytes.len()]);
    machine.launch(
        &ready,
        "k",
        &[BASE + FREE, BASE + OUT],
        input.len() as u64 / THREADS,
        THREADS,
        256,
    );
    words(&machine.read(OUT, bytes.len() as u64))
}

/// Returns an input in which values repeat within a warp.
fn input() -> Vec<u32> {
    let mut random = penstock_trial::Random::new(77);
    (0..2 * THREADS as u32)
        .map(|thread| if thread / 32 == 2 { 5 } else { (random.number() >> 40) as u32 % 40 })
        .collect()
}

type Reference = Box<dyn Fn(&[u32], usize) -> u32>;

/// A body, and the word that each lane of a warp must store, given the warp's 32 values and the
/// lane's number.
struct Test {
    body: String,
    reference: Reference,
}

fn test(body: impl Into<String>, reference: impl Fn(&[u32], usize) -> u32 + 'static) -> Test {
    Test { body: body.into(), reference: Box::new(reference) }
}

fn run(family: &str, tests: &[Test]) {
    for machine in machines() {
        let mut failures = 0;
        // One launch after the other, all with the same input.
        let input = input();
        for test in tests {
            let text = kernel(&test.body);
            let got = results(&machine, &text, &input);
            for (warp, (values, results)) in
                input.chunks_exact(32).zip(got.chunks_exact(32)).enumerate()
            {
                let expected: Vec<u32> =
                    (0..32).map(|lane| (test.reference)(values, lane)).collect();
                if expected != results {
                    failures += 1;
                    eprintln!(
                        "{family} on {}: {}\n  warp {warp}: {results:x?}\n  not {expected:x?}",
                        machine.name, test.body
                    );
                    break;
                }
            }
        }
        assert_eq!(failures, 0, "{family} on {}", machine.name);
        eprintln!("{family} on {}: {} forms agree", machine.name, tests.len());
    }
}

/// Returns the lane that `shfl` reads, if it is in range.
fn source(mode: &str, lane: u32, b: u32, c: u32) -> Option<u32> {
    let (clamp, segment) = (c & 31, (c >> 8) & 31);
    let last = (lane & segment) | (clamp & !segment);
    let first = lane & segment;
    let b = b & 31;
    match mode {
        "up" => lane.checked_sub(b).filter(|from| *from >= last),
        "down" => Some(lane + b).filter(|from| *from <= last),
        "bfly" => Some(lane ^ b).filter(|from| *from <= last),
        _ => Some(first | (b & !segment & 31)).filter(|from| *from <= last),
    }
}

#[test]
fn shuffles_agree() {
    let mut tests = Vec::new();
    for mode in ["up", "down", "bfly", "idx"] {
        // The whole warp, groups of 8, and groups of 16 for `up` (whose limit is the lowest lane).
        for width in [32u32, 8, 16] {
            let c = if mode == "up" { (32 - width) << 8 } else { ((32 - width) << 8) | 31 };
            for (b, each) in [("%x", true), ("3", false)] {
                let own = move |values: &[u32], lane: usize| if each { values[lane] } else { 3 };
                // With `idx` each lane may choose another lane; PTX allows the same for the other
                // modes.
                let body = format!(
                    "mov.u32 %x, %v; shfl.sync.{mode}.b32 %d|%p, %v, {b}, {c}, -1;\n@!%p add.u32 %d, %d, 1000;"
                );
                tests.push(test(body, move |values, lane| {
                    match source(mode, lane as u32, own(values, lane), c) {
                        Some(from) => values[from as usize],
                        None => values[lane] + 1000,
                    }
                }));
            }
        }
    }
    run("shuffles", &tests);
}

#[test]
fn votes_and_matches_agree() {
    let mask = |values: &[u32], holds: &dyn Fn(u32) -> bool| {
        values
            .iter()
            .enumerate()
            .fold(0u32, |mask, (lane, value)| mask | (u32::from(holds(*value)) << lane))
    };
    let condition = "setp.gt.u32 %p, %v, 20;";
    let mut tests = vec![
        test(format!("{condition} vote.sync.ballot.b32 %d, %p, -1;"), move |values, _| {
            mask(values, &|value| value > 20)
        }),
        test(format!("{condition} vote.sync.ballot.b32 %d, !%p, -1;"), move |values, _| {
            mask(values, &|value| value <= 20)
        }),
        test(
            format!("{condition} vote.sync.all.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;"),
            |values, _| u32::from(values.iter().all(|value| *value > 20)),
        ),
        test(
            format!("{condition} vote.sync.any.pred %q, !%p, -1; selp.u32 %d, 1, 0, %q;"),
            |values, _| u32::from(values.iter().any(|value| *value <= 20)),
        ),
        test(
            format!("{condition} vote.sync.uni.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;"),
            |values, _| {
                let first = values[0] > 20;
                u32::from(values.iter().all(|value| (*value > 20) == first))
            },
        ),
        test("match.any.sync.b32 %d, %v, -1;", move |values, lane| {
            mask(values, &|value| value == values[lane])
        }),
        test("match.all.sync.b32 %d|%p, %v, -1; @%p add.u32 %d, %d, 1;", |values, _| {
            if values.iter().all(|value| *value == values[0]) {
                0u32.wrapping_sub(1).wrapping_add(1)
            } else {
                0
            }
        }),
        test("elect.sync %x|%p, -1; vote.sync.ballot.b32 %d, %p, -1; popc.b32 %d, %d;", |_, _| 1),
        test("activemask.b32 %d;", |_, _| u32::MAX),
        test("mov.u32 %d, %lanemask_lt; mov.u32 %x, %lanemask_ge; xor.b32 %d, %d, %x;", |_, _| {
            u32::MAX
        }),
        test(
            "mov.u32 %d, %lanemask_le; mov.u32 %x, %lanemask_gt; mov.u32 %y, %lanemask_eq; and.b32 %x, %x, %y; add.u32 %d, %d, %x;",
            |_, lane| ((1u64 << (lane + 1)) - 1) as u32,
        ),
        test(
            "mov.u32 %d, %laneid; mov.u32 %x, %warpid; shl.b32 %x, %x, 8; mov.u32 %y, %tid.x; shl.b32 %z, %y, 3; and.b32 %z, %z, 0x300; sub.u32 %x, %x, %z; add.u32 %d, %d, %x;",
            |_, lane| lane as u32,
        ),
    ];
    for (op, ty, f) in [
        ("add", "u32", (|a: u32, b: u32| a.wrapping_add(b)) as fn(u32, u32) -> u32),
        ("min", "u32", |a, b| a.min(b)),
        ("max", "s32", |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
        ("and", "b32", |a, b| a & b),
        ("or", "b32", |a, b| a | b),
        ("xor", "b32", |a, b| a ^ b),
    ] {
        tests.push(test(format!("redux.sync.{op}.{ty} %d, %v, -1;"), move |values, _| {
            values.iter().copied().reduce(f).expect("32 lanes")
        }));
    }
    run("votes", &tests);
}

#[test]
fn threads_that_went_another_way_are_left_out() {
    let tests = [
        // Only the lanes whose value is odd take part.
        test(
            "mov.u32 %d, 0; and.b32 %x, %v, 1; setp.eq.u32 %p, %x, 1; vote.sync.ballot.b32 %y, %p, -1;\n@!%p bra done;\n\
             shfl.sync.idx.b32 %d, %v, 0, 31, %y;\nvote.sync.ballot.b32 %d, 1, %y;\ndone:",
            |values, lane| {
                if values[lane] & 1 == 0 {
                    return 0;
                }
                values.iter().enumerate().fold(0, |mask, (lane, value)| mask | ((value & 1) << lane))
            },
        ),
        // Each thread runs a loop of a different length, with a vote that counts the threads still
        // in it.
        test(
            "mov.u32 %d, 0; and.b32 %x, %v, 7; bar.warp.sync -1;\nagain:\nactivemask.b32 %y;\nadd.u32 %d, %d, 1;\nsetp.eq.u32 %p, %x, 0;\n\
             sub.u32 %x, %x, 1;\n@!%p bra again;",
            |values, lane| (values[lane] & 7) + 1,
        ),
        // One half of the warp exchanges values, and so does the other half at another place.
        test(
            "setp.lt.u32 %p, %t, 0; mov.u32 %z, %laneid; setp.lt.u32 %p, %z, 16;\n@%p bra low;\nshfl.sync.bfly.b32 %d, %v, 1, 31, 0xffff0000;\n\
             add.u32 %d, %d, 100; bra join;\nlow: shfl.sync.bfly.b32 %d, %v, 2, 31, 0x0000ffff;\njoin:",
            |values, lane| if lane < 16 { values[lane ^ 2] } else { values[lane ^ 1] + 100 },
        ),
    ]
    .map(|mut test| {
        test.body = test.body.replace("vote.sync.ballot.b32 %d, 1, %y", "setp.eq.u32 %q, %x, 1; vote.sync.ballot.b32 %d, %q, %y");
        test
    });
    run("divergence", &tests);
}

/// Runs a body. `reference` returns the word that a thread must store, given the block's values and
/// the thread's number.
fn of_blocks(
    family: &str,
    body: &str,
    declarations: &str,
    reference: impl Fn(&[u32], usize) -> u32,
) {
    for machine in machines() {
        let input = input();
        let text = kernel(body).replacen(HEAD, &format!("{HEAD}{declarations}\n"), 1);
        let got = results(&machine, &text, &input);
        for (values, results) in
            input.chunks_exact(THREADS as usize).zip(got.chunks_exact(THREADS as usize))
        {
            let expected: Vec<u32> =
                (0..values.len()).map(|thread| reference(values, thread)).collect();
            assert_eq!(results, expected, "{family} on {}", machine.name);
        }
    }
}

#[test]
fn a_barrier_makes_shared_memory_visible() {
    // The block's values in opposite order, through static and through dynamic shared memory.
    let body = |name: &str| {
        format!(
            "shl.b32 %x, %t, 2; mov.u32 %y, {name}; add.u32 %y, %y, %x; st.shared.u32 [%y], %v; bar.sync 0;\n\
             sub.u32 %x, %n, %t; sub.u32 %x, %x, 1; shl.b32 %x, %x, 2; mov.u32 %y, {name}; add.u32 %y, %y, %x; ld.shared.u32 %d, [%y];"
        )
    };
    of_blocks("static", &body("s"), ".shared .align 4 .b8 s[512];", |values, thread| {
        values[values.len() - 1 - thread]
    });
    let narrow = body("s")
        .replace("shl.b32 %x, %x, 2", "shl.b32 %x, %x, 1")
        .replace("shl.b32 %x, %t, 2", "shl.b32 %x, %t, 1")
        .replace("shared.u32", "shared.u16");
    of_blocks("dynamic", &narrow, ".extern .shared .align 4 .b8 s[];", |values, thread| {
        values[values.len() - 1 - thread]
    });
}

#[test]
fn barriers_in_loops_and_with_results_agree() {
    // A reduction tree.
    let body = "mov.u32 %z, s; shl.b32 %x, %t, 2; add.u32 %z, %z, %x; st.shared.u32 [%z], %v; mov.u32 %x, 64;\nagain:\nbar.sync 0;\n\
                setp.ge.u32 %p, %t, %x;\n@%p bra skip;\nshl.b32 %y, %x, 2; add.u32 %y, %z, %y; ld.shared.u32 %y, [%y]; ld.shared.u32 %d, [%z];\n\
                add.u32 %d, %d, %y; st.shared.u32 [%z], %d;\nskip:\nshr.u32 %x, %x, 1;\nsetp.ne.u32 %p, %x, 0;\n@%p bra again;\nbar.sync 0;\nld.shared.u32 %d, [s];";
    of_blocks("sums", body, ".shared .align 4 .b8 s[512];", |values, _| values.iter().sum());
    let condition = "setp.gt.u32 %p, %v, 20;";
    of_blocks(
        "bar.red.popc",
        &format!("{condition} bar.red.popc.u32 %d, 0, %p;"),
        "",
        |values, _| values.iter().filter(|value| **value > 20).count() as u32,
    );
    of_blocks(
        "bar.red.and",
        &format!("{condition} bar.red.and.pred %q, 0, !%p; selp.u32 %d, 1, 0, %q;"),
        "",
        |values, _| u32::from(values.iter().all(|value| *value <= 20)),
    );
    of_blocks(
        "bar.red.or",
        &format!("{condition} barrier.red.or.pred %q, 0, %p; selp.u32 %d, 1, 0, %q;"),
        "",
        |values, _| u32::from(values.iter().any(|value| *value > 20)),
    );
}

#[test]
fn a_barrier_that_only_some_threads_reach_waits_for_those() {
    // Each half of the block meets at a barrier of its own, after a loop of a different length.
    let body = "mov.u32 %z, s; shl.b32 %x, %t, 2; add.u32 %z, %z, %x; setp.lt.u32 %p, %t, 64;\n@%p bra low;\nst.shared.u32 [%z], %v;\n\
                barrier.sync 2, 64;\nxor.b32 %y, %t, 1; shl.b32 %y, %y, 2; mov.u32 %x, s; add.u32 %y, %y, %x; ld.shared.u32 %d, [%y]; bra done;\n\
                low: add.u32 %x, %v, 7; st.shared.u32 [%z], %x;\nbarrier.sync 1, 64;\nxor.b32 %y, %t, 2; shl.b32 %y, %y, 2; mov.u32 %x, s; add.u32 %y, %y, %x;\n\
                ld.shared.u32 %d, [%y];\ndone:";
    of_blocks("two barriers", body, ".shared .align 4 .b8 s[512];", |values, thread| {
        if thread < 64 { values[thread ^ 2] + 7 } else { values[thread ^ 1] }
    });
    // Half of the threads only announce that their values are stored; the others wait for them.
    for (arrive, sync) in [
        ("bar.arrive 1, 128;", "bar.sync 1, 128;"),
        ("barrier.arrive 3, 128;", "barrier.sync 3, 128;"),
    ] {
        let body = format!(
            "mov.u32 %z, s; shl.b32 %x, %t, 2; add.u32 %z, %z, %x; setp.lt.u32 %p, %t, 64;\n@%p bra low;\nst.shared.u32 [%z], %v;\n{arrive}\nmov.u32 %d, 9; bra done;\n\
             low: {sync}\nld.shared.u32 %d, [%z+256];\ndone:"
        );
        of_blocks("arrivals", &body, ".shared .align 4 .b8 s[512];", |values, thread| {
            if thread < 64 { values[thread + 64] } else { 9 }
        });
    }
    // Threads that have ended do not block the others.
    let body = "setp.ge.u32 %p, %t, 96;\nmov.u32 %d, 1;\n@%p st.global.u32 [%out], %d;\n@%p exit;\nmov.u32 %z, s; shl.b32 %x, %t, 2; add.u32 %z, %z, %x;\n\
                st.shared.u32 [%z], %v;\nbar.sync 0;\nxor.b32 %y, %t, 31; shl.b32 %y, %y, 2; mov.u32 %x, s; add.u32 %y, %y, %x; ld.shared.u32 %d, [%y];";
    of_blocks("exits", body, ".shared .align 4 .b8 s[512];", |values, thread| {
        if thread >= 96 { 1 } else { values[thread ^ 31] }
    });
}

#[test]
fn atomics_from_all_threads_add_up() {
    for machine in machines() {
        let text = format!(
            "{HEAD}.visible .entry k(.param .u64 p0, .param .u64 p1)\n{{\n.reg .b64 %c, %o, %w;\n.reg .b32 %t, %x, %y;\n.reg .f32 %f;\n.reg .f64 %g;\n.reg .pred %p;\n\
             .shared .align 4 .b32 s;\nld.param.u64 %c, [p0];\nmov.u32 %t, %tid.x;\nsetp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 [s], 0;\nbar.sync 0;\n\
             red.global.add.u32 [%c], 1;\natom.global.max.u32 %x, [%c+4], %t;\nred.global.add.f32 [%c+8], 0f3F800000;\n\
             mov.u64 %w, 4294967297;\natom.global.add.u64 %o, [%c+16], %w;\nred.global.add.f64 [%c+24], 0d3FE0000000000000;\n\
             atom.shared.add.u32 %x, [s], 1;\natom.global.inc.u32 %x, [%c+12], 99;\n\
             again: ld.volatile.global.u32 %x, [%c+32];\nadd.u32 %y, %x, 3;\natom.global.cas.b32 %y, [%c+32], %x, %y;\nsetp.ne.u32 %p, %x, %y;\n@%p bra again;\n\
             bar.sync 0;\nld.shared.u32 %x, [s];\nsetp.eq.u32 %p, %t, 5;\n@%p red.global.add.u32 [%c+36], %x;\nret;\n}}\n"
        );
        if !machine.options.int64_atomics {
            skip(Need::Ability, format_args!("{} has no atomics of 64 bits", machine.name));
            continue;
        }
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(FREE, &[0; 64]);
        machine.launch(&ready, "k", &[BASE + FREE, 0], 8, THREADS, 0);
        let memory = machine.read(FREE, 64);
        let all = 8 * THREADS as u32;
        let found = words(&memory);
        assert_eq!(
            (found[0], found[1]),
            (all, THREADS as u32 - 1),
            "add and max on {}",
            machine.name
        );
        assert_eq!(f32::from_bits(found[2]), all as f32, "sum of f32");
        assert_eq!(found[3], all % 100, "inc wraps at 99");
        assert_eq!((found[4], found[5]), (all, all), "sum of 64 bits");
        assert_eq!(
            f64::from_bits(u64::from(found[6]) | (u64::from(found[7]) << 32)),
            f64::from(all) / 2.0
        );
        assert_eq!(found[8], all * 3, "compare and swap");
        assert_eq!(found[9], all, "shared counters of 8 blocks");
    }
}

#[test]
fn calls_and_tables_agree() {
    let functions = ".visible .func (.param .b32 r) twice(.param .b32 a, .param .align 4 .b8 s[12])\n{ .reg .b32 %x, %y; ld.param.u32 %x, [a]; ld.param.u32 %y, [s+8]; add.u32 %x, %x, %x; add.u32 %x, %x, %y; st.param.b32 [r], %x; ret; }\n\
                     .func (.reg .b32 r) minus(.reg .b32 a, .reg .b32 b)\n{ .reg .pred %p; setp.gt.u32 %p, a, b; @%p bra more; sub.u32 r, b, a; ret; more: sub.u32 r, a, b; ret; }";
    let body = "{ .param .b32 a; .param .align 4 .b8 s[12]; .param .b32 r; st.param.b32 [a], %v; st.param.b32 [s+8], 100; call.uni (r), twice, (a, s); ld.param.b32 %x, [r]; }\n\
                call (%d), minus, (%x, 120);";
    of_blocks("calls", body, functions, |values, thread| (values[thread] * 2 + 100).abs_diff(120));
    let body = "and.b32 %x, %v, 3;\nlist: .branchtargets a0, a1, a2, a3;\nbrx.idx %x, list;\na0: mov.u32 %d, 10; bra end;\na1: mov.u32 %d, 11;\na2: add.u32 %d, %v, 2; bra end;\n\
                a3: mov.u32 %d, 13;\nend:";
    of_blocks("tables", body, "", |values, thread| match values[thread] & 3 {
        0 => 10,
        3 => 13,
        _ => values[thread] + 2,
    });
    // Through a table of functions in memory.
    let functions = ".func (.param .b32 r) one(.param .b32 a)\n{ .reg .b32 %x; ld.param.u32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }\n\
                     .func (.param .b32 r) two(.param .b32 a)\n{ .reg .b32 %x; ld.param.u32 %x, [a]; mul.lo.u32 %x, %x, 2; st.param.b32 [r], %x; ret; }\n\
                     .global .align 8 .u64 table[2] = {one, two};";
    let body = "{ .param .b32 a; .param .b32 r; .reg .b64 f, g; and.b32 %x, %v, 1; mul.wide.u32 f, %x, 8; mov.u64 g, table; add.u64 f, f, g; ld.global.u64 f, [f];\n\
                st.param.b32 [a], %v; proto: .callprototype (.param .b32 _) _ (.param .b32 _); call (r), f, (a), proto; ld.param.b32 %d, [r]; }";
    of_blocks("indirect calls", body, functions, |values, thread| {
        if values[thread] & 1 == 0 { values[thread] + 1 } else { values[thread] * 2 }
    });
}

#[test]
fn a_trap_leaves_its_line() {
    for machine in machines() {
        let text = kernel("mov.u32 %d, %v;\nsetp.eq.u32 %p, %i, 3;\n@%p trap;");
        let line =
            text.lines().position(|line| line.contains("trap")).expect("it is there") as u32 + 1;
        results(&machine, &text, &input());
        assert_eq!(machine.fault(), (3, line), "{}", machine.name);
    }
}
