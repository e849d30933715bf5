//! What one rank's lock protects, and how it moves on.

use std::sync::Arc;

use super::{NAP_NS_BUSY, NAP_NS_IDLE};
use crate::clock::Clock;
use crate::command::{self, CommandId, DeviceInfo, Fault, Job, Message, Rank};
use crate::heap::Word;
use crate::node::Node;
use crate::record::watch::Watchdog;
use crate::root::{Root, SLICE_COMMANDS, SLICE_COMMANDS_BUSY};
use crate::transport::{Happening, Transport};

/// All that the lock protects.
#[derive(Debug)]
pub struct State {
    /// First, so that it is dropped first: until then it may use memory of the node's moves.
    pub transport: Box<dyn Transport>,
    pub node: Node,
    pub root: Option<Root>,
    pub clock: Arc<dyn Clock>,
    /// What each rank said in its hello; at the root.
    pub ranks: Vec<Option<RankInfo>>,
    pub farewells: u32,
    pub stopping: bool,
    /// Something ended since host threads were last woken.
    pub news: bool,
    pub happened: Vec<Happening>,
    /// Pieces of streams that have moved here: the watchdog compares it.
    pub pieces: u64,
    pub watchdog: Option<Watchdog>,
}

/// What a rank said in its hello.
#[derive(Clone, Debug)]
pub struct RankInfo {
    /// Its host.
    pub hostname: String,
    /// Its devices.
    pub devices: Vec<DeviceInfo>,
}

/// What to do when nothing moves.
pub enum Rest {
    /// Look again after a nap that gets longer.
    Nap {
        /// At most so long, in ns.
        most: u64,
        /// Where only a message can change anything until then, or a time of the clock: that time. Simulated naps are not looks then.
        quiet: Option<Option<u64>>,
    },
    /// Sleep until somebody rings, at most until this time of the clock.
    Until(Option<u64>),
}

impl State {
    /// Closes the batch. What is planned goes to the ranks at once, slice by slice.
    pub fn close_batch(&mut self) {
        while self.plan_slice() {
            self.drive();
        }
    }

    /// Whether there is more to plan.
    fn plan_slice(&mut self) -> bool {
        let Some(root) = &mut self.root else { return false };
        let outstanding = root.outstanding();
        let slice =
            if self.node.moves().is_sending() { SLICE_COMMANDS_BUSY } else { SLICE_COMMANDS };
        let more = root.close_batch(slice);
        // Commands for a rank that is lost have ended already.
        self.news |= root.outstanding() < outstanding;
        more
    }

    pub fn is_ended(&self, command: CommandId) -> bool {
        self.root.as_ref().is_none_or(|root| root.outcome(command).is_some())
    }

    pub fn fault(&self, command: CommandId) -> Option<Box<Fault>> {
        self.root.as_ref()?.outcome(command)?.err()
    }

    /// Moves everything on; whether anything moved.
    pub fn pump(&mut self) -> bool {
        if self.root.as_ref().and_then(Root::batch_end).is_some_and(|end| end <= self.clock.now()) {
            self.close_batch();
        }
        let moved = self.drive();
        self.watch();
        moved
    }

    /// Moves on what is planned.
    fn drive(&mut self) -> bool {
        let mut moved = self.poll_transport();
        moved |= self.deliver();
        moved |= self.node.pump(&mut *self.transport);
        // Before the ends: the paths of a heap are there when its creation has ended.
        moved |= self.pass_words();
        moved |= self.report();
        self.post();
        moved
    }

    /// Says what this rank's heaps have to say to others, or to the root.
    fn pass_words(&mut self) -> bool {
        let own = self.transport.rank();
        let words = self.node.backend().words();
        let moved = !words.is_empty();
        for (to, heap, word) in words {
            if to == own {
                self.heard(own, Message::Heap { heap, word });
            } else {
                self.transport.control(to, command::encode(&[Message::Heap { heap, word }]));
            }
        }
        for rank in self.node.backend().doubts() {
            self.transport.doubt(rank);
        }
        moved
    }

    /// Lets the watchdog look.
    pub fn watch(&mut self) {
        if let (Some(watchdog), Some(root)) = (&mut self.watchdog, &self.root)
            && let Some(recorder) = root.recorder()
        {
            watchdog.look(self.clock.now(), root.outstanding(), self.pieces, recorder);
        }
    }

