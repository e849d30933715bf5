//! Heaps over this rank's devices.
//!
//! `penstock_ggas::host` forms, resets and ends the members. This file has what a rank does in its
//! own way: it meets the other members by itself, makes memory objects in the contexts of its
//! devices, and reports to the scheduler. The scheduler carries the messages between the thread
//! that forms a heap and the other ranks.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_device::{Context, Device, HostMemory, Mem};
use penstock_ggas::host::{
    FormedHeap, HeapHost, HeapSite, HostError, HostLimits, HostedHeap, Join, Meeting,
    MeetingMessage, MeetingPlan, Release,
};
use penstock_ggas::{Heap, HeapError, Plan, Running, TIMEOUT_DEFAULT, UserBytes, View};
use rustc_hash::FxHashMap;

use super::{BackendMessage, OpenCl, ring, tell};
use crate::backend::{Ended, Failure};
use crate::command::{Command, CommandId, ObjectId, Rank, Times};
use crate::error::code;
use crate::heap::{HeapMessage, HeapMessageTo, HeapPlan, Path};

/// The back end's operations on heaps. Their state is in [`Heaps`].
impl OpenCl {
    /// Creates a heap in a thread of its own, because that waits for other ranks.
    pub(super) fn make_heap(
        &mut self,
        id: CommandId,
        plan: &HeapPlan,
        member: u32,
    ) -> Result<(), Failure> {
        let rank = plan.members().get(member as usize).copied().unwrap_or_default();
        let mut devices = Vec::new();
        for (pe, index) in plan.own(rank) {
            let slot = self.slot(index)?;
            let object_max = self.infos.get(index as usize).map_or(0, super::about::object_max);
            let (device, context) = (slot.device.clone(), slot.context.clone());
            devices.push((pe, PeDevice { index, device, context, object_max }));
        }
        let Some(messages) = self.heaps.listen(plan.heap) else {
            return Err(not_created(code::OUT_OF_HOST_MEMORY, "its creation has already started"));
        };
        let (heap, post, bell) = (plan.heap, self.post.clone(), Arc::clone(&self.bell));
        let say = move |news| {
            // Sending fails only when the run is over and nobody listens.
            _ = post.send(news);
            ring(&bell);
        };
        let (host, member) =
            (self.heaps.host.clone(), RankMember::new(plan, rank, member, say.clone()));
        let work = move || {
            let made = member.form(&host, messages, &devices).map_err(|error| of_creation(&error));
            say(BackendMessage::Heap { id, heap, made });
        };
        self.heaps.host.in_thread("heap-form", work).map_err(|error| of_creation(&error))
    }

    /// Resets a heap in a thread of its own, because that waits until the stores of its kernels
    /// have arrived.
    pub(super) fn reset_heap(&self, id: CommandId, heap: ObjectId, generation: u64) {
        let (post, bell) = (self.post.clone(), Arc::clone(&self.bell));
        self.heaps.host.reset(heap, generation, move |outcome| {
            let outcome = outcome.map_err(|error| not_reset(&error));
            tell(&post, &bell, Ended { operation: id, outcome, times: Times::default() });
        });
    }

    /// Marks a launch in the heap over which its kernel talks to others.
    pub(super) fn heap_launch(&self, device: u32, command: &Command) -> Option<HeapLaunch> {
        let hosted = self.heaps.usable(command.heap()?, device).ok()?;
        Some(HeapLaunch { running: hosted.heap().running(), _hosted: hosted })
    }

    pub(super) fn release_heap(&mut self, heap: ObjectId) {
        for part in self.heaps.parts(heap) {
            self.buffers.remove(&part.buffer);
        }
        self.heaps.remove(heap);
    }
}

/// A launch in flight. It keeps the heap.
pub(super) struct HeapLaunch {
    running: Running,
    _hosted: Arc<HostedHeap<RankPart>>,
}

impl HeapLaunch {
    /// Ends the launch. Returns a failure if the heap was aborted meanwhile.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self.running.end(None) {
            Some(reason) => Err(failure(code::ABORTED, format!("the heap was aborted: {reason}"))),
            None => Ok(()),
        }
    }
}

