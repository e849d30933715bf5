//! Options of a meter.

use std::path::PathBuf;
use std::time::Duration;

use penstock_process::variable;

/// How a meter measures.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the kernel's files and the libraries are.
    pub roots: Roots,
    /// Interval of power samples, clamped to [`Options::INTERVAL_MIN`] and
    /// [`Options::INTERVAL_MAX`].
    pub interval: Duration,
    /// A counter that does not advance within this time is dead.
    pub watch: Duration,
    /// Whether to try the perf event `energy-psys`. If it is dead, as in virtual machines, the
    /// kernel logs a warning.
    pub psys: bool,
}

impl Options {
    /// Default interval in milliseconds: half of what published measurements of this kind use,
    /// because a sample only costs a few system calls.
    pub const INTERVAL_MS: u64 = 100;
    /// Shorter intervals show nothing more: RAPL steps once a millisecond, sensors less often.
    pub const INTERVAL_MIN: Duration = Duration::from_millis(1);
    /// Longer intervals are too coarse for an integration.
    pub const INTERVAL_MAX: Duration = Duration::from_secs(60);
    /// Every known live counter steps at least ten times in this time.
    pub const WATCH: Duration = Duration::from_secs(1);

    /// Returns the defaults, with the roots that the environment names.
    #[must_use]
    pub fn of_process() -> Self {
        Self::with_roots(Roots::of_process())
    }

    /// Returns the defaults with other roots.
    #[must_use]
    pub fn with_roots(roots: Roots) -> Self {
        Self {
            roots,
            interval: Duration::from_millis(Self::INTERVAL_MS),
            watch: Self::WATCH,
            psys: false,
        }
    }
}

/// Where the kernel's files and the libraries are.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The directory to use as `/sys`.
    pub sysfs: PathBuf,
    /// The directory to use as `/proc`.
    pub procfs: PathBuf,
    /// Replacement for the kernel's perf events: a directory with a file `TYPE-CONFIG-CPU` for each
    /// event (`CONFIG` in hexadecimal), which holds the count as a decimal number.
    pub perf: Option<PathBuf>,
    /// NVIDIA's management library. If `None`, it is searched where the dynamic loader looks and
    /// where drivers install it.
    pub nvml: Option<PathBuf>,
}

impl Roots {
    /// Returns the node's own roots.
    #[must_use]
    pub fn node() -> Self {
        Self { sysfs: "/sys".into(), procfs: "/proc".into(), perf: None, nvml: None }
    }

    /// Returns the roots below `root`, which stands for `/`. Perf events are the kernel's unless
    /// `root` has a directory `perf`.
    #[must_use]
    pub fn below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let perf = Some(root.join("perf")).filter(|perf| perf.is_dir());
        Self { sysfs: root.join("sys"), procfs: root.join("proc"), perf, nvml: None }
    }

    /// Returns the roots from `PENSTOCK_ENERGY_ROOT` and `PENSTOCK_ENERGY_NVML`, or the node's.
    #[must_use]
    pub fn of_process() -> Self {
        let roots = variable::ENERGY_ROOT.path().map_or_else(Self::node, Self::below);
        Self { nvml: variable::ENERGY_NVML.path(), ..roots }
    }
}
