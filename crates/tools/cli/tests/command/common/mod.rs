//! Code that the tests of the command share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use penstock_link::{Address, Listener, accept_hello};
use penstock_wire::describe::{
    DeviceDescription, NodeDescription, PlatformDescription, Survey, Turn,
};
use penstock_wire::frame;
use penstock_wire::hello::{Role, Verdict};

/// A home directory for one test, removed at the end.
pub struct Home {
    pub path: PathBuf,
}

impl Home {
    pub fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("penstock-cli-{process}-{number}-{name}"));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).unwrap();
        fs::write(path.join("library.so"), "").unwrap();
        Self { path }
    }

    /// Returns the command, without any configuration from the environment.
    pub fn penstock(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        for name in [
            "PENSTOCK_NODES",
            "PENSTOCK_DEVICES",
            "PENSTOCK_KEY",
            "PENSTOCK_ENCRYPTION",
            "PENSTOCK_LOG",
            "SLURM_JOB_NODELIST",
            "XDG_CONFIG_HOME",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", &self.path).env("XDG_RUNTIME_DIR", self.path.join("run"));
        command
            .env("PENSTOCK_LIB", self.path.join("library.so"))
            .env("PENSTOCK_TIMEOUT_MS", "60000");
        command.args(args);
        command
    }

    /// Starts a node that only answers probes, so that no OpenCL is needed.
    pub fn start_fake_node(&self) {
        self.start_fake_node_with(1, Duration::ZERO);
    }

    /// As [`Self::start_fake_node`], with a number of devices and a delay before each answer. The
    /// node sends nothing during the delay.
    pub fn start_fake_node_with(&self, devices: u32, delay: Duration) {
        Self::start_fake_node_at(self.path.join("node.sock"), devices, delay);
    }

    /// As [`Self::start_fake_node_with`], at this socket.
    pub fn start_fake_node_at(socket: PathBuf, devices: u32, delay: Duration) {
        let status = r#"{"host":"fake","version":"0.0.0","uptime_s":61,"sessions":[]}"#;
        Self::start_fake_node_saying(socket, devices, delay, || status.to_owned());
    }

    /// As [`Self::start_fake_node_at`], with what this returns as its status.
    pub fn start_fake_node_saying(
        socket: PathBuf,
        devices: u32,
        delay: Duration,
        mut status: impl FnMut() -> String + Send + 'static,
    ) {
        let listener = Listener::bind(&Address::unix(socket)).unwrap();
        thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                thread::sleep(delay);
                let deadline = penstock_trial::deadline();
                let Ok(accepted) = accept_hello(stream, None, &|_| true, deadline) else {
                    continue;
                };
                let answer = match accepted.role {
                    Role::Control => status().into_bytes(),
                    Role::Survey => frame::encode(&fake_survey(devices)),
                    other => panic!("{other:?} came to a node that only answers probes"),
                };
                let Ok(stream) = accepted.finish(Verdict::Welcome) else { continue };
                let length = u32::try_from(answer.len()).unwrap().to_le_bytes();
                _ = stream.write_all_until(&[&length[..], &answer].concat(), deadline);
            }
        });
    }

    /// Returns `penstock run` with that node.
    pub fn run_on_fake_node(&self, program: &[&str]) -> Command {
        let node = format!("unix:{}", self.path.join("node.sock").display());
        let mut command = self.penstock(&["run", "--nodes", &node, "--no-local", "--"]);
        command.args(program);
        command
    }
}

/// The fake node's survey.
fn fake_survey(devices: u32) -> Survey {
    let device = |index| DeviceDescription { index, ..DeviceDescription::default() };
    let platform =
        PlatformDescription { info: Vec::new(), devices: (0..devices).map(device).collect() };
    let node = NodeDescription {
        host: "fake".into(),
        boot: String::new(),
        worker: 0,
        version: "0.0.0".into(),
        addresses: Vec::new(),
        platforms: vec![platform],
        turn: Turn::default(),
    };
    Survey { node, problem: (devices == 0).then(|| "its driver is gone".to_owned()) }
}

impl Drop for Home {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies a program that the test will start. A process of its own does so. If this one had the
/// copy open for writing, a child that another test starts at this time would have it open as well,
/// and the copy could not be executed.
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
