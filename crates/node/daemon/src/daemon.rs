//! The daemon's own thread: it starts and reaps workers until it is told to end.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_confine::Level;
use penstock_link::{Address, AwaitedKey, Instance, Keys, Listener, Patience, Pins, Region};
use penstock_process::{Guard, Lock, Signal};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::announce::announce_all;
use crate::client_list::ClientList;
use crate::confinement::Levels;
use crate::desk::Desk;
use crate::dials::{Dials, Wish};
use crate::door::Door;
use crate::doorstep::{Entry, Hellos};
use crate::folders::{Folders, Full, SESSION_BYTES_MAX};
use crate::fork_server::ForkServer;
use crate::groups::{Groups, NoGroups, note_groups};
use crate::guest;
use crate::idle::Idle;
use crate::launch::Launch;
use crate::log::{self, Throttle};
use crate::message::{Control, ToDaemon, ToWorker};
use crate::options::{Error, Options};
use crate::permitted::Permitted;
use crate::quota::LimitsFile;
use crate::refusals::{Reason, Refusals};
use crate::said::Relays;
use crate::transport::Transport;
use crate::users::Users;
use crate::workers::{Ended, Signs, Workers};

/// Most messages taken from one worker before the others get their turn.
const MESSAGES_PER_TURN: usize = 64;

/// State that all threads of a daemon share.
pub(crate) struct Daemon {
    pub(crate) addresses: Vec<Address>,
    pub(crate) keys: Keys,
    /// Memory of the guest at each of the addresses.
    pub(crate) regions: Vec<Option<Arc<Region>>>,
    /// Identity of this running daemon.
    pub(crate) instance: Instance,
    allow_users: Vec<u32>,
    user: u32,
    pub(crate) started: Instant,
    /// Whether the workers have a simulated device.
    pub(crate) simulate: bool,
    workers: Lock<Workers>,
    /// The file of limits, if there is one.
    pub(crate) limits: Lock<Option<LimitsFile>>,
    /// Signalled when a worker became ready, failed or ended.
    pub(crate) changed: Signal,
    /// Wakes the daemon's own thread.
    wake: OwnedFd,
    pub(crate) hellos: Hellos,
    pub(crate) worker_users: Option<Arc<Users>>,
    /// Where clients with one-time keys connect.
    pub(crate) desk: Desk,
    /// Where the daemon connects for its workers.
    pub(crate) permitted: Permitted,
    /// The connections that it makes for them.
    pub(crate) dials: Lock<Dials>,
    /// Milliseconds from the start until the last connection came.
    pub(crate) last_came_ms: AtomicU64,
    /// Number of tools that wait for the node's description.
    pub(crate) surveys: AtomicUsize,
    pub(crate) refused: Refusals,
    /// Limits the log lines about connections that were refused or not made.
    pub(crate) refusal_lines: Throttle,
    /// Limits the log lines about problems that workers report.
    pub(crate) complaints: Throttle,
}

/// Runs a daemon until SIGTERM, SIGINT or SIGHUP, or until its parent ends if `ends_with_parent` is
/// set. Calls `ready` once, with the addresses, when clients can connect.
///
/// All workers end with the calling thread, so it should be the process's main thread.
///
/// # Errors
/// Fails if the daemon cannot start. Later errors are logged, and the daemon goes on.
pub fn serve(options: Options, ready: impl FnOnce(&[Address])) -> Result<(), Error> {
    penstock_confine::harden().map_err(Error::system("hiding the daemon's memory"))?;
    let signals = crate::sys::end_signals().map_err(Error::system("taking signals"))?;
    if options.ends_with_parent {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(Error::system("asking to end with the parent"))?;
    }
    // This process is the daemon, so its control group is the daemon's.
    let groups = Groups::divide();
    run(options, Path::new("/proc/self/exe"), groups, signals.as_fd(), ready)
}

/// As [`serve`], but with another executable for the workers, without control groups, and until
/// `end` becomes readable.
///
/// # Errors
/// As [`serve`].
pub fn serve_until(
    options: Options,
    program: &Path,
    end: BorrowedFd<'_>,
    ready: impl FnOnce(&[Address]),
) -> Result<(), Error> {
    run(options, program, Err(NoGroups::NotAsked), end, ready)
}

