//! The daemon as a process, and its clients.
#![allow(dead_code, clippy::missing_panics_doc, reason = "each test uses a part")]

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{Client, Devices};
use penstock_link::{Address, LinkError, Opened, Progress, Side, Trust};
use penstock_trial::{Need, compiler, deadline, is_compiled, patience};
use penstock_wire::calls::to_client;
use penstock_wire::describe::{NodeDescription, Survey};
use penstock_wire::frame;
use penstock_wire::hello::Role;
use rustix::process::{Pid, Signal, kill_process};

pub struct Daemon {
    pub process: Child,
    pub addresses: Vec<Address>,
    pub directory: PathBuf,
}

impl Daemon {
    pub fn start(name: &str, options: &[&str]) -> Self {
        Self::start_with(name, options, &[])
    }

    pub fn start_with(name: &str, options: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_on(crate::DEVICES, name, options, environment)
    }

    pub fn start_on(
        devices: Devices,
        name: &str,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let platform: &[&str] =
            if devices == Devices::Simulated { &["--platform", "null"] } else { &[] };
        let directory = directory(name);
        std::fs::create_dir_all(&directory).unwrap();
        let listen = format!("unix:{}", directory.join("socket").display());
        let mut process = Command::new(env!("CARGO_BIN_EXE_penstockd"))
            .args(["--listen", &listen])
            .args(options)
            .args(platform)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let count = 1 + options.iter().filter(|option| **option == "--listen").count();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().take(count);
        let address = |line: String| line.strip_prefix("listening on ").unwrap().parse().unwrap();
        let addresses = lines.map(|line| address(line.unwrap())).collect();
        Self { process, addresses, directory }
    }

    pub fn open<'a>(
        &self,
        trust: impl Into<Trust<'a>>,
        address: usize,
    ) -> Result<(Client, NodeDescription), LinkError> {
        Self::open_at(&self.addresses[address], trust)
    }

    pub fn open_at<'a>(
        address: &Address,
        trust: impl Into<Trust<'a>>,
    ) -> Result<(Client, NodeDescription), LinkError> {
        let deadline = deadline();
        let opened = penstock_link::open(address, Role::Client, None, trust, deadline)?;
        let mut size = [0; 4];
        opened.stream.read_exact_until(&mut size, deadline)?;
        let mut bytes = vec![0; u32::from_le_bytes(size) as usize];
        opened.stream.read_exact_until(&mut bytes, deadline)?;
        let description = frame::decode("a description", &bytes).unwrap();
        let (sender, receiver) = penstock_link::establish(
            opened.stream,
            opened.features,
            Side::Client,
            to_client::check,
        )?;
        Ok((Client::of_link(sender, receiver), description))
    }

    pub fn client(&self) -> (Client, NodeDescription) {
        self.open(None, 0).unwrap()
    }

    /// Opens a link as clients do. Also returns what the client heard before that.
    pub fn wait_in_line(&self) -> (Result<Opened, LinkError>, Vec<Progress>) {
        let mut heard = Vec::new();
        (self.watch_line(&mut |progress| heard.push(progress)), heard)
    }

    /// Opens a link as clients do, and passes on what the client hears before that.
    pub fn watch_line(&self, hear: &mut dyn FnMut(Progress)) -> Result<Opened, LinkError> {
        let mut watch = |progress| {
            hear(progress);
            ControlFlow::Continue(())
        };
        let address = &self.addresses[0];
        penstock_link::open_patiently(address, Role::Client, None, patience(), true, &mut watch)
    }

    pub fn survey(&self) -> Survey {
        let deadline = deadline();
        let opened =
            penstock_link::open(&self.addresses[0], Role::Survey, None, None, deadline).unwrap();
        let mut size = [0; 4];
        opened.stream.read_exact_until(&mut size, deadline).unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(size) as usize];
        opened.stream.read_exact_until(&mut bytes, deadline).unwrap();
        frame::decode("a survey", &bytes).unwrap()
    }

    /// Returns why the daemon refuses a survey.
    pub fn survey_refused(&self) -> LinkError {
        let mut go_on = |_: Progress| ControlFlow::Continue(());
        let address = &self.addresses[0];
        let (role, patience) = (Role::Survey, patience());
        penstock_link::open_patiently(address, role, None, patience, true, &mut go_on).unwrap_err()
    }

    pub fn status(&self) -> serde_json::Value {
        let deadline = deadline();
        let opened =
            penstock_link::open(&self.addresses[0], Role::Control, None, None, deadline).unwrap();
        let mut size = [0; 4];
        opened.stream.read_exact_until(&mut size, deadline).unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(size) as usize];
        opened.stream.read_exact_until(&mut bytes, deadline).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    pub fn sessions(&self) -> usize {
        self.status()["sessions"].as_array().unwrap().len()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A daemon that has ended already is reaped all the same.
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn is_alive(process: u32) -> bool {
    // A zombie has ended.
    let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    state
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

pub fn works(client: &mut Client) {
    let context = client.context();
    let queue = client.queue(context, 0);
    let mem = client.buffer(context, 1000);
    client.write(queue, mem, 0, &[7; 1000]);
    assert_eq!(client.read(queue, mem, 1000), [7; 1000]);
}

/// Returns the folder of the daemon with this name.
pub fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("penstockd-{}-{name}", std::process::id()))
}

/// Builds a library in place of the OpenCL loader that runs `code` when it is loaded; `None`
/// without a C compiler. It is in the folder of the daemon with this name, and is removed with it.
pub fn loader(name: &str, code: &str) -> Option<PathBuf> {
    let directory = directory(name);
    std::fs::create_dir_all(&directory).unwrap();
    let (source, library) = (directory.join("loader.c"), directory.join("libloader.so"));
    let text = format!(
        "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) static void f(void) {{ {code} }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let mut command = compiler();
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    is_compiled(&mut command, Need::Compiler).then_some(library)
}
