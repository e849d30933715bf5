//! The daemon's workers: spares that wait for a client, and those that serve one.
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

use penstock_wire::describe::Turn;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
use rustc_hash::FxHashMap;

use crate::account::{Account, Joules};
use crate::message::{Control, Found, ToDaemon, ToWorker};
use crate::transport::Transport;
use crate::usage::Used;

/// Workers that are kept ready. A client that comes while the next spare starts waits for it: some 100 ms.
const SPARES: usize = 2;

/// Workers that start at the same time. Starting is loading drivers: more than two for each core only take longer.
fn starting_max() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| 2 * cores.get())
}

/// A driver that has not loaded in this time hangs. The slowest seen took 8 s, on a node with eight GPUs just booted.
const START_MAX: Duration = Duration::from_secs(60);

/// After a failed start the next one waits so long, ...
const RETRY_MIN: Duration = Duration::from_millis(100);
/// ... and twice as long after each further one, up to this.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A spare is replaced so long after it was taken, if another is left: loading drivers must not slow down the start of the
/// very client that took it.
const REPLACE_AFTER: Duration = Duration::from_millis(500);

/// So many failed starts in a row are no accident (both first spares, and one more): clients are refused at once then.
const FAILURES_HOPELESS: u32 = 3;

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
    pub(crate) waiting: usize,
    /// Clients that got one, ever.
    served: u64,
    failures: u32,
    retry_at: Option<Instant>,
    /// When the spares are filled up again.
    replace_at: Option<Instant>,
    /// Why the last worker could not start, or what it missed.
    pub(crate) problem: Option<String>,
    pub(crate) devices: Vec<Found>,
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

impl Workers {
    pub(crate) fn new() -> Self {
        Self {
            table: FxHashMap::default(),
            spares: VecDeque::new(),
            dying: Vec::new(),
            tickets: FxHashMap::default(),
            waiting: 0,
            served: 0,
            failures: 0,
            retry_at: None,
            replace_at: None,
            problem: None,
            devices: Vec::new(),
            ending: false,
            account: Account::default(),
        }
    }

    /// How many workers should be started now.
    pub(crate) fn missing(&self, now: Instant) -> usize {
        if self.ending || self.retry_at.is_some_and(|at| now < at) {
            return 0;
        }
        let starting = self.starting();
        let spares = if self.replace_at.is_some_and(|at| now < at) { 1 } else { SPARES };
        let wanted = (spares + self.waiting).saturating_sub(self.spares.len() + starting);
        // A failing driver is tried by one worker at a time.
        let at_once = if self.failures > 0 { 1 } else { starting_max() };
        let room = (SESSIONS_PER_DAEMON_MAX + SPARES).saturating_sub(self.table.len());
        wanted.min(at_once.saturating_sub(starting)).min(room)
    }

    /// Forgets delays that are over.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.retry_at = self.retry_at.filter(|at| now < *at);
        self.replace_at = self.replace_at.filter(|at| now < *at);
    }

    /// When the daemon must look again although nothing happens.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let starts = self.table.values().filter_map(|worker| match worker.state {
            State::Starting(since) => Some(since + START_MAX),
            _ => None,
        });
        let dying = (!self.dying.is_empty()).then(|| Instant::now() + DYING_LOOK);
        starts.chain(self.retry_at).chain(self.replace_at).chain(dying).min()
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

    /// Sessions, and clients that wait for one.
    pub(crate) fn clients(&self) -> usize {
        let serving = self.table.values().filter(|worker| matches!(worker.state, State::Serving(_)));
        serving.count() + self.waiting
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
        self.retry_at = None;
        self.replace_at = None;
        let started = spawn(program).and_then(|(child, control)| {
            control.send(start, None).map_err(io::Error::other)?;
            Ok((child, control))
        });
        match started {
            Ok((child, control)) => {
                let id = child.id();
                let state = State::Starting(now);
                let worker =
                    Worker { child, control: Arc::new(control), state, tickets: 0, ended: None, usage: None };
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
                    worker.usage = came.and_then(|memory| Used::of_worker(memory).ok()).map(Arc::new);
                    worker.state = State::Spare;
                    self.spares.push_back(id);
                    self.failures = 0;
                    self.problem = problem;
                    self.devices = devices;
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

    /// Takes a spare for a client.
    pub(crate) fn take(&mut self, client: &str) -> Option<(Arc<Control>, Turn)> {
        let id = self.spares.pop_front()?;
        let beside = u32::try_from(self.sessions().len()).unwrap_or(u32::MAX);
        let worker = self.table.get_mut(&id)?;
        let now = Instant::now();
        self.replace_at = Some(now + REPLACE_AFTER);
        self.account.open();
        let mark = self.account.now().ok();
        let (client, usage) = (client.to_owned(), worker.usage.clone());
        worker.state = State::Serving(Session { worker: id, client, since: now, mark, usage });
        let turn = Turn { before: self.served, beside };
        self.served += 1;
        Some((worker.control.clone(), turn))
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
        self.ending || (self.failures >= FAILURES_HOPELESS && self.spares.is_empty())
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
        self.dying.push(Dying { worker: id, child, client, told, since: now, killed: false });
    }

    /// Those that have ended since the last look. One that only closed its socket is ended, and nobody waits for it.
    pub(crate) fn reap(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        let (mut at, failing) = (0, self.failures > 0);
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
            let Dying { worker, client, told, .. } = self.dying.swap_remove(at);
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
    }

    fn note_failure(&mut self, problem: String, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let delay = RETRY_MIN.saturating_mul(1 << (self.failures - 1).min(10)).min(RETRY_MAX);
        self.retry_at = Some(now + delay);
        self.problem = Some(problem);
    }
}

/// Where PENSTOCK_LIBCUDA names our own library for workers to drive: the nodes of its pool. Not for a daemon that is one of them.
const DRIVER_NODES_VARIABLE: &str = "PENSTOCK_LIBCUDA_NODES";

/// Starts a worker's process: its control socket is its standard input.
fn spawn(program: &std::path::Path) -> io::Result<(Child, Control)> {
    let (ours, theirs) = Control::pair()?;
    let child = Command::new(program)
        // Its name in `ps`, where /proc/self/exe would tell nothing.
        .arg0("penstockd")
        .arg("worker")
        // Our own libraries, if a loader finds them, must not open a pool from inside a worker.
        .env("PENSTOCK_WORKER", "1")
        .env("PENSTOCK_NODES", std::env::var_os(DRIVER_NODES_VARIABLE).unwrap_or_else(|| "none".into()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_slow_down_the_next_start() {
        let mut workers = Workers::new();
        let now = Instant::now();
        assert_eq!(workers.missing(now), SPARES);
        workers.note_failure("it crashed".into(), now);
        assert_eq!(workers.missing(now), 0);
        assert!(!workers.is_hopeless(), "one failure may be an accident");
        assert_eq!(workers.missing(now + RETRY_MIN), 1);
        for _ in 0..40 {
            workers.note_failure("it crashed".into(), now);
        }
        assert_eq!(workers.missing(now + RETRY_MAX), 1);
        assert!(workers.is_hopeless());
    }

    #[test]
    fn a_burst_starts_as_many_as_wait() {
        let mut workers = Workers::new();
        workers.waiting = 1_000;
        assert_eq!(workers.missing(Instant::now()), starting_max());
        workers.ending = true;
        assert_eq!(workers.missing(Instant::now()), 0);
    }
}
