//! Devices of the pool: the devices of all its daemons, as devices of one rank, without MPI. They
//! share one context, so the workers order commands of different nodes, and a copy between nodes
//! does not pass this process.
//!
//! Sending may wait for room on a link, so each node has a thread that sends (`sender`), and the
//! scheduler only queues orders for it. A command can be sent once the commands that it waits for
//! have been sent, because only then do the workers know their events. Within a node the order of
//! the thread ensures this; between nodes the command is parked here.

mod desk;
mod heap;
mod kernel;
mod landing;
mod program;
mod sender;
mod sent;
mod task;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use penstock_cl_sys::{
    CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_PLATFORM_NAME, CL_PLATFORM_VERSION,
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
};
use penstock_client::config::{Config, NODES_VARIABLE, Source, Surroundings};
use penstock_client::{Context, Node, Pool, Queue};
use penstock_wire::describe;
use rustc_hash::FxHashMap;

use self::desk::{BackendMessage, Desk};
use self::kernel::ProgramKey;
use self::program::{KernelBuild, Programs};
use self::sender::{NodeSender, SendOrder};
use self::sent::SentEvent;
use self::task::{BufferSlot, PoolObject, Task};
use super::{Backend, Ended, Failure, gone};
use crate::clock::Clock;
use crate::command::{Arg, Command, CommandId, DeviceInfo, InPool, ObjectId, ObjectKind};
use crate::doorbell::Doorbell;
use crate::error::{Error, code};
use crate::heap::{HeapMessageTo, HeapPlan, Pe};

/// Bytes of writes that may be sent to a node before the commands that they wait for have ended.
/// The worker keeps these bytes until then. It keeps at most 1 GiB for all nodes and writes
/// (`STAGED_BYTES_MAX`), and at that limit accepts nothing more. A quarter of it keeps a link of 10
/// GB/s busy for 25 ms.
const EARLY_BYTES_MAX: u64 = 256 << 20;

/// The devices of the pool.
#[derive(Debug)]
pub struct Pooled {
    infos: Vec<DeviceInfo>,
    devices: Vec<DeviceSlot>,
    /// One for each node, by its index in the pool.
    senders: Vec<NodeSender>,
    /// Buffers and kernels.
    objects: FxHashMap<ObjectId, PoolObject>,
    programs: Programs,
    heaps: heap::Heaps,
    /// Operations whose ends are not reported yet.
    open: FxHashMap<CommandId, OpenOperation>,
    parked: FxHashMap<CommandId, ParkedOperation>,
    news: Receiver<BackendMessage>,
    desk: Desk,
    context: Arc<Context>,
}

#[derive(Debug)]
struct DeviceSlot {
    queue: Arc<Queue>,
    node: usize,
}

/// An operation that was started and whose end is not reported yet.
#[derive(Debug)]
struct OpenOperation {
    /// The node that runs the operation. A build or a heap's creation has none.
    node: Option<usize>,
    sent: Arc<SentEvent>,
    /// Its bytes that count for [`EARLY_BYTES_MAX`].
    early: u64,
    /// Memory of the program that it writes to.
    lands: std::ops::Range<usize>,
    /// Parked operations that wait until it is sent, and until it has ended.
    on_sent: Vec<CommandId>,
    on_end: Vec<CommandId>,
}

/// An operation that cannot be sent yet.
#[derive(Debug)]
struct ParkedOperation {
    node: usize,
    order: SendOrder,
    /// Number of operations that it still waits for.
    left: usize,
}

/// Whether the user has named the nodes of a pool, in `PENSTOCK_NODES` or in the pool's file. An
/// allocation of Slurm or a daemon of the user's does not say that this program is to use them.
/// [`Pooled::open`] reports errors of the configuration.
pub fn is_named(environment: &dyn Fn(&str) -> Option<String>) -> bool {
    let surroundings =
        Surroundings::new(&crate::host::hostname(), rustix::process::getuid().as_raw(), |name| {
            environment(name).map(Into::into)
        });
    match Config::load_in(&surroundings) {
        Ok(config) => matches!(config.source, Source::Variable | Source::File(_)),
        Err(_) => environment(NODES_VARIABLE).is_some(),
    }
}