    pub fn poll_transport(&mut self) -> bool {
        let mut happened = std::mem::take(&mut self.happened);
        self.transport.poll(&mut happened);
        let moved = !happened.is_empty();
        for happening in happened.drain(..) {
            match happening {
                Happening::Control(from, bytes) => match command::decode(from, &bytes) {
                    Ok(messages) => {
                        messages.into_iter().for_each(|message| self.heard(from, message))
                    }
                    Err(garbled) => {
                        // Ranks of different builds: nothing else would say so.
                        eprintln!("libwater: rank {}: {garbled}", self.transport.rank());
                        self.transport.give_up(from, &garbled.to_string());
                    }
                },
                Happening::Lost(rank, ref reason) => {
                    self.node.happened(&happening);
                    self.lost(rank, reason);
                }
                _ => {
                    self.pieces += 1;
                    self.node.happened(&happening);
                }
            }
        }
        self.happened = happened;
        moved
    }

    pub fn heard(&mut self, from: Rank, message: Message) {
        match message {
            Message::Hello { version, hostname, devices } => {
                if version != command::VERSION {
                    let reason =
                        format!("it speaks version {version}, this is {}", command::VERSION);
                    return self.transport.give_up(from, &reason);
                }
                if let Some(info) = self.ranks.get_mut(from as usize) {
                    *info = Some(RankInfo { hostname, devices });
                }
                let asked = self.clock.now();
                self.transport.control(from, command::encode(&[Message::AskClock { asked }]));
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
                    ends.into_iter()
                        .for_each(|(id, outcome, times)| root.ended(id, outcome, times));
                }
            }
            Message::Ready { stream } => self.node.moves().is_ready(from, stream),
            Message::Offer { stream } => self.node.moves().is_offered(from, stream),
            Message::Broken { stream, fault } => self.node.moves().is_broken(from, stream, fault),
            Message::AskClock { asked } => {
                let now = self.clock.now();
                self.transport.control(from, command::encode(&[Message::Clock { asked, now }]));
            }
            Message::Clock { asked, now } => {
                // The answer was written half a round trip ago.
                let middle = asked.midpoint(self.clock.now());
                let ahead = i64::try_from(i128::from(now) - i128::from(middle)).unwrap_or_default();
                self.transport.control(from, command::encode(&[Message::ClockAhead(ahead)]));
            }
            Message::ClockAhead(ahead) => self.node.set_clock_ahead(ahead),
            Message::Bye => {
                self.transport.control(from, command::encode(&[Message::Farewell]));
                self.stopping = true;
            }
            Message::Farewell => self.farewells += 1,
            Message::Beat => {}
            Message::Heap { heap, word: Word::Paths { pe, paths } } => {
                if let Some(root) = &mut self.root {
                    root.heard_paths(heap, pe, paths);
                }
            }
            Message::Heap { heap, word } => self.node.backend().hear(heap, word),
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
            // It will not say goodbye.
            self.farewells += u32::from(root.lost(rank, reason, &hostname));
        }
    }

    /// Passes on what the root has for the ranks.
    pub fn deliver(&mut self) -> bool {
        let Some(root) = &mut self.root else { return false };
        let letters: Vec<_> = root.letters().collect();
        let moved = !letters.is_empty();
        for (rank, messages) in letters {
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
                self.transport.control(rank, command::encode(&messages));
            }
        }
        moved
    }

    /// Tells the root what has ended here.
    pub fn report(&mut self) -> bool {
        let mut ends = self.node.finished().peekable();
        if ends.peek().is_none() {
            return false;
        }
        if let Some(root) = &mut self.root {
            self.news = true;
            ends.for_each(|end| root.ended(end.id, end.outcome, end.times));
        } else {
            let ends = ends.map(|end| (end.id, end.outcome, end.times)).collect();
            self.transport.control(0, command::encode(&[Message::Report(ends)]));
        }
        true
    }

    /// Sends what the node has for other ranks.
    pub fn post(&mut self) {
        for (rank, messages) in self.node.letters() {
            self.transport.control(rank, command::encode(&messages));
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

/// This host's name.
pub fn hostname() -> String {
    // Its length is part of messages, and simulated times are the same on every host.
    if crate::simulator::is_there() {
        return "simulated".into();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
