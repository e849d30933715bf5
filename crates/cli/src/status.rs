//! `penstock status`: what the daemons of the pool do.

use std::process::ExitCode;
use std::time::Instant;

use penstock_link::{Address, Key, LinkError};
use penstock_wire::hello::Role;
use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::run::{configured, no_nodes, probe_all};
use crate::table::{self, Table};

/// Longest status of a daemon, in bytes: 256 sessions of 1 KiB, four times.
const STATUS_BYTES_MAX: usize = 1 << 20;

/// Asks a daemon for its status.
pub fn ask(address: &Address, role: Role, key: Option<&Key>, deadline: Instant) -> Result<Value, LinkError> {
    let stream = penstock_link::open(address, role, None, key, deadline)?.stream;
    let not_ours = || LinkError::NotPenstock { peer: address.to_string() };
    let mut length = [0; 4];
    stream.read_exact_until(&mut length, deadline)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > STATUS_BYTES_MAX {
        return Err(not_ours());
    }
    let mut bytes = vec![0; length];
    stream.read_exact_until(&mut bytes, deadline)?;
    serde_json::from_slice(&bytes).map_err(|_| not_ours())
}

/// Shows every daemon of the pool.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let config = configured(args.nodes.as_deref())?;
    if config.nodes.is_empty() {
        return Err(no_nodes());
    }
    let probed = probe_all(&config);
    let answers = probed.iter().filter(|probed| probed.answer.is_ok()).count();
    if args.json {
        let nodes: Vec<Value> = probed
            .iter()
            .map(|probed| match &probed.answer {
                Ok(status) => json!({ "address": probed.node.to_string(), "answers": true, "status": status }),
                Err(error) => {
                    json!({ "address": probed.node.to_string(), "answers": false, "error": error.to_string() })
                }
            })
            .collect();
        table::print(&format!("{:#}\n", json!({ "nodes": nodes })))?;
    } else {
        let mut table = Table::new(&["NODE", "ADDRESS", "VERSION", ">UP", ">SESSIONS", ">SPARE", ">REFUSED"]);
        for probed in &probed {
            match &probed.answer {
                Ok(status) => table.row(row(&table::address(&probed.node), status)),
                Err(error) => eprintln!("penstock: node {} does not answer: {error}", probed.node.name),
            }
        }
        if answers > 0 {
            table::print(&table.render(table::terminal_width()))?;
        }
    }
    if answers == 0 { Err(Failure::NoneAnswers) } else { Ok(ExitCode::SUCCESS) }
}

fn row(address: &str, status: &Value) -> Vec<String> {
    let text = |name: &str| match status.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    let up = status.get("uptime_s").and_then(Value::as_u64).map_or_else(|| "-".to_owned(), duration);
    vec![
        text("host"),
        address.to_owned(),
        text("version"),
        up,
        text("sessions"),
        text("spare_workers"),
        text("refused"),
    ]
}

/// Seconds as a person reads them.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [(59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
