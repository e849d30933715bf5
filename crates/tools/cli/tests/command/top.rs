//! `penstock top`: once, and on a terminal that `script` makes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use crate::common::{Home, stderr, stdout};
use crate::daemon::serve_with;
use penstock_trial::{patience, wait_for};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::termios::{Action, tcflow};
use serde_json::{Value, json};

/// What a terminal is told at the beginning and at the end: to show another screen, and its own.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

#[test]
fn a_node_that_hangs_and_one_that_is_not_there_hold_up_nothing() {
    let home = Home::new("top-silent");
    let hanging = home.path.join("hanging.sock");
    // The kernel completes connections to it, and nobody answers.
    let _listener = UnixListener::bind(&hanging).unwrap();
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    let nodes = format!("unix:{},{},unix:/nowhere", hanging.display(), daemon.addresses[0]);
    wait_for("an answer of the node", || {
        let output =
            home.penstock(&["top", "--once", "--json", "--nodes", &nodes]).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |index: usize, name: &str| told["nodes"][index][name].clone();
        assert_eq!((of(0, "state"), of(2, "state")), (json!("silent"), json!("silent")));
        assert!(of(2, "error").as_str().unwrap().contains("no daemon has made this socket"));
        // On a busy host the daemon may be late.
        let is_up = of(1, "state") == "up";
        assert_eq!(output.status.code(), Some(if is_up { 1 } else { 3 }), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("node unix:/nowhere does not answer"),
            "{}",
            stderr(&output)
        );
        let device = of(1, "devices")[0]["name"].clone();
        is_up && device.as_str().is_some_and(|name| name.contains("simulated"))
    });
    let none = home.penstock(&["top", "--nodes", "none"]).output().unwrap();
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
}

#[test]
fn a_hundred_nodes_with_a_thousand_clients_are_one_table() {
    let home = Home::new("top-hundred");
    let mut nodes = Vec::new();
    for index in 0..100 {
        let socket = home.path.join(format!("{index}.sock"));
        nodes.push(format!("unix:{}", socket.display()));
        let mut looks = 0;
        let status = move || {
            looks += 1;
            busy_node(index, looks)
        };
        Home::start_fake_node_saying(socket, 1, std::time::Duration::ZERO, status);
    }
    let nodes = nodes.join(",");
    wait_for("an answer of each node within the time that a person waits", || {
        let output =
            home.penstock(&["top", "--once", "--json", "--nodes", &nodes]).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let nodes_told = told["nodes"].as_array().unwrap();
        assert_eq!(nodes_told.len(), 100);
        for (index, node) in nodes_told.iter().enumerate().filter(|(_, it)| it["state"] == "up") {
            assert_eq!(node["host"], format!("gpu{index}"));
            let sessions = node["sessions"].as_array().unwrap();
            assert_eq!(sessions.len(), 10);
            // By the clock of the node, whatever time the answers took. A look alone has no rates.
            let rate = &node["launches_per_second"];
            assert!(rate.is_null() || *rate == 70.0, "{node}");
            assert!(sessions.iter().all(|it| rate.is_null() || it["launches_per_second"] == 7.0));
        }
        let has_rate = |node: &Value| node["launches_per_second"] == 70.0;
        output.status.success() && nodes_told.iter().all(has_rate)
    });
    wait_for("a table of all", || {
        let output = home.penstock(&["top", "--nodes", &nodes]).output().unwrap();
        let text = stdout(&output);
        assert!(text.starts_with("NODE ") && text.contains("\n\nSESSION  NODE "), "{text}");
        let clients = text.lines().filter(|line| line.contains("10.0.0.")).count();
        assert!(clients <= 1_000, "{text}");
        output.status.success() && clients == 1_000
    });
}

/// Returns the status of a node with ten clients, each of which launches 7 kernels between two
/// looks. The node's clock goes on by a second between them.
fn busy_node(index: u32, looks: u64) -> String {
    let session = |worker: u32| {
        json!({ "worker": worker, "client": format!("10.0.0.{worker}:5000"), "seconds": 61,
                "core_seconds": { "busy": 1.5 }, "launches": 7 * looks, "moved_bytes": 4096,
                "devices": [{ "device": "card", "in_use_seconds": 0.5 }] })
    };
    json!({
        "host": format!("gpu{index}"), "pid": index, "uptime_s": looks, "uptime_ms": 1000 * looks,
        "waiting_clients": 1, "devices": ["card"], "device_memory_bytes": [1 << 30],
        "totals": { "sessions": { "launches": 70 * looks } },
        "sessions": (0..10).map(session).collect::<Vec<_>>(),
    })
    .to_string()
}

