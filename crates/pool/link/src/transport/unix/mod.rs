//! Unix sockets: `unix:PATH`.
//!
//! The kernel tells each side which user the other one is. Descriptors pass beside the bytes, so a
//! link moves its frames into [shared memory](super::rings) if both sides can.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::contract::{
    Accepting, BACKLOG, Bound, Completion, Connection, Credentials, Destination, Endpoint, Rings,
    Side, Source, Transport,
};
use super::rings;
use crate::error::LinkError;
use crate::standard::beyond_standard;
use crate::fork::Owner;
use crate::instance::End;

/// Size in bytes of a socket's send buffer. Measured: beyond 1 MiB nothing is gained.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Pause between two attempts to reach a listener whose queue is full.
const CONNECT_RETRY: Duration = Duration::from_millis(2);

pub(super) const TRANSPORT: Unix = Unix;

#[derive(Debug)]
pub(crate) struct Unix;

impl Transport for Unix {
    fn scheme(&self) -> &'static str {
        "unix"
    }

    fn form(&self) -> &'static str {
        "unix:PATH"
    }

    fn name(&self) -> &'static str {
        "Unix sockets"
    }

    fn needs_key(&self) -> bool {
        false
    }

    fn rank(&self) -> u8 {
        0
    }

    fn read(&self, text: &str, completion: &Completion<'_>) -> Result<Arc<dyn Endpoint>, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("the path is missing or has a zero byte".to_owned());
        }
        Ok(at((completion.path)(text)))
    }

    fn families(&self) -> &'static [AddressFamily] {
        &[AddressFamily::UNIX]
    }

    fn adopt(&self, socket: OwnedFd, _state: &[u8]) -> io::Result<Box<dyn Connection>> {
        let is_ours = sockopt::socket_domain(&socket)? == AddressFamily::UNIX
            && sockopt::socket_type(&socket)? == SocketType::STREAM;
        if !is_ours {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The system reduces a size that it does not allow, without an error.
        sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES)?;
        Ok(Box::new(UnixConnection(socket)))
    }
}

/// Returns the endpoint at a path.
pub(crate) fn at(path: PathBuf) -> Arc<dyn Endpoint> {
    Arc::new(UnixEndpoint(path))
}

#[derive(Debug)]
struct UnixEndpoint(PathBuf);

impl Endpoint for UnixEndpoint {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn text(&self) -> OsString {
        self.0.clone().into()
    }

    fn connect(&self, deadline: Instant) -> io::Result<Box<dyn Connection>> {
        TRANSPORT.adopt(connect_to(&self.0, deadline)?, &[])
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Arc<dyn Endpoint>)>> {
        Ok(vec![(Destination::File, at(self.0.clone()))])
    }

    fn listen(&self, mode: u32) -> io::Result<Bound> {
        let (socket, file) = listen_on(&self.0, mode)?;
        Ok(Bound { socket, endpoint: at(self.0.clone()), accepting: Box::new(file) })
    }

    fn is_local(&self) -> bool {
        true
    }

    fn advertised(&self, _host: &str) -> Option<Arc<dyn Endpoint>> {
        Some(at(std::path::absolute(&self.0).unwrap_or_else(|_| self.0.clone())))
    }
}

#[derive(Debug)]
struct UnixConnection(OwnedFd);

impl AsFd for UnixConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connection for UnixConnection {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn peer(&self) -> String {
        match peer_credentials(self.as_fd()) {
            Ok(peer) => format!("process {} of user {}", peer.pid, peer.uid),
            Err(_) => "the other process".to_owned(),
        }
    }

    fn credentials(&self) -> io::Result<Option<Credentials>> {
        peer_credentials(self.as_fd()).map(Some)
    }

    fn source(&self) -> Source {
        peer_credentials(self.as_fd()).map_or(Source::Unknown, |peer| Source::User(peer.uid))
    }

    fn ends(&self) -> Option<(End, End)> {
        let there = peer_credentials(self.as_fd()).ok()?.uid;
        Some((End::User(rustix::process::geteuid().as_raw()), End::User(there)))
    }

