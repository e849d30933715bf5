//! Symmetric heaps: memory on several devices (PEs) that kernels on all of them reach, over any
//! places and nodes of a context.
//!
//! A heap has no residency: its content never moves. If a heap is an argument of a kernel, each
//! launch passes the view of the queue's device. `penstock-ggas` in the workers defines the content
//! of views and what kernels can do with them.

mod device;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use penstock_process::Lock;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::{HeapPath, HeapPlan};
use penstock_wire::id::kind;
use penstock_wire::limits::{
    HEAP_BYTES_MAX, HEAP_PES_MAX, HEAP_REASON_BYTES_MAX, HEAP_TIMEOUT_MS_MAX,
};
use penstock_wire::{Id, Status, U32, U64, frame};

use crate::command::{Keep, Spec};
use crate::config;
use crate::context::Context;
use crate::error::{Error, Result, refused};
use crate::event::Event;
use crate::pool::Device;
use crate::queue::{Enqueued, Queue, Range, Want};
use crate::session::{Session, Target, no_refusal};
use crate::source::{NOTHING, Source};

/// The text of `ggas.h`.
pub use penstock_ggas::HEADER;

/// Options with which a program creates a heap.
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    /// Longest time that a kernel waits inside the heap before it gives up.
    pub timeout: Duration,
    /// Whether devices of different workers use the proxy even if they could share memory; `None`
    /// for the configured choice.
    pub force_proxy: Option<bool>,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self { timeout: penstock_ggas::TIMEOUT_DEFAULT, force_proxy: None }
    }
}

pub struct Heap {
    /// Contexts of the devices, each once, in the order of their addresses. A thread that locks
    /// several of them takes them in this order.
    pub(crate) contexts: Vec<Arc<Context>>,
    id: Id<kind::Heap>,
    pub(crate) pes: Vec<Pe>,
    /// Size of each PE's part in bytes.
    bytes: u64,
    /// The workers that have PEs, in the order of their first PEs.
    pub(crate) members: Vec<Arc<Session>>,
    /// Path from each PE to each: `paths[from][to]`.
    paths: Vec<Vec<HeapPath>>,
    /// Launches that may still run.
    running: Lock<Vec<Event>>,
    /// Generation of the last reset that was asked for. Locked while a reset is in progress.
    generation: Lock<u64>,
    /// Reason why the last collective launch was refused.
    pub(crate) refusal: Lock<Option<Arc<str>>>,
}

/// One device of a heap.
pub(crate) struct Pe {
    pub(crate) device: Arc<Device>,
    context: Arc<Context>,
    /// Index of the device's place in `context`.
    place: usize,
    /// The buffer that a kernel on the device gets as its argument.
    view: Id<kind::Mem>,
    /// The device's own part, in the device's worker.
    part: Id<kind::Mem>,
    /// Address of the view for kernels of a GPU that CUDA's driver drives.
    address: Option<u64>,
}

impl Heap {
    /// Makes a heap of `bytes` on each of `devices`, the first of which is PE 0. The content is
    /// zero. Waits for the workers.
    ///
    /// # Errors
    /// [`Error::Heap`] with a sentence that says what is impossible, where, and what to do. Or an
    /// error if a node is lost.
    pub fn create(
        context: &Arc<Context>,
        devices: &[Arc<Device>],
        bytes: u64,
        options: HeapOptions,
    ) -> Result<Arc<Self>> {
        let seats: Vec<_> = devices.iter().map(|device| (context, device)).collect();
        Self::create_over(&seats, bytes, options)
    }

