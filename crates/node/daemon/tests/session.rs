//! Handlers of a session, on a real driver, through a real link.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;

use std::time::{Duration, Instant};

use common::{Client, Devices, args};
use penstock_cl_sys::*;
use penstock_link::LinkError;
use penstock_wire::args::Arg;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::{BuildOrder, LoadReport, find};
use penstock_wire::hello::feature;
use penstock_wire::{Id, Status, Times, TimesOf, U32, U64, frame};

const DEVICES: Devices = Devices::Real;

const ADD: &str = "kernel void add(global const int *a, global const int *b, global int *c) {
    size_t i = get_global_id(0); c[i] = a[i] + b[i]; }";
/// Changes a whole buffer, slowly enough that commands that do not wait overtake it.
const SLOW: &str = "kernel void slow(global volatile int *a, int rounds) {
    for (int r = 0; r < rounds; r++) a[get_global_id(0)] += 1; }";

fn ints(values: impl Iterator<Item = i32>) -> Vec<u8> {
    values.flat_map(i32::to_le_bytes).collect()
}

fn vector_add(mut client: Client) {
    let context = client.context();
    let queue = client.queue(context, 0);
    let kernel = client.kernel(context, ADD, "add");
    let count = 1 << 16;
    let bytes = 4 * count as u64;
    let [a, b, c] = [0; 3].map(|_| client.buffer(context, bytes));
    let ea = client.write(queue, a, 0, &ints(0..count));
    client.write(queue, b, 0, &ints((0..count).map(|i| 10 * i)));
    let launched = client.id();
    let arguments = args(&[Arg::Mem(a), Arg::Mem(b), Arg::Mem(c)]);
    client.launch(queue, kernel, launched, count as u64, &[ea], &arguments);
    let sum = client.read(queue, c, bytes);
    assert!(sum == ints((0..count).map(|i| 11 * i)));
    assert_eq!(client.status(launched), 0);
    assert_eq!(client.finish(queue), Status::OK);
    assert!(matches!(client.end(), Some(LinkError::Closed)));
}

#[test]
fn vector_add_over_rings() {
    vector_add(Client::rings());
}

#[test]
fn vector_add_over_a_socket() {
    vector_add(Client::start(feature::PEERS));
}

#[test]
fn where_markers_alone_are_timed_nothing_else_is_told_with_times() {
    let mut client = Client::start(feature::PEERS);
    let context = client.context();
    let queue = client.queue_telling(context, CL_QUEUE_PROFILING_ENABLE, TimesOf::Markers as u32);
    let mem = client.buffer(context, 1 << 20);
    let before = client.marker(queue, &[]);
    let written = client.write(queue, mem, 0, &[5; 1 << 20]);
    let after = client.marker(queue, &[]);
    assert_eq!(client.finish(queue), Status::OK);
    // Small and large reads of an idle queue: none of them takes a turn at the device.
    for size in [4, 1 << 20] {
        let read = client.read_waiting(queue, mem, size, &[]);
        assert_eq!(client.ended(read).times(), Times::default());
        assert!(client.inbox.reads[&read.get()].iter().all(|byte| *byte == 5));
    }
    let again = client.write(queue, mem, 0, &[6; 4]);
    assert_eq!(client.ended(again).times(), Times::default());
    assert_eq!(client.status(written), 0);
    let (before, after) = (client.ended(before).times(), client.ended(after).times());
    assert!(0 < before.ended && before.ended <= after.ended, "{before:?}, {after:?}");

    let timed = client.queue(context, CL_QUEUE_PROFILING_ENABLE);
    let read = client.read_waiting(timed, mem, 4, &[]);
    assert!(client.ended(read).ended.get() > 0);
}

#[test]
fn a_queue_whose_times_are_asked_for_in_an_unknown_way_is_refused() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue_telling(context, CL_QUEUE_PROFILING_ENABLE, 77);
    assert_eq!(client.finish(queue), Status::INVALID_VALUE);
}

#[test]
fn a_new_buffer_is_zero() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 10_000);
    assert!(client.read(queue, mem, 10_000).iter().all(|byte| *byte == 0));
}

