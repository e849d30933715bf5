//! `penstock run` from outside: what the program sees, and what is left when it ends. The node is a
//! fake that only answers the probe, so that no OpenCL is needed.

use std::fs;
use std::io::{BufRead as _, BufReader, PipeWriter, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Home, stderr, stdout};
use penstock_trial::wait_for;

/// Returns the command that runs a shell script on the fake node.
fn shell(home: &Home, script: &str) -> Command {
    home.run_on_fake_node(&["sh", "-c", script])
}

/// Waits until no file and no process of any run is left.
fn assert_tidy(home: &Home) {
    let runs = home.path.join("run/penstock");
    wait_for("a tidy folder without processes", || {
        let left = fs::read_dir(&runs).into_iter().flatten().flatten().count();
        left == 0 && processes_with(&home.path).is_empty()
    });
}

/// Returns the command lines that contain `path`.
fn processes_with(path: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = all.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&*path.to_string_lossy())).collect()
}

#[test]
fn the_program_sees_the_pool_and_nothing_else() {
    let home = Home::new("environment");
    home.start_fake_node();
    let script = "cat \"$OCL_ICD_VENDORS\"/*; ls \"$OCL_ICD_VENDORS\"; echo $PENSTOCK_NODES; echo ${OCL_ICD_FILENAMES-unset}";
    let output = shell(&home, script)
        .env("OCL_ICD_FILENAMES", "x")
        .env("OCL_ICD_VENDORS", "y")
        .output()
        .unwrap();
    let home_path = home.path.display();
    assert_eq!(
        stdout(&output),
        format!("{home_path}/library.so\npenstock.icd\nunix:{home_path}/node.sock\nunset\n"),
        "{}",
        stderr(&output)
    );
    assert_eq!(stderr(&output), "");
    assert_tidy(&home);
}

#[test]
fn the_program_takes_the_place_of_the_command() {
    let home = Home::new("exec");
    home.start_fake_node();
    // The program must have no children: one that waits for all of its children must not wait for a
    // process of ours.
    let script = "read children < /proc/$$/task/$$/children; echo $$ [$children]; exit 7";
    let child = shell(&home, script).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), format!("{pid} []\n"));
    assert_eq!(output.status.code(), Some(7));
    assert_tidy(&home);
}

#[test]
fn signals_go_to_the_program() {
    let home = Home::new("signals");
    home.start_fake_node();
    for (signal, script) in [
        ("TERM", "echo up; sleep 60"),
        ("KILL", "echo up; sleep 60"),
        // `env` undoes an ignored SIGINT, as in a background job of a shell. A shell cannot trap a
        // signal that was ignored when it started.
        (
            "INT",
            r#"exec env --default-signal=INT sh -c 'trap "kill \$!; exit 5" INT; sleep 60 & echo up; wait'"#,
        ),
    ] {
        let mut child =
            shell(&home, script).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        // To the whole process group, as a terminal does.
        let group = format!("-{}", child.id());
        assert!(
            Command::new("kill").args(["-s", signal, "--", &group]).status().unwrap().success()
        );
        let status = child.wait().unwrap();
        match signal {
            "TERM" => {
                assert!(status.signal() == Some(15) || status.code() == Some(143), "{status}")
            }
            "KILL" => assert!(status.signal() == Some(9) || status.code() == Some(137), "{status}"),
            _ => assert_eq!(status.code(), Some(5)),
        }
        assert_tidy(&home);
    }
}

#[test]
fn who_reads_the_output_does_not_wait_for_the_guard() {
    let home = Home::new("pipe");
    home.start_fake_node();
    // The shell closes its output and goes on.
    let mut child = shell(&home, "echo end; exec >&- 2>&-; exec sleep 600")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "end\n");
    assert!(child.try_wait().unwrap().is_none(), "the program goes on");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_tidy(&home);
}

/// The pipe for the guard's answer is full, so that the guard cannot say that it is ready. It must
/// have let go of the program's files by then, because letting go may fail.
#[test]
fn a_guard_says_that_it_is_ready_after_all_that_can_fail() {
    let home = Home::new("ready");
    let directory = home.path.join("private");
    fs::create_dir(&directory).unwrap();
    let program = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let (mut answer, mut full) = std::io::pipe().unwrap();
    let filled = fill(&mut full);
    let (input, _kept) = std::io::pipe().unwrap();
    let pid = program.0.id().to_string();
    let mut guard = home
        .penstock(&["guard", "--here", "--pid", &pid, "--directory"])
        .arg(&directory)
        .stdin(input)
        .stdout(full)
        .spawn()
        .unwrap();
    for descriptor in 0..2 {
        let file = format!("/proc/{}/fd/{descriptor}", guard.id());
        wait_for("a guard without the program's files", || {
            fs::read_link(&file).is_ok_and(|target| target == Path::new("/dev/null"))
        });
    }
    answer.read_exact(&mut vec![0; filled]).unwrap();
    let mut text = String::new();
    // The guard also closes the pipe, so that the text has an end.
    answer.read_to_string(&mut text).unwrap();
    assert_eq!(text, "ready\n");
    assert!(directory.exists(), "the program has not ended");
    drop(program);
    assert!(guard.wait().unwrap().success());
    assert!(!directory.exists());
}

/// A process that ends with its value, also if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Fills a pipe, and returns the number of bytes that it took.
fn fill(pipe: &mut PipeWriter) -> usize {
    rustix::io::ioctl_fionbio(&*pipe, true).unwrap();
    let mut filled = 0;
    while let Ok(count) = pipe.write(b" ") {
        filled += count;
    }
    rustix::io::ioctl_fionbio(&*pipe, false).unwrap();
    filled
}

