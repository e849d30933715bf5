//! What a transport implements.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use penstock_wire::hello::feature;
use rustix::net::AddressFamily;

use super::region::host::Region;
use super::region::layout::MemoryUse;
use super::rings::ring::Map;
use super::syscall::{self, Readiness};
use crate::arena::Arena;
use crate::error::LinkError;
use crate::instance::End;
use crate::invitation::Invitation;
use crate::wait::Policy;
use zeroize::Zeroizing;

/// Kind of connection.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Returns the text before the first colon of an address.
    fn scheme(&self) -> &'static str;

    /// Returns the form of an address for messages, for example `unix:PATH`.
    fn form(&self) -> &'static str;

    /// Returns the name for messages, for example "Unix sockets".
    fn name(&self) -> &'static str;

    /// Returns whether strangers could connect, so that both sides must prove that they have the
    /// pool's key.
    fn needs_key(&self) -> bool;

    /// Returns the rank among the transports that lead to the same daemon. Lower is better.
    fn rank(&self) -> u8;

    /// Reads the part of an address after the scheme and its colon.
    ///
    /// # Errors
    /// Fails with a reason for the user.
    fn read(&self, text: &str, completion: &Completion<'_>) -> Result<Arc<dyn Endpoint>, String>;

    /// Returns the families of the sockets that are connections of this transport and nothing more,
    /// so that a connection can be made of the descriptor alone.
    fn families(&self) -> &'static [AddressFamily] {
        &[]
    }

    /// Takes a connected socket from another process. `state` is what
    /// [`Connection::state`] returned there, and empty for a socket of one of the
    /// [`Transport::families`] of which nothing more is known.
    ///
    /// # Errors
    /// Fails if the descriptor or the state is not of this transport.
    fn adopt(&self, socket: OwnedFd, state: &[u8]) -> io::Result<Box<dyn Connection>>;
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

/// A connection, and perhaps with what a session connects directly instead.
pub(crate) type Connected = (Box<dyn Connection>, Option<Invitation>);

/// Address of one transport.
pub(crate) trait Endpoint: fmt::Debug + Send + Sync {
    fn transport(&self) -> &'static dyn Transport;

    /// Returns the address without the scheme. Equal endpoints have equal texts.
    fn text(&self) -> OsString;

    /// Connects.
    ///
    /// # Errors
    /// Fails if nobody answers before the deadline.
    fn connect(&self, deadline: Instant) -> io::Result<Box<dyn Connection>>;

    /// Connects for a session, which carries much. If this process logs in and the other side can
    /// be reached directly, too, also returns with what.
    ///
    /// # Errors
    /// See [`Endpoint::connect`].
    fn connect_for_session(&self, deadline: Instant) -> io::Result<Connected> {
        Ok((self.connect(deadline)?, None))
    }

    /// Returns where a connection would lead, with an endpoint for each destination. Returns
    /// nothing if only a user may name the endpoint, and not another process.
    ///
    /// # Errors
    /// Fails if a name has no numeric address. The search for it may take long.
    fn resolve(&self) -> io::Result<Vec<(Destination, Arc<dyn Endpoint>)>> {
        Ok(Vec::new())
    }

    /// Listens. `mode` has the permissions of a socket that lies in the file system.
    ///
    /// # Errors
    /// Fails with [`io::ErrorKind::AddrInUse`] if another process answers there, and with
    /// [`io::ErrorKind::Unsupported`] if this transport only connects.
    fn listen(&self, mode: u32) -> io::Result<Bound>;

    /// Returns whether the address is valid only on the host where it was made.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the name or the numeric address of the host, if the endpoint has one.
    fn host(&self) -> Option<&str> {
        None
    }

    /// Returns the number of the TCP port, if the endpoint has one.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Returns whether connecting logs in on another host with the identity of this process's user.
    /// That takes a time of its own beside the deadline of [`Endpoint::connect`].
    fn logs_in(&self) -> bool {
        false
    }

    /// Returns the error for a connection to `address` that failed.
    fn failure(&self, address: String, source: io::Error) -> LinkError {
        LinkError::Connect { address, source }
    }

    /// Returns the address under which other nodes of the pool reach this listener, or `None` if
    /// none of them does. `host` is the name of this host.
    fn advertised(&self, host: &str) -> Option<Arc<dyn Endpoint>>;
}

/// Number of connections that the system holds before they are accepted. Further connections wait
/// (Unix), or the system drops their first packet and the peer sends it again after one second
/// (TCP). At 25,000 connections a second, this is enough for a pause of 160 ms of the thread that
/// accepts. The system may reduce the number to its own limit, which is 4,096 by default.
pub(super) const BACKLOG: i32 = 4_096;

/// Listening socket of a transport.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: OwnedFd,
    /// Address with what the system has chosen, for example the port.
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) accepting: Box<dyn Accepting>,
}

