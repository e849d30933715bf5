//! The control flow of a kernel: blocks, who dominates whom, and what depends on which branch.

use crate::ir::{Function, Instruction, LabelId, Opcode, Operand, RegisterId, Statement};

/// Statements that are executed one after the other: entered at the first, left at the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Index of its first statement.
    pub start: usize,
    /// Index behind its last statement.
    pub end: usize,
    /// Where it can go, in no order; [`Flow::exit`] for the end of the thread.
    pub next: Vec<usize>,
    /// From where it is reached.
    pub before: Vec<usize>,
}

/// The control flow of one kernel.
#[derive(Debug)]
pub(super) struct Flow {
    pub blocks: Vec<Block>,
    /// The block of each statement.
    pub block_of: Vec<usize>,
    /// The immediate dominator of each block; its own number for the first and for blocks that nothing reaches.
    dominator: Vec<usize>,
    /// The immediate post-dominator; [`Flow::exit`] where there is none.
    postdominator: Vec<usize>,
    /// Whether the block can be reached.
    pub reached: Vec<bool>,
}

/// Whether an instruction ends a block.
fn ends_block(instruction: &Instruction) -> bool {
    matches!(instruction.opcode, Opcode::Bra | Opcode::BrxIdx | Opcode::Ret | Opcode::Exit)
}

impl Flow {
    pub(super) fn of(function: &Function) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of = vec![0; body.len()];
        let mut fresh = true;
        for (index, statement) in body.iter().enumerate() {
            let starts = fresh || (matches!(statement, Statement::Label(_)) && !follows_label(body, index));
            if starts {
                blocks.push(Block { start: index, end: index, ..Block::default() });
            }
            let last = blocks.len() - 1;
            blocks[last].end = index + 1;
            block_of[index] = last;
            fresh = matches!(statement, Statement::Instruction(instruction) if ends_block(instruction));
        }
        if blocks.is_empty() {
            blocks.push(Block::default());
        }
        let exit = blocks.len();
        let place = |label: LabelId| block_of[function.labels[label.index()].position as usize];
        for index in 0..exit {
            let mut next = successors(body, &blocks[index], index, exit, &place);
            next.sort_unstable();
            next.dedup();
            for &target in next.iter().filter(|target| **target != exit) {
                blocks[target].before.push(index);
            }
            blocks[index].next = next;
        }
        let mut flow =
            Self { blocks, block_of, dominator: Vec::new(), postdominator: Vec::new(), reached: Vec::new() };
        flow.dominate();
        flow
    }

    /// The number that stands for the end of a thread: one behind the last block.
    pub(super) fn exit(&self) -> usize {
        self.blocks.len()
    }

    fn dominate(&mut self) {
        let exit = self.exit();
        let forward: Vec<Vec<usize>> =
            self.blocks.iter().map(|block| block.next.clone()).chain([Vec::new()]).collect();
        let order = postorder(&forward, 0);
        self.reached = vec![false; exit];
        order.iter().filter(|block| **block != exit).for_each(|block| self.reached[*block] = true);
        self.dominator = dominators(&forward, 0);
        // Blocks of endless loops never reach the end: as if they could leave, so that they have post-dominators.
        let mut backward = vec![Vec::new(); exit + 1];
        for (from, next) in forward.iter().enumerate() {
            next.iter().for_each(|to| backward[*to].push(from));
        }
        loop {
            let mut seen = vec![false; exit + 1];
            postorder(&backward, exit).iter().for_each(|block| seen[*block] = true);
            match (0..exit).rev().find(|block| self.reached[*block] && !seen[*block]) {
                Some(block) => backward[exit].push(block),
                None => break,
            }
        }
        self.postdominator = dominators(&backward, exit);
    }

    /// Whether every way to `block` passes `by`.
    pub(super) fn dominates(&self, by: usize, mut block: usize) -> bool {
        while block != by {
            let up = self.dominator[block];
            if up == block {
                return false;
            }
            block = up;
        }
        true
    }

    /// Marks the blocks which some threads may pass and others not, when the branch at the end of `branch` goes both ways.
    pub(super) fn mark_dependents(&self, branch: usize, marks: &mut [bool]) -> bool {
        let stop = self.postdominator[branch];
        let mut changed = false;
        for &start in &self.blocks[branch].next {
            let mut block = start;
            while block != stop && block != self.exit() {
                changed |= !std::mem::replace(&mut marks[block], true);
                let up = self.postdominator[block];
                if up == block {
                    break;
                }
                block = up;
            }
        }
        changed
    }
}

