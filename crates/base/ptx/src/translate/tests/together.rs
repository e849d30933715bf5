//! Kernels whose threads stay together although parts of them look as if they did not.

use std::collections::HashSet;

use super::{Options, of, options, source, text_of, translate};
use crate::ir::{Opcode, Statement};
use crate::module::parse;
use crate::translate::flow::ControlFlow;
use crate::translate::uniform::Uniformity;
use crate::translate::{effects, inline};

fn is_machine(body: &str) -> bool {
    of(body, &options()).kernels[0].is_machine
}

#[test]
fn all_threads_have_one_result_of_a_reduction_of_the_block() {
    let branch = |reduction: &str| {
        format!("setp.eq.u32 %p1, %r1, 5; {reduction} @%p2 bra M; bar.sync 0; M: ret;")
    };
    for how in ["or.pred", "and.pred"] {
        assert!(!is_machine(&branch(&format!("bar.red.{how} %p2, 0, %p1;"))), "{how}");
    }
    assert!(!is_machine(&branch("bar.red.popc.u32 %r2, 0, %p1; setp.eq.u32 %p2, %r2, 3;")));
}

/// Whether the analysis takes the result of the last `bar.red` for the same in all threads.
fn has_one_result(body: &str, may_fail: bool) -> bool {
    let module = parse(&text_of(body)).unwrap();
    let mut flat = inline::flatten(&module, &module.entries()[0]).unwrap();
    flat.may_fail = may_fail;
    let flow = ControlFlow::of(&flat);
    let uniform = Uniformity::of(&flat, &flow, &HashSet::new(), HashSet::new());
    let reduction = flat.body.iter().flatten().rev().find_map(|statement| match statement {
        Statement::Instruction(what) => (what.opcode == Opcode::BarRed).then_some(what),
        Statement::Label(_) => None,
    });
    let mut is_uniform = true;
    effects::written(reduction.unwrap(), &mut |id| is_uniform &= uniform.register(id));
    is_uniform
}

#[test]
fn a_reduction_of_some_threads_has_no_one_result() {
    let found = |reduction: &str, may_fail: bool| {
        let body = format!("setp.eq.u32 %p1, %r1, 5; {reduction} ret;");
        has_one_result(&body, may_fail)
    };
    let all = "bar.red.or.pred %p2, 0, %p1;";
    assert!(found(all, false));
    assert!(!found(all, true), "a failed thread takes no part");
    for some in [
        "bar.red.or.pred %p2, 0, 32, %p1;",
        "shr.u32 %r2, %r1, 5; bar.red.or.pred %p2, %r2, %p1;",
        "setp.eq.u32 %p2, %r3, 1; @%p1 bar.red.or.pred %p2, 0, %p1;",
        "@%p1 bra N; bar.red.or.pred %p2, 0, %p1; N:",
    ] {
        assert!(!found(some, false), "{some}");
    }
}

#[test]
fn threads_that_fail_take_no_part_in_a_reduction_of_the_block() {
    let turns = "L: setp.eq.u32 %p1, %r1, 5; bar.red.or.pred %p2, 0, %p1; @%p2 bra L; ret;";
    assert!(!is_machine(turns));
    assert!(is_machine(&format!("setp.eq.u32 %p3, %r1, 6; @%p3 trap; {turns}")));
    assert!(of(turns, &Options { check: true, ..options() }).kernels[0].is_machine);
}

