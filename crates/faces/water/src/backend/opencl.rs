//! The node's OpenCL platforms. The devices of a platform share one context, and each device has
//! one queue. Dependencies within a context become wait lists of the driver.

mod about;
mod heap;
mod program;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use penstock_cl_sys::CL_QUEUE_PROFILING_ENABLE;
use penstock_device::{
    Arg as DeviceArg, Context, Device, Driver, Event, Mem, Program, Queue, Staged, Status, Want,
};
use penstock_process::Lock;
use rustc_hash::{FxHashMap, FxHashSet};

use self::program::{MadeKernel, ProgramKey};
use super::{Backend, Ended, Failure, Memory, gone, not_performed, refused};
use crate::clock::Clock;
use crate::command::{
    Arg, Command, CommandId, DeviceInfo, IndexSpace, ObjectId, ObjectKind, Rank, Times,
};
use crate::doorbell::Doorbell;
use crate::error::code;
use crate::heap::{HeapMessage, HeapMessageTo};
use crate::transport::Span;

/// Number of built programs that are kept for further kernels of the same code. An application has
/// a few programs, for a few devices each.
const PROGRAMS_KEPT: usize = 64;

/// The devices of this host.
#[derive(Debug)]
pub struct OpenCl {
    infos: Vec<DeviceInfo>,
    devices: Vec<DeviceSlot>,
    buffers: FxHashMap<ObjectId, (u32, Mem)>,
    kernels: FxHashMap<ObjectId, (u32, MadeKernel)>,
    programs: VecDeque<(ProgramKey, Program)>,
    /// Events of operations whose ends are not reported yet.
    events: FxHashMap<CommandId, Event>,
    /// Operations that the driver refused and whose ends are not reported yet. They have no event.
    refused: FxHashSet<CommandId>,
    /// Devices that were given work since the last poll.
    unflushed: Vec<u32>,
    heaps: heap::Heaps,
    /// Messages about heaps for other ranks.
    heap_messages: Vec<HeapMessageTo>,
    news: Receiver<BackendMessage>,
    post: Sender<BackendMessage>,
    bell: Arc<Lock<Doorbell>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct DeviceSlot {
    device: Device,
    context: Context,
    queue: Queue,
    /// Number of its context: devices of one domain share it.
    domain: u32,
}

/// A message of another thread to the scheduler.
enum BackendMessage {
    Ended(Ended),
    Built {
        id: CommandId,
        device: u32,
        object: ObjectId,
        key: Box<ProgramKey>,
        made: Result<(Program, MadeKernel), Failure>,
    },
    /// A heap was created, or its creation failed.
    Heap {
        id: CommandId,
        heap: ObjectId,
        made: Result<heap::MadeHeap, Failure>,
    },
    /// A message about a heap for another rank.
    HeapMessage(HeapMessageTo),
}

impl std::fmt::Debug for BackendMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(ended) => ended.fmt(f),
            Self::Built { id, .. } => f.debug_tuple("Built").field(id).finish(),
            Self::Heap { id, .. } => f.debug_tuple("Heap").field(id).finish(),
            Self::HeapMessage(message) => message.fmt(f),
        }
    }
}

