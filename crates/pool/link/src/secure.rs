//! The handshake that comes before the hello of an encrypted link.

use std::io::IoSlice;
use std::time::Instant;

use penstock_tls::{
    Binding, ClientJudged, ENROLMENT_BYTES, Established, Handshake, HandshakeError, NodeJudged,
    Pin, PoolKey, Proof, PublicKey, Side, Terms, judge_client, judge_node, limits,
};
use penstock_wire::hello::Verdict;

use crate::encryption::{Encryption, Standing, Trust};
use crate::error::LinkError;
use crate::key::Key;
use crate::stream::Stream;

/// First byte of a TLS connection: the type of a record with a handshake message. A plain hello
/// begins with another byte.
pub(crate) const TLS_FIRST_BYTE: u8 = 22;

/// Client of an encrypted link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownClient {
    /// Public key that the client has proved.
    pub key: PublicKey,
    pub enrolled: Enrolled,
}

/// How a client of an encrypted link was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrolled {
    /// The list has its key, and maybe the name of its quota and the numbers of its devices.
    Known { quota: Option<String>, devices: Option<Vec<u32>> },
    /// It has proved the pool's key just now.
    Now,
    /// As [`Enrolled::Now`], but the list could not be written, for this reason.
    NotWritten(String),
    /// It has proved a one-time key, which a bridge of this user has brought. Its own key was made
    /// for this connection, so no list has it.
    Invited { user: u32 },
    /// A worker here waits for the ticket that it has brought. Its key is not in a list either.
    Awaited,
}

impl KnownClient {
    /// Returns the key that a list can have.
    pub fn lasting_key(&self) -> Option<PublicKey> {
        match self.enrolled {
            Enrolled::Invited { .. } | Enrolled::Awaited => None,
            Enrolled::Known { .. } | Enrolled::Now | Enrolled::NotWritten(_) => Some(self.key),
        }
    }

    /// Returns the numbers of the devices that the client may use; `None` for all.
    #[must_use]
    pub fn devices(&self) -> Option<&[u32]> {
        match &self.enrolled {
            Enrolled::Known { devices, .. } => devices.as_deref(),
            // A line of the list gives devices, and such a client has none.
            Enrolled::Now
            | Enrolled::NotWritten(_)
            | Enrolled::Invited { .. }
            | Enrolled::Awaited => None,
        }
    }
}

/// What both ends of an encrypted connection have agreed on.
#[derive(Debug)]
pub(crate) struct Channel<'a> {
    encryption: &'a Encryption,
    side: Side,
    /// Key that the peer has proved.
    pub(crate) peer: PublicKey,
    binding: Binding,
    /// What this side knows of the peer, if this side has connected.
    pin: Pin,
}

/// Encrypts a connection that this side has made, if the rule demands it. `name` is the name under
/// which the node is known.
pub(crate) fn connect<'a>(
    stream: Stream,
    name: &str,
    trust: Trust<'a>,
    deadline: Instant,
) -> Result<(Stream, Option<Channel<'a>>), LinkError> {
    let exposure = stream.exposure();
    let encryption = trust.encryption.filter(|it| it.rule().encrypts(exposure));
    let Some(encryption) = encryption else { return Ok((stream, None)) };
    let (handshake, pin) = encryption.connect(name)?;
    let made = make(stream, name, handshake, &[], deadline);
    let (stream, established) = made.map_err(|error| match &error {
        LinkError::Handshake { source, .. } => match &**source {
            // The message names the file and the line.
            HandshakeError::OtherKey { found, .. } => {
                encryption.changed(name, found).err().unwrap_or(error)
            }
            HandshakeError::NotTls => LinkError::PlainNode { peer: name.to_owned() },
            _ => error,
        },
        _ => error,
    })?;
    let Established { records, peer, binding, .. } = established;
    let channel = Channel { encryption, side: Side::Client, peer, binding, pin };
    Ok((stream.encrypted(records), Some(channel)))
}

/// Encrypts a connection that this side has accepted. `first` are the bytes that have come already.
pub(crate) fn accept<'a>(
    stream: Stream,
    first: &[u8],
    encryption: &'a Encryption,
    deadline: Instant,
) -> Result<(Stream, Channel<'a>), LinkError> {
    let name = stream.peer();
    let (stream, established) = make(stream, &name, encryption.accept()?, first, deadline)?;
    let Established { records, peer, binding, .. } = established;
    let channel = Channel { encryption, side: Side::Server, peer, binding, pin: Pin::Unknown };
    Ok((stream.encrypted(records), channel))
}

