//! Daemons that announce themselves, over this host's own network.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::common::Home;
use penstock_trial::deadline;

/// A daemon that is killed when the test ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Makes the key of a pool.
fn make_key(home: &Home) {
    let folder = home.path.join(".config/penstock");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(home.penstock(&["key", "--create"]).output().unwrap().status.success());
}

/// Starts a daemon that announces itself at a port of this host, and returns the port.
fn serve(home: &Home) -> (Daemon, String) {
    let mut command = home.penstock(&["serve", "--listen", "tcp:127.0.0.1:0", "--announce"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().to_owned();
    (Daemon(child), port)
}

/// Runs the command until its output is as wanted. The announcer first asks three times whether the
/// name is in use, 250 ms apart (RFC 6762, 8.1).
fn run_until(mut command: impl FnMut() -> Command, is_wanted: impl Fn(&Output) -> bool) -> Output {
    let until = deadline();
    loop {
        let output = command().output().unwrap();
        if is_wanted(&output) || Instant::now() > until {
            return output;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_announced_daemon_is_found_and_used_only_with_the_key() {
    let home = Home::new("discover");
    make_key(&home);
    let (daemon, port) = serve(&home);
    let address = format!("tcp:127.0.0.1:{port}");
    let has_it = |output: &Output| text(&output.stdout).contains(&address);
    let listed = run_until(|| home.penstock(&["discover", "--json"]), has_it);
    assert!(has_it(&listed) && listed.status.success(), "{listed:?}");

    // Other daemons of the network may be found, too, so only this one's row is looked at.
    let status = || {
        let mut command = home.penstock(&["status"]);
        command.env("PENSTOCK_NODES", "discover").env("PENSTOCK_TIMEOUT_MS", "60000");
        command
    };
    // A node that answers has a row with its version.
    let is_row = |line: &str| line.contains(&address) && line.contains(env!("CARGO_PKG_VERSION"));
    let is_served = |output: &Output| text(&output.stdout).lines().any(is_row);
    let with_key = run_until(status, is_served);
    assert!(is_served(&with_key), "{with_key:?}");

    let stranger = Home::new("discover-stranger");
    make_key(&stranger);
    let mut refused = stranger.penstock(&["status"]);
    let refused = refused
        .env("PENSTOCK_NODES", format!("discover,{address}"))
        .env("PENSTOCK_TIMEOUT_MS", "60000")
        .output()
        .unwrap();
    assert!(!is_served(&refused), "{refused:?}");
    assert!(text(&refused.stderr).contains("key"), "{refused:?}");

    // A daemon that ends withdraws its announcement. This one is told to end, and not killed.
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let gone = run_until(|| home.penstock(&["discover"]), |output| !has_it(output));
    assert!(!has_it(&gone), "{gone:?}");
}

#[test]
fn a_daemon_that_nobody_could_use_is_not_announced() {
    let home = Home::new("discover-no-key");
    let mut command = home.penstock(&["serve", "--listen", "tcp:127.0.0.1:0", "--announce"]);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("it has no key"), "{output:?}");
    make_key(&home);
    let output = home.penstock(&["serve", "--announce"]).output().unwrap();
    assert!(text(&output.stderr).contains("it listens at no TCP address"), "{output:?}");
}
