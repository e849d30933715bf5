//! TCP: `tcp:HOST:PORT` or `tcp:[V6]:PORT`.
//!
//! Anybody on the network can connect, so both sides prove that they have the pool's key. A peer
//! can vanish without a hang-up, so a thread that waits for the peer looks whether the peer still
//! acknowledges what it gets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::contract::{
    Accepting, Bound, Completion, Connected, Connection, Destination, Endpoint, Exposure, Facts,
    Liveness, Reach, Source, Transport,
};
use super::host_port;
use super::plain::Plain;
use super::syscall::{BACKLOG, Readiness, wait_fd};
use crate::address::Address;
use crate::standard::beyond_standard;
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
/// Congestion control of TCP within one host: the unpaced algorithm that every kernel has built in.
/// There is no network to protect. With busy cores, a system whose default paces by timers (BBR)
/// reaches less than half the speed: 2.0 GB/s instead of 4.2 for 16 MiB, with plain sockets as with
/// ours. For connections to other hosts the system's choice holds.
///
/// The choice must be made before the connection is made, on both ends. A connection that BBR has
/// begun stays on timers under any successor, and sometimes needs 6 ms for 16 MiB instead of 2.5.
const CONGESTION_WITHIN_HOST: &str = "reno";

pub(super) static TRANSPORT: Transport = Transport {
    scheme: "tcp",
    form: "tcp:HOST:PORT",
    name: "TCP",
    needs_key: true,
    rank: 10,
    families: &[AddressFamily::INET, AddressFamily::INET6],
    read,
    adopt,
    brought: |_| None,
};

fn read(text: &str, completion: &Completion<'_>) -> Result<Endpoint, String> {
    let (host, port) = host_port::split(text)?;
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        Some(port) => {
            port.parse().map_err(|_| "the port is not a number from 0 to 65535".to_owned())?
        }
        None => completion.port.ok_or("the port is missing")?,
    };
    Ok(at(host.to_owned(), port))
}

fn adopt(socket: OwnedFd, note: &[u8]) -> io::Result<Connection> {
    let is_ours = TRANSPORT.families.contains(&sockopt::socket_domain(&socket)?);
    if !is_ours || !note.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = TcpSocket(socket);
    socket.prepare()?;
    Ok(socket.connection())
}

impl Address {
    /// Returns the address of a TCP port. `host` is a name or a numeric address without brackets. A
    /// listener takes port 0 for any free port.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::new(at(host.to_owned(), port))
    }
}

/// Returns the endpoint at a port.
fn at(host: String, port: u16) -> Endpoint {
    let text =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Endpoint {
        transport: &TRANSPORT,
        text: text.into(),
        host: Some(host.clone()),
        port: Some(port),
        is_local: false,
        logs_in: false,
        reach: Box::new(TcpPort { host, port }),
    }
}

#[derive(Debug)]
struct TcpPort {
    host: String,
    port: u16,
}

