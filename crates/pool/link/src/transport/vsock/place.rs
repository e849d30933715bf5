//! Addresses of the kernel's vsock, and its system calls.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::super::syscall::{Readiness, wait_fd};
use crate::standard::beyond_standard;

/// Word for all machines in the address of a listener.
pub(super) const ANY_MACHINE: &str = "any";

/// What the user is told if the kernel has no CID for this machine alone.
pub(super) const NO_LOOPBACK: &str =
    "this kernel has no vsock within one machine; load the module vsock_loopback";

/// CID of all machines, for listeners.
pub(super) const ANY: u32 = libc::VMADDR_CID_ANY;
/// CID of the machine itself.
pub(super) const LOCAL: u32 = libc::VMADDR_CID_LOCAL;
const HOST: u32 = libc::VMADDR_CID_HOST;

/// Options of vsock sockets, from the kernel's `linux/vm_sockets.h`.
const SO_VM_SOCKETS_BUFFER_SIZE: libc::c_int = 0;
const SO_VM_SOCKETS_BUFFER_MAX_SIZE: libc::c_int = 2;
/// Takes a [`libc::timeval`].
const SO_VM_SOCKETS_CONNECT_TIMEOUT: libc::c_int = 6;

/// Size in bytes of the buffer for what this side has not read yet.
const BUFFER_BYTES: u64 = 1 << 20;

/// Number of bytes by which the buffer may grow. Each [poke](Buffers::poke) takes one.
const POKES_MAX: u64 = 1 << 20;

/// Machine and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cid: u32,
    pub(super) port: u32,
}

impl Place {
    /// Returns this place with the kernel's number for a free port in place of 0.
    pub(super) fn for_listener(self) -> Self {
        let port = if self.port == 0 { libc::VMADDR_PORT_ANY } else { self.port };
        Self { port, ..self }
    }

    pub(super) fn of_own_end(socket: &OwnedFd) -> Option<Self> {
        Self::read(&rustix::net::getsockname(socket).ok()?)
    }

    pub(super) fn of_other_end(socket: &OwnedFd) -> Option<Self> {
        Self::read(&rustix::net::getpeername(socket).ok()??)
    }

    fn read(address: &SocketAddrAny) -> Option<Self> {
        let is_ours = address.address_family() == AddressFamily::VSOCK
            && address.addr_len() as usize >= size_of::<libc::sockaddr_vm>();
        if !is_ours {
            return None;
        }
        // SAFETY: the address is at least as large as `sockaddr_vm`, which may hold any bytes.
        let address = unsafe { address.as_ptr().cast::<libc::sockaddr_vm>().read_unaligned() };
        Some(Self { cid: address.svm_cid, port: address.svm_port })
    }

    /// Returns the error of a connection to this place with what the user can do.
    pub(super) fn explain(self, error: Errno) -> io::Error {
        let Self { cid, port } = self;
        let advice = match error {
            Errno::CONNRESET | Errno::CONNREFUSED => format!(
                "nobody listens on port {port} of the machine with CID {cid}; check the port, and \
                 start the daemon there with --listen vsock:{port}, or with --listen \
                 vsock:PATH:{port} if a monitor such as Firecracker ends vsock at PATH"
            ),
            Errno::NODEV if cid == HOST => "this machine has no vsock device; if it is a guest, \
                                            give it one and load the module \
                                            vmw_vsock_virtio_transport"
                .to_owned(),
            Errno::NODEV => format!(
                "this machine has no guest with CID {cid}; check the CID (2 is the host), and load \
                 the module vhost_vsock"
            ),
            Errno::TIMEDOUT => format!(
                "the machine with CID {cid} does not answer; check the CID (2 is the host), \
                 whether the machine runs, and whether a daemon listens on port {port} there \
                 (some monitors refuse no connection)"
            ),
            Errno::ADDRNOTAVAIL => NO_LOOPBACK.to_owned(),
            other => return explain_absence(other),
        };
        let kind = match error {
            Errno::CONNRESET => io::ErrorKind::ConnectionRefused,
            error => io::Error::from(error).kind(),
        };
        io::Error::new(kind, advice)
    }

    /// Returns the error of a listener at this place with what the user can do.
    pub(super) fn explain_listening(self, error: Errno) -> io::Error {
        match error {
            Errno::ADDRNOTAVAIL if self.cid == LOCAL => {
                io::Error::new(io::ErrorKind::AddrNotAvailable, NO_LOOPBACK)
            }
            Errno::ADDRNOTAVAIL => io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("this machine does not have the CID {}; write vsock:PORT", self.cid),
            ),
            other => explain_absence(other),
        }
    }
}

