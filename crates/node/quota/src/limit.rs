//! The kinds of limits.

use std::fmt;
use std::time::Duration;

/// Kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Sessions,
    DeviceMemory,
    HostMemory,
    WorkerMemory,
    CacheDisk,
    Objects,
    BytesInFlight,
    CommandsInFlight,
    KernelTime,
    CompileTime,
    IdleTime,
    DeviceShare,
}

/// Unit of a limit's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    Seconds,
}

/// A limit of time is looked at this often within its time, so a session ends at most 1/8 late.
const LOOKS: u32 = 8;

/// Longest and shortest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(10);
const LOOK_MIN: Duration = Duration::from_millis(50);

/// Returns how often a limit of so many seconds is looked at.
#[must_use]
pub fn look_every(seconds: u64) -> Duration {
    (Duration::from_secs(seconds) / LOOKS).clamp(LOOK_MIN, LOOK_MAX)
}

/// A limit that people look for and that Penstock cannot enforce so far.
#[derive(Clone, Copy, Debug)]
pub struct NotEnforced {
    /// Name that the file would have.
    pub name: &'static str,
    /// Why, and what to do instead.
    pub why: &'static str,
}

/// All limits that people look for and that Penstock cannot enforce. The file may not set them.
pub const NOT_ENFORCED: [NotEnforced; 1] = [NotEnforced {
    name: "compile_memory",
    why: "PENSTOCK_BUILD_MIB of the daemon limits each build, and not each user",
}];

impl Limit {
    pub const ALL: [Self; 12] = [
        Self::Sessions,
        Self::DeviceMemory,
        Self::HostMemory,
        Self::WorkerMemory,
        Self::CacheDisk,
        Self::Objects,
        Self::BytesInFlight,
        Self::CommandsInFlight,
        Self::KernelTime,
        Self::CompileTime,
        Self::IdleTime,
        Self::DeviceShare,
    ];

