//! `penstock status`: the state of the pool's daemons.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::confinement;
use crate::failure::Failure;
use crate::limits;
use crate::run::{Probed, configured, no_nodes, probe_all};
use crate::table::{self, Table};

/// Shows every daemon of the pool.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let config = configured(args.nodes.as_deref())?;
    if config.nodes.is_empty() {
        return Err(no_nodes());
    }
    let probed = probe_all(&config);
    let answers = probed.iter().filter(|probed| probed.answer.is_ok()).count();
    if args.json && args.limits {
        table::print(&format!("{:#}\n", limits::as_json(&told(&probed))))?;
    } else if args.json {
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
        let mut table = Table::new(&[
            "NODE",
            "ADDRESS",
            "VERSION",
            "CONFINED",
            ">UP",
            ">SESSIONS",
            ">SPARE",
            ">REFUSED",
        ]);
        for probed in &probed {
            match &probed.answer {
                Ok(status) => table.row(row(&table::address(&probed.node), status)),
                Err(error) => {
                    table::say(&format!("node {} does not answer: {error}", probed.node.name));
                }
            }
        }
        if answers > 0 && args.limits {
            table::print(&limits::as_text(&told(&probed)))?;
        } else if answers > 0 {
            table::print(&table.render(table::terminal_width()))?;
            table::print(&confinement::notes(&probed))?;
            table::print(&clients(&probed))?;
        }
    }
    match probed.len() - answers {
        _ if answers == 0 => Err(Failure::NoneAnswers),
        0 => Ok(ExitCode::SUCCESS),
        silent => Err(Failure::SomeSilent { silent, all: probed.len() }),
    }
}

fn told(probed: &[Probed]) -> Vec<limits::Told<'_>> {
    let mut told = Vec::new();
    for probed in probed {
        let answer = probed.answer.as_ref().map_err(ToString::to_string);
        told.push(limits::Told { address: probed.node.to_string(), answer });
    }
    told
}

/// Returns the table of what each client costs on each device. It is empty if no daemon has a
/// client.
fn clients(probed: &[Probed]) -> String {
    let mut table = Table::new(&[
        "NODE",
        "CLIENT",
        "OVER",
        ">SINCE",
        ">CORE-S",
        ">NODE J",
        "DEVICE",
        ">IN USE S",
        ">CORE-S",
        ">J",
    ]);
    let mut count = 0;
    for status in probed.iter().filter_map(|probed| probed.answer.as_ref().ok()) {
        let host = status.get("host").and_then(Value::as_str).unwrap_or("-");
        for session in status.get("sessions").and_then(Value::as_array).into_iter().flatten() {
            count += 1;
            let first = client_cells(host, session);
            let devices =
                session.get("devices").and_then(Value::as_array).filter(|list| !list.is_empty());
            for (index, device) in devices.into_iter().flatten().enumerate() {
                let mut cells =
                    if index == 0 { first.clone() } else { vec![String::new(); first.len()] };
                cells.push(device.get("device").and_then(Value::as_str).unwrap_or("-").to_owned());
                cells.push(figure(&json!({ "of": device.get("in_use_seconds") }), "of"));
                cells.push(figure(device, "core_seconds"));
                cells.push(figure(device.get("joules").unwrap_or(&Value::Null), "device"));
                table.row(cells);
            }
            if devices.is_none() {
                table.row(first.into_iter().chain(["-"; 4].map(str::to_owned)).collect());
            }
        }
    }
    if count == 0 {
        return String::new();
    }
    // Not cut to the terminal's width: the end of a reason is what matters.
    let notes = "OVER: how the client's data travel, and why there is no faster way. \
                 CORE-S: core-seconds of the client's worker, including its CPU devices. NODE J: \
                 joules of the whole node, for all its users, while the client was served. \
                 IN USE S: seconds from the client's first command on a device until all its \
                 commands were known to have ended. J: joules of the device alone, while the \
                 client was served.";
    format!("\n{}{notes}\n", table.render(None))
}

fn client_cells(host: &str, session: &Value) -> Vec<String> {
    let since =
        session.get("seconds").and_then(Value::as_u64).map_or_else(|| "-".to_owned(), duration);
    let none = Value::Null;
    let of = |name: &str, inner: &str| figure(session.get(name).unwrap_or(&none), inner);
    let client = session.get("client").and_then(Value::as_str).unwrap_or("-");
    vec![
        host.to_owned(),
        client.to_owned(),
        way(session.get("transport").unwrap_or(&none)),
        since,
        of("core_seconds", "busy"),
        of("joules", "node"),
    ]
}

