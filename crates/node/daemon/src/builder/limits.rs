//! What one build may take.

use std::fmt;

use penstock_process::variable;

/// Stack of a thread that builds: compilers recurse into expressions. Untouched pages cost nothing.
pub(crate) const BUILD_STACK_BYTES: usize = 64 << 20;

/// Most builds of a session that run at the same time. A compiler may take 500 MB: 8 GB in all.
pub(crate) const BUILDS_AT_ONCE_MAX: usize = 16;

/// Longest build by default. Honest builds take seconds, those of the largest modules a minute, and
/// on a machine that is busy with other builds ten times as long.
const SECONDS_DEFAULT: u64 = 600;

/// Most memory of a build by default: eight times the 500 MB that a compiler may take.
const MIB_DEFAULT: u64 = 4096;

/// Limits of each build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BuildLimits {
    pub(crate) seconds_max: u64,
    /// Memory of the compiler, without what the drivers take before it starts.
    pub(crate) bytes_max: u64,
}

impl BuildLimits {
    /// Reads the variables; `None` if builds are to run in the worker.
    pub(crate) fn configured() -> Option<Self> {
        Self::of(variable::BUILD_SECONDS.number(), variable::BUILD_MIB.number())
    }

    fn of(seconds: Option<u64>, mib: Option<u64>) -> Option<Self> {
        let seconds_max = seconds.unwrap_or(SECONDS_DEFAULT);
        let bytes_max = mib.unwrap_or(MIB_DEFAULT) << 20;
        (seconds_max > 0).then_some(Self { seconds_max, bytes_max })
    }
}

impl fmt::Display for BuildLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s and {} MiB", self.seconds_max, self.bytes_max >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seconds_mean_no_limits() {
        assert_eq!(BuildLimits::of(Some(0), Some(100)), None);
        let limits = BuildLimits::of(Some(5), Some(100));
        assert_eq!(limits, Some(BuildLimits { seconds_max: 5, bytes_max: 100 << 20 }));
        assert_eq!(BuildLimits::of(None, None).unwrap().to_string(), "600 s and 4096 MiB");
    }
}
