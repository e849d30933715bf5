//! The run: from `wtr_init_devices` to `wtr_release_devices`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use penstock_dql::{NodeFacts, RawDevice};

use super::handles::Handles;
use super::{Opaque, report};
use crate::command::{CommandId, DeviceInfo, InPool, ObjectId, Rank};
use crate::error::Error;
use crate::heap::Pe;
use crate::root::Request;
use crate::runtime::Runtime;

/// One run of one program.
#[derive(Debug)]
pub struct Run {
    runtime: Runtime,
    devices: Vec<Device>,
    objects: Mutex<Objects>,
    /// The last launch over any heap. Held from the reading of it until the next one is issued, so that all devices see launches in one
    /// order; taken before `objects`.
    last_collective: Mutex<Vec<CommandId>>,
}

/// A device that the program chose.
#[derive(Debug)]
pub struct Device {
    /// Its rank.
    pub rank: Rank,
    /// Its place among those of its rank.
    pub index: u32,
    /// How many its rank has.
    pub count: usize,
    /// What it says of itself.
    pub info: DeviceInfo,
    /// What the program holds.
    pub handle: usize,
}

impl Device {
    /// As queries see it.
    pub fn as_queried(&self) -> RawDevice<'_> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        // Of a device that a daemon has, the node of the pool counts: the process is one rank.
        let own = InPool { node: self.rank, index: self.index, count, is_local: self.rank == 0 };
        let place = self.info.in_pool.unwrap_or(own);
        let node = NodeFacts {
            hostname: Some(&self.info.hostname),
            rank: Some(place.node.into()),
            local: Some(place.is_local),
            platform: Some(&self.info.platform),
            platform_version: Some(&self.info.platform_version),
            device_index: Some(place.index.into()),
            node_devices: Some(place.count.into()),
            ..NodeFacts::default()
        };
        RawDevice { info: &self.info.info, node }
    }
}

/// What the program made.
#[derive(Debug)]
pub struct Objects {
    /// Devices: places in `Run::devices`.
    pub devices: Handles<usize>,
    /// Buffers.
    pub buffers: Handles<Buffer>,
    /// Kernels.
    pub kernels: Handles<Kernel>,
    /// Events.
    pub events: Handles<Event>,
    /// Heaps.
    pub heaps: Handles<Heap>,
}

/// A buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its id.
    pub id: ObjectId,
    /// Where.
    pub rank: Rank,
    /// Where.
    pub device: u32,
    /// In bytes.
    pub size: u64,
    /// A heap has it.
    pub is_part: bool,
}

/// A heap.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Its id.
    pub id: ObjectId,
    /// Its devices.
    pub pes: Vec<Pe>,
    /// The handles of their parts, which are buffers.
    pub parts: Vec<usize>,
    /// What makes it, or the last launch over it or reset: it can not go away before.
    pub users: Vec<CommandId>,
    /// How often it was reset.
    pub resets: u64,
}

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its id.
    pub id: ObjectId,
    /// Where.
    pub rank: Rank,
    /// Where.
    pub device: u32,
}

/// An event: the commands that it stands for; none before it was given to one.
#[derive(Debug, Default)]
pub struct Event {
    /// Those commands.
    pub commands: Vec<CommandId>,
    /// Whether it was given to a command, or merged of some.
    pub is_bound: bool,
    /// Its error, once it was asked for.
    pub error: Option<Box<report::Told>>,
}

static RUN: RwLock<Option<Arc<Run>>> = RwLock::new(None);

/// The run that is on.
pub fn current() -> Result<Arc<Run>, Error> {
    let run = RUN.read().unwrap_or_else(PoisonError::into_inner);
    run.clone().ok_or(Error::State("no devices: call wtr_init_devices first"))
}

/// Begins a run.
pub fn begin(make: impl FnOnce() -> Result<Run, Error>) -> Result<(), Error> {
    let mut run = RUN.write().unwrap_or_else(PoisonError::into_inner);
    if run.is_some() {
        return Err(Error::State(
            "wtr_init_devices was called already; wtr_release_devices ends that run",
        ));
    }
    *run = Some(Arc::new(make()?));
    Ok(())
}

/// Ends the run.
pub fn end() -> Result<(), Error> {
    let run = RUN.write().unwrap_or_else(PoisonError::into_inner).take();
    let run = run.ok_or(Error::State("no devices: call wtr_init_devices first"))?;
    run.tell_faults();
    match Arc::try_unwrap(run) {
        Ok(run) => {
            run.runtime.end();
            Ok(())
        }
        Err(_) => Err(Error::State("another thread is still in a call of libwater")),
    }
}