fn follows_label(body: &[Statement], index: usize) -> bool {
    index > 0 && matches!(body[index - 1], Statement::Label(_))
}

fn successors(
    body: &[Statement],
    block: &Block,
    index: usize,
    exit: usize,
    place: &dyn Fn(LabelId) -> usize,
) -> Vec<usize> {
    let through = (index + 1).min(exit);
    let Some(Statement::Instruction(last)) = body[block.start..block.end].last() else {
        return vec![through];
    };
    if !ends_block(last) {
        return vec![through];
    }
    let mut next = if last.guard.is_some() { vec![through] } else { Vec::new() };
    match last.opcode {
        Opcode::Ret | Opcode::Exit => next.push(exit),
        _ => {
            for operand in &last.operands {
                match operand {
                    Operand::Label(label) => next.push(place(*label)),
                    Operand::Targets(labels) => next.extend(labels.iter().map(|label| place(*label))),
                    _ => {}
                }
            }
        }
    }
    next
}

/// The nodes that `root` reaches, each behind all that it reaches first.
fn postorder(edges: &[Vec<usize>], root: usize) -> Vec<usize> {
    let mut seen = vec![false; edges.len()];
    let mut order = Vec::with_capacity(edges.len());
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some((node, next)) = stack.pop() {
        if let Some(&target) = edges[node].get(next) {
            stack.push((node, next + 1));
            if !std::mem::replace(&mut seen[target], true) {
                stack.push((target, 0));
            }
        } else {
            order.push(node);
        }
    }
    order
}

/// The immediate dominator of each node that `root` reaches, by the method of Cooper, Harvey and Kennedy; others are their own.
fn dominators(edges: &[Vec<usize>], root: usize) -> Vec<usize> {
    let order = postorder(edges, root);
    let mut rank = vec![usize::MAX; edges.len()];
    order.iter().enumerate().for_each(|(position, node)| rank[*node] = position);
    let mut before = vec![Vec::new(); edges.len()];
    for (from, next) in edges.iter().enumerate().filter(|(from, _)| rank[*from] != usize::MAX) {
        next.iter().for_each(|to| before[*to].push(from));
    }
    let mut up: Vec<Option<usize>> = vec![None; edges.len()];
    up[root] = Some(root);
    let mut changed = true;
    while changed {
        changed = false;
        for &node in order.iter().rev().filter(|node| **node != root) {
            let mut found: Option<usize> = None;
            for &from in before[node].iter().filter(|from| up[**from].is_some()) {
                found = Some(found.map_or(from, |other| meet(&up, &rank, from, other)));
            }
            if found != up[node] {
                up[node] = found;
                changed = true;
            }
        }
    }
    up.into_iter().enumerate().map(|(node, up)| up.unwrap_or(node)).collect()
}

fn meet(up: &[Option<usize>], rank: &[usize], mut left: usize, mut right: usize) -> usize {
    while left != right {
        while rank[left] < rank[right] {
            left = up[left].unwrap_or(left);
        }
        while rank[right] < rank[left] {
            right = up[right].unwrap_or(right);
        }
    }
    left
}

/// Calls `each` with every register that an instruction writes.
pub(super) fn written(instruction: &Instruction, each: &mut dyn FnMut(RegisterId)) {
    for operand in &instruction.operands[..usize::from(instruction.destinations)] {
        registers_of(operand, each);
    }
    if let Some(call) = &instruction.call {
        call.returns.iter().for_each(|operand| registers_of(operand, each));
    }
}

/// Calls `each` with every register that an operand names.
pub(super) fn registers_of(operand: &Operand, each: &mut dyn FnMut(RegisterId)) {
    match operand {
        Operand::Register(id) | Operand::Not(id) | Operand::Component(id, _) => each(*id),
        Operand::Vector(parts) => parts.iter().for_each(|part| registers_of(part, each)),
        Operand::Address(crate::ir::Address { base: crate::ir::Base::Register(id), .. }) => each(*id),
        Operand::Texture(address) => {
            registers_of(&address.texture, each);
            address.sampler.iter().for_each(|sampler| registers_of(sampler, each));
            address.coordinates.iter().chain(&address.extra).for_each(|part| registers_of(part, each));
        }
        _ => {}
    }
}
