//! Random programs of a warp.
//!
//! A program is a tree of statements on six registers of each lane, and on words of shared memory
//! that the lanes of one warp share. A single number determines it. The result of a program may
//! depend on the order in which lanes, or groups of lanes that took different paths, execute their
//! statements. The emulator detects that, and the test discards such a program.

use penstock_trial::Random;

/// Number of registers of a lane.
pub const REGISTERS: usize = 6;

/// Number of words of shared memory of a warp.
pub const WORDS: u32 = 80;

/// Number of lanes of a warp.
pub const LANES: u32 = 32;

fn small(random: &mut Random, end: u32) -> u32 {
    u32::try_from(random.below(u64::from(end))).expect("less than the end")
}

fn register(random: &mut Random) -> usize {
    random.index(REGISTERS)
}

/// A word of shared memory.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// The lane's own word, plus an offset.
    Own(u32),
    /// The word of the lane whose number differs in these bits.
    Crossed(u32),
    /// The lane's number times an odd number, plus an offset, modulo 32.
    Permuted(u32, u32),
    /// A word with this index.
    Fixed(u32),
    /// The index in a register, modulo 64.
    Told(usize),
}

/// A condition of a lane.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// Whether the lane's number is less.
    Below(u32),
    /// Whether the lane's number has one of these bits.
    HasBit(u32),
    /// Whether the lane has this number.
    Is(u32),
    /// Whether two bits of a register have this value.
    Bits(usize, u32, u32),
    /// Whether a word of shared memory is odd.
    Odd(Place),
}

/// How two registers combine to a new value.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Add,
    Sub,
    Xor,
    Times(u32),
}

/// How an atomic changes a word. The order of such changes does not matter.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Add,
    Max,
    Or,
}

#[derive(Debug, Clone)]
pub enum Statement {
    Compute(usize, Operation, usize, usize),
    Load {
        to: usize,
        from: Place,
        volatile: bool,
        generic: bool,
    },
    Store {
        to: Place,
        from: usize,
        volatile: bool,
    },
    Change {
        at: Place,
        how: Change,
        from: usize,
    },
    Ballot(usize, Question),
    Shuffle {
        to: usize,
        from: usize,
        by: u32,
    },
    Active(usize),
    /// `bar.warp.sync`, where all lanes are together.
    Meet,
    If(Question, Vec<Statement>, Vec<Statement>),
    /// At most `turns` turns. The test is at the beginning or at the end of a turn.
    Loop {
        turns: u32,
        at_head: bool,
        body: Vec<Statement>,
    },
    BreakIf(Question),
    ContinueIf(Question),
    ExitIf(Question),
}

/// A program and the number of threads in its block.
#[derive(Debug, Clone)]
pub struct Program {
    pub threads: u32,
    pub body: Vec<Statement>,
}

/// The context that decides which statements may be generated.
#[derive(Clone, Copy)]
struct Where {
    depth: u32,
    /// Whether the statement is directly in the body of a loop.
    in_loop: bool,
    /// Whether lanes may have taken different paths, or have ended.
    apart: bool,
}

impl Program {
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let threads = [32, 32, 64, 96, 32, 20][usize::try_from(random.below(6)).expect("small")];
        let length = 3 + random.below(10);
        let at = Where { depth: 0, in_loop: false, apart: false };
        let mut body = statements(&mut random, length, at);
        tell_once(&mut body, &mut false);
        if body.iter().any(exits) {
            body.retain(|statement| !matches!(statement, Statement::Meet));
        }
        Self { threads, body }
    }
}

/// Keeps only the first store to a place that a register chooses. The translation assumes that two
/// such stores go to different places.
fn tell_once(body: &mut [Statement], told: &mut bool) {
    for statement in body {
        match statement {
            Statement::Store { to, .. }
                if matches!(to, Place::Told(_)) && std::mem::replace(told, true) =>
            {
                *to = Place::Own(0);
            }
            Statement::If(_, yes, no) => {
                tell_once(yes, told);
                tell_once(no, told);
            }
            Statement::Loop { body, .. } => tell_once(body, told),
            _ => {}
        }
    }
}

/// Whether lanes may end in a statement.
fn exits(statement: &Statement) -> bool {
    match statement {
        Statement::ExitIf(_) => true,
        Statement::If(_, yes, no) => yes.iter().chain(no).any(exits),
        Statement::Loop { body, .. } => body.iter().any(exits),
        _ => false,
    }
}

