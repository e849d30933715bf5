//! Runs in which something goes wrong on purpose: ranks that a test ends, ranks that a test plays,
//! and a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use penstock_process::Lock;
use water::backend::Backend;
use water::clock::{Clock, Real};
use water::command::{Job, Rank, Stream};
use water::doorbell::Doorbell;
use water::message::{Message, VERSION, decode, encode};
use water::runtime::Runtime;
use water::transport::loopback::Loopback;
use water::transport::{Span, Token, Transport, TransportEvent};

use super::Host;

/// A transport that can be cut, as if the process of its rank had ended.
#[derive(Debug)]
struct Mortal {
    rank: Rank,
    size: u32,
    /// `None` once it is cut: then nobody uses memory of this rank any more.
    inner: Option<Loopback>,
    dead: Arc<AtomicBool>,
    bell: Arc<Lock<Doorbell>>,
}

impl Transport for Mortal {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn control(&mut self, to: Rank, bytes: Vec<u8>) {
        if let Some(inner) = &mut self.inner {
            inner.control(to, bytes);
        }
    }

    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token) {
        if let Some(inner) = &mut self.inner {
            // SAFETY: the caller guarantees it.
            unsafe { inner.send(to, stream, span, token) };
        }
    }

    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token) {
        if let Some(inner) = &mut self.inner {
            // SAFETY: the caller guarantees it.
            unsafe { inner.receive(from, stream, span, token) };
        }
    }

    fn poll(&mut self, events: &mut Vec<TransportEvent>) {
        if let Some(inner) = &mut self.inner {
            inner.poll(events);
        }
        // Behind the look at the messages: what came after the rank's end is not served.
        if self.dead.load(Ordering::SeqCst) {
            self.inner = None;
            events.clear();
            // The rank ends like one that has lost its root.
            events.push(TransportEvent::Lost(0, "the test ends this rank".into()));
        }
    }

    fn give_up(&mut self, rank: Rank, reason: &str) {
        if let Some(inner) = &mut self.inner {
            inner.give_up(rank, reason);
        }
    }

    fn needs_polling(&self) -> bool {
        false
    }

    fn wake_with(&mut self, wake: Doorbell) {
        *self.bell.lock() = wake.clone();
        if let Some(inner) = &mut self.inner {
            inner.wake_with(wake);
        }
    }
}

/// A rank that can be ended.
struct DoomedRank {
    /// Tells the rank that it is dead.
    dead: Arc<AtomicBool>,
    /// Wakes the rank.
    bell: Arc<Lock<Doorbell>>,
    thread: JoinHandle<()>,
}

/// Ranks that can each be ended.
pub struct Doomed {
    runtime: Option<Runtime>,
    ranks: Vec<DoomedRank>,
}

impl Doomed {
    pub fn new(count: u32) -> Self {
        Self::with_clock(count, Arc::new(Real::new()))
    }

    pub fn with_clock(count: u32, clock: Arc<dyn Clock>) -> Self {
        let mut ends = Loopback::ranks(count).into_iter();
        let root = ends.next().unwrap();
        let ranks = ends
            .map(|inner| {
                let (dead, bell) =
                    (Arc::new(AtomicBool::new(false)), Arc::new(Lock::new(Doorbell::default())));
                let (rank, size) = (inner.rank(), inner.size());
                let inner = Some(inner);
                let end =
                    Mortal { rank, size, inner, dead: Arc::clone(&dead), bell: Arc::clone(&bell) };
                let clock = Arc::clone(&clock);
                let serve = move || Runtime::serve(Box::new(end), Box::new(Host::new(1)), clock);
                DoomedRank { dead, bell, thread: std::thread::spawn(serve) }
            })
            .collect();
        let devices: Box<dyn Backend> = Box::new(Host::new(1));
        let runtime = Runtime::root(Box::new(root), devices, clock, true).unwrap();
        Self { runtime: Some(runtime), ranks }
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    /// Ends a rank, as if its process had ended.
    pub fn end(&self, rank: usize) {
        let DoomedRank { dead, bell, .. } = &self.ranks[rank - 1];
        dead.store(true, Ordering::SeqCst);
        bell.lock().ring();
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.runtime.take().unwrap().end();
        for rank in self.ranks.drain(..) {
            rank.thread.join().unwrap();
        }
    }
}

/// A clock that stands still, so that nothing ever becomes due.
#[derive(Debug)]
pub struct Still;

impl Clock for Still {
    fn now(&self) -> u64 {
        1
    }

    fn sleep(&self, _: u64) {}
}

/// Rank 1 of a run of two, played by a test.
pub struct Played {
    pub end: Loopback,
    bell: Doorbell,
}

impl Played {
    /// Says hello to the root.
    pub fn new(mut end: Loopback) -> Self {
        let bell = Doorbell::default();
        end.wake_with(bell.clone());
        let hello =
            Message::Hello { version: VERSION, hostname: "played".into(), devices: Vec::new() };
        end.control(0, encode(&[hello]));
        Self { end, bell }
    }

    /// Waits for the first event for which `find` returns something.
    pub fn await_first<T>(&mut self, find: impl Fn(&TransportEvent) -> Option<T>) -> T {
        loop {
            let mut events = Vec::new();
            self.end.poll(&mut events);
            if let Some(found) = events.iter().find_map(&find) {
                return found;
            }
            self.bell.wait(None);
        }
    }

    /// Waits for the next jobs.
    pub fn jobs(&mut self) -> Vec<Job> {
        self.await_first(|event| {
            let TransportEvent::Control(from, bytes) = event else { return None };
            decode(*from, bytes).unwrap().into_iter().find_map(|message| {
                if let Message::Jobs(jobs) = message { Some(jobs) } else { None }
            })
        })
    }
}
