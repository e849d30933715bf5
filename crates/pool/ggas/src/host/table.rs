//! The heaps of one host.
//!
//! Work that waits has threads of its own: members that meet, a start, a reset, the end of a heap.
//! The thread that serves the host's user must stay free, because an abort comes over it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use penstock_link::Stream;
use penstock_process::Lock;

use super::count::Counted;
use super::error::HostError;
use super::site::HeapSite;
use crate::error::HeapError;
use crate::heap::{Heap, PePaths};
use crate::plan::Plan;

/// Limits of a host.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// Number of heaps, those included that are about to end.
    pub heaps: usize,
    /// Number of threads that connect, start and reset heaps. Threads that end heaps are not
    /// counted here: there are never more of them than heaps.
    pub threads: usize,
}

impl HostLimits {
    /// Limits of a host that trusts its user.
    pub const NONE: Self = Self { heaps: usize::MAX, threads: usize::MAX };
}

/// Heaps by their ids. `X` is what the host keeps beside each heap. Clones share the heaps.
#[derive(Debug)]
pub struct HeapHost<Id, X> {
    shared: Arc<HeapTable<Id, X>>,
}

#[derive(Debug)]
struct HeapTable<Id, X> {
    limits: HostLimits,
    heaps: Lock<HashMap<Id, Arc<HostedHeap<X>>>>,
    heap_count: Arc<AtomicUsize>,
    thread_count: Arc<AtomicUsize>,
    /// Threads that end heaps.
    ending: Lock<Vec<JoinHandle<()>>>,
}

/// A heap that its host does not know by an id yet.
#[derive(Debug)]
pub struct FormedHeap {
    heap: Arc<Heap>,
    counted: Counted,
}

impl FormedHeap {
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }
}

/// This process's member of a heap.
#[derive(Debug)]
pub struct HostedHeap<X> {
    heap: Arc<Heap>,
    extra: X,
    /// Whether [`HeapHost::newly_aborted`] has returned the heap since its last reset.
    is_abort_known: AtomicBool,
    _counted: Counted,
}

impl<X> HostedHeap<X> {
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// Returns what the host keeps beside the heap.
    pub fn extra(&self) -> &X {
        &self.extra
    }

    /// Starts the heap when all members have joined. Returns how the own PEs reach all PEs.
    ///
    /// # Errors
    /// See [`Heap::start`].
    pub fn start(&self) -> Result<Vec<PePaths>, HeapError> {
        self.heap.start()?;
        self.heap.own_paths()
    }
}

