//! The configuration of the pool, its key, and its nodes.

use super::define::{Check, Seen, when};
use crate::facts::{Facts, KeyState, NodeAnswer};
use crate::finding::Severity::{Error, Note, Warning};
use crate::finding::Topic::Pool;

pub const CHECKS: &[Check] = &[
    Check {
        id: "pool-file",
        topic: Pool,
        severity: Error,
        title: "The configuration of the pool cannot be read.",
        why: "Programs find no node until it is repaired.",
        find: pool_file,
    },
    Check {
        id: "pool-file-mode",
        topic: Pool,
        severity: Warning,
        title: "Other users may change pool.toml.",
        why: "Who can change the file can send the user's programs and data to nodes of their own.",
        find: pool_file_mode,
    },
    Check {
        id: "key-missing",
        topic: Pool,
        severity: Error,
        title: "A node is reached over a network, but there is no key file.",
        why: "Nodes accept nobody over TCP without the pool's key.",
        find: key_missing,
    },
    Check {
        id: "key-mode",
        topic: Pool,
        severity: Error,
        title: "Other users may read the key file.",
        why: "Penstock refuses such a key. Who can read the key can use all devices of the pool \
              and see what runs there.",
        find: key_mode,
    },
    Check {
        id: "key-form",
        topic: Pool,
        severity: Error,
        title: "The key file contains no key, or belongs to another user.",
        why: "Penstock refuses such a key.",
        find: key_form,
    },
    Check {
        id: "library-missing",
        topic: Pool,
        severity: Error,
        title: "libpenstock_opencl.so is not installed.",
        why: "`penstock run` cannot start a program without it.",
        find: library_missing,
    },
    Check {
        id: "runtime-mode",
        topic: Pool,
        severity: Warning,
        title: "Other users may write into the directory of the daemon's socket.",
        why: "Another user could put a daemon there, which would see all data of the programs. \
              Penstock does not use a socket in such a directory unless it is named.",
        find: runtime_mode,
    },
    Check {
        id: "node-silent",
        topic: Pool,
        severity: Warning,
        title: "A node of the pool does not answer.",
        why: "Programs are started without the devices of this node.",
        find: node_silent,
    },
    Check {
        id: "node-drained",
        topic: Pool,
        severity: Note,
        title: "A node of the pool is drained.",
        why: "An administrator has told the node to take no new clients. Programs are started \
              without its devices, or not at all if they name the node.",
        find: node_drained,
    },
    Check {
        id: "node-key",
        topic: Pool,
        severity: Error,
        title: "A node of the pool has another key.",
        why: "The node refuses the programs of this host.",
        find: node_key,
    },
    Check {
        id: "node-protocol",
        topic: Pool,
        severity: Error,
        title: "A node of the pool speaks another version of the protocol.",
        why: "The two sides refuse each other.",
        find: node_protocol,
    },
    Check {
        id: "node-release",
        topic: Pool,
        severity: Note,
        title: "Nodes of the pool run different releases.",
        why: "Releases with the same protocol work together, but the newer one has repairs that \
              the older one lacks.",
        find: node_release,
    },
];

fn pool_file(facts: &Facts) -> Vec<Seen> {
    let seen = |problem: &String| {
        let place = facts.pool.file.as_ref().map_or("", |(path, _)| path);
        Seen::new(place, problem, "penstock config, which names every problem")
    };
    facts.pool.problem.iter().map(seen).collect()
}

fn pool_file_mode(facts: &Facts) -> Vec<Seen> {
    let Some((path, node)) = &facts.pool.file else { return Vec::new() };
    when(node.mode & 0o022 != 0, || {
        let text = format!("/{path} has mode {:03o}", node.mode & 0o777);
        Seen::new(path, text, format!("chmod go-w /{path}"))
    })
}

fn key_missing(facts: &Facts) -> Vec<Seen> {
    let pool = &facts.pool;
    when(pool.uses_network && pool.key.is_none(), || {
        let path = pool.key_path.as_deref().unwrap_or_default();
        let repair = "copy the key file of another node, or make one: penstock key --create";
        Seen::new(path, format!("/{path} is not there"), repair)
    })
}

