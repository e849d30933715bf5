//! The announcements of this daemon on the local network.

use std::net::IpAddr;

use penstock_discover::{Announced, Announcement, DiscoverError, announce};
use penstock_link::{Address, Keys, LinkError};
use penstock_wire::limits::PROTOCOL_VERSION;

/// Why a daemon does not announce itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnounceError {
    #[error("it has no key, so nobody could use it; make one (penstock key)")]
    NoKey,
    #[error("it listens at no TCP address; add one with a number, such as --listen tcp:0.0.0.0")]
    NoAddress,
    #[error(transparent)]
    Key(#[from] LinkError),
    #[error(transparent)]
    Network(#[from] DiscoverError),
}

/// Announces the daemon at each of its TCP addresses, until the result is dropped.
///
/// # Errors
/// Fails if no address can be announced, and if there is no key: a client uses an announced daemon
/// only if both prove that they have the pool's key.
pub(crate) fn announce_all(
    addresses: &[Address],
    keys: &Keys,
) -> Result<Vec<Announced>, AnnounceError> {
    if keys.pool().is_none() {
        return Err(AnnounceError::NoKey);
    }
    let key = keys.encryption.as_ref().map(penstock_link::Encryption::public).transpose()?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let announced: Vec<Announced> = addresses
        .iter()
        .filter_map(ip_and_port)
        .map(|(address, port)| {
            announce(&Announcement {
                // The name of a host may have a domain, and a label of DNS has no dots.
                name: name.split('.').next().unwrap_or_default().to_owned(),
                address,
                port,
                protocol: u32::from(PROTOCOL_VERSION),
                fingerprint: key.as_ref().map(penstock_link::PublicKey::fingerprint),
            })
        })
        .collect::<Result<_, _>>()?;
    if announced.is_empty() {
        return Err(AnnounceError::NoAddress);
    }
    Ok(announced)
}

/// Returns the parts of a TCP address that is written in numbers.
fn ip_and_port(address: &Address) -> Option<(IpAddr, u16)> {
    let text = address.to_string();
    let (ip, port) = text.strip_prefix("tcp:")?.rsplit_once(':')?;
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    Some((ip.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_numbers_can_be_announced() {
        let read = |text: &str| ip_and_port(&text.parse().unwrap());
        assert_eq!(read("tcp:0.0.0.0:7367"), Some(("0.0.0.0".parse().unwrap(), 7367)));
        assert_eq!(read("tcp:[fd00::1]:7400"), Some(("fd00::1".parse().unwrap(), 7400)));
        assert_eq!(read("tcp:gpu01:7367"), None);
        assert_eq!(read("unix:/a"), None);
    }

    #[test]
    fn a_daemon_without_a_key_is_not_announced() {
        let error = announce_all(&[], &Keys::default()).unwrap_err().to_string();
        assert!(error.contains("it has no key"), "{error}");
    }
}
