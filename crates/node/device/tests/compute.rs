//! Tests of programs, kernels and buffers on a real driver.

mod common;
use common::*;
use penstock_device::{Arg, Context, IndexSpace, Kernel, Mem, Program, Queue, Rect, Status, Want};
use penstock_trial::{Need, skip};
use penstock_wire::describe::find;

const ADD: &str =
    "kernel void add(global const uint *a, global const uint *b, global uint *c, uint more) {
    size_t i = get_global_id(0); c[i] = a[i] + b[i] + more; }";

#[test]
fn vectors_are_added() {
    let Some((context, queue)) = first(0) else { return };
    let kernel = kernel(&context, ADD, "add");
    let [a, b, c] = [(); 3].map(|()| Mem::buffer(&context, READ_WRITE, 4096).unwrap());
    let numbers: Vec<u32> = (0..1024).collect();
    a.init(0, &bytes_of(&numbers)).unwrap();
    queue.write(&b, 0, staged(&bytes_of(&numbers)), &[], Want::Nothing).unwrap();
    set_mems(&kernel, &[&a, &b, &c]);
    kernel.set(3, Arg::Bytes(&5_u32.to_ne_bytes())).unwrap();
    let event = queue.launch(&kernel, &range(1024), &[], Want::Event).unwrap().unwrap();
    queue.flush().unwrap();
    event.wait().unwrap();
    let sums = words(&read_all(&queue, &c));
    assert!(sums.iter().zip(&numbers).all(|(sum, number)| *sum == number * 2 + 5));
}

#[test]
fn argument_kinds_are_checked() {
    let Some((context, queue)) = first(0) else { return };
    let source =
        "kernel void k(global uint *a, uint b, local uint *c, sampler_t s, read_only image2d_t i) {
        c[0] = b; a[0] = c[0]; }";
    let kernel = kernel(&context, source, "k");
    let refused = Err(Status(penstock_cl_sys::CL_INVALID_ARG_VALUE));
    // The driver would take these eight bytes for a handle.
    for index in [0, 2, 3, 4] {
        assert_eq!(kernel.set(index, Arg::Bytes(&[0x41; 8])), refused, "argument {index}");
    }
    assert_eq!(kernel.set(1, Arg::Mem(None)), refused);
    assert_eq!(kernel.set(1, Arg::Local(16)), refused);
    assert!(kernel.set(5, Arg::Bytes(&[0; 4])).is_err());
    assert!(kernel.set(1, Arg::Bytes(&[0; 3])).is_err());
    assert!(kernel.set(1, Arg::Bytes(&[0; 4])).is_ok());
    assert!(kernel.set(2, Arg::Local(16)).is_ok());
    assert!(kernel.set(0, Arg::Mem(None)).is_ok());
    // Not all arguments are set.
    assert!(queue.launch(&kernel, &range(1), &[], Want::Nothing).is_err());
}

#[test]
fn memory_that_is_gone_is_not_launched_with() {
    let Some((context, queue)) = first(0) else { return };
    let kernel = kernel(&context, "kernel void k(global uint *a) { a[0] = 7; }", "k");
    let mem = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    drop(mem);
    let launched = queue.launch(&kernel, &range(1), &[], Want::Nothing);
    assert_eq!(launched, Err(Status(penstock_cl_sys::CL_INVALID_KERNEL_ARGS)));
}

#[test]
fn commands_outlive_the_objects_they_use() {
    let Some((context, queue)) = first_that_waits(0) else { return };
    let kernel =
        kernel(&context, "kernel void k(global uint *a) { a[get_global_id(0)] += 1; }", "k");
    let gate = penstock_device::Event::user(&context).unwrap();
    let mem = Mem::buffer(&context, READ_WRITE, 1 << 20).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    queue.marker(&[&gate], Want::Nothing).unwrap();
    let launched = queue.launch(&kernel, &range(1 << 18), &[], Want::Event).unwrap().unwrap();
    let written = queue.write(&mem, 0, staged(&[1; 100]), &[], Want::Event).unwrap().unwrap();
    queue.flush().unwrap();
    drop((mem, kernel, queue));
    gate.complete(Status::OK).unwrap();
    assert_eq!(completion(&launched).recv_timeout(patience()).unwrap().0, Status::OK);
    assert_eq!(completion(&written).recv_timeout(patience()).unwrap().0, Status::OK);
}

