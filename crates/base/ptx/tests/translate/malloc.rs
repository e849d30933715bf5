//! `malloc` and `free` of kernels.

use super::{BASE, FREE, HEAD, Machine, OUT, kernel, machines, words};
use penstock_ptx::translate::{CONTROL_MALLOC, Fault, MALLOC_UNIT_BYTES};

/// Offset of the table, behind which the memory is.
const TABLE: u64 = FREE + (2 << 20);

fn control(units: u32) -> Vec<u8> {
    let (mut control, at) = (vec![0; 256], usize::try_from(CONTROL_MALLOC).unwrap());
    control[at..at + 8].copy_from_slice(&(BASE + TABLE).to_le_bytes());
    control[at + 8..at + 12].copy_from_slice(&units.to_le_bytes());
    control[at + 16..at + 20].copy_from_slice(&units.to_le_bytes());
    control
}

/// Runs `body` in 128 threads on every machine that has memory of `units` units for kernels.
fn run(units: u32, body: &str, check: impl Fn(&Machine)) {
    let text = format!(
        "{HEAD}.extern .func (.param .b64 r) malloc(.param .b64 n);
         .extern .func free(.param .b64 p);
         {}",
        kernel(body)
    );
    for machine in machines() {
        let ready = machine.build(&text).unwrap_or_else(|error| panic!("{error}"));
        machine.write(TABLE, &vec![0; usize::try_from(units).unwrap() * 4]);
        machine.write(OUT, &[0; 128 * 8]);
        machine.launch_with(
            &ready,
            "k",
            &[BASE + FREE, BASE + OUT, 0],
            [4, 1, 1],
            [32, 1, 1],
            0,
            &control(units),
        );
        check(&machine);
    }
}

/// Allocates the bytes in `%rd1`, and has the address in `%rd2`.
const MALLOC: &str = "{ .param .b64 p; st.param.b64 [p], %rd1; .param .b64 r;
    call.uni (r), malloc, (p); ld.param.b64 %rd2, [r]; }";
/// Frees the address in `%rd2`.
const FREE_IT: &str = "{ .param .b64 p; st.param.b64 [p], %rd2; call.uni free, (p); }";
/// Writes the address in `%rd2` as the thread's result.
const TELL: &str =
    "mul.wide.u32 %rd3, %g, 8; add.s64 %rd3, %out, %rd3; st.global.u64 [%rd3], %rd2;";