/// What becomes of the launches of a heap that its user gives up.
#[derive(Clone, Copy, Debug)]
pub enum Release {
    /// The heap ends after its last launch.
    AfterLaunches,
    /// The waits of kernels that still run end with this reason.
    AbortLaunches(&'static str),
}

impl<Id, X> Clone for HeapHost<Id, X> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<Id: Copy + Eq + Hash, X: Send + Sync + 'static> HeapHost<Id, X> {
    pub fn new(limits: HostLimits) -> Self {
        let shared = HeapTable {
            limits,
            heaps: Lock::default(),
            heap_count: Arc::default(),
            thread_count: Arc::default(),
            ending: Lock::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes this process's memory of a heap. The members can join it, and [`HeapHost::add`] gives
    /// it its id.
    ///
    /// # Errors
    /// The host has as many heaps as it allows, or see [`Heap::create`].
    pub fn create(&self, plan: Plan) -> Result<FormedHeap, HostError> {
        let max = self.shared.limits.heaps;
        let counted = Counted::new(&self.shared.heap_count, max);
        let counted = counted.ok_or(HostError::TooManyHeaps { max })?;
        Ok(FormedHeap { heap: Heap::create(plan)?, counted })
    }

    /// Forms a heap in one go: checks the devices, makes the memory, connects the members, starts
    /// the heap and binds the memory of each own PE to its device. Returns the memory objects in
    /// the order of the devices. The site reports a failure, so that no other member waits in vain.
    ///
    /// # Errors
    /// The first failure of any of these steps.
    pub fn form<S: HeapSite>(
        &self,
        site: &S,
        plan: Plan,
        route: S::Route,
        devices: &[(u32, S::Device)],
    ) -> Result<(FormedHeap, Vec<S::Memory>), HostError> {
        self.try_form(site, plan, route, devices).inspect_err(|fault| site.report(fault))
    }

    fn try_form<S: HeapSite>(
        &self,
        site: &S,
        plan: Plan,
        route: S::Route,
        devices: &[(u32, S::Device)],
    ) -> Result<(FormedHeap, Vec<S::Memory>), HostError> {
        let refused = |error: S::BindError| HostError::Device(error.to_string());
        for (_, device) in devices {
            site.check(device).map_err(refused)?;
        }
        let formed = self.create(plan)?;
        let heap = &formed.heap;
        if !heap.plan().others().is_empty() {
            site.connect(route, &mut |member, stream| heap.join(member, stream))?;
        }
        heap.start()?;
        let bind =
            |(pe, device): &(u32, S::Device)| site.bind(device, heap.view(*pe)?).map_err(refused);
        let memory = devices.iter().map(bind).collect::<Result<_, _>>()?;
        Ok((formed, memory))
    }

    /// Gives a heap its id, which no other heap has.
    pub fn add(&self, id: Id, formed: FormedHeap, extra: X) {
        let FormedHeap { heap, counted: _counted } = formed;
        let is_abort_known = AtomicBool::new(false);
        let hosted = Arc::new(HostedHeap { heap, extra, is_abort_known, _counted });
        let replaced = self.shared.heaps.lock().insert(id, hosted);
        // Dropped without the lock, because the end of a heap may wait.
        drop(replaced);
    }

    pub fn get(&self, id: Id) -> Option<Arc<HostedHeap<X>>> {
        self.shared.heaps.lock().get(&id).cloned()
    }

    /// Runs `work` for a heap in a thread, and passes the result to `done`. If the heap is unknown
    /// or there is no thread, `done` gets the error at once.
    pub fn run<T>(
        &self,
        id: Id,
        name: &str,
        work: impl FnOnce(&HostedHeap<X>) -> Result<T, HostError> + Send + 'static,
        done: impl Fn(Result<T, HostError>) + Clone + Send + 'static,
    ) {
        let Some(hosted) = self.get(id) else { return done(Err(HostError::Unknown)) };
        let finish = done.clone();
        let started = self.in_thread(name, move || {
            let result = work(&hosted);
            // The user of the host may release the heap at once, and finds no other owner then.
            drop(hosted);
            finish(result);
        });
        if let Err(error) = started {
            done(Err(error));
        }
    }

    /// Runs `work` in a thread.
    ///
    /// # Errors
    /// As many threads are at work as the host allows, or the system gives none.
    pub fn in_thread(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), HostError> {
        let max = self.shared.limits.threads;
        let counted = Counted::new(&self.shared.thread_count, max);
        let counted = counted.ok_or(HostError::Busy { max })?;
        let started = penstock_process::start(name, move || {
            let _counted = counted;
            work();
        });
        started.map(drop).map_err(HostError::Thread)
    }

    /// Connects a heap to the members of `route`, in a thread.
    pub fn connect<S>(
        &self,
        site: S,
        id: Id,
        route: S::Route,
        done: impl Fn(Result<(), HostError>) + Clone + Send + 'static,
    ) where
        S: HeapSite<Route: Send> + Send + 'static,
    {
        let connect = move |hosted: &HostedHeap<X>| {
            site.connect(route, &mut |member, stream| hosted.heap.join(member, stream))
        };
        self.run(id, "heap-connect", connect, done);
    }

    /// Performs the handshake with a member that has connected to this process, in a thread. If the
    /// handshake fails, the start of the heap fails, too, and tells the host's user.
    pub fn arrive<S>(&self, site: S, id: Id, member: u32, stream: Stream)
    where
        S: HeapSite + Clone + Send + 'static,
    {
        let join = move |hosted: &HostedHeap<X>| Ok(hosted.heap.join(member, stream)?);
        self.run(id, "heap-arrival", join, move |joined| match joined {
            // The heap was released before its member came.
            Ok(()) | Err(HostError::Unknown) => {}
            Err(fault) => site.report(&fault),
        });
    }

    /// Makes a heap usable again, in a thread, once its launches have ended. See [`Heap::reset`].
    pub fn reset(
        &self,
        id: Id,
        generation: u64,
        done: impl Fn(Result<(), HostError>) + Clone + Send + 'static,
    ) {
        let reset =
            move |hosted: &HostedHeap<X>| Ok(hosted.heap.reset_after_launches(generation)?);
        self.run(id, "heap-reset", reset, done);
    }

    /// Gives up a heap. It ends in a thread, because its end waits for bytes on their way to other
    /// members. Returns `false` if there is no heap with this id.
    pub fn release(&self, id: Id, release: Release) -> bool {
        let Some(hosted) = self.shared.heaps.lock().remove(&id) else { return false };
        if let Release::AbortLaunches(reason) = release
            && hosted.heap.is_running()
        {
            hosted.heap.abort(reason);
        }
        let (hand_over, taken) = channel::<Arc<HostedHeap<X>>>();
        let end = move || {
            let Ok(hosted) = taken.recv() else { return };
            if matches!(release, Release::AfterLaunches) {
                hosted.heap.wait_for_launches();
            }
        };
        match penstock_process::start("heap-end", end) {
            Ok(thread) => {
                // Sending fails only if the thread has panicked; then the heap ends here.
                _ = hand_over.send(hosted);
                let mut ending = self.shared.ending.lock();
                ending.retain(|thread| !thread.is_finished());
                ending.push(thread);
            }
            // The heap ends here without waiting.
            Err(_) => hosted.heap.end(
                "a member was released, and its node has no thread in which it could end in order",
            ),
        }
        true
    }

    /// Ends all heaps for good, because the host's user has gone: waiting kernels return, here and
    /// at the other members.
    pub fn end_all(&self, reason: &str) {
        for hosted in self.shared.heaps.lock().values() {
            // `end` and not `abort`: a reset that is under way must not undo it.
            hosted.heap.end(reason);
        }
    }

    /// Releases all heaps, and waits until those that were released have ended.
    pub fn finish(&self, release: Release) {
        let ids: Vec<Id> = self.shared.heaps.lock().keys().copied().collect();
        for id in ids {
            self.release(id, release);
        }
        let ending = std::mem::take(&mut *self.shared.ending.lock());
        for thread in ending {
            // A thread that panicked has nothing left to do.
            _ = thread.join();
        }
    }

    /// Returns the heaps that were aborted since the last call, each once for each abort.
    pub fn newly_aborted(&self) -> Vec<Arc<HostedHeap<X>>> {
        let is_new = |hosted: &&Arc<HostedHeap<X>>| {
            let is_aborted = hosted.heap.aborted().is_some();
            // The next abort after a reset counts again.
            let was_known = hosted.is_abort_known.swap(is_aborted, Ordering::AcqRel);
            is_aborted && !was_known
        };
        self.shared.heaps.lock().values().filter(is_new).cloned().collect()
    }
}
