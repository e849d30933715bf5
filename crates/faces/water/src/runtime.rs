//! The process of one rank: the node's scheduler, the root's state on the root, the transport, and
//! the thread that drives them.
//!
//! There are two ways to drive. *Threaded*: one thread, which sleeps when there is nothing to do;
//! calls of the program leave their commands under the lock and ring its bell. *Pumped*: no thread;
//! the calls that wait drive. The simulator allows only the second.

mod rank_state;
pub mod recording;

use std::num::NonZeroU64;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::command::{CommandId, Fault, Outcome, RankInfo};
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::host::hostname;
use crate::message::{self, Message};
use crate::node::Node;
use crate::record::watch::Watchdog;
use crate::root::Root;
use crate::root::cost::Link;
use crate::transport::Transport;

use penstock_process::{Lock, Signal};
use rank_state::{NAP_NS_BUSY, RankState, Rest};

/// First nap after something happened, with a transport that must be polled, in ns. It is shorter
/// than waking a thread takes.
const NAP_NS_MIN: u64 = 20_000;
/// Timer slack of the scheduler's thread: how much later than asked a nap may end, in ns.
const TIMER_SLACK_NS: u64 = 1_000;
/// Time after which a waiting host thread looks again without a wake-up, in case one is ever lost.
const HOST_LOOK: Duration = Duration::from_millis(500);
/// Each nap is longer than the one before by 1/16. So something that happens after a while is seen
/// late by about this fraction of the while. Pieces that end together, like those of a window on a
/// fairly shared link, leave the link idle for 3 % on average.
const NAP_GROWTH: u64 = 16;
/// Time that the root waits for the hellos of the other ranks. The slowest node of a cluster needs
/// some seconds to load its drivers.
const HELLO_NS_MAX: u64 = 60_000_000_000;
/// Bytes sent to measure a link: three times each of two sizes, and the larger one in pieces of the
/// smaller. The sizes are far enough apart that their difference is bandwidth, and small enough to
/// take some ms on an Ethernet of 1 Gbit/s.
const PROBE_BYTES_SMALL: usize = 64 << 10;
const PROBE_BYTES_LARGE: usize = 1 << 20;
const PROBES: usize = 3;
/// Bounds of the measured overhead of a piece: at least a system call, at most a poll of the
/// scheduler.
const OVERHEAD_NS_MIN: f64 = 500.0;
const OVERHEAD_NS_MAX: f64 = 20_000.0;
/// Time that the root waits for the ranks' farewells.
const FAREWELL_NS_MAX: u64 = 10_000_000_000;

/// The process of one rank.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<RuntimeShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct RuntimeShared {
    state: Lock<RankState>,
    /// Wakes the scheduler's thread.
    bell: Doorbell,
    /// Wakes host threads that wait for commands.
    host: Signal,
    clock: Arc<dyn Clock>,
    threaded: bool,
}

impl Runtime {
    /// Starts the root, and waits until all ranks have said hello.
    ///
    /// # Errors
    /// A rank does not answer, is lost, or has another version.
    pub fn root(
        transport: Box<dyn Transport>,
        backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
        threaded: bool,
    ) -> Result<Self, Error> {
        let ranks = transport.size();
        let root = Root::new(ranks, Arc::clone(&clock));
        let mut runtime = Self::new(transport, backend, clock, threaded, Some(root));
        runtime.shared.greet()?;
        runtime.start();
        Ok(runtime)
    }

    /// Runs another rank until the root says goodbye or is lost.
    pub fn serve(transport: Box<dyn Transport>, backend: Box<dyn Backend>, clock: Arc<dyn Clock>) {
        let runtime = Self::new(transport, backend, clock, false, None);
        let mut state = runtime.shared.state.lock();
        let hello = Message::Hello {
            version: message::VERSION,
            hostname: hostname(),
            devices: state.node.backend().devices().to_vec(),
        };
        state.transport.control(0, message::encode(&[hello]));
        drop(state);
        runtime.shared.run();
    }

