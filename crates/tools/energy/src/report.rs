//! Figures of a measurement. Each names what it covers. A figure that was not measured has a reason
//! instead of a number.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::component::{Class, Component, Method, Source};
use crate::cores::CoreSeconds;
use crate::model::{ModelFigures, PowerModel};
use crate::reason::Reason;
use crate::sources::ChannelInfo;
use crate::span::Span;
use crate::tally::Taken;

/// Minimum duration of a measurement in seconds.
const SECONDS_MIN: f64 = 2.0;
/// Minimum duration in steps of the counter, so that a step is at most 1 % of the measurement.
const STEPS_MIN: f64 = 100.0;
/// Two sources of a component that differ by more than this fraction get a note. Good ones have
/// been seen within 1 %.
const DIFFERENCE_MAX: f64 = 0.05;
/// Relative change of idle power that makes net figures doubtful.
const IDLE_CHANGE_MAX: f64 = 0.1;

/// Result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Sum of the measured components, and the components that it covers.
    pub total: Total,
    /// A figure for each channel, in the order of [`crate::Meter::channels`].
    pub figures: Vec<Figure>,
    /// Core-seconds, which are always measured.
    pub core_seconds: CoreSeconds,
    /// How long idle power was measured.
    pub idle: Idle,
    /// Comparisons of components that two channels measured.
    pub checks: Vec<Check>,
    /// Figures of the model, if there is one.
    pub model: Option<ModelFigures>,
    /// Notes for the reader about the measurement.
    pub notes: Vec<String>,
}

/// Result of one channel.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the measured component.
    pub component: String,
    pub class: Class,
    pub source: Source,
    pub method: Method,
    /// The file, event or function.
    pub detail: String,
    /// Whether the total includes this figure.
    pub in_total: bool,
    /// Seconds from the first to the last reading.
    pub seconds: Option<f64>,
    pub joules: Option<f64>,
    /// Joules minus those of idle power for the same time. May be negative.
    pub net_joules: Option<f64>,
    pub mean_watts: Option<f64>,
    /// Smallest power of a sample.
    pub min_watts: Option<f64>,
    /// Largest power of a sample.
    pub max_watts: Option<f64>,
    /// Mean power in both idle times together, on which `net_joules` is based.
    pub idle_watts: Option<f64>,
    /// Mean power in the idle time before the measurement.
    pub idle_before_watts: Option<f64>,
    /// Mean power in the idle time after the measurement.
    pub idle_after_watts: Option<f64>,
    /// Number of times that the channel was read.
    pub readings: u64,
    /// Seconds between two changes of the source's value.
    pub step_s: f64,
    /// Reason why there is no figure.
    pub unavailable: Option<Reason>,
    /// Reason why there is a figure but no net figure.
    pub net_unavailable: Option<Reason>,
    /// Notes for the reader about this figure.
    pub notes: Vec<String>,
}

/// Sum over packages, memory and accelerators, with one figure each, of the most trusted source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Total {
    /// Joules of the covered components.
    pub joules: Option<f64>,
    /// Joules minus those of the same components' idle power.
    pub net_joules: Option<f64>,
    pub mean_watts: Option<f64>,
    pub idle_watts: Option<f64>,
    /// Components in the sum. Two totals are only comparable if these are the same.
    pub covered: Vec<String>,
    /// Components that are not in the sum, with reasons.
    pub missing: Vec<Missing>,
    /// Reason why there is no total.
    pub unavailable: Option<String>,
    /// Reason why there is a total but no net total.
    pub net_unavailable: Option<String>,
}

/// A component that the total lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub component: String,
    /// For each source that could have measured the component, the reason why it did not.
    pub reasons: Vec<String>,
}

/// How long idle power was measured, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Idle {
    pub before_s: Option<f64>,
    pub after_s: Option<f64>,
}

/// Comparison of two channels that measured the same component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub component: String,
    /// The channel in the total.
    pub used: String,
    pub other: String,
    /// Relative difference: (other - used) / used.
    pub difference: f64,
}

