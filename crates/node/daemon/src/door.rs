//! The daemon's doors: they accept connections, identify them, and hand them on.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use penstock_link::{
    Accepted, Address, Enrolled, LinkError, Listener, Region, Stream, Trust, accept_hello_as,
};
use penstock_wire::describe::Survey;
use penstock_wire::frame;
use penstock_wire::hello::{Role, Verdict};
use penstock_wire::limits::{HELLO_MS_MAX, LINE_NOTE_MS, PENDING_HELLOS_MAX};

use rustix::net::Shutdown;

use crate::daemon::Daemon;
use crate::desk::Expected;
use crate::doorstep::{Arrived, Entry};
use crate::message::ToWorker;
use crate::node::only;
use crate::quota::user_of;
use crate::refusals::Reason;
use crate::workers::{Arrival, Match, Signs};

/// Stack of a hello's thread, in bytes: the handshake of TLS, for which rustls needs some 64 KiB, a
/// few messages of fixed size and a log line.
const HELLO_STACK_BYTES: usize = 256 << 10;

/// Pause after a failed accept: the process has no free descriptor until a connection ends.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Most tools that wait for the first description of the node, or for the end of a session of their
/// user. Each is a thread, like a pending hello.
const SURVEYS_WAITING_MAX: usize = PENDING_HELLOS_MAX;

pub(crate) struct Door {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) listener: Arc<Listener>,
    /// Memory that the guest at this address shares with the host.
    pub(crate) region: Option<Arc<Region>>,
    pub(crate) entry: Entry,
}

impl Door {
    /// Accepts connections until the daemon ends.
    pub(crate) fn run(self) {
        loop {
            match self.listener.accept() {
                Ok(_) if self.daemon.is_ending() => return,
                Ok(stream) => self.admit(match &self.region {
                    Some(region) => stream.of_guest(region.clone()),
                    None => stream,
                }),
                Err(_) if self.daemon.is_ending() || self.listener.is_stopped() => return,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    thread::sleep(ACCEPT_RETRY);
                }
            }
        }
    }

    fn admit(&self, stream: Stream) {
        let came_ms = u64::try_from(self.daemon.started.elapsed().as_millis());
        self.daemon.last_came_ms.store(came_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        if let Err(error) = self.daemon.hellos.begin(stream, self.entry, deadline) {
            self.daemon.note_dropped(&error);
        }
    }
}

impl Daemon {
    /// Hears the hellos of connections that have spoken, each in a thread, until the daemon ends.
    pub(crate) fn watch_doorstep(self: &Arc<Self>) {
        loop {
            match self.hellos.wait() {
                Ok(Some(arrived)) => arrived.into_iter().for_each(|one| match one {
                    Ok(arrived) => self.hear_hello(arrived),
                    Err(error) => self.note_dropped(&error),
                }),
                Ok(None) => return,
                Err(error) => {
                    self.note_dropped(&error);
                    thread::sleep(ACCEPT_RETRY);
                }
            }
        }
    }

    fn hear_hello(self: &Arc<Self>, Arrived { id, stream, entry, deadline }: Arrived) {
        let daemon = self.clone();
        let hello = move || {
            let peer = stream.peer();
            let met = daemon.meet(stream, entry, id, deadline);
            daemon.hellos.end_one(id);
            if let Err(error) = met {
                daemon.note_refusal(&peer, Reason::of(&error), &error);
            }
        };
        if let Err(error) = penstock_process::start_with_stack("hello", HELLO_STACK_BYTES, hello) {
            self.hellos.end_one(id);
            self.note_dropped(&error);
        }
    }

    /// Hears a hello and hands the connection on by its role.
    fn meet(
        self: &Arc<Self>,
        stream: Stream,
        entry: Entry,
        id: u64,
        deadline: Instant,
    ) -> Result<(), LinkError> {
        self.look_for_key();
        let allow = |peer: &penstock_link::Credentials| self.allows(peer.uid);
        let expected = Expected(self);
        let trust = match entry {
            Entry::Usual => Trust::from(&self.keys),
            Entry::WithKey => self.desk.trust(&expected)?,
        };
        let accepted = accept_hello_as(Some(&self.instance), stream, trust, &allow, deadline)?;
        if let Some(known) = &accepted.client
            && let Enrolled::NotWritten(why) = &known.enrolled
        {
            tracing::warn!(key = %known.key, why, "a client is let in, but not written down");
        }
        // Its hello is complete, so it no longer gives way to others.
        self.hellos.end_one(id);
        match accepted.role {
            Role::Client => self.meet_client(accepted),
            Role::Peer => self.meet_peer(accepted),
            Role::Control => self.tell_status(accepted, deadline),
            Role::Survey => self.tell_node(accepted),
            Role::Invitation => self.tell_invitation(accepted),
            Role::Administration => self.obey(accepted),
        }
    }

