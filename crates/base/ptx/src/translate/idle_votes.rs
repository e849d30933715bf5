//! Votes of which no thread uses the result.
//!
//! In CUB's decoupled look-back, each thread waits for a value of its own. The threads of a warp
//! also vote in that loop, only to find the mask for their next vote:
//!
//! ```text
//! LOOP: ld.volatile.global.u32 %r1, [%rd1]; ...
//!       vote.sync.ballot.b32 %r2, %p1, %r2;      nothing else reads this %r2
//!       @%p2 bra LOOP;
//! ```
//!
//! All that such a vote does is that lanes wait for each other. In a kernel with a known protocol
//! (`known`) no lane needs that.

use std::collections::HashSet;

use super::effects;
use super::flow::ControlFlow;
use crate::ir::{Function, Modifiers, Opcode, Operand, RegisterId, Statement, Type, VoteMode};

/// Largest number of statements that the searches of one kernel visit. A search beyond this number
/// assumes a use.
const STEPS_MAX: usize = 4_000_000;

/// Makes each ballot a copy of its mask if only the masks of such ballots use its result.
pub(super) fn remove(function: &mut Function) {
    let flow = ControlFlow::of(function);
    let body = function.body.as_deref().unwrap_or_default();
    let ballots = body.iter().enumerate().filter(|(at, _)| flow.reached[flow.block_of[*at]]);
    let mut idle: Vec<(usize, RegisterId)> =
        ballots.filter_map(|(at, statement)| Some((at, result_of_ballot(statement)?))).collect();
    let (mut count, mut steps) = (None, 0);
    while count.replace(idle.len()) != Some(idle.len()) {
        let all: HashSet<usize> = idle.iter().map(|(at, _)| *at).collect();
        idle.retain(|(at, result)| !is_read(body, &flow, (*at, *result), &all, &mut steps));
    }
    let mut body = function.body.take().unwrap_or_default();
    for (at, _) in idle {
        if let Statement::Instruction(vote) = &mut body[at] {
            vote.opcode = Opcode::Mov;
            vote.types = vec![Type::B32];
            vote.modifiers = Modifiers::default();
            // The result and the mask; the predicate is in between.
            vote.operands.remove(1);
        }
    }
    function.body = Some(body);
}

/// Returns the register that a `vote.sync.ballot` writes.
fn result_of_ballot(statement: &Statement) -> Option<RegisterId> {
    let Statement::Instruction(what) = statement else { return None };
    let is_ballot = what.opcode == Opcode::Vote
        && what.modifiers.sync
        && what.modifiers.vote == Some(VoteMode::Ballot);
    match what.operands[..] {
        [Operand::Register(result), _, _] if is_ballot => Some(result),
        _ => None,
    }
}

/// Whether a statement that is not in `idle` may read the result of a vote.
fn is_read(
    body: &[Statement],
    flow: &ControlFlow,
    (vote, result): (usize, RegisterId),
    idle: &HashSet<usize>,
    steps: &mut usize,
) -> bool {
    let (mut seen, mut stack) = (HashSet::new(), vec![vote + 1]);
    while let Some(start) = stack.pop() {
        // The vote may be the last statement of its block.
        let Some(&block) = flow.block_of.get(start) else { continue };
        let range = &flow.blocks[block];
        let mut is_kept = true;
        for (at, statement) in body.iter().enumerate().take(range.end).skip(start) {
            *steps += 1;
            let Statement::Instruction(what) = statement else { continue };
            let (mut reads, mut writes) = (false, false);
            effects::read(what, &mut |id| reads |= id == result);
            effects::written(what, &mut |id| writes |= id == result && what.guard.is_none());
            if reads && !idle.contains(&at) || *steps > STEPS_MAX {
                return true;
            }
            if writes {
                is_kept = false;
                break;
            }
        }
        let next = range.successors.iter().filter(|next| is_kept && **next != flow.exit());
        let next = next.filter(|next| seen.insert(**next));
        stack.extend(next.map(|next| flow.blocks[*next].start));
    }
    false
}
