//! Members of symmetric heaps: memory of this worker's devices that kernels of all members reach.
//!
//! This file has the ids, the links to other members, the views as arguments of kernels, and the
//! pending launches. `penstock-ggas` has the memory, the threads and the members' protocol.
//!
//! Work that waits has threads of its own: members that meet, a start, the end of a heap. The
//! reader of the client's link must stay free, because an abort comes over it.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_device as device;
use penstock_ggas::{Heap, HeapError, Path, Plan, Running, layout};
use penstock_link::Stream;
use penstock_wire::args::Arg;
use penstock_wire::calls::{Serve, to_worker};
use penstock_wire::describe::{HeapPath, HeapPlan, HeapStarted, PeerInvitation};
use penstock_wire::id::kind;
use penstock_wire::limits::{HEAP_PES_MAX, HEAP_TIMEOUT_MS_MAX, HEAPS_PER_SESSION_MAX};
use penstock_wire::{FrameError, Id, Payload, Status, frame};
use rustc_hash::FxHashMap;

use super::event::lock;
use super::over;
use super::peer::Guest;
use super::shared::HeapView;
use super::table::Table;
use super::{Session, Shared};

/// Most threads that meet members or start heaps: all other members of a heap may come at once.
const THREADS_MAX: usize = 2 * HEAP_PES_MAX;

/// Interval at which a released heap checks whether its last launch has ended.
const END_LOOK: Duration = Duration::from_millis(1);

/// Least time that a reset waits for launches whose end the client knows and the worker is about to
/// note, whatever the heap's own bound is: drivers' callbacks come late on a busy machine.
const LAUNCHES_END_MIN: Duration = Duration::from_secs(5);

/// The heaps of a session.
#[derive(Default)]
pub(crate) struct Heaps {
    table: Mutex<FxHashMap<Id<kind::Heap>, Arc<Member>>>,
    /// Number of heaps in the table and of heaps that are about to end.
    living: Arc<AtomicUsize>,
    threads: Arc<AtomicUsize>,
    /// Number of threads that end heaps, counted apart: there are never more than heaps, so none is
    /// refused.
    ending: Arc<AtomicUsize>,
}

/// This worker's member of a heap.
struct Member {
    heap: Arc<Heap>,
    share: Arc<device::Share>,
    timeout: Duration,
    /// Number of launches that use it.
    launches: Arc<AtomicUsize>,
    /// Number of threads that start or reset it: at most one.
    changing: Arc<AtomicUsize>,
    _living: Counted,
}

