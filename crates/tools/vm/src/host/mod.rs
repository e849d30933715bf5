//! The host's side: starts QEMU for a guest, and carries the input and output of its program.
//!
//! All processes that this module starts end with this one, also if this one is killed: see
//! [`bound`].

pub mod bound;
mod carry;
mod console;
mod helper;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::error::VmError;
use crate::limits::{BOOT_MAX, CONNECT_MAX, KVM_BOOT_MAX};
use crate::machine::{Accelerator, Machine, Vsock};
use bound::{Bound, Waited};
use carry::{Broken, Carrier};
use console::Console;

/// What runs guests on this host.
#[derive(Clone, Debug)]
pub struct Tools {
    pub qemu: PathBuf,
    /// `vhost-device-vsock`.
    pub vsock_helper: Option<PathBuf>,
    /// The command `penstock`, which binds the life of a process to that of this one.
    pub penstock: PathBuf,
}

/// A guest to run.
#[derive(Debug)]
pub struct Plan<'a> {
    pub machine: Machine,
    pub tools: &'a Tools,
    /// `PATH` of the monitor's sockets, if a helper ends vsock.
    pub vsock_path: PathBuf,
    /// Longest time that the program may take.
    pub program_max: Option<Duration>,
    /// Whether the guest's console is shown on standard error.
    pub shows_console: bool,
    /// Line for standard error when the program starts.
    pub announcement: String,
}

/// What became of a guest and its program.
#[derive(Clone, Debug)]
pub struct Report {
    pub end: End,
    /// Time until the program started.
    pub boot: Duration,
    /// Time of the program.
    pub program: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended with this status.
    Exit(u8),
    NotStarted {
        /// Exit status for it: 126 or 127 as of a shell, 125 if the guest itself failed.
        status: u8,
        why: String,
    },
    /// The program took longer than it may.
    TooLong,
}

/// Why there is no report.
#[derive(Debug)]
pub struct Stopped {
    pub error: VmError,
    /// Whether the program had started.
    pub had_started: bool,
}

/// Runs the guest until its program has ended.
pub fn run(plan: &Plan<'_>) -> Result<Report, Stopped> {
    let before = |error| Stopped { error, had_started: false };
    let _helper = match &plan.machine.vsock {
        Some(Vsock::Helper { socket }) => {
            Some(helper::start(plan.tools, socket, &plan.vsock_path).map_err(before)?)
        }
        _ => None,
    };
    let socket = &plan.machine.port;
    // An earlier guest may have had it.
    _ = std::fs::remove_file(socket);
    let listener =
        UnixListener::bind(socket).map_err(VmError::file(socket, "listen at")).map_err(before)?;
    let began = Instant::now();
    let mut qemu = Qemu::start(plan).map_err(before)?;
    let stream = match qemu.connection(&listener) {
        Ok(stream) => stream,
        Err(what) => return Err(before(qemu.explain(what))),
    };
    let boot_max = match plan.machine.accelerator {
        Accelerator::Kvm => KVM_BOOT_MAX,
        Accelerator::Tcg => BOOT_MAX,
    };
    let mut carrier = Carrier::new(stream, began, began + boot_max, plan.program_max);
    carrier.until_end(&plan.announcement).map_err(|broken| Stopped {
        error: match broken {
            Broken::Guest(what) => qemu.explain(what),
            Broken::Other(error) => error,
        },
        had_started: carrier.has_started(),
    })
}

#[derive(Debug)]
struct Qemu {
    process: Bound,
    console: Console,
}

impl Qemu {
    fn start(plan: &Plan<'_>) -> Result<Self, VmError> {
        let mut command = bound::command(plan.tools, &plan.tools.qemu);
        command.args(plan.machine.qemu_arguments());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Bound::start(command, "QEMU")?;
        let failed = |error| VmError::Process {
            what: "a thread that reads what QEMU says".to_owned(),
            how: format!("it could not start: {error}"),
        };
        let console = Console::watch(process.child(), plan.shows_console).map_err(failed)?;
        Ok(Self { process, console })
    }

    /// Waits until QEMU connects the virtio port. Fails with what happened instead.
    fn connection(&mut self, listener: &UnixListener) -> Result<UnixStream, String> {
        let waited = self.process.wait_for(listener, CONNECT_MAX);
        match waited.map_err(|error| error.to_string())? {
            Waited::Ready => listener.accept().map(|(it, _)| it).map_err(|it| it.to_string()),
            Waited::Ended => Err("QEMU ended at once".to_owned()),
            Waited::Late => Err(format!("QEMU did not start within {} s", CONNECT_MAX.as_secs())),
        }
    }

    /// Ends QEMU and returns the error with the end of the console.
    fn explain(&mut self, what: String) -> VmError {
        let how = self.process.end();
        let what = how.map_or(what.clone(), |how| format!("{what} ({how})"));
        VmError::Guest { what, console: self.console.last_lines() }
    }
}
