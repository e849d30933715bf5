//! The channels of a node. Each source has its own file. This one has what they share, and the
//! trial that distinguishes live counters from dead ones.

mod hwmon;
mod nvml;
mod nvml_library;
mod perf;
mod powercap;

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::component::{Component, Method, Source};
use crate::options::Options;
use crate::reason::Reason;

/// Maximum size of a kernel file that is read: a page, which is sysfs's limit for an attribute.
const FILE_BYTES_MAX: u64 = 4096;
/// Maximum length of a number: 20 digits and an end of line fit well.
const NUMBER_BYTES_MAX: usize = 32;
/// RAPL steps about once a millisecond.
const RAPL_STEP: Duration = Duration::from_millis(1);

/// Reads raw values of a channel.
pub(crate) trait Sensor: Send + fmt::Debug {
    /// Returns the counter or the power in the channel's own unit.
    fn read(&mut self) -> Result<u64, Reason>;
}

/// Meaning of a channel's raw values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Joules per unit of a counter, or watts per unit of a sample.
    pub(crate) per_unit: f64,
    /// Value after which the counter starts again at 0. If `None`, the counter must not go back.
    pub(crate) wraps_after: Option<u64>,
}

/// Description of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) component: Component,
    pub(crate) source: Source,
    pub(crate) method: Method,
    /// The file, event or function, and what to know about it.
    pub(crate) detail: String,
    /// Time between changes of the value, as far as known.
    pub(crate) step: Duration,
}

/// A channel that can be read.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) sensor: Box<dyn Sensor>,
    pub(crate) scale: Scale,
}

/// A channel, or the reason why it cannot be read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) info: Info,
    pub(crate) state: Result<Live, Reason>,
}

/// Finds all channels of the node, the most trusted sources first. Takes up to [`Options::watch`]
/// if a counter does not advance.
pub(crate) fn find(options: &Options) -> Vec<Found> {
    let mut found = nvml::find(options);
    found.extend(powercap::find(options));
    found.extend(perf::find(options));
    found.extend(hwmon::find(options));
    try_all(&mut found, options.watch);
    found
}

/// Detects dead channels: a counter must advance, and a power must not be 0. This thread spins, so
/// that not all cores sleep.
fn try_all(found: &mut [Found], watch: Duration) {
    let began = Instant::now();
    let mut waiting = Vec::new();
    for (index, it) in found.iter_mut().enumerate() {
        let Ok(live) = &mut it.state else { continue };
        match live.sensor.read() {
            Ok(0) => waiting.push((index, 0)),
            Ok(first) if it.info.method == Method::Counter => waiting.push((index, first)),
            Ok(_) => {}
            Err(reason) => it.state = Err(reason),
        }
    }
    while !waiting.is_empty() {
        spin_until(Instant::now() + RAPL_STEP);
        let seconds = began.elapsed().as_secs_f64();
        let is_over = began.elapsed() >= watch;
        waiting.retain(|&(index, first)| {
            let Some(it) = found.get_mut(index) else { return false };
            let Ok(live) = &mut it.state else { return false };
            match live.sensor.read() {
                Ok(value) if value != first => return false,
                Ok(value) if is_over => {
                    it.state = Err(Reason::Dead { what: it.info.detail.clone(), value, seconds });
                }
                Ok(_) => {}
                Err(reason) => it.state = Err(reason),
            }
            it.state.is_ok()
        });
    }
}

fn spin_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A file of the kernel that contains a number.
#[derive(Debug)]
struct NumberFile {
    file: File,
    path: PathBuf,
}

impl NumberFile {
    fn open(path: PathBuf) -> Result<Self, Reason> {
        let file = File::open(&path).map_err(|error| Reason::of_file(&path, &error))?;
        Ok(Self { file, path })
    }

    fn channel(path: PathBuf, scale: Scale) -> Result<Live, Reason> {
        Ok(Live { sensor: Box::new(Self::open(path)?), scale })
    }
}

impl Sensor for NumberFile {
    fn read(&mut self) -> Result<u64, Reason> {
        let mut bytes = [0; NUMBER_BYTES_MAX];
        // Reads from the start, because the kernel makes the text anew each time.
        let read = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(|error| Reason::of_file(&self.path, &error))?;
        number(&self.path, &String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()))
    }
}

fn number(path: &Path, text: &str) -> Result<u64, Reason> {
    text.trim().parse().map_err(|_| Reason::malformed(path, text, "number that is not negative"))
}

/// Reads a file of the kernel as text, without surrounding whitespace.
fn text(path: &Path) -> Result<String, Reason> {
    let failed = |error| Reason::of_file(path, &error);
    let mut text = Vec::new();
    File::open(path)
        .map_err(failed)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Reads a text of the kernel. Returns `None` if it is missing or empty.
fn text_if_any(path: &Path) -> Option<String> {
    text(path).ok().filter(|text| !text.is_empty())
}

/// Returns the names in a directory. Names that end in numbers are in the order of these.
fn names(directory: &Path) -> Result<Vec<String>, Reason> {
    let entries = fs::read_dir(directory).map_err(|error| Reason::of_file(directory, &error))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::Class;

    /// A sensor that returns its values one after the other, and then the last one for ever.
    #[derive(Debug)]
    struct Script(Vec<u64>);

    impl Sensor for Script {
        fn read(&mut self) -> Result<u64, Reason> {
            if self.0.len() > 1 { Ok(self.0.remove(0)) } else { Ok(self.0[0]) }
        }
    }

    fn found(method: Method, values: &[u64]) -> Found {
        Found {
            info: Info {
                component: Component::new(Class::Package, "package-0"),
                source: Source::Perf,
                method,
                detail: "x".to_owned(),
                step: RAPL_STEP,
            },
            state: Ok(Live {
                sensor: Box::new(Script(values.to_vec())),
                scale: Scale { per_unit: 1.0, wraps_after: None },
            }),
        }
    }

    #[test]
    fn what_does_not_advance_is_dead_and_what_does_is_not() {
        let mut all = [
            found(Method::Counter, &[0, 0, 0]),
            found(Method::Counter, &[7]),
            found(Method::Counter, &[7, 7, 7, 8, 8]),
            found(Method::Samples, &[5]),
            found(Method::Samples, &[0]),
        ];
        try_all(&mut all, Duration::from_millis(30));
        let states: Vec<_> =
            all.iter().map(|it| it.state.as_ref().err().map_or("live", Reason::kind)).collect();
        assert_eq!(states, ["dead_counter", "dead_counter", "live", "live", "dead_counter"]);
        let Err(Reason::Dead { value: 7, seconds, .. }) = all[1].state else {
            panic!("{:?}", all[1])
        };
        assert!(seconds >= 0.03, "{seconds}");
    }

    #[test]
    fn a_trial_ends_at_once_where_all_is_alive() {
        let began = Instant::now();
        try_all(&mut [found(Method::Counter, &[1, 2])], Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
