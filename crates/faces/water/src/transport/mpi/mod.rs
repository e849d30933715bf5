//! Ranks that are processes of an MPI run.
//!
//! Control messages have tag 0. A probe finds them and tells their lengths, and they are delivered
//! in the order in which a rank sent them. A piece of a stream is one message, with the stream's
//! number as its tag. One call tests everything that is under way. MPI must be polled: it makes no
//! progress by itself, and has no descriptor to sleep on.
//!
//! The last byte of a control message is its `Kind`: a message of the runtime, or one of the
//! transport itself for `Liveness`.

mod liveness;
mod operation;
mod shim;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Span, Token, Transport, TransportEvent};
use crate::clock::Clock;
use crate::command::{Rank, Stream};
use crate::doorbell::Doorbell;
pub use liveness::SILENCE_NS;
use liveness::{Due, Greeting, Identity, Liveness};
use operation::{Arriving, Kind, Operation};
use shim::{End, Failed, Run};
pub use shim::{Shim, Unusable};

/// Tag of control messages. Streams have higher ones.
const CONTROL_TAG: c_int = 0;
/// Number of control messages taken in one poll, so that other work has its turn.
const MESSAGES_PER_POLL: usize = 64;
/// Longest wait for the other ranks at the end, in ns. They were told to end before, and have
/// answered.
const FINISH_NS_MAX: u64 = 10_000_000_000;
/// Nap between two looks at the end, in ns.
const FINISH_NAP_NS: u64 = 200_000;

/// Options of a rank.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether something drives this rank all the time, so that it can promise signs of life. If
    /// not, ranks on other hosts do not notice its end; the launcher has to.
    pub beats: bool,
    /// Silence after which a rank counts as lost, in ns.
    pub silence_ns: u64,
}

/// The transport of one rank.
#[derive(Debug)]
pub struct Mpi {
    /// `None` after MPI has ended.
    run: Option<Run>,
    rank: Rank,
    size: u32,
    tags: u32,
    threads: c_int,
    clock: Arc<dyn Clock>,
    next: u64,
    under_way: FxHashMap<u64, Operation>,
    /// Control messages that are being received, by rank.
    arriving: Vec<VecDeque<Arriving>>,
    /// Why each lost rank was lost.
    lost: Vec<Option<String>>,
    /// `None` in simulated time, where no rank is lost.
    liveness: Option<Liveness>,
    /// Events that happened outside of `poll`.
    news: Vec<TransportEvent>,
    /// Scratch space of `poll`.
    ends: Vec<End>,
}

impl Mpi {
    /// Starts MPI and joins the run. Blocks until all ranks have joined.
    ///
    /// # Errors
    /// MPI does not start.
    pub fn open(
        shim: &'static Shim,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, Unusable> {
        let run = Run::open(shim)?;
        let (rank, size) = (run.rank(), run.ranks());
        let (tags, threads) = (run.tag_max().max(1), run.threads);
        let mut mpi = Self {
            run: Some(run),
            rank,
            size,
            tags,
            threads,
            clock,
            next: 0,
            under_way: FxHashMap::default(),
            arriving: (0..size).map(|_| VecDeque::new()).collect(),
            lost: (0..size).map(|_| None).collect(),
            liveness: None,
            news: Vec::new(),
            ends: Vec::new(),
        };
        if size > 1 && !mpi.clock.is_simulated() {
            mpi.greet(options);
        }
        Ok(mpi)
    }

    /// Does the same with the shim of this file.
    ///
    /// # Errors
    /// The shim cannot be used, or MPI does not start.
    pub fn load(path: &Path, clock: Arc<dyn Clock>, options: Options) -> Result<Self, Unusable> {
        Self::open(Shim::load(path)?, clock, options)
    }

    /// Whether any thread may call MPI, one at a time. If not, only the thread that created this
    /// may.
    pub fn may_change_threads(&self) -> bool {
        self.threads >= shim::SERIALIZED
    }

