//! `penstock doctor`: exit status, JSON, copies, and the hint of `penstock devices`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::Home;
use serde_json::Value;

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn healthy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../doctor/tests/trees/{name}.tree"))
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Writes a healthy host with these changes, and examines it.
fn examine(home: &Home, changes: &str, args: &[&str]) -> Output {
    let tree = fs::read_to_string(healthy("host")).unwrap() + changes;
    let path = home.path.join("changed.tree");
    fs::write(&path, tree).unwrap();
    home.penstock(&["doctor", "--root", path.to_str().unwrap()]).args(args).output().unwrap()
}

#[test]
fn the_exit_status_is_that_of_the_worst_finding() {
    let home = Home::new("doctor-status");
    for (changes, status, summary) in [
        ("", 0, "0 errors, 0 warnings, 0 notes"),
        ("proc/sys/kernel/numa_balancing = 1\n", 0, "0 errors, 0 warnings, 1 note"),
        ("proc/sys/vm/zone_reclaim_mode = 1\n", 1, "0 errors, 1 warning, 0 notes"),
        ("- dev/nvidiactl\nproc/sys/vm/zone_reclaim_mode = 1\n", 2, "1 error, 1 warning, 0 notes"),
    ] {
        let output = examine(&home, changes, &[]);
        let (shown, errors) = text(&output);
        assert_eq!(output.status.code(), Some(status), "{shown}{errors}");
        assert!(shown.trim_end().ends_with(summary), "{shown}");
    }
    let output = home.penstock(&["doctor", "--root", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{:?}", text(&output));
    let output = home.penstock(&["doctor", "--nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_json_has_the_documented_fields() {
    let home = Home::new("doctor-json");
    let output = examine(&home, "- dev/nvidiactl\n", &["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&json), ["checks", "errors", "findings", "format", "notes", "warnings"]);
    assert_eq!((&json["format"], &json["errors"]), (&1.into(), &1.into()));
    let finding = &json["findings"][0];
    assert_eq!(names(finding), ["check", "repair", "seen", "severity", "topic", "where", "why"]);
    assert_eq!(finding["check"], "device-nodes");
    assert_eq!((&finding["severity"], &finding["topic"]), (&"error".into(), &"devices".into()));
}

#[test]
fn a_copy_of_this_host_gives_its_findings_and_has_no_key() {
    let home = Home::new("doctor-copy");
    let folder = home.path.join(".config/penstock");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("key"), KEY).unwrap();
    fs::write(folder.join("pool.toml"), "nodes = [\"tcp:penstock-secret.invalid\"]\n").unwrap();
    let run = |args: &[&str]| {
        let output =
            home.penstock(&["doctor"]).env("PENSTOCK_TIMEOUT_MS", "500").args(args).output();
        output.unwrap()
    };
    let checks = |output: &Output| -> Vec<String> {
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = json["findings"].as_array().unwrap().iter();
        findings.map(|it| format!("{} {}", it["check"], it["severity"])).collect()
    };
    let here = run(&["--json"]);
    let found = checks(&here);
    // The key may be read by others, and the node does not exist.
    assert!(found.contains(&r#""key-mode" "error""#.to_owned()), "{found:?}");
    assert!(found.contains(&r#""node-silent" "warning""#.to_owned()), "{found:?}");
    let file = home.path.join("copy");
    let directory = home.path.join("directory/");
    for path in [&file, &directory] {
        let path = path.to_str().unwrap();
        let written = run(&["--collect", path]);
        assert_eq!(written.status.code(), Some(0), "{:?}", text(&written));
        let there = run(&["--json", "--root", path]);
        assert_eq!((checks(&there), there.status.code()), (found.clone(), here.status.code()));
    }
    let copied = fs::read_to_string(&file).unwrap();
    let own = home.path.file_name().unwrap().to_str().unwrap();
    for secret in [KEY, "penstock-secret", own] {
        assert!(!copied.contains(secret), "{secret}");
    }
    // A copy replaces nothing.
    let again = run(&["--collect", file.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(125), "{:?}", text(&again));
}

#[test]
fn without_a_device_the_doctor_is_named() {
    let home = Home::new("doctor-hint");
    // The ICD loader is sent to a directory that does not exist: that is the reason. The daemon of
    // the local devices answers, and has none.
    let mut command = home.penstock(&["devices"]);
    let output = command.env("OCL_ICD_VENDORS", "/nowhere/vendors").output().unwrap();
    let (shown, errors) = text(&output);
    assert_eq!(shown.lines().count(), 1, "{shown}{errors}");
    let cause = "the most likely cause on this host: OCL_ICD_VENDORS is /nowhere/vendors";
    let count = |text: &str| errors.matches(text).count();
    assert_eq!((count(cause), count("run `penstock doctor`")), (1, 1), "{errors}");
    // Without the local devices, the cause is the empty list of nodes, and the message says so.
    let output = home.penstock(&["devices", "--no-local"]).output().unwrap();
    let (_, errors) = text(&output);
    assert!(
        !errors.contains("run `penstock doctor`") && errors.contains("has no nodes"),
        "{errors}"
    );
}
