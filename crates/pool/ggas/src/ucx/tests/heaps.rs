//! Heaps with and without UCX as carrier.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use penstock_link::Stream;
use penstock_trial::{deadline, wait_for};

use super::super::ENVIRONMENT;
use super::carriers::{carrier, engine, tcp};
use super::{is_prepared, with_ucx};
use crate::frame::{FRAME_BYTES, Frame};
use crate::hello::{HELLO_BYTES, Hello, VERDICT_BYTES, encode_verdict};
use crate::layout::{FLAGS_BYTES, Head, NO_SIGNAL, RING_ENTRIES, kind};
use crate::proxy::carrier::Carrier;
use crate::{Heap, Plan, ProxyTransport, TIMEOUT_DEFAULT, View};

fn heap(me: u32, offers: bool) -> Arc<Heap> {
    let members = vec![0, 1];
    let plan =
        Plan { id: 5, members, me, bytes: 1 << 21, timeout: TIMEOUT_DEFAULT, force_proxy: false };
    let heap = Heap::create(plan).unwrap();
    if offers {
        heap.offer_ucx();
    }
    heap
}

/// Returns two started members.
fn pair(offers: [bool; 2]) -> [Arc<Heap>; 2] {
    let heaps = [heap(0, offers[0]), heap(1, offers[1])];
    let [one, other] = tcp();
    let theirs = heaps[1].clone();
    let thread = thread::spawn(move || theirs.join(0, other).unwrap());
    heaps[0].join(1, one).unwrap();
    thread.join().unwrap();
    heaps.iter().for_each(|heap| heap.start().unwrap());
    heaps
}

fn head(view: &View) -> &Head {
    // SAFETY: a view begins with a head and stays mapped while it lives; all fields are atomic.
    unsafe { view.range().0.cast::<Head>().as_ref() }
}

/// Posts an entry for PE 1 as a kernel would.
fn post(view: &View, what: u32, [target_at, value, length, signal_at, signal]: [u64; 5]) {
    let head = head(view);
    let at = head.tail.0.fetch_add(1, Relaxed);
    let entry = &head.ring[usize::try_from(at).unwrap() % RING_ENTRIES];
    wait_for("a free entry", || entry.sequence.load(Acquire) == at);
    entry.kind.store(what, Relaxed);
    entry.pe.store(1, Relaxed);
    entry.target_at.store(target_at, Relaxed);
    entry.value.store(value, Relaxed);
    entry.length.store(length, Relaxed);
    entry.signal_at.store(signal_at, Relaxed);
    entry.signal.store(signal, Relaxed);
    entry.sequence.store(at + 1, Release);
}

