//! A connection through a running `ssh`.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use penstock_wire::invitation::Detour;
use zeroize::Zeroizing;

use super::super::contract::{Bytes, Connection, Exposure, Facts, Source, Way};
use super::super::plain::Plain;
use super::super::syscall::{self, Readiness};
use super::TRANSPORT;
use super::process::Messages;
use super::reason::End as EndOfSsh;
use crate::error::LinkError;
use crate::instance::End;

/// What the user is told of the way of the bytes, for each reason.
const fn why_not_better(detour: Detour) -> &'static str {
    match detour {
        Detour::NotTried => {
            "all data goes through the SSH connection, which is slower than a direct one"
        }
        Detour::ForbiddenByClient => {
            "all data goes through the SSH connection, because PENSTOCK_SSH_DIRECT=never on the \
             client's host forbids a direct one"
        }
        Detour::ForbiddenByNode => {
            "all data goes through the SSH connection, because PENSTOCK_SSH_DIRECT=never on this \
             host forbids a direct one"
        }
        Detour::NoInvitation => {
            "all data goes through the SSH connection, which is slower than a direct one: the \
             bridge got no one-time key, and the log of this daemon may say why"
        }
        Detour::Refused => {
            "all data goes through the SSH connection, which is slower than a direct one: the \
             client was refused at this daemon's port, as by a firewall"
        }
        Detour::NoAnswer => {
            "all data goes through the SSH connection, which is slower than a direct one: the \
             client got no answer at this daemon's port, as behind a firewall or a jump host"
        }
        Detour::OtherKey => {
            "all data goes through the SSH connection, which is slower than a direct one: the \
             client has found another listener at this daemon's address, as behind a jump host"
        }
        Detour::Failed => {
            "all data goes through the SSH connection, which is slower than a direct one: the \
             direct one has failed; PENSTOCK_LOG=debug on the client's host says why"
        }
    }
}

/// Returns the way of a link through SSH, as the daemon shows it.
pub(super) fn brought(features: u64) -> Option<Way> {
    // SSH encrypts. At this end of the link there is a Unix socket.
    (features & feature::THROUGH_SSH != 0).then(|| Way {
        transport: TRANSPORT.name,
        shares_memory: false,
        guest_memory: false,
        encryption: None,
        leaves_host: false,
        why_not_better: Some(why_not_better(Detour::of(features))),
    })
}

/// Size in bytes of one piece of what comes before the greeting.
const PIECE_BYTES: usize = 4 << 10;

/// Longest end of a shared connection.
const END_MAX: Duration = Duration::from_secs(2);

/// Receives what comes before the greeting of a bridge.
pub(super) struct Wait<'a> {
    socket: &'a OwnedFd,
    deadline: Instant,
    piece: [u8; PIECE_BYTES],
}

impl<'a> Wait<'a> {
    pub(super) fn new(socket: &'a OwnedFd, deadline: Instant) -> Self {
        Self { socket, deadline, piece: [0; PIECE_BYTES] }
    }

    /// Returns the next bytes, or `None` after a hang-up or the deadline. Then `ssh` is told to
    /// end.
    pub(super) fn more(&mut self) -> Option<&[u8]> {
        loop {
            let socket = self.socket.as_fd();
            match syscall::recv_now(socket, &mut self.piece) {
                Ok(Some(got)) => return self.piece.get(..got),
                Ok(None) if Instant::now() < self.deadline => {
                    _ = syscall::wait_fd(socket, Readiness::Readable, Some(self.deadline));
                }
                _ => {
                    syscall::shutdown(socket);
                    return None;
                }
            }
        }
    }
}

/// Waits until a process that has the other end of this socket has ended.
pub(super) fn wait_for_end(socket: &OwnedFd) -> Result<bool, LinkError> {
    syscall::wait_fd(socket.as_fd(), Readiness::Readable, Some(Instant::now() + END_MAX))
}

/// What a login has led to.
pub(super) struct LoggedIn {
    pub(super) socket: OwnedFd,
    pub(super) messages: Messages,
    /// Name of the login for messages.
    pub(super) login: String,
    /// Number of the user on the node, as the bridge has told it.
    pub(super) user: u32,
}

impl LoggedIn {
    /// Returns the connection to the bridge. `detour` says why a session is not direct.
    pub(super) fn connection(self, detour: Detour) -> Connection {
        let Self { socket, messages, login, user } = self;
        let own = feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA);
        let facts = Facts {
            transport: &TRANSPORT,
            peer: format!("user {user} of {login}"),
            credentials: None,
            source: Source::Unknown,
            // Both ends as the daemon sees them: the bridge and the daemon are processes of one
            // user. SSH vouches that the bridge runs as the user of the login. A hostile bridge
            // could pass the hello on to another daemon that its user may use, and so count as that
            // daemon: then this program uses the bridge's node, which it has named itself, once
            // instead of twice.
            ends: Some((End::User(user), End::User(user))),
            exposure: Exposure::Kernel,
            encryption: None,
            passes_descriptors: false,
            why_no_shared_memory: Some(why_not_better(detour)),
            features: own | feature::THROUGH_SSH | detour.bits(),
            note: Vec::new(),
        };
        Connection::new(Explained { plain: Plain::new(socket), messages }, facts, None)
    }
}

/// Bytes of a running `ssh`, which says why it has ended.
#[derive(Debug)]
struct Explained {
    plain: Plain,
    messages: Messages,
}

impl Explained {
    /// Replaces a mere hang-up by what `ssh` says of it.
    fn explain<T>(&self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.map_err(|error| match error {
            LinkError::Closed => self.why_hung_up(),
            other => other,
        })
    }
}

impl AsFd for Explained {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.plain.as_fd()
    }
}

impl Bytes for Explained {
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.explain(self.plain.send_now(pieces))
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.explain(self.plain.recv_now(into))
    }

    fn has_waiting(&self) -> bool {
        self.plain.has_waiting()
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        self.plain.wait(what, deadline)
    }

    fn shutdown(&self) {
        self.plain.shutdown();
    }

    /// Returns what `ssh` says of the hang-up. The hang-up comes after the shell that waits for
    /// `ssh` has written down its exit status, because that shell has the socket, too.
    fn why_hung_up(&self) -> LinkError {
        match EndOfSsh::read(&self.messages.text()).after_bridge() {
            Some(why) => LinkError::System {
                doing: "the connection through SSH has ended",
                source: io::Error::other(why),
            },
            None => LinkError::Closed,
        }
    }

    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError> {
        self.plain.hand_over()
    }
}
