//! A session on a stand-in for CUDA's driver, which is one more platform of the node.

mod common;

use std::path::PathBuf;
use std::sync::OnceLock;

use common::{Client, Devices, Inbox, args, node};
use penstock_trial::{Need, compiler, is_compiled, skip};
use penstock_wire::args::Arg;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::describe::{BuildOrder, BuildReport, HeapPath, HeapPlan, HeapStarted, find};
use penstock_wire::id::kind;
use penstock_wire::{Call as _, Id, Status, U32, U64, cuda, frame};

const DEVICES: Devices = Devices::Real;

const MODULE: &str = ".version 9.0\n.target sm_75\n.global .b8 table[64];\n\
    .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }\n.entry trap() { ret; }\n";

/// Sends messages there and back and checks each word, see `tests/cuda/heap_kernels.h`.
const PING_PONG: &str = ".version 9.0\n.target sm_75\n\
    .entry heap_ping_pong(.param .u64 heap, .param .u64 rounds, .param .u64 bytes) { ret; }\n";
/// Offset in a part at which that kernel leaves its result.
const RESULT_AT: usize = 4096;

/// Returns the stand-in's platform and first device in the node. Without a C compiler, skips
/// the test and returns `None`.
fn standin() -> Option<(u32, u32)> {
    static FOUND: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../device/tests/cuda_standin.c");
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("standin-{}.so", std::process::id()));
        let mut command = compiler();
        command
            .args(["-O1", "-fPIC", "-shared", "-DNEWER", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-lpthread");
        if !is_compiled(&mut command, Need::Compiler) {
            return None;
        }
        // SAFETY: nothing is loaded yet and no other thread reads the environment: tests start
        // here.
        unsafe { std::env::set_var("PENSTOCK_LIBCUDA", &library) };
        let description = node().description();
        _ = std::fs::remove_file(&library);
        let name = |info| {
            String::from_utf8_lossy(
                find(info, penstock_cl_sys::CL_PLATFORM_NAME).unwrap_or_default(),
            )
            .into_owned()
        };
        let mut platforms = (0..).zip(&description.platforms);
        let (index, platform) = platforms
            .find(|(_, platform)| {
                name(&platform.info).trim_end_matches('\0') == cuda::PLATFORM_NAME
            })
            .expect("the stand-in is a platform of the node");
        Some((index, platform.devices.first().expect("the stand-in has devices").index))
    });
    if found.is_none() {
        skip(Need::Compiler, "no C compiler builds the stand-in for CUDA's driver");
    }
    found
}

struct Session {
    client: Client,
    device: u32,
    context: Id<kind::Context>,
    queue: Id<kind::Queue>,
}

fn session() -> Option<Session> {
    let (platform, device) = standin()?;
    Some(Client::rings()).map(|client| on(client, platform, device))
}

/// Makes a session with a context of one device.
fn on(mut client: Client, platform: u32, device: u32) -> Session {
    let (context, queue) = (client.id(), client.id());
    let call = to_worker::CreateContext { context, platform: U32::new(platform) };
    client.send(call, &[], &frame::encode(&vec![device]));
    let (device_number, properties, size, times) =
        (U32::new(device), U64::ZERO, U32::ZERO, U32::ZERO);
    let call =
        to_worker::CreateQueue { queue, context, device: device_number, properties, size, times };
    client.send(call, &[], &[]);
    Session { client, device, context, queue }
}

impl Session {
    fn address(&mut self, mem: Id<kind::Mem>) -> Result<u64, Status> {
        let (status, bytes) =
            self.client.request(to_worker::MemAddress { request: Id::NONE, mem }, &[]);
        status.ok().map(|()| frame::decode("MemAddress", &bytes).unwrap())
    }

    fn build(&mut self, image: &str) -> (Id<kind::Program>, BuildReport) {
        let program = self.client.id();
        let images = frame::encode(&vec![(self.device, image.as_bytes().to_vec())]);
        let context = self.context;
        let call = to_worker::CreateProgramWithBinary { request: Id::NONE, program, context };
        assert_eq!(self.client.request(call, &images).0, Status::OK);
        let order = BuildOrder { devices: vec![self.device], ..BuildOrder::default() };
        let call = to_worker::BuildProgram { request: Id::NONE, program };
        let (_, report) = self.client.request(call, &frame::encode(&order));
        (program, frame::decode("a report", &report).unwrap())
    }
}

