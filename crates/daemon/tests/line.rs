//! The daemon's line: clients that wait for a worker, and tools that ask about the node.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::PATIENCE;
use daemon::{Daemon, SOON, loader, soon, works};
use penstock_link::Progress;
use penstock_wire::hello::{Role, Verdict};
use rustix::process::{Pid, Signal, kill_process};

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

/// Time that the slow daemon's workers need to load their drivers.
const SLOW_START: Duration = Duration::from_secs(2);

/// Starts a daemon whose workers need two seconds to start.
fn slow_daemon(name: &str) -> Option<Daemon> {
    let library = loader(name, "sleep(2);")?;
    Some(Daemon::start_with(name, &[], &[("PENSTOCK_LIBOPENCL", library.to_str().unwrap())]))
}

#[test]
fn clients_in_line_are_told_at_once_and_served_in_their_order() {
    let Some(daemon) = slow_daemon("line") else { return };
    let cores = std::thread::available_parallelism().unwrap().get();
    // Two rounds of starts, and one client more.
    let clients = 2 * cores + 1;
    let served: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|before| {
                soon("a place in line", SOON, || daemon.status()["waiting_clients"] == before);
                let came = Instant::now();
                let client = scope.spawn(|| (daemon.wait_in_line(), Instant::now()));
                (came, client)
            })
            .collect();
        threads.into_iter().map(|(came, thread)| (came, thread.join().unwrap())).collect()
    });
    for (place, (came, ((opened, heard), _))) in served.iter().enumerate() {
        assert!(opened.is_ok(), "{opened:?}");
        // First the daemon's identity, then the place in line, and the place again each second.
        let line: Vec<_> = heard.iter().skip(1).collect();
        assert!(matches!(heard[0].1, Progress::Met(Some(_))), "{heard:?}");
        let ahead = |(_, progress): &&(Instant, Progress)| match progress {
            Progress::InLine { ahead } => *ahead as usize,
            Progress::Met(_) => panic!("met twice"),
        };
        assert_eq!(line.first().map(ahead), Some(place), "{heard:?}");
        assert!(line[0].0.duration_since(*came) < SLOW_START, "{heard:?}");
        assert!(line.iter().map(ahead).is_sorted_by(|before, after| before >= after), "{heard:?}");
    }
    let times: Vec<_> = served.iter().map(|(_, (_, at))| *at).collect();
    // A busy machine may reorder clients of one round, but not of different rounds.
    assert!(times[0] + SLOW_START / 2 < times[2 * cores], "{times:?}");
    assert!(times[cores..].iter().all(|late| *late > times[0]), "{times:?}");
}

#[test]
fn who_dies_in_line_leaves_it() {
    let Some(daemon) = slow_daemon("dies") else { return };
    let deadline = Instant::now() + PATIENCE;
    let clients = 20;
    let waiting: Vec<_> = (0..clients)
        .map(|_| {
            let mut socket = UnixStream::connect(daemon.socket()).unwrap();
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
    assert!(Instant::now() < deadline);
    drop(waiting);
    soon("the end of the line", SOON, || daemon.status()["waiting_clients"] == 0);
    let (opened, _) = daemon.wait_in_line();
    assert!(opened.is_ok(), "{opened:?}");
}

fn hello() -> Vec<u8> {
    let version = penstock_wire::limits::PROTOCOL_VERSION.to_le_bytes();
    let role = (Role::Client as u16).to_le_bytes();
    [&penstock_wire::hello::MAGIC[..], &version, &role, &[0; 8], &[7; 32]].concat()
}

#[test]
fn a_client_in_line_sees_its_daemons_end() {
    let Some(mut daemon) = slow_daemon("end") else { return };
    let start = Instant::now();
    let pid = Pid::from_child(&daemon.process);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        kill_process(pid, Signal::KILL).unwrap();
    });
    let (opened, heard) = daemon.wait_in_line();
    assert!(opened.is_err(), "{opened:?}");
    assert!(
        heard.iter().any(|(_, progress)| matches!(progress, Progress::InLine { .. })),
        "{heard:?}"
    );
    assert!(start.elapsed() < SOON);
    killer.join().unwrap();
    daemon.process.wait().unwrap();
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
