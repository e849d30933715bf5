//! `penstock top`: once, and on a terminal that `script` makes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use crate::common::{Home, stderr, stdout};
use crate::daemon::serve_with;
use penstock_trial::wait_for;
use rustix::process::{Pid, Signal, kill_process};
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
    let session = |worker: u32| {
        json!({ "worker": worker, "client": format!("10.0.0.{worker}:5000"), "seconds": 61,
                "core_seconds": { "busy": 1.5 }, "launches": 7, "moved_bytes": 4096,
                "devices": [{ "device": "card", "in_use_seconds": 0.5 }] })
    };
    let mut nodes = Vec::new();
    for index in 0..100 {
        let socket = home.path.join(format!("{index}.sock"));
        nodes.push(format!("unix:{}", socket.display()));
        let status = json!({
            "host": format!("gpu{index}"), "pid": index, "uptime_s": 61, "waiting_clients": 1,
            "devices": ["card"], "device_memory_bytes": [1 << 30],
            "sessions": (0..10).map(session).collect::<Vec<_>>(),
        });
        Home::start_fake_node_saying(socket, 1, std::time::Duration::ZERO, status.to_string());
    }
    let nodes = nodes.join(",");
    let output = home.penstock(&["top", "--once", "--json", "--nodes", &nodes]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes_told = told["nodes"].as_array().unwrap();
    assert_eq!(nodes_told.len(), 100);
    for (index, node) in nodes_told.iter().enumerate() {
        assert_eq!((&node["host"], &node["state"]), (&json!(format!("gpu{index}")), &json!("up")));
        let sessions = node["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 10);
        // Nothing has happened between the two looks.
        assert!(sessions.iter().all(|it| it["launches_per_second"] == 0.0), "{node}");
    }
    let output = home.penstock(&["top", "--nodes", &nodes]).output().unwrap();
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.contains("10.0.0.")).count(), 1_000);
    assert!(text.starts_with("NODE ") && text.contains("\n\nSESSION  NODE "), "{text}");
}

/// `penstock top` on a terminal, whose bytes the test sees.
struct Terminal {
    script: Child,
    output: BufReader<std::process::ChildStdout>,
    seen: String,
}

impl Terminal {
    fn start(home: &Home, nodes: &str, size: &str) -> Self {
        let penstock = home.penstock(&[]);
        let program = penstock.get_program().to_str().unwrap();
        let mut command = Command::new("script");
        let line = format!("stty {size}; echo $$; exec {program} top --nodes {nodes}");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]);
        for (name, value) in penstock.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(script.stdout.take().unwrap());
        Self { script, output, seen: String::new() }
    }

    /// Returns the process id of `penstock top`, which the shell has told.
    fn process(&mut self) -> Pid {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        Pid::from_raw(line.trim().parse().unwrap()).unwrap()
    }

    /// Reads until the terminal has been told this.
    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(text) {
            let count = self.output.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "{text:?} did not come: {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).unwrap();
    }

    /// Returns the rest of what the terminal is told, and the exit status.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).unwrap();
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        (std::mem::take(&mut self.seen), self.script.wait().unwrap().code())
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
        terminal.wait_for(ENTER);
        // The last word of the first screen. Blanks are not written.
        terminal.wait_for("quit");
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
