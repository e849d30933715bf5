//! Comparisons of figures: ratios and savings with their averages, and the bars.

use serde::Serialize;

use crate::comm::Results;
use crate::plan::{Kind, Path};
use crate::point::Point;

/// Pairs that are compared: a path through the hosts, and a path between devices.
pub const PAIRS: [(Path, Path); 4] = [
    (Path::HostMpi, Path::Device),
    (Path::HostMpiPipelined, Path::Device),
    (Path::HostTcp, Path::Proxy),
    (Path::HostTcpPipelined, Path::Proxy),
];

/// The speed of one path relative to another.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub kind: Kind,
    /// The path whose time is the numerator.
    pub host: Path,
    /// The path whose time is the denominator.
    pub device: Path,
    /// Ratios by message size, or by number of devices for barriers.
    pub each: Vec<Each>,
    /// Arithmetic mean of the ratios.
    pub mean: f64,
    /// Geometric mean of the ratios.
    pub geometric_mean: f64,
    /// Sum of the times of `host` divided by that of `device`.
    pub of_sums: f64,
    /// Savings of energy: 1 minus the ratio of joules.
    pub joules: Option<Saving>,
    /// Savings of core time: 1 minus the ratio of core seconds.
    pub core_seconds: Option<Saving>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Each {
    /// Bytes per message, or number of devices.
    pub at: u64,
    pub ratio: f64,
}

/// Savings, as a fraction of one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Saving {
    /// Mean of the savings by size, which the paper prints.
    pub mean_of_savings: f64,
    /// Saving of the sums.
    pub saving_of_sums: f64,
}

/// Returns the figures that both paths have, in pairs.
fn pairs<'a>(
    results: &'a Results,
    kind: Kind,
    (host, device): (Path, Path),
) -> Vec<(&'a Point, &'a Point)> {
    let of = |path| results.points.iter().filter(move |it| it.kind == kind && it.path == path);
    let beside = |one: &'a Point| Some((results.find(kind, host, one.bytes, one.devices)?, one));
    of(device).filter_map(beside).collect()
}

/// Returns all ratios whose both sides were measured.
#[must_use]
pub fn ratios(results: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for kind in Kind::ALL {
        for pair in PAIRS {
            let both = pairs(results, kind, pair);
            if !both.is_empty() {
                ratios.push(ratio(kind, pair, &both));
            }
        }
    }
    ratios
}

fn ratio(kind: Kind, (host, device): (Path, Path), both: &[(&Point, &Point)]) -> Ratio {
    let at = |point: &Point| if kind == Kind::Barrier { point.devices.into() } else { point.bytes };
    let each: Vec<_> =
        both.iter().map(|(host, one)| Each { at: at(one), ratio: host.us / one.us }).collect();
    let sum = |side: fn(&(&Point, &Point)) -> f64| both.iter().map(side).sum::<f64>();
    let joules = |(host, one): &(&Point, &Point)| {
        let same = host.energy.covered == one.energy.covered;
        host.energy.joules.zip(one.energy.joules).filter(|_| same)
    };
    let cores = |(host, one): &(&Point, &Point)| host.core_us.zip(one.core_us);
    Ratio {
        kind,
        host,
        device,
        mean: mean(each.iter().map(|it| it.ratio)),
        geometric_mean: mean(each.iter().map(|it| it.ratio.ln())).exp(),
        of_sums: sum(|(host, _)| host.us) / sum(|(_, one)| one.us),
        joules: saving(both.iter().map(joules).collect()),
        core_seconds: saving(both.iter().map(cores).collect()),
        each,
    }
}

/// Returns the saving over pairs, or `None` if a value is not known.
fn saving(pairs: Vec<Option<(f64, f64)>>) -> Option<Saving> {
    let pairs: Vec<(f64, f64)> = pairs.into_iter().collect::<Option<_>>()?;
    let (above, below) =
        pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    Some(Saving {
        mean_of_savings: mean(pairs.iter().map(|(host, one)| 1.0 - one / host)),
        saving_of_sums: 1.0 - below / above,
    })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count)
}

/// What a host of two cores should reach, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub what: &'static str,
    /// The bound of the bar.
    pub wanted: f64,
    /// "at least", or "at most".
    pub sense: &'static str,
    /// The measured value; `None` if it was not measured.
    pub found: Option<f64>,
    /// Where the worst value is, if there are several.
    pub at: Option<String>,
    pub met: Option<bool>,
}

