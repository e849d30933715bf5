//! The order in which a session reports ends, on a driver that calls back late for some commands.

mod common;

use std::path::PathBuf;
use std::sync::OnceLock;

use common::{Client, Devices, args};
use penstock_cl_sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
use penstock_trial::{Need, compiler, is_compiled, skip};
use penstock_wire::args::Arg;
use penstock_wire::calls::{to_client, to_worker};
use penstock_wire::id::kind;
use penstock_wire::{Call, Id, Status, U64};

const DEVICES: Devices = Devices::Real;

/// Loads `late_ends.c` in front of the system's loader. Without a C compiler, skips
/// the test and returns false.
fn has_late_ends() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    let is_built = *BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/late_ends.c");
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("late-{}.so", std::process::id()));
        let mut command = compiler();
        command.args(["-O1", "-fPIC", "-shared", "-o"]).arg(&library).arg(source);
        // The system's loader is linked as a whole: it has what the stand-in lacks.
        command.args(["-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-lpthread", "-ldl"]);
        if !is_compiled(&mut command, Need::Compiler) {
            return false;
        }
        // SAFETY: nothing is loaded yet and no other thread reads the environment: tests start
        // here.
        unsafe { std::env::set_var("PENSTOCK_LIBOPENCL", &library) };
        _ = common::node();
        _ = std::fs::remove_file(&library);
        true
    });
    if !is_built {
        skip(Need::Compiler, "no C compiler builds the stand-in for an OpenCL loader");
    }
    is_built
}

/// Enqueues a fill, whose end is reported late.
fn fill(client: &mut Client, queue: Id<kind::Queue>, mem: Id<kind::Mem>) -> Id<kind::Event> {
    let event = client.id();
    let call = to_worker::FillBuffer { queue, mem, event, offset: U64::ZERO, size: U64::new(64) };
    client.send(call, &[], &[7; 4]);
    event
}

/// Makes a client with a queue, a buffer and a pending fill; `None` without the stand-in.
fn filling(properties: u64) -> Option<Filling> {
    has_late_ends().then(|| {
        let mut client = Client::rings();
        let context = client.context();
        let (queue, mem) = (client.queue(context, properties), client.buffer(context, 64));
        let filled = fill(&mut client, queue, mem);
        Filling { client, context, queue, mem, filled }
    })
}

struct Filling {
    client: Client,
    context: Id<kind::Context>,
    queue: Id<kind::Queue>,
    mem: Id<kind::Mem>,
    filled: Id<kind::Event>,
}

/// Returns the position of an event's end among all frames received.
fn place(client: &Client, event: Id<kind::Event>) -> Option<usize> {
    let end = (to_client::EventDone::OPCODE, event.get());
    client.inbox.order.iter().position(|came| *came == end)
}

#[test]
fn a_later_end_of_an_in_order_queue_does_not_pass_an_earlier_one() {
    let Some(Filling { mut client, queue, filled, .. }) = filling(0) else { return };
    let marked = client.marker(queue, &[]);
    assert_eq!(client.status(marked), 0);
    assert!(place(&client, filled) < place(&client, marked) && place(&client, filled).is_some());
}

#[test]
fn a_finish_is_answered_behind_the_ends_of_all_commands() {
    for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let Some(Filling { mut client, context, queue, filled, .. }) = filling(properties) else {
            return;
        };
        let other = client.buffer(context, 64);
        // The last command has no event of its own.
        let copy = to_worker::CopyBuffer {
            queue,
            source: other,
            target: other,
            event: Id::NONE,
            source_offset: U64::ZERO,
            target_offset: U64::new(32),
            size: U64::new(32),
        };
        client.send(copy, &[], &[]);
        client.finish(queue).ok().unwrap();
        assert!(place(&client, filled).is_some(), "queue with properties {properties}");
    }
}

#[test]
fn a_write_at_once_does_not_pass_an_earlier_end() {
    let Some(Filling { mut client, queue, mem, filled, .. }) = filling(0) else { return };
    let marked = client.marker(queue, &[]);
    // The device ended both long ago.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let written = client.write(queue, mem, 0, &[1; 64]);
    assert_eq!(client.status(written), 0);
    let places = [filled, marked, written].map(|event| place(&client, event));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

#[test]
fn out_of_order_a_marker_passes_nothing_and_others_wait_for_nothing() {
    let Some(Filling { mut client, context, queue, filled, .. }) =
        filling(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
    else {
        return;
    };
    let other = client.buffer(context, 64);
    let written = client.write(queue, other, 0, &[1; 64]);
    let marked = client.marker(queue, &[]);
    assert_eq!(client.status(marked), 0);
    assert!(place(&client, written) < place(&client, filled), "nothing orders these two");
    assert!(place(&client, filled).is_some() && place(&client, filled) < place(&client, marked));
}

#[test]
fn a_write_overtakes_markers_but_neither_what_they_wait_for_nor_kernels() {
    const TICK: &str = "kernel void tick(global volatile int *a, int rounds) {
        for (int r = 0; r < rounds; r++) a[get_global_id(0)] += 1;
    }";
    let write = |client: &Client, queue, mem| {
        let call = to_worker::WriteBuffer { queue, mem, event: Id::NONE, offset: U64::ZERO };
        client.send(call, &[], &[7; 64]);
    };
    let mut client = Client::rings();
    let context = client.context();
    let (queue, other) = (client.queue(context, 0), client.queue(context, 0));
    let mem = client.buffer(context, 64);
    let user = client.expect_event();
    client.marker(queue, &[user]);
    client.marker(queue, &[]);
    write(&client, queue, mem);
    assert_eq!(client.read(other, mem, 64), [0; 64], "the first marker has not ended");
    client.resolve(user, 0);
    assert_eq!(client.finish(queue), Status::OK);
    assert_eq!(client.read(other, mem, 64), [7; 64]);

    let kernel = client.kernel(context, TICK, "tick");
    let rounds = 20_000_000_i32.to_le_bytes();
    let arguments = args(&[Arg::Mem(mem), Arg::Bytes(&rounds)]);
    client.launch(queue, kernel, Id::NONE, 16, &[], &arguments);
    client.marker(queue, &[]);
    write(&client, queue, mem);
    assert_eq!(client.finish(queue), Status::OK);
    assert_eq!(client.read(queue, mem, 64), [7; 64], "the kernel changed what came after it");
}
