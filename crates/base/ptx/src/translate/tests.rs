//! Tests of the generated text where its shape matters, for speed or for what it must not do.

mod machines;
mod together;

use super::{Options, Translation, translate};
use crate::module::parse;

const BASE: u64 = 0x7000_0000_0000;

fn options() -> Options {
    Options {
        arenas: vec![(BASE, 1 << 30)],
        fp64: true,
        int64_atomics: true,
        exact_division: true,
        ..Options::default()
    }
}

fn text_of(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{
        .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>; .shared .align 16 .b8 s[512];
        ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x;\n{body}\n}}"
    )
}

fn of(body: &str, options: &Options) -> Translation {
    translate(&parse(&text_of(body)).unwrap(), options).unwrap()
}

fn source(body: &str) -> String {
    of(body, &options()).source
}

#[test]
fn an_address_becomes_a_base_and_an_index() {
    let text = source(
        "mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; ld.global.f32 %f1, [%rd4+8]; ret;",
    );
    assert!(
        text.contains("((__global a_float *)AT(r0))[(long)((ulong)(long)(int)r2 + 0x2UL)]"),
        "{text}"
    );
}

#[test]
fn an_index_that_the_size_does_not_divide_stays_in_bytes() {
    let text = source(
        "mul.wide.s32 %rd3, %r1, 6; add.s64 %rd4, %rd2, %rd3; ld.global.f32 %f1, [%rd4]; ret;",
    );
    assert!(!text.contains("(__global a_float *)AT(r0))["), "{text}");
}

#[test]
fn shared_memory_is_indexed_by_elements_and_the_thread_read_again() {
    let text = source(
        "mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; bar.sync 0; ld.shared.f32 %f1, [%r4+16]; ret;",
    );
    assert!(text.contains("sh)[(int)(zero + (int)(uint)get_local_id(0) + 4)]"), "{text}");
}

#[test]
fn a_register_that_changed_since_is_not_looked_through() {
    // %rd3 was computed from %r2, which has changed since.
    let text = source(
        "mov.u32 %r2, 1; mul.wide.s32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3; add.s32 %r2, %r2, 5; ld.global.u32 %r3, [%rd4]; ret;",
    );
    let load = text.lines().find(|line| line.contains("a_uint *)AT")).unwrap();
    assert!(!load.contains("(int)r"), "{load}");
}

#[test]
fn what_other_threads_may_change_is_read_each_time() {
    let wait = |how: &str| {
        source(&format!(
            "L: ld{how}.global.u32 %r3, [%rd2]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; ret;"
        ))
    };
    for how in [".volatile", ".relaxed.gpu", ".acquire.sys", ".cv"] {
        assert!(wait(how).contains("volatile a_uint *)AT"), "{how}: {}", wait(how));
    }
    for how in ["", ".weak", ".ca"] {
        assert!(!wait(how).contains("volatile a_uint *)AT"), "{how}: {}", wait(how));
    }
    assert!(wait(".acquire.gpu").contains("ps_fence();"));
    let release = source("st.release.gpu.global.u32 [%rd2], %r1; ret;");
    assert!(
        release.find("ps_fence();").unwrap() < release.find("volatile a_uint *)AT").unwrap(),
        "{release}"
    );
}

#[test]
fn pointers_in_loops_are_a_start_and_a_step() {
    let text = source(
        "mul.wide.s32 %rd3, %r1, 4; add.s64 %rd5, %rd2, %rd3; mov.u32 %r2, 0;
         L: ld.global.u32 %r3, [%rd5]; add.s64 %rd5, %rd5, 128; add.s32 %r2, %r2, 1; setp.lt.s32 %p1, %r2, 9; @%p1 bra L; ret;",
    );
    assert!(text.contains(" += (long)(0x8UL);"), "the step counts in 16 bytes: {text}");
    assert!(text.contains("(ulong)q") && text.contains(" * 0x10UL))["), "{text}");
}

