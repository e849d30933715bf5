//! The groups of statements that a kernel grows by.

use super::Planner;
use crate::kernels::feature::Feature;
use crate::kernels::program::{
    Act, Atomic, Exchange, Fold, Mask, Meeting, OWN, Place, Shuffle, Value, Vote, WORDS, Width,
};

impl Planner {
    /// Returns a group that the features allow, or an empty one.
    pub(super) fn group(&mut self, nests: bool, in_loop: bool) -> Vec<Act> {
        let choice = self.random.below(100);
        let feature = match choice {
            0..18 => None,
            18..34 => Some(Feature::Branches),
            34..46 => Some(Feature::Loops),
            46..49 => Some(Feature::Exits),
            49..70 => Some(Feature::Barriers),
            70..88 => Some(Feature::Warps),
            88..94 => Some(Feature::Atomics),
            _ => Some(Feature::Memory),
        };
        match feature.filter(|feature| self.has(*feature)) {
            Some(Feature::Branches) if nests => self.branch(),
            Some(Feature::Loops) if in_loop && self.random.chance(40) => vec![self.way()],
            Some(Feature::Loops) if nests => self.turns(),
            Some(Feature::Exits) => {
                let (condition, tells) = (self.condition(), self.random.chance(70));
                vec![Act::Exit { condition, tells }]
            }
            Some(Feature::Barriers) if nests && self.random.chance(25) => self.parting(),
            Some(Feature::Barriers) => self.meeting(),
            Some(Feature::Warps) => self.warp(nests),
            Some(Feature::Atomics) => self.atomic(),
            Some(Feature::Memory) => self.memory(),
            _ => (0..self.random.between(1, 2)).map(|_| self.compute()).collect(),
        }
    }

    fn branch(&mut self) -> Vec<Act> {
        let (id, condition) = (self.id(), self.condition());
        let votes = self.has(Feature::Warps) && self.random.chance(50);
        let mut all = vec![Act::If { id, condition, votes }];
        all.extend(self.work());
        if self.random.chance(40) {
            all.push(Act::Else { id });
            all.extend(self.work());
        }
        all.push(Act::End { id });
        all
    }

    /// What a thread does in a branch. No compiler does a store before it knows the branch.
    fn work(&mut self) -> Vec<Act> {
        let mut all = vec![self.compute()];
        if self.random.chance(60) {
            all.extend(self.memory());
        }
        all
    }

    /// Threads part behind a barrier in a branch, and behind the branch.
    fn parting(&mut self) -> Vec<Act> {
        let (id, condition) = (self.id(), self.switch());
        let mut all = vec![Act::If { id, condition, votes: false }];
        all.extend(self.meeting());
        all.extend(self.branch());
        if self.random.chance(30) {
            all.push(Act::Else { id });
            all.extend(self.meeting());
        }
        all.push(Act::End { id });
        all.extend(self.branch());
        all
    }

    /// Lanes exchange values and leave one after the other.
    fn leaving(&mut self) -> Vec<Act> {
        let (id, at_head) = (self.id(), self.random.chance(60));
        let turns = [Value::Thread, Value::Register(self.register())][self.random.below(2)];
        let mut all = vec![Act::Loop { id, turns, at_head, votes: true }];
        for _ in 0..self.random.between(1, 3) {
            match self.random.chance(40) {
                true => all.extend(self.voting()),
                false => all.push(self.exchange()),
            }
        }
        all.push(Act::End { id });
        if self.random.chance(60) {
            all.push(self.exchange());
        }
        all
    }

    /// Lanes exchange values in two branches.
    fn voting(&mut self) -> Vec<Act> {
        let (id, condition) = (self.id(), self.condition());
        let mut all = vec![Act::If { id, condition, votes: true }, self.compute(), self.exchange()];
        if self.random.chance(60) {
            all.extend([Act::Else { id }, self.exchange(), self.compute()]);
        }
        all.push(Act::End { id });
        all
    }

    fn turns(&mut self) -> Vec<Act> {
        let id = self.id();
        let turns = match self.random.below(4) {
            0 | 1 => Value::Constant(self.small(3) + 1),
            2 => Value::Parameter,
            _ => Value::Register(self.register()),
        };
        let votes = self.has(Feature::Warps) && self.random.chance(40);
        let at_head = self.random.chance(50);
        vec![Act::Loop { id, turns, at_head, votes }, self.compute(), Act::End { id }]
    }

    fn way(&mut self) -> Act {
        let condition = self.condition();
        match self.random.chance(60) {
            true => Act::Break { condition },
            false => Act::Continue { condition },
        }
    }

    fn place(&mut self) -> Place {
        match self.random.below(6) {
            0 => Place::Fixed(self.small(40)),
            1 => Place::Told(self.register()),
            2 => Place::Times(2 * self.small(WORDS / 2) + 1),
            _ => Place::Thread(self.small(32)),
        }
    }

    /// Returns a place of which each thread has its own.
    fn spread(&mut self) -> Place {
        match self.random.below(3) {
            0 => Place::Times(2 * self.small(WORDS / 2) + 1),
            1 => Place::Thread(self.small(WORDS)),
            _ => Place::Thread(0),
        }
    }

