//! What an answer from the network means. Anybody can send one, with any content.

use std::net::{IpAddr, SocketAddr};

/// Number of daemons that a search returns. Each costs its client a connection attempt, and anybody
/// on the network can announce as many as they like. A segment of a network has 254 addresses.
pub const FOUND_MAX: usize = 254;

/// Longest name of a daemon in bytes: a label of DNS (RFC 1035, 2.3.4).
pub const NAME_BYTES_MAX: usize = 63;

/// Longest fingerprint of a public key in bytes that is shown.
const FINGERPRINT_BYTES_MAX: usize = 64;

/// A daemon that somebody announces. Nothing in it is proved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Name of its host, in letters, digits and the signs `.`, `-` and `_`.
    pub name: String,
    pub address: SocketAddr,
    /// Version of its protocol.
    pub protocol: Option<u32>,
    /// Fingerprint of its public key, if it encrypts its links.
    pub fingerprint: Option<String>,
}

/// The parts of an answer.
pub(crate) struct Answer<'a> {
    /// First label of the service's full name.
    pub(crate) name: &'a str,
    /// Those that are valid where the answer came from.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) protocol: Option<&'a str>,
    pub(crate) fingerprint: Option<&'a str>,
}

/// Returns the daemon that an answer announces, or `None` if the answer is of no use.
pub(crate) fn understand(answer: &Answer<'_>) -> Option<Found> {
    let name = Some(answer.name).filter(|name| is_plain(name, NAME_BYTES_MAX))?;
    // The smallest one, so that every search returns the same. IPv4 comes before IPv6.
    let ip = answer.addresses.iter().copied().filter(is_reachable).min()?;
    if answer.port == 0 {
        return None;
    }
    let fingerprint = answer.fingerprint.filter(|it| is_plain(it, FINGERPRINT_BYTES_MAX));
    Some(Found {
        name: name.to_owned(),
        address: SocketAddr::new(ip, answer.port),
        protocol: answer.protocol.and_then(|text| text.parse().ok()),
        fingerprint: fingerprint.map(str::to_owned),
    })
}

/// Returns the daemons in the order of their names, each address once, and at most [`FOUND_MAX`].
pub(crate) fn arrange(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_unstable();
    let mut kept: Vec<Found> = Vec::new();
    for one in found {
        if kept.len() < FOUND_MAX && kept.iter().all(|other| other.address != one.address) {
            kept.push(one);
        }
    }
    kept
}

/// Returns whether a text can be shown on a terminal and stand in a list of nodes.
fn is_plain(text: &str, bytes_max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !text.is_empty() && text.len() <= bytes_max && text.bytes().all(is_allowed)
}

/// Returns whether the address alone says where to connect. A link-local address of IPv6 also needs
/// the network card.
fn is_reachable(ip: &IpAddr) -> bool {
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_unspecified() && !ip.is_multicast() && !is_link_local
}

/// Returns whether the address means another host on each network: the own host, or a host on the
/// same cable. Clouds have services at link-local addresses, which give out the rights of the
/// machine.
pub(crate) fn is_of_network(ip: &IpAddr) -> bool {
    ip.is_loopback() || matches!(ip, IpAddr::V4(ip) if ip.is_link_local())
}

/// Returns whether an answer may name such an address, if it came over a card with these addresses:
/// one of them must be of the same kind. So nobody on a network makes a client knock at its own
/// host, or at a service of its cloud.
pub(crate) fn is_of_card(ip: &IpAddr, card: &[IpAddr]) -> bool {
    card.iter().any(|own| is_of_network(own) && own.is_loopback() == ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(name: &'a str, addresses: &[&str]) -> Answer<'a> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Answer { name, addresses, port: 7367, protocol: Some("31"), fingerprint: Some("ab-12") }
    }

    fn found(name: &str, address: &str) -> Found {
        let address = address.parse().unwrap();
        Found { name: name.to_owned(), address, protocol: None, fingerprint: None }
    }

    #[test]
    fn an_answer_is_understood() {
        let gpu01 = understand(&answer("gpu01", &["fd00::7", "10.0.0.7"])).unwrap();
        assert_eq!(
            (gpu01.name.as_str(), gpu01.address.to_string().as_str()),
            ("gpu01", "10.0.0.7:7367")
        );
        assert_eq!((gpu01.protocol, gpu01.fingerprint.as_deref()), (Some(31), Some("ab-12")));
        let six = understand(&answer("gpu01", &["fe80::1", "fd00::7"])).unwrap();
        assert_eq!(six.address.to_string(), "[fd00::7]:7367");
    }

    #[test]
    fn names_that_could_mislead_a_reader_are_left_out() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "gpu01,tcp:evil", "gpu 01", "\u{1b}[2J", "g\nu", "gpü", &long] {
            assert_eq!(understand(&answer(name, &["10.0.0.7"])), None, "{name:?}");
        }
        let mut strange = answer("gpu01", &["10.0.0.7"]);
        (strange.protocol, strange.fingerprint) = (Some("-1"), Some("\u{1b}[2J"));
        let strange = understand(&strange).unwrap();
        assert_eq!((strange.protocol, strange.fingerprint), (None, None));
    }

    #[test]
    fn addresses_that_lead_nowhere_are_left_out() {
        for addresses in [&[][..], &["0.0.0.0"], &["224.0.0.251"], &["fe80::1"], &["::"]] {
            assert_eq!(understand(&answer("gpu01", addresses)), None, "{addresses:?}");
        }
        assert_eq!(understand(&Answer { port: 0, ..answer("gpu01", &["10.0.0.7"]) }), None);
    }

    #[test]
    fn an_address_of_one_network_must_come_from_there() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        for (address, card, is_taken) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "127.0.0.1", true),
            ("127.0.0.1", "10.0.0.1", false),
            ("127.0.0.1", "169.254.7.7", false),
            ("169.254.169.254", "10.0.0.1", false),
            ("169.254.169.254", "127.0.0.1", false),
            ("169.254.8.8", "169.254.7.7", true),
        ] {
            assert!(is_of_network(&ip(address)), "{address}");
            assert_eq!(is_of_card(&ip(address), &[ip(card)]), is_taken, "{address} over {card}");
        }
        for address in ["10.0.0.1", "fd00::1", "8.8.8.8"] {
            assert!(!is_of_network(&ip(address)), "{address}");
        }
    }

    #[test]
    fn each_address_is_there_once_and_the_number_is_bounded() {
        let twice = [found("b", "10.0.0.2:1"), found("a", "10.0.0.2:1"), found("c", "10.0.0.2:2")];
        let kept = arrange(twice.to_vec());
        assert_eq!(kept, [found("a", "10.0.0.2:1"), found("c", "10.0.0.2:2")]);
        let many = (1..=u16::MAX).map(|port| found("a", &format!("10.0.0.2:{port}"))).collect();
        assert_eq!(arrange(many).len(), FOUND_MAX);
    }
}