impl Reach for TcpPort {
    fn connect(&self, _for_session: bool, deadline: Instant) -> io::Result<Connected> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match connect_to(address, deadline) {
                Ok(fd) => return Ok((adopt(fd, &[])?, None)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Each endpoint is numeric, so that a later connection leads where the caller has looked.
    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let numeric = |address: SocketAddr| {
            let host = match address {
                SocketAddr::V6(six) if six.scope_id() != 0 => {
                    format!("{}%{}", six.ip(), six.scope_id())
                }
                _ => address.ip().to_string(),
            };
            (Destination::Host(address.ip()), at(host, self.port))
        };
        Ok(addresses.map(numeric).collect())
    }

    fn listen(&self, _mode: u32) -> io::Result<Bound> {
        let listener = TcpListener::bind((self.host.as_str(), self.port))?;
        // The standard library asks for 128 places.
        rustix::net::listen(&listener, BACKLOG)?;
        let port = listener.local_addr()?.port();
        let pacing = begin_unpaced(listener.as_fd());
        Ok(Bound {
            socket: listener.into(),
            endpoint: at(self.host.clone(), port),
            accepting: Box::new(Pacing(pacing)),
        })
    }

    fn advertised(&self, host: &str) -> Option<Endpoint> {
        let is_wildcard = matches!(self.host.as_str(), "0.0.0.0" | "::");
        Some(at(if is_wildcard { host } else { &self.host }.to_owned(), self.port))
    }
}

/// Pacing algorithm of the system for connections to other hosts; `None` if the listener has kept
/// that choice.
#[derive(Debug)]
struct Pacing(Option<String>);

impl Accepting for Pacing {
    fn take(&self, socket: OwnedFd) -> io::Result<Connection> {
        let socket = TcpSocket(socket);
        socket.prepare()?;
        if let Some(chosen) = &self.0 {
            socket.pace(chosen);
        }
        Ok(socket.connection())
    }
}

#[derive(Debug)]
struct TcpSocket(OwnedFd);

impl TcpSocket {
    fn prepare(&self) -> rustix::io::Result<()> {
        // Every call uses MSG_DONTWAIT, so a blocking mode set by another process is harmless.
        sockopt::set_tcp_nodelay(&self.0, true)?;
        sockopt::set_socket_keepalive(&self.0, true)?;
        sockopt::set_tcp_keepidle(&self.0, Duration::from_secs(KEEPALIVE_IDLE_S))?;
        sockopt::set_tcp_keepintvl(&self.0, Duration::from_secs(KEEPALIVE_INTERVAL_S))?;
        sockopt::set_tcp_keepcnt(&self.0, KEEPALIVE_COUNT)?;
        // TCP's own buffers grow as needed; the system's defaults would limit a fixed size.
        if self.is_within_host() {
            // If the system forbids it, its own choice remains, which only costs speed.
            let _ = sockopt::set_tcp_congestion(&self.0, CONGESTION_WITHIN_HOST);
        }
        Ok(())
    }

    /// Restores the system's choice `chosen` for a connection to another host that a listener
    /// accepted after [`begin_unpaced`].
    fn pace(&self, chosen: &str) {
        if !self.is_within_host() {
            // If the system forbids it, the connection stays unpaced and is slower only on a
            // network that loses packets.
            let _ = sockopt::set_tcp_congestion(&self.0, chosen);
        }
    }

    /// Returns whether both ends are on this host, judging by their addresses.
    fn is_within_host(&self) -> bool {
        self.addresses().is_some_and(|(here, there)| are_one_host(here.ip(), there.ip()))
    }

    /// Returns the addresses of this end and of the other end.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let numeric = |address: SocketAddrAny| SocketAddr::try_from(address).ok();
        let here = numeric(rustix::net::getsockname(&self.0).ok()?)?;
        let there = numeric(rustix::net::getpeername(&self.0).ok()??)?;
        Some((here, there))
    }

    fn connection(self) -> Connection {
        let addresses = self.addresses();
        let is_within_host =
            addresses.is_some_and(|(here, there)| are_one_host(here.ip(), there.ip()));
        let facts = Facts {
            transport: &TRANSPORT,
            peer: addresses
                .map_or_else(|| "the other node".to_owned(), |(_, there)| format!("tcp:{there}")),
            credentials: None,
            source: addresses
                .map_or(Source::Unknown, |(_, there)| Source::of_address(there.ip())),
            ends: addresses.map(|(here, there)| (End::Address(here), End::Address(there))),
            exposure: if is_within_host { Exposure::Loopback } else { Exposure::Network },
            encryption: None,
            passes_descriptors: false,
            why_no_shared_memory: Some(if is_within_host {
                "both ends are on this host, where a Unix socket would share memory"
            } else {
                "the client is on another host"
            }),
            features: feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA),
            note: Vec::new(),
        };
        Connection::new(Plain::new(self.0), facts, Some(Arc::new(Acknowledgements)))
    }
}

/// What the system knows of the packets that the peer has acknowledged.
#[derive(Debug)]
struct Acknowledgements;

impl Liveness for Acknowledgements {
    fn has_vanished(&self, socket: BorrowedFd<'_>) -> bool {
        let Some(info) = tcp_info(socket) else { return false };
        let unanswered = info.tcpi_retransmits.max(info.tcpi_probes);
        unanswered >= UNANSWERED_MIN && info.tcpi_last_ack_recv >= SILENT_MS_MAX
    }
}

