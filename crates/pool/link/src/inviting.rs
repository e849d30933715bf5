//! How a bridge asks its daemon for a one-time key. See [`penstock_wire::invitation`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use penstock_tls::PublicKey;
use penstock_wire::hello::Role;
use penstock_wire::invitation::{Ask, Grant};
use zerocopy::{FromZeros as _, IntoBytes as _};
use zeroize::Zeroize as _;

use crate::encryption::Trust;
use crate::error::LinkError;
use crate::hello::open_on;
use crate::invitation::{Granted, Invitation, Offer};
use crate::stream::Stream;

/// Asks the daemon at the other end of a new connection for a one-time key. `at` is the address of
/// this host at which the client has reached it.
///
/// # Errors
/// Fails if the daemon refuses or is of a release that gives no such keys.
pub fn ask_for_invitation(
    stream: Stream,
    at: IpAddr,
    deadline: Instant,
) -> Result<Offer, LinkError> {
    let opened = open_on(stream, "the daemon", Role::Invitation, None, Trust::default(), deadline)?;
    opened.stream.write_all_until(Ask::of(at).as_bytes(), deadline)?;
    hear_grant(&opened.stream, at, deadline)
}

fn hear_grant(stream: &Stream, at: IpAddr, deadline: Instant) -> Result<Offer, LinkError> {
    let mut grant = Grant::new_zeroed();
    stream.read_exact_until(grant.as_mut_bytes(), deadline)?;
    let (port, node) = (grant.port.get(), PublicKey::from_bytes(grant.node));
    let invitation = Invitation::new(SocketAddr::new(at, port), node, &grant.secret);
    grant.secret.zeroize();
    Ok(if port == 0 { Offer::Unavailable } else { Offer::Invitation(invitation) })
}

/// Hears at which address of this host a bridge wants its client to connect.
///
/// # Errors
/// Fails if the bridge hung up or the deadline passed.
pub fn hear_ask(stream: &Stream, deadline: Instant) -> Result<IpAddr, LinkError> {
    let mut ask = Ask::new_zeroed();
    stream.read_exact_until(ask.as_mut_bytes(), deadline)?;
    Ok(Ipv6Addr::from(ask.address).to_canonical())
}

/// Tells a bridge what the daemon grants.
///
/// # Errors
/// Fails if the bridge hung up or the deadline passed.
pub fn tell_grant(
    stream: &Stream,
    granted: Option<&Granted>,
    deadline: Instant,
) -> Result<(), LinkError> {
    let mut grant = Grant::new_zeroed();
    if let Some(Granted { guest, port, node }) = granted {
        grant = Grant { port: (*port).into(), node: *node.as_bytes(), secret: *guest.secret };
    }
    let told = stream.write_all_until(grant.as_bytes(), deadline);
    grant.secret.zeroize();
    told
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::invitation::Guest;

    #[test]
    fn a_question_and_its_answer_survive_the_socket() {
        let (here, there) = UnixStream::pair().unwrap();
        let [here, there] = [here, there].map(|end| Stream::from_fd(end.into()).unwrap());
        let soon = penstock_trial::deadline();
        for text in ["10.1.2.3", "::1", "2001:db8::7"] {
            let at: IpAddr = text.parse().unwrap();
            here.write_all_until(Ask::of(at).as_bytes(), soon).unwrap();
            assert_eq!(hear_ask(&there, soon).unwrap(), at);
            tell_grant(&there, None, soon).unwrap();
            assert_eq!(hear_grant(&here, at, soon).unwrap(), Offer::Unavailable);
            let (guest, node) = (Guest::create(7).unwrap(), PublicKey::from_bytes([3; 32]));
            let granted = Granted { guest, port: 4_567, node };
            tell_grant(&there, Some(&granted), soon).unwrap();
            let address = SocketAddr::new(at, 4_567);
            let expected = Invitation::new(address, node, &granted.guest.secret);
            assert_eq!(hear_grant(&here, at, soon).unwrap(), Offer::Invitation(expected));
        }
    }
}
