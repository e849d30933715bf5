//! Commands in surroundings that other software leaves behind: signals, limits, folders.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Home, copy_program, stderr, stdout};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// Returns the command after `prefix`, a shell's words that end with `exec`.
fn after(prefix: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{prefix} exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn assert_ends_with(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", stderr(output));
    assert_eq!(stderr(output), "");
}

#[test]
fn a_parent_may_ignore_signals() {
    let home = Home::new("signals");
    home.start_fake_node();
    // What a program sees that such a parent starts without Penstock.
    let ignoring = "trap '' CHLD XFSZ HUP;";
    let show = ["grep", "SigIgn", "/proc/self/status"];
    let mut plain = Command::new(show[0]);
    plain.args(&show[1..]);
    let measured = home.path.join("figures");
    let mut energy = home.penstock(&["energy", "--idle", "0", "--output"]);
    energy.arg(&measured).arg("--").args(show);
    for prefix in [ignoring, ""] {
        let expected = ignored(&after(prefix, &plain).output().unwrap());
        let output = after(prefix, &home.run_on_fake_node(&show)).output().unwrap();
        assert_ends_with(&output, 0);
        assert_eq!(ignored(&output), expected, "the command leaves no traces in the program");
        let output = after(prefix, &energy).output().unwrap();
        assert_eq!(ignored(&output), expected, "neither does one that waits for the program");
    }
    let run = home.run_on_fake_node(&["sh", "-c", "exit 7"]);
    assert_ends_with(&after(ignoring, &run).output().unwrap(), 7);
}

/// Returns the ignored signals up to 31. Those above belong to the C library.
fn ignored(output: &Output) -> u64 {
    let text = stdout(output);
    let mask = text.split_whitespace().nth(1).unwrap();
    u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff
}

#[test]
fn a_runtime_directory_may_have_any_name() {
    for (test, name) in [("comma", b"a,b".as_slice()), ("bytes", b"\xff\xfe")] {
        let home = Home::new(test);
        let runtime = home.path.join(OsStr::from_bytes(name));
        let own = runtime.join("penstock");
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&own).unwrap();
        Home::start_fake_node_at(own.join("penstockd.sock"), 1, Duration::ZERO);
        // The program asks the same node by what it was given.
        let ask = format!("{} status", env!("CARGO_BIN_EXE_penstock"));
        let mut run = home.penstock(&["run", "--", "sh", "-c", &ask]);
        let output = run.env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
        assert_ends_with(&output, 0);
        let text = stdout(&output);
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert!(rows.any(|row| row.starts_with(&["fake", "local"])), "{text}");
    }
}

#[test]
fn the_arguments_of_a_program_are_any_bytes() {
    let home = Home::new("arguments");
    home.start_fake_node();
    let word = OsString::from_vec(b"b\xfcro\xff".to_vec());
    let mut run = home.run_on_fake_node(&["printf", "%s"]);
    let output = run.arg(&word).env("PENSTOCK_OTHER", &word).output().unwrap();
    assert_ends_with(&output, 0);
    assert_eq!(output.stdout, word.as_bytes());
}

#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    let home = Home::new("size");
    let mut energy = home.penstock(&["energy", "--idle", "0", "--output"]);
    energy.arg(home.path.join("figures")).args(["--", "true"]);
    let output = after("ulimit -f 0;", &energy).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code > 0), "{}", output.status);
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
}

#[test]
fn a_home_may_be_closed_to_the_user() {
    // Only root can become another user, and nobody's files are closed to root.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new("closed");
    let place = std::env::temp_dir().join(format!("penstock-open-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o755).create(&place).unwrap();
    // The folders above the build may be closed, too.
    let penstock = place.join("penstock");
    copy_program(Path::new(env!("CARGO_BIN_EXE_penstock")), &penstock);
    fs::write(place.join("library.so"), "").unwrap();
    fs::set_permissions(&home.path, fs::Permissions::from_mode(0o700)).unwrap();
    // A home of this user, with a folder that may hold the names of nodes and cannot be entered.
    let own_home = place.join("home");
    fs::create_dir_all(own_home.join(".config/penstock")).unwrap();
    fs::set_permissions(own_home.join(".config/penstock"), fs::Permissions::from_mode(0o0))
        .unwrap();
    std::os::unix::fs::chown(&own_home, Some(NOBODY), Some(NOBODY)).unwrap();
    let (socket, runtime) = (place.join("node.sock"), place.join("run"));
    Home::start_fake_node_at(socket.clone(), 1, Duration::ZERO);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
    let node = format!("unix:{}", socket.display());
    let user = NOBODY.to_string();
    let usual = home.penstock(&[]);
    let mut run = Command::new("setpriv");
    run.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(&penstock);
    run.args(["run", "--nodes", &node, "--", "sh", "-c", "exit 7"]);
    run.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run.env("XDG_RUNTIME_DIR", &runtime).env("PENSTOCK_LIB", place.join("library.so"));
    let output = run.output().unwrap();
    let refused = run.env("HOME", &own_home).output().unwrap();
    fs::remove_dir_all(&place).unwrap();
    assert_ends_with(&output, 7);
    assert_eq!(refused.status.code(), Some(125), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("pool.toml: Permission denied"), "{}", stderr(&refused));
}
