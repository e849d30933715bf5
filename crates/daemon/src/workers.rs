//! The daemon's workers: spares that wait for a client, and those that serve one; and the clients
//! that wait in line.
//!
//! One thread, the one that runs the daemon, starts and reaps all of them: a worker ends with the thread that started it
//! (`PR_SET_PDEATHSIG`), so that none outlives its daemon.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_link::Accepted;
use penstock_wire::describe::{NodeDescription, Turn};
use penstock_wire::hello::{TICKET_BYTES, Verdict};
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustc_hash::FxHashMap;

use crate::account::{Account, Joules};
use crate::line::Line;
use crate::message::{Control, Found, ToDaemon, ToWorker};
use crate::node;
use crate::refill::{Census, Refill};
use crate::transport::Transport;
use crate::usage::Used;

/// A driver that has not loaded in this time hangs. The slowest seen took 8 s, on a node with eight GPUs just booted.
const START_MAX: Duration = Duration::from_secs(60);

/// Tickets that one worker can have open: as many as a session has peers. A worker is not trusted with more of our memory.
const TICKETS_PER_WORKER_MAX: usize = 1024;

/// A worker that has closed its control socket is given so long to end; then it is made to.
const DYING_MAX: Duration = Duration::from_millis(200);

/// How often dying workers are looked at.
const DYING_LOOK: Duration = Duration::from_millis(5);

/// All workers, and who waits for one.
pub(crate) struct Workers {
    table: FxHashMap<u32, Worker>,
    spares: VecDeque<u32>,
    /// Those whose control socket has closed, until their processes have ended.
    dying: Vec<Dying>,
    tickets: FxHashMap<[u8; TICKET_BYTES], u32>,
    /// Clients that wait for a worker.
    pub(crate) line: Line<Accepted>,
    /// Clients that got one, ever.
    served: u64,
    /// How many are to be started.
    refill: Refill,
    /// Why the last worker could not start, or what it missed.
    pub(crate) problem: Option<String>,
    pub(crate) devices: Vec<Found>,
    /// The node, as the last worker that was ready found it.
    description: Option<NodeDescription>,
    /// The daemon is ending: no more workers.
    pub(crate) ending: bool,
    /// What clients cost.
    pub(crate) account: Account,
}

struct Worker {
    child: Child,
    control: Arc<Control>,
    state: State,
    /// Its open tickets.
    tickets: usize,
    /// How its session ended, if it told.
    ended: Option<String>,
    /// Where it counts the use of its devices.
    usage: Option<Arc<Used>>,
}

struct Dying {
    worker: u32,
    /// The daemon has ended it, because it had more spares than it needed.
    retired: bool,
    child: Child,
    client: Option<String>,
    told: Option<String>,
    since: Instant,
    killed: bool,
}

enum State {
    Starting(Instant),
    Spare,
    Serving(Session),
}

/// A session, for the status.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) worker: u32,
    pub(crate) client: String,
    pub(crate) since: Instant,
    /// What the node had taken at its beginning, if that is known.
    pub(crate) mark: Option<Joules>,
    /// How long it has had each device.
    pub(crate) usage: Option<Arc<Used>>,
}

/// How a worker ended.
pub(crate) struct Ended {
    pub(crate) worker: u32,
    /// Its client, if it had one.
    pub(crate) client: Option<String>,
    /// What it told of the end.
    pub(crate) told: Option<String>,
    pub(crate) status: String,
    /// Whether it ended by itself, as it should.
    pub(crate) orderly: bool,
}

/// A client, and the worker that it gets.
pub(crate) struct Match {
    pub(crate) client: Accepted,
    pub(crate) control: Arc<Control>,
    pub(crate) turn: Turn,
}

/// What becomes of a client that has come.
pub(crate) enum Arrival {
    /// It is served at once.
    Served(Match),
    /// It waits, and has been told so.
    InLine,
    /// It had hung up already.
    Gone,
    /// It is told this, and goes.
    Refused(Accepted, Verdict),
}

