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
    /// When a walk over the tree of dominators comes to each block, and when it leaves it: who dominates is there all the time.
    visits: Vec<(usize, usize)>,
    /// The immediate post-dominator; [`Flow::exit`] where there is none.
    postdominator: Vec<usize>,
    /// How many blocks post-dominate each, itself too.
    depth: Vec<usize>,
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
            let starts =
                fresh || (matches!(statement, Statement::Label(_)) && !follows_label(body, index));
            if starts {
                blocks.push(Block { start: index, end: index, ..Block::default() });
            }
            let last = blocks.len() - 1;
            blocks[last].end = index + 1;
            block_of[index] = last;
            fresh =
                matches!(statement, Statement::Instruction(instruction) if ends_block(instruction));
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
        let mut flow = Self {
            blocks,
            block_of,
            visits: Vec::new(),
            postdominator: Vec::new(),
            depth: Vec::new(),
            reached: Vec::new(),
        };
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
        self.visits = visits(&dominators(&forward, 0)).0;
        self.postdominator = postdominators(&forward, &self.reached);
        self.depth = visits(&self.postdominator).1;
    }

    /// Whether every way to `block` passes `by`.
    pub(super) fn dominates(&self, by: usize, block: usize) -> bool {
        let ((first, last), (enters, leaves)) = (self.visits[by], self.visits[block]);
        first <= enters && leaves <= last
    }

    /// Whether every way from `block` passes `by`.
    pub(super) fn postdominates(&self, by: usize, block: usize) -> bool {
        let mut at = block;
        while at != by && self.depth[at] > self.depth[by] {
            at = self.postdominator[at];
        }
        at == by
    }

    /// The block that every way from this one comes to first; [`Flow::exit`] if there is none.
    pub(super) fn postdominator(&self, block: usize) -> usize {
        self.postdominator[block]
    }

    /// The blocks which some threads may pass and others not, when the branch at the end of `branch` goes both ways: from each of the
    /// blocks behind it up to the one where all meet again, the second number's depth.
    pub(super) fn dependents(&self, branch: usize) -> (&[usize], usize) {
        (&self.blocks[branch].next, self.depth[self.postdominator[branch]])
    }

    /// How deep a block lies in the tree of post-dominators.
    pub(super) fn depth(&self, block: usize) -> usize {
        self.depth[block]
    }
}

/// The immediate post-dominator of each block, given where each can go; the last number stands for the end.
fn postdominators(forward: &[Vec<usize>], reached: &[bool]) -> Vec<usize> {
    let exit = reached.len();
    let mut backward = vec![Vec::new(); exit + 1];
    for (from, next) in forward.iter().enumerate() {
        next.iter().for_each(|to| backward[*to].push(from));
    }
    // Blocks of endless loops never reach the end: as if they could leave, so that they have post-dominators.
    let mut seen = vec![false; exit + 1];
    mark_reached(&backward, exit, &mut seen);
    for block in (0..exit).rev() {
        if reached[block] && !seen[block] {
            backward[exit].push(block);
            mark_reached(&backward, block, &mut seen);
        }
    }
    dominators(&backward, exit)
}

/// Where threads that go on come together: post-dominators, of which a thread that ends early is no matter. Those that stay do not wait
/// for it.
#[derive(Debug)]
pub(super) struct Joins {
    postdominator: Vec<usize>,
    visits: Vec<(usize, usize)>,
    depth: Vec<usize>,
}

impl Joins {
    pub(super) fn of(function: &Function, flow: &Flow) -> Self {
        let exit = flow.exit();
        let body = function.body.as_deref().unwrap_or_default();
        let ends = |block: usize| {
            block == exit
                || body[flow.blocks[block].start..flow.blocks[block].end].iter().all(|statement| {
                    match statement {
                        Statement::Instruction(what) => {
                            matches!(what.opcode, Opcode::Ret | Opcode::Exit)
                                && what.guard.is_none()
                        }
                        Statement::Label(_) => true,
                    }
                }) && flow.blocks[block].next == [exit]
        };
        let forward: Vec<Vec<usize>> = flow
            .blocks
            .iter()
            .map(|block| {
                let on: Vec<usize> =
                    block.next.iter().copied().filter(|next| !ends(*next)).collect();
                if on.is_empty() { block.next.clone() } else { on }
            })
            .chain([Vec::new()])
            .collect();
        let postdominator = postdominators(&forward, &flow.reached);
        let (visits, depth) = visits(&postdominator);
        Self { postdominator, visits, depth }
    }