    fn new(
        mut transport: Box<dyn Transport>,
        mut backend: Box<dyn Backend>,
        clock: Arc<dyn Clock>,
        threaded: bool,
        root: Option<Root>,
    ) -> Self {
        let bell = Doorbell::default();
        transport.wake_with(bell.clone());
        backend.wake_with(bell.clone());
        let (rank, size) = (transport.rank(), transport.size());
        let mut ranks: Vec<Option<RankInfo>> = (0..size).map(|_| None).collect();
        if let Some(own) = ranks.get_mut(rank as usize) {
            *own = Some(RankInfo { hostname: hostname(), devices: backend.devices().to_vec() });
        }
        let node = Node::new(rank, hostname(), backend, Arc::clone(&clock));
        let state = RankState {
            node,
            root,
            transport,
            clock: Arc::clone(&clock),
            ranks,
            farewells: 0,
            stopping: false,
            news: false,
            events: Vec::new(),
            pieces: 0,
            watchdog: None,
        };
        let shared = Arc::new(RuntimeShared {
            state: Lock::new(state),
            bell,
            host: Signal::new(),
            clock,
            threaded,
        });
        Self { shared, thread: None }
    }

    fn start(&mut self) {
        if self.shared.threaded {
            let shared = Arc::clone(&self.shared);
            let thread = penstock_process::start("wtr-scheduler", move || shared.run());
            // Without a thread the calls that wait drive, see `wait`.
            self.thread = thread.ok();
        }
    }

    /// Returns what the ranks said in their hellos.
    pub fn ranks(&self) -> Vec<RankInfo> {
        self.shared.state.lock().ranks.iter().flatten().cloned().collect()
    }

    /// Calls `work` with the root's state, and makes the scheduler look at commands that it issues.
    /// Returns `None` on other ranks.
    pub fn with_root<R>(&self, work: impl FnOnce(&mut Root) -> R) -> Option<R> {
        let mut state = self.shared.state.lock();
        let root = state.root.as_mut()?;
        let was_empty = root.batch_end().is_none();
        let result = work(root);
        if self.thread.is_none() && root.batch_end() == Some(0) {
            // Nobody else drives, and the ranks may begin.
            state.pump();
            self.shared.tell(&mut state);
            return Some(result);
        }
        // The scheduler has seen a batch that was not empty, but must be told that it is full.
        let ring = match root.batch_end() {
            Some(0) => true,
            Some(_) => was_empty,
            None => false,
        };
        drop(state);
        if ring && self.thread.is_some() {
            self.shared.bell.ring();
        }
        Some(result)
    }

    /// Measures the link to rank 1 as this runtime sees it, including naps and copies.
    pub fn measure_link(&self) -> Link {
        let ranks = self.shared.state.lock().transport.size();
        if ranks < 2 {
            return Link::default();
        }
        let mut block = vec![0_u8; PROBE_BYTES_LARGE];
        let mut least = |size: usize, segment: usize| {
            let times = (0..PROBES).map(|_| {
                let address = block.as_mut_ptr().expose_provenance() as u64;
                let began = self.shared.clock.now();
                let probe =
                    self.with_root(|root| root.probe(1, address, size as u64, segment as u64));
                // Commands that need a lost rank report it.
                _ = probe.map(|probe| self.wait(&[probe]));
                _ = probe.map(|probe| self.with_root(|root| root.let_go(probe)));
                self.shared.clock.now().saturating_sub(began)
            });
            times.min().unwrap_or_default() as f64
        };
        let (tiny, small) = (least(1, 1), least(PROBE_BYTES_SMALL, PROBE_BYTES_SMALL));
        let (large, pieces) = (
            least(PROBE_BYTES_LARGE, PROBE_BYTES_LARGE),
            least(PROBE_BYTES_LARGE, PROBE_BYTES_SMALL),
        );
        // The block belongs to the transport until the sends have ended.
        self.drain();
        let between = (PROBE_BYTES_LARGE - PROBE_BYTES_SMALL) as f64;
        // A coarse timer must not make a link infinitely fast.
        let byte_ns = ((large - small) / between).max(1e-3);
        let latency_ns = (small - byte_ns * PROBE_BYTES_SMALL as f64 - tiny).max(500.0) / 2.0;
        let more = (PROBE_BYTES_LARGE / PROBE_BYTES_SMALL - 1) as f64;
        Link {
            latency_ns,
            overhead_ns: ((pieces - large) / more).clamp(OVERHEAD_NS_MIN, OVERHEAD_NS_MAX),
            byte_ns,
        }
    }

    pub fn flush(&self) {
        let mut state = self.shared.state.lock();
        state.close_batch();
        state.pump();
        self.shared.tell(&mut state);
    }

