//! The definition of a measurement: what is measured, and for how long.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Default message sizes in bytes: a word, then powers of four.
pub const SIZES: [u64; 11] =
    [8, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Message sizes with `--quick`.
pub const SIZES_QUICK: [u64; 5] = [8, 1 << 10, 16 << 10, 64 << 10, 1 << 20];
/// Default numbers of devices for the barrier: those of the paper, which had 12 nodes.
pub const DEVICES: [u32; 5] = [2, 4, 6, 8, 12];
/// Numbers of devices with `--quick`.
pub const DEVICES_QUICK: [u32; 3] = [2, 4, 8];
/// Smallest message. It carries only a stamp, by which it is checked.
pub const BYTES_MIN: u64 = 8;
/// Largest message. Longer ones show nothing new, and both sides hold a window of them.
pub const BYTES_MAX: u64 = 64 << 20;
/// Largest number of devices: the paper's 12, and more for larger nodes. Each is a process.
pub const DEVICES_MAX: u32 = 64;
/// Largest number of messages under way at once, on all paths.
pub const WINDOW: u64 = 8;
/// Largest number of bytes under way at once, unless a single message is larger. With the buffers
/// of both sides in the caches, the figures show the path between devices and not the memory behind
/// the caches. Common bandwidth benchmarks use one buffer for all messages.
pub const WINDOW_BYTES: u64 = 512 << 10;

/// Returns the number of messages of this size that are under way at once. Each has its own place
/// on both sides.
#[must_use]
pub fn window_of(bytes: u64) -> u64 {
    (WINDOW_BYTES / bytes.max(1)).clamp(1, WINDOW)
}

/// Returns the bytes for a window of messages of any size up to this one.
#[must_use]
pub fn window_bytes_max(bytes_max: u64) -> u64 {
    WINDOW_BYTES.max(bytes_max)
}

/// A path from device to device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Kernels store into the other device's memory.
    Device,
    /// Kernels pass requests to the members' proxies, which send the bytes over TCP.
    Proxy,
    /// Copy to the host, MPI, copy to the device, one after the other: the paper's baseline.
    HostMpi,
    /// The best that a program can do with MPI: chunks, overlapping copies, or no copies if the
    /// device computes on the host's memory.
    HostMpiPipelined,
    /// Copy to the host, a TCP socket, copy to the device, one after the other. Waiting threads
    /// sleep or spin, whichever is faster.
    HostTcp,
    /// The best that a program can do with TCP.
    HostTcpPipelined,
}

impl Path {
    /// All paths, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::Device,
        Self::Proxy,
        Self::HostMpi,
        Self::HostMpiPipelined,
        Self::HostTcp,
        Self::HostTcpPipelined,
    ];

    /// The name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Proxy => "proxy",
            Self::HostMpi => "host-mpi",
            Self::HostMpiPipelined => "host-mpi-pipelined",
            Self::HostTcp => "host-tcp",
            Self::HostTcpPipelined => "host-tcp-pipelined",
        }
    }

    /// The name at the head of a column.
    #[must_use]
    pub const fn column(self) -> &'static str {
        match self {
            Self::Device => ">DEVICE",
            Self::Proxy => ">PROXY",
            Self::HostMpi => ">HOST MPI",
            Self::HostMpiPipelined => ">MPI PIPED",
            Self::HostTcp => ">HOST TCP",
            Self::HostTcpPipelined => ">TCP PIPED",
        }
    }

    /// Whether the path goes through the hosts.
    #[must_use]
    pub const fn is_host(self) -> bool {
        !matches!(self, Self::Device | Self::Proxy)
    }

    #[must_use]
    pub const fn needs_mpi(self) -> bool {
        matches!(self, Self::HostMpi | Self::HostMpiPipelined)
    }

    /// Whether the best of several ways is used.
    #[must_use]
    pub const fn is_pipelined(self) -> bool {
        matches!(self, Self::HostMpiPipelined | Self::HostTcpPipelined)
    }

    /// Whether `kind` is measured on this path. A barrier moves no data, so it cannot be pipelined.
    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        !(self.is_pipelined() && matches!(kind, Kind::Barrier))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kind of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Half of the time of a message and its return.
    PingPong,
    /// Consecutive messages, up to [`WINDOW`] of them under way.
    Bandwidth,
    /// All devices wait for each other.
    Barrier,
}

impl Kind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::PingPong, Self::Bandwidth, Self::Barrier];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Bandwidth => "bandwidth",
            Self::Barrier => "barrier",
        }
    }
}

