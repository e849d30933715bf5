//! The run: from `wtr_init_devices` to `wtr_release_devices`.

use std::sync::{Arc, MutexGuard};

use penstock_dql::{NodeFacts, RawDevice};
use penstock_process::{Lock, SharedLock};

use super::handles::Handles;
use super::{Opaque, report};
use crate::command::{CommandId, DeviceId, DeviceInfo, InPool, ObjectId, Rank};
use crate::error::Error;
use crate::heap::Pe;
use crate::request::Request;
use crate::runtime::Runtime;

#[derive(Debug)]
pub struct Run {
    runtime: Runtime,
    devices: Vec<Device>,
    objects: Lock<Objects>,
    /// The last launch over any heap. A thread keeps the lock from reading this until it has issued
    /// the next launch, so that all devices see launches in the same order. This lock is taken
    /// before `objects`.
    last_collective: Lock<Vec<CommandId>>,
}

#[derive(Debug)]
pub struct Device {
    pub rank: Rank,
    /// Index among the devices of `rank`.
    pub index: u32,
    /// Number of devices of its rank.
    pub count: usize,
    pub info: DeviceInfo,
    /// The handle that the program has.
    pub handle: usize,
}

impl Device {
    pub const fn id(&self) -> DeviceId {
        DeviceId { rank: self.rank, index: self.index }
    }

    /// Returns the device as queries see it.
    pub fn as_queried(&self) -> RawDevice<'_> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        // For a device of a daemon its node in the pool counts, because the process is only one
        // rank.
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

#[derive(Debug)]
pub struct Objects {
    /// Indices of devices in `Run::devices`.
    pub devices: Handles<usize>,
    pub buffers: Handles<Buffer>,
    pub kernels: Handles<Kernel>,
    pub events: Handles<Event>,
    pub heaps: Handles<Heap>,
}

#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub id: ObjectId,
    pub device: DeviceId,
    pub size: u64,
    /// Whether it is a part of a heap.
    pub is_part: bool,
}

#[derive(Clone, Debug)]
pub struct Heap {
    pub id: ObjectId,
    /// The devices that take part.
    pub pes: Vec<Pe>,
    /// Handles of their parts, which are buffers.
    pub parts: Vec<usize>,
    /// The commands of its creation, last launch or last reset. Its release waits for them.
    pub users: Vec<CommandId>,
    pub resets: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub id: ObjectId,
    pub device: DeviceId,
}

/// An event, which stands for commands.
#[derive(Debug, Default)]
pub struct Event {
    /// Empty before the event is given to a command.
    pub commands: Vec<CommandId>,
    /// Whether it was given to a command, or merged from other events.
    pub is_bound: bool,
    /// Its error, once the program has asked for it.
    pub error: Option<Box<report::ReportedError>>,
}

static RUN: SharedLock<Option<Arc<Run>>> = SharedLock::new(None);

pub fn current() -> Result<Arc<Run>, Error> {
    let run = RUN.read();
    run.clone().ok_or(Error::State("no devices: call wtr_init_devices first"))
}

pub fn begin(make: impl FnOnce() -> Result<Run, Error>) -> Result<(), Error> {
    let mut run = RUN.write();
    if run.is_some() {
        return Err(Error::State(
            "wtr_init_devices was called already; wtr_release_devices ends that run",
        ));
    }
    *run = Some(Arc::new(make()?));
    Ok(())
}