#[test]
fn only_what_is_used_of_the_prelude_is_there() {
    assert!(!source("ret;").contains("ps_"));
    let text = source("div.s32 %r2, %r1, %r1; ret;");
    assert!(text.contains("int ps_idiv_int(") && !text.contains("ps_irem_int("));
}

#[test]
fn a_kernel_has_only_the_arguments_that_it_uses() {
    use super::Argument::{Arena, Control, Data, Heap, Params, Shared};
    let arguments = |body: &str, options: &Options| of(body, options).kernels[0].arguments.clone();
    let one = options();
    assert_eq!(arguments("ret;", &one), [Params]);
    assert_eq!(arguments("st.shared.u32 [s], %r1; ret;", &one), [Params]);
    assert_eq!(arguments("ld.global.u32 %r2, [%rd2]; ret;", &one), [Arena(0), Params]);
    assert_eq!(arguments("trap;", &one), [Arena(0), Params, Control]);
    let two = Options { arenas: vec![(BASE, 1 << 20), (BASE + (1 << 40), 1 << 20)], ..options() };
    assert_eq!(arguments("ld.global.u32 %r2, [%rd2]; ret;", &two), [Arena(0), Arena(1), Params]);
    assert_eq!(arguments("ret;", &Options { heap: true, ..options() }), [Heap, Params]);

    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.global .align 4 .u32 g;\n.extern .shared .align 16 .b8 d[];\n
        .visible .entry empty() { ret; }
        .visible .entry global() { .reg .b32 %r<2>; ld.global.u32 %r1, [g]; st.global.u32 [g+0], %r1; ret; }
        .visible .entry dynamic() { .reg .b32 %r<2>; mov.u32 %r1, 1; st.shared.u32 [d], %r1; ret; }";
    let translation = translate(&parse(text).unwrap(), &one).unwrap();
    let all: Vec<_> =
        translation.kernels.iter().map(|kernel| kernel.arguments.as_slice()).collect();
    assert_eq!(all, [&[] as &[_], &[Arena(0), Data], &[Shared]], "{}", translation.source);
}

#[test]
fn several_arenas_are_chosen_by_the_address() {
    let two = Options { arenas: vec![(BASE, 1 << 20), (BASE + (1 << 40), 1 << 20)], ..options() };
    let text = of("ld.global.u32 %r2, [%rd2]; ret;", &two).source;
    assert!(
        text.contains("__global uchar *arena0, __global uchar *arena1, const struct"),
        "{text}"
    );
    assert!(
        text.contains(
            "a - 0x700000000000UL < 0x100000UL ? arena0 + (a - 0x700000000000UL) : arena1"
        ),
        "{text}"
    );
}

#[test]
fn a_heap_is_an_argument_and_a_window_of_addresses() {
    let with = Options { heap: true, ..options() };
    let text = of("ld.global.u32 %r2, [%rd2]; ret;", &with).source;
    assert!(text.contains("__global uchar *arena0, __global uchar *heap, const struct"), "{text}");
    assert!(
        text.contains(
            "IN_HEAP(a) ? heap + (a & 0x3fffffffffffUL) : arena0 + (a - 0x700000000000UL)"
        ),
        "{text}"
    );
    let checked = of("ld.global.u32 %r2, [%rd2]; ret;", &Options { check: true, ..with }).source;
    assert!(checked.contains("(IN_HEAP(r0) ? AT(r0) : ps_check(arena0, control, r0,"), "{checked}");
    assert!(!source("ld.global.u32 %r2, [%rd2]; ret;").contains("heap"));
}

