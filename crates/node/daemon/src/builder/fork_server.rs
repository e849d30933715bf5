//! The fork server: a process that becomes the foreman of a worker whenever the daemon asks for
//! one, by a copy of itself.
//!
//! A process that compiles anything with PoCL reads PoCL's library first, for half a second of
//! processor time. The fork server does that once, and its copies have the library. It never has
//! anything of a client: it hears the daemon alone, and compiles one empty kernel.
//!
//! A copy has one thread. Those of PoCL's devices exist in the fork server only, where they sleep,
//! so the copies have none of their locks to wait for. Other drivers may need their threads to
//! compile. So the drivers are loaded here only if all of them are PoCL; otherwise each builder
//! loads them itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use penstock_confine::{Order, environment, harden};
use penstock_link::Patience;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use super::foreman::{self, end_with};
use super::process::Bench;
use super::task::{Goal, Making, Origin, Task};
use crate::groups;
use crate::message::Control;
use crate::sys::{self, Forked, OomEntry, OomPriority};

/// Longest wait until the threads of the drivers sleep, which have nothing to do but to start.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Time between two looks at them: nothing tells when a thread of a driver goes to sleep.
const SETTLE_LOOK: Duration = Duration::from_millis(1);

/// Messages from the daemon to the fork server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToForkServer {
    /// The next foreman has this standard error, which comes with the message.
    Output,
    /// Start a foreman, in place of the one that this worker has. Its end of the connection to its
    /// worker comes with the message.
    Foreman(Request),
    /// End the foreman of this worker, if it has not ended.
    End(u32),
}

/// Messages from the fork server to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromForkServer {
    /// There is a foreman for the last request.
    Copied,
    /// The system has refused a copy, for this reason.
    Refused(String),
}

/// The foreman that a worker needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The worker's process, which leads a group of processes.
    pub(crate) worker: u32,
    /// What the worker does about itself.
    pub(crate) order: Order,
    /// The folder of the worker's control group.
    pub(crate) group: Option<PathBuf>,
    /// The names of all devices, if the fork server may load their drivers.
    pub(crate) copied: Option<Vec<String>>,
}

/// What the fork server has.
struct Server {
    /// Where PoCL keeps its files until a copy moves to the folder of its worker. A server without
    /// a folder does not load drivers.
    folder: Option<PathBuf>,
    bench: Option<&'static mut Bench>,
    foremen: Vec<Running>,
    /// Whether it has started a foreman: a daemon with one session gains nothing from a server
    /// that loads drivers.
    has_served: bool,
    /// The number of this process.
    own: Pid,
}

/// A foreman that runs.
struct Running {
    worker: u32,
    process: Pid,
    /// Becomes readable when it has ended. Without it (before Linux 5.3), the end is noticed with
    /// the next message.
    end: Option<OwnedFd>,
}

/// Is the fork server until the daemon ends.
pub(crate) fn serve_forks(control: Control, folder: Option<PathBuf>) -> ! {
    // Its copies see what clients compile, so nobody may get into it.
    if let Err(error) = harden() {
        tracing::warn!(%error, "the fork server cannot be hidden");
        sys::exit_now(1)
    }
    let own = rustix::process::getpid();
    let mut server = Server { folder, bench: None, foremen: Vec::new(), has_served: false, own };
    let mut output = None;
    loop {
        server.wait(&control);
        match control.receive::<ToForkServer>(Patience::Never) {
            Ok(None) => {}
            Ok(Some((ToForkServer::Output, came))) => output = came,
            Ok(Some((ToForkServer::End(worker), _))) => server.end(worker),
            Ok(Some((ToForkServer::Foreman(request), Some(socket)))) => {
                server.end(request.worker);
                let worker = request.worker;
                let foreman = Foreman { request, socket, output: output.take() };
                let answer = match server.copy(&foreman.request) {
                    Ok((Forked::Child, go)) => {
                        drop(control);
                        foreman.run(server, go)
                    }
                    Ok((Forked::Parent(process), go)) => {
                        server.keep(worker, process);
                        (FromForkServer::Copied, Some(go))
                    }
                    Err(error) => (FromForkServer::Refused(error.to_string()), None),
                };
                let (answer, go) = answer;
                if control.send(&answer, None).is_err() {
                    sys::exit_now(0);
                }
                // If this fails, the foreman has ended.
                _ = go.map(|go| rustix::io::write(go, &[0]));
            }
            // The system ends the foremen with their parent.
            Ok(Some((ToForkServer::Foreman(_), None))) | Err(_) => sys::exit_now(0),
        }
    }
}

