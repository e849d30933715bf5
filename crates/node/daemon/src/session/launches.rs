//! The commands that are watched. If kernels have a limit of time, these are launches, and other
//! commands that explain the core time of the worker. Launches for which the driver may have to
//! compile the kernel are always watched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use penstock_cl_sys::{CL_RUNNING, CL_SUBMITTED};
use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::{IndexSpace, Status};

use super::compiles::{Submitted, compiles_at_launch};

/// Fewest commands after which those that have ended are removed. Looks at limits of time may be
/// ten seconds apart, and a program makes a million launches in this time.
const REMOVAL_MIN: usize = 4096;

/// The commands whose ends are not known.
pub(crate) struct Launches<E = device::Event> {
    watched: Lock<VecDeque<Launch<E>>>,
    /// Held by the thread that looks. It takes all commands out of the list meanwhile, so another
    /// one would see none.
    looks: Lock<()>,
    /// Whether the session's thread asks a driver for the binaries of a program.
    binaries: AtomicBool,
    /// Number of commands at which those that have ended are removed next: twice the number that
    /// was left the last time. So a command pays for asking about two others.
    remove_at: AtomicUsize,
    /// Number of commands whose ends were seen, and of pieces that were read.
    steps: AtomicU64,
    /// Whether a kernel was given to a device that computes in this process.
    here: AtomicBool,
}

struct Launch<E> {
    event: E,
    traits: Traits,
    kernel: Option<Launched>,
    /// When the driver was first seen to run it.
    runs: Option<Instant>,
}

/// The kernel that a command launches.
#[derive(Clone)]
pub(crate) struct Launched {
    pub(crate) name: Arc<str>,
    /// Set as soon as the driver is seen to have compiled it for such a launch; `None` if it has
    /// before, or compiles no kernels then.
    pub(crate) compiled: Option<Arc<AtomicBool>>,
}

/// Most ways that are remembered of a kernel. Beyond, the oldest one is forgotten, and its next
/// launch is watched again.
const WAYS_MAX: usize = 16;

/// In which ways a kernel was launched. PoCL compiles a kernel once for several ways, and never
/// twice for one. PoCL builds no program anew that has kernels.
pub(crate) struct Ways<D = device::Device>(Vec<Way<D>>);

/// A device and the work-items, all of them.
struct Way<D> {
    device: D,
    space: IndexSpace,
    /// Whether the driver has compiled the kernel for this way.
    compiled: Arc<AtomicBool>,
}

impl<D> Default for Ways<D> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<D: PartialEq + Clone> Ways<D> {
    /// Returns what is set when the driver has compiled the kernel for this way; `None` if the
    /// driver has compiled it.
    pub(crate) fn compiled(&mut self, device: &D, space: &IndexSpace) -> Option<Arc<AtomicBool>> {
        let known = self.0.iter().find(|way| way.device == *device && way.space == *space);
        if let Some(Way { compiled, .. }) = known {
            return (!compiled.load(Ordering::Relaxed)).then(|| compiled.clone());
        }
        if self.0.len() == WAYS_MAX {
            self.0.remove(0);
        }
        let compiled = Arc::<AtomicBool>::default();
        self.0.push(Way { device: device.clone(), space: *space, compiled: compiled.clone() });
        Some(compiled)
    }
}

/// A kernel of the client.
pub(crate) struct Kernel {
    pub(crate) device: device::Kernel,
    /// Used only where drivers compile kernels at launches.
    pub(crate) ways: Ways,
    pub(crate) unset: Unset,
}

impl From<device::Kernel> for Kernel {
    fn from(device: device::Kernel) -> Self {
        Self { device, ways: Ways::default(), unset: Unset::default() }
    }
}

/// Most arguments of a kernel that are remembered because they could not be set. Honest kernels
/// have some tens of arguments. A hostile client may name thousands, and clone the kernel.
const UNSET_MAX: usize = 64;

/// The arguments of a kernel that could not be set, and why. The driver has their earlier values,
/// so the kernel must not be launched. An argument could not be set, for example, because the
/// device has no memory for its buffer.
#[derive(Clone, Default)]
pub(crate) struct Unset {
    known: Vec<(u32, Status)>,
    /// Why one could not be set that found no room. The kernel is not launched any more.
    beyond: Option<Status>,
}

