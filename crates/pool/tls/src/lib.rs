//! Encrypted and authenticated links, without sockets.
//!
//! * An [`Identity`] is the key pair of a node or client. [`KnownNodes`] and [`AuthorizedClients`]
//!   are the keys of others.
//! * [`Handshakes`] makes handshakes of TLS 1.3 in which both sides prove their keys (RFC 7250). An
//!   [`Established`] connection has [`Records`] and a [`Binding`].
//! * A [`PoolKey`] proves inside a connection that a side belongs to the pool.
//! * [`judge_client`] and [`judge_node`] decide who is let in and which node is believed.
//! * A [`Sealer`] and an [`Opener`] are the records of TLS 1.3 after the handshake. rustls makes
//!   the handshake; this record layer is our own, because large content must be sealed from the
//!   program's memory and opened in it.
//!
//! The files are `identity.rs` and `list/` (keys), `handshake/`, `enrol.rs` (the proof of the
//! pool's key), `record/` and `judge.rs`, whose decisions are pure.
//!
//! All decisions are state machines: bytes in, bytes out, no threads, no clocks. Only the files of
//! keys are read and written here. What a peer sends is hostile: it can end its own connection and
//! nothing else, and no byte of a record is handed out before the record is verified.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod alert;
mod enrol;
mod error;
mod file;
mod handshake;
mod identity;
mod judge;
mod key;
pub mod limits;
mod list;
mod record;
mod suite;
mod text;

pub use alert::Alert;
pub use enrol::{Binding, ENROLMENT_BYTES, POOL_KEY_BYTES, PoolKey, TICKET_BYTES, Terms};
pub use error::{HandshakeError, RecordError};
pub use file::FileError;
pub use handshake::{Established, Expected, Handshake, Handshakes};
pub use identity::{Identity, IdentityError};
pub use judge::{ClientJudged, Listed, NodeJudged, Proof, judge_client, judge_node};
pub use key::{KeyError, PUBLIC_KEY_BYTES, PublicKey};
pub use list::{
    AuthorizedClients, Client, ClientOptions, Devices, KnownNodes, LineError, ListError, Pin,
    PinError,
};
pub use record::{
    HANDOVER_BYTES, Handover, Intake, Message, Opener, Pieces, Records, Sealer, Side,
};
pub use suite::{Suite, TrafficSecret};
