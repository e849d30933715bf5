//! What a transport is, what it makes, and the words for both.
//!
//! A connection consists of three parts:
//! * [`Bytes`] moves bytes in both directions and ends them.
//! * [`Facts`] is what is known of the connection. The transport fills it once.
//! * [`Liveness`] tells whether the peer has vanished, if the kernel does not tell it.
//!
//! A layer, such as encryption, takes a connection and returns one. It puts bytes of its own over
//! those that it got, and says which facts change. It hands on the others, so who adds a fact
//! decides what encryption (`tls/mod.rs`) and memory (`region/`) make of it. No trait here has a
//! method with a default: bytes that forget one do not compile, nor does a transport that forgets a
//! fact.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::AddressFamily;
use zeroize::Zeroizing;

use super::region::layout::MemoryUse;
use super::syscall::{self, Readiness};
use crate::error::LinkError;
use crate::instance::End;
use crate::invitation::Invitation;

/// Kind of connection: an entry in the table of transports.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Text before the first colon of an address.
    pub(crate) scheme: &'static str,
    /// Form of an address for messages, for example `scheme:HOST`.
    pub(crate) form: &'static str,
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Whether strangers could connect, so that both sides must prove that they have the pool's
    /// key.
    pub(crate) needs_key: bool,
    /// Rank among the transports that lead to the same daemon. Lower is better.
    pub(crate) rank: u8,
    /// Families of the sockets that are connections of this transport and nothing more, so that a
    /// connection can be made of the descriptor alone.
    pub(crate) families: &'static [AddressFamily],
    /// Reads the part of an address after the scheme and its colon. Fails with a reason for the
    /// user.
    pub(crate) read: fn(&str, &Completion<'_>) -> Result<Endpoint, String>,
    /// Takes a connected socket, for example from another process. The second argument is
    /// [`Facts::note`] of the other process. It is empty for a socket of one of the families of
    /// which nothing more is known. Fails if the descriptor or the note is not of this transport.
    pub(crate) adopt: fn(OwnedFd, &[u8]) -> io::Result<Connection>,
    /// Returns the way of a link that a process on this host has brought here over this transport,
    /// if the features of the link say so. Its last part is a connection of another transport.
    pub(crate) brought: fn(features: u64) -> Option<Way>,
}

/// What a reader of addresses adds to an address that leaves something out.
pub struct Completion<'a> {
    /// Port of an address without one.
    pub port: Option<u16>,
    /// Makes a path complete, for example one that starts with `~/`.
    pub path: &'a dyn Fn(&str) -> PathBuf,
    pub purpose: Purpose,
}

/// What an address is for. The short form of an address can mean one thing for a listener and
/// another one for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Connect,
    Listen,
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("port", &self.port)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

/// Address of one transport.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) transport: &'static Transport,
    /// Address without the scheme. Equal endpoints have equal texts.
    pub(crate) text: OsString,
    /// Name or numeric address of the host, if the endpoint has one.
    pub(crate) host: Option<String>,
    /// Number of the port, if the endpoint has a host and a port of it.
    pub(crate) port: Option<u16>,
    /// Whether the address is valid only on the host where it was made.
    pub(crate) is_local: bool,
    /// Whether connecting logs in on another host with the identity of this process's user. That
    /// takes a time of its own beside the deadline of [`Reach::connect`].
    pub(crate) logs_in: bool,
    pub(crate) reach: Box<dyn Reach>,
}

/// A connection and, after a login, perhaps an invitation to connect directly.
pub(crate) type Connected = (Connection, Option<Invitation>);

/// What can be done at an address.
pub(crate) trait Reach: fmt::Debug + Send + Sync {
    /// Connects. If that logs in, `for_session` also asks for an invitation to connect directly,
    /// because sessions carry much data.
    ///
    /// # Errors
    /// Fails if nobody answers before the deadline. If the endpoint logs in, an error of
    /// [`io::ErrorKind::PermissionDenied`] lasts until a person has changed something.
    fn connect(&self, for_session: bool, deadline: Instant) -> io::Result<Connected>;

    /// Returns where a connection would lead, with an endpoint for each destination. Returns
    /// nothing if only a user may name the endpoint, and not another process.
    ///
    /// # Errors
    /// Fails if a name has no numeric address. The search for it may take long.
    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>>;

