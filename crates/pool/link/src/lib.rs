//! Byte transports between processes: Unix sockets, vsock, TCP, SSH, and rings in shared memory on
//! one host.
//!
//! * [`open`] and [`accept_hello`] are the two sides of the hello, which identifies the peer and
//!   decides whether it may connect. [`open_patiently`] waits in a daemon's line.
//! * [`establish`] makes a link from the connected socket: a [`Sender`] and a [`Receiver`] of
//!   frames.
//! * [`Outbox`] sends for threads that must not block.
//! * [`send_fd`] and [`recv_fd`] hand a connected socket from the daemon to a worker.
//! * [`SharedMemory`] and [`Addresses`] are the memory and the address range of a symmetric heap.
//!
//! `transport/` has one module for each kind of connection, and `wait.rs` decides how a thread
//! waits. Encrypted links are in `encryption.rs`, `secure.rs` and `transport/tls/`. The direct
//! connections of sessions over SSH are in `direct.rs` and `invitation.rs`. Only this crate touches
//! the sockets of clients and workers, and file descriptors that are sent.
//!
//! A link is a stream of bytes in each direction. Frames and payloads are the same on all
//! transports. The peer is assumed hostile: what it sends or writes can harm only its own session.
//! Every wait ends when the peer hangs up, at [`Sender::close`], when the host of the peer vanishes
//! and the transport can tell that, or when a peer that sends beats falls silent.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

// The tests here and those in `tests/` share a module.
#[cfg(test)]
extern crate self as penstock_link;

mod address;
mod administering;
mod arena;
mod direct;
mod encryption;
mod error;
mod establish;
mod fds;
mod fork;
mod hello;
mod instance;
mod invitation;
mod inviting;
mod joint;
mod key;
mod listener;
mod listener_owner;
mod memory;
mod outbox;
mod piece;
mod race;
mod receiver;
mod sealed;
mod secure;
mod security;
mod sender;
mod shared;
mod silence;
mod socket;
mod standard;
mod stream;
mod talk;
mod threads;
mod trace;
mod transport;
mod wait;

pub use address::{Address, Resolved};
pub use administering::{hear_order, order, tell_outcome};
pub use arena::Arena;
pub use encryption::{
    AUTHORIZED_CLIENTS_FILE, ENROLLED_CLIENTS_MAX, Encryption, EncryptionOptions, IDENTITY_FILE,
    KNOWN_NODES_FILE, Keys, Pins, Rule, Trust, keys_folder,
};
pub use error::LinkError;
pub use establish::establish;
pub use fds::{recv_fd, send_fd};
pub use hello::{
    Accepted, Opened, Progress, accept_hello, accept_hello_as, open, open_on, open_patiently,
};
pub use instance::{Instance, InstanceId};
pub use invitation::{Granted, Guest, Guests, Invitation, Offer};
pub use inviting::{ask_for_invitation, hear_ask, tell_grant};
pub use key::{AwaitedKey, Key};
pub use listener::Listener;
pub use memory::{Addresses, SharedMemory};
pub use outbox::{Body, Outbox};
pub use penstock_tls::{
    AuthorizedClients, Client as AuthorizedClient, ClientOptions, Identity, IdentityError,
    KeyError, KnownNodes, ListError, PUBLIC_KEY_BYTES, PinError, PublicKey,
};
pub use receiver::{Received, Receiver};
pub use secure::{Enrolled, KnownClient};
pub use sender::Sender;
pub use stream::{Leash, Stream};
pub use threads::{OwnThread, ThreadClock, own_time, spawn_quiet};
pub use trace::begin_trace_of_worker;
pub use transport::contract::{Completion, Credentials, Destination, Purpose, Side, Source, Way};
#[cfg(feature = "world")]
pub use transport::mem::{Course, PIPE_BYTES, linked};
pub use transport::region::Settled;
pub use transport::region::host::{GuestMemory, Part, Region, WorkersPart};
pub use transport::region::layout::MemoryUse;
pub use transport::ssh::bridge::{
    bridge, direct_ssh_allowed, end_shared_ssh, has_greeted, let_ssh_ask, share_ssh_in,
};
pub use transport::vsock::machine::{Answer, Asker, Asking, Machine, let_ask};
pub use wait::{Patience, Policy, take_room_wait, waiting_for_room};
