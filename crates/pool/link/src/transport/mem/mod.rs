//! Memory of this process: `mem:NAME`. Both ends are in one process, so only tests use it.
//!
//! Nothing happens to a byte that a test does not say: a pipe holds exactly as many bytes as the
//! test allows, and is cut or takes nothing more behind exactly the byte that the test names. Each
//! end also has a socket, as every connection must. It carries one byte while its pipe has any,
//! which makes it readable, and its hang-up is the end of the connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use penstock_process::Lock;
use penstock_wire::hello::feature;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use zeroize::Zeroizing;

use super::contract::{
    Accepting, Bound, Bytes, Completion, Connected, Connection, Destination, Endpoint, Exposure,
    Facts, Reach, Source, Transport,
};
use super::socket_file;
use super::syscall::{self, Readiness};
use crate::error::LinkError;
#[cfg(feature = "world")]
use crate::stream::Stream;

pub(super) static TRANSPORT: Transport = Transport {
    scheme: "mem",
    form: "mem:NAME",
    name: "memory of one process",
    needs_key: true,
    rank: 30,
    families: &[],
    read,
    adopt,
    brought: |_| None,
};

fn read(text: &str, _completion: &Completion<'_>) -> Result<Endpoint, String> {
    if text.is_empty() {
        return Err("the name is missing".to_owned());
    }
    Ok(at(text.to_owned()))
}

/// Takes the end that the note names, as long as the other end lives in this process.
fn adopt(socket: OwnedFd, note: &[u8]) -> io::Result<Connection> {
    let refused = || io::Error::from(io::ErrorKind::InvalidInput);
    if !socket_file::is_one(&socket)? {
        return Err(refused());
    }
    let pipes = ENDS.lock().iter().find(|end| end.key == note).map(End::pipes);
    let (out, input) = pipes.flatten().ok_or_else(refused)?;
    Ok(connection(socket, note.to_vec(), out, input))
}

fn at(name: String) -> Endpoint {
    Endpoint {
        transport: &TRANSPORT,
        text: name.clone().into(),
        host: None,
        port: None,
        is_local: true,
        logs_in: false,
        reach: Box::new(Name(name)),
    }
}

/// The ends of all connections, also those that nobody has accepted or adopted yet.
static ENDS: Lock<Vec<End>> = Lock::new(Vec::new());

struct End {
    key: Vec<u8>,
    out: Weak<Pipe>,
    input: Weak<Pipe>,
}

impl End {
    fn note(key: &[u8], out: &Arc<Pipe>, input: &Arc<Pipe>) {
        let (out, input) = (Arc::downgrade(out), Arc::downgrade(input));
        let mut ends = ENDS.lock();
        ends.retain(|end| end.key != key && end.pipes().is_some());
        ends.push(Self { key: key.to_vec(), out, input });
    }

    fn pipes(&self) -> Option<(Arc<Pipe>, Arc<Pipe>)> {
        self.out.upgrade().zip(self.input.upgrade())
    }
}

#[derive(Debug)]
struct Name(String);

impl Name {
    /// Returns the name of the listening socket, which is not in the file system.
    fn socket(&self) -> Vec<u8> {
        format!("penstock-mem-{}-{}", std::process::id(), self.0).into_bytes()
    }
}

impl Reach for Name {
    fn connect(&self, _for_session: bool, _deadline: Instant) -> io::Result<Connected> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        // The system chooses a name, by which the listener knows the connection.
        rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
        let own = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?)?;
        let (up, down) = (Pipe::of(Course::default())?, Pipe::of(Course::default())?);
        End::note(&key_of(&own, b"<"), &down, &up);
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(&self.socket())?)?;
        Ok((connection(socket, key_of(&own, b">"), up, down), None))
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        Ok(Vec::new())
    }

    fn listen(&self, _mode: u32) -> io::Result<Bound> {
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(self.socket())?)?;
        let endpoint = at(self.0.clone());
        Ok(Bound { socket: socket.into(), endpoint, accepting: Box::new(Door) })
    }

    fn advertised(&self, _host: &str) -> Option<Endpoint> {
        None
    }
}

#[derive(Debug)]
struct Door;

impl Accepting for Door {
    fn take(&self, socket: OwnedFd) -> io::Result<Connection> {
        let there = rustix::net::getpeername(&socket)?.ok_or(io::ErrorKind::NotConnected)?;
        adopt(socket, &key_of(&SocketAddrUnix::try_from(there)?, b"<"))
    }
}

/// Returns the key of an end: the name of the connecting socket, and which of both ends it is.
fn key_of(connecting: &SocketAddrUnix, end: &[u8]) -> Vec<u8> {
    [connecting.abstract_name().unwrap_or_default(), end].concat()
}

/// Number of bytes that a pipe holds if the test says nothing else: about as many as a socket.
pub const PIPE_BYTES: usize = 256 << 10;

/// What a pipe does to the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Number of bytes that it holds.
    pub bytes_max: usize,
    /// The connection is cut behind this number of bytes.
    pub cut_behind: Option<usize>,
    /// The pipe takes only this number of bytes, and says nothing about it.
    pub stuck_behind: Option<usize>,
}

