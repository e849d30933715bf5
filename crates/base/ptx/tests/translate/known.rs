//! The waiting of CUB's radix sort: threads wait for words of earlier blocks.

use super::{BASE, FREE, HEAD, OUT, machines, words};

const BLOCKS: u32 = 24;
const THREADS: u32 = 64;

/// Each block takes a number. Each thread offers a value of its own, adds the values of the threads
/// with its number in earlier blocks until it finds a total, and offers its own total.
const LOOK_BACK: &str = "
    .shared .align 4 .b8 s[4]; setp.ne.u32 %p1, %t, 0; @%p1 bra A;
    atom.global.add.u32 %r2, [%in], 1; st.shared.u32 [s], %r2;
    A: bar.sync 0; ld.shared.u32 %r3, [s];
    mad.lo.u32 %r4, %r3, 64, %t; mul.wide.u32 %rd1, %r4, 4; add.s64 %rd1, %out, %rd1;
    mad.lo.u32 %r5, %r3, 7, %t; add.u32 %r5, %r5, 1;
    or.b32 %r6, %r5, 0x40000000; st.volatile.global.u32 [%rd1], %r6;
    setp.gt.u32 %p2, %t, 1000; bar.red.or.pred %p3, 0, %p2; @%p3 bra E;
    mov.u32 %r8, -1; mov.u32 %r9, %r3; setp.eq.u32 %p4, %r3, 0; @%p4 bra M;
    K: add.s32 %r9, %r9, -1; mad.lo.u32 %r10, %r9, 64, %t; mul.wide.u32 %rd2, %r10, 4;
    add.s64 %rd2, %out, %rd2;
    L: membar.cta; ld.volatile.global.u32 %r11, [%rd2]; setp.eq.u32 %p5, %r11, 0; @%p5 bra L;
    and.b32 %r12, %r11, 0x3fffffff; add.u32 %r5, %r5, %r12;
    setp.ge.s32 %p6, %r11, 0; vote.sync.ballot.b32 %r8, %p6, %r8;
    setp.lt.s32 %p7, %r11, 0; @%p7 bra M; setp.gt.s32 %p8, %r9, 0; @%p8 bra K;
    M: or.b32 %r13, %r5, 0x80000000; st.volatile.global.u32 [%rd1], %r13; bar.sync 0;
    E: ret;";

#[test]
fn threads_find_the_totals_of_earlier_blocks() {
    let known = "_ZN3cub29DeviceRadixSortOnesweepKernelIiEEvv";
    let value = |block: u32, thread: u32| block * 7 + thread + 1;
    let total =
        |block: u32, thread: u32| (0..=block).map(|block| value(block, thread)).sum::<u32>();
    let wanted: Vec<u32> =
        (0..BLOCKS * THREADS).map(|at| 1 << 31 | total(at / THREADS, at % THREADS)).collect();
    for name in [known, "k"] {
        let kernel = super::kernel(LOOK_BACK).replace(".entry k(", &format!(".entry {name}("));
        let text = format!("{HEAD}{kernel}");
        for machine in machines() {
            let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.kernel(&ready, name).is_machine, name != known, "{}", machine.name);
            machine.write(FREE, &[0; 4]);
            machine.write(OUT, &vec![0; wanted.len() * 4]);
            let params = [BASE + FREE, BASE + OUT, 0];
            machine.launch(&ready, name, &params, BLOCKS.into(), THREADS.into(), 0);
            let found = words(&machine, OUT, wanted.len() as u64);
            assert_eq!(found, wanted, "{}: {name}", machine.name);
            assert_eq!(machine.fault().0, 0, "{}: {name}", machine.name);
        }
    }
}
