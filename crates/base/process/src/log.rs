//! Messages that a person asks for with `PENSTOCK_LOG`, from libraries in other people's programs.
//!
//! The variable holds words separated by commas. A word is a level, which applies to all modules,
//! or `MODULE=LEVEL`. A module is a crate of Penstock without `penstock_`, or a module inside one,
//! such as `cuda::core`. `1` is the level `info`, and `0` is `off`.
//!
//! A message that nobody asked for costs one load of an atomic number.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::{notice, variable};

/// How important a message is. A filter passes its level and the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No messages.
    #[default]
    Off,
    /// A call has failed, or work is lost.
    Error,
    /// Something that a person should look at.
    Warn,
    /// Events of normal operation.
    Info,
    /// What Penstock decides, and why.
    Debug,
    /// Each single step.
    Trace,
}

impl Level {
    const NAMES: [(&'static str, Self); 6] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    fn named(text: &str) -> Option<Self> {
        let named = Self::NAMES.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        named.map(|(_, level)| level).or_else(|| {
            variable::flag(text).map(|is_on| if is_on { Self::Info } else { Self::Off })
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(_, level)| level == self);
        f.write_str(name.map_or("off", |(name, _)| name))
    }
}

/// The crates that write messages.
pub const MODULES: &[&str] =
    &["client", "cuda", "cudart", "daemon", "device", "ggas", "link", "nvml", "opencl", "water"];

/// The messages that a person asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Level of the modules that are not named.
    pub default: Level,
    /// Levels of modules. The longest name that fits decides.
    pub modules: Vec<(String, Level)>,
}

/// A word that is neither a level nor the level of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFilter(String);

impl fmt::Display for NoFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "variable {}: `{}` is not a level (off, error, warn, info, debug, trace) or \
             MODULE=LEVEL; the modules are {}",
            variable::LOG.name,
            self.0,
            MODULES.join(", ")
        )
    }
}

impl std::error::Error for NoFilter {}

impl Filter {
    /// Reads the value of `PENSTOCK_LOG`.
    ///
    /// # Errors
    /// A word is not understood.
    pub fn parse(text: &str) -> Result<Self, NoFilter> {
        let mut filter = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let wrong = || NoFilter(word.to_owned());
            let Some((module, level)) = word.split_once('=') else {
                filter.default = Level::named(word).ok_or_else(wrong)?;
                continue;
            };
            let module = module.trim();
            let of = module.split("::").next().unwrap_or_default();
            if !MODULES.contains(&of) {
                return Err(wrong());
            }
            let level = Level::named(level.trim()).ok_or_else(wrong)?;
            filter.modules.push((module.to_owned(), level));
        }
        Ok(filter)
    }

    /// Returns the filter in `PENSTOCK_LOG`, or `None` if the variable is unset or not understood.
    /// A value that is not understood gives one line.
    pub fn of_process() -> Option<Self> {
        let text = variable::LOG.text()?;
        Self::parse(&text).inspect_err(|error| notice::once(format_args!("{error}"))).ok()
    }

    /// Returns the level of a module.
    #[must_use]
    pub fn level(&self, module: &str) -> Level {
        let of = self.modules.iter().rev().filter(|(name, _)| is_within(module, name));
        of.max_by_key(|(name, _)| name.len()).map_or(self.default, |(_, level)| *level)
    }

    /// Returns the level of the module that says most.
    #[must_use]
    pub fn most(&self) -> Level {
        self.modules.iter().map(|(_, level)| *level).fold(self.default, Level::max)
    }
}

/// Returns whether `module` is `name` or a module inside it.
fn is_within(module: &str, name: &str) -> bool {
    module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Function that writes a message instead of this module.
pub type Writer = fn(Level, &str, fmt::Arguments<'_>);

static FILTER: OnceLock<Filter> = OnceLock::new();
static WRITER: OnceLock<Writer> = OnceLock::new();

/// [`Filter::most`] of the process, or [`NOT_READ`].
static MOST: AtomicU8 = AtomicU8::new(NOT_READ);
const NOT_READ: u8 = u8::MAX;

/// Has `writer` write all messages of this process that `filter` passes. Only the first call has an
/// effect, and none if a message was written before.
pub fn set_writer(filter: Filter, writer: Writer) {
    if FILTER.set(filter).is_ok() {
        _ = WRITER.set(writer);
    }
}

/// Returns whether a message of this level is wanted from any module.
#[inline]
#[must_use]
pub fn is_on(level: Level) -> bool {
    level as u8 <= most()
}

#[inline]
fn most() -> u8 {
    match MOST.load(Ordering::Relaxed) {
        NOT_READ => read(),
        most => most,
    }
}

#[cold]
fn read() -> u8 {
    let most = filter().most() as u8;
    MOST.store(most, Ordering::Relaxed);
    most
}

fn filter() -> &'static Filter {
    FILTER.get_or_init(|| Filter::of_process().unwrap_or_default())
}

/// Writes a message of the module at `path` if it is wanted. [`crate::log!`] calls this.
#[cold]
pub fn write(level: Level, path: &str, text: fmt::Arguments<'_>) {
    let module = path.strip_prefix("penstock_").unwrap_or(path);
    if level > filter().level(module) {
        return;
    }
    let of = module.split("::").next().unwrap_or(module);
    match WRITER.get() {
        Some(writer) => writer(level, of, text),
        None => notice::print(format_args!("[{level} {of}] {text}")),
    }
}

/// Writes a message if `PENSTOCK_LOG` asks for it: `log!(Debug, "{count} nodes")`. The arguments
/// are evaluated only then.
#[macro_export]
macro_rules! log {
    ($level:ident, $($text:tt)*) => {
        if $crate::log::is_on($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, module_path!(), format_args!($($text)*));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_level_is_for_all_modules() {
        for (text, level) in [
            ("", Level::Off),
            ("0", Level::Off),
            ("off", Level::Off),
            ("1", Level::Info),
            ("true", Level::Info),
            ("WARN", Level::Warn),
            ("trace", Level::Trace),
        ] {
            let filter = Filter::parse(text).unwrap();
            assert_eq!((filter.level("cuda::core"), filter.most()), (level, level), "{text:?}");
        }
    }

    #[test]
    fn the_longest_name_of_a_module_decides() {
        let filter = Filter::parse("warn, link=debug,opencl=trace,opencl::core=off").unwrap();
        assert_eq!(filter.level("client"), Level::Warn);
        assert_eq!(filter.level("link"), Level::Debug);
        assert_eq!(filter.level("link::socket"), Level::Debug);
        assert_eq!(filter.level("opencl::api::kernel"), Level::Trace);
        assert_eq!(filter.level("opencl::core::memory"), Level::Off);
        // Only whole names fit.
        assert_eq!(filter.level("linker"), Level::Warn);
        assert_eq!(filter.most(), Level::Trace);
        assert_eq!(Filter::parse("link=info").unwrap().level("client"), Level::Off);
    }

    #[test]
    fn a_word_that_is_not_understood_is_told_with_what_to_write() {
        for wrong in ["loud", "2", "lnk=debug", "link=loud", "info;debug"] {
            let told = Filter::parse(wrong).unwrap_err().to_string();
            assert!(told.contains(&format!("PENSTOCK_LOG: `{wrong}` is not a level")), "{told}");
            assert!(told.contains("warn") && told.contains("opencl"), "{told}");
        }
    }
}