/// One unit of a count, given back when dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts one more, unless there are `max`.
    fn new(of: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(of.clone());
        (of.fetch_add(1, Ordering::AcqRel) < max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A pending launch: the heap's clock runs and its proxy is awake.
pub(crate) struct Launch {
    running: Running,
    _counted: Counted,
}

impl Launch {
    /// Ends the launch. If it failed, aborts the heap, because the other members wait in vain.
    pub(crate) fn end(self, status: Status) {
        if status != Status::OK {
            self.running
                .abort(&format!("a launch of a kernel that uses the heap ended with {status}"));
        }
    }
}

impl Heaps {
    fn get(&self, heap: Id<kind::Heap>) -> Option<Arc<Member>> {
        lock(&self.table).get(&heap).cloned()
    }

    /// Ends all heaps with the session: waiting kernels return, here and at the other members.
    pub(crate) fn end(&self) {
        for member in lock(&self.table).values() {
            // `end` and not `abort`: a pending reset must not undo it.
            member.heap.end("the session of a member has ended");
        }
    }
}

/// Views that are arguments of kernels. They have their own table, so that no transfer can name
/// one: most of a view's addresses may be unmapped.
pub(crate) struct Views {
    mems: Table<kind::Mem, device::Mem>,
    members: FxHashMap<Id<kind::Mem>, Arc<Member>>,
    /// Views that are a kernel's current arguments, by argument.
    bound: FxHashMap<Id<kind::Kernel>, Vec<(u32, Id<kind::Mem>)>>,
}

impl Default for Views {
    fn default() -> Self {
        Self {
            mems: Table::new("a view of a heap", Status::INVALID_MEM_OBJECT),
            members: FxHashMap::default(),
            bound: FxHashMap::default(),
        }
    }
}

impl Views {
    /// Whether there are no views, as in programs without heaps.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn get(&self, view: Id<kind::Mem>) -> Option<&device::Mem> {
        self.members.contains_key(&view).then(|| self.mems.get(view).ok()).flatten()
    }

    pub(crate) fn forget(&mut self, view: Id<kind::Mem>) {
        if self.members.remove(&view).is_some() {
            self.mems.remove(view);
        }
    }

    /// Forgets the views of a member.
    fn forget_all(&mut self, of: &Arc<Member>) {
        let ids =
            self.members.iter().filter(|(_, known)| Arc::ptr_eq(known, of)).map(|(view, _)| *view);
        for view in ids.collect::<Vec<_>>() {
            self.forget(view);
        }
    }

    /// Notes which views are arguments of a kernel after its arguments have changed.
    pub(crate) fn bind<'a>(
        &mut self,
        kernel: Id<kind::Kernel>,
        args: impl Iterator<Item = (u32, Arg<'a>)>,
    ) {
        if self.is_empty() && self.bound.is_empty() {
            return;
        }
        for (index, arg) in args {
            if let Some(bound) = self.bound.get_mut(&kernel) {
                bound.retain(|(known, _)| *known != index);
            }
            if let Arg::Mem(view) = arg
                && self.members.contains_key(&view)
            {
                self.bound.entry(kernel).or_default().push((index, view));
            }
        }
    }

    /// Notes that a kernel was made with the arguments of another one.
    pub(crate) fn bind_as(&mut self, kernel: Id<kind::Kernel>, source: Id<kind::Kernel>) {
        if let Some(bound) = self.bound.get(&source).cloned() {
            self.bound.insert(kernel, bound);
        }
    }

    pub(crate) fn unbind(&mut self, kernel: Id<kind::Kernel>) {
        self.bound.remove(&kernel);
    }

    /// Aborts the heaps of a kernel whose launch could not be given to its device.
    pub(crate) fn abort(&self, kernel: Id<kind::Kernel>) {
        let bound = self.bound.get(&kernel).into_iter().flatten();
        for member in bound.filter_map(|(_, view)| self.members.get(view)) {
            member
                .heap
                .abort("a launch of a kernel that uses the heap failed before it began; its event says why");
        }
    }

    /// Marks a launch in all heaps that the kernel has as arguments, until the result is dropped.
    pub(crate) fn running(&self, kernel: Id<kind::Kernel>) -> Vec<Launch> {
        let bound = self.bound.get(&kernel).into_iter().flatten();
        let members = bound.filter_map(|(_, view)| self.members.get(view));
        let launch = |member: &Arc<Member>| {
            // Launches have no limit of their own: queues bound their number.
            let counted = Counted::new(&member.launches, usize::MAX)?;
            Some(Launch { running: member.heap.running(), _counted: counted })
        };
        members.filter_map(launch).collect()
    }
}

impl Shared {
    /// Meets another member of a heap that has come with a ticket.
    pub(super) fn member_arrived(
        self: &Arc<Self>,
        heap: Id<kind::Heap>,
        member: u32,
        stream: Stream,
    ) {
        let Some(of) = self.heaps.get(heap) else { return };
        let shared = self.clone();
        // If it cannot be met, the start fails, and the client learns it there.
        self.in_thread(&self.heaps.threads, THREADS_MAX, "heap-arrival", move || {
            if let Err(error) = of.heap.join(member, stream) {
                shared.complain_of("a member of a heap did not come", &error);
            }
        });
    }

    /// Runs `work` on a new thread. Returns `false` if `budget` is at `max` or there is no thread.
    fn in_thread(
        &self,
        budget: &Arc<AtomicUsize>,
        max: usize,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        let Some(counted) = Counted::new(budget, max) else { return false };
        let work = move || {
            let _counted = counted;
            work();
        };
        thread::Builder::new().name(name.into()).spawn(work).is_ok()
    }

    pub(super) fn complain_of(&self, event: &str, error: &dyn Display) {
        if let Some(suppressed) = self.complaints.pass(self.started.elapsed().as_secs()) {
            tracing::warn!(%error, suppressed, "{event}");
        }
    }

    /// Answers with an error text, or with none.
    fn reply_heap(&self, request: Id<kind::Request>, done: Result<(), String>) {
        self.reply::<Option<String>>(request, &Ok(done.err()));
    }
}

/// Error text for an unknown heap.
fn unknown() -> String {
    "there is no such heap".to_owned()
}

/// Error text if [`THREADS_MAX`] are at work.
fn busy() -> String {
    format!(
        "more than {THREADS_MAX} members of heaps meet at this moment; make heaps one after the other"
    )
}

/// Error text if the heap is being started or reset already.
fn changes() -> String {
    "the heap is being started or reset at this moment".to_owned()
}

fn create(call: &to_worker::CreateHeap, plan: HeapPlan, heaps: &Heaps) -> Result<Member, String> {
    let Some(living) = Counted::new(&heaps.living, HEAPS_PER_SESSION_MAX) else {
        return Err(format!("the session has {HEAPS_PER_SESSION_MAX} heaps; release one first"));
    };
    let timeout_ms = call.timeout_ms.get();
    if timeout_ms > HEAP_TIMEOUT_MS_MAX {
        return Err(format!(
            "kernels wait at most {HEAP_TIMEOUT_MS_MAX} ms inside a heap, not {timeout_ms}"
        ));
    }
    let (me, bytes, timeout) =
        (call.me.get(), call.bytes.get(), Duration::from_millis(timeout_ms.into()));
    let own = plan.members.iter().filter(|member| **member == me).count() as u64;
    let share =
        own.checked_mul(layout::stride(bytes.min(layout::BYTES_MAX))).map(device::Share::take);
    let Some(Ok(share)) = share else {
        return Err(format!(
            "{own} parts of {bytes} bytes are more memory than the node's devices have"
        ));
    };
    let plan = Plan {
        id: call.heap.get(),
        members: plan.members,
        me,
        bytes,
        timeout,
        force_proxy: call.force_proxy.get() != 0,
    };
    let heap = Heap::create(plan).map_err(|error| error.to_string())?;
    let (launches, changing) = (Arc::default(), Arc::default());
    Ok(Member { heap, share: Arc::new(share), timeout, launches, changing, _living: living })
}

impl Serve<to_worker::CreateHeap> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CreateHeap,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let plan: HeapPlan = frame::decode("CreateHeap", &payload.read_all()?)?;
        let heaps = &self.shared.heaps;
        if call.heap.is_none() || heaps.get(call.heap).is_some() {
            return Err(FrameError::BadId("a heap"));
        }
        let made = create(call, plan, heaps).map(|member| {
            over::offer(&member.heap);
            lock(&heaps.table).insert(call.heap, Arc::new(member));
        });
        self.shared.reply_heap(call.request, made);
        Ok(())
    }
}

