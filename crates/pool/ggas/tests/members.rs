//! Members without kernels: handshakes, paths, hostile peers and hostile kernels. These tests write
//! what a kernel would write.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use penstock_ggas::frame::{FRAME_BYTES, Frame};
use penstock_ggas::hello::{HELLO_BYTES, Hello, VERDICT_BYTES, encode_verdict};
use penstock_ggas::layout::{FLAGS_BYTES, Head, NO_SIGNAL, RING_ENTRIES, kind};
use penstock_ggas::{Heap, HeapError, Path, Plan, Refusal, TIMEOUT_DEFAULT, View};
use penstock_link::{Patience, SharedMemory, Stream, send_fd};
use penstock_trial::{deadline, in_time, wait_for};

/// Longer than anything in these tests takes, even on a busy machine.
fn plan(members: &[u32], me: u32) -> Plan {
    Plan {
        id: 5,
        members: members.to_vec(),
        me,
        bytes: 10_000,
        timeout: TIMEOUT_DEFAULT,
        force_proxy: false,
    }
}

fn unix() -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one.into(), listener.accept().unwrap().0.into())
}

fn stream(fd: OwnedFd) -> Stream {
    Stream::from_fd(fd).unwrap()
}

type Joined = Result<(), HeapError>;

/// Performs both sides of a handshake.
fn shake(one: &Arc<Heap>, other: &Arc<Heap>, (a, b): (OwnedFd, OwnedFd)) -> (Joined, Joined) {
    let (theirs, me) = (other.clone(), one.plan().me);
    let thread = thread::spawn(move || theirs.join(me, stream(b)));
    (one.join(other.plan().me, stream(a)), thread.join().unwrap())
}

/// Returns two started members with one PE each.
fn pair(fds: (OwnedFd, OwnedFd), change: impl Fn(&mut Plan)) -> [Arc<Heap>; 2] {
    let heaps = [0, 1].map(|me| {
        let mut plan = plan(&[0, 1], me);
        change(&mut plan);
        Heap::create(plan).unwrap()
    });
    let (one, other) = shake(&heaps[0], &heaps[1], fds);
    one.unwrap();
    other.unwrap();
    heaps.iter().for_each(|heap| heap.start().unwrap());
    heaps
}

fn head(view: &View) -> &Head {
    // SAFETY: a view begins with a head and stays mapped while it lives; all fields are atomic.
    unsafe { view.range().0.cast::<Head>().as_ref() }
}

