//! The members of a heap as a state with steps, and the search through all reachable states.

mod fingerprint;

use std::collections::{BTreeSet, HashSet};

use fingerprint::Fingerprint;
use penstock_ggas::abort::AbortState;
use penstock_ggas::frame::AbortNote;

/// Maximum number of members of an exploration. Each has one PE.
const MEMBERS_MAX: usize = 4;
/// Maximum number of work-groups of a PE.
const GROUPS_MAX: usize = 2;
/// Barriers of one launch.
const ROUNDS: u8 = 2;
/// Number of generations: the heap is reset once.
const GENERATIONS: usize = 2;
const LAST_GENERATION: u64 = GENERATIONS as u64 - 1;
/// Distance between the counts of two generations, `first_count` has 2^48 for it. There are fewer
/// barriers in a generation.
const COUNTS: u64 = 16;
/// Limit on the number of states; an exploration beyond it is too slow for a test.
const STATES_MAX: usize = 2_000_000;

/// Line that the protocol lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The protocol is complete.
    None,
    /// A reset does not clear `arrived`.
    KeepsArrived,
    /// A reset does not clear `status`.
    KeepsStatus,
    /// A reset does not restart `met`.
    KeepsMet,
    /// A reset does not clear `abort`.
    KeepsAbort,
    /// A reset also drops an abort of the generation that it begins.
    ForgetsNext,
    /// A note's generation is compared before the lock is taken.
    ComparesEarly,
    /// A note's generation is not compared.
    ObeysAll,
    /// An abort does not wake the thread that tells the others.
    RingsNotAtAll,
    /// A waiting work-group accepts any flag as that of its round.
    TakesAnyFlag,
}

/// Parameters of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of work-groups of each PE.
    pub groups: &'static [u8],
    /// Whether flags of barriers travel in the streams that carry notes, instead of being stored.
    pub proxied: bool,
    /// Number of aborts by programs, anywhere at any time.
    pub aborts: u8,
    /// Number of members that end, at any time.
    pub ends: u8,
    /// Whether every wait may time out at any time.
    pub timeouts: bool,
    pub defect: Defect,
}

/// Result of a verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Status {
    #[default]
    Ok,
    Timeout,
    Aborted,
}

/// Position of a work-group's first work-item in `ggas_raw_barrier`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    /// Looks at the slot's status.
    #[default]
    Enter,
    LoadEpoch,
    Count,
    /// Stores its flag at the member at this distance behind it.
    Tell(u8),
    /// Waits for the flag of that member.
    Await(u8),
    /// Has seen the abort and looks at the flag once more.
    AwaitOnce(u8),
    /// Waits for the other work-groups.
    AwaitEpoch,
    AwaitEpochOnce,
    /// Stores the result for the other work-groups, too.
    Result(Status),
    /// Lets the other work-groups continue.
    Release,
    /// Looks at the slot's status once more and returns it.
    Leave,
    /// The launch is over.
    Landed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Group {
    at: At,
    round: u8,
    epoch: u8,
    /// Number of barriers in all generations that it has entered.
    entered: u64,
    /// Whether it releases the others.
    leads: bool,
}

/// Head and flags of a member's PE.
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

/// Message on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    Note(AbortNote),
    Flag(u64),
    /// The stream has closed.
    End,
}

/// Position of the thread that tells of aborts and hears of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Watch {
    #[default]
    Asleep,
    /// Takes messages of the member with this number and of those after it.
    Hears(usize),
    /// With [`Defect::ComparesEarly`]: has found that this note counts.
    Obeys(AbortNote, usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    aborts: AbortState,
    /// Whether it has ended, or its reset has failed because another member has ended.
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
    /// By generation: whether a wait timed out, and whether it was aborted.
    timed_out: [bool; GENERATIONS],
    aborted: [bool; GENERATIONS],
}

/// Step that may happen next.
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