impl Default for Course {
    fn default() -> Self {
        Self { bytes_max: PIPE_BYTES, cut_behind: None, stuck_behind: None }
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    inside: Lock<Inside>,
    bytes_max: usize,
    /// Readable while the pipe has room.
    room: OwnedFd,
}

#[derive(Debug)]
struct Inside {
    queue: VecDeque<u8>,
    /// Number of bytes that still pass before the connection is cut.
    passes: Option<usize>,
    /// Number of bytes that the pipe still takes.
    takes: usize,
}

impl Inside {
    fn room(&self, bytes_max: usize) -> usize {
        self.takes.min(bytes_max - self.queue.len())
    }
}

impl Pipe {
    pub(crate) fn of(course: Course) -> io::Result<Arc<Self>> {
        let room = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (passes, takes) = (course.cut_behind, course.stuck_behind.unwrap_or(usize::MAX));
        let inside = Lock::new(Inside { queue: VecDeque::new(), passes, takes });
        Ok(Arc::new(Self { inside, bytes_max: course.bytes_max, room }))
    }
}

/// Returns both ends of a connection over two pipes. The first end sends into the first pipe.
pub(crate) fn pair(up: Arc<Pipe>, down: Arc<Pipe>) -> io::Result<(Connection, Connection)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let (one, other) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let key = |end: &str| format!("{}{end}", COUNT.fetch_add(1, Ordering::Relaxed)).into_bytes();
    let first = connection(one, key("pair>"), up.clone(), down.clone());
    Ok((first, connection(other, key("pair<"), down, up)))
}

/// Returns both ends of a connection. What the first end sends takes the course `up`.
///
/// # Errors
/// Fails if no descriptor is left.
#[cfg(feature = "world")]
pub fn linked(up: Course, down: Course) -> io::Result<(Stream, Stream)> {
    let (one, other) = pair(Pipe::of(up)?, Pipe::of(down)?)?;
    Ok((Stream::new(one), Stream::new(other)))
}

fn connection(socket: OwnedFd, key: Vec<u8>, out: Arc<Pipe>, input: Arc<Pipe>) -> Connection {
    End::note(&key, &out, &input);
    let facts = Facts {
        transport: &TRANSPORT,
        peer: "the other end".to_owned(),
        credentials: None,
        source: Source::Unknown,
        ends: None,
        exposure: Exposure::Network,
        encryption: None,
        passes_descriptors: false,
        why_no_shared_memory: Some("tests want each byte to pass the pipe"),
        features: feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA),
        note: key,
    };
    Connection::new(MemBytes { socket, out, input }, facts, None)
}

#[derive(Debug)]
struct MemBytes {
    socket: OwnedFd,
    out: Arc<Pipe>,
    input: Arc<Pipe>,
}

impl AsFd for MemBytes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Bytes for MemBytes {
    fn send_now(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        if syscall::has_hung_up(self.as_fd()) {
            return Err(LinkError::Closed);
        }
        let pipe = &*self.out;
        let mut inside = pipe.inside.lock();
        let mut left = inside.passes.unwrap_or(usize::MAX).min(inside.room(pipe.bytes_max));
        let Inside { queue, passes, takes } = &mut *inside;
        let before = queue.len();
        for piece in pieces {
            let now = piece.get(..left.min(piece.len())).unwrap_or_default();
            queue.extend(now);
            left -= now.len();
            #[cfg(feature = "world")]
            penstock_process::world::note(now);
        }
        let sent = queue.len() - before;
        if before == 0 && sent > 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            _ = rustix::net::send(&self.socket, b"!", flags);
        }
        *takes -= sent;
        *passes = passes.map(|passes| passes - sent);
        if inside.room(pipe.bytes_max) == 0 {
            _ = rustix::io::read(&pipe.room, &mut [0_u8; 8]);
        }
        if inside.passes == Some(0) {
            self.shutdown();
        }
        Ok((sent > 0).then_some(sent))
    }

    fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        // Asked first: what was sent before the hang-up is then in the pipe.
        let is_over = syscall::has_hung_up(self.as_fd());
        let pipe = &*self.input;
        let mut inside = pipe.inside.lock();
        let was_full = inside.room(pipe.bytes_max) == 0;
        let count = io::Read::read(&mut inside.queue, into).unwrap_or_default();
        if count == 0 {
            return if is_over { Err(LinkError::Closed) } else { Ok(None) };
        }
        if inside.queue.is_empty() {
            _ = rustix::net::recv(&self.socket, &mut [0_u8; 8][..], RecvFlags::DONTWAIT);
        }
        if was_full && inside.room(pipe.bytes_max) > 0 {
            _ = rustix::io::write(&pipe.room, &1_u64.to_ne_bytes());
        }
        Ok(Some(count))
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
        match what {
            Readiness::Readable => syscall::wait_fd(self.as_fd(), what, deadline),
            Readiness::Writable => {
                let room = PollFd::new(&self.out.room, PollFlags::IN);
                let end = PollFd::new(&self.socket, PollFlags::RDHUP);
                syscall::poll_all(&mut [room, end], deadline)
            }
        }
    }

    fn shutdown(&self) {
        syscall::shutdown(self.as_fd());
    }

    fn why_hung_up(&self) -> LinkError {
        LinkError::Closed
    }

    fn hand_over(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LinkError> {
        Ok(None)
    }
}

#[cfg(test)]
pub(super) mod tests;