impl OpenCl {
    /// Opens all devices that the ICD loader finds. Without a loader there are none; platforms that
    /// do not work are left out.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (post, news) = mpsc::channel();
        let mut backend = Self {
            infos: Vec::new(),
            devices: Vec::new(),
            buffers: FxHashMap::default(),
            kernels: FxHashMap::default(),
            programs: VecDeque::new(),
            events: FxHashMap::default(),
            refused: FxHashSet::default(),
            unflushed: Vec::new(),
            heaps: heap::Heaps::default(),
            heap_messages: Vec::new(),
            news,
            post,
            bell: Arc::default(),
            clock,
        };
        let platforms = Driver::load().map(|driver| driver.platforms()).unwrap_or_default();
        // CUDA's driver takes no OpenCL C.
        let platforms = platforms.into_iter().filter(|platform| !platform.is_cuda());
        for (domain, platform) in (0..).zip(platforms) {
            let devices = platform.devices();
            let Ok(context) = Context::new(&platform, &devices, Box::new(|_| {})) else { continue };
            for device in devices {
                let properties = CL_QUEUE_PROFILING_ENABLE | about::out_of_order(&device);
                let Ok(queue) = Queue::new(&context, &device, properties, 0) else { continue };
                backend.infos.push(about::describe(&platform, &device));
                backend.devices.push(DeviceSlot {
                    device,
                    context: context.clone(),
                    queue,
                    domain,
                });
            }
        }
        backend
    }

    fn slot(&self, device: u32) -> Result<&DeviceSlot, Failure> {
        self.devices
            .get(device as usize)
            .ok_or_else(|| failure(Status::INVALID_DEVICE, "find the device"))
    }

    fn buffer(&self, buffer: ObjectId) -> Result<&Mem, Failure> {
        self.buffers.get(&buffer).map(|(_, mem)| mem).ok_or_else(|| gone(ObjectKind::Buffer))
    }

    /// Starts a command. Returns its event, or `None` if it has ended already.
    fn enqueue(
        &mut self,
        id: CommandId,
        device: u32,
        command: &Command,
        after: &[CommandId],
    ) -> Result<Option<Event>, Failure> {
        let slot = self.slot(device)?;
        let queue = slot.queue.clone();
        let events: Vec<Event> =
            after.iter().filter_map(|earlier| self.events.get(earlier).cloned()).collect();
        let waits: Vec<&Event> = events.iter().collect();
        match command {
            Command::CreateBuffer { buffer, size, flags } => {
                let mem = Mem::buffer(&slot.context, *flags, *size).map_err(|status| {
                    failure(status, &format!("create a buffer of {size} bytes"))
                })?;
                self.buffers.insert(*buffer, (device, mem));
            }
            // The driver frees it when its last command has ended.
            Command::ReleaseBuffer { buffer } => _ = self.buffers.remove(buffer),
            Command::ReleaseKernel { kernel } => _ = self.kernels.remove(kernel),
            Command::ReleaseHeap { heap } => self.release_heap(*heap),
            Command::AbortHeap { heap, reason } => self.heaps.abort(*heap, reason),
            Command::Run { kernel, range, args } => {
                return self.run((&queue, device), *kernel, range, args, &waits);
            }
            Command::Write { buffer, offset, size, address } => {
                let from = Span::of_address(*address, *size);
                return self.write(&queue, (*buffer, *offset), from, &waits);
            }
            Command::Read { buffer, offset, size, address } => {
                let into = Span::of_address(*address, *size);
                return self.read(id, &queue, (*buffer, *offset), into, &waits);
            }
            Command::Copy { from, from_offset, to, to_offset, size } => {
                let (from, to) = ((*from, *from_offset), (*to, *to_offset));
                return self.copy(id, &queue, from, to, *size, &waits);
            }
            // Creations of kernels and heaps, and resets, have threads of their own, see `start`.
            Command::CreateKernel { .. }
            | Command::CreateHeap { .. }
            | Command::ResetHeap { .. }
            | Command::Move(_)
            | Command::Marker => return Err(not_performed(command)),
        }
        Ok(None)
    }

    fn write(
        &self,
        queue: &Queue,
        (buffer, offset): (ObjectId, u64),
        from: Span,
        waits: &[&Event],
    ) -> Result<Option<Event>, Failure> {
        let mem = self.buffer(buffer)?;
        if waits.is_empty()
            && let Some(memory) = part(mem, offset, from.length)
        {
            copy(from, memory);
            return Ok(None);
        }
        let mut bytes = Staged::new(from.length)
            .map_err(|status| failure(status, "allocate memory for a write"))?;
        copy(from, Span { start: bytes.as_mut_ptr(), length: bytes.len() });
        queue
            .write(mem, offset, bytes, waits, Want::Event)
            .map_err(|status| failure(status, "write a buffer"))
    }

    fn copy(
        &mut self,
        id: CommandId,
        queue: &Queue,
        (from, from_offset): (ObjectId, u64),
        (to, to_offset): (ObjectId, u64),
        size: u64,
        waits: &[&Event],
    ) -> Result<Option<Event>, Failure> {
        let (source, target) = (self.buffer(from)?.clone(), self.buffer(to)?.clone());
        if source.context().id() == target.context().id() {
            return queue
                .copy(&source, from_offset, &target, to_offset, size, waits, Want::Event)
                .map_err(|status| failure(status, "copy a buffer"));
        }
        let reader = self.buffers.get(&from).map_or(0, |(device, _)| *device);
        self.copy_between(id, reader, (&source, from_offset), (&target, to_offset), size, waits)
    }

    /// Reads a buffer. If that takes time, it returns the code [`IS_READING`] as an error, and
    /// reports the end itself.
    fn read(
        &mut self,
        id: CommandId,
        queue: &Queue,
        (buffer, offset): (ObjectId, u64),
        into: Span,
        waits: &[&Event],
    ) -> Result<Option<Event>, Failure> {
        let mem = self.buffer(buffer)?;
        if waits.is_empty()
            && let Some(memory) = part(mem, offset, into.length)
        {
            copy(memory, into);
            return Ok(None);
        }
        let reading = queue
            .read(mem, offset, into.length as u64, waits)
            .map_err(|status| failure(status, "read a buffer"))?;
        self.events.insert(id, reading.event().clone());
        let (post, bell, clock) =
            (self.post.clone(), Arc::clone(&self.bell), Arc::clone(&self.clock));
        reading.on_complete(Box::new(move |status, times, bytes: Staged| {
            let into = into;
            if !status.is_error() {
                copy(Span { start: bytes.as_ptr().cast_mut(), length: bytes.len() }, into);
            }
            tell(&post, &bell, end(id, status, times, &*clock));
        }));
        Err(Failure { code: IS_READING, message: String::new(), log: String::new() })
    }

    /// Copies between two platforms, through the host. The device `reader` has the source. The read
    /// runs in the source's context, which the waits may not belong to, so this function waits for
    /// them first.
    fn copy_between(
        &mut self,
        id: CommandId,
        reader: u32,
        (source, source_offset): (&Mem, u64),
        (target, target_offset): (&Mem, u64),
        size: u64,
        waits: &[&Event],
    ) -> Result<Option<Event>, Failure> {
        let reader = self.slot(reader)?.queue.clone();
        let bad = |status| failure(status, "copy a buffer between platforms");
        for wait in waits {
            wait.wait().map_err(bad)?;
        }
        let bytes = reader
            .read(source, source_offset, size, &[])
            .and_then(penstock_device::Reading::wait)
            .map_err(bad)?;
        let target_queue = self
            .devices
            .iter()
            .find(|slot| slot.context.id() == target.context().id())
            .map(|slot| slot.queue.clone());
        let queue = target_queue.ok_or_else(|| bad(Status::INVALID_CONTEXT))?;
        let event = queue.write(target, target_offset, bytes, &[], Want::Event).map_err(bad)?;
        queue.flush().map_err(bad)?;
        if let Some(event) = &event {
            self.events.insert(id, event.clone());
        }
        Ok(event)
    }

    fn run(
        &self,
        (queue, device): (&Queue, u32),
        kernel: ObjectId,
        range: &IndexSpace,
        args: &[Arg],
        waits: &[&Event],
    ) -> Result<Option<Event>, Failure> {
        let (_, made) = self.kernels.get(&kernel).ok_or_else(|| gone(ObjectKind::Kernel))?;
        if args.len() != made.args {
            return Err(Failure {
                code: code::INVALID_VALUE,
                message: format!(
                    "kernel {} takes {} arguments, {} were given",
                    made.name,
                    made.args,
                    args.len()
                ),
                log: String::new(),
            });
        }
        for (index, arg) in (0..).zip(args) {
            let bad =
                |status| failure(status, &format!("set argument {index} of kernel {}", made.name));
            match arg {
                Arg::Bytes(bytes) => {
                    made.kernel.set(index, DeviceArg::Bytes(bytes)).map_err(bad)?
                }
                Arg::Local(size) => made.kernel.set(index, DeviceArg::Local(*size)).map_err(bad)?,
                Arg::Buffer(buffer) => made
                    .kernel
                    .set(index, DeviceArg::Mem(Some(self.buffer(*buffer)?)))
                    .map_err(bad)?,
                Arg::Heap(heap) => {
                    let view = self.heaps.view(*heap, device)?;
                    made.kernel.set(index, DeviceArg::Mem(Some(&view))).map_err(bad)?
                }
            }
        }
        let bad = |status| failure(status, &format!("run kernel {}", made.name));
        queue.launch(&made.kernel, range, waits, Want::Event).map_err(bad)
    }

    /// Builds a program in a thread of its own, because that takes long.
    fn build(&mut self, id: CommandId, device: u32, command: &Command) -> Result<(), Failure> {
        let Command::CreateKernel { kernel: object, code, name, options } = command else {
            return Ok(());
        };
        let slot = self.slot(device)?;
        let (context, built_for) = (slot.context.clone(), slot.device.clone());
        let key = Box::new(ProgramKey { device, code: code.clone(), options: options.clone() });
        let ready = self
            .programs
            .iter()
            .find(|(other, _)| *other == *key)
            .map(|(_, program)| program.clone());
        let (name, object, post, bell) =
            (name.clone(), *object, self.post.clone(), Arc::clone(&self.bell));
        let work = move || {
            let made = ready
                .map_or_else(|| program::build(&context, &built_for, &key.code, &key.options), Ok)
                .and_then(|program| {
                    program::kernel(&program, &built_for, &name).map(|kernel| (program, kernel))
                });
            // Sending fails only when the run is over and nobody listens.
            _ = post.send(BackendMessage::Built { id, device, object, key, made });
            ring(&bell);
        };
        penstock_process::start("wtr-build", work).map(drop).map_err(|error| Failure {
            code: code::OUT_OF_HOST_MEMORY,
            message: format!("cannot start a thread to build a program: {error}"),
            log: String::new(),
        })
    }
}

