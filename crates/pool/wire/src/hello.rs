//! The opening of a link, before any call. Messages have fixed sizes, so that a stranger's bytes
//! need no parser.
//!
//! ```text
//! connecting side                         accepting side
//! Hello { magic, version, features,  ->
//!         role, nonce }
//!                                    <-   Welcome { magic, version, features, verdict, nonce,
//!                                                   instance, signature, proof }
//! Answer { proof, ticket }           ->
//!                                    <-   Final { InLine, ahead }       any number of times
//!                                    <-   Final { verdict }, perhaps with a reason
//! ```
//! A daemon that has no worker ready for a client immediately answers [`Verdict::InLine`], with the
//! number of clients that are served before this one. The daemon repeats that message every
//! [`LINE_NOTE_MS`](crate::limits::LINE_NOTE_MS) until it can send the last verdict, so that a
//! client can tell a busy daemon from one that is dead or stopped.
//!
//! The instance is a public key that a daemon makes when it starts. Its signature shows a client
//! that two addresses lead to one daemon, see [`Welcome::signature`].
//!
//! Proofs are HMAC-SHA-256 under the pool's key, over a label for the side, both nonces and both
//! hellos. Neither side sends a byte that helps a stranger, and no proof can be replayed or
//! reflected. On a Unix socket the kernel identifies the peer, and the proofs are zero.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::CLIENTS_IN_LINE_MAX;

/// First bytes of every link.
pub const MAGIC: [u8; 8] = *b"PENSTOCK";
/// Size of a nonce in bytes. A collision within 2^64 links is as likely as guessing a proof.
pub const NONCE_BYTES: usize = 32;
/// Size of a proof in bytes: the output of SHA-256.
pub const PROOF_BYTES: usize = 32;
/// Size of an instance, which names a running daemon, in bytes: an Ed25519 public key.
pub const INSTANCE_BYTES: usize = 32;
/// Size of an Ed25519 signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;
/// Size of the pool's key in bytes.
pub const KEY_BYTES: usize = 32;
/// Size in bytes of a ticket, which lets a worker in to another worker of the same client.
pub const TICKET_BYTES: usize = 32;

/// Size in bytes of the reason of a refusal: a few sentences.
pub const REASON_BYTES_MAX: usize = 1_024;

/// Features; a link uses those that both sides have announced.
pub mod feature {
    /// Shared-memory rings beside a Unix socket.
    pub const SHARED_RINGS: u64 = 1 << 0;
    /// Links between the client's workers.
    pub const PEERS: u64 = 1 << 1;
    /// Memory for buffers that both sides see, beside the rings.
    pub const SHARED_ARENA: u64 = 1 << 2;
    /// Not a feature of the link: the connecting side knows several addresses and wants the
    /// accepting side's instance. A signature takes some 50 µs on both sides, and a program with
    /// one node need not wait for it.
    pub const PROVE_INSTANCE: u64 = 1 << 3;
    /// The frames can move into a part of the memory that a guest shares with its host. The
    /// accepting side has this feature if it knows such memory of the guest behind the connection,
    /// and the connecting side if its connection has no other shared memory. A worker then offers a
    /// part, and the client may still decline it. Not in [`ALL`], because it depends on more than
    /// the connection.
    pub const GUEST_MEMORY: u64 = 1 << 4;
    /// The worker sends a [`Beat`](crate::calls::to_client::Beat) every
    /// [`BEAT_MS`](crate::limits::BEAT_MS), because no kernel knows whether a process at the other
    /// end is stopped.
    pub const BEATS: u64 = 1 << 8;
    /// The connecting side comes through SSH, and a bridge on the accepting side's host copies the
    /// bytes. Only the connecting side knows that. The accepting side has this feature if it knows
    /// the user of the process that has connected, and shows the way of the bytes in its status.
    /// Not in [`ALL`], because no connection has it by its kind.
    pub const THROUGH_SSH: u64 = 1 << 16;
    /// Three bits, no feature: why a session that comes through SSH has no connection of its own,
    /// as a number of [`Detour`](crate::invitation::Detour). Only beside [`THROUGH_SSH`].
    pub const DETOUR: u64 = 7 << 17;
    /// The worker takes the files that programs include
    /// ([`ProgramHeaders`](crate::calls::to_worker::ProgramHeaders)).
    pub const HEADERS: u64 = 1 << 24;
    /// All features that a link has in this version, whatever its transport is.
    pub const ALL: u64 = SHARED_RINGS | PEERS | SHARED_ARENA | BEATS | HEADERS;
}

/// The reason why a link is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Role {
    /// A client that wants a worker.
    Client = 1,
    /// A worker that brings a ticket for another worker.
    Peer = 2,
    /// A tool that asks the daemon for its status.
    Control = 3,
    /// A tool that asks the daemon for the description of its node and takes no worker. See
    /// [`crate::describe::Survey`].
    Survey = 4,
    /// A bridge that asks for a one-time key. See [`crate::invitation`].
    Invitation = 5,
    /// An administrator's tool that gives the daemon an order. See [`crate::administration`].
    Administration = 6,
}