    /// Listens. `mode` has the permissions of a socket that lies in the file system.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::AddrInUse`] if another process answers there, and with
    /// [`io::ErrorKind::Unsupported`] if this transport only connects.
    fn listen(&self, mode: u32) -> io::Result<Bound>;

    /// Returns the address under which other nodes of the pool reach this listener, or `None` if
    /// none of them does. `host` is the name of this host.
    fn advertised(&self, host: &str) -> Option<Endpoint>;
}

/// Listening socket of a transport.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: OwnedFd,
    /// Address with what the system has chosen, for example the port.
    pub(crate) endpoint: Endpoint,
    pub(crate) accepting: Box<dyn Accepting>,
}

/// Makes connections of the sockets that a listener accepts, and keeps what the listener owns.
pub(crate) trait Accepting: fmt::Debug + Send + Sync {
    /// Takes an accepted socket.
    ///
    /// # Errors
    /// Fails if the peer has hung up already.
    fn take(&self, socket: OwnedFd) -> io::Result<Connection>;
}

/// Connected socket of a transport, perhaps with layers over it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) bytes: Box<dyn Bytes>,
    pub(crate) facts: Box<Facts>,
    /// `None` if the kernel reports the end of each peer as a hang-up.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
}

impl Connection {
    pub(crate) fn new(
        bytes: impl Bytes + 'static,
        facts: Facts,
        liveness: Option<Arc<dyn Liveness>>,
    ) -> Self {
        Self { bytes: Box::new(bytes), facts: Box::new(facts), liveness }
    }

    /// Sends what fits now. Returns `None` if nothing fits.
    pub(crate) fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.bytes.send_now(pieces)
    }

    /// Receives what is there. Returns `None` if nothing is.
    pub(crate) fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.bytes.recv_now(into)
    }

    /// Sleeps until the connection is ready or hung up. Returns `false` if the deadline passed.
    /// Fails if the peer vanishes meanwhile.
    pub(crate) fn wait(
        &self,
        what: Readiness,
        deadline: Option<Instant>,
    ) -> Result<bool, LinkError> {
        if self.liveness.is_none() {
            return self.bytes.wait(what, deadline);
        }
        loop {
            let look = penstock_process::now() + syscall::LOOK_EVERY;
            let limit = deadline.map_or(look, |deadline| deadline.min(look));
            if self.bytes.wait(what, Some(limit))? {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| penstock_process::now() >= deadline) {
                return Ok(false);
            }
            if self.has_vanished() {
                return Err(LinkError::Vanished);
            }
        }
    }

    /// Returns whether the peer has hung up, as far as is known without waiting.
    pub(crate) fn has_hung_up(&self) -> bool {
        syscall::has_hung_up(self.as_fd())
    }

    /// See [`Liveness::has_vanished`].
    pub(crate) fn has_vanished(&self) -> bool {
        self.liveness.as_ref().is_some_and(|it| it.has_vanished(self.as_fd()))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bytes.as_fd()
    }
}

/// Moves the bytes of a connection. The descriptor is that of the connection's socket, on which
/// threads sleep and whose hang-up is the end of the connection. The bytes may go elsewhere, and
/// the socket is then the doorbell and the sign of life.
pub(crate) trait Bytes: AsFd + fmt::Debug + Send + Sync {
    /// Sends what fits now. Returns `None` if nothing fits.
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError>;

    /// Receives what is there. Returns `None` if nothing is.
    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError>;

    /// Returns whether bytes can be received although the descriptor does not report any.
    fn has_waiting(&self) -> bool;

    /// Sleeps until the connection is ready or hung up. Returns `false` if the deadline passed.
    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError>;

    /// Ends the connection in both directions, which wakes all waiting threads on both sides.
    fn shutdown(&self);

    /// Returns what is known about why the peer has hung up.
    fn why_hung_up(&self) -> LinkError;

    /// Returns what another process needs to continue the layers of this connection, or `None` if
    /// there are none. This process can send and receive nothing from then on. The bytes may be
    /// secret.
    ///
    /// # Errors
    /// Fails if the connection is in a state that another process cannot continue.
    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError>;
}