/// Returns how the bytes of a session travel, and why there is no faster way.
fn way(transport: &Value) -> String {
    let text = |name: &str| transport.get(name).and_then(Value::as_str);
    if transport.get("shares_memory").and_then(Value::as_bool) == Some(true) {
        let is_of_guest = transport.get("guest_memory").and_then(Value::as_bool) == Some(true);
        return match text("name") {
            Some(name) if is_of_guest => format!("memory shared with the guest, and {name}"),
            _ => "shared memory".to_owned(),
        };
    }
    let encryption =
        match (text("encryption"), transport.get("leaves_host").and_then(Value::as_bool)) {
            (Some(suite), _) => format!(", encrypted ({suite})"),
            (None, Some(true)) => ", NOT ENCRYPTED".to_owned(),
            (None, _) => String::new(),
        };
    match (text("name").map(|name| name.to_owned() + &encryption), text("why_not_better")) {
        (Some(name), Some(why)) => format!("{name} ({why})"),
        (Some(name), None) => name,
        // A daemon of an older version does not send it.
        (None, _) => "-".to_owned(),
    }
}

/// Returns a number as text, or why there is none.
fn figure(of: &Value, name: &str) -> String {
    let reason = of.get("unavailable").and_then(Value::as_str);
    match (of.get(name).and_then(Value::as_f64), reason) {
        (Some(number), _) => format!("{number:.2}"),
        (None, Some(reason)) => format!("unavailable ({reason})"),
        // A daemon of an older version does not send it.
        (None, None) => "-".to_owned(),
    }
}

fn row(address: &str, status: &Value) -> Vec<String> {
    let text = |name: &str| match status.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    let up =
        status.get("uptime_s").and_then(Value::as_u64).map_or_else(|| "-".to_owned(), duration);
    vec![
        text("host"),
        address.to_owned(),
        text("version"),
        confinement::level(status),
        up,
        text("sessions"),
        text("spare_workers"),
        text("refused"),
    ]
}

/// Formats seconds for people.
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
    fn clients_are_shown_with_what_they_cost() {
        let status = |sessions: Value| Probed {
            node: penstock_client::config::NodeAddress::unix("local", "/x".into()),
            answer: Ok(json!({ "host": "a", "sessions": sessions })),
        };
        assert_eq!(clients(&[status(json!([]))]), "");
        let session = json!({
            "client": "matmul", "transport": { "name": "vsock", "why_not_better": "far" },
            "seconds": 59, "core_seconds": { "busy": 1.5, "unavailable": null },
            "joules": { "node": null, "unavailable": "no counter" },
            "devices": [
                { "device": "d", "in_use_seconds": 0.5, "core_seconds": 1.5, "joules": { "device": 20.0 } },
                { "device": "e", "core_seconds": null },
            ],
        });
        let text = clients(&[status(json!([session]))]);
        assert!(
            text.contains("matmul  vsock (far)   59 s    1.50  unavailable (no counter)  d      ")
                && text.contains("    0.50    1.50  20.00"),
            "{text}"
        );
        // From an older daemon.
        assert!(
            clients(&[status(json!([{ "client": "b" }]))]).contains("b       -         -"),
            "it tells nothing"
        );
    }

    #[test]
    fn a_way_is_told_with_the_reason_for_it() {
        let of = |shares: bool, why: Value| {
            let name = "Unix sockets";
            way(&json!({ "name": name, "shares_memory": shares, "why_not_better": why }))
        };
        assert_eq!(of(true, Value::Null), "shared memory");
        let of_guest = json!({ "name": "vsock", "shares_memory": true, "guest_memory": true });
        assert_eq!(way(&of_guest), "memory shared with the guest, and vsock");
        assert_eq!(of(false, Value::Null), "Unix sockets");
        assert_eq!(of(false, json!("no room")), "Unix sockets (no room)");
        assert_eq!(way(&Value::Null), "-");
        let tcp = |suite: Value, leaves: bool| {
            way(&json!({ "name": "TCP", "encryption": suite, "leaves_host": leaves }))
        };
        assert_eq!(tcp(json!("AES-128-GCM"), true), "TCP, encrypted (AES-128-GCM)");
        assert_eq!(tcp(Value::Null, true), "TCP, NOT ENCRYPTED");
        assert_eq!(tcp(Value::Null, false), "TCP");
    }

    #[test]
    fn durations_are_short() {
        for (seconds, text) in
            [(59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }
}
