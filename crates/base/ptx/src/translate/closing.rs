//! Closed branches, for a defect of PoCL.
//!
//! PoCL makes a loop over the threads of a block from the code between two barriers. For that, each
//! barrier must have its own way to the end of the kernel, so PoCL copies what comes behind a
//! branch that contains a barrier. PoCL 3.1 to 7.1 copy it once for each *edge* that leads there,
//! and not once for each barrier (repaired in the commit 55b87559c of PoCL, August 2026):
//!
//! ```text
//! if (all) { barrier(); if (lid == 0) r += x; }     two edges lead from this barrier to the store
//! if (lid == 0) *out = r;
//! ```
//!
//! The copies count as two ways of the whole block. PoCL asks the first thread which way to go, and
//! sends all threads that way. So the first thread's register is overwritten by those of others.
//!
//! Therefore all edges from behind one barrier to one block that the barrier does not dominate lead
//! through one block of its own here, which contains a barrier (`ps_close`). From behind a barrier,
//! threads then only come to barriers that all of them reach, and one edge leads on from each.
//! LLVM makes no second copy of a barrier, so its optimiser cannot undo that. If the threads do not
//! come to such a block together, the kernel becomes a state machine, whose barriers are in no
//! branch.
//!
//! Compilers also add and move barriers, and copy what is between them. PoCL adds one at the start
//! of a branch all of whose paths lead to a barrier. LLVM merges the barriers of two branches, in
//! front of both or behind both. It copies code behind a branch if a later branch has the same
//! condition. So every block counts as one with a barrier that threads may reach together behind a
//! barrier in a branch. Then no code between two barriers there joins code of another branch.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::agree;
use super::convergence;
use super::effects::{self, is_meeting};
use super::flow::{self, Block, ControlFlow};
use super::inline::place_labels;
use super::order::stop_instruction;
use super::uniform::Uniformity;
use crate::ir::{
    Function, Instruction, Label, LabelId, Modifiers, Opcode, Operand, Statement, Stop,
};

/// Most turns of the analysis: a block that it inserts may make another one necessary. A kernel
/// that needs more becomes a state machine.
const TURNS_MAX: usize = 16;

/// Largest number of blocks that the analysis visits in one turn. A kernel that needs more becomes
/// a state machine.
const STEPS_MAX: usize = 16_000_000;

/// An edge, by the numbers of its two blocks.
type Edge = (usize, usize);

/// The edges that must be closed. All edges with the same value, which is the block of a barrier
/// and the block behind the edges, share a block.
type OpenEdges = BTreeMap<Edge, (usize, usize)>;

/// Closes the branches of a kernel that contain barriers. Returns whether that is impossible, so
/// that the kernel must become a state machine.
pub(super) fn close_branches(function: &mut Function) -> bool {
    if !effects::has_meetings(function) {
        return false;
    }
    let mut closed: Option<Function> = None;
    for _ in 0..TURNS_MAX {
        let current = closed.as_ref().unwrap_or(function);
        let flow = ControlFlow::of(current);
        let uniform = agree::uniform_with_agreement(current, &flow);
        if convergence::needs_machine(current, &flow, &uniform) {
            return closed.is_some();
        }
        let Some(open) = open_edges(current, &flow, &uniform) else { return true };
        if open.is_empty() {
            if let Some(closed) = closed {
                *function = closed;
            }
            return false;
        }
        closed = Some(with_closed(current, &flow, &open));
    }
    true
}

