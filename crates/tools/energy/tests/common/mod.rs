//! A node made of files: a tree that stands for `/`, and a mill that turns its counters.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use penstock_energy::{Channel, Figure, Options, Report, Roots};
use penstock_process::Lock;

/// A directory that stands for `/`, and is removed with this value.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    pub fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("penstock-energy-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let tree = Self { root };
        tree.put("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 1 2 3\n");
        tree
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn put(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Makes a zone of powercap and returns its counter.
    pub fn zone(&self, zone: &str, name: &str, range: u64) -> Dial {
        let directory = format!("sys/class/powercap/{zone}");
        self.put(&format!("{directory}/name"), format!("{name}\n"));
        self.put(&format!("{directory}/max_energy_range_uj"), format!("{range}\n"));
        Dial::new(&self.put(&format!("{directory}/energy_uj"), ""), Some(range))
    }

    /// Makes the PMU `power` with these events and counters on these CPUs, each in its own package.
    pub fn pmu(&self, events: &[(&str, u64)], cpus: &[u32]) -> Vec<Dial> {
        let pmu = "sys/bus/event_source/devices/power";
        let mask: Vec<_> = cpus.iter().map(ToString::to_string).collect();
        self.put(&format!("{pmu}/type"), "9\n");
        self.put(&format!("{pmu}/cpumask"), format!("{}\n", mask.join(",")));
        self.put(&format!("{pmu}/format/event"), "config:0-7\n");
        let mut dials = Vec::new();
        for (event, config) in events {
            self.put(&format!("{pmu}/events/{event}"), format!("event={config:#04x}\n"));
            self.put(&format!("{pmu}/events/{event}.unit"), "Joules\n");
            self.put(&format!("{pmu}/events/{event}.scale"), "2.3283064365386962890625e-10\n");
            for cpu in cpus {
                dials.push(Dial::new(&self.put(&format!("perf/9-{config:x}-{cpu}"), ""), None));
            }
        }
        for (package, cpu) in cpus.iter().enumerate() {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            self.put(&format!("{topology}/physical_package_id"), format!("{package}\n"));
            self.put(&format!("{topology}/die_id"), "0\n");
        }
        dials
    }

    /// Compiles a stub of NVML, which reads its answers from files in its folder.
    pub fn nvml(&self, source: &str) -> PathBuf {
        let library = self.root.join("libnvidia-ml.so.1");
        compile(&["-shared", "-fPIC", "-o", library.to_str().unwrap(), &stub(source)]);
        library
    }

    pub fn options(&self) -> Options {
        let mut roots = Roots::below(&self.root);
        // The host's own library must not be used.
        roots.nvml = Some(self.root.join("libnvidia-ml.so.1"));
        // A short watch keeps the tests of dead counters short.
        Options { watch: Duration::from_millis(200), ..Options::with_roots(roots) }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.root);
    }
}

pub fn stub(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub").join(name).to_str().unwrap().to_owned()
}

pub fn compile(arguments: &[&str]) {
    let status = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"])
        .args(arguments)
        .status();
    assert!(status.expect("the tests need a C compiler").success(), "cc {arguments:?} failed");
}

/// A file with a number, written in place with a fixed width, so that no reader sees half of it.
pub struct Dial {
    file: File,
    path: PathBuf,
    range: Option<u64>,
    value: u64,
    /// Sum of all units that were ever added.
    pub sum: u128,
}

impl Dial {
    pub fn new(path: &Path, range: Option<u64>) -> Self {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        let dial = Self { file, path: path.to_path_buf(), range, value: 0, sum: 0 };
        dial.show();
        dial
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn set(&mut self, value: u64) {
        self.value = value;
        self.show();
    }

    pub fn add(&mut self, units: u64) {
        self.sum += u128::from(units);
        self.value = match self.range {
            Some(range) => (self.value + units) % range,
            None => self.value + units,
        };
        self.show();
    }

    fn show(&self) {
        self.file.write_all_at(format!("{:020}\n", self.value).as_bytes(), 0).unwrap();
    }
}

/// Turns dials at constant rates, in units per second.
pub struct Mill {
    state: Arc<Lock<State>>,
    thread: Option<JoinHandle<()>>,
}

pub struct State {
    pub dials: Vec<(Dial, u64)>,
    turned_at: Instant,
    is_over: bool,
}

impl State {
    fn turn(&mut self) {
        let now = Instant::now();
        let micros = u64::try_from((now - self.turned_at).as_micros()).unwrap();
        self.turned_at = now;
        for (dial, rate) in &mut self.dials {
            dial.add(*rate * micros / 1_000_000);
        }
    }

    pub fn sum(&self, index: usize) -> u128 {
        self.dials[index].0.sum
    }
}

impl Mill {
    pub fn start(dials: Vec<(Dial, u64)>) -> Self {
        let state = State { dials, turned_at: Instant::now(), is_over: false };
        let state = Arc::new(Lock::new(state));
        let shared = Arc::clone(&state);
        let turn = move || {
            loop {
                {
                    let mut state = shared.lock();
                    if state.is_over {
                        return;
                    }
                    state.turn();
                }
                thread::sleep(Duration::from_millis(1));
            }
        };
        Self { state, thread: Some(thread::spawn(turn)) }
    }

    /// Stops the dials while the guard lives.
    pub fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Stops the dials for good and returns them.
    pub fn stop(mut self) -> Vec<Dial> {
        self.end();
        std::mem::take(&mut self.state.lock().dials).into_iter().map(|(dial, _)| dial).collect()
    }

    fn end(&mut self) {
        self.state.lock().is_over = true;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Mill {
    fn drop(&mut self) {
        self.end();
    }
}

/// Maps channels such as "powercap package-0" to "live" or to the kind of the reason.
pub fn states(channels: &[Channel]) -> BTreeMap<String, &'static str> {
    let state = |it: &Channel| it.unavailable.as_ref().map_or("live", |reason| reason.kind());
    channels.iter().map(|it| (format!("{} {}", it.source, it.component), state(it))).collect()
}

pub fn figure<'a>(report: &'a Report, source: &str, component: &str) -> &'a Figure {
    let found =
        report.figures.iter().find(|it| it.source.name() == source && it.component == component);
    found.unwrap_or_else(|| panic!("no {source} {component} in {:#?}", report.figures))
}

/// Asserts that joules are within 1 % of what was injected.
pub fn assert_joules(measured: Option<f64>, injected: f64, what: &str) {
    let measured = measured.unwrap_or_else(|| panic!("{what} was not measured"));
    let error = (measured - injected) / injected;
    eprintln!("{what}: {measured:.6} J of {injected:.6} J injected ({:+.5} %)", error * 100.0);
    assert!(error.abs() < 0.01, "{what}: {measured} J of {injected} J");
}
