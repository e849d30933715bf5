//! The opening of a link, before any call. Fixed-size messages, so that a stranger's bytes need no parser.
//!
//! ```text
//! connecting side                         accepting side
//! Hello { magic, version, features,  ->
//!         role, nonce }
//!                                    <-   Welcome { magic, version, features, verdict, nonce, proof }
//! Answer { proof, ticket }           ->
//!                                    <-   Verdict
//! ```
//! Proofs are HMAC-SHA-256 with the pool's key over a label for the side, both nonces and both hellos: neither side sends a
//! byte that helps a stranger, and none of them can be replayed or reflected. On a Unix socket the kernel tells who the
//! peer is, and the proofs are zero.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every link.
pub const MAGIC: [u8; 8] = *b"PENSTOCK";
/// Bytes of a nonce: a collision within 2^64 links is as likely as guessing a proof.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof: the output of SHA-256.
pub const PROOF_BYTES: usize = 32;
/// Bytes of the pool's key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a ticket that lets a worker in to another worker of the same client.
pub const TICKET_BYTES: usize = 32;

/// Features that both sides must have said to be used.
pub mod feature {
    /// Shared-memory rings beside a Unix socket.
    pub const SHARED_RINGS: u64 = 1 << 0;
    /// Workers talk to each other.
    pub const PEERS: u64 = 1 << 1;
    /// Beside the rings, memory for buffers that both sides see.
    pub const SHARED_ARENA: u64 = 1 << 2;
    /// All of this version.
    pub const ALL: u64 = SHARED_RINGS | PEERS | SHARED_ARENA;
}

/// Why a link is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Role {
    /// A client that wants a worker.
    Client = 1,
    /// A worker that brings a ticket for another worker.
    Peer = 2,
    /// A tool that asks the daemon for its status.
    Control = 3,
}

impl Role {
    /// The role with this number.
    pub const fn from_wire(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Client),
            2 => Some(Self::Peer),
            3 => Some(Self::Control),
            _ => None,
        }
    }
}

/// What the accepting side says to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u16)]
pub enum Verdict {
    /// Welcome.
    #[error("welcome")]
    Welcome = 0,
    /// The versions differ; the message carries the daemon's.
    #[error("it speaks another version of the protocol")]
    WrongVersion = 1,
    /// The proof is wrong: not the pool's key.
    #[error("it does not accept our key; both sides need the same key file (penstock key)")]
    WrongKey = 2,
    /// The Unix user may not use this daemon.
    #[error("it does not serve this user")]
    WrongUser = 3,
    /// All sessions are taken: see [`crate::limits::SESSIONS_PER_DAEMON_MAX`].
    #[error("all its sessions are taken")]
    Full = 4,
    /// No worker could be started.
    #[error("it could not start a worker")]
    NoWorker = 5,
    /// No session has this ticket.
    #[error("it knows no such ticket")]
    WrongTicket = 6,
    /// The hello is not one of this protocol.
    #[error("it did not understand our hello")]
    NotUnderstood = 7,
    /// The daemon has no key, so it takes nobody over TCP.
    #[error("it has no key file, so it accepts nobody over TCP (penstock key --create)")]
    NoKey = 8,
}

impl Verdict {
    /// The verdict with this number.
    pub const fn from_wire(raw: u16) -> Option<Self> {
        Some(match raw {
            0 => Self::Welcome,
            1 => Self::WrongVersion,
            2 => Self::WrongKey,
            3 => Self::WrongUser,
            4 => Self::Full,
            5 => Self::NoWorker,
            6 => Self::WrongTicket,
            7 => Self::NotUnderstood,
            8 => Self::NoKey,
            _ => return None,
        })
    }
}

/// The connecting side's first message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::limits::PROTOCOL_VERSION`].
    pub version: U16,
    /// A [`Role`].
    pub role: U16,
    /// Bits of [`feature`] that this side has.
    pub features: U64,
    /// Random.
    pub nonce: [u8; NONCE_BYTES],
}

/// The accepting side's answer.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::limits::PROTOCOL_VERSION`].
    pub version: U16,
    /// A [`Verdict`]; only [`Verdict::Welcome`] is followed by anything.
    pub verdict: U16,
    /// Bits of [`feature`] that this side has.
    pub features: U64,
    /// Random.
    pub nonce: [u8; NONCE_BYTES],
    /// That this side has the key.
    pub proof: [u8; PROOF_BYTES],
}

/// The connecting side's last message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    /// That this side has the key.
    pub proof: [u8; PROOF_BYTES],
    /// For [`Role::Peer`]: the ticket; else zero.
    pub ticket: [u8; TICKET_BYTES],
}

/// The accepting side's last message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Final {
    /// A [`Verdict`].
    pub verdict: U16,
}

/// What a proof is made over: a label for the side that proves, then both hellos but for the proof itself.
pub fn transcript(prover: &'static str, hello: &Hello, welcome: &Welcome) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(prover.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(hello.as_bytes());
    let blank = Welcome { proof: [0; PROOF_BYTES], ..*welcome };
    bytes.extend_from_slice(blank.as_bytes());
    bytes
}

/// Labels of the sides in [`transcript`].
pub mod side {
    /// The accepting side.
    pub const ACCEPTING: &str = "penstock 1 accepting";
    /// The connecting side.
    pub const CONNECTING: &str = "penstock 1 connecting";
}