impl Server {
    /// Waits for a message, or for the end of a foreman.
    fn wait(&mut self, control: &Control) {
        let ends = self.foremen.iter().filter_map(|foreman| foreman.end.as_ref());
        let mut fds = vec![PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)];
        fds.extend(ends.map(|end| PollFd::new(end, PollFlags::IN)));
        // After an error, the next message or end is found all the same.
        _ = poll(&mut fds, None);
        drop(fds);
        self.foremen.retain(|foreman| !sys::has_ended(foreman.process));
    }

    fn keep(&mut self, worker: u32, process: Pid) {
        let end = rustix::process::pidfd_open(process, PidfdFlags::empty()).ok();
        self.foremen.push(Running { worker, process, end });
        self.has_served = true;
    }

    /// Ends the foreman of a worker. The system ends its builders with it.
    fn end(&mut self, worker: u32) {
        for foreman in self.foremen.extract_if(.., |foreman| foreman.worker == worker) {
            // It has not been waited for, so the number is its own.
            _ = rustix::process::kill_process(foreman.process, Signal::KILL);
            _ = sys::wait_for(foreman.process);
        }
    }

    /// Loads the drivers and reads PoCL's library, if that is worth while now and possible.
    ///
    /// # Errors
    /// The drivers have other devices than the workers have. The daemon starts another server then,
    /// which does not load drivers.
    fn load(&mut self, request: &Request) -> io::Result<()> {
        let is_due = self.has_served && self.bench.is_none() && request.copied.is_some();
        if let (true, Some(folder)) = (is_due, &self.folder) {
            std::env::set_current_dir(folder)?;
            self.bench = Some(Box::leak(Box::new(Bench::new())));
        }
        // Variables with relative paths lead to other drivers from this folder.
        let has_others = |bench: &&'static mut Bench| request.copied != Some(bench.names());
        if self.bench.as_ref().is_some_and(has_others) {
            return Err(io::Error::other("the workers have other devices than the fork server"));
        }
        if is_due {
            let origin = Origin::Source(b"kernel void empty() {}".to_vec());
            let making = Making { origin, options: None, headers: Vec::new() };
            let task = Task { devices: vec![0], goal: Goal::Build(making) };
            self.bench = self.bench.take().map(|bench| bench.perform_in_thread(task));
        }
        Ok(())
    }

    /// Copies this process. The copy waits until the other end of the pipe that it gets says that
    /// the daemon knows of it. Until then another fork server may get the same request.
    fn copy(&mut self, request: &Request) -> io::Result<(Forked, OwnedFd)> {
        self.load(request)?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let forked = if self.bench.is_none() { sys::fork()? } else { fork_when_drivers_rest()? };
        let end = if matches!(forked, Forked::Child) { wait } else { go };
        Ok((forked, end))
    }
}

/// Copies this process as soon as all threads of the drivers sleep.
fn fork_when_drivers_rest() -> io::Result<Forked> {
    let end = Instant::now() + SETTLE_MAX;
    loop {
        if let Some(forked) = sys::fork_beside_sleepers()? {
            return Ok(forked);
        }
        if Instant::now() > end {
            return Err(io::Error::other("threads of the drivers do not come to rest"));
        }
        thread::sleep(SETTLE_LOOK);
    }
}

/// A copy of the fork server on its way to be a foreman.
struct Foreman {
    request: Request,
    socket: OwnedFd,
    output: Option<OwnedFd>,
}

impl Foreman {
    fn run(self, server: Server, go: OwnedFd) -> ! {
        let Self { request, socket, output } = self;
        let Server { foremen, bench, own, .. } = server;
        // Those of other workers are nobody's business here.
        drop(foremen);
        let oom = match enter(&request, output) {
            Ok(oom) => oom,
            Err(error) => {
                tracing::warn!(%error, "the foreman cannot be one of the worker's processes");
                sys::exit_now(1)
            }
        };
        // This comes after the change of the user, which removes an earlier request to the system.
        end_with(own);
        if !matches!(rustix::io::read(&go, &mut [0]), Ok(1)) {
            sys::exit_now(0);
        }
        drop(go);
        foreman::run(Control::of(socket), &request.order, oom, bench)
    }
}

/// Makes this process one of the worker's: it has the worker's standard error, groups, folders and
/// user.
fn enter(request: &Request, output: Option<OwnedFd>) -> io::Result<OomEntry> {
    if let Some(output) = output {
        rustix::stdio::dup2_stderr(&output)?;
    }
    if let Some(group) = &request.group {
        groups::move_into(group, std::process::id())?;
    }
    // If the worker has ended, its group may have too, and this fails.
    let worker = i32::try_from(request.worker).ok().and_then(Pid::from_raw);
    rustix::process::setpgid(None, Some(worker.ok_or(io::ErrorKind::InvalidInput)?))?;
    if let Some(folder) = &request.order.folder {
        sys::set_variables(environment::places(folder))?;
    }
    // Otherwise the entry below belongs to root. `Order::begin` hides this process again.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    request.order.change_user()?;
    let oom = OomEntry::of_this_process();
    oom.set(OomPriority::Worker);
    Ok(oom)
}
