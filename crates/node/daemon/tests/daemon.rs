//! The daemon as a process: workers, clients that end badly, strangers, and its own end.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests themselves")]

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Client, Devices, args};
use daemon::{Daemon, is_alive, loader, works};
use penstock_link::{Key, LinkError};
use penstock_trial::{deadline, patience, wait_for};
use penstock_wire::args::Arg;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::PeerInvitation;
use penstock_wire::hello::{Role, Verdict};
use penstock_wire::{Id, Status, U64, frame};
use rustix::process::{Pid, Signal, kill_process};

const DEVICES: Devices = Devices::Simulated;

/// Makes the worker run a kernel that never ends.
fn run_forever(client: &mut Client, devices: Devices) {
    let context = client.context();
    let queue = client.queue(context, 0);
    let source = match devices {
        Devices::Real => {
            "kernel void endless(global volatile int *a) { while (a[0] == 0) { a[1]++; } }"
        }
        Devices::Simulated => "penstock null endless",
    };
    let kernel = client.kernel(context, source, "endless");
    let mem = client.buffer(context, 8);
    client.launch(queue, kernel, Id::NONE, 1, &[], &args(&[Arg::Mem(mem)]));
    assert_eq!(client.request(to_worker::Ping { request: Id::NONE }, &[]).0, Status::OK);
}

#[test]
fn clients_get_workers_of_their_own() {
    let daemon = Daemon::start("own", &[]);
    let (mut one, first) = daemon.client();
    let (mut two, second) = daemon.client();
    assert_ne!(first.worker, second.worker);
    assert!(!first.platforms.is_empty());
    works(&mut one);
    works(&mut two);
    assert_eq!(daemon.sessions(), 2);
    drop(one.end());
    wait_for("the end of a worker", || !is_alive(first.worker));
    works(&mut two);
    wait_for("the end of a session", || daemon.sessions() == 1);
}

#[test]
fn clients_are_told_their_turn() {
    let daemon = Daemon::start("turn", &[]);
    let (_one, first) = daemon.client();
    let (_two, second) = daemon.client();
    assert_eq!((first.turn.before, first.turn.beside), (0, 0));
    assert_eq!((second.turn.before, second.turn.beside), (1, 1));
}

#[test]
fn a_worker_that_is_killed_takes_only_its_session() {
    let daemon = Daemon::start("worker", &[]);
    let (mut one, first) = daemon.client();
    let (mut two, _) = daemon.client();
    works(&mut one);
    kill_process(Pid::from_raw(first.worker as i32).unwrap(), Signal::KILL).unwrap();
    one.until_end();
    works(&mut two);
    works(&mut daemon.client().0);
}

#[test]
fn a_client_that_ends_takes_its_worker_along_whatever_it_runs() {
    for devices in [Devices::Real, Devices::Simulated] {
        let daemon = Daemon::start_on(devices, "client", &[], &[]);
        let (mut client, node) = daemon.client();
        run_forever(&mut client, devices);
        drop(client);
        wait_for("the end of a worker", || !is_alive(node.worker));
        works(&mut daemon.client().0);
    }
}

#[test]
fn workers_end_with_a_daemon_that_is_killed() {
    let mut daemon = Daemon::start("daemon", &[]);
    let (mut client, node) = daemon.client();
    run_forever(&mut client, DEVICES);
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    wait_for("the end of a worker", || !is_alive(node.worker));
    client.until_end();
}

#[test]
fn a_daemon_that_is_asked_to_ends_in_order() {
    for (signal, devices) in [(Signal::TERM, Devices::Real), (Signal::INT, DEVICES)] {
        let mut daemon = Daemon::start_on(devices, "order", &[], &[]);
        let (mut client, node) = daemon.client();
        run_forever(&mut client, devices);
        assert!(daemon.socket().exists());
        daemon.signal(signal);
        let status = daemon.process.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(!is_alive(node.worker));
        assert!(!daemon.socket().exists());
    }
}