#[test]
fn commands_of_an_in_order_queue_keep_their_order() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let kernel = client.kernel(context, SLOW, "slow");
    let count = 1 << 18;
    let mem = client.buffer(context, 4 * count as u64);
    // Each write comes while the launch before it runs, each read before the next write.
    let mut expected = Vec::new();
    let mut reads = Vec::new();
    for round in 0..6 {
        client.write(queue, mem, 0, &ints((0..count).map(|i| i + round)));
        let rounds = 20_i32.to_le_bytes();
        client.launch(
            queue,
            kernel,
            Id::NONE,
            count as u64,
            &[],
            &args(&[Arg::Mem(mem), Arg::Bytes(&rounds)]),
        );
        reads.push(client.read_waiting(queue, mem, 4 * count as u64, &[]));
        expected.push(ints((0..count).map(|i| i + round + 20)));
    }
    assert_eq!(client.finish(queue), Status::OK);
    for (event, expected) in reads.into_iter().zip(expected) {
        assert!(
            client.inbox.events.contains_key(&event.get()),
            "a finish tells the end of all before it"
        );
        assert!(client.inbox.reads[&event.get()] == expected);
    }
}

#[test]
fn an_out_of_order_queue_waits_for_what_it_is_told() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let mem = client.buffer(context, 3 << 20);
    let content: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
    let gate = client.expect_event();
    let written = client.id();
    client.send(
        to_worker::WriteBuffer { queue, mem, event: written, offset: U64::ZERO },
        &[gate],
        &content,
    );
    let read = client.read_waiting(queue, mem, 3 << 20, &[written]);
    std::thread::sleep(Duration::from_millis(50));
    client.resolve(gate, 0);
    assert_eq!(client.status(read), 0);
    assert!(client.inbox.reads[&read.get()] == content);
    assert_eq!(client.finish(queue), Status::OK);
}

#[test]
fn large_and_odd_sizes_arrive() {
    for properties in [0, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let mut client = Client::rings();
        let context = client.context();
        let queue = client.queue(context, properties);
        for size in [0, 1, 4096, 65_536, 65_537, (1 << 20) + 1, 5_000_000] {
            let mem = client.buffer(context, size + 8);
            let content: Vec<u8> = (0..size).map(|i| (i * 7 % 253) as u8).collect();
            // After a marker without an event nobody knows whether the queue is idle.
            client.send(to_worker::Marker { queue, event: Id::NONE }, &[], &[]);
            let busy = client.write(queue, mem, 0, &content);
            assert_eq!(client.status(busy), 0, "{size}");
            assert!(client.read(queue, mem, size) == content, "{size}");
            assert_eq!(client.finish(queue), Status::OK);
            let content: Vec<u8> = content.into_iter().rev().collect();
            let idle = client.write(queue, mem, 0, &content);
            assert!(client.read(queue, mem, size) == content, "{size}");
            assert_eq!(client.status(idle), 0, "{size}");
        }
    }
}

#[test]
fn profiling_times_never_decrease() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, CL_QUEUE_PROFILING_ENABLE);
    let mem = client.buffer(context, 8 << 20);
    let mut last = 0;
    for size in [4, 100_000, 8 << 20] {
        let written = client.write(queue, mem, 0, &vec![1; size]);
        let read = client.read_waiting(queue, mem, size as u64, &[]);
        for event in [written, read] {
            let done = client.ended(event);
            let times = [done.queued, done.submitted, done.started, done.ended, done.completed]
                .map(|time| time.get());
            assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
            assert!(times[0] >= last, "{times:?} after {last}");
            last = times[0];
        }
    }
}

