//! Tests of the back end over a stand-in for CUDA 12.4's driver, without an ICD loader.

mod cuda_common;

use std::time::Duration;

use cuda_common::*;
use penstock_cl_sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_TYPE, CL_MEM_OBJECT_IMAGE2D, CL_PROGRAM_BUILD_LOG,
};
use penstock_device::{
    Arg, Context, Event, IndexSpace, Kernel, Mem, Program, Queue, Rect, Staged, Status, Want,
};
use penstock_trial::wait_for;
use penstock_wire::cuda;
use penstock_wire::describe::find;

const SETUP: Setup = Setup { newer: true, loader: false };
const MIB: usize = 1 << 20;

fn first(properties: u64) -> Option<(Context, Queue)> {
    cuda_common::first(SETUP, properties)
}

#[test]
fn a_gpu_tells_the_truth_about_itself() {
    let Some(platform) = platform(SETUP) else { return };
    let devices = platform.devices();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[1].name(), "Stand-in GPU 1");
    assert!(!devices[0].shares_host_memory());
    let info = devices[0].info();
    let gpu = devices[0].gpu().unwrap();
    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MULTIPROCESSOR_COUNT
    let attribute = |number| gpu.attributes.get(number);
    assert_eq!((attribute(75), attribute(16), attribute(200)), (Some(7), Some(4), None));
    assert_eq!(gpu.driver_version, 13_000);
    assert_eq!(gpu.uuid, Some([0x50; 16]));
    assert_eq!(gpu.pci_bus_id.as_deref(), Some("0000:01:00.0"));
    // CL_DEVICE_TYPE (custom, so that programs that want OpenCL C do not get it) and
    // CL_DEVICE_GLOBAL_MEM_SIZE.
    assert_eq!(find(&info, CL_DEVICE_TYPE), Some(16_u64.to_ne_bytes().as_slice()));
    assert_eq!(
        find(&info, CL_DEVICE_GLOBAL_MEM_SIZE),
        Some((1_u64 << 30).to_ne_bytes().as_slice())
    );
    let timers = devices[0].timers().unwrap();
    assert!(timers.device > 0 && timers.device == timers.host);
}

#[test]
fn what_cuda_has_nothing_for_is_refused() {
    let Some((context, _)) = first(0) else { return };
    let source = Program::with_source(&context, b"kernel void k() {}");
    // CL_COMPILER_NOT_AVAILABLE
    assert_eq!(source.err(), Some(Status(-3)));
    assert_eq!(context.image_formats(1, CL_MEM_OBJECT_IMAGE2D), Ok(Vec::new()));
    assert!(Mem::pipe(&context, 1, 4, 4).is_err());
    let devices = context.platform().devices();
    assert!(Context::new(context.platform(), &devices, Box::new(|_| ())).is_err());
    // Out of order.
    assert!(Queue::new(&context, &devices[0], 1, 0).is_err());
    assert!(devices[0].sub_devices(&[0x1086, 1]).is_err());
}

#[test]
fn content_goes_there_and_back() {
    let Some((context, queue)) = first(0) else { return };
    // Copied within the call, through a small slot, and through several large slots.
    for size in [1, 1000, 64 << 10, 70_000, 5 * MIB + 13, 24 * MIB] {
        let mem = buffer(&context, size as u64 + 3);
        assert!(read_all(&queue, &mem).iter().all(|&byte| byte == 0), "new memory is zero");
        let content = pattern(size);
        queue.write(&mem, 2, staged(&content), &[], Want::Nothing).unwrap();
        let back = queue.read(&mem, 2, size as u64, &[]).unwrap().wait().unwrap();
        assert!(*back == *content, "{size}");
        mem.init(1, &content).unwrap();
        assert!(read_all(&queue, &mem)[1..=size] == *content, "{size}");
        // From memory that is not pinned.
        queue.write(&mem, 3, Staged::from(content.clone()), &[], Want::Nothing).unwrap();
        assert!(read_all(&queue, &mem)[3..] == *content, "{size}");
    }
}

