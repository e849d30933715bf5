//! Where the daemon connects for its workers.
//!
//! A client names the address, and both sides prove the pool's key before anything of the client is
//! sent. So the rules here only keep a client from seeing which sockets answer that are none of the
//! pool's nodes.

use std::net::IpAddr;

use penstock_link::{Address, Destination};
use penstock_process::variable::PEER_NETWORKS;

/// vsock's number of the machine itself. The others are no addresses of nodes: a number names
/// another machine on each machine.
const OWN_MACHINE: u32 = 1;

/// The word for no network at all.
const NONE: &str = "none";

/// Destinations to which the daemon connects for its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permitted {
    /// Networks that the administrator has named.
    networks: Option<Vec<Network>>,
    /// Whether the daemon serves programs on its own host. They could connect there themselves.
    serves_host: bool,
    /// Whether the daemon itself has an address that is valid on one cable only.
    serves_link: bool,
}

/// An address and the number of its first bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

/// An entry that names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable}: `{0}` is no network; write ADDRESS/BITS, for example 10.1.0.0/16, several \
     separated by commas, or `none`",
    variable = PEER_NETWORKS.name
)]
pub struct WrongNetwork(String);

impl Permitted {
    /// Reads the environment. `addresses` are those of the daemon.
    pub(crate) fn configured(addresses: &[Address]) -> Result<Self, WrongNetwork> {
        let named = PEER_NETWORKS.value();
        let networks = named.map(|text| networks(&text.to_string_lossy())).transpose()?;
        // They were bound a moment ago, so their names are known.
        let resolved = addresses.iter().filter_map(|address| address.resolve().ok()).flatten();
        let own: Vec<Destination> = resolved.map(|it| it.destination).collect();
        Ok(Self::of(networks, &own))
    }

    fn of(networks: Option<Vec<Network>>, own: &[Destination]) -> Self {
        let serves_host = own.iter().any(|it| match it {
            Destination::Host(address) => {
                let address = address.to_canonical();
                address.is_loopback() || address.is_unspecified()
            }
            _ => true,
        });
        let is_link = |it: &Destination| matches!(it, Destination::Host(it) if is_of_link(*it));
        Self { networks, serves_host, serves_link: own.iter().any(is_link) }
    }

    /// Returns why the daemon does not connect there, or `None`. `is_own` says whether the daemon's
    /// own user asks.
    ///
    /// Whoever listens on a Unix socket sees the daemon's user at the other end, and not the
    /// client's. So only that user may name one.
    pub(crate) fn refusal(&self, to: &Destination, is_own: bool) -> Option<&'static str> {
        let host = match to {
            Destination::Host(address) => address.to_canonical(),
            Destination::File | Destination::Machine(OWN_MACHINE) => {
                if self.networks.as_ref().is_some_and(Vec::is_empty) {
                    return Some("PENSTOCK_PEER_NETWORKS of that daemon is `none`");
                }
                if matches!(to, Destination::File) && !is_own {
                    return Some("only the daemon's own user may name the path of a socket");
                }
                return (!self.serves_host).then_some("it serves no programs of its own host");
            }
            _ => return Some("only a user may name such an address"),
        };
        if let Some(networks) = &self.networks {
            let is_named = networks.iter().any(|network| network.has(host));
            return (!is_named).then_some("PENSTOCK_PEER_NETWORKS of that daemon does not name it");
        }
        if host.is_unspecified() || host.is_multicast() || host == IpAddr::from([255; 4]) {
            return Some("it is no address of a host");
        }
        if host.is_loopback() {
            return (!self.serves_host).then_some("it serves no programs of its own host");
        }
        let is_strange = is_of_link(host) && !self.serves_link;
        is_strange.then_some("the address is valid on one cable only; see PENSTOCK_PEER_NETWORKS")
    }
}

