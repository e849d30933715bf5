//! The simulated device keeps the contract that real drivers keep, and fails where it is told to.

/// The tests of events on real drivers, on the simulated device.
#[path = "events.rs"]
mod events;

use events::common::*;
use penstock_device::{Arg, Context, IndexSpace, Kernel, Mem, Program, Queue, Rect, Status, Want};

fn program(context: &Context, names: &str) -> Program {
    let program = Program::with_source(context, format!("penstock null {names}").as_bytes());
    let program = program.unwrap();
    program.build(context.devices(), None).unwrap();
    program
}

fn builtin(context: &Context, name: &str) -> Kernel {
    Kernel::new(&program(context, name), name).unwrap()
}

fn filled(context: &Context, words: &[u32]) -> Mem {
    let mem = Mem::buffer(context, READ_WRITE, words.len() as u64 * 4).unwrap();
    mem.init(0, &bytes_of(words)).unwrap();
    mem
}

fn word(value: i32) -> [u8; 4] {
    value.to_ne_bytes()
}

#[test]
fn it_is_the_only_device_and_says_what_it_is() {
    let platforms = platforms();
    let [platform] = platforms.as_slice() else { panic!("{platforms:?}") };
    let devices = platform.devices();
    let [device] = devices.as_slice() else { panic!("{devices:?}") };
    assert!(platform.name().contains("simulated") && device.name().contains("simulated"));
    assert!(device.shares_host_memory());
}

#[test]
fn kernels_compute_exactly() {
    let (context, queue) = first(0).unwrap();
    // More than one piece.
    let count = 10_000;
    let [a, b]: [Vec<u32>; 2] =
        [(0..count).collect(), (0..count).map(|it| it.wrapping_mul(0x1000_0001)).collect()];
    let (mem_a, mem_b) = (filled(&context, &a), filled(&context, &b));
    let result = filled(&context, &vec![7; count as usize]);
    let add = builtin(&context, "add");
    set_mems(&add, &[&mem_a, &mem_b, &result]);
    // All but the first and the last element.
    let space = IndexSpace { offset: [1, 0, 0], ..range(u64::from(count) - 2) };
    queue.launch(&add, &space, &[], Want::Nothing).unwrap();
    let sums = words(&read_all(&queue, &result));
    let last = sums.len() - 1;
    assert_eq!((sums[0], sums[last]), (7, 7));
    assert!((1..last).all(|it| sums[it] == a[it].wrapping_add(b[it])));
    let scale = builtin(&context, "scale");
    set_mems(&scale, &[&mem_b]);
    scale.set(1, Arg::Bytes(&3_u32.to_ne_bytes())).unwrap();
    queue.launch(&scale, &range(u64::from(count)), &[], Want::Nothing).unwrap();
    let copy = builtin(&context, "copy");
    set_mems(&copy, &[&mem_b, &result]);
    queue.launch(&copy, &range(u64::from(count)), &[], Want::Nothing).unwrap();
    let scaled: Vec<u32> = b.iter().map(|it| it.wrapping_mul(3)).collect();
    assert_eq!(words(&read_all(&queue, &result)), scaled);
    // Beyond the end of its buffers a kernel fails, and writes nothing there.
    let beyond = queue.launch(&copy, &range(u64::from(count) + 1), &[], Want::Event);
    assert_eq!(beyond.unwrap().unwrap().wait(), Err(Status::OUT_OF_RESOURCES));
}

#[test]
fn rectangles_and_parts_keep_their_shape() {
    let (context, queue) = first(0).unwrap();
    let mem = Mem::buffer(&context, READ_WRITE, 512).unwrap();
    let part = Mem::sub_buffer(&mem, READ_WRITE, 128, 128).unwrap();
    assert!(Mem::sub_buffer(&mem, READ_WRITE, 4, 8).is_err(), "its start is not aligned");
    // 3 x 2 x 2 bytes in rows of 8 and slices of 32.
    let rect = Rect { origin: [1, 1, 0], row_pitch: 8, slice_pitch: 32 };
    let bytes: Vec<u8> = (1..=12).collect();
    queue.write_rect(&part, &rect, [3, 2, 2], staged(&bytes), &[], Want::Nothing).unwrap();
    let places = [9, 10, 11, 17, 18, 19, 41, 42, 43, 49, 50, 51];
    let mut expected = vec![0; 512];
    for (place, byte) in places.into_iter().zip(&bytes) {
        expected[128 + place] = *byte;
    }
    assert_eq!(read_all(&queue, &mem), expected);
    let read = queue.read_rect(&part, &rect, [3, 2, 2], &[]).unwrap();
    assert_eq!(*read.wait().unwrap(), bytes[..]);
    let packed = Rect::default();
    queue.copy_rect(&part, &rect, &mem, &packed, [3, 2, 2], &[], Want::Nothing).unwrap();
    queue.fill(&mem, &[1, 2], 256, 256, &[], Want::Nothing).unwrap();
    queue.copy(&mem, 256, &mem, 64, 64, &[], Want::Nothing).unwrap();
    expected[..12].copy_from_slice(&bytes);
    expected[64..128].copy_from_slice(&[1, 2].repeat(32));
    expected[256..].copy_from_slice(&[1, 2].repeat(128));
    assert_eq!(read_all(&queue, &mem), expected);
}