impl Role {
    /// Returns the role with this number.
    pub const fn from_wire(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Client),
            2 => Some(Self::Peer),
            3 => Some(Self::Control),
            4 => Some(Self::Survey),
            5 => Some(Self::Invitation),
            6 => Some(Self::Administration),
            _ => None,
        }
    }
}

/// The accepting side's verdict on a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u16)]
pub enum Verdict {
    #[error("welcome")]
    Welcome = 0,
    /// The versions differ. The message carries the daemon's version.
    #[error("it speaks another version of the protocol")]
    WrongVersion = 1,
    /// The proof was not made with the pool's key.
    #[error("it does not accept our key; both sides need the same key file (penstock key)")]
    WrongKey = 2,
    /// The daemon does not serve this Unix user.
    #[error("it does not serve this user")]
    WrongUser = 3,
    /// All sessions are taken or wait for a worker, and the line behind them has
    /// [`CLIENTS_IN_LINE_MAX`] clients.
    #[error(
        "it has no worker for us, and its line is full: CLIENTS_IN_LINE_MAX \
         ({CLIENTS_IN_LINE_MAX}) clients wait in it"
    )]
    Full = 4,
    /// No worker could be started.
    #[error("it could not start a worker")]
    NoWorker = 5,
    /// No session has this ticket.
    #[error("it knows no such ticket")]
    WrongTicket = 6,
    /// The message is not a hello of this protocol.
    #[error("it did not understand our hello")]
    NotUnderstood = 7,
    /// The daemon has no key, so it accepts nobody over TCP or vsock.
    #[error("it has no key file, so it accepts nobody over TCP or vsock (penstock key --create)")]
    NoKey = 8,
    /// The client waits for a worker; another verdict follows. Only for [`Role::Client`] and
    /// [`Role::Survey`].
    #[error("it has us wait in line")]
    InLine = 9,
    /// Its workers are less confined than its administrator requires.
    #[error(
        "its workers are less confined than --require-confinement asks for; `penstock status` \
         names the level, the reason and the remedy"
    )]
    Unconfined = 10,
    /// A limit that an administrator set is reached, or an administrator drains the node. The
    /// message is followed by the number of bytes of the reason (16 bits, at most
    /// [`REASON_BYTES_MAX`]) and the reason, a text that names the limit and who set it. Only for
    /// [`Role::Client`] and [`Role::Survey`].
    #[error("a limit of its administrator is reached")]
    OverLimit = 11,
    /// The daemon accepts only encrypted links here.
    #[error(
        "it accepts only encrypted links, and this one is plain. Remove PENSTOCK_ENCRYPTION=never \
         or the entry `encryption` here; if the address is one of this host that leads elsewhere, \
         such as a forwarded port, set PENSTOCK_ENCRYPTION=always here; or set \
         PENSTOCK_ENCRYPTION=never there, too, if nobody else can see this network"
    )]
    NeedsEncryption = 12,
    /// The daemon accepts only plain links here.
    #[error(
        "it does not encrypt its links (PENSTOCK_ENCRYPTION=never there); remove that setting \
         there, or set it here, too, if nobody else can see this network"
    )]
    PlainOnly = 13,
    /// The daemon does not know the client's public key, and the client has not proved the pool's
    /// key.
    #[error(
        "it does not know our key; run `penstock key allow NAME KEY` there with the key that \
         `penstock key list` shows here, or give both sides the same key file (penstock key)"
    )]
    NotEnrolled = 14,
    /// The client's public key was revoked.
    #[error("our key was revoked there; its administrator can allow it again (penstock key)")]
    Revoked = 15,
    /// The list of clients restricts this client in a way that the daemon cannot enforce.
    #[error(
        "its list of clients limits our devices, or names a quota that its file of limits lacks"
    )]
    Restricted = 16,
    /// The daemon has given out no such one-time key, or the key was used or has expired.
    #[error("it knows no such one-time key: the key was used already, or has expired")]
    NotInvited = 17,
}

impl Verdict {
    /// Returns the verdict with this number.
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
            9 => Self::InLine,
            10 => Self::Unconfined,
            11 => Self::OverLimit,
            12 => Self::NeedsEncryption,
            13 => Self::PlainOnly,
            14 => Self::NotEnrolled,
            15 => Self::Revoked,
            16 => Self::Restricted,
            17 => Self::NotInvited,
            _ => return None,
        })
    }
}

/// The connecting side's first message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Hello {
    pub magic: [u8; 8],
    pub version: U16,
    /// Number of a [`Role`].
    pub role: U16,
    /// Bits of [`feature`] that the connecting side has.
    pub features: U64,
    pub nonce: [u8; NONCE_BYTES],
}

