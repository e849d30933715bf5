//! The limits of users: what a daemon and its workers do at each of them.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Client, Devices, args};
use daemon::{Daemon, works};
use penstock_link::LinkError;
use penstock_trial::wait_for;
use penstock_wire::args::Arg;
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, Status, U64};

const DEVICES: Devices = Devices::Simulated;

/// A daemon with a file of limits.
struct Limited {
    daemon: Daemon,
    file: PathBuf,
}

impl Limited {
    fn start(name: &str, limits: &str) -> Self {
        Self::start_on(DEVICES, name, limits)
    }

    fn start_on(devices: Devices, name: &str, limits: &str) -> Self {
        let process = std::process::id();
        let file = std::env::temp_dir().join(format!("penstock-limits-{process}-{name}.toml"));
        std::fs::write(&file, limits).unwrap();
        let daemon = Daemon::start_on(devices, name, &["--limits", file.to_str().unwrap()], &[]);
        Self { daemon, file }
    }

    /// Opens a session. Fails if the daemon refuses it.
    fn session(&self) -> Result<Client, LinkError> {
        self.daemon.open(None, 0).map(|(client, _)| client)
    }

    /// Returns the row of the status for a limit of this process's user.
    fn row(&self, limit: &str) -> serde_json::Value {
        let user = rustix::process::geteuid().as_raw().to_string();
        let status = self.daemon.status();
        let rows = status["quota"]["rows"].as_array().unwrap();
        let is_it =
            |row: &&serde_json::Value| row["user"] == user.as_str() && row["limit"] == limit;
        rows.iter().find(is_it).unwrap().clone()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The test may have removed it.
        _ = std::fs::remove_file(&self.file);
    }
}

/// Makes a buffer, and returns the status of its first use.
fn buffer(
    client: &mut Client,
    context: Id<kind::Context>,
    queue: Id<kind::Queue>,
    size: u64,
) -> (Id<kind::Mem>, i32) {
    let mem = client.buffer(context, size);
    let event = client.read_waiting(queue, mem, 1, &[]);
    (mem, client.status(event))
}

#[test]
fn a_user_has_as_many_sessions_as_its_limit_says() {
    let node = Limited::start("sessions", "[user.default]\nsessions = 2\n");
    let mut first = node.session().unwrap();
    let _second = node.session().unwrap();
    let began = Instant::now();
    let refused = node.session().map(drop).unwrap_err();
    let waited = Instant::now() > began + Duration::from_secs(2);
    assert!(waited, "it waits for a session that is ending");
    let LinkError::OverLimit { why, .. } = &refused else { panic!("{refused}") };
    assert!(why.contains("the limit sessions of user ") && why.contains("is 2"), "{why}");
    assert!(why.contains(&format!("({}, line 2)", node.file.display())), "{why}");
    works(&mut first);
    // A tool that asks before a program starts learns it, too.
    let told = node.daemon.survey_refused();
    assert_eq!(told.to_string(), refused.to_string());
    // A client that comes while a session ends is served.
    std::thread::scope(|scope| {
        let next = scope.spawn(|| node.session().map(|mut client| works(&mut client)));
        wait_for("a place in line", || node.daemon.status()["waiting_clients"] == 1);
        drop(first);
        next.join().unwrap().unwrap();
    });
}

