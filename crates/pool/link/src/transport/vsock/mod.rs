//! vsock: connections between a virtual machine and its host, without any network.
//!
//! * `vsock:CID:PORT` uses the kernel's vsock. The CID is the number of a machine: 2 is the host,
//!   and the hypervisor gives each guest another one. A listener takes `vsock:PORT`.
//! * `vsock:PATH:PORT` is for a host whose virtual machine monitor ends vsock in Unix sockets: see
//!   [`monitor`].
//!
//! The kernel tells no side which user the other one is. So both sides prove that they have the
//! pool's key, as over TCP. A machine can vanish without a hang-up; see [`liveness`].

/// Methods of a [`Connection`] whose field `liveness` watches over it.
macro_rules! watched {
    () => {
        fn features(&self) -> u64 {
            FEATURES
        }

        fn recv_now(&self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
            let received = syscall::recv_now(self.as_fd(), into);
            if matches!(received, Ok(Some(_))) {
                self.liveness.hear();
            }
            received
        }

        fn wait(&self, what: Readiness, deadline: Option<Instant>) -> Result<bool, LinkError> {
            syscall::wait_and_look(self, what, deadline)
        }

        fn vanished(&self) -> bool {
            self.liveness.is_lost(self.as_fd())
        }

        fn note_life(&self) {
            self.liveness.hear();
        }
    };
}

mod liveness;
pub(crate) mod machine;
mod monitor;
mod place;
mod vigil;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::contract::{
    Accepting, BACKLOG, Bound, Completion, Connection, Destination, Endpoint, Purpose, Source,
    Transport,
};
use super::syscall::{self, Readiness};
use crate::error::LinkError;
use crate::instance::End;
use liveness::Liveness;
use place::{ANY, ANY_MACHINE, Buffers, LOCAL, Place};

pub(super) const TRANSPORT: Vsock = Vsock;

/// Time after which a thread that waits for a connection looks whether the listener was stopped.
/// The kernel does not wake such a thread: `shutdown` fails on a listening vsock socket.
const ACCEPT_TURN: Duration = Duration::from_millis(250);

const NO_SHARED_MEMORY: &str = "vsock shares no memory between two machines";

/// Features of a link over vsock.
const FEATURES: u64 = feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA);

#[derive(Debug)]
pub(crate) struct Vsock;

impl Transport for Vsock {
    fn scheme(&self) -> &'static str {
        "vsock"
    }

    fn form(&self) -> &'static str {
        "vsock:CID:PORT"
    }

    fn name(&self) -> &'static str {
        "vsock"
    }

    fn needs_key(&self) -> bool {
        true
    }

    /// vsock comes before TCP: its bytes never leave the host.
    fn rank(&self) -> u8 {
        5
    }

    fn read(&self, text: &str, completion: &Completion<'_>) -> Result<Arc<dyn Endpoint>, String> {
        if text.contains('/') {
            return monitor::read(text, completion);
        }
        let default = || completion.port.map(u32::from).ok_or("the port is missing");
        let place = match (text.split_once(':'), completion.purpose) {
            (None, _) if text.is_empty() => return Err("the CID is missing".to_owned()),
            (Some((cid, port)), _) => Place { cid: read_cid(cid)?, port: read_port(port)? },
            (None, Purpose::Listen) => Place { cid: ANY, port: read_port(text)? },
            (None, Purpose::Connect) => Place { cid: read_cid(text)?, port: default()? },
        };
        Ok(Arc::new(VsockEndpoint(place)))
    }

    fn families(&self) -> &'static [AddressFamily] {
        &[AddressFamily::VSOCK]
    }

    fn adopt(&self, socket: OwnedFd, state: &[u8]) -> io::Result<Box<dyn Connection>> {
        if !state.is_empty() {
            return monitor::adopt(socket, state);
        }
        let is_ours = sockopt::socket_domain(&socket)? == AddressFamily::VSOCK
            && sockopt::socket_type(&socket)? == SocketType::STREAM;
        if !is_ours {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        VsockConnection::boxed(socket)
    }
}