#[test]
fn what_comes_behind_a_barrier_stays_apart_from_it_where_threads_part() {
    let behind = |text: &str| {
        source(&format!(
            "setp.eq.u32 %p1, %r1, 0; ld.param.u64 %rd3, [b]; setp.eq.u64 %p2, %rd3, 0; bar.sync 0;\n{text}"
        ))
        .contains("ps_apart();")
    };
    assert!(behind("@%p1 bra L; st.global.u32 [%rd2], %r1; L: ret;"));
    assert!(behind("@%p1 st.global.u32 [%rd2], %r1; ret;"));
    // One block further.
    assert!(behind("@%p2 bra L; @%p1 st.global.u32 [%rd2], %r1; L: ret;"));
    assert!(behind("st.u32 [%rd2], %r1; ret;"));
    assert!(
        !behind("st.global.u32 [%rd2], %r1; @%p1 bra L; st.global.u32 [%rd2+4], %r1; L: ret;"),
        "what is between stays there"
    );
    // All threads together; and behind the next barrier, which has its own call.
    assert!(!behind("@%p2 bra L; st.global.u32 [%rd2], %r1; L: ret;"));
    let text = source(
        "setp.eq.u32 %p1, %r1, 0; bar.sync 0; bar.sync 0; @%p1 st.global.u32 [%rd2], %r1; ret;",
    );
    assert_eq!(text.matches("ps_apart();").count(), 1, "{text}");
}

#[test]
fn a_sleep_gives_way() {
    let text = source(
        "L: nanosleep.u32 100; ld.acquire.sys.global.u32 %r3, [%rd2]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; ret;",
    );
    assert!(text.contains("ps_nanosleep(0x64u);"), "{text}");
    assert!(text.contains("void ps_nanosleep(uint ns)"), "{text}");
}

#[test]
fn nothing_is_contracted() {
    let text =
        source("mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f2; fma.rn.f32 %f5, %f1, %f2, %f3; ret;");
    assert!(text.starts_with("#pragma OPENCL FP_CONTRACT OFF"));
    assert!(text.contains("fma("));
}

#[test]
fn vectors_of_parameters_are_taken_from_words() {
    let text = ".version 8.0\n.target sm_75\n.visible .entry k(.param .align 16 .b8 s[32]) { .reg .f32 %f<9>; .reg .b64 %rd<3>;
        ld.param.v4.f32 {%f1, %f2, %f3, %f4}, [s+16]; mov.b64 %rd1, s; ld.param.v4.f32 {%f5, %f6, %f7, %f8}, [%rd1+16]; ret; }";
    let text = translate(&parse(text).unwrap(), &options()).unwrap().source;
    // The structure is aligned to 8 bytes, the memory type to 16.
    assert!(!text.contains("a_float4 *)((const uchar *)&p"), "{text}");
    assert!(
        text.contains("(float4)(as_float((uint)(p.w[2] >> 0)), as_float((uint)(p.w[2] >> 32)),"),
        "{text}"
    );
    assert!(text.contains("vload4(0, (const float *)((const uchar *)&p + "), "{text}");
}

/// A loop with barriers that ends when a value in memory changes.
fn waiting(load: &str, store: &str) -> String {
    format!(
        "L: {load} %r3, [%rd2]; setp.eq.u32 %p1, %r3, 0; @%p1 bra E; bar.sync 0; {store} bra L; E: ret;"
    )
}

#[test]
fn threads_agree_on_a_load_only_where_a_barrier_depends_on_it() {
    let store = "st.global.u32 [%rd2+4], %r1;";
    let agrees = |body: &str| source(body).contains("wa[both");
    assert!(agrees(&waiting("ld.global.u32", store)));
    assert!(!agrees(&waiting("ld.global.nc.u32", store)), "nobody writes what is read only");
    assert!(!agrees(&waiting("ld.global.u32", "")), "nobody writes at all");
    let beside = format!(
        "bar.sync 0; {} bar.sync 0; ret;",
        waiting("ld.global.u32", store).replace("bar.sync 0;", "").replace("ret;", "")
    );
    assert!(!agrees(&beside), "the barriers are outside of the loop");
    let address = format!(
        "ld.global.u64 %rd3, [%rd2+8]; {}",
        waiting("ld.global.u32", store).replace("[%rd2]", "[%rd3]")
    );
    assert_eq!(
        source(&address).matches("wa[both + 0u] =").count(),
        1,
        "on the value, not on where it lies"
    );
    let through = format!(
        "ld.global.u32 %r5, [%rd2]; mul.lo.u32 %r6, %r5, 3; setp.gt.u32 %p2, %r6, 7; @!%p2 bra N; add.u32 %r7, %r1, 1; N: @%p2 bar.sync 0; {store} ret;"
    );
    assert!(agrees(&through));
    assert!(!of(&waiting("ld.global.u32", store), &options()).kernels[0].is_machine);
}

