//! The thread that carries what kernels write into their rings to other members, and what those send into the parts.
//!
//! While kernels of the heap run it looks without sleeping, and gives way between two looks; a core that it shares with a kernel
//! that waits is then used by turns. When nothing has happened for a while it naps, and when no kernel runs it sleeps.

mod carrier;
mod input;
mod listener;
mod order;
mod output;
pub mod ring;
mod settled;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_link::spawn_quiet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub(crate) use self::carrier::Carrier;
pub use self::input::Said;
pub(crate) use self::input::{Broken, Input};
pub use self::listener::Listener;
use self::order::{Order, Target};
use self::output::{Bytes, Out, Output};
use self::ring::Reader;
pub(crate) use self::settled::Settled;
use crate::error::HeapError;
use crate::frame::Frame;
use crate::layout::{PES_MAX, RING_ENTRIES};
use crate::segment::Mapped;
use crate::state::State;

/// The thread calls the system and little else.
const STACK_BYTES: usize = 256 << 10;

/// So long after the last thing happened it looks without sleeping: steps of programs that communicate are shorter.
const LOOK_FOR: Duration = Duration::from_millis(2);
/// Then it naps so long between two looks, while kernels run: 50 µs and the system's slack of as much cost 3 % of a core, and a message
/// after a long silence waits no longer.
const NAP: Duration = Duration::from_micros(50);
/// How often it looks whether TCP peers still answer.
const VANISHED_EVERY: Duration = Duration::from_millis(1_000);

/// How long a member that leaves waits for its last bytes, of all its carriers together: the others' kernels are to be out a second
/// after it has gone.
const FINISH_FOR: Duration = Duration::from_millis(200);

/// Entries taken from one ring in one turn: then the sockets have theirs.
const TURN_ENTRIES_MAX: usize = 64;

/// Requests of kernels to be told what has arrived, of all rings: beyond it the rings wait.
const QUIETS_MAX: usize = RING_ENTRIES;

/// Starts it, over what carries its bytes to those members that share no memory with this one.
pub(crate) fn start(
    state: Arc<State>,
    carriers: Vec<(u32, Box<dyn Carrier>)>,
) -> Result<JoinHandle<()>, HeapError> {
    let mut proxy = Proxy::new(state, carriers);
    proxy.state.settled.begin();
    let thread = spawn_quiet("ggas-proxy", STACK_BYTES, move || {
        proxy.run();
        proxy.state.settled.end();
    });
    thread.map_err(HeapError::system("starting a thread"))
}

struct Proxy {
    state: Arc<State>,
    peers: Vec<Peer>,
    /// The peer that holds each PE.
    ways: [Option<u8>; PES_MAX as usize],
    rings: Vec<Ring>,
    quiets: Vec<Quiet>,
    /// The generation whose abort the others know of.
    told: Option<u64>,
}

/// Another member.
struct Peer {
    member: u32,
    carrier: Box<dyn Carrier>,
    output: Output,
    input: Input,
    /// The last mark of ours: frames before it that nobody asked about have a higher one.
    asked: u64,
    /// The last mark that came back.
    answered: u64,
    /// Whether frames were sent since the last mark.
    sent: bool,
    /// A mark of theirs that is to go back.
    owes: Option<u64>,
    gone: bool,
}

/// The ring of an own PE.
struct Ring {
    view: Mapped,
    reader: Reader,
}

/// Somebody who wants to know when all has arrived.
struct Quiet {
    /// A kernel: its ring and position; else the host, with its request.
    who: Who,
    /// What the peers must have answered, in their order.
    marks: Vec<u64>,
}

enum Who {
    Kernel(usize, u64),
    Host(u64),
}

impl Peer {
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
            gone: false,
        }
    }

    /// The mark behind all that was sent so far.
    fn mark(&mut self) -> u64 {
        if self.sent && !self.gone {
            self.sent = false;
            self.asked += 1;
            self.output.push(Out::bare(&Frame::Flush { mark: self.asked }));
        }
        self.asked
    }

    fn has(&self, mark: u64) -> bool {
        self.gone || self.answered >= mark
    }
}