/// Returns whether both ends of a connection are on one host: the connection uses the loopback
/// interface, or leads from an address to itself.
fn are_one_host(here: IpAddr, there: IpAddr) -> bool {
    // A dual-stack socket shows an IPv4 peer as an IPv6 address.
    let (here, there) = (here.to_canonical(), there.to_canonical());
    here == there || there.is_loopback()
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

fn connect_to(address: SocketAddr, deadline: Instant) -> io::Result<OwnedFd> {
    let attempt = Attempt::begin(address)?;
    let socket = attempt.0.as_fd();
    if !wait_fd(socket, Readiness::Writable, Some(deadline)).map_err(io::Error::other)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    attempt.socket()
}

/// Connection that is being made.
#[derive(Debug)]
pub(crate) struct Attempt(OwnedFd);

impl Attempt {
    /// Begins to connect. The socket becomes writable when the outcome is known.
    pub(crate) fn begin(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let fd = beyond_standard(fd)?;
        if address.ip().to_canonical().is_loopback() {
            // As in `prepare`, which finds other connections within a host, but too late.
            let _ = sockopt::set_tcp_congestion(&fd, CONGESTION_WITHIN_HOST);
        }
        match rustix::net::connect(&fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self(fd)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the connection. The socket must have become writable.
    pub(crate) fn finish(self) -> io::Result<Connection> {
        adopt(self.socket()?, &[])
    }

    fn socket(self) -> io::Result<OwnedFd> {
        sockopt::socket_error(&self.0)??;
        // Only the connect call must not block: streams block, as accepted ones do.
        rustix::io::ioctl_fionbio(&self.0, false)?;
        Ok(self.0)
    }
}

impl AsFd for Attempt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a listener accept connections that begin unpaced. Returns the system's own choice, which
/// holds for connections to other hosts, or `None` if the system forbids the change.
fn begin_unpaced(listener: BorrowedFd<'_>) -> Option<String> {
    let chosen = sockopt::tcp_congestion(listener).ok()?;
    sockopt::set_tcp_congestion(listener, CONGESTION_WITHIN_HOST).ok().map(|()| chosen)
}

#[cfg(test)]
pub(in crate::transport) mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::error::LinkError;
    use crate::listener::Listener;
    use crate::stream::Stream;
    use crate::transport::tests::TestAddresses;

    pub(in crate::transport) fn addresses(_folder: &std::path::Path) -> TestAddresses {
        TestAddresses::at("tcp:127.0.0.1:0".to_owned())
    }

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
        assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), CONGESTION_WITHIN_HOST);
    }

    #[test]
    fn tcp_within_the_host_is_unpaced_before_the_connection_is_made() {
        let listener = Listener::bind(&Address::tcp("127.0.0.1", 0)).unwrap();
        assert_eq!(sockopt::tcp_congestion(listener.as_fd()).unwrap(), CONGESTION_WITHIN_HOST);
        let deadline = Instant::now() + Duration::from_secs(60);
        let port = rustix::net::getsockname(&listener).unwrap();
        let port = SocketAddr::try_from(port).unwrap().port();
        // A connection on which nothing has been prepared yet.
        let fd = connect_to(([127, 0, 0, 1], port).into(), deadline).unwrap();
        assert_eq!(sockopt::tcp_congestion(&fd).unwrap(), CONGESTION_WITHIN_HOST);
        assert!(!rustix::fs::fcntl_getfl(&fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        let accepted = listener.accept().unwrap();
        let accepted = TcpSocket(accepted.into_socket().unwrap());
        accepted.pace("none that exists");
        assert_eq!(sockopt::tcp_congestion(&accepted.0).unwrap(), CONGESTION_WITHIN_HOST);
        drop((listener, accepted, fd));
        let refused = Stream::connect(&Address::tcp("127.0.0.1", port), deadline);
        assert!(matches!(refused, Err(LinkError::Connect { .. })), "{refused:?}");
    }
}