    fn passes_descriptors(&self) -> bool {
        true
    }

    fn why_no_shared_memory(&self) -> Option<&'static str> {
        None
    }

    fn features(&self) -> u64 {
        feature::ALL
    }

    fn share_memory(&self, features: u64, side: Side) -> Result<Option<Rings>, LinkError> {
        rings::negotiate(self, features, side)
    }

    fn into_socket(self: Box<Self>) -> OwnedFd {
        self.0
    }
}

/// Connects to a socket's file.
pub(super) fn connect_to(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let fd = beyond_standard(fd)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            // The queue of the listener is full. There is nothing to poll for, so try again.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(CONNECT_RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Listens on a new socket's file with this mode.
pub(super) fn listen_on(path: &Path, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = bind(path, mode)?;
    let about = fs::symlink_metadata(path)?;
    let identity = (about.dev(), about.ino());
    let file = SocketFile { path: path.to_owned(), identity, owner: Owner::this_process() };
    Ok((socket, file))
}

/// Returns the peer's credentials. rustix cannot be used: its process ids are never 0, but the
/// kernel reports 0 for a peer outside of our PID namespace.
pub(super) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
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

/// File of a listener. Dropping this value removes the file.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    owner: Owner,
}

impl Accepting for SocketFile {
    fn take(&self, socket: OwnedFd) -> io::Result<Box<dyn Connection>> {
        TRANSPORT.adopt(socket, &[])
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A child process that inherited the listener must not remove the file, and this process
        // must not remove the file of a successor.
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|about| (about.dev(), about.ino()) == self.identity);
        if ours && self.owner.is_this_process() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The file takes the socket's mode at bind, so others cannot connect at any moment.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    match rustix::net::bind(&fd, &address) {
        Err(Errno::ADDRINUSE) if is_stale(path) => {
            fs::remove_file(path)?;
            rustix::net::bind(&fd, &address)?;
        }
        bound => bound?,
    }
    // The umask may have removed bits of a wider mode.
    set_mode(path, mode)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Sets the mode of a socket file. Refuses any other file: in a directory that others can write to,
/// somebody may have replaced the socket with a link to another file of this user.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let file =
        rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "somebody has replaced the socket's file",
        ));
    }
    if Mode::from_raw_mode(about.st_mode) == Mode::from_raw_mode(mode) {
        return Ok(());
    }
    // The mode of an `O_PATH` descriptor can be changed only through this name.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(name, fs::Permissions::from_mode(mode))
}

/// Returns whether `path` is a socket file that nobody serves.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use penstock_wire::hello::Verdict;

    use super::*;
    use crate::hello::accept_hello;
    use crate::stream::Stream;
    use crate::transport::tests::{TestAddresses, greeting};

    pub(in crate::transport) fn addresses(folder: &Path) -> TestAddresses {
        TestAddresses::at(format!("unix:{}", folder.join("socket").display()))
    }

    /// Connection of a transport that needs no key, but whose kernel does not know the user.
    #[derive(Debug)]
    struct Anonymous(OwnedFd);

    impl AsFd for Anonymous {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Connection for Anonymous {
        fn transport(&self) -> &'static dyn Transport {
            &TRANSPORT
        }

        fn peer(&self) -> String {
            "somebody".to_owned()
        }

        fn why_no_shared_memory(&self) -> Option<&'static str> {
            None
        }

        fn into_socket(self: Box<Self>) -> OwnedFd {
            self.0
        }
    }

    #[test]
    fn a_peer_without_credentials_on_a_transport_without_a_key_is_refused() {
        let (one, other) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let connecting = Stream::from_fd(one.into()).unwrap();
        greeting::say_hello(&connecting);
        let accepting = Stream::new(Box::new(Anonymous(other.into())));
        let accepted = accept_hello(accepting, None, &|_| true, deadline);
        assert!(
            matches!(accepted, Err(LinkError::Turned { verdict: Verdict::WrongUser, .. })),
            "{accepted:?}"
        );
    }
}
