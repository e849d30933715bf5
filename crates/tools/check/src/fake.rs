//! An OpenCL implementation in memory, for tests. Its own threads execute commands in any order
//! that OpenCL allows. It can have defects.

mod commands;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use penstock_cl_sys::{
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_PROFILING_INFO_NOT_AVAILABLE,
};
use penstock_process::Lock;

use crate::backend::{At, Backend, Call, Ended, Enqueued, Handle, Origin, Setter, Shape};
use crate::machine::{HANGS, Machine, Running, Tasks, Work};
use crate::plan::{Device, Platform};
use crate::random::Random;

/// Defects that a test can plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// A write reads host memory when it is enqueued.
    EarlyCapture,
    /// A kernel on another device than that of the last writer sees the object as it was when the
    /// kernel was enqueued.
    StaleRead,
    /// A command ignores its wait list.
    EarlyStart,
    /// A launch that cannot run reports success.
    LostError,
    /// A fill works in two parts, and another command can run between them.
    TornFill,
    /// `clFinish` does not wait for the last command.
    LateFinish,
    /// A command whose wait list has failed runs all the same.
    IgnoredFailure,
    /// Events of blocking writes have no times.
    MissingTimes,
    /// Unmapping drops what the host wrote to the last bytes.
    ShortUnmap,
    /// A rectangle uses the wrong pitch for host memory.
    WrongPitch,
    /// A barrier of an out-of-order queue does not delay later commands.
    LooseBarrier,
    /// A write to an image over a buffer overwrites the rest of the buffer.
    ViewOverwrite,
    /// A callback never runs.
    LostCallback,
    /// The status of an event that has ended is not 0.
    WrongStatus,
}

impl Defect {
    pub const ALL: &[Self] = &[
        Self::EarlyCapture,
        Self::StaleRead,
        Self::EarlyStart,
        Self::LostError,
        Self::TornFill,
        Self::LateFinish,
        Self::IgnoredFailure,
        Self::MissingTimes,
        Self::ShortUnmap,
        Self::WrongPitch,
        Self::LooseBarrier,
        Self::ViewOverwrite,
        Self::LostCallback,
        Self::WrongStatus,
    ];
}

/// Returns the platform that the fake shows.
pub fn platform(devices: usize) -> Platform {
    let device = Device {
        name: "fake".to_owned(),
        images: true,
        svm: true,
        out_of_order: true,
        local_bytes: 1 << 15,
        align_bytes: 16,
        view_pixels_max: 1 << 16,
    };
    Platform { name: "Fake".to_owned(), version: "1".to_owned(), devices: vec![device; devices] }
}

/// Bytes that several objects share.
type Bytes = Arc<Lock<Vec<u8>>>;

/// A part of some bytes.
#[derive(Clone)]
struct Piece {
    bytes: Bytes,
    offset: usize,
    len: usize,
}

impl Piece {
    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let start = self.offset + offset;
        self.bytes.lock()[start..start + len].to_vec()
    }

    fn put(&self, offset: usize, from: &[u8]) {
        let start = self.offset + offset;
        self.bytes.lock()[start..start + from.len()].copy_from_slice(from);
    }
}

#[derive(Clone)]
struct Queue {
    device: usize,
    out_of_order: bool,
    profiling: bool,
    /// Events of the queue's commands.
    cmds: Vec<usize>,
    barrier: Option<usize>,
}

#[derive(Clone)]
struct Area {
    piece: Piece,
    /// The part of an object that unmapping writes to.
    target: Option<Piece>,
}

#[derive(Default)]
struct Event {
    /// 1 until the event has ended.
    status: i32,
    callbacks: Vec<Ended>,
    has_times: bool,
    work: Option<Work>,
    /// Events that must end before this one. If one of them fails, this event fails.
    waits: Vec<usize>,
    /// Events that must end before this one, whether they fail or not.
    order: Vec<usize>,
}

struct State {
    next: usize,
    random: Random,
    queues: HashMap<usize, Queue>,
    mems: HashMap<usize, Piece>,
    /// By identity of the bytes: the device of the last command that wrote them.
    writers: HashMap<usize, usize>,
    areas: HashMap<usize, Area>,
    events: HashMap<usize, Event>,
}

