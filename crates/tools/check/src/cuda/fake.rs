//! A CUDA implementation in memory, for tests. Its own threads execute commands in any order that
//! streams and events allow. It can have defects. It does not use the ledger.

mod commands;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use penstock_cuda_sys::driver::CUDA_ERROR_NOT_READY;
use penstock_process::Lock;

use super::backend::{At, Backend, Caller, Command, Handle, Memory, Stream};
use super::plan::{Context, Device, Platform};
use crate::machine::{HANGS, Machine, Running, Tasks, Work};
use crate::random::Random;

/// Defects that a test can plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// An asynchronous copy to the device reads host memory when it is enqueued.
    EarlyCapture,
    /// As `EarlyCapture`, but only if a copy of another context is going to write these bytes.
    EarlyCaptureAcross,
    /// The legacy default stream does not wait for blocking streams.
    LegacyWaitsForNone,
    /// Blocking streams do not wait for the legacy default stream.
    BlockingWaitsForNone,
    /// The default streams of threads count as non-blocking streams.
    LoosePerThread,
    /// `cuStreamWaitEvent` does not wait for the event.
    IgnoredEvent,
    /// A wait for an event that has ended, or that was never recorded, orders nothing in the legacy
    /// default stream.
    SilentWait,
    /// An event that is recorded again keeps its old record.
    OldRecord,
    /// `cuStreamSynchronize` does not wait for the last command.
    EarlyStreamSync,
    /// `cuEventQuery` reports an event as ended that has not ended.
    HastyQuery,
    /// `cuCtxSynchronize` does not wait for non-blocking streams.
    PartialContextSync,
    /// A command after a host function does not wait for the function's end.
    LateFunction,
    /// A two-dimensional copy uses the wrong pitch for host memory.
    WrongPitch,
    /// A fill works in two parts, and nothing waits for the second part.
    TornFill,
    /// A synchronous copy from pinned memory returns before it has ended.
    EarlyPinnedWrite,
    /// A synchronous copy from pageable memory waits only for a command that writes this memory.
    EarlyPageableWrite,
    /// A synchronous copy to the host returns before it has ended.
    EarlyRead,
    /// A graph is launched although its previous launch has not ended.
    OverlappingLaunches,
    /// The stream of a launch does not wait for the graph's second branch.
    LooseBranch,
    /// `cuMemFree` frees memory that is still in use.
    EarlyFree,
    /// `cuStreamDestroy` drops work that has not begun.
    DroppedWork,
    /// A copy between contexts reads its bytes when it is enqueued.
    EarlyPeer,
}

impl Defect {
    pub const ALL: &[Self] = &[
        Self::EarlyCapture,
        Self::EarlyCaptureAcross,
        Self::LegacyWaitsForNone,
        Self::BlockingWaitsForNone,
        Self::LoosePerThread,
        Self::IgnoredEvent,
        Self::SilentWait,
        Self::OldRecord,
        Self::EarlyStreamSync,
        Self::HastyQuery,
        Self::PartialContextSync,
        Self::LateFunction,
        Self::WrongPitch,
        Self::TornFill,
        Self::EarlyPinnedWrite,
        Self::EarlyPageableWrite,
        Self::EarlyRead,
        Self::OverlappingLaunches,
        Self::LooseBranch,
        Self::EarlyFree,
        Self::DroppedWork,
        Self::EarlyPeer,
    ];
}

/// Returns the platform that the fake shows.
pub fn platform(devices: usize) -> Platform {
    let device = Device { name: "fake".to_owned(), pools: true };
    Platform { name: "Fake".to_owned(), version: "1".to_owned(), devices: vec![device; devices] }
}

/// Memory of a device or of the host.
type Bytes = Arc<Lock<Vec<u8>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    Legacy(Handle),
    PerThread(Handle, usize),
    Made(Handle),
}

#[derive(Default)]
struct Queue {
    context: usize,
    blocking: bool,
    tail: Option<usize>,
}

struct Task {
    context: usize,
    stream: Option<Name>,
    /// `None` while the task runs and after.
    work: Option<Work>,
    after: Vec<usize>,
    has_ended: bool,
}

#[derive(Clone)]
struct Area {
    bytes: Bytes,
    pinned: bool,
    /// The last copy that writes the area, and its context.
    writer: Option<(usize, Handle)>,
}

struct Graph {
    parts: Vec<(bool, Command)>,
    last: Option<usize>,
}

