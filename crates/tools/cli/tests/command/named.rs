//! `penstock run` uses the nodes that the user has named, and no others.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Home, stderr, stdout};
use penstock_trial::wait_for;

const TELL: [&str; 4] = ["--", "sh", "-c", "echo $PENSTOCK_NODES"];

/// Returns `penstock run` with these options, and with a program that prints the nodes it got.
fn run(home: &Home, options: &[&str]) -> Command {
    home.penstock(&[&["run"], options, &TELL].concat())
}

fn unix(home: &Home, name: &str) -> String {
    format!("unix:{}", home.path.join(name).display())
}

fn assert_refused(output: &Output, parts: &[&str]) {
    let error = stderr(output);
    assert_eq!((output.status.code(), stdout(output)), (Some(125), String::new()), "{error}");
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), parts.len(), "{error}");
    for (line, part) in lines.iter().zip(parts) {
        assert!(line.starts_with("penstock: ") && line.contains(part), "{error}");
    }
}

/// Has `ssh:HOST` lead to a fake node, whatever HOST is, as if it were another host.
fn with_far_node<'a>(home: &Home, command: &'a mut Command) -> &'a mut Command {
    let far = home.path.join("far");
    if !far.exists() {
        fs::DirBuilder::new().mode(0o700).recursive(true).create(far.join("penstock")).unwrap();
        Home::start_fake_node_at(far.join("penstock/penstockd.sock"), 1, Duration::ZERO);
        let penstock = env!("CARGO_BIN_EXE_penstock");
        let script =
            format!("#!/bin/sh\nexec env XDG_RUNTIME_DIR={} {penstock} bridge\n", far.display());
        let ssh = home.path.join("ssh");
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&ssh);
        std::io::Write::write_all(&mut file.unwrap(), script.as_bytes()).unwrap();
    }
    command.env("PENSTOCK_SSH", home.path.join("ssh")).env("PENSTOCK_SSH_DIRECT", "never")
}

#[test]
fn the_devices_of_this_host_do_not_join_named_nodes() {
    let home = Home::new("named");
    let by_variable = with_far_node(&home, &mut run(&home, &[]))
        .env("PENSTOCK_NODES", "ssh:gpu01")
        .output()
        .unwrap();
    let by_option =
        with_far_node(&home, &mut run(&home, &["--nodes", "ssh:gpu01"])).output().unwrap();
    fs::create_dir_all(home.path.join(".config/penstock")).unwrap();
    fs::write(home.path.join(".config/penstock/pool.toml"), "nodes = [\"ssh:gpu01\"]\n").unwrap();
    let by_file = with_far_node(&home, &mut run(&home, &[])).output().unwrap();
    for output in [by_variable, by_option, by_file] {
        assert_eq!(stdout(&output), "ssh:gpu01\n", "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_named_node_that_is_missing_ends_the_command() {
    let home = Home::new("missing");
    home.start_fake_node();
    let (nobody, node) = (unix(&home, "nobody.sock"), unix(&home, "node.sock"));
    let refused = ["nobody.sock is missing: ", "1 of the 2 nodes is missing; --wait SECONDS"];
    let both = format!("{nobody},{node}");
    assert_refused(&run(&home, &["--nodes", &both]).output().unwrap(), &refused);
    assert_refused(&run(&home, &[]).env("PENSTOCK_NODES", &both).output().unwrap(), &refused);
    let alone = run(&home, &["--nodes", "tcp:no-such-host.invalid"]).output().unwrap();
    assert_refused(&alone, &["no-such-host.invalid is missing: ", "no node of the pool answers"]);
    let output = run(&home, &["--nodes", &both, "--allow-missing"]).output().unwrap();
    assert_eq!(stdout(&output), format!("{node}\n"));
    let error = stderr(&output);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("nobody.sock is left out: "), "{error}");
    let output = run(&home, &["--nodes", &nobody, "--allow-missing"]).output().unwrap();
    assert_refused(&output, &["is left out: ", "no node of the pool answers"]);
}

#[test]
fn who_waits_for_a_node_gets_it_or_learns_that_it_does_not_come() {
    let home = Home::new("wait");
    let node = unix(&home, "node.sock");
    let mut command = run(&home, &["--nodes", &node, "--wait", "60"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.starts_with("penstock: waiting for node unix:"), "{line}");
    assert!(line.contains("node.sock, 60 s at most: cannot connect"), "{line}");
    home.start_fake_node();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), format!("{node}\n"));
    let output = run(&home, &["--nodes", &unix(&home, "no.sock"), "--wait", "1"]).output().unwrap();
    assert_refused(&output, &["1 s at most: ", "is missing: ", "no node of the pool answers"]);
}

#[test]
fn a_dead_socket_of_the_own_daemon_is_no_node() {
    let home = Home::new("dead");
    let own = home.path.join("run/penstock");
    fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
    drop(UnixListener::bind(own.join("penstockd.sock")).unwrap());
    let is_of_this_run = |output: &Output| {
        let nodes = stdout(output);
        assert!(nodes.contains("run/penstock/run-") && !nodes.contains("penstockd"), "{nodes}");
        nodes
    };
    // The devices of this host are those of the daemon that the command starts.
    let output = run(&home, &[]).output().unwrap();
    if output.status.success() {
        assert_eq!(stderr(&output), "");
        is_of_this_run(&output);
        let mut command = run(&home, &["--nodes", "ssh:gpu01,local"]);
        let output = with_far_node(&home, &mut command).output().unwrap();
        let nodes = is_of_this_run(&output);
        assert!(nodes.starts_with("ssh:gpu01,unix:"), "named nodes keep their order: {nodes}");
        let list = format!("{},local,ssh:gpu01", unix(&home, "nobody.sock"));
        let mut command = run(&home, &["--allow-missing", "--nodes", &list]);
        let nodes = is_of_this_run(&with_far_node(&home, &mut command).output().unwrap());
        assert!(nodes.ends_with(",ssh:gpu01\n"), "a missing node takes no place: {nodes}");
    } else {
        // A host without a driver. The message is not about the socket.
        assert!(!stderr(&output).contains("penstockd.sock"), "{}", stderr(&output));
    }
    let output = run(&home, &["--nodes", "local", "--no-local"]).output().unwrap();
    assert_refused(&output, &["node local is missing: ", "no node of the pool answers"]);
    wait_for("the end of the guards", || fs::read_dir(&own).unwrap().flatten().count() == 1);
}

#[test]
fn the_query_of_the_option_comes_before_that_of_the_variable() {
    let home = Home::new("query");
    home.start_fake_node_with(3, Duration::ZERO);
    let node = unix(&home, "node.sock");
    let run = |query: &str| {
        let words = ["run", "--nodes", &node, "--devices", query, "--", "sh", "-c"];
        let mut command = home.penstock(&words);
        command
            .arg("echo $PENSTOCK_DEVICES")
            .env("PENSTOCK_DEVICES", "SELECT WHERE device_index = 9");
        command.output().unwrap()
    };
    let query = "SELECT WHERE device_index = 2";
    assert_eq!(stdout(&run(query)), format!("{query}\n"));
    let nothing = run("SELECT WHERE device_index = 7");
    assert_refused(&nothing, &["--devices selects none of the pool's 3 devices"]);
    let wrong = run("SELECT WHERE no_such_name = 7");
    assert_eq!(wrong.status.code(), Some(125), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("no_such_name"), "{}", stderr(&wrong));
}
