//! Emulates a warp lane by lane. All lanes of a group execute one statement after the other, and
//! groups that separated come together again where their paths do.
//!
//! The emulator refuses programs whose result depends on the order of lanes or of groups.

use std::collections::{HashMap, HashSet};

use super::program::{
    Change, LANES, Operation, Place, Program, Question, REGISTERS, Statement, WORDS,
};

/// Largest number of statements that one warp executes. Random programs execute some hundred.
const STEPS_MAX: u32 = 20_000;

/// Why a program has no defined result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Lanes store different values into one word in one statement.
    Collision,
    /// Groups that separated use one word.
    Sides,
    /// A lane asks for the value of a lane that is absent.
    Absent,
    /// The program executes more than `STEPS_MAX` statements.
    Long,
}

/// Result of a warp: its shared memory, and the registers of the lanes that reached the end (`None`
/// for the other lanes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub lanes: Vec<Option<[u32; REGISTERS]>>,
    pub words: Vec<u32>,
}

/// Words that a group of lanes has read, written, and changed by an atomic.
#[derive(Debug, Clone, Default)]
struct Used {
    read: HashSet<u32>,
    written: HashSet<u32>,
    changed: HashMap<u32, u8>,
}

struct Warp {
    first: u32,
    lanes: Vec<[u32; REGISTERS]>,
    words: Vec<u32>,
    over: u32,
    steps: u32,
    used: Used,
}

/// Returns the initial value of a register.
pub fn beginning(thread: u32, register: usize) -> u32 {
    let register = u32::try_from(register).expect("small");
    thread.wrapping_mul(0x9e37_79b1).wrapping_add(register.wrapping_mul(0x85eb_ca77))
        ^ (thread << 3)
}

/// Returns the initial value of a word of shared memory.
pub fn content(word: u32) -> u32 {
    word.wrapping_mul(0x0101_6b37) ^ 0x55
}

/// Runs all warps of a program.
pub fn run(program: &Program) -> Result<Vec<Outcome>, Refusal> {
    let mut outcomes = Vec::new();
    for first in (0..program.threads).step_by(LANES as usize) {
        let count = (program.threads - first).min(LANES);
        let lane = |lane: u32| std::array::from_fn(|register| beginning(first + lane, register));
        let mut warp = Warp {
            first,
            lanes: (0..count).map(lane).collect(),
            words: (0..WORDS).map(content).collect(),
            over: 0,
            steps: 0,
            used: Used::default(),
        };
        let all = if count == LANES { u32::MAX } else { (1 << count) - 1 };
        let left = warp.body(&program.body, all, &mut Ways::default())?;
        let lanes =
            (0..count).map(|lane| (left >> lane & 1 == 1).then(|| warp.lanes[lane as usize]));
        outcomes.push(Outcome { lanes: lanes.collect(), words: warp.words });
    }
    Ok(outcomes)
}

/// Lanes that have left a turn of a loop, or the loop.
#[derive(Default)]
struct Ways {
    turned: u32,
    left: u32,
}

fn members(mask: u32) -> impl Iterator<Item = u32> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

impl Used {
    /// Whether the result depends on the order of two groups.
    fn meets(&self, other: &Self) -> bool {
        let touches = |word: &u32| {
            other.read.contains(word)
                || other.written.contains(word)
                || other.changed.contains_key(word)
        };
        self.written.iter().any(touches)
            || self
                .read
                .iter()
                .any(|word| other.written.contains(word) || other.changed.contains_key(word))
            || self.changed.iter().any(|(word, how)| {
                other.read.contains(word)
                    || other.written.contains(word)
                    || other.changed.get(word).is_some_and(|other| other != how)
            })
    }

    fn add(&mut self, other: Self) {
        self.read.extend(other.read);
        self.written.extend(other.written);
        for (word, how) in other.changed {
            // Two kinds of change to one word count as a store.
            if self.changed.insert(word, how).is_some_and(|before| before != how) {
                self.written.insert(word);
            }
        }
    }
}

impl Warp {
    fn word(&self, place: Place, lane: u32) -> u32 {
        match place {
            Place::Own(more) => lane + more,
            Place::Crossed(bits) => lane ^ bits,
            Place::Permuted(times, more) => (lane * times + more) % LANES,
            Place::Fixed(word) => word,
            Place::Told(register) => self.lanes[lane as usize][register] % 64,
        }
    }

    fn answer(&mut self, question: Question, mask: u32) -> u32 {
        let mut yes = 0;
        for lane in members(mask) {
            let holds = match question {
                Question::Below(end) => lane < end,
                Question::HasBit(bit) => lane & bit != 0,
                Question::Is(other) => lane == other,
                Question::Bits(register, from, wanted) => {
                    self.lanes[lane as usize][register] >> from & 3 == wanted
                }
                Question::Odd(place) => {
                    let word = self.word(place, lane);
                    self.used.read.insert(word);
                    self.words[word as usize] & 1 == 1
                }
            };
            yes |= u32::from(holds) << lane;
        }
        yes
    }

