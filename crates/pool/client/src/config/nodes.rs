//! Addresses of nodes, as users write them.

use std::fmt;
use std::path::{Path, PathBuf};

use penstock_discover::Found;
use penstock_link::{Address, Completion, LinkError, Purpose};

use super::{
    ConfigError, NODES_MAX, NODES_VARIABLE, PORT_DEFAULT, SLURM_VARIABLE, Surroundings, Where,
};

/// Text in place of a list. It stands for a pool without nodes and overrides the file and the
/// surroundings.
pub const NO_NODES: &str = "none";

/// Entry of a list in place of an address. It stands for the daemons that announce themselves on
/// the local network.
pub const DISCOVER: &str = "discover";

/// Name of the user's own daemon in a list.
pub const LOCAL: &str = "local";

/// A node of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The address as it was written, which messages use as the node's name.
    pub name: String,
    /// Address at which the node's daemon listens.
    pub address: Address,
    /// Whether the user has named this node. Nobody has named a node that announces itself, that
    /// Slurm lists, or that is looked for at a default place.
    pub is_named: bool,
}

impl NodeAddress {
    /// Returns a node behind a Unix socket.
    pub fn unix(name: &str, path: PathBuf) -> Self {
        Self { name: name.to_owned(), address: Address::unix(path), is_named: false }
    }

    /// Returns a node behind a TCP port.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self { name: host.to_owned(), address: Address::tcp(host, port), is_named: false }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Reads a list of addresses separated by commas, as in `PENSTOCK_NODES`, or [`NO_NODES`].
///
/// # Errors
/// If an entry is not an address.
pub fn read_list(
    list: &str,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    read_list_at(list, &Where::Variable(NODES_VARIABLE), surroundings)
}

/// As [`read_list`], for a list that was found at `place`.
///
/// # Errors
/// If an entry is not an address.
pub fn read_list_at(
    list: &str,
    place: &Where,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    read_all(list, Purpose::Connect, place, surroundings)
}

/// As [`read_list_at`], for addresses on which a daemon shall listen.
///
/// # Errors
/// If an entry is not an address.
pub fn read_listeners(
    list: &str,
    place: &Where,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    read_all(list, Purpose::Listen, place, surroundings)
}

fn read_all(
    list: &str,
    purpose: Purpose,
    place: &Where,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<NodeAddress>, ConfigError> {
    // The program may change its directory before it opens the pool again, so paths are made
    // absolute now.
    let base = std::env::current_dir().unwrap_or_default();
    let mut nodes = Vec::new();
    if list.trim() == NO_NODES {
        return Ok(nodes);
    }
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if item == DISCOVER && purpose == Purpose::Connect {
            add_found(&mut nodes, place, surroundings)?;
        } else {
            add(&mut nodes, read_for(purpose, item, place, &base, surroundings)?, place)?;
        }
    }
    if nodes.is_empty() && list.contains(DISCOVER) {
        return Err(ConfigError::NothingFound { place: place.clone() });
    }
    Ok(nodes)
}

/// Adds the daemons that announce themselves on the local network. The daemon of this host is
/// reached through its Unix socket if it has one.
///
/// An announcement is only a place to knock at. Like any node over TCP, such a node is used only if
/// it proves the pool's key in the hello.
pub(super) fn add_found(
    nodes: &mut Vec<NodeAddress>,
    place: &Where,
    surroundings: &Surroundings<'_>,
) -> Result<(), ConfigError> {
    let found =
        surroundings.search().map_err(|why| ConfigError::Search { place: place.clone(), why })?;
    for Found { name, address, .. } in found {
        let own = surroundings.own_socket_if_present().filter(|_| surroundings.is_own_host(&name));
        let address = own
            .map_or_else(|| Address::tcp(&address.ip().to_string(), address.port()), Address::unix);
        add(nodes, NodeAddress { name, address, is_named: false }, place)?;
    }
    Ok(())
}

/// Reads one address of a node: any that [`Address`] understands, or `local` for the user's own
/// daemon. An address may leave out the default port.
pub fn read(
    item: &str,
    place: &Where,
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Result<NodeAddress, ConfigError> {
    read_for(Purpose::Connect, item, place, base, surroundings)
}

fn read_for(
    purpose: Purpose,
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
    if item == LOCAL {
        let own = NodeAddress::unix(item, surroundings.own_socket());
        return Ok(NodeAddress { is_named: true, ..own });
    }
    let path = &|path: &str| surroundings.expand(path, base);
    let completion = Completion { port: Some(PORT_DEFAULT), path, purpose };
    let address = Address::read(item, &completion).map_err(|error| match error {
        LinkError::Address { why, .. } => fail(why),
        other => fail(other.to_string()),
    })?;
    Ok(NodeAddress { name: item.to_owned(), address, is_named: true })
}

/// Returns the daemons on `hosts`, each at `port`. This host's own daemon is reached through its
/// Unix socket if it has one.
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

/// Adds a node, unless it is in the list already: its devices must not appear twice.
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
