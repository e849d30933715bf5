//! The state that a rank's lock protects, and how it advances.

use std::sync::Arc;

use crate::clock::Clock;
use crate::command::{CommandId, Fault, Job, Rank, RankInfo};
use crate::heap::{HeapMessage, HeapMessageTo};
use crate::message::{self, Message};
use crate::node::Node;
use crate::record::watch::Watchdog;
use crate::root::{Root, SLICE_COMMANDS, SLICE_COMMANDS_BUSY};
use crate::transport::{Transport, TransportEvent};

/// Longest nap while something is under way, in ns. A poll costs 20 to 60 µs including the system's
/// work, so this is at most 1.5 % of a core. Naps grow and reach it after 60 ms, so the end of
/// something long is seen late by a few percent of its duration.
pub const NAP_NS_BUSY: u64 = 4_000_000;
/// Longest nap while nothing is under way, in ns.
const NAP_NS_IDLE: u64 = 4_000_000;

/// The state under the lock.
#[derive(Debug)]
pub struct RankState {
    /// The first field, so that it is dropped first: until then it may use memory of the node's
    /// moves.
    pub transport: Box<dyn Transport>,
    pub node: Node,
    pub root: Option<Root>,
    pub clock: Arc<dyn Clock>,
    /// What each rank said in its hello. Only the root has other ranks' entries.
    pub ranks: Vec<Option<RankInfo>>,
    pub farewells: u32,
    pub stopping: bool,
    /// Something has ended since host threads were last woken.
    pub news: bool,
    pub events: Vec<TransportEvent>,
    /// Number of pieces of streams that were sent or received here, for the watchdog.
    pub pieces: u64,
    pub watchdog: Option<Watchdog>,
}

/// What to do when nothing changes.
pub enum Rest {
    /// Poll again after a nap; naps get longer.
    Nap {
        /// Longest nap in ns.
        most: u64,
        /// Set if only a message can change anything before this time of the clock (`None`: ever).
        /// Simulated naps need no polls then.
        quiet: Option<Option<u64>>,
    },
    /// Sleep until the bell rings, at most until this time of the clock.
    Until(Option<u64>),
}

impl RankState {
    /// Closes the batch. Each planned slice goes to the ranks at once.
    pub fn close_batch(&mut self) {
        while self.plan_slice() {
            self.drive();
        }
    }

    /// Plans the next slice. Returns whether there is more to plan.
    fn plan_slice(&mut self) -> bool {
        let Some(root) = &mut self.root else { return false };
        let outstanding = root.outstanding();
        let slice =
            if self.node.moves().is_sending() { SLICE_COMMANDS_BUSY } else { SLICE_COMMANDS };
        let more = root.close_batch(slice);
        // Commands for a lost rank have ended already.
        self.news |= root.outstanding() < outstanding;
        more
    }

    pub fn is_ended(&self, command: CommandId) -> bool {
        self.root.as_ref().is_none_or(|root| root.outcome(command).is_some())
    }

    pub fn fault(&self, command: CommandId) -> Option<Box<Fault>> {
        self.root.as_ref()?.outcome(command)?.err()
    }

    /// Advances everything. Returns whether anything changed.
    pub fn pump(&mut self) -> bool {
        if self.root.as_ref().and_then(Root::batch_end).is_some_and(|end| end <= self.clock.now()) {
            self.close_batch();
        }
        let moved = self.drive();
        self.watch();
        moved
    }

    /// Advances the jobs that are planned. Returns whether anything changed.
    fn drive(&mut self) -> bool {
        let mut moved = self.poll_transport();
        moved |= self.deliver();
        moved |= self.node.pump(&mut *self.transport);
        // This comes before the ends, so that the root knows a heap's paths when its creation ends.
        moved |= self.pass_heap_messages();
        moved |= self.report();
        self.post();
        moved
    }

    /// Passes on the messages of this rank's heaps.
    fn pass_heap_messages(&mut self) -> bool {
        let own = self.transport.rank();
        let messages = self.node.backend().heap_messages();
        let moved = !messages.is_empty();
        for HeapMessageTo { to, heap, message } in messages {
            if to == own {
                self.heard(own, Message::Heap { heap, message });
            } else {
                self.transport.control(to, message::encode(&[Message::Heap { heap, message }]));
            }
        }
        for rank in self.node.backend().doubts() {
            self.transport.doubt(rank);
        }
        moved
    }

    pub fn watch(&mut self) {
        if let (Some(watchdog), Some(root)) = (&mut self.watchdog, &self.root)
            && let Some(recorder) = root.recorder()
        {
            watchdog.look(self.clock.now(), root.outstanding(), self.pieces, recorder);
        }
    }

    pub fn poll_transport(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.transport.poll(&mut events);
        let moved = !events.is_empty();
        for event in events.drain(..) {
            match event {
                TransportEvent::Control(from, bytes) => match message::decode(from, &bytes) {
                    Ok(messages) => {
                        messages.into_iter().for_each(|message| self.heard(from, message))
                    }
                    Err(garbled) => {
                        // The ranks are of different builds, and nothing else would say so.
                        eprintln!("libwater: rank {}: {garbled}", self.transport.rank());
                        self.transport.give_up(from, &garbled.to_string());
                    }
                },
                TransportEvent::Lost(rank, ref reason) => {
                    self.node.take_event(&event);
                    self.lost(rank, reason);
                }
                _ => {
                    self.pieces += 1;
                    self.node.take_event(&event);
                }
            }
        }
        self.events = events;
        moved
    }