/// This rank's members of heaps.
#[derive(Debug)]
pub(super) struct Heaps {
    host: HeapHost<ObjectId, RankPart>,
    /// Channels to the threads that create heaps. Messages that come before the thread starts stay
    /// in the channel.
    mailboxes: FxHashMap<ObjectId, HeapMailbox>,
}

impl Default for Heaps {
    fn default() -> Self {
        // A rank trusts its own program.
        Self { host: HeapHost::new(HostLimits::NONE), mailboxes: FxHashMap::default() }
    }
}

#[derive(Debug)]
struct HeapMailbox {
    say: Sender<MeetingMessage>,
    /// Taken by the thread that creates the heap.
    hear: Option<Receiver<MeetingMessage>>,
}

impl Default for HeapMailbox {
    fn default() -> Self {
        let (say, hear) = mpsc::channel();
        Self { say, hear: Some(hear) }
    }
}

/// What this rank keeps beside its member of a heap.
#[derive(Debug)]
pub(super) struct RankPart {
    pes: Vec<OwnPe>,
    /// Ranks of the other members.
    others: Vec<Rank>,
}

/// A heap that a thread has formed.
pub(super) struct MadeHeap {
    formed: FormedHeap,
    part: RankPart,
}

/// One device of this rank that takes part.
#[derive(Debug)]
struct OwnPe {
    device: u32,
    memory: PeMemory,
    /// Id of the device's part as a buffer.
    buffer: ObjectId,
}

/// Memory objects of a PE.
#[derive(Debug)]
pub(super) struct PeMemory {
    /// The argument that kernels get.
    view: Mem,
    /// The device's part, as a buffer.
    part: Mem,
}

/// A device's part of a heap, as a buffer.
pub(super) struct PartBuffer {
    pub(super) buffer: ObjectId,
    pub(super) device: u32,
    pub(super) memory: Mem,
}

/// A device of this rank that is to take part.
#[derive(Debug)]
pub(super) struct PeDevice {
    index: u32,
    device: Device,
    context: Context,
    /// Size of the largest memory object that it allows, in bytes.
    object_max: u64,
}

impl Heaps {
    /// Passes a message of another member to the thread that creates the heap.
    pub(super) fn hear(&mut self, heap: ObjectId, message: HeapMessage) {
        if let HeapMessage::Meeting(message) = message
            && self.host.get(heap).is_none()
        {
            // Sending fails only when the heap could not be created and nobody listens.
            _ = self.mailboxes.entry(heap).or_default().say.send(message);
        }
    }

    /// Returns the messages for a heap whose creation starts now. Returns `None` if it has started
    /// before.
    fn listen(&mut self, heap: ObjectId) -> Option<Receiver<MeetingMessage>> {
        self.mailboxes.entry(heap).or_default().hear.take()
    }

    /// Notes the end of a heap's creation; `made` is `None` if it failed.
    pub(super) fn add(&mut self, heap: ObjectId, made: Option<MadeHeap>) {
        self.mailboxes.remove(&heap);
        if let Some(MadeHeap { formed, part }) = made {
            self.host.add(heap, formed, part);
        }
    }

    /// Returns the parts of a heap as buffers.
    pub(super) fn parts(&self, heap: ObjectId) -> Vec<PartBuffer> {
        let Some(hosted) = self.host.get(heap) else { return Vec::new() };
        let part = |pe: &OwnPe| PartBuffer {
            buffer: pe.buffer,
            device: pe.device,
            memory: pe.memory.part.clone(),
        };
        hosted.extra().pes.iter().map(part).collect()
    }

    /// Removes a heap. If kernels still run over it, the heap is aborted, and lives until they have
    /// returned.
    fn remove(&mut self, heap: ObjectId) {
        self.mailboxes.remove(&heap);
        self.host.release(heap, Release::AbortLaunches(RELEASED));
    }

    pub(super) fn abort(&self, heap: ObjectId, reason: &str) {
        if let Some(hosted) = self.host.get(heap) {
            hosted.heap().abort(reason);
        }
    }

