//! Messages between a daemon and its workers, over a pair of sockets that preserves messages.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use penstock_confine::{Order, Report};
use penstock_link::{Answer, LinkError, Machine, PUBLIC_KEY_BYTES, Patience, recv_fd, send_fd};
use penstock_quota::{Loan, Resource, Terms};
use penstock_wire::describe::Turn;
use penstock_wire::hello::TICKET_BYTES;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::{Zeroize as _, Zeroizing};

use crate::sharing::Gates;

/// Longest message in bytes; the longest ones list a daemon's addresses or a node's devices.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Note of a connection. It may have the secrets of the connection, so it is cleared when it is
/// dropped, and no text shows it.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Note(Vec<u8>);

impl From<Zeroizing<Vec<u8>>> for Note {
    fn from(mut bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(std::mem::take(&mut *bytes))
    }
}

impl Deref for Note {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note").finish_non_exhaustive()
    }
}

/// Bytes of the public key of a node.
pub(crate) type NodeKey = [u8; PUBLIC_KEY_BYTES];

/// Messages from a daemon to a worker.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum ToWorker {
    /// First message: what the worker needs to become ready for a client.
    Start {
        /// Addresses of the daemon.
        addresses: Vec<String>,
        /// How it confines itself.
        order: Order,
        /// Whether it has a simulated device instead of the node's devices.
        simulate: bool,
    },
    /// First message to a process that becomes the fork server instead of a worker: all others are
    /// of [`crate::builder::ToForkServer`].
    ForkServer {
        /// Whether it has a simulated device instead of the node's devices.
        simulate: bool,
        /// The folder in which the fork server is when it loads drivers.
        folder: Option<PathBuf>,
    },
    /// A part of the memory that its client's guest shares with this host, before the client. The
    /// file of the memory comes with the message.
    Part {
        /// Offset and size in bytes.
        place: (u64, u64),
    },
    /// Its client; the socket comes with the message.
    Client {
        /// Features that both sides of the link have.
        features: u64,
        /// The client's place among the daemon's clients.
        turn: Turn,
        /// Another address at which workers of other nodes reach this session's worker.
        reach: Option<String>,
        /// What [`penstock_link::Stream::resume`] needs.
        stream: Note,
        /// What the session may have from the start, by the index in [`Resource::ALL`].
        loans: [Loan; Resource::ALL.len()],
        terms: Terms,
        /// Numbers of the devices that the client may use; `None` for all.
        devices: Option<Vec<u32>>,
        /// Whether the worker may send descriptors, such as those of a heap's memory.
        sends_descriptors: bool,
    },
    /// Answer to [`ToDaemon::Borrow`].
    Lent { question: u64, resource: Resource, answer: Result<Loan, String> },
    /// Other limits from now on.
    Terms(Terms),
    /// Which devices the session must leave to other users for now.
    Gates(Gates),
    /// The daemon has registered this ticket.
    Admitted([u8; TICKET_BYTES]),
    /// A peer has brought this ticket; the socket comes with the message.
    Peer {
        ticket: [u8; TICKET_BYTES],
        /// Public key of its node, if the link is encrypted.
        node: Option<NodeKey>,
        /// What [`penstock_link::Stream::resume`] needs.
        stream: Note,
    },
    /// Answer to [`ToDaemon::Connect`]; the socket comes with the message.
    Connected {
        number: u64,
        /// Public key of the other node, if the link is encrypted.
        node: Option<NodeKey>,
        /// What [`penstock_link::Stream::resume`] needs.
        stream: Note,
    },
    /// Answer to [`ToDaemon::Ask`]. The socket on which the machine answers comes with the message,
    /// unless nobody could ask.
    Asked { number: u64, answer: Option<Answer> },
    /// Answer to [`ToDaemon::Foreman`]. The connection to the foreman comes with the message,
    /// unless there is none, for this reason.
    Foreman { question: u64, why: Option<String> },
    /// Answer to [`ToDaemon::Connect`]: there is no connection, for this reason.
    Unreached { number: u64, why: String },
    /// The session ends for this reason: it has exceeded a limit of its user, or an administrator
    /// has ended it.
    Over(String),
    /// End all links to the node with this public key: the key was revoked.
    EndLinks(NodeKey),
}

