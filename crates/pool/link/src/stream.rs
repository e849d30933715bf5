//! Connected sockets of any transport.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;

use penstock_tls::Records;
use penstock_wire::FrameError;
use penstock_wire::hello::feature;
use rustix::net::{Shutdown, SocketType, sockopt};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::error::LinkError;
use crate::instance::End;
use crate::invitation::Invitation;
use crate::standard::FIRST_OTHER;
use crate::transport::contract::{Connection, Credentials, Exposure, Side, Source, Way};
use crate::transport::region::host::{Region, WorkersPart};
use crate::transport::region::layout::MemoryUse;
use crate::transport::region::{self, Holder, Settled};
use crate::transport::rings::{self, Rings};
use crate::transport::syscall::Readiness;
use crate::transport::{self, exact, tls};

/// What the note of an encrypted connection has behind the scheme.
const ENCRYPTED: &str = "+tls";

/// Number of 4 KiB reads of what a refused peer still sends: more than any hello, and soon over.
const UNREAD_READS_MAX: usize = 16;

/// Connected socket.
pub struct Stream {
    connection: Connection,
    /// What this process needs for a region of a guest beside the connection.
    holder: Option<Holder>,
    /// Second descriptor of the socket, for its [`Leash`]. It goes with the stream.
    leash: Option<Arc<OwnedFd>>,
    /// Login that lasts as long as this stream, which does not go through it.
    login: Option<Box<Self>>,
}

/// Ends a connection from outside, wherever its stream is by then. Does not keep it open.
#[derive(Clone, Debug)]
pub struct Leash(Weak<OwnedFd>);