impl Pooled {
    /// Opens the pool that the configuration names. Nodes that do not answer are left out, with a
    /// line on standard error.
    ///
    /// # Errors
    /// The configuration is wrong or names no nodes, no node answers, or there is no device.
    pub fn open(clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let refused = |text: String| Error::Transport(text);
        let config = Config::load()
            .map_err(|error| refused(format!("the pool's configuration: {error}")))?;
        if config.nodes.is_empty() {
            return Err(refused(format!(
                "no nodes of a pool are configured: name them in {NODES_VARIABLE}"
            )));
        }
        let keys = config.load_keys();
        let keys = keys.map_err(|error| refused(format!("the pool's key: {error}")))?;
        let tell = |text: std::fmt::Arguments<'_>| eprintln!("libwater: {text}");
        let pool = Pool::of(&config, &keys, tell);
        if pool.nodes().is_empty() {
            let reasons: String =
                pool.absent().iter().map(|(_, error)| format!("\n  {error}")).collect();
            return Err(refused(format!("no node of the pool answers:{reasons}")));
        }
        let mut devices = pool.chosen(&config);
        // CUDA's driver takes no OpenCL C.
        devices.retain(|device| !device.is_cuda());
        Self::over(Arc::new(pool), &devices, clock)
            .map_err(|error| refused(format!("cannot use the pool: {error}")))
    }

    fn over(
        pool: Arc<Pool>,
        devices: &[Arc<penstock_client::Device>],
        clock: Arc<dyn Clock>,
    ) -> Result<Self, penstock_client::Error> {
        let (post, news) = mpsc::channel();
        let context = Context::new(devices)?;
        let desk = Desk::new(post, clock, Arc::clone(&pool));
        let mut slots = Vec::new();
        let mut infos = Vec::new();
        for device in devices {
            let Some(node) = pool.nodes().get(device.node()) else { continue };
            let queue =
                Queue::new(&context, device, CL_QUEUE_PROFILING_ENABLE | out_of_order(device), 0)?;
            infos.push(describe(node, device));
            slots.push(DeviceSlot { queue, node: device.node() });
        }
        let mut senders = Vec::new();
        for node in pool.nodes() {
            let sender = NodeSender::start(node, Arc::clone(&context), desk.clone());
            senders.push(sender.map_err(|error| {
                penstock_client::Error::Config(
                    format!("cannot start the thread for a node: {error}").into(),
                )
            })?);
        }
        Ok(Self {
            infos,
            devices: slots,
            senders,
            objects: FxHashMap::default(),
            programs: Programs::default(),
            heaps: heap::Heaps::default(),
            open: FxHashMap::default(),
            parked: FxHashMap::default(),
            news,
            desk,
            context,
        })
    }

    fn object(&self, kind: ObjectKind, id: ObjectId) -> Result<PoolObject, Failure> {
        let found = match kind {
            ObjectKind::Buffer => self
                .heaps
                .part(id)
                .map(|(device, heap)| PoolObject::Part { device, heap })
                .or_else(|| self.objects.get(&id).cloned()),
            ObjectKind::Kernel => self.objects.get(&id).cloned(),
            ObjectKind::Heap => self.heaps.get(id).map(PoolObject::Heap),
        };
        found.ok_or_else(|| gone(kind))
    }

    /// Finds the objects of a command, and the device that performs it: a transfer runs where its
    /// buffer is. Objects that the command creates or releases are entered or removed.
    fn prepare(&mut self, device: u32, command: &Command) -> Result<(u32, Task), Failure> {
        self.refuse_parts(command)?;
        let mut objects = Vec::new();
        for (kind, id) in command.objects() {
            let object = self.object(kind, id)?;
            if let (PoolObject::Kernel(kernel), Command::Run { args, .. }) = (&object, command) {
                kernel.check(args.len())?;
            }
            objects.push((id, object));
        }
        match command {
            Command::CreateBuffer { buffer, .. } => {
                let object = PoolObject::Buffer { device, memory: BufferSlot::default() };
                self.objects.insert(*buffer, object.clone());
                objects.push((*buffer, object));
            }
            Command::ReleaseBuffer { buffer: id } => {
                let object = self.objects.remove(id).ok_or_else(|| gone(ObjectKind::Buffer))?;
                objects.push((*id, object));
            }
            Command::ReleaseKernel { kernel: id } => {
                let object = self.objects.remove(id).ok_or_else(|| gone(ObjectKind::Kernel))?;
                objects.push((*id, object));
            }
            Command::ReleaseHeap { heap } => {
                objects
                    .extend(self.heaps.remove(*heap).map(|made| (*heap, PoolObject::Heap(made))));
            }
            _ => {}
        }
        let is_placed = !matches!(command, Command::Run { .. });
        let own = objects.last().and_then(|(_, object)| object.device()).filter(|_| is_placed);
        Ok((own.unwrap_or(device), Task { command: command.clone(), objects }))
    }

