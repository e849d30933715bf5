//! The daemon's line: clients that wait for a worker, and tools that ask about the node.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use common::Devices;
use daemon::{Daemon, directory, loader, works};
use penstock_link::Progress;
use penstock_trial::{patience, wait_for};
use penstock_wire::hello::{Role, Verdict};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

const DEVICES: Devices = Devices::Simulated;

#[test]
fn a_burst_of_clients_is_served() {
    let daemon = Daemon::start("burst", &[]);
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| works(&mut daemon.client().0));
        }
    });
    assert_eq!(daemon.status()["refused"], 0);
}

/// A daemon each of whose workers waits for a sign of the test when it loads its driver.
struct Gated {
    daemon: Daemon,
    gate: File,
}

impl Gated {
    /// Returns `None` without a C compiler.
    fn start(name: &str) -> Option<Self> {
        let gate = directory(name).join("gate");
        let code = format!(
            "int gate = open(\"{}\", O_RDONLY); char sign; if (read(gate, &sign, 1) != 1) abort();",
            gate.display()
        );
        let library = loader(name, &code)?;
        mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let variables = [("PENSTOCK_LIBOPENCL", library.to_str().unwrap())];
        let daemon = Daemon::start_on(Devices::Real, name, &[], &variables);
        // Both ends, so that neither side waits for the other at the opening.
        let gate = File::options().read(true).write(true).open(gate).unwrap();
        Some(Self { daemon, gate })
    }

    /// Lets so many workers start.
    fn let_start(&self, workers: usize) {
        (&self.gate).write_all(&vec![0; workers]).unwrap();
    }

    fn wait_for_line(&self, clients: usize) {
        let is_so = || self.daemon.status()["waiting_clients"] == clients;
        wait_for(&format!("a line of {clients}"), is_so);
    }
}

#[test]
fn clients_in_line_are_told_at_once_and_served_in_their_order() {
    let Some(node) = Gated::start("line") else { return };
    let clients = 2 * std::thread::available_parallelism().unwrap().get() + 1;
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for place in 0..clients {
            node.wait_for_line(place);
            let (daemon, tell) = (&node.daemon, tell.clone());
            scope.spawn(move || tell.send((place, daemon.wait_in_line())).unwrap());
        }
        node.wait_for_line(clients);
        for served in 0..clients {
            node.let_start(1);
            let (place, (opened, heard)) = told.recv_timeout(patience()).unwrap();
            assert!(opened.is_ok(), "{opened:?}");
            assert_eq!(place, served);
            // First the daemon's identity, then the place in line, and the place again each second.
            assert!(matches!(heard[0], Progress::Met(Some(_))), "{heard:?}");
            let ahead = |progress: &Progress| match progress {
                Progress::InLine { ahead } => *ahead as usize,
                Progress::Met(_) => panic!("met twice"),
            };
            let line: Vec<_> = heard[1..].iter().map(ahead).collect();
            assert_eq!(line.first(), Some(&place), "{heard:?}");
            assert!(line.is_sorted_by(|before, after| before >= after), "{heard:?}");
        }
    });
}

#[test]
fn who_dies_in_line_leaves_it() {
    let Some(node) = Gated::start("dies") else { return };
    let clients = 20;
    let waiting: Vec<_> = (0..clients)
        .map(|_| {
            let mut socket = UnixStream::connect(node.daemon.socket()).unwrap();
            socket.set_read_timeout(Some(patience())).unwrap();
            socket.write_all(&hello()).unwrap();
            // A welcome, and then the place in line.
            let mut answer = [0; 180];
            socket.read_exact(&mut answer).unwrap();
            socket.write_all(&[0; 64]).unwrap();
            let mut place = [0; 6];
            socket.read_exact(&mut place).unwrap();
            assert_eq!(place[..2], (Verdict::InLine as u16).to_le_bytes());
            socket
        })
        .collect();
    drop(waiting);
    node.wait_for_line(0);
    node.let_start(clients);
    let (opened, _) = node.daemon.wait_in_line();
    assert!(opened.is_ok(), "{opened:?}");
}

fn hello() -> Vec<u8> {
    let version = penstock_wire::limits::PROTOCOL_VERSION.to_le_bytes();
    let role = (Role::Client as u16).to_le_bytes();
    [&penstock_wire::hello::MAGIC[..], &version, &role, &[0; 8], &[7; 32]].concat()
}

#[test]
fn a_client_in_line_sees_its_daemons_end() {
    let Some(mut node) = Gated::start("end") else { return };
    let (pid, mut heard) = (Pid::from_child(&node.daemon.process), false);
    let opened = node.daemon.watch_line(&mut |progress| {
        if matches!(progress, Progress::InLine { .. }) && !std::mem::replace(&mut heard, true) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    assert!(heard && opened.is_err(), "{opened:?}");
    node.daemon.process.wait().unwrap();
}

#[test]
fn a_survey_describes_the_node_and_takes_no_worker() {
    let daemon = Daemon::start("survey", &[]);
    // This also works right after the start, before any worker is ready.
    let survey = daemon.survey();
    let (_client, description) = daemon.client();
    assert_eq!(survey.node.platforms, description.platforms);
    assert_eq!(
        (survey.node.host.as_str(), survey.node.turn.beside),
        (description.host.as_str(), 0)
    );
    assert_eq!(daemon.survey().node.turn.beside, 1);
    assert_eq!(daemon.sessions(), 1);
}