    pub fn heard(&mut self, from: Rank, message: Message) {
        match message {
            Message::Hello { version, hostname, devices } => {
                if version != message::VERSION {
                    let reason = format!(
                        "it speaks version {version} and this rank version {}",
                        message::VERSION
                    );
                    return self.transport.give_up(from, &reason);
                }
                if let Some(info) = self.ranks.get_mut(from as usize) {
                    *info = Some(RankInfo { hostname, devices });
                }
                let asked = self.clock.now();
                self.transport.control(from, message::encode(&[Message::AskClock { asked }]));
            }
            Message::Jobs(jobs) => {
                self.clock.charge(0, jobs.len());
                jobs.into_iter().for_each(|job| self.node.accept(job));
            }
            Message::Tell { command, rank } => self.node.tell(command, rank),
            Message::Ended { command, outcome } => self.node.heard(command, outcome),
            Message::Report(ends) => {
                if let Some(root) = &mut self.root {
                    self.news = true;
                    ends.into_iter().for_each(|end| root.ended(end));
                }
            }
            Message::Ready { stream } => self.node.moves().receiver_ready(from, stream),
            Message::Offer { stream } => self.node.moves().stream_offered(from, stream),
            Message::Broken { stream, fault } => {
                self.node.moves().stream_broken(from, stream, fault)
            }
            Message::AskClock { asked } => {
                let now = self.clock.now();
                self.transport.control(from, message::encode(&[Message::Clock { asked, now }]));
            }
            Message::Clock { asked, now } => {
                // The answer was written half a round trip ago.
                let middle = asked.midpoint(self.clock.now());
                let ahead = i64::try_from(i128::from(now) - i128::from(middle)).unwrap_or_default();
                self.transport.control(from, message::encode(&[Message::ClockAhead(ahead)]));
            }
            Message::ClockAhead(ahead) => self.node.set_clock_ahead(ahead),
            Message::Bye => {
                self.transport.control(from, message::encode(&[Message::Farewell]));
                self.stopping = true;
            }
            Message::Farewell => self.farewells += 1,
            Message::Beat => {}
            Message::Heap { heap, message: HeapMessage::Paths { pe, paths } } => {
                if let Some(root) = &mut self.root {
                    root.heard_paths(heap, pe, paths);
                }
            }
            Message::Heap { heap, message } => self.node.backend().hear(heap, message),
        }
    }

    fn lost(&mut self, rank: Rank, reason: &str) {
        self.node.lost(rank, reason);
        self.news = true;
        if rank == 0 && self.root.is_none() {
            self.stopping = true;
        }
        let info = self.ranks.get_mut(rank as usize);
        let hostname = info
            .and_then(|info| info.as_ref().map(|info| info.hostname.clone()))
            .unwrap_or_default();
        if let Some(root) = &mut self.root {
            // A lost rank does not say goodbye.
            self.farewells += u32::from(root.lost(rank, reason, &hostname));
        }
    }

    /// Delivers the root's messages to the ranks.
    pub fn deliver(&mut self) -> bool {
        let Some(root) = &mut self.root else { return false };
        let messages: Vec<_> = root.messages().collect();
        let moved = !messages.is_empty();
        for (rank, messages) in messages {
            if rank == 0 {
                for message in messages {
                    match message {
                        Message::Jobs(jobs) => {
                            self.clock.charge(0, jobs.len());
                            jobs.into_iter().for_each(|job: Job| self.node.accept(job));
                        }
                        Message::Tell { command, rank } => self.node.tell(command, rank),
                        _ => {}
                    }
                }
            } else {
                self.transport.control(rank, message::encode(&messages));
            }
        }
        moved
    }

    /// Reports to the root what has ended here.
    pub fn report(&mut self) -> bool {
        let mut ends = self.node.finished().peekable();
        if ends.peek().is_none() {
            return false;
        }
        if let Some(root) = &mut self.root {
            self.news = true;
            ends.for_each(|end| root.ended(end));
        } else {
            self.transport.control(0, message::encode(&[Message::Report(ends.collect())]));
        }
        true
    }

    /// Sends the node's messages to other ranks.
    pub fn post(&mut self) {
        for (rank, messages) in self.node.messages() {
            self.transport.control(rank, message::encode(&messages));
        }
    }

    pub fn rest(&mut self) -> Rest {
        let mut end = self.node.backend().next_end();
        if let Some(batch_end) = self.root.as_ref().and_then(Root::batch_end) {
            end = Some(end.map_or(batch_end, |end| end.min(batch_end)));
        }
        if let Some(due) = self.watchdog.as_ref().and_then(Watchdog::due) {
            end = Some(end.map_or(due, |end| end.min(due)));
        }
        if self.transport.needs_polling() {
            let busy = !self.node.is_idle()
                || self.root.as_ref().is_some_and(|root| root.outstanding() > 0);
            let most = if busy { NAP_NS_BUSY } else { NAP_NS_IDLE };
            let left = end.map_or(most, |end| end.saturating_sub(self.clock.now()));
            let is_quiet = self.transport.is_quiet() && self.node.backend().is_hollow();
            return Rest::Nap { most: most.min(left), quiet: is_quiet.then_some(end) };
        }
        Rest::Until(end)
    }
}
