//! The proxy thread. It carries what kernels write into their rings to other members, and what
//! those send into the parts.
//!
//! While kernels of the heap run, the thread looks without sleeping and yields between two looks,
//! so that it shares a core in turns with a waiting kernel. After some idle time it naps. While no
//! kernel runs it sleeps.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_link::spawn_quiet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::carrier::{Carrier, CarrierError};
use super::input::{Input, PeerMessage};
use super::output::{OutFrame, Output, PartBytes, TakenEntry};
use super::request::{PutTarget, RingRequest, read_entry};
use super::ring::Reader;
use crate::error::HeapError;
use crate::frame::Frame;
use crate::layout::{PES_MAX, RING_ENTRIES};
use crate::segment::MappedView;
use crate::state::MemberState;

/// Stack of the thread in bytes; the thread mostly makes system calls.
const STACK_BYTES: usize = 256 << 10;

/// Time after the last event during which the thread looks without sleeping: the steps of
/// communicating programs are shorter.
const LOOK_FOR: Duration = Duration::from_millis(2);
/// Nap between two later looks while kernels run. 50 µs and as much slack of the system cost 3 % of
/// a core, and a message after a long silence waits no longer.
const NAP: Duration = Duration::from_micros(50);
/// Interval of the checks whether TCP peers still answer.
const VANISHED_EVERY: Duration = Duration::from_millis(1_000);

/// Time that a leaving member waits for its last bytes, for all carriers together. The others'
/// kernels must end within a second after it has gone.
const FINISH_FOR: Duration = Duration::from_millis(200);

/// Number of entries taken from one ring in one turn, before the sockets' turn.
const TURN_ENTRIES_MAX: usize = 64;

/// Maximum number of pending questions of kernels for arrival, over all rings. Then the rings wait.
const QUIETS_MAX: usize = RING_ENTRIES;

/// Starts the thread over the carriers to the members that share no memory with this one.
pub(crate) fn start(
    state: Arc<MemberState>,
    carriers: Vec<(u32, Box<dyn Carrier>)>,
) -> Result<JoinHandle<()>, HeapError> {
    let running = Running::new(state.clone());
    let mut proxy = Proxy::new(state, carriers);
    let thread = spawn_quiet("ggas-proxy", STACK_BYTES, move || {
        proxy.run();
        drop(running);
    });
    thread.map_err(HeapError::system("starting a thread"))
}

/// Tells the host that a proxy runs, until it is dropped: at the proxy's end, or at once if its
/// thread cannot be started.
struct Running(Arc<MemberState>);

impl Running {
    fn new(state: Arc<MemberState>) -> Self {
        state.settle.proxy_started();
        Self(state)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.settle.proxy_ended();
    }
}

struct Proxy {
    state: Arc<MemberState>,
    peers: Vec<ProxyPeer>,
    /// Index of the peer that holds each PE.
    peer_of_pe: [Option<u8>; PES_MAX as usize],
    rings: Vec<Ring>,
    pending_quiets: Vec<PendingQuiet>,
    /// Generation whose abort the other members know.
    told: Option<u64>,
}

/// State of the connection to another member.
struct ProxyPeer {
    member: u32,
    carrier: Box<dyn Carrier>,
    output: Output,
    input: Input,
    /// Our last mark. Frames sent since then have no mark yet.
    asked: u64,
    /// The last mark that came back.
    answered: u64,
    /// Whether frames were sent since the last mark.
    sent: bool,
    /// Mark of the peer that we must return.
    owes: Option<u64>,
    is_gone: bool,
}

/// The ring of one of this member's PEs.
struct Ring {
    view: MappedView,
    reader: Reader,
}

/// Request to be told when all bytes have arrived.
struct PendingQuiet {
    /// Requester: a kernel (its ring and position), or the host (its request).
    requester: QuietRequester,
    /// Marks that the peers must have answered, in the order of the peers.
    marks: Vec<u64>,
}

enum QuietRequester {
    Kernel(TakenEntry),
    Host(u64),
}