/// Each block takes a number, and each of its threads offers a value, to later blocks. Then it
/// waits for the values of earlier blocks, and offers a total. The text is that of CUB's radix
/// sort, without what the threads compute.
const LOOK_BACK: &str = "
    .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .shared .align 4 .b8 s[2048];
    ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra A; atom.global.add.u32 %r2, [%rd2], 1; st.shared.u32 [s], %r2;
    A: bar.sync 0; ld.shared.u32 %r3, [s]; shl.b32 %r4, %r1, 2; mov.u32 %r5, s;
    add.s32 %r6, %r5, %r4; st.shared.u32 [%r6+512], %r4; bar.warp.sync -1;
    shl.b32 %r7, %r3, 8; add.s32 %r7, %r7, %r1; mul.wide.s32 %rd3, %r7, 4; add.s64 %rd4, %rd2, %rd3;
    st.volatile.global.u32 [%rd4+64], 5; setp.eq.u32 %p2, %r4, 99;
    bar.red.or.pred %p3, 0, %p2; @%p3 bra E;
    setp.lt.s32 %p4, %r3, 1; mov.u32 %r8, -1; mov.u32 %r9, %r3; @%p4 bra M;
    K: add.s32 %r9, %r9, -1; shl.b32 %r10, %r9, 8; add.s32 %r10, %r10, %r1;
    mul.wide.s32 %rd5, %r10, 4; add.s64 %rd6, %rd2, %rd5;
    L: membar.cta; ld.volatile.global.u32 %r11, [%rd6+64]; setp.eq.u32 %p5, %r11, 0; @%p5 bra L;
    setp.gt.s32 %p6, %r11, -1; vote.sync.ballot.b32 %r8, %p6, %r8;
    setp.lt.s32 %p7, %r11, 0; @%p7 bra M; setp.gt.s32 %p8, %r9, 0; @%p8 bra K;
    M: st.volatile.global.u32 [%rd4+64], 6; ld.shared.u32 %r12, [%r6+512];
    st.shared.u32 [%r6+512], %r9; bar.sync 0; ld.shared.u32 %r13, [s+516];
    st.global.u32 [%rd4+8192], %r13; E: ret;";

fn kernel_named(name: &str, body: &str, options: &Options) -> super::Translation {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n
         .visible .entry {name}(.param .u64 a) {{ {body} }}"
    );
    translate(&parse(&text).unwrap(), options).unwrap()
}

/// What follows the name of CUB's kernel.
const ARGUMENTS: &str = "INS1_5radix10policy_hubIiNS0_8NullTypeEyE10Policy1000EEEvv";

#[test]
fn the_look_back_of_cub_is_known_by_its_name() {
    let translated =
        |name: &str| kernel_named(&format!("{name}{ARGUMENTS}"), LOOK_BACK, &options());
    let is_machine = |name: &str| translated(name).kernels[0].is_machine;
    let names = [
        "_ZN3cub29DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_200500_750_NS29DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_300001_SM_7506detail10radix_sort29DeviceRadixSortOnesweepKernel",
        "_ZN3cub16_V_300402_SM_7506detail10radix_sort29DeviceRadixSortOnesweepKernel",
    ];
    for name in names {
        assert!(!is_machine(name), "{name}");
        assert!(!translated(name).source.contains("ballots"), "{name}: a vote is left");
    }
    for name in [
        "k",
        "_ZN5thing29DeviceRadixSortOnesweepKernel",
        "_ZN5thing3cub29DeviceRadixSortOnesweepKernel",
        "_ZN3cub5thing29DeviceRadixSortOnesweepKernel",
        "_ZN3cub29DeviceRadixSortUpsweepKernels",
        "_ZN3cub30DeviceRadixSortOnesweepKernel2",
        "_ZN3cub6detail10radix_sort29DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_300001_SM_7506detail29DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_300001_SM_75017CUB_300001_SM_75029DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_300500_SM_7506detail10radix_sort29DeviceRadixSortOnesweepKernel",
        "_ZN3cub17CUB_101000_750_NS29DeviceRadixSortOnesweepKernel",
        "_ZN3cub99DeviceRadixSortOnesweepKernel",
        "_ZN3cub99999999999999999999999DeviceRadixSortOnesweepKernel",
        "_ZN3cub29DeviceRadixSortOnesweepKernelE",
        "_Z29DeviceRadixSortOnesweepKernel",
    ] {
        assert!(is_machine(name), "{name}");
    }
}