impl Serve<to_worker::AdmitHeapMember> for Session {
    fn serve(
        &mut self,
        call: &to_worker::AdmitHeapMember,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let bytes = payload.read_all()?;
        let ticket = bytes.try_into().map_err(|_| FrameError::BadPayload("AdmitHeapMember"))?;
        let guest = Guest::Member(call.heap, call.member.get());
        // If the heap does not exist, the member is turned away when it comes.
        if let Err(status) = self.shared.admit(ticket, guest, call.request)? {
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}

impl Serve<to_worker::ConnectHeapMember> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ConnectHeapMember,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let invitation: PeerInvitation = frame::decode("ConnectHeapMember", &payload.read_all()?)?;
        let Some(of) = self.shared.heaps.get(call.heap) else {
            self.shared.reply_heap(call.request, Err(unknown()));
            return Ok(());
        };
        let (shared, request, member) = (self.shared.clone(), call.request, call.member.get());
        let connect = move || {
            let met: Result<(), HeapError> =
                shared.reach(&invitation, |stream| of.heap.join(member, stream));
            shared.reply_heap(request, met.map_err(|error| error.to_string()));
        };
        if !self.shared.in_thread(&self.shared.heaps.threads, THREADS_MAX, "heap-connect", connect)
        {
            self.shared.reply_heap(call.request, Err(busy()));
        }
        Ok(())
    }
}