#[test]
fn a_guarded_instruction_before_a_branch_does_not_divide_the_threads() {
    let text = "setp.eq.u32 %p1, %r1, 0; ld.param.u32 %r2, [b]; setp.eq.u32 %p2, %r2, 0; @%p1 st.global.u32 [%rd2], 1; @%p2 bra L; bar.sync 0; L: ret;";
    assert!(!of(text, &options()).kernels[0].is_machine);
}

#[test]
fn a_switch_on_the_thread_divides_the_threads() {
    let text = "T: .branchtargets A, B; brx.idx %tid.x, T; A: bar.sync 0; B: ret;";
    assert!(of(text, &options()).kernels[0].is_machine);
}

#[test]
fn a_count_of_threads_needs_the_machine_where_it_counts() {
    let is_machine = |body: &str| of(&format!("{body} ret;"), &options()).kernels[0].is_machine;
    assert!(is_machine("bar.red.popc.u32 %r2, 1, 32, %p1;"));
    assert!(is_machine("bar.red.popc.u32 %r2, %r1, %p1;"));
    assert!(!is_machine("bar.red.popc.u32 %r2, 1, %p1;"));
    assert!(!is_machine("bar.sync 1, 64;"), "all threads may wait");
}

#[test]
fn fences_are_as_wide_as_they_are_asked_for() {
    assert!(source("membar.gl; ret;").contains("\nps_fence_all();"));
    assert!(source("fence.acq_rel.gpu; ret;").contains("\nps_fence();"));
    let before = source("red.release.gpu.global.add.u32 [%rd2], 1; ret;");
    assert_eq!(before.matches("\nps_fence();").count(), 1, "nothing is acquired: {before}");
    assert!(!source("red.relaxed.gpu.global.add.u32 [%rd2], 1; ret;").contains("ps_fence"));
}

#[test]
fn what_warps_exchange_is_no_wider_than_needed() {
    let shuffle = "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; ret;";
    assert!(source(shuffle).contains("typedef uint ps_word;"));
    assert!(
        source(&format!("match.any.sync.b64 %r3, %rd1, -1; {shuffle}"))
            .contains("typedef ulong ps_word;")
    );
}

#[test]
fn variables_of_calls_are_not_accessed_beyond_their_end() {
    let text = |offset: u32| {
        format!(
            ".version 8.0\n.target sm_75\n.entry k() {{ .reg .b32 %r<3>; .param .b32 p; st.param.b32 [p], 1; st.param.b32 [p+{offset}], %r1; ld.param.b32 %r2, [p]; ret; }}"
        )
    };
    assert!(translate(&parse(&text(8)).unwrap(), &options()).is_ok());
    assert!(translate(&parse(&text(4096)).unwrap(), &options()).is_err());
}

#[test]
fn memory_that_cannot_be_written_is_refused() {
    let refused = |line: &str| {
        let text = format!(
            ".version 8.0\n.target sm_75\n.entry k(.param .u32 a) {{ .local .b32 l; .const .b32 c; .reg .b32 %r<3>; .reg .b64 %rd<3>; {line} ret; }}"
        );
        translate(&parse(&text).unwrap(), &options()).is_err()
    };
    for line in [
        "st.param.u32 [a], 1;",
        "st.param.u32 [%rd1], 1;",
        "atom.local.add.u32 %r1, [l], 1;",
        "atom.param.add.u32 %r1, [a], 1;",
        "red.const.add.u32 [c], 1;",
    ] {
        assert!(refused(line), "{line}");
    }
}

