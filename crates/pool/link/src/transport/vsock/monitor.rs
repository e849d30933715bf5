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
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::super::contract::{
    Accepting, Bound, Completion, Connected, Connection, Destination, Endpoint, Reach, Source,
};
use super::super::exact;
use super::super::socket_file::{self, SocketFile};
use super::liveness::Liveness;
use super::{TRANSPORT, facts, read_port, watched};
use crate::error::LinkError;

/// What a worker is told of such a connection before the path. It is not empty, because the socket
/// could otherwise be one of the kernel's vsock.
const NOTE: &[u8] = b"monitor:";

/// Longest answer of a monitor in bytes: "OK", a space, a port of 10 digits and a line feed, with
/// room to spare.
const ANSWER_BYTES_MAX: usize = 32;

/// Reads `PATH:PORT`, or `PATH` if there is a default port.
pub(super) fn read(
    text: &str,
    completion: &Completion<'_>,
) -> Result<Endpoint, String> {
    let (path, port) = match text.rsplit_once(':') {
        Some((path, port)) if !port.contains('/') => (path, read_port(port)?),
        _ => (text, completion.port.map(u32::from).ok_or("the port is missing")?),
    };
    if path.is_empty() || path.contains('\0') {
        return Err("the path is missing or has a zero byte".to_owned());
    }
    Ok(at((completion.path)(path), port))
}

/// Takes a connection from another process.
pub(super) fn adopt(socket: OwnedFd, note: &[u8]) -> io::Result<Connection> {
    let path = note.strip_prefix(NOTE).filter(|path| !path.is_empty());
    let is_ours = socket_file::is_one(&socket)?;
    let path = path.filter(|_| is_ours).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(connection(socket, Path::new(OsStr::from_bytes(path))))
}

/// Returns the line that asks a monitor for a port of the guest.
pub(super) fn request(port: u32) -> String {
    format!("CONNECT {port}\n")
}

fn at(path: PathBuf, port: u32) -> Endpoint {
    Endpoint {
        transport: &TRANSPORT,
        text: joined(&path, ":", port),
        host: None,
        port: None,
        is_local: false,
        logs_in: false,
        reach: Box::new(Monitors { path, port }),
    }
}

/// Address of a guest behind a monitor.
#[derive(Debug)]
struct Monitors {
    path: PathBuf,
    port: u32,
}

impl Reach for Monitors {
    fn connect(&self, _for_session: bool, deadline: Instant) -> io::Result<Connected> {
        let connected = connection(socket_file::connect(&self.path, deadline)?, &self.path);
        ask_for(&connected, self.port, deadline)?;
        Ok((connected, None))
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        Ok(Vec::new())
    }

    fn listen(&self, mode: u32) -> io::Result<Bound> {
        let (socket, file) = socket_file::listen(Path::new(&self.listening_path()), mode)?;
        let accepting = Box::new(Door { path: self.path.clone(), _file: file });
        Ok(Bound { socket, endpoint: at(self.path.clone(), self.port), accepting })
    }

    /// The address leads to the guest for a program that connects.
    fn advertised(&self, _host: &str) -> Option<Endpoint> {
        None
    }
}

impl Monitors {
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
fn ask_for(monitor: &Connection, port: u32, deadline: Instant) -> io::Result<()> {
    let talk = || -> Result<Vec<u8>, LinkError> {
        exact::write_all_until(monitor, request(port).as_bytes(), deadline)?;
        let mut answer = Vec::new();
        // The bytes behind the line are those of the peer.
        while answer.last() != Some(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
            let mut byte = [0];
            exact::read_exact_until(monitor, &mut byte, deadline)?;
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
    fn take(&self, socket: OwnedFd) -> io::Result<Connection> {
        Ok(connection(socket, &self.path))
    }
}

/// Returns a connection to a monitor. It has no credentials on purpose: they are those of the
/// monitor.
fn connection(socket: OwnedFd, path: &Path) -> Connection {
    let peer = match socket_file::peer_credentials(socket.as_fd()) {
        Ok(monitor) => format!("the guest of process {} of user {}", monitor.pid, monitor.uid),
        Err(_) => "a guest".to_owned(),
    };
    let note = [NOTE, path.as_os_str().as_bytes()].concat();
    let facts = facts(peer, Source::Guest(path.to_owned()), None, note);
    watched(socket, facts, Liveness::of_monitor(path.to_owned()))
}
