//! Loops with barriers, which all threads of a block leave together behind a fault.
//!
//! A thread must not leave such a loop alone, because the others would wait for it at the barrier.
//! In a kernel that is no state machine and checks addresses, all threads of a block decide the
//! same in the same turn:
//!
//! * All threads of the block come to each barrier together. In front of a barrier of such a loop,
//!   the first thread stores whether some thread has recorded a fault. Behind the barrier, all
//!   threads copy that word to their variable `failed`. Two words alternate: the first thread
//!   stores into a word again in front of the next barrier but one, and all threads have read the
//!   word before they come to the next barrier. The first thread does not end before the others:
//!   a thread that fails in such a kernel goes on.
//! * So `failed` is the same in all threads between two barriers. A branch with one way that stays
//!   in the loop takes the other way if `failed` is set. All threads come to this branch together
//!   and with the same predicate, so that they still take one way. Each such branch is taken, also
//!   one that the program would not take, such as one to a message and a `ret`.
//!
//! Between a fault and the next barrier, threads leave loops without barriers one by one. What they
//! compute there may differ, and a branch that depends on it may bring them to different barriers.
//! Nothing here prevents that.
//!
//! The kernel gets no branch and no barrier for that, so all other analyses of its control flow
//! remain true. Which registers change in the loop does not matter.
//!
//! A loop continues if a turn passes no branch that leaves the loop. So does a loop that has no
//! block through which all ways lead into it, and one that only `brx.idx` closes or leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::effects::is_meeting;
use super::flow::ControlFlow;
use super::uniform::Uniformity;
use super::writer::Writer;
use crate::ir::{Function, Guard, Opcode, Operand, Statement};

/// Largest number of blocks that the analysis visits for all loops of a kernel. Beyond it, threads
/// do not leave these loops. No compiler nests that many loops.
const STEPS_MAX: usize = 4_000_000;

/// The branches that all threads of a block take out of a loop once a thread has failed.
#[derive(Debug, Default)]
pub(super) struct SharedExits {
    /// For each of these branches, by its statement, whether the branch leaves the loop if it is
    /// taken.
    branches: BTreeMap<usize, bool>,
    /// The blocks of the loops that these branches leave.
    blocks: BTreeSet<usize>,
}

impl SharedExits {
    pub(super) fn of(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> Self {
        let meets = meets(function, flow, uniform);
        let mut exits = Self::default();
        for inside in loops(flow).unwrap_or_default().into_values() {
            if !inside.iter().any(|block| meets[*block]) {
                continue;
            }
            let found: BTreeMap<usize, bool> = inside
                .iter()
                .filter_map(|block| exit(function, flow, uniform, (*block, &inside)))
                .collect();
            if !found.is_empty() {
                exits.branches.extend(found);
                exits.blocks.extend(inside);
            }
        }
        exits
    }

    pub(super) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }
}

/// Returns for each block whether threads wait for each other in it.
pub(super) fn meets(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> Vec<bool> {
    let mut meets = vec![false; flow.blocks.len()];
    for (at, statement) in function.body.iter().flatten().enumerate() {
        if let Statement::Instruction(what) = statement {
            meets[flow.block_of[at]] |= is_meeting(what.opcode) || uniform.agreed.contains(&at);
        }
    }
    meets
}

/// Returns the blocks of each loop, by the block through which all ways lead into it. Edges that
/// lead back to one block close one loop. Returns `None` if the kernel is too large to analyse.
fn loops(flow: &ControlFlow) -> Option<BTreeMap<usize, BTreeSet<usize>>> {
    let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut steps = 0;
    for (latch, block) in flow.blocks.iter().enumerate().filter(|(latch, _)| flow.reached[*latch]) {
        for &head in block.successors.iter().filter(|next| **next != flow.exit()) {
            if !flow.dominates(head, latch) {
                continue;
            }
            let inside = found.entry(head).or_insert_with(|| BTreeSet::from([head]));
            let mut stack = vec![latch];
            while let Some(block) = stack.pop() {
                steps += 1;
                if steps > STEPS_MAX {
                    return None;
                }
                if flow.reached[block] && inside.insert(block) {
                    stack.extend(&flow.blocks[block].predecessors);
                }
            }
        }
    }
    Some(found)
}

/// Returns the branch at the end of a block of a loop, and whether the branch leaves the loop if it
/// is taken, if one of its two ways does.
fn exit(
    function: &Function,
    flow: &ControlFlow,
    uniform: &Uniformity,
    (block, inside): (usize, &BTreeSet<usize>),
) -> Option<(usize, bool)> {
    let at = flow.blocks[block].end.checked_sub(1)?;
    let Statement::Instruction(branch) = function.body.as_deref()?.get(at)? else { return None };
    let taken = match (branch.opcode, &branch.operands[..]) {
        (Opcode::Bra, [Operand::Label(label)]) => {
            flow.block_of[function.labels[label.index()].position as usize]
        }
        (Opcode::Ret | Opcode::Exit, _) => flow.exit(),
        _ => return None,
    };
    let leaves = !inside.contains(&taken);
    let is_choice = branch.guard.is_some() && leaves == inside.contains(&(block + 1));
    (is_choice && uniform.instruction(branch, block)).then_some((at, leaves))
}

impl Writer<'_> {
    /// Returns the condition of the current statement's guard in C. It has no `&&` or `||`, which
    /// would be further branches.
    pub(super) fn condition(&self, guard: Guard) -> String {
        let not = if guard.negated { "!" } else { "" };
        let name = self.name(guard.register);
        match self.shared_exits.branches.get(&self.at) {
            Some(true) => format!("{not}{name} | failed"),
            Some(false) => format!("{not}{name} & !failed"),
            None => format!("{not}{name}"),
        }
    }

    /// Whether a barrier of the current statement tells all threads whether one has failed.
    pub(super) fn tells_failure(&self) -> bool {
        self.shared_exits.blocks.contains(&self.flow.block_of[self.at])
    }

    /// Writes what stands in front of such a barrier. The load separates the branch from a barrier
    /// in front of it, like `ps_apart`.
    pub(super) fn store_failure(&mut self) {
        self.uses_lid = true;
        self.line("{ const uint fault = *(volatile __global const uint *)AT(control);");
        self.line("if (lid == 0) wf[side] = fault; }");
    }

    /// Writes what stands behind such a barrier.
    pub(super) fn load_failure(&mut self) {
        self.line("failed |= wf[side] != 0u; side ^= 1u;");
    }

    pub(super) fn declare_failure(&self, text: &mut String) {
        if !self.shared_exits.is_empty() {
            text.push_str("__local uint wf[2];\nuint side = 0;\nbool failed = false;\n");
        }
    }
}