    /// As [`Heap::create`], with a context for each device. Several devices may have the same
    /// context.
    ///
    /// # Errors
    /// As [`Heap::create`].
    pub fn create_over(
        seats: &[(&Arc<Context>, &Arc<Device>)],
        bytes: u64,
        options: HeapOptions,
    ) -> Result<Arc<Self>> {
        let timeout_ms = check(seats, bytes, options)?;
        let force_proxy = match options.force_proxy {
            Some(force) => force,
            None => {
                let path =
                    config::heap_path().map_err(|error| Error::Config(error.to_string().into()))?;
                path == config::HeapPath::Proxy
            }
        };
        let mut members: Vec<Arc<Session>> = Vec::new();
        let mut pes = Vec::new();
        let mut plan = HeapPlan::default();
        let mut contexts: Vec<Arc<Context>> = Vec::new();
        for &(context, device) in seats {
            if !contexts.iter().any(|known| Arc::ptr_eq(known, context)) {
                contexts.push(context.clone());
            }
            let of = members.iter().position(|member| member.node() == device.node());
            let of = of.unwrap_or_else(|| {
                members.push(device.session().clone());
                members.len() - 1
            });
            plan.members.push(u32::try_from(of).unwrap_or(u32::MAX));
            let place = context.place_of(device).unwrap_or(usize::MAX);
            let (device, context) = (device.clone(), context.clone());
            let (view, part) = (crate::ids::next_id(), crate::ids::next_id());
            pes.push(Pe { device, context, place, view, part, address: None });
        }
        contexts.sort_unstable_by_key(|context| Arc::as_ptr(context).addr());
        if let [first, _, ..] = members.as_slice()
            && let Some(peers) = first.peers()
        {
            // A launch on one node waits for earlier commands on the others.
            peers.link(&members.iter().collect::<Vec<_>>());
        }
        // From here on its `Drop` releases the heap, however this function ends.
        let mut heap = Self {
            contexts,
            id: crate::ids::next_id(),
            pes,
            bytes,
            members,
            paths: Vec::new(),
            running: Lock::default(),
            generation: Lock::default(),
            refusal: Lock::default(),
        };
        heap.make_members(&plan, timeout_ms, force_proxy)?;
        heap.link()?;
        heap.start()?;
        heap.make_views()?;
        heap.ask_addresses()?;
        Ok(Arc::new(heap))
    }

    fn make_members(&self, plan: &HeapPlan, timeout_ms: u32, force_proxy: bool) -> Result<()> {
        let payload = frame::encode(plan);
        let made: Vec<_> = (0u32..)
            .zip(&self.members)
            .map(|(me, member)| {
                let call = to_worker::CreateHeap {
                    request: Id::NONE,
                    heap: self.id,
                    me: U32::new(me),
                    bytes: U64::new(self.bytes),
                    timeout_ms: U32::new(timeout_ms),
                    force_proxy: U32::new(force_proxy.into()),
                };
                member.request(call, &payload)
            })
            .collect();
        for (made, member) in made.into_iter().zip(&self.members) {
            no_refusal(member, made.wait()?)?;
        }
        Ok(())
    }