fn read_cid(text: &str) -> Result<u32, String> {
    if text == ANY_MACHINE {
        return Ok(ANY);
    }
    let cid = text.parse().ok().filter(|&cid| cid != ANY);
    cid.ok_or_else(|| "the CID is neither a number nor `any`".to_owned())
}

fn read_port(text: &str) -> Result<u32, String> {
    // The largest number means "any port" to the kernel.
    let port = text.parse().ok().filter(|&port| port != u32::MAX);
    port.ok_or_else(|| "the port is not a number from 0 to 4294967294".to_owned())
}

#[derive(Debug)]
struct VsockEndpoint(Place);

impl Endpoint for VsockEndpoint {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn text(&self) -> OsString {
        self.0.to_string().into()
    }

    fn connect(&self, deadline: Instant) -> io::Result<Box<dyn Connection>> {
        if self.0.cid == ANY {
            let why = "only a listener takes `any`; name the CID of the machine (2 is the host)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let connected = place::connect(self.0, deadline);
        VsockConnection::boxed(connected.map_err(|error| self.0.explain(error))?)
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Arc<dyn Endpoint>)>> {
        Ok(vec![(Destination::Machine(self.0.cid), Arc::new(Self(self.0)))])
    }

    fn listen(&self, _mode: u32) -> io::Result<Bound> {
        let explain = |error| self.0.explain_listening(error);
        let socket = listen(self.0).map_err(explain)?;
        let port = Place::of_own_end(&socket).map_or(self.0.port, |here| here.port);
        Ok(Bound {
            socket,
            endpoint: Arc::new(Self(Place { port, ..self.0 })),
            accepting: Box::new(Door),
        })
    }

    fn is_local(&self) -> bool {
        self.0.cid == LOCAL
    }

    /// Other nodes are on other machines. There, a CID names another machine than here.
    fn advertised(&self, _host: &str) -> Option<Arc<dyn Endpoint>> {
        let is_within_machine = [ANY, LOCAL].contains(&self.0.cid);
        is_within_machine.then(|| Arc::new(Self(Place { cid: LOCAL, ..self.0 })) as _)
    }
}

fn listen(place: Place) -> rustix::io::Result<OwnedFd> {
    let socket = place::socket(SocketFlags::CLOEXEC)?;
    rustix::net::bind(&socket, &place.for_listener())?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ACCEPT_TURN))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Makes connections of accepted sockets.
#[derive(Debug)]
struct Door;

impl Accepting for Door {
    fn take(&self, socket: OwnedFd) -> io::Result<Box<dyn Connection>> {
        VsockConnection::boxed(socket)
    }
}

#[derive(Debug)]
struct VsockConnection {
    socket: OwnedFd,
    liveness: Liveness,
}

impl VsockConnection {
    fn boxed(socket: OwnedFd) -> io::Result<Box<dyn Connection>> {
        let buffers = Buffers::prepare(socket.as_fd())?;
        let there = Place::of_other_end(&socket).ok_or(io::ErrorKind::NotConnected)?;
        let liveness = Liveness::of_kernel(there, buffers);
        Ok(Box::new(Self { socket, liveness }))
    }
}

impl AsFd for VsockConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection for VsockConnection {
    fn transport(&self) -> &'static dyn Transport {
        &TRANSPORT
    }

    fn peer(&self) -> String {
        match Place::of_other_end(&self.socket) {
            Some(there) => format!("vsock:{there}"),
            None => "the other machine".to_owned(),
        }
    }

    fn source(&self) -> Source {
        Place::of_other_end(&self.socket)
            .map_or(Source::Unknown, |there| Source::Machine(there.cid))
    }

    fn why_no_shared_memory(&self) -> Option<&'static str> {
        Some(NO_SHARED_MEMORY)
    }

    fn ends(&self) -> Option<(End, End)> {
        let end = |place: Place| End::Machine { cid: place.cid, port: place.port };
        let (here, there) =
            (Place::of_own_end(&self.socket)?, Place::of_other_end(&self.socket)?);
        Some((end(here), end(there)))
    }

    fn into_socket(self: Box<Self>) -> OwnedFd {
        self.socket
    }

    watched!();
}

#[cfg(test)]
pub(super) mod tests;