#[test]
fn doubles_that_are_only_moved_are_bits_where_there_are_none() {
    let single = Options { fp64: false, ..options() };
    let text = of(
        ".reg .f64 %d<3>; ld.global.f64 %d1, [%rd2]; mov.f64 %d2, 0d3FF0000000000000; st.global.v2.f64 [%rd2], {%d1, %d2}; ret;",
        &single,
    );
    let (_, kernel) = text.source.split_once("__kernel").unwrap();
    assert!(!kernel.contains("double"), "{kernel}");
}

#[test]
fn a_generic_address_of_a_variable_is_no_fault() {
    let body = "mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; ld.u32 %r2, [%rd4+4]; st.u32 [%rd4], %r2; ret;";
    let translation = of(body, &options());
    assert!(!translation.kernels[0].uses_faults, "{}", translation.source);
    assert!(of("ld.global.u32 %r2, [0]; ret;", &options()).kernels[0].uses_faults);
}

/// Whether the translation puts barriers or a state machine into a kernel whose text has none.
fn stops(body: &str) -> bool {
    of(body, &options()).kernels[0].uses_barriers
}

/// Sets `%r4` to the address of the thread's own word in `s`, and `%r2` to the address of `s`.
const OWN_WORD: &str = "mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;";

#[test]
fn lanes_stop_between_a_store_and_a_load_of_another_lane() {
    let stored = format!("{OWN_WORD} st.shared.u32 [%r4], %r1;");
    assert!(stops(&format!(
        "{stored} ld.shared.u32 %r5, [%r4+4]; st.global.u32 [%rd2], %r5; ret;"
    )));
    assert!(stops(&format!("{stored} ld.shared.u32 %r5, [%r2]; st.global.u32 [%rd2], %r5; ret;")));
    // The thread's own word, and a word that no lane of the same warp has.
    assert!(!stops(&format!("{stored} ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5; ret;")));
    assert!(!stops(&format!(
        "{stored} ld.shared.u32 %r5, [%r4+128]; st.global.u32 [%rd2], %r5; ret;"
    )));
    // A single thread.
    let alone = "setp.ne.u32 %p1, %r1, 0; @%p1 bra L; mov.u32 %r2, s; st.shared.u32 [%r2], 5; ld.shared.u32 %r5, [%r2]; st.global.u32 [%rd2], %r5; L: ret;";
    assert!(!stops(alone));
}

#[test]
fn lanes_stop_between_a_load_and_a_store_of_another_lane() {
    assert!(stops(&format!(
        "{OWN_WORD} ld.shared.u32 %r5, [%r4+4]; st.shared.u32 [%r4], %r5; ret;"
    )));
    assert!(!stops(&format!(
        "{OWN_WORD} ld.shared.u32 %r5, [%r4]; st.shared.u32 [%r4], %r5; ret;"
    )));
}

#[test]
fn sums_of_a_block_with_barriers_stay_as_they_are() {
    let text = format!(
        "{OWN_WORD} ld.param.u32 %r6, [b]; st.shared.u32 [%r4], %r1;
         L: bar.sync 0; setp.ge.u32 %p1, %r1, %r6; @%p1 bra M; shl.b32 %r7, %r6, 2; add.s32 %r8, %r4, %r7;
         ld.shared.u32 %r9, [%r8]; ld.shared.u32 %r10, [%r4]; add.s32 %r11, %r9, %r10; st.shared.u32 [%r4], %r11;
         M: shr.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra L; ret;"
    );
    let translation = of(&text, &options());
    assert!(!translation.kernels[0].is_machine, "{}", translation.source);
    assert_eq!(translation.source.matches("\nbarrier(").count(), 1, "{}", translation.source);
    // A scan like this one relies on lanes in step, so it needs a state machine.
    let scan = text
        .replace("setp.ge.u32 %p1", "setp.lt.u32 %p1")
        .replace("add.s32 %r8, %r4", "sub.s32 %r8, %r4");
    assert!(of(&scan, &options()).kernels[0].is_machine);
}

