//! File descriptors sent over Unix sockets.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::error::LinkError;
use crate::standard::beyond_standard;
use crate::transport::syscall::{Readiness, wait_fd};
use crate::wait::Patience;

/// Maximum number of file descriptors in one message: two rings, a doorbell and an arena.
pub(crate) const FDS_MAX: usize = 4;

/// Sends one file descriptor with a note of at least one byte over a Unix socket. A note of at most
/// a page arrives in one piece; all notes here are that short.
///
/// # Errors
/// Fails if the peer hung up or does not take the message within `patience`.
pub fn send_fd(
    over: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    note: &[u8],
    patience: Patience,
) -> Result<(), LinkError> {
    send_fds(over, &[fd], note, patience)
}

/// Receives a note, and the file descriptor that came with it if any did. Returns the length of the
/// note, or 0 if no note came within `patience`.
///
/// # Errors
/// [`LinkError::Closed`] if the peer hung up.
pub fn recv_fd(
    over: BorrowedFd<'_>,
    note: &mut [u8],
    patience: Patience,
) -> Result<(usize, Option<OwnedFd>), LinkError> {
    let (bytes, mut fds) = recv_fds(over, note, patience)?;
    Ok((bytes, fds.pop()))
}

pub(crate) fn send_fds(
    over: BorrowedFd<'_>,
    fds: &[BorrowedFd<'_>],
    note: &[u8],
    patience: Patience,
) -> Result<(), LinkError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    loop {
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(LinkError::system("sending file descriptors")(Errno::TOOBIG));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(over, &[IoSlice::new(note)], &mut beside, flags) {
            Ok(sent) if sent == note.len() => return Ok(()),
            Ok(_) => return Err(LinkError::system("sending file descriptors")(Errno::MSGSIZE)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !wait_fd(over, Readiness::Writable, patience.deadline())? {
                    return Err(LinkError::system("sending file descriptors")(Errno::TIMEDOUT));
                }
            }
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(LinkError::Closed),
            Err(Errno::TOOMANYREFS) => return Err(LinkError::TooManySent),
            Err(Errno::PERM) => return Err(LinkError::MayNotSend),
            Err(error) => return Err(LinkError::system("sending file descriptors")(error)),
        }
    }
}

pub(crate) fn recv_fds(
    over: BorrowedFd<'_>,
    note: &mut [u8],
    patience: Patience,
) -> Result<(usize, Vec<OwnedFd>), LinkError> {
    let deadline: Option<Instant> = patience.deadline();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    loop {
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(over, &mut [IoSliceMut::new(&mut *note)], &mut beside, flags) {
            Ok(got) if got.bytes == 0 => return Err(LinkError::Closed),
            Ok(got) => {
                let mut fds: Vec<OwnedFd> = Vec::new();
                for message in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(sent) = message {
                        fds.extend(sent);
                    }
                }
                let fds: Result<_, _> = fds.into_iter().map(beyond_standard).collect();
                let fds = fds.map_err(LinkError::system("receiving file descriptors"))?;
                return Ok((got.bytes, fds));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !wait_fd(over, Readiness::Readable, deadline)? {
                    return Ok((0, Vec::new()));
                }
            }
            Err(Errno::CONNRESET) => return Err(LinkError::Closed),
            Err(error) => return Err(LinkError::system("receiving file descriptors")(error)),
        }
    }
}