impl Stream {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, holder: None, leash: None, login: None }
    }

    /// Takes a connected stream socket, or one end of a pair, of which nothing more is known.
    ///
    /// # Errors
    /// Fails if the descriptor is no stream socket of a known family.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, LinkError> {
        let doing = "taking a socket";
        if sockopt::socket_type(&fd).map_err(LinkError::system(doing))? != SocketType::STREAM {
            return Err(LinkError::system(doing)(io::ErrorKind::InvalidInput));
        }
        let family = sockopt::socket_domain(&fd).map_err(LinkError::system(doing))?;
        let transport = transport::of_family(family)
            .ok_or_else(|| LinkError::system(doing)(io::ErrorKind::InvalidInput))?;
        (transport.adopt)(fd, &[]).map(Self::new).map_err(LinkError::system(doing))
    }

    /// Takes a connection over from another process. `note` is what [`Stream::note`] returned
    /// there.
    ///
    /// # Errors
    /// Fails if the note and the descriptor do not fit together.
    pub fn resume(fd: OwnedFd, note: &[u8]) -> Result<Self, LinkError> {
        let resumed = || -> io::Result<Connection> {
            let refused = || io::Error::from(io::ErrorKind::InvalidInput);
            let mut parts = note.splitn(2, |byte| *byte == b':');
            let scheme = parts.next().and_then(|scheme| str::from_utf8(scheme).ok());
            let (scheme, rest) = scheme.zip(parts.next()).ok_or_else(refused)?;
            let encrypted = scheme.strip_suffix(ENCRYPTED);
            let transport =
                transport::of_scheme(encrypted.unwrap_or(scheme)).ok_or_else(refused)?;
            if encrypted.is_none() {
                return (transport.adopt)(fd, rest);
            }
            let (size, rest) = rest.split_first_chunk::<4>().ok_or_else(refused)?;
            let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| refused())?;
            let (own, layers) = rest.split_at_checked(size).ok_or_else(refused)?;
            tls::resume((transport.adopt)(fd, own)?, layers)
        };
        resumed().map(Self::new).map_err(LinkError::system("taking over a connection"))
    }

    /// Returns the note with which another process can [resume](Stream::resume) this connection
    /// from its descriptor. This process must not use the connection afterwards. The note of an
    /// encrypted connection has its secrets, and is cleared when it is dropped.
    ///
    /// # Errors
    /// Fails if this process has not sent all that it has begun to send.
    pub fn note(&self) -> Result<Zeroizing<Vec<u8>>, LinkError> {
        let facts = &self.connection.facts;
        let (scheme, own) = (facts.transport.scheme, &facts.note[..]);
        Ok(match self.connection.bytes.hand_over()? {
            None => [scheme.as_bytes(), b":", own].concat().into(),
            Some(layers) => {
                let size = u32::try_from(own.len()).unwrap_or(u32::MAX).to_be_bytes();
                let (scheme, mark) = (scheme.as_bytes(), ENCRYPTED.as_bytes());
                // All at once, so that no copy stays behind in memory that was too small.
                [scheme, mark, b":", &size, own, &layers].concat().into()
            }
        })
    }

    /// Returns what ends this connection from outside.
    ///
    /// # Errors
    /// Fails if there is no descriptor left for it.
    pub fn leash(&mut self) -> Result<Leash, LinkError> {
        let socket = rustix::io::fcntl_dupfd_cloexec(&self.connection, FIRST_OTHER);
        let socket = Arc::new(socket.map_err(LinkError::system("copying a descriptor"))?);
        let leash = Leash(Arc::downgrade(&socket));
        self.leash = Some(socket);
        Ok(leash)
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// Fails if nobody answers at the address before the deadline.
    pub fn connect(address: &Address, deadline: Instant) -> Result<Self, LinkError> {
        Self::reach(address, false, deadline).map(|(stream, _)| stream)
    }

    /// Connects to an address where this process logs in, for a session. Also returns with what
    /// this side can connect directly.
    ///
    /// # Errors
    /// Fails if nobody answers at the address.
    pub(crate) fn connect_for_session(
        address: &Address,
        deadline: Instant,
    ) -> Result<(Self, Option<Invitation>), LinkError> {
        Self::reach(address, true, deadline)
    }

    fn reach(
        address: &Address,
        for_session: bool,
        deadline: Instant,
    ) -> Result<(Self, Option<Invitation>), LinkError> {
        let reached = address.endpoint().reach.connect(for_session, deadline);
        let (connection, invitation) = reached.map_err(|source| address.failure(source))?;
        let stream = Self::new(connection);
        // A connection that shares memory by itself needs no region.
        let needs_region = stream.connection.facts.why_no_shared_memory.is_some();
        let holder = needs_region.then_some(Holder::Client(None));
        Ok((Self { holder, ..stream }, invitation))
    }

    /// Returns this connection with a login that ends with it.
    pub(crate) fn beside_login(mut self, login: Self) -> Self {
        self.login = Some(Box::new(login));
        self
    }

    /// Returns this connection of a client that looks for memory of its guest only in this file,
    /// and not among the devices of this machine.
    #[must_use]
    pub fn seeing(self, path: PathBuf) -> Self {
        Self { holder: Some(Holder::Client(Some(path))), ..self }
    }

    /// Returns this connection of a daemon, which knows that a guest with this region is at the
    /// other end.
    #[must_use]
    pub fn of_guest(self, region: Arc<Region>) -> Self {
        Self { holder: Some(Holder::Daemon(region)), ..self }
    }

    /// Returns this connection of a worker, which has a part of the guest's region if one was free.
    /// `settled` is set when [`crate::establish`] has agreed with the client.
    #[must_use]
    pub fn with_part(self, part: Option<WorkersPart>, settled: Settled) -> Self {
        let part = part.map(Box::new);
        Self { holder: Some(Holder::Worker { part, settled }), ..self }
    }

    /// Returns this connection with all that follows encrypted.
    pub(crate) fn encrypted(self, records: Records) -> Self {
        Self { connection: tls::encrypt(self.connection, records), holder: None, ..self }
    }

    /// Returns who besides the two ends could see the bytes.
    pub(crate) fn exposure(&self) -> Exposure {
        self.connection.facts.exposure
    }

    /// Returns the name of the cipher suite, if the connection is encrypted.
    pub fn encryption(&self) -> Option<&'static str> {
        self.connection.facts.encryption
    }

    /// Returns whether bytes can be received although the descriptor does not report any.
    pub fn has_waiting(&self) -> bool {
        self.connection.bytes.has_waiting()
    }

    #[cfg(test)]
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Returns the socket. If the connection is encrypted, its records end here: whoever takes the
    /// socket has no part in them.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn into_socket(self) -> Result<OwnedFd, LinkError> {
        let socket = rustix::io::fcntl_dupfd_cloexec(&self.connection, FIRST_OTHER);
        socket.map_err(LinkError::system("copying a descriptor"))
    }

    /// Returns the region of the guest at the other end.
    pub(crate) fn region(&self) -> Option<&Arc<Region>> {
        match &self.holder {
            Some(Holder::Daemon(region)) => Some(region),
            _ => None,
        }
    }

    /// Returns the identity of the peer, or `None` if the transport has no kernel that knows it.
    pub fn credentials(&self) -> Option<Credentials> {
        self.connection.facts.credentials
    }

    /// Returns whether descriptors can be sent beside the bytes, with [`crate::send_fd`].
    pub fn passes_descriptors(&self) -> bool {
        self.connection.facts.passes_descriptors
    }

    /// Returns whether strangers could connect, so that both sides must prove that they have the
    /// pool's key.
    pub fn needs_key(&self) -> bool {
        self.connection.facts.transport.needs_key
    }

    /// Returns a name of the peer for messages.
    pub fn peer(&self) -> String {
        self.connection.facts.peer.clone()
    }

    /// Returns where the connection comes from.
    pub fn source(&self) -> Source {
        self.connection.facts.source.clone()
    }

    /// Returns this end of the socket and the other end, as this process sees them.
    pub(crate) fn ends(&self) -> Option<(End, End)> {
        self.connection.facts.ends
    }

    /// Returns the features that a link over this connection can have.
    pub(crate) fn features(&self) -> u64 {
        let by_region = if self.holder.is_some() { region::FEATURES } else { 0 };
        self.connection.facts.features | by_region
    }

    /// Returns the way of a link with these features over this connection.
    pub(crate) fn way(&self, features: u64) -> Way {
        if let Some(brought) = transport::brought(features) {
            return brought;
        }
        let shares_memory = features & feature::SHARED_RINGS != 0;
        let why_not_better = if shares_memory {
            None
        } else if features & feature::GUEST_MEMORY != 0 {
            MemoryUse::Unsettled.why_not()
        } else {
            self.connection.facts.why_no_shared_memory.or(Some("the client shares no memory"))
        };
        Way {
            transport: self.connection.facts.transport.name,
            shares_memory,
            guest_memory: false,
            encryption: self.connection.facts.encryption,
            leaves_host: self.connection.facts.exposure == Exposure::Network,
            why_not_better,
        }
    }

    /// Agrees with the peer, which calls this too, on memory that carries the frames from now on.
    /// Returns no memory if the frames stay on this connection.
    ///
    /// # Errors
    /// Fails if the peer hung up or its memory is not as agreed.
    pub(crate) fn share_memory(
        mut self,
        features: u64,
        side: Side,
    ) -> Result<(Self, Option<Rings>), LinkError> {
        let holder = self.holder.take().filter(|_| features & feature::GUEST_MEMORY != 0);
        if let Some(holder) = holder {
            let (connection, rings) = region::agree(self.connection, holder, features)?;
            return Ok((Self { connection, ..self }, rings));
        }
        let rings = if self.connection.facts.passes_descriptors {
            rings::negotiate(&self.connection, features, side)?
        } else {
            None
        };
        Ok((self, rings))
    }

    /// Receives exactly `into.len()` bytes.
    ///
    /// # Errors
    /// Fails if the peer hung up or the deadline passed.
    pub fn read_exact_until(&self, into: &mut [u8], deadline: Instant) -> Result<(), LinkError> {
        exact::read_exact_until(&self.connection, into, deadline)
    }

    /// Receives a message of at most `bytes_max` bytes that has its size in front. Daemons send
    /// such messages after the hello.
    ///
    /// # Errors
    /// Fails if the message is larger, the peer hung up or the deadline passed. `name` is for the
    /// error.
    pub fn read_sized_until(
        &self,
        name: &'static str,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, LinkError> {
        let mut size = [0; 4];
        self.read_exact_until(&mut size, deadline)?;
        let got = u64::from(u32::from_le_bytes(size));
        let Some(size) = usize::try_from(got).ok().filter(|&size| size <= bytes_max) else {
            return Err(FrameError::PayloadTooLarge { name, got, max: bytes_max as u64 }.into());
        };
        let mut bytes = vec![0; size];
        self.read_exact_until(&mut bytes, deadline)?;
        Ok(bytes)
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Fails if the peer hung up or the deadline passed.
    pub fn write_all_until(&self, bytes: &[u8], deadline: Instant) -> Result<(), LinkError> {
        exact::write_all_until(&self.connection, bytes, deadline)
    }

    /// Sends what fits now. Returns `None` if nothing fits.
    ///
    /// # Errors
    /// Fails if the peer has hung up or vanished.
    pub fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        self.connection.send_now(pieces)
    }

    /// Receives what is there. Returns `None` if nothing is.
    ///
    /// # Errors
    /// [`LinkError::Closed`] if the peer has hung up; also fails if the peer has vanished.
    pub fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.connection.recv_now(into)
    }

    /// Sleeps until the connection is ready or hung up. Returns `false` if the deadline passed.
    pub(crate) fn wait(
        &self,
        what: Readiness,
        deadline: Option<Instant>,
    ) -> Result<bool, LinkError> {
        self.connection.wait(what, deadline)
    }

    /// Returns whether the peer has hung up or will send no more, as far as is known without
    /// waiting.
    pub fn has_hung_up(&self) -> bool {
        self.connection.has_hung_up()
    }

    /// Returns what is known about why the peer has hung up.
    pub(crate) fn why_hung_up(&self) -> LinkError {
        self.connection.bytes.why_hung_up()
    }

    /// Ends the connection in both directions, which wakes all waiting threads on both sides.
    pub fn shutdown(&self) {
        self.connection.bytes.shutdown();
        // A child of `fork` may have a copy of this descriptor, and `ssh` must end all the same.
        if let Some(login) = &self.login {
            login.shutdown();
        }
    }

    /// Ends the connection so that what was just sent still arrives. TCP discards it if bytes of
    /// the peer are left unread.
    pub fn end_politely(&self) {
        let mut scratch = [0; 4096];
        for _ in 0..UNREAD_READS_MAX {
            if !matches!(self.recv_now(&mut scratch), Ok(Some(_))) {
                break;
            }
        }
        self.shutdown();
    }

    /// Returns whether the peer is gone although nothing has hung up: it leaves what was sent to it
    /// unanswered. May cost a system call.
    pub fn vanished(&self) -> bool {
        self.connection.has_vanished()
    }
}

impl Leash {
    /// Ends the connection in both directions, which wakes all waiting threads on both sides.
    pub fn cut(&self) {
        if let Some(socket) = self.0.upgrade() {
            // If it has ended already, there is nothing to do.
            _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
    }

    /// Returns whether the stream is gone.
    pub fn is_loose(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.connection, f)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl TryFrom<OwnedFd> for Stream {
    type Error = LinkError;

    fn try_from(fd: OwnedFd) -> Result<Self, LinkError> {
        Self::from_fd(fd)
    }
}
