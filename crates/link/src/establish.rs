//! Makes a link from a connected socket; on one host the link uses two rings beside the socket.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use penstock_wire::limits::HELLO_MS_MAX;
use penstock_wire::{FrameError, Header};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::arena::Arena;
use crate::error::LinkError;
use crate::fds::{recv_fds, send_fds};
use crate::joint::Joint;
use crate::receiver::{In, Receiver};
use crate::ring::{self, Map, RING_BYTES, Reader, Writer};
use crate::sender::Sender;
use crate::shared::{RingIn, RingOut};
use crate::socket::SocketIn;
use crate::stream::Stream;
use crate::wait::{Patience, Policy};

/// Side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Side that offers the rings.
    Client,
    /// Side that takes the rings.
    Worker,
}

/// Note sent with the descriptors of the rings.
const NOTE_RINGS: [u8; 8] = *b"RINGS  1";
/// Note of a client that could not create rings: the link stays on the socket.
const NOTE_NONE: [u8; 8] = *b"NO RINGS";

/// Makes a link for frames from a stream after the hello. The link uses rings if both sides support
/// them (`features`) and the socket is a Unix socket, and the socket otherwise. Two workers connect
/// with `features` without rings.
///
/// `check` checks the headers that this side receives.
///
/// # Errors
/// Fails if the peer hung up, or what it offers is not a pair of rings.
pub fn establish(
    stream: Stream,
    features: u64,
    side: Side,
    check: fn(&Header) -> Result<(), FrameError>,
) -> Result<(Sender, Receiver), LinkError> {
    let rings = if features & feature::SHARED_RINGS == 0 || !stream.is_unix() {
        None
    } else {
        match side {
            Side::Client => offer(&stream, features & feature::SHARED_ARENA != 0)?,
            Side::Worker => take(&stream)?,
        }
    };
    let Some(Rings { out, back, space, arena }) = rings else {
        let joint = Arc::new(Joint::new(stream, None, None));
        let input = In::Socket(SocketIn::new(Policy::DEFAULT));
        return Ok((Sender::over_socket(joint.clone()), Receiver::new(joint, input, check)));
    };
    let joint = Arc::new(Joint::new(stream, Some(space), arena));
    let input = In::Ring(RingIn::new(Reader::new(back), Policy::DEFAULT));
    Ok((
        Sender::over_ring(joint.clone(), RingOut::new(Writer::new(out))),
        Receiver::new(joint, input, check),
    ))
}

/// One side's part of a pair of rings.
struct Rings {
    /// Ring that this side writes to.
    out: Arc<Map>,
    /// Ring that this side reads from.
    back: Arc<Map>,
    space: Stream,
    arena: Option<Arc<Arena>>,
}

/// The client's own part, and the descriptors for the worker.
struct Offer {
    rings: Rings,
    to_worker: OwnedFd,
    to_client: OwnedFd,
    space: OwnedFd,
}

fn patience() -> Patience {
    Patience::Until(Instant::now() + Duration::from_millis(HELLO_MS_MAX))
}

fn offer(stream: &Stream, with_arena: bool) -> Result<Option<Rings>, LinkError> {
    let Ok(Offer { rings, to_worker, to_client, space }) = make(with_arena) else {
        // Out of memory or descriptors: the link works without rings, only slower.
        send_fds(stream.as_fd(), &[], &NOTE_NONE, patience())?;
        return Ok(None);
    };
    let mut fds = vec![to_worker.as_fd(), to_client.as_fd(), space.as_fd()];
    fds.extend(rings.arena.as_ref().map(|arena| arena.memory().as_fd()));
    send_fds(stream.as_fd(), &fds, &NOTE_RINGS, patience())?;
    Ok(Some(rings))
}

fn make(with_arena: bool) -> Result<Offer, LinkError> {
    let to_worker = ring::create(RING_BYTES)?;
    let to_client = ring::create(RING_BYTES)?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(LinkError::system("making a doorbell"))?;
    let (out, back) = (Map::new(&to_worker)?, Map::new(&to_client)?);
    // If addresses are limited there is no arena, and buffers live in the worker alone.
    let arena = if with_arena { Arena::of_host_size().ok().map(Arc::new) } else { None };
    let rings = Rings { out, back, space: Stream::from_fd(ours)?, arena };
    Ok(Offer { rings, to_worker, to_client, space: theirs })
}

fn take(stream: &Stream) -> Result<Option<Rings>, LinkError> {
    let mut note = [0; NOTE_RINGS.len()];
    let (bytes, fds) = recv_fds(stream.as_fd(), &mut note, patience())?;
    if bytes == 0 {
        return Err(LinkError::HelloTimeout { peer: stream.peer() });
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
    let space = Stream::from_fd(space)?;
    if !space.is_unix() {
        return Err(LinkError::Ring("the peer offered a doorbell that is no Unix socket"));
    }
    let arena = fds.next().map(Arena::map).transpose()?.map(Arc::new);
    Ok(Some(Rings { out: Map::new(&to_client)?, back: Map::new(&to_worker)?, space, arena }))
}
