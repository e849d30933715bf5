//! The daemon's doors: connections are accepted, asked who they are, and handed on.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use penstock_link::{Accepted, LinkError, Listener, Stream, accept_hello};
use penstock_wire::hello::{Role, Verdict};
use penstock_wire::limits::{HELLO_MS_MAX, PENDING_HELLOS_MAX, SESSIONS_PER_DAEMON_MAX};
use rustix::net::Shutdown;

use crate::daemon::Daemon;
use crate::message::ToWorker;
use crate::workers::hand_over;

/// Stack of a hello's thread, in bytes: a few messages of fixed size, and a line of log.
const HELLO_STACK_BYTES: usize = 128 << 10;

/// Pause after a failed accept: the process is out of descriptors, and only others' ends free some.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A client waits so long for a worker: within its own patience for the hello.
const WORKER_WAIT: Duration = Duration::from_millis(HELLO_MS_MAX - 500);

/// One listening socket.
pub(crate) struct Door {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) listener: Arc<Listener>,
}

/// Connections whose hello is not complete, the oldest first.
#[derive(Default)]
pub(crate) struct Hellos(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    next: u64,
    open: VecDeque<Hello>,
}

struct Hello {
    id: u64,
    handle: OwnedFd,
    is_unix: bool,
}

impl Pending {
    /// Who gives way when there are too many: the oldest, which had the most time. Strangers come over TCP, so those first.
    fn pop(&mut self) -> Option<Hello> {
        let oldest = self.open.iter().position(|hello| !hello.is_unix).unwrap_or(0);
        self.open.remove(oldest)
    }
}

impl Hellos {
    /// Notes a connection. If there are too many, one is closed.
    fn begin(&self, stream: &Stream) -> std::io::Result<u64> {
        let handle = rustix::io::fcntl_dupfd_cloexec(stream, 0)?;
        let mut pending = self.pending();
        if pending.open.len() >= PENDING_HELLOS_MAX
            && let Some(oldest) = pending.pop()
        {
            _ = rustix::net::shutdown(&oldest.handle, Shutdown::Both);
        }
        let id = pending.next;
        pending.next += 1;
        pending.open.push_back(Hello { id, handle, is_unix: stream.is_unix() });
        Ok(id)
    }

    /// A hello is over. The connection may live on elsewhere.
    fn end_one(&self, id: u64) {
        self.pending().open.retain(|hello| hello.id != id);
    }

    /// Closes all.
    pub(crate) fn end(&self) {
        for hello in self.pending().open.drain(..) {
            _ = rustix::net::shutdown(&hello.handle, Shutdown::Both);
        }
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Door {
    /// Accepts until the daemon ends.
    pub(crate) fn run(self) {
        loop {
            match self.listener.accept() {
                Ok(_) if self.daemon.is_ending() => return,
                Ok(stream) => self.admit(stream),
                Err(_) if self.daemon.is_ending() => return,
                Err(error) => {
                    self.daemon.log.warn("a connection could not be accepted", &[("error", &error)]);
                    thread::sleep(ACCEPT_RETRY);
                }
            }
        }
    }

    fn admit(&self, stream: Stream) {
        let daemon = self.daemon.clone();
        let id = match daemon.hellos.begin(&stream) {
            Ok(id) => id,
            Err(error) => return daemon.note_dropped(&error),
        };
        let hello = move || {
            let peer = stream.peer();
            let met = daemon.meet(stream, id);
            daemon.hellos.end_one(id);
            if let Err(error) = met {
                daemon.note_refusal(&peer, &error);
            }
        };
        let started = thread::Builder::new().name("hello".into()).stack_size(HELLO_STACK_BYTES).spawn(hello);
        if let Err(error) = started {
            self.daemon.hellos.end_one(id);
            self.daemon.note_dropped(&error);
        }
    }
}

impl Daemon {
    /// Hears a hello and hands the connection to whom it is for.
    fn meet(&self, stream: Stream, id: u64) -> Result<(), LinkError> {
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let allow = |peer: &penstock_link::Credentials| self.allows(peer.uid);
        let accepted = accept_hello(stream, self.key.as_ref(), &allow, deadline)?;
        // It has spoken, and is no longer among those that may give way to others.
        self.hellos.end_one(id);
        match accepted.role {
            Role::Client => self.meet_client(accepted),
            Role::Peer => self.meet_peer(accepted),
            Role::Control => self.tell_status(accepted, deadline),
        }
    }

    fn meet_client(&self, accepted: Accepted) -> Result<(), LinkError> {
        if self.workers().clients() >= SESSIONS_PER_DAEMON_MAX {
            return accepted.finish(Verdict::Full).map(drop);
        }
        let (features, peer) = (accepted.features, accepted.peer().to_owned());
        let Some((control, turn)) = self.take_worker(&peer, Instant::now() + WORKER_WAIT) else {
            return accepted.finish(Verdict::NoWorker).map(drop);
        };
        // From here on a failure costs the worker its client; it sees the hang-up and ends.
        let stream = accepted.finish(Verdict::Welcome);
        let handed = stream.and_then(|stream| {
            use std::os::fd::AsFd as _;
            hand_over(&control, &ToWorker::Client { features, turn }, stream.as_fd())
        });
        self.wake();
        if handed.is_ok() {
            self.log.info("session", &[("client", &peer)]);
        } else {
            // Nobody will come: the worker is told by the end of its control socket.
            _ = rustix::net::shutdown(&*control, Shutdown::Both);
        }
        handed
    }

    fn meet_peer(&self, accepted: Accepted) -> Result<(), LinkError> {
        use std::os::fd::AsFd as _;
        let ticket = accepted.ticket;
        let Some(control) = self.workers().redeem(&ticket) else {
            return accepted.finish(Verdict::WrongTicket).map(drop);
        };
        let stream = accepted.finish(Verdict::Welcome)?;
        hand_over(&control, &ToWorker::Peer(ticket), stream.as_fd())
    }

    fn tell_status(&self, accepted: Accepted, deadline: Instant) -> Result<(), LinkError> {
        let stream = accepted.finish(Verdict::Welcome)?;
        let text = self.status().to_string();
        let length = u32::try_from(text.len()).unwrap_or_default();
        stream.write_all_until(&length.to_le_bytes(), deadline)?;
        stream.write_all_until(text.as_bytes(), deadline)
    }
}
