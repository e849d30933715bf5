//! The daemon's own thread: it starts and reaps workers until it is told to end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use penstock_link::{Address, Instance, Key, LinkError, Listener, Patience};
use penstock_wire::hello::Verdict;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::door::{Door, Hellos};
use crate::log::{Log, Logger, Throttle};
use crate::message::{Control, ToDaemon, ToWorker};
use crate::transport::{Transport, UnknownTransport};
use crate::workers::{Ended, Workers};

/// Messages taken from one worker before the others get their turn.
const MESSAGES_PER_TURN: usize = 64;

/// What a daemon is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to listen.
    pub listen: Vec<Address>,
    /// Users besides its own that it serves on Unix sockets.
    pub allow_users: Vec<u32>,
    /// File of the pool's key. Without one nobody is served over TCP.
    pub key: Option<PathBuf>,
    /// Form of the log.
    pub log: Log,
    /// End when the process that started this one ends.
    pub ends_with_parent: bool,
}

/// Why a daemon could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nowhere to listen.
    #[error("no address to listen on; give one with --listen unix:PATH or --listen tcp:HOST:PORT")]
    NoAddress,
    /// An address or the key can not be used.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The environment names a transport that there is not.
    #[error(transparent)]
    Transport(#[from] UnknownTransport),
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}

/// What all threads of a daemon share.
pub(crate) struct Daemon {
    pub(crate) addresses: Vec<Address>,
    pub(crate) key: Option<Key>,
    /// Which running daemon this is.
    pub(crate) instance: Instance,
    allow_users: Vec<u32>,
    user: u32,
    pub(crate) started: Instant,
    pub(crate) log: Logger,
    workers: Mutex<Workers>,
    /// A worker became ready, or is not to be expected.
    pub(crate) changed: Condvar,
    /// Wakes the daemon's own thread.
    wake: OwnedFd,
    pub(crate) hellos: Hellos,
    /// Tools that ask for the node.
    pub(crate) surveys: AtomicUsize,
    pub(crate) refused: AtomicU64,
    refusals: Throttle,
    /// Of workers.
    complaints: Throttle,
}

/// Runs a daemon until it is asked to end (SIGTERM, SIGINT, or its parent's end where that was asked for). `ready` is called
/// once, with the addresses, when clients can connect.
///
/// The calling thread's end ends all workers, so it should be the process's main thread.
///
/// # Errors
/// When it can not start; everything later is logged, and goes on.
pub fn serve(options: Options, ready: impl FnOnce(&[Address])) -> Result<(), Error> {
    let signals = crate::sys::end_signals().map_err(Error::system("taking signals"))?;
    if options.ends_with_parent {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(Error::system("asking to end with the parent"))?;
    }
    serve_until(options, Path::new("/proc/self/exe"), signals.as_fd(), ready)
}

/// As [`serve`], with another executable for the workers, and until `end` becomes readable.
///
/// # Errors
/// As [`serve`].
pub fn serve_until(
    options: Options,
    program: &Path,
    end: BorrowedFd<'_>,
    ready: impl FnOnce(&[Address]),
) -> Result<(), Error> {
    if options.listen.is_empty() {
        return Err(Error::NoAddress);
    }
    let transport = Transport::configured()?;
    crate::sys::raise_descriptor_limit();
    let key = options.key.as_deref().map(Key::load).transpose()?;
    // Others on the list must be able to connect; the hello then asks the kernel who they are.
    let mode = if options.allow_users.is_empty() { 0o600 } else { 0o666 };
    let listeners = options.listen.iter().map(|address| Listener::bind_with_mode(address, mode));
    let listeners: Vec<Arc<Listener>> =
        listeners.map(|it| it.map(Arc::new)).collect::<Result<_, _>>()?;
    let addresses: Vec<Address> = listeners.iter().map(|listener| listener.address()).collect();
    let log = Logger::new(options.log);
    let daemon = Arc::new(Daemon {
        key,
        instance: Instance::create()?,
        allow_users: options.allow_users,
        user: rustix::process::geteuid().as_raw(),
        started: Instant::now(),
        workers: Mutex::new(Workers::new()),
        changed: Condvar::new(),
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::system("making an eventfd"))?,
        hellos: Hellos::default(),
        surveys: AtomicUsize::new(0),
        refused: AtomicU64::new(0),
        refusals: Throttle::default(),
        complaints: Throttle::default(),
        log,
        addresses,
    });
    for listener in &listeners {
        let door = Door { daemon: daemon.clone(), listener: listener.clone() };
        thread::Builder::new()
            .name("accept".into())
            .spawn(move || door.run())
            .map_err(Error::system("starting a thread"))?;
    }
    let reachable = reachable(&daemon.addresses);
    let start = ToWorker::Start { addresses: reachable, key: options.key, log: options.log };
    daemon.start_workers(program, &start);
    if let Some(why) = transport.lack() {
        daemon.log.warn("heaps reach other nodes over TCP", &[("why", &why)]);
    }
    for address in &daemon.addresses {
        daemon.log.info("listening", &[("address", address)]);
    }
    ready(&daemon.addresses);
    daemon.supervise(program, &start, end);
    daemon.end(&listeners);
    Ok(())
}

impl Daemon {
    pub(crate) fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a Unix user may use this daemon.
    pub(crate) fn allows(&self, user: u32) -> bool {
        user == self.user || user == 0 || self.allow_users.contains(&user)
    }