    /// Returns the name and version of the MPI.
    pub fn library(&self) -> String {
        self.run.as_ref().map(|run| run.shim.library()).unwrap_or_default()
    }

    fn greet(&mut self, options: Options) {
        let own = Greeting { beats: options.beats || self.rank != 0, identity: Identity::own() };
        let neighbours = if self.rank == 0 { 1..self.size } else { 0..1 };
        let liveness = Liveness::new(own, neighbours, options.silence_ns, self.clock.now());
        // Serialising into memory cannot fail: every type here can be serialised.
        let greeting = postcard::to_allocvec(liveness.greeting()).unwrap_or_default();
        let peers = liveness.peers();
        self.liveness = Some(liveness);
        for peer in peers {
            self.say(peer, Kind::Greeting, greeting.clone());
        }
    }

    /// Sends a control message.
    fn say(&mut self, to: Rank, kind: Kind, mut bytes: Vec<u8>) {
        bytes.push(kind as u8);
        let now = self.clock.now();
        if let Some(liveness) = &mut self.liveness {
            liveness.told(to, now);
        }
        let id = self.id();
        let (start, length) = (bytes.as_ptr(), bytes.len());
        self.under_way.insert(id, Operation::Message { to, bytes });
        // SAFETY: the bytes stay in `under_way`, unchanged, until the operation has ended.
        let started = self.start(to, length, |run, count, to| unsafe {
            run.send(start, count, to, CONTROL_TAG, id)
        });
        if let Err(reason) = started {
            self.under_way.remove(&id);
            self.lose(to, &reason);
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Starts one message. MPI counts in `int`, so longer messages are refused; pieces are far
    /// shorter.
    fn start(
        &mut self,
        rank: Rank,
        length: usize,
        start: impl FnOnce(&mut Run, c_int, c_int) -> Result<(), Failed>,
    ) -> Result<(), String> {
        let run = self.run.as_mut().ok_or("MPI has ended")?;
        let count = c_int::try_from(length)
            .map_err(|_| format!("a message of {length} bytes is longer than MPI allows"))?;
        let rank = c_int::try_from(rank).map_err(|_| format!("there is no rank {rank}"))?;
        start(run, count, rank).map_err(|failed| failed.to_string())
    }

    fn is_lost(&self, rank: Rank) -> bool {
        self.lost.get(rank as usize).is_none_or(Option::is_some)
    }

    /// Returns the tag of a stream. If the MPI has fewer tags than there are streams, tags are
    /// reused: see [`Stream`].
    fn tag(&self, stream: Stream) -> c_int {
        c_int::try_from(1 + stream.0 % self.tags).unwrap_or(1)
    }

    /// Treats a rank as lost, and ends everything that concerns it.
    fn lose(&mut self, rank: Rank, reason: &str) {
        if rank == self.rank || self.is_lost(rank) {
            return;
        }
        if let Some(lost) = self.lost.get_mut(rank as usize) {
            *lost = Some(reason.to_owned());
        }
        if let Some(liveness) = &mut self.liveness {
            liveness.forget(rank);
        }
        for (id, operation) in &mut self.under_way {
            match operation {
                Operation::Message { to, bytes } if *to == rank => {
                    *operation = Operation::Orphan { _bytes: std::mem::take(bytes) }
                }
                Operation::Send { to, .. } if *to == rank => {
                    *operation = Operation::Orphan { _bytes: Vec::new() }
                }
                Operation::Receive { from, .. } if *from == rank => {
                    *operation = Operation::Orphan { _bytes: Vec::new() };
                    if let Some(run) = &mut self.run {
                        run.cancel(*id);
                    }
                }
                // Its bytes stay in `arriving`.
                _ => {}
            }
        }
        self.news.push(TransportEvent::Lost(rank, reason.to_owned()));
        self.pass_on(rank, reason);
    }

    /// Spreads the loss of a rank: the root tells all ranks, the others tell the root.
    fn pass_on(&mut self, lost: Rank, reason: &str) {
        let mut notice = lost.to_le_bytes().to_vec();
        notice.extend_from_slice(reason.as_bytes());
        let listeners = if self.rank == 0 { 1..self.size } else { 0..1 };
        for rank in listeners {
            // The lost rank is told as well: if it still lives, it must not go on as if nothing had
            // happened.
            if !self.is_lost(rank) {
                self.say(rank, Kind::Lost, notice.clone());
            } else if rank == lost && self.rank == 0 {
                self.tell_lost(rank, &notice);
            }
        }
    }

    /// Tells a lost rank that it is treated as lost. A failure does not matter.
    fn tell_lost(&mut self, rank: Rank, notice: &[u8]) {
        let mut bytes = notice.to_vec();
        bytes.push(Kind::Lost as u8);
        let id = self.id();
        let (start, length) = (bytes.as_ptr(), bytes.len());
        self.under_way.insert(id, Operation::Orphan { _bytes: bytes });
        // SAFETY: as in `say`.
        let started = self.start(rank, length, |run, count, to| unsafe {
            run.send(start, count, to, CONTROL_TAG, id)
        });
        if started.is_err() {
            self.under_way.remove(&id);
        }
    }

    /// Treats all ranks as lost, because MPI as a whole has failed.
    fn lose_all(&mut self, reason: &str) {
        for rank in 0..self.size {
            self.lose(rank, reason);
        }
    }

    /// Starts to receive the control messages that have come.
    fn take_messages(&mut self) {
        for _ in 0..MESSAGES_PER_POLL {
            let Some(run) = &mut self.run else { return };
            let (source, count) = match run.probe(CONTROL_TAG) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(failed) => return self.lose_all(&failed.to_string()),
            };
            let (Ok(from), Ok(length)) = (Rank::try_from(source), usize::try_from(count)) else {
                return;
            };
            let id = self.id();
            let mut bytes = vec![0; length];
            let start = bytes.as_mut_ptr();
            let Some(queue) = self.arriving.get_mut(from as usize) else { return };
            queue.push_back(Arriving { id, bytes, is_there: false });
            self.under_way.insert(id, Operation::Arriving { from });
            // SAFETY: the room stays in `arriving`, and nobody uses it until the operation has
            // ended.
            let started = self.start(from, length, |run, room, from| unsafe {
                run.receive(start, room, from, CONTROL_TAG, id)
            });
            if let Err(reason) = started {
                self.under_way.remove(&id);
                if let Some(queue) = self.arriving.get_mut(from as usize) {
                    queue.pop_back();
                }
                return self.lose(from, &reason);
            }
        }
    }

    /// Takes in the operations that have ended.
    fn take_ends(&mut self, events: &mut Vec<TransportEvent>) {
        let Some(run) = &mut self.run else { return };
        if run.pending() == 0 {
            return;
        }
        let mut ends = std::mem::take(&mut self.ends);
        if let Err(failed) = run.test(&mut ends) {
            self.lose_all(&failed.to_string());
        }
        for end in ends.drain(..) {
            self.ended(end, events);
        }
        self.ends = ends;
    }

    fn ended(&mut self, end: End, events: &mut Vec<TransportEvent>) {
        let Some(operation) = self.under_way.remove(&end.id) else { return };
        let failed = |mpi: &Self| {
            mpi.run.as_ref().map(|run| run.shim.failed(end.error).to_string()).unwrap_or_default()
        };
        match operation {
            Operation::Message { to, .. }
            | Operation::Send { to, .. }
            | Operation::Arriving { from: to }
            | Operation::Receive { from: to, .. }
                if end.error != 0 =>
            {
                let reason = failed(self);
                self.lose(to, &reason);
            }
            Operation::Message { .. } | Operation::Finish | Operation::Orphan { .. } => {}
            Operation::Arriving { from } => self.arrived(from, end, events),
            Operation::Send { token, .. } => events.push(TransportEvent::Sent(token)),
            Operation::Receive { from, token } => {
                let now = self.clock.now();
                if let Some(liveness) = &mut self.liveness {
                    liveness.heard(from, now);
                }
                events
                    .push(TransportEvent::Received(token, usize::try_from(end.bytes).unwrap_or(0)));
            }
        }
    }

    /// Takes in a control message, and delivers it once all earlier ones have arrived.
    fn arrived(&mut self, from: Rank, end: End, events: &mut Vec<TransportEvent>) {
        let now = self.clock.now();
        if let Some(liveness) = &mut self.liveness {
            liveness.heard(from, now);
        }
        let Some(queue) = self.arriving.get_mut(from as usize) else { return };
        if let Some(arriving) = queue.iter_mut().find(|arriving| arriving.id == end.id) {
            arriving.bytes.truncate(usize::try_from(end.bytes).unwrap_or(0));
            arriving.is_there = true;
        }
        while let Some(queue) = self.arriving.get_mut(from as usize)
            && queue.front().is_some_and(|first| first.is_there)
            && let Some(Arriving { bytes, .. }) = queue.pop_front()
        {
            self.hear(from, bytes, events);
        }
    }

    fn hear(&mut self, from: Rank, mut bytes: Vec<u8>, events: &mut Vec<TransportEvent>) {
        if self.is_lost(from) {
            return;
        }
        match bytes.pop().and_then(Kind::of) {
            Some(Kind::Message) => events.push(TransportEvent::Control(from, bytes)),
            Some(Kind::Beat) => {}
            Some(Kind::Greeting) => {
                if let (Some(liveness), Ok(greeting)) =
                    (&mut self.liveness, postcard::from_bytes::<Greeting>(&bytes))
                {
                    liveness.greeted(from, greeting);
                }
            }
            Some(Kind::Lost) => {
                let Some((lost, reason)) = bytes.split_first_chunk::<4>() else { return };
                let (lost, reason) =
                    (Rank::from_le_bytes(*lost), String::from_utf8_lossy(reason).into_owned());
                if lost == self.rank {
                    self.lose(from, &format!("it treats this rank as lost: {reason}"));
                } else {
                    self.lose(lost, &reason);
                }
            }
            None => self.lose(from, "it sent a message of an unknown kind"),
        }
    }

    /// Sends signs of life, and finds lost ranks.
    fn look_around(&mut self) {
        let now = self.clock.now();
        let Some(liveness) = &mut self.liveness else { return };
        let Some(Due { beats, lost }) = liveness.look(now, Identity::is_there) else { return };
        for (rank, reason) in lost {
            self.lose(rank, &reason);
        }
        for rank in beats {
            if !self.is_lost(rank) {
                self.say(rank, Kind::Beat, Vec::new());
            }
        }
    }

    /// Waits until all ranks have come to their end and nothing is under way. Returns why not, if
    /// they do not.
    fn finish(&mut self) -> Result<(), String> {
        if let Some((rank, reason)) =
            (0..self.size).zip(&self.lost).find_map(|(rank, lost)| Some((rank, lost.as_ref()?)))
        {
            return Err(format!("rank {rank} is lost: {reason}"));
        }
        let id = self.id();
        self.under_way.insert(id, Operation::Finish);
        let run = self.run.as_mut().ok_or("MPI has ended")?;
        run.barrier(id).map_err(|failed| failed.to_string())?;
        let end = self.clock.now().saturating_add(FINISH_NS_MAX);
        let mut ignored = Vec::new();
        while !self.under_way.is_empty() {
            // Other ranks may still be working, so signs of life go on.
            self.take_messages();
            self.take_ends(&mut ignored);
            self.look_around();
            let lost = |event: &TransportEvent| matches!(event, TransportEvent::Lost(..));
            if let Some(TransportEvent::Lost(rank, reason)) =
                self.news.iter().find(|event| lost(event))
            {
                return Err(format!("rank {rank} is lost: {reason}"));
            }
            if self.clock.now() > end {
                let seconds = FINISH_NS_MAX / 1_000_000_000;
                return Err(format!("not all ranks came to the end of the run within {seconds} s"));
            }
            if !self.under_way.is_empty() {
                self.clock.sleep(FINISH_NAP_NS);
            }
        }
        self.take_messages();
        self.take_ends(&mut ignored);
        Ok(())
    }
}

impl Transport for Mpi {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn control(&mut self, to: Rank, bytes: Vec<u8>) {
        debug_assert!(
            to != self.rank && to < self.size,
            "rank {} has nothing to say to rank {to}",
            self.rank
        );
        if !self.is_lost(to) {
            self.say(to, Kind::Message, bytes);
        }
    }