#[test]
fn large_reads_that_follow_each_other_have_times_that_do_not_overlap() {
    let mut client = Client::start(feature::PEERS);
    let context = client.context();
    let queue = client.queue(context, CL_QUEUE_PROFILING_ENABLE);
    let mem = client.buffer(context, 8 << 20);
    let written = client.write(queue, mem, 0, &vec![1; 8 << 20]);
    assert_eq!(client.status(written), 0);
    let reads = [0; 3].map(|_| client.read_waiting(queue, mem, 8 << 20, &[]));
    let done = reads.map(|read| client.ended(read));
    for read in &done {
        // The bytes are sent between the two times, and no link carries 100 GB/s.
        assert!(read.ended.get() - read.started.get() > 80_000, "{read:?}");
    }
    for pair in done.windows(2) {
        assert!(pair[0].ended.get() <= pair[1].ended.get(), "{pair:?}");
        assert!(pair[0].ended.get() <= pair[1].started.get(), "{pair:?}");
    }
    // A command behind them does not begin before they have ended.
    let marker = client.marker(queue, &[]);
    assert!(client.ended(marker).ended.get() >= done[2].ended.get());
}

#[test]
fn a_large_read_behind_an_event_that_fails_has_failed() {
    for properties in [0, CL_QUEUE_PROFILING_ENABLE] {
        let mut client = Client::rings();
        let context = client.context();
        let queue = client.queue(context, properties);
        let mem = client.buffer(context, 8 << 20);
        let gate = client.expect_event();
        let read = client.read_waiting(queue, mem, 8 << 20, &[gate]);
        client.resolve(gate, -5);
        assert_eq!(client.status(read), -14, "{properties}");
    }
}

#[test]
fn a_failed_event_fails_what_waits_for_it() {
    for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let mut client = Client::rings();
        let context = client.context();
        let queue = client.queue(context, properties);
        let mem = client.buffer(context, 64);
        let gate = client.expect_event();
        let early = client.id();
        client.send(
            to_worker::WriteBuffer { queue, mem, event: early, offset: U64::ZERO },
            &[gate],
            &[9; 64],
        );
        client.resolve(gate, -5);
        // The event is known to have failed when this comes.
        let late = client.id();
        client.send(
            to_worker::WriteBuffer { queue, mem, event: late, offset: U64::ZERO },
            &[gate],
            &[9; 64],
        );
        assert_eq!(client.status(early), -14, "{properties}");
        assert_eq!(client.status(late), -14, "{properties}");
        let other = client.queue(context, 0);
        assert_eq!(
            client.read(other, mem, 64),
            [0; 64],
            "a command whose wait list failed does not run"
        );
    }
}

#[test]
fn events_of_another_context_are_bridged() {
    let mut client = Client::rings();
    let (here, there) = (client.context(), client.context());
    let (queue, other) = (client.queue(here, 0), client.queue(there, 0));
    let gate = client.expect_event();
    let first = client.marker(queue, &[gate]);
    let second = client.marker(other, &[first]);
    client
        .receive(penstock_link::Patience::Until(Instant::now() + Duration::from_millis(100)))
        .unwrap();
    assert!(client.inbox.events.is_empty());
    client.resolve(gate, 0);
    assert_eq!(client.status(second), 0);
    assert_eq!(client.status(first), 0);
}

#[test]
fn a_finish_tells_the_failure_of_a_command_without_event() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 16);
    client.send(
        to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: U64::new(10) },
        &[],
        &[0; 16],
    );
    assert_eq!(client.finish(queue), Status::INVALID_VALUE);
    assert_eq!(client.finish(queue), Status::OK);
    let event = client.write(queue, mem, u64::MAX, &[0; 2]);
    assert_eq!(client.status(event), Status::INVALID_VALUE.0);
    assert_eq!(client.finish(queue), Status::OK);
}

#[test]
fn a_failure_without_event_is_told_before_the_next_end() {
    let mut client = Client::rings();
    let context = client.context();
    let (queue, other) = (client.queue(context, 0), client.queue(context, 0));
    let mem = client.buffer(context, 16);
    let wrong =
        |queue| to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: U64::new(10) };
    for before in 1..=2 {
        client.send(wrong(queue), &[], &[0; 16]);
        // The second failure is reported together with the first, and only on this queue.
        client.send(wrong(queue), &[], &[0; 16]);
        let elsewhere = client.marker(other, &[]);
        assert_eq!(client.status(elsewhere), 0);
        assert_eq!(client.inbox.queue_failures.len(), before - 1);
        assert_eq!(client.read(queue, mem, 16), [0; 16], "the read itself succeeds");
        // The markers and the reads so far, without this one.
        let told = (queue.get(), Status::INVALID_VALUE, 2 * before - 1);
        assert_eq!(client.inbox.queue_failures.last(), Some(&told));
        assert_eq!(client.finish(queue), Status::OK, "the failure is reported once");
    }
    assert_eq!(client.inbox.queue_failures.len(), 2);
}