impl Run {
    /// A run with these devices.
    pub fn new(runtime: Runtime, mut devices: Vec<Device>) -> Self {
        let mut handles = Handles::new("device", 1);
        for (place, device) in devices.iter_mut().enumerate() {
            device.handle = handles.add(place).addr();
        }
        let objects = Objects {
            devices: handles,
            buffers: Handles::new("buffer", 2),
            kernels: Handles::new("kernel", 3),
            events: Handles::new("event", 4),
            heaps: Handles::new("heap", 5),
        };
        Self { runtime, devices, objects: Mutex::new(objects), last_collective: Mutex::default() }
    }

    /// The devices, in the order of the query.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The device of a handle.
    pub fn device(&self, handle: *mut Opaque) -> Result<&Device, Error> {
        let place = *self.objects().devices.get(handle)?;
        self.devices.get(place).ok_or(Error::State("a device vanished"))
    }

    /// What the program made.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What drives it.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A new id for a buffer or kernel.
    pub fn object_id(&self) -> ObjectId {
        self.object_ids(1)
    }

    /// So many new ids, one after the other; the first of them.
    pub fn object_ids(&self, count: u64) -> ObjectId {
        self.runtime.with_root(|root| root.objects(count)).unwrap_or_default()
    }

    /// Issues a command. With an event to store to it returns at once, else when the command has ended.
    ///
    /// # Safety
    /// `wait_evt` and `evt` are null or lead to an event pointer. Memory that the request names stays until the command has ended.
    pub unsafe fn command(
        &self,
        rank: Rank,
        device: u32,
        request: Request,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.commands(vec![(rank, device, request)], wait_evt, evt) }.map(|_| ())
    }

    /// Issues commands of one call, which one event stands for: all wait for the same. They are returned, if an event was given.
    ///
    /// # Safety
    /// As for [`Run::command`].
    pub unsafe fn commands(
        &self,
        requests: Vec<(Rank, u32, Request)>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<Vec<CommandId>, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.commands_after(&[], requests, wait_evt, evt) }
    }

    /// As [`Run::commands`], and they also wait for `after`.
    ///
    /// # Safety
    /// As for [`Run::command`].
    pub unsafe fn commands_after(
        &self,
        after: &[CommandId],
        requests: Vec<(Rank, u32, Request)>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<Vec<CommandId>, Error> {
        // SAFETY: the caller's promise.
        let (ids, slot) = unsafe { self.issue(after, requests, wait_evt, evt) }?;
        // SAFETY: the caller's promise.
        unsafe { self.settle(&ids, slot, evt) }?;
        Ok(if slot.is_some() { ids } else { Vec::new() })
    }

    /// Issues commands; beside them the event that is to stand for them, if one was given.
    ///
    /// # Safety
    /// As for [`Run::command`].
    unsafe fn issue(
        &self,
        after: &[CommandId],
        requests: Vec<(Rank, u32, Request)>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(Vec<CommandId>, Option<*mut Opaque>), Error> {
        // SAFETY: the caller's promise.
        let mut waits = unsafe { self.waits(wait_evt) }?;
        waits.extend_from_slice(after);
        let slot = if evt.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            let event = unsafe { evt.read() };
            if !event.is_null() {
                self.objects().events.get(event)?;
            }
            Some(event)
        };
        let issue = |root: &mut crate::root::Root| {
            let issue = |(rank, device, request)| root.issue(rank, device, waits.clone(), request);
            requests.into_iter().map(issue).collect::<Vec<_>>()
        };
        let ids = self.runtime.with_root(issue).ok_or(Error::State("this is not the root"))?;
        Ok((ids, slot))
    }

    /// Lets the event stand for what was issued, or waits for its end.
    ///
    /// # Safety
    /// As for [`Run::command`]; `slot` is what was issued with `evt`.
    unsafe fn settle(
        &self,
        ids: &[CommandId],
        slot: Option<*mut Opaque>,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        match slot {
            None => self.finish(ids),
            // SAFETY: the caller's promise.
            Some(event) => unsafe { self.bind(event, evt, ids) },
        }
    }

    /// Lets an event stand for these commands; makes one where there is none.
    ///
    /// # Safety
    /// `evt` leads to an event pointer, which is `event`.
    unsafe fn bind(
        &self,
        event: *mut Opaque,
        evt: *mut *mut Opaque,
        ids: &[CommandId],
    ) -> Result<(), Error> {
        let old = {
            let mut objects = self.objects();
            if event.is_null() {
                let made = objects.events.add(Event {
                    commands: ids.to_vec(),
                    is_bound: true,
                    error: None,
                });
                // SAFETY: the caller's promise.
                unsafe { evt.write(made) };
                Vec::new()
            } else {
                let event = objects.events.get_mut(event)?;
                event.is_bound = true;
                event.error = None;
                std::mem::replace(&mut event.commands, ids.to_vec())
            }
        };
        self.let_go(&old);
        Ok(())
    }

    /// The last launch over any heap. Whoever has it, nobody else issues one.
    fn collectives(&self) -> MutexGuard<'_, Vec<CommandId>> {
        self.last_collective.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a heap away from the program: launches over it come before, or find no heap.
    pub fn remove_heap(&self, heap: *mut Opaque) -> Result<Heap, Error> {
        let _alone = self.collectives();
        self.objects().heaps.remove(heap)
    }

    /// Issues one launch over a heap: a command for each of its devices. `requests` is told the launch before it.
    ///
    /// # Safety
    /// As for [`Run::command`].
    pub unsafe fn collective(
        &self,
        heap: *mut Opaque,
        requests: impl FnOnce(&[CommandId]) -> Result<Vec<(Rank, u32, Request)>, Error>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        let mut last = self.collectives();
        let requests = requests(&last)?;
        let made = self.objects().heaps.get(heap)?.users.clone();
        // SAFETY: the caller's promise.
        let (ids, slot) = unsafe { self.issue(&made, requests, wait_evt, evt) }?;
        last.clone_from(&ids);
        // It is still there: who takes it away comes after.
        self.objects().heaps.get_mut(heap)?.users.clone_from(&ids);
        drop(last);
        // SAFETY: the caller's promise.
        unsafe { self.settle(&ids, slot, evt) }
    }

    /// Issues the reset of a heap: a command for each of its ranks, after the last launch over it. `requests` is told that launch, and how
    /// often the heap was reset with this one.
    ///
    /// # Safety
    /// As for [`Run::command`].
    pub unsafe fn reset_heap(
        &self,
        heap: *mut Opaque,
        requests: impl FnOnce(&[CommandId], u64) -> Vec<(Rank, u32, Request)>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        // A launch of another thread comes before, or after.
        let alone = self.collectives();
        let requests = {
            let mut objects = self.objects();
            let heap = objects.heaps.get_mut(heap)?;
            // Also where the reset is refused then: a number is used once.
            heap.resets += 1;
            requests(&heap.users, heap.resets)
        };
        // SAFETY: the caller's promise.
        let (ids, slot) = unsafe { self.issue(&[], requests, wait_evt, evt) }?;
        self.objects().heaps.get_mut(heap)?.users.clone_from(&ids);
        drop(alone);
        // SAFETY: the caller's promise.
        unsafe { self.settle(&ids, slot, evt) }
    }

    /// The commands that a command has to wait for.
    ///
    /// # Safety
    /// The address is null or leads to an event pointer.
    unsafe fn waits(&self, wait_evt: *mut *mut Opaque) -> Result<Vec<CommandId>, Error> {
        if wait_evt.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the caller's promise.
        let handle = unsafe { wait_evt.read() };
        if handle.is_null() {
            return Ok(Vec::new());
        }
        let objects = self.objects();
        let event = objects.events.get(handle)?;
        if !event.is_bound {
            return Err(Error::Invalid(
                "the event to wait for was not given to any command yet, so it would never end"
                    .into(),
            ));
        }
        Ok(event.commands.clone())
    }

    /// Waits for a command that no event stands for.
    fn finish(&self, commands: &[CommandId]) -> Result<(), Error> {
        let outcome = self.runtime.wait(commands);
        self.let_go(commands);
        self.tell_faults();
        outcome.map_err(Error::Command)
    }

    /// Waits for all of these.
    pub fn wait(&self, commands: &[CommandId]) -> Result<(), Error> {
        let outcome = self.runtime.wait(commands);
        self.tell_faults();
        outcome.map_err(Error::Command)
    }

    /// Tells the program of root causes it was not told of.
    pub fn tell_faults(&self) {
        for fault in self.runtime.faults() {
            report::tell_fault(&fault);
        }
    }

    /// An event less stands for these.
    pub fn let_go(&self, commands: &[CommandId]) {
        if !commands.is_empty() {
            self.runtime
                .with_root(|root| commands.iter().for_each(|command| root.let_go(*command)));
        }
    }
}