    /// Links each pair of members.
    fn link(&self) -> Result<()> {
        for (at, one) in (0u32..).zip(&self.members) {
            for (other_at, other) in (0u32..).zip(&self.members).skip(at as usize + 1) {
                let peers = one.peers().ok_or_else(|| refused("the pool has been closed"))?;
                peers.link_heap(self.id, (one, at), (other, other_at))?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let call = || to_worker::StartHeap { request: Id::NONE, heap: self.id };
        // Sent to all before waiting, because each member waits for the others.
        let started: Vec<_> =
            self.members.iter().map(|member| member.request(call(), &[])).collect();
        for member in &self.members {
            member.flush()?;
        }
        let mut paths = vec![Vec::new(); self.pes.len()];
        for (started, member) in started.into_iter().zip(&self.members) {
            let answer = started.wait()?;
            no_refusal(member, answer.refused)?;
            for (pe, row) in answer.paths {
                if let Some(of) = paths.get_mut(pe as usize).filter(|_| row.len() == self.pes.len())
                {
                    *of = row;
                }
            }
        }
        if paths.iter().any(Vec::is_empty) {
            return Err(refused("a worker did not tell how its devices reach the others"));
        }
        self.paths = paths;
        Ok(())
    }

    fn make_views(&self) -> Result<()> {
        let mut made = Vec::new();
        for (index, pe) in (0u32..).zip(&self.pes) {
            let Some(place) = pe.context.places().get(pe.place) else { continue };
            let call = to_worker::CreateHeapView {
                request: Id::NONE,
                heap: self.id,
                pe: U32::new(index),
                context: place.id(),
                view: pe.view,
                part: pe.part,
            };
            made.push((index, pe.device.session().request(call, &[])));
        }
        for (index, made) in made {
            made.wait().map_err(|error| match error {
                Error::Refused { node, status } => Error::Heap {
                    status,
                    why: format!(
                        "the driver of PE {index} on node {node} does not take a view of {} times \
                         {} bytes as one buffer ({status}); use a smaller heap, or fewer devices",
                        self.pes.len(),
                        self.bytes
                    )
                    .into(),
                },
                other => other,
            })?;
        }
        Ok(())
    }

    /// Asks for the views' addresses, which kernels of CUDA's driver get as their argument.
    fn ask_addresses(&mut self) -> Result<()> {
        for pe in self.pes.iter_mut().filter(|pe| pe.device.is_cuda()) {
            let call = to_worker::MemAddress { request: Id::NONE, mem: pe.view };
            pe.address = Some(pe.device.session().request(call, &[]).wait()?);
        }
        Ok(())
    }

    /// Returns the size of each PE's part in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the devices. The index of a device is its PE's number.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Arc<Device>> {
        self.pes.iter().map(|pe| &pe.device)
    }

    /// Returns the path from each PE to each, one row per PE.
    pub fn paths(&self) -> &[Vec<HeapPath>] {
        &self.paths
    }

    /// Returns the PE's number of a device, if the device belongs to the heap.
    pub fn pe_of(&self, device: &Device) -> Option<usize> {
        self.pes.iter().position(|pe| is_same(&pe.device, device))
    }

    /// Returns the buffer that a kernel on `device` gets as its argument.
    pub(crate) fn view_on(&self, device: &Device) -> Option<Id<kind::Mem>> {
        Some(self.pes.get(self.pe_of(device)?)?.view)
    }

    /// Returns the address of the heap for kernels of a device that CUDA's driver drives; `None`
    /// for other devices, and for devices that are not PEs.
    pub fn address_on(&self, device: &Device) -> Option<u64> {
        self.pes.get(self.pe_of(device)?)?.address
    }

    fn pe_for(&self, queue: &Queue) -> Result<&Pe> {
        self.pe_of(queue.device()).and_then(|pe| self.pes.get(pe)).ok_or_else(|| {
            refused(&format!(
                "device {} of node {} is not a PE of this heap; use a queue of one of its {} \
                 devices",
                queue.device().index(),
                queue.device().host(),
                self.pes.len()
            ))
        })
    }

    /// Checks that a kernel with the heap as an argument can run in `queue`.
    pub(crate) fn check_queue(&self, queue: &Queue) -> Result<()> {
        let pe = self.pe_for(queue)?;
        if !Arc::ptr_eq(queue.context(), &pe.context) {
            let why = format!(
                "a queue of device {} of node {} belongs to another context than the heap",
                queue.device().index(),
                queue.device().host()
            );
            return Err(Error::Heap { status: Status::INVALID_CONTEXT, why: why.into() });
        }
        Ok(())
    }

    /// Writes into the part of the queue's device. The bytes are taken before this returns, unless
    /// the command is held back.
    ///
    /// # Errors
    /// If the device is not a PE of the heap, the range exceeds its part, or the node is lost.
    pub fn write(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        offset: u64,
        source: &dyn Source,
        waits: &[Event],
        want: Want,
    ) -> Enqueued {
        let mem = self.pe_for(queue)?.part;
        self.check_range(Range { offset, size: source.bytes() })?;
        let keep = Some(self.clone() as Keep);
        let spec = Spec { reads_host: source.shape(), keep, ..Spec::new(&[], waits, want) };
        let queue_id = queue.id();
        queue.issue(spec, source, move |event| to_worker::WriteBuffer {
            queue: queue_id,
            mem,
            event,
            offset: U64::new(offset),
        })
    }

    /// Reads from the part of the queue's device into `target`, which is written to until the event
    /// ends.
    ///
    /// # Errors
    /// As [`Heap::write`].
    pub fn read(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        range: Range,
        target: Box<dyn Target>,
        waits: &[Event],
    ) -> Enqueued {
        let mem = self.pe_for(queue)?.part;
        self.check_range(range)?;
        let spec = Spec {
            writes_host: target.shape(),
            target: Some(target),
            keep: Some(self.clone() as Keep),
            ..Spec::new(&[], waits, Want::Event)
        };
        let queue_id = queue.id();
        queue.issue(spec, &NOTHING, move |event| to_worker::ReadBuffer {
            queue: queue_id,
            mem,
            event,
            offset: U64::new(range.offset),
            size: U64::new(range.size),
        })
    }

    fn check_range(&self, range: Range) -> Result<()> {
        match range.offset.checked_add(range.size) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::Heap {
                status: Status::INVALID_VALUE,
                why: format!(
                    "bytes {} to {} exceed a part of {} bytes",
                    range.offset,
                    range.offset.saturating_add(range.size),
                    self.bytes
                )
                .into(),
            }),
        }
    }

    /// Ends all waits of kernels in the heap, now and later, until [`Heap::reset`].
    ///
    /// # Errors
    /// If a node is lost. The other nodes are told nevertheless.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let max = usize::try_from(HEAP_REASON_BYTES_MAX).unwrap_or(usize::MAX);
        let reason = &reason[..reason.floor_char_boundary(max)];
        let call = to_worker::AbortHeap { heap: self.id };
        let mut told = Ok(());
        // The nodes that take the message at once come first, because a node that takes nothing
        // must not delay the others.
        let is_full = |member: &&Arc<Session>| !member.send_at_once(&call, reason.as_bytes());
        for member in self.members.iter().filter(is_full).collect::<Vec<_>>() {
            let sent = member.send(&call, &[], reason.as_bytes()).and_then(|()| member.flush());
            told = told.and(sent);
        }
        match self.members.iter().find(|member| member.is_lost()) {
            Some(member) if told.is_ok() => member.flush(),
            _ => told,
        }
    }

    /// Returns why the heap was aborted, if it was: by the program, or because a member has ended.
    /// Waits for the workers.
    pub fn aborted(&self) -> Option<String> {
        let call = || to_worker::HeapStatus { request: Id::NONE, heap: self.id };
        let asked: Vec<_> = self.members.iter().map(|member| member.request(call(), &[])).collect();
        let told: Vec<_> = asked.into_iter().map(crate::session::Pending::wait).collect();
        // The loss of a member is a better reason than what a living member says about it.
        let lost =
            told.iter().filter_map(|answer| answer.as_ref().err()).map(ToString::to_string).next();
        lost.or_else(|| told.into_iter().flatten().flatten().next())
    }

    /// Makes the heap usable again after an abort by the program, or after a wait that was too
    /// long. Waits for the launches that use it, and for the workers. The parts keep their bytes,
    /// including signals of the program.
    ///
    /// # Errors
    /// If a member has ended. The heap then stays unusable.
    pub fn reset(&self) -> Result<()> {
        let mut generation = self.generation.lock();
        for event in std::mem::take(&mut *self.running.lock()) {
            _ = event.wait();
        }
        // Counts even if the last reset succeeded only at some members: what those have done since
        // must not count at the others.
        *generation += 1;
        let call = || to_worker::ResetHeap {
            request: Id::NONE,
            heap: self.id,
            generation: U64::new(*generation),
        };
        let asked: Vec<_> = self.members.iter().map(|member| member.request(call(), &[])).collect();
        let mut reset = Ok(());
        for (asked, member) in asked.into_iter().zip(&self.members) {
            let answer = asked.wait().and_then(|why| no_refusal(member, why));
            reset = reset.and(answer);
        }
        reset
    }

    /// Returns why the last collective launch was refused, if it was.
    pub fn refusal(&self) -> Option<Arc<str>> {
        self.refusal.lock().clone()
    }

    /// Notes a launch that uses the heap.
    pub(crate) fn note(&self, event: &Event) {
        let mut running = self.running.lock();
        running.retain(|known| known.known_status().is_none());
        running.push(event.clone());
    }
}

