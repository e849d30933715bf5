//! A worker's process: it becomes ready before it has a client, and ends with its client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use penstock_confine::{Level, Order};
use penstock_link::{LinkError, OwnThread, Patience, Settled, Side, Stream, WorkersPart};
use penstock_quota::{Loan, Resource, Terms};
use penstock_wire::Status;
use penstock_wire::calls::to_worker;
use penstock_wire::hello::{TICKET_BYTES, feature};
use penstock_wire::limits::{BEAT_MS, HELLO_MS_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::asker::Questions;
use crate::builder::{self, BuildLimits, Builders, Foremen};
use crate::crash;
use crate::links::Links;
use crate::log::{self, Log};
use crate::message::{Control, Found, Note, Received, ToDaemon, ToWorker};
use crate::node::Node;
use crate::outgoing::Outgoing;
use crate::session::allowance::{Allowance, Lender, Refused};
use crate::session::times::Times;
use crate::session::{Admissions, Output, PeerSetup, Session, SharedSession};
use crate::sharing::Gates;
use crate::sys::{OomEntry, OomPriority};
use crate::usage::Usage;

/// Time that a worker has for an orderly end after its client has hung up, whatever its drivers do.
const END_MAX: Duration = Duration::from_millis(300);

const BEAT_EVERY: Duration = Duration::from_millis(BEAT_MS);

/// Runs a worker: a process that [`crate::serve`] started with the argument `worker`.
pub fn worker_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::begin(Log::Json);
            tracing::warn!(%error, "a worker could not start");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    crate::sys::close_inherited()?;
    crate::sys::unblock_signals();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let control = Control::of(take_stdin()?);
    OomEntry::of_this_process().set(OomPriority::Worker);
    // If the daemon ended before the signal above was requested, its socket has closed.
    let Ok(Some((first, _))) = control.receive(Patience::Forever) else { return Ok(()) };
    log::begin(Log::Json);
    if let ToWorker::Start { simulate: true, .. } | ToWorker::ForkServer { simulate: true, .. } =
        first
    {
        penstock_device::Driver::simulate();
    }
    match first {
        ToWorker::Start { addresses, order, .. } => work(control, &order, addresses),
        ToWorker::ForkServer { folder, .. } => builder::serve_forks(control, folder),
        // A daemon of the same executable sends nothing else here.
        _ => Ok(()),
    }
}

/// Is a worker until its client has gone.
fn work(control: Control, order: &Order, addresses: Vec<String>) -> io::Result<()> {
    order.change_user()?;
    // A process that changes its user loses this request. If the daemon has ended meanwhile, the
    // first message to it fails.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let control = Arc::new(control);
    // The folder of the trace will be out of reach, because traces of other sessions lie there.
    penstock_link::begin_trace_of_worker();
    // From the next line on, the threads that the worker starts and the drivers that it loads are
    // restricted.
    let begun = order.begin();
    end_at_panic();
    crash::prepare();
    let output = Output::capture()?;
    penstock_device::share_cpus();
    let (mut node, problem) = Node::find(addresses);
    let mut problem = problem.map(|problem| problem.to_string());
    let found = |device: &penstock_device::Device| Found {
        name: device.name(),
        is_of_host: device.shares_host_memory(),
    };
    let devices: Vec<Found> = node.devices().iter().map(found).collect();
    if devices.is_empty() {
        problem.get_or_insert_with(|| {
            "the OpenCL loader finds no devices; is a driver installed (clinfo -l)?".into()
        });
    }
    // If this fails, tools wait for another worker's description.
    if let Ok(description) = crate::node::description_file(&node)
        && control.send(&ToDaemon::Describe, Some(description.as_fd())).is_err()
    {
        return Ok(());
    }
    let confinement = begun.finish(node.runs_programs());
    let foremen = Arc::new(Foremen::of(control.clone()));
    if let Some(limits) = BuildLimits::configured().filter(|_| order.level > Level::Off) {
        let folder = order.folder.clone();
        node.rehearse_with(Builders::new(foremen.clone(), limits, confinement.level, folder));
    }
    let usage = node.usage().map(AsFd::as_fd);
    let (confined, is_pocl) = (confinement.clone(), node.is_pocl());
    let ready = ToDaemon::Ready { devices, problem, confinement: confined, is_pocl };
    if control.send(&ready, usage).is_err() {
        return Ok(());
    }
    let headers = order.folder.as_deref().map(enter);
    let Some(client) = await_client(&control, &node, headers) else { return Ok(()) };
    penstock_confine::keep_descriptors(&confinement, client.sends_descriptors)?;
    serve(client, &node, &control, output, foremen)
}

