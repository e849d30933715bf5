//! Connected sockets. Only this module and [`crate::fds`] call sockets.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use crate::address::Address;
use crate::error::LinkError;
use crate::instance::End;

/// Idle time in seconds after which a TCP peer is probed.
const KEEPALIVE_IDLE_S: u64 = 2;
/// Interval between two probes in seconds.
const KEEPALIVE_INTERVAL_S: u64 = 1;
/// Number of probes: an idle peer that vanished is noticed after 2 + 3 x 1 = 5 s.
const KEEPALIVE_COUNT: u32 = 3;

/// Milliseconds without an acknowledgement, despite repeated requests, after which a TCP peer has
/// vanished.
const SILENT_MS_MAX: u32 = 2_000;
/// Number of unanswered retransmissions that count as repeated requests. The system retransmits
/// after 0.2, 0.6 and 1.4 s on a fast network, and later on a slow one. After an hour of idleness a
/// single lost packet must not end the link.
const UNANSWERED_MIN: u8 = 3;
/// Interval at which a thread that waits for a TCP peer checks whether the peer has vanished.
/// `TCP_USER_TIMEOUT` would need no check, but it also ends a link whose living peer does not read
/// for that time, for instance a worker with a long kernel.
const LOOK_EVERY: Duration = Duration::from_millis(1_000);

/// Size in bytes of a Unix socket's send buffer. Measured: beyond 1 MiB nothing is gained.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Congestion control of TCP within one host: the unpaced algorithm that every kernel has built in.
/// There is no network to protect. With busy cores, a system whose default paces by timers (BBR)
/// reaches less than half the speed: 2.0 GB/s instead of 4.2 for 16 MiB, with plain sockets as with
/// ours. For connections to other hosts the system's choice holds.
///
/// The choice must be made before the connection is made, on both ends. A connection that BBR has
/// begun stays on timers under any successor, and sometimes needs 6 ms for 16 MiB instead of 2.5.
const CONGESTION_WITHIN_HOST: &str = "reno";

/// Number of 4 KiB reads of what a refused peer still sends: more than any hello, and soon over.
const UNREAD_READS_MAX: usize = 16;

/// Pause between two attempts to reach a Unix listener whose queue is full.
const CONNECT_RETRY: Duration = Duration::from_millis(2);

/// Identity of the process at the other end of a Unix socket, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Process that connected; 0 for a process that this process's PID namespace does not see.
    pub pid: i32,
}

#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Unix,
    Tcp,
}

/// Condition that [`Stream::wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Bytes or a hang-up have come.
    Readable,
    /// Bytes can be sent.
    Writable,
}

impl Stream {
    /// Takes a connected stream socket that another process sent, or one end of a pair.
    ///
    /// # Errors
    /// Fails if the descriptor is no stream socket of a known family.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, LinkError> {
        let doing = "taking a socket";
        let wrong = || LinkError::System { doing, source: io::ErrorKind::InvalidInput.into() };
        if sockopt::socket_type(&fd).map_err(LinkError::system(doing))? != SocketType::STREAM {
            return Err(wrong());
        }
        let family = match sockopt::socket_domain(&fd).map_err(LinkError::system(doing))? {
            AddressFamily::UNIX => Family::Unix,
            AddressFamily::INET | AddressFamily::INET6 => Family::Tcp,
            _ => return Err(wrong()),
        };
        let stream = Self { fd, family };
        stream.prepare().map_err(LinkError::system(doing))?;
        Ok(stream)
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// Fails if nobody answers at the address before the deadline.
    pub fn connect(address: &Address, deadline: Instant) -> Result<Self, LinkError> {
        let failed = |source| LinkError::Connect { address: address.clone(), source };
        let fd = match address {
            Address::Unix(path) => connect_unix(path, deadline),
            Address::Tcp { host, port } => connect_tcp(host, *port, deadline),
        };
        Self::from_fd(fd.map_err(failed)?)
    }

    /// Returns the identity of the peer; `None` for TCP.
    ///
    /// # Errors
    /// Fails if the kernel does not report it.
    pub fn credentials(&self) -> Result<Option<Credentials>, LinkError> {
        if self.family != Family::Unix {
            return Ok(None);
        }
        let peer = peer_credentials(self.fd.as_fd());
        peer.map(Some)
            .map_err(|source| LinkError::System { doing: "asking who the peer is", source })
    }

