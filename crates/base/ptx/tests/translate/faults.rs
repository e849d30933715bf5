//! Checks of addresses, traps and assertions.

use penstock_ptx::module::parse;
use penstock_ptx::translate::{Options, TranslateError, translate};

use super::{BASE, FREE, HEAD, OUT, machines, run, words};

/// Offset of the tests' bitmap, which marks only the first 256 bytes at [`FREE`] and [`OUT`] as
/// allocated.
const SHADOW: u64 = 16 << 10;

pub fn checked(body: &str, expected: (u64, u64), results: &[u32]) {
    checked_with(body, "", 0, expected, results);
}

/// Like [`checked`], with declarations and bytes of dynamic shared memory.
fn checked_with(
    body: &str,
    declarations: &str,
    dynamic: u64,
    expected: (u64, u64),
    results: &[u32],
) {
    let text = format!("{HEAD}{declarations}{}", super::kernel(body));
    for mut machine in machines() {
        machine.options.check = true;
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut bits = vec![0_u8; (64 << 20) / 256 / 8];
        for allocated in [FREE, OUT, 4096, SHADOW] {
            let block = usize::try_from(allocated / 256).unwrap();
            bits[block / 8] |= 1 << (block % 8);
        }
        machine.write(SHADOW, &bits);
        machine.write(OUT, &[0; 64]);
        let mut control = vec![0; 256];
        control[160..168].copy_from_slice(&(BASE + SHADOW).to_le_bytes());
        machine.launch_with(
            &ready,
            "k",
            &[BASE + FREE, BASE + OUT, 0],
            [1, 1, 1],
            [4, 1, 1],
            dynamic,
            &control,
        );
        let control = machine.control();
        let word = |at: usize| u64::from_le_bytes(control[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(8)), expected, "{}", machine.name);
        assert_eq!(words(&machine, OUT, results.len() as u64), results, "{}", machine.name);
    }
}

#[test]
fn accesses_inside_of_allocations_are_no_faults() {
    checked(
        "ld.global.u32 %r2, [%at]; add.u32 %r2, %r2, %t; st.global.u32 [%to], %r2; ret;",
        (0, 0),
        &[0, 1, 2, 3],
    );
}

#[test]
fn an_access_outside_of_every_allocation_is_a_fault_and_reads_zero() {
    checked(
        "ld.global.u32 %r2, [%in+4096]; add.u32 %r2, %r2, 5; st.global.u32 [%to], %r2; ret;",
        (1, BASE + FREE + 4096),
        &[5; 4],
    );
    checked("ld.global.u32 %r2, [64]; st.global.u32 [%to], 1; ret;", (1, 64), &[1; 4]);
    checked(
        "st.global.u32 [%out+256], 9; st.global.u32 [%to], 2; ret;",
        (1, BASE + OUT + 256),
        &[2; 4],
    );
}

#[test]
fn an_access_that_is_not_aligned_is_a_fault() {
    checked(
        "ld.global.u32 %r2, [%in+2]; st.global.u32 [%to], 3; ret;",
        (2, BASE + FREE + 2),
        &[3; 4],
    );
}

#[test]
fn an_access_behind_shared_memory_is_a_fault() {
    checked(
        ".shared .align 4 .b8 s[64]; mov.u32 %r2, s; st.shared.u32 [%r2+60], 4; st.shared.u32 [%r2+64], 4; st.global.u32 [%to], 4; ret;",
        (1, 64),
        &[4; 4],
    );
}

#[test]
fn generic_accesses_behind_shared_and_local_memory_are_faults() {
    checked(
        ".shared .align 4 .b8 s[64]; mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; st.u32 [%rd2+60], 1; st.u32 [%rd2+1000000], 1; st.global.u32 [%to], 5; ret;",
        (1, 1_000_000),
        &[5; 4],
    );
    checked(
        ".local .align 4 .b8 l[64]; mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+60], 1; ld.u32 %r2, [%rd2+1000000]; st.global.u32 [%to], 6; ret;",
        (1, 1_000_000),
        &[6; 4],
    );
}

#[test]
fn accesses_behind_dynamic_shared_memory_are_faults() {
    let dynamic = ".extern .shared .align 16 .b8 dyn[];";
    let body = |offset: u32| {
        format!(
            ".shared .align 4 .b8 s[32]; st.shared.u32 [s], 1; mov.u32 %r2, dyn; st.shared.u32 [%r2+{offset}], 4; mov.u64 %rd1, dyn; cvta.shared.u64 %rd1, %rd1; st.u32 [%rd1+{offset}], 4;
             st.global.u32 [%to], 7; ret;"
        )
    };
    checked_with(&body(60), dynamic, 64, (0, 0), &[7; 4]);
    checked_with(&body(64), dynamic, 64, (1, 96), &[7; 4]);
}

#[test]
fn parameters_end_where_the_structure_ends() {
    checked(
        "mov.b64 %rd1, a; ld.param.u32 %r2, [%rd1+16]; ld.param.u32 %r2, [%rd1+4096]; st.global.u32 [%to], 8; ret;",
        (1, 4096),
        &[8; 4],
    );
}

