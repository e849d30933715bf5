//! A heap's members as a state and its steps, and the search through all states that the steps lead to.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use penstock_ggas::frame::Note;
use penstock_ggas::life::Life;

/// Members of one exploration at most. Each has one PE.
const MEMBERS_MAX: usize = 4;
/// Work-groups of a PE at most.
const GROUPS_MAX: usize = 2;
/// Barriers of one launch.
const ROUNDS: u8 = 2;
/// The heap is reset once: generations 0 and 1.
const GENERATIONS: usize = 2;
const LAST_GENERATION: u64 = GENERATIONS as u64 - 1;
/// Between the counts of two generations, as `first_count` has it with 2^48: more than there are barriers in one.
const COUNTS: u64 = 16;
/// More states than any exploration here has: one that grows beyond it is too slow for a test.
const STATES_MAX: usize = 2_000_000;

/// A line that the protocol lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing is missing.
    None,
    /// A reset does not set `arrived` back.
    KeepsArrived,
    /// A reset does not set `status` back.
    KeepsStatus,
    /// A reset does not begin `met` anew.
    KeepsMet,
    /// A reset does not set `abort` back.
    KeepsAbort,
    /// A reset also forgets an abort of the generation that it begins.
    ForgetsNext,
    /// A note's generation is compared, then the lock is taken.
    ComparesEarly,
    /// A note's generation is not compared.
    ObeysAll,
    /// An abort does not wake who tells the others.
    RingsNotAtAll,
    /// Who waits takes any flag for that of its round.
    TakesAnyFlag,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Work-groups of each PE.
    pub groups: &'static [u8],
    /// Flags of barriers travel in the streams that carry notes, instead of being stored.
    pub proxied: bool,
    /// Programs abort so often, anywhere, at any time.
    pub aborts: u8,
    /// So many members end, at any time.
    pub ends: u8,
    /// Every wait may time out at any time.
    pub timeouts: bool,
    pub defect: Defect,
}

/// What verbs return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Status {
    #[default]
    Ok,
    Timeout,
    Aborted,
}

/// Where a work-group's first work-item is in `ggas_raw_barrier`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    /// Looks at the slot's status.
    #[default]
    Enter,
    LoadEpoch,
    Count,
    /// Stores its flag at the member so far behind it.
    Tell(u8),
    /// Waits for that one's flag.
    Await(u8),
    /// Has seen the abort, and looks at the flag once more.
    AwaitOnce(u8),
    /// Waits for the other work-groups.
    AwaitEpoch,
    AwaitEpochOnce,
    /// Says what came of it, to the other work-groups too.
    Result(Status),
    /// Lets the other work-groups go on.
    Release,
    /// Looks at the slot's status once more, which it returns.
    Leave,
    /// The launch is over.
    Landed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Group {
    at: At,
    round: u8,
    epoch: u8,
    /// Barriers of all generations that it has come to.
    entered: u64,
    /// Whether it releases the others.
    leads: bool,
}

/// The head and the flags of a member's PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Pe {
    flags: [u64; MEMBERS_MAX],
    met: [u64; MEMBERS_MAX],
    arrived: u8,
    epoch: u8,
    status: Status,
    abort: bool,
    groups: [Group; GROUPS_MAX],
}

/// What comes over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    Note(Note),
    Flag(u64),
    /// The stream has closed.
    End,
}

/// Where the thread is that tells of aborts and hears of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Watch {
    #[default]
    Asleep,
    /// Takes what the member of this number and those after it have sent.
    Hears(usize),
    /// With [`Defect::ComparesEarly`]: has found that this note counts.
    Obeys(Note, usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    life: Life,
    /// It has ended, or its reset has failed because another one has.
    over: bool,
    ended: bool,
    watch: Watch,
    bell: bool,
    told: Option<u64>,
    inbox: [Vec<Message>; MEMBERS_MAX],
    pe: Pe,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    members: Vec<Member>,
    aborts: u8,
    ends: u8,
    /// Generations in which somebody timed out, and which were aborted, by their numbers.
    timed_out: [bool; GENERATIONS],
    aborted: [bool; GENERATIONS],
}

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Kernel(usize, usize),
    Timeout(usize, usize),
    SeeAbort(usize, usize),
    Reset(usize),
    Watch(usize),
    Abort(usize),
    End(usize),
}