#[test]
fn a_stop_stands_where_all_threads_are_together_if_that_is_enough() {
    // Some lanes store and some load, so the stop is in front of the second branch.
    let translation = of(
        &format!(
            "{OWN_WORD} setp.gt.u32 %p1, %r1, 9; @%p1 bra L; st.shared.u32 [%r4+4], %r1;
             L: setp.gt.u32 %p2, %r1, 5; @%p2 bra M; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5; M: ret;"
        ),
        &options(),
    );
    assert!(!translation.kernels[0].is_machine && translation.kernels[0].uses_barriers);
}

#[test]
fn a_compare_and_swap_in_a_loop_is_no_waiting_for_others() {
    let add = "mov.u32 %r2, s; ld.shared.u32 %r3, [%r2]; L: add.u32 %r4, %r3, 2; atom.shared.cas.b32 %r5, [%r2], %r3, %r4; setp.ne.s32 %p1, %r5, %r3; mov.u32 %r3, %r5; @%p1 bra L; ret;";
    assert!(!stops(add));
    let lock = "mov.u32 %r2, s; L: mov.u32 %r3, 0; atom.shared.cas.b32 %r5, [%r2], %r3, 1; setp.ne.s32 %p1, %r5, 0; @%p1 bra L; ret;";
    assert!(stops(lock));
}

/// Whether the kernel stops if thread 0 waits for `[%rd2]` between the given statements.
fn wait_of_thread_0(before: &str, turn: &str, behind: &str) -> bool {
    stops(&format!(
        "{before} setp.ne.u32 %p1, %r1, 0; @%p1 bra M; L: {turn} setp.eq.u32 %p2, %r3, 0; @%p2 bra L; M: {behind} ret;"
    ))
}

const LOOK: &str = "ld.volatile.global.u32 %r3, [%rd2];";

#[test]
fn a_wait_for_another_thread_of_the_block_in_global_memory_stops() {
    let others = "setp.ne.u32 %p3, %r1, 40; @%p3 bra N; st.volatile.global.u32 [%rd2], 1; N:";
    for turn in [
        LOOK,
        "ld.acquire.cta.global.u32 %r3, [%rd2];",
        "ld.acquire.sys.u32 %r3, [%rd1];",
        "atom.global.add.u32 %r3, [%rd2], 0;",
    ] {
        assert!(wait_of_thread_0("", turn, others), "{turn}");
        assert!(wait_of_thread_0(others, turn, ""), "{turn}");
    }
    // All threads wait, after one of them has stored the value.
    let all = format!("L: {LOOK} setp.eq.u32 %p2, %r3, 0; @%p2 bra L;");
    assert!(stops(&format!("{others} {all} ret;")));
    // Each thread waits for the next one.
    let chain = "mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; L: ld.volatile.global.u32 %r3, [%rd4+4]; setp.eq.u32 %p2, %r3, 0; @%p2 bra L; st.volatile.global.u32 [%rd4], 1; ret;";
    assert!(stops(chain));
}

#[test]
fn a_wait_for_another_block_stays_as_it_is() {
    assert!(!wait_of_thread_0("", LOOK, ""));
    // The waiting thread is the only one that stores anything beside the loop.
    let alone =
        format!("red.global.add.u32 [%rd2], 1; L: {LOOK} setp.eq.u32 %p2, %r3, 0; @%p2 bra L;");
    assert!(!stops(&format!("setp.ne.u32 %p1, %r1, 0; @%p1 bra M; {alone} M: ret;")));
    // All threads wait together, and store behind the loop.
    let all = format!("L: {LOOK} setp.eq.u32 %p2, %r3, 0; @%p2 bra L;");
    assert!(!stops(&format!("{all} st.global.u32 [%rd2+4], 1; ret;")));
    // Barriers separate the stores of other threads from the loop.
    let machine = |body: &str| of(body, &options()).kernels[0].is_machine;
    let apart = |barrier: &str| {
        format!(
            "st.global.u32 [%rd2], 1; {barrier} setp.ne.u32 %p1, %r1, 0; @%p1 bra M; {all} M: {barrier} st.global.u32 [%rd2], 2; ret;"
        )
    };
    assert!(!machine(&apart("bar.sync 0;")));
    assert!(machine(&apart("")));
}