struct State {
    next: usize,
    random: Random,
    contexts: HashMap<Context, Handle>,
    queues: HashMap<Name, Queue>,
    tasks: HashMap<usize, Task>,
    /// The task that each event has recorded.
    events: HashMap<usize, Option<usize>>,
    mems: HashMap<usize, Bytes>,
    graphs: HashMap<usize, Graph>,
}

impl State {
    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

impl Tasks for State {
    type Defect = Defect;
    type Surroundings = Surroundings;

    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn ready(&self) -> Vec<usize> {
        let ready =
            |task: &Task| task.work.is_some() && task.after.iter().all(|&it| self.has_ended(it));
        self.tasks.iter().filter(|(_, it)| ready(it)).map(|(&id, _)| id).collect()
    }

    fn has_ended(&self, task: usize) -> bool {
        self.tasks.get(&task).is_none_or(|task| task.has_ended)
    }

    fn run(machine: &Inner, mut state: MutexGuard<'_, Self>, id: usize) {
        let work = state.tasks.get_mut(&id).and_then(|task| task.work.take());
        let rest = if state.random.chance(30) { state.random.below(80) } else { 0 };
        drop(state);
        if rest > 0 {
            std::thread::sleep(Duration::from_micros(rest as u64));
        }
        if let Some(work) = work {
            work();
        }
        if let Some(task) = machine.state.lock().tasks.get_mut(&id) {
            task.has_ended = true;
        }
        machine.changed.notify_all();
    }
}

#[derive(Default)]
struct Areas {
    all: Lock<HashMap<usize, Area>>,
}

impl Memory for Areas {
    fn load(&self, at: At, len: usize) -> Vec<u8> {
        let bytes = Arc::clone(&self.all.lock()[&at.area.0].bytes);
        let bytes = bytes.lock();
        bytes[at.offset..at.offset + len].to_vec()
    }

    fn store(&self, at: At, new: &[u8]) {
        let bytes = Arc::clone(&self.all.lock()[&at.area.0].bytes);
        bytes.lock()[at.offset..at.offset + new.len()].copy_from_slice(new);
    }
}

/// What the implementation has besides its state.
struct Surroundings {
    is_weak: bool,
    areas: Arc<Areas>,
}

type Inner = Machine<State>;

#[derive(Debug)]
pub struct Fake {
    inner: Running<State>,
}

/// Code of a query about work that has not ended.
const NOT_READY: i32 = CUDA_ERROR_NOT_READY.0.cast_signed();

impl Fake {
    /// Creates an implementation that chooses the order of commands by `seed`. A weak one does only
    /// what the documentation promises, see [`super::plan::Relies`].
    pub fn new(seed: u64, defect: Option<Defect>, is_weak: bool) -> Self {
        let state = State {
            next: 0,
            random: Random::new(seed),
            contexts: HashMap::new(),
            queues: HashMap::new(),
            tasks: HashMap::new(),
            events: HashMap::new(),
            mems: HashMap::new(),
            graphs: HashMap::new(),
        };
        let surroundings = Surroundings { is_weak, areas: Arc::default() };
        Self { inner: Running::start(state, surroundings, defect) }
    }
}

impl Inner {
    fn wait(&self, tasks: &[usize]) -> i32 {
        if self.wait_for(tasks).is_some() { 0 } else { HANGS }
    }

    /// Returns the tasks that the next command of a stream waits for.
    fn before(&self, state: &State, name: Name, context: usize) -> Vec<usize> {
        let tail = |name: &Name| state.queues.get(name).and_then(|queue| queue.tail);
        let legacy = Name::Legacy(Handle(context));
        let is_blocking = |name: &Name, queue: &Queue| {
            let loose = self.is(Defect::LoosePerThread) && matches!(name, Name::PerThread(..));
            queue.context == context && queue.blocking && !loose
        };
        let mut all: Vec<usize> = tail(&name).into_iter().collect();
        if name == legacy {
            if !self.is(Defect::LegacyWaitsForNone) {
                let others = state.queues.iter().filter(|(name, queue)| is_blocking(name, queue));
                all.extend(others.filter_map(|(_, queue)| queue.tail));
            }
        } else if state.queues.get(&name).is_some_and(|queue| is_blocking(&name, queue))
            && !self.is(Defect::BlockingWaitsForNone)
        {
            all.extend(tail(&legacy));
        }
        all
    }

