//! Memory that carries the frames between two processes of one host: a ring for each direction.
//!
//! A link begins on a connection that passes descriptors. The client makes the memory and sends its
//! descriptors, and the worker takes them. From then on the connection only wakes a reader that
//! sleeps, and its hang-up ends the link.

pub(crate) mod ring;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use penstock_wire::limits::HELLO_MS_MAX;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::contract::{Connection, Side};
use crate::arena::Arena;
use crate::error::LinkError;
use crate::fds::{recv_fds, send_fds};
use crate::standard::beyond_standard;
use crate::wait::{Patience, Policy};
use ring::{Map, RING_BYTES};

/// Note sent with the descriptors of the rings.
const NOTE_RINGS: [u8; 8] = *b"RINGS  1";
/// Note of a client that could not create rings: the link stays on the socket.
const NOTE_NONE: [u8; 8] = *b"NO RINGS";

/// One side's part of a pair of rings.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Ring that this side writes to.
    pub(crate) out: Arc<Map>,
    /// Ring that this side reads from.
    pub(crate) back: Arc<Map>,
    /// Carries one byte for each wake-up of a sleeping writer. It is separate from the connection,
    /// because two threads that wait for one socket would take each other's bytes.
    pub(crate) space: Connection,
    /// How threads wait for the peer, by what it costs to wake this side.
    pub(crate) policy: Policy,
    /// Memory for buffers that both sides share.
    pub(crate) arena: Option<Arc<Arena>>,
}

/// The client's own part, and the descriptors for the worker.
struct Offer {
    rings: Rings,
    to_worker: OwnedFd,
    to_client: OwnedFd,
    space: OwnedFd,
}

/// Agrees on rings with the peer. Returns `None` if one side has none, and the frames then stay on
/// the connection.
///
/// # Errors
/// Fails if the peer hung up, or what it offers is not a pair of rings.
pub(crate) fn negotiate(
    connection: &Connection,
    features: u64,
    side: Side,
) -> Result<Option<Rings>, LinkError> {
    if features & feature::SHARED_RINGS == 0 {
        return Ok(None);
    }
    match side {
        Side::Client => offer(connection, features & feature::SHARED_ARENA != 0),
        Side::Worker => take(connection),
    }
}

fn patience() -> Patience {
    Patience::Until(Instant::now() + Duration::from_millis(HELLO_MS_MAX))
}

/// Makes a doorbell of a socket, which is of the same kind as the connection.
fn doorbell(connection: &Connection, socket: OwnedFd) -> Result<Connection, LinkError> {
    let adopted = (connection.facts.transport.adopt)(socket, &[]);
    adopted.map_err(|_| LinkError::Ring("the peer offered a doorbell of another kind"))
}

fn offer(connection: &Connection, with_arena: bool) -> Result<Option<Rings>, LinkError> {
    let Ok(Offer { rings, to_worker, to_client, space }) = make(connection, with_arena) else {
        // Out of memory or descriptors: the link works without rings, only slower.
        send_fds(connection.as_fd(), &[], &NOTE_NONE, patience())?;
        return Ok(None);
    };
    let mut fds = vec![to_worker.as_fd(), to_client.as_fd(), space.as_fd()];
    fds.extend(rings.arena.as_ref().and_then(|arena| arena.memory()).map(AsFd::as_fd));
    send_fds(connection.as_fd(), &fds, &NOTE_RINGS, patience())?;
    Ok(Some(rings))
}

fn make(connection: &Connection, with_arena: bool) -> Result<Offer, LinkError> {
    let to_worker = ring::create(RING_BYTES)?;
    let to_client = ring::create(RING_BYTES)?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let pair = pair.and_then(|(one, other)| Ok((beyond_standard(one)?, beyond_standard(other)?)));
    let (ours, theirs) = pair.map_err(LinkError::system("making a doorbell"))?;
    let (out, back) = (Map::new(&to_worker)?, Map::new(&to_client)?);
    // If addresses are limited there is no arena, and buffers live in the worker alone.
    let arena = if with_arena { Arena::of_host_size().ok().map(Arc::new) } else { None };
    let (space, policy) = (doorbell(connection, ours)?, Policy::DEFAULT);
    let rings = Rings { out, back, space, policy, arena };
    Ok(Offer { rings, to_worker, to_client, space: theirs })
}

fn take(connection: &Connection) -> Result<Option<Rings>, LinkError> {
    let mut note = [0; NOTE_RINGS.len()];
    let (bytes, fds) = recv_fds(connection.as_fd(), &mut note, patience())?;
    if bytes == 0 {
        return Err(LinkError::HelloTimeout { peer: connection.facts.peer.clone() });
    }
    if bytes == note.len() && note == NOTE_NONE && fds.is_empty() {
        return Ok(None);
    }
    if bytes != note.len() || note != NOTE_RINGS {
        return Err(LinkError::Ring("the peer offered no rings"));
    }
    let mut fds = fds.into_iter();
    let (Some(to_worker), Some(to_client), Some(space)) = (fds.next(), fds.next(), fds.next())
    else {
        return Err(LinkError::Ring("the peer offered too few parts"));
    };
    let space = doorbell(connection, space)?;
    let arena = fds.next().map(Arena::map).transpose()?.map(Arc::new);
    let (out, back, policy) = (Map::new(&to_client)?, Map::new(&to_worker)?, Policy::DEFAULT);
    Ok(Some(Rings { out, back, space, policy, arena }))
}

#[cfg(test)]
mod tests {
    use penstock_wire::hello::feature;

    use crate::transport::tests::{Way, nothing};
    use crate::transport::unix;

    crate::transport::tests::links_over!(Way {
        addresses: unix::tests::addresses,
        features: feature::SHARED_RINGS | feature::SHARED_ARENA,
        beside: nothing,
        is_encrypted: false,
    });
}
