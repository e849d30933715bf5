//! The daemon's workers (spares, and workers with a client), and the clients that wait in line.
//!
//! Only the daemon's own thread starts and reaps workers. A worker ends with the thread that
//! started it (`PR_SET_PDEATHSIG`), so no worker outlives its daemon.

mod costs;
mod dying;
mod foremen;
mod group;
mod groups;
mod keys;
mod left;
mod sharing;
mod strays;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_confine::{Level, Order, Report};
use penstock_link::{Accepted, Credentials, Machine, MemoryUse, Part, PublicKey, Way};
use penstock_quota::{Limits, Loan, Means, Refusal, Resource, Stray, Terms, User};
use penstock_wire::describe::{NodeDescription, Turn};
use penstock_wire::hello::{TICKET_BYTES, Verdict};
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::account::{Account, Joules};
use crate::asks::Asks;
use crate::dials::PEERS_PER_SESSION_MAX;
use crate::folders::{DiskLimit, Folder};
use crate::groups::{Group, Groups, NoGroups};
use crate::launch::{Launch, Launched};
use crate::line::Line;
use crate::message::{Control, Found, ToDaemon, ToWorker};
use crate::node;
use crate::quota::{Quota, Waiting, user_of};
use crate::refill::{Census, Refill, SPARES_MIN, SPARES_MIN_INSIDE};
use crate::sharing::{Sharing, means_here};
use crate::totals::{Counted, Totals};
use crate::usage::Used;
pub(crate) use dying::Ended;
use dying::{DYING_LOOK, Dying};
pub(crate) use foremen::NeedsForeman;
use group::end_group;
use left::Presence;

/// Longest start of a worker; a longer one hangs. The slowest seen took 8 s, with eight GPUs after
/// boot.
const START_MAX: Duration = Duration::from_secs(60);

/// Most open tickets of one worker. Bounds the daemon's memory.
const TICKETS_PER_WORKER_MAX: usize = PEERS_PER_SESSION_MAX;

/// All workers, and the clients that wait for one.
pub(crate) struct Workers {
    table: FxHashMap<u32, Worker>,
    spares: VecDeque<u32>,
    /// Workers whose control sockets have closed, until their processes have ended.
    dying: Vec<Dying>,
    /// Worker of each open ticket. The time of a look-up tells a stranger nothing about a ticket.
    /// The last step of a look-up compares 32 bytes, which takes about a nanosecond. A hello takes
    /// some 100 µs and varies as much, so the stranger would need 10,000,000,000 tries to see the
    /// difference. Each try is a connection that the daemon closes, after the stranger has proved
    /// its user or that it has the pool's key. A ticket is open for milliseconds.
    tickets: FxHashMap<[u8; TICKET_BYTES], u32>,
    pub(crate) line: Line<Waiting>,
    pub(crate) quota: Quota,
    /// Number of clients for which a worker was ever taken.
    served: u64,
    pub(crate) totals: Totals,
    /// Decides how many workers to start.
    refill: Refill,
    /// Why the last worker could not start, or what it lacked.
    pub(crate) problem: Option<String>,
    pub(crate) devices: Vec<Found>,
    /// Whether all of their drivers are PoCL, and all devices are the host's processors.
    is_pocl: bool,
    /// The foremen that workers have asked for.
    pub(crate) need_foremen: Vec<NeedsForeman>,
    /// Description of the node from the last worker that sent one.
    description: Option<NodeDescription>,
    /// Memory of each device in bytes, by this description, as far as the drivers tell it.
    pub(crate) device_memory: Vec<Option<u64>>,
    /// Set when the daemon ends: no more workers are started.
    pub(crate) ending: bool,
    /// Whether an administrator wants no new sessions.
    pub(crate) draining: bool,
    pub(crate) account: Account,
    pub(crate) sharing: Sharing,
    /// When to look next at the core time of sessions; `None` if no kernel has a limit of time.
    stray_look: Option<Instant>,
    strays_looked: Instant,
    /// How far the last worker is confined that became ready.
    pub(crate) confinement: Option<Report>,
    /// The level of confinement below which clients are refused.
    pub(crate) required: Level,
    /// The control groups of the workers, or why there are none.
    pub(crate) groups: Result<Arc<Groups>, NoGroups>,
}