#[test]
fn bytes_of_a_write_stay_until_the_device_has_read_them() {
    let Some((context, queue)) = first(0) else { return };
    let sleep = sleeper(&context, Duration::from_millis(30));
    // Bytes that CUDA copies within the call, the fewest that are pinned, and more.
    for size in [1000, 64 << 10, (64 << 10) + 1, MIB] {
        let mem = buffer(&context, size as u64);
        queue.launch(&sleep, &one(), &[], Want::Nothing).unwrap();
        queue.write(&mem, 0, staged(&vec![1; size]), &[], Want::Nothing).unwrap();
        // These are the same block if the first one is free already.
        let other = staged(&vec![2; size]);
        assert!(read_all(&queue, &mem).iter().all(|&byte| byte == 1), "{size}");
        drop(other);
    }
}

#[test]
fn boxes_go_there_and_back() {
    let Some((context, queue)) = first(0) else { return };
    let (width, rows, slices) = (300_u64, 70, 60);
    let region = [width - 10, rows - 3, slices - 2];
    let rect = Rect { origin: [7, 2, 1], row_pitch: width, slice_pitch: width * rows };
    let mem = buffer(&context, width * rows * slices);
    let content = pattern(usize::try_from(region.iter().product::<u64>()).unwrap());
    queue.write_rect(&mem, &rect, region, staged(&content), &[], Want::Nothing).unwrap();
    let back = queue.read_rect(&mem, &rect, region, &[]).unwrap().wait().unwrap();
    assert!(*back == *content);
    let whole = read_all(&queue, &mem);
    assert_eq!(
        whole.iter().filter(|&&byte| byte != 0).count(),
        content.iter().filter(|&&b| b != 0).count()
    );
    let at = |x: u64, y: u64, z: u64| whole[usize::try_from((z * rows + y) * width + x).unwrap()];
    assert_eq!((at(7, 2, 1), at(6, 2, 1)), (content[0], 0));
    // To another place of another shape.
    let target = buffer(&context, width * rows * slices);
    let to = Rect { origin: [0, 1, 0], row_pitch: 295, slice_pitch: 295 * 70 };
    queue.copy_rect(&mem, &rect, &target, &to, region, &[], Want::Nothing).unwrap();
    let copied = queue.read_rect(&target, &to, region, &[]).unwrap().wait().unwrap();
    assert!(*copied == *content);
}

#[test]
fn fills_and_copies_do_what_they_say() {
    let Some((context, queue)) = first(0) else { return };
    let mem = buffer(&context, 4096);
    for length in [1, 2, 4, 8, 16, 128] {
        let pattern = pattern(length);
        queue.fill(&mem, &pattern, 128, 128 * 9, &[], Want::Nothing).unwrap();
        let bytes = read_all(&queue, &mem);
        assert!(bytes[128..128 * 10].chunks(length).all(|piece| piece == pattern), "{length}");
        assert!(bytes[..128].iter().chain(&bytes[128 * 10..]).all(|&byte| byte == 0), "{length}");
    }
    let target = buffer(&context, 8192);
    queue.copy(&mem, 128, &target, 4000, 1024, &[], Want::Nothing).unwrap();
    assert_eq!(read_all(&queue, &target)[4000..5024], read_all(&queue, &mem)[128..1152]);
}

