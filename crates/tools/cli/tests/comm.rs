//! `penstock bench comm` with real kernels of real workers, and real processes of the host paths.
//! What this host lacks is named.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_trial::{Need, skip};
use serde_json::Value;

/// A home directory for one test.
struct Home {
    path: PathBuf,
}

impl Home {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("penstock-comm-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).unwrap();
        Self { path }
    }

    fn comm(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        for name in [
            "PENSTOCK_NODES",
            "PENSTOCK_KEY",
            "PENSTOCK_LOG",
            "XDG_CONFIG_HOME",
            "PENSTOCK_PROGRAMS",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", &self.path).env("XDG_RUNTIME_DIR", self.path.join("run"));
        // As a user's later runs, the later tests have the kernels of the first one. PoCL takes
        // half a second for the first new program of a process.
        command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command.args(["bench", "comm", "--quick", "--seconds", "0.02"]).args(arguments);
        command
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.path);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the figures. Skips the test and returns `None` if no device of this host can be used.
fn points(document: &Value) -> Option<&Vec<Value>> {
    let points = document["points"].as_array().unwrap();
    if points.is_empty() {
        skip(Need::OpenCl, &document["without"]);
        return None;
    }
    Some(points)
}

#[test]
fn every_path_has_its_figures_and_the_picture_its_lines() {
    let home = Home::new("paths");
    let picture = home.path.join("comm.svg");
    let mut command = home.comm(&["--json", "--sizes", "8", "--devices", "2", "--svg"]);
    command.arg(&picture);
    for path in ["device", "proxy", "host-tcp", "host-tcp-pipelined"] {
        command.args(["--path", path]);
    }
    let document = json(&command.output().unwrap());
    let Some(points) = points(&document) else { return };
    for path in ["device", "proxy", "host-tcp"] {
        let found = ["ping-pong", "bandwidth", "barrier"].map(|kind| count(points, path, kind));
        assert_eq!(found, [1, 1, 1], "{path}: {document:#}");
    }
    assert_eq!(count(points, "host-tcp-pipelined", "ping-pong"), 1, "{document:#}");
    for point in points {
        let number =
            |name: &str| point[name].as_f64().unwrap_or_else(|| panic!("no {name}: {point}"));
        assert!(number("us") > 0.0 && number("core_us") > 0.0, "{point}");
        assert!(number("us_p10") <= number("us") && number("us") <= number("us_p90"), "{point}");
        let checks =
            point["kind"] != "barrier" || point["path"] == "device" || point["path"] == "proxy";
        assert_eq!(number("checked") > 0.0, checks, "{point}");
    }
    let pairs: Vec<_> =
        document["ratios"].as_array().unwrap().iter().map(|it| &it["host"]).collect();
    assert!(pairs.iter().any(|it| **it == "host-tcp"), "{pairs:?}");
    let drawn = fs::read_to_string(picture).unwrap();
    assert!(drawn.matches("<polyline").count() >= 8, "{drawn}");
    let left = fs::read_dir(home.path.join("run/penstock")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "files are left");
}

fn count(points: &[Value], path: &str, kind: &str) -> usize {
    points.iter().filter(|it| it["path"] == path && it["kind"] == kind).count()
}

#[test]
fn every_size_and_every_number_of_devices_has_its_figure() {
    let home = Home::new("sizes");
    let arguments = ["--json", "--sizes", "8,4096", "--devices", "2,3", "--path", "device"];
    let document = json(&home.comm(&arguments).output().unwrap());
    let Some(points) = points(&document) else { return };
    let found = ["ping-pong", "bandwidth", "barrier"].map(|kind| count(points, "device", kind));
    assert_eq!(found, [2, 2, 2], "{document:#}");
}

#[test]
fn a_path_without_its_library_is_skipped_with_the_reason() {
    let home = Home::new("skipped");
    // The directory of the tested program contains no shims, unless somebody has put them there.
    let beside = Path::new(env!("CARGO_BIN_EXE_penstock")).parent().unwrap();
    if fs::read_dir(beside)
        .unwrap()
        .flatten()
        .any(|it| it.file_name().to_string_lossy().starts_with("libwtr_mpi_"))
    {
        skip(Need::NoShims, "the shims are beside the program");
        return;
    }
    let output = home
        .comm(&["--json", "--path", "host-mpi", "--sizes", "8", "--devices", "2"])
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).contains("skipped: host-mpi with 2 devices: no MPI: "),
        "{}",
        text(&output.stderr)
    );
    let document = json(&output);
    assert_eq!(document["without"][0]["is_failure"], false);
    assert_eq!(document["points"], serde_json::json!([]));
}

