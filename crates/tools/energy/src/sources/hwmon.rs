//! Sensors of drivers in `/sys/class/hwmon`: energy counters (`energy*_input`, in µJ) and power
//! (`power*_average` or `power*_input`, in µW).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::channel::{ChannelInfo, FoundChannel, Scale};
use super::kernel_file::{self, NumberFile, text_if_any};
use crate::component::{Class, Component, Method, Source};
use crate::options::Options;
use crate::reason::Reason;

/// Maximum number of sensors: a few for each of 16 cards and 16 power supplies.
const SENSORS_MAX: usize = 128;
/// The kernel's unit of energy and power: millionths.
const MICRO: f64 = 1e-6;
/// Assumed time between changes of a value: drivers commonly read their chip ten times a second.
const STEP: Duration = Duration::from_millis(100);
/// Version of the structure in `gpu_metrics` for cards. Higher versions are for graphics units
/// inside a processor.
const METRICS_OF_CARDS: u8 = 1;
/// Offset of the version in that structure. A size of two bytes comes first.
const METRICS_VERSION_AT: usize = 2;

/// Directory of a driver.
struct Chip {
    directory: PathBuf,
    /// The name that the driver gives itself.
    name: String,
    /// Name of the device that the directory belongs to. For a card, this is its PCI address.
    device: String,
}

/// Finds all sensors, up to [`SENSORS_MAX`].
pub(super) fn find(options: &Options) -> Vec<FoundChannel> {
    let directory = options.roots.sysfs.join("class/hwmon");
    let chips = match kernel_file::names(&directory) {
        Ok(names) => names,
        Err(reason) => return vec![nothing(reason)],
    };
    let mut found: Vec<_> =
        chips.iter().flat_map(|name| Chip::open(directory.join(name)).sensors()).collect();
    if found.is_empty() {
        let part = "sensor of energy or power".to_owned();
        return vec![nothing(Reason::NoDomain { whole: directory.display().to_string(), part })];
    }
    if found.len() > SENSORS_MAX {
        found.truncate(SENSORS_MAX);
        found.push(nothing(Reason::TooMany(SENSORS_MAX)));
    }
    found
}

fn nothing(reason: Reason) -> FoundChannel {
    let info = ChannelInfo {
        component: Component::all(Class::Sensor),
        source: Source::Hwmon,
        method: Method::Samples,
        detail: "hwmon".to_owned(),
        step: STEP,
    };
    FoundChannel { info, state: Err(reason) }
}

impl Chip {
    fn open(directory: PathBuf) -> Self {
        let name = text_if_any(&directory.join("name")).unwrap_or_else(|| "nameless".to_owned());
        let device =
            fs::canonicalize(directory.join("device")).unwrap_or_else(|_| directory.clone());
        let device =
            device.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        Self { directory, name, device }
    }

    fn sensors(&self) -> Vec<FoundChannel> {
        let names = kernel_file::names(&self.directory).unwrap_or_default();
        let mut found = Vec::new();
        for file in &names {
            if let Some(number) = between(file, "energy", "_input") {
                found.extend(self.counter(file, number));
            }
            // The driver's average misses no peak, so it is preferred to the momentary value.
            let average = |number: &str| names.contains(&format!("power{number}_average"));
            if let Some(number) = between(file, "power", "_average") {
                found.push(self.power(file, number));
            } else if let Some(number) =
                between(file, "power", "_input").filter(|number| !average(number))
            {
                found.push(self.power(file, number));
            }
        }
        found
    }

    fn counter(&self, file: &str, number: &str) -> Option<FoundChannel> {
        let label = text_if_any(&self.directory.join(format!("energy{number}_label")));
        let label = label.as_deref();
        let component = match (self.name.as_str(), label) {
            // There is one for each core, up to hundreds, and the socket's figure includes them.
            ("amd_energy", Some(label)) if label.starts_with("Ecore") => return None,
            ("amd_energy", Some(label)) if label.starts_with("Esocket") => Component::new(
                Class::Package,
                format!("package-{}", label.trim_start_matches("Esocket")),
            ),
            // For Intel's drivers, only cards have these files.
            ("i915" | "xe", None | Some("card")) => self.card(),
            ("xe", Some(label)) => {
                Component::new(Class::GpuPart, format!("gpu {} {label}", self.device))
            }
            (name, _) if name.starts_with("i915_") => {
                Component::new(Class::GpuPart, format!("gpu {} {name}", self.device))
            }
            _ => self.unknown(file, label),
        };
        let scale = Scale { per_unit: MICRO, wraps_after: None };
        Some(self.row(component, Method::Counter, file, label, scale))
    }

    fn power(&self, file: &str, number: &str) -> FoundChannel {
        let label = text_if_any(&self.directory.join(format!("power{number}_label")))
            .or_else(|| text_if_any(&self.directory.join(format!("power{number}_oem_info"))));
        let component = match self.name.as_str() {
            "amdgpu" if number == "1" && self.is_card() => self.card(),
            "power_meter" => {
                Component::new(Class::Platform, format!("{} {}", self.device, place(file)))
            }
            _ => self.unknown(file, label.as_deref()),
        };
        let scale = Scale { per_unit: MICRO, wraps_after: None };
        self.row(component, Method::Samples, file, label.as_deref(), scale)
    }

    fn card(&self) -> Component {
        Component::new(Class::Gpu, format!("gpu {}", self.device))
    }

    fn unknown(&self, file: &str, label: Option<&str>) -> Component {
        let which = label.unwrap_or_else(|| place(file));
        Component::new(Class::Sensor, format!("{} {} {which}", self.name, self.device))
    }

    /// Whether the sensor is that of a card. The one of a graphics unit inside a processor covers
    /// the whole processor, which RAPL counts too.
    fn is_card(&self) -> bool {
        let metrics = fs::read(self.directory.join("device/gpu_metrics")).unwrap_or_default();
        metrics.get(METRICS_VERSION_AT) == Some(&METRICS_OF_CARDS)
    }

    fn row(
        &self,
        component: Component,
        method: Method,
        file: &str,
        label: Option<&str>,
        scale: Scale,
    ) -> FoundChannel {
        let label = label.map(|label| format!(" ({label})")).unwrap_or_default();
        let detail = format!("{}/{file}{label}", self.name);
        FoundChannel {
            info: ChannelInfo { component, source: Source::Hwmon, method, detail, step: STEP },
            state: NumberFile::channel(self.directory.join(file), scale),
        }
    }
}

/// Returns `power1` for `power1_average`.
fn place(file: &str) -> &str {
    file.split('_').next().unwrap_or(file)
}

/// Returns the number in `energy1_input`.
fn between<'a>(file: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let number = file.strip_prefix(before)?.strip_suffix(after)?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sensors_themselves_are_taken() {
        assert_eq!(between("power12_average", "power", "_average"), Some("12"));
        for file in ["power1_average_interval", "power_average", "power1_cap", "powerx_average"] {
            assert_eq!(between(file, "power", "_average"), None, "{file}");
        }
    }
}