    /// Where all threads that go on from a block come to first; [`Flow::exit`] if there is no such block.
    pub(super) fn next(&self, block: usize) -> usize {
        self.postdominator[block]
    }

    /// How deep a block lies in the tree.
    pub(super) fn depth(&self, block: usize) -> usize {
        self.depth[block]
    }

    /// Numbers for the tree: the first is the block's own, and those of all blocks from which every way leads to this one lie
    /// between the two.
    pub(super) fn below(&self, block: usize) -> (usize, usize) {
        self.visits[block]
    }
}

/// Marks all that `root` reaches.
fn mark_reached(edges: &[Vec<usize>], root: usize, seen: &mut [bool]) {
    let mut stack = vec![root];
    seen[root] = true;
    while let Some(node) = stack.pop() {
        for &next in &edges[node] {
            if !std::mem::replace(&mut seen[next], true) {
                stack.push(next);
            }
        }
    }
}

/// For each node of a forest, given the node above each (its own for a root): when a walk comes to it and leaves it, and how many
/// nodes are above it, itself too.
fn visits(up: &[usize]) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut below = vec![Vec::new(); up.len()];
    let mut stack = Vec::new();
    for (node, &above) in up.iter().enumerate() {
        if above == node { stack.push((node, false)) } else { below[above].push(node) }
    }
    let (mut visits, mut depth, mut time) = (vec![(0, 0); up.len()], vec![1; up.len()], 0);
    while let Some((node, leaves)) = stack.pop() {
        time += 1;
        if leaves {
            visits[node].1 = time;
            continue;
        }
        visits[node].0 = time;
        if up[node] != node {
            depth[node] = depth[up[node]] + 1;
        }
        stack.push((node, true));
        stack.extend(below[node].iter().map(|next| (*next, false)));
    }
    (visits, depth)
}

/// Blocks of the tree of post-dominators that are marked along ways towards its root; each is passed once, however many ways there are.
#[derive(Debug)]
pub(super) struct Marks {
    /// The next block on the way to the root that may not be marked yet; of an unmarked one itself.
    ahead: Vec<usize>,
}

impl Marks {
    pub(super) fn new(flow: &Flow) -> Self {
        Self { ahead: (0..=flow.exit()).collect() }
    }

    /// The first block from here on that is not marked.
    fn unmarked(&mut self, block: usize) -> usize {
        let mut end = block;
        while self.ahead[end] != end {
            end = self.ahead[end];
        }
        let mut node = block;
        while self.ahead[node] != end {
            node = std::mem::replace(&mut self.ahead[node], end);
        }
        end
    }

    /// Marks what depends on the branch at the end of a block; calls `fresh` with each block that was not marked before.
    pub(super) fn mark(&mut self, flow: &Flow, branch: usize, fresh: &mut Vec<usize>) {
        let (starts, stop) = flow.dependents(branch);
        for &start in starts {
            let mut block = self.unmarked(start);
            while block != flow.exit() && flow.depth(block) > stop {
                fresh.push(block);
                self.ahead[block] = flow.postdominator(block);
                block = self.unmarked(block);
            }
        }
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
                    Operand::Targets(labels) => {
                        next.extend(labels.iter().map(|label| place(*label)))
                    }
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
        Operand::Address(crate::ir::Address { base: crate::ir::Base::Register(id), .. }) => {
            each(*id)
        }
        Operand::Texture(address) => {
            registers_of(&address.texture, each);
            address.sampler.iter().for_each(|sampler| registers_of(sampler, each));
            address
                .coordinates
                .iter()
                .chain(&address.extra)
                .for_each(|part| registers_of(part, each));
        }
        _ => {}
    }
}