    /// Adds a task to a stream.
    fn add(
        &self,
        state: &mut State,
        name: Name,
        context: usize,
        mut after: Vec<usize>,
        work: Work,
    ) -> usize {
        after.extend(self.before(state, name, context));
        let id = state.fresh();
        let task = Task { context, stream: Some(name), work: Some(work), after, has_ended: false };
        state.tasks.insert(id, task);
        let queue = state.queues.entry(name).or_default();
        queue.context = context;
        queue.tail = Some(id);
        self.changed.notify_all();
        id
    }

    fn name(&self, by: Caller, stream: Stream) -> Name {
        match stream {
            Stream::Legacy => Name::Legacy(by.context),
            Stream::PerThread => {
                let name = Name::PerThread(by.context, by.thread);
                let mut state = self.state.lock();
                state.queues.entry(name).or_insert(Queue {
                    context: by.context.0,
                    blocking: true,
                    tail: None,
                });
                name
            }
            Stream::Made(made) => Name::Made(made),
        }
    }

    /// Returns all tasks of a stream.
    fn tasks_of(&self, name: Name) -> Vec<usize> {
        let state = self.state.lock();
        let own = state.tasks.iter().filter(|(_, task)| task.stream == Some(name));
        let mut all: Vec<usize> = own.map(|(&id, _)| id).collect();
        all.sort_unstable();
        all
    }
}

impl Backend for Fake {
    fn context(&self, context: Context) -> Result<Handle, i32> {
        let mut state = self.inner.state.lock();
        let new = state.fresh();
        Ok(*state.contexts.entry(context).or_insert(Handle(new)))
    }

    fn new_area(&self, _: Handle, len: usize, pinned: bool) -> Result<Handle, i32> {
        let id = self.inner.state.lock().fresh();
        let area = Area { bytes: Arc::new(Lock::new(vec![0; len])), pinned, writer: None };
        self.inner.surroundings.areas.all.lock().insert(id, area);
        Ok(Handle(id))
    }

    fn drop_area(&self, _: Handle, _: Handle) -> i32 {
        0
    }

    fn register(&self, _: Caller, area: Handle) -> i32 {
        self.inner.surroundings.areas.all.lock().entry(area.0).and_modify(|it| it.pinned = true);
        0
    }

    fn unregister(&self, _: Caller, area: Handle) -> i32 {
        self.inner.surroundings.areas.all.lock().entry(area.0).and_modify(|it| it.pinned = false);
        0
    }

    fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.inner.surroundings.areas) as Arc<dyn Memory>
    }

    fn new_stream(&self, by: Caller, blocking: bool) -> Result<Handle, i32> {
        let mut state = self.inner.state.lock();
        let id = state.fresh();
        let queue = Queue { context: by.context.0, blocking, tail: None };
        state.queues.insert(Name::Made(Handle(id)), queue);
        Ok(Handle(id))
    }

    fn drop_stream(&self, _: Caller, stream: Handle) -> i32 {
        let mut state = self.inner.state.lock();
        let name = Name::Made(stream);
        state.queues.remove(&name);
        if self.inner.is(Defect::DroppedWork) {
            let own = state.tasks.values_mut().filter(|task| task.stream == Some(name));
            own.filter_map(|task| task.work.as_mut()).for_each(|work| *work = Box::new(|| {}));
        }
        0
    }

    fn new_event(&self, _: Caller, _: bool) -> Result<Handle, i32> {
        let mut state = self.inner.state.lock();
        let id = state.fresh();
        state.events.insert(id, None);
        Ok(Handle(id))
    }

    fn drop_event(&self, _: Caller, event: Handle) -> i32 {
        self.inner.state.lock().events.remove(&event.0);
        0
    }

    fn alloc(&self, _: Caller, size: usize) -> Result<Handle, i32> {
        let mut state = self.inner.state.lock();
        let id = state.fresh();
        state.mems.insert(id, Arc::new(Lock::new(vec![0xAB; size])));
        Ok(Handle(id))
    }

    fn free(&self, _: Caller, mem: Handle) -> i32 {
        let Some(bytes) = self.inner.state.lock().mems.remove(&mem.0) else { return 1 };
        if self.inner.surroundings.is_weak || self.inner.is(Defect::EarlyFree) {
            bytes.lock().fill(0xEE);
        }
        0
    }

    fn alloc_async(&self, by: Caller, stream: Stream, size: usize) -> Result<Handle, i32> {
        let new = self.alloc(by, size)?;
        let name = self.inner.name(by, stream);
        let mut state = self.inner.state.lock();
        self.inner.add(&mut state, name, by.context.0, Vec::new(), Box::new(|| {}));
        Ok(new)
    }

    fn free_async(&self, by: Caller, stream: Stream, mem: Handle) -> i32 {
        let name = self.inner.name(by, stream);
        let mut state = self.inner.state.lock();
        let Some(bytes) = state.mems.remove(&mem.0) else { return 1 };
        let work = Box::new(move || bytes.lock().fill(0xEE));
        self.inner.add(&mut state, name, by.context.0, Vec::new(), work);
        0
    }

    fn record(&self, by: Caller, event: Handle, stream: Stream) -> i32 {
        let name = self.inner.name(by, stream);
        let mut state = self.inner.state.lock();
        let task = self.inner.add(&mut state, name, by.context.0, Vec::new(), Box::new(|| {}));
        let keeps = self.inner.is(Defect::OldRecord);
        let Some(recorded) = state.events.get_mut(&event.0) else { return 400 };
        if recorded.is_none() || !keeps {
            *recorded = Some(task);
        }
        0
    }

    fn stream_wait(&self, by: Caller, stream: Stream, event: Handle) -> i32 {
        let name = self.inner.name(by, stream);
        let mut state = self.inner.state.lock();
        let recorded = state.events.get(&event.0).copied().flatten();
        let is_silent =
            recorded.is_none_or(|task| state.has_ended(task)) && matches!(name, Name::Legacy(_));
        if is_silent && self.inner.is(Defect::SilentWait) {
            return 0;
        }
        let ignores = self.inner.is(Defect::IgnoredEvent);
        let after = recorded.filter(|_| !ignores).into_iter().collect();
        self.inner.add(&mut state, name, by.context.0, after, Box::new(|| {}));
        0
    }

    fn event_sync(&self, _: Caller, event: Handle) -> i32 {
        let recorded = self.inner.state.lock().events.get(&event.0).copied().flatten();
        self.inner.wait(&recorded.into_iter().collect::<Vec<_>>())
    }

    fn event_query(&self, _: Caller, event: Handle) -> i32 {
        let state = self.inner.state.lock();
        let recorded = state.events.get(&event.0).copied().flatten();
        let ended = recorded.is_none_or(|task| state.has_ended(task));
        if ended || self.inner.is(Defect::HastyQuery) { 0 } else { NOT_READY }
    }

    fn stream_sync(&self, by: Caller, stream: Stream) -> i32 {
        let mut tasks = self.inner.tasks_of(self.inner.name(by, stream));
        if self.inner.is(Defect::EarlyStreamSync) {
            tasks.pop();
        }
        self.inner.wait(&tasks)
    }

    fn stream_query(&self, by: Caller, stream: Stream) -> i32 {
        let tasks = self.inner.tasks_of(self.inner.name(by, stream));
        let state = self.inner.state.lock();
        if tasks.iter().all(|&task| state.has_ended(task)) { 0 } else { NOT_READY }
    }

    fn context_sync(&self, by: Caller) -> i32 {
        let tasks: Vec<usize> = {
            let state = self.inner.state.lock();
            let skips = |task: &Task| {
                let queue = task.stream.and_then(|name| state.queues.get(&name));
                let is_legacy = matches!(task.stream, Some(Name::Legacy(_)));
                let loose = !is_legacy && queue.is_some_and(|queue| !queue.blocking);
                self.inner.is(Defect::PartialContextSync) && loose
            };
            let own =
                state.tasks.iter().filter(|(_, task)| task.context == by.context.0 && !skips(task));
            own.map(|(&id, _)| id).collect()
        };
        self.inner.wait(&tasks)
    }

    fn enqueue(&self, by: Caller, stream: Option<Stream>, command: &Command) -> i32 {
        match stream {
            Some(stream) => {
                let name = self.inner.name(by, stream);
                self.inner.later(by, name, command);
                0
            }
            None => self.inner.now(by, command),
        }
    }

    fn new_graph(&self, _: Caller, parts: &[(bool, Command)]) -> Result<Handle, i32> {
        let mut state = self.inner.state.lock();
        let id = state.fresh();
        state.graphs.insert(id, Graph { parts: parts.to_vec(), last: None });
        Ok(Handle(id))
    }

    fn drop_graph(&self, _: Caller, graph: Handle) -> i32 {
        self.inner.state.lock().graphs.remove(&graph.0);
        0
    }

    fn launch(&self, by: Caller, graph: Handle, stream: Stream) -> i32 {
        let name = self.inner.name(by, stream);
        self.inner.launch(by, graph, name);
        0
    }

    fn abandon(&self) {
        self.inner.abandon();
    }
}