    /// Waits until all these commands have ended. Blocks.
    ///
    /// # Errors
    /// The fault of the first of them that failed.
    pub fn wait(&self, commands: &[CommandId]) -> Outcome {
        let mut state = self.shared.state.lock();
        state.close_batch();
        let mut nap = NAP_NS_MIN;
        let mut rest = 0;
        loop {
            let moved = if self.thread.is_none() || rest == 0 { state.pump() } else { false };
            self.shared.tell(&mut state);
            // All are waited for, even if one has failed, because the memory that they use may be
            // freed afterwards.
            while commands.get(rest).is_some_and(|command| state.is_ended(*command)) {
                rest += 1;
            }
            if rest == commands.len() {
                break;
            }
            state = self.rest_until_news(state, moved, &mut nap);
        }
        commands.iter().find_map(|command| state.fault(*command)).map_or(Ok(()), Err)
    }

    /// Rests between two looks of a waiting host thread.
    fn rest_until_news<'a>(
        &'a self,
        state: MutexGuard<'a, RankState>,
        moved: bool,
        nap: &mut u64,
    ) -> MutexGuard<'a, RankState> {
        if self.thread.is_some() {
            return self.shared.host.wait_timeout(state, HOST_LOOK).0;
        }
        if moved {
            *nap = NAP_NS_MIN;
            return state;
        }
        let mut state = state;
        let most = state.rest();
        drop(state);
        self.shared.rest(most, nap);
        self.shared.state.lock()
    }

    /// Waits until all commands of one of these groups have ended, and returns its index, or the
    /// lowest of several. Returns `None` if there is no group.
    pub fn wait_any(&self, groups: &[&[CommandId]]) -> Option<usize> {
        let mut state = self.shared.state.lock();
        state.close_batch();
        let mut nap = NAP_NS_MIN;
        let mut is_first = true;
        while !groups.is_empty() {
            let moved = if self.thread.is_none() || is_first { state.pump() } else { false };
            is_first = false;
            self.shared.tell(&mut state);
            let ended = groups
                .iter()
                .position(|group| group.iter().all(|command| state.is_ended(*command)));
            if ended.is_some() {
                return ended;
            }
            state = self.rest_until_news(state, moved, &mut nap);
        }
        None
    }

    /// Sets the watchdog. It needs a recorder, see [`Root::set_recorder`].
    pub fn set_watchdog(&self, watchdog: Watchdog) {
        self.shared.state.lock().watchdog = Some(watchdog);
    }

    /// Returns the clock of the run, in ns.
    pub fn now(&self) -> u64 {
        self.shared.clock.now()
    }

    /// Returns the outcome of a command, or `None` if it has not ended.
    pub fn outcome(&self, command: CommandId) -> Option<Outcome> {
        let mut state = self.shared.state.lock();
        if self.thread.is_none() {
            state.pump();
        }
        state.root.as_ref().and_then(|root| root.outcome(command))
    }

    /// Takes the root causes of failures that were not reported yet.
    pub fn faults(&self) -> Vec<Box<Fault>> {
        self.shared.state.lock().root.as_mut().map(Root::faults).unwrap_or_default()
    }

    /// Waits for all commands.
    pub fn drain(&self) {
        let mut nap = NAP_NS_MIN;
        let mut state = self.shared.state.lock();
        state.close_batch();
        while state.root.as_ref().is_some_and(|root| root.outstanding() > 0)
            || !state.node.is_idle()
        {
            state = self.turn(state, &mut nap);
        }
    }

    /// Waits until `is_done` holds for the root's state, for at most `most_ns`.
    pub fn wait_until(&self, is_done: impl Fn(&Root) -> bool, most_ns: u64) {
        let mut nap = NAP_NS_MIN;
        let end = self.shared.clock.now().saturating_add(most_ns);
        let mut state = self.shared.state.lock();
        while state.root.as_ref().is_some_and(|root| !is_done(root))
            && self.shared.clock.now() < end
        {
            state = self.turn(state, &mut nap);
        }
    }

    /// Waits for all commands, says goodbye to the ranks, and ends the thread.
    pub fn end(mut self) {
        self.drain();
        let mut nap = NAP_NS_MIN;
        let mut state = self.shared.state.lock();
        let ranks = state.transport.size();
        for rank in 1..ranks {
            state.transport.control(rank, message::encode(&[Message::Bye]));
        }
        let end = self.shared.clock.now() + FAREWELL_NS_MAX;
        while state.farewells + 1 < ranks && self.shared.clock.now() < end {
            state = self.turn(state, &mut nap);
        }
        state.stopping = true;
        drop(state);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }

    /// Drives once, and rests if nothing changed.
    fn turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, RankState>,
        nap: &mut u64,
    ) -> MutexGuard<'a, RankState> {
        let moved = state.pump();
        self.shared.tell(&mut state);
        if moved {
            *nap = NAP_NS_MIN;
            return state;
        }
        let rest = match state.rest() {
            Rest::Until(None) => Rest::Nap { most: NAP_NS_BUSY, quiet: None },
            rest => rest,
        };
        drop(state);
        self.shared.rest(rest, nap);
        self.shared.state.lock()
    }
}

