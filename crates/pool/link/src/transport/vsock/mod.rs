//! vsock: connections between a virtual machine and its host, without any network.
//!
//! * `vsock:CID:PORT` uses the kernel's vsock. The CID is the number of a machine: 2 is the host,
//!   and the hypervisor gives each guest another one. A listener takes `vsock:PORT`.
//! * `vsock:PATH:PORT` is for a host whose virtual machine monitor ends vsock in Unix sockets: see
//!   [`monitor`].
//!
//! The kernel tells no side which user the other one is. So both sides prove that they have the
//! pool's key, as over TCP. A machine can vanish without a hang-up; see [`liveness`].

mod liveness;
pub(crate) mod machine;
mod monitor;
mod place;
mod vigil;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_wire::hello::feature;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::contract::{
    Accepting, Bound, Completion, Connected, Connection, Destination, Endpoint, Exposure, Facts,
    Purpose, Reach, Source, Transport,
};
use super::plain::Plain;
use super::syscall::BACKLOG;
use crate::instance::End;
use liveness::Liveness;
use place::{ANY, ANY_MACHINE, Buffers, LOCAL, Place};

pub(super) static TRANSPORT: Transport = Transport {
    scheme: "vsock",
    form: "vsock:CID:PORT",
    name: "vsock",
    needs_key: true,
    // vsock comes before TCP: its bytes never leave the host.
    rank: 5,
    families: &[AddressFamily::VSOCK],
    read,
    adopt,
    brought: |_| None,
};

/// Time after which a thread that waits for a connection looks whether the listener was stopped.
/// The kernel does not wake such a thread: `shutdown` fails on a listening vsock socket.
const ACCEPT_TURN: Duration = Duration::from_millis(250);

fn read(text: &str, completion: &Completion<'_>) -> Result<Endpoint, String> {
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
    Ok(at(place))
}

fn adopt(socket: OwnedFd, note: &[u8]) -> io::Result<Connection> {
    if !note.is_empty() {
        return monitor::adopt(socket, note);
    }
    let is_ours = sockopt::socket_domain(&socket)? == AddressFamily::VSOCK
        && sockopt::socket_type(&socket)? == SocketType::STREAM;
    if !is_ours {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    connection(socket)
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

fn at(place: Place) -> Endpoint {
    Endpoint {
        transport: &TRANSPORT,
        text: place.to_string().into(),
        host: None,
        port: None,
        is_local: place.cid == LOCAL,
        logs_in: false,
        reach: Box::new(Kernels(place)),
    }
}

/// Address of the kernel's vsock.
#[derive(Debug)]
struct Kernels(Place);

impl Reach for Kernels {
    fn connect(&self, _for_session: bool, deadline: Instant) -> io::Result<Connected> {
        if self.0.cid == ANY {
            let why = "only a listener takes `any`; name the CID of the machine (2 is the host)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let connected = place::connect(self.0, deadline);
        Ok((connection(connected.map_err(|error| self.0.explain(error))?)?, None))
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        Ok(vec![(Destination::Machine(self.0.cid), at(self.0))])
    }

    fn listen(&self, _mode: u32) -> io::Result<Bound> {
        let explain = |error| self.0.explain_listening(error);
        let socket = listen(self.0).map_err(explain)?;
        let port = Place::of_own_end(&socket).map_or(self.0.port, |here| here.port);
        let endpoint = at(Place { port, ..self.0 });
        Ok(Bound { socket, endpoint, accepting: Box::new(Door) })
    }

    /// Other nodes are on other machines. There, a CID names another machine than here.
    fn advertised(&self, _host: &str) -> Option<Endpoint> {
        let is_within_machine = [ANY, LOCAL].contains(&self.0.cid);
        is_within_machine.then(|| at(Place { cid: LOCAL, ..self.0 }))
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
    fn take(&self, socket: OwnedFd) -> io::Result<Connection> {
        connection(socket)
    }
}

fn connection(socket: OwnedFd) -> io::Result<Connection> {
    let buffers = Buffers::prepare(socket.as_fd())?;
    let there = Place::of_other_end(&socket).ok_or(io::ErrorKind::NotConnected)?;
    let end = |place: Place| End::Machine { cid: place.cid, port: place.port };
    let ends = Place::of_own_end(&socket).map(|here| (end(here), end(there)));
    let peer = format!("vsock:{there}");
    let facts = facts(peer, Source::Machine(there.cid), ends, Vec::new());
    Ok(watched(socket, facts, Liveness::of_kernel(there, buffers)))
}

/// Returns the facts of both kinds of vsock.
fn facts(peer: String, source: Source, ends: Option<(End, End)>, note: Vec<u8>) -> Facts {
    Facts {
        transport: &TRANSPORT,
        peer,
        credentials: None,
        source,
        ends,
        exposure: Exposure::Kernel,
        encryption: None,
        passes_descriptors: false,
        why_no_shared_memory: Some("vsock shares no memory between two machines"),
        features: feature::ALL & !(feature::SHARED_RINGS | feature::SHARED_ARENA),
        note,
    }
}

/// Returns a connection whose liveness hears its bytes.
fn watched(socket: OwnedFd, facts: Facts, liveness: Liveness) -> Connection {
    let bytes = Plain::telling(socket, liveness.heard.clone());
    Connection::new(bytes, facts, Some(Arc::new(liveness)))
}

#[cfg(test)]
pub(super) mod tests;