impl Serve<to_worker::StartHeap> for Session {
    fn serve(
        &mut self,
        call: &to_worker::StartHeap,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let refuse = |why: String| HeapStarted { refused: Some(why), paths: Vec::new() };
        let Some(of) = self.shared.heaps.get(call.heap) else {
            self.shared.reply(call.request, &Ok(refuse(unknown())));
            return Ok(());
        };
        let Some(changing) = Counted::new(&of.changing, 1) else {
            self.shared.reply(call.request, &Ok(refuse(changes())));
            return Ok(());
        };
        let (shared, request) = (self.shared.clone(), call.request);
        let start = move || {
            let _changing = changing;
            let started = of.heap.start().and_then(|()| paths(&of.heap));
            let answer = match started {
                Ok(paths) => {
                    shared.tell_of_ways(&of.heap);
                    HeapStarted { refused: None, paths }
                }
                Err(error) => refuse(error.to_string()),
            };
            shared.reply(request, &Ok(answer));
        };
        if !self.shared.in_thread(&self.shared.heaps.threads, THREADS_MAX, "heap-start", start) {
            self.shared.reply(call.request, &Ok(refuse(busy())));
        }
        Ok(())
    }
}

/// Returns how each PE of this member reaches all PEs.
fn paths(heap: &Heap) -> Result<Vec<(u32, Vec<HeapPath>)>, HeapError> {
    let plan = heap.plan();
    let all = || (0u32..).zip(&plan.members).map(|(pe, _)| pe);
    let own = (0u32..).zip(&plan.members).filter(|(_, member)| **member == plan.me);
    own.map(|(from, _)| {
        let path = |to| {
            Ok(match heap.path(from, to)? {
                _ if from == to => HeapPath::Own,
                Path::Own | Path::Shared => HeapPath::Shared,
                Path::Proxy => over::path(heap, to),
            })
        };
        Ok((from, all().map(path).collect::<Result<_, HeapError>>()?))
    })
    .collect()
}

impl Serve<to_worker::CreateHeapView> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CreateHeapView,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let objects = &mut self.objects;
        objects.mems.vacant(call.view)?;
        objects.views.mems.vacant(call.view)?;
        objects.mems.vacant(call.part)?;
        if call.part == call.view {
            return Err(FrameError::BadId("a part of a heap"));
        }
        let made =
            self.shared.heaps.get(call.heap).ok_or(Status::INVALID_OPERATION).and_then(|member| {
                let context = objects.contexts.get(call.context)?;
                let (view, part) = view_and_part(&member, context, call.pe.get())?;
                Ok((member, view, part))
            });
        let answer = match made {
            Ok((member, view, part)) => {
                objects.views.mems.insert(call.view, Ok(view))?;
                objects.views.members.insert(call.view, member);
                objects.mems.insert(call.part, Ok(part))?;
                Ok(())
            }
            Err(status) => Err(status),
        };
        self.shared.reply(call.request, &answer);
        Ok(())
    }
}

