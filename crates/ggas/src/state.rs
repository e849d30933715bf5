//! State that the public interface of a heap and its threads share.

#[cfg(feature = "ucx")]
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{MutexGuard, OnceLock};
use std::time::Instant;

use penstock_process::Lock;

use crate::frame::Note;
use crate::layout::FLAGS_BYTES;
use crate::life::{End, Life, first_count};
use crate::plan::Plan;
use crate::segment::{Mapped, Parts};
use crate::wake::Wake;

/// One member's side of a heap.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) parts: Parts,
    /// Views of the own PEs, from the start on.
    pub(crate) views: OnceLock<Vec<Mapped>>,
    life: Lock<Life>,
    /// When the clock of the kernels began.
    began: Instant,
    /// Number of launches in flight.
    running: AtomicUsize,
    /// Whether the threads shall end.
    pub(crate) closing: AtomicBool,
    pub(crate) monitor: Wake,
    pub(crate) proxy: Wake,
    /// Requests to wait for the end of the proxy's work: see [`crate::proxy`].
    pub(crate) settled: crate::proxy::Settled,
    /// UCX, if it is wanted: see [`crate::Heap::offer_ucx`].
    #[cfg(feature = "ucx")]
    pub(crate) ucx: Lock<crate::ucx::Offer>,
}

impl State {
    pub(crate) fn new(plan: Plan, parts: Parts, monitor: Wake, proxy: Wake) -> Self {
        Self {
            plan,
            parts,
            views: OnceLock::new(),
            life: Lock::default(),
            began: Instant::now(),
            running: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            monitor,
            proxy,
            settled: crate::proxy::Settled::default(),
            #[cfg(feature = "ucx")]
            ucx: Lock::default(),
        }
    }

    /// Returns whether UCX is wanted for other members that can use it.
    #[cfg(feature = "ucx")]
    pub(crate) fn wants_ucx(&self) -> bool {
        self.ucx.lock().is_made()
    }

    /// Always `false`: UCX is not built in.
    #[cfg(not(feature = "ucx"))]
    pub(crate) fn wants_ucx(&self) -> bool {
        false
    }

    /// Returns the heap's own end of UCX, made when it is first needed.
    #[cfg(feature = "ucx")]
    pub(crate) fn ucx_engine(&self) -> Result<Arc<crate::ucx::Engine>, crate::ucx::UcxError> {
        self.ucx.lock().engine()
    }

    pub(crate) fn views(&self) -> &[Mapped] {
        self.views.get().map_or(&[], Vec::as_slice)
    }

    /// Ends all waits of the own PEs' kernels. The first reason stays, unless a `last` one comes.
    pub(crate) fn end(&self, reason: &str, last: bool) {
        let mut life = self.life.lock();
        life.abort(reason, last);
        self.stop(life);
    }

    /// Handles another member's note of abort.
    pub(crate) fn told(&self, note: &Note) {
        let mut life = self.life.lock();
        if life.told(note) {
            self.stop(life);
        }
    }

    /// Ends the waits while holding the lock, so that no reset can come in between.
    fn stop(&self, life: MutexGuard<'_, Life>) {
        for view in self.views() {
            view.head().abort.store(1, Release);
        }
        drop(life);
        // These threads tell the other members.
        self.monitor.ring();
        self.proxy.ring();
    }

    pub(crate) fn ended(&self) -> Option<End> {
        self.life.lock().end().cloned()
    }

    /// Returns the note for the other members, once per generation.
    pub(crate) fn news(&self, told: Option<u64>) -> Option<Note> {
        self.life.lock().news(told)
    }

    /// Publishes the views, with what has happened so far.
    pub(crate) fn publish(&self, views: Vec<Mapped>) {
        let life = self.life.lock();
        if life.end().is_some() {
            for view in &views {
                view.head().abort.store(1, Release);
            }
        }
        // No other thread publishes: a heap starts once.
        _ = self.views.set(views);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.life.lock().generation()
    }

    /// Begins `generation`, which must exceed the present one. Counts of barriers continue from a
    /// value that no earlier flag has, so flags need not be cleared. Fails with the end of the heap
    /// if a member has gone.
    pub(crate) fn renew(&self, generation: u64) -> Result<(), End> {
        let mut life = self.life.lock();
        let is_aborted = life.renew(generation)?;
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
    pub(crate) fn tick(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for view in self.views() {
            // Two threads may do this: the clock never goes back.
            view.head().clock_ms.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn launch(&self) {
        if self.running.fetch_add(1, AcqRel) == 0 {
            // Otherwise a kernel would count the time since the last launch as waiting time.
            self.tick();
            self.monitor.ring();
            self.proxy.ring();
        }
    }

    pub(crate) fn landed(&self) {
        self.running.fetch_sub(1, AcqRel);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Acquire) > 0
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Returns whether the user bytes of a part contain the range.
    pub(crate) fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.plan.bytes)
    }

    /// Returns the size of the part that kernels and peers may write: flags and user bytes.
    pub(crate) fn part_bytes(&self) -> u64 {
        FLAGS_BYTES as u64 + self.plan.bytes
    }
}