#[test]
fn strangers_hold_nobody_up() {
    let key = key_file("strangers");
    let daemon = Daemon::start(
        "strangers",
        &["--listen", "tcp:127.0.0.1:0", "--key", key.to_str().unwrap()],
    );
    let tcp = daemon.addresses[1].to_string();
    let port: u16 = tcp.rsplit(':').next().unwrap().parse().unwrap();
    // A client that waits for a stranger waits for the end of its hello, 5 s, and finds that no
    // stranger is left. A busy machine may be as slow once, but not every time.
    wait_for("a client that is served before the last stranger is sent away", || {
        let quiet: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let silent: Vec<UnixStream> =
            (0..400).map(|_| UnixStream::connect(daemon.socket()).unwrap()).collect();
        for seed in 0..50_u8 {
            let garbage: Vec<u8> =
                (0..200).map(|i: u8| i.wrapping_mul(31).wrapping_add(seed)).collect();
            // The daemon may hang up before everything is written.
            _ = TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&garbage);
            _ = UnixStream::connect(daemon.socket()).unwrap().write_all(&garbage);
        }
        works(&mut daemon.client().0);
        drop(quiet);
        let mut last = silent.last().unwrap();
        last.set_nonblocking(true).unwrap();
        last.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    std::fs::remove_file(key).unwrap();
}

#[test]
fn silence_ends_in_time() {
    let daemon = Daemon::start("silence", &[]);
    let mut silent = UnixStream::connect(daemon.socket()).unwrap();
    silent.write_all(b"PEN").unwrap();
    silent.set_read_timeout(Some(patience())).unwrap();
    let mut bytes = Vec::new();
    // A refusal or a hang-up ends the read.
    if let Err(error) = silent.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

fn key_file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("penstockd-key-{}-{name}", std::process::id()));
    _ = std::fs::remove_file(&path);
    Key::create(&path).unwrap();
    path
}