    /// Returns the name in the file and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::DeviceMemory => "device_memory",
            Self::HostMemory => "host_memory",
            Self::WorkerMemory => "worker_memory",
            Self::CacheDisk => "cache_disk",
            Self::Objects => "objects",
            Self::BytesInFlight => "bytes_in_flight",
            Self::CommandsInFlight => "commands_in_flight",
            Self::KernelTime => "kernel_time_s",
            Self::CompileTime => "compile_time_s",
            Self::IdleTime => "idle_time_s",
            Self::DeviceShare => "device_share",
        }
    }

    /// Returns the limit with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Sessions | Self::Objects | Self::CommandsInFlight | Self::DeviceShare => {
                Unit::Count
            }
            Self::DeviceMemory
            | Self::HostMemory
            | Self::WorkerMemory
            | Self::CacheDisk
            | Self::BytesInFlight => Unit::Bytes,
            Self::KernelTime | Self::CompileTime | Self::IdleTime => Unit::Seconds,
        }
    }

    /// Returns whether all users together can have such a limit. A time is that of one kernel,
    /// build or pause, a share is one beside others, and the memory of a worker is that of one
    /// process, so they have no sum. The files of all users together are the matter of the built-in
    /// limits and of the file system.
    #[must_use]
    pub fn has_total(self) -> bool {
        let is_of_one = [Self::WorkerMemory, Self::CacheDisk, Self::DeviceShare].contains(&self);
        self.unit() != Unit::Seconds && !is_of_one
    }

    /// Returns how the limit is enforced, in plain words.
    #[must_use]
    pub fn enforcement(self) -> &'static str {
        match self {
            Self::Sessions => {
                "the daemon counts; a client beyond the limit waits for 3 s and is then refused"
            }
            Self::DeviceMemory => {
                "the worker asks the daemon before it makes a buffer, image, pipe, allocation or \
                 heap; beyond the limit the object fails. The driver's own memory does not count"
            }
            Self::HostMemory => {
                "the worker asks the daemon before it uses a buffer in memory that the program \
                 shares with it; beyond the limit the buffer fails. The memory of the worker's \
                 process does not count"
            }
            Self::WorkerMemory => {
                "Linux counts all memory of the worker, its compilers and its kernels in the \
                 worker's control group; beyond the limit it ends a compiler, or the session"
            }
            Self::CacheDisk => {
                "the daemon measures the folders of the user's sessions each second, and ends the \
                 session with the largest one; of the caches that are kept for the user, the \
                 oldest give way. Files elsewhere do not count"
            }
            Self::Objects => {
                "the worker asks the daemon before it makes an object; beyond the limit the \
                 session ends. Events have a limit of their own"
            }
            Self::BytesInFlight => {
                "each session of a user gets an equal part; a worker whose part is full reads no \
                 further calls"
            }
            Self::CommandsInFlight => {
                "each session of a user gets an equal part; a worker whose part is full reads no \
                 further calls. 16 entries of a wait list count as one command"
            }
            Self::KernelTime => {
                "the worker watches each launch while the driver says that it runs, and then ends \
                 the session. The time in which other sessions use the device counts, too. The \
                 daemon does the same for core time of the worker that no command explains. NOT \
                 enforced on devices of CUDA's driver, which does not say what runs"
            }
            Self::CompileTime => {
                "the worker watches each build, and then ends the session. The time in which a \
                 build waits for its turn does not count"
            }
            Self::IdleTime => {
                "the worker ends a session whose client has sent nothing for this time while no \
                 command ran"
            }
            Self::DeviceShare => {
                "while several users want a device, the daemon holds back a user that is ahead of \
                 the others by 20 ms of the device, each divided by its share (1 if nobody set it)"
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const STEPS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl Unit {
    /// Returns an amount as text: `4 GiB`, `12` or `30 s`.
    #[must_use]
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Count => amount.to_string(),
            Self::Seconds => format!("{amount} s"),
            Self::Bytes => {
                let step = STEPS.iter().find(|(_, shift)| amount >> shift > 0);
                let Some((name, shift)) = step else { return format!("{amount} B") };
                let (whole, rest) = (amount >> shift, amount & ((1 << shift) - 1));
                if rest == 0 {
                    return format!("{whole} {name}");
                }
                // The rest is less than 2^40, so the product fits.
                format!("{whole}.{} {name}", (rest * 10) >> shift)
            }
        }
    }

    /// Reads an amount of bytes: a number, or a number and K, M, G or T (powers of 1,024).
    #[must_use]
    pub fn read_bytes(text: &str) -> Option<u64> {
        let text = text.trim();
        let split = text.find(|character: char| !character.is_ascii_digit());
        let (digits, unit) = text.split_at_checked(split.unwrap_or(text.len()))?;
        let shift = match unit.trim() {
            "" | "B" => 0,
            "K" | "KB" | "KiB" => 10,
            "M" | "MB" | "MiB" => 20,
            "G" | "GB" | "GiB" => 30,
            "T" | "TB" | "TiB" => 40,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_limits() {
        for limit in Limit::ALL {
            assert_eq!(Limit::of_name(limit.name()), Some(limit));
            assert!(NOT_ENFORCED.iter().all(|it| it.name != limit.name()));
        }
        assert_eq!(Limit::of_name("session"), None);
    }

    #[test]
    fn amounts_are_short() {
        let bytes = |amount| Unit::Bytes.show(amount);
        assert_eq!(
            [bytes(0), bytes(1_023), bytes(1 << 10), bytes(3 << 29), bytes(u64::MAX)],
            ["0 B", "1023 B", "1 KiB", "1.5 GiB", "16777215.9 TiB"]
        );
        assert_eq!((Unit::Count.show(7), Unit::Seconds.show(7)), ("7".into(), "7 s".into()));
    }

    #[test]
    fn bytes_have_units() {
        let read = Unit::read_bytes;
        assert_eq!(
            [read("4096"), read("512M"), read("4 GiB"), read("1T"), read("0")],
            [Some(4096), Some(512 << 20), Some(4 << 30), Some(1 << 40), Some(0)]
        );
        for text in ["", "G", "4 g", "-1", "1.5G", "17179869184G", "4GG"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