/// Returns whether an address is link-local. Clouds have services at such addresses that give out
/// the rights of the machine.
fn is_of_link(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

fn networks(text: &str) -> Result<Vec<Network>, WrongNetwork> {
    if text.trim() == NONE {
        return Ok(Vec::new());
    }
    let network = |text: &str| Network::read(text).ok_or_else(|| WrongNetwork(text.to_owned()));
    text.split(',').map(str::trim).map(network).collect()
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { u32::BITS } else { u128::BITS };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let other = match (self.address, address) {
            (IpAddr::V4(here), IpAddr::V4(there)) => {
                u128::from(here.to_bits() ^ there.to_bits()) << (u128::BITS - u32::BITS)
            }
            (IpAddr::V6(here), IpAddr::V6(there)) => here.to_bits() ^ there.to_bits(),
            _ => return false,
        };
        other.leading_zeros() >= self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Destination {
        Destination::Host(text.parse().unwrap())
    }

    fn permits(permitted: &Permitted, to: &Destination) -> bool {
        permitted.refusal(to, true).is_none()
    }

    #[test]
    fn nodes_of_networks_are_permitted_and_special_addresses_are_not() {
        let permitted = Permitted::of(None, &[host("10.0.0.1")]);
        for to in ["10.0.0.2", "192.168.7.7", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(permits(&permitted, &host(to)), "{to}");
        }
        for to in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
        ] {
            assert!(!permits(&permitted, &host(to)), "{to}");
        }
        for to in [Destination::File, Destination::Machine(1), Destination::Machine(2)] {
            assert!(!permits(&permitted, &to), "{to:?}");
        }
    }

    #[test]
    fn a_daemon_that_serves_its_own_host_connects_within_it() {
        for own in [host("127.0.0.1"), host("0.0.0.0"), host("::"), Destination::File] {
            let permitted = Permitted::of(None, &[host("10.0.0.1"), own]);
            for to in [host("127.0.0.1"), host("::1"), Destination::File, Destination::Machine(1)] {
                assert!(permits(&permitted, &to), "{own:?} {to:?}");
            }
            for to in [host("0.0.0.0"), host("169.254.169.254"), Destination::Machine(3)] {
                assert!(!permits(&permitted, &to), "{own:?} {to:?}");
            }
        }
        let permitted = Permitted::of(None, &[host("169.254.1.1")]);
        assert!(permits(&permitted, &host("169.254.1.2")));
    }

    #[test]
    fn only_the_daemons_user_names_a_path() {
        let permitted = Permitted::of(None, &[Destination::File, host("10.0.0.1")]);
        assert_eq!(permitted.refusal(&Destination::File, true), None);
        let refusal = permitted.refusal(&Destination::File, false).unwrap();
        assert!(refusal.contains("own user"), "{refusal}");
        assert_eq!(permitted.refusal(&host("127.0.0.1"), false), None);
    }

    #[test]
    fn named_networks_replace_the_rules_for_hosts() {
        let named = networks("10.1.0.0/16, fd00::/8,192.168.0.7").unwrap();
        let permitted = Permitted::of(Some(named), &[host("127.0.0.1")]);
        for to in ["10.1.255.255", "fdff::1", "192.168.0.7", "::ffff:10.1.0.1"] {
            assert!(permits(&permitted, &host(to)), "{to}");
        }
        for to in ["10.2.0.0", "fc00::1", "192.168.0.8", "127.0.0.1", "8.8.8.8"] {
            let refusal = permitted.refusal(&host(to), true).unwrap();
            assert!(refusal.contains("PENSTOCK_PEER_NETWORKS"), "{to}: {refusal}");
        }
        let nothing = Permitted::of(Some(networks("none").unwrap()), &[]);
        assert!(!permits(&nothing, &host("10.0.0.1")));
        let nothing = Permitted::of(Some(networks("none").unwrap()), &[Destination::File]);
        assert!(!permits(&nothing, &Destination::File));
        assert!(!permits(&nothing, &Destination::Machine(1)));
        let everything = Permitted::of(Some(networks("0.0.0.0/0,::/0").unwrap()), &[]);
        assert!(permits(&everything, &host("10.0.0.1")) && permits(&everything, &host("::1")));
    }

    #[test]
    fn what_is_no_network_is_an_error() {
        for text in ["10.0.0.0/33", "node7", "10.0.0.0/", "", "10.0.0.0/8,", "none,10.0.0.0/8"] {
            let error = networks(text).unwrap_err().to_string();
            assert!(error.contains("is no network") && error.contains("ADDRESS/BITS"), "{error}");
        }
    }
}