impl Proxy {
    fn new(state: Arc<State>, carriers: Vec<(u32, Box<dyn Carrier>)>) -> Self {
        let peers: Vec<Peer> =
            carriers.into_iter().map(|(member, carrier)| Peer::new(member, carrier)).collect();
        let mut ways = [None; PES_MAX as usize];
        for (way, member) in ways.iter_mut().zip(&state.plan.members) {
            let peer = peers.iter().position(|peer| peer.member == *member);
            *way = peer.and_then(|peer| u8::try_from(peer).ok());
        }
        let ring =
            |view: &Mapped| Ring { view: view.clone(), reader: Reader::new(RING_ENTRIES as u64) };
        let rings = state.views().iter().map(ring).collect();
        Self { state, peers, ways, rings, quiets: Vec::new(), told: None }
    }

    fn run(&mut self) {
        let mut last = Instant::now();
        let mut vanished = last;
        loop {
            // Before the rings are looked at: what a kernel wrote before its launch ended is then found.
            let running = self.state.is_running();
            // Before the look: who closes says so first, and rings then.
            self.state.proxy.clear_if_rung();
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
                self.state.end("the system does not let its member watch the others", true);
                return;
            }
        }
        self.tell();
        for peer in 0..self.peers.len() {
            self.send(peer);
        }
        let until = Instant::now() + FINISH_FOR;
        for peer in self.peers.iter_mut().filter(|peer| !peer.gone) {
            peer.carrier.finish(until);
        }
    }

    /// Does what is there to be done; `false`: nothing was.
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
            let Some(order) = order::read(entry, self.state.part_bytes()) else {
                self.refuse(index, position);
                return true;
            };
            if !self.carry(index, position, view.pe, &order) {
                return any;
            }
            any = true;
        }
        any
    }

    /// Hands an entry on; `false`: there is no room for it now.
    fn carry(&mut self, index: usize, position: u64, from: u32, order: &Order) -> bool {
        let (to, body) = match order {
            Order::Quiet => {
                if self.quiets.len() >= QUIETS_MAX {
                    return false;
                }
                self.give_back((index, position));
                self.ask(Who::Kernel(index, position));
                self.step(index);
                return true;
            }
            Order::Put { to, source_at } => (to, Err(*source_at)),
            Order::Store { to, bytes } => (to, Ok(*bytes)),
        };
        let way = self.ways.get(usize::from(to.pe)).copied().flatten();
        let Some(peer) = way.and_then(|way| self.peers.get_mut(usize::from(way))) else {
            self.refuse(index, position);
            return true;
        };
        if !peer.output.has_room() {
            return false;
        }
        let &Target { pe, at, length, signal_at, signal } = to;
        let frame = Frame::Put { pe, at, length, signal_at, signal };
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let out = match body {
            Ok(value) => Some(Out::value(&frame, value, bytes, (index, position))),
            Err(at) => self.state.parts.place(from, at, length).map(|place| {
                // SAFETY: so many bytes of an own part lie there, mapped as long as the state, which this holds.
                Out::part(&frame, unsafe { Bytes::new(place, bytes) }, (index, position))
            }),
        };
        match out {
            // The heap has failed already, as will all kernels that wait.
            Some(_) if peer.gone => self.give_back((index, position)),
            Some(out) => {
                peer.output.push(out);
                peer.sent = true;
            }
            None => {
                self.refuse(index, position);
                return true;
            }
        }
        self.step(index);
        true
    }

    fn step(&mut self, index: usize) {
        if let Some(ring) = self.rings.get_mut(index) {
            ring.reader.step();
        }
    }

    /// An entry that no verb writes: the kernel is broken, or means harm.
    fn refuse(&mut self, index: usize, position: u64) {
        if let Some(ring) = self.rings.get(index) {
            let reason = format!(
                "PE {} asked its proxy for bytes outside of the heap, or for a PE that it does not serve",
                ring.view.pe
            );
            self.state.end(&reason, false);
        }
        self.give_back((index, position));
        self.step(index);
    }

    fn give_back(&self, source: output::Source) {
        give_back(&self.rings, source);
    }

    fn send(&mut self, index: usize) -> bool {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.gone) else { return false };
        if let Some(mark) = peer.owes.take_if(|_| peer.output.has_room()) {
            peer.output.push(Out::bare(&Frame::Done { mark }));
        }
        if peer.output.is_empty() {
            return false;
        }
        let rings = &self.rings;
        match peer.output.send(&mut *peer.carrier, &mut |source| give_back(rings, source)) {
            Ok(any) => any,
            // What it had sent before may still be there to be received: its end is found there.
            Err(_) => {
                peer.output.drop_all(&mut |source| give_back(rings, source));
                false
            }
        }
    }

    fn receive(&mut self, index: usize) -> bool {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.gone) else { return false };
        let (mut owes, mut answered, mut aborts) = (None, None, Vec::new());
        let received = peer.input.receive(
            &mut *peer.carrier,
            &self.state.parts,
            self.state.part_bytes(),
            &mut |said| match said {
                Said::Flush(mark) => owes = Some(mark),
                Said::Done(mark) => answered = Some(mark),
                Said::Abort(note) => aborts.push(note),
            },
        );
        // All before the last one is done as well.
        peer.owes = owes.or(peer.owes);
        let answered = answered.unwrap_or(peer.answered);
        let (asked, member) = (peer.asked, peer.member);
        peer.answered = answered.min(asked);
        for note in &aborts {
            self.state.told(note);
        }
        match received {
            Ok(any) => any,
            Err(broken) => {
                self.lose(index);
                let what = match broken {
                    Broken::Link => "has ended or left",
                    Broken::Nonsense => "sent what does not belong to the heap",
                };
                self.state.end(&format!("member {member} {what}"), true);
                true
            }
        }
    }

    fn lose(&mut self, index: usize) {
        let rings = &self.rings;
        if let Some(peer) = self.peers.get_mut(index) {
            peer.gone = true;
            peer.carrier.end();
            peer.output.drop_all(&mut |source| give_back(rings, source));
        }
    }

    /// Notes who wants to know when all that was sent so far has arrived.
    fn ask(&mut self, who: Who) {
        let marks = self.peers.iter_mut().map(Peer::mark).collect();
        self.quiets.push(Quiet { who, marks });
    }

    /// Tells those whose frames have arrived. In order: later ones of the same ring are complete after earlier ones.
    fn answer(&mut self) -> bool {
        let mut any = false;
        while let Some(first) = self.quiets.first() {
            if !self.peers.iter().zip(&first.marks).all(|(peer, mark)| peer.has(*mark)) {
                break;
            }
            match self.quiets.remove(0).who {
                // After a member has gone nothing is known to be complete: the kernel ends by the abort.
                Who::Kernel(..) if self.peers.iter().any(|peer| peer.gone) => {}
                Who::Kernel(ring, position) => {
                    if let Some(ring) = self.rings.get(ring) {
                        let done = &ring.view.head().done.0;
                        done.store(position + 1, std::sync::atomic::Ordering::Release);
                    }
                }
                Who::Host(request) => self.state.settled.answer(request),
            }
            any = true;
        }
        any
    }

    /// Takes the host's request to be told when all has arrived, once the rings are empty.
    fn settle(&mut self, busy: bool) -> bool {
        if busy || self.peers.iter().any(|peer| !peer.gone && !peer.output.is_empty()) {
            return false;
        }
        let Some(request) = self.state.settled.request() else { return false };
        self.ask(Who::Host(request));
        true
    }

    /// Tells the others of an abort, once.
    fn tell(&mut self) {
        let Some(note) = self.state.news(self.told) else { return };
        self.told = Some(note.generation);
        for peer in self.peers.iter_mut().filter(|peer| !peer.gone) {
            let (frame, text) = Frame::abort(note.generation, note.last, &note.reason);
            peer.output.push(Out::note(&frame, text));
        }
    }

    fn look_for_vanished(&mut self) {
        for index in 0..self.peers.len() {
            let Some(peer) =
                self.peers.get(index).filter(|peer| !peer.gone && peer.carrier.vanished())
            else {
                continue;
            };
            let reason = format!("member {} answers no more", peer.member);
            self.lose(index);
            self.state.end(&reason, true);
        }
    }

    fn sleep(&mut self, running: bool) -> Result<(), Errno> {
        let waits =
            self.peers.iter().any(|peer| !peer.output.is_empty()) || !self.quiets.is_empty();
        let mut fds = vec![PollFd::from_borrowed_fd(self.state.proxy.as_fd(), PollFlags::IN)];
        let mut wakes = true;
        for peer in self.peers.iter_mut().filter(|peer| !peer.gone) {
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

fn give_back(rings: &[Ring], (index, position): output::Source) {
    let Some(ring) = rings.get(index) else { return };
    let at = usize::try_from(position % RING_ENTRIES as u64).unwrap_or_default();
    if let Some(entry) = ring.view.head().ring.get(at) {
        ring.reader.free(&entry.sequence, position);
    }
}
