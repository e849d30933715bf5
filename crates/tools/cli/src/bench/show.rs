//! The figures of `penstock bench comm` as tables.

use penstock_bench::comm::Results;
use penstock_bench::plan::{Kind, Path, Plan};
use penstock_bench::point::Point;
use penstock_bench::summary::{self, Bar, PAIRS, Ratio, Saving};

use crate::table::{self, Table};

/// Text of a cell without a number.
const NONE: &str = "-";

/// Returns all tables, one below the other.
pub fn tables(plan: &Plan, results: &Results, with_bars: bool) -> String {
    let ratios = summary::ratios(results);
    let mut text = String::new();
    for kind in Kind::ALL {
        if results.points.iter().any(|point| point.kind == kind) {
            text += &times(kind, results, &ratios);
            text += &cores(kind, results);
            text += &joules(kind, plan, results);
        }
    }
    for party in &results.parties {
        let paths: Vec<_> = party.paths.iter().map(|path| path.name()).collect();
        text += &format!(
            "{}: {}; {}\n",
            paths.join(", "),
            printable(&party.device),
            printable(&party.wire)
        );
    }
    for without in &results.without {
        let paths: Vec<_> = without.paths.iter().map(|path| path.name()).collect();
        let word = if without.is_failure { "failed" } else { "skipped" };
        let reason = printable(&without.reason);
        text +=
            &format!("{word}: {} with {} devices: {reason}\n", paths.join(", "), without.devices);
    }
    if with_bars {
        text += &bars(&summary::bars(results));
    }
    text
}

fn printable(text: &str) -> String {
    table::printable(text)
}

/// Returns the rows of a table: message sizes, or numbers of devices.
fn rows(kind: Kind, results: &Results) -> Vec<u64> {
    let of = results.points.iter().filter(|point| point.kind == kind).map(|point| at(kind, point));
    let mut rows: Vec<u64> = of.collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn at(kind: Kind, point: &Point) -> u64 {
    if kind == Kind::Barrier { point.devices.into() } else { point.bytes }
}

fn find(kind: Kind, results: &Results, path: Path, row: u64) -> Option<&Point> {
    results.points.iter().find(|it| it.kind == kind && it.path == path && at(kind, it) == row)
}

fn shown(kind: Kind, results: &Results) -> Vec<Path> {
    let has = |path: &Path| results.points.iter().any(|it| it.kind == kind && it.path == *path);
    Path::ALL.into_iter().filter(has).collect()
}

fn first(kind: Kind, row: u64) -> String {
    if kind == Kind::Barrier { row.to_string() } else { table::bytes(row) }
}

fn head(kind: Kind) -> &'static str {
    if kind == Kind::Barrier { ">DEVICES" } else { ">SIZE" }
}

/// Returns the name of the column for a pair of paths.
fn pair_column((host, device): (Path, Path)) -> &'static str {
    match (host, device) {
        (Path::HostMpi, Path::Device) => ">MPI/DEV",
        (Path::HostMpiPipelined, Path::Device) => ">MPIP/DEV",
        (Path::HostTcp, Path::Proxy) => ">TCP/PRX",
        _ => ">TCPP/PRX",
    }
}

/// Formats a number with three or four significant digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        it if !it.is_finite() => return NONE.to_owned(),
        it if it >= 1000.0 => 0,
        it if it >= 100.0 => 1,
        it if it >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn option(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), number)
}