const LEAST: &str = "at least";
const MOST: &str = "at most";

/// A worst value, and where it was found.
type Found = Option<(f64, Option<String>)>;

fn bar(what: &'static str, sense: &'static str, wanted: f64, found: Found) -> Bar {
    let (found, at) = found.map_or((None, None), |(value, at)| (Some(value), at));
    let met = found.map(|found| if sense == LEAST { found >= wanted } else { found <= wanted });
    Bar { what, wanted, sense, found, at, met }
}

#[must_use]
pub fn bars(results: &Results) -> Vec<Bar> {
    let of = |kind, host, device, sizes: std::ops::RangeInclusive<u64>| {
        let both = pairs(results, kind, (host, device));
        let each = move |(host, one): (&Point, &Point)| (one.bytes, host.us / one.us);
        both.into_iter()
            .map(each)
            .filter(move |(bytes, _)| sizes.contains(bytes))
            .collect::<Vec<_>>()
    };
    let only = |found: Vec<(u64, f64)>| found.first().map(|it| (it.1, None));
    let to_64k = of(Kind::PingPong, Path::HostMpi, Path::Device, 8..=64 << 10);
    let piped: Vec<_> = [Kind::PingPong, Kind::Bandwidth]
        .into_iter()
        .flat_map(|kind| of(kind, Path::HostMpiPipelined, Path::Device, 0..=u64::MAX))
        .collect();
    let pair = pairs(results, Kind::Barrier, (Path::HostMpi, Path::Device));
    let barrier_2 =
        pair.iter().find(|(_, one)| one.devices == 2).map(|(host, one)| (host.us / one.us, None));
    let barrier_of =
        |devices| results.find(Kind::Barrier, Path::Device, 0, devices).map(|it| (it.us, None));
    let mean_64k = (!to_64k.is_empty()).then(|| (mean(to_64k.iter().map(|it| it.1)), None));
    vec![
        bar(
            "ping-pong of 8 bytes: host path over MPI by device path",
            LEAST,
            20.0,
            only(of(Kind::PingPong, Path::HostMpi, Path::Device, 8..=8)),
        ),
        bar("ping-pong, mean of the ratios from 8 B to 64 KiB", LEAST, 6.96, mean_64k),
        bar(
            "bandwidth by that of the host path over MPI, each size up to 1 MiB",
            LEAST,
            2.42,
            least(&of(Kind::Bandwidth, Path::HostMpi, Path::Device, 0..=1 << 20)),
        ),
        bar(
            "bandwidth by that of memcpy, each size from 16 KiB on",
            LEAST,
            0.5,
            least(&by_memcpy(results)),
        ),
        bar(
            "device path by the pipelined host path over MPI, all sizes",
            LEAST,
            1.0,
            least(&piped),
        ),
        bar("barrier of 2: dummy kernel and MPI_Barrier by device path", LEAST, 20.0, barrier_2),
        bar("barrier of 4, microseconds", MOST, 100.0, barrier_of(4)),
        bar("barrier of 8, microseconds", MOST, 100.0, barrier_of(8)),
        bar(
            "ping-pong of 8 bytes: host path over TCP by proxy over TCP",
            LEAST,
            2.0,
            only(of(Kind::PingPong, Path::HostTcp, Path::Proxy, 8..=8)),
        ),
        bar(
            "a smaller message's time by that of a larger one, all paths",
            MOST,
            UNSTEADY,
            steadiness(results),
        ),
    ]
}

fn by_memcpy(results: &Results) -> Vec<(u64, f64)> {
    let large = results.memcpy.iter().filter(|it| it.bytes >= 16 << 10);
    let beside = |copy: &crate::comm::Memcpy| {
        let point = results.find(Kind::Bandwidth, Path::Device, copy.bytes, 2)?;
        Some((copy.bytes, point.mb_s? / copy.mb_s))
    };
    large.filter_map(beside).collect()
}

/// If a smaller message costs this many times as much as a larger one, other programs used the
/// cores during its measurement.
const UNSTEADY: f64 = 1.5;

