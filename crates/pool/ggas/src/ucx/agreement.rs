//! The agreement of two members on UCX. Over their authenticated stream each tells the other its
//! address and the label that it expects in messages. Each sends one message, and reports over the
//! stream whether the other's came. If one did not, both keep to the stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use penstock_link::{LinkError, Stream};

use super::arrivals::Label;
use super::carrier::UcxCarrier;
use super::engine::{EndPoint, Engine};
use super::error::UcxError;
use crate::bytes::ByteReader;
use crate::error::{HeapError, Refusal};

/// Start of every card.
const MAGIC: [u8; 8] = *b"GGASUCX1";
/// Bytes of a card before the address.
const CARD_BYTES: usize = 32;

/// Longest address of a worker in bytes. 8 interfaces with 3 transports each take about 2 KiB.
const ADDRESS_BYTES_MAX: usize = 64 << 10;

/// Time for the first message, out of the 5 s of a handshake. UCX connects in its own thread, which
/// takes milliseconds, but 25 s if threads of a higher priority leave it no core. Members that
/// cannot talk now would not do better later.
const FIRST_MS_MAX: u64 = 3_000;

/// Interval of looks for arrivals.
const LOOK: Duration = Duration::from_micros(100);

/// Answer of a member that has received the first message.
const CAME: u8 = b'Y';
/// Answer of a member that has not.
const MISSED: u8 = b'N';

/// Result of the agreement.
pub(crate) enum UcxAgreement {
    /// UCX carries the bytes, with these transports.
    Carrier(UcxCarrier, String),
    /// The stream carries the bytes, as without UCX; the sentence says why.
    Stream(Stream, String),
}

/// Agrees with the member at the other end of `stream`. Fails only if the stream fails.
pub(crate) fn agree(
    engine: Result<Arc<Engine>, UcxError>,
    member: u32,
    stream: Stream,
    deadline: Instant,
) -> Result<UcxAgreement, HeapError> {
    let ours = match &engine {
        Ok(engine) => {
            Card { label: engine.arrivals().open(secret()?), address: engine.address().to_vec() }
        }
        Err(_) => Card::none(),
    };
    stream.write_all_until(&ours.encode(), deadline)?;
    let theirs = Card::read(member, &stream, deadline)?;
    let engine = match engine {
        Ok(engine) if !theirs.address.is_empty() => engine,
        Ok(_) => {
            return Ok(UcxAgreement::Stream(
                stream,
                "the other member's node cannot start UCX".to_owned(),
            ));
        }
        Err(why) => return Ok(UcxAgreement::Stream(stream, why.to_string())),
    };
    let end_point = send_first(&engine, &theirs);
    let until = deadline.min(Instant::now() + Duration::from_millis(FIRST_MS_MAX));
    let came = end_point.is_ok() && await_first(&engine, ours.label.inbox, until);
    stream.write_all_until(&[if came { CAME } else { MISSED }], deadline)?;
    let theirs_came = report_of_peer(&engine, member, &stream, deadline)?;
    Ok(match end_point {
        Ok(end_point) if came && theirs_came => {
            let transports = engine.transports(&end_point);
            UcxAgreement::Carrier(
                UcxCarrier::new(engine, end_point, ours.label.inbox, theirs.label, stream),
                transports,
            )
        }
        Ok(end_point) => {
            engine.let_go(&mut engine.close(&end_point, true));
            let which = if came {
                "no message of UCX reached the other member"
            } else {
                "no message of UCX arrived"
            };
            UcxAgreement::Stream(stream, format!("{which} within {FIRST_MS_MAX} ms"))
        }
        Err(why) => UcxAgreement::Stream(stream, why.to_string()),
    })
}

/// Connects to the other member and sends the first message.
fn send_first(engine: &Engine, theirs: &Card) -> Result<EndPoint, UcxError> {
    // Some transports within a host do not report failures; the stream does.
    let end_point = engine.connect(&theirs.address, true)?;
    engine.send_empty(&end_point, theirs.label.header(0))?;
    Ok(end_point)
}

fn await_first(engine: &Engine, inbox: u32, until: Instant) -> bool {
    loop {
        engine.progress();
        let status = engine.arrivals().status(inbox);
        if status.count > 0 || status.is_wrong || Instant::now() >= until {
            return status.count > 0;
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns whether our message came, as the other member reports. Meanwhile UCX gets turns, because
/// the member may not have received the message yet.
fn report_of_peer(
    engine: &Engine,
    member: u32,
    stream: &Stream,
    deadline: Instant,
) -> Result<bool, HeapError> {
    let mut said = [0];
    while stream.recv_now(&mut said)?.is_none() {
        if Instant::now() >= deadline {
            return Err(LinkError::HelloTimeout { peer: stream.peer() }.into());
        }
        engine.progress();
        std::thread::sleep(LOOK);
    }
    match said {
        [CAME] => Ok(true),
        [MISSED] => Ok(false),
        _ => Err(not_ggas(member)),
    }
}

fn not_ggas(member: u32) -> HeapError {
    HeapError::Refused { member, refusal: Refusal::NotGgas }
}

fn secret() -> Result<[u8; 16], HeapError> {
    let mut secret = [0; 16];
    let doing = "asking the system for random bytes";
    let filled = SystemRandom::new().fill(&mut secret);
    filled.map_err(|_| HeapError::System { doing, source: std::io::ErrorKind::Other.into() })?;
    Ok(secret)
}

/// A member's end of UCX.
#[derive(Debug, PartialEq, Eq)]
struct Card {
    label: Label,
    /// Empty if the member has no UCX.
    address: Vec<u8>,
}

impl Card {
    fn none() -> Self {
        Self { label: Label { secret: [0; 16], inbox: 0 }, address: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        // An address beyond the limit counts as none: the other side would refuse it.
        let address =
            if self.address.len() > ADDRESS_BYTES_MAX { &[] } else { self.address.as_slice() };
        let length = u32::try_from(address.len()).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(self.label.inbox.to_le_bytes());
        bytes.extend(self.label.secret);
        bytes.extend(address);
        bytes
    }

    fn read(member: u32, stream: &Stream, deadline: Instant) -> Result<Self, HeapError> {
        let mut head = [0; CARD_BYTES];
        stream.read_exact_until(&mut head, deadline)?;
        let mut rest = ByteReader(&head);
        let (magic, length, inbox) = (rest.take(), rest.number(), rest.number());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if magic != MAGIC || length > ADDRESS_BYTES_MAX {
            return Err(not_ggas(member));
        }
        let mut address = vec![0; length];
        stream.read_exact_until(&mut address, deadline)?;
        Ok(Self { label: Label { secret: rest.take(), inbox }, address })
    }
}