#[test]
fn device_memory_is_that_of_all_sessions_of_a_user() {
    let node = Limited::start("memory", "[user.default]\ndevice_memory = \"64M\"\n");
    let (mut one, mut other) = (node.session().unwrap(), node.session().unwrap());
    let objects = |client: &mut Client| {
        let context = client.context();
        (context, client.queue(context, 0))
    };
    let (context, queue) = objects(&mut one);
    let (mem, status) = buffer(&mut one, context, queue, 40 << 20);
    assert_eq!(status, 0);
    let row = node.row("device_memory");
    assert_eq!((row["held"].as_u64(), row["max"].as_u64()), (Some(40 << 20), Some(64 << 20)));
    let (there, theirs) = objects(&mut other);
    let (_, status) = buffer(&mut other, there, theirs, 40 << 20);
    assert_eq!(status, Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    let [why] = other.inbox.notices.as_slice() else { panic!("{:?}", other.inbox.notices) };
    assert!(why.contains("the limit device_memory of user ") && why.contains("line 2"), "{why}");
    // A second refusal is not told again.
    let (_, status) = buffer(&mut other, there, theirs, 40 << 20);
    assert_eq!((status, other.inbox.notices.len()), (Status::MEM_OBJECT_ALLOCATION_FAILURE.0, 1));
    one.send(to_worker::ReleaseMem { mem }, &[], &[]);
    assert_eq!(one.finish(queue), Status::OK);
    wait_for("the loan to come back", || node.row("device_memory")["held"] == 0);
    let (_, status) = buffer(&mut other, there, theirs, 40 << 20);
    assert_eq!(status, 0);
    // A worker that ends gives everything back.
    other.end();
    wait_for("the end of a session", || node.row("device_memory")["held"] == 0);
    let (_, status) = buffer(&mut one, context, queue, 60 << 20);
    assert_eq!(status, 0);
}

#[test]
fn a_session_with_too_many_objects_ends() {
    let node = Limited::start("objects", "[user.default]\nobjects = 100\n");
    let (mut one, mut other) = (node.session().unwrap(), node.session().unwrap());
    let context = one.context();
    for _ in 0..60 {
        one.buffer(context, 64);
    }
    one.request(to_worker::Ping { request: Id::NONE }, &[]);
    let context = other.context();
    for _ in 0..60 {
        other.buffer(context, 64);
    }
    let why = other.until_end();
    assert!(why.contains("the limit objects of user ") && why.contains("line 2"), "{why}");
    works(&mut one);
}

const ENDLESS: &str = "penstock null endless";

#[test]
fn a_kernel_that_runs_for_too_long_ends_its_session() {
    let node = Limited::start("kernel", "[user.default]\nkernel_time_s = 3\n");
    let (mut honest, mut endless) = (node.session().unwrap(), node.session().unwrap());
    let context = endless.context();
    let queue = endless.queue(context, 0);
    let kernel = endless.kernel(context, ENDLESS, "endless");
    let mem = endless.buffer(context, 64);
    let began = Instant::now();
    endless.launch(queue, kernel, Id::NONE, 1, &[], &args(&[Arg::Mem(mem)]));
    endless.send(to_worker::Flush { queue }, &[], &[]);
    let why = endless.until_end();
    assert!(
        why.starts_with("a kernel ran for too long: the limit kernel_time_s of user "),
        "{why}"
    );
    assert!(why.contains("line 2"), "{why}");
    assert!(Instant::now() > began + Duration::from_secs(3), "it ended early");
    works(&mut honest);
}

#[test]
fn kernels_that_end_in_time_may_be_many() {
    // It takes kernels that run for a while.
    let node = Limited::start_on(Devices::Real, "short", "[user.default]\nkernel_time_s = 3\n");
    let mut client = node.session().unwrap();
    let context = client.context();
    let queue = client.queue(context, 0);
    // Some 25 ms each, and 3 s on a machine that is very busy.
    let source =
        "kernel void k(global volatile int *a) { for (int i = 0; i < 10000000; i++) a[0]; }";
    let kernel = client.kernel(context, source, "k");
    let mem = client.buffer(context, 64);
    // A kernel that waits for its event does not run.
    let gate = client.expect_event();
    client.launch(queue, kernel, Id::NONE, 1, &[gate], &args(&[Arg::Mem(mem)]));
    std::thread::sleep(Duration::from_millis(3_500));
    client.resolve(gate, 0);
    let until = Instant::now() + Duration::from_millis(3_500);
    while Instant::now() < until {
        (0..5).for_each(|_| client.launch(queue, kernel, Id::NONE, 1, &[], &[]));
        assert_eq!(client.finish(queue), Status::OK);
    }
}

#[test]
fn an_idle_session_ends_and_a_busy_one_does_not() {
    let node = Limited::start("idle", "[user.default]\nidle_time_s = 3\n");
    let mut busy = node.session().unwrap();
    let context = busy.context();
    let queue = busy.queue(context, 0);
    let kernel = busy.kernel(context, ENDLESS, "endless");
    let mem = busy.buffer(context, 64);
    busy.launch(queue, kernel, Id::NONE, 1, &[], &args(&[Arg::Mem(mem)]));
    busy.send(to_worker::Flush { queue }, &[], &[]);
    busy.sender.flush().unwrap();
    // The idle session says something after the busy one has said its last word.
    let mut idle = node.session().unwrap();
    works(&mut idle);
    let why = idle.until_end();
    assert!(why.starts_with("the session was idle for too long: the limit idle_time_s"), "{why}");
    // Two looks at the busy session, which has been silent for longer.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(node.daemon.sessions(), 1, "its kernel still runs");
    let request = to_worker::Ping { request: Id::NONE };
    assert_eq!(busy.request(request, &[]).0, Status::OK);
}

#[test]
fn new_limits_reach_sessions_that_run() {
    let node = Limited::start("reload", "[user.default]\nsessions = 1\n");
    let mut client = node.session().unwrap();
    let context = client.context();
    let queue = client.queue(context, 0);
    let (_, status) = buffer(&mut client, context, queue, 64 << 20);
    assert_eq!(status, 0);
    std::fs::write(&node.file, "[user.default]\nsessions = 2\ndevice_memory = \"80M\"\n").unwrap();
    wait_for("the new limits", || node.row("sessions")["max"] == 2);
    let _second = node.session().unwrap();
    wait_for("the return of what is spare", || node.row("device_memory")["held"] == 64 << 20);
    let (_, status) = buffer(&mut client, context, queue, 32 << 20);
    assert_eq!(status, Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    // A wrong file changes nothing, and the status says why.
    std::fs::write(&node.file, "[user.default]\nsessions = 3\ncompile_memory = \"1G\"\n").unwrap();
    let problem = || node.daemon.status()["limits_file"]["problem"].as_str().map(str::to_owned);
    wait_for("the wrong file", || problem().is_some());
    let why = problem().unwrap();
    assert!(why.contains("line 3: `compile_memory` cannot be enforced"), "{why}");
    assert_eq!(node.row("sessions")["max"], 2);
    std::fs::remove_file(&node.file).unwrap();
    wait_for("the missing file", || problem().is_some_and(|why| why.contains("cannot read")));
    assert_eq!(node.row("sessions")["max"], 2);
    assert_eq!(client.finish(queue), Status::OK);
}

#[test]
fn commands_in_flight_are_bounded_as_the_file_says() {
    let node = Limited::start("flight", "[user.default]\ncommands_in_flight = 1000\n");
    let mut client = node.session().unwrap();
    let context = client.context();
    let queue = client.queue(context, 0);
    // Many more commands than the limit pass, because they end.
    for _ in 0..20_000 {
        client.send(to_worker::Marker { queue, event: Id::NONE }, &[], &[]);
    }
    assert_eq!(client.finish(queue), Status::OK);
    // A user event behind fewer commands than the limit is heard.
    let gate = client.expect_event();
    for _ in 0..700 {
        client.send(to_worker::Marker { queue, event: Id::NONE }, &[gate], &[]);
    }
    client.resolve(gate, 0);
    assert_eq!(client.finish(queue), Status::OK);
}

#[test]
fn a_daemon_with_a_wrong_file_does_not_start() {
    let file = std::env::temp_dir().join(format!("penstock-limits-{}-wrong", std::process::id()));
    std::fs::write(&file, "[total]\nsession = 1\n").unwrap();
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_penstockd"))
        .args(["--listen", "unix:/nowhere/s", "--limits", file.to_str().unwrap()])
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success());
    assert!(said.contains("line 2: `session` is not a limit; the limits are sessions"), "{said}");
}

#[test]
fn clients_beyond_the_limit_of_all_wait_in_line() {
    let node = Limited::start("total", "[total]\nsessions = 1\n");
    let mut first = node.session().unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| node.session().map(|mut client| works(&mut client)));
        wait_for("a place in line", || node.daemon.status()["waiting_clients"] == 1);
        // Longer than a client beyond its user's limit waits.
        std::thread::sleep(Duration::from_secs(5));
        works(&mut first);
        drop(first);
        next.join().unwrap().unwrap();
    });
}

#[test]
fn shared_buffers_count_as_memory_of_the_host() {
    let node = Limited::start("host", "[user.default]\nhost_memory = \"1M\"\n");
    let mut client = node.session().unwrap();
    let context = client.context();
    let queue = client.queue(context, 0);
    let mut shared = |offset: u64, size: u64| {
        let mem = client.id();
        let (flags, offset, size) = (U64::new(1), U64::new(offset), U64::new(size));
        client.send(to_worker::CreateSharedBuffer { mem, context, flags, offset, size }, &[], &[]);
        let event = client.read_waiting(queue, mem, 1, &[]);
        client.status(event)
    };
    assert_eq!(shared(0, 1 << 20), 0);
    assert_eq!(shared(1 << 20, 4096), Status::MEM_OBJECT_ALLOCATION_FAILURE.0);
    assert!(client.inbox.notices[0].contains("the limit host_memory of user "));
}
