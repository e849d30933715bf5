//! Addresses of QEMU's user-mode network (slirp), which are the same for all guests.

use std::net::Ipv4Addr;

/// Address of the guest.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);

/// Address by which the guest reaches the host's loopback addresses, and other networks.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// Number of bits of the network's part in an address.
pub const PREFIX_BITS: u8 = 24;

/// Address of QEMU's own name server, which asks those of the host.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