    /// Says at the start where the daemon listens, and if nobody can connect there for want of a
    /// key.
    pub(crate) fn tell_addresses(&self) {
        for address in &self.addresses {
            tracing::info!(%address, "listening");
        }
        if self.keys.pool().is_some() || !self.addresses.iter().any(Address::needs_key) {
            return;
        }
        let what = "nobody is let in over TCP and vsock, because the pool's key is missing";
        match &self.keys.awaited {
            Some(awaited) => tracing::warn!(
                file = %awaited.path().display(),
                "{what}; create it with `penstock key --create`, or copy it there from another \
                 node; the daemon then reads it"
            ),
            None => tracing::warn!("{what}; name its file with --key"),
        }
    }

    /// Reads the pool's key if its file has appeared since the start.
    fn look_for_key(&self) {
        let Some(awaited) = &self.keys.awaited else { return };
        match awaited.look() {
            Some(Ok(())) => {
                tracing::info!(file = %awaited.path().display(), "the pool's key is there now");
            }
            Some(Err(error))
                if self.complaints.pass(self.started.elapsed().as_secs()).is_some() =>
            {
                tracing::warn!(%error, "the pool's key cannot be used");
            }
            _ => {}
        }
    }

    fn meet_client(self: &Arc<Self>, accepted: Accepted) -> Result<(), LinkError> {
        let arrival = self.workers().arrive(accepted, Instant::now());
        match arrival {
            Arrival::Served(matched) => {
                let handed = self.hand(matched);
                self.wake();
                handed
            }
            Arrival::InLine => {
                self.wake();
                Ok(())
            }
            Arrival::Gone => Err(LinkError::Closed),
            Arrival::Refused(client, verdict) => client.finish(verdict).map(drop),
            Arrival::Drained(client) => {
                self.refuse_drained(client);
                Ok(())
            }
            Arrival::OverLimit(client, refusal) => Err(client.refuse_for(&refusal.to_string())),
        }
    }

    /// Hands a client to its worker.
    pub(crate) fn hand(self: &Arc<Self>, matched: Match) -> Result<(), LinkError> {
        let Match { client, worker, control, turn, part, loans, terms } = matched;
        let (features, peer) = (client.features, client.peer().to_owned());
        let reach = self.reach_for(&client, &control);
        let devices = devices_of(&client);
        // The daemon's own user, and root, can send its descriptors without a worker.
        let sends_descriptors = client.user().is_some_and(|user| user == self.user() || user == 0);
        // If this fails, the worker sees the hang-up and ends.
        let stream = self.last_verdict(&client).and_then(|verdict| client.finish(verdict));
        let handed = stream.and_then(|stream| {
            if let Some(part) = part {
                let message = ToWorker::Part { place: part.place() };
                control.send(&message, Some(part.open()?.as_fd()))?;
            }
            let (note, terms) = (stream.note()?.into(), *terms);
            let doing = "watching a client";
            let watched = stream.as_fd().try_clone_to_owned();
            let watched = watched.map_err(|source| LinkError::System { doing, source })?;
            let message = ToWorker::Client {
                features,
                turn,
                reach,
                stream: note,
                loans,
                terms,
                devices,
                sends_descriptors,
            };
            // Under the lock, so that the session does not end before it is known to have begun.
            let mut workers = self.workers();
            workers.watch_client(worker, watched);
            control.send(&message, Some(stream.as_fd()))?;
            workers.note_begun(worker);
            Ok(())
        });
        if handed.is_ok() {
            tracing::info!(client = %peer, "session");
        } else {
            // No client will come. Closing its control socket tells the worker.
            _ = rustix::net::shutdown(&*control, Shutdown::Both);
        }
        handed
    }

    /// Returns the verdict for a client that has a worker. Its key may have been revoked while it
    /// waited in line. From now on [`Daemon::end_revoked`] sees its session.
    fn last_verdict(&self, client: &Accepted) -> Result<Verdict, LinkError> {
        let (Some(encryption), Some(known)) = (&self.keys.encryption, &client.client) else {
            return Ok(Verdict::Welcome);
        };
        let Some(key) = known.lasting_key() else { return Ok(Verdict::Welcome) };
        let is_revoked = encryption.is_revoked(&key)?;
        Ok(if is_revoked { Verdict::Revoked } else { Verdict::Welcome })
    }