#[test]
fn a_node_that_is_late_is_named_and_the_program_does_not_start() {
    let home = Home::new("late");
    home.start_fake_node_with(1, Duration::from_secs(2));
    let output = shell(&home, "echo started").env("PENSTOCK_TIMEOUT_MS", "20").output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(125), String::new()));
    let error = stderr(&output);
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].contains("node.sock is missing: "), "{error}");
    assert!(lines[0].ends_with("in time (PENSTOCK_TIMEOUT_MS is 20)"), "{error}");
    assert_eq!(lines[1], "penstock: no node of the pool answers");
    assert_tidy(&home);
}

#[test]
fn a_pool_without_devices_is_an_error_before_the_program_starts() {
    let home = Home::new("empty");
    home.start_fake_node_with(0, Duration::ZERO);
    let output = shell(&home, "echo started").output().unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(125), String::new()));
    let error = stderr(&output);
    assert!(error.contains("node.sock has no devices: its driver is gone\n"), "{error}");
    assert!(error.ends_with("penstock: the pool has no devices\n"), "{error}");
    assert_tidy(&home);
}

#[test]
fn a_query_that_selects_nothing_is_an_error_before_the_program_starts() {
    let home = Home::new("query");
    home.start_fake_node_with(3, Duration::ZERO);
    let run =
        |query: &str| shell(&home, "echo started").env("PENSTOCK_DEVICES", query).output().unwrap();
    let output = run("SELECT WHERE device_index = 7");
    assert_eq!((output.status.code(), stdout(&output)), (Some(125), String::new()));
    let expected = "penstock: PENSTOCK_DEVICES selects none of the pool's 3 devices";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    let output = run("SELECT WHERE device_index = 2 AND hostname = 'fake' AND local");
    assert_eq!(stdout(&output), "started\n", "{}", stderr(&output));
    assert_tidy(&home);
}

#[test]
fn failures_of_run_have_their_own_exit_status() {
    let home = Home::new("failures");
    home.start_fake_node();
    let fails = |command: &mut Command, status: i32, part: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert!(
            stderr(&output).starts_with("penstock: ") && stderr(&output).contains(part),
            "{}",
            stderr(&output)
        );
    };
    let node = format!("unix:{}", home.path.join("node.sock").display());
    fails(
        &mut home.penstock(&["run", "--nodes", &node, "--", "no-such-program"]),
        127,
        "no-such-program: there is no such program",
    );
    fails(&mut home.penstock(&["run", "--nodes", &node, "--", "/"]), 126, "cannot run it");
    fails(
        &mut home.penstock(&["run", "--no-local", "true"]),
        125,
        "the pool has no nodes; start a daemon here",
    );
    let nobody = ["run", "--no-local", "--nodes", "unix:/nonexistent", "--", "true"];
    fails(&mut home.penstock(&nobody), 125, "no node of the pool answers");
    fails(
        &mut home.penstock(&["run", "--nodes", "x", "--", "true"]),
        125,
        "argument --nodes: `x` is not the address",
    );
    fails(
        home.penstock(&["run", "true"]).env("PENSTOCK_NODES", "tcp:"),
        125,
        "variable PENSTOCK_NODES: `tcp:`",
    );
    fails(
        shell(&home, "true").env("PENSTOCK_LIB", "/x.so"),
        125,
        "libpenstock_opencl.so is not there; looked for it at /x.so",
    );
    assert_tidy(&home);
}

#[test]
fn status_asks_the_daemons() {
    let home = Home::new("status");
    home.start_fake_node();
    let nodes = format!("unix:{0}/nobody.sock,unix:{0}/node.sock", home.path.display());
    let output = home.penstock(&["status", "--nodes", &nodes]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one of the two nodes is silent");
    let text = stdout(&output);
    let words: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        words,
        [
            "fake",
            &format!("unix:{}/node.sock", home.path.display()),
            "0.0.0",
            // An older daemon says nothing about confinement.
            "-",
            "1",
            "min",
            "0",
            "-",
            "-"
        ]
    );
    assert!(stderr(&output).contains("nobody.sock does not answer: "), "{}", stderr(&output));
    let output = home.penstock(&["status", "--json", "--nodes", &nodes]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["nodes"][0]["answers"], false);
    assert_eq!(json["nodes"][1]["status"]["host"], "fake");
    let nobody = format!("unix:{}/nobody.sock", home.path.display());
    let output = home.penstock(&["status", "--nodes", &nobody]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    // A daemon that a run has started for itself is named by its program, and needs no other node.
    let run = home.path.join("run/penstock/run-4711-0a0b0c0d");
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&run).unwrap();
    Home::start_fake_node_at(run.join("node.sock"), 1, Duration::ZERO);
    let output = home.penstock(&["status"]).output().unwrap();
    // Runs of other tests have rows, too, and change the width of the columns.
    let text = stdout(&output);
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = ["fake", "penstock", "run", "4711", "0.0.0"];
    assert!(rows.any(|row| row.starts_with(&own)), "{text}{}", stderr(&output));
}

#[test]
fn a_key_is_made_once_and_is_private() {
    let home = Home::new("key");
    let output = home.penstock(&["key"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("make one with `penstock key --create`"),
        "{}",
        stderr(&output)
    );
    let made = home.penstock(&["key", "--create", "--path"]).output().unwrap();
    let path = home.path.join(".config/penstock/key");
    assert_eq!(stdout(&made), format!("{}\n", path.display()));
    let text = fs::read_to_string(&path).unwrap();
    let again = home.penstock(&["key", "--create"]).output().unwrap();
    assert!(again.status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "a key was replaced");
    assert!(!stdout(&again).contains(text.trim()), "a key was printed");
}