    /// Returns whether this is a Unix socket, which can carry file descriptors.
    pub fn is_unix(&self) -> bool {
        self.family == Family::Unix
    }

    /// Returns a name of the peer for messages.
    pub fn peer(&self) -> String {
        match self.family {
            Family::Unix => match self.credentials() {
                Ok(Some(peer)) => format!("process {} of user {}", peer.pid, peer.uid),
                _ => "the other process".to_owned(),
            },
            Family::Tcp => {
                let address = rustix::net::getpeername(&self.fd).ok().flatten();
                match address.and_then(|address| SocketAddr::try_from(address).ok()) {
                    Some(address) => format!("tcp:{address}"),
                    None => "the other node".to_owned(),
                }
            }
        }
    }

    /// Returns this end of the socket and the other end, as this process sees them.
    pub(crate) fn ends(&self) -> Option<(End, End)> {
        if self.family == Family::Unix {
            let there = self.credentials().ok()??.uid;
            return Some((End::User(rustix::process::geteuid().as_raw()), End::User(there)));
        }
        let address = |address| SocketAddr::try_from(address).ok().map(End::Address);
        let here = address(rustix::net::getsockname(&self.fd).ok()?)?;
        let there = address(rustix::net::getpeername(&self.fd).ok()??)?;
        Some((here, there))
    }

    /// Receives exactly `into.len()` bytes.
    ///
    /// # Errors
    /// Fails if the peer hung up or the deadline passed.
    pub fn read_exact_until(
        &self,
        mut into: &mut [u8],
        deadline: Instant,
    ) -> Result<(), LinkError> {
        while !into.is_empty() {
            // Checked on every turn: slow peers get no more time than silent ones.
            if Instant::now() >= deadline {
                return Err(LinkError::HelloTimeout { peer: self.peer() });
            }
            match self.recv_now(into)? {
                Some(got) => into = into.get_mut(got..).unwrap_or_default(),
                None => _ = self.wait(Readiness::Readable, Some(deadline))?,
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Fails if the peer hung up or the deadline passed.
    pub fn write_all_until(&self, mut bytes: &[u8], deadline: Instant) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            match self.send_now(&[IoSlice::new(bytes)])? {
                Some(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                None if Instant::now() >= deadline => {
                    return Err(LinkError::HelloTimeout { peer: self.peer() });
                }
                None => _ = self.wait(Readiness::Writable, Some(deadline))?,
            }
        }
        Ok(())
    }

    fn prepare(&self) -> rustix::io::Result<()> {
        // Every call uses MSG_DONTWAIT, so a blocking mode set by another process is harmless.
        if self.family == Family::Tcp {
            sockopt::set_tcp_nodelay(&self.fd, true)?;
            sockopt::set_socket_keepalive(&self.fd, true)?;
            sockopt::set_tcp_keepidle(&self.fd, Duration::from_secs(KEEPALIVE_IDLE_S))?;
            sockopt::set_tcp_keepintvl(&self.fd, Duration::from_secs(KEEPALIVE_INTERVAL_S))?;
            sockopt::set_tcp_keepcnt(&self.fd, KEEPALIVE_COUNT)?;
            // TCP's own buffers grow as needed; the system's defaults would limit a fixed size.
            if self.is_within_host() {
                // If the system forbids it, its own choice remains, which only costs speed.
                let _ = sockopt::set_tcp_congestion(&self.fd, CONGESTION_WITHIN_HOST);
            }
        } else {
            // The system reduces a size that it does not allow, without an error.
            sockopt::set_socket_send_buffer_size(&self.fd, SOCKET_BUFFER_BYTES)?;
        }
        Ok(())
    }

    /// Returns whether both ends of a TCP connection are on this host, judging by their addresses.
    fn is_within_host(&self) -> bool {
        let address = |address: Option<rustix::net::SocketAddrAny>| {
            address
                .and_then(|address| SocketAddr::try_from(address).ok())
                .map(|address| address.ip())
        };
        let here = address(rustix::net::getsockname(&self.fd).ok());
        let there = address(rustix::net::getpeername(&self.fd).ok().flatten());
        here.zip(there).is_some_and(|(here, there)| are_one_host(here, there))
    }

    /// Restores the system's choice `chosen` for a connection to another host that a listener
    /// accepted after [`begin_unpaced`].
    pub(crate) fn pace(&self, chosen: &str) {
        if self.family == Family::Tcp && !self.is_within_host() {
            // If the system forbids it, the connection stays unpaced and is slower only on a
            // network that loses packets.
            let _ = sockopt::set_tcp_congestion(&self.fd, chosen);
        }
    }

    /// Sends what fits now; returns `None` if nothing fits.
    ///
    /// # Errors
    /// Fails if the peer has hung up or vanished.
    pub fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let sent = match pieces {
                [one] => rustix::net::send(&self.fd, one, flags),
                many => {
                    rustix::net::sendmsg(&self.fd, many, &mut SendAncillaryBuffer::default(), flags)
                }
            };
            match sent {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(broken(error, "sending")),
            }
        }
    }

