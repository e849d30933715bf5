//! The start of a worker's process: its environment, its folder, and its first message.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use penstock_confine::environment::{self, PRIVATE};
use penstock_confine::limits::tasks_of_daemon;
use penstock_confine::{Level, Network, Order};
use penstock_process::variable;
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustix::process::PidfdFlags;

use crate::folders::{Folder, Folders};
use crate::groups::{self, Group, Groups};
use crate::log::Log;
use crate::message::{Control, ToWorker};
use crate::said::{self, Relays};
use crate::transport::Transport;
use crate::users::{Lease, Users};

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
    /// Whether workers have a simulated device instead of the node's devices.
    pub(crate) simulate: bool,
    /// Where their folders are. Workers that are not confined may have none.
    pub(crate) folders: Option<Arc<Folders>>,
    /// Their control groups, if the daemon can make any.
    pub(crate) groups: Option<Arc<Groups>>,
    /// Their users, if each has one of its own.
    pub(crate) users: Option<Arc<Users>>,
    /// The threads that write into the log what they say.
    pub(crate) relays: Relays,
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
    pub(crate) group: Option<Group>,
    pub(crate) order: Order,
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.relays.finish();
    }
}

impl Launch {
    /// Starts a worker.
    pub(crate) fn start(&self) -> io::Result<Launched> {
        let lease = self.users.as_ref().map(Users::lease).transpose()?;
        let user = lease.as_ref().map(Lease::worker);
        let folder = self.folders.as_ref().map(|folders| folders.worker(lease)).transpose()?;
        let group = self.groups.as_ref().map(Groups::worker).transpose()?;
        let (said, stderr) = said::pipe()?;
        let (mut child, control) = self.process(None, folder.as_ref().map(Folder::path), stderr)?;
        // The process waits for the message below before it loads or starts anything.
        let grouped = group.as_ref().map_or(Ok(()), |group| group.take(child.id()));
        let ready = grouped.and_then(|()| self.relays.start(self.log, child.id(), said));
        if let Err(error) = ready {
            // It has done nothing yet, so the wait is short.
            _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
        let order = Order {
            level: self.level,
            network: network(),
            folder: folder.as_ref().map(|folder| folder.path().to_owned()),
            key: self.key.clone(),
            home: variable::HOME.path(),
            sessions: folder.as_ref().map(|folder| folder.base().to_owned()),
            tasks_max: tasks_max(user.is_some()),
            user,
        };
        let (addresses, simulate) = (self.addresses.clone(), self.simulate);
        let start = ToWorker::Start { addresses, order: order.clone(), simulate };
        control.send(&start, None).map_err(io::Error::other)?;
        let pid = rustix::process::Pid::from_child(&child);
        let exit = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        Ok(Launched { child, control, exit, folder, group, order })
    }

    /// Starts a process that becomes a worker, or something else whose `name` the list of processes
    /// shows. Its standard input is the control socket. `folder` is its own folder, in relation to
    /// its current one if that changes.
    pub(crate) fn process(
        &self,
        name: Option<&str>,
        folder: Option<&Path>,
        stderr: OwnedFd,
    ) -> io::Result<(Child, Control)> {
        let (ours, theirs) = Control::pair()?;
        let mut command = Command::new(&self.program);
        // A worker of its own user cannot use the places of the daemon's user.
        let has_private = self.level > Level::Off || self.users.is_some();
        if has_private {
            let settings = environment::of_worker(variable::everything(), folder);
            command.env_clear().envs(settings.into_iter().map(|it| (it.name, it.value)));
        }
        for (name, value) in relative_places(has_private) {
            command.env(name, value);
        }
        // PoCL counts the host's processors, also those that this process may not use: under
        // `taskset`, or in a step of Slurm.
        if let Ok(mine) = rustix::thread::sched_getaffinity(None) {
            let is_set = |name: &str| variable::value(name).is_some();
            command.envs(pocl_threads(is_set).iter().map(|it| (it, mine.count().to_string())));
        }
        let nodes = variable::LIBCUDA_NODES.value().unwrap_or_else(|| "none".into());
        // PoCL 3.1 to 7.1 may end the process where it copies a kernel for each thread of a
        // work-group and has no loop over them, as it does for one or two threads (decision 62).
        let replication = variable::POCL_REPLICATION.value().unwrap_or_else(|| "0".into());
        let child = command
            // The name shown by `ps`, which otherwise shows /proc/self/exe.
            .arg0("penstockd")
            .arg("worker")
            .args(name)
            // Penstock's own libraries must not open a pool from inside a worker.
            .env(variable::WORKER.name, "1")
            .env(variable::NODES.name, nodes)
            .env(variable::POCL_REPLICATION.name, replication)
            // Also against the operator: without it, a probe does not wait for PoCL's compiler.
            .env("POCL_LLVM_GLOBAL_CONTEXT", "1")
            // The name was checked when the daemon started, so an error here means no settings.
            .envs(Transport::configured().map_or(&[][..], Transport::environment).iter().copied())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::from(stderr))
            // A terminal's ^C is for the program in the foreground, not for the workers. All
            // processes of a session end together.
            .process_group(0)
            .spawn()?;
        Ok((child, ours))
    }
}

/// Variables with the number of PoCL's threads: that of PoCL 5 and later, and the earlier one.
const POCL_THREADS: [&str; 2] = ["POCL_CPU_MAX_CU_COUNT", "POCL_MAX_PTHREAD_COUNT"];

/// Variable with the number of compute units of each device of PoCL 5 and later.
const POCL_UNITS: &str = "POCL_MAX_COMPUTE_UNITS";

/// Returns the variables with the number of PoCL's threads that the operator leaves to this
/// process. PoCL 5 and later read all three, so one that the operator has set decides alone.
fn pocl_threads(is_set: impl Fn(&str) -> bool) -> &'static [&'static str] {
    let all = POCL_THREADS.iter().chain([&POCL_UNITS]);
    if all.copied().any(is_set) { &[] } else { &POCL_THREADS }
}

/// Returns the most tasks of a worker's user.
fn tasks_max(has_own_user: bool) -> u64 {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) as u64;
    if has_own_user {
        return groups::tasks_of_worker(cores);
    }
    tasks_of_daemon(cores, SESSIONS_PER_DAEMON_MAX as u64)
}

/// Returns the variables that name a place for files in relation to the daemon's current folder,
/// with the places' full paths. A worker's current folder is its own one.
fn relative_places(has_private: bool) -> Vec<(OsString, PathBuf)> {
    // Such a worker has private places of its own.
    let private = if has_private { &[][..] } else { PRIVATE };
    let is_of_place =
        |name: &OsStr| name == variable::TRACE.name || private.iter().any(|it| name == it.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_who_sets_one_number_of_threads_decides_alone() {
        assert_eq!(pocl_threads(|_| false), POCL_THREADS);
        for name in ["POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POCL_MAX_COMPUTE_UNITS"] {
            assert!(pocl_threads(|it| it == name).is_empty(), "{name}");
        }
    }
}