/// Checks the arguments of [`Heap::create_over`], and returns the time-out in ms.
fn check(seats: &[(&Arc<Context>, &Arc<Device>)], bytes: u64, options: HeapOptions) -> Result<u32> {
    let count = seats.len();
    if count == 0 || count > HEAP_PES_MAX {
        return Err(refused(&format!("a heap has 1 to {HEAP_PES_MAX} devices, not {count}")));
    }
    if bytes == 0 || bytes > HEAP_BYTES_MAX {
        let why = format!("a heap has 1 to {HEAP_BYTES_MAX} bytes on each device, not {bytes}");
        return Err(Error::Heap { status: Status::INVALID_VALUE, why: why.into() });
    }
    for (pe, (context, device)) in seats.iter().enumerate() {
        let name = described(device);
        if seats[..pe].iter().any(|(_, known)| is_same(known, device)) {
            return Err(refused(&format!("{name} is listed twice; a device can be only one PE")));
        }
        if context.place_of(device).is_none() {
            return Err(refused(&format!("{name} does not belong to the context")));
        }
        if let Some(why) = device::refusal_of(device) {
            return Err(refused(&why));
        }
    }
    let timeout_ms = u32::try_from(options.timeout.as_millis()).unwrap_or(u32::MAX);
    if timeout_ms == 0 || timeout_ms > HEAP_TIMEOUT_MS_MAX {
        let why =
            format!("kernels wait 1 to {HEAP_TIMEOUT_MS_MAX} ms inside a heap, not {timeout_ms}");
        return Err(Error::Heap { status: Status::INVALID_VALUE, why: why.into() });
    }
    Ok(timeout_ms)
}

