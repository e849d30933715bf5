//! Connections whose hello is incomplete.
//!
//! A connection that has said nothing has no thread. It waits in an epoll set until its first
//! bytes come or its time is over. So a flood of silent connections costs the daemon about ten
//! system calls for each, and the system's queue of connections that nobody has accepted stays
//! short. In a full queue the system drops the connections of honest clients, too, and they try
//! again after one second, three seconds and seven seconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use penstock_link::Stream;
use penstock_process::Lock;
use penstock_wire::limits::PENDING_HELLOS_MAX;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::admission::Admission;
use crate::sys::timespec;

/// Number of events that one wait takes.
const EVENTS_PER_WAIT: usize = 64;

/// Number of connections that are asked whether they have hung up, before one that has not gives
/// way. This costs a new connection a few microseconds.
const SWEPT_AT_ONCE: usize = 32;

/// Stands for the eventfd in the epoll set. Connections are counted from 0.
const WAKE: u64 = u64::MAX;

/// The kind of keys that let a connection in at a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Users that the kernel names, and those with a key of the pool or in the list.
    Usual,
    /// Clients with one-time keys, and nobody else.
    WithKey,
}

/// A connection that has spoken, or whose time is over.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) id: u64,
    pub(crate) stream: Stream,
    pub(crate) entry: Entry,
    /// The hello must be complete by then.
    pub(crate) deadline: Instant,
}

/// What holds the place of a connection.
#[derive(Debug)]
enum Held {
    /// Nothing has come from it.
    Silent { stream: Stream, entry: Entry, deadline: Instant },
    /// A thread hears its hello. This descriptor hangs up.
    Heard(OwnedFd),
}

impl Held {
    fn close(self) {
        if let Self::Heard(connection) = self {
            // Wakes the thread that hears the hello.
            _ = rustix::net::shutdown(connection, Shutdown::Both);
        }
    }
}

/// Connections whose hellos are incomplete.
#[derive(Debug)]
pub(crate) struct Hellos {
    places: Lock<Places>,
    /// Has the silent connections and `wake`.
    events: OwnedFd,
    /// Wakes the thread that waits.
    wake: OwnedFd,
}

#[derive(Debug)]
struct Places {
    admission: Admission<Held>,
    /// Whether the thread that waits wakes up when the time of a connection is over.
    is_timed: bool,
    is_ended: bool,
}

