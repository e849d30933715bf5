//! The text that Prometheus reads, in the format of OpenMetrics 1.0, made of what the nodes answer.
//!
//! Names have units and endings as Prometheus expects them. Every figure has the label `node`, the
//! address of the node as the configuration has it. No label has the name of a program. The label
//! `user` is a number for users of the host; others are `key:NAME`, `host:ADDRESS`, `guest:PATH` or
//! `machine:CID`. Each value of a label is a time series, which Prometheus keeps in memory for
//! hours. So a node can give each label only a limited number of values of a limited length in one
//! scrape. A hostile node can give others in the next one.

use penstock_daemon::Level;
use serde_json::Value;

use super::families::{Families, Labels};
use crate::run::Probed;

/// Most devices, reasons and energy counters of one node that are told. A node has 16 devices.
const VALUES_MAX: usize = 128;

/// Most rows of limits that are read of one node. A daemon sends those of 512 users at most, with
/// twelve limits each, and 24 others.
const ROWS_MAX: usize = 8192;

/// Returns the metrics of these nodes.
pub fn text(probed: &[Probed]) -> String {
    let mut families = Families::known();
    for probed in probed {
        let node = probed.node.to_string();
        let status = probed.answer.as_ref().ok();
        families.put("penstock_node_up", &node, &[], Some(f64::from(u8::from(status.is_some()))));
        if let Some(status) = status {
            node_figures(&mut families, &node, status);
            session_figures(&mut families, &node, status);
            device_figures(&mut families, &node, status);
            limit_figures(&mut families, &node, status);
        }
    }
    families.into_text()
}

fn node_figures(families: &mut Families, node: &str, status: &Value) {
    let text = |name| status.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let simulated = status.get("simulated").and_then(Value::as_bool).unwrap_or_default();
    let info = [
        ("host", text("host")),
        ("version", text("version")),
        ("protocol", whole(status, &["protocol"])),
        ("simulated", simulated.to_string()),
    ];
    families.put("penstock_node_info", node, &info, Some(1.0));
    families.put("penstock_node_uptime", node, &[], number(status, &["uptime_s"]));
    let is_there = |path: &[&str]| at(status, path).map(|it| f64::from(u8::from(!it.is_null())));
    families.put("penstock_node_problem", node, &[], is_there(&["problem"]));
    let draining = status.get("draining").and_then(Value::as_bool);
    families.put("penstock_node_draining", node, &[], draining.map(|it| f64::from(u8::from(it))));
    let level = at(status, &["confinement", "level"]).and_then(Value::as_str);
    let level = level.and_then(|level| level.parse::<Level>().ok());
    let rank = level.map(|level| f64::from(level as u8));
    families.put("penstock_confinement_level", node, &[], rank);
    families.put("penstock_confinement_refusal", node, &[], is_there(&["confinement", "refusal"]));
    let file = at(status, &["limits_file"]).filter(|file| file.is_object());
    let wrong =
        file.map(|file| f64::from(u8::from(file.get("problem").is_some_and(Value::is_string))));
    families.put("penstock_limits_file_problem", node, &[], wrong);
    for (component, joules) in entries(status, &["totals", "joules"]) {
        families.put("penstock_node", node, &[("component", component)], joules);
    }
}