/// A device that a worker found.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Whether it computes with the host's cores in the host's memory.
    pub(crate) is_of_host: bool,
}

/// Messages from a worker to its daemon.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum ToDaemon {
    /// Ready for a client. Memory in which the worker counts the use of its devices comes with it.
    Ready {
        devices: Vec<Found>,
        /// Why devices may be missing.
        problem: Option<String>,
        /// How far the worker is confined.
        confinement: Report,
        /// Whether all of its drivers are PoCL, and all devices are the host's processors.
        is_pocl: bool,
    },
    /// The node's description, in memory that comes with it. Sent before [`ToDaemon::Ready`].
    Describe,
    /// Hand the peer that brings this ticket to this worker.
    Admit([u8; TICKET_BYTES]),
    /// Nobody will bring this ticket.
    Forget([u8; TICKET_BYTES]),
    /// Connect to another node at this address, and show it this ticket. Answered by
    /// [`ToWorker::Connected`] or [`ToWorker::Unreached`].
    Connect {
        /// Chosen by the worker.
        number: u64,
        address: String,
        ticket: [u8; TICKET_BYTES],
    },
    /// Ask the machine at the other end of a link for a sign of life. Answered by
    /// [`ToWorker::Asked`].
    Ask {
        /// Chosen by the worker.
        number: u64,
        machine: Machine,
    },
    /// Start a foreman. Answered by [`ToWorker::Foreman`].
    Foreman { question: u64 },
    /// The session and its client have settled whether they use the memory of a guest. Has the
    /// number of a [`penstock_link::MemoryUse`].
    Settled(u64),
    /// The session needs at least this amount more. Answered by [`ToWorker::Lent`].
    Borrow { question: u64, resource: Resource, least: u64 },
    /// The session no longer needs what it has borrowed.
    GiveBack { resource: Resource, amount: u64 },
    /// The session has ended for this reason.
    Ended(String),
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Control(OwnedFd);

/// A message and the descriptor that came with it.
pub(crate) type Received<M> = (M, Option<OwnedFd>);

impl Control {
    /// Makes a new pair.
    pub(crate) fn pair() -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// Wraps the end that this process was started with.
    pub(crate) fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a message and a descriptor, and clears the buffer. Never blocks: a receiver that takes
    /// no messages has failed.
    pub(crate) fn send<M: Serialize>(
        &self,
        message: &M,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), LinkError> {
        let bytes = Zeroizing::new(penstock_wire::frame::encode_in_place(message));
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

    /// Receives a message, and clears the buffer. Returns `None` if none comes in time.
    pub(crate) fn receive<M: DeserializeOwned>(
        &self,
        patience: Patience,
    ) -> Result<Option<Received<M>>, LinkError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let (count, fd) = recv_fd(self.0.as_fd(), &mut bytes, patience)?;
        if count == 0 {
            return Ok(None);
        }
        let filled = bytes.get_mut(..count).unwrap_or_default();
        let message = penstock_wire::frame::decode("a message", filled);
        filled.zeroize();
        Ok(Some((message?, fd)))
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
        let loans = Resource::ALL.map(|_| Loan::default());
        let stream = Note(b"unix:".to_vec());
        let (reach, terms, devices) = (None, Terms::default(), Some(vec![1]));
        let sends_descriptors = true;
        let client = ToWorker::Client {
            features: 7,
            turn,
            reach,
            stream,
            loans,
            terms,
            devices,
            sends_descriptors,
        };
        daemon.send(&client, Some(other.as_fd())).unwrap();
        let (message, fd) = worker.receive::<ToWorker>(Patience::Never).unwrap().unwrap();
        let ToWorker::Client { features: 7, turn: heard, stream, .. } = message else {
            panic!("another message came: {message:?}");
        };
        assert_eq!((heard, &*stream), (turn, &b"unix:"[..]));
        assert!(fd.is_some());
        assert!(worker.receive::<ToWorker>(Patience::Never).unwrap().is_none());
        drop(daemon);
        assert!(worker.receive::<ToWorker>(Patience::Forever).is_err());
    }
}
