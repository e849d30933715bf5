//! `vsock:PATH:PORT`: the host's end of vsock where a process ends it in Unix sockets.
//!
//! Firecracker, cloud-hypervisor and `vhost-device-vsock` do so, and need no module of the host's
//! kernel. The guest uses the kernel's vsock and notices no difference. PATH is the socket that the
//! monitor was told.
//!
//! * If a program in the guest connects to port PORT of the host, the monitor connects to the
//!   socket `PATH_PORT`. A listener of this transport listens there.
//! * A program on the host that connects to port PORT of the guest connects to PATH, writes
//!   `CONNECT PORT` and a line feed, and reads a line that starts with `OK`.
//!
//! The monitor hangs up if the guest's kernel refuses a connection. So this side can ask the kernel
//! for a sign of life: see [`super::liveness`].
//!
//! The kernel knows only the user of the monitor, and not the user in the guest. So the credentials
//! of the socket are worth nothing here, and both sides prove that they have the pool's key.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketType, sockopt};

use super::super::contract::{
    Accepting, Bound, Completion, Connection, Endpoint, Source, Transport,
};
use super::super::syscall::{self, Readiness};
use super::super::unix::{self, SocketFile};
use super::liveness::Liveness;
use zeroize::Zeroizing;
use super::{FEATURES, NO_SHARED_MEMORY, TRANSPORT, read_port};
use crate::error::LinkError;
use crate::stream::Stream;

/// What a worker is told of such a connection before the path. It is not empty, because the socket
/// could otherwise be one of the kernel's vsock.
const STATE: &[u8] = b"monitor:";

/// Longest answer of a monitor in bytes: "OK", a space, a port of 10 digits and a line feed, with
/// room to spare.
const ANSWER_BYTES_MAX: usize = 32;

/// Reads `PATH:PORT`, or `PATH` if there is a default port.
pub(super) fn read(
    text: &str,
    completion: &Completion<'_>,
) -> Result<Arc<dyn Endpoint>, String> {
    let (path, port) = match text.rsplit_once(':') {
        Some((path, port)) if !port.contains('/') => (path, read_port(port)?),
        _ => (text, completion.port.map(u32::from).ok_or("the port is missing")?),
    };
    if path.is_empty() || path.contains('\0') {
        return Err("the path is missing or has a zero byte".to_owned());
    }
    Ok(Arc::new(MonitorEndpoint { path: (completion.path)(path), port }))
}

/// Takes a connection from another process.
pub(super) fn adopt(socket: OwnedFd, state: &[u8]) -> io::Result<Box<dyn Connection>> {
    let path = state.strip_prefix(STATE).filter(|path| !path.is_empty());
    let is_ours = sockopt::socket_domain(&socket)? == AddressFamily::UNIX
        && sockopt::socket_type(&socket)? == SocketType::STREAM;
    let path = path.filter(|_| is_ours).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(MonitorConnection::boxed(socket, Path::new(OsStr::from_bytes(path))))
}

/// Returns the line that asks a monitor for a port of the guest.
pub(super) fn request(port: u32) -> String {
    format!("CONNECT {port}\n")
}

#[derive(Debug)]
struct MonitorEndpoint {
    path: PathBuf,
    port: u32,
}

impl Endpoint for MonitorEndpoint {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn text(&self) -> OsString {
        joined(&self.path, ":", self.port)
    }

    fn connect(&self, deadline: Instant) -> io::Result<Box<dyn Connection>> {
        let socket = unix::connect_to(&self.path, deadline)?;
        let stream = Stream::new(MonitorConnection::boxed(socket, &self.path));
        ask_for(&stream, self.port, deadline)?;
        Ok(MonitorConnection::boxed(stream.into(), &self.path))
    }

    fn listen(&self, mode: u32) -> io::Result<Bound> {
        let (socket, file) = unix::listen_on(Path::new(&self.listening_path()), mode)?;
        let endpoint = Self { path: self.path.clone(), port: self.port };
        let accepting = Box::new(Door { path: self.path.clone(), _file: file });
        Ok(Bound { socket, endpoint: Arc::new(endpoint), accepting })
    }

    /// The address leads to the guest for a program that connects.
    fn advertised(&self, _host: &str) -> Option<Arc<dyn Endpoint>> {
        None
    }
}

impl MonitorEndpoint {
    /// Returns the path to which the monitor connects for a program in the guest.
    fn listening_path(&self) -> OsString {
        joined(&self.path, "_", self.port)
    }
}

fn joined(path: &Path, between: &str, port: u32) -> OsString {
    let end = format!("{between}{port}");
    [path.as_os_str(), OsStr::new(&end)].into_iter().collect()
}

/// Asks the monitor for a port of the guest.
fn ask_for(stream: &Stream, port: u32, deadline: Instant) -> io::Result<()> {
    let talk = || -> Result<Vec<u8>, LinkError> {
        stream.write_all_until(request(port).as_bytes(), deadline)?;
        let mut answer = Vec::new();
        // The bytes behind the line are those of the peer.
        while answer.last() != Some(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
            let mut byte = [0];
            stream.read_exact_until(&mut byte, deadline)?;
            answer.extend(byte);
        }
        Ok(answer)
    };
    match talk() {
        Ok(answer) if answer.starts_with(b"OK ") && answer.ends_with(b"\n") => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the process that listens there is no monitor of a guest",
        )),
        Err(LinkError::HelloTimeout { .. }) => Err(io::ErrorKind::TimedOut.into()),
        // The monitors hang up if the guest refuses the connection.
        Err(LinkError::Closed) => Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!(
                "nobody listens on port {port} of the guest; check the port, and start the daemon \
                 there with --listen vsock:{port}"
            ),
        )),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Makes connections of accepted sockets, and keeps the socket's file.
#[derive(Debug)]
struct Door {
    /// Path of the monitor's own socket.
    path: PathBuf,
    _file: SocketFile,
}

impl Accepting for Door {
    fn take(&self, socket: OwnedFd) -> io::Result<Box<dyn Connection>> {
        Ok(MonitorConnection::boxed(socket, &self.path))
    }
}

/// Connection to a monitor. It has no credentials on purpose: they are those of the monitor.
#[derive(Debug)]
struct MonitorConnection {
    socket: OwnedFd,
    /// Path of the monitor's own socket.
    path: PathBuf,
    liveness: Liveness,
}

impl MonitorConnection {
    fn boxed(socket: OwnedFd, path: &Path) -> Box<dyn Connection> {
        let liveness = Liveness::of_monitor(path.to_owned());
        Box::new(Self { socket, path: path.to_owned(), liveness })
    }
}

impl AsFd for MonitorConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection for MonitorConnection {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn peer(&self) -> String {
        match unix::peer_credentials(self.as_fd()) {
            Ok(monitor) => {
                format!("the guest of process {} of user {}", monitor.pid, monitor.uid)
            }
            Err(_) => "a guest".to_owned(),
        }
    }

    fn source(&self) -> Source {
        Source::Guest(self.path.clone())
    }

    fn why_no_shared_memory(&self) -> Option<&'static str> {
        Some(NO_SHARED_MEMORY)
    }

    fn state(&self) -> Result<Zeroizing<Vec<u8>>, LinkError> {
        Ok([STATE, self.path.as_os_str().as_bytes()].concat().into())
    }

    fn into_socket(self: Box<Self>) -> OwnedFd {
        self.socket
    }

    watched!();
}