#[test]
fn a_loop_that_ends_by_itself_is_no_wait() {
    let behind = "st.global.u32 [%rd2+4], 1;";
    let counts = "add.s32 %r4, %r4, 1; setp.gt.s32 %p3, %r4, 99; @%p3 bra M;";
    let times = "mov.u32 %r4, %clock; setp.gt.u32 %p3, %r4, 99; @%p3 bra M;";
    for own in [counts, times] {
        assert!(!wait_of_thread_0("", &format!("{LOOK} {own}"), behind), "{own}");
    }
    // A counted number of turns that does not end the loop.
    assert!(wait_of_thread_0("", &format!("{LOOK} add.s32 %r4, %r4, 1;"), behind));
    // A lock, which its holder releases before the next thread runs.
    let lock = "L: atom.global.cas.b32 %r3, [%rd2], 0, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra L; st.global.u32 [%rd2], 0; ret;";
    assert!(!stops(lock));
}

/// A kernel with `count` branches in a row, each with two barriers. All threads take the same way
/// at each branch.
fn branches_with_barriers(count: u32) -> String {
    let branch = |at: u32| {
        format!(
            "and.b32 %r6, %r5, {}; setp.eq.u32 %p1, %r6, 0; @%p1 bra L{at}; bar.sync 0; ld.shared.u32 %r7, [%r4]; bar.sync 0; st.shared.u32 [%r4], %r7; L{at}:",
            1 << at
        )
    };
    let branches: String = (0..count).map(branch).collect();
    format!("{OWN_WORD} ld.param.u32 %r5, [b]; {branches} st.global.u32 [%rd2], %r7; ret;")
}

#[test]
fn many_branches_with_barriers_in_a_row_are_a_machine() {
    let is_machine = |body: &str| of(body, &options()).kernels[0].is_machine;
    assert!(!is_machine(&branches_with_barriers(3)));
    assert!(!is_machine(&branches_with_barriers(5)));
    assert!(is_machine(&branches_with_barriers(9)));
    assert!(is_machine(&branches_with_barriers(30)));
    // Branches without barriers, and barriers that all paths pass, need no copies.
    let plain = branches_with_barriers(30).replace("bar.sync 0;", "");
    assert!(!is_machine(&plain));
    let outside = plain.replace(":", ": bar.sync 0;");
    assert!(!is_machine(&outside));
}

/// A kernel whose only barrier is in a branch that all threads take together.
fn barrier_in_branch(behind: &str, end: &str) -> String {
    format!(
        "ld.param.u32 %r5, [b]; setp.eq.u32 %p1, %r5, 0; setp.ne.u32 %p2, %r1, 0;
        @%p1 bra J; bar.sync 0; {behind} J: {end} ret;"
    )
}

