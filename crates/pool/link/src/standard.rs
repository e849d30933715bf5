//! Descriptors that must not be standard files.

use std::os::fd::{AsRawFd as _, OwnedFd};

/// First number behind those of the standard files.
pub(crate) const FIRST_OTHER: i32 = 3;

/// Gives a new descriptor a number that no standard file has. In a program that has closed a
/// standard file, the kernel gives its number to the next descriptor, and what the program prints
/// would go into it. Every descriptor that a library keeps goes through this function.
///
/// # Errors
/// Fails if the process may have no more descriptors.
pub(crate) fn beyond_standard(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST_OTHER {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OTHER)
}