/// Makes the report of a measurement.
pub(crate) fn make(
    infos: &[ChannelInfo],
    before: Option<&Span>,
    span: &Span,
    after: Option<&Span>,
    model: Option<&PowerModel>,
) -> Report {
    let idle_of = |idle: Option<&Span>, index: usize| {
        idle.and_then(|idle| idle.taken.get(index).cloned()).and_then(Result::ok)
    };
    let mut figures: Vec<Figure> = infos
        .iter()
        .zip(&span.taken)
        .enumerate()
        .map(|(index, (info, taken))| {
            figure(info, taken, &[idle_of(before, index), idle_of(after, index)])
        })
        .collect();
    let total = total(infos, &mut figures);
    let checks = checks(&figures);
    let notes = notes(&figures, &checks);
    Report {
        seconds: span.seconds,
        total,
        core_seconds: span.cores.clone(),
        idle: Idle { before_s: before.map(|it| it.seconds), after_s: after.map(|it| it.seconds) },
        checks,
        model: model.map(|model| model.figures(span.seconds, &span.cores)),
        notes,
        figures,
    }
}

fn figure(info: &ChannelInfo, taken: &Result<Taken, Reason>, idle: &[Option<Taken>; 2]) -> Figure {
    let [before, after] = idle.each_ref().map(|it| it.as_ref().and_then(watts));
    let idle_watts = mean_of(idle);
    let known = taken.as_ref().ok();
    let net = known.zip(idle_watts).map(|(taken, idle)| taken.joules - idle * taken.seconds);
    let net_unavailable = known
        .filter(|_| net.is_none())
        .map(|_| Reason::NotMeasured("idle power was not measured before or after"));
    Figure {
        component: info.component.name.clone(),
        class: info.component.class,
        source: info.source,
        method: info.method,
        detail: info.detail.clone(),
        in_total: false,
        seconds: known.map(|it| it.seconds),
        joules: known.map(|it| it.joules),
        net_joules: net,
        mean_watts: known.and_then(watts),
        min_watts: known.and_then(|it| it.watts).map(|(least, _)| least),
        max_watts: known.and_then(|it| it.watts).map(|(_, most)| most),
        idle_watts,
        idle_before_watts: before,
        idle_after_watts: after,
        readings: known.map_or(0, |it| it.readings),
        step_s: info.step.as_secs_f64(),
        unavailable: taken.as_ref().err().cloned(),
        net_unavailable,
        notes: known.map(|taken| notes_of(info, taken)).unwrap_or_default(),
    }
}

fn watts(taken: &Taken) -> Option<f64> {
    (taken.seconds > 0.0).then(|| taken.joules / taken.seconds)
}

/// Returns the mean power of both idle times, weighted by their lengths.
fn mean_of(idle: &[Option<Taken>; 2]) -> Option<f64> {
    let known = || idle.iter().flatten();
    let seconds: f64 = known().map(|it| it.seconds).sum();
    (seconds > 0.0).then(|| known().map(|it| it.joules).sum::<f64>() / seconds)
}

fn notes_of(info: &ChannelInfo, taken: &Taken) -> Vec<String> {
    let mut notes = Vec::new();
    let step = info.step.as_secs_f64();
    let wanted = SECONDS_MIN.max(STEPS_MIN * step);
    if taken.seconds < wanted {
        let part = if taken.seconds > 0.0 { step / taken.seconds * 100.0 } else { 100.0 };
        notes.push(format!(
            "{:.3} s is short: its value changes every {:.0} ms or so, which is {part:.1} % of it; measure {wanted:.0} s or more",
            taken.seconds,
            step * 1e3
        ));
    }
    if taken.may_lack_wraps {
        notes.push(
            "the counter may have wrapped unseen between two readings: joules may be missing"
                .to_owned(),
        );
    }
    notes
}

/// Adds up one figure of each component, and marks these figures.
fn total(infos: &[ChannelInfo], figures: &mut [Figure]) -> Total {
    let mut covered = BTreeSet::new();
    let mut total = Total::default();
    let (mut joules, mut net, mut mean, mut idle) = (0.0, Some(0.0), Some(0.0), Some(0.0));
    // The first figure of a component is that of the most trusted source.
    for (info, figure) in infos.iter().zip(figures.iter_mut()) {
        let Some(one) = figure.joules.filter(|_| info.component.class.is_in_total()) else {
            continue;
        };
        if !covered.insert(info.component.clone()) {
            continue;
        }
        figure.in_total = true;
        joules += one;
        net = net.zip(figure.net_joules).map(|(sum, one)| sum + one);
        mean = mean.zip(figure.mean_watts).map(|(sum, one)| sum + one);
        idle = idle.zip(figure.idle_watts).map(|(sum, one)| sum + one);
        total.covered.push(figure.component.clone());
    }
    total.missing = missing(infos, figures);
    if covered.is_empty() {
        let sources: BTreeSet<&str> = infos.iter().map(|info| info.source.name()).collect();
        let sources = sources.into_iter().collect::<Vec<_>>().join(", ");
        total.unavailable =
            Some(format!("none of the sources {sources} can be read here; each says why"));
        return total;
    }
    total.joules = Some(joules);
    total.net_joules = net;
    total.mean_watts = mean;
    total.idle_watts = idle;
    if net.is_none() {
        total.net_unavailable =
            Some("idle power was not measured for all covered components".to_owned());
    }
    total
}