/// Marks a read that reports its own end. It is not an error.
const IS_READING: i32 = i32::MIN;

impl Backend for OpenCl {
    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    fn orders(&self, earlier: u32, device: u32) -> bool {
        match (self.devices.get(earlier as usize), self.devices.get(device as usize)) {
            (Some(earlier), Some(later)) => earlier.domain == later.domain,
            _ => false,
        }
    }

    unsafe fn start(&mut self, id: CommandId, device: u32, command: &Command, after: &[CommandId]) {
        let in_thread = match command {
            Command::CreateKernel { .. } => Some(self.build(id, device, command)),
            Command::CreateHeap { plan, member } => Some(self.make_heap(id, plan, *member)),
            Command::ResetHeap { heap, generation } => {
                self.reset_heap(id, *heap, *generation);
                Some(Ok(()))
            }
            _ => None,
        };
        if let Some(started) = in_thread {
            if let Err(failure) = started {
                tell(
                    &self.post,
                    &self.bell,
                    Ended { operation: id, outcome: Err(failure), times: Times::default() },
                );
            }
            return;
        }
        // From now on the heap's threads expect its kernels.
        let in_heap = self.heap_launch(device, command);
        // A refused operation has no event to wait for, so those after it fail here.
        let enqueued = if after.iter().any(|earlier| self.refused.contains(earlier)) {
            Err(failure(Status::WAIT_LIST_FAILED, "run a command that waits for a failed one"))
        } else {
            self.enqueue(id, device, command, after)
        };
        match enqueued {
            Ok(Some(event)) => {
                self.events.insert(id, event.clone());
                let (post, bell, clock) =
                    (self.post.clone(), Arc::clone(&self.bell), Arc::clone(&self.clock));
                event.on_complete(Box::new(move |status, times| {
                    let mut ended = end(id, status, times, &*clock);
                    if let Some(launch) = in_heap {
                        let in_heap = launch.end();
                        ended.outcome = ended.outcome.and(in_heap);
                    }
                    tell(&post, &bell, ended);
                }));
            }
            Ok(None) => tell(
                &self.post,
                &self.bell,
                Ended { operation: id, outcome: Ok(()), times: Times::default() },
            ),
            Err(failure) if failure.code == IS_READING => {}
            Err(failure) => {
                self.refused.insert(id);
                tell(
                    &self.post,
                    &self.bell,
                    Ended { operation: id, outcome: Err(failure), times: Times::default() },
                );
            }
        }
        if !self.unflushed.contains(&device) {
            self.unflushed.push(device);
        }
    }