#[test]
fn a_branch_with_a_barrier_is_closed_by_another_one() {
    let closes = |body: &str| source(body).matches("ps_close();").count();
    let parts = "@%p2 bra J; st.global.u32 [%rd2], %r1;";
    assert_eq!(closes(&barrier_in_branch(parts, "st.global.u32 [%rd2+4], %r1;")), 1);
    // Two ways lead behind the branch, and all threads come to one of them together. The ways come
    // together only at the end.
    let two = "setp.gt.u32 %p3, %r5, 9; @%p3 bra K; bra J; K: st.global.u32 [%rd2+8], %r1; bra L;";
    let two = barrier_in_branch(two, "st.global.u32 [%rd2+4], %r1; L:");
    assert_eq!(closes(&two), 3);
    // Drivers keep what they have compiled by its text, so a kernel always has the same text.
    assert!((0..8).all(|_| source(&two) == source(&two)));
    // The ways come together at the start of a loop.
    let turn = "add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, %r5; @%p4 bra J;";
    let into_loop = format!("mov.u32 %r6, 0; {}", barrier_in_branch(parts, turn));
    assert_eq!(closes(&into_loop), 1);
    // The end of the kernel is behind the branch, too.
    assert_eq!(closes(&barrier_in_branch("@%p2 ret;", "")), 1);
    assert_eq!(closes("ld.param.u32 %r5, [b]; setp.eq.u32 %p1, %r5, 0; @%p1 bar.sync 0; ret;"), 1);
    // All paths pass the barrier.
    assert_eq!(closes("setp.ne.u32 %p2, %r1, 0; bar.sync 0; @%p2 ret; st.u32 [%rd2], 1; ret;"), 0);
}

#[test]
fn a_branch_that_cannot_be_closed_makes_a_machine() {
    let is_machine = |body: &str| of(body, &options()).kernels[0].is_machine;
    // Some threads join the other branch before the others do.
    let early = "@%p2 bra K; bra J;";
    let shared = "bra L; K: st.global.u32 [%rd2], %r1; L:";
    let other = |end: &str| {
        barrier_in_branch(early, end)
            .replace("@%p1 bra J;", "@%p1 bra M;")
            .replace(" J:", " M: setp.gt.u32 %p3, %r1, 9; @%p3 bra K; J:")
    };
    assert!(is_machine(&other(shared)));
    // Its threads agree on no load, because an agreement needs a barrier that all of them reach.
    let waits = waiting("ld.global.u32", "st.global.u32 [%rd2+4], %r1;");
    let waits = waits.replace("L:", "W:").replace("bra L;", "bra W;").replace("ret;", "");
    let both = format!("{waits} {}", other(shared));
    assert!(is_machine(&both));
    assert!(!source(&both).contains("wa[both"), "{}", source(&both));
    assert!(!is_machine(&barrier_in_branch("@%p2 bra J;", "")));
}

#[test]
fn a_machine_asks_for_one_thread_at_a_time() {
    let apart = "setp.ne.u32 %p2, %r1, 0; @%p2 bra L; bar.warp.sync 1; L: ret;";
    let text = source(apart);
    assert!(text.contains("__kernel ps_scalar void"), "{text}");
    assert!(text.contains("#define ps_scalar __attribute__((intel_vec_len_hint(1)))"), "{text}");
    assert!(!source("bar.sync 0; ret;").contains("ps_scalar"));
}

#[test]
fn many_registers_that_a_machine_needs_in_other_states_are_elements_of_arrays() {
    let text = |count: u32| {
        let set = (0..count).map(|index| format!("mov.u32 %k{index}, %r1; "));
        let add = (0..count).map(|index| format!("add.u32 %r5, %r5, %k{index}; "));
        source(&format!(
            ".reg .b32 %k<{count}>; setp.ne.u32 %p2, %r1, 0; @%p2 bra L; mov.u32 %r4, 7; {}
            bar.warp.sync 1; mov.u32 %r5, %r4; {} st.global.u32 [%rd2], %r5; L: ret;",
            set.collect::<String>(),
            add.collect::<String>()
        ))
    };
    // Those of the loop, %r1, %r4 and %rd2 are needed behind the meeting, and %r5 is not.
    let (few, many) = (text(100), text(300));
    assert!(!few.contains("kept_") && !few.contains("control == 1UL"), "{few}");
    assert!(many.contains("uint kept_uint[302];") && many.contains("ulong kept_ulong[1];"));
    assert!(many.contains("if (control == 1UL) {") && many.matches("uint r").count() > 0);
}