impl Unset {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.beyond.is_none()
    }

    /// Notes that these arguments were set, and that some of them have failed. Those that the
    /// kernel does not have are not missing.
    pub(crate) fn note(&mut self, set: impl Iterator<Item = u32>, failed: Vec<(u32, Status)>) {
        if !self.known.is_empty() {
            set.for_each(|index| self.known.retain(|(known, _)| *known != index));
        }
        for (index, why) in failed {
            let is_known = self.known.iter().any(|(known, _)| *known == index);
            if is_known || why == Status::INVALID_ARG_INDEX {
                continue;
            }
            if self.known.len() < UNSET_MAX {
                self.known.push((index, why));
            } else {
                self.beyond = Some(why);
            }
        }
    }

    /// Returns why the first of these arguments could not be set.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let first = self.known.first().map(|(_, why)| *why).or(self.beyond);
        first.map_or(Ok(()), Err)
    }
}

/// What the commands of a queue are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Whether its device computes in this process.
    pub(crate) is_here: bool,
    /// Whether the driver may work for a command before it says that the command runs. Of Intel's
    /// runtime, that is also the status of commands that wait.
    pub(crate) works_early: bool,
    /// Whether the driver compiles kernels at launches.
    pub(crate) compiles: bool,
}

/// The platform whose commands are submitted while they wait.
const INTEL: &str = "Intel(R) OpenCL";

impl Traits {
    pub(super) fn of(device: &device::Device) -> Self {
        Self {
            is_here: device.shares_host_memory(),
            works_early: device.platform().name() != INTEL,
            compiles: compiles_at_launch(device),
        }
    }
}

/// What is known of all commands at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Time for which the oldest kernel has been seen to run.
    pub(crate) longest: Option<Duration>,
    /// Whether a driver works for one of them.
    pub(crate) is_busy: bool,
    /// The kernels that may be being compiled.
    pub(crate) submitted: Option<Submitted>,
}

impl Looked {
    fn note<E>(&mut self, status: Status, launch: &mut Launch<E>, now: Instant) {
        let (runs, waits) = (status == Status(CL_RUNNING), status == Status(CL_SUBMITTED));
        self.is_busy |= runs || (launch.traits.works_early && waits);
        let Some(kernel) = &launch.kernel else { return };
        if let Some(compiled) = &kernel.compiled {
            if runs || status == Status::OK {
                compiled.store(true, Ordering::Relaxed);
            } else if waits && !compiled.load(Ordering::Relaxed) {
                self.note_submitted(Some(&kernel.name));
            }
        }
        if runs {
            let since = *launch.runs.get_or_insert(now);
            self.longest = self.longest.max(Some(now.saturating_duration_since(since)));
        }
    }

    fn note_submitted(&mut self, first: Option<&Arc<str>>) {
        let first = || Submitted { count: 0, first: first.cloned() };
        self.submitted.get_or_insert_with(first).count += 1;
    }
}

/// Something with the status of a command.
pub(crate) trait HasStatus {
    fn status(&self) -> Status;
}

impl HasStatus for device::Event {
    fn status(&self) -> Status {
        device::Event::status(self)
    }
}

impl<E> Default for Launches<E> {
    fn default() -> Self {
        Self {
            watched: Lock::default(),
            looks: Lock::default(),
            binaries: AtomicBool::new(false),
            remove_at: AtomicUsize::new(REMOVAL_MIN),
            steps: AtomicU64::new(0),
            here: AtomicBool::new(false),
        }
    }
}

impl<E: HasStatus> Launches<E> {
    /// Watches a command from now on.
    pub(crate) fn watch(&self, event: E, traits: Traits, kernel: Option<Launched>) {
        if traits.is_here && kernel.is_some() {
            self.here.store(true, Ordering::Relaxed);
        }
        let count = {
            let mut watched = self.watched.lock();
            watched.push_back(Launch { event, traits, kernel, runs: None });
            watched.len()
        };
        if count < self.remove_at.load(Ordering::Relaxed) {
            return;
        }
        // Another thread that looks removes them, too.
        if let Some(_looks) = self.looks.try_lock() {
            self.ask(penstock_process::now());
            let left = self.watched.lock().len();
            self.remove_at.store((2 * left).max(REMOVAL_MIN), Ordering::Relaxed);
        }
    }

    /// Looks at all commands, and removes those that have ended.
    pub(crate) fn look(&self, now: Instant) -> Looked {
        let _looks = self.looks.lock();
        self.ask(now)
    }

