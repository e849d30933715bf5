//! Locks on the parts of a region. A process holds one as long as it has the part mapped.
//!
//! Clients lock the file of the device in their guest, and workers lock the daemon's file. These
//! are two kernels, so the two sides never meet. Where one file is both, as in the tests, they
//! lock different ranges.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::transport::contract::Side;

/// Start of the ranges that workers lock. Files end before it.
const WORKERS_AT: u64 = 1 << 62;

/// Locks a part for the open file. Returns `false` if another open file has the lock.
///
/// # Errors
/// Fails if the system has no locks left.
pub(super) fn lock(file: BorrowedFd<'_>, side: Side, offset: u64, bytes: u64) -> io::Result<bool> {
    let start = match side {
        Side::Client => offset,
        Side::Worker => WORKERS_AT + offset,
    };
    // Of the two kinds of locks on ranges this one belongs to the open file and not to the process:
    // a process may open the device for several sessions.
    // SAFETY: all bytes zero are a valid value of this plain C struct.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    let wrong = |_| io::ErrorKind::InvalidInput;
    range.l_type = libc::F_WRLCK.try_into().map_err(wrong)?;
    range.l_whence = libc::SEEK_SET.try_into().map_err(wrong)?;
    let number = |number: u64| number.try_into().map_err(wrong);
    (range.l_start, range.l_len) = (number(start)?, number(bytes)?);
    // SAFETY: the pointer refers to a local, which the kernel only reads.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if code == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