impl State {
    fn fresh(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

impl Tasks for State {
    type Defect = Defect;
    type Surroundings = ();

    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn ready(&self) -> Vec<usize> {
        let ready = |event: &Event| {
            event.work.is_some()
                && event.waits.iter().chain(&event.order).all(|&it| self.has_ended(it))
        };
        self.events.iter().filter(|(_, it)| ready(it)).map(|(&id, _)| id).collect()
    }

    fn has_ended(&self, event: usize) -> bool {
        self.events.get(&event).is_none_or(|event| event.status <= 0)
    }

    fn run(machine: &Inner, mut state: MutexGuard<'_, Self>, id: usize) {
        let failed = |it: &usize| state.events.get(it).is_some_and(|event| event.status < 0);
        let fails =
            state.events[&id].waits.iter().any(failed) && !machine.is(Defect::IgnoredFailure);
        let late = state.random.chance(30);
        let work = state.events.get_mut(&id).and_then(|event| event.work.take());
        drop(state);
        if late {
            std::thread::sleep(Duration::from_micros(50));
        }
        if let Some(work) = work.filter(|_| !fails) {
            work();
        }
        machine.end(id, if fails { CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST } else { 0 });
    }
}

type Inner = Machine<State>;

#[derive(Debug)]
pub struct Fake {
    inner: Running<State>,
}

impl Fake {
    /// Creates an implementation that chooses the order of commands by `seed`.
    pub fn new(seed: u64, defect: Option<Defect>) -> Self {
        let state = State {
            next: 0,
            random: Random::new(seed),
            queues: HashMap::new(),
            mems: HashMap::new(),
            writers: HashMap::new(),
            areas: HashMap::new(),
            events: HashMap::new(),
        };
        Self { inner: Running::start(state, (), defect) }
    }
}

impl Inner {
    fn end(&self, id: usize, status: i32) {
        let mut callbacks = Vec::new();
        if let Some(event) = self.state.lock().events.get_mut(&id) {
            event.status = status;
            callbacks.append(&mut event.callbacks);
        }
        self.changed.notify_all();
        for callback in callbacks {
            callback(status);
        }
    }

    fn wait(&self, events: &[usize]) -> i32 {
        let Some(state) = self.wait_for(events) else { return HANGS };
        let failed = |event: &usize| state.events.get(event).is_some_and(|event| event.status < 0);
        if events.iter().any(failed) { CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST } else { 0 }
    }

    fn add(&self, make: impl FnOnce(&mut State, usize)) -> Handle {
        let mut state = self.state.lock();
        let id = state.fresh();
        make(&mut state, id);
        Handle(id)
    }

    fn area(&self, at: At, len: usize) -> Piece {
        let piece = self.state.lock().areas[&at.area.0].piece.clone();
        Piece { bytes: piece.bytes, offset: piece.offset + at.offset, len }
    }

    fn mem(&self, mem: Handle) -> Piece {
        self.state.lock().mems[&mem.0].clone()
    }

    fn allocate(&self, bytes: Vec<u8>) -> Handle {
        let piece = Piece { len: bytes.len(), bytes: Arc::new(Lock::new(bytes)), offset: 0 };
        self.add(|state, id| {
            state.mems.insert(id, piece);
        })
    }
}

impl Backend for Fake {
    fn new_context(&self, _: &[usize]) -> Result<Handle, i32> {
        Ok(Handle(0))
    }

    fn new_queue(
        &self,
        _: Handle,
        device: usize,
        out_of_order: bool,
        profiling: bool,
    ) -> Result<Handle, i32> {
        let queue = Queue { device, out_of_order, profiling, cmds: Vec::new(), barrier: None };
        Ok(self.inner.add(|state, id| {
            state.queues.insert(id, queue);
        }))
    }

    fn new_buffer(&self, _: Handle, size: usize, origin: Origin) -> Result<Handle, i32> {
        let bytes = match origin {
            Origin::Plain | Origin::Alloc => vec![0xAB; size],
            Origin::Copy(at) | Origin::Use(at) => self.load(at, size),
        };
        Ok(self.inner.allocate(bytes))
    }

    fn new_sub(&self, parent: Handle, origin: usize, size: usize) -> Result<Handle, i32> {
        let of = self.inner.mem(parent);
        let piece = Piece { bytes: of.bytes, offset: of.offset + origin, len: size };
        Ok(self.inner.add(|state, id| {
            state.mems.insert(id, piece);
        }))
    }

    fn new_image(&self, context: Handle, shape: Shape, init: Option<At>) -> Result<Handle, i32> {
        match shape {
            Shape::Plane { width, height } => {
                let origin = init.map_or(Origin::Plain, Origin::Copy);
                self.new_buffer(context, width * height * 4, origin)
            }
            Shape::View { pixels, buffer } => self.new_sub(buffer, 0, pixels * 4),
        }
    }

    fn new_svm(&self, context: Handle, size: usize) -> Result<Handle, i32> {
        self.new_buffer(context, size, Origin::Plain)
    }

    fn new_gate(&self, _: Handle) -> Result<Handle, i32> {
        Ok(self.inner.add(|state, id| {
            state.events.insert(id, Event { status: 1, ..Event::default() });
        }))
    }

    fn drop_queue(&self, _: Handle) -> i32 {
        0
    }

    fn drop_mem(&self, _: Handle, _: Option<Handle>) -> i32 {
        0
    }

    fn drop_event(&self, _: Handle) -> i32 {
        0
    }

    fn set_gate(&self, event: Handle, status: i32) -> i32 {
        self.inner.end(event.0, status);
        0
    }

    fn enqueue(
        &self,
        queue: Handle,
        call: &Call,
        wait: &[Handle],
        wants_event: bool,
        blocking: bool,
    ) -> Result<Enqueued, i32> {
        let (id, area) = self.inner.send(queue, call, wait, blocking)?;
        if blocking && self.inner.wait(&[id]) != 0 {
            return Err(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        }
        Ok(Enqueued { event: wants_event.then_some(Handle(id)), area })
    }

    fn flush(&self, _: Handle) -> i32 {
        0
    }

    fn finish(&self, queue: Handle) -> i32 {
        let mut cmds = self.inner.state.lock().queues[&queue.0].cmds.clone();
        if self.inner.is(Defect::LateFinish) {
            cmds.pop();
        }
        if self.inner.wait(&cmds) == HANGS { HANGS } else { 0 }
    }

    fn wait(&self, events: &[Handle]) -> i32 {
        let list: Vec<usize> = events.iter().map(|event| event.0).collect();
        self.inner.wait(&list)
    }

    fn status(&self, event: Handle) -> Result<i32, i32> {
        let status = self.inner.state.lock().events[&event.0].status;
        Ok(if self.inner.is(Defect::WrongStatus) { 1 } else { status })
    }

    fn times(&self, event: Handle) -> Result<[u64; 4], i32> {
        let state = self.inner.state.lock();
        let known = &state.events[&event.0];
        if known.has_times && known.status <= 0 {
            Ok([1, 2, 3, 4])
        } else {
            Err(CL_PROFILING_INFO_NOT_AVAILABLE)
        }
    }

    fn on_end(&self, event: Handle, ended: Ended) -> i32 {
        let mut state = self.inner.state.lock();
        if self.inner.is(Defect::LostCallback) && state.random.chance(40) {
            return 0;
        }
        let Some(known) = state.events.get_mut(&event.0) else { return -58 };
        let status = known.status;
        if status > 0 {
            known.callbacks.push(ended);
        } else {
            drop(state);
            ended(status);
        }
        0
    }

    fn setter(&self) -> Setter {
        let inner = self.inner.share();
        Arc::new(move |event, status| inner.end(event.0, status))
    }

    fn abandon(&self) {
        self.inner.abandon();
    }

    fn new_area(&self, len: usize) -> Handle {
        let piece = Piece { bytes: Arc::new(Lock::new(vec![0; len])), offset: 0, len };
        self.inner.add(|state, id| {
            state.areas.insert(id, Area { piece, target: None });
        })
    }

    fn drop_area(&self, area: Handle) {
        self.inner.state.lock().areas.remove(&area.0);
    }

    fn load(&self, at: At, len: usize) -> Vec<u8> {
        self.inner.area(at, len).get(0, len)
    }

    fn store(&self, at: At, bytes: &[u8]) {
        self.inner.area(at, bytes.len()).put(0, bytes);
    }
}