    /// Returns the lanes that are still active behind the statements.
    fn body(&mut self, body: &[Statement], mut mask: u32, ways: &mut Ways) -> Result<u32, Refusal> {
        for statement in body {
            if mask == 0 {
                break;
            }
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Refusal::Long);
            }
            mask = self.statement(statement, mask, ways)?;
        }
        Ok(mask)
    }

    fn statement(
        &mut self,
        statement: &Statement,
        mask: u32,
        ways: &mut Ways,
    ) -> Result<u32, Refusal> {
        match statement {
            Statement::If(question, yes, no) => return self.fork(*question, yes, no, mask, ways),
            Statement::Loop { turns, body, .. } => {
                let mut inside = Ways::default();
                let mut active = mask;
                for _ in 0..*turns {
                    inside.turned = 0;
                    active = self.body(body, active, &mut inside)? | inside.turned;
                    if active == 0 {
                        break;
                    }
                }
                return Ok(active | inside.left);
            }
            Statement::BreakIf(question) => {
                let yes = self.answer(*question, mask);
                ways.left |= yes;
                return Ok(mask & !yes);
            }
            Statement::ContinueIf(question) => {
                let yes = self.answer(*question, mask);
                ways.turned |= yes;
                return Ok(mask & !yes);
            }
            Statement::ExitIf(question) => {
                let yes = self.answer(*question, mask);
                self.over |= yes;
                return Ok(mask & !yes);
            }
            simple => self.simple(simple, mask)?,
        }
        Ok(mask)
    }

    fn fork(
        &mut self,
        question: Question,
        yes: &[Statement],
        no: &[Statement],
        mask: u32,
        ways: &mut Ways,
    ) -> Result<u32, Refusal> {
        let taken = self.answer(question, mask);
        let before = std::mem::take(&mut self.used);
        let one = self.body(yes, taken, ways)?;
        let first = std::mem::take(&mut self.used);
        let other = self.body(no, mask & !taken, ways)?;
        let second = std::mem::replace(&mut self.used, before);
        if first.meets(&second) {
            return Err(Refusal::Sides);
        }
        self.used.add(first);
        self.used.add(second);
        Ok(one | other)
    }

    fn simple(&mut self, statement: &Statement, mask: u32) -> Result<(), Refusal> {
        match *statement {
            Statement::Compute(to, operation, one, other) => {
                for lane in members(mask) {
                    let registers = &mut self.lanes[lane as usize];
                    let (left, right) = (registers[one], registers[other]);
                    registers[to] = match operation {
                        Operation::Add => left.wrapping_add(right),
                        Operation::Sub => left.wrapping_sub(right),
                        Operation::Xor => left ^ right,
                        Operation::Times(times) => left.wrapping_mul(times).wrapping_add(right),
                    };
                }
            }
            Statement::Load { to, from, .. } => {
                for lane in members(mask) {
                    let word = self.word(from, lane);
                    self.used.read.insert(word);
                    self.lanes[lane as usize][to] = self.words[word as usize];
                }
            }
            Statement::Store { to, from, .. } => {
                let mut stored: HashMap<u32, u32> = HashMap::new();
                for lane in members(mask) {
                    let (word, value) = (self.word(to, lane), self.lanes[lane as usize][from]);
                    if stored.insert(word, value).is_some_and(|before| before != value) {
                        return Err(Refusal::Collision);
                    }
                }
                for (word, value) in stored {
                    self.used.written.insert(word);
                    self.words[word as usize] = value;
                }
            }
            Statement::Change { at, how, from } => {
                for lane in members(mask) {
                    let (word, value) = (self.word(at, lane), self.lanes[lane as usize][from]);
                    if self
                        .used
                        .changed
                        .insert(word, how as u8)
                        .is_some_and(|before| before != how as u8)
                    {
                        self.used.written.insert(word);
                    }
                    let old = self.words[word as usize];
                    self.words[word as usize] = match how {
                        Change::Add => old.wrapping_add(value),
                        Change::Max => old.max(value),
                        Change::Or => old | value,
                    };
                }
            }
            Statement::Ballot(to, question) => {
                let yes = self.answer(question, mask);
                members(mask).for_each(|lane| self.lanes[lane as usize][to] = yes);
            }
            Statement::Active(to) => {
                members(mask).for_each(|lane| self.lanes[lane as usize][to] = mask)
            }
            Statement::Shuffle { to, from, by } => {
                let old: Vec<u32> = self.lanes.iter().map(|lane| lane[from]).collect();
                for lane in members(mask) {
                    let other = lane ^ by;
                    if mask >> other & 1 == 0 {
                        return Err(Refusal::Absent);
                    }
                    self.lanes[lane as usize][to] = old[other as usize];
                }
            }
            _ => {}
        }
        let _ = self.first;
        Ok(())
    }
}