/// The accepting side's answer.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Welcome {
    pub magic: [u8; 8],
    pub version: U16,
    /// Number of a [`Verdict`]. The hello goes on only after [`Verdict::Welcome`].
    pub verdict: U16,
    /// Bits of [`feature`] that the accepting side has.
    pub features: U64,
    pub nonce: [u8; NONCE_BYTES],
    /// The instance of this daemon; zero if the client did not ask for it
    /// ([`feature::PROVE_INSTANCE`]) or the daemon does not tell.
    pub instance: [u8; INSTANCE_BYTES],
    /// The instance's signature over [`transcript`] of [`side::INSTANCE`] and over the two ends of
    /// the socket as the accepting side sees them. The connecting side checks it against the ends
    /// as it sees them. So the signature is right only on a connection that leads straight to the
    /// daemon with that instance: only that daemon can make one, and a relayed one shows other
    /// ends.
    pub signature: [u8; SIGNATURE_BYTES],
    /// Proof that the accepting side has the key.
    pub proof: [u8; PROOF_BYTES],
}

/// The connecting side's last message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    /// Proof that the connecting side has the key.
    pub proof: [u8; PROOF_BYTES],
    /// The ticket of a [`Role::Peer`], or the name of the one-time key of a client that a bridge
    /// has brought; otherwise zero.
    pub ticket: [u8; TICKET_BYTES],
}

/// The accepting side's last message, and the messages to a client in line before it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Final {
    /// Number of a [`Verdict`]. After [`Verdict::InLine`] another message of this kind follows.
    pub verdict: U16,
    /// Number of clients that are served before this one, for [`Verdict::InLine`]; otherwise zero.
    pub ahead: U32,
}

/// Returns the bytes over which a side makes its proof: the label of that side, then both hellos
/// with the proof blank. The signature of the instance is made before the proof, over a transcript
/// whose signature is blank too.
pub fn transcript(prover: &'static str, hello: &Hello, welcome: &Welcome) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(320);
    bytes.extend_from_slice(prover.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(hello.as_bytes());
    let blank = Welcome { proof: [0; PROOF_BYTES], ..*welcome };
    bytes.extend_from_slice(blank.as_bytes());
    bytes
}

/// Labels of the sides in [`transcript`].
pub mod side {
    pub const ACCEPTING: &str = "penstock 2 accepting";
    pub const CONNECTING: &str = "penstock 2 connecting";
    /// The running daemon at the accepting side, whether or not it has the pool's key.
    pub const INSTANCE: &str = "penstock 2 instance";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_round_trip() {
        let welcome = Welcome {
            magic: MAGIC,
            version: U16::new(2),
            verdict: U16::new(0),
            features: U64::new(7),
            nonce: [1; NONCE_BYTES],
            instance: [2; INSTANCE_BYTES],
            signature: [3; SIGNATURE_BYTES],
            proof: [4; PROOF_BYTES],
        };
        let read = Welcome::read_from_bytes(welcome.as_bytes()).unwrap();
        assert_eq!(read.as_bytes(), welcome.as_bytes());
        assert_eq!((read.instance, read.signature), ([2; INSTANCE_BYTES], [3; SIGNATURE_BYTES]));
        let note = Final { verdict: U16::new(Verdict::InLine as u16), ahead: U32::new(70_000) };
        assert_eq!(note.as_bytes(), [9, 0, 0x70, 0x11, 1, 0]);
        assert_eq!(Final::read_from_bytes(note.as_bytes()).unwrap().ahead.get(), 70_000);
    }

    #[test]
    fn roles_and_verdicts_survive_a_round_trip() {
        use Role::{Administration, Client, Control, Invitation, Peer, Survey};
        for role in [Client, Peer, Control, Survey, Invitation, Administration] {
            assert_eq!(Role::from_wire(role as u16), Some(role));
        }
        let verdicts = (0..18).map(|raw| Verdict::from_wire(raw).map(|verdict| verdict as u16));
        assert!(verdicts.eq((0..18).map(Some)));
        assert_eq!((Role::from_wire(7), Verdict::from_wire(18)), (None, None));
        assert!(Verdict::Full.to_string().contains("CLIENTS_IN_LINE_MAX (512)"));
    }

    #[test]
    fn a_transcript_depends_on_everything_but_the_proof() {
        let hello = Hello::read_from_bytes(&[5; size_of::<Hello>()]).unwrap();
        let welcome = Welcome::read_from_bytes(&[6; size_of::<Welcome>()]).unwrap();
        let told = |welcome: &Welcome| transcript(side::ACCEPTING, &hello, welcome);
        assert_eq!(told(&Welcome { proof: [9; PROOF_BYTES], ..welcome }), told(&welcome));
        assert_ne!(told(&Welcome { instance: [9; INSTANCE_BYTES], ..welcome }), told(&welcome));
        assert_ne!(told(&Welcome { signature: [9; SIGNATURE_BYTES], ..welcome }), told(&welcome));
        assert_ne!(transcript(side::CONNECTING, &hello, &welcome), told(&welcome));
    }
}