/// Posts an entry as a kernel would.
fn post(view: &View, what: u32, pe: u32, [target_at, value, length, signal_at, signal]: [u64; 5]) {
    let head = head(view);
    let at = head.tail.0.fetch_add(1, Relaxed);
    let entry = &head.ring[usize::try_from(at).unwrap() % RING_ENTRIES];
    wait_for("a free entry", || entry.sequence.load(Acquire) == at);
    entry.kind.store(what, Relaxed);
    entry.pe.store(pe, Relaxed);
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

#[test]
fn members_of_one_host_see_each_others_parts() {
    let [one, other] = pair(unix(), |_| ());
    assert_eq!(one.path(0, 1).unwrap(), Path::Shared);
    assert_eq!(one.path(0, 0).unwrap(), Path::Own);
    let view = one.view(0).unwrap();
    let stride = usize::try_from(head(&view).stride.load(Relaxed)).unwrap();
    let at = size_of::<Head>() + stride + FLAGS_BYTES + 72;
    // SAFETY: the user byte 72 of PE 1's part lies there.
    unsafe { view.range().0.add(at).cast::<u64>().write_volatile(4711) };
    assert_eq!(word(&other, 1, 72), 4711);
    assert!(matches!(other.view(0), Err(HeapError::ForeignPe { pe: 0, member: 0 })));
    assert!(matches!(one.read(0, 9_993, &mut [0; 8]), Err(HeapError::Range { .. })));
}

#[test]
fn the_way_decides_the_path() {
    for (fds, force_proxy, path) in
        [(unix(), false, Path::Shared), (unix(), true, Path::Proxy), (tcp(), false, Path::Proxy)]
    {
        let heaps = pair(fds, |plan| plan.force_proxy = force_proxy);
        for (heap, ends) in heaps.iter().zip([(0, 1), (1, 0)]) {
            assert_eq!(heap.path(ends.0, ends.1).unwrap(), path);
        }
    }
}

#[test]
fn members_with_different_plans_are_refused_by_both() {
    let changes: [fn(&mut Plan); 5] = [
        |plan| plan.bytes += 1,
        |plan| plan.id += 1,
        |plan| plan.timeout *= 2,
        |plan| plan.members.push(0),
        |plan| plan.members = vec![1, 0],
    ];
    for change in changes {
        let one = Heap::create(plan(&[0, 1], 0)).unwrap();
        let mut theirs = plan(&[0, 1], 1);
        change(&mut theirs);
        let other = Heap::create(theirs).unwrap();
        let (here, there) = shake(&one, &other, unix());
        for result in [here, there] {
            assert!(
                matches!(result, Err(HeapError::Refused { refusal: Refusal::Plan, .. })),
                "{result:?}"
            );
        }
        // The right member may still join.
        let other = Heap::create(plan(&[0, 1], 1)).unwrap();
        let (here, there) = shake(&one, &other, unix());
        assert!(here.is_ok() && there.is_ok());
    }
}

#[test]
fn limits_are_errors_that_name_them() {
    let refused = |change: fn(&mut Plan)| {
        let mut plan = plan(&[0, 1], 0);
        change(&mut plan);
        Heap::create(plan).unwrap_err().to_string()
    };
    assert!(refused(|plan| plan.members = vec![0; 65]).contains("PEs from 1 to 64"));
    assert!(refused(|plan| plan.bytes = 0).contains("bytes per PE"));
    assert!(refused(|plan| plan.bytes = u64::MAX).contains("bytes per PE"));
    assert!(refused(|plan| plan.timeout = Duration::ZERO).contains("timeout"));
    assert!(refused(|plan| plan.me = 9).contains("no PE"));
    let heap = Heap::create(plan(&[0, 1], 0)).unwrap();
    assert!(matches!(heap.join(0, stream(unix().0)), Err(HeapError::NoSuchMember { member: 0 })));
    assert!(matches!(heap.view(0), Err(HeapError::NotStarted)));
    assert!(matches!(heap.view(7), Err(HeapError::NoSuchPe { pe: 7, count: 2 })));
}

/// Joins a heap with a false hello, with memory or without; `change` falsifies the hello.
fn lie(memory: Option<SharedMemory>, change: impl Fn(&mut Hello)) -> Joined {
    let heap = Heap::create(plan(&[0, 1], 0)).unwrap();
    let (ours, theirs) = unix();
    let thread = thread::spawn({
        let heap = heap.clone();
        move || heap.join(1, stream(ours))
    });
    // The heap's own hello, with sender and receiver exchanged.
    let theirs = stream(theirs);
    let mut bytes = [0; HELLO_BYTES];
    let (got, _fd) =
        penstock_link::recv_fd(theirs.as_fd(), &mut bytes, Patience::Until(deadline())).unwrap();
    assert_eq!(got, HELLO_BYTES);
    let mut hello = Hello::decode(&bytes).unwrap();
    (hello.from, hello.to) = (1, 0);
    change(&mut hello);
    let patience = Patience::Until(deadline());
    match memory {
        Some(memory) => send_fd(theirs.as_fd(), memory.as_fd(), &hello.encode(), patience).unwrap(),
        None => theirs.write_all_until(&hello.encode(), deadline()).unwrap(),
    }
    _ = theirs.write_all_until(&encode_verdict(None), deadline());
    thread.join().unwrap()
}

#[test]
fn memory_that_is_not_what_the_plan_says_is_refused() {
    let right = || SharedMemory::create("test", FLAGS_BYTES + 12_288).unwrap();
    lie(Some(right()), |_| ()).unwrap();
    let refusal = |joined: Joined| match joined {
        Err(HeapError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    };
    let small = SharedMemory::create("test", 4096).unwrap();
    assert_eq!(refusal(lie(Some(small), |_| ())), Refusal::Memory);
    assert_eq!(refusal(lie(None, |_| ())), Refusal::Memory);
    // A member that may not hand over its memory is reached through the proxy.
    lie(None, |hello| hello.memory = false).unwrap();
    assert_eq!(refusal(lie(Some(right()), |hello| hello.boot[3] ^= 1)), Refusal::Memory);
    assert_eq!(refusal(lie(Some(right()), |hello| hello.from = 2)), Refusal::Member);
    assert_eq!(refusal(lie(Some(right()), |hello| hello.plan[0] ^= 1)), Refusal::Plan);
}

#[test]
fn strangers_and_mutes_end_the_handshake_only() {
    let heap = Heap::create(plan(&[0, 1], 0)).unwrap();
    let (ours, theirs) = tcp();
    let mut stranger = TcpStream::from(theirs);
    stranger.write_all(&[b'G'; HELLO_BYTES]).unwrap();
    let joined = heap.join(1, stream(ours));
    assert!(
        matches!(joined, Err(HeapError::Refused { refusal: Refusal::NotGgas, .. })),
        "{joined:?}"
    );
    // The stranger gets a hello and a verdict.
    let mut heard = vec![0; HELLO_BYTES + VERDICT_BYTES];
    stranger.read_exact(&mut heard).unwrap();
    let (ours, theirs) = unix();
    drop(theirs);
    assert!(matches!(heap.join(1, stream(ours)), Err(HeapError::Link(_))));
    // A peer that says nothing.
    let (ours, theirs) = unix();
    assert!(in_time("a silent peer", || heap.join(1, stream(ours))).is_err());
    drop(theirs);
}

#[test]
fn entries_of_a_ring_arrive_in_order_and_quiet_says_when() {
    for fds in [unix(), tcp()] {
        let [one, other] = pair(fds, |plan| plan.force_proxy = true);
        let (view, _running, flags) = (one.view(0).unwrap(), one.running(), FLAGS_BYTES as u64);
        one.write(0, 0, &[7; 9_000]).unwrap();
        post(&view, kind::PUT, 1, [flags + 1_000, flags, 9_000, NO_SIGNAL, 0]);
        for round in 1..1_000 {
            post(&view, kind::STORE_64, 1, [flags + 8, round, 8, NO_SIGNAL, 0]);
            post(&view, kind::PUT, 1, [0, 0, 0, flags, round]);
        }
        post(&view, kind::QUIET, 0, [0; 5]);
        let tail = head(&view).tail.0.load(Relaxed);
        wait_for("quiet", || head(&view).done.0.load(Acquire) == tail);
        assert_eq!((word(&other, 1, 0), word(&other, 1, 8)), (999, 999));
        let mut bytes = [0; 9_000];
        other.read(1, 1_000, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn entries_that_no_verb_writes_end_the_heap() {
    let flags = FLAGS_BYTES as u64;
    for (what, pe, fields) in [
        (kind::PUT, 1, [flags + 10_001, flags, 1, NO_SIGNAL, 0]),
        (kind::PUT, 1, [flags, flags + 9_999, 2, NO_SIGNAL, 0]),
        (kind::PUT, 1, [u64::MAX, 0, u64::MAX, NO_SIGNAL, 0]),
        (kind::PUT, 0, [0, 0, 1, NO_SIGNAL, 0]),
        (kind::PUT, 63, [0, 0, 1, NO_SIGNAL, 0]),
        (99, 1, [0, 0, 1, NO_SIGNAL, 0]),
    ] {
        let [one, other] = pair(unix(), |plan| plan.force_proxy = true);
        let view = one.view(0).unwrap();
        let running = one.running();
        post(&view, what, pe, fields);
        wait_for("an abort", || one.aborted().is_some());
        assert!(one.aborted().unwrap().contains("PE 0"));
        assert_eq!(head(&view).abort.load(Acquire), 1);
        // The other member is told why, and after a reset of both all works again.
        wait_for("the note of it", || other.aborted().is_some_and(|why| why.contains("PE 0")));
        assert!(matches!(one.reset(2), Err(HeapError::Busy)));
        drop(running);
        // A reset of both makes up for a reset that only one of them did.
        other.reset(1).unwrap();
        assert!(
            matches!(other.reset(1), Err(HeapError::Limit { .. })),
            "a generation is used only once"
        );
        let (team, met) = (&head(&view).teams[3], &head(&view).met[3][1]);
        team.arrived.store(1, Relaxed);
        team.status.store(-1, Relaxed);
        met.store(7, Relaxed);
        one.reset(2).unwrap();
        other.reset(2).unwrap();
        assert_eq!(head(&view).abort.load(Acquire), 0);
        assert_eq!((team.arrived.load(Relaxed), team.status.load(Relaxed)), (0, 0));
        assert_eq!(met.load(Relaxed), penstock_ggas::abort::first_count(2));
        let _running = one.running();
        post(&view, kind::STORE_64, 1, [flags, 5, 8, NO_SIGNAL, 0]);
        wait_for("a store", || word(&other, 1, 0) == 5);
    }
}

/// Runs a TCP peer that sends `said` after a correct handshake. Returns the heap's reason.
fn hostile(said: &[u8]) -> String {
    let heap = Heap::create(plan(&[0, 1], 0)).unwrap();
    let (ours, theirs) = tcp();
    let mut peer = TcpStream::from(theirs);
    let thread = thread::spawn({
        let heap = heap.clone();
        move || heap.join(1, stream(ours))
    });
    let mut bytes = [0; HELLO_BYTES];
    peer.read_exact(&mut bytes).unwrap();
    let mut hello = Hello::decode(&bytes).unwrap();
    (hello.from, hello.to) = (1, 0);
    peer.write_all(&hello.encode()).unwrap();
    peer.write_all(&encode_verdict(None)).unwrap();
    thread.join().unwrap().unwrap();
    heap.start().unwrap();
    peer.write_all(said).unwrap();
    wait_for("the end of the heap", || heap.aborted().is_some());
    assert!(matches!(heap.reset(1), Err(HeapError::Ended { .. })));
    let view = heap.view(0).unwrap();
    assert_eq!(head(&view).abort.load(Acquire), 1);
    heap.aborted().unwrap()
}

#[test]
fn a_peer_that_sends_nonsense_ends_the_heap() {
    let put =
        |pe, at, length| Frame::Put { pe, at, length, signal_at: NO_SIGNAL, signal: 0 }.encode();
    for said in [
        vec![0; FRAME_BYTES],
        put(1, 0, 1).to_vec(),
        put(0, u64::MAX, 1).to_vec(),
        put(0, 0, 1 << 40).to_vec(),
        put(0, FLAGS_BYTES as u64 + 10_000, 1).to_vec(),
    ] {
        assert_eq!(hostile(&said), "member 1 sent bytes that do not belong to the heap");
    }
    let (frame, text) = Frame::abort(0, true, "I say so");
    assert_eq!(hostile(&[frame.encode().as_slice(), &text].concat()), "I say so");
}

#[test]
fn who_leaves_is_missed_and_nothing_stays() {
    let [one, other] = pair(unix(), |_| ());
    drop(other);
    wait_for("the end of the heap", || one.aborted().is_some());
    assert_eq!(one.aborted().unwrap(), "member 1 has ended or left");
    let view = one.view(0).unwrap();
    drop(one);
    // A view outlives its heap.
    assert_eq!(head(&view).abort.load(Acquire), 1);
}
