//! Heaps over devices of the pool. Their members are the workers, and the client's library creates
//! them.

use std::sync::Arc;
use std::thread::JoinHandle;

use penstock_client::{Context, Device, Heap, HeapOptions};
use penstock_wire::describe::HeapPath;
use rustc_hash::FxHashMap;

use super::desk::{BackendMessage, Desk};
use crate::backend::{Failure, gone};
use crate::command::{CommandId, ObjectId, ObjectKind};
use crate::error::code;
use crate::heap::{HeapMessage, HeapMessageTo, HeapPlan, Path};

/// The heaps that exist.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    made: FxHashMap<ObjectId, Arc<Heap>>,
    /// Device and heap of each part, by the id of its buffer.
    parts: FxHashMap<ObjectId, (u32, Arc<Heap>)>,
    /// Messages for the root.
    messages: Vec<HeapMessageTo>,
    /// Threads that abort a heap. A reset waits for them.
    aborting: FxHashMap<ObjectId, Vec<JoinHandle<()>>>,
}

impl Heaps {
    /// Adds a heap that was created.
    pub(super) fn add(&mut self, plan: &HeapPlan, heap: Arc<Heap>) {
        for (pe, row) in (0..).zip(heap.paths()) {
            let paths = row.iter().map(|way| path(*way) as u8).collect();
            let message = HeapMessage::Paths { pe, paths };
            self.messages.push(HeapMessageTo { to: 0, heap: plan.heap, message });
        }
        for (pe, at) in (0..).zip(&plan.pes) {
            self.parts.insert(plan.part(pe), (at.device, Arc::clone(&heap)));
        }
        self.made.insert(plan.heap, heap);
    }

    /// Returns the device and the heap of a part.
    pub(super) fn part(&self, buffer: ObjectId) -> Option<(u32, Arc<Heap>)> {
        self.parts.get(&buffer).map(|(device, heap)| (*device, Arc::clone(heap)))
    }

    pub(super) fn get(&self, heap: ObjectId) -> Option<Arc<Heap>> {
        self.made.get(&heap).cloned()
    }

    pub(super) fn remove(&mut self, heap: ObjectId) -> Option<Arc<Heap>> {
        self.aborting.remove(&heap);
        let made = self.made.remove(&heap)?;
        self.parts.retain(|_, (_, of)| !Arc::ptr_eq(of, &made));
        Some(made)
    }

    /// Ends all waits over a heap, in a thread of its own because sending may wait.
    pub(super) fn abort(&mut self, id: ObjectId, reason: &str) {
        let Some(heap) = self.get(id) else { return };
        let reason = reason.to_owned();
        let threads = self.aborting.entry(id).or_default();
        threads.retain(|thread| !thread.is_finished());
        let abort = move || {
            // A lost member has ended by itself.
            _ = heap.abort(&reason);
        };
        threads.extend(penstock_process::start("wtr-heap", abort));
    }

    /// Makes a heap usable again, in a thread of its own because it waits for the workers. All
    /// launches over the heap must have ended.
    ///
    /// # Errors
    /// There is no such heap, or the thread cannot be started.
    pub(super) fn reset(
        &mut self,
        id: ObjectId,
        command: CommandId,
        desk: &Desk,
    ) -> Result<(), Failure> {
        let failure = |code, message| Failure { code, message, log: String::new() };
        let heap = self.get(id).ok_or_else(|| gone(ObjectKind::Heap))?;
        let (before, desk) = (self.aborting.remove(&id).unwrap_or_default(), desk.clone());
        let work = move || {
            for thread in before {
                // A thread that panicked has nothing left to do.
                _ = thread.join();
            }
            let outcome = heap.reset().map_err(|error| {
                let lost = heap.aborted().map_or(code::STATE, |_| code::ABORTED);
                failure(lost, format!("cannot reset the heap: {error}"))
            });
            drop(heap);
            desk.tell(BackendMessage::Ended(desk.end_now(command, outcome)));
        };
        penstock_process::start("wtr-heap", work).map(drop).map_err(|error| {
            failure(
                code::OUT_OF_HOST_MEMORY,
                format!("cannot start a thread to reset a heap: {error}"),
            )
        })
    }

    pub(super) fn messages(&mut self) -> Vec<HeapMessageTo> {
        std::mem::take(&mut self.messages)
    }
}

/// Creates a heap in a thread of its own because it waits for the workers. The thread sends
/// [`BackendMessage::Heap`].
pub(super) fn make(
    id: CommandId,
    plan: &HeapPlan,
    context: &Arc<Context>,
    devices: Vec<Arc<Device>>,
    desk: &Desk,
) -> Result<(), Failure> {
    let (plan, context, desk) = (Box::new(plan.clone()), Arc::clone(context), desk.clone());
    let usual = HeapOptions::default();
    let options = HeapOptions {
        timeout: plan.timeout().unwrap_or(usual.timeout),
        force_proxy: plan.force_proxy.then_some(true),
    };
    let work = move || {
        let made = Heap::create(&context, &devices, plan.bytes, options).map_err(|error| {
            let message = format!("cannot create the heap: {error}");
            Failure { code: code::INVALID, message, log: String::new() }
        });
        desk.tell(BackendMessage::Heap { id, plan, made });
    };
    penstock_process::start("wtr-heap", work).map(drop).map_err(|error| Failure {
        code: code::OUT_OF_HOST_MEMORY,
        message: format!("cannot start a thread to create a heap: {error}"),
        log: String::new(),
    })
}

/// Returns the failure of a launch whose heap was aborted.
pub(super) fn aborted(reason: &str) -> Failure {
    Failure {
        code: code::ABORTED,
        message: format!("the heap was aborted: {reason}"),
        log: String::new(),
    }
}

fn path(way: HeapPath) -> Path {
    match way {
        HeapPath::Own => Path::Own,
        HeapPath::Shared => Path::Shared,
        HeapPath::Proxy | HeapPath::ProxyUcx => Path::Proxy,
    }
}
