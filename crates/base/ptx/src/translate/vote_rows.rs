//! Votes in a row, which share one barrier.
//!
//! CUB's radix sort votes on each bit of a digit, and each vote is independent of the ones before:
//!
//! ```text
//! and.b32 %r3, %r2, 1; setp.ne.u32 %p1, %r3, 0; vote.sync.ballot.b32 %r4, %p1, -1;
//! @!%p1 not.b32 %r4, %r4; and.b32 %r5, %r4, %r5;
//! and.b32 %r6, %r2, 2; setp.ne.u32 %p2, %r6, 0; vote.sync.ballot.b32 %r7, %p2, -1; ...
//! ```
//!
//! Each barrier costs the device's compiler time, so such votes move together. Only moves, simple
//! arithmetic and comparisons lie in between. Those that do not need the result of a vote move in
//! front of all votes, the others stay behind. No instruction moves across one that writes what it
//! reads, or reads or writes what it writes, so each register has the same values as before.

use std::collections::HashSet;

use super::effects;
use crate::ir::{Function, Instruction, Opcode, Operand, RegisterId, Statement};

/// Largest number of votes that share a barrier: the bits of a digit of a radix sort. Each warp has
/// three words of local memory for each of them.
pub(super) const VOTES_MAX: usize = 8;

/// Largest number of instructions that are looked at behind a vote for the next one. CUB has six.
const DISTANCE_MAX: usize = 32;

/// Whether an instruction is a vote that every thread executes which comes there.
pub(super) fn is_vote(statement: &Statement) -> bool {
    matches!(statement, Statement::Instruction(what)
        if what.opcode == Opcode::Vote && what.guard.is_none() && what.modifiers.sync)
}

/// Returns the number of votes that begin at a statement and share a barrier.
pub(super) fn count(body: &[Statement], at: usize) -> usize {
    let votes = || body[at..].iter().take(VOTES_MAX).take_while(|statement| is_vote(statement));
    let mut written = HashSet::new();
    votes()
        .take_while(|statement| {
            let Statement::Instruction(vote) = statement else { return false };
            let mut is_free = true;
            effects::read(vote, &mut |id| is_free &= !written.contains(&id));
            effects::written(vote, &mut |id| is_free &= written.insert(id));
            is_free
        })
        .count()
}

/// What the text of a kernel needs for its votes.
pub(super) struct VoteRows {
    /// Largest number of votes that share a barrier, or 0 if there are none.
    pub most: usize,
    pub are_used: bool,
    /// Index behind the last row that is written.
    pub written_to: usize,
}

impl VoteRows {
    pub(super) fn of(body: &[Statement]) -> Self {
        let votes = (0..body.len()).filter(
            |at| matches!(&body[*at], Statement::Instruction(what) if what.opcode == Opcode::Vote),
        );
        let most = votes.map(|at| count(body, at).max(1)).max().unwrap_or(0);
        Self { most, are_used: false, written_to: 0 }
    }
}

/// Moves independent votes together.
pub(super) fn gather(function: &mut Function) {
    let Some(body) = function.body.as_mut() else { return };
    let mut at = 0;
    while at < body.len() {
        if !is_vote(&body[at]) {
            at += 1;
            continue;
        }
        let mut row = Row::default();
        let (mut end, mut count) = (at, 0);
        while count < VOTES_MAX && row.takes_next(body, &mut end) {
            count += 1;
        }
        // Only the statements of the row move: a kernel may have as many rows as statements.
        let mut row: Vec<(Place, Statement)> =
            row.places.into_iter().zip(body[at..end].iter().cloned()).collect();
        row.sort_by_key(|(place, _)| *place);
        for (to, (_, statement)) in body[at..end].iter_mut().zip(row) {
            *to = statement;
        }
        at = end;
    }
}

/// Where a statement of a row goes, in the order of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Front,
    Vote,
    Behind,
}

/// A row of votes, and what lies between them.
#[derive(Debug, Default)]
struct Row {
    places: Vec<Place>,
    /// The registers that the votes, and the instructions behind them, write and read.
    written: HashSet<RegisterId>,
    read: HashSet<RegisterId>,
}

impl Row {
    /// Adds the next vote behind `end`, with what is in front of it. Returns false if there is none
    /// that can move.
    fn takes_next(&mut self, body: &[Statement], end: &mut usize) -> bool {
        let known = (self.places.len(), self.written.clone(), self.read.clone());
        for (index, statement) in body.iter().enumerate().skip(*end).take(DISTANCE_MAX) {
            let Statement::Instruction(what) = statement else { break };
            if is_vote(statement) {
                if self.needs(what) {
                    break;
                }
                self.keep(what, Place::Vote);
                *end = index + 1;
                return true;
            }
            if !works_on_registers(what) {
                break;
            }
            let place = if self.needs(what) { Place::Behind } else { Place::Front };
            self.keep(what, place);
        }
        self.places.truncate(known.0);
        (self.written, self.read) = (known.1, known.2);
        false
    }

    /// Whether an instruction must stay behind what is in the row so far.
    fn needs(&self, what: &Instruction) -> bool {
        let mut needs = false;
        effects::read(what, &mut |id| needs |= self.written.contains(&id));
        effects::written(what, &mut |id| {
            needs |= self.written.contains(&id) || self.read.contains(&id);
        });
        needs
    }

    fn keep(&mut self, what: &Instruction, place: Place) {
        self.places.push(place);
        if place != Place::Front {
            effects::written(what, &mut |id| _ = self.written.insert(id));
            effects::read(what, &mut |id| _ = self.read.insert(id));
        }
    }
}

/// Whether an instruction does nothing but write registers, from registers and constants. The list
/// has the instructions that CUB and loops over the bits of a value need.
fn works_on_registers(what: &Instruction) -> bool {
    let is_plain = matches!(
        what.opcode,
        Opcode::Mov
            | Opcode::Add
            | Opcode::Sub
            | Opcode::Mul
            | Opcode::Mad
            | Opcode::And
            | Opcode::Or
            | Opcode::Xor
            | Opcode::Not
            | Opcode::Shl
            | Opcode::Shr
            | Opcode::Setp
            | Opcode::Selp
    );
    let is_value =
        |operand: &Operand| matches!(operand, Operand::Register(_) | Operand::Immediate(_));
    is_plain && !what.modifiers.carry && what.operands.iter().all(is_value)
}
