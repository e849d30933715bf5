//! `penstock status`: the state of the pool's daemons.

use std::process::ExitCode;

use penstock_client::config::{Config, NodeAddress, Surroundings};
use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::confinement;
use crate::failure::Failure;
use crate::limits;
use crate::run::{Probed, configured, daemons, no_nodes, probe_all};
use crate::table::{self, Table};

/// Start of the name of a daemon that `penstock run` has started. The process id of its program
/// follows.
const RUN: &str = "penstock run ";

/// Shows every daemon of the pool.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let config = configured(args.nodes.as_deref())?;
    let mut probed = probe_all(&config, &config.nodes);
    let of_pool = probed.len();
    if args.nodes.is_none() {
        probed.extend(of_runs(&config));
    }
    if probed.is_empty() {
        return Err(no_nodes());
    }
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
                Ok(status) => table.row(row(&address(&probed.node), status)),
                Err(error) => {
                    table::say(&format!("node {} does not answer: {error}", probed.node.name));
                }
            }
        }
        if answers > 0 && args.limits {
            table::print(&limits::as_text(&told(&probed)))?;
        } else if answers > 0 {
            table::print(&table.render(table::terminal_width()))?;
            table::print(&confinement::notes(probed.get(..of_pool).unwrap_or_default()))?;
            table::print(&clients(&probed, table::terminal_width()))?;
        }
    }
    // A run that answers is no node of the pool. A run that does not has just ended.
    let pool = probed.get(..of_pool).unwrap_or_default();
    match pool.iter().filter(|probed| probed.answer.is_err()).count() {
        0 => Ok(ExitCode::SUCCESS),
        silent if silent == of_pool => Err(Failure::NoneAnswers),
        silent => Err(Failure::SomeSilent { silent, all: of_pool }),
    }
}

fn address(node: &NodeAddress) -> String {
    if node.name.starts_with(RUN) { node.name.clone() } else { table::address(node) }
}

