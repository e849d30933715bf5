//! The commands that are watched. If kernels have a limit of time, these are launches, and other
//! commands that explain the core time of the worker. Commands of a device whose driver compiles
//! kernels when they are launched are always watched.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use penstock_cl_sys::{CL_RUNNING, CL_SUBMITTED};
use penstock_device as device;
use penstock_process::Lock;
use penstock_wire::Status;

use super::compiles::{self, Line, Turn};

/// Fewest commands after which those that have ended are removed. Looks at limits of time may be
/// ten seconds apart, and a program makes a million launches in this time.
const REMOVAL_MIN: usize = 4096;

/// The commands whose ends are not known.
pub(crate) struct Launches<E = device::Event> {
    watched: Lock<VecDeque<Launch<E>>>,
    /// Number of commands at which those that have ended are removed next: twice the number that
    /// was left the last time. So a command pays for asking about two others.
    remove_at: AtomicUsize,
    /// Number of commands that were given, or whose ends were seen.
    steps: AtomicU64,
    /// Whether a kernel was given to a device that computes in this process.
    here: AtomicBool,
    /// Number of looks that have ended.
    looks: AtomicU64,
    looked: Lock<Option<Instant>>,
}

struct Launch<E> {
    event: E,
    traits: Traits,
    /// Its name, if it is a kernel, and its turn, if its driver compiles kernels at launches.
    name: Option<Arc<str>>,
    turn: Option<Turn>,
    /// When the driver was first seen to run it.
    since: Option<Instant>,
}

/// What a command is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) is_kernel: bool,
    /// Whether its device computes in this process.
    pub(crate) is_here: bool,
    /// Whether the driver may work for it before it says that the command runs. Of Intel's runtime,
    /// that is also the status of commands that wait.
    pub(crate) works_early: bool,
    /// The line of the device, if its driver compiles kernels at launches.
    pub(crate) compiles_in: Option<Line>,
}

/// The platform whose commands are submitted while they wait.
const INTEL: &str = "Intel(R) OpenCL";
/// The platform that compiles kernels when they are launched.
const POCL: &str = "Portable Computing Language";

impl Traits {
    /// Returns what the commands of a device are that are no kernels.
    pub(super) fn of(device: &device::Device, line: Line) -> Self {
        let (platform, is_here) = (device.platform().name(), device.shares_host_memory());
        let compiles_in = (is_here && platform == POCL).then_some(line);
        Self { is_kernel: false, is_here, works_early: platform != INTEL, compiles_in }
    }
}

/// What is known of all commands at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Time for which the oldest kernel has been seen to run.
    pub(crate) longest: Option<Duration>,
    /// Whether a driver works for one of them.
    pub(crate) is_busy: bool,
    /// Number of kernels that may be being compiled.
    pub(crate) submitted: usize,
    /// The kernel that was compiled for the longest time, and for how long.
    pub(crate) compiled: Option<(Duration, Arc<str>)>,
}

impl Looked {
    fn note<E>(&mut self, status: Status, launch: &mut Launch<E>, now: Instant) {
        let runs = status == Status(CL_RUNNING);
        self.is_busy |= runs || (launch.traits.works_early && status == Status(CL_SUBMITTED));
        if runs && launch.traits.is_kernel {
            let since = *launch.since.get_or_insert(now);
            self.longest = self.longest.max(Some(now.saturating_duration_since(since)));
        }
        let (Some(turn), Some(name)) = (&launch.turn, &launch.name) else { return };
        let spent = turn.spent();
        let is_longer = self.compiled.as_ref().is_none_or(|(longest, _)| spent > *longest);
        if turn.is_submitted(status) && !spent.is_zero() && is_longer {
            self.compiled = Some((spent, name.clone()));
        }
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
            remove_at: AtomicUsize::new(REMOVAL_MIN),
            steps: AtomicU64::new(0),
            here: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            looked: Lock::default(),
        }
    }
}

impl<E: HasStatus> Launches<E> {
    /// Watches a command from now on. `name` is that of a kernel, and `builds` returns the number
    /// of builds that run.
    pub(crate) fn watch(
        &self,
        event: E,
        traits: Traits,
        name: Option<Arc<str>>,
        builds: impl FnOnce() -> usize,
    ) {
        let last = self.looks.load(Ordering::SeqCst);
        let turn = traits.compiles_in.map(|line| Turn::new(line, traits.is_kernel, last));
        self.steps.fetch_add(1, Ordering::Relaxed);
        if traits.is_kernel && traits.is_here {
            self.here.store(true, Ordering::Relaxed);
        }
        let count = {
            let mut watched = self.watched.lock();
            watched.push_back(Launch { event, traits, name, turn, since: None });
            watched.len()
        };
        if count >= self.remove_at.load(Ordering::Relaxed) {
            self.look(Instant::now(), builds());
            let left = self.watched.lock().len();
            self.remove_at.store((2 * left).max(REMOVAL_MIN), Ordering::Relaxed);
        }
    }