    /// Has the daemon's own thread look at what changed.
    pub(crate) fn wake(&self) {
        // An eventfd whose counter is full is readable already.
        _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn start_workers(&self, program: &Path, start: &ToWorker) {
        let now = Instant::now();
        let mut workers = self.workers();
        for _ in 0..workers.missing(now) {
            if let Err(error) = workers.start(program, start, now) {
                drop(workers);
                self.log.warn("a worker could not be started", &[("error", &error)]);
                self.changed.notify_all();
                return;
            }
        }
    }

    fn supervise(&self, program: &Path, start: &ToWorker, end: BorrowedFd<'_>) {
        loop {
            let (controls, next) = {
                let workers = self.workers();
                (workers.controls(), workers.next_look(Instant::now()))
            };
            let mut fds = vec![
                PollFd::from_borrowed_fd(end, PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            fds.extend(controls.iter().map(|(_, control)| PollFd::new(&**control, PollFlags::IN)));
            let timeout = next.map(|at| timespec(at.saturating_duration_since(Instant::now())));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    self.log.warn("the daemon can not wait", &[("error", &error)]);
                    return;
                }
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                return;
            }
            // Reading empties the counter; nothing to read is as good.
            _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
            for ((id, control), ready) in controls.iter().zip(ready.iter().skip(2)) {
                if *ready {
                    self.hear(*id, control);
                }
            }
            for ended in self.workers().reap(Instant::now()) {
                self.tell_end(&ended);
            }
            let hanging = self.workers().end_hanging(Instant::now());
            for id in hanging {
                self.log.warn("a worker hangs in its start and is ended", &[("worker", &id)]);
            }
            self.serve_line();
            self.start_workers(program, start);
            self.workers().retire(Instant::now());
        }
    }

    /// Gives workers to the clients that wait for one, and tells the others that the daemon lives.
    fn serve_line(&self) {
        loop {
            let matched = self.workers().serve_next(Instant::now());
            let Some(matched) = matched else { break };
            let peer = matched.client.peer().to_owned();
            if let Err(error) = self.hand(matched) {
                self.note_refusal(&peer, &error);
            }
        }
        let hopeless = self.workers().give_up_line();
        for client in hopeless {
            let peer = client.peer().to_owned();
            if let Err(error) = client.finish(Verdict::NoWorker) {
                self.note_refusal(&peer, &error);
            }
        }
        let gone = self.workers().note_line(Instant::now());
        if gone > 0 {
            self.log.info("clients left the line", &[("clients", &gone)]);
        }
    }

    /// Takes what a worker says, or its end. One that talks without end gets its turn like others.
    fn hear(&self, id: u32, control: &Control) {
        for _ in 0..MESSAGES_PER_TURN {
            match control.receive::<ToDaemon>(Patience::Never) {
                Ok(Some((message, came))) => {
                    // Each worker finds the same: it is told once.
                    let known = self.workers().problem.clone();
                    if let ToDaemon::Ready { problem: Some(problem), .. } = &message
                        && known.as_ref() != Some(problem)
                        && self.complaints.pass(self.started.elapsed().as_secs()).is_some()
                    {
                        self.log.warn("drivers", &[("worker", &id), ("problem", problem)]);
                    }
                    self.workers().heard(id, message, came);
                    self.changed.notify_all();
                }
                Ok(None) => return,
                Err(_) => {
                    self.workers().closed(id, Instant::now());
                    self.changed.notify_all();
                    return;
                }
            }
        }
    }

    fn tell_end(&self, ended: &Ended) {
        let client = ended.client.as_deref().unwrap_or("none");
        let told = ended.told.as_deref().unwrap_or("nothing");
        let fields: &crate::log::Fields<'_> = &[
            ("worker", &ended.worker),
            ("client", &client),
            ("status", &ended.status),
            ("told", &told),
        ];
        if ended.orderly {
            self.log.info("session ended", fields);
        } else {
            self.log.warn("a worker ended unexpectedly", fields);
        }
    }

    /// Ends everything: no more clients, no workers, no socket files.
    fn end(&self, listeners: &[Arc<Listener>]) {
        self.log.info("ending", &[]);
        // Said first, so that a listener's end is no failure.
        self.workers().ending = true;
        for listener in listeners {
            // Wakes the thread that accepts; the file goes with the last hold on the listener.
            _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        self.workers().end_all();
        self.changed.notify_all();
        self.hellos.end();
        // The accepting threads let go of their listeners, and so of the socket files.
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline
            && listeners.iter().any(|listener| Arc::strong_count(listener) > 1)
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the daemon is ending.
    pub(crate) fn is_ending(&self) -> bool {
        self.workers().ending
    }

    /// Logs that there are no descriptors or threads for a connection, unless there are too many of those.
    pub(crate) fn note_dropped(&self, why: &io::Error) {
        if let Some(suppressed) = self.refusals.pass(self.started.elapsed().as_secs()) {
            self.log
                .warn("a connection was dropped", &[("error", why), ("suppressed", &suppressed)]);
        }
    }

    /// Counts a refusal, and logs it unless too many are.
    pub(crate) fn note_refusal(&self, peer: &str, why: &LinkError) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.refusals.pass(self.started.elapsed().as_secs()) {
            self.log.warn("refused", &[("peer", &peer), ("why", why), ("suppressed", &suppressed)]);
        }
    }
}

/// The addresses under which workers of other nodes reach this daemon: for one that listens everywhere, its host's name.
fn reachable(addresses: &[Address]) -> Vec<String> {
    let public = |address: &Address| match address {
        Address::Tcp { host, port } if matches!(host.as_str(), "0.0.0.0" | "::") => {
            Address::Tcp { host: crate::node::host(), port: *port }
        }
        Address::Unix(path) => {
            Address::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    };
    addresses.iter().map(|address| public(address).to_string()).collect()
}

fn timespec(duration: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
