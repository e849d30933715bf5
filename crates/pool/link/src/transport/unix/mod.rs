//! Unix sockets: `unix:PATH`.
//!
//! The kernel tells each side which user the other one is. Descriptors pass beside the bytes, so a
//! link moves its frames into [shared memory](super::rings) if both sides can.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use penstock_wire::hello::feature;
use rustix::net::{AddressFamily, sockopt};

use super::contract::{
    Accepting, Bound, Completion, Connected, Connection, Destination, Endpoint, Exposure, Facts,
    Reach, Source, Transport,
};
use super::plain::Plain;
use super::socket_file::{self, SocketFile};
use crate::address::Address;
use crate::instance::End;

/// Size in bytes of a socket's send buffer. Measured: beyond 1 MiB nothing is gained.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

pub(super) static TRANSPORT: Transport = Transport {
    scheme: "unix",
    form: "unix:PATH",
    name: "Unix sockets",
    needs_key: false,
    rank: 0,
    families: &[AddressFamily::UNIX],
    read,
    adopt,
    brought: |_| None,
};

fn read(text: &str, completion: &Completion<'_>) -> Result<Endpoint, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("the path is missing or has a zero byte".to_owned());
    }
    Ok(at((completion.path)(text)))
}

fn adopt(socket: OwnedFd, note: &[u8]) -> io::Result<Connection> {
    if !socket_file::is_one(&socket)? || !note.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The system reduces a size that it does not allow, without an error.
    sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES)?;
    let peer = socket_file::peer_credentials(socket.as_fd())?;
    let here = rustix::process::geteuid().as_raw();
    let facts = Facts {
        transport: &TRANSPORT,
        peer: format!("process {} of user {}", peer.pid, peer.uid),
        credentials: Some(peer),
        source: Source::User(peer.uid),
        ends: Some((End::User(here), End::User(peer.uid))),
        exposure: Exposure::Kernel,
        encryption: None,
        passes_descriptors: true,
        why_no_shared_memory: None,
        features: feature::ALL,
        note: Vec::new(),
    };
    Ok(Connection::new(Plain::new(socket), facts, None))
}

impl Address {
    /// Returns the address of a Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(at(path.into()))
    }
}

/// Returns the endpoint at a path.
fn at(path: PathBuf) -> Endpoint {
    Endpoint {
        transport: &TRANSPORT,
        text: path.clone().into(),
        host: None,
        port: None,
        is_local: true,
        logs_in: false,
        reach: Box::new(UnixPath(path)),
    }
}

#[derive(Debug)]
struct UnixPath(PathBuf);

impl Reach for UnixPath {
    fn connect(&self, _for_session: bool, deadline: Instant) -> io::Result<Connected> {
        Ok((adopt(socket_file::connect(&self.0, deadline)?, &[])?, None))
    }

    fn resolve(&self) -> io::Result<Vec<(Destination, Endpoint)>> {
        Ok(vec![(Destination::File, at(self.0.clone()))])
    }

    fn listen(&self, mode: u32) -> io::Result<Bound> {
        let (socket, file) = socket_file::listen(&self.0, mode)?;
        Ok(Bound { socket, endpoint: at(self.0.clone()), accepting: Box::new(file) })
    }

    fn advertised(&self, _host: &str) -> Option<Endpoint> {
        Some(at(std::path::absolute(&self.0).unwrap_or_else(|_| self.0.clone())))
    }
}

impl Accepting for SocketFile {
    fn take(&self, socket: OwnedFd) -> io::Result<Connection> {
        adopt(socket, &[])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Duration;

    use penstock_wire::hello::Verdict;

    use super::*;
    use crate::error::LinkError;
    use crate::hello::accept_hello;
    use crate::stream::Stream;
    use crate::transport::tests::{TestAddresses, greeting};

    pub(in crate::transport) fn addresses(folder: &Path) -> TestAddresses {
        TestAddresses::at(format!("unix:{}", folder.join("socket").display()))
    }

    #[test]
    fn a_peer_without_credentials_on_a_transport_without_a_key_is_refused() {
        let (one, other) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let connecting = Stream::from_fd(one.into()).unwrap();
        greeting::say_hello(&connecting);
        let mut anonymous = adopt(other.into(), &[]).unwrap();
        anonymous.facts.credentials = None;
        let accepting = Stream::new(anonymous);
        let accepted = accept_hello(accepting, None, &|_| true, deadline);
        assert!(
            matches!(accepted, Err(LinkError::Turned { verdict: Verdict::WrongUser, .. })),
            "{accepted:?}"
        );
    }
}
