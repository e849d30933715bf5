//! The only place that reads a clock. Under the simulator time is simulated, and only its functions know it.

use std::time::{Duration, Instant};

/// A clock, and how to let time pass.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// ns since some moment that stays the same.
    fn now(&self) -> u64;
    /// Lets so many ns pass.
    fn sleep(&self, ns: u64);
    /// Lets time pass until a nap of a row ends: the first that ends after a message was sent to this rank, or after `end`. `nap` says how
    /// long the next one is that begins then. For ranks that nothing else can concern; without a simulator it is one nap.
    fn naps(&self, _end: Option<u64>, nap: &mut dyn FnMut(u64) -> u64) {
        self.sleep(nap(self.now()));
    }
    /// Whether time passes only in [`Clock::sleep`] and in the transport: then no thread may wait on its own.
    fn is_simulated(&self) -> bool {
        false
    }
    /// Commands were planned and jobs accepted. Where time is simulated computing takes none by itself: what it would take passes here.
    fn charge(&self, _planned: usize, _accepted: usize) {}
}

/// The clock of this host.
#[derive(Debug)]
pub struct Real {
    start: Instant,
}

impl Real {
    /// Starts at 1, so that 0 can mean "unknown".
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for Real {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Real {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn sleep(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}
