//! The foreman: a process that starts and ends the builders of one worker.
//!
//! A worker can neither start nor end processes once it is confined. The foreman is a copy of the
//! fork server. It confines its files as the worker does, closes networks, and waits for messages.
//! Its builders are copies of the foreman, and inherit all that.
//!
//! The foreman trusts its worker no more than the daemon does: it starts at most [`BUILDERS_MAX`]
//! builders, and ends no other process.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use penstock_confine::{Begun, Network, Order};
use penstock_link::Patience;
use rustix::process::{Pid, Signal};

use super::limits::{BUILDS_AT_ONCE_MAX, BuildLimits};
use super::process::{self, Bench};
use super::task::{FromForeman, ToForeman};
use crate::message::Control;
use crate::sys::{self, Forked, OomEntry, OomPriority};

/// Most builders of a worker at the same time: one for each build that runs. Those that have ended
/// count until the worker asks how, or until there is no room.
const BUILDERS_MAX: usize = BUILDS_AT_ONCE_MAX;

/// What a foreman has.
struct Crew {
    control: Control,
    begun: Begun,
    limits: BuildLimits,
    oom: OomEntry,
    builders: Vec<Pid>,
    /// The worker's own folder.
    folder: Option<PathBuf>,
    bench: Option<&'static mut Bench>,
}

/// Is the foreman until the worker ends. `bench` has the drivers, if they are loaded.
pub(super) fn run(
    control: Control,
    order: &Order,
    oom: OomEntry,
    bench: Option<&'static mut Bench>,
) -> ! {
    // The worker has asked for a foreman, so there are limits.
    let Some(limits) = BuildLimits::configured() else { sys::exit_now(1) };
    // Builders make no connections, whatever the worker needs.
    let closed = Order { network: Network::Closed, ..order.clone() };
    let begun = closed.begin();
    let folder = order.folder.clone();
    let mut crew = Crew { control, begun, limits, oom, builders: Vec::new(), folder, bench };
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
                let Self { control, begun, limits, oom, folder, bench, .. } = self;
                drop((control, oom, ours));
                end_with(foreman);
                process::run(theirs, begun, limits, folder.as_deref(), bench)
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
pub(super) fn end_with(parent: Pid) {
    let armed: io::Result<()> =
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    // The parent may have ended before.
    if armed.is_err() || rustix::process::getppid() != Some(parent) {
        sys::exit_now(0);
    }
}