#[test]
fn an_endless_kernel_ends_when_it_is_told_to() {
    let (context, queue) = first(0).unwrap();
    let other = Queue::new(&context, queue.device(), 0, 0).unwrap();
    let mem = filled(&context, &[0]);
    let kernel = builtin(&context, "endless");
    set_mems(&kernel, &[&mem]);
    let endless = queue.launch(&kernel, &range(1), &[], Want::Event).unwrap().unwrap();
    let behind = queue.marker(&[], Want::Event).unwrap().unwrap();
    // Other queues go on.
    other.fill(&mem, &[0; 4], 0, 4, &[], Want::Nothing).unwrap();
    other.finish().unwrap();
    assert!(endless.status().0 > 0 && behind.status().0 > 0);
    other.fill(&mem, &[1, 0, 0, 0], 0, 4, &[], Want::Nothing).unwrap();
    assert_eq!((endless.wait(), behind.wait()), (Ok(()), Ok(())));
}

#[test]
fn an_endless_kernel_ends_with_its_context() {
    let (context, queue) = first(0).unwrap();
    let mem = filled(&context, &[0]);
    let kernel = builtin(&context, "endless");
    set_mems(&kernel, &[&mem]);
    let endless = queue.launch(&kernel, &range(1), &[], Want::Event).unwrap().unwrap();
    let told = completion(&endless);
    drop((context, queue, mem, kernel));
    assert_eq!(told.recv_timeout(patience()).unwrap().0, Status::OUT_OF_RESOURCES);
}

#[test]
fn launches_fail_where_they_are_told_to() {
    let (context, queue) = first(0).unwrap();
    let (fail, refuse) = (builtin(&context, "fail"), builtin(&context, "refuse"));
    assert_eq!(queue.launch(&fail, &range(1), &[], Want::Event), Err(Status::INVALID_KERNEL_ARGS));
    fail.set(0, Arg::Bytes(&word(-54))).unwrap();
    let failed = queue.launch(&fail, &range(1), &[], Want::Event).unwrap().unwrap();
    let behind = queue.marker(&[], Want::Event).unwrap().unwrap();
    assert_eq!(failed.wait(), Err(Status(-54)));
    assert_eq!(behind.wait(), Ok(()), "the order is no wait list");
    refuse.set(0, Arg::Bytes(&word(-6))).unwrap();
    assert_eq!(queue.launch(&refuse, &range(1), &[], Want::Event), Err(Status(-6)));
    queue.finish().unwrap();
}

#[test]
fn buffers_fail_where_they_are_told_to() {
    let (context, queue) = first(0).unwrap();
    let starve = builtin(&context, "starve");
    starve.set(0, Arg::Bytes(&word(2))).unwrap();
    queue.launch(&starve, &range(1), &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let statuses = [(); 4].map(|()| Mem::buffer(&context, READ_WRITE, 64).map(|_| ()));
    let failed = Err(Status::MEM_OBJECT_ALLOCATION_FAILURE);
    assert_eq!(statuses, [Ok(()), Ok(()), failed, failed]);
}

#[test]
fn a_lost_context_fails_everything_and_others_go_on() {
    let (context, queue) = first(0).unwrap();
    let other = Queue::new(&context, queue.device(), 0, 0).unwrap();
    let mem = filled(&context, &[0]);
    let kernel = builtin(&context, "endless");
    set_mems(&kernel, &[&mem]);
    let endless = other.launch(&kernel, &range(1), &[], Want::Event).unwrap().unwrap();
    let behind = other.marker(&[], Want::Event).unwrap().unwrap();
    let lose = builtin(&context, "lose");
    let lost = queue.launch(&lose, &range(1), &[], Want::Event).unwrap().unwrap();
    for event in [lost, endless, behind] {
        assert_eq!(event.wait(), Err(Status::OUT_OF_RESOURCES));
    }
    assert_eq!(queue.marker(&[], Want::Event), Err(Status::OUT_OF_RESOURCES));
    assert_eq!(queue.finish(), Err(Status::OUT_OF_RESOURCES));
    assert!(Mem::buffer(&context, READ_WRITE, 64).is_err());
    let (context, queue) = first(0).unwrap();
    assert_eq!(words(&read_all(&queue, &filled(&context, &[5]))), [5]);
}

#[test]
fn arguments_must_fit() {
    let (context, _queue) = first(0).unwrap();
    let scale = builtin(&context, "scale");
    let mem = filled(&context, &[0]);
    assert_eq!(scale.set(0, Arg::Bytes(&[0; 8])), Err(Status::INVALID_ARG_VALUE));
    assert_eq!(scale.set(1, Arg::Mem(Some(&mem))), Err(Status::INVALID_ARG_VALUE));
    assert_eq!(scale.set(1, Arg::Bytes(&[0; 8])), Err(Status::INVALID_ARG_SIZE));
    assert_eq!(scale.set(2, Arg::Bytes(&[0; 4])), Err(Status::INVALID_ARG_INDEX));
}

#[test]
fn memory_that_is_gone_is_no_argument() {
    let (context, queue) = first(0).unwrap();
    let kernel = builtin(&context, "endless");
    set_mems(&kernel, &[&filled(&context, &[0])]);
    let launched = queue.launch(&kernel, &range(1), &[], Want::Event);
    assert_eq!(launched, Err(Status::INVALID_KERNEL_ARGS));
}
