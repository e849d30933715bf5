//! `penstock energy` on a node made of files, and on this host.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::copy_program;

/// What the counter of a node advances by at the sign of a test: 5 J.
const JUMP_UJ: u64 = 5_000_000;

/// A directory that stands for `/`, with one package. A thread advances its counter: by a µJ at a
/// time, and by [`JUMP_UJ`] as soon as the file `jump` is there. The thread answers with the file
/// `jumped`.
struct Node {
    root: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Node {
    fn start(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("penstock-energy-cli-{}-{name}", std::process::id()));
        let zone = root.join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), "package-0\n").unwrap();
        fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::write(root.join("proc/stat"), "cpu  1 2 3 4 5 6 7 8 9 10\n").unwrap();
        let counter = fs::File::create(zone.join("energy_uj")).unwrap();
        counter.write_all_at(format!("{:020}\n", 0).as_bytes(), 0).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, folder) = (Arc::clone(&is_over), root.clone());
        let turn = move || {
            let (mut micros, mut has_jumped) = (0, false);
            while !shared.load(Ordering::Relaxed) {
                micros += 1;
                let jumps = !has_jumped && folder.join("jump").exists();
                if jumps {
                    micros += JUMP_UJ;
                }
                counter.write_all_at(format!("{micros:020}\n").as_bytes(), 0).unwrap();
                if jumps {
                    has_jumped = true;
                    fs::write(folder.join("jumped"), "").unwrap();
                }
                thread::sleep(Duration::from_millis(1));
            }
        };
        Self { root, is_over, thread: Some(thread::spawn(turn)) }
    }

    fn energy(&self, arguments: &[&str]) -> Command {
        let mut command = penstock(arguments);
        command.env("PENSTOCK_ENERGY_ROOT", &self.root);
        command.env("PENSTOCK_ENERGY_NVML", "/no/such/libnvidia-ml.so.1");
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        _ = fs::remove_dir_all(&self.root);
    }
}