    /// Has `ask` ask a driver for the binaries of a program, for which the driver may compile.
    pub(crate) fn for_binaries<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.binaries.store(true, Ordering::Relaxed);
        let answer = ask();
        self.binaries.store(false, Ordering::Relaxed);
        answer
    }

    /// Asks the drivers. Only the thread that holds `looks` calls this.
    fn ask(&self, now: Instant) -> Looked {
        let mut looked = Looked::default();
        if self.binaries.load(Ordering::Relaxed) {
            looked.note_submitted(None);
        }
        // Drivers are asked without the lock, so that no launch waits.
        let mut launches = std::mem::take(&mut *self.watched.lock());
        let count = launches.len();
        launches.retain_mut(|launch| {
            let status = launch.event.status();
            looked.note(status, launch, now);
            // Positive until the end.
            status.0 > 0
        });
        self.steps.fetch_add((count - launches.len()) as u64, Ordering::Relaxed);
        let mut watched = self.watched.lock();
        launches.append(&mut watched);
        *watched = launches;
        looked
    }

    /// Notes that a piece was read.
    pub(crate) fn note_piece(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of commands whose ends were seen, and of pieces that were read.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns whether the client's kernels have had this process.
    pub(crate) fn were_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }
}

impl<E> std::fmt::Debug for Launches<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launches").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use penstock_cl_sys::CL_QUEUED;

    use super::*;

    const HERE: Traits = Traits { is_here: true, works_early: true, compiles: true };

    fn kernel() -> Option<Launched> {
        Some(Launched { name: "k".into(), compiled: Some(Arc::default()) })
    }

    impl HasStatus for Status {
        fn status(&self) -> Status {
            *self
        }
    }

    #[test]
    fn an_argument_that_could_not_be_set_is_missing_until_it_is_set() {
        let (first, second) = (Status::MEM_OBJECT_ALLOCATION_FAILURE, Status::INVALID_ARG_SIZE);
        let mut unset = Unset::default();
        unset.note([0, 1, 2].into_iter(), vec![(1, first), (2, second), (2, first)]);
        assert_eq!(unset.known, [(1, first), (2, second)]);
        unset.note([77].into_iter(), vec![(77, Status::INVALID_ARG_INDEX)]);
        assert_eq!(unset.known.len(), 2);
        // A launch without changes, and one that sets another argument.
        unset.note(std::iter::empty(), Vec::new());
        unset.note([0].into_iter(), Vec::new());
        assert_eq!(unset.check(), Err(first));
        unset.note([1].into_iter(), Vec::new());
        assert_eq!(unset.check(), Err(second));
        unset.note([2].into_iter(), Vec::new());
        assert_eq!(unset.check(), Ok(()));
        let all = 0..=u32::try_from(UNSET_MAX).unwrap();
        unset.note(all.clone(), all.clone().map(|index| (index, first)).collect());
        assert_eq!(unset.known.len(), UNSET_MAX);
        unset.note(all, Vec::new());
        assert_eq!((unset.known.len(), unset.check()), (0, Err(first)));
    }

    #[test]
    fn launches_that_have_ended_do_not_stay() {
        let launches = Launches::default();
        for _ in 0..100 {
            launches.watch(Status(CL_RUNNING), HERE, kernel());
        }
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status::OK, HERE, kernel());
            assert!(launches.watched.lock().len() <= REMOVAL_MIN);
        }
        let start = Instant::now();
        launches.look(start);
        assert_eq!(launches.watched.lock().len(), 100);
        let later = launches.look(start + Duration::from_secs(5));
        assert!(later.longest.is_some_and(|longest| longest >= Duration::from_secs(5)));
    }

    #[test]
    fn many_launches_that_wait_are_asked_rarely() {
        let launches = Launches::default();
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status(CL_QUEUED), HERE, kernel());
        }
        assert_eq!(launches.watched.lock().len(), 10 * REMOVAL_MIN);
        assert!(launches.remove_at.load(Ordering::Relaxed) > 10 * REMOVAL_MIN);
        assert_eq!(launches.look(Instant::now()), Looked::default());
    }

    #[test]
    fn only_what_works_makes_a_driver_busy() {
        let late = Traits { works_early: false, compiles: false, ..HERE };
        let busy = |status: i32, traits, kernel| {
            let launches = Launches::default();
            launches.watch(Status(status), traits, kernel);
            launches.look(Instant::now()).is_busy
        };
        for kernel in [None, kernel()] {
            assert!(busy(CL_RUNNING, late, kernel.clone()));
            assert!(busy(CL_SUBMITTED, HERE, kernel.clone()));
            assert!(!busy(CL_SUBMITTED, late, kernel.clone()));
            assert!(!busy(CL_QUEUED, HERE, kernel.clone()) && !busy(0, HERE, kernel));
        }
    }

    #[test]
    fn ends_and_pieces_are_steps_and_kernels_have_the_process() {
        let launches = Launches::default();
        launches.watch(Status(CL_QUEUED), Traits { is_here: false, ..HERE }, kernel());
        launches.watch(Status(CL_QUEUED), HERE, None);
        assert_eq!((launches.steps(), launches.were_here()), (0, false));
        launches.watch(Status::OK, HERE, kernel());
        launches.look(Instant::now());
        launches.look(Instant::now());
        launches.note_piece();
        assert_eq!((launches.steps(), launches.were_here()), (2, true));
    }

    #[test]
    fn kernels_that_stay_submitted_are_counted_and_the_first_is_named() {
        let launches = Launches::default();
        let submitted = || launches.look(Instant::now()).submitted;
        launches.watch(Status(CL_SUBMITTED), HERE, None);
        let compiled = kernel().map(|it| Launched { compiled: None, ..it });
        launches.watch(Status(CL_SUBMITTED), HERE, compiled);
        assert_eq!(submitted(), None);
        launches.watch(Status(CL_SUBMITTED), HERE, kernel());
        launches.watch(
            Status(CL_SUBMITTED),
            HERE,
            kernel().map(|it| Launched { name: "later".into(), ..it }),
        );
        let launched = Some(Submitted { count: 2, first: Some("k".into()) });
        assert_eq!(submitted(), launched);
        let with_binaries = Some(Submitted { count: 3, first: None });
        assert_eq!(launches.for_binaries(submitted), with_binaries);
        assert_eq!(submitted(), launched);
    }

    #[test]
    fn launches_in_a_way_that_was_seen_to_run_are_not_counted() {
        let (mut ways, launches) = (Ways::default(), Launches::default());
        let space = IndexSpace::line(64, None);
        let launch = |status, compiled| {
            launches.watch(Status(status), HERE, Some(Launched { name: "k".into(), compiled }));
        };
        // All three begin before anything is known of the way.
        let [first, second, other] = [0, 0, 1].map(|device| ways.compiled(&device, &space));
        launch(CL_SUBMITTED, second);
        launch(CL_SUBMITTED, other);
        let count = || launches.look(Instant::now()).submitted.map(|it| it.count);
        assert_eq!(count(), Some(2));
        launch(CL_RUNNING, first);
        count();
        assert_eq!(count(), Some(1));
    }

    #[test]
    fn only_launches_for_which_a_driver_may_compile_are_watched() {
        let (mut ways, launches) = (Ways::default(), Launches::default());
        let other = IndexSpace::line(64, Some(8));
        let mut compiled = |device, space: &IndexSpace| ways.compiled(&device, space);
        let space = &IndexSpace::line(64, None);
        let watch = |status, compiled| {
            launches.watch(Status(status), HERE, Some(Launched { name: "k".into(), compiled }));
            launches.look(Instant::now());
        };
        // A launch that waits or fails does not say that the driver has compiled its kernel.
        for status in [CL_QUEUED, CL_SUBMITTED, -5, CL_RUNNING] {
            let compiled = compiled(0, space);
            assert!(compiled.is_some(), "{status}");
            watch(status, compiled);
        }
        assert!(compiled(0, space).is_none() && compiled(0, &other).is_some());
        assert!(compiled(1, space).is_some());
        watch(0, compiled(1, space));
        assert!(compiled(1, space).is_none());
        // There are three ways already, and the oldest one is forgotten.
        for device in 2..WAYS_MAX {
            assert!(compiled(device, space).is_some());
        }
        assert!(compiled(1, space).is_none() && compiled(0, space).is_some());
    }

    /// A command that is submitted. Something happens while its status is asked for the first time.
    struct Submits(Lock<Option<Box<dyn FnOnce() + Send>>>);

    impl HasStatus for Submits {
        fn status(&self) -> Status {
            let happens = self.0.lock().take();
            if let Some(happens) = happens {
                happens();
            }
            Status(CL_SUBMITTED)
        }
    }

    #[test]
    fn who_looks_while_commands_are_removed_sees_all_of_them() {
        let launches = Arc::new(Launches::<Submits>::default());
        let (tell, told) = channel();
        let of_status = launches.clone();
        let happens = move || {
            // More commands come, and nobody waits for who looks.
            for _ in 0..REMOVAL_MIN {
                of_status.watch(Submits(Lock::default()), HERE, kernel());
            }
            let (end, ended) = channel::<()>();
            thread::spawn(move || {
                _ = tell.send(of_status.look(Instant::now()));
                drop(end);
            });
            // A look that did not wait would end now.
            _ = ended.recv_timeout(Duration::from_millis(100));
        };
        launches.watch(Submits(Lock::new(Some(Box::new(happens)))), HERE, kernel());
        for _ in 1..REMOVAL_MIN {
            launches.watch(Submits(Lock::default()), HERE, kernel());
        }
        let submitted = told.recv().unwrap().submitted;
        assert_eq!(submitted.map(|it| it.count), Some(2 * REMOVAL_MIN));
    }
}