fn addresses(machine: &Machine) -> Vec<u64> {
    let bytes = machine.read(OUT, 128 * 8);
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

#[test]
fn each_thread_gets_memory_of_its_own() {
    // Thread g allocates g + 1 bytes, and fills them.
    let body = format!(
        "cvt.u64.u32 %rd1, %g; add.u64 %rd1, %rd1, 1; {MALLOC} {TELL}
         mov.u64 %rd4, 0;
         more: add.u64 %rd5, %rd2, %rd4; st.u8 [%rd5], %g; add.u64 %rd4, %rd4, 1;
         setp.lt.u64 %p1, %rd4, %rd1; @%p1 bra more; ret;"
    );
    run(1024, &body, |machine| {
        let begin = BASE + TABLE + 4 * 1024;
        for (thread, address) in (0..).zip(addresses(machine)) {
            assert!((begin..begin + 1024 * MALLOC_UNIT_BYTES).contains(&address));
            assert_eq!((address - begin) % MALLOC_UNIT_BYTES, 0);
            let filled = machine.read(address - BASE, u64::from(thread) + 1);
            assert!(filled.iter().all(|byte| *byte == thread), "{}: {thread}", machine.name);
        }
        let taken = words(machine, TABLE, 1024).iter().filter(|word| **word != 0).count();
        assert_eq!(taken, 64 + 2 * 64, "{}", machine.name);
    });
}

#[test]
fn what_is_freed_is_given_again() {
    // All threads together allocate many times more than there is.
    let body = format!(
        "mov.u32 %r5, 0; mov.u64 %rd1, 200; mov.u32 %r6, 0;
         more: {MALLOC} setp.eq.u64 %p2, %rd2, 0; @%p2 add.u32 %r6, %r6, 1;
         @%p2 bra next; st.u32 [%rd2+196], %g; {FREE_IT}
         next: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 50; @%p1 bra more;
         st.global.u32 [%to], %r6; ret;"
    );
    // Four units for each thread: the memory is enough for all of them at the same time.
    run(1024, &body, |machine| {
        assert_eq!(words(machine, OUT, 128), vec![0; 128], "{}", machine.name);
        assert_eq!(words(machine, TABLE, 1024), vec![0; 1024], "{}", machine.name);
        assert_eq!(machine.fault().0, 0, "{}", machine.name);
    });
}

#[test]
fn without_room_the_address_is_null() {
    let body = format!("mov.u64 %rd1, 128; {MALLOC} {TELL} ret;");
    // Room for 20 of the 128 threads. There may be less if blocks lie one unit apart.
    run(40, &body, |machine| {
        let mut given: Vec<u64> = addresses(machine).into_iter().filter(|it| *it != 0).collect();
        assert!((1..=20).contains(&given.len()), "{}: {}", machine.name, given.len());
        given.sort_unstable();
        assert!(given.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{}", machine.name);
        let begin = BASE + TABLE + 4 * 40;
        assert!(given.iter().all(|it| (begin..=begin + 38 * MALLOC_UNIT_BYTES).contains(it)));
        let taken = words(machine, TABLE, 40).iter().filter(|word| **word != 0).count();
        assert_eq!(taken, 2 * given.len(), "{}: units of failed calls are free", machine.name);
    });
    for size in ["0", "2561", "-1"] {
        let body = format!("mov.s64 %rd1, {size}; {MALLOC} {TELL} ret;");
        run(40, &body, |machine| assert_eq!(addresses(machine), vec![0; 128], "{size}"));
    }
}

#[test]
fn one_thread_gets_all_that_there_is() {
    // The first thread allocates 128 times. It writes the addresses as if they were those of all
    // threads. Then it frees its last block, and gets this block again.
    let body = format!(
        "setp.ne.u32 %p1, %g, 0; @%p1 bra end; mov.u64 %rd1, 128; mov.u32 %r5, 0;
         mov.u64 %rd3, %out; mov.u64 %rd6, 0;
         more: {MALLOC} st.global.u64 [%rd3], %rd2; add.u64 %rd3, %rd3, 8;
         setp.ne.u64 %p2, %rd2, 0; @%p2 mov.u64 %rd6, %rd2;
         add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 127; @%p1 bra more;
         mov.u64 %rd2, %rd6; {FREE_IT} {MALLOC} st.global.u64 [%rd3], %rd2;
         end: ret;"
    );
    run(40, &body, |machine| {
        let given = addresses(machine);
        let begin = BASE + TABLE + 4 * 40;
        let wanted: Vec<u64> = (0..20).map(|block| begin + block * 128).collect();
        assert_eq!(given[..20], wanted, "{}", machine.name);
        assert_eq!(given[20..127], [0; 107], "{}", machine.name);
        assert_eq!(given[127], wanted[19], "{}", machine.name);
        assert_eq!(machine.fault().0, 0, "{}", machine.name);
    });
}

#[test]
fn a_wrong_address_is_not_freed() {
    let wrong = [
        ("an address inside a block", "add.u64 %rd2, %rd2, 64;"),
        ("an address that is not aligned", "add.u64 %rd2, %rd2, 4;"),
        ("an address of other memory", "mov.u64 %rd2, %out;"),
        ("a block that is free", FREE_IT),
    ];
    for (what, change) in wrong {
        let body = format!(
            "setp.ne.u32 %p1, %g, 0; @%p1 bra end; mov.u64 %rd1, 128; {MALLOC} {change} {FREE_IT}
             end: ret;"
        );
        run(64, &body, |machine| {
            assert_eq!(machine.fault().0, Fault::IllegalAddress as u64, "{what}");
        });
    }
    let nothing = format!("mov.u64 %rd2, 0; {FREE_IT} ret;");
    run(64, &nothing, |machine| assert_eq!(machine.fault().0, 0, "{}", machine.name));
}