#[test]
fn a_command_that_the_client_cancelled_is_no_failure_of_its_queue() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 16);
    let gate = client.expect_event();
    client.resolve(gate, -7);
    client.send(
        to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: U64::ZERO },
        &[gate],
        &[1; 16],
    );
    assert_eq!(client.finish(queue), Status::OK);
    assert_eq!(client.read(queue, mem, 16), [0; 16]);
    assert!(client.inbox.queue_failures.is_empty());
}

#[test]
fn what_could_not_be_made_reports_why() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 1 << 60);
    let event = client.write(queue, mem, 0, &[0; 4]);
    let status = client.status(event);
    assert!(status < 0 && status != Status::INVALID_MEM_OBJECT.0, "{status}");
    let unknown = client.write(queue, Id::new(999), 0, &[0; 4]);
    assert_eq!(client.status(unknown), Status::INVALID_MEM_OBJECT.0);
    let nowhere = client.write(Id::new(998), mem, 0, &[0; 4]);
    assert_eq!(client.status(nowhere), Status::INVALID_COMMAND_QUEUE.0);
}

#[test]
fn a_build_reports_its_log_and_kernels() {
    let mut client = Client::rings();
    let context = client.context();
    let (_, report) = client.program(context, ADD);
    assert_eq!(report.status, 0);
    assert_eq!(report.kernels[0].name, "add");
    let (program, report) = client.program(context, "kernel void broken( { nonsense }");
    assert_eq!(report.status, -11, "CL_BUILD_PROGRAM_FAILURE");
    let log = find(&report.devices[0].1, CL_PROGRAM_BUILD_LOG).unwrap();
    assert!(String::from_utf8_lossy(log).contains("error"), "{:?}", String::from_utf8_lossy(log));
    let kernel = client.id();
    client.send(to_worker::CreateKernel { kernel, program }, &[], b"broken");
    let queue = client.queue(context, 0);
    let event = client.id();
    client.launch(queue, kernel, event, 1, &[], &[]);
    assert!(client.status(event) < 0);
}

#[test]
fn a_kernel_that_runs_long_holds_nobody_else_up() {
    let mut client = Client::rings();
    let context = client.context();
    let (busy, free) = (client.queue(context, 0), client.queue(context, 0));
    let kernel = client.kernel(context, SLOW, "slow");
    let mem = client.buffer(context, 4);
    // A second on a usual machine. On a busy one the others may be late once, but not behind a
    // kernel of ten seconds.
    for rounds in [200_000_000_i32, 800_000_000, 2_000_000_000] {
        let event = client.id();
        let rounds = rounds.to_le_bytes();
        client.launch(busy, kernel, event, 1, &[], &args(&[Arg::Mem(mem), Arg::Bytes(&rounds)]));
        assert_eq!(client.request(to_worker::Ping { request: Id::NONE }, &[]).0, Status::OK);
        let other = client.buffer(context, 4);
        let written = client.write(free, other, 0, &[1; 4]);
        assert_eq!(client.status(written), 0);
        assert_eq!(client.finish(free), Status::OK);
        let ended = client.inbox.events.contains_key(&event.get());
        assert_eq!(client.status(event), 0);
        if !ended {
            return;
        }
    }
    panic!("other commands always took as long as the kernel");
}