/// Looks at all states; how many there are.
///
/// # Errors
/// What is wrong in one of them, and the steps that led to it.
pub fn explore(config: Config) -> Result<usize, String> {
    let members = config.groups.len();
    let first = State {
        members: vec![Member::default(); members],
        aborts: config.aborts,
        ends: config.ends,
        ..State::default()
    };
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    // Fingerprints: of two million states two share one of 64 bits with a chance of one in ten million.
    let mut seen = HashSet::from([hasher.hash_one(&first)]);
    let mut path: Vec<(State, Vec<Step>)> = vec![(first.clone(), first.steps(&config))];
    let mut way: Vec<Step> = Vec::new();
    while let Some((state, left)) = path.last_mut() {
        let Some(step) = left.pop() else {
            path.pop();
            way.pop();
            continue;
        };
        let mut next = state.clone();
        let broken = next.go(step, &config);
        if !seen.insert(hasher.hash_one(&next)) && broken.is_none() {
            continue;
        }
        way.push(step);
        let steps = next.steps(&config);
        let stuck = steps.is_empty() && !next.is_over(&config);
        let broken = broken.or_else(|| stuck.then(|| "nobody can go on".to_owned()));
        if let Some(broken) = broken {
            return Err(format!("{broken}, in {config:?} after {way:?}: {next:?}"));
        }
        assert!(seen.len() <= STATES_MAX, "{config:?} has too many states");
        path.push((next, steps));
    }
    Ok(seen.len())
}

impl State {
    /// What may happen next.
    fn steps(&self, config: &Config) -> Vec<Step> {
        let mut steps = BTreeSet::new();
        for (index, member) in self.members.iter().enumerate() {
            if member.ended {
                continue;
            }
            if self.ends > 0 {
                steps.insert(Step::End(index));
            }
            if self.aborts > 0 && !member.over {
                steps.insert(Step::Abort(index));
            }
            if member.can_watch() {
                steps.insert(Step::Watch(index));
            }
            if self.may_reset(index, config) {
                steps.insert(Step::Reset(index));
            }
            for group in 0..usize::from(config.groups[index]) {
                self.steps_of_group(index, group, config, &mut steps);
            }
        }
        steps.into_iter().collect()
    }

    fn steps_of_group(
        &self,
        index: usize,
        group: usize,
        config: &Config,
        steps: &mut BTreeSet<Step>,
    ) {
        let pe = &self.members[index].pe;
        let at = pe.groups[group].at;
        match at {
            At::Landed => {}
            At::Await(_) | At::AwaitEpoch => {
                if self.holds(index, group, config) {
                    steps.insert(Step::Kernel(index, group));
                } else {
                    if pe.abort {
                        steps.insert(Step::SeeAbort(index, group));
                    }
                    if config.timeouts {
                        steps.insert(Step::Timeout(index, group));
                    }
                }
            }
            _ => {
                steps.insert(Step::Kernel(index, group));
            }
        }
    }

    /// Whether what a work-group waits for is there.
    fn holds(&self, index: usize, group: usize, config: &Config) -> bool {
        let pe = &self.members[index].pe;
        match pe.groups[group].at {
            At::Await(step) | At::AwaitOnce(step) => {
                let other = self.other(index, step);
                let wanted = if config.defect == Defect::TakesAnyFlag { 1 } else { pe.met[other] };
                pe.flags[other] >= wanted
            }
            _ => pe.epoch != pe.groups[group].epoch,
        }
    }

    fn other(&self, index: usize, step: u8) -> usize {
        (index + usize::from(step)) % self.members.len()
    }

    /// Members are reset when all kernels of the generation have ended everywhere, in any order.
    fn may_reset(&self, index: usize, config: &Config) -> bool {
        let generation = self.members[index].life.generation();
        let is_through = |(index, member): (usize, &Member)| {
            member.over
                || member.life.generation() > generation
                || member.has_landed(config.groups[index])
        };
        generation < LAST_GENERATION
            && !self.members[index].over
            && self.members.iter().enumerate().all(is_through)
    }

    fn is_over(&self, config: &Config) -> bool {
        let is_through = |(index, member): (usize, &Member)| {
            member.ended
                || member.has_landed(config.groups[index])
                    && (member.over || member.life.generation() == LAST_GENERATION)
        };
        self.members.iter().enumerate().all(is_through)
    }

