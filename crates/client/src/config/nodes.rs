//! Addresses of nodes, as a person writes them.

use std::fmt;
use std::path::{Path, PathBuf};

use penstock_link::{Address, LinkError};

use super::{
    ConfigError, NODES_MAX, NODES_VARIABLE, PORT_DEFAULT, SLURM_VARIABLE, Surroundings, Where,
};

/// Instead of a list: a pool without nodes, whatever the file and the surroundings say.
pub const NO_NODES: &str = "none";

/// A node of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// As it was written: what messages call it.
    pub name: String,
    /// Where its daemon listens.
    pub address: Address,
}

impl NodeAddress {
    /// A node behind a Unix socket.
    pub fn unix(name: &str, path: PathBuf) -> Self {
        Self { name: name.to_owned(), address: Address::Unix(path) }
    }

    /// A node behind a TCP port.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self { name: host.to_owned(), address: Address::Tcp { host: host.to_owned(), port } }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Reads a list of addresses with commas between, as in `PENSTOCK_NODES`, or [`NO_NODES`].
///
/// # Errors
/// When one is not an address.
pub fn read_list(
    list: &str,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    read_list_at(list, &Where::Variable(NODES_VARIABLE), surroundings)
}

/// As [`read_list`], found at `place`.
///
/// # Errors
/// When one is not an address.
pub fn read_list_at(
    list: &str,
    place: &Where,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    // The program may change its directory before it opens the pool a second time, so paths are made absolute now.
    let base = std::env::current_dir().unwrap_or_default();
    let mut nodes = Vec::new();
    if list.trim() == NO_NODES {
        return Ok(nodes);
    }
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        add(&mut nodes, read(item, place, &base, surroundings)?, place)?;
    }
    Ok(nodes)
}

/// Reads one address: what [`Address`] understands, `tcp:HOST` for the default port, or `local` for the own daemon.
pub(super) fn read(
    item: &str,
    place: &Where,
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Result<NodeAddress, ConfigError> {
    let fail = |reason: String| ConfigError::Address {
        place: place.clone(),
        value: item.to_owned(),
        reason,
    };
    if item == "local" {
        return Ok(NodeAddress::unix(item, surroundings.own_socket()));
    }
    if let Some(path) = item.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(fail("the path is missing".to_owned()));
        }
        return Ok(NodeAddress::unix(item, surroundings.expand(path, base)));
    }
    let address = with_port(item).parse::<Address>().map_err(|error| match error {
        LinkError::Address { why, .. } => fail(why.to_owned()),
        other => fail(other.to_string()),
    })?;
    Ok(NodeAddress { name: item.to_owned(), address })
}

/// `tcp:HOST` as `tcp:HOST:PORT`.
fn with_port(item: &str) -> String {
    let host = item.strip_prefix("tcp:").unwrap_or_default();
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.ends_with(']'),
        None => !host.is_empty() && !host.contains(':'),
    };
    if bare { format!("{item}:{PORT_DEFAULT}") } else { item.to_owned() }
}

/// The daemons on `hosts`, each at `port`; this host's own through its Unix socket where it has one.
pub(super) fn of_hosts(
    hosts: &[String],
    port: u16,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    let mut nodes = Vec::new();
    for host in hosts {
        let own = surroundings.own_socket_if_present().filter(|_| surroundings.is_own_host(host));
        let node =
            own.map_or_else(|| NodeAddress::tcp(host, port), |path| NodeAddress::unix(host, path));
        add(&mut nodes, node, &Where::Variable(SLURM_VARIABLE))?;
    }
    Ok(nodes)
}

/// A node that is named twice is one node: its devices must not be shown twice.
pub(super) fn add(
    nodes: &mut Vec<NodeAddress>,
    node: NodeAddress,
    place: &Where,
) -> Result<(), ConfigError> {
    if nodes.iter().any(|known| known.address == node.address) {
        return Ok(());
    }
    if nodes.len() == NODES_MAX {
        return Err(ConfigError::TooManyNodes { place: place.clone() });
    }
    nodes.push(node);
    Ok(())
}
