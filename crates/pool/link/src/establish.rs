//! Makes a link from a connected socket after the hello.

use std::sync::Arc;
use std::time::Duration;

use penstock_wire::hello::feature;
use penstock_wire::{FrameError, Header};

use crate::error::LinkError;
use crate::joint::Joint;
use crate::receiver::{In, Receiver};
use crate::sender::Sender;
use crate::shared::{RingIn, RingOut};
use crate::silence;
use crate::socket::SocketIn;
use crate::stream::Stream;
use crate::trace::LinkTrace;
use crate::transport::contract::Side;
use crate::transport::rings::Rings;
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
    establish_within(stream, features, side, check, silence::allowed())
}

/// Like [`establish`], for a client that gives up a silent worker after this time.
pub(crate) fn establish_within(
    stream: Stream,
    features: u64,
    side: Side,
    check: fn(&Header) -> Result<(), FrameError>,
    silence_max: Option<Duration>,
) -> Result<(Sender, Receiver), LinkError> {
    let expects_beats = features & feature::BEATS != 0 && side == Side::Client;
    let silence_max = silence_max.filter(|_| expects_beats);
    if features & feature::BEATS != 0 {
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
    let (stream, shared) = stream.share_memory(features, side)?;
    let Some(Rings { out, back, space, policy, arena }) = shared else {
        let joint = Arc::new(Joint::new(stream, None, None).traced(trace));
        silence_max.inspect(|max| joint.expect_beats(*max));
        let input = In::Socket(SocketIn::new(Policy::DEFAULT));
        return Ok((Sender::over_socket(joint.clone()), Receiver::new(joint, input, check)));
    };
    let joint = Joint::new(stream, Some(Stream::new(space)), arena);
    let joint = Arc::new(joint.traced(trace).reading(back.clone()));
    silence_max.inspect(|max| joint.expect_beats(*max));
    let input = In::Ring(RingIn::new(Reader::new(back), policy));
    Ok((
        Sender::over_ring(joint.clone(), RingOut::new(Writer::new(out), policy)),
        Receiver::new(joint, input, check),
    ))
}