    /// Receives what is there; returns `None` if nothing is.
    ///
    /// # Errors
    /// [`LinkError::Closed`] if the peer has hung up; also fails if the peer has vanished.
    pub fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        loop {
            match rustix::net::recv(&self.fd, &mut *into, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(LinkError::Closed),
                Ok((bytes, _)) => return Ok(Some(bytes)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(broken(error, "receiving")),
            }
        }
    }

    /// Sleeps until the socket is ready or hung up. Returns `false` if the deadline passed.
    pub(crate) fn wait(
        &self,
        what: Readiness,
        deadline: Option<Instant>,
    ) -> Result<bool, LinkError> {
        loop {
            let mut limit = deadline;
            if self.family == Family::Tcp {
                let look = Instant::now() + LOOK_EVERY;
                limit = Some(limit.map_or(look, |limit| limit.min(look)));
            }
            if wait_fd(self.fd.as_fd(), what, limit)? {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            if self.vanished() {
                self.shutdown();
                return Err(LinkError::Vanished);
            }
        }
    }

    /// Returns whether the peer has hung up, as far as is known without waiting.
    pub(crate) fn has_hung_up(&self) -> bool {
        let hung_up = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(hung_up)
    }

    /// Ends the connection in both directions, which wakes all waiting threads on both sides.
    pub fn shutdown(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Ends the connection so that what was just sent still arrives. TCP discards it if bytes of
    /// the peer are left unread.
    pub(crate) fn end_politely(&self) {
        let mut scratch = [0; 4096];
        for _ in 0..UNREAD_READS_MAX {
            if !matches!(self.recv_now(&mut scratch), Ok(Some(_))) {
                break;
            }
        }
        self.shutdown();
    }

    /// Returns whether a TCP peer leaves what was sent to it unanswered. Costs a system call.
    pub fn vanished(&self) -> bool {
        if self.family != Family::Tcp {
            return false;
        }
        let Some(info) = tcp_info(self.fd.as_fd()) else { return false };
        let unanswered = info.tcpi_retransmits.max(info.tcpi_probes);
        unanswered >= UNANSWERED_MIN && info.tcpi_last_ack_recv >= SILENT_MS_MAX
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        stream.fd
    }
}

impl TryFrom<OwnedFd> for Stream {
    type Error = LinkError;

    fn try_from(fd: OwnedFd) -> Result<Self, LinkError> {
        Self::from_fd(fd)
    }
}

/// Returns whether both ends of a connection are on one host: the connection uses the loopback
/// interface, or leads from an address to itself.
fn are_one_host(here: IpAddr, there: IpAddr) -> bool {
    // A dual-stack socket shows an IPv4 peer as an IPv6 address.
    let (here, there) = (here.to_canonical(), there.to_canonical());
    here == there || there.is_loopback()
}

/// Sleeps until a file descriptor is ready or hung up. Returns `false` if the deadline passed.
pub(crate) fn wait_fd(
    fd: BorrowedFd<'_>,
    what: Readiness,
    deadline: Option<Instant>,
) -> Result<bool, LinkError> {
    let events = match what {
        Readiness::Readable => PollFlags::IN | PollFlags::RDHUP,
        Readiness::Writable => PollFlags::OUT,
    };
    loop {
        let mut fds = [PollFd::new(&fd, events)];
        let left =
            deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(LinkError::system("waiting for the peer")(error)),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // A deadline beyond the clock's range (292 billion years) is as good as none.
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}

fn broken(error: Errno, doing: &'static str) -> LinkError {
    match error {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN => LinkError::Closed,
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN => {
            LinkError::Vanished
        }
        error => LinkError::system(doing)(error),
    }
}

/// Returns the peer's credentials. rustix cannot be used: its process ids are never 0, but the
/// kernel reports 0 for a peer outside of our PID namespace.
fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or_default();
    // SAFETY: both pointers refer to locals; the kernel writes at most `size` bytes.
    let code = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { uid: peer.uid, gid: peer.gid, pid: peer.pid })
}

fn tcp_info(fd: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: `tcp_info` consists of plain numbers, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    // SAFETY: both pointers refer to locals; the kernel writes at most `size` bytes.
    let code = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    (code == 0).then_some(info)
}

fn connect_unix(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            // The queue of the Unix listener is full. There is nothing to poll for, so try again.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(CONNECT_RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<OwnedFd> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match connect_to(address, deadline) {
            Ok(fd) => return Ok(fd),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_to(address: SocketAddr, deadline: Instant) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if address.ip().to_canonical().is_loopback() {
        // As in `prepare`, which finds other connections within a host, but too late.
        let _ = sockopt::set_tcp_congestion(&fd, CONGESTION_WITHIN_HOST);
    }
    match rustix::net::connect(&fd, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !wait_fd(fd.as_fd(), Readiness::Writable, Some(deadline))
                .map_err(io::Error::other)?
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&fd)??;
        }
        Err(error) => return Err(error.into()),
    }
    // Only the connect call must not block: streams block, as accepted ones do.
    rustix::io::ioctl_fionbio(&fd, false)?;
    Ok(fd)
}

