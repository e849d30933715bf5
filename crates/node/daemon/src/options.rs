//! Options of a daemon, and why it cannot start.

use std::io;
use std::path::PathBuf;

use penstock_confine::Level;
use penstock_link::{Address, EncryptionOptions, LinkError};

use crate::announce::AnnounceError;
use crate::confinement::ConfinementError;
use crate::guest::{Guest, GuestError};
use crate::idle::IdleEnd;
use crate::log::Log;
use crate::permitted::WrongNetwork;
use crate::quota::LimitsError;
use crate::transport::UnknownTransport;
use crate::users::{UserRange, UsersError};

/// Options of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// Users besides the daemon's own that may connect through Unix sockets.
    pub allow_users: Vec<u32>,
    /// Memory that guests share with this host, each with the address at which its guest connects.
    pub guests: Vec<Guest>,
    /// File of the pool's key. Without a key, the daemon serves nobody over TCP or
    /// vsock.
    pub key: Option<PathBuf>,
    /// File in which the pool's key may appear while the daemon runs, if there is no `key`.
    pub awaited_key: Option<PathBuf>,
    /// How far workers confine themselves; otherwise the environment says it.
    pub confine: Option<Level>,
    /// The level of confinement below which clients are refused; otherwise the environment says it.
    pub require_confinement: Option<Level>,
    /// Which TCP links are encrypted, and with which keys.
    pub encryption: EncryptionOptions,
    pub log: Log,
    /// Users that the workers have, one each. Otherwise they have the daemon's user.
    pub worker_users: Option<UserRange>,
    /// File of limits. Without it, only the built-in limits apply.
    pub limits: Option<PathBuf>,
    /// Whether to announce the daemon on the local network.
    pub announce: bool,
    /// Whether the workers have one simulated device, for tests, instead of the node's devices.
    pub simulate: bool,
    /// Whether to end when the process that started the daemon ends.
    pub ends_with_parent: bool,
    /// Whether to end some time after the last client.
    pub idle_end: Option<IdleEnd>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No address was given.
    #[error(
        "no address to listen on; give one with --listen unix:PATH, --listen tcp:HOST:PORT or \
         --listen vsock:PORT"
    )]
    NoAddress,
    /// The memory of a guest belongs to no address, or to one of another guest.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// An address or the key cannot be used.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The levels of confinement are wrong.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// The file of limits cannot be used.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// Workers cannot have users of their own.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The environment names an unknown transport.
    #[error(transparent)]
    Transport(#[from] UnknownTransport),
    /// The daemon cannot be announced on the local network.
    #[error("cannot announce the daemon: {0}")]
    Announce(#[from] AnnounceError),
    /// The environment names no network.
    #[error(transparent)]
    Network(#[from] WrongNetwork),
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Action that failed, for example "making an eventfd".
        doing: &'static str,
        /// Reason of the failure.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}
