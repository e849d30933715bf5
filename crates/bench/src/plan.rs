//! What is measured, and for how long.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Sizes of messages that are measured unless others are given, in bytes: a word, then powers of four.
pub const SIZES: [u64; 11] =
    [8, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Those of `--quick`.
pub const SIZES_QUICK: [u64; 5] = [8, 1 << 10, 16 << 10, 64 << 10, 1 << 20];
/// Numbers of devices whose barrier is measured unless others are given: those of the paper, which had 12 nodes.
pub const DEVICES: [u32; 5] = [2, 4, 6, 8, 12];
/// Those of `--quick`.
pub const DEVICES_QUICK: [u32; 3] = [2, 4, 8];
/// A message carries at least a stamp of this many bytes, by which it is checked.
pub const BYTES_MIN: u64 = 8;
/// Longer messages show nothing new, and a window of them is held on both sides.
pub const BYTES_MAX: u64 = 64 << 20;
/// Most devices: the paper's 12, and room for larger nodes; each is a process.
pub const DEVICES_MAX: u32 = 64;
/// Messages under way at once, on all paths alike, ...
pub const WINDOW: u64 = 8;
/// ... but no more than have so many bytes together, and at least one: with both sides' places in the caches, what is measured is the way
/// between devices, and not that to the memory behind the caches. Common benchmarks of bandwidth use one place for all messages.
pub const WINDOW_BYTES: u64 = 512 << 10;

/// Messages of this size that are under way at once; each has its own place on both sides.
#[must_use]
pub fn window_of(bytes: u64) -> u64 {
    (WINDOW_BYTES / bytes.max(1)).clamp(1, WINDOW)
}

/// Room for a window of messages of any size up to this one.
#[must_use]
pub fn window_bytes_max(bytes_max: u64) -> u64 {
    WINDOW_BYTES.max(bytes_max)
}

/// How bytes get from device to device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Kernels store into the other device's memory.
    Device,
    /// Kernels hand over what is to be stored, and the members' proxies bring it there over TCP.
    Proxy,
    /// Copy to the host, MPI, copy to the device, one after the other: the paper's baseline.
    HostMpi,
    /// As good as a program can do it with MPI: chunks, copies meanwhile, or no copies where the device computes on the host's memory.
    HostMpiPipelined,
    /// Copy to the host, a TCP socket, copy to the device, one after the other; who waits sleeps or spins, as is faster.
    HostTcp,
    /// As good as a program can do it over TCP.
    HostTcpPipelined,
}

impl Path {
    /// All, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::Device,
        Self::Proxy,
        Self::HostMpi,
        Self::HostMpiPipelined,
        Self::HostTcp,
        Self::HostTcpPipelined,
    ];

    /// Its name on the command line and in JSON.
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

    /// Its name at the head of a column.
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

    /// Whether the hosts do it.
    #[must_use]
    pub const fn is_host(self) -> bool {
        !matches!(self, Self::Device | Self::Proxy)
    }

    /// Whether MPI is needed.
    #[must_use]
    pub const fn needs_mpi(self) -> bool {
        matches!(self, Self::HostMpi | Self::HostMpiPipelined)
    }

    /// Whether the best of some ways is taken.
    #[must_use]
    pub const fn is_pipelined(self) -> bool {
        matches!(self, Self::HostMpiPipelined | Self::HostTcpPipelined)
    }

    /// Whether this is measured on it. A barrier moves nothing, so nothing of it can be pipelined.
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

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Half of the time of a message there and back.
    PingPong,
    /// Messages one after the other, [`WINDOW`] of them under way.
    Bandwidth,
    /// All devices wait for each other.
    Barrier,
}

impl Kind {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::PingPong, Self::Bandwidth, Self::Barrier];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ping-pong",
            Self::Bandwidth => "bandwidth",
            Self::Barrier => "barrier",
        }
    }
}

/// All that is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// On which paths.
    pub paths: Vec<Path>,
    /// What.
    pub kinds: Vec<Kind>,
    /// Sizes of messages, in bytes.
    pub sizes: Vec<u64>,
    /// Numbers of devices for the barrier.
    pub devices: Vec<u32>,
    /// How many of the devices are GPUs that CUDA's own driver has, the first ones; the others are CPU devices.
    pub gpus: u32,
    /// Bytes of a word, for joules per word.
    pub word: u64,
    /// How long each figure is measured at least, in seconds, all passes together, where energy cannot be measured.
    pub seconds: f64,
    /// For how long idle power is measured before the first figure, in seconds; 0 does without. Only where energy can be measured.
    pub idle_seconds: f64,
}

/// Each figure is measured so often, with all others of its processes between: load of others, which comes and goes, then falls on all
/// sizes and paths alike. The better one counts.
pub const PASSES: u32 = 2;

impl Plan {
    /// How long each pass measures a figure at least, in seconds.
    #[must_use]
    pub fn pass_seconds(&self) -> f64 {
        self.seconds / f64::from(PASSES)
    }

    /// Everything with the usual times.
    #[must_use]
    pub fn usual(quick: bool) -> Self {
        Self {
            paths: Path::ALL.to_vec(),
            kinds: Kind::ALL.to_vec(),
            sizes: if quick { SIZES_QUICK.to_vec() } else { SIZES.to_vec() },
            devices: if quick { DEVICES_QUICK.to_vec() } else { DEVICES.to_vec() },
            gpus: 0,
            word: 8,
            // A median of some thousand samples; of 50 for the largest messages.
            seconds: if quick { 0.1 } else { 0.5 },
            idle_seconds: if quick { 1.0 } else { 5.0 },
        }
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    /// [`Error::Absent`] with the reason.
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

    /// How long a figure is measured at least.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.max(0.01))
    }
}

/// How the processes of a host path find each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meeting {
    /// MPI's launcher started them; this is the shim to it.
    Mpi {
        /// Its file.
        shim: PathBuf,
    },
    /// Each writes its port into this directory, which nobody else can look into.
    Tcp {
        /// Where.
        directory: PathBuf,
        /// Who knows it belongs to them.
        token: u64,
    },
}

/// What a process of a host path is told, in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankPlan {
    /// What to do.
    pub plan: Plan,
    /// How many they are.
    pub ranks: u32,
    /// How they meet.
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
