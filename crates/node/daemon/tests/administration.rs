//! What administrators may order: to end a session, and to take no new clients.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

use common::Devices;
use daemon::{Daemon, is_alive, works};
use penstock_link::{Key, Keys, LinkError, Patience, Progress, order};
use penstock_trial::{patience, wait_for};
use penstock_wire::administration::{Act, Outcome};
use penstock_wire::hello::Verdict;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const DEVICES: Devices = Devices::Simulated;

fn obey(daemon: &Daemon, act: Act) -> Outcome {
    order(&daemon.addresses[0], act, None, patience()).unwrap()
}

fn workers(daemon: &Daemon) -> Vec<u32> {
    let status = daemon.status();
    let worker = |session: &Value| u32::try_from(session["worker"].as_u64().unwrap()).unwrap();
    status["sessions"].as_array().unwrap().iter().map(worker).collect()
}

#[test]
fn a_session_that_an_administrator_ends_is_told_so_and_others_go_on() {
    let daemon = Daemon::start("kill", &[]);
    let (mut first, _) = daemon.client();
    let before: HashSet<u32> = workers(&daemon).into_iter().collect();
    let (mut second, _) = daemon.client();
    let of_second = *workers(&daemon).iter().find(|worker| !before.contains(worker)).unwrap();
    works(&mut second);
    assert_eq!(obey(&daemon, Act::Kill(of_second)), Outcome::Done);
    while second.receive(Patience::Forever).is_ok() {}
    wait_for("the end of the session", || daemon.sessions() == 1);
    wait_for("the end of the worker", || !is_alive(of_second));
    let ended = daemon.status()["totals"]["sessions"]["sessions_ended"].clone();
    let killed = serde_json::json!({ "orderly": 0, "unexpected": 1 });
    if ended == killed {
        // On a busy host, after 5 s: as in the test below.
        eprintln!("the worker was too late to end by itself");
    } else {
        assert_eq!(ended, serde_json::json!({ "orderly": 1, "unexpected": 0 }));
        let told = second.inbox.fault.as_deref().unwrap_or_default();
        assert!(told.contains("an administrator of the node has ended this session"), "{told}");
    }
    works(&mut first);
}

#[test]
fn only_a_worker_with_a_client_is_ended() {
    let daemon = Daemon::start("kill-others", &[]);
    wait_for("a spare", || daemon.status()["spare_workers"].as_u64() > Some(0));
    let (mut client, _) = daemon.client();
    let own = daemon.process.id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let session = workers(&daemon)[0];
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    let others: Vec<u32> = children.filter(|child| *child != session).collect();
    assert!(!others.is_empty(), "a spare is a child, too");
    for process in others.into_iter().chain([0, 1, own, std::process::id(), u32::MAX]) {
        assert_eq!(obey(&daemon, Act::Kill(process)), Outcome::NoSession, "{process}");
    }
    works(&mut client);
}

#[test]
fn a_worker_that_is_stopped_is_killed() {
    let daemon = Daemon::start("kill-stopped", &[]);
    let (mut client, _) = daemon.client();
    let worker = workers(&daemon)[0];
    kill_process(Pid::from_raw(worker.cast_signed()).unwrap(), Signal::STOP).unwrap();
    assert_eq!(obey(&daemon, Act::Kill(worker)), Outcome::Done);
    assert_eq!(obey(&daemon, Act::Kill(worker)), Outcome::Done, "it is told twice");
    wait_for("the end of the worker", || !is_alive(worker));
    while client.receive(Patience::Forever).is_ok() {}
    wait_for("the end of the session", || daemon.sessions() == 0);
}

#[test]
fn a_drained_daemon_refuses_clients_and_keeps_its_sessions() {
    let daemon = Daemon::start("drain", &[]);
    let (mut client, _) = daemon.client();
    assert_eq!(daemon.status()["draining"], false);
    assert_eq!(obey(&daemon, Act::Drain), Outcome::Done);
    let status = daemon.status();
    assert_eq!((&status["draining"], daemon.sessions()), (&Value::Bool(true), 1));
    let is_right = |error: &LinkError| match error {
        LinkError::OverLimit { why, .. } => why.contains("drains this node"),
        _ => false,
    };
    let refused = daemon.open(None, 0).map(drop).unwrap_err();
    assert!(is_right(&refused), "{refused}");
    let refused = daemon.survey_refused();
    assert!(is_right(&refused), "{refused}");
    assert_eq!(daemon.status()["totals"]["refused"]["drained"], 2);
    works(&mut client);
    assert_eq!(obey(&daemon, Act::Undrain), Outcome::Done);
    assert_eq!(daemon.status()["draining"], false);
    works(&mut daemon.client().0);
    works(&mut client);
}

#[test]
fn clients_in_line_are_sent_away() {
    let limits =
        std::env::temp_dir().join(format!("penstockd-{}-drain-limits", std::process::id()));
    std::fs::write(&limits, "[total]\nsessions = 1\n").unwrap();
    let daemon = Daemon::start("drain-line", &["--limits", limits.to_str().unwrap()]);
    let (mut client, _) = daemon.client();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            daemon.watch_line(&mut |progress| {
                if matches!(progress, Progress::InLine { .. }) {
                    // The test listens for the first one only.
                    _ = tell.send(());
                }
            })
        });
        told.recv_timeout(patience()).unwrap();
        assert_eq!(obey(&daemon, Act::Drain), Outcome::Done);
        let refused = waiting.join().unwrap().map(drop).unwrap_err();
        assert!(refused.to_string().contains("drains this node"), "{refused}");
    });
    assert_eq!(daemon.status()["waiting_clients"], 0);
    works(&mut client);
    std::fs::remove_file(limits).unwrap();
}

fn must_be_wrong_user(error: &LinkError) {
    let is_right = matches!(error, LinkError::Refused { verdict: Verdict::WrongUser, .. });
    assert!(is_right, "{error}");
}

#[test]
fn no_key_makes_an_administrator() {
    let folder =
        std::env::temp_dir().join(format!("penstockd-{}-drain-key-file", std::process::id()));
    let file = folder.join("key");
    let key = Key::create(&file).unwrap();
    let options = ["--listen", "tcp:127.0.0.1:0", "--key", file.to_str().unwrap()];
    let daemon = Daemon::start_with("drain-keys", &options, &[("PENSTOCK_ENCRYPTION", "never")]);
    let keys = Keys { pool: Some(key), ..Keys::default() };
    works(&mut daemon.open(&keys, 1).unwrap().0);
    for act in [Act::Drain, Act::Kill(1)] {
        must_be_wrong_user(&order(&daemon.addresses[1], act, &keys, patience()).unwrap_err());
    }
    assert_eq!(daemon.status()["draining"], false);
    std::fs::remove_dir_all(folder).unwrap();
}
