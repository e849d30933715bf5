//! A raw client: frames over a real link, without the client's library.
#![allow(dead_code, clippy::missing_panics_doc, reason = "each test uses a part")]

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use penstock_daemon::node::Node;
use penstock_daemon::session::{PeerSetup, Session, SharedSession};
use penstock_link::{LinkError, Patience, Received, Receiver, Sender, Side, Stream};
use penstock_trial::{deadline, patience};
use penstock_wire::calls::{Attached, Serve, Served, to_client, to_worker};
use penstock_wire::describe::{BuildOrder, BuildReport};
use penstock_wire::hello::feature;
use penstock_wire::id::kind;
use penstock_wire::{Call, I32, Id, IndexSpace, Request, Status, TimesOf, U32, U64, frame};

/// What the sessions of a test program use. Each program says it in its constant `DEVICES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The devices of this host.
    Real,
    /// The simulated device, for tests to which every device is the same.
    Simulated,
}

pub fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        if crate::DEVICES == Devices::Simulated {
            penstock_device::Driver::simulate();
        }
        let (node, problem) = Node::find(vec!["unix:/nowhere".into()]);
        assert!(problem.is_none(), "no OpenCL loader: {problem:?}");
        assert!(!node.devices().is_empty(), "no OpenCL device: install pocl-opencl-icd");
        node
    })
}

/// Makes two connected sockets.
pub fn sockets() -> (Stream, Stream) {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    (Stream::from_fd(a.into()).unwrap(), Stream::from_fd(b.into()).unwrap())
}

pub struct Client {
    pub sender: Sender,
    receiver: Receiver,
    pub inbox: Inbox,
    next: u64,
    worker: Option<JoinHandle<LinkError>>,
    pub shared: Option<Arc<SharedSession>>,
}

#[derive(Default)]
pub struct Inbox {
    pub events: HashMap<u64, to_client::EventDone>,
    pub replies: HashMap<u64, (Status, Vec<u8>)>,
    pub reads: HashMap<u64, Vec<u8>>,
    pub output: Vec<u8>,
    pub fault: Option<String>,
    /// What the worker said to the person who runs the program.
    pub notices: Vec<String>,
    pub peers_lost: Vec<u64>,
    /// Failures of queues, and the number of events that had ended before each.
    pub queue_failures: Vec<(u64, Status, usize)>,
    /// Opcode and id of each frame, in the order of arrival.
    pub order: Vec<(u16, u64)>,
}

impl Client {
    /// Makes a client of a session that a thread of this process serves.
    pub fn start(features: u64) -> Self {
        Self::with_peers(features, PeerSetup::default())
    }

