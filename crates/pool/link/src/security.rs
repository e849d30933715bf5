//! What the two sides of a hello prove to each other.

use penstock_tls::Terms;
use penstock_wire::hello::{
    Answer, Hello, INSTANCE_BYTES, PROOF_BYTES, Role, SIGNATURE_BYTES, TICKET_BYTES, Verdict,
    Welcome, side, transcript,
};

use crate::encryption::Trust;
use crate::error::LinkError;
use crate::instance::{Ends, InstanceId, is_signed};
use crate::invitation::{Guest, Guests};
use crate::key::Key;
use crate::secure::{Channel, Enrolled, KnownClient};
use crate::stream::Stream;

/// How the two sides prove their identity.
pub(crate) enum Security<'a> {
    /// The transport lets no strangers in; proofs are zero.
    Transport,
    /// Both sides prove that they have the pool's key.
    Key(&'a Key),
    /// Both sides have proved their keys in the handshake. The pool's key only makes them known.
    Channel { channel: &'a Channel<'a>, key: Option<&'a Key> },
    /// The handshake has shown this side's key, which the client expects. The client proves a
    /// one-time key.
    Guests { channel: &'a Channel<'a>, guests: &'a dyn Guests },
}

/// This side needs a key and has none.
pub(crate) struct KeyMissing;

impl<'a> Security<'a> {
    pub(crate) fn of(
        stream: &Stream,
        key: Option<&'a Key>,
        channel: Option<&'a Channel<'a>>,
    ) -> Result<Self, KeyMissing> {
        if let Some(channel) = channel {
            return Ok(Self::Channel { channel, key });
        }
        if !stream.needs_key() {
            return Ok(Self::Transport);
        }
        key.map(Self::Key).ok_or(KeyMissing)
    }

    /// As [`Security::of`], for the side that accepts. Where clients have one-time keys, nobody
    /// else is let in.
    pub(crate) fn of_accepted(
        stream: &Stream,
        trust: Trust<'a>,
        channel: Option<&'a Channel<'a>>,
    ) -> Result<Self, KeyMissing> {
        match (trust.guests, channel) {
            (None, channel) => Self::of(stream, trust.pool, channel),
            (Some(guests), Some(channel)) => Ok(Self::Guests { channel, guests }),
            (Some(_), None) => Err(KeyMissing),
        }
    }

    /// Returns the proof of the accepting side.
    pub(crate) fn prove_node(&self, hello: &Hello, welcome: &Welcome) -> [u8; PROOF_BYTES] {
        match self {
            Self::Transport | Self::Guests { .. } => [0; PROOF_BYTES],
            Self::Key(key) => key.prove(&transcript(side::ACCEPTING, hello, welcome)),
            Self::Channel { channel, key } => channel.prove(*key, &node_terms(hello, welcome)),
        }
    }

    /// Checks the proof of the accepting side.
    pub(crate) fn check_node(
        &self,
        name: &str,
        hello: &Hello,
        welcome: &Welcome,
    ) -> Result<(), LinkError> {
        let transcript = transcript(side::ACCEPTING, hello, welcome);
        match self {
            Self::Key(key) if !key.verify(&transcript, &welcome.proof) => {
                Err(LinkError::WrongKey { peer: name.to_owned() })
            }
            Self::Key(_) | Self::Transport | Self::Guests { .. } => Ok(()),
            Self::Channel { channel, key } => {
                channel.judge_node(name, *key, &node_terms(hello, welcome), &welcome.proof)
            }
        }
    }

    /// Returns the proof of the connecting side.
    pub(crate) fn prove_client(
        &self,
        hello: &Hello,
        welcome: &Welcome,
        ticket: &[u8; TICKET_BYTES],
    ) -> [u8; PROOF_BYTES] {
        match self {
            Self::Transport | Self::Guests { .. } => [0; PROOF_BYTES],
            Self::Key(key) => key.prove(&transcript(side::CONNECTING, hello, welcome)),
            Self::Channel { channel, key } => channel.prove(*key, &client_terms(hello, ticket)),
        }
    }

    /// Returns the proof of the connecting side for a node that this side knows by its key, before
    /// the node has said anything. Returns `None` if the node must speak first.
    pub(crate) fn prove_early(
        &self,
        hello: &Hello,
        ticket: &[u8; TICKET_BYTES],
    ) -> Option<[u8; PROOF_BYTES]> {
        match self {
            Self::Channel { channel, key } if channel.knows_node() => {
                Some(channel.prove(*key, &client_terms(hello, ticket)))
            }
            _ => None,
        }
    }

    /// Checks the proof of the connecting side. Returns who it is, if the link is encrypted.
    pub(crate) fn check_client(
        &self,
        hello: &Hello,
        welcome: &Welcome,
        answer: &Answer,
    ) -> Checked {
        let transcript = transcript(side::CONNECTING, hello, welcome);
        match self {
            Self::Key(key) if !key.verify(&transcript, &answer.proof) => Ok(Err(Verdict::WrongKey)),
            Self::Key(_) | Self::Transport => Ok(Ok(None)),
            Self::Channel { channel, key } => {
                let terms = client_terms(hello, &answer.ticket);
                let judged = channel.judge_client(*key, &terms, &answer.proof)?;
                let client = |enrolled| Box::new(KnownClient { key: channel.peer, enrolled });
                Ok(judged.map(|enrolled| Some(client(enrolled))))
            }
            Self::Guests { channel, guests } => {
                let terms = client_terms(hello, &answer.ticket);
                let enrolled = match Role::from_wire(hello.role.get()) {
                    // Only this node has been shown the ticket, inside the channel.
                    Some(Role::Peer) if guests.awaits(&answer.ticket) => Some(Enrolled::Awaited),
                    Some(Role::Peer) => None,
                    role => {
                        // The key is good once, whatever happens next.
                        let guest = guests.redeem(&answer.ticket);
                        let is_right = |guest: &Guest| {
                            role == Some(Role::Client)
                                && channel.has_proved(&guest.key(), &terms, &answer.proof)
                        };
                        guest.filter(is_right).map(|it| Enrolled::Invited { user: it.user })
                    }
                };
                let Some(enrolled) = enrolled else { return Ok(Err(Verdict::NotInvited)) };
                Ok(Ok(Some(Box::new(KnownClient { key: channel.peer, enrolled }))))
            }
        }
    }
}

/// The client of an encrypted link, or the verdict for a client that is refused.
pub(crate) type Checked = Result<Result<Option<Box<KnownClient>>, Verdict>, LinkError>;

/// Returns what the accepting side grants.
fn node_terms(hello: &Hello, welcome: &Welcome) -> Terms {
    let (role, features) = (hello.role.get(), welcome.features.get());
    Terms { role, features, ticket: [0; TICKET_BYTES] }
}

/// Returns what the connecting side asks for.
fn client_terms(hello: &Hello, ticket: &[u8; TICKET_BYTES]) -> Terms {
    Terms { role: hello.role.get(), features: hello.features.get(), ticket: *ticket }
}

/// Returns the peer's instance if its signature matches the two ends that this side sees.
pub(crate) fn instance_of(stream: &Stream, hello: &Hello, welcome: &Welcome) -> Option<InstanceId> {
    if welcome.instance == [0; INSTANCE_BYTES] {
        return None;
    }
    let (connecting, accepting) = stream.ends()?;
    let unsigned = Welcome { signature: [0; SIGNATURE_BYTES], ..*welcome };
    let transcript = transcript(side::INSTANCE, hello, &unsigned);
    is_signed(&welcome.instance, &welcome.signature, &transcript, &Ends { accepting, connecting })
        .then_some(welcome.instance)
}