/// A complete list of measurements.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub paths: Vec<Path>,
    pub kinds: Vec<Kind>,
    /// Message sizes in bytes.
    pub sizes: Vec<u64>,
    /// Numbers of devices for the barrier.
    pub devices: Vec<u32>,
    /// Number of devices that are GPUs of CUDA's own driver. These come first; all others are CPU
    /// devices.
    pub gpus: u32,
    /// Bytes per word, for joules per word.
    pub word: u64,
    /// Shortest measurement of each figure in seconds, over all passes, if energy cannot be
    /// measured.
    pub seconds: f64,
    /// How long idle power is measured before the first figure, in seconds; 0 omits it. Only used
    /// if energy can be measured.
    pub idle_seconds: f64,
}

/// Number of passes over all figures of a process; the better result counts. Varying load of other
/// programs then affects all sizes and paths alike.
pub const PASSES: u32 = 2;

impl Plan {
    /// Returns the shortest measurement of a figure in one pass, in seconds.
    #[must_use]
    pub fn pass_seconds(&self) -> f64 {
        self.seconds / f64::from(PASSES)
    }

    /// Returns all measurements with the default times.
    #[must_use]
    pub fn usual(quick: bool) -> Self {
        Self {
            paths: Path::ALL.to_vec(),
            kinds: Kind::ALL.to_vec(),
            sizes: if quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() },
            devices: if quick { DEVICES_QUICK.to_vec() } else { DEVICES.to_vec() },
            gpus: 0,
            word: 8,
            // Gives a median of some thousand samples, or of 50 for the largest messages.
            seconds: if quick { 0.1 } else { 0.5 },
            idle_seconds: if quick { 1.0 } else { 5.0 },
        }
    }

    /// Checks the plan.
    ///
    /// # Errors
    /// Returns [`Error::Absent`], which says what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Absent(text));
        if let Some(size) = self
            .sizes
            .iter()
            .find(|&&size| !(BYTES_MIN..=BYTES_MAX).contains(&size) || size % 8 != 0)
        {
            return wrong(format!(
                "a message of {size} bytes: sizes are multiples of 8 from {BYTES_MIN} to {BYTES_MAX} bytes"
            ));
        }
        if let Some(count) = self.devices.iter().find(|&&count| !(2..=DEVICES_MAX).contains(&count))
        {
            return wrong(format!(
                "a barrier of {count} devices: from 2 to {DEVICES_MAX} can meet"
            ));
        }
        if self.gpus > DEVICES_MAX {
            return wrong(format!("{} GPUs: at most {DEVICES_MAX} devices can meet", self.gpus));
        }
        if self.word == 0 || self.word > BYTES_MAX {
            return wrong(format!("a word of {} bytes: from 1 to {BYTES_MAX}", self.word));
        }
        Ok(())
    }

    /// Returns the shortest measurement of a figure.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.01))
    }
}

/// How the processes of a host path find each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meeting {
    /// MPI's launcher starts them.
    Mpi {
        /// Path of the MPI shim.
        shim: PathBuf,
    },
    /// Each writes its port into a directory that other users cannot read.
    Tcp {
        directory: PathBuf,
        /// Secret by which the processes recognise each other.
        token: u64,
    },
}

/// What a process of a host path reads from its file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankPlan {
    pub plan: Plan,
    pub ranks: u32,
    pub meeting: Meeting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_reason() {
        let told = |change: fn(&mut Plan)| {
            let mut plan = Plan::usual(true);
            change(&mut plan);
            plan.check().map_err(|error| error.to_string())
        };
        assert!(told(|_| ()).is_ok());
        assert!(told(|plan| plan.sizes = vec![12]).unwrap_err().contains("multiples of 8"));
        assert!(told(|plan| plan.sizes = vec![BYTES_MAX + 8]).is_err());
        assert!(told(|plan| plan.devices = vec![1]).unwrap_err().contains("from 2 to"));
        assert!(told(|plan| plan.word = 0).is_err());
    }

    #[test]
    fn windows_have_room() {
        for bytes in SIZES.into_iter().chain([24, 300_000, 262_152, BYTES_MAX]) {
            let window = window_of(bytes);
            assert!((1..=WINDOW).contains(&window));
            assert!(window * bytes <= window_bytes_max(bytes), "{bytes}");
        }
        assert_eq!((window_of(8), window_of(1 << 20)), (8, 1));
    }

    #[test]
    fn names_are_the_same_in_json_and_on_the_command_line() {
        for path in Path::ALL {
            assert_eq!(serde_json::to_value(path).unwrap(), path.name());
        }
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
