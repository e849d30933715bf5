//! What kernels print: the worker's standard output, taken to the client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use penstock_link::Body;
use penstock_wire::calls::to_client;
use penstock_wire::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Shared;
use super::event::lock;

/// Output that a client has not taken, in bytes, from which on no more is collected. A terminal shows 16 MiB in seconds.
const UNTAKEN_BYTES_MAX: usize = 16 << 20;

/// Pause before it is tried again.
const UNTAKEN_PAUSE: Duration = Duration::from_millis(5);

/// The reading end of the worker's standard output.
#[derive(Debug)]
pub struct Output {
    /// Locked while bytes are taken and posted, so that whoever drains it knows that all before has been posted.
    pipe: Mutex<OwnedFd>,
    session: OnceLock<Weak<Shared>>,
}

impl Output {
    /// Makes the process's standard output a pipe, and takes what comes out of it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn capture() -> io::Result<Arc<Self>> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // The writing end is shared with drivers, which may not expect EAGAIN: only the reading end does not block.
        rustix::io::ioctl_fionbio(&reader, true)?;
        rustix::stdio::dup2_stdout(&writer)?;
        Ok(Arc::new(Self { pipe: Mutex::new(reader), session: OnceLock::new() }))
    }

    /// From now on what is printed is the session's.
    pub(super) fn attach(self: &Arc<Self>, shared: &Arc<Shared>) {
        _ = self.session.set(Arc::downgrade(shared));
        let output = self.clone();
        let thread = thread::Builder::new().name("output".into()).spawn(move || output.run());
        if let Err(error) = thread {
            shared.log.warn("no thread for output", &[("error", &error)]);
        }
    }

    fn run(&self) {
        let Ok(pipe) = lock(&self.pipe).try_clone() else { return };
        loop {
            let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            let Some(shared) = self.session.get().and_then(Weak::upgrade) else { return };
            if !self.drain(&shared) {
                thread::sleep(UNTAKEN_PAUSE);
            }
        }
    }

    /// Posts what has been printed so far: as much as a pipe holds, so that nobody who prints on without end holds up others.
    /// `false`: the client does not take it, so that the rest stays in the pipe, and who prints waits.
    fn drain(&self, shared: &Shared) -> bool {
        let pipe = lock(&self.pipe);
        let max = usize::try_from(limits::OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let mut left = max;
        while left > 0 {
            if shared.outbox.held_bytes() > UNTAKEN_BYTES_MAX {
                return false;
            }
            let mut bytes = vec![0; max];
            match rustix::io::read(&*pipe, &mut bytes) {
                Ok(0) | Err(_) => return true,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    bytes.truncate(count);
                    shared.outbox.post(&to_client::Output {}, &[], Body::Bytes(bytes));
                }
            }
        }
        true
    }
}

impl Shared {
    /// What was printed so far goes to the client before what comes next.
    pub(super) fn drain_output(&self) {
        if self.prints.load(Ordering::Acquire)
            && let Some(output) = &self.output
        {
            crate::sys::flush_stdio();
            output.drain(self);
        }
    }
}
