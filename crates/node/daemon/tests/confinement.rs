//! Workers of a running daemon, as the system sees them.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use common::Devices;
use daemon::Daemon;
use penstock_trial::wait_for;
use serde_json::Value;

const DEVICES: Devices = Devices::Real;

/// Returns the status as soon as a worker is ready.
fn status(daemon: &Daemon) -> Value {
    wait_for("a start", || daemon.status()["spare_workers"].as_u64() > Some(0));
    daemon.status()
}

fn children(of: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    list.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[test]
fn all_threads_of_a_worker_are_restricted() {
    for (level, is_basic, has_filter) in
        [("off", false, false), ("basic", true, false), ("calls", true, true)]
    {
        let daemon = Daemon::start(&format!("confined-{level}"), &["--confine", level]);
        let status = status(&daemon);
        assert_eq!(status["confinement"]["level"], level, "{status}");
        // A second worker may still start.
        let threads: Vec<String> = children(daemon.process.id())
            .into_iter()
            .flat_map(|worker| std::fs::read_dir(format!("/proc/{worker}/task")).unwrap())
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())
            .collect();
        let restricted = |text: &&String| {
            text.contains("\nNoNewPrivs:\t1\n") == is_basic
                && text.contains("\nSeccomp:\t2\n") == has_filter
        };
        assert!(threads.iter().filter(restricted).count() > 0, "{threads:?}");
    }
}

#[test]
fn a_worker_does_not_get_the_environment_of_its_daemon() {
    let secrets = [("PENSTOCK_KEY", "/no/where"), ("AWS_SECRET", "s"), ("POCL_DEVICES", "pthread")];
    let settings = [&secrets[..], &[("POCL_LLVM_GLOBAL_CONTEXT", "0")]].concat();
    let daemon = Daemon::start_on(Devices::Simulated, "environment", &[], &settings);
    status(&daemon);
    let worker = children(daemon.process.id())[0];
    let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let has = |start: &str| environment.split('\0').any(|it| it.starts_with(start));
    assert!(!has("PENSTOCK_KEY=") && !has("AWS_SECRET="), "{environment}");
    assert!(has("POCL_DEVICES=pthread") && has("PENSTOCK_WORKER=1"), "{environment}");
    assert!(has("POCL_LLVM_GLOBAL_CONTEXT=1"), "{environment}");
}

#[test]
fn a_daemon_that_requires_more_than_it_does_ends_at_once() {
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_penstockd"))
        .args(["--listen", "unix:/nowhere/s", "--confine", "calls"])
        .args(["--require-confinement", "files"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("every client would be refused"), "{said}");
}
