//! What a driver takes that compiles kernels when they are launched. [`Compiles`] decides without a
//! driver and a clock.
//!
//! PoCL compiles a kernel for its work-group size at the first launch, on a thread of the device.
//! The launch is `CL_QUEUED` while it waits for other commands. Then it joins the device's line,
//! and is `CL_SUBMITTED` until the kernel itself begins. So a launch that is submitted is being
//! compiled, or it waits for a thread, perhaps for hours behind kernels that run. No status tells
//! these two apart: PoCL divides a kernel among its threads, and does not say which of them still
//! work for it. A client could hide a compilation beside a kernel that does not end.
//!
//! But PoCL holds one lock while it makes code, and each build of a program needs the same lock. So
//! the worker builds a tiny program now and then while a launch is submitted: the *probe*.
//!
//! * While threads only run kernels, the probe ends at once. So a launch that waits for a thread
//!   never counts, however long it waits.
//! * While a kernel is being compiled, the probe waits. This time counts, whatever else runs.
//! * A probe that a busy host delays takes core time now and then. That does not count: who waits
//!   for a lock takes none. A compilation takes core time, so the time counts for no more than the
//!   process has taken of it.
//! * A probe that fails tells nothing: the host may have no room on its disk, or no thread.
//!
//! Between two compilations the probe gets the lock, because PoCL frees the lock to link. The
//! client's own builds hold the lock as well, and have limits of their own. So the time is divided
//! between the launches and the builds that run, but into few parts: builds may not make a limit
//! useless.

use std::fmt::{self, Display};
use std::sync::{Arc, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use penstock_device as device;
use penstock_link::{OwnThread, ThreadClock};
use penstock_quota::look_every;
use penstock_wire::Status;

use crate::builder::{BUILD_STACK_BYTES, BuildLimits};

/// Most parts into which time is divided, and most compilations that may each have the memory of
/// one.
const PARTS_MAX: usize = 4;

/// Time between two looks while kernels may be being compiled: a compiler takes some 100 MiB in a
/// second. At other times the looks are those of the limits, or signs of life.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Most characters of a kernel's name in a message.
const NAME_MAX: usize = 64;

/// The platform that compiles kernels when they are launched.
const POCL: &str = "Portable Computing Language";

/// The compiler of a session's device that compiles kernels when they are launched.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(super) limits: BuildLimits,
    device: device::Device,
    /// Where probes are built, once there was one.
    context: OnceLock<device::Context>,
    /// Whether the failure of a probe was told.
    told: Once,
}

impl Compiler {
    /// Returns the compiler of these devices, if there is one.
    pub(super) fn of(devices: &[device::Device], limits: BuildLimits) -> Option<Arc<Self>> {
        let device = devices.iter().find(|it| compiles_at_launch(it))?.clone();
        Some(Arc::new(Self { limits, device, context: OnceLock::new(), told: Once::new() }))
    }

    /// Builds a probe in a thread; `None` if the system gives no thread.
    pub(super) fn probe(self: &Arc<Self>) -> Option<Arc<Probe>> {
        let (compiler, probe) = (self.clone(), Arc::new(Probe::default()));
        let of_thread = probe.clone();
        let build = move || {
            let _own = OwnThread::begin();
            of_thread.clock.get_or_init(ThreadClock::of_this_thread);
            let built = compiler.build();
            if let Err(status) = built {
                compiler.tell(&status);
            }
            of_thread.ended.get_or_init(|| built.is_ok());
        };
        let thread = thread::Builder::new().name("probe".into()).stack_size(BUILD_STACK_BYTES);
        thread.spawn(build).inspect_err(|error| self.tell(error)).ok().map(|_| probe)
    }

    /// Tells the first failure of a probe.
    fn tell(&self, error: &dyn Display) {
        self.told.call_once(|| {
            tracing::warn!(%error, "no probe tells whether the driver compiles a launched kernel");
        });
    }

    fn build(&self) -> Result<(), Status> {
        let devices = std::slice::from_ref(&self.device);
        let made = match self.context.get() {
            Some(context) => context.clone(),
            None => device::Context::new(self.device.platform(), devices, Box::new(|_| ()))?,
        };
        let context = self.context.get_or_init(|| made);
        device::Program::with_source(context, b"kernel void probe(void) {}")?.build(devices, None)
    }
}

/// A probe that is being built.
#[derive(Debug, Default)]
pub(super) struct Probe {
    clock: OnceLock<ThreadClock>,
    /// Whether it has succeeded.
    ended: OnceLock<bool>,
}

/// How far a probe has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It is being built, and has taken this core time.
    Builds(Duration),
    Ended,
    Failed,
}