#[test]
fn kernels_get_addresses_in_packed_parameters() {
    let Some((context, queue)) = first(0) else { return };
    let [a, b] = [3, 4].map(|value| words(&context, &queue, 1000, value));
    let c = buffer(&context, 4000);
    let kernel = adder(&context, [&a, &b, &c]);
    queue.launch(&kernel, &one(), &[], Want::Nothing).unwrap();
    assert!(all_words_are(&queue, &c, 7));
    let part = Mem::sub_buffer(&c, 1, 256, 512).unwrap();
    assert_eq!(part.device_address(), c.device_address().map(|address| address + 256));
    // Fewer bytes than the driver reports for the kernel's parameters.
    assert_eq!(kernel.set(cuda::ARG_PARAMS, Arg::Bytes(&[0; 27])), Err(Status(-51)));
    assert!(kernel.set(2, Arg::Bytes(&[0; 8])).is_err());
    // A kernel without its parameters.
    let bare = cuda_common::kernel(&context, "add");
    assert_eq!(queue.launch(&bare, &one(), &[], Want::Nothing).err(), Some(Status(-52)));
    let empty = cuda_common::kernel(&context, "empty");
    assert_eq!(queue.launch(&empty, &one(), &[], Want::Nothing), Ok(None));
}

#[test]
fn work_groups_are_blocks_and_local_memory_is_dynamic_shared_memory() {
    let Some((context, queue)) = first(0) else { return };
    let out = buffer(&context, 28);
    let kernel = kernel(&context, "shape");
    set_params(&kernel, &[out.device_address().unwrap()]);
    let shape = |range: IndexSpace| {
        queue.launch(&kernel, &range, &[], Want::Nothing)?;
        let words = read_all(&queue, &out);
        Ok::<Vec<u32>, Status>(
            words.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect(),
        )
    };
    let range =
        |local| IndexSpace { dims: 3, offset: [0; 3], global: [64, 8, 2], local: Some(local) };
    assert_eq!(shape(range([16, 4, 1])).unwrap(), [4, 2, 2, 16, 4, 1, 0]);
    // More than a launch may have without asking; the back end asks.
    kernel.set(cuda::ARG_SHARED, Arg::Local(90 << 10)).unwrap();
    assert_eq!(shape(range([64, 8, 1])).unwrap(), [1, 1, 2, 64, 8, 1, 90 << 10]);
    kernel.set(cuda::ARG_SHARED, Arg::Local(101 << 10)).unwrap();
    assert_eq!(shape(range([1, 1, 1])), Err(Status::OUT_OF_RESOURCES));
    kernel.set(cuda::ARG_SHARED, Arg::Local(0)).unwrap();
    // CL_INVALID_WORK_GROUP_SIZE, and CUDA's own error for a block that is too large.
    assert_eq!(shape(range([48, 1, 1])), Err(Status(-54)));
    let large = IndexSpace::line(2048, Some(2048));
    assert_eq!(shape(large).map_err(cuda::code), Err(Some(1)));
}

#[test]
fn a_build_tells_of_kernels_and_variables() {
    let Some((context, _)) = first(0) else { return };
    let (program, built) = program(&context, MODULE);
    built.unwrap();
    let devices = [(5, context.devices()[0].clone())];
    let report = program.report(Ok(()), &devices);
    let names: Vec<&str> = report.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["add", "sleep_ns", "trap", "shape", "empty"]);
    let globals = &report.globals;
    assert_eq!((globals[0].name.as_str(), globals[0].size, globals.len()), ("table", 64, 1));
    assert_ne!(globals[0].address, 0);
    assert_eq!((report.kernels[0].args.len(), report.kernels[0].arg_info), (3, true));
    // CL_KERNEL_WORK_GROUP_SIZE
    let numbers = &report.kernels[0].work_group[0].1;
    assert_eq!(find(numbers, 0x11B0), Some(1024_usize.to_ne_bytes().as_slice()));
    let function = report.kernels[0].function.as_ref().unwrap();
    // CU_FUNC_ATTRIBUTE_NUM_REGS
    assert_eq!(function.attributes.get(4), Some(20));
    let params = function.params.as_ref().unwrap().iter().map(|param| (param.offset, param.size));
    assert!(params.eq([(0, 8), (8, 8), (16, 8), (24, 4)]));
    // A part of a variable is a buffer, too.
    let queue = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    let variable = Mem::variable(&context, globals[0].address + 16, 32).unwrap();
    queue.write(&variable, 0, staged(&[5; 32]), &[], Want::Nothing).unwrap();
    assert!(read_all(&queue, &variable).iter().all(|&byte| byte == 5));
    assert_eq!(variable.device_address(), Ok(globals[0].address + 16));
    // CL_INVALID_HOST_PTR
    assert_eq!(Mem::variable(&context, globals[0].address + 16, 49).err(), Some(Status(-37)));
    assert_eq!(Mem::variable(&context, 0x1000, 1).err(), Some(Status(-37)));
    // CL_INVALID_BUFFER_SIZE
    assert_eq!(Mem::variable(&context, globals[0].address, 0).err(), Some(Status(-61)));
    // It is no shared virtual memory.
    let svm = Mem::svm(&context, 1, 32, 1, globals[0].address + 16);
    assert_eq!(svm.err(), Some(Status::INVALID_OPERATION));
    // Only the variables that are asked for, if the module has them.
    program.name_variables(Some(vec!["none".to_owned(), "table".to_owned()]));
    assert_eq!(program.report(Ok(()), &devices).globals, report.globals);
    program.name_variables(Some(Vec::new()));
    assert_eq!(program.report(Ok(()), &devices).globals, []);
    assert_eq!(program.binaries(&devices).unwrap(), [(5, MODULE.as_bytes().to_vec())]);
}

