//! RAPL through the perf events of the PMU `power`, such as `energy-pkg` and `energy-ram`. The
//! kernel extends the counters to 64 bits, so that they do not wrap.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::PathBuf;

use super::channel::{ChannelInfo, FoundChannel, LiveChannel, RAPL_STEP, Scale, Sensor};
use super::kernel_file::{self, NumberFile, text, text_if_any};
use super::powercap::of_package;
use crate::component::{Class, Component, Method, Source};
use crate::options::{Options, Roots};
use crate::reason::Reason;

/// Events of the PMU, what they count, and whether a missing event is reported.
const EVENTS: [(&str, Class, bool); 5] = [
    ("energy-pkg", Class::Package, true),
    ("energy-ram", Class::Dram, true),
    ("energy-cores", Class::Cores, false),
    ("energy-gpu", Class::Uncore, false),
    ("energy-psys", Class::Platform, false),
];
/// The event that is dead in virtual machines, where it makes the kernel log a warning.
const PSYS: &str = "energy-psys";
/// Maximum number of a PMU's CPUs. A PMU counts once for each package or die; the largest known
/// host has half as many.
const CPUS_MAX: usize = 64;

/// A PMU of the kernel.
struct Pmu<'a> {
    roots: &'a Roots,
    directory: PathBuf,
    kind: u32,
    cpus: Vec<u32>,
}

/// Finds all events on all packages.
pub(super) fn find(options: &Options) -> Vec<FoundChannel> {
    let directory = options.roots.sysfs.join("bus/event_source/devices/power");
    let pmu = match Pmu::open(&options.roots, directory) {
        Ok(pmu) => pmu,
        Err(reason) => {
            let told = EVENTS.iter().filter(|(_, _, is_told)| *is_told);
            return told
                .map(|(event, class, _)| row(all(*class), event, Err(reason.clone())))
                .collect();
        }
    };
    let mut found = Vec::new();
    for (event, class, is_told) in EVENTS {
        if !pmu.has(event) {
            if is_told {
                let part = format!("event {event}");
                let whole = "the PMU power".to_owned();
                found.push(row(all(class), event, Err(Reason::NoDomain { whole, part })));
            }
        } else if event == PSYS && !options.psys {
            let why = format!(
                "{PSYS} is dead in virtual machines, and touching it there makes the kernel log a warning"
            );
            found.push(row(all(class), event, Err(Reason::NotTried(why))));
        } else {
            found.extend(pmu.counters(event, class));
        }
    }
    found
}

fn all(class: Class) -> Component {
    Component::all(class)
}

fn row(component: Component, event: &str, state: Result<LiveChannel, Reason>) -> FoundChannel {
    let detail = format!("power/{event}");
    FoundChannel {
        info: ChannelInfo {
            component,
            source: Source::Perf,
            method: Method::Counter,
            detail,
            step: RAPL_STEP,
        },
        state,
    }
}

impl<'a> Pmu<'a> {
    fn open(roots: &'a Roots, directory: PathBuf) -> Result<Self, Reason> {
        if !directory.is_dir() {
            return Err(Reason::Absent(directory));
        }
        let path = directory.join("type");
        let kind = text(&path)?;
        let kind = kind.parse().map_err(|_| Reason::malformed(&path, &kind, "number of a PMU"))?;
        let path = directory.join("cpumask");
        // A PMU of the whole host has no mask. Any CPU will do.
        let mask = text_if_any(&path).unwrap_or_else(|| "0".to_owned());
        let cpus = list(&mask).ok_or_else(|| Reason::malformed(&path, &mask, "list of CPUs"))?;
        Ok(Self { roots, directory, kind, cpus })
    }

    fn has(&self, event: &str) -> bool {
        self.directory.join("events").join(event).exists()
    }

