//! The start of a worker's process: its environment, its folder, and its first message.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use penstock_confine::environment::{self, PRIVATE};
use penstock_confine::files::WRITTEN_VARIABLES;
use penstock_confine::{Level, Network, Order};
use penstock_process::variable;
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustix::process::PidfdFlags;

use crate::folders::{Folder, Folders};
use crate::log::Log;
use crate::message::{Control, ToWorker};
use crate::transport::Transport;

/// What all workers of a daemon are started with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// Addresses of the daemon for other nodes.
    pub(crate) addresses: Vec<String>,
    /// File of the pool's key, which workers do not read.
    pub(crate) key: Option<PathBuf>,
    pub(crate) log: Log,
    /// How far workers confine themselves.
    pub(crate) level: Level,
    /// Whether clients may be in guests.
    pub(crate) asks_guests: bool,
    /// Where their folders are. Workers that are not confined may have none.
    pub(crate) folders: Option<Arc<Folders>>,
}

/// A process that becomes a worker.
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) control: Control,
    /// Becomes readable when the process has ended. A hang-up of the control socket does not say
    /// that: a kernel can leave a process behind that has this socket, too. `None` if the system
    /// has no such descriptors (before Linux 5.3) or none left.
    pub(crate) exit: Option<OwnedFd>,
    pub(crate) folder: Option<Folder>,
}

impl Launch {
    /// Starts a worker.
    pub(crate) fn start(&self) -> io::Result<Launched> {
        let folder = self.folders.as_ref().map(|folders| folders.worker()).transpose()?;
        let (child, control) = self.spawn(folder.as_ref())?;
        let order = Order {
            level: self.level,
            network: network(),
            asks_guests: self.asks_guests,
            folder: folder.as_ref().map(|folder| folder.path().to_owned()),
            key: self.key.clone(),
            home: variable::HOME.path(),
            sessions: folder.as_ref().map(|folder| folder.base().to_owned()),
            sessions_max: SESSIONS_PER_DAEMON_MAX as u64,
        };
        let addresses = self.addresses.clone();
        let start = ToWorker::Start { addresses, log: self.log, order };
        control.send(&start, None).map_err(io::Error::other)?;
        let pid = rustix::process::Pid::from_child(&child);
        let exit = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        Ok(Launched { child, control, exit, folder })
    }

    /// Starts a worker's process; its standard input is the control socket.
    fn spawn(&self, folder: Option<&Folder>) -> io::Result<(Child, Control)> {
        let (ours, theirs) = Control::pair()?;
        let mut command = Command::new(&self.program);
        if self.level > Level::Off {
            let folder = folder.map(Folder::path);
            let settings = environment::of_worker(variable::everything(), folder);
            command.env_clear().envs(settings.into_iter().map(|it| (it.name, it.value)));
        }
        for (name, value) in relative_places(self.level) {
            command.env(name, value);
        }
        let nodes = variable::LIBCUDA_NODES.value().unwrap_or_else(|| "none".into());
        let child = command
            // The name shown by `ps`, which otherwise shows /proc/self/exe.
            .arg0("penstockd")
            .arg("worker")
            // Penstock's own libraries must not open a pool from inside a worker.
            .env(variable::WORKER.name, "1")
            .env(variable::NODES.name, nodes)
            // The name was checked when the daemon started, so an error here means no settings.
            .envs(Transport::configured().map_or(&[][..], Transport::environment).iter().copied())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            // A terminal's ^C is for the program in the foreground, not for the workers. All
            // processes of a session end together.
            .process_group(0)
            .spawn()?;
        Ok((child, ours))
    }
}

/// Returns the variables that name a place for files in relation to the daemon's current folder,
/// with the places' full paths. A worker's current folder is its own one.
fn relative_places(level: Level) -> Vec<(OsString, PathBuf)> {
    // A confined worker has private places of its own.
    let private = if level > Level::Off { &[][..] } else { PRIVATE };
    let is_of_place = |name: &OsStr| {
        WRITTEN_VARIABLES.iter().any(|it| name == *it) || private.iter().any(|it| name == it.0)
    };
    let full = |(name, value): (OsString, OsString)| {
        let place = PathBuf::from(value);
        let is_relative = place.is_relative() && !place.as_os_str().is_empty();
        Some((name, std::path::absolute(place).ok().filter(|_| is_relative)?))
    };
    variable::everything().filter(|(name, _)| is_of_place(name)).filter_map(full).collect()
}

/// The daemon connects to other nodes for its workers. What makes sockets in a worker is UCX, and
/// Penstock's own library where a test shows it another pool.
fn network() -> Network {
    let has_nodes = variable::LIBCUDA_NODES.is_set();
    let has_ucx = Transport::configured().is_ok_and(Transport::makes_sockets);
    if has_nodes || has_ucx { Network::Open } else { Network::Closed }
}