#[test]
fn a_module_that_does_not_load_says_why() {
    let Some((context, _)) = first(0) else { return };
    let (program, built) = program(&context, ".version 9.0\n.target sm_75\nbroken");
    // CUDA_ERROR_INVALID_PTX
    assert_eq!(built.map_err(cuda::code), Err(Some(218)));
    let report = program.report(built, &[(0, context.devices()[0].clone())]);
    // CL_PROGRAM_BUILD_LOG
    let log = String::from_utf8_lossy(find(&report.devices[0].1, CL_PROGRAM_BUILD_LOG).unwrap())
        .into_owned();
    assert!(
        log.contains("line 3; error : broken") && log.contains("CUDA_ERROR_INVALID_PTX (218)"),
        "{log}"
    );
    assert!(report.kernels.is_empty());
    // CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_KERNEL_NAME
    assert_eq!(Kernel::new(&program, "add").err(), Some(Status(-45)));
    let (good, _) = cuda_common::program(&context, MODULE);
    assert_eq!(Kernel::new(&good, "none").err(), Some(Status(-46)));
}

#[test]
fn commands_run_in_their_order() {
    let Some((context, queue)) = first(0) else { return };
    let sleep = sleeper(&context, Duration::from_millis(100));
    // Whoever waits in a call finds that the first kernel has ended. A busy machine may be as slow
    // once, but not every time.
    wait_for("calls that do not wait for a kernel", || {
        let [a, b] = [1, 2].map(|value| words(&context, &queue, 256, value));
        let c = buffer(&context, 1024);
        let add = adder(&context, [&a, &b, &c]);
        let sleeps = queue.launch(&sleep, &one(), &[], Want::Event).unwrap().unwrap();
        queue.write(&a, 0, staged(&9_u32.to_ne_bytes().repeat(256)), &[], Want::Nothing).unwrap();
        queue.launch(&add, &one(), &[], Want::Nothing).unwrap();
        queue.fill(&a, &[0], 0, 1024, &[], Want::Nothing).unwrap();
        let nobody_waited = sleeps.status() != Status::OK;
        assert!(all_words_are(&queue, &c, 11));
        assert_eq!(sleeps.status(), Status::OK);
        nobody_waited
    });
}