impl ProxyPeer {
    fn new(member: u32, carrier: Box<dyn Carrier>) -> Self {
        Self {
            member,
            carrier,
            output: Output::default(),
            input: Input::new(),
            asked: 0,
            answered: 0,
            sent: false,
            owes: None,
            is_gone: false,
        }
    }

    /// Returns a mark behind all frames sent so far.
    fn mark(&mut self) -> u64 {
        if self.sent && !self.is_gone {
            self.sent = false;
            self.asked += 1;
            self.output.push(OutFrame::bare(&Frame::Flush { mark: self.asked }));
        }
        self.asked
    }

    fn has(&self, mark: u64) -> bool {
        self.is_gone || self.answered >= mark
    }
}

impl Proxy {
    fn new(state: Arc<MemberState>, carriers: Vec<(u32, Box<dyn Carrier>)>) -> Self {
        let peers: Vec<ProxyPeer> =
            carriers.into_iter().map(|(member, carrier)| ProxyPeer::new(member, carrier)).collect();
        let mut peer_of_pe = [None; PES_MAX as usize];
        for (way, member) in peer_of_pe.iter_mut().zip(&state.plan.members) {
            let peer = peers.iter().position(|peer| peer.member == *member);
            *way = peer.and_then(|peer| u8::try_from(peer).ok());
        }
        let ring = |view: &MappedView| Ring {
            view: view.clone(),
            reader: Reader::new(RING_ENTRIES as u64),
        };
        let rings = state.views().iter().map(ring).collect();
        Self { state, peers, peer_of_pe, rings, pending_quiets: Vec::new(), told: None }
    }