pub(crate) fn described(device: &Device) -> String {
    format!("device {} of node {}", device.index(), device.host())
}

fn is_same(one: &Device, other: &Device) -> bool {
    one.node() == other.node() && one.index() == other.index()
}

/// The workers' objects of a heap.
struct Remains {
    id: Id<kind::Heap>,
    members: Vec<Arc<Session>>,
    views: Vec<(Arc<Session>, [Id<kind::Mem>; 2])>,
}

impl Remains {
    fn release(self) {
        for (session, mems) in &self.views {
            for mem in mems.iter().rev() {
                // A lost session has released everything.
                _ = session.send(&to_worker::ReleaseMem { mem: *mem }, &[], &[]);
            }
        }
        for member in &self.members {
            _ = member.send(&to_worker::ReleaseHeap { heap: self.id }, &[], &[]);
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let views = self.pes.iter().map(|pe| (pe.device.session().clone(), [pe.view, pe.part]));
        let remains = Remains {
            id: self.id,
            members: std::mem::take(&mut self.members),
            views: views.collect(),
        };
        let running = std::mem::take(self.running.get_mut());
        let running: Vec<_> =
            running.into_iter().filter(|event| event.known_status().is_none()).collect();
        if running.is_empty() {
            return remains.release();
        }
        // "... deleted after ... commands queued for execution that use memobj have finished": a
        // member that leaves while another member's kernel runs would end that kernel's waits.
        // If no thread can be started, the end of the session releases the heap.
        _ = penstock_process::start("penstock-heap", move || {
            for event in running {
                _ = event.wait();
            }
            remains.release();
        });
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("id", &self.id)
            .field("pes", &self.pes.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