    /// Looks at all commands, and removes those that have ended. `builds` is the number of builds
    /// that run.
    pub(crate) fn look(&self, now: Instant, builds: usize) -> Looked {
        let began = self.looks.load(Ordering::SeqCst);
        // Drivers are asked without the lock, so that no launch waits.
        let mut launches = std::mem::take(&mut *self.watched.lock());
        let statuses: Vec<Status> = launches.iter().map(|launch| launch.event.status()).collect();
        let ended = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let last = self.looked.lock().replace(now).unwrap_or(now);
        let passed = now.saturating_duration_since(last);
        let look = compiles::Look { began, ended, passed, builds };
        let turns = statuses.iter().zip(&mut launches);
        let mut turns: Vec<_> =
            turns.filter_map(|(status, launch)| Some((*status, launch.turn.as_mut()?))).collect();
        let mut looked =
            Looked { submitted: compiles::look(look, &mut turns), ..Looked::default() };
        for (status, launch) in statuses.iter().zip(&mut launches) {
            looked.note(*status, launch, now);
        }
        let count = launches.len();
        let mut statuses = statuses.into_iter();
        // Positive until the end.
        launches.retain(|_| statuses.next().is_some_and(|status| status.0 > 0));
        self.steps.fetch_add((count - launches.len()) as u64, Ordering::Relaxed);
        let mut now_watched = self.watched.lock();
        launches.append(&mut now_watched);
        *now_watched = launches;
        looked
    }

    /// Returns the number of commands that were given, or whose ends were seen.
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
    use penstock_cl_sys::CL_QUEUED;

    use super::*;

    const KERNEL: Traits =
        Traits { is_kernel: true, is_here: true, works_early: true, compiles_in: None };

    impl HasStatus for Status {
        fn status(&self) -> Status {
            *self
        }
    }

    #[test]
    fn launches_that_have_ended_do_not_stay() {
        let launches = Launches::default();
        for _ in 0..100 {
            launches.watch(Status(CL_RUNNING), KERNEL, None, || 0);
        }
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status::OK, KERNEL, None, || 0);
            assert!(launches.watched.lock().len() <= REMOVAL_MIN);
        }
        let start = Instant::now();
        launches.look(start, 0);
        assert_eq!(launches.watched.lock().len(), 100);
        let later = launches.look(start + Duration::from_secs(5), 0);
        assert!(later.longest.is_some_and(|longest| longest >= Duration::from_secs(5)));
    }

    #[test]
    fn many_launches_that_wait_are_asked_rarely() {
        let launches = Launches::default();
        for _ in 0..10 * REMOVAL_MIN {
            launches.watch(Status(CL_QUEUED), KERNEL, None, || 0);
        }
        assert_eq!(launches.watched.lock().len(), 10 * REMOVAL_MIN);
        assert!(launches.remove_at.load(Ordering::Relaxed) > 10 * REMOVAL_MIN);
        assert_eq!(launches.look(Instant::now(), 0), Looked::default());
    }

    #[test]
    fn only_what_works_makes_a_driver_busy() {
        let late = Traits { works_early: false, ..KERNEL };
        let copy = Traits { is_kernel: false, ..late };
        let busy = |status: i32, traits| {
            let launches = Launches::default();
            launches.watch(Status(status), traits, None, || 0);
            launches.look(Instant::now(), 0).is_busy
        };
        assert!(busy(CL_RUNNING, late) && busy(CL_RUNNING, copy) && busy(CL_SUBMITTED, KERNEL));
        assert!(!busy(CL_SUBMITTED, late) && !busy(CL_QUEUED, KERNEL) && !busy(0, KERNEL));
    }

    #[test]
    fn beginnings_and_ends_are_steps() {
        let launches = Launches::default();
        launches.watch(Status(CL_QUEUED), Traits { is_here: false, ..KERNEL }, None, || 0);
        assert_eq!((launches.steps(), launches.were_here()), (1, false));
        launches.watch(Status::OK, KERNEL, None, || 0);
        assert_eq!((launches.steps(), launches.were_here()), (2, true));
        launches.look(Instant::now(), 0);
        assert_eq!(launches.steps(), 3);
        launches.look(Instant::now(), 0);
        assert_eq!(launches.steps(), 3);
    }

    #[test]
    fn a_kernel_that_stays_submitted_is_named() {
        let line = Line { part: 0, whole: 0 };
        let launches = Launches::default();
        let kernel = Traits { compiles_in: Some(line), ..KERNEL };
        launches.watch(Status(CL_SUBMITTED), kernel, Some("big".into()), || 0);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(launches.look(at(0), 0).compiled, None);
        let looked = launches.look(at(7), 0);
        assert_eq!(looked.compiled, Some((Duration::from_secs(7), "big".into())));
        assert_eq!(looked.submitted, 1);
    }
}
