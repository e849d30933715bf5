//! A chart like that of the paper: per measurement, performance as dotted lines and cost as solid
//! lines.

use std::fmt::Write as _;
use std::ops::Range;

use crate::comm::Results;
use crate::plan::{Kind, Path};
use crate::point::Point;

/// Width and height of a panel in pixels.
const PANEL: (f64, f64) = (420.0, 300.0);
const MARGIN: Margin = Margin { left: 70.0, top: 50.0, right: 70.0, bottom: 60.0 };
/// Height of the legend below the panels.
const LEGEND: f64 = 60.0;

/// The margins around a panel for scales and labels, in pixels.
struct Margin {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// Colours of the paths. The device path and the paths that it is compared with differ clearly,
/// also for people who cannot tell red from green.
fn colour(path: Path) -> &'static str {
    match path {
        Path::Device => "#0b6e4f",
        Path::Proxy => "#5dbb63",
        Path::HostMpi => "#c1121f",
        Path::HostMpiPipelined => "#f28482",
        Path::HostTcp => "#3a3a8c",
        Path::HostTcpPipelined => "#8d8de0",
    }
}

/// A logarithmic scale, in whole steps of `base`.
#[derive(Clone, Copy, Debug)]
struct Scale {
    low: f64,
    high: f64,
    base: f64,
}

impl Scale {
    /// Returns the scale that covers these values.
    fn of(values: impl Iterator<Item = f64>, base: f64) -> Option<Self> {
        let values =
            values.filter(|value| value.is_finite() && *value > 0.0).map(|it| it.log(base));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value.floor()), high.max(value.ceil()))
        });
        (low <= high).then_some(Self { low, high: high.max(low + 1.0), base })
    }

    /// Returns the position of `value`, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        ((value.log(self.base) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the values at the scale's steps.
    fn steps(self) -> Vec<f64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some tens of steps"
        )]
        let count = (self.high - self.low).round() as u32;
        // At most as many as fit.
        let each = count.div_ceil(12).max(1);
        (0..=count)
            .step_by(each as usize)
            .map(|step| self.base.powf(self.low + f64::from(step)))
            .collect()
    }
}

struct Panel<'a> {
    kind: Kind,
    points: Vec<&'a Point>,
    word: u64,
}

impl Panel<'_> {
    fn title(&self) -> &'static str {
        match self.kind {
            Kind::Bandwidth => "Bandwidth",
            Kind::PingPong => "Ping-pong",
            Kind::Barrier => "Barrier",
        }
    }

    fn at(&self, point: &Point) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a size of a message")]
        let bytes = point.bytes as f64;
        if self.kind == Kind::Barrier { point.devices.into() } else { bytes }
    }

    fn performance(&self, point: &Point) -> f64 {
        point.mb_s.filter(|_| self.kind == Kind::Bandwidth).unwrap_or(point.us)
    }

    fn performance_name(&self) -> &'static str {
        match self.kind {
            Kind::Bandwidth => "MB/s (dotted)",
            Kind::PingPong => "half round trip, us (dotted)",
            Kind::Barrier => "us (dotted)",
        }
    }

    /// Whether all points have joules. Otherwise the panel shows core time instead.
    fn has_joules(&self) -> bool {
        self.points.iter().all(|point| point.energy.joules.is_some())
    }

    fn cost(&self, point: &Point) -> f64 {
        let words = crate::point::parts(self.kind, point.bytes, self.word, 1);
        let cores = point.core_us.map(|us| us / words);
        point.energy.joules.filter(|_| self.has_joules()).or(cores).unwrap_or(f64::NAN)
    }

    fn cost_name(&self) -> String {
        let of = if self.kind == Kind::Barrier {
            "barrier".to_owned()
        } else {
            format!("word of {} B", self.word)
        };
        let what = if self.has_joules() { "joules" } else { "core-us" };
        format!("{what} per {of} (solid)")
    }
}