/// Ends the current run, and with it all its objects.
pub fn end() -> Result<(), Error> {
    let run = RUN.write().take();
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
        Self { runtime, devices, objects: Lock::new(objects), last_collective: Lock::default() }
    }

    /// Returns the devices, in the order of the query.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub fn device(&self, handle: *mut Opaque) -> Result<&Device, Error> {
        let place = *self.objects().devices.get(handle)?;
        self.devices.get(place).ok_or(Error::State("a device vanished"))
    }

    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock()
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns a new id for a buffer or kernel.
    pub fn object_id(&self) -> ObjectId {
        self.object_ids(1)
    }

    /// Reserves `count` consecutive ids, and returns the first.
    pub fn object_ids(&self, count: u64) -> ObjectId {
        self.runtime.with_root(|root| root.objects(count)).unwrap_or_default()
    }

    /// Issues a command. Returns at once if `evt` is given, otherwise when the command has ended.
    ///
    /// # Safety
    /// `wait_evt` and `evt` are null or lead to an event pointer. Memory that the request names
    /// stays valid until the command has ended.
    pub unsafe fn command(
        &self,
        request: Request,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        // SAFETY: the caller guarantees it.
        unsafe { self.commands(vec![request], wait_evt, evt) }.map(|_| ())
    }

    /// Issues the commands of one call, which wait for the same and share one event. Returns them
    /// if an event was given.
    ///
    /// # Safety
    /// The same as for [`Run::command`].
    pub unsafe fn commands(
        &self,
        requests: Vec<Request>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<Vec<CommandId>, Error> {
        // SAFETY: the caller guarantees it.
        unsafe { self.commands_after(&[], requests, wait_evt, evt) }
    }

    /// Does the same as [`Run::commands`] for commands that also wait for `after`.
    ///
    /// # Safety
    /// The same as for [`Run::command`].
    pub unsafe fn commands_after(
        &self,
        after: &[CommandId],
        requests: Vec<Request>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<Vec<CommandId>, Error> {
        // SAFETY: the caller guarantees it.
        let (ids, slot) = unsafe { self.issue(after, requests, wait_evt, evt) }?;
        // SAFETY: the caller guarantees it.
        unsafe { self.bind_or_finish(&ids, slot, evt) }?;
        Ok(if slot.is_some() { ids } else { Vec::new() })
    }

    /// Issues commands. Also returns the event that is to stand for them, if one was given.
    ///
    /// # Safety
    /// The same as for [`Run::command`].
    unsafe fn issue(
        &self,
        after: &[CommandId],
        requests: Vec<Request>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(Vec<CommandId>, Option<*mut Opaque>), Error> {
        // SAFETY: the caller guarantees it.
        let mut waits = unsafe { self.waits(wait_evt) }?;
        waits.extend_from_slice(after);
        let slot = if evt.is_null() {
            None
        } else {
            // SAFETY: the caller guarantees it.
            let event = unsafe { evt.read() };
            if !event.is_null() {
                self.objects().events.get(event)?;
            }
            Some(event)
        };
        let issue = |root: &mut crate::root::Root| {
            let issue = |request| root.issue(waits.clone(), request);
            requests.into_iter().map(issue).collect::<Vec<_>>()
        };
        let ids = self.runtime.with_root(issue).ok_or(Error::State("this is not the root"))?;
        Ok((ids, slot))
    }

    /// Binds the event to the issued commands, or waits for their end if there is none.
    ///
    /// # Safety
    /// The same as for [`Run::command`]. `slot` is the event that [`Run::issue`] returned for
    /// `evt`.
    unsafe fn bind_or_finish(
        &self,
        ids: &[CommandId],
        slot: Option<*mut Opaque>,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        match slot {
            None => self.finish(ids),
            // SAFETY: the caller guarantees it.
            Some(event) => unsafe { self.bind(event, evt, ids) },
        }
    }

    /// Binds an event to these commands. Creates the event if it is null.
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
                // SAFETY: the caller guarantees it.
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

    /// Removes a heap. Launches of other threads come before, or find no heap.
    pub fn remove_heap(&self, heap: *mut Opaque) -> Result<Heap, Error> {
        let _alone = self.last_collective.lock();
        self.objects().heaps.remove(heap)
    }

    /// Issues one launch over a heap, with a command for each of its devices. `requests` gets the
    /// previous launch over any heap.
    ///
    /// # Safety
    /// The same as for [`Run::command`].
    pub unsafe fn collective(
        &self,
        heap: *mut Opaque,
        requests: impl FnOnce(&[CommandId]) -> Result<Vec<Request>, Error>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        let mut last = self.last_collective.lock();
        let requests = requests(&last)?;
        let made = self.objects().heaps.get(heap)?.users.clone();
        // SAFETY: the caller guarantees it.
        let (ids, slot) = unsafe { self.issue(&made, requests, wait_evt, evt) }?;
        last.clone_from(&ids);
        // The heap still exists, because its removal needs the lock.
        self.objects().heaps.get_mut(heap)?.users.clone_from(&ids);
        drop(last);
        // SAFETY: the caller guarantees it.
        unsafe { self.bind_or_finish(&ids, slot, evt) }
    }

    /// Issues the reset of a heap, with a command for each of its ranks, after the last launch over
    /// it. `requests` gets that launch and the number of resets including this one.
    ///
    /// # Safety
    /// The same as for [`Run::command`].
    pub unsafe fn reset_heap(
        &self,
        heap: *mut Opaque,
        requests: impl FnOnce(&[CommandId], u64) -> Vec<Request>,
        wait_evt: *mut *mut Opaque,
        evt: *mut *mut Opaque,
    ) -> Result<(), Error> {
        // Launches of other threads come before or after.
        let alone = self.last_collective.lock();
        let requests = {
            let mut objects = self.objects();
            let heap = objects.heaps.get_mut(heap)?;
            // The number is used up even if issuing the reset fails.
            heap.resets += 1;
            requests(&heap.users, heap.resets)
        };
        // SAFETY: the caller guarantees it.
        let (ids, slot) = unsafe { self.issue(&[], requests, wait_evt, evt) }?;
        self.objects().heaps.get_mut(heap)?.users.clone_from(&ids);
        drop(alone);
        // SAFETY: the caller guarantees it.
        unsafe { self.bind_or_finish(&ids, slot, evt) }
    }

    /// Returns the commands of the event to wait for.
    ///
    /// # Safety
    /// `wait_evt` is null or leads to an event pointer.
    unsafe fn waits(&self, wait_evt: *mut *mut Opaque) -> Result<Vec<CommandId>, Error> {
        if wait_evt.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the caller guarantees it.
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

    /// Waits for commands that no event stands for, and forgets them.
    fn finish(&self, commands: &[CommandId]) -> Result<(), Error> {
        let outcome = self.runtime.wait(commands);
        self.let_go(commands);
        self.tell_faults();
        outcome.map_err(Error::Command)
    }

    /// Waits for all these commands. Blocks.
    pub fn wait(&self, commands: &[CommandId]) -> Result<(), Error> {
        let outcome = self.runtime.wait(commands);
        self.tell_faults();
        outcome.map_err(Error::Command)
    }

    /// Reports the root causes that were not reported yet.
    pub fn tell_faults(&self) {
        for fault in self.runtime.faults() {
            report::tell_fault(&fault);
        }
    }

    /// Removes one event from each of these commands.
    pub fn let_go(&self, commands: &[CommandId]) {
        if !commands.is_empty() {
            self.runtime
                .with_root(|root| commands.iter().for_each(|command| root.let_go(*command)));
        }
    }
}