#[test]
fn tcp_needs_the_key() {
    let path = key_file("tcp");
    let daemon =
        Daemon::start("tcp", &["--listen", "tcp:127.0.0.1:0", "--key", path.to_str().unwrap()]);
    let key = Key::load(&path).unwrap();
    works(&mut daemon.open(Some(&key), 1).unwrap().0);
    let wrong = Key::from_bytes(&[1; 32]);
    let refused = daemon.open(Some(&wrong), 1).err().unwrap();
    assert!(matches!(refused, LinkError::WrongKey { .. } | LinkError::Refused { .. }), "{refused}");
    works(&mut daemon.open(Some(&key), 1).unwrap().0);

    let keyless = Daemon::start("keyless", &["--listen", "tcp:127.0.0.1:0"]);
    let refused = keyless.open(Some(&key), 1).err().unwrap();
    assert!(matches!(refused, LinkError::Refused { verdict: Verdict::NoKey, .. }), "{refused}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_wrong_ticket_is_refused() {
    let daemon = Daemon::start("ticket", &[]);
    let deadline = deadline();
    let refused =
        penstock_link::open(&daemon.addresses[0], Role::Peer, Some([7; 32]), None, deadline)
            .err()
            .unwrap();
    assert!(
        matches!(refused, LinkError::Refused { verdict: Verdict::WrongTicket, .. }),
        "{refused}"
    );
}

#[test]
fn a_driver_that_crashes_at_load_is_told_and_tried_again_slowly() {
    let Some(library) = loader("crash", "abort();") else { return };
    let variables = [("PENSTOCK_LIBOPENCL", library.to_str().unwrap())];
    let daemon = Daemon::start_on(Devices::Real, "crash", &[], &variables);
    let refused = daemon.open(None, 0).err().unwrap();
    assert!(matches!(refused, LinkError::Refused { verdict: Verdict::NoWorker, .. }), "{refused}");
    wait_for("the reason in the status", || {
        daemon.status()["problem"].as_str().is_some_and(|problem| problem.contains("signal 6"))
    });
}

#[test]
fn what_kernels_print_comes_before_their_end() {
    let daemon = Daemon::start_on(Devices::Real, "print", &[], &[]);
    let (mut client, _) = daemon.client();
    let context = client.context();
    let queue = client.queue(context, 0);
    let source = "kernel void hello() { printf(\"hello %d\\n\", (int)get_global_id(0)); }";
    let kernel = client.kernel(context, source, "hello");
    client.launch(queue, kernel, Id::NONE, 1, &[], &[]);
    assert_eq!(client.finish(queue), Status::OK);
    assert_eq!(String::from_utf8_lossy(&client.inbox.output), "hello 0\n");
    let event = client.id();
    client.launch(queue, kernel, event, 1, &[], &[]);
    assert_eq!(client.status(event), 0);
    assert_eq!(String::from_utf8_lossy(&client.inbox.output), "hello 0\nhello 0\n");
}

/// Makes sessions of one client with two daemons, and a link between the workers.
fn pair(name: &str) -> (Daemon, Daemon, Client, Client) {
    let here = Daemon::start(&format!("{name}-a"), &[]);
    let there = Daemon::start(&format!("{name}-b"), &[]);
    let (mut a, (mut b, node)) = (here.client().0, there.client());
    let ticket = [42; 32];
    let admit = to_worker::AdmitPeer { request: Id::NONE, peer: Id::new(1) };
    assert_eq!(b.request(admit, &ticket).0, Status::OK);
    let invitation = PeerInvitation { addresses: node.addresses, ticket };
    let connect = to_worker::ConnectPeer { request: Id::NONE, peer: Id::new(2) };
    assert_eq!(a.request(connect, &frame::encode(&invitation)).0, Status::OK);
    (here, there, a, b)
}

fn send_mem(
    from: &mut Client,
    mem: Id<penstock_wire::id::kind::Mem>,
    transfer: u64,
    peer: u64,
    size: u64,
) -> Id<penstock_wire::id::kind::Event> {
    let event = from.id();
    let (transfer, peer, size) = (Id::new(transfer), Id::new(peer), U64::new(size));
    from.send(to_worker::SendMem { mem, event, transfer, peer, offset: U64::ZERO, size }, &[], &[]);
    from.sender.flush().unwrap();
    event
}

fn receive_mem(
    to: &mut Client,
    mem: Id<penstock_wire::id::kind::Mem>,
    transfer: u64,
    peer: u64,
    size: u64,
    waits: &[Id<penstock_wire::id::kind::Event>],
) -> Id<penstock_wire::id::kind::Event> {
    let event = to.id();
    let (transfer, peer, size) = (Id::new(transfer), Id::new(peer), U64::new(size));
    to.send(
        to_worker::ReceiveMem { mem, event, transfer, peer, offset: U64::ZERO, size },
        waits,
        &[],
    );
    to.sender.flush().unwrap();
    event
}

#[test]
fn content_and_events_go_from_worker_to_worker() {
    let (_here, _there, mut a, mut b) = pair("peers");
    let (ca, cb) = (a.context(), b.context());
    let (qa, qb) = (a.queue(ca, 0), b.queue(cb, 0));
    let size = 3_000_001;
    let (ma, mb) = (a.buffer(ca, size), b.buffer(cb, size));
    let content: Vec<u8> = (0..size).map(|i| (i % 241) as u8).collect();
    let written = a.write(qa, ma, 0, &content);
    assert_eq!(a.status(written), 0);
    for (transfer, early) in [(1, true), (2, false)] {
        // In the other case the content comes before anybody has asked for it.
        let (sent, received);
        if early {
            sent = send_mem(&mut a, ma, transfer, 2, size);
            assert_eq!(a.status(sent), 0);
            received = receive_mem(&mut b, mb, transfer, 1, size, &[]);
        } else {
            received = receive_mem(&mut b, mb, transfer, 1, size, &[]);
            sent = send_mem(&mut a, ma, transfer, 2, size);
            assert_eq!(a.status(sent), 0);
        }
        assert_eq!(b.status(received), 0);
        assert!(b.read(qb, mb, size) == content);
    }
    // Back, over the same link.
    let received = receive_mem(&mut a, ma, 3, 2, size, &[]);
    send_mem(&mut b, mb, 3, 1, size);
    assert_eq!(a.status(received), 0);

    // An event of one worker ends a wait in the other, under the same id.
    let gate = a.expect_event();
    let told = Id::new(5_000);
    a.send(to_worker::Marker { queue: qa, event: told }, &[gate], &[]);
    a.send(to_worker::TellPeer { event: told, peer: Id::new(2) }, &[], &[]);
    b.send(to_worker::ExpectEvent { event: told, peer: Id::new(1) }, &[], &[]);
    let waiting = b.marker(qb, &[told]);
    b.sender.flush().unwrap();
    a.resolve(gate, 0);
    a.sender.flush().unwrap();
    assert_eq!(b.status(waiting), 0);
}

#[test]
fn a_transfer_that_must_wait_holds_no_other_up() {
    let (_here, _there, mut a, mut b) = pair("order");
    let (ca, cb) = (a.context(), b.context());
    let qb = b.queue(cb, 0);
    let size = 2_000_000;
    let (ma, m1, m2) = (a.buffer(ca, size), b.buffer(cb, size), b.buffer(cb, size));
    let gate = b.expect_event();
    let first = receive_mem(&mut b, m1, 1, 1, size, &[gate]);
    let second = receive_mem(&mut b, m2, 2, 1, size, &[]);
    send_mem(&mut a, ma, 1, 2, size);
    send_mem(&mut a, ma, 2, 2, size);
    assert_eq!(b.status(second), 0);
    assert!(!b.inbox.events.contains_key(&first.get()));
    b.resolve(gate, 0);
    assert_eq!(b.status(first), 0);
    assert_eq!(b.finish(qb), Status::OK);
}

#[test]
fn the_end_of_a_worker_ends_its_transfers() {
    let (_here, _there, mut a, mut b) = pair("lost");
    let cb = b.context();
    let mb = b.buffer(cb, 64);
    let received = receive_mem(&mut b, mb, 1, 1, 64, &[]);
    let qb = b.queue(cb, 0);
    b.send(to_worker::ExpectEvent { event: Id::new(7_000), peer: Id::new(1) }, &[], &[]);
    let waiting = b.marker(qb, &[Id::new(7_000)]);
    assert_eq!(b.request(to_worker::Ping { request: Id::NONE }, &[]).0, Status::OK);
    assert_eq!(a.request(to_worker::Ping { request: Id::NONE }, &[]).0, Status::OK);
    drop(a);
    assert_eq!(b.status(received), Status::NODE_LOST.0);
    assert_eq!(b.status(waiting), Status::WAIT_LIST_FAILED.0);
    assert_eq!(b.inbox.peers_lost, [1], "the loss of a peer comes before that of its events");
    b.send(to_worker::ExpectEvent { event: Id::new(7_001), peer: Id::new(1) }, &[], &[]);
    let late = b.marker(qb, &[Id::new(7_001)]);
    assert_eq!(b.status(late), Status::WAIT_LIST_FAILED.0);
    works(&mut b);
}

#[test]
fn a_socket_that_is_served_is_not_taken() {
    let daemon = Daemon::start("taken", &[]);
    let again = Command::new(env!("CARGO_BIN_EXE_penstockd"))
        .arg("--listen")
        .arg(daemon.addresses[0].to_string())
        .output()
        .unwrap();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("serves"), "{again:?}");
    assert!(Path::new(&daemon.socket()).exists());
    works(&mut daemon.client().0);
}