    /// Refuses commands that the workers do not perform on a part of a heap.
    fn refuse_parts(&self, command: &Command) -> Result<(), Failure> {
        let is_part = |buffer: &ObjectId| self.heaps.part(*buffer).is_some();
        let what = match command {
            Command::Copy { from, to, .. } if is_part(from) || is_part(to) => "copied",
            Command::Run { args, .. }
                if args.iter().any(|arg| matches!(arg, Arg::Buffer(it) if is_part(it))) =>
            {
                "given to a kernel by itself"
            }
            _ => return Ok(()),
        };
        Err(Failure {
            code: code::INVALID_MEM_OBJECT,
            message: format!(
                "on the pool a part of a heap can only be read and written, not {what}"
            ),
            log: String::new(),
        })
    }

    /// Starts the creation of a heap.
    fn make_heap(&self, id: CommandId, plan: &HeapPlan) -> Result<(), Failure> {
        let device = |pe: &Pe| {
            let slot = self.devices.get(pe.device as usize);
            slot.map(|slot| Arc::clone(slot.queue.device())).ok_or_else(no_device)
        };
        let devices = plan.pes.iter().map(device).collect::<Result<_, _>>()?;
        heap::make(id, plan, &self.context, devices, &self.desk)
    }

    fn begin(
        &mut self,
        id: CommandId,
        device: u32,
        command: &Command,
        after: &[CommandId],
    ) -> Result<(), Failure> {
        let (device, task) = self.prepare(device, command)?;
        let slot = self.devices.get(device as usize).ok_or_else(no_device)?;
        let (node, queue) = (slot.node, Arc::clone(&slot.queue));
        let waits_at_all = after.iter().any(|earlier| self.open.contains_key(earlier));
        let mut early = if waits_at_all { task.bytes_sent() } else { 0 };
        let is_too_early =
            self.senders.get(node).is_some_and(|sender| sender.early + early > EARLY_BYTES_MAX)
                && early > 0;
        let lands = task.target().map_or(0..0, |into| into.range());
        let (sent, mut waits, mut left) = (Arc::<SentEvent>::default(), Vec::new(), 0);
        for earlier in after {
            let is_parked = self.parked.contains_key(earlier);
            // An operation that is not in the table has ended.
            let Some(open) = self.open.get_mut(earlier) else { continue };
            waits.push(Arc::clone(&open.sent));
            // Workers keep the order of reads, but the bytes of the earlier read may take longer on
            // their way here.
            let lands_there = open.lands.start < lands.end && lands.start < open.lands.end;
            if is_too_early || lands_there {
                open.on_end.push(id);
                left += 1;
            } else if (open.node != Some(node) || is_parked) && !open.sent.sent_or_watch() {
                open.on_sent.push(id);
                left += 1;
            }
        }
        if is_too_early {
            early = 0;
        }
        if let Some(sender) = self.senders.get_mut(node) {
            sender.early += early;
        }
        let order = SendOrder { id, queue, task, waits, sent: Arc::clone(&sent) };
        let (on_sent, on_end) = (Vec::new(), Vec::new());
        self.open
            .insert(id, OpenOperation { node: Some(node), sent, early, lands, on_sent, on_end });
        if left == 0 {
            self.send(node, order);
        } else {
            self.parked.insert(id, ParkedOperation { node, order, left });
        }
        Ok(())
    }

    fn send(&mut self, node: usize, order: SendOrder) {
        let id = order.id;
        if !self.senders.get(node).is_some_and(|sender| sender.give(order)) {
            self.desk.failed(id, no_sender());
        }
    }

    /// Notes that an operation that a parked one waits for has been sent or has ended.
    fn met(&mut self, id: CommandId) {
        let Some(parked) = self.parked.get_mut(&id) else { return };
        parked.left = parked.left.saturating_sub(1);
        if parked.left == 0
            && let Some(ParkedOperation { node, order, .. }) = self.parked.remove(&id)
        {
            self.send(node, order);
        }
    }

    /// Removes an operation whose end is reported.
    fn close(&mut self, end: &Ended) {
        let Some(open) = self.open.remove(&end.operation) else { return };
        if let Some(sender) = open.node.and_then(|node| self.senders.get_mut(node)) {
            sender.early = sender.early.saturating_sub(open.early);
        }
        for later in open.on_sent.into_iter().chain(open.on_end) {
            if end.outcome.is_err() {
                if self.parked.remove(&later).is_some() {
                    let message = "a command that it waits for has failed".to_owned();
                    self.desk.failed(
                        later,
                        Failure { code: code::WAIT_LIST_FAILED, message, log: String::new() },
                    );
                }
            } else {
                self.met(later);
            }
        }
    }

