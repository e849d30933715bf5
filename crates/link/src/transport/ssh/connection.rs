//! A connection through a running `ssh`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;

use super::super::contract::{Connection, Transport, Way};
use super::super::syscall::{self, Readiness};
use super::TRANSPORT;
use super::command::Login;
use super::process::Messages;
use super::reason::End as EndOfSsh;
use crate::error::LinkError;
use crate::instance::End;

/// What the user is told of the way of the bytes.
const WHY_NOT_BETTER: &str =
    "all data goes through the SSH connection, which is slower than a direct one";

/// Returns the way of a link through SSH, as the daemon shows it.
pub(crate) fn way() -> Way {
    let (transport, why_not_better) = (TRANSPORT.name(), Some(WHY_NOT_BETTER));
    // SSH encrypts. At this end of the link there is a Unix socket.
    Way {
        transport,
        shares_memory: false,
        guest_memory: false,
        encryption: None,
        leaves_host: false,
        why_not_better,
    }
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

#[derive(Debug)]
pub(super) struct SshConnection {
    socket: OwnedFd,
    messages: Messages,
    login: Login,
    /// Number of the user on the node, as the bridge has told it.
    user: u32,
}

impl SshConnection {
    pub(super) fn new(socket: OwnedFd, messages: Messages, login: &Login, user: u32) -> Self {
        Self { socket, messages, login: login.clone(), user }
    }

    /// Replaces a mere hang-up by what `ssh` says of it. The hang-up comes after the shell that
    /// waits for `ssh` has written down its exit status, because that shell has the socket, too.
    fn explained<T>(&self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        result.map_err(|error| match error {
            LinkError::Closed => match EndOfSsh::read(&self.messages.text()).after_bridge() {
                Some(why) => LinkError::System {
                    doing: "the connection through SSH has ended",
                    source: io::Error::other(why),
                },
                None => LinkError::Closed,
            },
            other => other,
        })
    }
}

impl AsFd for SshConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection for SshConnection {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn peer(&self) -> String {
        format!("user {} of {}", self.user, self.login.text())
    }

    /// Both ends as the daemon sees them: the bridge and the daemon are processes of one user. SSH
    /// vouches that the bridge runs as the user of the login. A hostile bridge could pass the hello
    /// on to another daemon that its user may use, and so count as that daemon: then this program
    /// uses the bridge's node, which it has named itself, once instead of twice.
    fn ends(&self) -> Option<(End, End)> {
        Some((End::User(self.user), End::User(self.user)))
    }

    fn why_no_shared_memory(&self) -> Option<&'static str> {
        Some(WHY_NOT_BETTER)
    }

    fn features(&self) -> u64 {
        let own = feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA);
        own | feature::THROUGH_SSH | feature::BEATS
    }

    fn into_socket(self: Box<Self>) -> OwnedFd {
        self.socket
    }

    fn send_now(&self, pieces: &[io::IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.explained(syscall::send_now(self.as_fd(), pieces))
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.explained(syscall::recv_now(self.as_fd(), into))
    }
}
