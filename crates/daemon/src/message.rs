//! What a daemon and its workers tell each other, over a pair of sockets that keeps messages apart.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use penstock_link::{LinkError, Patience, recv_fd, send_fd};
use penstock_wire::describe::Turn;
use penstock_wire::hello::TICKET_BYTES;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::log::Log;

/// Bytes of a message at most: the longest lists a daemon's addresses or a node's devices.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What a daemon tells a worker.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum ToWorker {
    /// First of all: what it needs to be ready for a client.
    Start {
        /// Where the daemon listens.
        addresses: Vec<String>,
        /// The file of the pool's key.
        key: Option<PathBuf>,
        /// Form of the log.
        log: Log,
    },
    /// Its client, whose socket comes with this.
    Client {
        /// What both sides of the link can.
        features: u64,
        /// Its place among the daemon's clients.
        turn: Turn,
    },
    /// The daemon knows a ticket.
    Admitted([u8; TICKET_BYTES]),
    /// Who brought a ticket, whose socket comes with this.
    Peer([u8; TICKET_BYTES]),
}

/// A device that a worker found.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Whether it computes with the host's cores in the host's memory.
    pub(crate) is_of_host: bool,
}

/// What a worker tells its daemon.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum ToDaemon {
    /// It is ready for a client. Memory in which it counts the use of its devices comes with this.
    Ready {
        /// The devices that it found.
        devices: Vec<Found>,
        /// Why there may be fewer than there should be.
        problem: Option<String>,
    },
    /// What its node is like: memory with the description as clients get it comes with this. Said
    /// before [`ToDaemon::Ready`].
    Describe,
    /// Whoever brings this ticket is to be handed to it.
    Admit([u8; TICKET_BYTES]),
    /// Nobody will bring this ticket.
    Forget([u8; TICKET_BYTES]),
    /// The session has ended, and how.
    Ended(String),
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

/// A message, and what came with it.
pub(crate) type Received<M> = (M, Option<OwnedFd>);

impl Control {
    /// Both ends of a new pair.
    pub(crate) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that this process was started with.
    pub(crate) fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a message, with a socket beside it. Does not wait: a process that does not take its messages is in trouble.
    pub(crate) fn send<M: Serialize>(
        &self,
        message: &M,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), LinkError> {
        let bytes = penstock_wire::frame::encode(message);
        match fd {
            Some(fd) => send_fd(self.0.as_fd(), fd, &bytes, Patience::Never),
            None => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let doing = "sending a message between daemon and worker";
                loop {
                    match rustix::net::send(&self.0, &bytes, flags) {
                        Ok(_) => return Ok(()),
                        Err(Errno::INTR) => {}
                        Err(error) => {
                            return Err(LinkError::System { doing, source: error.into() });
                        }
                    }
                }
            }
        }
    }

    /// Receives a message; `None` if none comes in time.
    pub(crate) fn receive<M: DeserializeOwned>(
        &self,
        patience: Patience,
    ) -> Result<Option<Received<M>>, LinkError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let (count, fd) = recv_fd(self.0.as_fd(), &mut bytes, patience)?;
        if count == 0 {
            return Ok(None);
        }
        let message =
            penstock_wire::frame::decode("a message", bytes.get(..count).unwrap_or_default())?;
        Ok(Some((message, fd)))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_sockets_arrive() {
        let (daemon, worker) = Control::pair().unwrap();
        let worker = Control::of(worker);
        let (other, _end) = Control::pair().unwrap();
        let turn = Turn { before: 9, beside: 2 };
        daemon.send(&ToWorker::Client { features: 7, turn }, Some(other.as_fd())).unwrap();
        let (message, fd) = worker.receive::<ToWorker>(Patience::Never).unwrap().unwrap();
        assert!(matches!(message, ToWorker::Client { features: 7, turn: heard } if heard == turn));
        assert!(fd.is_some());
        assert!(worker.receive::<ToWorker>(Patience::Never).unwrap().is_none());
        drop(daemon);
        assert!(worker.receive::<ToWorker>(Patience::Forever).is_err());
    }
}