/// Makes the worker's folder the current one. Returns the place in it for the files that programs
/// include. Its name is the same in all sessions, because the caches of compilers know a build by
/// its options.
fn enter(folder: &Path) -> PathBuf {
    const HEADERS: &str = "headers";
    let entered = std::env::set_current_dir(folder);
    entered.map_or_else(|_| folder.join(HEADERS), |()| HEADERS.into())
}

/// Returns the client that the daemon hands over, or `None` if the daemon ends.
fn await_client(control: &Control, node: &Node, headers: Option<PathBuf>) -> Option<Client> {
    let (mut part, mut newer, mut gates) = (None, None, Gates::default());
    loop {
        match control.receive(Patience::Forever) {
            Ok(Some((ToWorker::Part { place }, Some(memory)))) => {
                // The daemon has just made the file; without it the client uses its connection.
                part = WorkersPart::new(memory, place)
                    .inspect_err(|error| tracing::warn!(%error, "no memory of the guest"))
                    .ok();
            }
            Ok(Some((
                ToWorker::Client {
                    sends_descriptors,
                    devices,
                    stream: note,
                    features,
                    turn,
                    reach,
                    loans,
                    terms,
                },
                socket,
            ))) => {
                let description = node.encoded(turn, reach, devices.as_deref());
                let socket = socket?;
                let terms = newer.unwrap_or(terms);
                return Some(Client {
                    socket,
                    note,
                    features,
                    description,
                    part,
                    headers,
                    loans,
                    terms,
                    devices,
                    sends_descriptors,
                    gates,
                });
            }
            // They changed before the daemon could hand over the client.
            Ok(Some((ToWorker::Terms(terms), _))) => newer = Some(terms),
            Ok(Some((ToWorker::Gates(newer), _))) => gates = newer,
            _ => return None,
        }
    }
}

/// Ends this worker after a panic in any thread: nobody must wait for a dead thread.
fn end_at_panic() {
    std::panic::set_hook(Box::new(|what| {
        tracing::warn!(panic = %what, "a defect ends the session");
        crate::sys::exit_now(101)
    }));
}

/// Takes the control socket from standard input, and gives drivers an empty input instead.
fn take_stdin() -> io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(control)
}

struct Client {
    socket: OwnedFd,
    note: Note,
    features: u64,
    description: Vec<u8>,
    /// Part of the memory that the client's guest shares with this host.
    part: Option<WorkersPart>,
    loans: [Loan; Resource::ALL.len()],
    terms: Terms,
    /// Numbers of the devices that the client may use; `None` for all.
    devices: Option<Vec<u32>>,
    sends_descriptors: bool,
    gates: Gates,
    /// Folder for the files that the client's programs include.
    headers: Option<PathBuf>,
}

fn serve(
    client: Client,
    node: &Node,
    control: &Arc<Control>,
    output: Arc<Output>,
    foremen: Arc<Foremen>,
) -> io::Result<()> {
    let _own = OwnThread::begin();
    // This thread watches for the client's end, because the serving thread may be inside a driver.
    let watched = rustix::io::fcntl_dupfd_cloexec(&client.socket, 3)?;
    let beats = client.features & feature::BEATS != 0;
    let (ended, end) = mpsc::channel();
    let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
    crash::ring(&bell);
    let lender = Box::new(Daemon(control.clone()));
    let allowance = Allowance::new(Some(lender), client.loans, client.terms.clone());
    let allowance = Arc::new(allowance);
    allowance.turns.set(client.gates);
    let outgoing = Arc::new(Outgoing::new(control.clone()));
    let questions = Questions::to_daemon(control.clone());
    let setup = PeerSetup {
        dialer: Some(outgoing.clone()),
        admissions: Some(Arc::new(Daemon(control.clone()))),
    };
    thread::scope(|scope| {
        let (started, start) = mpsc::channel();
        let bell = &bell;
        let within = allowance.clone();
        let session = move || {
            let why = match open(client, node, control, setup, output, within) {
                Ok((session, receiver)) => {
                    watch_memory(&session.shared());
                    // This fails only if the process is ending.
                    _ = started.send(session.shared());
                    session.run(receiver)
                }
                Err(error) => error,
            };
            _ = ended.send(why);
            // The counter is far from full.
            _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        };
        penstock_process::start_scoped(scope, "session", session)?;
        let (start, end) = (&start, &end);
        let client = &watched;
        let teller = node.usage().map(Usage::teller);
        let times = Times::new(teller, &allowance.terms(), Instant::now());
        let asked = Answers { allowance, outgoing, questions, foremen };
        let events = Events { client, control, bell, start, end, asked };
        let hung_up = events.watch(times, beats);
        let why = match hung_up {
            Watched::Ended(why) => Some(why.to_string()),
            Watched::Over(why) => Some(why),
            Watched::HungUp => end.recv_timeout(END_MAX).ok().map(|why| why.to_string()),
        };
        let why = why.unwrap_or_else(|| "the client hung up while a driver was busy".to_owned());
        tracing::info!(why, "the session ends");
        crash::end();
        _ = control.send(&ToDaemon::Ended(why), None);
        // No return from `main`: drivers' exit handlers wait for kernels and may crash.
        crate::sys::exit_now(0)
    })
}