#[test]
fn a_user_event_holds_back_what_waits_and_all_behind_it() {
    let Some((context, queue)) = first(0) else { return };
    let [a, b] = [1, 2].map(|value| words(&context, &queue, 64, value));
    let c = buffer(&context, 256);
    let add = adder(&context, [&a, &b, &c]);
    let gate = Event::user(&context).unwrap();
    queue.launch(&add, &one(), &[&gate], Want::Nothing).unwrap();
    // Behind the launch in the queue, although it waits for nothing itself.
    let behind = queue.fill(&a, &[0], 0, 256, &[], Want::Event).unwrap().unwrap();
    let ended = completion(&behind);
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err());
    assert!(behind.status().0 > 0);
    gate.complete(Status::OK).unwrap();
    assert_eq!(ended.recv_timeout(patience()).unwrap().0, Status::OK);
    queue.finish().unwrap();
    assert!(all_words_are(&queue, &c, 3));
    assert_eq!(gate.complete(Status::OK), Err(Status::INVALID_OPERATION));
}

#[test]
fn a_failed_user_event_fails_what_waits_for_it() {
    let Some((context, queue)) = first(0) else { return };
    let other = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    let mem = buffer(&context, 16);
    let gate = Event::user(&context).unwrap();
    let first = queue.fill(&mem, &[1], 0, 16, &[&gate], Want::Event).unwrap().unwrap();
    let second = other.fill(&mem, &[2], 0, 16, &[&first], Want::Event).unwrap().unwrap();
    let (first_end, second_end) = (completion(&first), completion(&second));
    gate.complete(Status(-77)).unwrap();
    assert_eq!(first_end.recv_timeout(patience()).unwrap().0, Status::WAIT_LIST_FAILED);
    assert_eq!(second_end.recv_timeout(patience()).unwrap().0, Status::WAIT_LIST_FAILED);
    assert!(read_all(&queue, &mem).iter().all(|&byte| byte == 0), "nothing ran");
    // The event's failure is known at once.
    assert_eq!(queue.marker(&[&gate], Want::Event).err(), Some(Status::WAIT_LIST_FAILED));
    queue.finish().unwrap();
}

#[test]
fn queues_wait_for_each_other_on_the_device() {
    let Some((context, queue)) = first(0) else { return };
    let other = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    let [a, b] = [1, 2].map(|value| words(&context, &queue, 64, value));
    let c = buffer(&context, 256);
    queue.finish().unwrap();
    let (add, sleep) =
        (adder(&context, [&a, &b, &c]), sleeper(&context, Duration::from_millis(30)));
    queue.launch(&sleep, &one(), &[], Want::Nothing).unwrap();
    let filled = queue.fill(&a, &5_u32.to_ne_bytes(), 0, 256, &[], Want::Event).unwrap().unwrap();
    other.launch(&add, &one(), &[&filled], Want::Nothing).unwrap();
    assert!(all_words_are(&other, &c, 7));
}

#[test]
fn who_hears_of_a_later_command_finds_the_bytes_of_an_earlier_read() {
    let Some((context, queue)) = first(0) else { return };
    let other = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    let mem = words(&context, &queue, 8000, 6);
    for _ in 0..50 {
        let reading = queue.read(&mem, 0, mem.size(), &[]).unwrap();
        let behind = other.marker(&[reading.event()], Want::Event).unwrap().unwrap();
        behind.wait().unwrap();
        assert!(reading.event().status() == Status::OK);
        assert!(reading.wait().unwrap().chunks(4).all(|word| word == 6_u32.to_ne_bytes()));
    }
}

#[test]
fn a_panic_in_a_callback_does_not_end_the_thread_that_calls() {
    let Some((context, queue)) = first(0) else { return };
    let mem = buffer(&context, 64);
    let first = queue.fill(&mem, &[1], 0, 64, &[], Want::Event).unwrap().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    first.on_complete(Box::new(move |_, _| {
        tell.send(()).unwrap();
        panic!("on purpose");
    }));
    told.recv_timeout(patience()).unwrap();
    let second = queue.fill(&mem, &[2], 0, 64, &[], Want::Event).unwrap().unwrap();
    assert_eq!(completion(&second).recv_timeout(patience()).unwrap().0, Status::OK);
}