/// Sends commands of every kind, and receives nothing.
fn in_the_middle(client: &mut Client, round: usize) {
    let context = client.context();
    let queue = client.queue(context, 0);
    let size = 8 << 20;
    let mem = client.buffer(context, size as u64);
    let kernel = client.kernel(
        context,
        "kernel void add(global int *a) { a[get_global_id(0)] += 1; }",
        "add",
    );
    client.write(queue, mem, 0, &vec![1; size]);
    client.launch(queue, kernel, Id::NONE, size as u64 / 4, &[], &args(&[Arg::Mem(mem)]));
    for _ in 0..3 {
        client.read_waiting(queue, mem, size as u64, &[]);
    }
    client.sender.flush().unwrap();
    std::thread::sleep(Duration::from_millis(round as u64 % 7));
}

#[test]
fn kills_in_the_middle_of_everything_leave_others_right() {
    kill_in_the_middle(3);
}

#[test]
#[ignore = "long: some minutes"]
fn long_kills_in_the_middle_of_everything_leave_others_right() {
    kill_in_the_middle(100);
}

/// Tries each kill so many times.
fn kill_in_the_middle(times: usize) {
    let daemon = Daemon::start_on(Devices::Real, "kills", &[], &[]);
    let (mut witness, _) = daemon.client();
    for round in 0..times {
        let (mut client, node) = daemon.client();
        in_the_middle(&mut client, round);
        kill_process(Pid::from_raw(node.worker as i32).unwrap(), Signal::KILL).unwrap();
        client.until_end();
        works(&mut witness);

        let (mut client, node) = daemon.client();
        in_the_middle(&mut client, round);
        drop(client);
        wait_for("the end of a worker", || !is_alive(node.worker));
        works(&mut witness);
    }
    for round in 0..times {
        let mut daemon = Daemon::start_on(Devices::Real, "killed", &[], &[]);
        let (mut client, node) = daemon.client();
        in_the_middle(&mut client, round);
        daemon.process.kill().unwrap();
        daemon.process.wait().unwrap();
        client.until_end();
        wait_for("the end of a worker", || !is_alive(node.worker));
        // The next daemon takes over the socket that a killed daemon left.
        works(&mut Daemon::start("killed", &[]).client().0);
    }
    works(&mut witness);
}