    /// Takes a step. What it broke, if anything.
    fn go(&mut self, step: Step, config: &Config) -> Option<String> {
        match step {
            Step::Kernel(index, group) => return self.run(index, group, config),
            Step::Timeout(index, group) => {
                self.timed_out[self.generation(index)] = true;
                self.group(index, group).at = At::Result(Status::Timeout);
            }
            Step::SeeAbort(index, group) => {
                let group = self.group(index, group);
                group.at = match group.at {
                    At::Await(step) => At::AwaitOnce(step),
                    _ => At::AwaitEpochOnce,
                };
            }
            Step::Reset(index) => self.members[index].reset(config.groups[index], config.defect),
            Step::Watch(index) => self.watch(index, config.defect),
            Step::Abort(index) => {
                self.aborts -= 1;
                self.aborted[self.generation(index)] = true;
                let member = &mut self.members[index];
                member.life.abort("", false);
                member.stop(config.defect);
            }
            Step::End(index) => {
                self.ends -= 1;
                let member = &mut self.members[index];
                (member.ended, member.over) = (true, true);
                for other in (0..self.members.len()).filter(|&other| other != index) {
                    self.members[other].inbox[index].push(Message::End);
                }
            }
        }
        None
    }

    fn generation(&self, index: usize) -> usize {
        usize::try_from(self.members[index].life.generation()).unwrap()
    }

    fn group(&mut self, index: usize, group: usize) -> &mut Group {
        &mut self.members[index].pe.groups[group]
    }

    /// A work-group's kernel goes on to its next access to what others see: the only work-group of a PE has its meeting for itself.
    fn run(&mut self, index: usize, group: usize, config: &Config) -> Option<String> {
        loop {
            let broken = self.run_once(index, group, config);
            let at = self.group(index, group).at;
            let is_seen = matches!(at, At::Tell(_) | At::Await(_) | At::AwaitOnce(_) | At::Landed);
            if broken.is_some() || is_seen || config.groups[index] > 1 {
                return broken;
            }
        }
    }

    /// One access to memory.
    fn run_once(&mut self, index: usize, group: usize, config: &Config) -> Option<String> {
        let (holds, groups) = (self.holds(index, group, config), config.groups[index]);
        let others = u8::try_from(self.members.len() - 1).unwrap();
        let generation = self.members[index].life.generation();
        let pe = &mut self.members[index].pe;
        let mine = &mut pe.groups[group];
        mine.at = match mine.at {
            At::Enter => {
                mine.entered = generation * COUNTS + u64::from(mine.round) + 1;
                if pe.status == Status::Ok { At::LoadEpoch } else { At::Leave }
            }
            At::LoadEpoch => {
                mine.epoch = pe.epoch;
                At::Count
            }
            At::Count => {
                pe.arrived += 1;
                mine.leads = pe.arrived == groups;
                if mine.leads {
                    // Nobody else looks at it before this one lets them go on.
                    pe.arrived = 0;
                    At::Tell(1)
                } else {
                    At::AwaitEpoch
                }
            }
            At::Tell(step) => {
                self.tell(index, step, config.proxied);
                let at = if step < others { At::Tell(step + 1) } else { At::Await(1) };
                self.group(index, group).at = at;
                return None;
            }
            At::Await(step) | At::AwaitOnce(step) => match () {
                () if !holds => At::Result(Status::Aborted),
                () if step < others => At::Await(step + 1),
                () => At::Release,
            },
            At::AwaitEpoch | At::AwaitEpochOnce if holds => At::Leave,
            At::AwaitEpoch | At::AwaitEpochOnce => At::Result(Status::Aborted),
            At::Result(status) => {
                pe.status = status;
                if mine.leads { At::Release } else { At::Leave }
            }
            At::Release => {
                pe.epoch = mine.epoch + 1;
                At::Leave
            }
            At::Leave => return self.leave(index, group, config),
            At::Landed => At::Landed,
        };
        None
    }

    /// Stores a flag at another member's PE, or sends it there.
    fn tell(&mut self, index: usize, step: u8, proxied: bool) {
        let other = self.other(index, step);
        let pe = &mut self.members[index].pe;
        pe.met[other] += 1;
        let count = pe.met[other];
        let target = &mut self.members[other];
        if proxied {
            target.inbox[index].push(Message::Flag(count));
        } else {
            target.pe.flags[index] = count;
        }
    }

