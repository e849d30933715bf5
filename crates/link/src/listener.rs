//! Sockets that wait for connections.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::address::Address;
use crate::error::LinkError;
use crate::fork::Owner;
use crate::stream::{Stream, begin_unpaced};

/// Number of connections that the system holds before they are accepted. Further connections are
/// refused (TCP) or wait (Unix). The system may reduce the number to its own limit.
const BACKLOG: i32 = 1_024;

/// Default mode of a Unix socket: only its user may connect.
const SOCKET_MODE: u32 = 0o600;

/// Socket that other processes connect to.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
    /// Pacing algorithm for TCP connections to other hosts.
    pacing: Option<String>,
    /// Removes the socket's file when it is dropped.
    _file: Option<SocketFile>,
}

/// File of a Unix listener; dropping this value removes the file.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    owner: Owner,
}

impl Listener {
    /// Listens at an address. Only the user may access the file of a Unix socket.
    ///
    /// # Errors
    /// [`LinkError::InUse`] if another process answers there. A stale socket file is replaced.
    pub fn bind(address: &Address) -> Result<Self, LinkError> {
        Self::bind_with_mode(address, SOCKET_MODE)
    }

    /// Like [`Listener::bind`], with the mode of a Unix socket's file.
    ///
    /// # Errors
    /// See [`Listener::bind`].
    pub fn bind_with_mode(address: &Address, mode: u32) -> Result<Self, LinkError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => LinkError::InUse { address: address.clone() },
            _ => LinkError::Listen { address: address.clone(), source },
        };
        match address {
            Address::Unix(path) => {
                let fd = bind_unix(path, mode).map_err(failed)?;
                let about = fs::symlink_metadata(path).map_err(failed)?;
                let identity = (about.dev(), about.ino());
                let file =
                    Some(SocketFile { path: path.clone(), identity, owner: Owner::this_process() });
                Ok(Self { fd, address: address.clone(), pacing: None, _file: file })
            }
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).map_err(failed)?;
                let port = listener.local_addr().map_err(failed)?.port();
                let pacing = begin_unpaced(listener.as_fd());
                Ok(Self {
                    fd: listener.into(),
                    address: Address::Tcp { host: host.clone(), port },
                    pacing,
                    _file: None,
                })
            }
        }
    }

    /// Waits for the next connection. The caller then receives its hello with
    /// [`crate::accept_hello`].
    ///
    /// # Errors
    /// Fails if the system is out of file descriptors or memory. The caller should wait briefly
    /// before the next attempt.
    pub fn accept(&self) -> Result<Stream, LinkError> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => match Stream::from_fd(fd) {
                    Ok(stream) => {
                        if let Some(pacing) = &self.pacing {
                            stream.pace(pacing);
                        }
                        return Ok(stream);
                    }
                    // The peer already hung up.
                    Err(_) => continue,
                },
                // "network errors ... should be treated like EAGAIN by retrying" (accept(2)).
                Err(
                    Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH,
                ) => {}
                Err(source) => {
                    return Err(LinkError::Listen {
                        address: self.address.clone(),
                        source: source.into(),
                    });
                }
            }
        }
    }

    /// Returns the address with the real port.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// Returns the numeric TCP address that the socket is bound to.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.fd)
            .ok()
            .and_then(|address| SocketAddr::try_from(address).ok())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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

fn bind_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
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