#[test]
fn a_known_kernel_that_is_a_machine_anyway_is_translated_like_any_other() {
    let known = format!("_ZN3cub29DeviceRadixSortOnesweepKernel{ARGUMENTS}");
    let other = format!("_ZN3bub29DeviceRadixSortOnesweepKernel{ARGUMENTS}");
    let source = |name: &str, body: &str, options: &Options| {
        kernel_named(name, body, options).source.replace("_ZN3cub", "_ZN3bub")
    };
    let vote = "vote.sync.ballot.b32 %r8, %p6, %r8;";
    let checked = Options { check: true, ..options() };
    for (old, new, options) in [
        // The program uses the result of a vote.
        ("M: st", "M: st.global.u32 [%rd4+4096], %r8; st", options()),
        (vote, "vote.sync.any.pred %p6, %p6, %r8;", options()),
        // Only some threads come to a barrier.
        ("ld.shared.u32 %r12, [%r6+512];", "@!%p1 bar.sync 1;", options()),
        (vote, vote, checked),
    ] {
        assert_eq!(LOOK_BACK.matches(old).count(), 1, "{old}");
        let body = LOOK_BACK.replace(old, new);
        let text = source(&known, &body, &options);
        assert!(text.contains("ps_scalar") && text == source(&other, &body, &options), "{new}");
    }
}

#[test]
fn a_vote_is_idle_only_if_nothing_but_such_votes_uses_it() {
    let known = format!("_ZN3cub29DeviceRadixSortOnesweepKernel{ARGUMENTS}");
    let votes = |votes: &str| {
        let body = format!(
            ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; ld.param.u64 %rd1, [a];
             mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; mov.u32 %r2, -1; {votes} ret;"
        );
        kernel_named(&known, &body, &options()).source.matches("atomic_or(").count()
    };
    let (one, other) =
        ("vote.sync.ballot.b32 %r3, %p1, %r2;", "vote.sync.ballot.b32 %r2, %p1, %r3;");
    assert_eq!(votes(one), 0);
    assert_eq!(votes(&format!("{one} {other}")), 0, "each is the mask of the other one");
    assert_eq!(votes(&format!("{one} {other} st.global.u32 [%rd1], %r2;")), 2);
    assert_eq!(votes(&format!("{one} st.global.u32 [%rd1], %r2;")), 0, "its mask has other uses");
    assert_eq!(votes(&format!("{one} shfl.sync.idx.b32 %r4|%p3, %r1, 0, 31, %r3;")), 1);
    // The register has had another use, with another value.
    let before = "shfl.sync.idx.b32 %r4|%p3, %r1, 0, 31, %r2;";
    assert_eq!(votes(&format!("{before} {}", other.replace("%r3", "%r2"))), 0);
    // A use in the next turn of a loop, and none because it has another value by then.
    let turns = |more: &str| {
        votes(&format!(
            "mov.u32 %r5, 0; L: {more} {before} {other} add.u32 %r5, %r5, 1;
             setp.lt.u32 %p2, %r5, 9; @%p2 bra L;"
        ))
    };
    assert_eq!((turns(""), turns("mov.u32 %r2, -1;")), (1, 0));
    assert_eq!(votes("vote.sync.any.pred %p2, %p1, %r2;"), 1, "no ballot");
}

#[test]
fn only_branches_in_front_of_several_barriers_are_closed() {
    let closes = |body: &str| source(body).matches("ps_close();").count();
    // One of the ways behind a branch of the block leads through a branch of some threads.
    let ways = |end: &str| {
        format!(
            "ld.param.u32 %r5, [b]; setp.eq.u32 %p1, %r5, 0; setp.ne.u32 %p2, %r1, 0;
             @%p1 bra K; @%p2 bra J; st.global.u32 [%rd2], %r1; J: {end} ret;"
        )
    };
    assert_eq!(closes(&ways("K: bar.sync 0;")), 0, "all ways come to one barrier");
    assert_eq!(closes(&ways("K: st.global.u32 [%rd2+4], %r1; bar.sync 0; bar.sync 0;")), 0);
    assert!(closes(&ways("bar.sync 0; ret; K: bar.sync 0;")) > 0, "LLVM may merge two barriers");
    // Branches without barriers lead to a branch in front of two barriers.
    let chain = |length: u32| {
        let part = |at: u32| {
            format!(
                "setp.eq.u32 %p3, %r5, {at}; @%p3 bra A{at}; st.global.u32 [%rd2], {at};
                 bra B{at}; A{at}: st.global.u32 [%rd2+4], {at}; B{at}:"
            )
        };
        let parts: String = (2..2 + length).map(part).collect();
        format!(
            "ld.param.u32 %r5, [b]; setp.eq.u32 %p1, %r5, 0; {parts}
             @%p1 bra K; bar.sync 0; st.global.u32 [%rd2+8], %r1; bra E;
             K: st.global.u32 [%rd2+12], %r1; bar.sync 0; E: st.global.u32 [%rd2+16], %r1; ret;"
        )
    };
    assert_eq!(closes(&chain(1)), closes(&chain(12)));
    assert!(!is_machine(&chain(12)));
}