    /// The end of a barrier, and what it promises.
    fn leave(&mut self, index: usize, group: usize, config: &Config) -> Option<String> {
        let generation = self.generation(index);
        let status = self.members[index].pe.status;
        let mine = self.group(index, group);
        let entered = mine.entered;
        mine.round += 1;
        mine.at = if status == Status::Ok && mine.round < ROUNDS { At::Enter } else { At::Landed };
        if mine.at == At::Landed {
            // Nothing of it is used again: fewer states to look at.
            *mine = Group { at: At::Landed, entered, ..Group::default() };
        }
        let has_come = |(member, &groups): (&Member, &u8)| {
            member.pe.groups[..usize::from(groups)].iter().all(|group| group.entered >= entered)
        };
        let reason = match status {
            Status::Ok if self.members.iter().zip(config.groups).all(has_come) => return None,
            Status::Ok => {
                return Some(format!("PE {index} passes a barrier to which not all have come"));
            }
            Status::Timeout => self.timed_out[generation],
            Status::Aborted => {
                self.aborted[generation] || self.members.iter().any(|member| member.ended)
            }
        };
        (!reason).then(|| format!("PE {index}'s barrier fails without a reason: {status:?}"))
    }

    /// A step of the thread that watches: `Monitor::run`, and what the proxy's thread does of it.
    fn watch(&mut self, index: usize, defect: Defect) {
        let member = &mut self.members[index];
        let mut news = None;
        member.watch = match std::mem::take(&mut member.watch) {
            Watch::Asleep => {
                member.bell = false;
                news = member.life.news(member.told);
                Watch::Hears(0)
            }
            Watch::Hears(from) => member.hear(from, defect),
            Watch::Obeys(note, from) => {
                // As if it were about now: it was found to count.
                member.life.abort(&note.reason, false);
                member.stop(defect);
                Watch::Hears(from)
            }
        };
        let Some(note) = news else { return };
        member.told = Some(note.generation);
        for other in (0..self.members.len()).filter(|&other| other != index) {
            self.members[other].inbox[index].push(Message::Note(note.clone()));
        }
    }
}

impl Member {
    fn has_landed(&self, groups: u8) -> bool {
        self.pe.groups[..usize::from(groups)].iter().all(|group| group.at == At::Landed)
    }

    fn can_watch(&self) -> bool {
        self.watch != Watch::Asleep || self.bell || self.inbox.iter().any(|inbox| !inbox.is_empty())
    }

    /// `State::stop`.
    fn stop(&mut self, defect: Defect) {
        self.pe.abort = true;
        self.bell = defect != Defect::RingsNotAtAll;
    }

    /// Takes the next message, and says what the thread does then.
    fn hear(&mut self, from: usize, defect: Defect) -> Watch {
        let waiting = (from..self.inbox.len()).find(|&from| !self.inbox[from].is_empty());
        let Some(from) = waiting else { return Watch::Asleep };
        match self.inbox[from].remove(0) {
            Message::Flag(count) => self.pe.flags[from] = count,
            Message::End => {
                self.life.abort("", true);
                self.stop(defect);
            }
            Message::Note(note) => match defect {
                Defect::ComparesEarly if note.generation < self.life.generation() => {}
                Defect::ComparesEarly => return Watch::Obeys(note, from),
                Defect::ObeysAll => {
                    self.life.abort(&note.reason, note.last);
                    self.stop(defect);
                }
                _ if self.life.told(&note) => self.stop(defect),
                _ => {}
            },
        }
        if self.inbox[from..].iter().any(|inbox| !inbox.is_empty()) {
            Watch::Hears(from)
        } else {
            Watch::Asleep
        }
    }

    /// `State::renew`, and the next launch.
    fn reset(&mut self, groups: u8, defect: Defect) {
        let generation = self.life.generation() + 1;
        let Ok(is_aborted) = self.life.renew(generation) else {
            self.over = true;
            return;
        };
        let pe = &mut self.pe;
        for group in &mut pe.groups[..usize::from(groups)] {
            *group = Group { entered: group.entered, ..Group::default() };
        }
        if defect != Defect::KeepsMet {
            pe.met = [generation * COUNTS; MEMBERS_MAX];
        }
        if defect != Defect::KeepsArrived {
            pe.arrived = 0;
        }
        if defect != Defect::KeepsStatus {
            pe.status = Status::Ok;
        }
        match defect {
            Defect::KeepsAbort => {}
            Defect::ForgetsNext => pe.abort = false,
            _ => pe.abort = is_aborted,
        }
    }
}
