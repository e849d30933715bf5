//! Heaps over this rank's devices. The creation of a heap waits for other ranks, so it has a thread
//! of its own. The scheduler carries the messages between that thread and the other ranks.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_device::{Context, Device, HostMemory, Mem, Status};
use penstock_ggas::layout::{FLAGS_BYTES, HEAD_BYTES, stride};
use penstock_ggas::{Heap, HeapError, Plan, TIMEOUT_DEFAULT, View};
use rustc_hash::FxHashMap;

use super::{BackendMessage, OpenCl, ring, tell};
use crate::backend::{Ended, Failure};
use crate::command::{Command, CommandId, ObjectId, Rank, Times};
use crate::error::code;
use crate::heap::meet::{Meeting, Missed};
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
        let refused = |message: &str| Failure {
            code: code::OUT_OF_HOST_MEMORY,
            message: format!("cannot create the heap: {message}"),
            log: String::new(),
        };
        let rank = plan.members().get(member as usize).copied().unwrap_or_default();
        let mut seats = Vec::new();
        for (pe, index) in plan.own(rank) {
            let slot = self.slot(index)?;
            let object_max = self.infos.get(index as usize).map_or(0, super::about::object_max);
            let (device, context) = (slot.device.clone(), slot.context.clone());
            seats.push(Seat { pe, index, device, context, object_max });
        }
        let Some(messages) = self.heaps.listen(plan.heap) else {
            return Err(refused("its creation has already started"));
        };
        let (plan, post, bell) = (plan.clone(), self.post.clone(), Arc::clone(&self.bell));
        let work = move || {
            let say = |news| {
                // Sending fails only when the run is over and nobody listens.
                _ = post.send(news);
                ring(&bell);
            };
            let tell = |to, message| {
                say(BackendMessage::HeapMessage(HeapMessageTo { to, heap: plan.heap, message }));
            };
            let made = make(&plan, member, &seats, &messages, &tell);
            say(BackendMessage::Heap { id, heap: plan.heap, made });
        };
        let thread = std::thread::Builder::new().name("wtr-heap".into()).spawn(work);
        thread.map(drop).map_err(|error| refused(&format!("cannot start a thread: {error}")))
    }

    /// Resets a heap in a thread of its own, because that waits until the stores of its kernels
    /// have arrived.
    pub(super) fn reset_heap(
        &self,
        id: CommandId,
        heap: ObjectId,
        generation: u64,
    ) -> Result<(), Failure> {
        let (post, bell) = (self.post.clone(), Arc::clone(&self.bell));
        self.heaps.reset(heap, generation, move |outcome| {
            tell(&post, &bell, Ended { operation: id, outcome, times: Times::default() });
        })
    }

    /// Returns the heap over which a command's kernel talks to others.
    pub(super) fn heap_of(&self, device: u32, command: &Command) -> Option<Arc<Heap>> {
        self.heaps.view(command.heap()?, device).ok().map(|(heap, _)| heap)
    }

    pub(super) fn release_heap(&mut self, heap: ObjectId) {
        for part in self.heaps.parts(heap) {
            self.buffers.remove(&part.buffer);
        }
        self.heaps.remove(heap);
    }
}

/// This rank's members of heaps.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    made: FxHashMap<ObjectId, Member>,
    /// Channels to the threads that create heaps. Messages that come before the thread starts stay
    /// in the channel.
    mailboxes: FxHashMap<ObjectId, HeapMailbox>,
    /// Threads that release heaps.
    leaving: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct HeapMailbox {
    say: Sender<HeapMessage>,
    /// Taken by the thread that creates the heap.
    hear: Option<Receiver<HeapMessage>>,
}

impl Default for HeapMailbox {
    fn default() -> Self {
        let (say, hear) = mpsc::channel();
        Self { say, hear: Some(hear) }
    }
}

/// This rank's member of a heap.
#[derive(Debug)]
pub(super) struct Member {
    heap: Arc<Heap>,
    pes: Vec<OwnPe>,
    /// Ranks of the other members.
    others: Vec<Rank>,
    /// Whether the ranks of the other members were reported by [`Heaps::doubts`].
    is_doubted: bool,
}