fn key_mode(facts: &Facts) -> Vec<Seen> {
    let pool = &facts.pool;
    let Some((path, node)) = pool.key_path.as_ref().zip(pool.key) else { return Vec::new() };
    when(node.mode & 0o077 != 0, || {
        let text = format!("/{path} has mode {:03o}", node.mode & 0o777);
        Seen::new(path, text, format!("chmod 600 /{path}"))
    })
}

fn key_form(facts: &Facts) -> Vec<Seen> {
    let pool = &facts.pool;
    let Some((path, node)) = pool.key_path.as_ref().zip(pool.key) else { return Vec::new() };
    // `key-mode` says the same of a key that others may read.
    when(pool.key_state == KeyState::Unusable && node.mode & 0o077 == 0, || {
        let text = format!("/{path} is not the user's file with 64 hexadecimal digits");
        Seen::new(path, text, "copy the key file of another node of the pool")
    })
}

fn library_missing(facts: &Facts) -> Vec<Seen> {
    when(facts.pool.lacks_library, || {
        let text =
            "libpenstock_opencl.so is neither beside the command `penstock` nor in its prefix";
        let repair = "install Penstock again, or let PENSTOCK_LIB name the library";
        Seen::new("", text, repair)
    })
}

fn runtime_mode(facts: &Facts) -> Vec<Seen> {
    let Some((path, node)) = &facts.pool.runtime else { return Vec::new() };
    let is_foreign = node.user != 0 && facts.user.id.is_some_and(|id| id != node.user);
    when(node.mode & 0o022 != 0 || is_foreign, || {
        let mode = node.mode & 0o777;
        let text = format!("/{path} has mode {mode:03o} and belongs to user {}", node.user);
        Seen::new(path, text, format!("chmod 700 /{path}, if the directory is the user's own"))
    })
}

/// Returns what is seen of the nodes for which `text` has a text.
fn of_nodes(
    facts: &Facts,
    repair: &str,
    text: impl Fn(&str, &NodeAnswer) -> Option<String>,
) -> Vec<Seen> {
    let nodes = facts.pool.nodes.iter();
    let seen = |(address, answer): &(String, NodeAnswer)| {
        Some(Seen::new(address, text(address, answer)?, repair))
    };
    nodes.filter_map(seen).collect()
}

fn node_silent(facts: &Facts) -> Vec<Seen> {
    let repair = "start the daemon of the node; check the host's name, the port and the firewall";
    of_nodes(facts, repair, |address, answer| match answer {
        NodeAnswer::Silent(why) => Some(format!("the node {address} does not answer: {why}")),
        _ => None,
    })
}

fn node_drained(facts: &Facts) -> Vec<Seen> {
    let repair = "wait, or ask the node's administrator (penstock drain --undo NODE)";
    of_nodes(facts, repair, |address, answer| match answer {
        NodeAnswer::Drained(_) => Some(format!("the node {address} takes no new clients")),
        _ => None,
    })
}

fn node_key(facts: &Facts) -> Vec<Seen> {
    let repair = "copy the key file of the node to this host, or the other way round";
    of_nodes(facts, repair, |address, answer| match answer {
        NodeAnswer::Key(why) => Some(format!("the node {address}: {why}")),
        _ => None,
    })
}

fn node_protocol(facts: &Facts) -> Vec<Seen> {
    let repair = "install the same release on both hosts";
    of_nodes(facts, repair, |address, answer| match answer {
        NodeAnswer::Version(why) => Some(format!("the node {address}: {why}")),
        _ => None,
    })
}

fn node_release(facts: &Facts) -> Vec<Seen> {
    let release = |answer: &NodeAnswer| match answer {
        NodeAnswer::Answers(release) | NodeAnswer::Drained(release) => Some(release.clone()),
        _ => None,
    };
    let mut releases: Vec<String> =
        facts.pool.nodes.iter().filter_map(|(_, answer)| release(answer)).collect();
    releases.sort();
    releases.dedup();
    when(releases.len() > 1, || {
        let text = format!("the nodes run the releases {}", releases.join(", "));
        Seen::new("", text, "install the same release on all nodes")
    })
}