    /// As `start`, with what the session needs to reach peers.
    pub fn with_peers(features: u64, peers: PeerSetup) -> Self {
        let (here, there) = sockets();
        // No thread of this process beats for the session, so a long build would look like silence.
        let features = features & !feature::BEATS;
        let (told, shared) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            let link = penstock_link::establish(there, features, Side::Worker, to_worker::check);
            let (sender, receiver) = match link {
                Ok(link) => link,
                Err(error) => return error,
            };
            let session = Session::new(node(), sender, peers, None);
            told.send(session.shared()).unwrap();
            session.run(receiver)
        });
        let (sender, receiver) =
            penstock_link::establish(here, features, Side::Client, to_client::check).unwrap();
        let shared = shared.recv_timeout(patience()).ok();
        Self { sender, receiver, inbox: Inbox::default(), next: 1, worker: Some(worker), shared }
    }

    pub fn rings() -> Self {
        Self::start(feature::ALL)
    }

    /// Makes a client of a worker that a daemon has started.
    pub fn of_link(sender: Sender, receiver: Receiver) -> Self {
        Self { sender, receiver, inbox: Inbox::default(), next: 1, worker: None, shared: None }
    }

    pub fn id<K>(&mut self) -> Id<K> {
        self.next += 1;
        Id::new(self.next)
    }

    pub fn send<C: Call>(&self, call: C, waits: &[Id<kind::Event>], payload: &[u8]) {
        self.sender.send(&call, waits, payload).unwrap();
    }

    pub fn receive(&mut self, patience: Patience) -> Result<Received, LinkError> {
        self.sender.flush()?;
        let inbox = &mut self.inbox;
        self.receiver
            .receive(patience, &mut |frame, payload| to_client::dispatch(inbox, frame, payload))
    }

    /// Receives frames until `done` returns true.
    pub fn until(&mut self, what: &str, done: impl Fn(&Inbox) -> bool) {
        let deadline = deadline();
        while !done(&self.inbox) {
            match self.receive(Patience::Until(deadline)) {
                Ok(Received::Frame) => {}
                Ok(Received::TimedOut) => panic!("{what} does not come"),
                Err(error) => panic!("{what} does not come: {error}; {:?}", self.inbox.fault),
            }
        }
    }

    /// Receives frames until the session has ended. Returns the reason that the worker gave.
    pub fn until_end(&mut self) -> String {
        let deadline = deadline();
        while let Ok(received) = self.receive(Patience::Until(deadline)) {
            assert_eq!(received, Received::Frame, "the session goes on");
        }
        self.inbox.fault.clone().unwrap_or_default()
    }

    pub fn request<C: Request>(&mut self, mut call: C, payload: &[u8]) -> (Status, Vec<u8>) {
        let id = self.id();
        call.set_request(id);
        self.send(call, &[], payload);
        self.until(C::NAME, |inbox| inbox.replies.contains_key(&id.get()));
        self.inbox.replies.remove(&id.get()).unwrap()
    }

    pub fn ended(&mut self, event: Id<kind::Event>) -> to_client::EventDone {
        self.until("the end of an event", |inbox| inbox.events.contains_key(&event.get()));
        self.inbox.events[&event.get()]
    }

    pub fn status(&mut self, event: Id<kind::Event>) -> i32 {
        self.ended(event).status.get()
    }

    pub fn finish(&mut self, queue: Id<kind::Queue>) -> Status {
        self.request(to_worker::Finish { request: Id::NONE, queue }, &[]).0
    }

    /// Hangs up, and returns how the session ended.
    pub fn end(mut self) -> Option<LinkError> {
        self.sender.close();
        self.worker.take().map(|worker| worker.join().unwrap())
    }

    // -- objects ------------------------------------------------------------------------------

    pub fn context(&mut self) -> Id<kind::Context> {
        let context = self.id();
        let devices = frame::encode(&vec![0_u32]);
        self.send(to_worker::CreateContext { context, platform: U32::ZERO }, &[], &devices);
        context
    }

    pub fn queue(&mut self, context: Id<kind::Context>, properties: u64) -> Id<kind::Queue> {
        self.queue_telling(context, properties, TimesOf::Commands as u32)
    }

    /// Makes a queue that reports the times of `times` (see [`TimesOf`]).
    pub fn queue_telling(
        &mut self,
        context: Id<kind::Context>,
        properties: u64,
        times: u32,
    ) -> Id<kind::Queue> {
        let queue = self.id();
        let (properties, times) = (U64::new(properties), U32::new(times));
        let (device, size) = (U32::ZERO, U32::ZERO);
        let call = to_worker::CreateQueue { queue, context, device, properties, size, times };
        self.send(call, &[], &[]);
        queue
    }

    pub fn buffer(&mut self, context: Id<kind::Context>, size: u64) -> Id<kind::Mem> {
        let mem = self.id();
        let call =
            to_worker::CreateBuffer { mem, context, flags: U64::new(1), size: U64::new(size) };
        self.send(call, &[], &[]);
        mem
    }

    /// Makes a program and builds it.
    pub fn program(
        &mut self,
        context: Id<kind::Context>,
        source: &str,
    ) -> (Id<kind::Program>, BuildReport) {
        let program = self.id();
        self.send(to_worker::CreateProgramWithSource { program, context }, &[], source.as_bytes());
        let order = BuildOrder { devices: vec![0], ..BuildOrder::default() };
        let call = to_worker::BuildProgram { request: Id::NONE, program };
        let (_, report) = self.request(call, &frame::encode(&order));
        (program, frame::decode("a report", &report).unwrap())
    }

    pub fn kernel(
        &mut self,
        context: Id<kind::Context>,
        source: &str,
        name: &str,
    ) -> Id<kind::Kernel> {
        let (program, report) = self.program(context, source);
        assert_eq!(report.status, 0, "{report:?}");
        let kernel = self.id();
        self.send(to_worker::CreateKernel { kernel, program }, &[], name.as_bytes());
        kernel
    }

    pub fn write(
        &mut self,
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        offset: u64,
        bytes: &[u8],
    ) -> Id<kind::Event> {
        let event = self.id();
        self.send(
            to_worker::WriteBuffer { queue, mem, event, offset: U64::new(offset) },
            &[],
            bytes,
        );
        event
    }

    pub fn read_waiting(
        &mut self,
        queue: Id<kind::Queue>,
        mem: Id<kind::Mem>,
        size: u64,
        waits: &[Id<kind::Event>],
    ) -> Id<kind::Event> {
        let event = self.id();
        self.inbox.reads.insert(event.get(), vec![0; usize::try_from(size).unwrap()]);
        let call =
            to_worker::ReadBuffer { queue, mem, event, offset: U64::ZERO, size: U64::new(size) };
        self.send(call, waits, &[]);
        event
    }

    /// Reads a buffer and waits for the bytes.
    pub fn read(&mut self, queue: Id<kind::Queue>, mem: Id<kind::Mem>, size: u64) -> Vec<u8> {
        let event = self.read_waiting(queue, mem, size, &[]);
        assert_eq!(self.status(event), 0);
        self.inbox.reads.remove(&event.get()).unwrap()
    }

    pub fn launch(
        &mut self,
        queue: Id<kind::Queue>,
        kernel: Id<kind::Kernel>,
        event: Id<kind::Event>,
        global: u64,
        waits: &[Id<kind::Event>],
        args: &[u8],
    ) {
        let call = to_worker::LaunchKernel {
            queue,
            kernel,
            event,
            space: IndexSpace::line(global, None).into(),
        };
        self.send(call, waits, args);
    }

    pub fn marker(&mut self, queue: Id<kind::Queue>, waits: &[Id<kind::Event>]) -> Id<kind::Event> {
        let event = self.id();
        self.send(to_worker::Marker { queue, event }, waits, &[]);
        event
    }

    pub fn expect_event(&mut self) -> Id<kind::Event> {
        let event = self.id();
        self.send(to_worker::ExpectEvent { event, peer: Id::NONE }, &[], &[]);
        event
    }

    pub fn resolve(&mut self, event: Id<kind::Event>, status: i32) {
        self.send(to_worker::ResolveEvent { event, status: I32::new(status) }, &[], &[]);
    }
}