/// Asks the daemons that runs of this user have started for themselves. One that does not answer is
/// about to end.
fn of_runs(config: &Config) -> Vec<Probed> {
    let runs = daemons(&Surroundings::of_process()).into_iter();
    let nodes: Vec<_> = runs
        .map(|(pid, socket)| NodeAddress::unix(&format!("{RUN}{pid}"), socket))
        .filter(|node| config.nodes.iter().all(|known| known.address != node.address))
        .collect();
    probe_all(config, &nodes).into_iter().filter(|probed| probed.answer.is_ok()).collect()
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
/// client. What explains a cell follows the table, once, so that the rows stay short.
fn clients(probed: &[Probed], width: Option<usize>) -> String {
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
    let mut notes = Vec::new();
    let mut count = 0;
    for status in probed.iter().filter_map(|probed| probed.answer.as_ref().ok()) {
        let host = status.get("host").and_then(Value::as_str).unwrap_or("-");
        for session in status.get("sessions").and_then(Value::as_array).into_iter().flatten() {
            count += 1;
            let first = client_cells(host, session, &mut notes);
            let devices =
                session.get("devices").and_then(Value::as_array).filter(|list| !list.is_empty());
            for (index, device) in devices.into_iter().flatten().enumerate() {
                let mut cells =
                    if index == 0 { first.clone() } else { vec![String::new(); first.len()] };
                let mut figure = |of: &Value, name: &str, column: &str| {
                    figure(of, name, &format!("{column} on node {host}"), &mut notes)
                };
                cells.push(device.get("device").and_then(Value::as_str).unwrap_or("-").to_owned());
                cells.push(figure(device, "in_use_seconds", "IN USE S"));
                cells.push(figure(device, "core_seconds", "CORE-S of a device"));
                cells.push(figure(device.get("joules").unwrap_or(&Value::Null), "device", "J"));
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
    let about = "OVER: how the client's data travel. \
                 CORE-S: core-seconds of the client's worker, including its CPU devices. NODE J: \
                 joules of the whole node, for all its users, while the client was served. \
                 IN USE S: seconds from the client's first command on a device until all its \
                 commands were known to have ended. J: joules of the device alone, while the \
                 client was served.";
    let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
    format!("\n{}{notes}{about}\n", table.render(width))
}

fn client_cells(host: &str, session: &Value, notes: &mut Vec<String>) -> Vec<String> {
    let since =
        session.get("seconds").and_then(Value::as_u64).map_or_else(|| "-".to_owned(), duration);
    let none = Value::Null;
    let mut of = |name: &str, inner: &str, column: &str| {
        let column = format!("{column} on node {host}");
        figure(session.get(name).unwrap_or(&none), inner, &column, notes)
    };
    let (core_seconds, joules) =
        (of("core_seconds", "busy", "CORE-S"), of("joules", "node", "NODE J"));
    let (over, why) = way(session.get("transport").unwrap_or(&none));
    if let Some(why) = why {
        note(notes, format!("OVER on node {host}: {over} ({why})"));
    }
    vec![host.to_owned(), client(session), over, since, core_seconds, joules]
}

/// Returns who a client is: its program and user, or where it connects from.
pub fn client(session: &Value) -> String {
    let text = |name: &str| session.get(name).and_then(Value::as_str);
    let said = text("client").unwrap_or("-");
    let process = said.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
    match (text("program"), text("user"), process) {
        (Some(program), Some(user), Some(process)) => format!("{program} ({process}) of {user}"),
        (None, Some(user), Some(process)) => format!("process {process} of {user}"),
        // Another host, or a daemon of an older version.
        _ => said.to_owned(),
    }
}

/// Keeps a note once.
fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// Returns how the bytes of a session travel, and why there is no faster way.
fn way(transport: &Value) -> (String, Option<&str>) {
    let text = |name: &str| transport.get(name).and_then(Value::as_str);
    if transport.get("shares_memory").and_then(Value::as_bool) == Some(true) {
        let is_of_guest = transport.get("guest_memory").and_then(Value::as_bool) == Some(true);
        let over = match text("name") {
            Some(name) if is_of_guest => format!("memory shared with the guest, and {name}"),
            _ => "shared memory".to_owned(),
        };
        return (over, None);
    }
    let encryption =
        match (text("encryption"), transport.get("leaves_host").and_then(Value::as_bool)) {
            (Some(suite), _) => format!(", encrypted ({suite})"),
            (None, Some(true)) => ", NOT ENCRYPTED".to_owned(),
            (None, _) => String::new(),
        };
    match text("name") {
        Some(name) => (name.to_owned() + &encryption, text("why_not_better")),
        // A daemon of an older version does not send it.
        None => ("-".to_owned(), None),
    }
}

/// Returns a number as text. If there is none, keeps the reason as a note on this column.
fn figure(of: &Value, name: &str, column: &str, notes: &mut Vec<String>) -> String {
    if let Some(number) = of.get(name).and_then(Value::as_f64) {
        return format!("{number:.2}");
    }
    // A daemon of an older version does not send a reason.
    if let Some(reason) = of.get("unavailable").and_then(Value::as_str) {
        note(notes, format!("{column} is unavailable: {reason}"));
    }
    "-".to_owned()
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
pub fn duration(seconds: u64) -> String {
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
            node: NodeAddress::unix("local", "/x".into()),
            answer: Ok(json!({ "host": "a", "sessions": sessions })),
        };
        assert_eq!(clients(&[status(json!([]))], None), "");
        let session = json!({
            "client": "matmul", "transport": { "name": "vsock", "why_not_better": "far" },
            "seconds": 59, "core_seconds": { "busy": 1.5, "unavailable": null },
            "joules": { "node": null, "unavailable": "no counter" },
            "devices": [
                { "device": "d", "in_use_seconds": 0.5, "core_seconds": 1.5, "joules": { "device": 20.0 } },
                { "device": "e", "core_seconds": null },
            ],
        });
        let text = clients(&[status(json!([session.clone(), session]))], None);
        assert!(
            text.contains(
                "matmul  vsock   59 s    1.50       -  d           0.50    1.50  20.00\n"
            ),
            "{text}"
        );
        // Each reason is there once.
        assert_eq!(text.matches("NODE J on node a is unavailable: no counter\n").count(), 1);
        assert_eq!(text.matches("OVER on node a: vsock (far)\n").count(), 1, "{text}");
        // From an older daemon.
        assert!(
            clients(&[status(json!([{ "client": "b" }]))], None).contains("b       -         -"),
            "it tells nothing"
        );
    }

    #[test]
    fn clients_are_told_by_program_and_user() {
        let mut session =
            json!({ "client": "process 7 of user 1000", "program": "matmul", "user": "ada" });
        assert_eq!(client(&session), "matmul (7) of ada");
        session["program"] = Value::Null;
        assert_eq!(client(&session), "process 7 of ada");
        session["user"] = Value::Null;
        assert_eq!(client(&session), "process 7 of user 1000");
        assert_eq!(client(&json!({ "client": "10.0.0.2:5000", "program": null })), "10.0.0.2:5000");
    }

    #[test]
    fn a_way_is_told_with_the_reason_for_it() {
        let of = |shares: bool, why: Value| {
            let name = "Unix sockets";
            json!({ "name": name, "shares_memory": shares, "why_not_better": why })
        };
        assert_eq!(way(&of(true, Value::Null)).0, "shared memory");
        let of_guest = json!({ "name": "vsock", "shares_memory": true, "guest_memory": true });
        assert_eq!(way(&of_guest).0, "memory shared with the guest, and vsock");
        assert_eq!(way(&of(false, json!("no room"))), ("Unix sockets".to_owned(), Some("no room")));
        assert_eq!(way(&Value::Null), ("-".to_owned(), None));
        let tcp = |suite: Value, leaves: bool| {
            way(&json!({ "name": "TCP", "encryption": suite, "leaves_host": leaves })).0
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