struct Worker {
    child: Child,
    control: Arc<Control>,
    exit: Option<Arc<OwnedFd>>,
    state: State,
    client: Presence,
    /// Number of its open tickets.
    tickets: usize,
    /// How its session ended, if it reported that.
    ended: Option<String>,
    /// Memory in which the worker counts the use of its devices.
    usage: Option<Arc<Used>>,
    /// Part of a guest's memory that the session uses.
    part: Option<Arc<Part>>,
    folder: Option<Folder>,
    group: Option<Group>,
    /// How it was told to confine itself.
    order: Order,
    /// Number of foremen that it has had.
    foremen: u32,
    /// How far it is confined, as soon as it is ready.
    level: Level,
    /// Keys of the nodes to which it has been linked.
    nodes: FxHashSet<PublicKey>,
    /// The machines that it may have the daemon ask.
    asks: Asks,
    /// When it was told that its session ends because of a limit.
    over_since: Option<Instant>,
    /// Its core time that nothing explains.
    stray: Stray,
}

impl Worker {
    fn signs(&self, worker: u32) -> Signs {
        let (control, exit) = (self.control.clone(), self.exit.clone());
        Signs { worker, control, exit, client: self.connection() }
    }
}

enum State {
    Starting(Instant),
    Spare,
    Serving(Box<Session>),
}

/// A session, as shown in the status.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: u32,
    pub(crate) client: String,
    /// The client's process and user, if the kernel tells.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) way: Way,
    pub(crate) since: Instant,
    /// Joules that the node had taken when it began, if known.
    pub(crate) mark: Option<Joules>,
    /// Time that it has used each device.
    pub(crate) usage: Option<Arc<Used>>,
    /// How far its worker is confined.
    pub(crate) level: Level,
    /// Public key of the client, if the link is encrypted.
    pub(crate) key: Option<PublicKey>,
    /// The user of its worker, if the daemon has users for its workers.
    pub(crate) user: Option<u32>,
    /// What the totals have of it.
    counted: Counted,
}

/// What tells of a worker: its messages, the end of its process, and that its client leaves.
pub(crate) struct Signs {
    pub(crate) worker: u32,
    pub(crate) control: Arc<Control>,
    pub(crate) exit: Option<Arc<OwnedFd>>,
    pub(crate) client: Option<Arc<OwnedFd>>,
}

/// A client and the worker that it gets.
pub(crate) struct Match {
    pub(crate) client: Accepted,
    pub(crate) worker: u32,
    pub(crate) control: Arc<Control>,
    pub(crate) turn: Turn,
    /// What the session has from the start.
    pub(crate) loans: [Loan; Resource::ALL.len()],
    pub(crate) terms: Box<Terms>,
    /// Part of the memory of the client's guest.
    pub(crate) part: Option<Arc<Part>>,
}

/// What happens to a client that has arrived.
pub(crate) enum Arrival {
    /// It has a worker.
    Served(Match),
    /// It waits in line and was told so.
    InLine,
    /// It had hung up already.
    Gone,
    /// The caller must tell it the verdict.
    Refused(Accepted, Verdict),
    /// The caller must tell it that an administrator drains the daemon.
    Drained(Accepted),
    /// The caller must tell it the limit of its user.
    OverLimit(Accepted, Refusal),
}

impl Workers {
    pub(crate) fn new(
        required: Level,
        limits: Limits,
        groups: Result<Arc<Groups>, NoGroups>,
    ) -> Self {
        let is_inside = matches!(groups, Err(NoGroups::NotAsked));
        let spares_min = if is_inside { SPARES_MIN_INSIDE } else { SPARES_MIN };
        let has_shares = groups.as_ref().is_ok_and(|groups| groups.shares_processors());
        let means = if has_shares { Means::Priority } else { means_here() };
        Self {
            quota: Quota::new(limits),
            table: FxHashMap::default(),
            spares: VecDeque::new(),
            dying: Vec::new(),
            tickets: FxHashMap::default(),
            line: Line::default(),
            served: 0,
            totals: Totals::default(),
            refill: Refill::new(cores(), spares_min, Instant::now()),
            problem: None,
            devices: Vec::new(),
            is_pocl: false,
            need_foremen: Vec::new(),
            description: None,
            device_memory: Vec::new(),
            ending: false,
            draining: false,
            account: Account::default(),
            sharing: Sharing::new(means, cores()),
            stray_look: None,
            strays_looked: Instant::now(),
            confinement: None,
            required,
            groups,
        }
    }

