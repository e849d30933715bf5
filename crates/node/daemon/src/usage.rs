//! How long a client has used its devices, and what it has done. The worker counts; the daemon
//! reads shared memory.
//!
//! A device is in use from its first command until all its commands are known to have ended. The
//! end of a command without an event is known when the client next waits for its queue. So the
//! reported time is how long the client held the device, at least as long as the device worked.
//!
//! The same page says which core time of the worker is explained ([`Told`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use penstock_link::{LinkError, SharedMemory};
use penstock_process::Lock;
use penstock_quota::Told;

use crate::sys::{PAGE_BYTES, Words};

/// Most devices whose use is counted: one word each in a page, without the last four. Nodes have
/// 16.
const DEVICES_MAX: usize = PAGE_BYTES / size_of::<u64>() - 4;

/// Words with the core time that the worker has looked at, and the stray part of it, in ns.
const LOOKED_AT: usize = DEVICES_MAX;
const STRAY_AT: usize = DEVICES_MAX + 1;

/// Words with the number of launches, and of bytes that have travelled.
const LAUNCHES_AT: usize = DEVICES_MAX + 2;
const MOVED_AT: usize = DEVICES_MAX + 3;

/// Shortest time between two launches of a session, in ns. One thread reads them, and each takes it
/// a header, a look-up of the kernel and its arguments, and a call of the driver.
const LAUNCH_NS_MIN: u64 = 100;

/// Most bytes that travel in a ns. All of them pass through the memory of the host, and 24 channels
/// of DDR5-6400 take 1.2 TB/s.
const MOVED_BYTES_PER_NS_MAX: u64 = 2048;

/// Bit of a word: the device is in use.
const IN_USE: u64 = 1;

/// The worker's side of the counters.
#[derive(Debug)]
pub(crate) struct Usage {
    memory: SharedMemory,
    words: Arc<Words>,
    devices: Vec<Arc<Meter>>,
}

/// Tells the daemon which core time of the worker is explained.
#[derive(Clone, Debug)]
pub(crate) struct Teller(Arc<Words>);

impl Teller {
    pub(crate) fn tell(&self, told: Told) {
        // In this order, so that a reader never sees time that was looked at without its stray
        // part.
        self.0.set(STRAY_AT, to_ns(told.stray));
        self.0.set(LOOKED_AT, to_ns(told.looked));
    }
}

/// Counts what a session does.
#[derive(Clone, Debug)]
pub(crate) struct Tally(Arc<Words>);

impl Tally {
    /// Notes that the client has launched a kernel.
    pub(crate) fn launched(&self) {
        self.0.add(LAUNCHES_AT, 1);
    }

    /// Notes that content has come from the client or another worker, or goes there.
    pub(crate) fn moved(&self, bytes: u64) {
        self.0.add(MOVED_AT, bytes);
    }
}

/// What a session has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) launches: u64,
    /// Bytes that have come over the worker's links or have been sent there.
    pub(crate) moved_bytes: u64,
}

impl Done {
    /// Returns the part of this that a session can have done in this time. A worker that has been
    /// taken over can write any number.
    pub(crate) fn possible(self, elapsed: Duration) -> Self {
        let elapsed_ns = to_ns(elapsed);
        Self {
            launches: self.launches.min(elapsed_ns / LAUNCH_NS_MIN),
            moved_bytes: self.moved_bytes.min(elapsed_ns.saturating_mul(MOVED_BYTES_PER_NS_MAX)),
        }
    }
}

/// Counter of one device.
#[derive(Debug)]
pub(crate) struct Meter {
    words: Arc<Words>,
    index: usize,
    clock: Lock<UseClock>,
}

#[derive(Debug, Default)]
struct UseClock {
    /// Number of queues with commands that have not ended.
    queues: u32,
    /// Time on the host's clock at which the first of them got its command.
    since_ns: u64,
    /// Time of use before that.
    used_ns: u64,
}

impl Usage {
    /// Makes counters for `count` devices.
    ///
    /// # Errors
    /// Fails if the system has no memory for them.
    pub(crate) fn new(count: usize) -> Result<Self, LinkError> {
        let memory = SharedMemory::create("penstock-usage", PAGE_BYTES)?;
        let words = Arc::new(Words::map(&memory)?);
        let meter = |index| Arc::new(Meter { words: words.clone(), index, clock: Lock::default() });
        let devices = (0..count.min(DEVICES_MAX)).map(meter).collect();
        Ok(Self { memory, words, devices })
    }

    pub(crate) fn teller(&self) -> Teller {
        Teller(self.words.clone())
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally(self.words.clone())
    }

    /// Returns the devices' counters, in the devices' order.
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
    /// Notes that an idle queue of the device got a command.
    pub(crate) fn begin(&self) {
        self.change(|clock, now| {
            if clock.queues == 0 {
                clock.since_ns = now;
            }
            clock.queues += 1;
        });
    }

