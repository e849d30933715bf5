//! The metrics that `penstock metrics` can tell: names, units, descriptions and values.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::Registry;
use prometheus_client::registry::Unit::{self, Bytes, Joules, Seconds};

use crate::table;

/// Longest value of a label in characters, except for addresses. Names of devices are shorter.
const VALUE_CHARS_MAX: usize = 128;

pub type Labels = Vec<(&'static str, String)>;

/// A metric, and its value for each set of labels.
#[derive(Debug)]
struct Family {
    /// The name without the unit, and without `_total` at the end of a counter.
    name: &'static str,
    kind: MetricType,
    unit: Option<Unit>,
    help: &'static str,
    values: BTreeMap<Labels, f64>,
}

/// All metrics. They are of the types gauge and counter alone: the textfile collector of
/// node_exporter refuses types that only OpenMetrics has, such as info.
#[derive(Debug)]
pub struct Families(Vec<Family>);

const KNOWN: [(&str, MetricType, Option<Unit>, &str); 30] = [
    ("penstock_node_up", Gauge, None, "Whether the daemon of the node answers."),
    ("penstock_node_info", Gauge, None, "Always 1; the labels tell of the node's daemon."),
    ("penstock_node_uptime", Gauge, Some(Seconds), "Time since the daemon started."),
    ("penstock_node_problem", Gauge, None, "Whether workers lack devices or do not start."),
    ("penstock_node_draining", Gauge, None, "Whether an administrator drains the node."),
    (
        "penstock_confinement_level",
        Gauge,
        None,
        "How far workers are confined: 0 off, 1 basic, 2 calls, 3 files, 4 full.",
    ),
    ("penstock_confinement_refusal", Gauge, None, "Whether that level is too low for clients."),
    ("penstock_limits_file_problem", Gauge, None, "Whether the file of limits is wrong."),
    (
        "penstock_node",
        Counter,
        Some(Joules),
        "Energy of the node since its first client, by counter.",
    ),
    ("penstock_sessions", Gauge, None, "Clients that have a worker."),
    ("penstock_sessions_limit", Gauge, None, "Most clients that can have a worker."),
    ("penstock_sessions_begun", Counter, None, "Clients that have got a worker."),
    ("penstock_sessions_ended", Counter, None, "Sessions that have ended, and how."),
    ("penstock_connections_refused", Counter, None, "Refused connections, by reason."),
    ("penstock_clients_waiting", Gauge, None, "Clients that wait in line for a worker."),
    ("penstock_clients_waiting_limit", Gauge, None, "Most clients that can wait in line."),
    ("penstock_workers", Gauge, None, "Workers without a client, by state."),
    (
        "penstock_core",
        Counter,
        Some(Seconds),
        "Core time of the workers of all sessions, with what CPU devices computed in them.",
    ),
    ("penstock_launches", Counter, None, "Kernels that the clients have launched."),
    (
        "penstock_moved",
        Counter,
        Some(Bytes),
        "Content that workers have received from clients and other workers, or sent there.",
    ),
    ("penstock_device_memory", Gauge, Some(Bytes), "Memory of the device."),
    (
        "penstock_device_in_use",
        Counter,
        Some(Seconds),
        "Time for which sessions had commands on the device, added up over the sessions.",
    ),
    ("penstock_held", Gauge, Some(Bytes), "What all users together hold of a resource."),
    ("penstock_held_limit", Gauge, Some(Bytes), "Most that all users together may hold."),
    ("penstock_held_items", Gauge, None, "What all users together hold of a counted resource."),
    ("penstock_held_items_limit", Gauge, None, "Most that all users together may hold."),
    ("penstock_user_held", Gauge, Some(Bytes), "What a user holds of a resource."),
    ("penstock_user_held_limit", Gauge, Some(Bytes), "Most that the user may hold."),
    ("penstock_user_held_items", Gauge, None, "What a user holds of a counted resource."),
    ("penstock_user_held_items_limit", Gauge, None, "Most that the user may hold."),
];

impl Families {
    /// Returns all metrics, without values.
    pub fn known() -> Self {
        let known = KNOWN.into_iter();
        let family =
            |(name, kind, unit, help)| Family { name, kind, unit, help, values: BTreeMap::new() };
        Self(known.map(family).collect())
    }

    /// Sets a metric of a node, if its value is known. The first of several values stays.
    pub fn put(
        &mut self,
        name: &str,
        node: &str,
        labels: &[(&'static str, String)],
        value: Option<f64>,
    ) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let short = |text: &str| text.chars().take(VALUE_CHARS_MAX).collect::<String>();
        let others = labels.iter().map(|(name, value)| (*name, short(value)));
        let labels = [("node", node.to_owned())].into_iter().chain(others);
        let labels: Labels = labels.map(|(name, value)| (name, table::printable(&value))).collect();
        for family in self.0.iter_mut().filter(|family| family.name == name) {
            family.values.entry(labels.clone()).or_insert(value);
        }
    }

    /// Returns the text of all metrics that have values.
    pub fn into_text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut written = String::new();
        // Writing to a string cannot fail.
        _ = text::encode(&mut written, &registry);
        written
    }

    /// Returns the name of each metric as Prometheus knows it.
    #[cfg(test)]
    pub fn names() -> Vec<String> {
        let name = |(name, kind, unit, _): (&str, MetricType, Option<Unit>, &str)| {
            let unit = unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
            let end = if kind == Counter { "_total" } else { "" };
            format!("{name}{unit}{end}")
        };
        KNOWN.into_iter().map(name).collect()
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.0.iter().filter(|family| !family.values.is_empty()) {
            let unit = family.unit.as_ref();
            let mut metric =
                encoder.encode_descriptor(family.name, family.help, unit, family.kind)?;
            for (labels, value) in &family.values {
                let mut one = metric.encode_family(labels)?;
                match family.kind {
                    Counter => one.encode_counter::<NoLabelSet, _, f64>(value, None)?,
                    _ => one.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Gives each metric a value.
    fn all() -> String {
        let mut families = Families::known();
        for (name, ..) in KNOWN {
            families.put(name, "n", &[], Some(1.0));
        }
        families.into_text()
    }

    #[test]
    fn every_metric_has_a_description_a_type_and_the_unit_of_its_name() {
        let text = all();
        for name in Families::names() {
            assert!(text.contains(&format!("\n{name}{{node=\"n\"}} 1.0\n")), "{name}\n{text}");
            let family = name.strip_suffix("_total").unwrap_or(&name);
            assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1, "{family}");
            for unit in ["seconds", "bytes", "joules"] {
                let line = format!("# UNIT {family} {unit}\n");
                assert_eq!(text.contains(&line), family.ends_with(&format!("_{unit}")), "{line}");
            }
        }
        // Types that the textfile collector does not know.
        let types: BTreeSet<_> = text
            .lines()
            .filter(|it| it.starts_with("# TYPE"))
            .map(|it| it.split(' ').nth(3))
            .collect();
        assert_eq!(types, [Some("counter"), Some("gauge")].into());
    }

    /// Returns the words of a file that begin as metrics do.
    fn named(file: &str) -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
        let text = fs::read_to_string(root.join(file)).unwrap();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter: char| !is_part(letter));
        words.filter(|word| word.starts_with("penstock_")).map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_the_rules_and_the_guide_name_metrics_that_exist() {
        let known: BTreeSet<String> = Families::names().into_iter().collect();
        for (file, least) in
            [("packaging/prometheus/grafana.json", 10), ("packaging/prometheus/rules.yml", 5)]
        {
            let named = named(file);
            assert!(named.len() >= least, "{file}: the search found only {named:?}");
            assert!(named.is_subset(&known), "{file}: {:?}", named.difference(&known));
        }
        let guide = named("docs/operation.md");
        assert!(known.is_subset(&guide), "docs/operation.md lacks {:?}", known.difference(&guide));
    }
}
