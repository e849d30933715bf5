//! One-time keys, with which clients that came through SSH connect directly.
//!
//! A bridge gets one from its daemon and passes it to its client through SSH, which keeps it secret
//! and vouches for both ends. The client expects exactly the daemon's public key in the handshake,
//! and proves the one-time key inside the connection, as others prove the pool's key.

use std::fmt;
use std::net::SocketAddr;

use aws_lc_rs::digest::{SHA256, digest};
use penstock_tls::PublicKey;
use penstock_wire::hello::TICKET_BYTES;
use penstock_wire::invitation::SECRET_BYTES;
use zeroize::Zeroizing;

use crate::error::LinkError;
use crate::key::{Key, fill_random};

/// What stands before the secret in the digest that names the key.
const NAME: &[u8] = b"penstock 1 one-time key";

/// Where a client connects, whom it finds there, and the secret of its one-time key.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    pub(crate) address: SocketAddr,
    pub(crate) node: PublicKey,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

/// What a client with an invitation says to the bridge and hears before the bridge copies.
pub(crate) const SIGN_OF_LIFE: u8 = b'?';
pub(crate) const ANSWER: u8 = b'!';
pub(crate) const RELAY: u8 = b'>';

/// What a bridge has to offer to its client besides its own connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offer {
    /// The client has not asked.
    #[default]
    NotAsked,
    /// The user's settings on the node forbid it.
    Forbidden,
    /// The daemon gives no one-time key.
    Unavailable,
    Invitation(Invitation),
}

impl Invitation {
    pub(crate) fn new(address: SocketAddr, node: PublicKey, secret: &[u8; SECRET_BYTES]) -> Self {
        Self { address, node, secret: Zeroizing::new(*secret) }
    }

    /// Returns the address at which the daemon listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the key that the daemon proves there.
    #[must_use]
    pub fn node(&self) -> PublicKey {
        self.node
    }

    /// Returns the name of the one-time key.
    #[must_use]
    pub fn ticket(&self) -> [u8; TICKET_BYTES] {
        ticket(&self.secret)
    }

    /// Returns the one-time key, which takes the place of the pool's key.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::from_bytes(&self.secret)
    }

    /// Returns the secret as hexadecimal digits.
    pub(crate) fn digits(&self) -> Zeroizing<String> {
        let digit = |byte: &u8| format!("{byte:02x}");
        Zeroizing::new(self.secret.iter().map(digit).collect())
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, node, .. } = self;
        write!(f, "Invitation({address}, {node}, ..)")
    }
}

/// Returns the name of the one-time key with this secret. It does not tell the secret.
fn ticket(secret: &[u8; SECRET_BYTES]) -> [u8; TICKET_BYTES] {
    let text = Zeroizing::new([NAME, secret].concat());
    let mut ticket = [0; TICKET_BYTES];
    for (to, from) in ticket.iter_mut().zip(digest(&SHA256, &text).as_ref()) {
        *to = *from;
    }
    ticket
}

/// One-time key that a daemon has given out.
#[derive(Clone)]
pub struct Guest {
    /// Number of the user whose bridge has got it.
    pub user: u32,
    pub(crate) secret: Zeroizing<[u8; SECRET_BYTES]>,
}

impl Guest {
    /// Makes a one-time key.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn create(user: u32) -> Result<Self, LinkError> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        fill_random(secret.as_mut())?;
        Ok(Self { user, secret })
    }

    /// Returns the name of the key.
    #[must_use]
    pub fn ticket(&self) -> [u8; TICKET_BYTES] {
        ticket(&self.secret)
    }

    pub(crate) fn key(&self) -> Key {
        Key::from_bytes(&self.secret)
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest(user {}, ..)", self.user)
    }
}

/// The one-time keys of a daemon that are good now, and the tickets that its workers know.
pub trait Guests: fmt::Debug + Sync {
    /// Returns the key with this name, which is not good any more from then on.
    fn redeem(&self, ticket: &[u8; TICKET_BYTES]) -> Option<Guest>;

    /// Returns whether a worker here waits for a worker with this ticket.
    fn awaits(&self, ticket: &[u8; TICKET_BYTES]) -> bool;
}

/// One-time key that a daemon grants, and where and as whom the daemon waits for its client.
#[derive(Debug)]
pub struct Granted {
    pub guest: Guest,
    pub port: u16,
    pub node: PublicKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_name_a_key_alike_and_tell_nobody_the_secret() {
        let guest = Guest::create(7).unwrap();
        let node = PublicKey::from_bytes([3; 32]);
        let invitation = Invitation::new("127.0.0.1:9".parse().unwrap(), node, &guest.secret);
        assert_eq!(invitation.ticket(), guest.ticket());
        assert_ne!(guest.ticket(), *guest.secret);
        assert_ne!(guest.ticket(), Guest::create(7).unwrap().ticket());
        let granted = Granted { guest, port: 9, node };
        let (shown, digits) = (format!("{invitation:?} {granted:?}"), invitation.digits());
        assert_eq!(digits.len(), 2 * SECRET_BYTES);
        assert!(!shown.contains(digits.as_str()) && shown.contains("127.0.0.1:9"), "{shown}");
    }
}
