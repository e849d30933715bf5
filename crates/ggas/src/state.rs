//! What the public face of a heap and its threads share.

#[cfg(feature = "ucx")]
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

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
    /// The views of the own PEs, from the start on.
    pub(crate) views: OnceLock<Vec<Mapped>>,
    life: Mutex<Life>,
    /// When the clock of the kernels began.
    began: Instant,
    /// Launches in flight.
    running: AtomicUsize,
    /// The threads shall end.
    pub(crate) closing: AtomicBool,
    /// Wakes the monitor.
    pub(crate) monitor: Wake,
    /// Wakes the proxy.
    pub(crate) proxy: Wake,
    /// Ends of the proxy's work that somebody waits for: see [`crate::proxy`].
    pub(crate) settled: crate::proxy::Settled,
    /// UCX, where it is wanted: see [`crate::Heap::offer_ucx`].
    #[cfg(feature = "ucx")]
    pub(crate) ucx: Mutex<crate::ucx::Offer>,
}

impl State {
    pub(crate) fn new(plan: Plan, parts: Parts, monitor: Wake, proxy: Wake) -> Self {
        Self {
            plan,
            parts,
            views: OnceLock::new(),
            life: Mutex::default(),
            began: Instant::now(),
            running: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            monitor,
            proxy,
            settled: crate::proxy::Settled::default(),
            #[cfg(feature = "ucx")]
            ucx: Mutex::default(),
        }
    }

    /// Whether other members are to be reached by UCX, where they can.
    #[cfg(feature = "ucx")]
    pub(crate) fn wants_ucx(&self) -> bool {
        lock(&self.ucx).is_made()
    }

    /// UCX is not built in.
    #[cfg(not(feature = "ucx"))]
    pub(crate) fn wants_ucx(&self) -> bool {
        false
    }

    /// The heap's own end of UCX, made when it is first needed.
    #[cfg(feature = "ucx")]
    pub(crate) fn ucx_engine(&self) -> Result<Arc<crate::ucx::Engine>, crate::ucx::UcxError> {
        lock(&self.ucx).engine()
    }

    pub(crate) fn views(&self) -> &[Mapped] {
        self.views.get().map_or(&[], Vec::as_slice)
    }

    /// Has all waits of the own PEs' kernels end. The first reason stays, unless a last one comes.
    pub(crate) fn end(&self, reason: &str, last: bool) {
        let mut life = lock(&self.life);
        life.abort(reason, last);
        self.stop(life);
    }

    /// Another member tells of an abort.
    pub(crate) fn told(&self, note: &Note) {
        let mut life = lock(&self.life);
        if life.told(note) {
            self.stop(life);
        }
    }

    /// Under the lock: a reset must not come in between.
    fn stop(&self, life: MutexGuard<'_, Life>) {
        for view in self.views() {
            view.head().abort.store(1, Release);
        }
        drop(life);
        // They tell the other members.
        self.monitor.ring();
        self.proxy.ring();
    }

    pub(crate) fn ended(&self) -> Option<End> {
        lock(&self.life).end().cloned()
    }

    /// What the other members are to be told, once for each generation.
    pub(crate) fn news(&self, told: Option<u64>) -> Option<Note> {
        lock(&self.life).news(told)
    }

    /// Makes the views known, with what has happened so far.
    pub(crate) fn publish(&self, views: Vec<Mapped>) {
        let life = lock(&self.life);
        if life.end().is_some() {
            for view in &views {
                view.head().abort.store(1, Release);
            }
        }
        // Nobody else publishes: the start of a heap happens once.
        _ = self.views.set(views);
    }

    pub(crate) fn generation(&self) -> u64 {
        lock(&self.life).generation()
    }

    /// Begins anew as `generation`, which is above the one before: counts of barriers go on from a value that no flag of before has,
    /// so flags need not be cleared. Why not, if a member has gone meanwhile.
    pub(crate) fn renew(&self, generation: u64) -> Result<(), End> {
        let mut life = lock(&self.life);
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
            // Two threads may do it: the clock never goes back.
            view.head().clock_ms.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn launch(&self) {
        if self.running.fetch_add(1, AcqRel) == 0 {
            // Else a kernel would take the time since the last launch for time that it has waited.
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

    /// Whether so many of the user's bytes lie there.
    pub(crate) fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.plan.bytes)
    }

    /// Bytes of a part that kernels and peers may write: flags and the user's.
    pub(crate) fn part_bytes(&self) -> u64 {
        FLAGS_BYTES as u64 + self.plan.bytes
    }
}

/// A lock whose holder panicked is as good as any: what it guards is always whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
