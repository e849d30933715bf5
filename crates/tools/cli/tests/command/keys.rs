//! `penstock key list`, `allow` and `revoke`, with a daemon that has no key of a pool.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};

use crate::common::{Home, stderr, stdout};

/// Daemon of one home, which ends with the test.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(home: &Home) -> Self {
        let mut command = home.penstock(&["serve", "--listen", "tcp:127.0.0.1:0"]);
        command.env("PENSTOCK_ENCRYPTION", "always");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn key(home: &Home, args: &[&str]) -> Output {
    home.penstock(&[&["key"], args].concat()).output().unwrap()
}

fn key_succeeds(home: &Home, args: &[&str]) -> String {
    let output = key(home, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// Returns the public key of a home.
fn own(home: &Home) -> String {
    let list = key_succeeds(home, &["list"]);
    let row = list.lines().find(|line| line.starts_with("this user")).unwrap();
    row.split_whitespace().last().unwrap().to_owned()
}

fn status(home: &Home, daemon: &Daemon) -> Output {
    let mut command = home.penstock(&["status", "--nodes", &daemon.address]);
    command.env("PENSTOCK_ENCRYPTION", "always").output().unwrap()
}

#[test]
fn keys_that_people_enter_let_a_client_in_and_keep_it_out() {
    let (client, node) = (Home::new("keys-client"), Home::new("keys-node"));
    let daemon = Daemon::start(&node);
    // Neither side knows the other.
    let output = status(&client, &daemon);
    assert_eq!(output.status.code(), Some(3));
    let allow = format!("penstock key allow {} {}", daemon.address, own(&node));
    assert!(stderr(&output).contains(&allow), "{}", stderr(&output));
    // The command of the message.
    key_succeeds(&client, &["allow", &daemon.address, &own(&node)]);
    let output = status(&client, &daemon);
    assert!(stderr(&output).contains("does not know our key"), "{}", stderr(&output));
    key_succeeds(&node, &["allow", "anna", &own(&client)]);
    let output = status(&client, &daemon);
    assert!(output.status.success(), "{}", stderr(&output));
    let list = key_succeeds(&node, &["list"]);
    assert!(list.contains("client") && list.contains("anna"), "{list}");
    let said = key_succeeds(&node, &["revoke", "anna"]);
    assert!(said.contains("end within a second"), "{said}");
    let output = status(&client, &daemon);
    assert!(stderr(&output).contains("was revoked"), "{}", stderr(&output));
    assert!(key_succeeds(&node, &["list"]).contains("client, revoked"));
    // Allowed again, under another name.
    key_succeeds(&node, &["allow", "anna2", &own(&client)]);
    assert!(status(&client, &daemon).status.success());
    // A node that is not known any more.
    key_succeeds(&client, &["revoke", &daemon.address]);
    assert!(!status(&client, &daemon).status.success());
}

#[test]
fn what_is_no_key_and_nobodys_name_is_refused() {
    let home = Home::new("keys-wrong");
    let own = own(&home);
    for (args, part) in [
        (vec!["allow", "anna", "abc"], "begins with `ed25519:`"),
        (vec!["allow", "tcp:[::1", &own], "bracket"),
        (vec!["revoke", "nobody"], "no client of this name"),
        (vec!["revoke", "tcp:gpu01"], "no node of this name"),
    ] {
        let output = key(&home, &args);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
    key_succeeds(&home, &["allow", "anna", &own]);
    let twice = key(&home, &["allow", "anna", &own]);
    assert!(stderr(&twice).contains("already in line 1"), "{}", stderr(&twice));
}

#[test]
fn a_plain_client_and_an_unknown_rule_are_told_what_to_do() {
    let (client, node) = (Home::new("keys-plain"), Home::new("keys-strict"));
    assert!(client.penstock(&["key", "--create"]).output().unwrap().status.success());
    let daemon = Daemon::start(&node);
    let output = client.penstock(&["status", "--nodes", &daemon.address]).output().unwrap();
    assert!(stderr(&output).contains("accepts only encrypted links"), "{}", stderr(&output));
    let mut command = client.penstock(&["status", "--nodes", &daemon.address]);
    let output = command.env("PENSTOCK_ENCRYPTION", "on").output().unwrap();
    assert!(stderr(&output).contains("write `never`, `remote`"), "{}", stderr(&output));
}

#[test]
fn a_quota_belongs_to_a_client() {
    let home = Home::new("keys-quota");
    let own = own(&home);
    key_succeeds(&home, &["allow", "anna", &own, "--quota", "small"]);
    let list = std::fs::read_to_string(home.path.join(".config/penstock/authorized_clients"));
    assert!(list.unwrap().contains("quota=small"));
    let refused = key(&home, &["allow", "tcp:gpu01", &own, "--quota", "small"]);
    assert!(stderr(&refused).contains("only clients have quotas"), "{}", stderr(&refused));
}