/// Sends the node's description to the client and makes the link.
fn open(
    client: Client,
    node: &Node,
    control: &Control,
    setup: PeerSetup,
    output: Arc<Output>,
    allowance: Arc<Allowance>,
) -> Result<(Session, penstock_link::Receiver), LinkError> {
    let settled = Settled::default();
    let stream = Stream::resume(client.socket, &client.note)?;
    let stream = stream.with_part(client.part, settled.clone());
    let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
    stream.write_all_until(&client.description, deadline)?;
    let (sender, receiver) =
        penstock_link::establish(stream, client.features, Side::Worker, to_worker::check)?;
    if let Some(outcome) = settled.get() {
        // If this fails, the daemon has ended.
        _ = control.send(&ToDaemon::Settled(*outcome as u64), None);
    }
    let mut session = Session::within(allowance, node, sender, setup, Some(output));
    if let Some(devices) = &client.devices {
        session.leave_only(devices);
    }
    if let Some(headers) = client.headers {
        session.shared().keep_headers_in(headers);
    }
    Ok((session, receiver))
}

enum Watched {
    /// The client or the daemon is gone.
    HungUp,
    /// The session has ended by itself.
    Ended(LinkError),
    /// The session has exceeded a limit. Its client is told.
    Over(String),
}

/// What the watching thread waits for.
struct Events<'a> {
    client: &'a OwnedFd,
    control: &'a Control,
    bell: &'a OwnedFd,
    start: &'a mpsc::Receiver<Arc<SharedSession>>,
    end: &'a mpsc::Receiver<LinkError>,
    asked: Answers,
}

/// What waits for answers of the daemon.
struct Answers {
    allowance: Arc<Allowance>,
    outgoing: Arc<Outgoing>,
    questions: Arc<Questions>,
    foremen: Arc<Foremen>,
}

impl Events<'_> {
    /// Handles the daemon's messages until the client, the daemon or the session is gone. At an
    /// interval this thread sends signs of life, to the client only with `beats`.
    fn watch(&self, mut times: Times, beats: bool) -> Watched {
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP;
        let mut session = None;
        let mut beat_at = Instant::now() + BEAT_EVERY;
        let mut links = Links::default();
        loop {
            let mut fds = [
                PollFd::new(self.client, PollFlags::RDHUP),
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
                PollFd::new(self.bell, PollFlags::IN),
            ];
            let next = times.next().map_or(beat_at, |at| at.min(beat_at));
            match poll(&mut fds, Some(&until(next))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Watched::HungUp,
            }
            let [client, daemon, _] = fds.map(|fd| fd.revents());
            if let Some((status, why)) = crash::found() {
                // Before the client hears of it: its end may be the end of the daemon, too.
                tracing::warn!(why, "a fault ends the worker");
                session = session.or_else(|| self.start.try_recv().ok());
                if let Some(session) = &session {
                    session.fault(status, &why);
                }
                return Watched::Over(why);
            }
            if let Ok(why) = self.end.try_recv() {
                return Watched::Ended(why);
            }
            if client.intersects(gone) {
                return Watched::HungUp;
            }
            if !daemon.is_empty() {
                let Ok(message) = self.control.receive::<ToWorker>(Patience::Never) else {
                    return Watched::HungUp;
                };
                if let Some((ToWorker::Over(why), _)) = &message {
                    session = session.or_else(|| self.start.try_recv().ok());
                    if let Some(session) = &session {
                        session.fault(Status::OUT_OF_RESOURCES, why);
                    }
                    return Watched::Over(why.clone());
                }
                if let Some((other, socket)) =
                    message.and_then(|it| self.note(it, &mut times, &mut links))
                {
                    session = session.or_else(|| self.start.recv_timeout(END_MAX).ok());
                    if let Some(session) = &session {
                        hear(session, other, socket, &mut links);
                    }
                }
            }
            let now = Instant::now();
            if now >= beat_at || times.next().is_some_and(|at| now >= at) {
                session = session.or_else(|| self.start.try_recv().ok());
                if let Some(why) = times.look(session.as_deref(), &self.asked.allowance, now) {
                    return Watched::Over(why);
                }
            }
            if now >= beat_at {
                beat_at = now + BEAT_EVERY;
                session = session.or_else(|| self.start.try_recv().ok());
                if let Some(Err(why)) = session.as_ref().map(|session| session.tend(beats)) {
                    return Watched::Ended(why);
                }
            }
        }
    }
}

