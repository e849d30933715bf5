//! RAPL through `/sys/class/powercap/intel-rapl:*`, which is also the name for AMD's.

use std::path::Path;

use super::channel::{ChannelInfo, FoundChannel, LiveChannel, RAPL_STEP, Scale};
use super::kernel_file::{NumberFile, names, number, text};
use crate::component::{Class, Component, Method, Source};
use crate::options::Options;
use crate::reason::Reason;

/// Prefix of RAPL's zones. Zones that begin with `intel-rapl-mmio` are the same counters again.
const PREFIX: &str = "intel-rapl:";
/// Prefix of the names of packages.
const PACKAGE: &str = "package-";

/// Finds all zones, and reports missing domains.
pub(super) fn find(options: &Options) -> Vec<FoundChannel> {
    let directory = options.roots.sysfs.join("class/powercap");
    let zones: Vec<String> = match names(&directory) {
        Ok(names) => names.into_iter().filter(|name| name.starts_with(PREFIX)).collect(),
        Err(reason) => return missing(&reason),
    };
    if zones.is_empty() {
        let whole = directory.display().to_string();
        return missing(&Reason::NoDomain { whole, part: format!("zone {PREFIX}*") });
    }
    let mut found = Vec::new();
    for zone in zones.iter().filter(|zone| !is_part(zone)) {
        let name = match text(&directory.join(zone).join("name")) {
            Ok(name) => name,
            Err(reason) => {
                found.push(row(Component::new(Class::Package, zone.as_str()), zone, Err(reason)));
                continue;
            }
        };
        let class = if name == "psys" { Class::Platform } else { Class::Package };
        found.push(counter(&directory, zone, Component::new(class, name.as_str())));
        let parts: Vec<_> = zones.iter().filter(|part| is_part_of(part, zone)).collect();
        let domains: Vec<_> =
            parts.iter().filter_map(|part| domain(&directory, part, &name)).collect();
        let has_dram = domains.iter().any(|it| it.info.component.class == Class::Dram);
        found.extend(domains);
        if class == Class::Package && !has_dram {
            let reason = Reason::NoDomain { whole: name.clone(), part: "domain dram".to_owned() };
            found.push(row(of_package(Class::Dram, &name), zone, Err(reason)));
        }
    }
    found
}

/// Returns a part of a package. All sources use the same names for the parts.
pub(super) fn of_package(class: Class, package: &str) -> Component {
    Component::new(
        class,
        format!("{}-{}", class.name(), package.strip_prefix(PACKAGE).unwrap_or(package)),
    )
}

fn missing(reason: &Reason) -> Vec<FoundChannel> {
    [Class::Package, Class::Dram]
        .map(|class| row(Component::all(class), "powercap", Err(reason.clone())))
        .into()
}

/// Whether a zone, such as `intel-rapl:0:1`, is part of another zone.
fn is_part(zone: &str) -> bool {
    zone.strip_prefix(PREFIX).is_some_and(|rest| rest.contains(':'))
}

fn is_part_of(zone: &str, whole: &str) -> bool {
    zone.strip_prefix(whole).is_some_and(|rest| rest.starts_with(':'))
}

/// Returns a domain of a package. A domain with an unknown name is left out, because it is not
/// known what it covers.
fn domain(directory: &Path, zone: &str, package: &str) -> Option<FoundChannel> {
    let class = match text(&directory.join(zone).join("name")).ok()?.as_str() {
        "core" => Class::Cores,
        "uncore" => Class::Uncore,
        "dram" => Class::Dram,
        _ => return None,
    };
    Some(counter(directory, zone, of_package(class, package)))
}

fn counter(directory: &Path, zone: &str, component: Component) -> FoundChannel {
    let zone_directory = directory.join(zone);
    let range = zone_directory.join("max_energy_range_uj");
    let wraps_after =
        text(&range).and_then(|text| number(&range, &text)).ok().filter(|&range| range > 0);
    let scale = Scale { per_unit: 1e-6, wraps_after };
    let state = NumberFile::channel(zone_directory.join("energy_uj"), scale);
    row(component, zone, state)
}

fn row(component: Component, zone: &str, state: Result<LiveChannel, Reason>) -> FoundChannel {
    let detail = zone.to_owned();
    let info = ChannelInfo {
        component,
        source: Source::Powercap,
        method: Method::Counter,
        detail,
        step: RAPL_STEP,
    };
    FoundChannel { info, state }
}