macro_rules! inbox {
    ($($call:ident |$inbox:ident, $frame:ident, $payload:ident| $take:block)*) => {$(
        impl Serve<to_client::$call> for Inbox {
            fn serve(&mut self, $frame: &to_client::$call, with: Attached<'_>) -> Served {
                let $payload = with.payload;
                let $inbox = self;
                $take
                Ok(())
            }
        }
    )*};
}

inbox! {
    Reply |inbox, call, payload| {
        inbox.order.push((to_client::Reply::OPCODE, call.request.get()));
        inbox.replies.insert(call.request.get(), (Status(call.status.get()), payload.read_all()?));
    }
    EventDone |inbox, call, _payload| {
        inbox.order.push((to_client::EventDone::OPCODE, call.event.get()));
        let before = inbox.events.insert(call.event.get(), *call);
        assert!(before.is_none(), "{call:?} came twice");
    }
    ReadData |inbox, call, payload| {
        inbox.order.push((to_client::ReadData::OPCODE, call.event.get()));
        assert!(!inbox.events.contains_key(&call.event.get()), "bytes after the end");
        let into = inbox.reads.get_mut(&call.event.get()).expect("a read that was asked for");
        let start = usize::try_from(call.offset.get()).unwrap();
        let end = start + usize::try_from(payload.left()).unwrap();
        payload.read(&mut into[start..end])?;
    }
    Output |inbox, _call, payload| { inbox.output.extend(payload.read_all()?); }
    MemGone |inbox, call, _payload| {
        inbox.order.push((to_client::MemGone::OPCODE, call.mem.get()));
    }
    PeerLost |inbox, call, _payload| { inbox.peers_lost.push(call.peer.get()); }
    QueueFailed |inbox, call, _payload| {
        let failure = (call.queue.get(), Status(call.status.get()), inbox.events.len());
        inbox.queue_failures.push(failure);
    }
    Beat |_inbox, _call, _payload| {}
    ContextError |inbox, call, payload| {
        let text = String::from_utf8_lossy(&payload.read_all()?).into_owned();
        if call.context.is_none() {
            inbox.notices.push(text);
        }
    }
    Fault |inbox, _call, payload| {
        inbox.fault = Some(String::from_utf8_lossy(&payload.read_all()?).into_owned());
    }
}

/// Encodes the arguments of a launch, from index 0.
pub fn args(list: &[penstock_wire::args::Arg<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, arg) in (0..).zip(list) {
        penstock_wire::args::write(&mut bytes, index, *arg).unwrap();
    }
    bytes
}
