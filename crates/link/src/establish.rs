//! Makes a link from a connected socket after the hello.

use std::sync::Arc;
use std::time::Duration;

use penstock_wire::hello::feature;
use penstock_wire::limits::BEATS_SILENCE_MS_MAX;
use penstock_wire::{FrameError, Header};

use crate::error::LinkError;
use crate::joint::Joint;
use crate::receiver::{In, Receiver};
use crate::sender::Sender;
use crate::shared::{RingIn, RingOut};
use crate::socket::SocketIn;
use crate::stream::Stream;
use crate::trace::LinkTrace;
use crate::transport::contract::{Rings, Side};
use crate::transport::rings::ring::{Reader, Writer};
use crate::wait::Policy;

/// Makes a link for frames from a stream after the hello. The frames move into shared memory if
/// both sides (`features`) and the transport can do that, and stay on the stream otherwise. Two
/// workers connect with `features` without rings.
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
    if features & feature::BEATS != 0 {
        if side == Side::Client {
            stream.expect_beats(Duration::from_millis(BEATS_SILENCE_MS_MAX));
        }
        // The first look comes while the peer is known to live. A link with much traffic would
        // otherwise have none until its peer falls silent.
        _ = stream.vanished();
    }
    let trace = LinkTrace::begin(side, || stream.peer());
    // A trace has only what travels in frames.
    let features = if trace.is_some() && side == Side::Client {
        features & !feature::SHARED_ARENA
    } else {
        features
    };
    let shared = stream.share_memory(features, side)?;
    let Some(Rings { out, back, space, policy, arena }) = shared else {
        let joint = Arc::new(Joint::new(stream, None, None).traced(trace));
        let input = In::Socket(SocketIn::new(Policy::DEFAULT));
        return Ok((Sender::over_socket(joint.clone()), Receiver::new(joint, input, check)));
    };
    let joint = Arc::new(Joint::new(stream, Some(Stream::new(space)), arena).traced(trace));
    let input = In::Ring(RingIn::new(Reader::new(back), policy));
    Ok((
        Sender::over_ring(joint.clone(), RingOut::new(Writer::new(out), policy)),
        Receiver::new(joint, input, check),
    ))
}