/// Makes a listener accept connections that begin unpaced. Returns the system's own choice, which
/// holds for connections to other hosts, or `None` if the system forbids the change.
pub(crate) fn begin_unpaced(listener: BorrowedFd<'_>) -> Option<String> {
    let chosen = sockopt::tcp_congestion(listener).ok()?;
    sockopt::set_tcp_congestion(listener, CONGESTION_WITHIN_HOST).ok().map(|()| chosen)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_a_connection_that_does_not_leave_the_host_counts_as_within_it() {
        let one_host =
            |here: &str, there: &str| are_one_host(here.parse().unwrap(), there.parse().unwrap());
        assert!(one_host("127.0.0.1", "127.0.0.1"));
        assert!(one_host("127.0.0.1", "127.0.0.2"));
        assert!(one_host("10.0.0.7", "10.0.0.7"));
        assert!(one_host("::ffff:127.0.0.1", "::ffff:127.0.0.1"));
        assert!(one_host("::1", "::1"));
        assert!(!one_host("10.0.0.7", "10.0.0.8"));
        assert!(!one_host("::ffff:10.0.0.7", "::ffff:10.0.0.8"));
        assert!(!one_host("fe80::1", "fe80::2"));
    }

    #[test]
    fn tcp_within_the_host_is_not_paced_whatever_the_system_prefers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        // If cubic exists and is allowed, the socket has had another algorithm before.
        let _ = sockopt::set_tcp_congestion(&fd, "cubic");
        let stream = Stream::from_fd(fd).unwrap();
        assert_eq!(sockopt::tcp_congestion(&stream.fd).unwrap(), CONGESTION_WITHIN_HOST);
    }

    #[test]
    fn tcp_within_the_host_is_unpaced_before_the_connection_is_made() {
        use crate::listener::Listener;
        let listener = Listener::bind(&Address::Tcp { host: "127.0.0.1".into(), port: 0 }).unwrap();
        assert_eq!(sockopt::tcp_congestion(listener.as_fd()).unwrap(), CONGESTION_WITHIN_HOST);
        let deadline = Instant::now() + Duration::from_secs(60);
        let Address::Tcp { port, .. } = listener.address() else { panic!("a TCP address") };
        // A connection on which nothing has been prepared yet.
        let fd = connect_to(([127, 0, 0, 1], port).into(), deadline).unwrap();
        assert_eq!(sockopt::tcp_congestion(&fd).unwrap(), CONGESTION_WITHIN_HOST);
        assert!(!rustix::fs::fcntl_getfl(&fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        let accepted = listener.accept().unwrap();
        accepted.pace("none that exists");
        assert_eq!(sockopt::tcp_congestion(&accepted.fd).unwrap(), CONGESTION_WITHIN_HOST);
        drop((listener, accepted, fd));
        let refused = Stream::connect(&Address::Tcp { host: "127.0.0.1".into(), port }, deadline);
        assert!(matches!(refused, Err(LinkError::Connect { .. })), "{refused:?}");
    }
}