fn session_figures(families: &mut Families, node: &str, status: &Value) {
    let sessions = status.get("sessions").and_then(Value::as_array).map(Vec::len);
    let sessions = sessions.and_then(|count| u32::try_from(count).ok()).map(f64::from);
    families.put("penstock_sessions", node, &[], sessions);
    families.put("penstock_sessions_limit", node, &[], number(status, &["limits", "sessions"]));
    families.put("penstock_clients_waiting", node, &[], number(status, &["waiting_clients"]));
    let line = number(status, &["limits", "clients_in_line"]);
    families.put("penstock_clients_waiting_limit", node, &[], line);
    for (state, name) in [("spare", "spare_workers"), ("starting", "starting_workers")] {
        let labels = [("state", state.to_owned())];
        families.put("penstock_workers", node, &labels, number(status, &[name]));
    }
    let totals = at(status, &["totals", "sessions"]).unwrap_or(&Value::Null);
    families.put("penstock_sessions_begun", node, &[], number(totals, &["sessions_begun"]));
    for (how, count) in entries(totals, &["sessions_ended"]) {
        families.put("penstock_sessions_ended", node, &[("how", how)], count);
    }
    for (reason, count) in entries(status, &["totals", "refused"]) {
        families.put("penstock_connections_refused", node, &[("reason", reason)], count);
    }
    families.put("penstock_launches", node, &[], number(totals, &["launches"]));
    families.put("penstock_moved", node, &[], number(totals, &["moved_bytes"]));
    families.put("penstock_core", node, &[], number(totals, &["core_seconds"]));
}

fn device_figures(families: &mut Families, node: &str, status: &Value) {
    let list = |path: &[&str]| at(status, path).and_then(Value::as_array);
    let (memory, used) =
        (list(&["device_memory_bytes"]), list(&["totals", "sessions", "in_use_seconds"]));
    let names = list(&["devices"]).into_iter().flatten().take(VALUES_MAX);
    for (index, name) in names.enumerate() {
        let name = name.as_str().unwrap_or("").to_owned();
        let labels = [("device", index.to_string()), ("name", name)];
        let of = |list: Option<&Vec<Value>>| list?.get(index)?.as_f64();
        families.put("penstock_device_memory", node, &labels, of(memory));
        // Before the first session there is none.
        let used = used.map(|_| of(used).unwrap_or_default());
        families.put("penstock_device_in_use", node, &labels, used);
    }
}

/// What users hold of resources that are counted, and the limits of these resources.
fn limit_figures(families: &mut Families, node: &str, status: &Value) {
    let rows = at(status, &["quota", "rows"]).and_then(Value::as_array);
    for row in rows.into_iter().flatten().take(ROWS_MAX) {
        let text = |name| row.get(name).and_then(Value::as_str);
        let (held, max) = (number(row, &["held"]), number(row, &["max"]));
        let is_idle = held == Some(0.0) && text("set_by").is_none();
        let (Some(resource), false) = (text("limit"), held.is_none() || is_idle) else { continue };
        let (of_held, of_max) = match (text("scope"), text("unit")) {
            (Some("total"), Some("bytes")) => ("penstock_held", "penstock_held_limit"),
            (Some("total"), _) => ("penstock_held_items", "penstock_held_items_limit"),
            (Some("user"), Some("bytes")) => ("penstock_user_held", "penstock_user_held_limit"),
            (Some("user"), _) => ("penstock_user_held_items", "penstock_user_held_items_limit"),
            _ => continue,
        };
        let user = text("user").map(|user| ("user", user.to_owned()));
        let labels: Labels = user.into_iter().chain([("resource", resource.to_owned())]).collect();
        families.put(of_held, node, &labels, held);
        families.put(of_max, node, &labels, max);
    }
}

fn at<'a>(of: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(of, |of, name| of.get(name))
}

fn number(of: &Value, path: &[&str]) -> Option<f64> {
    at(of, path)?.as_f64()
}

fn whole(of: &Value, path: &[&str]) -> String {
    at(of, path).and_then(Value::as_u64).map(|it| it.to_string()).unwrap_or_default()
}

fn entries(of: &Value, path: &[&str]) -> Vec<(String, Option<f64>)> {
    let map = at(of, path).and_then(Value::as_object).into_iter().flatten().take(VALUES_MAX);
    map.map(|(name, value)| (name.clone(), value.as_f64())).collect()
}

#[cfg(test)]
mod tests {
    use penstock_client::config::NodeAddress;
    use penstock_link::LinkError;
    use serde_json::json;

    use super::*;

    fn node(name: &str, answer: Result<Value, LinkError>) -> Probed {
        Probed { node: NodeAddress::unix(name, format!("/{name}").into()), answer }
    }