/// Returns the worst ratio of a smaller message's time to that of a larger one, over all paths.
fn steadiness(results: &Results) -> Found {
    let moves = || results.points.iter().filter(|it| it.kind != Kind::Barrier);
    let pairs = moves().flat_map(|small| {
        let larger = moves()
            .filter(|it| (it.kind, it.path) == (small.kind, small.path) && it.bytes > small.bytes);
        larger.map(move |large| (small.us / large.us, small, large))
    });
    let (ratio, small, large) = pairs.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let verdict = if ratio > UNSTEADY { "unsteady: " } else { "" };
    let (kind, path) = (small.kind.name(), small.path);
    Some((
        ratio,
        Some(format!("{verdict}{kind}, {path}, {} by {} bytes", small.bytes, large.bytes)),
    ))
}

fn least(found: &[(u64, f64)]) -> Found {
    let worst = found.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((worst.1, Some(format!("{} bytes", worst.0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Energy, Run, Samples};

    fn point(kind: Kind, path: Path, bytes: u64, us: f64) -> Point {
        let run = Run {
            samples: Samples::of(vec![us]),
            count: 1,
            core_seconds: Some(us * 2e-6),
            checked: 0,
        };
        let energy =
            Energy { joules: Some(us), covered: vec!["package-0".to_owned()], ..Energy::default() };
        Point::of(kind, path, bytes, 2, &run, energy)
    }

    fn results() -> Results {
        let mut results = Results::default();
        for (bytes, host, device) in [(8, 10.0, 0.25), (1024, 8.0, 1.0), (1 << 20, 100.0, 50.0)] {
            for kind in [Kind::PingPong, Kind::Bandwidth] {
                results.points.push(point(kind, Path::HostMpi, bytes, host));
                results.points.push(point(kind, Path::Device, bytes, device));
            }
        }
        results
    }

    #[test]
    fn averages_are_what_their_names_say() {
        let ratios = ratios(&results());
        assert_eq!(ratios.len(), 2);
        let ratio = &ratios[0];
        assert_eq!(ratio.each.iter().map(|it| it.ratio).collect::<Vec<_>>(), [40.0, 8.0, 2.0]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(ratio.mean, 50.0 / 3.0) && near(ratio.geometric_mean, 640_f64.cbrt()),
            "{ratio:?}"
        );
        assert!(near(ratio.of_sums, 118.0 / 51.25), "{ratio:?}");
        let saving = ratio.joules.unwrap();
        assert!(near(saving.mean_of_savings, (0.975 + 0.875 + 0.5) / 3.0), "{saving:?}");
        assert!(near(saving.saving_of_sums, 1.0 - 51.25 / 118.0), "{saving:?}");
        assert!(near(ratio.core_seconds.unwrap().saving_of_sums, saving.saving_of_sums));
    }

    #[test]
    fn joules_of_different_coverage_are_not_compared() {
        let mut results = results();
        results.points[0].energy.covered.push("gpu-0".to_owned());
        assert!(ratios(&results)[0].joules.is_none());
        assert!(ratios(&results)[1].joules.is_some());
        results.points[1].energy.joules = None;
        assert!(ratios(&results)[0].joules.is_none());
    }

    #[test]
    fn bars_are_met_missed_or_not_measured() {
        let bars = bars(&results());
        let found = |start: &str| bars.iter().find(|it| it.what.starts_with(start)).unwrap();
        assert_eq!(found("ping-pong of 8 bytes: host path over MPI").met, Some(true));
        let bandwidth = found("bandwidth by that of the host path");
        assert_eq!((bandwidth.met, bandwidth.at.as_deref()), (Some(false), Some("1048576 bytes")));
        assert_eq!(found("barrier of 4").met, None);
        assert_eq!(found("ping-pong, mean").found, Some(24.0));
        // 10 us for 8 bytes, 8 us for 1024.
        let steady = found("a smaller message's");
        assert_eq!((steady.met, steady.found), (Some(true), Some(1.25)));
    }

    #[test]
    fn a_small_message_that_costs_more_than_a_larger_one_is_unsteady() {
        let mut results = results();
        results.points.push(point(Kind::Bandwidth, Path::Device, 64, 90.0));
        let bars = bars(&results);
        let steady = bars.iter().find(|it| it.what.starts_with("a smaller message's")).unwrap();
        assert_eq!((steady.met, steady.found), (Some(false), Some(90.0)));
        assert_eq!(steady.at.as_deref(), Some("unsteady: bandwidth, device, 64 by 1024 bytes"));
        // Measured again: the better result counts.
        results.keep(point(Kind::Bandwidth, Path::Device, 64, 0.5));
        results.keep(point(Kind::Bandwidth, Path::Device, 64, 70.0));
        assert_eq!(super::bars(&results).last().unwrap().met, Some(true));
    }
}
