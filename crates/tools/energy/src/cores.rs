//! Core-seconds: time that cores worked, added up. Every process on every host may read it.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::options::Roots;

/// Activity of cores during a span, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreSeconds {
    /// Owner of the next three figures: "command", or "process" for this process and its children
    /// that were waited for.
    pub of: String,
    /// Time spent in programs.
    pub user: Option<f64>,
    /// Time spent in the kernel.
    pub system: Option<f64>,
    /// Sum of user and system time.
    pub busy: Option<f64>,
    /// Time that all cores of the host worked, for any process.
    pub host_busy: Option<f64>,
    /// Time that all cores of the host were idle or waited for a disk.
    pub host_idle: Option<f64>,
    /// Time that the hypervisor gave the host's cores to other guests.
    pub host_stolen: Option<f64>,
    /// Reason why the host's figures are unknown.
    pub host_unavailable: Option<String>,
}

/// Time in programs and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
}

impl Usage {
    /// Returns the time of this process, including ended threads, and of children it waited for.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut usage = Self::default();
        for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
            let mut record = empty_record();
            // SAFETY: `record` is ours, and both values of `who` always exist.
            if unsafe { libc::getrusage(who, &raw mut record) } == 0 {
                let one = Self::of_record(&record);
                usage.user += one.user;
                usage.system += one.system;
            }
        }
        usage
    }

    /// Converts the kernel's record of a process.
    pub(crate) fn of_record(record: &libc::rusage) -> Self {
        let duration = |time: libc::timeval| {
            let micros = u64::try_from(time.tv_usec).unwrap_or_default();
            Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default())
                + Duration::from_micros(micros)
        };
        Self { user: duration(record.ru_utime), system: duration(record.ru_stime) }
    }

    /// Returns the difference to an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// Returns the sum of both in seconds.
    #[must_use]
    pub fn busy_s(self) -> f64 {
        (self.user + self.system).as_secs_f64()
    }
}

pub(crate) fn empty_record() -> libc::rusage {
    // SAFETY: the structure consists of numbers, all of which may be 0.
    unsafe { std::mem::zeroed() }
}

/// Returns the core time of any process since it began, including threads that ended, without its
/// children. Cheap: two system calls, which read the kernel's own count in ns.
///
/// # Errors
/// [`Error::Cores`] if there is no such process.
pub fn of_process(pid: u32) -> Result<Duration, Error> {
    let told = |source| Error::Cores { of: format!("process {pid}"), source };
    let number = libc::pid_t::try_from(pid)
        .map_err(|_| told(io::Error::from(io::ErrorKind::InvalidInput)))?;
    let mut clock = 0;
    // SAFETY: `clock` is ours.
    let code = unsafe { libc::clock_getcpuclockid(number, &raw mut clock) };
    if code != 0 {
        return Err(told(io::Error::from_raw_os_error(code)));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel has just returned the clock, and `time` is ours.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(told(io::Error::last_os_error()));
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
}

/// Seconds that a host's cores spent since its start, from the 10 ms ticks of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Host {
    /// Time that the cores worked.
    pub busy: f64,
    /// Time that the cores were idle or waited for a disk.
    pub idle: f64,
    /// Time that other guests had the cores.
    pub stolen: f64,
}

impl Host {
    /// Reads the current values.
    ///
    /// # Errors
    /// [`Error::Cores`] if `/proc/stat` cannot be read or does not have its documented form.
    pub fn read(roots: &Roots) -> Result<Self, Error> {
        let path = roots.procfs.join("stat");
        let told = |source| Error::Cores { of: format!("the host ({})", path.display()), source };
        let line = first_line(&path).map_err(told)?;
        Self::of_line(&line, ticks_per_second()).ok_or_else(|| {
            told(io::Error::new(
                io::ErrorKind::InvalidData,
                "its first line is not `cpu` and 8 numbers",
            ))
        })
    }

    /// Parses "cpu user nice system idle iowait irq softirq steal ...". `user` includes guests.
    fn of_line(line: &str, ticks_per_second: f64) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("cpu") {
            return None;
        }
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, io, irq, softirq, steal, ..] = *numbers.as_slice() else {
            return None;
        };
        #[expect(clippy::cast_precision_loss, reason = "2^53 ticks are a million years of a core")]
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
        Some(Self {
            busy: [user, nice, system, irq, softirq].map(seconds).iter().sum(),
            idle: seconds(idle) + seconds(io),
            stolen: seconds(steal),
        })
    }
}

/// Reads the first line only, because the file can be long: it has a line for each core, and one
/// for all interrupts.
fn first_line(path: &Path) -> io::Result<String> {
    use std::io::BufRead as _;
    let mut line = String::new();
    io::BufReader::with_capacity(512, std::fs::File::open(path)?).read_line(&mut line)?;
    Ok(line)
}

fn ticks_per_second() -> f64 {
    // SAFETY: the argument is a known number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // Linux has reported 100 to programs for thirty years.
    i32::try_from(ticks).ok().filter(|&ticks| ticks > 0).map_or(100.0, f64::from)
}

/// Returns the activity between two moments.
pub(crate) fn between(before: &Moment, after: &Moment) -> CoreSeconds {
    let usage = after.usage.since(before.usage);
    let mut cores = CoreSeconds { of: "process".to_owned(), ..CoreSeconds::default() };
    cores.set_usage("process", usage);
    match (&before.host, &after.host) {
        (Ok(before), Ok(after)) => {
            // The kernel's idle and stolen times occasionally go back by a tick.
            cores.host_busy = Some((after.busy - before.busy).max(0.0));
            cores.host_idle = Some((after.idle - before.idle).max(0.0));
            cores.host_stolen = Some((after.stolen - before.stolen).max(0.0));
        }
        (Err(why), _) | (_, Err(why)) => cores.host_unavailable = Some(why.clone()),
    }
    cores
}

impl CoreSeconds {
    pub(crate) fn set_usage(&mut self, of: &str, usage: Usage) {
        self.of = of.to_owned();
        self.user = Some(usage.user.as_secs_f64());
        self.system = Some(usage.system.as_secs_f64());
        self.busy = Some(usage.busy_s());
    }
}

/// What is known of cores at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    usage: Usage,
    host: Result<Host, String>,
}

impl Moment {
    pub(crate) fn now(roots: &Roots) -> Self {
        Self {
            usage: Usage::of_this_process(),
            host: Host::read(roots).map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_line_of_the_host_is_added_up_once() {
        // `guest` and `guest_nice`, the last two, are part of `user` and `nice`.
        let host = Host::of_line("cpu  100 20 30 4000 50 6 7 80 90 10\n", 100.0).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(host.busy, 1.63) && near(host.idle, 40.5) && near(host.stolen, 0.8),
            "{host:?}"
        );
        for wrong in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu a"] {
            assert_eq!(Host::of_line(wrong, 100.0), None, "{wrong:?}");
        }
    }

    /// Uses core time of this thread.
    fn work(time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_ended_are_in_a_processs_time() {
        let pid = std::process::id();
        let (usage, clock) = (Usage::of_this_process(), of_process(pid).unwrap());
        std::thread::spawn(|| work(Duration::from_millis(50))).join().unwrap();
        let usage = Usage::of_this_process().since(usage).busy_s();
        let clock = (of_process(pid).unwrap() - clock).as_secs_f64();
        // Other tests work at the same time, and other processes may take the cores.
        assert!(usage > 0.005 && clock > 0.005, "{usage} {clock}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(of_process(u32::MAX).is_err());
        assert!(of_process(0x3fff_fff0).is_err());
    }
}