    unsafe fn send(&mut self, to: Rank, stream: Stream, span: Span, token: Token) {
        if self.is_lost(to) {
            // The bytes go nowhere, and may be used again.
            self.news.push(TransportEvent::Sent(token));
            return;
        }
        let (id, tag) = (self.id(), self.tag(stream));
        self.under_way.insert(id, Operation::Send { to, token });
        // SAFETY: the caller guarantees it.
        let started = self.start(to, span.length, |run, count, to| unsafe {
            run.send(span.start, count, to, tag, id)
        });
        if let Err(reason) = started {
            self.under_way.remove(&id);
            self.lose(to, &reason);
        }
    }

    unsafe fn receive(&mut self, from: Rank, stream: Stream, span: Span, token: Token) {
        if let Some(Some(reason)) = self.lost.get(from as usize) {
            self.news.push(TransportEvent::Lost(from, reason.clone()));
            return;
        }
        let (id, tag) = (self.id(), self.tag(stream));
        self.under_way.insert(id, Operation::Receive { from, token });
        // SAFETY: the caller guarantees it.
        let started = self.start(from, span.length, |run, room, from| unsafe {
            run.receive(span.start, room, from, tag, id)
        });
        if let Err(reason) = started {
            self.under_way.remove(&id);
            self.lose(from, &reason);
        }
    }

