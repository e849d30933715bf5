//! What the tests of the command share.
#![allow(dead_code, reason = "no file of tests uses all of it")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{Address, Listener, accept_hello};
use penstock_wire::hello::{Role, Verdict};

/// How long a probe may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A home of its own for each test, removed at the end.
pub struct Home {
    pub path: PathBuf,
}

impl Home {
    /// Names are unique within a file of tests, which is a process.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-cli-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("run")).unwrap();
        fs::write(path.join("library.so"), "").unwrap();
        Self { path }
    }

    /// The command, with nothing of the environment's configuration.
    pub fn penstock(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        for name in
            ["PENSTOCK_NODES", "PENSTOCK_KEY", "PENSTOCK_LOG", "SLURM_JOB_NODELIST", "XDG_CONFIG_HOME"]
        {
            command.env_remove(name);
        }
        command.env("HOME", &self.path).env("XDG_RUNTIME_DIR", self.path.join("run"));
        command.env("PENSTOCK_LIB", self.path.join("library.so")).env("PENSTOCK_TIMEOUT_MS", "20000");
        command.args(args);
        command
    }

    /// Starts a node that only answers the probe, so that no OpenCL is needed.
    pub fn start_fake_node(&self) {
        let listener = Listener::bind(&Address::Unix(self.path.join("node.sock"))).unwrap();
        thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                let deadline = Instant::now() + PATIENCE;
                let Ok(accepted) = accept_hello(stream, None, &|_| true, deadline) else { continue };
                assert_eq!(accepted.role, Role::Control);
                let Ok(stream) = accepted.finish(Verdict::Welcome) else { continue };
                let json = br#"{"host":"fake","version":"0.0.0","uptime_s":61,"sessions":[]}"#;
                let length = u32::try_from(json.len()).unwrap().to_le_bytes();
                _ = stream.write_all_until(&[&length[..], json].concat(), deadline);
            }
        });
    }

    /// `penstock run` on that node.
    pub fn run_on_fake_node(&self, program: &[&str]) -> Command {
        let node = format!("unix:{}", self.path.join("node.sock").display());
        let mut command = self.penstock(&["run", "--nodes", &node, "--no-local", "--"]);
        command.args(program);
        command
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.path);
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