#[test]
fn lanes_meet_only_where_they_exchange_values_in_a_known_kernel() {
    let known = format!("_ZN3cub29DeviceRadixSortOnesweepKernel{ARGUMENTS}");
    let barriers = |name: &str, body: &str| {
        let body = format!(
            ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .shared .align 4 .b8 s[512];
             ld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x;
             shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.s32 %r3, %r3, %r2; {body} ret;"
        );
        kernel_named(name, &body, &options()).source.matches("\nbarrier(").count()
    };
    let of = |body: &str| barriers(&known, body);
    let (load, store) = ("ld.shared.u32 %r4, [%r3];", "st.global.u32 [%rd2], %r4;");
    let meet = "bar.warp.sync -1;";
    let row = format!("{load} {store} {meet} {load} {store} {meet}");
    assert_eq!(of(&row), 0);
    assert_eq!(barriers("k", &row), 2, "another kernel may exchange values in global memory");
    assert_eq!(of(&format!("st.shared.u32 [%r3], 1; bar.sync 0; {row}")), 1);
    assert_eq!(of(&format!("{row} bar.sync 0; st.shared.u32 [%r3], 1;")), 1);
    for change in [
        "st.shared.u32 [%r3], 1;",
        "atom.shared.add.u32 %r5, [%r3], 1;",
        "cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3; st.u32 [%rd3], 1;",
    ] {
        assert_eq!(of(&format!("{change} {row}")), 1, "{change} comes before the first meeting");
        assert_eq!(of(&format!("{row} {change}")), 1, "{change} comes behind the last meeting");
        assert_eq!(of(&format!("{load} {meet} {change} {meet} {load}")), 2, "{change}");
    }
    // Some lanes meet, so another meeting may order what others do.
    let some = row.replacen("-1", "15", 1);
    assert_eq!(of(&some), 1);
    assert_eq!(of(&format!("{load} {meet} bar.warp.sync 15; st.shared.u32 [%r3], 1;")), 2);
    // The change comes in the next turn of a loop, or only on some paths.
    let turns = |change: &str| {
        of(&format!(
            "L: {load} {meet} {change} add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 9; @%p1 bra L;"
        ))
    };
    assert_eq!((turns(""), turns("st.shared.u32 [%r3], %r4;")), (0, 1));
    let path = |change: &str| of(&format!("setp.eq.u32 %p1, %r1, 5; {load} {meet} @%p1 {change}"));
    assert_eq!((path("st.global.u32 [%rd2], 1;"), path("st.shared.u32 [%r3], 1;")), (0, 1));
}

#[test]
fn a_known_kernel_takes_the_way_that_is_right_for_all_keys() {
    let known = format!("_ZN3cub29DeviceRadixSortOnesweepKernel{ARGUMENTS}");
    let text = |name: &str, branch: &str| {
        let body = format!(
            ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; ld.param.u64 %rd1, [a];
             cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 5;
             bar.red.or.pred %p2, 0, %p1; {branch}
             S: st.global.u32 [%rd2], 0x1111; ret; L: st.global.u32 [%rd2], 0x2222; ret;"
        );
        kernel_named(name, &body, &options()).source
    };
    let ways = |name: &str, branch: &str| {
        let text = text(name, branch);
        eprintln!("{text}");
        (text.contains("1111"), text.contains("2222"))
    };
    let answer = "selp.u32 %r2, 1, 0, %p2; setp.eq.s32 %p3, %r2, 0;";
    for longer in [
        format!("{answer} add.u32 %r3, %r1, 1; @%p3 bra L;"),
        format!("{} @!%p3 bra L;", answer.replace("eq", "ne")),
        "selp.b32 %r2, 0xffffffff, 0, %p2; setp.ne.s32 %p3, %r2, -1; @%p3 bra L;".to_owned(),
        "selp.b32 %r2, 0, 0xffffffff, %p2; setp.eq.s32 %p3, %r2, -1; @%p3 bra L;".to_owned(),
        "@!%p2 bra L;".to_owned(),
        "@%p2 bra S; bra L;".to_owned(),
    ] {
        assert_eq!(ways(&known, &longer), (false, true), "{longer}");
        assert_eq!(ways("k", &longer), (true, true), "{longer}");
    }
    // Code behind the branch may use the answer, which is no.
    let used = "st.global.u32 [%rd2+4], %r2; @%p3 bra L;";
    assert_eq!(ways(&known, &format!("{answer} {used}")), (false, true));
    // The branch depends on more than the answer.
    for other in [
        "setp.eq.u32 %p3, %r1, 7; @%p3 bra L;".to_owned(),
        format!("{answer} ld.global.u32 %r2, [%rd2]; setp.eq.s32 %p3, %r2, 0; @%p3 bra L;"),
        format!("{answer} @%p1 setp.eq.s32 %p3, %r1, 0; @%p3 bra L;"),
        "selp.u32 %r2, 1, %r1, %p2; setp.eq.s32 %p3, %r2, 0; @%p3 bra L;".to_owned(),
        format!("{answer} bra M; M: @%p3 bra L;"),
    ] {
        assert_eq!(ways(&known, &other), (true, true), "{other}");
    }
}