/// One device of this rank that takes part.
#[derive(Debug)]
struct OwnPe {
    device: u32,
    /// The argument that kernels get.
    view: Mem,
    /// The device's part, as a buffer.
    part: (ObjectId, Mem),
}

/// A device's part of a heap, as a buffer.
pub(super) struct PartBuffer {
    pub(super) buffer: ObjectId,
    pub(super) device: u32,
    pub(super) memory: Mem,
}

/// A device of this rank that is to take part.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) pe: u32,
    pub(super) index: u32,
    pub(super) device: Device,
    pub(super) context: Context,
    /// Size of the largest memory object that it allows, in bytes.
    pub(super) object_max: u64,
}

impl Heaps {
    /// Passes a message of another member to the thread that creates the heap.
    pub(super) fn hear(&mut self, heap: ObjectId, message: HeapMessage) {
        if !self.made.contains_key(&heap) {
            // Sending fails only when the heap could not be created and nobody listens.
            _ = self.mailboxes.entry(heap).or_default().say.send(message);
        }
    }

    /// Returns the messages for a heap whose creation starts now. Returns `None` if it has started
    /// before.
    pub(super) fn listen(&mut self, heap: ObjectId) -> Option<Receiver<HeapMessage>> {
        self.mailboxes.entry(heap).or_default().hear.take()
    }

    /// Notes the end of a heap's creation; `member` is `None` if it failed.
    pub(super) fn add(&mut self, heap: ObjectId, member: Option<Member>) {
        self.mailboxes.remove(&heap);
        if let Some(member) = member {
            self.made.insert(heap, member);
        }
    }

    /// Returns the parts of a heap as buffers.
    pub(super) fn parts(&self, heap: ObjectId) -> Vec<PartBuffer> {
        let pes = self.made.get(&heap).map(|member| member.pes.as_slice()).unwrap_or_default();
        let part = |pe: &OwnPe| PartBuffer {
            buffer: pe.part.0,
            device: pe.device,
            memory: pe.part.1.clone(),
        };
        pes.iter().map(part).collect()
    }

    /// Removes a heap. If kernels still run over it, the heap is aborted, and lives until they have
    /// returned.
    pub(super) fn remove(&mut self, heap: ObjectId) {
        self.mailboxes.remove(&heap);
        let Some(member) = self.made.remove(&heap) else { return };
        if Arc::strong_count(&member.heap) > 1 {
            member.heap.abort("the program has released the heap");
        }
        self.leaving.retain(|thread| !thread.is_finished());
        // The drop may have to wait until the stores of kernels have arrived.
        let leave =
            std::thread::Builder::new().name("wtr-heap-end".into()).spawn(move || drop(member));
        self.leaving.extend(leave);
    }

    pub(super) fn abort(&self, heap: ObjectId, reason: &str) {
        if let Some(member) = self.made.get(&heap) {
            member.heap.abort(reason);
        }
    }

    /// Makes a heap usable again, in a thread of its own, and then calls `tell` with the outcome.
    ///
    /// # Errors
    /// There is no such heap here, or the thread cannot be started.
    pub(super) fn reset(
        &self,
        heap: ObjectId,
        generation: u64,
        tell: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) -> Result<(), Failure> {
        let bad = |code, message: String| Failure { code, message, log: String::new() };
        let member = self.made.get(&heap).ok_or_else(|| {
            bad(code::INVALID_MEM_OBJECT, "the heap does not exist or was released".into())
        })?;
        let heap = Arc::clone(&member.heap);
        let work = move || {
            let outcome = heap.reset(generation).map_err(|error| not_reset(&error));
            // Dropped first, so that a release that follows finds no other owner of the heap.
            drop(heap);
            tell(outcome);
        };
        std::thread::Builder::new().name("wtr-heap".into()).spawn(work).map(drop).map_err(|error| {
            bad(code::OUT_OF_HOST_MEMORY, format!("cannot start a thread to reset a heap: {error}"))
        })
    }