    /// Returns a device's view of a heap.
    ///
    /// # Errors
    /// There is no such heap here, the device has no part in it, or the heap was aborted.
    pub(super) fn view(&self, heap: ObjectId, device: u32) -> Result<Mem, Failure> {
        let hosted = self.usable(heap, device)?;
        let pe = hosted.extra().pes.iter().find(|pe| pe.device == device);
        pe.map(|pe| pe.memory.view.clone()).ok_or_else(no_part)
    }

    /// Returns a heap that a launch on a device may use.
    ///
    /// # Errors
    /// See [`Heaps::view`].
    fn usable(&self, heap: ObjectId, device: u32) -> Result<Arc<HostedHeap<RankPart>>, Failure> {
        let hosted = self.host.get(heap).ok_or_else(no_heap)?;
        if !hosted.extra().pes.iter().any(|pe| pe.device == device) {
            return Err(no_part());
        }
        if let Some(reason) = hosted.heap().aborted() {
            return Err(failure(
                code::ABORTED,
                format!("the heap was aborted: {reason}. wtr_reset_heap makes it usable again"),
            ));
        }
        Ok(hosted)
    }

    /// Returns the ranks of the other members of aborted heaps, once for each abort.
    pub(super) fn doubts(&mut self) -> Vec<Rank> {
        let aborted = self.host.newly_aborted();
        aborted.iter().flat_map(|hosted| hosted.extra().others.iter().copied()).collect()
    }
}

/// Reason for the end of kernels' waits when the program gives up the heap.
const RELEASED: &str = "the program has released the heap";

impl Drop for Heaps {
    fn drop(&mut self) {
        self.host.finish(Release::AbortLaunches(RELEASED));
    }
}

/// This rank as a member of a heap that is being formed. `say` sends a message to the scheduler.
struct RankMember<S> {
    plan: HeapPlan,
    me: u32,
    rank: Rank,
    say: S,
}

impl<S: Fn(BackendMessage)> RankMember<S> {
    fn new(plan: &HeapPlan, rank: Rank, me: u32, say: S) -> Self {
        Self { plan: plan.clone(), me, rank, say }
    }

    /// Creates this rank's member, and waits for the other members.
    fn form(
        &self,
        host: &HeapHost<ObjectId, RankPart>,
        messages: Receiver<MeetingMessage>,
        devices: &[(u32, PeDevice)],
    ) -> Result<MadeHeap, HostError> {
        let plan = Plan {
            id: self.plan.heap.0,
            members: self.plan.member_of_each(),
            me: self.me,
            bytes: self.plan.bytes,
            timeout: self.plan.timeout().unwrap_or(TIMEOUT_DEFAULT),
            force_proxy: self.plan.force_proxy,
        };
        let (formed, memory) = host.form(self, plan, messages, devices)?;
        self.report_paths(formed.heap())?;
        let own = |((pe, device), memory): (&(u32, PeDevice), PeMemory)| OwnPe {
            device: device.index,
            memory,
            buffer: self.plan.part(*pe),
        };
        let pes = devices.iter().zip(memory).map(own).collect();
        Ok(MadeHeap { formed, part: RankPart { pes, others: self.others() } })
    }

    fn others(&self) -> Vec<Rank> {
        self.plan.members().into_iter().filter(|rank| *rank != self.rank).collect()
    }

    fn report_paths(&self, heap: &Heap) -> Result<(), HeapError> {
        for paths in heap.own_paths()? {
            let numbers = paths.to.iter().map(|way| path(*way) as u8).collect();
            self.tell(0, HeapMessage::Paths { pe: paths.from, paths: numbers });
        }
        Ok(())
    }

    /// Sends a message to another rank.
    fn tell(&self, to: Rank, message: HeapMessage) {
        let heap = self.plan.heap;
        (self.say)(BackendMessage::HeapMessage(HeapMessageTo { to, heap, message }));
    }
}

