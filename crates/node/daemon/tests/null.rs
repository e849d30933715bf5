//! A daemon with the simulated device: a client over the wire makes it fail as it wants.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use common::{Client, Devices, args};
use daemon::Daemon;
use penstock_cl_sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CUSTOM,
    CL_PROGRAM_BUILD_LOG,
};
use penstock_trial::wait_for;
use penstock_wire::args::Arg;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::find;
use penstock_wire::{Id, Status, U64};
use rustix::process::{Pid, Signal, kill_process};

const DEVICES: Devices = Devices::Simulated;

#[test]
fn the_status_and_the_description_call_it_simulated() {
    let daemon = Daemon::start("null-name", &[]);
    let (_client, node) = daemon.client();
    let [platform] = node.platforms.as_slice() else { panic!("{:?}", node.platforms) };
    let [device] = platform.devices.as_slice() else { panic!("{:?}", platform.devices) };
    let name = String::from_utf8_lossy(find(&device.info, CL_DEVICE_NAME).unwrap());
    assert!(name.contains("simulated"), "{name}");
    // Programs that ask for all devices do not get it.
    let kind = find(&device.info, CL_DEVICE_TYPE).unwrap();
    assert_eq!(kind, CL_DEVICE_TYPE_CUSTOM.to_ne_bytes());
    let status = daemon.status();
    assert_eq!(status["simulated"], true);
    assert!(status["devices"][0].as_str().unwrap().contains("simulated"), "{status}");
    let real = Daemon::start_on(Devices::Real, "null-not", &[], &[]);
    assert_eq!(real.status()["simulated"], false);
}

