//! How far queues have come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashSet;

/// How far a queue has come, as far as this process knows without asking.
#[derive(Default)]
pub(crate) struct Progress {
    /// Locked from a command's counting until it is sent: else another thread could send a later one first, and its end
    /// would tell nothing of this one.
    issuing: Mutex<()>,
    /// Commands so far. Changes only under the lock.
    issued: AtomicU64,
    reached: AtomicU64,
    /// The last blocking write that has returned: the program takes everything up to it for ended.
    settled: AtomicU64,
    /// Open events of other queues that commands of this one wait for, with the numbers of the commands: other links or
    /// threads tell those ends, maybe later than the ends of the commands. Out of order, also those of this queue.
    awaited: Mutex<VecDeque<(u64, Weak<dyn Awaited>)>>,
    /// Whether `awaited` has something.
    has_awaited: AtomicBool,
    /// The queue looks for events that have ended when `awaited` has more than this number.
    awaited_max: AtomicUsize,
}

/// An event that commands come after. If the program has released it, nobody can ask for its status.
pub(crate) trait Awaited: Send + Sync {
    fn id(&self) -> u64;

    fn has_ended(&self) -> bool;

    /// Whether its command was sent: then it ends without the program doing anything more.
    fn is_sent(&self) -> bool;

    /// Has questions for its status wait until its end is told. Returns what has ended if it has.
    fn take_for_ended(&self) -> Vec<Arc<dyn Awaited>>;
}

/// A queue keeps up to this number of events before it looks for ended events behind the first one.
const AWAITED_MIN: usize = 64;

fn is_over((_, one): &(u64, Weak<dyn Awaited>)) -> bool {
    one.upgrade().is_none_or(|one| one.has_ended())
}

/// Takes all of these for ended, and what they waited for: a command that waits for them counts as ended.
pub(crate) fn take_for_ended(mut open: Vec<Arc<dyn Awaited>>) {
    let mut known = FxHashSet::default();
    // Not by calls in calls: queues may wait for each other in a long chain.
    while let Some(one) = open.pop() {
        // Nothing can have come after one that is held back. It was noted although it is in no order with what has ended.
        if !one.has_ended() && one.is_sent() && known.insert(one.id()) {
            open.extend(one.take_for_ended());
        }
    }
}

/// A command's place in its queue, where its end tells the end of all before it: workers tell ends in the order of the commands.
pub(crate) struct Mark {
    pub(crate) progress: Arc<Progress>,
    pub(crate) serial: u64,
}

/// Keeps other threads from enqueueing into a queue.
pub(crate) struct Issuing<'a> {
    progress: &'a Progress,
    _lock: MutexGuard<'a, ()>,
}

impl Issuing<'_> {
    /// Commands so far.
    pub(crate) fn issued(&self) -> u64 {
        self.progress.issued.load(Ordering::Relaxed)
    }

    /// Counts one more. Its number.
    pub(crate) fn count(&mut self) -> u64 {
        let issued = self.issued() + 1;
        self.progress.issued.store(issued, Ordering::Release);
        issued
    }

    /// Whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.progress.may_be_idle()
    }
}

impl Progress {
    /// Keeps other threads from enqueueing, to count a command and send it.
    pub(crate) fn issue(&self) -> Issuing<'_> {
        Issuing {
            progress: self,
            _lock: self.issuing.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// All commands up to this one have ended.
    pub(crate) fn reach(&self, serial: u64) {
        self.reached.fetch_max(serial, Ordering::AcqRel);
    }

    /// Whether all commands so far have ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.issue().is_idle()
    }

    /// The same without the lock, as far as other threads do not enqueue at this moment.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.reached.load(Ordering::Acquire) >= self.issued.load(Ordering::Acquire)
    }

    /// A blocking write has returned, with this number or a later one.
    pub(crate) fn settle(&self, serial: u64) {
        self.settled.fetch_max(serial, Ordering::AcqRel);
    }

    /// Whether a blocking write with this number or a later one has returned.
    pub(crate) fn is_settled(&self, serial: u64) -> bool {
        self.settled.load(Ordering::Acquire) >= serial
    }

    /// Whether a blocking write has returned that has not ended, as far as is known.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.settled.load(Ordering::Acquire) > self.reached.load(Ordering::Acquire)
    }

    /// Notes events that have ended when all commands up to this number have.
    pub(crate) fn wait_for(&self, serial: u64, awaited: impl Iterator<Item = Weak<dyn Awaited>>) {
        let new: Vec<_> = awaited.map(|one| (serial, one)).collect();
        let mut known = self.awaited();
        known.extend(new);
        if known.len() > self.awaited_max.load(Ordering::Relaxed) {
            // One that takes long may stand before many that have ended.
            known.retain(|one| !is_over(one));
            self.awaited_max.store(known.len() * 2 + AWAITED_MIN, Ordering::Relaxed);
        }
        self.has_awaited.store(!known.is_empty(), Ordering::Release);
    }

    /// The program takes commands up to this one for ended. So it takes what they waited for, for ended, too.
    #[inline]
    pub(crate) fn take_for_ended_up_to(&self, serial: u64) {
        let open = self.awaited_up_to(serial);
        if !open.is_empty() {
            take_for_ended(open);
        }
    }

    /// What commands up to this one wait for, as far as it is open.
    #[inline]
    pub(crate) fn awaited_up_to(&self, serial: u64) -> Vec<Arc<dyn Awaited>> {
        if self.has_awaited.load(Ordering::Acquire) { self.open_up_to(serial) } else { Vec::new() }
    }

    #[cold]
    fn open_up_to(&self, serial: u64) -> Vec<Arc<dyn Awaited>> {
        let known = self.awaited();
        self.has_awaited.store(!known.is_empty(), Ordering::Release);
        // They stay until their ends are told: another thread may learn of the command's end at the same time.
        known
            .iter()
            .take_while(|(of, _)| *of <= serial)
            .filter_map(|(_, one)| one.upgrade())
            .collect()
    }

    /// The same, and the event of the command with this number stands for all of it from now on: it comes after everything
    /// before it.
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

    /// Without those whose ends were told.
    fn awaited(&self) -> MutexGuard<'_, VecDeque<(u64, Weak<dyn Awaited>)>> {
        let mut known = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        while known.front().is_some_and(is_over) {
            known.pop_front();
        }
        known
    }

    pub(crate) fn mark(self: &Arc<Self>, serial: u64) -> Mark {
        Mark { progress: self.clone(), serial }
    }
}
