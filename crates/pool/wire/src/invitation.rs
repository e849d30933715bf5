//! How a bridge gets a one-time key, with which its client connects directly to the daemon.
//!
//! The bridge opens a link with [`Role::Invitation`](crate::hello::Role::Invitation) on the
//! daemon's Unix socket, and the daemon lets only its own user do that. After the hello the bridge
//! sends an [`Ask`], and the daemon answers with a [`Grant`]. Both have fixed sizes, so that they
//! need no parser.

use std::fmt;
use std::net::IpAddr;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hello::feature;

/// Size in bytes of the secret of a one-time key.
pub const SECRET_BYTES: usize = 32;
/// Size in bytes of a public key (Ed25519).
pub const NODE_KEY_BYTES: usize = 32;

/// What a bridge asks for.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Ask {
    /// Address of this host at which the client has reached the SSH server: the daemon listens
    /// there. An IPv4 address is mapped (RFC 4291, 2.5.5.2).
    pub address: [u8; 16],
}

impl Ask {
    /// Asks for this address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self {
            address: match address {
                IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
                IpAddr::V6(six) => six.octets(),
            },
        }
    }
}

/// What a daemon grants. The secret must be cleared after its use.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Grant {
    /// TCP port at the address. Zero if the daemon cannot listen there or has given out too many
    /// keys. Then nothing else counts.
    pub port: U16,
    /// Public key that the daemon proves at this port.
    pub node: [u8; NODE_KEY_BYTES],
    /// Secret of the one-time key.
    pub secret: [u8; SECRET_BYTES],
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why a session that comes through SSH has no connection of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Detour {
    /// Nobody has tried: the link is short, or one of the sides does not know how.
    #[default]
    NotTried = 0,
    /// The client's user forbids it.
    ForbiddenByClient = 1,
    /// The user's settings on the node forbid it.
    ForbiddenByNode = 2,
    /// The daemon could give no one-time key.
    NoInvitation = 3,
    /// Nobody listens at the port, as the client sees it.
    Refused = 4,
    /// Nothing has answered at the port in time.
    NoAnswer = 5,
    /// The listener at the port has another key than the daemon.
    OtherKey = 6,
    /// The connection was made, and failed before the session began.
    Failed = 7,
}

impl Detour {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::NotTried,
        Self::ForbiddenByClient,
        Self::ForbiddenByNode,
        Self::NoInvitation,
        Self::Refused,
        Self::NoAnswer,
        Self::OtherKey,
        Self::Failed,
    ];

    /// Returns the bits of [`feature::DETOUR`] for this reason.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self as u64) << feature::DETOUR.trailing_zeros()
    }

    /// Returns the reason in these features.
    #[must_use]
    pub fn of(features: u64) -> Self {
        let number = (features & feature::DETOUR) >> feature::DETOUR.trailing_zeros();
        let found = usize::try_from(number).ok().and_then(|at| Self::ALL.get(at).copied());
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_its_bits_and_touches_no_feature() {
        for (number, reason) in (0_u8..).zip(Detour::ALL) {
            assert_eq!(reason as u8, number);
            assert_eq!(Detour::of(reason.bits()), reason);
            assert_eq!(Detour::of(!feature::DETOUR | reason.bits()), reason);
            assert_eq!(reason.bits() & (feature::ALL | feature::THROUGH_SSH), 0);
        }
    }

    #[test]
    fn messages_have_the_size_that_both_sides_expect() {
        assert_eq!(size_of::<Ask>(), 16);
        assert_eq!(size_of::<Grant>(), 2 + NODE_KEY_BYTES + SECRET_BYTES);
    }
}