fn run(
    options: Options,
    program: &Path,
    groups: Result<Arc<Groups>, NoGroups>,
    end: BorrowedFd<'_>,
    ready: impl FnOnce(&[Address]),
) -> Result<(), Error> {
    (!options.listen.is_empty()).then_some(()).ok_or(Error::NoAddress)?;
    let transport = Transport::configured()?;
    let levels = Levels::choose(options.confine, options.require_confinement)?;
    crate::sys::raise_descriptor_limit();
    let keys = keys(&options)?;
    let open = |path| LimitsFile::open(path, Instant::now());
    let (file, limits) = options.limits.clone().map(open).transpose()?.unzip();
    let listeners = listen(&options.listen, &options.allow_users)?;
    let addresses: Vec<Address> = listeners.iter().map(|listener| listener.address()).collect();
    log::begin(options.log);
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = eventfd(0, flags).map_err(Error::system("making an eventfd"))?;
    let users = worker_users(&options)?;
    let folders = folders(levels, &wake, users.is_some())?;
    let workers = Workers::new(levels.required, limits.unwrap_or_default(), groups);
    let daemon = Arc::new(Daemon {
        keys,
        instance: Instance::create()?,
        allow_users: options.allow_users,
        user: rustix::process::geteuid().as_raw(),
        started: Instant::now(),
        simulate: options.simulate,
        workers: Lock::new(workers),
        limits: Lock::new(file),
        changed: Signal::new(),
        wake,
        hellos: Hellos::create().map_err(Error::system("waiting for connections"))?,
        worker_users: users.clone(),
        desk: Desk::default(),
        permitted: Permitted::configured(&addresses)?,
        dials: Lock::default(),
        last_came_ms: AtomicU64::new(0),
        surveys: AtomicUsize::new(0),
        refused: Refusals::default(),
        refusal_lines: Throttle::default(),
        complaints: Throttle::default(),
        addresses,
        regions: guest::regions(&options.listen, &options.guests)?,
    });
    open_doors(&daemon, &listeners)?;
    // Withdrawn when the daemon ends.
    let _announced =
        options.announce.then(|| announce_all(&daemon.addresses, &daemon.keys)).transpose()?;
    let launch = Launch {
        program: program.to_owned(),
        addresses: reachable(&daemon.addresses),
        key: options.key.or(options.awaited_key),
        log: options.log,
        level: levels.wanted,
        simulate: options.simulate,
        folders,
        groups: daemon.workers().groups.as_ref().ok().cloned(),
        users,
        relays: Relays::default(),
    };
    daemon.start_workers(&launch);
    daemon.note_start(transport);
    ready(&daemon.addresses);
    let mut idle = Idle::new(options.idle_end, Instant::now());
    daemon.supervise(&launch, end, &mut |now| daemon.is_unused(&mut idle, now, &listeners));
    daemon.end(&listeners);
    Ok(())
}

/// Takes the users for the workers.
fn worker_users(options: &Options) -> Result<Option<Arc<Users>>, Error> {
    let users = |range| Users::of_range(range, &options.allow_users);
    Ok(options.worker_users.map(users).transpose()?)
}

/// Reads the keys.
fn keys(options: &Options) -> Result<Keys, Error> {
    let keys = Keys::load(options.key.as_deref(), &options.encryption, Pins::Never)?;
    Ok(Keys { awaited: options.awaited_key.clone().map(AwaitedKey::at), ..keys })
}

/// Binds the addresses.
fn listen(addresses: &[Address], allow_users: &[u32]) -> Result<Vec<Arc<Listener>>, Error> {
    // Other allowed users must be able to connect; the hello then asks the kernel who they are.
    let mode = if allow_users.is_empty() { 0o600 } else { 0o666 };
    let listeners = addresses.iter().map(|address| Listener::bind_with_mode(address, mode));
    Ok(listeners.map(|listener| listener.map(Arc::new)).collect::<Result<_, _>>()?)
}

/// Starts the threads that accept connections and hear what they say.
fn open_doors(daemon: &Arc<Daemon>, listeners: &[Arc<Listener>]) -> Result<(), Error> {
    let doorstep = daemon.clone();
    penstock_process::start("doorstep", move || doorstep.watch_doorstep())
        .map_err(Error::system("starting a thread"))?;
    for (listener, region) in listeners.iter().zip(&daemon.regions) {
        let region = region.clone();
        let (daemon, listener, entry) = (daemon.clone(), listener.clone(), Entry::Usual);
        let door = Door { daemon, listener, region, entry };
        penstock_process::start("accept", move || door.run())
            .map_err(Error::system("starting a thread"))?;
    }
    Ok(())
}

