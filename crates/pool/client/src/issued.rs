//! The progress of queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use penstock_process::{Guard, Lock};
use rustc_hash::FxHashSet;

/// The progress of a queue, as far as this process knows it without asking.
#[derive(Default)]
pub(crate) struct Progress {
    /// Locked from a command's counting until it is sent. Otherwise another thread could send a
    /// later command first, whose end would not imply the end of this one.
    issuing: Lock<()>,
    /// Number of commands so far. Changes only under the lock.
    issued: AtomicU64,
    reached: AtomicU64,
    /// Number of the last blocking write that returned. The program takes all up to it for ended.
    settled: AtomicU64,
    /// Open events of other queues that commands here wait for, with the numbers of those commands.
    /// Other links or threads tell these ends, maybe later. An out-of-order queue notes its own
    /// events too.
    awaited: Lock<VecDeque<(u64, Weak<dyn Awaited>)>>,
    /// Whether `awaited` is not empty.
    has_awaited: AtomicBool,
    /// If `awaited` has more entries than this, the queue removes those of ended events.
    awaited_max: AtomicUsize,
}

/// An event that commands come after. After the program has released it, its status is not asked.
pub(crate) trait Awaited: Send + Sync {
    fn id(&self) -> u64;

    fn has_ended(&self) -> bool;

    /// Returns whether the command was sent. If it was, it ends without further action of the
    /// program.
    fn is_sent(&self) -> bool;

    /// Makes questions for the status wait for the end. Returns the events that this end implies.
    fn take_for_ended(&self) -> Vec<Arc<dyn Awaited>>;
}

/// Number of events that a queue keeps before it looks for ended ones behind the first.
const AWAITED_MIN: usize = 64;

fn is_over((_, one): &(u64, Weak<dyn Awaited>)) -> bool {
    one.upgrade().is_none_or(|one| one.has_ended())
}

/// Takes these events, and all events that they waited for, for ended.
pub(crate) fn take_for_ended(mut open: Vec<Arc<dyn Awaited>>) {
    let mut known = FxHashSet::default();
    // A loop instead of recursion: queues may wait for each other in a long chain.
    while let Some(one) = open.pop() {
        // Nothing that has ended can come after an event that is held back, although that was
        // noted.
        if !one.has_ended() && one.is_sent() && known.insert(one.id()) {
            open.extend(one.take_for_ended());
        }
    }
}

/// A command's place in a queue whose ends are told in order, so that each implies all before it.
pub(crate) struct Mark {
    pub(crate) progress: Arc<Progress>,
    pub(crate) serial: u64,
}

/// Lock that keeps other threads from enqueueing into a queue.
pub(crate) struct Issuing<'a> {
    progress: &'a Progress,
    _lock: Guard<'a, ()>,
}

impl Issuing<'_> {
    /// Returns the number of commands so far.
    pub(crate) fn issued(&self) -> u64 {
        self.progress.issued.load(Ordering::Relaxed)
    }

    /// Counts one more command and returns its number.
    pub(crate) fn count(&mut self) -> u64 {
        let issued = self.issued() + 1;
        self.progress.issued.store(issued, Ordering::Release);
        issued
    }

    /// Returns whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.progress.may_be_idle()
    }
}

impl Progress {
    /// Keeps other threads from enqueueing while the caller counts and sends a command.
    pub(crate) fn issue(&self) -> Issuing<'_> {
        Issuing { progress: self, _lock: self.issuing.lock() }
    }

    /// Notes that all commands up to this one have ended.
    pub(crate) fn reach(&self, serial: u64) {
        self.reached.fetch_max(serial, Ordering::AcqRel);
    }

    /// Returns whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.issue().is_idle()
    }

    /// As [`Self::is_idle`] without the lock: another thread may enqueue now.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.reached.load(Ordering::Acquire) >= self.issued.load(Ordering::Acquire)
    }

    /// Notes that a blocking write with this number has returned.
    pub(crate) fn settle(&self, serial: u64) {
        self.settled.fetch_max(serial, Ordering::AcqRel);
    }

    /// Returns whether a blocking write has returned that has this number or a later one.
    pub(crate) fn is_settled(&self, serial: u64) -> bool {
        self.settled.load(Ordering::Acquire) >= serial
    }

    /// Returns whether a blocking write has returned that is not known to have ended.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.settled.load(Ordering::Acquire) > self.reached.load(Ordering::Acquire)
    }

    /// Notes events that have ended once all commands up to this number have ended.
    pub(crate) fn wait_for(&self, serial: u64, awaited: impl Iterator<Item = Weak<dyn Awaited>>) {
        let new: Vec<_> = awaited.map(|one| (serial, one)).collect();
        let mut known = self.awaited();
        known.extend(new);
        if known.len() > self.awaited_max.load(Ordering::Relaxed) {
            // An event that takes long may stand before many that have ended.
            known.retain(|one| !is_over(one));
            self.awaited_max.store(known.len() * 2 + AWAITED_MIN, Ordering::Relaxed);
        }
        self.has_awaited.store(!known.is_empty(), Ordering::Release);
    }

    /// Notes that the program may conclude that all commands up to this one have ended. The program
    /// may then conclude the same of the events that these commands waited for. From now on, calls
    /// that ask for the status of such an event wait for its end.
    #[inline]
    pub(crate) fn take_for_ended_up_to(&self, serial: u64) {
        let open = self.awaited_up_to(serial);
        if !open.is_empty() {
            take_for_ended(open);
        }
    }

    /// Returns the open events that commands up to this one wait for.
    #[inline]
    pub(crate) fn awaited_up_to(&self, serial: u64) -> Vec<Arc<dyn Awaited>> {
        if self.has_awaited.load(Ordering::Acquire) { self.open_up_to(serial) } else { Vec::new() }
    }

    #[cold]
    fn open_up_to(&self, serial: u64) -> Vec<Arc<dyn Awaited>> {
        let known = self.awaited();
        self.has_awaited.store(!known.is_empty(), Ordering::Release);
        // They stay until their ends are told: another thread may learn of this end at the same
        // time.
        known
            .iter()
            .take_while(|(of, _)| *of <= serial)
            .filter_map(|(_, one)| one.upgrade())
            .collect()
    }

    /// Returns all awaited events. From now on `event`, of command `serial`, stands for them,
    /// because it comes after everything before it.
    pub(crate) fn stand_for_all(
        &self,
        serial: u64,
        event: Weak<dyn Awaited>,
    ) -> Vec<Weak<dyn Awaited>> {
        let mut known = self.awaited();
        let before = known.drain(..).map(|(_, one)| one).collect();
        known.push_back((serial, event));
        self.has_awaited.store(true, Ordering::Release);
        before
    }

    /// Locks `awaited` and removes ended events at its front.
    fn awaited(&self) -> Guard<'_, VecDeque<(u64, Weak<dyn Awaited>)>> {
        let mut known = self.awaited.lock();
        while known.front().is_some_and(is_over) {
            known.pop_front();
        }
        known
    }

    pub(crate) fn mark(self: &Arc<Self>, serial: u64) -> Mark {
        Mark { progress: self.clone(), serial }
    }
}
