//! The announcement of a daemon.

use std::fmt;
use std::net::IpAddr;

use mdns_sd::{ServiceDaemon, ServiceInfo};

use crate::answer::NAME_BYTES_MAX;
use crate::{DiscoverError, FINGERPRINT_KEY, PROTOCOL_KEY, SERVICE, search};

/// What a daemon tells the local network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Name of the host.
    pub name: String,
    /// The address on which the daemon listens. The unspecified one stands for all addresses of the
    /// host, now and later.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// Version of the protocol.
    pub protocol: u32,
    /// Fingerprint of the daemon's public key, if it encrypts its links.
    pub fingerprint: Option<String>,
}

/// A daemon that is announced. The announcement is withdrawn when this is dropped.
pub struct Announced(ServiceDaemon);

impl fmt::Debug for Announced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announced").finish_non_exhaustive()
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // The library withdraws what it has announced before its thread ends.
        search::end(&self.0);
    }
}

/// Announces a daemon on all networks of this host that lead to its address.
///
/// # Errors
/// Fails if the name is not one for DNS, or if the system gives no thread or no socket.
pub fn announce(announcement: &Announcement) -> Result<Announced, DiscoverError> {
    let info = service(announcement)?;
    let daemon = ServiceDaemon::new().map_err(DiscoverError::new)?;
    daemon.register(info).map_err(DiscoverError::new)?;
    Ok(Announced(daemon))
}

fn service(announcement: &Announcement) -> Result<ServiceInfo, DiscoverError> {
    let Announcement { name, address, port, protocol, fingerprint } = announcement;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let why = format!("the name `{name}` has not 1 to {NAME_BYTES_MAX} bytes");
        return Err(DiscoverError::new(why));
    }
    // The host's own responder may answer for the name itself. Another name cannot conflict.
    let host = format!("penstock-{port}-{name}.local.");
    let protocol = protocol.to_string();
    let mut text = vec![(PROTOCOL_KEY, protocol.as_str())];
    text.extend(fingerprint.as_deref().map(|it| (FINGERPRINT_KEY, it)));
    let addresses = if address.is_unspecified() { String::new() } else { address.to_string() };
    let info = ServiceInfo::new(SERVICE, name, &host, addresses.as_str(), *port, &text[..])
        .map_err(DiscoverError::new)?;
    Ok(if address.is_unspecified() { info.enable_addr_auto() } else { info })
}
