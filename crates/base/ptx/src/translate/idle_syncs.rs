//! Meetings of a warp that order no accesses to shared memory.
//!
//! CUB's radix sort lets the lanes of a warp meet after each store to global memory, only so that
//! they store to neighbouring places at the same time:
//!
//! ```text
//! bar.sync 0;
//! ld.shared.u32 %r1, [%r9]; st.global.u32 [%rd1], %r1; bar.warp.sync -1;
//! ld.shared.u32 %r2, [%r9+512]; st.global.u32 [%rd2], %r2; bar.warp.sync -1; ...
//! ```
//!
//! In a kernel with a known protocol (`known`), lanes exchange values through shared memory only.
//! If no lane changes shared memory between the last meeting of all lanes in front of such a
//! meeting and the next one behind it, then the meeting orders nothing.

use std::collections::HashSet;

use super::access::{self, AccessKind};
use super::flow::ControlFlow;
use crate::ir::{Function, Immediate, Instruction, Opcode, Operand, Statement};

/// Largest number of statements that the searches of one kernel visit. A search beyond this number
/// assumes a change.
const STEPS_MAX: usize = 4_000_000;

/// What a statement means for the order of accesses to shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// It may change shared memory.
    Change,
    /// All lanes of the warp meet.
    Meeting,
}

/// Makes each meeting of a whole warp that orders no accesses to shared memory a statement without
/// an effect.
///
/// One meeting after the other is taken out. Nothing changes shared memory on either side of it, up
/// to the next meetings that are left. So the same still holds for those that were taken out
/// before, whose sides now reach as far.
pub(super) fn remove(function: &mut Function) {
    let flow = ControlFlow::of(function);
    let body = function.body.as_deref().unwrap_or_default();
    let mut events: Vec<_> = body.iter().map(event).collect();
    let mut steps = 0;
    let mut idle = Vec::new();
    for (at, statement) in body.iter().enumerate() {
        let may_be_idle = flow.reached[flow.block_of[at]] && meets_as_warp(statement);
        if may_be_idle && !is_next_to_change(at, &events, &flow, &mut steps) {
            events[at] = None;
            idle.push(at);
        }
    }
    let mut body = function.body.take().unwrap_or_default();
    for at in idle {
        if let Statement::Instruction(what) = &mut body[at] {
            what.opcode = Opcode::Hint;
            what.operands.clear();
        }
    }
    function.body = Some(body);
}

/// Whether shared memory may change between a meeting and the meetings next to it.
fn is_next_to_change(
    meeting: usize,
    events: &[Option<Event>],
    flow: &ControlFlow,
    steps: &mut usize,
) -> bool {
    [true, false].into_iter().any(|is_forward| {
        let own = &flow.blocks[flow.block_of[meeting]];
        let from = if is_forward { meeting + 1..own.end } else { own.start..meeting };
        let (mut seen, mut stack) = (HashSet::new(), vec![(from, own)]);
        while let Some((range, block)) = stack.pop() {
            *steps += range.len();
            let mut found = events[range].iter().flatten();
            match if is_forward { found.next() } else { found.next_back() } {
                Some(Event::Change) => return true,
                Some(Event::Meeting) => continue,
                None if *steps > STEPS_MAX => return true,
                None => {}
            }
            let next = if is_forward { &block.successors } else { &block.predecessors };
            let fresh = next.iter().filter(|next| **next != flow.exit() && seen.insert(**next));
            stack.extend(fresh.map(|next| &flow.blocks[*next]).map(|it| (it.start..it.end, it)));
        }
        false
    })
}

/// Whether a statement is a `bar.warp.sync` of all lanes.
fn meets_as_warp(statement: &Statement) -> bool {
    let Statement::Instruction(what) = statement else { return false };
    what.opcode == Opcode::BarWarpSync
        && what.guard.is_none()
        && matches!(what.operands[..], [Operand::Immediate(Immediate::Integer(mask))]
            if mask & 0xffff_ffff == 0xffff_ffff)
}

fn event(statement: &Statement) -> Option<Event> {
    let Statement::Instruction(what) = statement else { return None };
    let is_meeting = meets_as_warp(statement)
        // Without a number of threads, all threads of the block take part.
        || what.opcode == Opcode::BarSync && what.guard.is_none() && what.sources().len() == 1;
    if is_meeting {
        return Some(Event::Meeting);
    }
    may_change_shared_memory(what).then_some(Event::Change)
}

fn may_change_shared_memory(what: &Instruction) -> bool {
    match access::kind(what) {
        Some(AccessKind::Load) => false,
        Some(AccessKind::Store | AccessKind::Atomic) => {
            what.opcode == Opcode::CpAsync || access::is_shared(&what.modifiers)
        }
        None => what.opcode == Opcode::Call,
    }
}