    fn meet_peer(&self, accepted: Accepted) -> Result<(), LinkError> {
        let ticket = accepted.ticket;
        let node = accepted.client.as_ref().and_then(|known| known.lasting_key());
        // A ticket is good once, whatever happens next.
        let redeemed = self.workers().redeem(&ticket);
        let Some(Signs { worker, control, .. }) = redeemed else {
            return accepted.finish(Verdict::WrongTicket).map(drop);
        };
        if !self.note_node(worker, node) {
            return accepted.finish(Verdict::Full).map(drop);
        }
        let stream = accepted.finish(Verdict::Welcome)?;
        self.workers().learn_machine(worker, &stream);
        let key = node.map(|node| *node.as_bytes());
        let message = ToWorker::Peer { ticket, node: key, stream: stream.note()?.into() };
        control.send(&message, Some(stream.as_fd()))?;
        self.end_if_revoked(node);
        Ok(())
    }

    /// Sends the node's description, as soon as the first worker has found it out. Refuses a user
    /// who may have no further session.
    fn tell_node(&self, accepted: Accepted) -> Result<(), LinkError> {
        let waiting = Waiting::begin(&self.surveys);
        let note_every = Duration::from_millis(LINE_NOTE_MS);
        let mut workers = self.workers();
        let (user, mut refuse_at) = (user_of(&accepted), None);
        let survey = loop {
            if workers.draining {
                drop(workers);
                self.refuse_drained(accepted);
                return Ok(());
            }
            // A client that came now would wait and be refused, so the tool learns of no node.
            let overdue = workers.quota.overdue(&user, &mut refuse_at, Instant::now());
            if let Some(refusal) = overdue {
                drop(workers);
                return Err(accepted.refuse_for(&refusal.to_string()));
            }
            if refuse_at.is_none()
                && let Some(node) = workers.description()
            {
                let node = match devices_of(&accepted) {
                    Some(devices) => only(node, &devices),
                    None => node,
                };
                break Survey { node, problem: workers.problem.clone() };
            }
            let refusal = if workers.is_hopeless() {
                Some(workers.why_hopeless())
            } else {
                waiting.refusal()
            };
            if let Some(verdict) = refusal {
                drop(workers);
                return accepted.finish(verdict).map(drop);
            }
            accepted.tell_in_line(0)?;
            workers = self.changed.wait_timeout(workers, note_every).0;
        };
        drop(workers);
        let deadline = Instant::now() + Duration::from_millis(HELLO_MS_MAX);
        let stream = accepted.finish(Verdict::Welcome)?;
        let bytes = frame::encode(&survey);
        // Not longer than the description that a client gets, plus a sentence.
        let length = u32::try_from(bytes.len()).unwrap_or_default();
        stream.write_all_until(&length.to_le_bytes(), deadline)?;
        stream.write_all_until(&bytes, deadline)
    }

    fn tell_status(&self, accepted: Accepted, deadline: Instant) -> Result<(), LinkError> {
        let asker = accepted.credentials.as_ref().map(|asker| asker.uid);
        let stream = accepted.finish(Verdict::Welcome)?;
        let text = self.status(asker).to_string();
        let length = u32::try_from(text.len()).unwrap_or_default();
        stream.write_all_until(&length.to_le_bytes(), deadline)?;
        stream.write_all_until(text.as_bytes(), deadline)
    }

    /// Logs that a connection found no descriptor or thread, unless there are too many such lines.
    pub(crate) fn note_dropped(&self, why: &io::Error) {
        if let Some(suppressed) = self.refusal_lines.pass(self.started.elapsed().as_secs()) {
            tracing::warn!(error = %why, suppressed, "a connection was dropped");
        }
    }

    /// Logs that no node of the pool answers at an address, unless there are too many such lines.
    pub(crate) fn note_unreached(&self, worker: u32, address: &str, error: &LinkError) {
        if let Some(suppressed) = self.refusal_lines.pass(self.started.elapsed().as_secs()) {
            tracing::warn!(worker, address, %error, suppressed, "no connection for a worker");
        }
    }

    /// Counts a refusal, and logs it unless there are too many such lines.
    pub(crate) fn note_refusal(&self, peer: &str, reason: Reason, why: &dyn fmt::Display) {
        self.refused.count(reason);
        if let Some(suppressed) = self.refusal_lines.pass(self.started.elapsed().as_secs()) {
            tracing::warn!(peer, %why, suppressed, "refused");
        }
    }
}

/// A tool that waits, counted in `count`.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the verdict for a tool beyond the limit.
    fn refusal(&self) -> Option<Verdict> {
        (self.before >= SURVEYS_WAITING_MAX).then_some(Verdict::Full)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the numbers of the devices that a client may use; `None` for all.
fn devices_of(client: &Accepted) -> Option<Vec<u32>> {
    client.client.as_ref()?.devices().map(<[u32]>::to_vec)
}
