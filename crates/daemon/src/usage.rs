//! How long a client has had its devices: its worker counts, and the daemon reads it from memory that both have.
//!
//! A device is in use from the first command that it is given until all that it was given are known to have ended. The end of a
//! command without an event is known when the client next waits for its queue: what is told is the time for which the client held the
//! device, and no less than that for which the device worked.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_link::{LinkError, SharedMemory};

use crate::sys::{PAGE_BYTES, Words};

/// Devices whose use is counted at most: as many as have a word in a page. Nodes have 16.
const DEVICES_MAX: usize = PAGE_BYTES / size_of::<u64>();

/// In a word: the device is in use.
const IN_USE: u64 = 1;

/// A worker's side.
#[derive(Debug)]
pub(crate) struct Usage {
    memory: SharedMemory,
    devices: Vec<Arc<Meter>>,
}

/// One device of a worker.
#[derive(Debug)]
pub(crate) struct Meter {
    words: Arc<Words>,
    index: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Queues with commands that have not ended.
    queues: u32,
    /// When the first of them came, on the host's clock.
    since_ns: u64,
    /// The time before.
    used_ns: u64,
}

impl Usage {
    /// For so many devices.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn new(count: usize) -> Result<Self, LinkError> {
        let memory = SharedMemory::create("penstock-usage", PAGE_BYTES)?;
        let words = Arc::new(Words::map(&memory)?);
        let meter = |index| Arc::new(Meter { words: words.clone(), index, held: Mutex::default() });
        Ok(Self { memory, devices: (0..count.min(DEVICES_MAX)).map(meter).collect() })
    }

    /// Those of the devices, in their order.
    pub(crate) fn meters(&self) -> &[Arc<Meter>] {
        &self.devices
    }
}

impl AsFd for Usage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Meter {
    /// A queue of the device, which had nothing to do, has been given a command.
    pub(crate) fn begin(&self) {
        self.change(|held, now| {
            if held.queues == 0 {
                held.since_ns = now;
            }
            held.queues += 1;
        });
    }

    /// All that one queue was given has ended.
    pub(crate) fn end(&self) {
        self.change(|held, now| {
            held.queues = held.queues.saturating_sub(1);
            if held.queues == 0 {
                held.used_ns += now.saturating_sub(held.since_ns);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Held, u64)) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut held, now_ns());
        // One word, so that who reads it never sees half of a change: the time so far, or when it would have begun if it had
        // been one piece.
        let word = match held.queues {
            0 => held.used_ns << 1,
            _ => held.since_ns.saturating_sub(held.used_ns) << 1 | IN_USE,
        };
        self.words.set(self.index, word);
    }
}

/// The daemon's side.
#[derive(Debug)]
pub(crate) struct Used(SharedMemory);

impl Used {
    /// Of what a worker sent.
    ///
    /// # Errors
    /// When it is not such memory.
    pub(crate) fn of_worker(memory: OwnedFd) -> Result<Self, LinkError> {
        SharedMemory::of_peer(memory).map(Self)
    }

    /// Seconds for which the device of this index was in use, up to now.
    pub(crate) fn seconds(&self, index: usize) -> Option<f64> {
        let mut word = [0; size_of::<u64>()];
        let at = u64::try_from(index.checked_mul(word.len())?).ok()?;
        // Not mapped: a worker is no reason for the daemon to crash.
        let got = rustix::io::pread(&self.0, &mut word, at).ok()?;
        (got == word.len()).then(|| seconds_of(u64::from_ne_bytes(word), now_ns()))
    }
}

fn seconds_of(word: u64, now_ns: u64) -> f64 {
    let time = word >> 1;
    let ns = if word & IN_USE == 0 { time } else { now_ns.saturating_sub(time) };
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// The clock that all processes of the host share. It begins with the host, so 63 bits last for 292 years.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_device_is_in_use_while_any_queue_of_it_is() {
        let usage = Usage::new(2).unwrap();
        let used = Used::of_worker(usage.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let meter = &usage.meters()[1];
        let nap = Duration::from_millis(30);
        let began = Instant::now();
        meter.begin();
        meter.begin();
        sleep(nap);
        meter.end();
        let before = used.seconds(1).unwrap();
        assert!(before >= nap.as_secs_f64(), "it is counted while it lasts: {before}");
        sleep(nap);
        meter.end();
        let all = used.seconds(1).unwrap();
        assert!(all >= 2.0 * nap.as_secs_f64() && all <= began.elapsed().as_secs_f64(), "{all}");
        sleep(nap);
        assert_eq!(used.seconds(1).unwrap(), all, "and not while it has nothing to do");
        meter.begin();
        meter.end();
        assert!(used.seconds(1).unwrap() >= all);
        assert_eq!((used.seconds(0), used.seconds(DEVICES_MAX)), (Some(0.0), None));
    }

    #[test]
    fn what_is_no_sealed_memory_is_refused() {
        assert!(Used::of_worker(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
