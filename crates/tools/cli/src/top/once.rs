//! `penstock top --once`: one table or document, for scripts.

use serde_json::{Value, json};

use super::rates::{Now, Rates};
use super::rows::{Cell, Known, Node, View, rows};
use crate::table::Table;

/// Returns tables of nodes, devices and clients. A table without rows is left out.
pub fn text(nodes: &[Node], width: Option<usize>) -> String {
    let mut text = String::new();
    for view in View::ALL {
        let rows = rows(view, nodes);
        if rows.is_empty() {
            continue;
        }
        let heads: Vec<&'static str> = view.columns().iter().map(|it| it.title).collect();
        let numbers = view.columns().iter().map(|it| it.is_number).collect();
        let mut table = Table::with(heads, numbers);
        for row in rows {
            table.row(row.cells.iter().map(|cell| Cell::shown(cell).to_owned()).collect());
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&table.render(width));
    }
    text
}

/// Returns the same as JSON. What nobody knows is null.
pub fn document(nodes: &[Node]) -> Value {
    json!({ "nodes": nodes.iter().filter(|it| !it.is_known_already).map(node).collect::<Vec<_>>() })
}

fn node(of: &Node) -> Value {
    let (name, address, state) = (&of.name, &of.address, of.state());
    match &of.known {
        Known::Here(now) => here(of, now),
        Known::Silent(why) => {
            json!({ "name": name, "address": address, "state": state, "error": why })
        }
        Known::NotYet => json!({ "name": name, "address": address, "state": state }),
    }
}

fn here(of: &Node, now: &Now) -> Value {
    let look = &now.look;
    let devices = look.devices.iter().zip(&now.in_use).map(|(device, in_use)| {
        let (name, memory) = (&device.name, device.memory_bytes);
        json!({ "name": name, "in_use": in_use, "memory_bytes": memory })
    });
    let sessions = look.sessions.iter().zip(&now.sessions).map(|(session, of_session)| {
        let mut told = figures(&of_session.rates, session.held_bytes, of_session.watts);
        told["session"] = json!(session.worker);
        told["client"] = json!(session.client);
        told["seconds"] = json!(session.seconds);
        told
    });
    let mut told = figures(&now.rates, look.held_bytes, now.watts);
    told["name"] = json!(of.name);
    told["address"] = json!(of.address);
    told["state"] = json!(of.state());
    told["host"] = json!(look.host);
    told["uptime_s"] = json!(look.uptime_s);
    told["draining"] = json!(look.is_draining);
    told["waiting_clients"] = json!(look.waiting);
    told["devices"] = devices.collect();
    told["sessions"] = sessions.collect();
    told
}

fn figures(rates: &Rates, held_bytes: Option<f64>, watts: Option<f64>) -> Value {
    json!({
        "busy_cores": rates.cores,
        "in_use": rates.in_use,
        "held_device_memory_bytes": held_bytes,
        "launches_per_second": rates.launches,
        "moved_bytes_per_second": rates.moved_bytes,
        "watts": watts,
    })
}