#[test]
fn rectangles_keep_their_shape() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 64 * 16);
    let event = client.id();
    let (origin, region) = ([4, 2, 0].map(U64::new), [8, 5, 1].map(U64::new));
    let call = to_worker::WriteBufferRect {
        queue,
        mem,
        event,
        origin,
        region,
        row_pitch: U64::new(64),
        slice_pitch: U64::ZERO,
    };
    let content: Vec<u8> = (1..=40).collect();
    client.send(call, &[], &content);
    assert_eq!(client.status(event), 0);
    let all = client.read(queue, mem, 64 * 16);
    for (at, byte) in all.iter().enumerate() {
        let (x, y) = (at % 64, at / 64);
        let inside = (4..12).contains(&x) && (2..7).contains(&y);
        assert_eq!(*byte, if inside { ((y - 2) * 8 + (x - 4) + 1) as u8 } else { 0 }, "{x} {y}");
    }
    let event = client.id();
    client.inbox.reads.insert(event.get(), vec![0; 40]);
    let call = to_worker::ReadBufferRect {
        queue,
        mem,
        event,
        origin,
        region,
        row_pitch: U64::new(64),
        slice_pitch: U64::ZERO,
    };
    client.send(call, &[], &[]);
    assert_eq!(client.status(event), 0);
    assert_eq!(client.inbox.reads[&event.get()], content);
}

#[test]
fn content_at_creation_is_there_at_once() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 2_000_000);
    let content: Vec<u8> = (0..2_000_000).map(|i| (i % 255) as u8).collect();
    client.send(to_worker::InitBuffer { mem, offset: U64::ZERO }, &[], &content);
    assert!(client.read(queue, mem, 2_000_000) == content);
}

#[test]
fn released_objects_live_while_commands_use_them() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let kernel = client.kernel(context, SLOW, "slow");
    let (mem, copy) = (client.buffer(context, 4 << 16), client.buffer(context, 4 << 16));
    let rounds = 1_000_i32.to_le_bytes();
    client.launch(
        queue,
        kernel,
        Id::NONE,
        1 << 16,
        &[],
        &args(&[Arg::Mem(mem), Arg::Bytes(&rounds)]),
    );
    let size = U64::new(4 << 16);
    client.send(
        to_worker::CopyBuffer {
            queue,
            source: mem,
            target: copy,
            event: Id::NONE,
            source_offset: U64::ZERO,
            target_offset: U64::ZERO,
            size,
        },
        &[],
        &[],
    );
    client.send(to_worker::ReleaseMem { mem }, &[], &[]);
    client.send(to_worker::ReleaseKernel { kernel }, &[], &[]);
    assert!(client.read(queue, copy, 4 << 16) == ints(std::iter::repeat_n(1_000, 1 << 16)));
}

#[test]
fn a_broken_frame_ends_the_session_with_its_reason() {
    let mut client = Client::rings();
    client.send(
        to_worker::CreateContext { context: Id::new(1), platform: U32::ZERO },
        &[],
        &[0xff; 7],
    );
    client.until_end();
    assert!(
        client.inbox.fault.as_ref().is_some_and(|why| why.contains("CreateContext")),
        "{:?}",
        client.inbox.fault
    );
    assert!(matches!(client.end(), Some(LinkError::Frame(_))));
}

#[test]
fn an_id_is_used_once() {
    let mut client = Client::rings();
    let context = client.context();
    let devices = frame::encode(&vec![0_u32]);
    client.send(to_worker::CreateContext { context, platform: U32::ZERO }, &[], &devices);
    client.until_end();
    assert!(client.inbox.fault.is_some());
}

#[test]
fn reads_on_their_way_see_no_later_write() {
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let size = 8 << 20;
    let mem = client.buffer(context, size as u64);
    let written = client.write(queue, mem, 0, &vec![1; size]);
    assert_eq!(client.status(written), 0);
    // More than the link holds, so that the first read is not sent when the write comes.
    let reads: Vec<_> = (0..4).map(|_| client.read_waiting(queue, mem, size as u64, &[])).collect();
    client.sender.flush().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let later = client.write(queue, mem, 0, &vec![2; 1 << 20]);
    let last = client.read_waiting(queue, mem, size as u64, &[]);
    assert_eq!(client.finish(queue), Status::OK);
    for read in reads {
        assert_eq!(client.status(read), 0);
        assert!(client.inbox.reads[&read.get()].iter().all(|byte| *byte == 1));
    }
    assert_eq!(client.status(later), 0);
    let last = &client.inbox.reads[&last.get()];
    assert!(
        last[..1 << 20].iter().all(|byte| *byte == 2)
            && last[1 << 20..].iter().all(|byte| *byte == 1)
    );
}

