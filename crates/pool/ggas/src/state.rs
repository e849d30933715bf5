//! The state of a member, which the public interface of a heap and its threads share.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use penstock_process::{Guard, Lock, Signal};

use crate::abort::{Abort, AbortState, first_count};
use crate::bell::Bell;
use crate::frame::AbortNote;
use crate::layout::FLAGS_BYTES;
use crate::lifecycle::Lifecycle;
use crate::plan::Plan;
use crate::segment::{MappedView, Parts};
use crate::settle::SettleRequests;

/// One member's side of a heap.
#[derive(Debug)]
pub(crate) struct MemberState {
    pub(crate) plan: Plan,
    pub(crate) parts: Parts,
    /// Views of the own PEs, from the start on.
    pub(crate) views: OnceLock<Vec<MappedView>>,
    aborts: Lock<AbortState>,
    /// When the clock of the kernels began.
    began: Instant,
    lifecycle: Lock<Lifecycle>,
    /// Notified when no launch is left in flight.
    idle: Signal,
    /// Whether launches are in flight. The threads read it often, so they take no lock.
    running: AtomicBool,
    /// Whether the threads shall end.
    closing: AtomicBool,
    pub(crate) watcher: Bell,
    pub(crate) proxy: Bell,
    /// Requests to wait for the end of the proxy's work: see [`crate::proxy`].
    pub(crate) settle: SettleRequests,
}

impl MemberState {
    pub(crate) fn new(plan: Plan, parts: Parts, watcher: Bell, proxy: Bell) -> Self {
        Self {
            plan,
            parts,
            views: OnceLock::new(),
            aborts: Lock::default(),
            began: Instant::now(),
            lifecycle: Lock::default(),
            idle: Signal::new(),
            running: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            watcher,
            proxy,
            settle: SettleRequests::default(),
        }
    }

    pub(crate) fn views(&self) -> &[MappedView] {
        self.views.get().map_or(&[], Vec::as_slice)
    }

    /// Ends all waits of the own PEs' kernels until the next reset. The first reason stays.
    pub(crate) fn abort(&self, reason: &str) {
        self.stop_waits(reason, false);
    }

    /// Ends all waits of the own PEs' kernels for good, because a member has gone.
    pub(crate) fn end(&self, reason: &str) {
        self.stop_waits(reason, true);
    }

    fn stop_waits(&self, reason: &str, is_final: bool) {
        let mut aborts = self.aborts.lock();
        aborts.abort(reason, is_final);
        self.stop_kernels(aborts);
    }

    /// Handles another member's note of abort.
    pub(crate) fn receive_note(&self, note: &AbortNote) {
        let mut aborts = self.aborts.lock();
        if aborts.receive(note) {
            self.stop_kernels(aborts);
        }
    }

    /// Ends the waits while holding the lock, so that no reset can come in between.
    fn stop_kernels(&self, aborts: Guard<'_, AbortState>) {
        for view in self.views() {
            view.head().abort.store(1, Release);
        }
        drop(aborts);
        // These threads tell the other members.
        self.watcher.ring();
        self.proxy.ring();
    }

    /// Returns the abort that has ended the waits, if there is one.
    pub(crate) fn aborted(&self) -> Option<Abort> {
        self.aborts.lock().aborted().cloned()
    }

    /// Returns the note for the other members, unless they know it. `told` is the generation of the
    /// last note.
    pub(crate) fn note_for_others(&self, told: Option<u64>) -> Option<AbortNote> {
        self.aborts.lock().note_for_others(told)
    }

    /// Publishes the views, with what has happened so far.
    pub(crate) fn publish(&self, views: Vec<MappedView>) {
        let aborts = self.aborts.lock();
        if aborts.aborted().is_some() {
            for view in &views {
                view.head().abort.store(1, Release);
            }
        }
        // No other thread publishes: a heap starts once.
        _ = self.views.set(views);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.aborts.lock().generation()
    }

    /// Begins `generation`, which must exceed the present one. Counts of barriers continue from a
    /// value that no earlier flag has, so flags need not be cleared. Fails with the abort
    /// if a member has gone.
    pub(crate) fn begin_generation(&self, generation: u64) -> Result<(), Abort> {
        let mut aborts = self.aborts.lock();
        let is_aborted = aborts.begin_generation(generation)?;
        for view in self.views() {
            let head = view.head();
            for met in head.met.iter().flatten() {
                met.store(first_count(generation), Relaxed);
            }
            for team in &head.teams {
                team.arrived.store(0, Relaxed);
                team.status.store(0, Relaxed);
            }
            head.status.store(0, Relaxed);
            head.abort.store(is_aborted.into(), Release);
        }
        Ok(())
    }

    /// Sets the clock of the kernels.
    pub(crate) fn advance_clock(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for view in self.views() {
            // Two threads may do this: the clock never goes back.
            view.head().clock_ms.fetch_max(now, Relaxed);
        }
    }

    /// Locks the heap's phase and its count of launches.
    pub(crate) fn lifecycle(&self) -> Guard<'_, Lifecycle> {
        self.lifecycle.lock()
    }

    pub(crate) fn launch(&self) {
        let is_first = {
            let mut lifecycle = self.lifecycle();
            // Set under the lock, so that the flag follows the count.
            self.running.store(true, Release);
            lifecycle.launch()
        };
        if is_first {
            // Otherwise a kernel would count the time since the last launch as waiting time.
            self.advance_clock();
            self.watcher.ring();
            self.proxy.ring();
        }
    }

    pub(crate) fn land(&self) {
        let mut lifecycle = self.lifecycle();
        if lifecycle.land() {
            self.running.store(false, Release);
            self.idle.notify_all();
        }
    }

    /// Waits until no launch is in flight. Returns `false` if one still is at the deadline.
    pub(crate) fn wait_until_idle(&self, deadline: Instant) -> bool {
        let mut lifecycle = self.lifecycle();
        while lifecycle.launches() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            lifecycle = self.idle.wait_timeout(lifecycle, left).0;
        }
        true
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Acquire)
    }

    /// Makes the threads end.
    pub(crate) fn close(&self) {
        self.lifecycle().close();
        self.closing.store(true, Release);
        self.watcher.ring();
        self.proxy.ring();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Returns whether the user bytes of a part contain the range.
    pub(crate) fn has_user_bytes(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.plan.bytes)
    }

    /// Returns the size of the part that kernels and peers may write: flags and user bytes.
    pub(crate) fn part_bytes(&self) -> u64 {
        FLAGS_BYTES as u64 + self.plan.bytes
    }
}