/// Returns the edges that must be closed, or `None` if PoCL might add a barrier that only some
/// threads reach.
fn open_edges(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> Option<OpenEdges> {
    let barriers = barriers(function, flow, uniform);
    let mut starts = starts_with_barrier(flow, uniform, &barriers)?;
    add_behind(flow, uniform, &barriers, &mut starts);
    let merged = merged_in_front(flow, uniform, &barriers);
    let nearest = nearest(flow, &|block| barriers[block] || starts[block] || merged[block]);
    let mut open = OpenEdges::new();
    // For each block that starts a loop, what is nearest to the edges that lead back there.
    let mut back: HashMap<usize, HashSet<Option<usize>>> = HashMap::new();
    for (from, block) in flow.blocks.iter().enumerate().filter(|(from, _)| flow.reached[*from]) {
        if is_closed(function, flow, from) {
            continue;
        }
        for &to in &block.successors {
            if flow.dominates(to, from) {
                back.entry(to).or_default().insert(nearest[from]);
            }
            let target = if only_ends(function, flow, to) { flow.exit() } else { to };
            let Some(point) = nearest[from] else { continue };
            if !flow.dominates(point, target) || to == point && !starts[point] {
                open.insert((from, to), (point, target));
            }
        }
    }
    // Edges that lead back to one block come together in a block in front of it. If one barrier is
    // the nearest for all of them, nothing leaves its reach there. Edges that lead into the loop
    // come together in another block.
    open.retain(|(from, to), _| {
        !flow.dominates(*to, *from) || back.get(to).is_none_or(|nearest| nearest.len() > 1)
    });
    Some(open)
}

/// Whether a block only ends the thread.
fn only_ends(function: &Function, flow: &ControlFlow, block: usize) -> bool {
    let body = function.body.as_deref().unwrap_or_default();
    block != flow.exit()
        && flow.blocks[block].successors == [flow.exit()]
        && body[flow.blocks[block].start..flow.blocks[block].end].iter().all(|statement| {
            matches!(statement, Statement::Label(_))
                || matches!(statement, Statement::Instruction(what) if flow::ends_block(what))
        })
}

/// Returns for each block whether it contains a barrier.
fn barriers(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> Vec<bool> {
    let mut barriers = vec![false; flow.blocks.len()];
    for (at, statement) in function.body.iter().flatten().enumerate() {
        let Statement::Instruction(what) = statement else { continue };
        barriers[flow.block_of[at]] |= is_meeting(what.opcode) || uniform.agreed.contains(&at);
    }
    barriers
}

/// Returns for each block whether PoCL may add a barrier at its start: all paths from there lead to
/// one barrier, and this is not so for a block in front of it. Returns `None` if only some threads
/// reach such a block.
fn starts_with_barrier(
    flow: &ControlFlow,
    uniform: &Uniformity,
    barriers: &[bool],
) -> Option<Vec<bool>> {
    let mut starts = vec![false; flow.blocks.len()];
    let mut steps = 0;
    let conditional = (0..barriers.len())
        .filter(|block| barriers[*block] && flow.reached[*block] && !flow.postdominates(*block, 0));
    for barrier in conditional {
        let mut seen = HashSet::from([barrier]);
        let mut stack = vec![barrier];
        while let Some(block) = stack.pop() {
            steps += 1;
            let before = flow.blocks[block].predecessors.iter().copied();
            for from in before.filter(|from| flow.reached[*from] && !flow.dominates(block, *from)) {
                let leads_on = flow.blocks[from].successors.len() == 1;
                starts[block] |= barriers[from] && leads_on || !flow.postdominates(barrier, from);
                if flow.postdominates(barrier, from) && seen.insert(from) {
                    stack.push(from);
                }
            }
            if steps > STEPS_MAX || starts[block] && !uniform.block(block) {
                return None;
            }
        }
    }
    Some(starts)
}

/// Returns for each block whether it ends with a branch that has barriers on all ways behind it,
/// and not the same one first on all ways: LLVM may make one barrier at the end of the block from
/// two of them. It makes no copies of a barrier, so it can move none that all ways come to first.
fn merged_in_front(flow: &ControlFlow, uniform: &Uniformity, barriers: &[bool]) -> Vec<bool> {
    let mut before = vec![Vec::new(); flow.blocks.len() + 1];
    for (from, block) in flow.blocks.iter().enumerate() {
        block.successors.iter().for_each(|to| before[*to].push(from));
    }
    let first = first_barriers(flow, &before, barriers);
    let mut lead = vec![true; flow.blocks.len() + 1];
    lead[flow.exit()] = false;
    let mut stack = vec![flow.exit()];
    while let Some(block) = stack.pop() {
        for &from in &before[block] {
            if !barriers[from] && std::mem::replace(&mut lead[from], false) {
                stack.push(from);
            }
        }
    }
    let leads = |(block, range): (usize, &Block)| {
        let next = &range.successors;
        let are_several = || {
            let firsts: HashSet<_> = next.iter().map(|next| first[*next]).collect();
            firsts.len() > 1 || firsts.contains(&First::Several)
        };
        let is_branch = next.len() > 1 && uniform.block(block);
        is_branch && next.iter().all(|next| lead[*next]) && are_several()
    };
    flow.blocks.iter().enumerate().map(leads).collect()
}

/// The barriers that paths from a block come to first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum First {
    None,
    /// All paths that come to a barrier come to that of this block.
    One(usize),
    Several,
}

/// Returns for each block the barriers that paths from its start come to first. `before` lists the
/// blocks in front of each block.
fn first_barriers(flow: &ControlFlow, before: &[Vec<usize>], barriers: &[bool]) -> Vec<First> {
    let mut first = vec![First::None; flow.blocks.len() + 1];
    let mut stack: Vec<usize> = (0..barriers.len()).filter(|block| barriers[*block]).collect();
    stack.iter().for_each(|block| first[*block] = First::One(*block));
    while let Some(block) = stack.pop() {
        for &from in before[block].iter().filter(|from| !barriers[**from]) {
            let joined = match (first[from], first[block]) {
                (First::None, other) => other,
                (known, other) if known == other => known,
                _ => First::Several,
            };
            if joined != first[from] {
                first[from] = joined;
                stack.push(from);
            }
        }
    }
    first
}

/// Adds the blocks that threads may reach together behind a barrier that not all paths pass. LLVM
/// may move the barriers of several branches there, or copy such a block for one of the branches.
fn add_behind(flow: &ControlFlow, uniform: &Uniformity, barriers: &[bool], starts: &mut [bool]) {
    let mut stack: Vec<usize> = (0..barriers.len())
        .filter(|block| barriers[*block] && flow.reached[*block] && !flow.postdominates(*block, 0))
        .collect();
    let mut seen = vec![false; flow.blocks.len()];
    while let Some(block) = stack.pop() {
        for &next in flow.blocks[block].successors.iter().filter(|next| **next != flow.exit()) {
            if !std::mem::replace(&mut seen[next], true) {
                starts[next] |= uniform.block(next);
                stack.push(next);
            }
        }
    }
}

/// Returns for each block the last block of those wanted that every path to its end passes.
fn nearest(flow: &ControlFlow, is_wanted: &dyn Fn(usize) -> bool) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; flow.blocks.len()];
    for point in (0..flow.blocks.len()).filter(|block| flow.reached[*block] && is_wanted(*block)) {
        for (block, nearest) in found.iter_mut().enumerate() {
            let is_nearer = nearest.is_none_or(|known| flow.dominates(known, point));
            if is_nearer && flow.reached[block] && flow.dominates(point, block) {
                *nearest = Some(point);
            }
        }
    }
    found
}

