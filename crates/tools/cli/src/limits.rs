//! `penstock status --limits`: what each user of the daemons holds, against the limits.

use serde_json::{Value, json};

use crate::table::Table;

/// What a daemon answered, or why it did not answer.
pub struct Told<'a> {
    pub address: String,
    pub answer: Result<&'a Value, String>,
}

/// Returns what the daemons tell of limits, as JSON.
pub fn as_json(told: &[Told<'_>]) -> Value {
    let node = |told: &Told<'_>| {
        let address = &told.address;
        match &told.answer {
            Ok(status) => json!({
                "address": address,
                "answers": true,
                "limits": status.get("quota"),
                "limits_file": status.get("limits_file"),
            }),
            Err(error) => {
                json!({ "address": address, "answers": false, "error": error })
            }
        }
    };
    json!({ "nodes": told.iter().map(node).collect::<Vec<_>>() })
}

/// Returns the same for people.
pub fn as_text(told: &[Told<'_>]) -> String {
    let mut table = Table::new(&["NODE", "WHO", "LIMIT", ">IN USE", ">AT MOST", "SET BY"]);
    let mut notes = Vec::new();
    let mut ways: Vec<String> = Vec::new();
    for status in told.iter().filter_map(|told| told.answer.as_ref().ok()) {
        let host = text(status, "host").unwrap_or("-");
        let Some(quota) = status.get("quota") else {
            notes.push(format!("The daemon of {host} is older and tells no limits."));
            continue;
        };
        for row in list(quota, "rows").filter(|row| is_worth_showing(row)) {
            table.row(cells(host, row));
        }
        for way in list(quota, "enforcement").map(way) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        let file = status.get("limits_file");
        if let Some(problem) = file.and_then(|file| text(file, "problem")) {
            notes
                .push(format!("{host} keeps its old limits, because the file is wrong: {problem}"));
        }
    }
    let notes: String = notes.into_iter().map(|note| format!("{note}\n")).collect();
    let ways: String = ways.into_iter().map(|way| format!("  {way}\n")).collect();
    // Not cut to the terminal's width: who set a limit is what matters.
    format!("{}{notes}\nHow each limit is enforced:\n{ways}", table.render(None))
}

/// Whether somebody set the limit, or holds something.
fn is_worth_showing(row: &Value) -> bool {
    let holds = row.get("held").and_then(Value::as_u64).is_some_and(|held| held > 0);
    holds || text(row, "set_by").is_some()
}

fn cells(host: &str, row: &Value) -> Vec<String> {
    let unit = text(row, "unit").unwrap_or_default();
    let amount = |name: &str| Some(show(unit, row.get(name)?.as_u64()?));
    let who = match (text(row, "scope"), text(row, "user")) {
        (Some("session"), _) => "each session".to_owned(),
        (Some("total"), _) => "all users".to_owned(),
        (_, user) => format!("user {}", user.unwrap_or("-")),
    };
    vec![
        host.to_owned(),
        who,
        text(row, "limit").unwrap_or("-").to_owned(),
        amount("held").unwrap_or_else(|| "-".to_owned()),
        amount("max").unwrap_or_else(|| "unlimited".to_owned()),
        text(row, "set_by").unwrap_or("nobody").to_owned(),
    ]
}

fn way(row: &Value) -> String {
    let (name, how) = (text(row, "limit").unwrap_or("-"), text(row, "how").unwrap_or("-"));
    if row.get("enforced").and_then(Value::as_bool) == Some(true) {
        format!("{name}: {how}")
    } else {
        format!("{name}: NOT enforced: {how}")
    }
}

fn show(unit: &str, amount: u64) -> String {
    match unit {
        "bytes" => penstock_quota::Unit::Bytes.show(amount),
        "seconds" => penstock_quota::Unit::Seconds.show(amount),
        _ => amount.to_string(),
    }
}

fn text<'a>(of: &'a Value, name: &str) -> Option<&'a str> {
    of.get(name)?.as_str()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &Value) -> Vec<Told<'_>> {
        vec![Told { address: "unix:/x".to_owned(), answer: Ok(status) }]
    }

    fn status() -> Value {
        json!({
            "host": "a",
            "quota": {
                "rows": [
                    { "scope": "total", "user": null, "limit": "sessions", "unit": "count",
                      "held": 2, "max": 256, "set_by": "the built-in default X" },
                    { "scope": "user", "user": "1000", "limit": "device_memory", "unit": "bytes",
                      "held": 3 << 20, "max": 4_u64 << 30, "set_by": "/l.toml, line 3" },
                    { "scope": "user", "user": "1000", "limit": "kernel_time_s", "unit": "seconds",
                      "held": null, "max": 60, "set_by": "/l.toml, line 4" },
                    { "scope": "user", "user": "1000", "limit": "objects", "unit": "count",
                      "held": 0, "max": null, "set_by": null },
                ],
                "enforcement": [
                    { "limit": "sessions", "enforced": true, "how": "by counting" },
                    { "limit": "cache_disk", "enforced": false, "how": "drivers do it" },
                ],
            },
            "limits_file": { "path": "/l.toml", "problem": "/l.toml, line 9: no" },
        })
    }

    #[test]
    fn use_stands_against_the_limit_and_who_set_it() {
        let shown = as_text(&told(&status()));
        for line in [
            "a     all users  sessions            2      256  the built-in default X",
            "a     user 1000  device_memory   3 MiB    4 GiB  /l.toml, line 3",
            "a     user 1000  kernel_time_s       -     60 s  /l.toml, line 4",
            "a keeps its old limits, because the file is wrong: /l.toml, line 9: no",
            "  sessions: by counting",
            "  cache_disk: NOT enforced: drivers do it",
        ] {
            assert!(shown.lines().any(|it| it == line), "{line}\n{shown}");
        }
        assert!(!shown.contains("objects"), "nobody set it and nobody holds any: {shown}");
    }

    #[test]
    fn an_older_daemon_is_named() {
        assert!(as_text(&told(&json!({ "host": "a" }))).contains("of a is older"));
    }

    #[test]
    fn scripts_get_everything() {
        let shown = as_json(&told(&status()));
        let node = &shown["nodes"][0];
        assert_eq!(node["limits"]["rows"].as_array().unwrap().len(), 4);
        assert_eq!(node["limits_file"]["path"], "/l.toml");
    }
}