#[test]
fn asynchronous_copies_look_at_no_more_than_they_read() {
    let copy = |offset: u32, count: u32| {
        format!(
            ".shared .align 16 .b8 s[16]; mov.u32 %r2, {count}; st.shared.u32 [s+8], 5; add.u64 %rd1, %in, {offset};
             cp.async.cg.shared.global [s], [%rd1], 16, %r2; cp.async.wait_all; ld.shared.u32 %r3, [s+8]; add.u32 %r3, %r3, 9; st.global.u32 [%to], %r3; ret;"
        )
    };
    // At the edge of a matrix, none or a part of the bytes is inside.
    checked(&copy(4096, 0), (0, 0), &[9; 4]);
    checked(&copy(248, 8), (0, 0), &[9; 4]);
    checked(&copy(248, 12), (1, BASE + FREE + 259), &[9; 4]);
}

#[test]
fn textures_that_are_not_allocated_are_faults() {
    let sample = "tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%t, 0}]; add.u32 %r4, %r4, 3; st.global.u32 [%to], %r4; ret;";
    checked(&format!("add.u64 %rd2, %in, 8192; {sample}"), (1, BASE + FREE + 8192), &[3; 4]);
    // A descriptor whose texels end behind the allocation.
    let descriptor = "mov.u64 %rd2, %in; st.global.u64 [%in], %in; st.global.u64 [%in+8], 64; st.global.v4.u32 [%in+16], {8, 40, 4, 1}; st.global.u32 [%in+56], 0;";
    checked(&format!("{descriptor} {sample}"), (1, BASE + FREE + 39 * 64 + 31), &[3; 4]);
}

#[test]
fn an_address_that_no_memory_has_is_a_fault_without_checks() {
    run(
        "ld.global.u32 %r2, [64]; add.u32 %r2, %r2, 6; st.global.u32 [%to], %r2; ret;",
        &[],
        0,
        1,
        4,
        4,
        |machine, found| {
            assert_eq!(found, [6; 4], "{}", machine.name);
            assert_eq!(machine.fault(), (1, 12), "{}", machine.name);
        },
    );
}

#[test]
fn an_atomic_on_local_memory_is_a_fault() {
    run(
        ".local .align 4 .b8 l[16]; mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; setp.eq.u32 %p0, %n, 1; selp.b64 %rd3, %rd2, %to, %p0; atom.add.u32 %r2, [%rd3], 5; ret;",
        &[],
        1,
        1,
        4,
        4,
        |machine, found| {
            assert_eq!(found, [0; 4], "{}", machine.name);
            assert_eq!(machine.fault(), (1, 12), "{}", machine.name);
        },
    );
}

#[test]
fn a_trap_ends_the_thread_and_names_the_line() {
    run(
        "st.global.u32 [%to], 1; setp.eq.u32 %p0, %t, 2;\n @%p0 trap; st.global.u32 [%to], 2; ret;",
        &[],
        0,
        1,
        4,
        4,
        |machine, found| {
            assert_eq!(found, [2, 2, 1, 2], "{}", machine.name);
            let (code, line) = machine.fault();
            assert_eq!((code, line), (3, 13), "{}", machine.name);
        },
    );
}

#[test]
fn a_call_that_no_function_fits_is_a_trap() {
    run(
        "st.global.u32 [%to], 1; setp.ne.u32 %p0, %t, 2; @%p0 bra stores;\n\
         P: .callprototype _ (); call %in, P;\n stores: st.global.u32 [%to], 2; ret;",
        &[],
        0,
        1,
        4,
        4,
        |machine, found| {
            assert_eq!((found[0], found[1], found[3]), (2, 2, 2), "{}", machine.name);
            assert_eq!(machine.fault(), (3, 13), "{}", machine.name);
        },
    );
}

fn refusal(text: &str, options: &Options) -> TranslateError {
    translate(&parse(&format!("{HEAD}{text}")).unwrap(), options).unwrap_err()
}

#[test]
fn what_is_not_served_is_refused_by_name_and_line() {
    let options = Options {
        arenas: vec![(BASE, 1 << 20)],
        fp64: true,
        int64_atomics: true,
        exact_division: true,
        ..Options::default()
    };
    let recursive = ".func f(.param .b32 x) { .param .b32 p; st.param.b32 [p], 1; call f, (p); ret; }\n.visible .entry k() { .param .b32 p; st.param.b32 [p], 1; call f, (p); ret; }";
    assert!(matches!(refusal(recursive, &options), TranslateError::Recursion { .. }));
    let double = ".visible .entry k() { .reg .f64 %d<3>; mov.f64 %d1, 0d3FF0000000000000;\n add.f64 %d2, %d1, %d1; ret; }";
    let single = Options { fp64: false, ..options.clone() };
    assert_eq!(
        refusal(double, &single),
        TranslateError::DoublePrecision { instruction: String::from("add.f64"), line: 5 }
    );
    // Doubles that are only moved do not need support: the error names the calculation, not the
    // load.
    assert!(translate(&parse(&format!("{HEAD}.visible .entry k(.param .u64 a) {{ .reg .f64 %d<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [a]; ld.global.f64 %d1, [%rd1]; mov.f64 %d2, %d1; st.global.f64 [%rd1+8], %d2; ret; }}")).unwrap(), &single).is_ok());
    let atomic = ".visible .entry k(.param .u64 a) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [a]; red.global.add.u64 [%rd1], 1; ret; }";
    let narrow = Options { int64_atomics: false, ..options.clone() };
    assert!(matches!(refusal(atomic, &narrow), TranslateError::Atomics64 { line: 4, .. }));
    assert_eq!(
        refusal(double, &Options { arenas: Vec::new(), ..options }),
        TranslateError::Arenas { count: 0 }
    );
}