/// Visits all states and returns their number.
///
/// # Errors
/// Describes a violation in one of them, and the steps that led to it.
pub fn explore(config: Config) -> Result<usize, String> {
    let members = config.groups.len();
    let first = State {
        members: vec![Member::default(); members],
        aborts: config.aborts,
        ends: config.ends,
        ..State::default()
    };
    let mut seen = HashSet::from([Fingerprint::of(&first)]);
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
        if !seen.insert(Fingerprint::of(&next)) && broken.is_none() {
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
    /// Returns the possible next steps.
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

    /// Returns whether the condition that a work-group waits for holds.
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

    /// Members may be reset in any order when all kernels of the generation have ended.
    fn may_reset(&self, index: usize, config: &Config) -> bool {
        let generation = self.members[index].aborts.generation();
        let is_through = |(index, member): (usize, &Member)| {
            member.over
                || member.aborts.generation() > generation
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
                    && (member.over || member.aborts.generation() == LAST_GENERATION)
        };
        self.members.iter().enumerate().all(is_through)
    }

    /// Takes a step. Returns the violation that it causes, if any.
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
                member.aborts.abort("", false);
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
        usize::try_from(self.members[index].aborts.generation()).unwrap()
    }

    fn group(&mut self, index: usize, group: usize) -> &mut Group {
        &mut self.members[index].pe.groups[group]
    }

    /// Runs a work-group up to its next access that others can see. The only work-group of a PE
    /// shares its meeting with no other.
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

    /// Performs one access to memory.
    fn run_once(&mut self, index: usize, group: usize, config: &Config) -> Option<String> {
        let (holds, groups) = (self.holds(index, group, config), config.groups[index]);
        let others = u8::try_from(self.members.len() - 1).unwrap();
        let generation = self.members[index].aborts.generation();
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
                    // No other work-group looks at it before this one releases them.
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

    /// Ends a barrier and checks its guarantees.
    fn leave(&mut self, index: usize, group: usize, config: &Config) -> Option<String> {
        let generation = self.generation(index);
        let status = self.members[index].pe.status;
        let mine = self.group(index, group);
        let entered = mine.entered;
        mine.round += 1;
        mine.at = if status == Status::Ok && mine.round < ROUNDS { At::Enter } else { At::Landed };
        if mine.at == At::Landed {
            // Its other fields are not used again; clearing them saves states.
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

    /// Takes a step of the watching thread: `Watcher::run`, and that part of the proxy.
    fn watch(&mut self, index: usize, defect: Defect) {
        let member = &mut self.members[index];
        let mut news = None;
        member.watch = match std::mem::take(&mut member.watch) {
            Watch::Asleep => {
                member.bell = false;
                news = member.aborts.note_for_others(member.told);
                Watch::Hears(0)
            }
            Watch::Hears(from) => member.hear(from, defect),
            Watch::Obeys(note, from) => {
                // Applies to the current generation: the note was found to count.
                member.aborts.abort(&note.reason, false);
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

    /// Does the same as `State::stop`.
    fn stop(&mut self, defect: Defect) {
        self.pe.abort = true;
        self.bell = defect != Defect::RingsNotAtAll;
    }

    /// Takes the next message and returns the thread's next position.
    fn hear(&mut self, from: usize, defect: Defect) -> Watch {
        let waiting = (from..self.inbox.len()).find(|&from| !self.inbox[from].is_empty());
        let Some(from) = waiting else { return Watch::Asleep };
        match self.inbox[from].remove(0) {
            Message::Flag(count) => self.pe.flags[from] = count,
            Message::End => {
                self.aborts.abort("", true);
                self.stop(defect);
            }
            Message::Note(note) => match defect {
                Defect::ComparesEarly if note.generation < self.aborts.generation() => {}
                Defect::ComparesEarly => return Watch::Obeys(note, from),
                Defect::ObeysAll => {
                    self.aborts.abort(&note.reason, note.is_final);
                    self.stop(defect);
                }
                _ if self.aborts.receive(&note) => self.stop(defect),
                _ => {}
            },
        }
        if self.inbox[from..].iter().any(|inbox| !inbox.is_empty()) {
            Watch::Hears(from)
        } else {
            Watch::Asleep
        }
    }

    /// Corresponds to `State::renew` and the next launch.
    fn reset(&mut self, groups: u8, defect: Defect) {
        let generation = self.aborts.generation() + 1;
        let Ok(is_aborted) = self.aborts.begin_generation(generation) else {
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