#[test]
fn events_have_the_times_of_the_device() {
    let Some((context, queue)) = first(PROFILING) else { return };
    let device = context.devices()[0].clone();
    let sleep = sleeper(&context, Duration::from_millis(20));
    let before = device.timers().unwrap().device;
    let event = queue.launch(&sleep, &one(), &[], Want::Event).unwrap().unwrap();
    let (status, times) = completion(&event).recv_timeout(patience()).unwrap();
    let after = device.timers().unwrap().device;
    assert_eq!(status, Status::OK);
    assert!(before <= times.queued && times.queued <= times.submitted);
    assert!(times.submitted <= times.started && times.started <= times.ended);
    assert!(times.ended - times.started >= 19_000_000, "{times:?}");
    // Both times are of one clock. How well they agree depends on the machine.
    println!(
        "ended {} ns after the clock was read",
        times.ended.cast_signed() - after.cast_signed()
    );
    let wrong = u64::try_from(patience().as_nanos()).unwrap();
    assert!(times.ended <= after + wrong, "{times:?} {after}");
    assert_eq!(times.completed, times.ended);
    let plain = Queue::new(&context, &device, 0, 0).unwrap();
    let event = plain.marker(&[], Want::Event).unwrap().unwrap();
    assert_eq!(completion(&event).recv_timeout(patience()).unwrap().1.ended, 0);
}

#[test]
fn memory_ends_and_comes_back() {
    let Some(platform) = platform(SETUP) else { return };
    // No other test takes memory of this device.
    let device = platform.devices()[1].clone();
    let context = context(&platform, &device);
    let queue = Queue::new(&context, &device, 0, 0).unwrap();
    let half = 40 * MIB as u64;
    let first = buffer(&context, half);
    assert_eq!(Mem::buffer(&context, 1, half).err(), Some(Status::MEM_OBJECT_ALLOCATION_FAILURE));
    // Released while the device still uses it.
    let sleep = sleeper(&context, Duration::from_millis(30));
    queue.launch(&sleep, &one(), &[], Want::Nothing).unwrap();
    queue.fill(&first, &[7], 0, half, &[], Want::Nothing).unwrap();
    drop(first);
    let second = buffer(&context, half);
    assert!(read_all(&queue, &second).iter().all(|&byte| byte == 0));
    // A module with variables needs memory, too. The module of `sleep` has 64 bytes already.
    let rest = buffer(&context, 64 * MIB as u64 - half - 64);
    queue.launch(&sleep, &one(), &[], Want::Nothing).unwrap();
    drop(rest);
    let (_module, built) = program(&context, MODULE);
    assert_eq!(built, Ok(()));
}

#[test]
fn what_a_queue_has_is_done_after_it_is_gone() {
    let Some((context, queue)) = first(0) else { return };
    let mem = buffer(&context, 1 << 10);
    let gate = Event::user(&context).unwrap();
    let event = queue.fill(&mem, &[3], 0, 1 << 10, &[&gate], Want::Event).unwrap().unwrap();
    drop(queue);
    gate.complete(Status::OK).unwrap();
    event.wait().unwrap();
    let other = Queue::new(&context, &context.devices()[0], 0, 0).unwrap();
    assert!(read_all(&other, &mem).iter().all(|&byte| byte == 3));
}

#[test]
fn many_commands_of_many_threads_all_end() {
    let Some((context, _)) = first(0) else { return };
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let context = &context;
            scope.spawn(move || {
                let queue = Queue::new(context, &context.devices()[0], 0, 0).unwrap();
                let mem = buffer(context, 3 << 20);
                for round in 0..20_u8 {
                    let value = round ^ (thread << 5);
                    queue.fill(&mem, &[value], 0, mem.size(), &[], Want::Nothing).unwrap();
                    let reading = queue.read(&mem, 0, mem.size(), &[]).unwrap();
                    queue.fill(&mem, &[0], 0, mem.size(), &[], Want::Nothing).unwrap();
                    assert!(reading.wait().unwrap().iter().all(|&byte| byte == value));
                }
            });
        }
    });
}