/// Makes a buffer of a PE's view, and a sub-buffer of the user's bytes in its own part.
fn view_and_part(
    member: &Member,
    context: &device::Context,
    pe: u32,
) -> Result<(device::Mem, device::Mem), Status> {
    let view = member.heap.view(pe).map_err(|_| Status::INVALID_OPERATION)?;
    let (_, bytes) = view.range();
    let size = u64::try_from(bytes).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
    let lent = HeapView { view, _share: member.share.clone() };
    let view = device::Mem::buffer_in(context, CL_MEM_READ_WRITE, size, Box::new(lent))?;
    let user = member.heap.plan().bytes;
    let origin = layout::HEAD_BYTES as u64
        + u64::from(pe) * layout::stride(user)
        + layout::FLAGS_BYTES as u64;
    let part = device::Mem::sub_buffer(&view, CL_MEM_READ_WRITE, origin, user)?;
    Ok((view, part))
}

impl Serve<to_worker::HeapStatus> for Session {
    fn serve(
        &mut self,
        call: &to_worker::HeapStatus,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let aborted = self
            .shared
            .heaps
            .get(call.heap)
            .map_or_else(|| Some(unknown()), |of| of.heap.aborted());
        self.shared.reply(call.request, &Ok(aborted));
        Ok(())
    }
}

impl Serve<to_worker::AbortHeap> for Session {
    fn serve(
        &mut self,
        call: &to_worker::AbortHeap,
        _: &[Id<kind::Event>],
        payload: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let reason = payload.read_all()?;
        if let Some(of) = self.shared.heaps.get(call.heap) {
            of.heap.abort(&String::from_utf8_lossy(&reason));
        }
        Ok(())
    }
}

impl Serve<to_worker::ResetHeap> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ResetHeap,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let Some(of) = self.shared.heaps.get(call.heap) else {
            self.shared.reply_heap(call.request, Err(unknown()));
            return Ok(());
        };
        let Some(changing) = Counted::new(&of.changing, 1) else {
            self.shared.reply_heap(call.request, Err(changes()));
            return Ok(());
        };
        let (shared, request, generation) =
            (self.shared.clone(), call.request, call.generation.get());
        // It waits for pending launches.
        let reset = move || {
            of.wait_for_launches();
            let done = of.heap.reset(generation).map_err(|error| error.to_string());
            drop(changing);
            shared.reply_heap(request, done);
        };
        if !self.shared.in_thread(&self.shared.heaps.threads, THREADS_MAX, "heap-reset", reset) {
            self.shared.reply_heap(call.request, Err(busy()));
        }
        Ok(())
    }
}

impl Member {
    /// Waits until no launch uses the heap. The client knows of the last end, perhaps a moment
    /// before this worker. A launch takes no longer than its kernels' waits, apart from its own
    /// work.
    fn wait_for_launches(&self) {
        let deadline = Instant::now() + self.timeout.max(LAUNCHES_END_MIN);
        while self.launches.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(END_LOOK);
        }
    }
}

impl Serve<to_worker::ReleaseHeap> for Session {
    fn serve(
        &mut self,
        call: &to_worker::ReleaseHeap,
        _: &[Id<kind::Event>],
        _: &mut dyn Payload,
    ) -> Result<(), FrameError> {
        let Some(member) = lock(&self.shared.heaps.table).remove(&call.heap) else { return Ok(()) };
        self.objects.views.forget_all(&member);
        self.shared.forget_members(call.heap);
        let ending = member.clone();
        let end = move || {
            ending.wait_for_launches();
            drop(ending);
        };
        // On a thread, because the heap's end waits for pending work for other members.
        if !self.shared.in_thread(&self.shared.heaps.ending, HEAPS_PER_SESSION_MAX, "heap-end", end)
        {
            // The system gives no thread, so the heap ends here without waiting.
            member.heap.end(
                "a member was released, and its node has no thread in which it could end in order",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_bounded_and_given_back() {
        let count = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> =
            (0..3).map(|_| Counted::new(&count, 3).expect("under the limit")).collect();
        assert!(Counted::new(&count, 3).is_none());
        drop(all);
        assert_eq!(count.load(Ordering::Acquire), 0);
    }
}