    fn run(&mut self) {
        let mut last = Instant::now();
        let mut vanished = last;
        loop {
            // Cleared before the looks: a thread that launches or closes sets its flag and then
            // rings. If a flag were read first, this thread could clear the ring of a launch that
            // it does not know of, and would sleep until somebody else rings.
            self.state.proxy.clear_if_rung();
            // Read before the rings of the PEs, so that what a kernel wrote before its launch ended
            // is found.
            let running = self.state.is_running();
            if self.state.is_closing() {
                break;
            }
            let mut busy = self.turn();
            busy |= self.settle(busy);
            self.tell();
            if busy {
                last = Instant::now();
                continue;
            }
            let now = Instant::now();
            if now.duration_since(vanished) >= VANISHED_EVERY {
                vanished = now;
                self.look_for_vanished();
            }
            if running && now.duration_since(last) < LOOK_FOR {
                std::thread::yield_now();
            } else if self.sleep(running).is_err() {
                self.state.end("the system does not let this member watch the others");
                return;
            }
        }
        self.tell();
        for peer in 0..self.peers.len() {
            self.send(peer);
        }
        let until = Instant::now() + FINISH_FOR;
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_gone) {
            peer.carrier.finish(until);
        }
    }

    /// Does the pending work. Returns `false` if there was none.
    fn turn(&mut self) -> bool {
        let mut any = false;
        for ring in 0..self.rings.len() {
            any |= self.take(ring);
        }
        for peer in 0..self.peers.len() {
            any |= self.send(peer);
            any |= self.receive(peer);
        }
        any | self.answer()
    }

    fn take(&mut self, index: usize) -> bool {
        let mut any = false;
        for _ in 0..TURN_ENTRIES_MAX {
            let Some(ring) = self.rings.get_mut(index) else { return any };
            let view = ring.view.clone();
            let Some(entry) = view.head().ring.get(ring.reader.index()) else { return any };
            let Some(position) = ring.reader.filled(&entry.sequence) else { return any };
            let taken = TakenEntry { ring: index, position };
            let Some(request) = read_entry(entry, self.state.part_bytes()) else {
                self.refuse(taken);
                return true;
            };
            if !self.carry(taken, view.pe, &request) {
                return any;
            }
            any = true;
        }
        any
    }

    /// Hands an entry on. Returns `false` if there is no room for it now.
    fn carry(&mut self, taken: TakenEntry, from: u32, request: &RingRequest) -> bool {
        let (to, body) = match request {
            RingRequest::Quiet => {
                if self.pending_quiets.len() >= QUIETS_MAX {
                    return false;
                }
                self.give_back(taken);
                self.ask(QuietRequester::Kernel(taken));
                self.step(taken.ring);
                return true;
            }
            RingRequest::Put { to, source_at } => (to, Err(*source_at)),
            RingRequest::Store { to, bytes } => (to, Ok(*bytes)),
        };
        let way = self.peer_of_pe.get(usize::from(to.pe)).copied().flatten();
        let Some(peer) = way.and_then(|way| self.peers.get_mut(usize::from(way))) else {
            self.refuse(taken);
            return true;
        };
        if !peer.output.has_room() {
            return false;
        }
        let &PutTarget { pe, at, length, signal_at, signal } = to;
        let frame = Frame::Put { pe, at, length, signal_at, signal };
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let out = match body {
            Ok(value) => Some(OutFrame::value(&frame, value, bytes, taken)),
            Err(at) => self.state.parts.place(from, at, length).map(|place| {
                // SAFETY: `bytes` bytes of an own part lie there, mapped as long as the state,
                // which this value holds.
                OutFrame::part(&frame, unsafe { PartBytes::new(place, bytes) }, taken)
            }),
        };
        match out {
            // The heap has already failed, as will all waiting kernels.
            Some(_) if peer.is_gone => self.give_back(taken),
            Some(out) => {
                peer.output.push(out);
                peer.sent = true;
            }
            None => {
                self.refuse(taken);
                return true;
            }
        }
        self.step(taken.ring);
        true
    }

    fn step(&mut self, ring: usize) {
        if let Some(ring) = self.rings.get_mut(ring) {
            ring.reader.step();
        }
    }

    /// Ends the heap because of an entry that no verb writes: the kernel is defective or hostile.
    fn refuse(&mut self, taken: TakenEntry) {
        if let Some(ring) = self.rings.get(taken.ring) {
            let reason = format!(
                "PE {} asked its proxy for bytes outside of the heap, or for a PE that it does not \
                 serve",
                ring.view.pe
            );
            self.state.abort(&reason);
        }
        self.give_back(taken);
        self.step(taken.ring);
    }

    fn give_back(&self, taken: TakenEntry) {
        give_back(&self.rings, taken);
    }

    fn send(&mut self, index: usize) -> bool {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.is_gone) else {
            return false;
        };
        if let Some(mark) = peer.owes.take_if(|_| peer.output.has_room()) {
            peer.output.push(OutFrame::bare(&Frame::Done { mark }));
        }
        if peer.output.is_empty() {
            return false;
        }
        let rings = &self.rings;
        match peer.output.send(&mut *peer.carrier, &mut |taken| give_back(rings, taken)) {
            Ok(any) => any,
            // What the peer sent earlier may still be there to be received, and its end after that.
            Err(_) => {
                peer.output.drop_all(&mut |taken| give_back(rings, taken));
                false
            }
        }
    }

    fn receive(&mut self, index: usize) -> bool {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.is_gone) else {
            return false;
        };
        let (mut owes, mut answered, mut aborts) = (None, None, Vec::new());
        let received = peer.input.receive(
            &mut *peer.carrier,
            &self.state.parts,
            self.state.part_bytes(),
            &mut |message| match message {
                PeerMessage::Flush(mark) => owes = Some(mark),
                PeerMessage::Done(mark) => answered = Some(mark),
                PeerMessage::Abort(note) => aborts.push(note),
            },
        );
        // Everything before the last mark is done as well.
        peer.owes = owes.or(peer.owes);
        let answered = answered.unwrap_or(peer.answered);
        let (asked, member) = (peer.asked, peer.member);
        peer.answered = answered.min(asked);
        for note in &aborts {
            self.state.receive_note(note);
        }
        match received {
            Ok(any) => any,
            Err(broken) => {
                self.lose(index);
                let what = match broken {
                    CarrierError::Closed => "has ended or left",
                    CarrierError::Protocol => "sent bytes that do not belong to the heap",
                };
                self.state.end(&format!("member {member} {what}"));
                true
            }
        }
    }

    fn lose(&mut self, index: usize) {
        let rings = &self.rings;
        if let Some(peer) = self.peers.get_mut(index) {
            peer.is_gone = true;
            peer.carrier.end();
            peer.output.drop_all(&mut |taken| give_back(rings, taken));
        }
    }

    /// Records a requester that wants to know when everything sent so far has arrived.
    fn ask(&mut self, requester: QuietRequester) {
        let marks = self.peers.iter_mut().map(ProxyPeer::mark).collect();
        self.pending_quiets.push(PendingQuiet { requester, marks });
    }

    /// Answers the requesters whose frames have arrived, in order: later requests of the same ring
    /// are complete after earlier ones.
    fn answer(&mut self) -> bool {
        let mut any = false;
        while let Some(first) = self.pending_quiets.first() {
            if !self.peers.iter().zip(&first.marks).all(|(peer, mark)| peer.has(*mark)) {
                break;
            }
            match self.pending_quiets.remove(0).requester {
                // After the loss of a member the abort ends the kernel.
                QuietRequester::Kernel(_) if self.peers.iter().any(|peer| peer.is_gone) => {}
                QuietRequester::Kernel(TakenEntry { ring, position }) => {
                    if let Some(ring) = self.rings.get(ring) {
                        let done = &ring.view.head().done.0;
                        done.store(position + 1, std::sync::atomic::Ordering::Release);
                    }
                }
                QuietRequester::Host(request) => self.state.settle.answer(request),
            }
            any = true;
        }
        any
    }

    /// Takes the host's request to be told when everything has arrived, once the rings are empty.
    fn settle(&mut self, busy: bool) -> bool {
        if busy || self.peers.iter().any(|peer| !peer.is_gone && !peer.output.is_empty()) {
            return false;
        }
        let Some(request) = self.state.settle.next_request() else { return false };
        self.ask(QuietRequester::Host(request));
        true
    }

    /// Tells the others of an abort, once.
    fn tell(&mut self) {
        let Some(note) = self.state.note_for_others(self.told) else { return };
        self.told = Some(note.generation);
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_gone) {
            let (frame, text) = Frame::abort(note.generation, note.is_final, &note.reason);
            peer.output.push(OutFrame::note(&frame, text));
        }
    }

    fn look_for_vanished(&mut self) {
        for index in 0..self.peers.len() {
            let Some(peer) =
                self.peers.get(index).filter(|peer| !peer.is_gone && peer.carrier.vanished())
            else {
                continue;
            };
            let reason = format!("member {} does not answer any more", peer.member);
            self.lose(index);
            self.state.end(&reason);
        }
    }

    fn sleep(&mut self, running: bool) -> Result<(), Errno> {
        let waits = self.peers.iter().any(|peer| !peer.output.is_empty())
            || !self.pending_quiets.is_empty();
        let mut fds = vec![PollFd::from_borrowed_fd(self.state.proxy.as_fd(), PollFlags::IN)];
        let mut wakes = true;
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_gone) {
            wakes &= peer.carrier.watch(!peer.output.is_empty(), &mut fds);
        }
        let limit = if running || !wakes {
            Some(NAP)
        } else if waits {
            Some(VANISHED_EVERY)
        } else {
            None
        };
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or_default(),
            tv_nsec: limit.subsec_nanos().into(),
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn give_back(rings: &[Ring], TakenEntry { ring, position }: TakenEntry) {
    let Some(ring) = rings.get(ring) else { return };
    let at = usize::try_from(position % RING_ENTRIES as u64).unwrap_or_default();
    if let Some(entry) = ring.view.head().ring.get(at) {
        ring.reader.free(&entry.sequence, position);
    }
}