#[test]
fn a_module_runs_on_addresses() {
    let Some(mut session) = session() else { return };
    let (program, report) = session.build(MODULE);
    assert_eq!(report.status, 0, "{report:?}");
    assert_eq!(report.kernels.len(), 2);
    assert!(report.kernels.iter().all(|kernel| kernel.function.is_some()));
    let count = 100_000_u32;
    let [a, b, c] = [0; 3].map(|_| session.client.buffer(session.context, u64::from(count) * 4));
    let addresses = [a, b, c].map(|mem| session.address(mem).unwrap());
    let words = |step: u32| (0..count).flat_map(|i| (step * i).to_le_bytes()).collect::<Vec<u8>>();
    session.client.write(session.queue, a, 0, &words(1));
    session.client.write(session.queue, b, 0, &words(10));
    let kernel = session.client.id();
    session.client.send(to_worker::CreateKernel { kernel, program }, &[], b"add");
    let mut params: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
    params.extend(u64::from(count).to_le_bytes());
    let launched = session.client.id();
    session.client.launch(session.queue, kernel, launched, 1, &[], &args(&[Arg::Bytes(&params)]));
    let sum = session.client.read(session.queue, c, u64::from(count) * 4);
    assert!(sum == words(11));
    assert_eq!(session.client.status(launched), 0);
    assert_eq!(session.client.finish(session.queue), Status::OK);
}

#[test]
fn a_launch_that_the_driver_refuses_in_its_turn_is_told() {
    let Some(mut session) = session() else { return };
    let program = session.build(MODULE).0;
    let (client, queue) = (&mut session.client, session.queue);
    let kernel = client.id();
    client.send(to_worker::CreateKernel { kernel, program }, &[], b"trap");
    for failures in 1..=2 {
        let gate = client.expect_event();
        // The driver has no block of so many threads.
        let space = penstock_wire::IndexSpace::line(1 << 20, Some(1 << 20)).into();
        let call = to_worker::LaunchKernel { queue, kernel, event: Id::NONE, space };
        client.send(call, &[gate], &[]);
        // Commands behind it succeed, and so does the finish, which has no failure to report.
        let behind = client.marker(queue, &[]);
        client.resolve(gate, 0);
        assert_eq!(client.status(behind), 0);
        assert_eq!(client.finish(queue), Status::OK);
        let told: Vec<_> = client.inbox.queue_failures.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(told.len(), failures);
        // CUDA_ERROR_INVALID_VALUE
        assert!(told.iter().all(|it| it.0 == queue.get() && cuda::code(it.1) == Some(1)));
    }
}

#[test]
fn addresses_are_those_of_buffers_and_their_parts() {
    let Some(mut session) = session() else { return };
    let whole = session.client.buffer(session.context, 4096);
    let part = session.client.id();
    let (flags, origin, size) = (U64::new(1), U64::new(1024), U64::new(512));
    session.client.send(
        to_worker::CreateSubBuffer { mem: part, parent: whole, flags, origin, size },
        &[],
        &[],
    );
    let address = session.address(whole).unwrap();
    assert_ne!(address, 0);
    assert_eq!(session.address(part), Ok(address + 1024));
    assert_eq!(session.address(Id::new(999_999)), Err(Status::INVALID_MEM_OBJECT));
}