impl Hellos {
    pub(crate) fn create() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&events, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let admission = Admission::new(PENDING_HELLOS_MAX);
        let places = Lock::new(Places { admission, is_timed: false, is_ended: false });
        Ok(Self { places, events, wake })
    }

    /// Gives a place to a connection that was just accepted. If there are too many, closes another
    /// one.
    ///
    /// # Errors
    /// Fails if the system cannot watch the connection, which is then closed.
    pub(crate) fn begin(&self, stream: Stream, entry: Entry, deadline: Instant) -> io::Result<()> {
        let (source, may_be_strange) = (stream.source(), stream.needs_key());
        let mut places = self.places.lock();
        if places.admission.is_full() {
            places.sweep();
        }
        let held = Held::Silent { stream, entry, deadline };
        let admitted = places.admission.arrive(source, may_be_strange, held);
        let watched = self.watch(&mut places, admitted.id);
        if watched.is_err() {
            places.admission.leave(admitted.id);
        }
        let is_timed = places.is_timed;
        drop(places);
        if let Some(held) = admitted.gives_way {
            held.close();
        }
        if !is_timed {
            self.wake();
        }
        Ok(watched?)
    }

    fn watch(&self, places: &mut Places, id: u64) -> rustix::io::Result<()> {
        let Some(Held::Silent { stream, .. }) = places.admission.handle(id) else { return Ok(()) };
        // Once is enough, and a connection that gave way cannot come again and again.
        let events = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&self.events, stream, epoll::EventData::new_u64(id), events)
    }

    /// Returns whether no hello is incomplete.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.lock().admission.is_empty()
    }

    /// Removes a connection whose hello is complete or has failed. It may live on elsewhere.
    pub(crate) fn end_one(&self, id: u64) {
        self.places.lock().admission.leave(id);
    }

    /// Closes all connections whose hello is incomplete, and ends [`Hellos::wait`].
    pub(crate) fn end(&self) {
        let mut places = self.places.lock();
        places.is_ended = true;
        places.admission.end().for_each(Held::close);
        drop(places);
        self.wake();
    }

    fn wake(&self) {
        // If the counter is full, the eventfd is readable already.
        _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits for connections that have spoken or whose time is over. Returns `None` after the end.
    ///
    /// # Errors
    /// Fails if the system cannot wait. A connection for which it has no descriptor is closed.
    pub(crate) fn wait(&self) -> io::Result<Option<Vec<io::Result<Arrived>>>> {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let timeout = self.places.lock().time_left(Instant::now()).map(timespec);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.events, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ids: Vec<u64> = events.iter().map(|event| event.data.u64()).collect();
        if ids.contains(&WAKE) {
            // Reading empties the counter.
            _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
        let mut places = self.places.lock();
        if places.is_ended {
            return Ok(None);
        }
        ids.extend(places.overdue(Instant::now()));
        Ok(Some(ids.into_iter().filter_map(|id| self.take(&mut places, id)).collect()))
    }

    /// Takes a silent connection out of the set. Its place stays taken. Returns `None` if it gave
    /// way in the meantime, or was taken already.
    fn take(&self, places: &mut Places, id: u64) -> Option<io::Result<Arrived>> {
        let held = places.admission.handle(id)?;
        let Held::Silent { stream, .. } = &*held else { return None };
        // The hello cannot become complete any more, because the peer must answer.
        if stream.has_hung_up() {
            places.admission.leave(id);
            return Some(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        // The connection may live on in another process, and would stay in the set.
        let hang_up = epoll::delete(&self.events, stream)
            .and_then(|()| rustix::io::fcntl_dupfd_cloexec(stream, 0));
        match hang_up.map(|hang_up| std::mem::replace(held, Held::Heard(hang_up))) {
            Ok(Held::Silent { stream, entry, deadline }) => {
                Some(Ok(Arrived { id, stream, entry, deadline }))
            }
            Ok(Held::Heard(_)) => None,
            Err(error) => {
                places.admission.leave(id);
                Some(Err(error.into()))
            }
        }
    }
}

/// Returns for each connection what [`Stream::has_hung_up`] returns, with one system call.
fn have_hung_up(streams: &[&Stream]) -> Vec<bool> {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut fds: Vec<_> = streams.iter().map(|it| PollFd::new(*it, PollFlags::RDHUP)).collect();
    // If this fails, no end is seen.
    _ = poll(&mut fds, Some(&timespec(Duration::ZERO)));
    fds.iter().map(|fd| fd.revents().intersects(ends)).collect()
}

impl Places {
    fn silent(&self) -> impl Iterator<Item = (u64, Instant)> + '_ {
        self.admission.handles().filter_map(|(id, held)| match held {
            Held::Silent { deadline, .. } => Some((id, *deadline)),
            Held::Heard(_) => None,
        })
    }

    /// Returns how long a wait may take until the time of a connection is over. Until the next
    /// wait, a new connection needs no wake-up if there was an older one.
    fn time_left(&mut self, now: Instant) -> Option<Duration> {
        let next = self.silent().map(|(_, deadline)| deadline).min();
        self.is_timed = next.is_some();
        next.map(|at| at.saturating_duration_since(now))
    }

    /// Removes those of the oldest silent connections that have hung up.
    fn sweep(&mut self) {
        let silent = self.admission.handles().filter_map(|(id, held)| match held {
            Held::Silent { stream, .. } => Some((id, stream)),
            Held::Heard(_) => None,
        });
        let (ids, streams): (Vec<_>, Vec<_>) = silent.take(SWEPT_AT_ONCE).unzip();
        let ends = have_hung_up(&streams);
        for (id, _) in ids.into_iter().zip(ends).filter(|(_, has_ended)| *has_ended) {
            self.admission.leave(id);
        }
    }

    fn overdue(&self, now: Instant) -> Vec<u64> {
        self.silent().filter(|(_, deadline)| *deadline <= now).map(|(id, _)| id).collect()
    }
}