fn times(kind: Kind, results: &Results, ratios: &[Ratio]) -> String {
    let (paths, of) = (shown(kind, results), ratios.iter().filter(|it| it.kind == kind));
    let of: Vec<&Ratio> = of.collect();
    let has_copies = kind == Kind::Bandwidth && !results.memcpy.is_empty();
    let mut columns = vec![head(kind)];
    columns.extend(paths.iter().map(|path| path.column()));
    if has_copies {
        columns.push(">MEMCPY");
    }
    let pairs: Vec<_> = PAIRS
        .into_iter()
        .filter(|pair| of.iter().any(|it| (it.host, it.device) == *pair))
        .collect();
    columns.extend(pairs.iter().map(|pair| pair_column(*pair)));
    let ratio_of = |pair: (Path, Path)| of.iter().find(|it| (it.host, it.device) == pair);
    let mut table = Table::new(&columns);
    for row in rows(kind, results) {
        let mut cells = vec![first(kind, row)];
        for path in &paths {
            let point = find(kind, results, *path, row);
            cells.push(option(
                point
                    .map(|it| it.mb_s.unwrap_or(it.us))
                    .filter(|_| kind == Kind::Bandwidth)
                    .or(point.map(|it| it.us)),
            ));
        }
        if has_copies {
            cells.push(option(results.memcpy.iter().find(|it| it.bytes == row).map(|it| it.mb_s)));
        }
        for pair in &pairs {
            let each =
                ratio_of(*pair).and_then(|ratio| ratio.each.iter().find(|each| each.at == row));
            cells.push(option(each.map(|each| each.ratio)));
        }
        table.row(cells);
    }
    let title = match kind {
        Kind::PingPong => {
            "Ping-pong: half a round trip, median, microseconds; then ratios of times"
        }
        Kind::Bandwidth => {
            "Bandwidth: MB/s (10^6 bytes per second), by the median time of a message; then ratios of times"
        }
        Kind::Barrier => "Barrier: median, microseconds; then ratios of times",
    };
    let mut text = format!("{title}\n\n{}\n", table.render(None));
    for ratio in of {
        text += &averages(kind, ratio);
    }
    text + "\n"
}

fn averages(kind: Kind, ratio: &Ratio) -> String {
    let over = if kind == Kind::Barrier { "numbers of devices" } else { "sizes" };
    let mut text = format!(
        "{} by {}, over {} {over}: mean of ratios {}, geometric mean {}, ratio of sums {}\n",
        ratio.host,
        ratio.device,
        ratio.each.len(),
        number(ratio.mean),
        number(ratio.geometric_mean),
        number(ratio.of_sums)
    );
    let saving = |what: &str, it: &Saving| {
        let (mean, sums) = (it.mean_of_savings * 100.0, it.saving_of_sums * 100.0);
        format!("  {what} saved: mean of savings {mean:.1} %, saving of sums {sums:.1} %\n")
    };
    if let Some(it) = &ratio.joules {
        text += &saving("joules", it);
    }
    if let Some(it) = &ratio.core_seconds {
        text += &saving("core time", it);
    }
    text
}

fn cores(kind: Kind, results: &Results) -> String {
    let of = if kind == Kind::Barrier { "barrier" } else { "message" };
    let title = format!("Core-microseconds by {of}, of all processes that took part");
    values(kind, results, &title, |point| point.core_us)
}