/// Returns the chart as SVG.
#[must_use]
pub fn svg(results: &Results, word: u64) -> String {
    let panel = |kind| {
        let points: Vec<_> = results.points.iter().filter(|it| it.kind == kind).collect();
        (!points.is_empty()).then_some(Panel { kind, points, word })
    };
    let panels: Vec<_> =
        [Kind::Bandwidth, Kind::PingPong, Kind::Barrier].into_iter().filter_map(panel).collect();
    let Margin { left, top, right, bottom } = MARGIN;
    let each = left + PANEL.0 + right;
    let width = each * f64::from(u32::try_from(panels.len()).unwrap_or(1)).max(1.0);
    let height = top + PANEL.1 + bottom + LEGEND;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (index, panel) in (0_u32..).zip(&panels) {
        draw(&mut text, panel, f64::from(index) * each + left, top);
    }
    legend(&mut text, results, top + PANEL.1 + bottom);
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, panel: &Panel<'_>, left: f64, top: f64) {
    let (width, height) = PANEL;
    let base = 2.0;
    let scales = (
        Scale::of(panel.points.iter().map(|point| panel.at(point)), base),
        Scale::of(panel.points.iter().map(|point| panel.performance(point)), 10.0),
        Scale::of(panel.points.iter().map(|point| panel.cost(point)), 10.0),
    );
    let (Some(along), Some(performance)) = (scales.0, scales.1) else { return };
    let x = |value: f64| left + along.place(value) * width;
    let y = |scale: Scale, value: f64| top + height - scale.place(value) * height;
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" font-size=\"14\" text-anchor=\"middle\">{}</text>",
        left + width / 2.0,
        top - 28.0,
        panel.title()
    );
    _ = writeln!(
        text,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#888\"/>"
    );
    for step in along.steps() {
        let label = if panel.kind == Kind::Barrier { format!("{step}") } else { size(step) };
        let (at, below) = (x(step), top + height + 14.0);
        _ = writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let along_name = if panel.kind == Kind::Barrier { "devices" } else { "bytes" };
    _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{along_name}</text>",
        left + width / 2.0,
        top + height + 32.0
    );
    let right = left + width;
    if let Some(cost) = scales.2 {
        let name = &panel.cost_name();
        draw_axis(
            text,
            cost,
            &Axis { at: left - 6.0, lines: left..right, top, anchor: "end", name },
        );
    }
    let name = panel.performance_name();
    let axis = Axis { at: right + 6.0, lines: right..right, top, anchor: "start", name };
    draw_axis(text, performance, &axis);
    for path in Path::ALL {
        let of: Vec<_> = panel.points.iter().filter(|point| point.path == path).collect();
        let line = |scale: Scale, value: &dyn Fn(&Point) -> f64| {
            of.iter()
                .filter(|point| value(point).is_finite() && value(point) > 0.0)
                .map(|point| format!("{:.1},{:.1}", x(panel.at(point)), y(scale, value(point))))
                .collect::<Vec<_>>()
                .join(" ")
        };
        if of.is_empty() {
            continue;
        }
        let dotted = line(performance, &|point| panel.performance(point));
        stroke(text, path, &dotted, " stroke-dasharray=\"2 4\"");
        if let Some(cost) = scales.2 {
            stroke(text, path, &line(cost, &|point| panel.cost(point)), "");
        }
    }
}

fn stroke(text: &mut String, path: Path, points: &str, dash: &str) {
    let colour = colour(path);
    _ = writeln!(
        text,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}><title>{path}</title></polyline>"
    );
}

/// A vertical axis of a panel.
struct Axis<'a> {
    /// X coordinate of the labels.
    at: f64,
    /// X coordinates of the ends of the lines at the steps. Equal coordinates mean no lines.
    lines: Range<f64>,
    /// Y coordinate of the upper end.
    top: f64,
    anchor: &'a str,
    name: &'a str,
}

fn draw_axis(text: &mut String, scale: Scale, axis: &Axis<'_>) {
    let Axis { at, lines: Range { start: from, end: to }, top, anchor, name } = axis;
    for step in scale.steps() {
        let y = top + PANEL.1 - scale.place(step) * PANEL.1;
        let label = number(step);
        _ = writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            y + 4.0
        );
        if from < to {
            _ = writeln!(
                text,
                "<line x1=\"{from}\" x2=\"{to}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
        }
    }
    _ = writeln!(
        text,
        "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{name}</text>",
        top - 10.0,
        if *anchor == "end" { "start" } else { "end" }
    );
}

fn legend(text: &mut String, results: &Results, top: f64) {
    let shown =
        Path::ALL.into_iter().filter(|path| results.points.iter().any(|point| point.path == *path));
    for (index, path) in (0_u32..).zip(shown) {
        let left = 40.0 + f64::from(index) * 170.0;
        let y = top + 20.0;
        _ = writeln!(
            text,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{path}</text>",
            left + 24.0,
            colour(path),
            left + 30.0,
            y + 4.0
        );
    }
}

fn number(value: f64) -> String {
    if (0.01..1e5).contains(&value) { format!("{value}") } else { format!("{value:.0e}") }
}

fn size(bytes: f64) -> String {
    const UNITS: [(&str, f64); 2] = [("Mi", 1_048_576.0), ("Ki", 1024.0)];
    let unit = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes}"), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Energy, Run, Samples};

    fn results(joules: Option<f64>) -> Results {
        let mut results = Results::default();
        for bytes in [8, 1024, 1 << 20] {
            for path in [Path::Device, Path::HostMpi] {
                let run = Run {
                    samples: Samples::of(vec![3.0]),
                    count: 1,
                    core_seconds: Some(1e-6),
                    checked: 0,
                };
                let energy = Energy { joules, ..Energy::default() };
                results.points.push(Point::of(Kind::PingPong, path, bytes, 2, &run, energy));
            }
        }
        results
    }

    #[test]
    fn each_path_has_a_dotted_and_a_solid_line() {
        let text = svg(&results(None), 8);
        assert_eq!(text.matches("<polyline").count(), 4);
        assert_eq!(text.matches("stroke-dasharray").count(), 2);
        assert!(text.contains("core-us per word of 8 B") && !text.contains("joules per"), "{text}");
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"));
        assert!(svg(&results(Some(1e-6)), 8).contains("joules per word of 8 B"));
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let text = svg(&Results::default(), 8);
        assert!(!text.contains("NaN") && !text.contains("polyline"), "{text}");
    }

    #[test]
    fn scales_cover_all_values_in_whole_steps() {
        let scale = Scale::of([0.2, 30.0, f64::NAN, 0.0].into_iter(), 10.0).unwrap();
        assert!((scale.low, scale.high) == (-1.0, 2.0), "{scale:?}");
        assert_eq!(scale.steps().len(), 4);
        assert!(Scale::of(std::iter::empty(), 10.0).is_none());
    }
}