fn penstock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.arg("energy").args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_commands_energy_is_told_beside_its_own_output_and_status() {
    let node = Node::start("table");
    let output = done(&mut node.energy(&[
        "--idle",
        "0.3",
        "--",
        "sh",
        "-c",
        "sleep 0.5; echo hello; exit 9",
    ]));
    assert_eq!(output.status.code(), Some(9));
    assert_eq!(text(&output.stdout), "hello\n");
    let told = text(&output.stderr);
    for part in [
        "in the total",
        "covers package-0; lacks gpu, dram-0\n",
        "unavailable (package-0 has no domain dram)",
        "core-seconds of the command: 0.",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let (_, behind) = told.split_once("idle power: measured for ").expect("the idle power");
    let idle: f64 = behind.split(' ').next().unwrap().parse().unwrap();
    assert!(idle >= 0.3, "{told}");
}

#[test]
fn json_has_all_figures_and_null_with_a_reason_for_what_is_missing() {
    let node = Node::start("json");
    let file = node.root.join("out.json");
    let command = ["sh", "-c", "touch jump; until [ -e jumped ]; do sleep 0.01; done"];
    let options = ["--json", "--output", file.to_str().unwrap(), "--idle", "0", "--"];
    let output = done(node.energy(&[&options[..], &command].concat()).current_dir(&node.root));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let joules = report["total"]["joules"].as_f64().unwrap();
    // The jump, and a µJ for each ms of the measurement.
    assert!((5.0..5.1).contains(&joules), "{joules} J");
    assert_eq!(report["total"]["net_joules"], Value::Null);
    assert!(report["total"]["net_unavailable"].is_string());
    assert_eq!(report["command"], serde_json::json!(command));
    let dram = &report["figures"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["component"] == "dram-0")
        .unwrap();
    assert_eq!(dram["joules"], Value::Null);
    assert_eq!(dram["unavailable"]["kind"], "no_domain");
    assert_eq!(report["model"], Value::Null);
}

#[test]
fn without_a_command_every_source_says_what_it_is_or_why_not() {
    let node = Node::start("list");
    let output = done(&mut node.energy(&["--json"]));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sources = list["sources"].as_array().unwrap();
    let state = |name: &str| {
        let found = sources.iter().find(|it| it["component"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {list:#}"))["unavailable"]["kind"].clone()
    };
    assert_eq!(state("package-0"), Value::Null);
    assert_eq!((state("gpu"), state("dram-0")), ("no_library".into(), "no_domain".into()));
}

/// On any host, each source is either read or has a reason.
#[test]
fn on_this_host_every_source_is_told_of() {
    let output = done(&mut penstock(&[]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    for source in ["nvml", "powercap", "perf", "hwmon"] {
        let mut lines =
            told.lines().filter(|line| line.split_whitespace().any(|word| word == source));
        assert!(lines.next().is_some(), "nothing of {source} in\n{told}");
        assert!(
            lines.all(|line| line.contains("unavailable (")
                || line.contains("counter,")
                || line.contains("samples,")),
            "{told}"
        );
    }
    eprintln!("{told}");
}

#[test]
fn what_cannot_be_run_or_measured_has_the_status_of_such_programs() {
    let node = Node::start("status");
    let code = |arguments: &[&str]| done(&mut node.energy(arguments)).status.code();
    let text = node.root.join("proc/stat");
    assert_eq!(code(&["--", "/no/such/program"]), Some(127));
    assert_eq!(code(&["--idle", "0", "--", text.to_str().unwrap()]), Some(126));
    assert_eq!(code(&["--idle", "-1", "--", "true"]), Some(2));
    assert_eq!(code(&["--idle", "601", "--", "true"]), Some(2));
    assert_eq!(code(&["--output", "/no/such/directory/x", "--", "true"]), Some(1));
    assert_eq!(code(&["--power-model", "/no/such/file", "--", "true"]), Some(125));
    assert_eq!(code(&["--require-energy", "--idle", "0", "--", "true"]), Some(0));
    let marker = node.root.join("was-run");
    let empty = Path::new("/no/such/root");
    let arguments = ["--require-energy", "--idle", "0", "--", "touch", marker.to_str().unwrap()];
    let refused = done(node.energy(&arguments).env("PENSTOCK_ENERGY_ROOT", empty));
    assert_eq!(refused.status.code(), Some(125));
    assert!(!marker.exists(), "the command was run");
}

#[test]
fn a_signal_is_handed_on_and_the_figures_are_still_told() {
    let node = Node::start("signal");
    // The shell waits for a signal, and reports it.
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = node
        .energy(&["--idle", "0", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), output.status.code()), ("caught\n".to_owned(), Some(5)));
    assert!(text(&output.stderr).contains("covers package-0"), "{}", text(&output.stderr));
    _ = std::io::stderr().flush();
}

#[test]
fn the_guard_of_a_program_belongs_to_it() {
    let node = Node::start("guard");
    // A shell under the name of the guard, which computes after its parent has ended.
    copy_program(Path::new("/bin/sh"), &node.root.join("penstock"));
    let work = ": >begun; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    fs::write(node.root.join("guard"), work).unwrap();
    let words = [
        "--json",
        "--idle",
        "0",
        "--",
        "sh",
        "-c",
        "./penstock guard & until [ -e begun ]; do sleep 0.01; done; exit 4",
    ];
    let output = done(node.energy(&words).current_dir(&node.root));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["exit_status"], 4);
    // The command itself takes some ms, and the loop takes 0.1 s at least.
    assert!(report["core_seconds"]["busy"].as_f64().unwrap() > 0.05, "{report:#}");
}

#[test]
fn nobody_waits_for_idle_power_that_nothing_tells() {
    let node = Node::start("no-idle");
    // Far more than a test may take.
    let words = ["--json", "--idle", "600", "--", "true"];
    let mut command = node.energy(&words);
    let output = done(command.env("PENSTOCK_ENERGY_ROOT", node.root.join("none")));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(report["idle"]["before_s"], Value::Null, "{report:#}");
}