impl Workers {
    pub(crate) fn new() -> Self {
        Self {
            table: FxHashMap::default(),
            spares: VecDeque::new(),
            dying: Vec::new(),
            tickets: FxHashMap::default(),
            line: Line::default(),
            served: 0,
            refill: Refill::new(cores(), Instant::now()),
            problem: None,
            devices: Vec::new(),
            description: None,
            ending: false,
            account: Account::default(),
        }
    }

    /// How many workers should be started now.
    pub(crate) fn missing(&self, now: Instant) -> usize {
        if self.ending { 0 } else { self.refill.starts(self.census(), now) }
    }

    /// When the daemon must look again although nothing happens.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let starts = self.table.values().filter_map(|worker| match worker.state {
            State::Starting(since) => Some(since + START_MAX),
            _ => None,
        });
        let dying = (!self.dying.is_empty()).then(|| now + DYING_LOOK);
        let refill = self.refill.next_look(self.census(), now);
        starts.chain(refill).chain(self.line.next_note()).chain(dying).min()
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

    pub(crate) fn sessions(&self) -> Vec<Session> {
        let serving = self.table.values().filter_map(|worker| match &worker.state {
            State::Serving(session) => Some(session.clone()),
            _ => None,
        });
        serving.collect()
    }

    fn serving(&self) -> usize {
        self.table.values().filter(|worker| matches!(worker.state, State::Serving(_))).count()
    }

    /// The control sockets of all workers, to wait for.
    pub(crate) fn controls(&self) -> Vec<(u32, Arc<Control>)> {
        self.table.iter().map(|(id, worker)| (*id, worker.control.clone())).collect()
    }

    /// Starts one. Only the daemon's own thread may.
    pub(crate) fn start(
        &mut self,
        program: &std::path::Path,
        start: &ToWorker,
        now: Instant,
    ) -> io::Result<u32> {
        self.refill.start_began();
        let started = spawn(program).and_then(|(child, control)| {
            control.send(start, None).map_err(io::Error::other)?;
            Ok((child, control))
        });
        match started {
            Ok((child, control)) => {
                let id = child.id();
                let state = State::Starting(now);
                let worker = Worker {
                    child,
                    control: Arc::new(control),
                    state,
                    tickets: 0,
                    ended: None,
                    usage: None,
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

    /// A worker has said something.
    pub(crate) fn heard(&mut self, id: u32, message: ToDaemon, came: Option<OwnedFd>) {
        let Some(worker) = self.table.get_mut(&id) else { return };
        match message {
            ToDaemon::Ready { devices, problem } => {
                if matches!(worker.state, State::Starting(_)) {
                    worker.usage =
                        came.and_then(|memory| Used::of_worker(memory).ok()).map(Arc::new);
                    worker.state = State::Spare;
                    self.spares.push_back(id);
                    self.refill.start_succeeded();
                    self.problem = problem;
                    self.devices = devices;
                }
            }
            ToDaemon::Describe => {
                if matches!(worker.state, State::Starting(_))
                    && let Some(description) = came.and_then(node::read_description)
                {
                    self.description = Some(description);
                }
            }
            ToDaemon::Admit(ticket) => {
                // One that is taken stays its owner's. Known before it is said to be. A worker that does not take the
                // answer ends its session.
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
            ToDaemon::Ended(why) => worker.ended = Some(why),
        }
    }

    /// A client has come: it gets a spare, or joins the line.
    pub(crate) fn arrive(&mut self, client: Accepted, now: Instant) -> Arrival {
        self.refill.client_came(now);
        if self.is_hopeless() {
            return Arrival::Refused(client, Verdict::NoWorker);
        }
        if self.line.is_empty() && self.can_serve() {
            return match self.take(client, now) {
                Ok(matched) => Arrival::Served(matched),
                Err(client) => Arrival::Refused(client, Verdict::NoWorker),
            };
        }
        if self.line.is_full() {
            return Arrival::Refused(client, Verdict::Full);
        }
        // Told under the lock, so that nobody says the last word before.
        let ahead = u32::try_from(self.line.len()).unwrap_or(u32::MAX);
        if client.tell_in_line(ahead).is_err() {
            return Arrival::Gone;
        }
        match self.line.join(client, now) {
            Ok(()) => Arrival::InLine,
            Err(client) => Arrival::Refused(client, Verdict::Full),
        }
    }

    /// The first in line and its worker, if there is one for it. Who has died in line gets none.
    pub(crate) fn serve_next(&mut self, now: Instant) -> Option<Match> {
        while self.can_serve() {
            let client = self.line.next()?;
            if !client.has_hung_up()
                && let Ok(matched) = self.take(client, now)
            {
                return Some(matched);
            }
        }
        None
    }

    /// Whom no worker will ever serve.
    pub(crate) fn give_up_line(&mut self) -> Vec<Accepted> {
        if !self.is_hopeless() {
            return Vec::new();
        }
        std::iter::from_fn(|| self.line.next()).collect()
    }

    /// Tells those in line that the daemon lives, if it is time. Those who have died leave.
    pub(crate) fn note_line(&mut self, now: Instant) -> usize {
        self.line.note(now, |client, ahead| client.tell_in_line(ahead).is_ok()).len()
    }

    fn can_serve(&self) -> bool {
        !self.spares.is_empty() && self.serving() < SESSIONS_PER_DAEMON_MAX
    }

    /// Takes a spare for a client.
    fn take(&mut self, client: Accepted, now: Instant) -> Result<Match, Accepted> {
        let turn = self.turn();
        let Some(id) = self.spares.pop_front() else { return Err(client) };
        let Some(worker) = self.table.get_mut(&id) else { return Err(client) };
        self.refill.spare_taken(now);
        self.account.open();
        let mark = self.account.now().ok();
        let (name, usage) = (client.peer().to_owned(), worker.usage.clone());
        worker.state =
            State::Serving(Session { worker: id, client: name, since: now, mark, usage });
        self.served += 1;
        Ok(Match { client, control: worker.control.clone(), turn })
    }

    fn turn(&self) -> Turn {
        Turn { before: self.served, beside: u32::try_from(self.serving()).unwrap_or(u32::MAX) }
    }

    /// The node, as a client that came now would see it; none if no worker has been ready yet.
    pub(crate) fn description(&self) -> Option<NodeDescription> {
        let description = self.description.clone()?;
        Some(NodeDescription { turn: self.turn(), ..description })
    }

    /// The worker that registered a ticket, once.
    pub(crate) fn redeem(&mut self, ticket: &[u8; TICKET_BYTES]) -> Option<Arc<Control>> {
        let id = self.tickets.remove(ticket)?;
        let worker = self.table.get_mut(&id)?;
        worker.tickets = worker.tickets.saturating_sub(1);
        Some(worker.control.clone())
    }

    /// Whether waiting for a worker is in vain.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.ending || self.refill.is_hopeless(self.census())
    }

    /// A worker's control socket has closed: it has ended, or is about to.
    pub(crate) fn closed(&mut self, id: u32, now: Instant) {
        let Some(worker) = self.table.remove(&id) else { return };
        self.spares.retain(|spare| *spare != id);
        self.tickets.retain(|_, owner| *owner != id);
        let Worker { child, state, ended: told, .. } = worker;
        let client = match state {
            State::Serving(session) => Some(session.client),
            State::Spare | State::Starting(_) => {
                self.note_failure("a worker ended before it had a client".to_owned(), now);
                None
            }
        };
        self.dying.push(Dying {
            worker: id,
            retired: false,
            child,
            client,
            told,
            since: now,
            killed: false,
        });
    }

    /// Ends spares that no demand needs any more; the newest, whose memory is least used.
    pub(crate) fn retire(&mut self, now: Instant) {
        for _ in 0..self.refill.surplus(self.census(), now) {
            let Some(id) = self.spares.pop_back() else { return };
            // A spare whose control socket closes ends by itself.
            let Some(Worker { child, .. }) = self.table.remove(&id) else { return };
            let (client, told) = (None, None);
            self.dying.push(Dying {
                worker: id,
                retired: true,
                child,
                client,
                told,
                since: now,
                killed: false,
            });
        }
    }

    /// Those that have ended since the last look. One that only closed its socket is ended, and nobody waits for it.
    pub(crate) fn reap(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        let (mut at, failing) = (0, self.refill.is_failing());
        while let Some(dying) = self.dying.get_mut(at) {
            let status = match dying.child.try_wait() {
                Ok(Some(status)) => describe(status),
                Ok(None) => {
                    if !dying.killed && now >= dying.since + DYING_MAX {
                        // One that has ended meanwhile is reaped at the next look.
                        _ = dying.child.kill();
                        dying.killed = true;
                    }
                    at += 1;
                    continue;
                }
                Err(_) => "unknown".to_owned(),
            };
            let Dying { worker, retired, client, told, .. } = self.dying.swap_remove(at);
            if retired {
                continue;
            }
            if client.is_none() && failing {
                self.problem = Some(format!("a worker ended before it had a client: {status}"));
            }
            ended.push(Ended { worker, client, orderly: told.is_some(), told, status });
        }
        ended
    }

    /// Ends workers whose start takes too long; their sockets then close.
    pub(crate) fn end_hanging(&mut self, now: Instant) -> Vec<u32> {
        let mut hanging = Vec::new();
        for (id, worker) in &mut self.table {
            if matches!(worker.state, State::Starting(since) if now >= since + START_MAX) {
                // One that has ended meanwhile is reaped as well.
                _ = worker.child.kill();
                worker.state = State::Starting(now);
                hanging.push(*id);
            }
        }
        hanging
    }

    /// Ends all workers, and waits for their end.
    pub(crate) fn end_all(&mut self) {
        self.ending = true;
        for worker in self.table.values_mut() {
            _ = worker.child.kill();
        }
        for dying in &mut self.dying {
            _ = dying.child.kill();
        }
        let children = self.table.drain().map(|(_, worker)| worker.child);
        for mut child in children.chain(self.dying.drain(..).map(|dying| dying.child)) {
            // Killed: the wait is short.
            _ = child.wait();
        }
        self.spares.clear();
        // Their connections close.
        self.line = Line::default();
    }

    fn note_failure(&mut self, problem: String, now: Instant) {
        self.refill.start_failed(now);
        self.problem = Some(problem);
    }
}

/// Where PENSTOCK_LIBCUDA names our own library for workers to drive: the nodes of its pool. Not for a daemon that is one of them.
const DRIVER_NODES_VARIABLE: &str = "PENSTOCK_LIBCUDA_NODES";

/// Cores that this daemon may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Starts a worker's process: its control socket is its standard input.
fn spawn(program: &std::path::Path) -> io::Result<(Child, Control)> {
    let (ours, theirs) = Control::pair()?;
    let child = Command::new(program)
        // Its name in `ps`, where /proc/self/exe would tell nothing.
        .arg0("penstockd")
        .arg("worker")
        // Our own libraries, if a loader finds them, must not open a pool from inside a worker.
        .env("PENSTOCK_WORKER", "1")
        .env(
            "PENSTOCK_NODES",
            std::env::var_os(DRIVER_NODES_VARIABLE).unwrap_or_else(|| "none".into()),
        )
        // Looked at when the daemon began: what is no name is none any more.
        .envs(Transport::configured().map_or(&[][..], Transport::environment).iter().copied())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        // A terminal's ^C is for the program in front, not for the workers behind it.
        .process_group(0)
        .spawn()?;
    Ok((child, ours))
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Hands a connected socket to a worker.
pub(crate) fn hand_over(
    control: &Control,
    message: &ToWorker,
    socket: BorrowedFd<'_>,
) -> Result<(), penstock_link::LinkError> {
    control.send(message, Some(socket))
}