    /// Notes that all commands of one queue have ended.
    pub(crate) fn end(&self) {
        self.change(|clock, now| {
            clock.queues = clock.queues.saturating_sub(1);
            if clock.queues == 0 {
                clock.used_ns += now.saturating_sub(clock.since_ns);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut UseClock, u64)) {
        let mut clock = self.clock.lock();
        change(&mut clock, now_ns());
        // One word, so that a reader never sees half of a change: the time of use so far, or the
        // time at which the use would have begun if it had been uninterrupted.
        let word = match clock.queues {
            0 => clock.used_ns << 1,
            _ => clock.since_ns.saturating_sub(clock.used_ns) << 1 | IN_USE,
        };
        self.words.set(self.index, word);
    }
}

/// The daemon's side of the counters.
#[derive(Debug)]
pub(crate) struct Used(SharedMemory);

impl Used {
    /// Takes the memory that a worker sent.
    ///
    /// # Errors
    /// Fails if it is not sealed shared memory.
    pub(crate) fn of_worker(memory: OwnedFd) -> Result<Self, LinkError> {
        SharedMemory::of_peer(memory).map(Self)
    }

    /// Returns of each of the first `count` devices whether it is in use, and for how long it was
    /// up to now.
    pub(crate) fn all(&self, count: usize) -> Vec<(bool, Duration)> {
        let now = now_ns();
        let words = self.words().into_iter().take(count.min(DEVICES_MAX));
        words.map(|word| (word & IN_USE != 0, time_of(word, now))).collect()
    }

    /// Returns which core time of the worker is explained.
    pub(crate) fn told(&self) -> Told {
        let words = self.words();
        let time = |at| Duration::from_nanos(words.get(at).copied().unwrap_or_default());
        Told { looked: time(LOOKED_AT), stray: time(STRAY_AT) }
    }

    /// Returns what the session has done.
    pub(crate) fn done(&self) -> Done {
        let words = self.words();
        let at = |at| words.get(at).copied().unwrap_or_default();
        Done { launches: at(LAUNCHES_AT), moved_bytes: at(MOVED_AT) }
    }

    fn words(&self) -> Vec<u64> {
        let mut page = [0; PAGE_BYTES];
        // Read and not mapped, so that a worker cannot crash the daemon.
        let got = rustix::io::pread(&self.0, &mut page, 0).unwrap_or_default();
        let words = page.get(..got).unwrap_or_default().chunks_exact(size_of::<u64>());
        words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
    }
}

fn to_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time_of(word: u64, now_ns: u64) -> Duration {
    let time = word >> 1;
    Duration::from_nanos(if word & IN_USE == 0 { time } else { now_ns.saturating_sub(time) })
}

/// Returns ns since boot, on a clock that all processes share; 63 bits last for 292 years.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Instant;

    use super::*;

    /// Returns the seconds for which this device was in use up to now.
    fn seconds(used: &Used, index: usize) -> Option<f64> {
        Some(used.all(index + 1).get(index)?.1.as_secs_f64())
    }

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
        let before = seconds(&used, 1).unwrap();
        assert!(before >= nap.as_secs_f64(), "a use counts while it lasts: {before}");
        sleep(nap);
        meter.end();
        let all = seconds(&used, 1).unwrap();
        assert!(all >= 2.0 * nap.as_secs_f64() && all <= began.elapsed().as_secs_f64(), "{all}");
        sleep(nap);
        assert_eq!(seconds(&used, 1).unwrap(), all, "an idle device is not in use");
        meter.begin();
        meter.end();
        assert!(seconds(&used, 1).unwrap() >= all);
        let both = used.all(2);
        assert_eq!(both.first(), Some(&(false, Duration::ZERO)));
        assert!(both.get(1).is_some_and(|(in_use, time)| !in_use && time.as_secs_f64() >= all));
        assert_eq!((seconds(&used, 0), seconds(&used, DEVICES_MAX)), (Some(0.0), None));
    }

    #[test]
    fn what_is_explained_is_told() {
        let usage = Usage::new(DEVICES_MAX + 1).unwrap();
        let used = Used::of_worker(usage.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(used.told(), Told::default());
        let told = Told { looked: Duration::from_secs(7), stray: Duration::from_nanos(3) };
        usage.teller().tell(told);
        assert_eq!((used.told(), usage.meters().len()), (told, DEVICES_MAX));
        assert_eq!(seconds(&used, DEVICES_MAX - 1), Some(0.0));
    }

    #[test]
    fn what_is_done_is_told() {
        let usage = Usage::new(DEVICES_MAX + 1).unwrap();
        let used = Used::of_worker(usage.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(used.done(), Done::default());
        let tally = usage.tally();
        tally.launched();
        tally.launched();
        tally.moved(5);
        tally.moved(u64::from(u32::MAX));
        let done = Done { launches: 2, moved_bytes: 5 + u64::from(u32::MAX) };
        assert_eq!((used.done(), used.told()), (done, Told::default()));
        assert_eq!(seconds(&used, DEVICES_MAX - 1), Some(0.0));
    }

    #[test]
    fn a_worker_has_done_no_more_than_is_possible() {
        let all = Done { launches: u64::MAX, moved_bytes: u64::MAX };
        let second = Done { launches: 10_000_000, moved_bytes: 2_048_000_000_000 };
        assert_eq!(all.possible(Duration::from_secs(1)), second);
        assert_eq!(all.possible(Duration::ZERO), Done::default());
        assert_eq!(all.possible(Duration::MAX).moved_bytes, u64::MAX);
        let some = Done { launches: 7, moved_bytes: 4096 };
        assert_eq!(some.possible(Duration::from_secs(1)), some);
    }

    #[test]
    fn what_is_no_sealed_memory_is_refused() {
        assert!(Used::of_worker(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