/// The number of barriers of a kernel that votes, and stores the results.
fn barriers_of_votes(votes: &str) -> usize {
    let body = format!(
        "ld.global.u32 %r2, [%rd2]; mov.u32 %r9, -1; {votes}
         st.global.u32 [%rd2+128], %r9; ret;"
    );
    // One is in front of all votes.
    source(&body).matches("\nbarrier(").count() - 1
}

#[test]
fn votes_that_are_independent_share_a_barrier() {
    let bit = |bit: u32, more: &str| {
        format!(
            "and.b32 %r3, %r2, {}; setp.ne.u32 %p1, %r3, 0; {more}
             vote.sync.ballot.b32 %r3, %p1, -1; @!%p1 not.b32 %r3, %r3; and.b32 %r9, %r3, %r9;",
            1 << bit
        )
    };
    // Each vote has its own registers, as compilers write them.
    let own = |index: u32, text: String| {
        let (to, from) = (format!("%r{}", 10 + index), format!("%p{index}"));
        text.replace("%r3", &to).replace("%p1", &from)
    };
    let bits = |count: u32, more: &str| -> String {
        (0..count).map(|index| own(index, bit(index, more))).collect()
    };
    assert_eq!(barriers_of_votes(&bits(1, "")), 1);
    assert_eq!(barriers_of_votes(&bits(8, "")), 1);
    assert_eq!(barriers_of_votes(&bits(9, "")), 2, "a row has eight at most");
    // One register for all: each vote overwrites what the instructions behind the last one read.
    assert_eq!(barriers_of_votes(&(0..3).map(|index| bit(index, "")).collect::<String>()), 3);
    // The predicate or the mask of a vote depends on the one before.
    assert_eq!(barriers_of_votes(&bits(3, "setp.ne.u32 %p1, %r9, 5;")), 3);
    assert_eq!(barriers_of_votes(&bits(3, "").replace(", -1;", ", %r9;")), 3);
    // An access to memory keeps its place.
    assert_eq!(barriers_of_votes(&bits(3, "st.global.u32 [%rd2+256], %r2;")), 3);
}

#[test]
fn the_branches_of_a_vote_stay_apart_from_a_barrier() {
    // What clears their words at the start ends with a barrier, and anything may be behind it.
    for meeting in ["vote.sync.any.pred %p3, %p1, -1;", "bar.red.or.pred %p3, 0, %p1;"] {
        let text = source(&format!(
            "setp.eq.u32 %p1, %r1, 0; {meeting} bar.sync 0; {meeting} bar.sync 0; ret;"
        ));
        let barriers =
            text.match_indices("barrier(CLK").map(|(at, _)| at + text[at..].find('\n').unwrap());
        let apart: Vec<bool> = barriers
            .map(|end| text[end..].lines().skip(1).take(2).any(|line| line == "ps_apart();"))
            .collect();
        assert_eq!(apart, [true, false, true, false, false], "{text}");
    }
}
