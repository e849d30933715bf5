//! Symmetric heaps, as a worker serves them: valid calls of a client, and calls that must fail.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;

use common::{Client, Devices};
use penstock_link::LinkError;
use penstock_wire::args::Arg;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::{HeapPath, HeapPlan, HeapStarted, PeerInvitation};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, U32, U64, frame, limits};

const DEVICES: Devices = Devices::Real;

const BYTES: u64 = 8192;

const SOURCE: &str = "
    kernel void store(global ulong *heap, ulong at, ulong value) { heap[at] = value; }
    kernel void spin(global ulong *heap, ulong at) { while (((volatile global ulong *)heap)[at] == 0) {} }";

/// Index of a view's abort word.
const ABORT_WORD: u64 = std::mem::offset_of!(penstock_ggas::layout::Head, abort) as u64 / 8;

fn create_call(heap: Id<kind::Heap>, bytes: u64, timeout_ms: u32) -> to_worker::CreateHeap {
    to_worker::CreateHeap {
        request: Id::NONE,
        heap,
        me: U32::ZERO,
        bytes: U64::new(bytes),
        timeout_ms: U32::new(timeout_ms),
        force_proxy: U32::ZERO,
    }
}

fn reset_call(heap: Id<kind::Heap>, generation: u64) -> to_worker::ResetHeap {
    to_worker::ResetHeap { request: Id::NONE, heap, generation: U64::new(generation) }
}

fn sentence(answer: &(Status, Vec<u8>)) -> Option<String> {
    assert_eq!(answer.0, Status::OK);
    frame::decode("a sentence", &answer.1).unwrap()
}

fn create(client: &mut Client, call: to_worker::CreateHeap, members: &[u32]) -> Option<String> {
    let plan = HeapPlan { members: members.to_vec() };
    sentence(&client.request(call, &frame::encode(&plan)))
}

/// Makes and starts a heap of the worker's device alone.
fn heap(client: &mut Client) -> Id<kind::Heap> {
    let heap = client.id();
    assert_eq!(create(client, create_call(heap, BYTES, 1_000), &[0]), None);
    let (_, started) = client.request(to_worker::StartHeap { request: Id::NONE, heap }, &[]);
    let started: HeapStarted = frame::decode("StartHeap", &started).unwrap();
    assert_eq!(started, HeapStarted { refused: None, paths: vec![(0, vec![HeapPath::Own])] });
    heap
}

/// Makes a client with a context, a queue in it, and a heap.
fn with_heap() -> (Client, Id<kind::Context>, Id<kind::Queue>, Id<kind::Heap>) {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let heap = heap(&mut client);
    (client, context, queue, heap)
}

/// Makes the view of PE 0, and its part.
fn view(
    client: &mut Client,
    heap: Id<kind::Heap>,
    context: Id<kind::Context>,
) -> (Id<kind::Mem>, Id<kind::Mem>) {
    let (view, part) = (client.id(), client.id());
    let call =
        to_worker::CreateHeapView { request: Id::NONE, heap, pe: U32::ZERO, context, view, part };
    assert_eq!(client.request(call, &[]).0, Status::OK);
    (view, part)
}

