//! A bell for a thread that sleeps in `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::HeapError;

#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    /// Saves frequent lookers a system call.
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, HeapError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(HeapError::system("making an event descriptor"))?;
        Ok(Self { fd, rung: AtomicBool::new(false) })
    }

    /// Wakes the thread, now or when it next sleeps.
    pub(crate) fn ring(&self) {
        // Fails only after 2^64 rings that nobody heard.
        _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        // Stored after the write, so that a thread that sees the flag finds something to read. In
        // the reverse order the bell could stay rung for ever.
        self.rung.store(true, Release);
    }

    /// Clears the bell if it was rung.
    pub(crate) fn clear_if_rung(&self) {
        if self.rung.swap(false, AcqRel) {
            _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