#[test]
fn buffers_are_zero_and_home_memory_is_what_kernels_see() {
    let Some((context, queue)) = first(0) else { return };
    for size in [1, 4, 4097, 1 << 20, 8 << 20] {
        let mem = Mem::buffer(&context, READ_WRITE, size).unwrap();
        assert!(read_all(&queue, &mem).iter().all(|&byte| byte == 0), "{size}");
    }
    let mem = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    assert_eq!(mem.home().is_some(), context.shares_host_memory());
    let Some(home) = mem.home() else {
        skip(Need::Ability, "the device has memory of its own");
        return;
    };
    let kernel =
        kernel(&context, "kernel void k(global uint *a) { a[get_global_id(0)] += 1; }", "k");
    home.write(0, &bytes_of(&[41; 1024])).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    queue.launch(&kernel, &range(1024), &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let mut seen = vec![0; 4096];
    home.read(0, &mut seen).unwrap();
    assert_eq!(words(&seen), [42; 1024]);
    assert!(home.read(1, &mut seen).is_err());
}

#[test]
fn sub_buffers_are_kernel_arguments() {
    let Some((context, queue)) = first(0) else { return };
    let kernel =
        kernel(&context, "kernel void k(global uint *a) { a[get_global_id(0)] = 9; }", "k");
    let whole = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    let part = Mem::sub_buffer(&whole, READ_WRITE, 1024, 1024).unwrap();
    assert!(Mem::sub_buffer(&whole, READ_WRITE, 4096, 1).is_err());
    assert!(Mem::sub_buffer(&whole, READ_WRITE, u64::MAX - 10, 100).is_err());
    assert!(Mem::sub_buffer(&part, READ_WRITE, 0, 128).is_err(), "a sub-buffer of a sub-buffer");
    kernel.set(0, Arg::Mem(Some(&part))).unwrap();
    drop(whole.clone());
    queue.launch(&kernel, &range(256), &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let content = words(&read_all(&queue, &whole));
    for (index, word) in content.into_iter().enumerate() {
        assert_eq!(word, if (256..512).contains(&index) { 9 } else { 0 }, "{index}");
    }
    if let Some(home) = part.home() {
        let mut seen = [0; 4];
        home.read(0, &mut seen).unwrap();
        assert_eq!(seen, 9_u32.to_ne_bytes());
    }
    drop(whole);
    assert_eq!(words(&read_all(&queue, &part)), [9; 256]);
}

#[test]
fn rectangles_fills_and_copies() {
    let Some((context, queue)) = first(0) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    let rect = Rect { origin: [2, 1, 0], row_pitch: 8, slice_pitch: 32 };
    let bytes: Vec<u8> = (1..=12).collect();
    queue.write_rect(&mem, &rect, [3, 2, 2], staged(&bytes), &[], Want::Nothing).unwrap();
    let content = read_all(&queue, &mem);
    assert_eq!(content[10..13], [1, 2, 3]);
    assert_eq!(content[18..21], [4, 5, 6]);
    assert_eq!(content[42..45], [7, 8, 9]);
    assert_eq!(content[50..53], [10, 11, 12]);
    assert_eq!(content.iter().filter(|&&byte| byte != 0).count(), 12);
    let reading = queue.read_rect(&mem, &rect, [3, 2, 2], &[]).unwrap();
    assert_eq!(reading.wait().unwrap().to_vec(), bytes);
    // Wrong sizes, and rectangles that end one byte behind the buffer.
    assert!(
        queue.write_rect(&mem, &rect, [3, 2, 2], staged(&bytes[1..]), &[], Want::Nothing).is_err()
    );
    assert!(queue.read_rect(&mem, &rect, [7, 3, 2], &[]).is_err());

    let other = Mem::buffer(&context, READ_WRITE, 64).unwrap();
    let packed = Rect { origin: [0; 3], row_pitch: 3, slice_pitch: 6 };
    queue.copy_rect(&mem, &rect, &other, &packed, [3, 2, 2], &[], Want::Nothing).unwrap();
    queue.fill(&other, &[7, 8], 32, 16, &[], Want::Nothing).unwrap();
    queue.copy(&other, 0, &other, 48, 12, &[], Want::Nothing).unwrap();
    let content = read_all(&queue, &other);
    assert_eq!(content[..12], bytes);
    assert_eq!(content[32..48], [7, 8].repeat(8));
    assert_eq!(content[48..60], bytes);
    for (pattern, offset, size) in
        [(3, 0, 6), (2, 1, 4), (4, 0, 6), (0, 0, 4), (256, 0, 256), (1, 60, 5)]
    {
        assert!(queue.fill(&other, &vec![1; pattern], offset, size, &[], Want::Nothing).is_err());
    }
}

#[test]
fn hostile_sizes_are_refused() {
    let Some((context, queue)) = first(0) else { return };
    let mem = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    let big = u64::MAX;
    for (offset, size) in
        [(0, 4097), (4096, 1), (big, 1), (big, big), (1, big), (0, 1 << 40), (0, 0)]
    {
        assert!(queue.read(&mem, offset, size, &[]).is_err());
        assert!(queue.fill(&mem, &[1], offset, size, &[], Want::Nothing).is_err());
        assert!(queue.copy(&mem, offset, &mem, 0, size, &[], Want::Nothing).is_err());
        assert!(queue.copy(&mem, 0, &mem, offset, size, &[], Want::Nothing).is_err());
    }
    assert!(queue.write(&mem, 1, staged(&[0; 4096]), &[], Want::Nothing).is_err());
    assert!(mem.init(4095, &[0; 2]).is_err());
    for size in [0, big, 1 << 62, 1 << 50] {
        assert!(Mem::buffer(&context, READ_WRITE, size).is_err(), "{size}");
    }
    for address in
        [0, 1, 4095, big, big & !4095, mem.home().map_or(0, |home| home.range().0.addr() as u64)]
    {
        assert!(Mem::svm(&context, READ_WRITE, 4096, 64, address).is_err(), "{address:x}");
    }
    let kernel = kernel(&context, "kernel void k(void) {}", "k");
    for global in [[0, 1, 1], [big; 3], [1 << 31, 1 << 31, 1 << 31], [1 << 62, 1 << 62, 1]] {
        let space = IndexSpace { dims: 3, offset: [0; 3], global, local: None };
        let launched = queue.launch(&kernel, &space, &[], Want::Nothing);
        eprintln!("{global:?}: {launched:?}");
    }
    queue.finish().unwrap();
}

#[test]
fn shared_virtual_memory_is_where_the_client_wants_it() {
    let Some((context, queue)) = first(0) else { return };
    if !context.shares_host_memory() {
        skip(Need::Ability, "the device has memory of its own");
        return;
    }
    if Mem::svm(&context, READ_WRITE, 8192, 64, 0x5100_0000_0000)
        .is_err_and(|status| status == Status::INVALID_OPERATION)
    {
        skip(Need::Ability, "the device has no shared virtual memory");
        return;
    }
    let kernel = kernel(
        &context,
        "kernel void k(global ulong *a) { a[1] = (ulong)a; *(global uint *)a[0] = 77; }",
        "k",
    );
    let address = 0x5000_0000_0000;
    let mem = Mem::svm(&context, READ_WRITE, 8192, 64, address).unwrap();
    // A pointer in the memory points to the memory itself, as the client's kernels expect.
    mem.init(0, &(address + 4096).to_ne_bytes()).unwrap();
    kernel.set(0, Arg::Svm(address)).unwrap();
    queue.launch(&kernel, &range(1), &[], Want::Nothing).unwrap();
    queue.finish().unwrap();
    let content = read_all(&queue, &mem);
    assert_eq!(content[8..16], address.to_ne_bytes());
    assert_eq!(content[4096..4100], 77_u32.to_ne_bytes());
    drop(mem);
    queue.finish().unwrap();
    assert!(Mem::svm(&context, READ_WRITE, 8192, 64, address).is_ok(), "the address is free again");
}

#[test]
fn builds_report_all_that_is_asked() {
    let Some((context, _)) = first(0) else { return };
    let devices: Vec<_> = context.devices().iter().cloned().map(|device| (7, device)).collect();
    let program =
        Program::with_source(&context, b"kernel void broken(global int *a) { a[0] = nowhere; }")
            .unwrap();
    let built = program.build(context.devices(), "-cl-fast-relaxed-math");
    assert!(built.is_err());
    let report = program.report(built, &devices);
    assert!(report.status < 0 && report.kernels.is_empty());
    let info = &report.devices[0].1;
    let log = String::from_utf8_lossy(find(info, penstock_cl_sys::CL_PROGRAM_BUILD_LOG).unwrap())
        .into_owned();
    assert!(log.contains("nowhere"), "{log}");

    let program = Program::with_source(&context, ADD.as_bytes()).unwrap();
    let built = program.build(context.devices(), "-DX=1");
    let report = program.report(built, &devices);
    assert_eq!(report.status, 0);
    let options = find(&report.devices[0].1, penstock_cl_sys::CL_PROGRAM_BUILD_OPTIONS).unwrap();
    assert_eq!(options, b"-DX=1\0");
    let [kernel] = &report.kernels[..] else { panic!("{:?}", report.kernels) };
    assert_eq!((kernel.name.as_str(), kernel.args.len(), kernel.arg_info), ("add", 4, true));
    assert_eq!(kernel.args[3].address, penstock_cl_sys::CL_KERNEL_ARG_ADDRESS_PRIVATE);
    assert_eq!(kernel.args[0].address, penstock_cl_sys::CL_KERNEL_ARG_ADDRESS_GLOBAL);
    assert_eq!(kernel.args[3].name, "more");
    assert!(find(&kernel.work_group[0].1, penstock_cl_sys::CL_KERNEL_WORK_GROUP_SIZE).is_some());

    let binaries = program.binaries(&devices).unwrap();
    assert_eq!(binaries.len(), 1);
    assert_eq!(binaries[0].0, 7);
    let device = context.devices()[0].clone();
    let (codes, again) = Program::with_binary(&context, &[(device.clone(), binaries[0].1.clone())]);
    assert_eq!(codes, [0]);
    let again = again.unwrap();
    again.build(context.devices(), "").unwrap();
    assert!(Kernel::new(&again, "add").is_ok());
    let (codes, bad) = Program::with_binary(&context, &[(device, vec![1, 2, 3])]);
    assert!(bad.is_err() || again.build(context.devices(), "").is_err(), "{codes:?}");
}

#[test]
fn programs_are_compiled_and_linked() {
    let Some((context, queue)) = first(0) else { return };
    let header = Program::with_source(&context, b"uint twice(uint x);").unwrap();
    let main = Program::with_source(
        &context,
        b"#include \"twice.h\"\nkernel void k(global uint *a) { a[0] = twice(21); }",
    )
    .unwrap();
    let library = Program::with_source(&context, b"uint twice(uint x) { return 2 * x; }").unwrap();
    let devices = context.devices();
    main.compile(devices, None, &[("twice.h".to_owned(), header)]).unwrap();
    library.compile(devices, None, &[]).unwrap();
    let (status, linked) = Program::link(&context, devices, None, &[main, library]);
    status.unwrap();
    let kernel = Kernel::new(&linked.unwrap(), "k").unwrap();
    let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    queue.launch(&kernel, &range(1), &[], Want::Nothing).unwrap();
    assert_eq!(words(&read_all(&queue, &mem)), [42]);
    let missing = Program::with_source(&context, b"#include \"none.h\"").unwrap();
    assert!(missing.compile(devices, None, &[]).is_err());
}

#[test]
fn kernels_are_duplicated_with_their_arguments() {
    let Some((context, queue)) = first(0) else { return };
    let kernel = kernel(&context, "kernel void k(global uint *a, uint b) { a[0] = b; }", "k");
    let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    kernel.set(1, Arg::Bytes(&3_u32.to_ne_bytes())).unwrap();
    let second = match kernel.duplicate() {
        Ok(second) => second,
        Err(status) => {
            skip(Need::Ability, format_args!("the driver cannot clone kernels: {status}"));
            return;
        }
    };
    kernel.set(1, Arg::Bytes(&4_u32.to_ne_bytes())).unwrap();
    queue.launch(&second, &range(1), &[], Want::Nothing).unwrap();
    assert_eq!(words(&read_all(&queue, &mem)), [3]);
}

#[test]
fn devices_are_described_and_split() {
    for platform in platforms() {
        assert!(find(&platform.info(), penstock_cl_sys::CL_PLATFORM_NAME).is_some());
        for device in platform.devices() {
            let info = device.info();
            assert!(find(&info, penstock_cl_sys::CL_DEVICE_NAME).is_some());
            assert!(find(&info, penstock_cl_sys::CL_DEVICE_PLATFORM).is_none(), "a handle");
            assert!(info.len() > 70, "{} answers", info.len());
            assert!(info.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < 64 << 10);
            let equally = i64::try_from(penstock_cl_sys::CL_DEVICE_PARTITION_EQUALLY).unwrap();
            let Ok(parts) = device.sub_devices(&[equally, 1]) else {
                skip(Need::Ability, format_args!("{} cannot be split", device.name()));
                continue;
            };
            assert!(!parts.is_empty() && parts.iter().all(|part| *part != device));
            let context = Context::new(&platform, &parts, Box::new(|_| ())).unwrap();
            let queue = Queue::new(&context, &parts[0], 0, 0).unwrap();
            let kernel = kernel(&context, "kernel void k(global uint *a) { a[0] = 5; }", "k");
            let mem = Mem::buffer(&context, READ_WRITE, 4).unwrap();
            kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
            queue.launch(&kernel, &range(1), &[], Want::Nothing).unwrap();
            assert_eq!(words(&read_all(&queue, &mem)), [5]);
            assert!(
                Queue::new(&context, &device, 0, 0).is_err(),
                "the parent is not in the context"
            );
        }
    }
}

#[test]
fn all_devices_of_a_platform_share_a_context() {
    let Some((platform, _)) = first_device() else { return };
    let devices = platform.devices();
    let context = Context::new(&platform, &devices, Box::new(|_| ())).unwrap();
    let kernel =
        kernel(&context, "kernel void k(global uint *a) { a[get_global_id(0)] += 1; }", "k");
    let mem = Mem::buffer(&context, READ_WRITE, 4096).unwrap();
    kernel.set(0, Arg::Mem(Some(&mem))).unwrap();
    for device in &devices {
        let queue = Queue::new(&context, device, 0, 0).unwrap();
        queue.migrate(&[&mem], 0, &[], Want::Nothing).unwrap();
        queue.launch(&kernel, &range(1024), &[], Want::Nothing).unwrap();
        queue.finish().unwrap();
    }
    let transfers = context.transfer_queue().unwrap();
    let expected = u32::try_from(devices.len()).unwrap();
    assert_eq!(words(&read_all(&transfers, &mem)), vec![expected; 1024]);
}
