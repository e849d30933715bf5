//! `penstock discover`: the daemons that announce themselves on the local network.

use std::process::ExitCode;

use clap::Args;
use penstock_discover::{Found, search};
use penstock_wire::limits::PROTOCOL_VERSION;
use serde_json::json;

use crate::failure::Failure;
use crate::table::{self, Table};

pub const AFTER_DISCOVER: &str = "\
Examples:
  penstock discover
  PENSTOCK_NODES=discover penstock run -- ./program

A daemon announces itself if it runs with --announce. Anybody on the network can announce \
anything, so an announcement proves nothing: a program uses a daemon only if both prove that they \
have the pool's key (penstock key).

Exit status:
0 if a daemon was found, 3 if none was.";

/// Exit status: no daemon was found. As with other commands if no node answers.
const NOTHING_FOUND: u8 = 3;

#[derive(Args, Debug)]
pub struct DiscoverArgs {
    /// Write the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists the daemons that announce themselves.
pub fn discover(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let found = search().map_err(|error| Failure::Search(error.to_string()))?;
    if args.json {
        let list: Vec<_> = found.iter().map(as_json).collect();
        table::print(&format!("{:#}\n", json!(list)))?;
    } else {
        table::print(&listed(&found).render(table::terminal_width()))?;
    }
    if !found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "penstock: no daemon announces itself on the local network; start one there with `penstock \
         serve --listen tcp:0.0.0.0 --announce`"
    );
    Ok(ExitCode::from(NOTHING_FOUND))
}

fn as_json(found: &Found) -> serde_json::Value {
    json!({
        "name": found.name,
        "address": format!("tcp:{}", found.address),
        "protocol": found.protocol,
        "key": found.fingerprint,
    })
}

fn listed(found: &[Found]) -> Table {
    let mut list = Table::new(&["NAME", "ADDRESS", "KEY", "NOTE"]);
    for one in found {
        let note = match one.protocol {
            Some(protocol) if protocol != u32::from(PROTOCOL_VERSION) => {
                format!("speaks protocol {protocol}, and this command {PROTOCOL_VERSION}")
            }
            _ => String::new(),
        };
        let key = one.fingerprint.clone().unwrap_or_default();
        list.row(vec![one.name.clone(), format!("tcp:{}", one.address), key, note]);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_named() {
        let address = "10.0.0.1:7367".parse().unwrap();
        let with = |protocol| Found { name: "a".into(), address, protocol, fingerprint: None };
        let same = listed(&[with(Some(u32::from(PROTOCOL_VERSION)))]).render(None);
        assert!(same.contains("tcp:10.0.0.1:7367") && !same.contains("speaks"), "{same}");
        let other = listed(&[with(Some(9_999))]).render(None);
        assert!(other.contains("speaks protocol 9999"), "{other}");
    }
}
