//! `penstock kill` and `penstock drain`, with a daemon whose device is simulated.

use std::os::unix::process::CommandExt as _;

use crate::common::{Home, stderr, stdout};
use crate::daemon::serve_with;
use penstock_client::Pool;
use penstock_link::Address;
use penstock_trial::{patience, wait_for};
use serde_json::Value;

fn open(address: &str) -> Pool {
    let address: Address = address.parse().unwrap();
    Pool::open(&[address], None, patience(), |_| {})
}

fn json(home: &Home, args: &[&str]) -> Value {
    let output = home.penstock(args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_session_is_ended_and_its_client_learns_who_did_it() {
    let home = Home::new("kill");
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    let pool = open(&daemon.addresses[0]);
    assert_eq!(pool.nodes().len(), 1, "{:?}", pool.absent());
    let told = json(&home, &["status", "--json"]);
    let session = told["nodes"][0]["status"]["sessions"][0]["worker"].as_u64().unwrap().to_string();
    let kill =
        |node: &str, session: &str| home.penstock(&["kill", node, session]).output().unwrap();
    let other = kill("local", "4294967295");
    assert_eq!(other.status.code(), Some(1));
    assert_eq!(stderr(&other), "penstock: node local has no session 4294967295\n");
    // What a kernel of the session could start is in the group of its worker.
    let of_worker = home
        .penstock(&["drain", &daemon.addresses[0]])
        .process_group(session.parse().unwrap())
        .output()
        .unwrap();
    assert_eq!(of_worker.status.code(), Some(1));
    assert!(stderr(&of_worker).contains("does not obey"), "{}", stderr(&of_worker));
    let done = kill(&daemon.addresses[0], &session);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stdout(&done).starts_with(&format!("session {session} of node ")), "{}", stdout(&done));
    wait_for("the end of the session", || {
        json(&home, &["status", "--json"])["nodes"][0]["status"]["sessions"] == Value::Array(vec![])
    });
    let nobody = kill("unix:/nowhere", &session);
    assert_eq!(nobody.status.code(), Some(1), "{}", stderr(&nobody));
    let several = kill("unix:/a,unix:/b", &session);
    assert_eq!(several.status.code(), Some(2), "{}", stderr(&several));
}

#[test]
fn a_drained_node_is_shown_and_refuses_programs_until_that_is_undone() {
    let home = Home::new("drain");
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    let pool = open(&daemon.addresses[0]);
    let drained = home.penstock(&["drain", "local"]).output().unwrap();
    assert!(drained.status.success(), "{}", stderr(&drained));
    let status = home.penstock(&["status"]).output().unwrap();
    let told = "it takes no new clients, because an administrator drains it; 1 session is left\n";
    assert!(stdout(&status).contains(told), "{}", stdout(&status));
    let json = json(&home, &["status", "--json"]);
    assert_eq!(json["nodes"][0]["status"]["draining"], true);
    let metrics = home.penstock(&["metrics"]).output().unwrap();
    assert!(stdout(&metrics).contains("penstock_node_draining{node="), "{}", stdout(&metrics));
    let line = stdout(&metrics);
    let line = line.lines().find(|line| line.starts_with("penstock_node_draining{")).unwrap();
    assert!(line.ends_with("} 1.0"), "{line}");
    let run = ["run", "--no-local", "--nodes", "local", "--", "true"];
    let refused = home.penstock(&run).output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("an administrator drains this node"), "{}", stderr(&refused));
    // A program goes on with the other nodes of its pool, as with any node that refuses it.
    let other = Home::new("drain-other");
    let second = serve_with(&other, &["--platform", "null"], &[]);
    let addresses = [&daemon.addresses[0], &second.addresses[0]].map(|it| it.parse().unwrap());
    let both = Pool::open(&addresses, None, patience(), |_| {});
    assert_eq!((both.nodes().len(), both.absent().len()), (1, 1));
    drop(both);
    drop(pool);
    let undone = home.penstock(&["drain", "--undo", "local"]).output().unwrap();
    assert_eq!(stdout(&undone), "node local takes new clients\n", "{}", stderr(&undone));
    let run = home.penstock(&run).output().unwrap();
    assert!(run.status.success(), "{}", stderr(&run));
}
