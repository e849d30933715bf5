//! The only code that reads a clock. The simulator replaces it with simulated time.

use std::time::{Duration, Instant};

/// A clock, and the ways to let time pass.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the ns since a fixed moment.
    fn now(&self) -> u64;
    fn sleep(&self, ns: u64);
    /// Sleeps in a series of naps, and returns at the end of the first nap that ends after a
    /// message was sent to this rank, or after `end`. `nap` gets the time and returns the length of
    /// the nap that begins then. The caller must have nothing else to wait for. Without a simulator
    /// this is one nap.
    fn naps(&self, _end: Option<u64>, nap: &mut dyn FnMut(u64) -> u64) {
        self.sleep(nap(self.now()));
    }
    /// Whether time passes only in [`Clock::sleep`] and in the transport. No thread may wait in
    /// another way then.
    fn is_simulated(&self) -> bool {
        false
    }
    /// Charges the time of planning commands and accepting jobs. Computing takes no simulated time
    /// by itself.
    fn charge(&self, _planned: usize, _accepted: usize) {}
}

#[derive(Debug)]
pub struct Real {
    start: Instant,
}

impl Real {
    /// Starts the clock at 1, so that 0 can mean "unknown".
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