    /// Returns how many workers should be started now.
    pub(crate) fn missing(&self, now: Instant) -> usize {
        if self.ending { 0 } else { self.refill.starts(self.census(), now) }
    }

    /// Returns when the daemon must look again even if nothing happens.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let starts = self.table.values().filter_map(|worker| match worker.state {
            State::Starting(since) => Some(since + START_MAX),
            _ => worker.must_end(),
        });
        let dying = (!self.dying.is_empty()).then(|| now + DYING_LOOK);
        let refill = self.refill.next_look(self.census(), now);
        let leaving = self.groups.as_ref().ok().and_then(|groups| groups.look_again(now));
        let looks = [refill, self.line.next_note(), dying, leaving, self.sharing.next_look()];
        starts.chain(looks.into_iter().flatten()).chain(self.stray_look).min()
    }

    fn census(&self) -> Census {
        let (spares, starting, waiting) = (self.spares.len(), self.starting(), self.line.len());
        Census { spares, starting, serving: self.serving(), waiting }
    }

    pub(crate) fn starting(&self) -> usize {
        self.table.values().filter(|worker| matches!(worker.state, State::Starting(_))).count()
    }

    pub(crate) fn spare(&self) -> usize {
        self.spares.len()
    }

    pub(crate) fn serving(&self) -> usize {
        self.table.values().filter(|worker| matches!(worker.state, State::Serving(_))).count()
    }

    /// Returns what tells of all workers, to wait on.
    pub(crate) fn signs(&self) -> Vec<Signs> {
        self.table.iter().map(|(id, it)| it.signs(*id)).collect()
    }

    /// Starts a worker. Only the daemon's own thread may call this.
    pub(crate) fn start(&mut self, launch: &Launch, now: Instant) -> io::Result<u32> {
        self.refill.start_began();
        match launch.start() {
            Ok(Launched { child, control, exit, folder, group, order }) => {
                let id = child.id();
                let state = State::Starting(now);
                let worker = Worker {
                    child,
                    control: Arc::new(control),
                    exit: exit.map(Arc::new),
                    state,
                    client: Presence::default(),
                    tickets: 0,
                    ended: None,
                    usage: None,
                    part: None,
                    folder,
                    group,
                    order,
                    foremen: 0,
                    level: Level::Off,
                    nodes: FxHashSet::default(),
                    asks: Asks::new(now),
                    over_since: None,
                    stray: Stray::default(),
                };
                self.table.insert(id, worker);
                Ok(id)
            }
            Err(error) => {
                self.note_failure(format!("a worker could not be started: {error}"), now);
                Err(error)
            }
        }
    }

    /// Handles a message from a worker; `came` is the descriptor that came with it.
    pub(crate) fn heard(&mut self, id: u32, message: ToDaemon, came: Option<OwnedFd>) {
        let Some(worker) = self.table.get_mut(&id) else { return };
        match message {
            ToDaemon::Ready { devices, problem, confinement, is_pocl } => {
                if matches!(worker.state, State::Starting(_)) {
                    worker.usage =
                        came.and_then(|memory| Used::of_worker(memory).ok()).map(Arc::new);
                    worker.state = State::Spare;
                    self.spares.push_back(id);
                    self.refill.start_succeeded();
                    worker.level = confinement.level;
                    self.problem = confinement.refusal(self.required).or(problem);
                    self.confinement = Some(confinement);
                    self.devices = devices;
                    self.is_pocl = is_pocl;
                }
            }
            ToDaemon::Describe => {
                if matches!(worker.state, State::Starting(_))
                    && let Some(description) = came.and_then(node::read_description)
                {
                    self.device_memory = node::memory_of(&description);
                    self.description = Some(description);
                }
            }
            ToDaemon::Admit(ticket) => {
                // A ticket that is taken keeps its owner. The ticket is entered before the worker
                // is told. If the worker does not take the answer, its session ends.
                if worker.tickets < TICKETS_PER_WORKER_MAX && !self.tickets.contains_key(&ticket) {
                    worker.tickets += 1;
                    self.tickets.insert(ticket, id);
                    _ = worker.control.send(&ToWorker::Admitted(ticket), None);
                }
            }
            ToDaemon::Forget(ticket) => {
                if self.tickets.get(&ticket) == Some(&id) {
                    self.tickets.remove(&ticket);
                    worker.tickets = worker.tickets.saturating_sub(1);
                }
            }
            ToDaemon::Settled(outcome) => {
                if let (State::Serving(session), Some(outcome)) =
                    (&mut worker.state, MemoryUse::from_wire(outcome))
                {
                    session.way = session.way.settled(outcome);
                    if outcome != MemoryUse::Shared {
                        worker.part = None;
                    }
                }
            }
            ToDaemon::Borrow { question, resource, least } => {
                let answer = self.quota.borrow(id, question, resource, least);
                // If the worker does not take the answer, it waits for a limited time.
                _ = worker.control.send(&answer, None);
            }
            ToDaemon::GiveBack { resource, amount } => {
                self.quota.ledger.give_back(id, resource, amount);
            }
            ToDaemon::Foreman { question } => {
                self.need_foremen.push(NeedsForeman { worker: id, question })
            }
            // `Daemon::hear` has taken them.
            ToDaemon::Connect { .. } | ToDaemon::Ask { .. } => {}
            ToDaemon::Ended(why) => worker.ended = Some(why),
        }
    }

    /// Gives an arriving client a spare, or lets it join the line.
    pub(crate) fn arrive(&mut self, client: Accepted, now: Instant) -> Arrival {
        if self.draining {
            return Arrival::Drained(client);
        }
        self.refill.client_came(now);
        if self.is_hopeless() {
            return Arrival::Refused(client, self.why_hopeless());
        }
        let user = user_of(&client);
        if matches!(user, User::Key(_)) && !self.quota.ledger.limits().names(&user) {
            // Whoever wrote the name into the list wanted a limit, and there is none.
            tracing::warn!(%user, "the file of limits lacks the quota of a client");
            return Arrival::Refused(client, Verdict::Restricted);
        }
        if self.line.is_empty() && self.can_serve() && self.quota.ledger.may_enter(&user).is_ok() {
            return match self.take(client, user, now) {
                Ok(matched) => Arrival::Served(matched),
                Err(client) => Arrival::Refused(*client, Verdict::NoWorker),
            };
        }
        if let Some(refusal) = self.quota.refuses_in_line(&self.line, &user) {
            return Arrival::OverLimit(client, refusal);
        }
        if self.line.is_full() {
            return Arrival::Refused(client, Verdict::Full);
        }
        // The client is told under the lock, so that no other thread can serve it first.
        let ahead = u32::try_from(self.line.len()).unwrap_or(u32::MAX);
        if client.tell_in_line(ahead).is_err() {
            return Arrival::Gone;
        }
        match self.line.join(Waiting::new(client, user), now) {
            Ok(()) => Arrival::InLine,
            Err(Waiting { client, .. }) => Arrival::Refused(client, Verdict::Full),
        }
    }

    /// Returns the first client in line that may have a session, and its worker, if one is free.
    /// Skips clients that hung up.
    pub(crate) fn serve_next(&mut self, now: Instant) -> Option<Match> {
        while self.can_serve() {
            let ledger = &self.quota.ledger;
            let next = self.line.next_that(|it| ledger.may_enter(&it.user).is_ok());
            let Waiting { client, user, .. } = next?;
            if !client.has_hung_up()
                && let Ok(matched) = self.take(client, user, now)
            {
                return Some(matched);
            }
        }
        None
    }

    fn can_serve(&self) -> bool {
        // A client joined the line before the daemon was drained, and gets no session after that.
        !self.draining
            && !self.spares.is_empty()
            && !self.is_unconfined()
            && self.serving() < SESSIONS_PER_DAEMON_MAX
    }

    /// Takes a spare for a client.
    fn take(&mut self, client: Accepted, user: User, now: Instant) -> Result<Match, Box<Accepted>> {
        let turn = self.turn();
        let Some(id) = self.spares.pop_front() else { return Err(client.into()) };
        let Some(worker) = self.table.get_mut(&id) else { return Err(client.into()) };
        self.refill.spare_taken(now);
        self.account.open();
        let mark = self.account.now().ok();
        let (name, usage) = (client.peer().to_owned(), worker.usage.clone());
        let (way, key) = (client.way(), client.client.as_ref().and_then(|it| it.lasting_key()));
        worker.asks.learn(Machine::of(&client.source()));
        let part = client.take_part().map(Arc::new);
        worker.part.clone_from(&part);
        let mut user_of_worker = None;
        if let Some(folder) = &mut worker.folder {
            user_of_worker = folder.owner();
            // Otherwise other sessions could write to the cache.
            let is_apart = worker.level >= Level::Files || user_of_worker.is_some();
            let kept_for = client.user().filter(|_| is_apart);
            let limit = DiskLimit::of(self.quota.ledger.limits(), &user);
            folder.begin(id, kept_for, limit);
        }
        let level = worker.level;
        let session = Session {
            worker: id,
            client: name,
            credentials: client.credentials,
            way,
            since: now,
            mark,
            usage,
            level,
            key,
            user: user_of_worker,
            counted: Counted::default(),
        };
        worker.state = State::Serving(Box::new(session));
        self.served += 1;
        let (loans, terms) = self.quota.enter(id, user);
        let (control, terms) = (worker.control.clone(), Box::new(terms));
        self.limit_groups();
        Ok(Match { client, worker: id, control, turn, part, loans, terms })
    }

    fn turn(&self) -> Turn {
        Turn { before: self.served, beside: u32::try_from(self.serving()).unwrap_or(u32::MAX) }
    }

    /// Returns the node's description as a new client would see it; `None` before it is known.
    pub(crate) fn description(&self) -> Option<NodeDescription> {
        let description = self.description.clone()?;
        Some(NodeDescription { turn: self.turn(), ..description })
    }

    pub(crate) fn knows(&self, ticket: &[u8; TICKET_BYTES]) -> bool {
        self.tickets.contains_key(ticket)
    }

    /// Returns the worker that registered a ticket, and forgets the ticket.
    pub(crate) fn redeem(&mut self, ticket: &[u8; TICKET_BYTES]) -> Option<Signs> {
        let id = self.tickets.remove(ticket)?;
        let worker = self.table.get_mut(&id)?;
        worker.tickets = worker.tickets.saturating_sub(1);
        Some(worker.signs(id))
    }

    /// Returns whether a client would wait for a worker in vain. The reason is that the daemon is
    /// ending, or that too many starts have failed.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.ending || self.is_unconfined() || self.refill.is_hopeless(self.census())
    }

    /// Returns the verdict on clients that would wait in vain.
    pub(crate) fn why_hopeless(&self) -> Verdict {
        if self.is_unconfined() { Verdict::Unconfined } else { Verdict::NoWorker }
    }

    /// Returns whether workers are less confined than clients' hosts require.
    fn is_unconfined(&self) -> bool {
        self.confinement.as_ref().is_some_and(|report| report.level < self.required)
    }

    /// Ends surplus spares, the newest first, because the least of their memory is in use.
    pub(crate) fn retire(&mut self, now: Instant) {
        for _ in 0..self.refill.surplus(self.census(), now) {
            let Some(id) = self.spares.pop_back() else { return };
            // A spare ends by itself when its control socket closes.
            let Some(Worker { child, folder, group, .. }) = self.table.remove(&id) else { return };
            let dying = Dying::of(id, child, now);
            self.dying.push(Dying { retired: true, group, _folder: folder, ..dying });
        }
    }

    /// Kills workers whose start takes too long; their sockets then close.
    pub(crate) fn end_hanging(&mut self, now: Instant) -> Vec<u32> {
        let mut hanging = Vec::new();
        for (id, worker) in &mut self.table {
            if matches!(worker.state, State::Starting(since) if now >= since + START_MAX) {
                // If it has ended meanwhile, it is reaped as well.
                _ = worker.child.kill();
                worker.state = State::Starting(now);
                hanging.push(*id);
            }
        }
        hanging
    }

    /// Kills all workers and waits for their end.
    pub(crate) fn end_all(&mut self) {
        self.ending = true;
        for worker in self.table.values_mut() {
            end_group(&worker.child);
            worker.group.iter().for_each(Group::end);
        }
        for dying in &self.dying {
            end_group(&dying.child);
        }
        for (_, mut worker) in self.table.drain() {
            // They were killed, so the wait is short. The folder goes after it.
            _ = worker.child.wait();
        }
        for mut dying in self.dying.drain(..) {
            _ = dying.child.wait();
        }
        self.spares.clear();
        // Drops the clients, which closes their connections.
        self.line = Line::default();
    }

    fn note_failure(&mut self, problem: String, now: Instant) {
        self.refill.start_failed(now);
        self.problem = Some(problem);
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}