impl Daemon {
    pub(crate) fn workers(&self) -> Guard<'_, Workers> {
        self.workers.lock()
    }

    /// Returns the number of the daemon's own user.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Returns whether a Unix user may use this daemon.
    pub(crate) fn allows(&self, user: u32) -> bool {
        user == self.user || user == 0 || self.allow_users.contains(&user)
    }

    /// Makes the daemon's own thread look for changes.
    pub(crate) fn wake(&self) {
        // If the counter is full, the eventfd is readable already.
        _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Says in the log what is in force.
    fn note_start(&self, transport: Transport) {
        if let Some(why) = transport.lack() {
            tracing::warn!(why, "heaps reach other nodes over TCP");
        }
        self.simulate.then(|| tracing::warn!("the only device is simulated"));
        note_groups(&self.workers().groups);
        self.workers().note_unenforced();
        self.tell_addresses();
    }

    fn start_workers(&self, launch: &Launch) {
        let now = Instant::now();
        let mut workers = self.workers();
        for _ in 0..workers.missing(now) {
            if let Err(error) = workers.start(launch, now) {
                drop(workers);
                tracing::warn!(%error, "a worker could not be started");
                self.changed.notify_all();
                return;
            }
        }
    }

    /// Supervises the workers until `end` becomes readable or `watch` says so. `watch` returns the
    /// time at which it must be asked again, or that the daemon ends.
    fn supervise(
        self: &Arc<Self>,
        launch: &Launch,
        end: BorrowedFd<'_>,
        watch: &mut dyn FnMut(Instant) -> ControlFlow<(), Option<Instant>>,
    ) {
        let mut list = ClientList::new(&self.keys);
        let mut fork_server = ForkServer::default();
        loop {
            let ControlFlow::Continue(watched) = watch(Instant::now()) else { return };
            let (signs, next) = {
                let workers = self.workers();
                (workers.signs(), workers.next_look(Instant::now()).into_iter().chain(watched))
            };
            let limits = self.limits.lock().as_ref().map(LimitsFile::next_look);
            let next = next.chain(limits).chain(list.next_look()).chain(self.desk.next_look());
            let next = next.chain(fork_server.next_look()).min();
            let mut fds = vec![
                PollFd::from_borrowed_fd(end, PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            fds.extend(signs.iter().map(|it| PollFd::new(&*it.control, PollFlags::IN)));
            let exits = signs.iter().filter_map(|it| it.exit.as_deref());
            fds.extend(exits.map(|exit| PollFd::new(exit, PollFlags::IN)));
            let clients = signs.iter().filter_map(|it| it.client.as_deref());
            fds.extend(clients.map(|client| PollFd::new(client, PollFlags::RDHUP)));
            let server = fork_server.readable();
            fds.extend(server.map(|server| PollFd::from_borrowed_fd(server, PollFlags::IN)));
            let timeout =
                next.map(|at| crate::sys::timespec(at.saturating_duration_since(Instant::now())));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "the daemon cannot wait for events");
                    return;
                }
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                return;
            }
            // Reading empties the counter, if it is not empty already.
            _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
            self.heed(&signs, ready.get(2..).unwrap_or_default());
            // Whose worker has ended learns it when nobody has the connection any more.
            drop(signs);
            let ended = self.workers().reap(Instant::now());
            for ended in ended {
                self.tell_end(&ended);
            }
            fork_server.bring_foremen(launch, &self.workers);
            let hanging = self.workers().end_hanging(Instant::now());
            for id in hanging {
                tracing::warn!(worker = id, "a worker hangs while it starts and is killed");
            }
            let left = self.workers().end_left(Instant::now());
            for id in left {
                tracing::warn!(worker = id, "a worker outlives its session and is killed");
            }
            self.workers().end_strays(Instant::now());
            self.workers().share_devices(Instant::now());
            self.look_at_limits();
            self.desk.sweep(Instant::now());
            self.end_revoked(&mut list);
            self.serve_line();
            self.end_full(launch);
            self.start_workers(launch);
            self.workers().retire(Instant::now());
        }
    }

    /// Takes what workers say, and notes which have ended and whose clients have left. `ready` is
    /// about their descriptors, in the order in which [`Daemon::supervise`] waits for them.
    fn heed(self: &Arc<Self>, signs: &[Signs], ready: &[bool]) {
        let mut ready = ready.iter();
        for (sign, _) in signs.iter().zip(&mut ready).filter(|(_, ready)| **ready) {
            self.hear(sign.worker, &sign.control);
        }
        let exits = signs.iter().filter(|sign| sign.exit.is_some());
        for (sign, _) in exits.zip(&mut ready).filter(|(_, ready)| **ready) {
            self.note_exit(sign);
        }
        let clients = signs.iter().filter(|sign| sign.client.is_some());
        for (sign, _) in clients.zip(&mut ready).filter(|(_, ready)| **ready) {
            self.workers().note_left(sign.worker, Instant::now());
        }
    }

    /// Returns that the daemon ends because nobody uses it, or when to look again.
    fn is_unused(
        &self,
        idle: &mut Idle,
        now: Instant,
        listeners: &[Arc<Listener>],
    ) -> ControlFlow<(), Option<Instant>> {
        if idle.next_look().is_none() {
            return ControlFlow::Continue(None);
        }
        let last_came = Duration::from_millis(self.last_came_ms.load(Ordering::Relaxed));
        idle.note(now, self.is_used(), self.started + last_came);
        let has_come = || {
            let mut fds: Vec<_> =
                listeners.iter().map(|it| PollFd::new(&**it, PollFlags::IN)).collect();
            let now = crate::sys::timespec(Duration::ZERO);
            poll(&mut fds, Some(&now)) != Ok(0) || self.is_used()
        };
        if idle.ends(now, has_come) {
            tracing::info!("nobody uses this daemon any more");
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(idle.next_look())
    }

    /// Returns whether anybody has a session, waits for one, or says hello. A drained daemon is in
    /// use, too, because the one that comes after it would take clients.
    fn is_used(&self) -> bool {
        let has_clients = {
            let workers = self.workers();
            workers.draining || workers.serving() > 0 || !workers.line.is_empty()
        };
        has_clients
            || self.desk.expects_guests()
            || !self.hellos.is_empty()
            || self.surveys.load(Ordering::Relaxed) > 0
    }

    /// Ends the sessions whose folders are too large.
    fn end_full(&self, launch: &Launch) {
        let full = launch.folders.as_ref().map(|folders| folders.full()).unwrap_or_default();
        for Full { worker, limit } in &full {
            let built_in = SESSION_BYTES_MAX >> 20;
            let built_in = || format!("its files take more than {built_in} MiB, or hide");
            let why = limit.clone().unwrap_or_else(built_in);
            tracing::warn!(worker, "a session ends: {why}");
        }
        if !full.is_empty() {
            self.workers().end_full(&full);
        }
    }

    /// Gives workers to waiting clients, and tells the other clients in line that the daemon lives.
    fn serve_line(self: &Arc<Self>) {
        let drained = self.workers().give_up_drained();
        drained.into_iter().for_each(|client| self.refuse_drained(client));
        loop {
            let matched = self.workers().serve_next(Instant::now());
            let Some(matched) = matched else { break };
            let peer = matched.client.peer().to_owned();
            if let Err(error) = self.hand(matched) {
                self.note_refusal(&peer, Reason::of(&error), &error);
            }
        }
        let overdue = self.workers().refuse_overdue(Instant::now());
        for (client, refusal) in overdue {
            let peer = client.peer().to_owned();
            self.note_refusal(&peer, Reason::Limit, &refusal);
            client.refuse_for(&refusal.to_string());
        }
        for (control, terms) in self.workers().new_terms() {
            // A worker that does not listen is ending, or keeps its old limits.
            _ = control.send(&ToWorker::Terms(terms), None);
        }
        let (hopeless, verdict) = {
            let mut workers = self.workers();
            (workers.give_up_line(), workers.why_hopeless())
        };
        for client in hopeless {
            let peer = client.peer().to_owned();
            if let Err(error) = client.finish(verdict) {
                self.note_refusal(&peer, Reason::of(&error), &error);
            }
        }
        let gone = self.workers().note_line(Instant::now());
        if gone > 0 {
            tracing::info!(clients = gone, "clients left the line");
        }
    }

    /// Applies the file of limits if it has changed. A file that cannot be used changes nothing.
    fn look_at_limits(&self) {
        let looked = self.limits.lock().as_mut().map_or(Ok(None), |it| it.look(Instant::now()));
        match looked {
            Ok(Some(limits)) => {
                let mut workers = self.workers();
                workers.quota.ledger.set_limits(limits);
                workers.limit_groups();
                workers.limit_folders();
                workers.note_unenforced();
                drop(workers);
                tracing::info!("the limits have changed");
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the limits stay as they were"),
        }
    }

    /// Takes a worker's messages, or notes its end. Takes a limited number, so that a worker that
    /// sends without end does not hold up the others.
    fn hear(self: &Arc<Self>, id: u32, control: &Arc<Control>) {
        for _ in 0..MESSAGES_PER_TURN {
            match control.receive::<ToDaemon>(Patience::Never) {
                Ok(Some((ToDaemon::Connect { number, address, ticket }, _))) => {
                    self.dial(id, control, Wish { number, address, ticket });
                }
                Ok(Some((ToDaemon::Ask { number, machine }, _))) => {
                    self.ask(id, control, number, &machine);
                }
                Ok(Some((message, came))) => {
                    // All workers find the same problem, so it is logged once.
                    let known = self.workers().problem.clone();
                    if let ToDaemon::Ready { problem: Some(problem), .. } = &message
                        && known.as_ref() != Some(problem)
                        && self.complaints.pass(self.started.elapsed().as_secs()).is_some()
                    {
                        tracing::warn!(worker = id, %problem, "drivers");
                    }
                    let describes = matches!(message, ToDaemon::Describe);
                    let is_new = describes && self.workers().description().is_none();
                    self.workers().heard(id, message, came);
                    if is_new {
                        self.tell_missing_libraries();
                    }
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

    /// Notes that the process of a worker has ended, whether or not its control socket has closed.
    fn note_exit(self: &Arc<Self>, sign: &Signs) {
        // Its last message says why the session has ended.
        self.hear(sign.worker, &sign.control);
        self.workers().closed(sign.worker, Instant::now());
        self.changed.notify_all();
    }

    /// Logs which calls of CUDA's libraries the node could serve and does not.
    fn tell_missing_libraries(&self) {
        let Some(node) = self.workers().description() else { return };
        for kind in crate::node::missing_libraries(&node) {
            let (face, needs, packages) = (kind.face(), kind.provider(), kind.packages());
            tracing::info!(needs, packages, "calls of {face} are not served");
        }
    }

    fn tell_end(&self, ended: &Ended) {
        let client = ended.client.as_deref().unwrap_or("none");
        let told = ended.told.as_deref().unwrap_or("nothing");
        let (worker, status) = (ended.worker, &ended.status);
        if ended.orderly {
            tracing::info!(worker, client, %status, told, "session ended");
        } else {
            tracing::warn!(worker, client, %status, told, "a worker ended unexpectedly");
        }
    }

    /// Ends the daemon: refuses clients, ends the workers, removes the socket files.
    fn end(&self, listeners: &[Arc<Listener>]) {
        tracing::info!("ending");
        // Set first, so that a listener's end does not count as a failure.
        self.workers().ending = true;
        for listener in listeners {
            // Wakes the accepting thread. The file goes with the last reference to the listener.
            listener.stop();
        }
        self.desk.end();
        self.workers().end_all();
        self.changed.notify_all();
        self.hellos.end();
        // The accepting threads drop their listeners, and so the socket files.
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline
            && listeners.iter().any(|listener| Arc::strong_count(listener) > 1)
        {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.workers().ending
    }
}

/// Makes the place of the workers' folders. Workers that are not confined use the files of the
/// daemon's user, and a folder only for the files that programs include. They can do without it.
fn folders(levels: Levels, wake: &OwnedFd, has_users: bool) -> Result<Option<Arc<Folders>>, Error> {
    let made = wake.try_clone().and_then(|wake| Folders::make(wake, has_users));
    if levels.wanted == Level::Off
        && !has_users
        && let Err(error) = &made
    {
        let what = "no folder for files that programs include; PENSTOCK_CACHE names one";
        tracing::warn!(%error, "{what}");
        return Ok(None);
    }
    made.map(Some).map_err(Error::system(
        "making the folder for files of workers (PENSTOCK_CACHE names another place)",
    ))
}

/// Returns this daemon's addresses for other nodes, with the host's name for wildcards.
fn reachable(addresses: &[Address]) -> Vec<String> {
    let host = crate::node::host();
    let advertised = addresses.iter().filter_map(|address| address.advertised(&host));
    advertised.map(|address| address.to_string()).collect()
}