#[test]
fn a_kernel_gets_the_view_and_transfers_the_part() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, part) = view(&mut client, heap, context);
    assert_eq!(client.read(queue, part, BYTES), vec![0; BYTES as usize]);
    let written = client.write(queue, part, 8, &[7; 16]);
    assert_eq!(client.status(written), 0);
    let kernel = client.kernel(context, SOURCE, "store");
    let user = (penstock_ggas::layout::HEAD_BYTES + penstock_ggas::layout::FLAGS_BYTES) as u64;
    let at = (user + 4096) / 8;
    for value in [5_u64, 6] {
        let event = client.id();
        let args = common::args(&[
            Arg::Mem(view),
            Arg::Bytes(&at.to_le_bytes()),
            Arg::Bytes(&value.to_le_bytes()),
        ]);
        client.launch(queue, kernel, event, 1, &[], &args);
        assert_eq!(client.status(event), 0);
        let bytes = client.read(queue, part, BYTES);
        assert_eq!((&bytes[4096..4104], &bytes[8..24]), (&value.to_le_bytes()[..], &[7; 16][..]));
    }
    // A launch without an event works as well.
    let args = common::args(&[
        Arg::Mem(view),
        Arg::Bytes(&at.to_le_bytes()),
        Arg::Bytes(&9_u64.to_le_bytes()),
    ]);
    client.launch(queue, kernel, Id::NONE, 1, &[], &args);
    assert_eq!(client.finish(queue), Status::OK);
    assert_eq!(client.read(queue, part, BYTES)[4096], 9);
    client.send(to_worker::ReleaseMem { mem: view }, &[], &[]);
    client.send(to_worker::ReleaseMem { mem: part }, &[], &[]);
    client.send(to_worker::ReleaseHeap { heap }, &[], &[]);
    // A launch with released arguments only fails.
    let event = client.id();
    client.launch(queue, kernel, event, 1, &[], &common::args(&[Arg::Mem(view)]));
    assert_eq!(client.status(event), Status::INVALID_MEM_OBJECT.0);
    client.end();
}

#[test]
fn nothing_but_kernels_reaches_a_view() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, part) = view(&mut client, heap, context);
    let event = client.read_waiting(queue, view, 8, &[]);
    assert_eq!(client.status(event), Status::INVALID_MEM_OBJECT.0);
    let event = client.write(queue, view, 0, &[1; 8]);
    assert_eq!(client.status(event), Status::INVALID_MEM_OBJECT.0);
    // A part gives access only to its own bytes.
    for (offset, size) in [(BYTES, 1), (0, BYTES + 1), (u64::MAX, 2)] {
        let event = client.id();
        client.inbox.reads.insert(event.get(), vec![0; 16]);
        let (offset, size) = (U64::new(offset), U64::new(size));
        client.send(to_worker::ReadBuffer { queue, mem: part, event, offset, size }, &[], &[]);
        assert!(client.status(event) < 0, "{offset} {size}");
    }
    client.end();
}

#[test]
fn an_abort_is_told_and_a_reset_undoes_it() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, _) = view(&mut client, heap, context);
    let status = |client: &mut Client| {
        sentence(&client.request(to_worker::HeapStatus { request: Id::NONE, heap }, &[]))
    };
    assert_eq!(status(&mut client), None);
    // A kernel that only checks the abort word runs until it is set.
    let kernel = client.kernel(context, SOURCE, "spin");
    let event = client.id();
    let args = common::args(&[Arg::Mem(view), Arg::Bytes(&ABORT_WORD.to_le_bytes())]);
    client.launch(queue, kernel, event, 1, &[], &args);
    client.send(to_worker::AbortHeap { heap }, &[], b"enough");
    assert_eq!(client.status(event), 0);
    assert!(status(&mut client).is_some_and(|reason| reason.contains("enough")));
    let reset = client.request(reset_call(heap, 1), &[]);
    assert_eq!(sentence(&reset), None);
    assert_eq!(status(&mut client), None);
    client.end();
}

#[test]
fn a_launch_that_fails_aborts_the_heap() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, _) = view(&mut client, heap, context);
    let kernel = client.kernel(context, SOURCE, "store");
    let event = client.id();
    // Two arguments are missing, which the driver finds.
    client.launch(queue, kernel, event, 1, &[], &common::args(&[Arg::Mem(view)]));
    assert!(client.status(event) < 0);
    let why = sentence(&client.request(to_worker::HeapStatus { request: Id::NONE, heap }, &[]));
    assert!(why.as_deref().is_some_and(|why| why.contains("launch")), "{why:?}");
    client.end();
}