    /// Opens the event once for each package.
    fn counters(&self, event: &str, class: Class) -> Vec<FoundChannel> {
        let prepared = self.config(event).and_then(|config| Ok((config, self.scale(event)?)));
        let (config, per_unit) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return vec![row(all(class), event, Err(reason))],
        };
        let one = |&cpu: &u32| {
            let state = self.counter(event, config, cpu).map(|sensor| LiveChannel {
                sensor,
                // The kernel extends the counter itself.
                scale: Scale { per_unit, wraps_after: None },
            });
            let component = match (class, self.package(cpu)) {
                (Class::Platform, _) => Component::new(class, "psys"),
                (Class::Package, package) => Component::new(class, package),
                (_, package) => of_package(class, &package),
            };
            row(component, event, state)
        };
        self.cpus.iter().map(one).collect()
    }

    /// Returns the package of a CPU by the name that powercap gives it.
    fn package(&self, cpu: u32) -> String {
        let number = |cpu: u32, what: &str| {
            let path =
                self.roots.sysfs.join(format!("devices/system/cpu/cpu{cpu}/topology/{what}"));
            text_if_any(&path)
        };
        let package = number(cpu, "physical_package_id").unwrap_or_else(|| "0".to_owned());
        let is_shared = |other: &&u32| {
            **other != cpu && number(**other, "physical_package_id").as_ref() == Some(&package)
        };
        match number(cpu, "die_id") {
            // If a package has several counters, there is one for each die.
            Some(die) if self.cpus.iter().find(is_shared).is_some() => {
                format!("package-{package}-die-{die}")
            }
            _ => format!("package-{package}"),
        }
    }

    /// Parses an event such as "event=0x02". `format/` gives the position of each term.
    fn config(&self, event: &str) -> Result<u64, Reason> {
        let path = self.directory.join("events").join(event);
        let text = text(&path)?;
        let wrong = || Reason::malformed(&path, &text, "event");
        let mut config = 0;
        for term in text.split(',') {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = value
                .strip_prefix("0x")
                .map_or_else(|| value.parse(), |it| u64::from_str_radix(it, 16));
            let place = kernel_file::text(&self.directory.join("format").join(name))?;
            config |= placed(&place, value.map_err(|_| wrong())?).ok_or_else(wrong)?;
        }
        Ok(config)
    }

    /// Returns the number of joules per unit.
    fn scale(&self, event: &str) -> Result<f64, Reason> {
        let path = self.directory.join("events").join(format!("{event}.unit"));
        let unit = text(&path)?;
        if unit != "Joules" {
            return Err(Reason::malformed(&path, &unit, "unit of energy"));
        }
        let path = self.directory.join("events").join(format!("{event}.scale"));
        let scale = text(&path)?;
        let is_scale = |scale: &f64| scale.is_finite() && *scale > 0.0;
        let parsed = scale.parse().ok().filter(is_scale);
        parsed.ok_or_else(|| Reason::malformed(&path, &scale, "scale"))
    }

    fn counter(&self, event: &str, config: u64, cpu: u32) -> Result<Box<dyn Sensor>, Reason> {
        if let Some(stand_in) = &self.roots.perf {
            let file = NumberFile::open(stand_in.join(format!("{}-{config:x}-{cpu}", self.kind)))?;
            return Ok(Box::new(file));
        }
        match open_event(self.kind, config, cpu) {
            Ok(file) => {
                Ok(Box::new(PerfEvent { file, what: format!("power/{event} on CPU {cpu}") }))
            }
            Err(error) => Err(self.refused(event, &error)),
        }
    }

    fn refused(&self, event: &str, error: &io::Error) -> Reason {
        let what = format!("power/{event}");
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let path = self.roots.procfs.join("sys/kernel/perf_event_paranoid");
                let level = text_if_any(&path).unwrap_or_else(|| "not known".to_owned());
                let remedy = format!(
                    "root may, CAP_PERFMON allows it, and so does perf_event_paranoid below 1 (it is {level})"
                );
                Reason::NoPermission { what, remedy }
            }
            _ => Reason::of_error(what, error),
        }
    }
}