    fn poll(&mut self, ended: &mut Vec<Ended>) {
        for device in std::mem::take(&mut self.unflushed) {
            if let Some(slot) = self.devices.get(device as usize) {
                // A queue that cannot be flushed fails its commands, and their ends report that.
                _ = slot.queue.flush();
            }
        }
        while let Ok(news) = self.news.try_recv() {
            match news {
                BackendMessage::Ended(end) => {
                    self.events.remove(&end.operation);
                    self.refused.remove(&end.operation);
                    ended.push(end);
                }
                BackendMessage::Built { id, device, object, key, made } => {
                    let outcome = made.map(|(program, kernel)| {
                        if !self.programs.iter().any(|(other, _)| *other == *key) {
                            self.programs.push_back((*key, program));
                        }
                        if self.programs.len() > PROGRAMS_KEPT {
                            self.programs.pop_front();
                        }
                        self.kernels.insert(object, (device, kernel));
                    });
                    ended.push(Ended { operation: id, outcome, times: Times::default() });
                }
                BackendMessage::Heap { id, heap, made } => {
                    let (made, outcome) = match made {
                        Ok(made) => (Some(made), Ok(())),
                        Err(failure) => (None, Err(failure)),
                    };
                    self.heaps.add(heap, made);
                    for part in self.heaps.parts(heap) {
                        self.buffers.insert(part.buffer, (part.device, part.memory));
                    }
                    ended.push(Ended { operation: id, outcome, times: Times::default() });
                }
                BackendMessage::HeapMessage(message) => self.heap_messages.push(message),
            }
        }
    }

