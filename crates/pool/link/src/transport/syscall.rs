//! The system calls on connected sockets that the transports share.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::error::LinkError;

/// Condition to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Bytes or a hang-up have come.
    Readable,
    /// Bytes can be sent.
    Writable,
}

/// Interval at which a thread that waits for a peer checks whether the peer has vanished.
/// `TCP_USER_TIMEOUT` would need no check, but it also ends a link whose living peer does not read
/// for that time, for instance a worker with a long kernel. vsock has no such option.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1_000);

/// Whether this process may send several pieces with one call. Workers of strangers may not,
/// because the call can also send descriptors.
static GATHERS: AtomicBool = AtomicBool::new(true);

/// Number of connections that the system holds before they are accepted. Further connections wait
/// (Unix), or the system drops their first packet and the peer sends it again after one second
/// (TCP). At 25,000 connections a second, this is enough for a pause of 160 ms of the thread that
/// accepts. The system may reduce the number to its own limit, which is 4,096 by default.
pub(super) const BACKLOG: i32 = 4_096;

pub(super) fn send_now(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
) -> Result<Option<usize>, LinkError> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let sent = match pieces {
            [one] => rustix::net::send(socket, one, flags),
            many if GATHERS.load(Ordering::Relaxed) => {
                let sent =
                    rustix::net::sendmsg(socket, many, &mut SendAncillaryBuffer::default(), flags);
                if sent == Err(Errno::PERM) {
                    GATHERS.store(false, Ordering::Relaxed);
                    continue;
                }
                sent
            }
            many => send_first(socket, many, flags),
        };
        match sent {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(broken(error, "sending")),
        }
    }
}

/// Sends the first piece that is not empty, and lets the system send it with the next one.
fn send_first(
    socket: BorrowedFd<'_>,
    pieces: &[IoSlice<'_>],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut rest = pieces.iter().skip_while(|piece| piece.is_empty());
    let first = rest.next().map_or(&[][..], |piece| piece);
    let more =
        if rest.all(|piece| piece.is_empty()) { SendFlags::empty() } else { SendFlags::MORE };
    rustix::net::send(socket, first, flags | more)
}

pub(super) fn recv_now(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
) -> Result<Option<usize>, LinkError> {
    loop {
        match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(LinkError::Closed),
            Ok((bytes, _)) => return Ok(Some(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(broken(error, "receiving")),
        }
    }
}

pub(super) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let hung_up = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut fds, Some(&now));
    let [fd] = fds;
    polled.is_ok() && fd.revents().intersects(hung_up)
}

pub(crate) fn shutdown(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Sleeps until a file descriptor is ready or hung up. Returns `false` if the deadline passed.
pub(crate) fn wait_fd(
    fd: BorrowedFd<'_>,
    what: Readiness,
    deadline: Option<Instant>,
) -> Result<bool, LinkError> {
    let events = match what {
        Readiness::Readable => PollFlags::IN | PollFlags::RDHUP,
        Readiness::Writable => PollFlags::OUT,
    };
    poll_all(&mut [PollFd::new(&fd, events)], deadline)
}

/// Sleeps until `one` is writable, `other` is readable, or one of them hung up. Returns for each
/// whether it is.
pub(crate) fn wait_pair(
    one: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<(bool, bool), LinkError> {
    let mut fds = vec![PollFd::new(&one, PollFlags::OUT)];
    fds.extend(other.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN | PollFlags::RDHUP)));
    match sleep(&mut fds, Some(deadline)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(LinkError::system("waiting for the peer")(error)),
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    Ok((ready.next().unwrap_or_default(), ready.next().unwrap_or_default()))
}

/// Sleeps until one of the descriptors is readable or hung up. Returns `false` if the deadline
/// passed.
pub(super) fn wait_any(
    fds: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> Result<bool, LinkError> {
    let events = PollFlags::IN | PollFlags::RDHUP;
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, events)).collect();
    poll_all(&mut fds, deadline)
}

/// Sleeps until one of the descriptors is ready. Returns `false` if the deadline passed.
pub(super) fn poll_all(
    fds: &mut [PollFd<'_>],
    deadline: Option<Instant>,
) -> Result<bool, LinkError> {
    loop {
        match sleep(fds, deadline) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(LinkError::system("waiting for the peer")(error)),
        }
    }
}

/// Sleeps until one of the descriptors is ready, or until the deadline, or until a signal comes.
fn sleep(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> rustix::io::Result<usize> {
    #[cfg(feature = "world")]
    if super::world::wait_for(fds, deadline) {
        return poll(fds, Some(&timespec(Duration::ZERO)));
    }
    let left = deadline.map(|at| timespec(at.saturating_duration_since(penstock_process::now())));
    poll(fds, left.as_ref())
}

fn timespec(duration: Duration) -> Timespec {
    // A deadline beyond the clock's range (292 billion years) is as good as none.
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}

fn broken(error: Errno, doing: &'static str) -> LinkError {
    match error {
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::SHUTDOWN => LinkError::Closed,
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN => {
            LinkError::Vanished
        }
        error => LinkError::system(doing)(error),
    }
}