/// What is known of a connection. The transport fills it once, and layers change what differs.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) transport: &'static Transport,
    /// Name of the peer for messages.
    pub(crate) peer: String,
    /// Identity of the peer, if the kernel knows it.
    pub(crate) credentials: Option<Credentials>,
    /// Where the connection comes from.
    pub(crate) source: Source,
    /// Both ends, this one first, as far as both sides see them alike.
    pub(crate) ends: Option<(End, End)>,
    /// Who besides the two ends could see the bytes.
    pub(crate) exposure: Exposure,
    /// Name of the cipher suite of an encrypted connection.
    pub(crate) encryption: Option<&'static str>,
    /// Whether descriptors can be sent beside the bytes. Then a link can move its frames into
    /// memory that both sides share, and the wake-ups go over a pair of Unix sockets that
    /// [`Transport::adopt`] takes.
    pub(crate) passes_descriptors: bool,
    /// Why the bytes of a link cannot move into memory that both sides share, or `None` if they
    /// can.
    pub(crate) why_no_shared_memory: Option<&'static str>,
    /// Features that a link over this connection can have (`feature`).
    pub(crate) features: u64,
    /// What another process needs beside the descriptor: see [`Transport::adopt`].
    pub(crate) note: Vec<u8>,
}

/// Finds out whether a peer is gone although nothing has hung up. A transport has this part if its
/// kernel does not tell.
pub(crate) trait Liveness: fmt::Debug + Send + Sync {
    /// Returns whether the peer leaves unanswered what was sent to it over this socket. May cost a
    /// system call. Callers ask again and again while they wait.
    fn has_vanished(&self, socket: BorrowedFd<'_>) -> bool;
}

/// Identity of the process at the other end of a socket, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Process that connected; 0 for a process that this process's PID namespace does not see.
    pub pid: i32,
}

/// Who besides the two ends of a connection could see its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// A kernel or a hypervisor, which sees the memory of the ends as well.
    Kernel,
    /// As [`Exposure::Kernel`], but over a transport that can also leave the host.
    Loopback,
    /// Everybody on the network.
    Network,
}

/// Where a connection leads that this process makes, for rules about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// Socket in the file system of this host.
    File,
    /// Host with this numeric address.
    Host(IpAddr),
    /// Virtual machine, or its host, with this number.
    Machine(u32),
}

/// Origin of a connection, for limits that all connections of one origin share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// User of this host.
    User(u32),
    /// Host or network; see [`Source::of_address`].
    Network(IpAddr),
    /// Virtual machine, or its host, with this number.
    Machine(u32),
    /// Guest whose monitor has its socket at this path.
    Guest(PathBuf),
    Unknown,
}

impl Source {
    /// Returns the origin with this address. All addresses of an IPv6 network of 64 bits are one
    /// origin, because a single host has as many of them as it likes (RFC 4291, section 2.5.4).
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(six) => {
                let [a, b, c, d, ..] = six.segments();
                [a, b, c, d, 0, 0, 0, 0].into()
            }
            four @ IpAddr::V4(_) => four,
        })
    }
}

/// How the bytes of a link travel, as the hello agreed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Name of the transport for messages.
    pub transport: &'static str,
    /// Whether the bytes move through memory that both sides share.
    pub shares_memory: bool,
    /// Whether that memory is what a guest shares with its host.
    pub guest_memory: bool,
    /// Name of the cipher suite, if the bytes are encrypted.
    pub encryption: Option<&'static str>,
    /// Whether the bytes leave the host, as far as this end can tell.
    pub leaves_host: bool,
    /// Why there is no faster way. `None` if there is none, or if the reason is not known.
    pub why_not_better: Option<&'static str>,
}

impl Way {
    /// Returns the way of a link whose two sides have settled whether they use the memory that a
    /// guest shares with its host.
    #[must_use]
    pub fn settled(self, settled: MemoryUse) -> Self {
        let why_not_better = settled.why_not();
        let guest_memory = why_not_better.is_none();
        Self { shares_memory: guest_memory, guest_memory, why_not_better, ..self }
    }
}

/// Side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Side that offers shared memory.
    Client,
    /// Side that takes the memory.
    Worker,
}
