//! Views of heaps as arguments of kernels, and the launches of these kernels.

use std::sync::Arc;

use penstock_device as device;
use penstock_ggas::{Heap, Running};
use penstock_wire::args::Arg;
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status};
use rustc_hash::FxHashMap;

use super::table::Table;

/// Views that are arguments of kernels. They have their own table, so that no transfer can name
/// one: most of a view's addresses may be unmapped.
pub(crate) struct Views {
    mems: Table<kind::Mem, device::Mem>,
    heaps: FxHashMap<Id<kind::Mem>, ViewedHeap>,
    /// Views that are a kernel's current arguments, by argument.
    bound: FxHashMap<Id<kind::Kernel>, Vec<(u32, Id<kind::Mem>)>>,
}

/// The heap of a view.
struct ViewedHeap {
    id: Id<kind::Heap>,
    heap: Arc<Heap>,
}

impl Default for Views {
    fn default() -> Self {
        Self {
            mems: Table::new("a view of a heap", Status::INVALID_MEM_OBJECT),
            heaps: FxHashMap::default(),
            bound: FxHashMap::default(),
        }
    }
}

impl Views {
    /// Whether there are no views, as in programs without heaps.
    pub(crate) fn is_empty(&self) -> bool {
        self.heaps.is_empty()
    }

    pub(crate) fn get(&self, view: Id<kind::Mem>) -> Option<&device::Mem> {
        self.heaps.contains_key(&view).then(|| self.mems.get(view).ok()).flatten()
    }

    pub(crate) fn forget(&mut self, view: Id<kind::Mem>) {
        if self.heaps.remove(&view).is_some() {
            self.mems.remove(view);
        }
    }

    /// Checks that a view can be added under this id, before it is made.
    pub(crate) fn vacant(&self, view: Id<kind::Mem>) -> Result<(), FrameError> {
        self.mems.vacant(view)
    }

    pub(crate) fn insert(
        &mut self,
        view: Id<kind::Mem>,
        mem: device::Mem,
        id: Id<kind::Heap>,
        heap: Arc<Heap>,
    ) -> Result<(), FrameError> {
        self.mems.insert(view, Ok(mem))?;
        self.heaps.insert(view, ViewedHeap { id, heap });
        Ok(())
    }

    /// Forgets the views of a heap.
    pub(crate) fn forget_heap(&mut self, heap: Id<kind::Heap>) {
        let ids = self.heaps.iter().filter(|(_, viewed)| viewed.id == heap).map(|(view, _)| *view);
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
                && self.heaps.contains_key(&view)
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

    /// Returns the heaps that the kernel has as arguments.
    fn heaps_of(&self, kernel: Id<kind::Kernel>) -> impl Iterator<Item = &Arc<Heap>> {
        let bound = self.bound.get(&kernel).into_iter().flatten();
        bound.filter_map(|(_, view)| self.heaps.get(view)).map(|viewed| &viewed.heap)
    }

    /// Aborts the heaps of a kernel whose launch could not be given to its device.
    pub(crate) fn abort(&self, kernel: Id<kind::Kernel>) {
        const REASON: &str =
            "a launch of a kernel that uses the heap failed before it began; its event says why";
        self.heaps_of(kernel).for_each(|heap| heap.abort(REASON));
    }

    /// Marks a launch in all heaps that the kernel has as arguments, until the result ends or is
    /// dropped.
    pub(crate) fn launch(&self, kernel: Id<kind::Kernel>) -> HeapLaunches {
        HeapLaunches(self.heaps_of(kernel).map(|heap| heap.running()).collect())
    }
}

/// A pending launch, in each heap that its kernel uses.
pub(crate) struct HeapLaunches(Vec<Running>);

impl HeapLaunches {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends the launch. If it failed, the heaps are aborted, because their other members wait in
    /// vain.
    pub(crate) fn end(self, status: Status) {
        let failure = (status != Status::OK)
            .then(|| format!("a launch of a kernel that uses the heap ended with {status}"));
        for running in self.0 {
            running.end(failure.as_deref());
        }
    }
}