/// Returns the components that no source measured. If a class has no named component, the class
/// stands for them.
fn missing(infos: &[ChannelInfo], figures: &[Figure]) -> Vec<Missing> {
    let rows = || infos.iter().zip(figures).filter(|(info, _)| info.component.class.is_in_total());
    let has_figure = |component: &Component| {
        rows().any(|(info, figure)| info.component == *component && figure.joules.is_some())
    };
    let mut missing: Vec<(&Component, Vec<String>)> = Vec::new();
    let mut add =
        |component, reason: String| match missing.iter_mut().find(|(it, _)| *it == component) {
            Some((_, reasons)) if reasons.contains(&reason) => {}
            Some((_, reasons)) => reasons.push(reason),
            None => missing.push((component, vec![reason])),
        };
    for (info, figure) in rows() {
        let Some(reason) = &figure.unavailable else { continue };
        let reason = format!("{}: {reason}", info.source);
        let component = &info.component;
        if !component.is_all() {
            if !has_figure(component) {
                add(component, reason);
            }
            continue;
        }
        // A missing source could have measured each component that other sources name.
        let is_named =
            |it: &&ChannelInfo| it.component.class == component.class && !it.component.is_all();
        let mut named = infos.iter().filter(is_named).map(|it| &it.component).peekable();
        if named.peek().is_none() {
            add(component, reason);
        } else {
            named.filter(|component| !has_figure(component)).for_each(|it| add(it, reason.clone()));
        }
    }
    let named = |(component, reasons): (&Component, Vec<String>)| Missing {
        component: component.name.clone(),
        reasons,
    };
    missing.into_iter().map(named).collect()
}

fn checks(figures: &[Figure]) -> Vec<Check> {
    let mut checks = Vec::new();
    for used in figures.iter().filter(|it| it.in_total) {
        for other in figures.iter().filter(|it| !it.in_total && it.component == used.component) {
            let (Some(a), Some(b)) = (used.joules.filter(|&joules| joules > 0.0), other.joules)
            else {
                continue;
            };
            checks.push(Check {
                component: used.component.clone(),
                used: channel(used),
                other: channel(other),
                difference: (b - a) / a,
            });
        }
    }
    checks
}

fn channel(figure: &Figure) -> String {
    format!("{} {}", figure.source, figure.method.name())
}