    fn build(&mut self, id: CommandId, device: u32, command: &Command) -> Result<(), Failure> {
        let Command::CreateKernel { kernel, code, name, options } = command else {
            return Ok(());
        };
        let slot = self.devices.get(device as usize).ok_or_else(no_device)?;
        let key = ProgramKey { device, code: code.clone(), options: options.clone() };
        let build = KernelBuild {
            id,
            object: *kernel,
            key: Box::new(key),
            name: name.clone(),
            device: Arc::clone(slot.queue.device()),
        };
        self.programs.build(build, &self.context, &self.desk)
    }
}

impl Backend for Pooled {
    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    /// All devices are in one context, and the workers keep the order, also between nodes.
    fn orders(&self, _: u32, _: u32) -> bool {
        true
    }

    unsafe fn start(&mut self, id: CommandId, device: u32, command: &Command, after: &[CommandId]) {
        let started = match command {
            Command::CreateKernel { .. } => self.build(id, device, command),
            Command::CreateHeap { plan, .. } => self.make_heap(id, plan),
            Command::ResetHeap { heap, .. } => self.heaps.reset(*heap, id, &self.desk),
            _ => self.begin(id, device, command, after),
        };
        if let Err(failure) = started {
            // Operations that come after it must find that it has failed.
            let sent = Arc::new(SentEvent::failed(failure.code));
            let (on_sent, on_end) = (Vec::new(), Vec::new());
            self.open.insert(
                id,
                OpenOperation { node: None, sent, early: 0, lands: 0..0, on_sent, on_end },
            );
            self.desk.failed(id, failure);
        }
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        while let Ok(news) = self.news.try_recv() {
            match news {
                BackendMessage::Ended(end) => {
                    self.close(&end);
                    ended.push(end);
                }
                BackendMessage::Sent(id) => {
                    let waiting =
                        self.open.get_mut(&id).map(|open| std::mem::take(&mut open.on_sent));
                    waiting.unwrap_or_default().into_iter().for_each(|later| self.met(later));
                }
                BackendMessage::Built { id, object, key, made } => {
                    let outcome = made.map(|(program, made)| {
                        self.programs.keep(*key, program);
                        self.objects.insert(object, PoolObject::Kernel(Arc::new(made)));
                    });
                    ended.push(self.desk.end_now(id, outcome));
                }
                BackendMessage::Heap { id, plan, made } => {
                    let outcome = made.map(|heap| self.heaps.add(&plan, heap));
                    ended.push(self.desk.end_now(id, outcome));
                }
            }
        }
    }

    fn heap_messages(&mut self) -> Vec<HeapMessageTo> {
        self.heaps.messages()
    }

    fn abort_heap(&mut self, heap: ObjectId, reason: &str) {
        self.heaps.abort(heap, reason);
    }

    fn wake_with(&mut self, wake: Doorbell) {
        self.desk.wake_with(wake);
    }
}

fn no_device() -> Failure {
    let message = "the device does not exist or was released".to_owned();
    Failure { code: code::INVALID_VALUE, message, log: String::new() }
}

fn no_sender() -> Failure {
    let message = "the thread that sends to this node does not exist or was released".to_owned();
    Failure { code: code::NODE_LOST, message, log: String::new() }
}

fn out_of_order(device: &penstock_client::Device) -> u64 {
    let bits =
        device.info(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES).and_then(|bytes| bytes.first_chunk::<8>());
    bits.map_or(0, |bytes| u64::from_ne_bytes(*bytes)) & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
}

fn describe(node: &Node, device: &penstock_client::Device) -> DeviceInfo {
    /// Distinguishes two nodes on one host from two hosts, whatever their names are.
    const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";
    let description = node.description();
    let platform = description.platforms.get(device.platform() as usize);
    let text = |name| {
        let bytes =
            platform.and_then(|platform| describe::find(&platform.info, name)).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
    };
    let boot = std::fs::read_to_string(BOOT_ID_FILE).unwrap_or_default();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    DeviceInfo {
        info: device.all_info().clone(),
        platform: text(CL_PLATFORM_NAME),
        platform_version: text(CL_PLATFORM_VERSION),
        hostname: node.host().to_owned(),
        in_pool: Some(InPool {
            node: number(node.index()),
            index: device.index(),
            count: number(node.devices().len()),
            is_local: node.address().is_local()
                || (!boot.trim().is_empty() && description.boot == boot.trim()),
        }),
    }
}
