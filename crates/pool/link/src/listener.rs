//! Sockets that wait for connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::address::Address;
use crate::error::LinkError;
use crate::stream::Stream;
use crate::transport::contract::{Accepting, Bound};
use crate::transport::syscall;

/// Default mode of a Unix socket: only its user may connect.
const SOCKET_MODE: u32 = 0o600;

/// Socket that other processes connect to.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    accepting: Box<dyn Accepting>,
    address: Address,
    stopped: AtomicBool,
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
            io::ErrorKind::AddrInUse => LinkError::InUse { address: address.to_string() },
            _ => LinkError::Listen { address: address.to_string(), source },
        };
        let bound = address.endpoint().reach.listen(mode).map_err(failed)?;
        let Bound { socket, endpoint, accepting } = bound;
        let address = Address::new(endpoint);
        Ok(Self { socket, accepting, address, stopped: AtomicBool::new(false) })
    }

    /// Waits for the next connection. The caller then receives its hello with
    /// [`crate::accept_hello`].
    ///
    /// # Errors
    /// Fails if the system is out of file descriptors or memory. The caller should wait briefly
    /// before the next attempt.
    pub fn accept(&self) -> Result<Stream, LinkError> {
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => match self.accepting.take(socket) {
                    Ok(connection) => return Ok(Stream::new(connection)),
                    // The peer already hung up.
                    Err(_) => continue,
                },
                // Sockets of some transports wait only for a limited time.
                Err(Errno::AGAIN) if !self.stopped.load(Ordering::Relaxed) => {}
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
                        address: self.address.to_string(),
                        source: source.into(),
                    });
                }
            }
        }
    }

    /// Ends [`Listener::accept`] in all threads, which then fails, at the latest after the time
    /// for which the socket of this transport waits.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        syscall::shutdown(self.as_fd());
    }

    /// Returns whether [`Listener::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the address with the real port.
    pub fn address(&self) -> Address {
        self.address.clone()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