#[test]
fn images_keep_their_content() {
    use penstock_wire::describe::ImageDescription;
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let (width, height) = (1_000, 700);
    let shape = ImageDescription {
        channel_order: CL_RGBA,
        channel_type: CL_UNSIGNED_INT8,
        image_type: CL_MEM_OBJECT_IMAGE2D,
        width,
        height,
        depth: 1,
        array_size: 1,
        row_pitch: 0,
        slice_pitch: 0,
        mip_levels: 0,
        samples: 0,
    };
    let mem = client.id();
    let call = to_worker::CreateImage { mem, context, flags: U64::new(1), parent: Id::NONE };
    client.send(call, &[], &frame::encode(&shape));
    let content: Vec<u8> = (0..4 * width * height).map(|i| (i % 239) as u8).collect();
    let (origin, region) = ([U64::ZERO; 3], [width, height, 1].map(U64::new));
    let event = client.id();
    client.send(to_worker::WriteImage { queue, mem, event, origin, region }, &[], &content);
    assert_eq!(client.status(event), 0);
    let event = client.id();
    client.inbox.reads.insert(event.get(), vec![0; content.len()]);
    client.send(to_worker::ReadImage { queue, mem, event, origin, region }, &[], &[]);
    assert_eq!(client.status(event), 0);
    assert!(client.inbox.reads[&event.get()] == content);
    // The client takes the content to relay it.
    let event = client.id();
    client.inbox.reads.insert(event.get(), vec![0; content.len()]);
    let size = U64::new(content.len() as u64);
    let call = to_worker::SendMem {
        mem,
        event,
        transfer: Id::NONE,
        peer: Id::NONE,
        offset: U64::ZERO,
        size,
    };
    client.send(call, &[], &[]);
    assert_eq!(client.status(event), 0);
    assert!(client.inbox.reads[&event.get()] == content);
    client.send(to_worker::InitImage { mem, origin, region }, &[], &vec![5; content.len()]);
    let event = client.id();
    client.inbox.reads.insert(event.get(), vec![0; content.len()]);
    client.send(to_worker::ReadImage { queue, mem, event, origin, region }, &[], &[]);
    assert_eq!(client.status(event), 0);
    assert!(client.inbox.reads[&event.get()].iter().all(|byte| *byte == 5));
}

#[test]
fn content_moves_between_contexts_of_one_worker() {
    let mut client = Client::rings();
    let (here, there) = (client.context(), client.context());
    let (queue, other) = (client.queue(here, 0), client.queue(there, 0));
    let size = 100_000_u64;
    let (source, target) = (client.buffer(here, size), client.buffer(there, size));
    let written = client.write(queue, source, 0, &vec![3; 100_000]);
    let (offset, bytes) = (U64::ZERO, U64::new(size));
    for (transfer, receive_first) in [(70, true), (71, false)] {
        let transfer = Id::new(transfer);
        let (received, sent) = (client.id(), client.id());
        let gate = client.expect_event();
        let receive = to_worker::ReceiveMem {
            mem: target,
            event: received,
            transfer,
            peer: Id::NONE,
            offset,
            size: bytes,
        };
        let send = to_worker::SendMem {
            mem: source,
            event: sent,
            transfer,
            peer: Id::NONE,
            offset,
            size: bytes,
        };
        if receive_first {
            client.send(receive, &[gate], &[]);
            client.send(send, &[written], &[]);
        } else {
            client.send(send, &[written], &[]);
            client.send(receive, &[gate], &[]);
        }
        assert_eq!(client.status(sent), 0);
        assert!(!client.inbox.events.contains_key(&received.get()));
        client.resolve(gate, 0);
        assert_eq!(client.status(received), 0);
        assert_eq!(client.read(other, target, size), vec![3; 100_000]);
    }
    // If the source does not exist, the target's wait ends.
    let received = client.id();
    let transfer = Id::new(72);
    client.send(
        to_worker::ReceiveMem {
            mem: target,
            event: received,
            transfer,
            peer: Id::NONE,
            offset,
            size: bytes,
        },
        &[],
        &[],
    );
    let sent = client.id();
    client.send(
        to_worker::SendMem {
            mem: Id::new(888),
            event: sent,
            transfer,
            peer: Id::NONE,
            offset,
            size: bytes,
        },
        &[],
        &[],
    );
    assert_eq!(client.status(sent), Status::INVALID_MEM_OBJECT.0);
    assert_eq!(client.status(received), Status::INVALID_MEM_OBJECT.0);
}