fn joules(kind: Kind, plan: &Plan, results: &Results) -> String {
    let of = match kind {
        Kind::Barrier => "barrier".to_owned(),
        _ => format!("word of {} bytes", plan.word),
    };
    let points = || results.points.iter().filter(|point| point.kind == kind);
    if points().all(|point| point.energy.joules.is_none()) {
        let reason = points().find_map(|point| point.energy.unavailable.clone());
        let reason = reason.unwrap_or_else(|| "nothing was measured".to_owned());
        return format!("Joules by {of}: unavailable ({})\n\n", printable(&reason));
    }
    let micro = |value: Option<f64>| value.map(|joules| joules * 1e6);
    let mut text = values(
        kind,
        results,
        &format!("Microjoules by {of}, of the whole host, idle power included"),
        |point| micro(point.energy.joules),
    );
    if points().any(|point| point.energy.net_joules.is_some()) {
        text +=
            &values(kind, results, &format!("Microjoules by {of}, net of idle power"), |point| {
                micro(point.energy.net_joules)
            });
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for path in shown(kind, results) {
        let mut told: Vec<String> = Vec::new();
        for point in points().filter(|point| point.path == path) {
            let energy = &point.energy;
            let line = match &energy.unavailable {
                Some(reason) => format!("unavailable ({reason})"),
                None if energy.missing.is_empty() => {
                    format!("covers {}", energy.covered.join(", "))
                }
                None => format!(
                    "covers {}; lacks {}",
                    energy.covered.join(", "),
                    energy.missing.join(", ")
                ),
            };
            if !told.contains(&line) {
                told.push(line);
            }
        }
        text += &format!("{path}: {}\n", printable(&told.join("; or ")));
    }
    text + "\n"
}

fn values(
    kind: Kind,
    results: &Results,
    title: &str,
    value: impl Fn(&Point) -> Option<f64>,
) -> String {
    let paths = shown(kind, results);
    let mut columns = vec![head(kind)];
    columns.extend(paths.iter().map(|path| path.column()));
    let mut table = Table::new(&columns);
    for row in rows(kind, results) {
        let cell = |path: &Path| option(find(kind, results, *path, row).and_then(&value));
        table.row(std::iter::once(first(kind, row)).chain(paths.iter().map(cell)).collect());
    }
    format!("{title}\n\n{}\n", table.render(None))
}

fn bars(bars: &[Bar]) -> String {
    let mut table = Table::new(&["BAR", ">WANTED", ">FOUND", "", "AT"]);
    for bar in bars {
        let met = match bar.met {
            None => "not measured",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        table.row(vec![
            bar.what.to_owned(),
            format!("{} {}", bar.sense, bar.wanted),
            option(bar.found),
            met.to_owned(),
            bar.at.clone().unwrap_or_default(),
        ]);
    }
    format!("\nBars\n\n{}", table.render(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_bench::point::{Energy, Run, Samples};

    fn results(joules: Option<f64>) -> Results {
        let mut results = Results::default();
        for (path, us) in [(Path::Device, 0.25), (Path::HostMpi, 10.0)] {
            for (kind, bytes) in [(Kind::PingPong, 8), (Kind::Barrier, 0)] {
                let run = Run {
                    samples: Samples::of(vec![us]),
                    count: 1,
                    core_seconds: Some(us * 2e-6),
                    checked: 1,
                };
                let unavailable = joules.is_none().then(|| "no counter".to_owned());
                let energy = Energy {
                    joules,
                    unavailable,
                    covered: vec!["package-0".into()],
                    ..Energy::default()
                };
                results.points.push(Point::of(kind, path, bytes, 2, &run, energy));
            }
        }
        results
    }

    #[test]
    fn tables_have_ratios_and_say_what_averages_they_show() {
        let text = tables(&Plan::usual(true), &results(None), true);
        let row = text.lines().find(|line| line.trim_start().starts_with("8 B")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["8", "B", "0.250", "10.00", "40.00"]
        );
        assert!(
            text.contains("mean of ratios 40.00, geometric mean 40.00, ratio of sums 40.00"),
            "{text}"
        );
        assert!(text.contains("Joules by word of 8 bytes: unavailable (no counter)"), "{text}");
        assert!(text.contains("Joules by barrier: unavailable (no counter)"), "{text}");
        let bar = text
            .lines()
            .find(|line| line.starts_with("ping-pong of 8 bytes: host path over MPI"))
            .unwrap();
        assert!(bar.contains("at least 20") && bar.contains(" met"), "{bar}");
        assert!(
            text.lines().any(|line| line.contains("barrier of 4") && line.contains("not measured")),
            "{text}"
        );
    }

    #[test]
    fn joules_come_with_what_they_cover() {
        let text = tables(&Plan::usual(true), &results(Some(2e-6)), false);
        assert!(text.contains("Microjoules by word of 8 bytes, of the whole host"), "{text}");
        assert!(text.contains("device: covers package-0"), "{text}");
        assert!(!text.contains("Bars"), "{text}");
    }
}
