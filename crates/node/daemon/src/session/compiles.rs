//! What a driver takes that compiles kernels when they are launched. [`Compiles`] decides without a
//! driver and a clock.
//!
//! A launch that is submitted is being compiled, or it waits for a thread, perhaps for hours behind
//! kernels that run. No status tells these two apart. But PoCL holds one lock while it makes code,
//! and each build of a program needs this lock. So the worker builds a tiny program now and then
//! while a launch is submitted: the *probe*. While a probe waits for the lock, a kernel is being
//! compiled. `docs/decisions/0053-builds-are-rehearsed.md` says what counts, and why.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, OnceLock};
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
}

impl Compiler {
    /// Returns the compiler of these devices, if there is one.
    pub(super) fn of(devices: &[device::Device], limits: BuildLimits) -> Option<Arc<Self>> {
        let device = devices.iter().find(|it| compiles_at_launch(it))?.clone();
        Some(Arc::new(Self { limits, device, context: OnceLock::new() }))
    }

    /// Builds a probe in a thread; `None` if the system gives no thread.
    pub(super) fn probe(self: &Arc<Self>) -> Option<Arc<Probe>> {
        let compiler = self.clone();
        Probe::begin(move || compiler.build())
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
    fn begin(build: impl FnOnce() -> Result<(), Status> + Send + 'static) -> Option<Arc<Self>> {
        let probe = Arc::new(Self::default());
        let of_thread = probe.clone();
        let work = move || {
            let _own = OwnThread::begin();
            of_thread.clock.get_or_init(ThreadClock::of_this_thread);
            // A probe without an end would count as a compilation.
            let built =
                catch_unwind(AssertUnwindSafe(build)).unwrap_or(Err(Status::OUT_OF_RESOURCES));
            _ = built.inspect_err(|status| tell_first(status));
            of_thread.ended.get_or_init(|| built.is_ok());
        };
        let started = penstock_process::start_with_stack("probe", BUILD_STACK_BYTES, work);
        started.inspect_err(|error| tell_first(error)).ok().map(|_| probe)
    }

    pub(super) fn progress(&self) -> Progress {
        let took = self.clock.get().map_or(Duration::ZERO, |clock| clock.time());
        match self.ended.get() {
            None => Progress::Builds(took),
            Some(true) => Progress::Ended,
            Some(false) => Progress::Failed,
        }
    }
}

/// Tells the first failure of a probe in this process, which serves one client.
fn tell_first(error: &dyn Display) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(%error, "no probe tells whether the driver compiles a launched kernel");
    });
}

/// Returns whether a device's driver compiles kernels in this process when they are launched.
pub(super) fn compiles_at_launch(device: &device::Device) -> bool {
    device.platform().name() == POCL && device.shares_host_memory()
}

/// What may be being compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(super) count: usize,
    /// The first of them: the launch of a kernel with this name, or `None` for the binaries of a
    /// program, for which the driver compiles all kernels.
    pub(super) first: Option<Arc<str>>,
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
#[derive(Debug, Default)]
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
            let progress = progress(&probe);
            if let Progress::Builds(now) = progress {
                waits = now == took;
                self.probe = Some((probe, now));
            } else {
                has_ended = progress == Progress::Ended;
                self.rests = Some(seen.now);
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
        // Each may be what the probe waits for.
        let parts = (submitted.count + seen.builds).min(PARTS_MAX);
        if waits {
            self.waited += passed / u32::try_from(parts).unwrap_or(u32::MAX);
        }
        let grown = seen.memory.map_or(0, |memory| {
            // Objects and content count in full, although much of their memory may have been in use
            // before, or may never be.
            memory.saturating_sub(*self.quiet.get_or_insert(memory)).saturating_sub(seen.objects)
        });
        let what = self.excess(limits, grown, parts as u64)?;
        let work = match &submitted.first {
            None => "the kernels of a program for its binaries".to_owned(),
            Some(kernel) => {
                let name: String = kernel.chars().take(NAME_MAX).collect();
                format!("the kernel {name} at its first launch")
            }
        };
        Some(format!("the driver compiled {work} {what} for its daemon"))
    }

    fn excess(&self, limits: &BuildLimits, grown: u64, parts: u64) -> Option<String> {
        let (most, took) = (limits.bytes_max >> 20, grown >> 20);
        let (what, setting) = if self.waited > Duration::from_secs(limits.seconds_max) {
            (format!("for longer than {} s", limits.seconds_max), "PENSTOCK_BUILD_SECONDS")
        } else if grown > limits.bytes_max.saturating_mul(parts) {
            (format!("and took {took} MiB for it, and may take {most} MiB"), "PENSTOCK_BUILD_MIB")
        } else {
            return None;
        };
        Some(format!(
            "{what}: make the kernel smaller, or ask the administrator of the node to raise \
             {setting}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

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

    impl Driver {
        fn new() -> Self {
            let now = Instant::now();
            let submitted = Some(Submitted { count: 1, first: Some("k".into()) });
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
    fn builds_and_launches_have_their_part_of_the_time_and_no_more() {
        for (count, builds, after) in
            [(1, 1, 16..20), (2, 0, 16..20), (1, 100, 32..36), (50, 0, 32..36)]
        {
            let mut driver = Driver::new();
            driver.seen.submitted.as_mut().unwrap().count = count;
            driver.seen.builds = builds;
            must_end(driver.run(100), after, &LATE);
        }
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
            for _ in 0..3 {
                assert_eq!(driver.step(LOOK_EVERY), None, "{mib}");
            }
        }
    }

    #[test]
    fn what_is_compiled_is_named_and_a_long_name_is_cut() {
        let name = "ä".repeat(NAME_MAX);
        let binaries = "the kernels of a program for its binaries for longer".to_owned();
        let long = Some("ä".repeat(100_000).into());
        for (work, said) in [(None, binaries), (long, format!("the kernel {name} at"))] {
            let mut driver = Driver::new();
            driver.seen.submitted.as_mut().unwrap().first = work;
            let (_, why) = driver.run(100).unwrap();
            assert!(why.contains(&said) && why.len() < 500, "{why}");
        }
    }

    #[test]
    fn a_probe_that_panics_has_failed() {
        for (probe, end) in [
            (Probe::begin(|| panic!("a defect")), Progress::Failed),
            (Probe::begin(|| Err(Status::OUT_OF_HOST_MEMORY)), Progress::Failed),
            (Probe::begin(|| Ok(())), Progress::Ended),
        ] {
            let probe = probe.unwrap();
            while matches!(probe.progress(), Progress::Builds(_)) {
                thread::yield_now();
            }
            assert_eq!(probe.progress(), end);
        }
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
}