/// Returns the error of a kernel that has no vsock with what the user can do.
fn explain_absence(error: Errno) -> io::Error {
    match error {
        Errno::AFNOSUPPORT => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no vsock; load the module vhost_vsock on a host, or \
             vmw_vsock_virtio_transport in a guest",
        ),
        other => other.into(),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cid {
            ANY => write!(f, "{ANY_MACHINE}:{}", self.port),
            cid => write!(f, "{cid}:{}", self.port),
        }
    }
}

// SAFETY: `with_sockaddr` passes a complete `sockaddr_vm` and its size.
unsafe impl SocketAddrArg for Place {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let address = libc::sockaddr_vm {
            svm_family: AddressFamily::VSOCK.as_raw(),
            svm_reserved1: 0,
            svm_port: self.port,
            svm_cid: self.cid,
            svm_zero: [0; 4],
        };
        let bytes = SocketAddrLen::try_from(size_of_val(&address)).unwrap_or_default();
        f((&raw const address).cast(), bytes)
    }
}

pub(super) fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let fd = rustix::net::socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
    beyond_standard(fd)
}

/// Fails with [`Errno::ADDRNOTAVAIL`] if the kernel carries no vsock within one machine. Without
/// this check the kernel would ask the hypervisor for that machine, and wait for an answer.
pub(super) fn check_loopback() -> rustix::io::Result<()> {
    let local = Place { cid: LOCAL, port: 0 };
    rustix::net::bind(socket(SocketFlags::CLOEXEC)?, &local.for_listener())
}

/// Connects. The socket blocks, as accepted ones do.
pub(super) fn connect(place: Place, deadline: Instant) -> rustix::io::Result<OwnedFd> {
    if place.cid == LOCAL {
        check_loopback()?;
    }
    let patience = deadline.saturating_duration_since(Instant::now());
    let socket = begin_to_connect(place, patience)?;
    if !wait_fd(socket.as_fd(), Readiness::Writable, Some(deadline)).map_err(|_| Errno::IO)? {
        return Err(Errno::TIMEDOUT);
    }
    sockopt::socket_error(&socket)??;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Begins to connect. The socket becomes writable when the connection stands or has failed. The
/// kernel gives up after `patience`.
pub(super) fn begin_to_connect(place: Place, patience: Duration) -> rustix::io::Result<OwnedFd> {
    let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    limit_connecting(socket.as_fd(), patience)?;
    match rustix::net::connect(&socket, &place) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Sets the time after which the kernel gives up to connect: 2 s by default.
fn limit_connecting(socket: BorrowedFd<'_>, patience: Duration) -> rustix::io::Result<()> {
    // The kernel takes no time of zero, and none that overflows its clock.
    let patience = patience.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
    let limit = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros().into(),
    };
    set_option(socket, SO_VM_SOCKETS_CONNECT_TIMEOUT, &limit)
}

/// Size of the receive buffer of a connection.
#[derive(Debug)]
pub(super) struct Buffers {
    bytes: u64,
}

impl Buffers {
    /// Sets the size of a new connection's receive buffer.
    pub(super) fn prepare(socket: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let max = BUFFER_BYTES + POKES_MAX;
        set_option(socket, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &max)?;
        set_option(socket, SO_VM_SOCKETS_BUFFER_SIZE, &BUFFER_BYTES)?;
        Ok(Self { bytes: BUFFER_BYTES })
    }

    /// Makes the kernel send a message without bytes on the connection: it tells the other kernel
    /// that the buffer has grown by one byte. A kernel that does not know the connection, for
    /// example after a new start of its machine, answers with a reset.
    ///
    /// The buffer never shrinks: a peer may count on the room that it was once told.
    pub(super) fn poke(&mut self, socket: BorrowedFd<'_>) {
        if self.bytes < BUFFER_BYTES + POKES_MAX {
            self.bytes += 1;
            // If the kernel refuses the option, the connection merely has no poke.
            _ = set_option(socket, SO_VM_SOCKETS_BUFFER_SIZE, &self.bytes);
        }
    }
}

fn set_option<T>(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    value: &T,
) -> rustix::io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
    // SAFETY: the pointer and the size are those of `value`, which the kernel only reads.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::AF_VSOCK,
            name,
            std::ptr::from_ref(value).cast(),
            size,
        )
    };
    if code != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}
