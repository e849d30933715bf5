//! A quick look at which nodes answer, before a program starts.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::thread;
use std::time::Instant;

use penstock_client::config::{Config, NodeAddress, Surroundings};
use penstock_link::{Address, Key, LinkError};
use penstock_wire::hello::Role;

use crate::status;

/// A node, and what its daemon says of itself or why it does not answer.
#[derive(Debug)]
pub struct Probed {
    /// The node.
    pub node: NodeAddress,
    /// The daemon's status, as JSON.
    pub answer: Result<serde_json::Value, LinkError>,
}

/// Asks all nodes at once, each for as long as the configuration allows.
pub fn probe_all(config: &Config) -> Vec<Probed> {
    let deadline = Instant::now() + config.timeout;
    let key = config.key.as_deref();
    thread::scope(|scope| {
        let ask = |node: &NodeAddress| {
            let key = match (&node.address, key) {
                (Address::Tcp { .. }, Some(path)) => Some(Key::load(path)?),
                _ => None,
            };
            status::ask(&node.address, Role::Control, key.as_ref(), deadline)
        };
        let threads: Vec<_> =
            config.nodes.iter().map(|node| (node, scope.spawn(move || ask(node)))).collect();
        let join = |(node, thread): (&NodeAddress, thread::ScopedJoinHandle<'_, _>)| Probed {
            node: node.clone(),
            answer: thread.join().unwrap_or(Err(LinkError::Closed)),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Whether the node is on this host, so that its devices are the local ones.
pub fn is_this_host(node: &NodeAddress) -> bool {
    match &node.address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => {
            Surroundings::of_process().is_own_host(host)
                || (host.as_str(), 0)
                    .to_socket_addrs()
                    .is_ok_and(|mut addresses| addresses.any(|address| is_own_address(address.ip())))
        }
    }
}

/// Only an address of this host can be bound to.
fn is_own_address(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known_by_any_of_its_names() {
        assert!(is_this_host(&NodeAddress::unix("x", "/x".into())));
        assert!(is_this_host(&NodeAddress::tcp("127.0.0.1", 1)));
        assert!(
            is_this_host(&NodeAddress::tcp("::1", 1))
                || !is_own_address(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]))
        );
        // Set aside for documentation: nobody's.
        assert!(!is_this_host(&NodeAddress::tcp("192.0.2.1", 1)));
    }
}