/// Whether a block is one that an earlier turn has inserted.
fn is_closed(function: &Function, flow: &ControlFlow, block: usize) -> bool {
    let body = function.body.as_deref().unwrap_or_default();
    body[flow.blocks[block].start..flow.blocks[block].end].iter().any(|statement| match statement {
        Statement::Instruction(what) => what.modifiers.stop == Some(Stop::Close),
        Statement::Label(_) => false,
    })
}

/// Returns the function with the edges led through blocks of their own, which follow at the end.
fn with_closed(function: &Function, flow: &ControlFlow, open: &OpenEdges) -> Function {
    let mut fresh = function.clone();
    let body = fresh.body.take().unwrap_or_default();
    let mut new_label = |name: &str| {
        fresh.labels.push(Label { name: name.to_owned(), position: 0 });
        LabelId(u32::try_from(fresh.labels.len() - 1).unwrap_or(u32::MAX))
    };
    let mut closing: BTreeMap<(usize, usize), LabelId> = BTreeMap::new();
    let mut behind: BTreeMap<usize, LabelId> = BTreeMap::new();
    for &(point, to) in open.values() {
        closing.entry((point, to)).or_insert_with(|| new_label("close"));
        behind.entry(to).or_insert_with(|| new_label("closed"));
    }
    let through = |from: usize, to: usize| Some(closing[open.get(&(from, to))?]);
    let mut text = Vec::with_capacity(body.len() + 4 * closing.len());
    for (at, mut statement) in body.into_iter().enumerate() {
        let block = flow.block_of[at];
        if at == flow.blocks[block].start
            && let Some(label) = behind.get(&block)
        {
            text.push(Statement::Label(*label));
        }
        let is_last = at + 1 == flow.blocks[block].end;
        let mut falls = is_last;
        if let Statement::Instruction(what) = &mut statement
            && is_last
        {
            falls = what.guard.is_some() || !flow::ends_block(what);
            redirect(what, flow, function, &|to| through(block, to));
        }
        text.push(statement);
        if !falls {
            continue;
        }
        if let Some(label) = through(block, block + 1) {
            text.push(jump(Opcode::Bra, Some(label)));
        } else if block + 1 == flow.exit() {
            text.push(jump(Opcode::Ret, None));
        }
    }
    for ((_, to), label) in &closing {
        text.push(Statement::Label(*label));
        text.push(Statement::Instruction(stop_instruction(Stop::Close)));
        text.push(match *to == flow.exit() {
            true => jump(Opcode::Ret, None),
            false => jump(Opcode::Bra, Some(behind[to])),
        });
    }
    fresh.body = Some(text);
    place_labels(&mut fresh);
    fresh
}

/// Changes the targets of a jump at the end of a block.
fn redirect(
    what: &mut Instruction,
    flow: &ControlFlow,
    function: &Function,
    through: &dyn Fn(usize) -> Option<LabelId>,
) {
    let change = |label: &mut LabelId| {
        let to = flow.block_of[function.labels[label.index()].position as usize];
        *label = through(to).unwrap_or(*label);
    };
    match what.opcode {
        Opcode::Ret | Opcode::Exit => {
            if let Some(label) = through(flow.exit()) {
                let guard = what.guard;
                *what = jump_instruction(Opcode::Bra, Some(label));
                what.guard = guard;
            }
        }
        Opcode::Bra | Opcode::BrxIdx => {
            for operand in &mut what.operands {
                match operand {
                    Operand::Label(label) => change(label),
                    Operand::Targets(labels) => labels.iter_mut().for_each(change),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn jump(opcode: Opcode, label: Option<LabelId>) -> Statement {
    Statement::Instruction(jump_instruction(opcode, label))
}

fn jump_instruction(opcode: Opcode, label: Option<LabelId>) -> Instruction {
    Instruction {
        line: 0,
        guard: None,
        opcode,
        types: Vec::new(),
        modifiers: Modifiers::default(),
        operands: label.map(Operand::Label).into_iter().collect(),
        destinations: 0,
        call: None,
        mnemonic: if opcode == Opcode::Bra { "bra".into() } else { "ret".into() },
    }
}