fn word(heap: &Heap, pe: u32, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    heap.read(pe, offset, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Checks that puts of one member arrive at the other.
fn works(one: &Heap, other: &Heap) {
    let (view, _running, flags) = (one.view(0).unwrap(), one.running(), FLAGS_BYTES as u64);
    const LARGE: usize = 1 << 20;
    one.write(0, 0, &vec![7; LARGE]).unwrap();
    for round in 1..200 {
        if round % 50 == 0 {
            post(&view, kind::PUT, [flags + LARGE as u64, flags, LARGE as u64, NO_SIGNAL, 0]);
        }
        post(&view, kind::STORE_64, [flags + 8, round, 8, NO_SIGNAL, 0]);
        post(&view, kind::PUT, [0, 0, 0, flags, round]);
    }
    post(&view, kind::QUIET, [0; 5]);
    let tail = head(&view).tail.0.load(Relaxed);
    wait_for("quiet", || head(&view).done.0.load(Acquire) == tail);
    assert_eq!((word(other, 1, 0), word(other, 1, 8)), (199, 199));
    let mut bytes = vec![0; LARGE];
    other.read(1, LARGE as u64, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[test]
fn puts_arrive_and_a_heap_can_be_reset() {
    if !with_ucx("heaps::puts_arrive_and_a_heap_can_be_reset") {
        return;
    }
    let [one, other] = pair([true, true]);
    let ucx = Some(ProxyTransport::Ucx(std::env::var("UCX_TLS").unwrap()));
    assert_eq!([one.transport(1), other.transport(0)], [ucx.clone(), ucx]);
    works(&one, &other);
    one.abort("enough");
    wait_for("the note of it", || other.aborted().as_deref() == Some("enough"));
    one.reset(1).unwrap();
    other.reset(1).unwrap();
    let _running = one.running();
    post(&one.view(0).unwrap(), kind::STORE_64, [FLAGS_BYTES as u64 + 16, 5, 8, NO_SIGNAL, 0]);
    wait_for("a store", || word(&other, 1, 16) == 5);
    drop(other);
    wait_for("the end of the heap", || one.aborted().is_some());
    assert_eq!(one.aborted().unwrap(), "member 1 has ended or left");
}

#[test]
#[ignore = "perf: a share of a core"]
fn perf_who_has_nothing_to_do_sleeps() {
    if !with_ucx("heaps::perf_who_has_nothing_to_do_sleeps") {
        return;
    }
    let [one, other] = pair([true, true]);
    works(&one, &other);
    thread::sleep(Duration::from_millis(100));
    let before = cpu_time();
    thread::sleep(Duration::from_secs(1));
    let used = cpu_time() - before;
    // A spinning thread would have used most of the second, a napping thread 30 ms.
    assert!(used < Duration::from_millis(20), "{used:?} in a second of idleness");
}

/// Returns the processor time of all threads of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

#[test]
fn what_the_library_does_to_a_process_is_little() {
    if !with_ucx("heaps::what_the_library_does_to_a_process_is_little") {
        return;
    }
    // This loads UCX. What it takes over would differ from a process without it.
    let [one, other] = pair([true, true]);
    works(&one, &other);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    let caught = u64::from_str_radix(caught, 16).unwrap();
    // Rust itself detects stack overflows with SIGSEGV and SIGBUS; UCX would take these two, too.
    for signal in [libc::SIGILL, libc::SIGFPE] {
        assert_eq!(caught & (1 << (signal - 1)), 0, "signal {signal} is taken");
    }
    for name in [c"mmap", c"munmap", c"brk", c"madvise"] {
        // SAFETY: the name is null-terminated.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: a function of the system's library, whose code can be read.
        let code = unsafe { function.cast::<[u8; 16]>().read_unaligned() };
        assert_eq!(code, code_in_file(function as usize), "{name:?} has been changed");
    }
}

/// Returns the same bytes from the file that the code was mapped from.
fn code_in_file(address: usize) -> [u8; 16] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let (offset, path) = maps
        .lines()
        .find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (from, to) = words[0].split_once('-')?;
            let range = number(from)..number(to);
            range
                .contains(&address)
                .then(|| (number(words[2]) + address - range.start, words[5].to_owned()))
        })
        .unwrap();
    std::fs::read(path).unwrap()[offset..offset + 16].try_into().unwrap()
}

#[test]
fn without_the_library_the_stream_carries_and_says_why() {
    let absent = [("PENSTOCK_LIBUCP", "/nowhere/libucp.so.0")];
    let variables: Vec<_> = ENVIRONMENT.iter().copied().chain(absent).collect();
    if !is_prepared("heaps::without_the_library_the_stream_carries_and_says_why", &variables) {
        return;
    }
    let [one, other] = pair([true, true]);
    for transport in [one.transport(1), other.transport(0)] {
        let Some(ProxyTransport::StreamInstead(why)) = transport else { panic!("{transport:?}") };
        assert!(why.starts_with("UCX's library /nowhere/libucp.so.0 can not be used ("), "{why}");
        assert!(why.ends_with("install libucx0"), "{why}");
    }
    works(&one, &other);
}

#[test]
fn in_a_process_that_is_not_prepared_it_is_not_even_loaded() {
    if !is_prepared("heaps::in_a_process_that_is_not_prepared_it_is_not_even_loaded", &[]) {
        return;
    }
    let [one, other] = pair([true, true]);
    let transport = one.transport(1);
    let Some(ProxyTransport::StreamInstead(why)) = &transport else { panic!("{transport:?}") };
    assert!(why.contains("UCX_ERROR_SIGNALS"), "{why}");
    works(&one, &other);
    assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("libucp"));
}