    fn status() -> Value {
        json!({
            "host": "gpu01", "version": "0.1.0", "protocol": 5, "uptime_s": 61, "problem": null,
            "draining": true,
            "simulated": false, "sessions": [{}, {}], "waiting_clients": 3, "spare_workers": 2,
            "starting_workers": 1, "devices": ["card \"A\\B\"", "new"],
            "device_memory_bytes": [1024, null],
            "confinement": { "level": "files", "refusal": "workers reach `files`" },
            "limits_file": { "path": "/l", "problem": null },
            "limits": { "sessions": 256, "clients_in_line": 512 },
            "totals": {
                "sessions": {
                    "sessions_begun": 7, "sessions_ended": { "orderly": 4, "unexpected": 1 },
                    "core_seconds": 1.5, "in_use_seconds": [2.25],
                    "launches": 40, "moved_bytes": 4096,
                },
                "refused": { "key": 2, "full": 0 },
                "joules": { "package-0": 10.5 },
            },
            "quota": { "rows": [
                { "scope": "session", "user": null, "limit": "objects", "unit": "count",
                  "held": null, "max": 9, "set_by": "x" },
                { "scope": "total", "user": null, "limit": "device_memory", "unit": "bytes",
                  "held": 4096, "max": 65536, "set_by": null },
                { "scope": "total", "user": null, "limit": "objects", "unit": "count",
                  "held": 12, "max": 99, "set_by": "/l, line 2" },
                { "scope": "user", "user": "key:ann", "limit": "device_memory", "unit": "bytes",
                  "held": 512, "max": 1024, "set_by": "/l, line 3" },
                { "scope": "user", "user": "1000", "limit": "sessions", "unit": "count",
                  "held": 2, "max": 8, "set_by": "/l, line 1" },
                { "scope": "user", "user": "1000", "limit": "objects", "unit": "count",
                  "held": 0, "max": null, "set_by": null },
            ] },
        })
    }

