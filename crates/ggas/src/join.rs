//! The handshake of two members: each says who it is and which plan it has, hands over its memory
//! on one host, and says whether it accepts the other.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use penstock_link::{LinkError, Patience, SharedMemory, Stream, recv_fd, send_fd};
use penstock_wire::limits::HELLO_MS_MAX;

use crate::error::{HeapError, Refusal};
use crate::hello::{HELLO_BYTES, Hello, VERDICT_BYTES, decode_verdict, encode_verdict};
use crate::proxy::Carrier;
use crate::segment::memory_bytes;
use crate::state::State;

/// Connection to another member after the handshake.
pub(crate) enum Joined {
    /// The member is on this host: its parts, and a stream for notes of abort.
    Shares(Stream, SharedMemory),
    /// The proxy reaches the member.
    Apart(Box<dyn Carrier>, Over),
}

impl Joined {
    pub(crate) fn memory(&self) -> Option<&SharedMemory> {
        match self {
            Self::Shares(_, memory) => Some(memory),
            Self::Apart(..) => None,
        }
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shares(..) => f.write_str("Shares"),
            Self::Apart(_, over) => f.debug_tuple("Apart").field(over).finish(),
        }
    }
}

/// What carries a proxy's bytes to another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// The stream over which the member joined.
    Stream,
    /// The same, although UCX was wanted; the sentence says why.
    StreamInstead(String),
    /// UCX, with these transports.
    Ucx(String),
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream | Self::StreamInstead(_) => f.write_str("proxy"),
            Self::Ucx(transports) => write!(f, "proxy (ucx: {transports})"),
        }
    }
}

pub(crate) fn shake_hands(state: &State, member: u32, stream: Stream) -> Result<Joined, HeapError> {
    let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
    let shares = stream.passes_descriptors() && !state.plan.force_proxy;
    let ours = Hello {
        from: state.plan.me,
        to: member,
        memory: shares,
        ucx: !shares && state.wants_ucx(),
        plan: state.plan.digest(),
        boot: boot_id()?,
    };
    let note = ours.encode();
    if shares {
        send_fd(stream.as_fd(), state.parts.memory().as_fd(), &note, Patience::Until(deadline))?;
    } else {
        stream.write_all_until(&note, deadline)?;
    }
    let (theirs, fd) = hear(&stream, deadline)?;
    let theirs = Hello::decode(&theirs);
    let judged = theirs.and_then(|theirs| judge(state, &ours, &theirs, fd));
    stream.write_all_until(&encode_verdict(judged.as_ref().err().copied()), deadline)?;
    let mut verdict = [0; VERDICT_BYTES];
    let heard = match &judged {
        // A peer that does not speak this protocol sends no verdict either.
        Err(Refusal::NotGgas) => Ok(Ok(())),
        _ => stream.read_exact_until(&mut verdict, deadline).map(|()| decode_verdict(&verdict)),
    };
    let refused = |refusal| HeapError::Refused { member, refusal };
    let memory = judged.map_err(refused)?;
    heard?.map_err(refused)?;
    match memory {
        Some(memory) => Ok(Joined::Shares(stream, memory)),
        None => carried(state, &ours, theirs.is_ok_and(|theirs| theirs.ucx), stream, deadline),
    }
}

/// Returns the connection to a member that shares no memory.
#[cfg(not(feature = "ucx"))]
fn carried(_: &State, _: &Hello, _: bool, stream: Stream, _: Instant) -> Result<Joined, HeapError> {
    Ok(Joined::Apart(Box::new(stream), Over::Stream))
}

/// Returns the connection to a member that shares no memory: over UCX if both members can.
#[cfg(feature = "ucx")]
fn carried(
    state: &State,
    ours: &Hello,
    theirs_can: bool,
    stream: Stream,
    deadline: Instant,
) -> Result<Joined, HeapError> {
    use crate::ucx::Met;

    if !ours.ucx {
        return Ok(Joined::Apart(Box::new(stream), Over::Stream));
    }
    if !theirs_can {
        let why = "the other member's node does not offer UCX".to_owned();
        return Ok(Joined::Apart(Box::new(stream), Over::StreamInstead(why)));
    }
    Ok(match crate::ucx::meet(state.ucx_engine(), ours.to, stream, deadline)? {
        Met::Carrier(carrier, transports) => {
            Joined::Apart(Box::new(carrier), Over::Ucx(transports))
        }
        Met::Stream(stream, why) => Joined::Apart(Box::new(stream), Over::StreamInstead(why)),
    })
}

/// Receives the peer's hello, and the descriptor beside its first byte, if there is one.
fn hear(
    stream: &Stream,
    deadline: Instant,
) -> Result<([u8; HELLO_BYTES], Option<OwnedFd>), HeapError> {
    let mut hello = [0; HELLO_BYTES];
    if !stream.passes_descriptors() {
        stream.read_exact_until(&mut hello, deadline)?;
        return Ok((hello, None));
    }
    let (got, fd) = recv_fd(stream.as_fd(), &mut hello, Patience::Until(deadline))?;
    if got == 0 {
        return Err(LinkError::HelloTimeout { peer: stream.peer() }.into());
    }
    stream.read_exact_until(hello.get_mut(got..).unwrap_or_default(), deadline)?;
    Ok((hello, fd))
}

fn judge(
    state: &State,
    ours: &Hello,
    theirs: &Hello,
    fd: Option<OwnedFd>,
) -> Result<Option<SharedMemory>, Refusal> {
    if theirs.from != ours.to || theirs.to != ours.from {
        return Err(Refusal::Member);
    }
    if theirs.plan != ours.plan {
        return Err(Refusal::Plan);
    }
    // Both sides decide by the same facts. A Unix socket that is forwarded to another host passes
    // on no memory that could be mapped.
    if theirs.memory != ours.memory || theirs.memory != fd.is_some() {
        return Err(Refusal::Memory);
    }
    let Some(fd) = fd else { return Ok(None) };
    if theirs.boot != ours.boot {
        return Err(Refusal::Memory);
    }
    let memory = SharedMemory::of_peer(fd).map_err(|_| Refusal::Memory)?;
    let promised = memory_bytes(&state.plan, theirs.from).map_err(|_| Refusal::Memory)?;
    if memory.bytes() == promised { Ok(Some(memory)) } else { Err(Refusal::Memory) }
}

/// Returns the boot id of this host.
fn boot_id() -> Result<[u8; 16], HeapError> {
    let doing = "reading the host's boot id";
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(HeapError::system(doing))?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    Ok(id)
}