    fn memory(&self, buffer: ObjectId, offset: u64, size: u64) -> Option<Memory> {
        let (_, mem) = self.buffers.get(&buffer)?;
        let span = part(mem, offset, usize::try_from(size).ok()?)?;
        Some(Memory { span, keep: Box::new(mem.clone()) })
    }

    fn hear(&mut self, heap: ObjectId, message: HeapMessage) {
        self.heaps.hear(heap, message);
    }

    fn heap_messages(&mut self) -> Vec<HeapMessageTo> {
        std::mem::take(&mut self.heap_messages)
    }

    fn abort_heap(&mut self, heap: ObjectId, reason: &str) {
        self.heaps.abort(heap, reason);
    }

    fn doubts(&mut self) -> Vec<Rank> {
        self.heaps.doubts()
    }

    fn wake_with(&mut self, wake: Doorbell) {
        *self.bell.lock() = wake;
    }
}

impl Drop for OpenCl {
    fn drop(&mut self) {
        for slot in &self.devices {
            // Callbacks must not run after their library is unloaded.
            _ = slot.queue.finish();
        }
    }
}

fn ring(bell: &Lock<Doorbell>) {
    bell.lock().ring();
}

fn tell(post: &Sender<BackendMessage>, bell: &Lock<Doorbell>, end: Ended) {
    // Sending fails only when the run is over and nobody listens.
    _ = post.send(BackendMessage::Ended(end));
    ring(bell);
}

/// Returns the end of an operation that ends now. Its start is derived from the duration that the
/// device's clock measured.
fn end(id: CommandId, status: Status, times: penstock_device::Times, clock: &dyn Clock) -> Ended {
    let ended = clock.now();
    let started = ended.saturating_sub(times.ended.saturating_sub(times.started));
    let outcome =
        if status.is_error() { Err(failure(status, "complete the command")) } else { Ok(()) };
    Ended { operation: id, outcome, times: Times { received: 0, started, ended } }
}

/// Returns a part of a buffer's memory if the host can use it in place.
fn part(mem: &Mem, offset: u64, size: usize) -> Option<Span> {
    let (start, length) = mem.home()?.range();
    let offset = usize::try_from(offset).ok()?;
    let end = offset.checked_add(size)?;
    (end <= length).then(|| Span { start: start.wrapping_add(offset), length: size })
}

fn copy(from: Span, to: Span) {
    // SAFETY: the caller of `Backend::start` keeps its memory valid, the buffer keeps its own, and
    // the shorter length bounds the copy.
    unsafe { std::ptr::copy(from.start, to.start, from.length.min(to.length)) };
}

fn failure(status: Status, what: &str) -> Failure {
    refused(status.0, what)
}
