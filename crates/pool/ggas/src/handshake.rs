//! The handshake of two members: each says who it is and which plan it has, hands over its memory
//! on one host, and says whether it accepts the other.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use penstock_link::{LinkError, Patience, SharedMemory, Stream, recv_fd, send_fd};
use penstock_wire::limits::HELLO_MS_MAX;

use crate::connection::MemberConnection;
use crate::error::{HeapError, Refusal};
use crate::hello::{HELLO_BYTES, Hello, VERDICT_BYTES, decode_verdict, encode_verdict};
use crate::plan::Plan;
use crate::segment::{Parts, memory_bytes};
use crate::ucx_offer::UcxOffer;

/// Performs the handshake with a member over a connected and authenticated stream.
pub(crate) fn shake_hands(
    plan: &Plan,
    parts: &Parts,
    offer: &UcxOffer,
    member: u32,
    stream: Stream,
) -> Result<MemberConnection, HeapError> {
    let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
    let without = Hello {
        from: plan.me,
        to: member,
        memory: false,
        ucx: offer.is_made(),
        plan: plan.digest(),
        boot: boot_id()?,
    };
    let with = Hello { memory: true, ucx: false, ..without };
    let may_share = stream.passes_descriptors() && !plan.force_proxy;
    let ours = if may_share && hand_over(parts, &with, &stream, deadline)? {
        with
    } else {
        stream.write_all_until(&without.encode(), deadline)?;
        without
    };
    let (theirs, fd) = receive_hello(&stream, deadline)?;
    let theirs = Hello::decode(&theirs);
    let checked = theirs.and_then(|theirs| check_hello(plan, &ours, &theirs, fd));
    stream.write_all_until(&encode_verdict(checked.as_ref().err().copied()), deadline)?;
    let mut verdict = [0; VERDICT_BYTES];
    let verdict_heard = match &checked {
        // A peer that does not speak this protocol sends no verdict either.
        Err(Refusal::NotGgas) => Ok(Ok(())),
        _ => stream.read_exact_until(&mut verdict, deadline).map(|()| decode_verdict(&verdict)),
    };
    let refused = |refusal| HeapError::Refused { member, refusal };
    let memory = checked.map_err(refused)?;
    verdict_heard?.map_err(refused)?;
    match memory {
        Some(memory) => Ok(MemberConnection::SharesMemory(stream, memory)),
        None => offer.connect(member, theirs.is_ok_and(|theirs| theirs.ucx), stream, deadline),
    }
}

/// Says hello and hands over the memory. Returns whether this process may do so: workers of
/// strangers may not.
fn hand_over(
    parts: &Parts,
    hello: &Hello,
    stream: &Stream,
    deadline: Instant,
) -> Result<bool, LinkError> {
    let patience = Patience::Until(deadline);
    match send_fd(stream.as_fd(), parts.memory().as_fd(), &hello.encode(), patience) {
        Ok(()) => Ok(true),
        Err(LinkError::MayNotSend) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Receives the peer's hello, and the descriptor beside its first byte, if there is one.
fn receive_hello(
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

fn check_hello(
    plan: &Plan,
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
    // A Unix socket that is forwarded to another host passes on no memory that could be mapped.
    if theirs.memory != fd.is_some() {
        return Err(Refusal::Memory);
    }
    // Both sides decide by the same facts: one that hands over no memory uses none, either.
    let Some(fd) = fd.filter(|_| ours.memory) else { return Ok(None) };
    if theirs.boot != ours.boot {
        return Err(Refusal::Memory);
    }
    let memory = SharedMemory::of_peer(fd).map_err(|_| Refusal::Memory)?;
    let promised = memory_bytes(plan, theirs.from).map_err(|_| Refusal::Memory)?;
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