/// Shifts `value` to the position that a format such as "config:0-7" or "config:3" names.
fn placed(format: &str, value: u64) -> Option<u64> {
    let bits = format.strip_prefix("config:")?;
    let (first, last) = bits.split_once('-').unwrap_or((bits, bits));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let width = last.checked_sub(first)?.checked_add(1).filter(|_| last < u64::BITS)?;
    let most = u64::MAX >> (u64::BITS - width);
    (value <= most).then_some(value << first)
}

/// Parses a list such as "0", "0,24" or "0-3,8".
fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        cpus.extend((first..=last).take(CPUS_MAX));
    }
    cpus.truncate(CPUS_MAX);
    Some(cpus).filter(|cpus| !cpus.is_empty())
}

/// First version of the kernel's `struct perf_event_attr`, which later kernels accept.
#[repr(C)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Value of the kernel's `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTES_SIZE: u32 = 64;
const _: () = assert!(size_of::<EventAttributes>() == ATTRIBUTES_SIZE as usize);
/// Value of the kernel's `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Opens a counter of an event for a whole CPU.
fn open_event(kind: u32, config: u64, cpu: u32) -> io::Result<File> {
    let attributes = EventAttributes {
        kind,
        size: ATTRIBUTES_SIZE,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        flags: 0,
        wakeup_events: 0,
        breakpoint_type: 0,
        config1: 0,
    };
    let cpu = i32::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the attributes have the size that they name and outlive the call, which only reads
    // them. -1 stands for all processes and for no group.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, CLOSE_ON_EXEC)
    };
    let fd = i32::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[derive(Debug)]
struct PerfEvent {
    file: File,
    what: String,
}

impl Sensor for PerfEvent {
    fn read(&mut self) -> Result<u64, Reason> {
        let mut count = [0; size_of::<u64>()];
        match self.file.read_exact(&mut count) {
            Ok(()) => Ok(u64::from_ne_bytes(count)),
            Err(error) => Err(Reason::of_error(self.what.clone(), &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_go_to_their_bits() {
        assert_eq!(placed("config:0-7", 5), Some(5));
        assert_eq!(placed("config:8-15", 0xff), Some(0xff00));
        assert_eq!(placed("config:63", 1), Some(1 << 63));
        assert_eq!(placed("config:0-63", u64::MAX), Some(u64::MAX));
        for (format, value) in [
            ("config:0-7", 256),
            ("config1:0-7", 1),
            ("config:7-0", 1),
            ("config:60-64", 1),
            ("x", 0),
        ] {
            assert_eq!(placed(format, value), None, "{format}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read_and_bounded() {
        assert_eq!(list("0"), Some(vec![0]));
        assert_eq!(list("0,24"), Some(vec![0, 24]));
        assert_eq!(list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list("0-4000000000").map(|cpus| cpus.len()), Some(CPUS_MAX));
        for wrong in ["", "x", "1-", "-", "3-1"] {
            assert_eq!(list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_event_of_the_kernel_opens_and_counts() {
        // `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK`, which every kernel with perf has.
        match open_event(1, 0, 0) {
            Ok(file) => {
                let mut event = PerfEvent { file, what: "cpu-clock".to_owned() };
                let first = event.read().unwrap();
                let end = std::time::Instant::now() + RAPL_STEP;
                while std::time::Instant::now() < end {
                    std::hint::spin_loop();
                }
                assert!(event.read().unwrap() > first);
            }
            Err(error) => penstock_trial::skip(
                penstock_trial::Need::Perf,
                format_args!("perf events may not be opened here: {error}"),
            ),
        }
        let refused = open_event(u32::MAX, 0, 0).unwrap_err();
        assert!(refused.raw_os_error().is_some(), "{refused}");
    }
}