/// Makes connections of the sockets that a listener accepts, and keeps what the listener owns.
pub(crate) trait Accepting: fmt::Debug + Send + Sync {
    /// Takes an accepted socket.
    ///
    /// # Errors
    /// Fails if the peer has hung up already.
    fn take(&self, socket: OwnedFd) -> io::Result<Box<dyn Connection>>;

    /// Wakes the threads that wait for a connection on the listening socket.
    fn stop(&self, socket: BorrowedFd<'_>) {
        syscall::shutdown(socket);
    }
}

/// Connected socket of a transport.
pub(crate) trait Connection: AsFd + fmt::Debug + Send + Sync {
    fn transport(&self) -> &'static dyn Transport;

    /// Returns the name of the peer for messages.
    fn peer(&self) -> String;

    /// Returns the identity of the peer if the kernel knows it.
    fn credentials(&self) -> io::Result<Option<Credentials>> {
        Ok(None)
    }

    /// Returns where the connection comes from.
    fn source(&self) -> Source {
        Source::Unknown
    }

    /// Returns both ends, this one first, as far as both sides see them alike.
    fn ends(&self) -> Option<(End, End)> {
        None
    }

    /// Returns who besides the two ends could see the bytes.
    fn exposure(&self) -> Exposure {
        Exposure::Kernel
    }

    /// Returns the name of the cipher suite of an encrypted connection.
    fn encryption(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether descriptors can be sent beside the bytes.
    fn passes_descriptors(&self) -> bool {
        false
    }

    /// Returns why the bytes of a link cannot move into memory that both sides share, or `None` if
    /// they can.
    fn why_no_shared_memory(&self) -> Option<&'static str>;

    /// Returns the features that a link over this connection can have (`feature`).
    fn features(&self) -> u64 {
        feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA)
    }

    /// Returns the memory that the guest at the other end shares with this host, if the daemon has
    /// been told of any.
    fn region(&self) -> Option<&Arc<Region>> {
        None
    }

    /// Agrees with the peer, which calls this too, on memory that carries the frames from now on.
    /// Returns `None` if the frames stay on this connection.
    ///
    /// # Errors
    /// Fails if the peer hung up or its memory is not as agreed.
    fn share_memory(&self, _features: u64, _side: Side) -> Result<Option<Rings>, LinkError> {
        Ok(None)
    }

    /// Returns what another process needs beside the descriptor to continue this connection. This
    /// process can send and receive nothing from then on. The bytes may be secret.
    ///
    /// # Errors
    /// Fails if the connection is in a state that another process cannot continue.
    fn state(&self) -> Result<Zeroizing<Vec<u8>>, LinkError> {
        Ok(Zeroizing::default())
    }

    /// Returns the descriptor.
    fn into_socket(self: Box<Self>) -> OwnedFd;

    /// Sends what fits now. Returns `None` if nothing fits.
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        syscall::send_now(self.as_fd(), pieces)
    }

    /// Receives what is there. Returns `None` if nothing is.
    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        syscall::recv_now(self.as_fd(), into)
    }

    /// Sleeps until the connection is ready or hung up. Returns `false` if the deadline passed.
    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        syscall::wait_fd(self.as_fd(), what, deadline)
    }

    /// Returns whether bytes can be received although the descriptor does not report any.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Returns whether the peer has hung up, as far as is known without waiting.
    fn has_hung_up(&self) -> bool {
        syscall::has_hung_up(self.as_fd())
    }

    /// Returns what is known about why the peer has hung up.
    fn why_hung_up(&self) -> LinkError {
        LinkError::Closed
    }

    /// Returns whether the peer is gone although nothing has hung up: it leaves what was sent to it
    /// unanswered. May cost a system call.
    fn vanished(&self) -> bool {
        false
    }

    /// Notes that the peer lives: another thread has taken its bytes from a copy of this
    /// connection.
    fn note_life(&self) {}

    /// Ends the connection in both directions, which wakes all waiting threads on both sides.
    fn shutdown(&self) {
        syscall::shutdown(self.as_fd());
    }
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
    /// Machine with this vsock number.
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
    /// Machine with this vsock number.
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
    /// Name of the transport for messages, for example "Unix sockets".
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

/// One side's part of a pair of rings.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Ring that this side writes to.
    pub(crate) out: Arc<Map>,
    /// Ring that this side reads from.
    pub(crate) back: Arc<Map>,
    /// Carries one byte for each wake-up of a sleeping writer. It is separate from the connection,
    /// because two threads that wait for one socket would take each other's bytes.
    pub(crate) space: Box<dyn Connection>,
    /// How threads wait for the peer, by what it costs to wake this side.
    pub(crate) policy: Policy,
    /// Memory for buffers that both sides share.
    pub(crate) arena: Option<Arc<Arena>>,
}