#[test]
fn a_member_that_does_not_offer_it_gets_the_stream() {
    if !with_ucx("heaps::a_member_that_does_not_offer_it_gets_the_stream") {
        return;
    }
    for offers in [[true, false], [false, true]] {
        let [one, other] = pair(offers);
        let why = "the other member's node does not offer UCX".to_owned();
        let says = |offers| {
            if offers { ProxyTransport::StreamInstead(why.clone()) } else { ProxyTransport::Stream }
        };
        assert_eq!([one.transport(1), other.transport(0)], offers.map(|offers| Some(says(offers))));
        works(&one, &other);
    }
}

/// Runs a member that calls `say` after a correct handshake. Returns the heap's reason.
fn hostile(say: impl FnOnce(Stream, &Heap)) -> String {
    let heap = heap(0, true);
    let [ours, theirs] = tcp();
    let thread = thread::spawn({
        let heap = heap.clone();
        move || heap.join(1, ours).and_then(|()| heap.start())
    });
    let deadline = deadline();
    let mut hello = [0; HELLO_BYTES];
    theirs.read_exact_until(&mut hello, deadline).unwrap();
    let mut hello = Hello::decode(&hello).unwrap();
    assert!(hello.ucx);
    (hello.from, hello.to) = (1, 0);
    theirs.write_all_until(&hello.encode(), deadline).unwrap();
    theirs.write_all_until(&encode_verdict(None), deadline).unwrap();
    theirs.read_exact_until(&mut [0; VERDICT_BYTES], deadline).unwrap();
    say(theirs, &heap);
    match thread.join().unwrap() {
        Ok(()) => {
            wait_for("the end of the heap", || heap.aborted().is_some());
            heap.aborted().unwrap()
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_member_that_sends_nonsense_by_ucx_ends_the_heap() {
    if !with_ucx("heaps::a_member_that_sends_nonsense_by_ucx_ends_the_heap") {
        return;
    }
    let put =
        |pe, at, length| Frame::Put { pe, at, length, signal_at: NO_SIGNAL, signal: 0 }.encode();
    for said in [vec![0; FRAME_BYTES], put(1, 0, 1).to_vec(), put(0, u64::MAX, 1).to_vec()] {
        let mut kept = None;
        let why = hostile(|stream, _| {
            let mut carrier = carrier(engine(), stream);
            assert_eq!(carrier.send(&[IoSlice::new(&said)]).unwrap(), Some(said.len()));
            kept = Some(carrier);
        });
        assert_eq!(why, "member 1 sent bytes that do not belong to the heap");
    }
}

#[test]
fn a_member_that_lies_while_they_agree_is_refused() {
    if !with_ucx("heaps::a_member_that_lies_while_they_agree_is_refused") {
        return;
    }
    let deadline = deadline();
    let card = |length: u32, address: &[u8]| {
        [b"GGASUCX1".as_slice(), &length.to_le_bytes(), &[0; 20], address].concat()
    };
    let lie = |bytes: Vec<u8>| {
        let mut kept = None;
        let why = hostile(|stream, _| {
            _ = stream.write_all_until(&bytes, deadline);
            kept = Some(stream);
        });
        assert!(why.contains("does not speak the protocol of heaps"), "{why}");
    };
    lie(vec![b'G'; 32]);
    // An address beyond all limits: nothing is awaited or allocated.
    lie(card(u32::MAX, &[]));
    // A member that cannot use UCX after all gets the stream, which works normally.
    let (frame, text) = Frame::abort(0, true, "I say so");
    let note = [card(0, &[]), frame.encode().to_vec(), text].concat();
    let mut kept = None;
    let why = hostile(|stream, _| {
        stream.write_all_until(&note, deadline).unwrap();
        kept = Some(stream);
    });
    assert_eq!(why, "I say so");
}