    fn width(&mut self) -> Width {
        let all = [Width::Byte, Width::ByteSigned, Width::Half, Width::HalfSigned];
        match self.has(Feature::Wide) && self.random.chance(30) {
            true => all[self.random.below(4)],
            false => Width::Word,
        }
    }

    fn barrier(&mut self) -> Act {
        let guard = self.random.chance(10).then(|| self.condition());
        Act::Barrier { guard }
    }

    fn meeting(&mut self) -> Vec<Act> {
        let (from, to, width) = (self.register(), self.register(), self.width());
        match self.random.below(7) {
            0 => vec![self.barrier()],
            1 => {
                let how = [Meeting::And, Meeting::Or, Meeting::Count][self.random.below(3)];
                vec![Act::Meet { how, to, condition: self.condition() }]
            }
            2 => vec![Act::Load { to, at: self.place(), width }],
            // One thread tells the others something.
            3 | 4 => {
                let (id, at) = (self.id(), Place::Fixed(self.small(40)));
                vec![
                    Act::Barrier { guard: None },
                    Act::If { id, condition: self.one(), votes: false },
                    Act::Store { at, from, width: Width::Word },
                    Act::End { id },
                    self.barrier(),
                    Act::Load { to, at, width },
                ]
            }
            _ => vec![
                Act::Barrier { guard: None },
                Act::Store { at: self.spread(), from, width: Width::Word },
                self.barrier(),
                Act::Load { to, at: self.place(), width },
            ],
        }
    }

    fn mask(&mut self) -> Mask {
        match self.random.below(8) {
            0 | 1 => Mask::All,
            2 => Mask::Group(1 << self.random.between(1, 4)),
            _ => Mask::Here,
        }
    }

    fn exchange(&mut self) -> Act {
        let (to, from, mask) = (self.register(), self.register(), self.mask());
        let what = match self.random.below(10) {
            8.. => Exchange::Lead { from },
            0..4 => {
                let modes = [Shuffle::Up, Shuffle::Down, Shuffle::Butterfly, Shuffle::Index];
                let mode = modes[self.random.below(4)];
                let lane = match self.random.below(4) {
                    0 => Value::Register(self.register()),
                    1 => Value::Lane,
                    _ => Value::Constant(self.small(9)),
                };
                let segment = [32, 32, 16, 8, 4][self.random.below(5)];
                let holds = self.random.chance(40);
                Exchange::Shuffle { mode, from, lane, segment, holds }
            }
            4 | 5 => {
                let modes = [Vote::All, Vote::Any, Vote::Uniform, Vote::Ballot];
                let mode = modes[self.random.below(4)];
                Exchange::Vote { mode, condition: self.condition() }
            }
            6 => Exchange::Match { all: self.random.chance(30), from },
            _ => Exchange::Reduce { how: Fold::ALL[self.random.below(6)], from },
        };
        Act::Exchange { to, what, mask }
    }

    fn warp(&mut self, nests: bool) -> Vec<Act> {
        let (from, to) = (self.register(), self.register());
        match self.random.below(10) {
            0 => vec![Act::MeetWarp { mask: self.mask() }],
            // Lanes tell each other something through memory.
            1 if self.has(Feature::Barriers) => {
                let mask = self.mask();
                vec![
                    Act::MeetWarp { mask },
                    Act::Store { at: Place::Thread(0), from, width: Width::Word },
                    Act::MeetWarp { mask },
                    Act::Load { to, at: Place::Thread(self.small(8)), width: Width::Word },
                ]
            }
            2..4 if nests => self.voting(),
            4..6 if nests => self.leaving(),
            _ => vec![self.exchange()],
        }
    }

    fn fold(&mut self) -> Fold {
        Fold::ALL[self.random.below(Fold::ALL.len())]
    }

    fn atomic(&mut self) -> Vec<Act> {
        let (from, to, how) = (self.register(), self.register(), self.fold());
        match self.random.below(4) {
            0 => vec![Act::ReduceAll { how, from }],
            1 if self.has(Feature::Barriers) => {
                let (id, at) = (self.id(), Place::Fixed(how as u32));
                vec![
                    Act::Barrier { guard: None },
                    Act::If { id, condition: self.one(), votes: false },
                    Act::Store { at, from: self.register(), width: Width::Word },
                    Act::End { id },
                    Act::Barrier { guard: None },
                    Act::Reduce { how, from },
                    self.barrier(),
                    Act::Load { to, at, width: Width::Word },
                ]
            }
            _ => {
                let how = match self.random.below(6) {
                    0 => Atomic::Exchange,
                    1 => Atomic::Swap,
                    2 => Atomic::Increment,
                    3 => Atomic::Decrement,
                    _ => Atomic::Fold(how),
                };
                let at = self.random.below(OWN);
                vec![Act::AtomicOwn { how, to, at, from: [from, self.register()] }]
            }
        }
    }

    fn memory(&mut self) -> Vec<Act> {
        let (from, to, at) = (self.register(), self.register(), self.random.below(OWN));
        let (one, other) = (self.width(), self.width());
        let store = Act::StoreOwn { at, from, width: one };
        let load = Act::LoadOwn { to, at, width: other };
        match self.random.below(3) {
            0 => vec![store],
            1 => vec![load],
            _ => vec![store, load],
        }
    }
}