fn notes(figures: &[Figure], checks: &[Check]) -> Vec<String> {
    let mut notes = Vec::new();
    for check in checks.iter().filter(|check| check.difference.abs() > DIFFERENCE_MAX) {
        notes.push(format!(
            "{}: {} differs by {:+.1} % from {}; find out why before you trust either",
            check.component,
            check.other,
            check.difference * 100.0,
            check.used
        ));
    }
    for figure in figures.iter().filter(|it| it.in_total) {
        let (Some(before), Some(after)) = (figure.idle_before_watts, figure.idle_after_watts)
        else {
            continue;
        };
        if (after - before).abs() > IDLE_CHANGE_MAX * before.min(after) {
            notes.push(format!(
                "{}: idle power was {before:.2} W before and {after:.2} W after: the net figure is rough",
                figure.component
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn info(class: Class, name: &str, source: Source, method: Method) -> ChannelInfo {
        let step = Duration::from_millis(1);
        ChannelInfo {
            component: Component::new(class, name),
            source,
            method,
            detail: "x".to_owned(),
            step,
        }
    }

    fn taken(joules: f64, seconds: f64) -> Result<Taken, Reason> {
        Ok(Taken { joules, seconds, readings: 2, watts: None, may_lack_wraps: false })
    }

    fn span(seconds: f64, taken: Vec<Result<Taken, Reason>>) -> Span {
        Span { seconds, taken, cores: CoreSeconds::default() }
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn net_is_without_the_idle_power_of_both_times() {
        let infos = [
            info(Class::Package, "package-0", Source::Powercap, Method::Counter),
            info(Class::Gpu, "gpu-0", Source::Nvml, Method::Counter),
        ];
        let before = span(5.0, vec![taken(50.0, 5.0), taken(100.0, 5.0)]);
        let run = span(10.0, vec![taken(500.0, 10.0), taken(3000.0, 10.0)]);
        // The card is still warm, and was watched twice as long.
        let after = span(10.0, vec![taken(100.0, 10.0), taken(500.0, 10.0)]);
        let report = make(&infos, Some(&before), &run, Some(&after), None);
        let gpu = &report.figures[1];
        assert!(
            near(gpu.idle_before_watts, 20.0)
                && near(gpu.idle_after_watts, 50.0)
                && near(gpu.idle_watts, 40.0)
        );
        assert!(near(gpu.net_joules, 2600.0), "{gpu:?}");
        assert!(
            near(report.total.joules, 3500.0) && near(report.total.net_joules, 3000.0),
            "{:?}",
            report.total
        );
        assert!(near(report.total.mean_watts, 350.0) && near(report.total.idle_watts, 50.0));
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
        assert!(
            report.notes[0].starts_with("gpu-0: idle power was 20.00 W before and 50.00 W after")
        );
    }

    #[test]
    fn without_idle_times_there_is_no_net_figure_but_a_reason() {
        let infos = [info(Class::Package, "package-0", Source::Perf, Method::Counter)];
        let report = make(&infos, None, &span(10.0, vec![taken(5.0, 10.0)]), None, None);
        assert_eq!((report.total.net_joules, report.figures[0].net_joules), (None, None));
        assert!(
            report.total.net_unavailable.is_some() && report.figures[0].net_unavailable.is_some()
        );
    }

    #[test]
    fn where_the_trusted_source_fails_the_next_is_used_and_parts_are_not_added() {
        let infos = [
            info(Class::Gpu, "gpu-0", Source::Nvml, Method::Counter),
            info(Class::Gpu, "gpu-0", Source::Nvml, Method::Samples),
            info(Class::Package, "package-0", Source::Powercap, Method::Counter),
            info(Class::Cores, "cores-0", Source::Powercap, Method::Counter),
            info(Class::Platform, "psys", Source::Powercap, Method::Counter),
            info(Class::Dram, "dram-0", Source::Powercap, Method::Counter),
        ];
        let lost = || Err(Reason::NoDevice("x"));
        let run = span(
            10.0,
            vec![
                lost(),
                taken(7.0, 10.0),
                taken(2.0, 10.0),
                taken(1.0, 10.0),
                taken(99.0, 10.0),
                lost(),
            ],
        );
        let report = make(&infos, None, &run, None, None);
        assert!(near(report.total.joules, 9.0), "{:?}", report.total);
        assert_eq!(report.total.covered, ["gpu-0", "package-0"]);
        let reasons = vec!["powercap: x has no devices".to_owned()];
        assert_eq!(report.total.missing, [Missing { component: "dram-0".to_owned(), reasons }]);
    }

    #[test]
    fn a_source_that_is_missing_as_a_whole_is_a_reason_for_each_component_that_lacks_a_figure() {
        let infos = [
            info(Class::Dram, "dram-0", Source::Powercap, Method::Counter),
            info(Class::Dram, "dram-1", Source::Powercap, Method::Counter),
            info(Class::Dram, "dram", Source::Perf, Method::Counter),
            info(Class::Gpu, "gpu", Source::Nvml, Method::Counter),
        ];
        let lost = |what| Err(Reason::NoDevice(what));
        let run = span(10.0, vec![taken(1.0, 10.0), lost("a"), lost("b"), lost("c")]);
        let missing = make(&infos, None, &run, None, None).total.missing;
        let told: Vec<_> =
            missing.iter().map(|it| (it.component.as_str(), it.reasons.join("; "))).collect();
        let dram = "powercap: a has no devices; perf: b has no devices".to_owned();
        assert_eq!(told, [("dram-1", dram), ("gpu", "nvml: c has no devices".to_owned())]);
    }

    #[test]
    fn a_short_measurement_says_so() {
        let infos = [info(Class::Package, "package-0", Source::Perf, Method::Counter)];
        let notes = |seconds| {
            let report = make(&infos, None, &span(seconds, vec![taken(5.0, seconds)]), None, None);
            report.figures[0].notes.clone()
        };
        assert!(notes(0.05)[0].contains("2.0 % of it; measure 2 s or more"), "{:?}", notes(0.05));
        assert!(notes(2.0).is_empty());
    }
}
