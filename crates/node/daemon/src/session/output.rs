//! Output of kernels: the worker's standard output, sent to the client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use penstock_link::{Body, Outbox};
use penstock_process::Lock;
use penstock_wire::calls::to_client;
use penstock_wire::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// Most bytes of output that wait for the client. A terminal shows 16 MiB in seconds.
const UNTAKEN_BYTES_MAX: usize = 16 << 20;

/// Pause before the next attempt.
const UNTAKEN_PAUSE: Duration = Duration::from_millis(5);

/// The reading end of the worker's standard output.
#[derive(Debug)]
pub struct Output {
    /// Locked while bytes are read and posted, so that after a drain all earlier bytes are posted.
    pipe: Lock<OwnedFd>,
    /// The outbox of the session, as long as the session lives.
    session: OnceLock<Weak<Outbox>>,
}

impl Output {
    /// Makes the process's standard output a pipe and takes its reading end.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn capture() -> io::Result<Arc<Self>> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Drivers share the writing end and may not expect EAGAIN: only the reading end never
        // blocks.
        rustix::io::ioctl_fionbio(&reader, true)?;
        rustix::stdio::dup2_stdout(&writer)?;
        Ok(Arc::new(Self { pipe: Lock::new(reader), session: OnceLock::new() }))
    }

    /// From now on sends the output to this session.
    pub(super) fn attach(self: &Arc<Self>, outbox: &Arc<Outbox>) {
        _ = self.session.set(Arc::downgrade(outbox));
        let output = self.clone();
        if let Err(error) = penstock_process::start("output", move || output.run()) {
            tracing::warn!(%error, "no thread for output");
        }
    }

    fn run(&self) {
        let Ok(pipe) = self.pipe.lock().try_clone() else { return };
        loop {
            let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            let Some(outbox) = self.session.get().and_then(Weak::upgrade) else { return };
            if !self.drain(&outbox) {
                thread::sleep(UNTAKEN_PAUSE);
            }
        }
    }

    /// Posts the output so far, but at most a pipe's worth, so that endless output does not hold up
    /// others. Returns `false` if the client does not take it; the pipe then blocks the printing
    /// code.
    pub(super) fn drain(&self, outbox: &Outbox) -> bool {
        let pipe = self.pipe.lock();
        let max = usize::try_from(limits::OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let mut left = max;
        while left > 0 {
            if outbox.held_bytes() > UNTAKEN_BYTES_MAX {
                return false;
            }
            let mut bytes = vec![0; max];
            match rustix::io::read(&*pipe, &mut bytes) {
                Ok(0) | Err(_) => return true,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    bytes.truncate(count);
                    outbox.post(&to_client::Output {}, &[], Body::Bytes(bytes));
                }
            }
        }
        true
    }
}