/// Runs a handshake to its end. Receives no byte behind it.
fn make(
    stream: Stream,
    name: &str,
    mut handshake: Handshake,
    first: &[u8],
    deadline: Instant,
) -> Result<(Stream, Established), LinkError> {
    let failed = |source| LinkError::Handshake { peer: name.to_owned(), source: Box::new(source) };
    let mut room = [0; limits::HANDSHAKE_BYTES_MAX];
    let mut come = first.len();
    for (to, from) in room.iter_mut().zip(first) {
        *to = *from;
    }
    loop {
        if let Err(error) = handshake.take(room.get(..come).unwrap_or_default()) {
            // The alert, as far as the peer takes it now.
            let alert = handshake.output();
            let _ = stream.send_now(&[IoSlice::new(&alert)]);
            stream.end_politely();
            return Err(failed(error));
        }
        stream.write_all_until(&handshake.output(), deadline)?;
        if handshake.is_done() {
            break;
        }
        come = handshake.missing().min(room.len());
        stream.read_exact_until(room.get_mut(..come).unwrap_or_default(), deadline)?;
    }
    Ok((stream, handshake.finish().map_err(failed)?))
}

impl Channel<'_> {
    /// Returns whether the node has proved a key that this side expected of it.
    pub(crate) fn knows_node(&self) -> bool {
        self.pin == Pin::Known
    }

    /// Returns this side's proof of the pool's key: zeros if it has none.
    pub(crate) fn prove(&self, key: Option<&Key>, terms: &Terms) -> [u8; ENROLMENT_BYTES] {
        key.map_or([0; ENROLMENT_BYTES], |key| {
            key.enrolling().prove(self.side, &self.binding, terms)
        })
    }

    /// Returns what the peer's proof is worth.
    fn proof(&self, key: Option<&Key>, terms: &Terms, proof: &[u8; ENROLMENT_BYTES]) -> Proof {
        let prover = match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        weigh(key.map(Key::enrolling), prover, &self.binding, terms, proof)
    }

    /// Returns whether the peer has proved this key.
    pub(crate) fn has_proved(
        &self,
        key: &Key,
        terms: &Terms,
        proof: &[u8; ENROLMENT_BYTES],
    ) -> bool {
        self.proof(Some(key), terms, proof) == Proof::Right
    }

    /// Decides whether to go on with the node, and pins it if it has just proved the pool's key.
    pub(crate) fn judge_node(
        &self,
        name: &str,
        key: Option<&Key>,
        terms: &Terms,
        proof: &[u8; ENROLMENT_BYTES],
    ) -> Result<(), LinkError> {
        match judge_node(self.pin, self.proof(key, terms, proof)) {
            NodeJudged::GoOn => Ok(()),
            NodeJudged::Pin => self.encryption.pin(name, self.peer),
            NodeJudged::WrongKey => Err(LinkError::WrongKey { peer: name.to_owned() }),
            NodeJudged::Unproved => {
                Err(LinkError::UnknownNode { peer: name.to_owned(), key: self.peer })
            }
        }
    }

    /// Decides whether a client is let in, and writes it down if the pool's key lets it in.
    pub(crate) fn judge_client(
        &self,
        key: Option<&Key>,
        terms: &Terms,
        proof: &[u8; ENROLMENT_BYTES],
    ) -> Result<Result<Enrolled, Verdict>, LinkError> {
        let Standing { listed, quota, devices } = self.encryption.listed(&self.peer)?;
        Ok(match judge_client(listed, self.proof(key, terms, proof)) {
            ClientJudged::LetIn => Ok(Enrolled::Known { quota, devices }),
            // The pool's key lets the client in, also where the list cannot be written.
            ClientJudged::Enrol => Ok(match self.encryption.enrol(self.peer) {
                Ok(()) => Enrolled::Now,
                Err(error) => Enrolled::NotWritten(error.to_string()),
            }),
            ClientJudged::NotEnrolled => Err(Verdict::NotEnrolled),
            ClientJudged::WrongKey => Err(Verdict::WrongKey),
            ClientJudged::Revoked => Err(Verdict::Revoked),
            ClientJudged::Restricted => Err(Verdict::Restricted),
        })
    }
}

fn weigh(
    key: Option<&PoolKey>,
    prover: Side,
    binding: &Binding,
    terms: &Terms,
    proof: &[u8; ENROLMENT_BYTES],
) -> Proof {
    match key {
        None => Proof::Unknown,
        Some(_) if *proof == [0; ENROLMENT_BYTES] => Proof::Absent,
        Some(key) if key.verify(prover, binding, terms, proof) => Proof::Right,
        Some(_) => Proof::Wrong,
    }
}