impl Probe {
    pub(super) fn progress(&self) -> Progress {
        let took = self.clock.get().map_or(Duration::ZERO, |clock| clock.time());
        match self.ended.get() {
            None => Progress::Builds(took),
            Some(true) => Progress::Ended,
            Some(false) => Progress::Failed,
        }
    }
}

/// Returns whether a device's driver compiles kernels in this process when they are launched.
pub(super) fn compiles_at_launch(device: &device::Device) -> bool {
    device.platform().name() == POCL && device.shares_host_memory()
}

/// What may be being compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(super) count: usize,
    /// What joined the line first as far as is known, and when it was seen there.
    pub(super) first: Work,
    pub(super) since: Instant,
}

impl Submitted {
    /// Adds one more, which was seen at the time `since`.
    pub(super) fn add(before: &mut Option<Self>, work: &Work, since: Instant) {
        let count = 1 + before.as_ref().map_or(0, |it| it.count);
        match before {
            Some(before) if before.since <= since => before.count = count,
            other => *other = Some(Self { count, first: work.clone(), since }),
        }
    }
}

/// What a driver compiles late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The launch of a kernel with this name.
    Launch(Arc<str>),
    /// The binaries of a program, for which the driver compiles all kernels.
    Binaries,
}

impl Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(kernel) => {
                let name: String = kernel.chars().take(NAME_MAX).collect();
                write!(f, "the kernel {name} at its first launch")
            }
            Self::Binaries => f.write_str("the kernels of a program for its binaries"),
        }
    }
}

/// What is seen of a session at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) now: Instant,
    /// Core time of the process.
    pub(super) used: Duration,
    pub(super) submitted: Option<Submitted>,
    /// Number of builds that run.
    pub(super) builds: usize,
    /// Memory of the process; `None` if the system does not tell it. Then only time has a limit.
    pub(super) memory: Option<u64>,
    /// Memory of the session's objects, and of content on its way.
    pub(super) objects: u64,
}

/// What is known of a session's compilations.
#[derive(Debug)]
pub(super) struct Compiles<P> {
    /// When the last look was, and the core time of the process then.
    looked: Option<(Instant, Duration)>,
    /// The probe that is being built, and its core time.
    probe: Option<(P, Duration)>,
    /// From when on no probe was built: since the end of the last one, or since something is
    /// submitted.
    rests: Option<Instant>,
    /// Time for which the probe has waited.
    waited: Duration,
    /// Memory of the process when nothing was being compiled.
    quiet: Option<u64>,
}

impl<P> Default for Compiles<P> {
    fn default() -> Self {
        let waited = Duration::ZERO;
        Self { looked: None, probe: None, rests: None, waited, quiet: None }
    }
}

impl<P> Compiles<P> {
    /// Looks at a session. Makes a probe if one is due. Returns why the session ends, if the
    /// compilations have taken too much.
    pub(super) fn look(
        &mut self,
        limits: &BuildLimits,
        seen: &Seen,
        make: impl FnOnce() -> Option<P>,
        progress: impl Fn(&P) -> Progress,
    ) -> Option<String> {
        let looked = (seen.now, seen.used);
        let last = self.looked.replace(looked).unwrap_or(looked);
        let passed = seen.now.saturating_duration_since(last.0);
        // A host that holds the process back holds back its compilations, too.
        let passed = passed.min(seen.used.saturating_sub(last.1));
        let (mut waits, mut has_ended) = (false, false);
        if let Some((probe, took)) = self.probe.take() {
            match progress(&probe) {
                Progress::Builds(now) => {
                    waits = now == took;
                    self.probe = Some((probe, now));
                }
                Progress::Ended => {
                    has_ended = true;
                    self.rests = Some(seen.now);
                }
                Progress::Failed => self.rests = Some(seen.now),
            }
        }
        if has_ended || seen.submitted.is_none() {
            self.waited = Duration::ZERO;
            self.quiet = seen.memory;
        }
        let Some(submitted) = &seen.submitted else {
            self.rests = None;
            return None;
        };
        let rests = *self.rests.get_or_insert(seen.now);
        let rested = seen.now.saturating_duration_since(rests);
        if self.probe.is_none() && rested >= look_every(limits.seconds_max) {
            self.probe = make().map(|probe| (probe, Duration::ZERO));
            // Without a thread, the next one is not made at once either.
            self.rests = Some(seen.now);
        }
        if waits {
            let parts = (1 + seen.builds).min(PARTS_MAX);
            self.waited += passed / u32::try_from(parts).unwrap_or(u32::MAX);
        }
        self.excess(limits, seen, submitted)
    }