#[test]
fn a_variable_of_a_module_is_a_buffer_at_its_address() {
    let Some(mut session) = session() else { return };
    let (_, report) = session.build(MODULE);
    let named: Vec<_> = report.globals.iter().map(|it| (it.name.as_str(), it.size)).collect();
    assert_eq!(named, [("table", 64)]);
    let at = report.globals[0].address + 16;
    let mut make = |address, size| {
        let (mem, context) = (session.client.id(), session.context);
        let (request, address, size) = (Id::NONE, U64::new(address), U64::new(size));
        let call = to_worker::CreateVariableBuffer { request, mem, context, address, size };
        (mem, session.client.request(call, &[]).0)
    };
    // CL_INVALID_HOST_PTR: the variable has 48 bytes from there on.
    assert_eq!(make(at, 49).1, Status(-37));
    let (mem, status) = make(at, 48);
    assert_eq!(status, Status::OK);
    assert_eq!(session.address(mem), Ok(at));
    session.client.write(session.queue, mem, 0, &[7; 48]);
    assert_eq!(session.client.read(session.queue, mem, 48), [7; 48]);
}

/// Makes a buffer in the memory that client and worker share.
fn shared(session: &mut Session, offset: u64, size: u64) -> Id<kind::Mem> {
    let (mem, context, flags) = (session.client.id(), session.context, U64::new(1));
    let (offset, size) = (U64::new(offset), U64::new(size));
    session.client.send(
        to_worker::CreateSharedBuffer { mem, context, flags, offset, size },
        &[],
        &[],
    );
    mem
}

fn copy(session: &mut Session, source: Id<kind::Mem>, target: Id<kind::Mem>, size: u64) {
    let (queue, event, zero) = (session.queue, session.client.id(), U64::ZERO);
    let size = U64::new(size);
    let call = to_worker::CopyBuffer {
        queue,
        source,
        target,
        event,
        source_offset: zero,
        target_offset: zero,
        size,
    };
    session.client.send(call, &[], &[]);
    assert_eq!(session.client.status(event), 0);
}

fn is_gone(inbox: &Inbox, mem: Id<kind::Mem>) -> bool {
    inbox.order.contains(&(to_client::MemGone::OPCODE, mem.get()))
}

#[test]
fn a_gpu_copies_memory_that_client_and_worker_share() {
    const SIZE: u64 = 100_000;
    let Some(mut session) = session() else { return };
    let arena = session.client.sender.arena().expect("rings have an arena").clone();
    let (pinned, own) =
        (shared(&mut session, 8192, SIZE), session.client.buffer(session.context, SIZE));
    let bytes: Vec<u8> = (0..SIZE).flat_map(|at| (at * 7).to_le_bytes()).take(100_000).collect();
    assert!(arena.write(8192, &bytes));
    copy(&mut session, pinned, own, SIZE);
    assert!(session.client.read(session.queue, own, SIZE) == bytes);
    assert!(arena.write(8192, &vec![0; bytes.len()]));
    copy(&mut session, own, pinned, SIZE);
    let mut back = vec![0; bytes.len()];
    assert!(arena.read(8192, &mut back) && back == bytes);
    // The parts of two buffers must not overlap: the driver registers no page twice.
    let twice = shared(&mut session, 8192, SIZE);
    assert!(session.address(twice).is_err() && session.address(pinned).is_ok());
    session.client.until("the end of what was refused", |inbox| is_gone(inbox, twice));
    assert!(!is_gone(&session.client.inbox, pinned));
    session.client.send(to_worker::ReleaseMem { mem: pinned }, &[], &[]);
    session.client.until("the end of the buffer", |inbox| is_gone(inbox, pinned));
    // Nothing of it is registered any more.
    let again = shared(&mut session, 8192, SIZE);
    assert!(session.address(again).is_ok());
}

#[test]
fn a_kernel_tells_how_many_of_its_blocks_run_at_the_same_time() {
    let Some(mut session) = session() else { return };
    let (program, _) = session.build(MODULE);
    let kernel = session.client.id();
    session.client.send(to_worker::CreateKernel { kernel, program }, &[], b"add");
    let mut ask = |work_items, local| {
        let call = to_worker::ResidentGroups {
            request: Id::NONE,
            kernel,
            work_items: U32::new(work_items),
        };
        let args = args(&[Arg::Bytes(&[0; 32]), Arg::Local(local)]);
        let (status, bytes) = session.client.request(call, &args);
        status.ok().map(|()| frame::decode::<u64>("ResidentGroups", &bytes).unwrap())
    };
    // The stand-in has 4 multiprocessors of 2,048 threads and 8 blocks, and 100 KiB of shared
    // memory each.
    assert_eq!((ask(1, 0), ask(1024, 0), ask(1, 50 << 10)), (Ok(32), Ok(8), Ok(8)));
    assert_eq!(ask(cuda::RESIDENT_THREADS_MAX, 0), Err(Status::INVALID_VALUE));
}

