//! The foreman: a process that starts and ends the builders of one worker.
//!
//! A worker can neither start nor end processes once it is confined. So it copies itself before it
//! has a key, a driver or a second thread. The copy confines its files as the worker does, closes
//! networks, and waits for messages. Its builders are copies of the copy, and inherit all that.
//!
//! The foreman trusts its worker no more than the daemon does: it starts at most [`BUILDERS_MAX`]
//! builders, and ends no other process.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use penstock_confine::{Begun, Level, Network, Order};
use penstock_link::Patience;
use rustix::process::{Pid, Signal};

use super::limits::{BUILDS_AT_ONCE_MAX, BuildLimits};
use super::process;
use super::task::{FromForeman, ToForeman};
use crate::message::Control;
use crate::sys::{self, Forked, OomEntry, OomPriority};

/// Most builders of a worker at the same time: one for each build that runs. Those that have ended
/// count until the worker asks how, or until there is no room.
const BUILDERS_MAX: usize = BUILDS_AT_ONCE_MAX;

/// A worker's connection to its foreman.
#[derive(Debug)]
pub(crate) struct Foreman {
    pub(super) control: Control,
    pub(super) limits: BuildLimits,
}

/// Starts a foreman for this worker, if it is to have one. Takes the connection to the daemon, and
/// returns it to the worker only. Call this before the first thread, and before the worker has
/// anything that a compiler must not see.
pub(crate) fn engage(daemon: Control, order: &Order) -> (Control, Option<Foreman>) {
    let Some(limits) = BuildLimits::configured().filter(|_| order.level > Level::Off) else {
        return (daemon, None);
    };
    let worker = rustix::process::getpid();
    let started = Control::pair().and_then(|(ours, theirs)| Ok((ours, theirs, sys::fork()?)));
    match started {
        Ok((ours, theirs, Forked::Child)) => {
            drop((daemon, ours));
            run(Control::of(theirs), worker, order, limits)
        }
        Ok((ours, _, Forked::Parent(_))) => (daemon, Some(Foreman { control: ours, limits })),
        Err(error) => {
            tracing::warn!(%error, "no process for compilers; programs build in the worker");
            (daemon, None)
        }
    }
}

/// What a foreman has.
struct Crew {
    control: Control,
    begun: Begun,
    limits: BuildLimits,
    oom: OomEntry,
    builders: Vec<Pid>,
    /// The worker's own folder.
    folder: Option<PathBuf>,
}

/// Is the foreman until the worker ends.
fn run(control: Control, worker: Pid, order: &Order, limits: BuildLimits) -> ! {
    end_with(worker);
    let oom = OomEntry::of_this_process();
    // Builders make no connections, whatever the worker needs.
    let closed = Order { network: Network::Closed, ..order.clone() };
    let begun = closed.begin();
    let folder = order.folder.clone();
    let mut crew = Crew { control, begun, limits, oom, builders: Vec::new(), folder };
    while let Ok(Some((message, _))) = crew.control.receive(Patience::Forever) {
        let (answer, socket) = match message {
            ToForeman::Start => {
                let started;
                (crew, started) = crew.start();
                match started {
                    Ok((number, socket)) => (FromForeman::Started(number), Some(socket)),
                    Err(why) => (FromForeman::NotStarted(why), None),
                }
            }
            ToForeman::End(builder) => (crew.end(builder), None),
        };
        let socket = socket.as_ref().map(AsFd::as_fd);
        if crew.control.send(&answer, socket).is_err() {
            break;
        }
    }
    // The system ends the builders with their parent.
    sys::exit_now(0)
}

impl Crew {
    /// Starts a builder. Returns only in the foreman: the builder's number, and the worker's end of
    /// the connection to it. The worker can make no pair of sockets itself.
    fn start(mut self) -> (Self, Result<(u32, Control), String>) {
        if self.builders.len() >= BUILDERS_MAX {
            self.builders.retain(|builder| !sys::has_ended(*builder));
        }
        if self.builders.len() >= BUILDERS_MAX {
            let why = format!("{BUILDERS_MAX} builders run already");
            return (self, Err(why));
        }
        let (ours, theirs) = match Control::pair() {
            Ok(pair) => pair,
            Err(error) => return (self, Err(error.to_string())),
        };
        let foreman = rustix::process::getpid();
        // The builder inherits it.
        self.oom.set(OomPriority::Builder);
        let forked = sys::fork();
        if !matches!(forked, Ok(Forked::Child)) {
            self.oom.set(OomPriority::Worker);
        }
        match forked {
            Ok(Forked::Child) => {
                let Self { control, begun, limits, oom, folder, .. } = self;
                drop((control, oom, ours));
                end_with(foreman);
                process::run(theirs, begun, limits, folder.as_deref())
            }
            Ok(Forked::Parent(builder)) => {
                self.builders.push(builder);
                (self, Ok((builder.as_raw_nonzero().get().unsigned_abs(), ours)))
            }
            Err(error) => (self, Err(error.to_string())),
        }
    }

    fn end(&mut self, number: u32) -> FromForeman {
        let is_it = |builder: &Pid| builder.as_raw_nonzero().get().unsigned_abs() == number;
        let Some(place) = self.builders.iter().position(is_it) else {
            return FromForeman::NotStarted("there is no such builder".into());
        };
        let builder = self.builders.swap_remove(place);
        // If it has ended by itself, its status says how, and this does nothing.
        _ = rustix::process::kill_process(builder, Signal::KILL);
        match sys::wait_for(builder) {
            Ok(exit) => FromForeman::Ended(exit),
            Err(error) => FromForeman::NotStarted(error.to_string()),
        }
    }
}

/// Makes the system end this process when its parent ends.
fn end_with(parent: Pid) {
    let armed: io::Result<()> =
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    // The parent may have ended before.
    if armed.is_err() || rustix::process::getppid() != Some(parent) {
        sys::exit_now(0);
    }
}