    fn excess(
        &mut self,
        limits: &BuildLimits,
        seen: &Seen,
        submitted: &Submitted,
    ) -> Option<String> {
        let grown = seen.memory.map_or(0, |memory| {
            // Objects and content count in full, although much of their memory may have been in use
            // before.
            memory.saturating_sub(*self.quiet.get_or_insert(memory)).saturating_sub(seen.objects)
        });
        let parts = (submitted.count + seen.builds).clamp(1, PARTS_MAX) as u64;
        let (most, took) = (limits.bytes_max >> 20, grown >> 20);
        let (what, setting) = if self.waited > Duration::from_secs(limits.seconds_max) {
            (format!("for longer than {} s", limits.seconds_max), "PENSTOCK_BUILD_SECONDS")
        } else if grown > limits.bytes_max.saturating_mul(parts) {
            (format!("and took {took} MiB for it, and may take {most} MiB"), "PENSTOCK_BUILD_MIB")
        } else {
            return None;
        };
        let work = &submitted.first;
        Some(format!(
            "the driver compiled {work} {what}: make the kernel smaller, or ask the administrator \
             of the node to raise {setting} for its daemon"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BuildLimits = BuildLimits { seconds_max: 8, bytes_max: 300 << 20 };

    /// A session, its looks, and a driver whose lock is free or not. A probe is the number of the
    /// look that made it.
    struct Driver {
        compiles: Compiles<usize>,
        seen: Seen,
        is_free: bool,
        /// Whether the host is so busy that probes do not end, although the lock is free.
        is_slow: bool,
        looks: usize,
        probes: usize,
    }

    fn launch(name: &str) -> Work {
        Work::Launch(name.into())
    }

    impl Driver {
        fn new() -> Self {
            let now = Instant::now();
            let submitted = Some(Submitted { count: 1, first: launch("k"), since: now });
            let (used, memory) = (Duration::ZERO, Some(100 << 20));
            let seen = Seen { now, used, submitted, builds: 0, memory, objects: 0 };
            let compiles = Compiles::default();
            Self { compiles, seen, is_free: false, is_slow: false, looks: 0, probes: 0 }
        }

        fn step(&mut self, passed: Duration) -> Option<String> {
            self.seen.used += passed;
            self.held_back(passed)
        }

        /// A step in which the process has taken no core time.
        fn held_back(&mut self, passed: Duration) -> Option<String> {
            self.seen.now += passed;
            self.looks += 1;
            let Self { compiles, seen, is_free, is_slow, looks, probes } = self;
            let make = || {
                *probes += 1;
                Some(*looks)
            };
            let progress = |made: &usize| match (*is_slow, *is_free) {
                (true, _) => Progress::Builds(Duration::from_micros((*looks - made) as u64)),
                (false, true) => Progress::Ended,
                (false, false) => Progress::Builds(Duration::from_millis(1)),
            };
            compiles.look(&LIMITS, seen, make, progress)
        }

        /// Looks for so many seconds. Returns after how many the session ends, and why.
        fn run(&mut self, seconds: u64) -> Option<(u64, String)> {
            (0..4 * seconds).find_map(|look| Some((look / 4, self.step(LOOK_EVERY)?)))
        }
    }

    fn must_end(ended: Option<(u64, String)>, after: std::ops::Range<u64>, words: &[&str]) {
        let (seconds, why) = ended.expect("the session goes on");
        assert!(after.contains(&seconds), "{seconds} s");
        assert!(words.iter().chain(&["the kernel k "]).all(|word| why.contains(word)), "{why}");
    }

    const LATE: [&str; 2] = ["longer than 8 s", "raise PENSTOCK_BUILD_SECONDS"];

    #[test]
    fn a_compilation_ends_the_session_whatever_else_runs() {
        must_end(Driver::new().run(100), 8..11, &LATE);
    }

    #[test]
    fn a_launch_that_waits_for_a_thread_waits_for_any_time() {
        let mut driver = Driver { is_free: true, ..Driver::new() };
        assert_eq!(driver.run(100_000), None);
        // One probe in an eighth of the limit.
        assert!((50_000..100_000).contains(&driver.probes), "{}", driver.probes);
        driver.is_free = false;
        must_end(driver.run(100), 8..12, &LATE);
    }

    #[test]
    fn a_busy_host_is_no_compilation() {
        let mut driver = Driver { is_slow: true, ..Driver::new() };
        assert_eq!(driver.run(100_000), None);
        driver.is_slow = false;
        must_end(driver.run(100), 7..11, &LATE);
    }

    #[test]
    fn compilations_one_after_the_other_have_each_the_time_of_one() {
        let mut driver = Driver::new();
        for _ in 0..100 {
            driver.is_free = false;
            assert_eq!(driver.run(7), None);
            driver.is_free = true;
            assert_eq!(driver.run(1), None);
        }
    }

    #[test]
    fn builds_have_their_part_of_the_time_and_no_more() {
        let mut driver = Driver::new();
        driver.seen.builds = 1;
        must_end(driver.run(100), 16..20, &LATE);
        let mut driver = Driver::new();
        driver.seen.builds = 100;
        must_end(driver.run(100), 32..36, &LATE);
    }

    #[test]
    fn a_pause_of_the_process_is_no_compilation() {
        let mut driver = Driver::new();
        assert_eq!(driver.run(3), None);
        for _ in 0..3 {
            assert_eq!(driver.held_back(Duration::from_secs(100_000)), None);
        }
        must_end(driver.run(100), 4..8, &LATE);
    }

    #[test]
    fn probes_that_fail_or_have_no_thread_count_nothing_and_rest() {
        for probe in [None, Some(0)] {
            let (mut made, Driver { mut compiles, mut seen, .. }) = (0, Driver::new());
            for _ in 0..1_000 {
                seen.now += LOOK_EVERY;
                seen.used += LOOK_EVERY;
                let make = || {
                    made += 1;
                    probe
                };
                assert_eq!(compiles.look(&LIMITS, &seen, make, |_| Progress::Failed), None);
            }
            // One in an eighth of the limit, and a look later.
            assert!((150..=250).contains(&made), "{made}");
        }
    }

    #[test]
    fn a_failed_probe_resets_nothing() {
        let mut driver = Driver::new();
        assert_eq!(driver.run(5), None);
        let (seen, memory) = (driver.seen.clone(), driver.compiles.quiet);
        assert!(driver.compiles.waited > Duration::from_secs(3));
        let waited = driver.compiles.waited;
        driver.compiles.look(&LIMITS, &seen, || None, |_| Progress::Failed);
        assert_eq!((driver.compiles.waited, driver.compiles.quiet), (waited, memory));
        must_end(driver.run(100), 3..8, &LATE);
    }

    #[test]
    fn memory_between_launches_is_known_although_something_is_always_submitted() {
        let mut driver = Driver { is_free: true, ..Driver::new() };
        for mib in 0..100 {
            driver.seen.memory = Some((100 + 100 * mib) << 20);
            // Each launch is submitted for less than a second, and the next one is there then.
            driver.seen.submitted.as_mut().unwrap().since = driver.seen.now;
            for _ in 0..3 {
                assert_eq!(driver.step(LOOK_EVERY), None, "{mib}");
            }
        }
    }

    #[test]
    fn what_was_submitted_first_is_named() {
        let (start, mut submitted) = (Instant::now(), None);
        let later = start + Duration::from_secs(1);
        for (work, since) in [(launch("late"), later), (Work::Binaries, start)] {
            Submitted::add(&mut submitted, &work, since);
        }
        Submitted::add(&mut submitted, &launch("late"), later);
        let expected = Submitted { count: 3, first: Work::Binaries, since: start };
        assert_eq!(submitted, Some(expected));
        let mut driver = Driver::new();
        driver.seen.submitted = submitted;
        let (_, why) = driver.run(100).unwrap();
        assert!(why.contains("the kernels of a program for its binaries for longer"), "{why}");
    }

    #[test]
    fn memory_counts_from_the_first_look_on_and_without_objects() {
        let mut driver = Driver::new();
        assert_eq!(driver.step(LOOK_EVERY), None);
        driver.seen.memory = Some(401 << 20);
        driver.seen.objects = 1 << 20;
        assert_eq!(driver.step(LOOK_EVERY), None);
        driver.seen.objects = 0;
        let why = driver.step(LOOK_EVERY).map(|why| (0, why));
        let words = ["took 301 MiB for it, and may take 300 MiB", "raise PENSTOCK_BUILD_MIB"];
        must_end(why, 0..1, &words);
        // Each of several kernels may have as much, but not each of many.
        for (count, mib, is_over) in [(2, 700, false), (4, 1300, false), (400, 1301, true)] {
            driver.seen.submitted.as_mut().unwrap().count = count;
            driver.seen.memory = Some(mib << 20);
            assert_eq!(driver.step(LOOK_EVERY).is_some(), is_over, "{count}");
        }
        driver.seen.memory = None;
        assert_eq!(driver.step(LOOK_EVERY), None);
    }

    #[test]
    fn memory_that_stays_after_a_compilation_belongs_to_no_other_one() {
        let mut driver = Driver::new();
        for mib in 0..100 {
            driver.is_free = false;
            driver.seen.memory = Some((100 + 200 * mib) << 20);
            assert_eq!(driver.run(3), None, "{mib}");
            driver.is_free = true;
            assert_eq!(driver.run(3), None, "{mib}");
        }
    }

    #[test]
    fn a_long_name_is_cut() {
        let mut driver = Driver::new();
        driver.seen.submitted.as_mut().unwrap().first = launch(&"ä".repeat(100_000));
        let (_, why) = driver.run(100).unwrap();
        assert!(why.contains(&format!(" {} ", "ä".repeat(NAME_MAX))) && why.len() < 500, "{why}");
    }
}