impl Events<'_> {
    /// Handles a message for which the session need not have started. It may wait for this on its
    /// way to its start. Returns any other message.
    fn note(
        &self,
        (message, socket): Received<ToWorker>,
        times: &mut Times,
        links: &mut Links,
    ) -> Option<Received<ToWorker>> {
        let Answers { allowance, outgoing, questions, foremen } = &self.asked;
        match message {
            ToWorker::Lent { question, resource, answer } => {
                allowance.answered(question, resource, answer);
            }
            ToWorker::Terms(terms) => {
                times.set(&terms, Instant::now());
                allowance.apply(terms);
            }
            ToWorker::Gates(gates) => allowance.turns.set(gates),
            ToWorker::Connected { number, node, stream } => {
                outgoing.answered(number, links.resume(socket, &stream, node));
            }
            ToWorker::Asked { number, answer } => questions.answered(number, answer, socket),
            ToWorker::EndLinks(node) => links.end(&node),
            ToWorker::Foreman { question, why } => {
                foremen.answered(question, socket.ok_or(why.unwrap_or_default()));
            }
            ToWorker::Unreached { number, why } => outgoing.answered(number, Err(why)),
            other => return Some((other, socket)),
        }
        None
    }
}

/// Returns the time that is left.
fn until(at: Instant) -> Timespec {
    let left = at.saturating_duration_since(Instant::now());
    let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: left.subsec_nanos().into() }
}

fn hear(
    session: &Arc<SharedSession>,
    message: ToWorker,
    socket: Option<OwnedFd>,
    links: &mut Links,
) {
    match message {
        ToWorker::Admitted(ticket) => session.admitted(&ticket),
        ToWorker::Peer { ticket, node, stream: note } => {
            if let Ok(stream) = links.resume(socket, &note, node) {
                session.arrived(&ticket, stream);
            }
        }
        // A daemon of the same executable sends nothing else here.
        _ => {}
    }
}

/// The daemon, as sessions see it.
struct Daemon(Arc<Control>);

impl Lender for Daemon {
    fn borrow(&self, question: u64, resource: Resource, least: u64) -> bool {
        self.0.send(&ToDaemon::Borrow { question, resource, least }, None).is_ok()
    }

    fn give_back(&self, resource: Resource, amount: u64) {
        // If the message is lost, the daemon has ended, or does not listen and counts too much.
        _ = self.0.send(&ToDaemon::GiveBack { resource, amount }, None);
    }
}

/// Has the driver's memory counted as the session's.
fn watch_memory(session: &Arc<SharedSession>) {
    penstock_device::borrow_from(Box::new(DeviceMemory {
        allowance: session.allowance.clone(),
        session: Arc::downgrade(session),
    }));
}

/// The device memory that the session may have.
struct DeviceMemory {
    allowance: Arc<Allowance>,
    session: Weak<SharedSession>,
}

impl penstock_device::Lender for DeviceMemory {
    fn take(&self, bytes: u64) -> Result<(), String> {
        self.allowance.take(Resource::DeviceMemory, bytes).map_err(|Refused(why)| why)
    }

    fn give(&self, bytes: u64) {
        self.allowance.give(Resource::DeviceMemory, bytes);
    }

    fn tell(&self, why: String) {
        if let Some(session) = self.session.upgrade() {
            session.tell_refusal(Resource::DeviceMemory, &Refused(why));
        }
    }
}

impl Admissions for Daemon {
    fn admit(&self, ticket: &[u8; TICKET_BYTES]) -> bool {
        self.0.send(&ToDaemon::Admit(*ticket), None).is_ok()
    }

    fn forget(&self, ticket: &[u8; TICKET_BYTES]) {
        // If the message is lost, the daemon keeps a ticket that the session no longer accepts.
        _ = self.0.send(&ToDaemon::Forget(*ticket), None);
    }
}
