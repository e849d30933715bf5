//! What a handshake yields: the connection to another member.

use std::fmt;

use penstock_link::{SharedMemory, Stream};

use crate::proxy::carrier::Carrier;

/// Connection to another member after the handshake.
pub(crate) enum MemberConnection {
    /// The member is on this host: its parts, and a stream for notes of abort.
    SharesMemory(Stream, SharedMemory),
    /// The proxy reaches the member.
    Proxied(Box<dyn Carrier>, ProxyTransport),
}

impl MemberConnection {
    pub(crate) fn memory(&self) -> Option<&SharedMemory> {
        match self {
            Self::SharesMemory(_, memory) => Some(memory),
            Self::Proxied(..) => None,
        }
    }
}

impl fmt::Debug for MemberConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharesMemory(..) => f.write_str("SharesMemory"),
            Self::Proxied(_, transport) => f.debug_tuple("Proxied").field(transport).finish(),
        }
    }
}

/// What carries a proxy's bytes to another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyTransport {
    /// The stream over which the member joined.
    Stream,
    /// The same, although UCX was wanted; the sentence says why.
    StreamInstead(String),
    /// UCX, with these transports.
    Ucx(String),
}

impl fmt::Display for ProxyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream | Self::StreamInstead(_) => f.write_str("proxy"),
            Self::Ucx(transports) => write!(f, "proxy (ucx: {transports})"),
        }
    }
}