    fn poll(&mut self, events: &mut Vec<TransportEvent>) {
        if self.size > 1 {
            self.take_messages();
            self.take_ends(events);
            self.look_around();
        }
        events.append(&mut self.news);
    }

    fn give_up(&mut self, rank: Rank, reason: &str) {
        self.lose(rank, reason);
    }

    fn doubt(&mut self, rank: Rank) {
        if let Some(liveness) = &mut self.liveness {
            liveness.doubt(rank);
        }
    }

    fn needs_polling(&self) -> bool {
        self.size > 1
    }

    fn is_quiet(&self) -> bool {
        self.under_way.is_empty()
    }

    fn wake_with(&mut self, _: Doorbell) {}
}

impl Drop for Mpi {
    /// Ends MPI, but only if all ranks come to their end: `MPI_Finalize` would wait for a rank that
    /// never comes.
    fn drop(&mut self) {
        let finished = if std::thread::panicking() {
            Err("this rank has failed".to_owned())
        } else {
            self.finish()
        };
        if let Err(reason) = &finished {
            eprintln!("libwater: rank {} leaves the run without MPI_Finalize: {reason}", self.rank);
        }
        if let Some(run) = self.run.take()
            && let Err(failed) = run.close(finished.is_ok())
        {
            eprintln!("libwater: rank {}: {failed}", self.rank);
        }
        // Memory that MPI may still use must not be freed.
        if finished.is_err() {
            std::mem::forget(std::mem::take(&mut self.under_way));
            std::mem::forget(std::mem::take(&mut self.arriving));
        }
    }
}
