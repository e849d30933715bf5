//! Heaps over devices of the pool: the workers are their members, and the client's library makes them.

use std::sync::Arc;

use penstock_client::{Context, Device, Heap, HeapOptions};
use rustc_hash::FxHashMap;

use super::desk::{Desk, News};
use crate::backend::Failure;
use crate::command::{CommandId, ObjectId, Rank};
use crate::error::code;
use crate::heap::{HeapPlan, Path, Word};

/// Heaps that are there.
#[derive(Debug, Default)]
pub(super) struct Heaps {
    made: FxHashMap<ObjectId, Arc<Heap>>,
    /// By the buffers that the parts are: their device, and the heap.
    parts: FxHashMap<ObjectId, (u32, Arc<Heap>)>,
    /// What the root is to hear.
    words: Vec<(Rank, ObjectId, Word)>,
}

impl Heaps {
    /// A heap is there.
    pub(super) fn add(&mut self, plan: &HeapPlan, heap: Arc<Heap>) {
        for (pe, row) in (0..).zip(heap.paths()) {
            let paths = row.iter().map(|way| path(*way) as u8).collect();
            self.words.push((0, plan.heap, Word::Paths { pe, paths }));
        }
        for (pe, at) in (0..).zip(&plan.pes) {
            self.parts.insert(plan.part(pe), (at.device, Arc::clone(&heap)));
        }
        self.made.insert(plan.heap, heap);
    }

    /// A part's device, and its heap.
    pub(super) fn part(&self, buffer: ObjectId) -> Option<(u32, Arc<Heap>)> {
        self.parts.get(&buffer).map(|(device, heap)| (*device, Arc::clone(heap)))
    }

    pub(super) fn get(&self, heap: ObjectId) -> Option<Arc<Heap>> {
        self.made.get(&heap).cloned()
    }

    pub(super) fn remove(&mut self, heap: ObjectId) -> Option<Arc<Heap>> {
        let made = self.made.remove(&heap)?;
        self.parts.retain(|_, (_, of)| !Arc::ptr_eq(of, &made));
        Some(made)
    }

    pub(super) fn words(&mut self) -> Vec<(Rank, ObjectId, Word)> {
        std::mem::take(&mut self.words)
    }
}

/// Has a thread make a heap: it waits for the workers. Its end is told as [`News::Heap`].
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
            let message = format!("cannot make the heap: {error}");
            Failure { code: code::INVALID, message, log: String::new() }
        });
        desk.tell(News::Heap { id, plan, made });
    };
    std::thread::Builder::new().name("wtr-heap".into()).spawn(work).map(drop).map_err(|error| Failure {
        code: code::OUT_OF_HOST_MEMORY,
        message: format!("cannot start a thread to make a heap: {error}"),
        log: String::new(),
    })
}

/// A launch whose heap was aborted.
pub(super) fn aborted(reason: &str) -> Failure {
    Failure { code: code::ABORTED, message: format!("the heap was aborted: {reason}"), log: String::new() }
}

fn path(way: penstock_wire::describe::HeapPath) -> Path {
    match way {
        penstock_wire::describe::HeapPath::Own => Path::Own,
        penstock_wire::describe::HeapPath::Shared => Path::Shared,
        penstock_wire::describe::HeapPath::Proxy => Path::Proxy,
    }
}