fn statements(random: &mut Random, length: u64, at: Where) -> Vec<Statement> {
    (0..length).map(|_| statement(random, at)).collect()
}

fn place(random: &mut Random) -> Place {
    match random.below(10) {
        0..=2 => Place::Own(0),
        3 => Place::Own(small(random, 34)),
        4 => Place::Own(1),
        5 => Place::Crossed(1 + small(random, 31)),
        6 | 7 => Place::Permuted(2 * small(random, 16) + 1, small(random, 32)),
        8 => Place::Fixed(small(random, WORDS)),
        _ => Place::Told(register(random)),
    }
}

fn question(random: &mut Random) -> Question {
    match random.below(8) {
        0 | 1 => Question::Below(1 + small(random, 31)),
        2 | 3 => Question::HasBit(1 << small(random, 5)),
        4 => Question::Is(small(random, 20)),
        5 | 6 => Question::Bits(register(random), small(random, 8), small(random, 4)),
        _ => Question::Odd(place(random)),
    }
}

fn statement(random: &mut Random, at: Where) -> Statement {
    let Where { depth, in_loop, apart } = at;
    let deeper = Where { depth: depth + 1, in_loop: false, apart: true };
    match random.below(30) {
        0..=3 => {
            let operation = match random.below(4) {
                0 => Operation::Add,
                1 => Operation::Sub,
                2 => Operation::Xor,
                _ => Operation::Times(2 * small(random, 50) + 3),
            };
            Statement::Compute(register(random), operation, register(random), register(random))
        }
        4..=9 => Statement::Load {
            to: register(random),
            from: place(random),
            volatile: random.below(3) == 0,
            generic: random.below(5) == 0,
        },
        10..=15 => Statement::Store {
            to: place(random),
            from: register(random),
            volatile: random.below(3) == 0,
        },
        16 => {
            let how = match random.below(3) {
                0 => Change::Add,
                1 => Change::Max,
                _ => Change::Or,
            };
            Statement::Change { at: place(random), how, from: register(random) }
        }
        17 => Statement::Ballot(register(random), question(random)),
        18 => Statement::Shuffle {
            to: register(random),
            from: register(random),
            by: 1 + small(random, 31),
        },
        19 => Statement::Active(register(random)),
        20 if !apart => Statement::Meet,
        20..=23 if depth < 3 => {
            let (yes, no) = (1 + random.below(4), random.below(4));
            Statement::If(
                question(random),
                statements(random, yes, deeper),
                statements(random, no, deeper),
            )
        }
        24..=25 if depth < 2 => {
            let length = 1 + random.below(5);
            let inside = Where { in_loop: true, ..deeper };
            Statement::Loop {
                turns: 1 + small(random, 5),
                at_head: random.below(2) == 0,
                body: statements(random, length, inside),
            }
        }
        26..=27 if in_loop => Statement::BreakIf(question(random)),
        28 if in_loop => Statement::ContinueIf(question(random)),
        29 if random.below(3) == 0 => Statement::ExitIf(question(random)),
        _ => Statement::Store { to: place(random), from: register(random), volatile: false },
    }
}

/// Returns every program with one statement less, or with one statement replaced by its content.
pub fn smaller(body: &[Statement]) -> Vec<Vec<Statement>> {
    let mut found = Vec::new();
    for index in 0..body.len() {
        let with = |parts: &[Statement]| {
            let mut copy = body.to_vec();
            copy.splice(index..=index, parts.iter().cloned());
            copy
        };
        found.push(with(&[]));
        match &body[index] {
            Statement::If(question, yes, no) => {
                found.extend([with(yes), with(no)]);
                let build = |yes: Vec<Statement>, no: Vec<Statement>| {
                    with(&[Statement::If(*question, yes, no)])
                };
                found.extend(smaller(yes).into_iter().map(|yes| build(yes, no.clone())));
                found.extend(smaller(no).into_iter().map(|no| build(yes.clone(), no)));
            }
            Statement::Loop { turns, at_head, body: inner } => {
                let build = |turns: u32, body: Vec<Statement>| {
                    with(&[Statement::Loop { turns, at_head: *at_head, body }])
                };
                if *turns > 1 {
                    found.push(build(turns - 1, inner.clone()));
                }
                found.extend(smaller(inner).into_iter().map(|inner| build(*turns, inner)));
            }
            _ => {}
        }
    }
    found
}