    /// Returns a heap and a device's view of it.
    ///
    /// # Errors
    /// There is no such heap here, the device has no part in it, or the heap was aborted.
    pub(super) fn view(&self, heap: ObjectId, device: u32) -> Result<(Arc<Heap>, &Mem), Failure> {
        let bad = |code, message: String| Failure { code, message, log: String::new() };
        let member = self.made.get(&heap).ok_or_else(|| {
            bad(code::INVALID_MEM_OBJECT, "the heap does not exist or was released".into())
        })?;
        let pe = member.pes.iter().find(|pe| pe.device == device).ok_or_else(|| {
            bad(code::INVALID_MEM_OBJECT, "the device has no part in the heap".into())
        })?;
        if let Some(reason) = member.heap.aborted() {
            return Err(bad(
                code::ABORTED,
                format!("the heap was aborted: {reason}. wtr_reset_heap makes it usable again"),
            ));
        }
        Ok((Arc::clone(&member.heap), &pe.view))
    }

    /// Returns the ranks of the other members of aborted heaps, once for each abort.
    pub(super) fn doubts(&mut self) -> Vec<Rank> {
        let mut ranks = Vec::new();
        for member in self.made.values_mut() {
            let is_aborted = member.heap.aborted().is_some();
            if is_aborted && !member.is_doubted {
                ranks.extend_from_slice(&member.others);
            }
            // The next abort after a reset counts again.
            member.is_doubted = is_aborted;
        }
        ranks
    }
}

impl Drop for Heaps {
    fn drop(&mut self) {
        for heap in self.made.keys().copied().collect::<Vec<_>>() {
            self.remove(heap);
        }
        for thread in self.leaving.drain(..) {
            // A thread that panicked has nothing left to do.
            _ = thread.join();
        }
    }
}

/// Returns the outcome of a launch over a heap: a failure if the heap was aborted meanwhile.
pub(super) fn outcome(heap: &Heap) -> Result<(), Failure> {
    heap.aborted().map_or(Ok(()), |reason| {
        let message = format!("the heap was aborted: {reason}");
        Err(Failure { code: code::ABORTED, message, log: String::new() })
    })
}

/// Creates this rank's member, and waits for the other members. `tell` sends a message to another
/// rank.
///
/// # Errors
/// The plan or a device does not fit, or another member failed or did not come.
pub(super) fn make(
    plan: &HeapPlan,
    me: u32,
    seats: &[Seat],
    messages: &Receiver<HeapMessage>,
    tell: &dyn Fn(Rank, HeapMessage),
) -> Result<Member, Failure> {
    let members = plan.members();
    let others: Vec<Rank> =
        (0..).zip(&members).filter(|(member, _)| *member != me).map(|(_, rank)| *rank).collect();
    make_with(plan, me, seats, messages, tell, &members)
        .map(|(heap, pes)| Member { heap, pes, others: others.clone(), is_doubted: false })
        .inspect_err(|failure| {
            for rank in &others {
                tell(*rank, HeapMessage::Refused { member: me, reason: failure.message.clone() });
            }
        })
}

fn make_with(
    plan: &HeapPlan,
    me: u32,
    seats: &[Seat],
    messages: &Receiver<HeapMessage>,
    tell: &dyn Fn(Rank, HeapMessage),
    members: &[Rank],
) -> Result<(Arc<Heap>, Vec<OwnPe>), Failure> {
    for seat in seats {
        if !seat.device.shares_host_memory() {
            return Err(failure(format!(
                "{} does not compute on the host's memory, where a heap lies",
                seat.device.name()
            )));
        }
    }
    let heap = Heap::create(Plan {
        id: plan.heap.0,
        members: plan.member_of_each(),
        me,
        bytes: plan.bytes,
        timeout: plan.timeout().unwrap_or(TIMEOUT_DEFAULT),
        force_proxy: plan.force_proxy,
    })
    .map_err(of_heap)?;
    if members.len() > 1 {
        let meeting = Meeting::open(plan, me).map_err(missed)?;
        for rank in members.iter().skip(me as usize + 1) {
            tell(*rank, meeting.door());
        }
        meeting
            .meet(messages, |member, stream| heap.join(member, stream).map_err(Trouble::Heap))
            .map_err(|trouble| match trouble {
            Trouble::Missed(why) => missed(why),
            Trouble::Heap(error) => of_heap(error),
        })?;
    }
    heap.start().map_err(of_heap)?;
    let pes = seats.iter().map(|seat| own_pe(plan, &heap, seat)).collect::<Result<_, _>>()?;
    for seat in seats {
        let paths = (0..u32::try_from(plan.pes.len()).unwrap_or(u32::MAX))
            .map(|to| heap.path(seat.pe, to).map(|way| path(way) as u8))
            .collect::<Result<_, _>>()
            .map_err(of_heap)?;
        tell(0, HeapMessage::Paths { pe: seat.pe, paths });
    }
    Ok((heap, pes))
}