/// Returns the length of the next nap in ns, and makes the one after it longer.
fn next_nap(nap: &mut u64, most: u64) -> u64 {
    let ns = (*nap).min(most);
    *nap = nap.saturating_add(*nap / NAP_GROWTH).min(most.max(NAP_NS_MIN));
    ns
}

impl RuntimeShared {
    /// Wakes host threads if something has ended.
    fn tell(&self, state: &mut RankState) {
        if std::mem::take(&mut state.news) {
            self.host.notify_all();
        }
    }

    /// Drives until the runtime stops.
    fn run(&self) {
        if !self.clock.is_simulated() {
            // Without this each nap would be 50 µs longer. If the system refuses, ranks are only
            // slower.
            _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        }
        let mut nap = NAP_NS_MIN;
        loop {
            let mut state = self.state.lock();
            let moved = state.pump();
            self.tell(&mut state);
            if state.stopping {
                return;
            }
            if moved {
                nap = NAP_NS_MIN;
                continue;
            }
            let rest = state.rest();
            drop(state);
            self.rest(rest, &mut nap);
        }
    }

    fn rest(&self, rest: Rest, nap: &mut u64) {
        match rest {
            Rest::Nap { quiet: Some(end), .. } if self.clock.is_simulated() => {
                self.clock.naps(end, &mut |now| {
                    let left = end.map_or(NAP_NS_BUSY, |end| end.saturating_sub(now));
                    next_nap(nap, NAP_NS_BUSY.min(left))
                });
            }
            Rest::Nap { most, .. } => {
                let ns = next_nap(nap, most);
                if self.clock.is_simulated() {
                    self.clock.sleep(ns);
                } else {
                    self.bell.wait(Some(Duration::from_nanos(ns)));
                }
            }
            Rest::Until(Some(time)) => {
                let ns = time.saturating_sub(self.clock.now());
                if self.clock.is_simulated() {
                    self.clock.sleep(ns);
                } else if ns > 0 {
                    self.bell.wait(Some(Duration::from_nanos(ns)));
                }
            }
            Rest::Until(None) => self.bell.wait(None),
        }
    }

    /// Waits for the hellos of all ranks, which also starts the comparison of their clocks.
    fn greet(&self) -> Result<(), Error> {
        let end = self.clock.now() + HELLO_NS_MAX;
        let mut nap = NAP_NS_MIN;
        loop {
            let mut state = self.state.lock();
            let moved = state.pump();
            if state.ranks.iter().all(Option::is_some) {
                return Ok(());
            }
            if let Some((rank, reason)) = state.root.as_ref().and_then(Root::first_lost) {
                return Err(Error::Transport(format!(
                    "rank {rank} is lost before it said hello: {reason}"
                )));
            }
            if self.clock.now() > end {
                let missing: Vec<String> = (0..)
                    .zip(&state.ranks)
                    .filter(|(_, info)| info.is_none())
                    .map(|(rank, _): (u32, _)| rank.to_string())
                    .collect();
                return Err(Error::Transport(format!(
                    "rank {} did not say hello within {} s: is libwater's program or wtrd running there?",
                    missing.join(", "),
                    HELLO_NS_MAX / 1_000_000_000
                )));
            }
            drop(state);
            if moved {
                nap = NAP_NS_MIN;
            } else {
                self.rest(Rest::Nap { most: NAP_NS_BUSY, quiet: None }, &mut nap);
            }
        }
    }
}