#[test]
fn another_platform_is_refused() {
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_penstockd"))
        .args(["--listen", "unix:/nowhere/s", "--platform", "pocl"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success() && said.contains("`pocl` is not `null`"), "{said}");
}

#[test]
fn a_program_of_another_form_does_not_build_and_its_log_says_why() {
    let daemon = Daemon::start("null-build", &[]);
    let (mut client, _) = daemon.client();
    let context = client.context();
    let (_, report) = client.program(context, "kernel void k(global int *a) { a[0] = 1; }");
    assert_eq!(report.status, Status::BUILD_PROGRAM_FAILURE.0);
    let log = find(&report.devices[0].1, CL_PROGRAM_BUILD_LOG).unwrap();
    let log = String::from_utf8_lossy(log).into_owned();
    assert!(log.contains("`penstock null`"), "{log}");
    let (_, report) = client.program(context, "penstock null add copy");
    assert_eq!(report.status, 0);
    let kernels: Vec<_> =
        report.kernels.iter().map(|it| (it.name.as_str(), it.args.len())).collect();
    assert_eq!(kernels, [("add", 3), ("copy", 2)]);
}

#[test]
fn kernels_compute_fail_and_run_for_ever_as_they_are_told() {
    let daemon = Daemon::start("null-kernels", &[]);
    let (mut client, _) = daemon.client();
    let context = client.context();
    let (queue, other) = (client.queue(context, 0), client.queue(context, 0));
    let mem = client.buffer(context, 64);
    let numbers: Vec<u8> = (0..16_u32).flat_map(u32::to_le_bytes).collect();
    client.write(queue, mem, 0, &numbers);
    let scale = client.kernel(context, "penstock null scale", "scale");
    let arguments = args(&[Arg::Mem(mem), Arg::Bytes(&3_u32.to_le_bytes())]);
    client.launch(queue, scale, Id::NONE, 16, &[], &arguments);
    let scaled: Vec<u8> = (0..16_u32).flat_map(|it| (it * 3).to_le_bytes()).collect();
    assert_eq!(client.read(queue, mem, 64), scaled);
    let status = daemon.status();
    let done = |of: &serde_json::Value| (of["launches"].as_u64(), of["moved_bytes"].as_u64());
    let (launches, moved) = done(&status["sessions"][0]);
    assert_eq!(launches, Some(1));
    // The content of the write and of the read, and the arguments of calls.
    assert!((128..4096).contains(&moved.unwrap()), "{moved:?}");
    assert_eq!(done(&status["totals"]["sessions"]), (launches, moved));

    let fail = client.kernel(context, "penstock null fail", "fail");
    let event = client.id();
    client.launch(queue, fail, event, 1, &[], &args(&[Arg::Bytes(&(-54_i32).to_le_bytes())]));
    assert_eq!(client.status(event), -54);
    let refuse = client.kernel(context, "penstock null refuse", "refuse");
    client.launch(queue, refuse, Id::NONE, 1, &[], &args(&[Arg::Bytes(&(-6_i32).to_le_bytes())]));
    assert_eq!(client.finish(queue), Status(-6));

    let (endless, word) = (client.kernel(context, "penstock null endless", "endless"), client.id());
    let create =
        to_worker::CreateBuffer { mem: word, context, flags: U64::new(1), size: U64::new(4) };
    client.send(create, &[], &[]);
    let event = client.id();
    client.launch(queue, endless, event, 1, &[], &args(&[Arg::Mem(word)]));
    assert_eq!(client.read(other, mem, 64), scaled, "another queue goes on");
    assert!(!client.inbox.events.contains_key(&event.get()));
    client.write(other, word, 0, &[1, 0, 0, 0]);
    // The device looks at the word after this command.
    client.send(
        to_worker::FillBuffer {
            queue: other,
            mem,
            event: Id::NONE,
            offset: U64::new(0),
            size: U64::new(64),
        },
        &[],
        &[5],
    );
    assert_eq!(client.status(event), 0);
}

/// Returns the totals of a daemon, which must not be less than the earlier ones.
fn totals_after(daemon: &Daemon, earlier: &mut (f64, f64)) -> serde_json::Value {
    let totals = daemon.status()["totals"].take();
    let sessions = &totals["sessions"];
    let in_use = sessions["in_use_seconds"][0].as_f64().unwrap_or_default();
    let now = (sessions["core_seconds"].as_f64().unwrap(), in_use);
    assert!(now.0 >= earlier.0 && now.1 >= earlier.1, "{earlier:?}, then {totals}");
    *earlier = now;
    totals
}

/// Launches a kernel that runs as long as the session.
fn launch_endless(client: &mut Client) {
    let context = client.context();
    let (queue, word) = (client.queue(context, 0), client.buffer(context, 4));
    client.write(queue, word, 0, &[0; 4]);
    let endless = client.kernel(context, "penstock null endless", "endless");
    let event = client.id();
    client.launch(queue, endless, event, 1, &[], &args(&[Arg::Mem(word)]));
}

#[test]
fn totals_do_not_fall_when_sessions_end() {
    let daemon = Daemon::start("null-totals", &[]);
    let mut last = (0.0, 0.0);
    for how in ["orderly", "unexpected"] {
        let (mut client, node) = daemon.client();
        launch_endless(&mut client);
        let begun = last;
        wait_for("time of use and core time", || {
            totals_after(&daemon, &mut last);
            last.0 > begun.0 && last.1 > begun.1
        });
        if how == "unexpected" {
            let worker = Pid::from_raw(node.worker.cast_signed()).unwrap();
            kill_process(worker, Signal::KILL).unwrap();
        }
        client.end();
        wait_for("the end of the session", || {
            totals_after(&daemon, &mut last)["sessions"]["sessions_ended"][how] == 1
        });
        assert!(last.0 > begun.0 && last.1 > begun.1, "{last:?}");
    }
    assert_eq!(totals_after(&daemon, &mut last)["sessions"]["sessions_begun"], 2);
}

#[test]
fn a_session_counts_that_ends_before_anybody_asks() {
    let daemon = Daemon::start("null-unseen", &[]);
    let (mut client, node) = daemon.client();
    launch_endless(&mut client);
    // The answer says that the device has the kernel.
    let context = client.context();
    let (queue, mem) = (client.queue(context, 0), client.buffer(context, 4));
    client.write(queue, mem, 0, &[7; 4]);
    assert_eq!(client.read(queue, mem, 4), [7; 4]);
    client.end();
    let process = std::path::PathBuf::from(format!("/proc/{}", node.worker));
    wait_for("the end of the worker", || !process.exists());
    let mut totals = (0.0, 0.0);
    totals_after(&daemon, &mut totals);
    assert!(totals.0 > 0.0 && totals.1 > 0.0, "{totals:?}");
}

#[test]
fn refusals_are_told_by_kind() {
    let daemon = Daemon::start("null-refusals", &[]);
    let mut stranger = UnixStream::connect(daemon.directory.join("socket")).unwrap();
    stranger.write_all(b"GET /metrics HTTP/1.1\r\nHost: a penstock daemon\r\n\r\n").unwrap();
    // The daemon closes the connection.
    _ = stranger.read_to_end(&mut Vec::new());
    wait_for("a refusal", || daemon.status()["refused"] == 1);
    let status = daemon.status();
    assert_eq!(status["totals"]["refused"]["protocol"], 1, "{status}");
    assert_eq!(status["totals"]["refused"]["key"], 0, "{status}");
}

#[test]
fn the_memory_of_devices_is_told() {
    let daemon = Daemon::start("null-memory", &[]);
    // A survey waits until the first worker has described the node.
    let node = daemon.survey().node;
    let bytes = find(&node.platforms[0].devices[0].info, CL_DEVICE_GLOBAL_MEM_SIZE).unwrap();
    let bytes = u64::from_ne_bytes(bytes.try_into().unwrap());
    let told = daemon.status()["device_memory_bytes"].take();
    assert_eq!(told, serde_json::json!([bytes]));
}

/// The client sends a change of an argument once, so later launches come without it.
#[test]
fn a_kernel_is_not_launched_with_an_earlier_value_of_an_argument_that_could_not_be_set() {
    let daemon = Daemon::start("null-unset", &[]);
    let (mut client, _) = daemon.client();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 4);
    client.write(queue, mem, 0, &7_u32.to_le_bytes());
    let scale = client.kernel(context, "penstock null scale", "scale");
    let factor = 3_u32.to_le_bytes();
    let good = args(&[Arg::Mem(mem), Arg::Bytes(&factor)]);
    client.launch(queue, scale, Id::NONE, 1, &[], &good);
    let starve = client.kernel(context, "penstock null starve", "starve");
    client.launch(queue, starve, Id::NONE, 1, &[], &args(&[Arg::Bytes(&0_u32.to_le_bytes())]));
    assert_eq!(client.finish(queue), Status::OK);
    let lacking = client.buffer(context, 4);
    let changes: [&[u8]; 3] = [&args(&[Arg::Mem(lacking)]), &[], &[]];
    for change in changes {
        let event = client.id();
        client.launch(queue, scale, event, 1, &[], change);
        assert_eq!(client.status(event), Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    }
    let copy = client.id();
    client.send(to_worker::CloneKernel { kernel: copy, source: scale }, &[], &[]);
    let event = client.id();
    client.launch(queue, copy, event, 1, &[], &[]);
    assert_eq!(client.status(event), Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    assert_eq!(client.read(queue, mem, 4), 21_u32.to_le_bytes());
    client.launch(queue, scale, Id::NONE, 1, &[], &args(&[Arg::Mem(mem)]));
    assert_eq!(client.read(queue, mem, 4), 63_u32.to_le_bytes());
}

#[test]
fn a_context_makes_no_more_buffers_and_is_lost_as_it_is_told() {
    let daemon = Daemon::start("null-lost", &[]);
    let (mut client, _) = daemon.client();
    let context = client.context();
    let queue = client.queue(context, 0);
    let starve = client.kernel(context, "penstock null starve", "starve");
    client.launch(queue, starve, Id::NONE, 1, &[], &args(&[Arg::Bytes(&1_u32.to_le_bytes())]));
    assert_eq!(client.finish(queue), Status::OK);
    let statuses = [(); 2].map(|()| {
        let mem = client.buffer(context, 64);
        let event = client.read_waiting(queue, mem, 1, &[]);
        client.status(event)
    });
    assert_eq!(statuses, [0, Status::MEM_OBJECT_ALLOCATION_FAILURE.0]);
    let lose = client.kernel(context, "penstock null lose", "lose");
    client.launch(queue, lose, Id::NONE, 1, &[], &[]);
    assert_eq!(client.finish(queue), Status::OUT_OF_RESOURCES);
    // The session lives, and another context works.
    daemon::works(&mut client);
}