#[test]
fn a_device_without_addresses_says_so() {
    let Some((platform, _)) = standin() else { return };
    if platform == 0 {
        skip(Need::OpenCl, "no OpenCL device beside the stand-in");
        return;
    }
    let mut client = Client::rings();
    let context = client.context();
    let mem = client.buffer(context, 64);
    let (status, _) = client.request(to_worker::MemAddress { request: Id::NONE, mem }, &[]);
    // PoCL 3.1 has no cl_ext_buffer_device_address; a newer one may report the address.
    assert!(status == Status::INVALID_OPERATION || status == Status::OK, "{status}");
}

#[test]
fn a_module_that_does_not_load_is_told_with_its_log() {
    let Some(mut session) = session() else { return };
    let (_, report) = session.build(".version 9.0 broken");
    assert_eq!(cuda::code(Status(report.status)), Some(218));
    let log = find(&report.devices[0].1, penstock_cl_sys::CL_PROGRAM_BUILD_LOG).unwrap_or_default();
    assert!(String::from_utf8_lossy(log).contains("error : broken"));
}

#[test]
fn kernels_of_two_gpus_store_into_each_others_parts_of_a_heap() {
    const BYTES: u64 = 65_536;
    const ROUNDS: u64 = 500;
    let Some((platform, device)) = standin() else { return };
    let mut session = on(Client::rings(), platform, device);
    let heap = session.client.id();
    let (bytes, timeout_ms) = (U64::new(BYTES), U32::new(20_000));
    let (request, me, force_proxy) = (Id::NONE, U32::ZERO, U32::ZERO);
    let call = to_worker::CreateHeap { request, heap, me, bytes, timeout_ms, force_proxy };
    assert_eq!(
        session.client.request(call, &frame::encode(&HeapPlan { members: vec![0, 0] })).0,
        Status::OK
    );
    let (_, started) = session.client.request(to_worker::StartHeap { request, heap }, &[]);
    let started: HeapStarted = frame::decode("StartHeap", &started).unwrap();
    assert_eq!(
        started.paths,
        [(0, vec![HeapPath::Own, HeapPath::Shared]), (1, vec![HeapPath::Shared, HeapPath::Own])]
    );
    let mut launched = Vec::new();
    for pe in 0..2 {
        session = on(session.client, platform, device + pe);
        let (view, part) = (session.client.id(), session.client.id());
        let context = session.context;
        let call =
            to_worker::CreateHeapView { request, heap, pe: U32::new(pe), context, view, part };
        assert_eq!(session.client.request(call, &[]).0, Status::OK);
        // Kernels get the GPU's address of the view; the part is a piece of it.
        let address = session.address(view).unwrap();
        assert!(session.address(part).unwrap() > address);
        let (program, report) = session.build(PING_PONG);
        assert_eq!(report.status, 0, "{report:?}");
        let (kernel, ended) = (session.client.id(), session.client.id());
        session.client.send(to_worker::CreateKernel { kernel, program }, &[], b"heap_ping_pong");
        let params: Vec<u8> =
            [address, ROUNDS, 256].iter().flat_map(|word| word.to_le_bytes()).collect();
        let args = args(&[Arg::Bytes(&params), Arg::Local(0), Arg::Mem(view)]);
        session.client.launch(session.queue, kernel, ended, 1, &[], &args);
        launched.push((session.queue, part, ended));
    }
    for (queue, part, ended) in launched {
        assert_eq!(session.client.status(ended), 0);
        let found = session.client.read(queue, part, BYTES);
        assert_eq!(found[RESULT_AT..RESULT_AT + 8], ROUNDS.to_le_bytes());
    }
}