/// `penstock top` on a terminal, whose bytes the test sees.
struct Terminal {
    script: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
}

/// What the shell tells before the modes of its terminal.
const MODES: &str = "modes=";

impl Terminal {
    fn start(home: &Home, nodes: &str, size: &str) -> Self {
        let penstock = home.penstock(&[]);
        let program = penstock.get_program().to_str().unwrap();
        let mut command = Command::new("script");
        let modes = format!("echo {MODES}$(stty -g)");
        let top = format!("sh -c 'echo process=$$; exec {program} top --nodes {nodes}'");
        let line = format!("stty {size}; tty; {modes}; {top}; code=$?; {modes}; exit $code");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        for (name, value) in penstock.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut from = script.stdout.take().unwrap();
        let (tell, output) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { script, output, seen: String::new() }
    }

    /// Takes what the terminal is told next. Returns `false` after the last.
    fn read(&mut self) -> bool {
        match self.output.recv_timeout(patience()) {
            Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("it hangs: {:?}", self.seen),
        }
        true
    }

    /// Reads until the terminal has been told this.
    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            assert!(self.read(), "{text:?} did not come: {:?}", self.seen);
        }
    }

    /// Returns the line that begins with this.
    fn line(&self, begin: &str) -> &str {
        let found = self.seen.lines().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("{begin:?} {:?}", self.seen))
    }

    /// Waits for the first screen, and returns the process id of `penstock top`.
    fn process(&mut self) -> Pid {
        self.wait_for(ENTER);
        // The last word of the first screen. Blanks are not written.
        self.wait_for("quit");
        Pid::from_raw(self.line("process=").parse().unwrap()).unwrap()
    }

    fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).unwrap();
    }

    /// Returns all that the terminal was told, and the exit status. Checks that the terminal
    /// treats keys as before.
    fn end(mut self) -> (String, Option<i32>) {
        while self.read() {}
        let seen = std::mem::take(&mut self.seen);
        let modes: Vec<_> = seen.split(MODES).skip(1).filter_map(|it| it.lines().next()).collect();
        assert!(modes.len() == 2 && modes[0] == modes[1] && modes[0].contains(':'), "{seen:?}");
        (seen, self.script.wait().unwrap().code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.script.kill();
        _ = self.script.wait();
    }
}

#[test]
fn a_terminal_gets_its_screen_back() {
    let home = Home::new("top-terminal");
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    for signal in [None, Some(Signal::TERM), Some(Signal::INT), Some(Signal::HUP)] {
        let mut terminal = Terminal::start(&home, &daemon.addresses[0], "cols 80 rows 24");
        let process = terminal.process();
        match signal {
            None => terminal.press("q"),
            Some(signal) => kill_process(process, signal).unwrap(),
        }
        let (seen, code) = terminal.end();
        let left = seen.rfind(LEAVE).unwrap_or_else(|| panic!("{seen:?}"));
        assert!(seen.rfind(ENTER) < Some(left) && seen[left..].contains("\u{1b}[?25h"), "{seen:?}");
        // As a shell tells of a signal.
        let wanted = signal.map_or(0, |signal| 128 + signal.as_raw());
        assert_eq!(code, Some(wanted), "{signal:?}");
    }
}

#[test]
fn a_terminal_that_takes_nothing_does_not_keep_the_command() {
    let home = Home::new("top-stalled");
    let daemon = serve_with(&home, &["--platform", "null"], &[]);
    let mut terminal = Terminal::start(&home, &daemon.addresses[0], "cols 80 rows 24");
    let process = terminal.process();
    let path = format!("/dev/{}", terminal.line("/dev/"));
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminals_end = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    tcflow(&terminals_end, Action::OOff).unwrap();
    // Another screen, which is not taken.
    terminal.press("?");
    kill_process(process, Signal::TERM).unwrap();
    wait_for("the end of the command", || test_kill_process(process).is_err());
    tcflow(&terminals_end, Action::OOn).unwrap();
    drop(terminals_end);
    assert_eq!(terminal.end().1, Some(128 + Signal::TERM.as_raw()));
}