#[test]
fn a_program_that_is_being_built_gives_no_binaries() {
    let mut client = Client::rings();
    let context = client.context();
    let program = client.id();
    client.send(to_worker::CreateProgramWithSource { program, context }, &[], ADD.as_bytes());
    let order = BuildOrder { devices: vec![0], ..BuildOrder::default() };
    let build = client.id();
    client.send(to_worker::BuildProgram { request: build, program }, &[], &frame::encode(&order));
    let (early, _) = client.request(to_worker::ProgramBinaries { request: Id::NONE, program }, &[]);
    assert_eq!(early, Status::INVALID_OPERATION);
    client.until("the build", |inbox| inbox.replies.contains_key(&build.get()));
    let (late, _) = client.request(to_worker::ProgramBinaries { request: Id::NONE, program }, &[]);
    assert_eq!(late, Status::OK);
}

#[test]
fn programs_are_compiled_linked_and_loaded_again() {
    use penstock_wire::describe::BuildReport;
    let mut client = Client::rings();
    let context = client.context();
    let queue = client.queue(context, 0);
    let (main, header, linked) = (client.id(), client.id(), client.id());
    let source =
        b"#include \"value.h\"\nkernel void set(global int *a) { a[get_global_id(0)] = VALUE; }";
    client.send(to_worker::CreateProgramWithSource { program: main, context }, &[], source);
    client.send(
        to_worker::CreateProgramWithSource { program: header, context },
        &[],
        b"#define VALUE 42\n",
    );
    let programs = vec![("value.h".to_owned(), header.get())];
    let order = BuildOrder { devices: vec![0], programs, ..BuildOrder::default() };
    let call = to_worker::CompileProgram { request: Id::NONE, program: main };
    let (status, report) = client.request(call, &frame::encode(&order));
    assert_eq!(status, Status::OK, "{:?}", frame::decode::<BuildReport>("a report", &report));
    let order = BuildOrder { programs: vec![(String::new(), main.get())], ..order };
    let call = to_worker::LinkProgram { request: Id::NONE, program: linked, context };
    let (status, report) = client.request(call, &frame::encode(&order));
    let report: BuildReport = frame::decode("a report", &report).unwrap();
    assert_eq!((status, report.kernels.len()), (Status::OK, 1), "{report:?}");
    let (status, binaries) =
        client.request(to_worker::ProgramBinaries { request: Id::NONE, program: linked }, &[]);
    assert_eq!(status, Status::OK);
    let loaded = client.id();
    let call = to_worker::CreateProgramWithBinary { request: Id::NONE, program: loaded, context };
    let (status, report) = client.request(call, &binaries);
    let report: LoadReport = frame::decode("a report", &report).unwrap();
    assert_eq!((status, report.statuses), (Status::OK, vec![0]));
    // CL_PROGRAM_BINARY_TYPE is CL_PROGRAM_BINARY_TYPE_EXECUTABLE before the build.
    let kind = find(&report.devices[0].1, CL_PROGRAM_BINARY_TYPE).map(<[u8]>::to_vec);
    assert_eq!(kind, Some(4_u32.to_ne_bytes().to_vec()));
    let order = BuildOrder { devices: vec![0], ..BuildOrder::default() };
    let call = to_worker::BuildProgram { request: Id::NONE, program: loaded };
    assert_eq!(client.request(call, &frame::encode(&order)).0, Status::OK);
    for program in [linked, loaded] {
        let kernel = client.id();
        client.send(to_worker::CreateKernel { kernel, program }, &[], b"set");
        let mem = client.buffer(context, 16);
        client.launch(queue, kernel, Id::NONE, 4, &[], &args(&[Arg::Mem(mem)]));
        assert_eq!(client.read(queue, mem, 16), ints(std::iter::repeat_n(42, 4)));
    }
}