enum Trouble {
    Missed(Missed),
    Heap(HeapError),
}

impl From<Missed> for Trouble {
    fn from(missed: Missed) -> Self {
        Self::Missed(missed)
    }
}

const fn path(way: penstock_ggas::Path) -> Path {
    match way {
        penstock_ggas::Path::Own => Path::Own,
        penstock_ggas::Path::Shared => Path::Shared,
        penstock_ggas::Path::Proxy => Path::Proxy,
    }
}

/// Creates one device's view and part as memory objects.
fn own_pe(plan: &HeapPlan, heap: &Arc<Heap>, seat: &Seat) -> Result<OwnPe, Failure> {
    let bad = |status: Status| {
        failure(format!("{} cannot use the heap's memory: {status}", seat.device.name()))
    };
    let whole = heap.view(seat.pe).map_err(of_heap)?;
    let (_, length) = whole.range();
    let at = HEAD_BYTES as u64 + u64::from(seat.pe) * stride(plan.bytes) + FLAGS_BYTES as u64;
    let part = Lent::part(heap.view(seat.pe).map_err(of_heap)?, at, plan.bytes)
        .ok_or_else(|| failure("the layout of the heap is wrong".into()))?;
    // A view is an address for kernels. The device need not know all its bytes, which may exceed
    // the largest memory object.
    let known = (length as u64).min(seat.object_max);
    let view =
        Mem::buffer_in(&seat.context, CL_MEM_READ_WRITE, known, Box::new(Lent::whole(whole)))
            .map_err(bad)?;
    let part = Mem::buffer_in(&seat.context, CL_MEM_READ_WRITE, plan.bytes, Box::new(part))
        .map_err(bad)?;
    Ok(OwnPe { device: seat.index, view, part: (plan.part(seat.pe), part) })
}

/// A view of a heap, or a part of one, as the host memory of a memory object.
struct Lent {
    start: NonNull<u8>,
    length: usize,
    /// Keeps the memory mapped.
    _view: View,
}

// SAFETY: `start` points into a mapping that the view keeps and that any thread may use.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    fn whole(view: View) -> Self {
        let (start, length) = view.range();
        Self { start, length, _view: view }
    }

    fn part(view: View, at: u64, bytes: u64) -> Option<Self> {
        let (start, length) = view.range();
        let (at, bytes) = (usize::try_from(at).ok()?, usize::try_from(bytes).ok()?);
        at.checked_add(bytes).filter(|end| *end <= length)?;
        // SAFETY: `at` and `bytes` lie within the view, as checked above.
        let start = unsafe { start.add(at) };
        Some(Self { start, length: bytes, _view: view })
    }
}

// SAFETY: the view keeps its whole range mapped. The device's own part and everything before it are
// readable and writable. Parts of others may be addresses without memory, but only kernels use
// those: nobody copies a view.
unsafe impl HostMemory for Lent {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.length)
    }
}

fn failure(message: String) -> Failure {
    Failure {
        code: code::INVALID,
        message: format!("cannot create the heap: {message}"),
        log: String::new(),
    }
}

fn not_reset(error: &HeapError) -> Failure {
    let code = if matches!(error, HeapError::Ended { .. }) { code::ABORTED } else { code::STATE };
    Failure { code, message: format!("cannot reset the heap: {error}"), log: String::new() }
}

fn of_heap(error: HeapError) -> Failure {
    failure(error.to_string())
}

fn missed(missed: Missed) -> Failure {
    failure(missed.to_string())
}