impl<S: Fn(BackendMessage)> HeapSite for RankMember<S> {
    /// Messages of the other members.
    type Route = Receiver<MeetingMessage>;
    type Device = PeDevice;
    type Memory = PeMemory;
    type BindError = String;

    fn check(&self, device: &PeDevice) -> Result<(), String> {
        if device.device.shares_host_memory() {
            return Ok(());
        }
        let name = device.device.name();
        Err(format!("{name} does not compute on the host's memory, where a heap lies"))
    }

    fn connect(
        &self,
        messages: Receiver<MeetingMessage>,
        join: &mut Join<'_>,
    ) -> Result<(), HostError> {
        let meeting = Meeting::open(MeetingPlan {
            heap: self.plan.heap.0,
            me: self.me,
            hosts: self.plan.hosts.clone(),
            secret: self.plan.secret,
            public_name: crate::host::public_name(),
            sockets: crate::host::socket_folder(),
        })?;
        for rank in self.plan.members().iter().skip(self.me as usize + 1) {
            self.tell(*rank, HeapMessage::Meeting(meeting.door()));
        }
        meeting.meet(&messages, |member, stream| join(member, stream).map_err(HostError::from))
    }

    /// Makes two buffers. A view is an address for kernels. The device need not know all its bytes,
    /// which may exceed the largest memory object.
    fn bind(&self, device: &PeDevice, view: View) -> Result<PeMemory, String> {
        let buffer = |bytes, lent| {
            Mem::buffer_in(&device.context, CL_MEM_READ_WRITE, bytes, Box::new(lent)).map_err(
                |status| {
                    let name = device.device.name();
                    format!("{name} cannot use the heap's memory: {status}")
                },
            )
        };
        let known = (view.range().1 as u64).min(device.object_max);
        let part = buffer(self.plan.bytes, Lent::UserBytes(view.user_bytes()))?;
        Ok(PeMemory { view: buffer(known, Lent::View(view))?, part })
    }

    /// Tells the other members, so that they do not wait.
    fn report(&self, fault: &HostError) {
        for rank in self.others() {
            let refused = MeetingMessage::Refused { member: self.me, reason: fault.to_string() };
            self.tell(rank, HeapMessage::Meeting(refused));
        }
    }
}

const fn path(way: penstock_ggas::Path) -> Path {
    match way {
        penstock_ggas::Path::Own => Path::Own,
        penstock_ggas::Path::Shared => Path::Shared,
        penstock_ggas::Path::Proxy => Path::Proxy,
    }
}

/// Memory of a heap as the host memory of a memory object.
enum Lent {
    View(View),
    UserBytes(UserBytes),
}

// SAFETY: the view keeps its whole range mapped. The device's own part and everything before it are
// readable and writable. Parts of others may be addresses without memory, but only kernels use
// those: nobody copies a view.
unsafe impl HostMemory for Lent {
    fn range(&self) -> (NonNull<u8>, usize) {
        match self {
            Self::View(view) => view.range(),
            Self::UserBytes(bytes) => bytes.range(),
        }
    }
}

fn failure(code: i32, message: String) -> Failure {
    Failure { code, message, log: String::new() }
}

fn no_heap() -> Failure {
    failure(code::INVALID_MEM_OBJECT, "the heap does not exist or was released".into())
}

fn no_part() -> Failure {
    failure(code::INVALID_MEM_OBJECT, "the device has no part in the heap".into())
}

fn not_created(code: i32, why: &str) -> Failure {
    failure(code, format!("cannot create the heap: {why}"))
}

fn of_creation(error: &HostError) -> Failure {
    let code = match error {
        HostError::Thread(_) => code::OUT_OF_HOST_MEMORY,
        _ => code::INVALID,
    };
    not_created(code, &error.to_string())
}

fn not_reset(error: &HostError) -> Failure {
    let code = match error {
        HostError::Unknown => return no_heap(),
        HostError::Thread(_) => code::OUT_OF_HOST_MEMORY,
        HostError::Heap(HeapError::Ended { .. }) => code::ABORTED,
        _ => code::STATE,
    };
    failure(code, format!("cannot reset the heap: {error}"))
}