    #[test]
    fn every_figure_of_a_node_is_told() {
        let text = text(&[node("a", Ok(status()))]);
        for line in [
            r#"penstock_node_up{node="unix:/a"} 1.0"#,
            concat!(
                r#"penstock_node_info{node="unix:/a",host="gpu01",version="0.1.0","#,
                r#"protocol="5",simulated="false"} 1.0"#,
            ),
            r#"penstock_node_uptime_seconds{node="unix:/a"} 61.0"#,
            r#"penstock_node_problem{node="unix:/a"} 0.0"#,
            r#"penstock_node_draining{node="unix:/a"} 1.0"#,
            r#"penstock_confinement_level{node="unix:/a"} 3.0"#,
            r#"penstock_confinement_refusal{node="unix:/a"} 1.0"#,
            r#"penstock_limits_file_problem{node="unix:/a"} 0.0"#,
            r#"penstock_node_joules_total{node="unix:/a",component="package-0"} 10.5"#,
            r#"penstock_sessions{node="unix:/a"} 2.0"#,
            r#"penstock_sessions_limit{node="unix:/a"} 256.0"#,
            r#"penstock_sessions_begun_total{node="unix:/a"} 7.0"#,
            r#"penstock_sessions_ended_total{node="unix:/a",how="orderly"} 4.0"#,
            r#"penstock_sessions_ended_total{node="unix:/a",how="unexpected"} 1.0"#,
            r#"penstock_connections_refused_total{node="unix:/a",reason="full"} 0.0"#,
            r#"penstock_connections_refused_total{node="unix:/a",reason="key"} 2.0"#,
            r#"penstock_clients_waiting{node="unix:/a"} 3.0"#,
            r#"penstock_clients_waiting_limit{node="unix:/a"} 512.0"#,
            r#"penstock_workers{node="unix:/a",state="spare"} 2.0"#,
            r#"penstock_workers{node="unix:/a",state="starting"} 1.0"#,
            r#"penstock_launches_total{node="unix:/a"} 40.0"#,
            r#"penstock_moved_bytes_total{node="unix:/a"} 4096.0"#,
            r#"penstock_core_seconds_total{node="unix:/a"} 1.5"#,
            concat!(
                r#"penstock_device_memory_bytes{node="unix:/a",device="0","#,
                r#"name="card \"A\\B\""} 1024.0"#,
            ),
            concat!(
                r#"penstock_device_in_use_seconds_total{node="unix:/a",device="0","#,
                r#"name="card \"A\\B\""} 2.25"#,
            ),
            r#"penstock_device_in_use_seconds_total{node="unix:/a",device="1",name="new"} 0.0"#,
            r#"penstock_held_bytes{node="unix:/a",resource="device_memory"} 4096.0"#,
            r#"penstock_held_limit_bytes{node="unix:/a",resource="device_memory"} 65536.0"#,
            r#"penstock_held_items{node="unix:/a",resource="objects"} 12.0"#,
            r#"penstock_held_items_limit{node="unix:/a",resource="objects"} 99.0"#,
            concat!(
                r#"penstock_user_held_bytes{node="unix:/a",user="key:ann","#,
                r#"resource="device_memory"} 512.0"#,
            ),
            concat!(
                r#"penstock_user_held_limit_bytes{node="unix:/a",user="key:ann","#,
                r#"resource="device_memory"} 1024.0"#,
            ),
            r#"penstock_user_held_items{node="unix:/a",user="1000",resource="sessions"} 2.0"#,
            r#"penstock_user_held_items_limit{node="unix:/a",user="1000",resource="sessions"} 8.0"#,
        ] {
            assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{line}\n{text}");
        }
        // A misspelt name would set nothing.
        for name in Families::names() {
            assert!(text.contains(&format!("\n{name}{{")), "{name}\n{text}");
        }
        // A metric for each line above, and no other: unknown figures are absent.
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 34, "{text}");
    }

    #[test]
    fn a_node_that_does_not_answer_has_a_metric() {
        let dead = node("dead", Err(LinkError::Closed));
        // The configuration can name a node twice.
        let again = node("dead", Err(LinkError::Closed));
        let text = text(&[node("a", Ok(status())), dead, again]);
        assert_eq!(text.matches("unix:/dead").count(), 1, "{text}");
        assert!(text.contains("penstock_node_up{node=\"unix:/dead\"} 0.0\n"), "{text}");
        assert!(text.contains("penstock_node_up{node=\"unix:/a\"} 1.0\n"), "{text}");
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    }

    #[test]
    fn a_node_of_an_older_version_or_a_hostile_one_breaks_nothing() {
        let old = text(&[node("old", Ok(json!({})))]);
        assert!(old.contains("penstock_node_up{node=\"unix:/old\"} 1.0\n"), "{old}");
        let devices: Vec<String> =
            (0..1000).map(|at| format!("{at}\n# EOF\n{}", "x".repeat(1000))).collect();
        let reasons: serde_json::Map<String, Value> =
            (0..1000).map(|at| (format!("reason {at}"), json!(1))).collect();
        let user = |at| {
            json!({ "scope": "user", "user": at, "limit": "sessions", "unit": "count",
                    "held": 1, "max": "many", "set_by": 0 })
        };
        let rows: Vec<Value> = (0..20_000).map(|at: u32| user(at.to_string())).collect();
        let text = text(&[node(
            "x",
            Ok(json!({
                "host": ["no text"], "uptime_s": "soon", "sessions": 3, "devices": devices,
                "confinement": "none", "quota": { "rows": rows },
                "totals": { "refused": reasons, "sessions": { "in_use_seconds": [] } },
            })),
        )]);
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(count("penstock_device_in_use_seconds_total{"), VALUES_MAX);
        assert_eq!(count("penstock_connections_refused_total{"), VALUES_MAX);
        assert_eq!(count("penstock_user_held_items{"), ROWS_MAX);
        assert_eq!(text.lines().filter(|line| *line == "# EOF").count(), 1);
        assert!(text.lines().all(|line| line.len() < 1000), "a label is too long");
    }
}