#[test]
fn without_counters_joules_are_null_with_a_reason_and_can_be_required() {
    let home = Home::new("no-energy");
    fs::create_dir_all(home.path.join("node/sys")).unwrap();
    let arguments = ["--json", "--path", "device", "--sizes", "8", "--devices", "2"];
    let command = |more: &[&str]| {
        let mut command = home.comm(&arguments);
        command.args(more).env("PENSTOCK_ENERGY_ROOT", home.path.join("node"));
        command.env("PENSTOCK_ENERGY_NVML", "/no/such/libnvidia-ml.so.1");
        command.output().unwrap()
    };
    let document = json(&command(&[]));
    let Some(points) = points(&document) else { return };
    for point in points {
        assert_eq!(point["energy"]["joules"], Value::Null);
        assert!(point["energy"]["unavailable"].as_str().is_some_and(|it| it.len() > 10), "{point}");
        assert!(point["core_us"].as_f64().is_some_and(|it| it > 0.0), "{point}");
    }
    let output = command(&["--require-energy"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no energy can be measured"), "{}", text(&output.stderr));
}

/// Measures while a thread advances a counter at 100 W. Returns what was measured.
fn points_at_100_watts() -> Option<Vec<Value>> {
    let home = Home::new("energy");
    let zone = home.path.join("node/sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("name"), "package-0\n").unwrap();
    fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
    let counter = fs::File::create(zone.join("energy_uj")).unwrap();
    counter.write_all_at(format!("{:020}\n", 0).as_bytes(), 0).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (shared, began) = (Arc::clone(&is_over), Instant::now());
    let turn = thread::spawn(move || {
        while !shared.load(Ordering::Relaxed) {
            let micros = began.elapsed().as_micros() * 100;
            counter.write_all_at(format!("{micros:020}\n").as_bytes(), 0).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let mut command =
        home.comm(&["--json", "--path", "host-tcp", "--sizes", "64", "--devices", "2"]);
    command.env("PENSTOCK_ENERGY_ROOT", home.path.join("node"));
    command.env("PENSTOCK_ENERGY_NVML", "/no/such/libnvidia-ml.so.1").arg("--require-energy");
    let output = command.output().unwrap();
    is_over.store(true, Ordering::Relaxed);
    turn.join().unwrap();
    if text(&output.stderr).contains("nothing was measured") {
        skip(Need::OpenCl, text(&output.stderr));
        return None;
    }
    let document = json(&output);
    for point in points(&document).expect("there is energy") {
        assert_eq!(point["energy"]["covered"], serde_json::json!(["package-0"]));
        assert!(point["energy"]["net_joules"].is_f64(), "{point}");
    }
    points(&document).cloned()
}

#[test]
#[ignore = "long: each figure of energy takes two seconds of all cores"]
fn long_joules_by_word_are_the_counters() {
    for point in points_at_100_watts().unwrap_or_default() {
        assert!(point["energy"]["joules"].as_f64().is_some_and(|it| it > 0.0), "{point}");
    }
}

/// The joules per word must be the power of the counter times the time of a message.
#[test]
#[ignore = "perf: the thread that advances the counter must run often"]
fn perf_joules_by_word_are_those_of_the_time() {
    for point in points_at_100_watts().unwrap_or_default() {
        let joules = point["energy"]["joules"].as_f64().unwrap_or_else(|| panic!("{point}"));
        let parts = if point["kind"] == "barrier" { 1.0 } else { 8.0 };
        // Half a round trip takes half of the energy. The measured span is a little longer than the
        // sum of its messages.
        let expected = 100.0 * point["us_mean"].as_f64().unwrap() * 1e-6 / parts;
        assert!(
            (0.9..1.6).contains(&(joules / expected)),
            "{joules} J by word, not {expected}: {point}"
        );
    }
}