#[test]
fn a_launch_that_fails_before_the_driver_sees_it_aborts_the_heap() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, _) = view(&mut client, heap, context);
    let kernel = client.kernel(context, SOURCE, "spin");
    let set = [Arg::Mem(view), Arg::Bytes(&ABORT_WORD.to_le_bytes())];
    let nowhere = client.id();
    let no_mem = Arg::Mem(client.id());
    let wrong = [Arg::Mem(view), no_mem];
    // A queue that does not exist; an argument that cannot be set.
    for (turn, queue, args) in [(1, nowhere, &set[..]), (2, queue, &wrong[..])] {
        let event = client.id();
        client.launch(queue, kernel, event, 1, &[], &common::args(args));
        assert!(client.status(event) < 0);
        let why = sentence(&client.request(to_worker::HeapStatus { request: Id::NONE, heap }, &[]));
        assert!(why.as_deref().is_some_and(|why| why.contains("launch")), "{why:?}");
        assert_eq!(sentence(&client.request(reset_call(heap, turn), &[])), None);
        assert!(
            sentence(&client.request(reset_call(heap, turn), &[])).is_some(),
            "a generation is used once"
        );
    }
    client.end();
}

#[test]
fn a_view_that_a_question_set_is_known_to_the_next_launch() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, _) = view(&mut client, heap, context);
    let kernel = client.kernel(context, SOURCE, "spin");
    // CL_KERNEL_WORK_GROUP_SIZE, with the arguments that have changed.
    let call = to_worker::KernelWorkGroupInfo {
        request: Id::NONE,
        kernel,
        device: U32::ZERO,
        name: U32::new(penstock_cl_sys::CL_KERNEL_WORK_GROUP_SIZE),
    };
    let args = common::args(&[Arg::Mem(view), Arg::Bytes(&ABORT_WORD.to_le_bytes())]);
    assert_eq!(client.request(call, &args).0, Status::OK);
    let copy = client.id();
    client.send(to_worker::CloneKernel { kernel: copy, source: kernel }, &[], &[]);
    let nowhere = client.id();
    for (turn, kernel) in [(1, kernel), (2, copy)] {
        // The launch fails, and its heap is aborted although the call does not name it.
        let event = client.id();
        client.launch(nowhere, kernel, event, 1, &[], &[]);
        assert!(client.status(event) < 0);
        let why = sentence(&client.request(to_worker::HeapStatus { request: Id::NONE, heap }, &[]));
        assert!(why.is_some(), "turn {turn}");
        assert_eq!(sentence(&client.request(reset_call(heap, turn), &[])), None);
    }
    // A running launch keeps its heap from being reset.
    let event = client.id();
    client.launch(queue, kernel, event, 1, &[], &[]);
    client.send(to_worker::AbortHeap { heap }, &[], b"enough");
    assert_eq!(client.status(event), 0);
    client.end();
}

#[test]
fn a_session_that_ends_ends_the_waits_of_its_kernels() {
    let (mut client, context, queue, heap) = with_heap();
    let (view, _) = view(&mut client, heap, context);
    let kernel = client.kernel(context, SOURCE, "spin");
    let event = client.id();
    let args = common::args(&[Arg::Mem(view), Arg::Bytes(&ABORT_WORD.to_le_bytes())]);
    client.launch(queue, kernel, event, 1, &[], &args);
    client.send(to_worker::Flush { queue }, &[], &[]);
    // The worker drops all objects; a driver's release waits for the kernel, which has ended.
    assert!(matches!(client.end(), Some(LinkError::Closed)));
}

#[test]
fn plans_that_can_not_be_are_refused_with_a_sentence() {
    let mut client = Client::rings();
    let heap = client.id();
    let many: Vec<u32> = (0..=limits::HEAP_PES_MAX as u32).collect();
    for (bytes, timeout_ms, members, what) in [
        (BYTES, 1_000, &[][..], "PEs"),
        (BYTES, 1_000, &many, "PEs"),
        (BYTES, 1_000, &[1, 2], "no PE"),
        (0, 1_000, &[0], "bytes"),
        (u64::MAX, 1_000, &[0], "bytes"),
        // 64 TiB: more than any node has.
        (limits::HEAP_BYTES_MAX, 1_000, &[0; limits::HEAP_PES_MAX], "memory"),
        (BYTES, 0, &[0], "timeout"),
        (BYTES, u32::MAX, &[0], "ms"),
    ] {
        let why =
            create(&mut client, create_call(heap, bytes, timeout_ms), members).expect("refused");
        assert!(why.contains(what), "{why}");
    }
    client.end();
}

