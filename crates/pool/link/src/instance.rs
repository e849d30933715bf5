//! The identity of a running daemon. It reveals that two addresses lead to one daemon.
//!
//! A daemon creates a key pair when it starts, and the secret key never leaves its process. The
//! public key is the daemon's instance. In each hello the daemon signs both nonces and the two ends
//! of the socket as it sees them. The connecting side accepts the instance only if the signature
//! matches the ends that the connecting side itself sees.
//!
//! A hostile daemon gains nothing from the instance of another daemon. It knows that instance,
//! because every client is told it, but cannot sign with it. It could connect to the other daemon,
//! pass the client's nonce on, and return the signature to the client. But then the other daemon
//! has signed the ends of the hostile daemon's connection (its address or its user) and not the
//! ends that the client sees. So the client treats the hostile daemon as one without an instance,
//! and thus as a separate node. The same happens to an honest daemon behind network address
//! translation: its two addresses count as two nodes. Two processes of one user on one host can
//! impersonate each other over a Unix socket; they could also read each other's memory.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use penstock_wire::hello::{INSTANCE_BYTES, SIGNATURE_BYTES};

use crate::error::LinkError;
use crate::key::fill_random;

/// Public key that identifies a running daemon.
pub type InstanceId = [u8; INSTANCE_BYTES];

/// Key pair of a running daemon.
pub struct Instance(Ed25519KeyPair);

impl Instance {
    /// Creates a new key pair.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn create() -> Result<Self, LinkError> {
        let mut seed = [0; 32];
        fill_random(&mut seed)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| LinkError::System {
            doing: "making the daemon's instance",
            source: std::io::ErrorKind::Other.into(),
        })?;
        Ok(Self(pair))
    }

    pub fn id(&self) -> InstanceId {
        let mut id = [0; INSTANCE_BYTES];
        for (to, from) in id.iter_mut().zip(self.0.public_key().as_ref()) {
            *to = *from;
        }
        id
    }

    /// Signs a transcript and the two ends of the socket.
    pub(crate) fn sign(&self, transcript: &[u8], ends: &Ends) -> [u8; SIGNATURE_BYTES] {
        let mut signature = [0; SIGNATURE_BYTES];
        let signed = self.0.sign(&ends.after(transcript));
        for (to, from) in signature.iter_mut().zip(signed.as_ref()) {
            *to = *from;
        }
        signature
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Instance(..)")
    }
}

/// Returns whether the instance `id` signed `transcript` and `ends`.
pub(crate) fn is_signed(
    id: &InstanceId,
    signature: &[u8; SIGNATURE_BYTES],
    transcript: &[u8],
    ends: &Ends,
) -> bool {
    UnparsedPublicKey::new(&ED25519, id).verify(&ends.after(transcript), signature).is_ok()
}

/// One end of a socket, reduced to what both sides see alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// User of a Unix socket.
    User(u32),
    /// Address of a TCP connection.
    Address(SocketAddr),
    /// Machine and port of a vsock connection.
    Machine { cid: u32, port: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) accepting: End,
    pub(crate) connecting: End,
}

impl Ends {
    fn after(&self, transcript: &[u8]) -> Vec<u8> {
        let mut bytes = transcript.to_vec();
        for end in [self.accepting, self.connecting] {
            match end {
                End::User(user) => {
                    bytes.push(1);
                    bytes.extend_from_slice(&user.to_le_bytes());
                }
                End::Address(address) => {
                    bytes.push(2);
                    bytes.extend_from_slice(&wide(address.ip()).octets());
                    bytes.extend_from_slice(&address.port().to_le_bytes());
                }
                End::Machine { cid, port } => {
                    bytes.push(3);
                    bytes.extend_from_slice(&cid.to_le_bytes());
                    bytes.extend_from_slice(&port.to_le_bytes());
                }
            }
        }
        bytes
    }
}

/// Returns the address as IPv6. Sockets for IPv6 show IPv4 addresses in another form.
fn wide(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(accepting: &str, connecting: &str) -> Ends {
        let end = |text: &str| End::Address(text.parse().unwrap());
        Ends { accepting: end(accepting), connecting: end(connecting) }
    }

    #[test]
    fn a_signature_is_for_one_instance_one_meeting_and_two_ends() {
        let (one, other) = (Instance::create().unwrap(), Instance::create().unwrap());
        assert_ne!(one.id(), other.id());
        let ends = tcp("10.0.0.1:7367", "10.0.0.2:40000");
        let signature = one.sign(b"meeting", &ends);
        assert!(is_signed(&one.id(), &signature, b"meeting", &ends));
        // Refused: a daemon that copies the name, an old signature, and a signature that was made
        // for a relaying daemon.
        assert!(!is_signed(&one.id(), &other.sign(b"meeting", &ends), b"meeting", &ends));
        assert!(!is_signed(&one.id(), &signature, b"meetinh", &ends));
        let relayed = one.sign(b"meeting", &tcp("10.0.0.1:7367", "10.0.0.3:40000"));
        assert!(!is_signed(&one.id(), &relayed, b"meeting", &ends));
        let users = Ends { accepting: End::User(1), connecting: End::User(2) };
        assert!(!is_signed(&one.id(), &one.sign(b"meeting", &users), b"meeting", &ends));
        assert_eq!(format!("{one:?}"), "Instance(..)");
    }

    #[test]
    fn both_forms_of_an_address_are_one() {
        let one = tcp("127.0.0.1:1", "127.0.0.1:2");
        let other = tcp("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2");
        assert_eq!(one.after(b"t"), other.after(b"t"));
        assert_ne!(one.after(b"t"), tcp("127.0.0.1:1", "127.0.0.1:3").after(b"t"));
    }
}