#[test]
fn heaps_of_one_session_are_bounded() {
    let mut client = Client::rings();
    let heaps: Vec<_> = (0..limits::HEAPS_PER_SESSION_MAX).map(|_| heap(&mut client)).collect();
    let more = client.id();
    let why = create(&mut client, create_call(more, BYTES, 1_000), &[0]).expect("refused");
    assert!(why.contains(&format!("{} heaps", limits::HEAPS_PER_SESSION_MAX)), "{why}");
    for heap in heaps {
        client.send(to_worker::ReleaseHeap { heap }, &[], &[]);
    }
    // They end on threads of their own.
    penstock_trial::wait_for("the end of released heaps", || {
        create(&mut client, create_call(more, BYTES, 1_000), &[0]).is_none()
    });
    client.end();
}

#[test]
fn what_is_said_of_an_unknown_heap_or_pe_is_answered() {
    let mut client = Client::rings();
    let context = client.context();
    let nobody = client.id();
    let told = client.request(to_worker::HeapStatus { request: Id::NONE, heap: nobody }, &[]);
    assert!(sentence(&told).is_some());
    let told = client.request(reset_call(nobody, 1), &[]);
    assert!(sentence(&told).is_some());
    let (_, started) =
        client.request(to_worker::StartHeap { request: Id::NONE, heap: nobody }, &[]);
    assert!(frame::decode::<HeapStarted>("StartHeap", &started).unwrap().refused.is_some());
    client.send(to_worker::AbortHeap { heap: nobody }, &[], b"x");
    client.send(to_worker::ReleaseHeap { heap: nobody }, &[], &[]);
    let invitation = PeerInvitation { addresses: vec!["unix:/nowhere".into()], ticket: [7; 32] };
    let connect =
        to_worker::ConnectHeapMember { request: Id::NONE, heap: nobody, member: U32::new(1) };
    assert!(sentence(&client.request(connect, &frame::encode(&invitation))).is_some());
    // Nobody listens for this worker, so nobody can be admitted.
    let admit = to_worker::AdmitHeapMember { request: Id::NONE, heap: nobody, member: U32::new(1) };
    assert_eq!(client.request(admit, &[3; 32]).0, Status::INVALID_OPERATION);

    let heap = heap(&mut client);
    let connect = to_worker::ConnectHeapMember { request: Id::NONE, heap, member: U32::new(1) };
    assert!(sentence(&client.request(connect, &frame::encode(&invitation))).is_some());
    for pe in [1, u32::MAX] {
        let (view, part, pe) = (client.id(), client.id(), U32::new(pe));
        let call = to_worker::CreateHeapView { request: Id::NONE, heap, pe, context, view, part };
        assert_eq!(client.request(call, &[]).0, Status::INVALID_OPERATION);
    }
    let (view, part, context) = (client.id(), client.id(), client.id());
    let call =
        to_worker::CreateHeapView { request: Id::NONE, heap, pe: U32::ZERO, context, view, part };
    assert_eq!(client.request(call, &[]).0, Status::INVALID_CONTEXT);
    client.end();
}

#[test]
fn an_id_is_used_once() {
    let mut client = Client::rings();
    let known = heap(&mut client);
    client.send(
        create_call(known, BYTES, 1_000),
        &[],
        &frame::encode(&HeapPlan { members: vec![0] }),
    );
    client.until("the session's fault", |inbox| inbox.fault.is_some());
    let end = client.end();
    assert!(matches!(end, Some(LinkError::Frame(FrameError::BadId(_)))), "{end:?}");
}
