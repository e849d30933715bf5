//! The control flow of a kernel: blocks, dominators, and the blocks that depend on each branch.

use std::collections::BTreeSet;

use crate::ir::{Function, Instruction, LabelId, Opcode, Operand, Statement};

/// A basic block: control enters it at the first statement and leaves it at the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// Index of the first statement.
    pub start: usize,
    /// Index behind the last statement.
    pub end: usize,
    /// In no order; [`ControlFlow::exit`] stands for the end of the thread.
    pub successors: Vec<usize>,
    pub predecessors: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct ControlFlow {
    pub blocks: Vec<Block>,
    /// The block of each statement.
    pub block_of: Vec<usize>,
    /// Times at which a walk over the dominator tree enters and leaves each block. A block's
    /// interval contains the intervals of all blocks that it dominates.
    visits: Vec<(usize, usize)>,
    /// The immediate post-dominator of each block; [`ControlFlow::exit`] if there is none.
    postdominator: Vec<usize>,
    /// Number of blocks that post-dominate each block, including itself.
    depth: Vec<usize>,
    /// Whether each block can be reached.
    pub reached: Vec<bool>,
}

pub(super) fn ends_block(instruction: &Instruction) -> bool {
    matches!(instruction.opcode, Opcode::Bra | Opcode::BrxIdx | Opcode::Ret | Opcode::Exit)
}

impl ControlFlow {
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
        let block_of_label =
            |label: LabelId| block_of[function.labels[label.index()].position as usize];
        for index in 0..exit {
            let mut next = successors_of(body, &blocks[index], index, exit, &block_of_label);
            next.sort_unstable();
            next.dedup();
            for &target in next.iter().filter(|target| **target != exit) {
                blocks[target].predecessors.push(index);
            }
            blocks[index].successors = next;
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

    /// Returns the index that stands for the end of a thread: one behind the last block.
    pub(super) fn exit(&self) -> usize {
        self.blocks.len()
    }

    fn dominate(&mut self) {
        let exit = self.exit();
        let forward: Vec<Vec<usize>> =
            self.blocks.iter().map(|block| block.successors.clone()).chain([Vec::new()]).collect();
        let order = postorder(&forward, 0);
        self.reached = vec![false; exit];
        order.iter().filter(|block| **block != exit).for_each(|block| self.reached[*block] = true);
        self.visits = visits(&dominators(&forward, 0)).0;
        self.postdominator = postdominators(&forward, &self.reached);
        self.depth = visits(&self.postdominator).1;
    }

    /// Whether every path to `block` passes `by`. Both may be [`ControlFlow::exit`].
    pub(super) fn dominates(&self, by: usize, block: usize) -> bool {
        let ((first, last), (enters, leaves)) = (self.visits[by], self.visits[block]);
        first <= enters && leaves <= last
    }

    /// Whether every path from `block` passes `by`.
    pub(super) fn postdominates(&self, by: usize, block: usize) -> bool {
        let mut at = block;
        while at != by && self.depth[at] > self.depth[by] {
            at = self.postdominator[at];
        }
        at == by
    }

    /// Returns the first block that every path from this one reaches, or [`ControlFlow::exit`] if
    /// there is none.
    pub(super) fn postdominator(&self, block: usize) -> usize {
        self.postdominator[block]
    }

    /// Returns the successors of `branch`, and the depth of its post-dominator. If the branch
    /// separates threads, only some of them may pass the blocks between a successor and the block
    /// of that depth, on the path in the tree of post-dominators.
    pub(super) fn dependents(&self, branch: usize) -> (&[usize], usize) {
        (&self.blocks[branch].successors, self.depth[self.postdominator[branch]])
    }

    /// Adds the blocks of the loop that an edge closes to those of `inside`: all from which control
    /// reaches `latch` without passing `head`. Takes one from `steps` for each edge that it
    /// follows, and returns `false` if they do not suffice.
    pub(super) fn add_loop(
        &self,
        (head, latch): (usize, usize),
        inside: &mut BTreeSet<usize>,
        steps: &mut usize,
    ) -> bool {
        inside.insert(head);
        let mut stack = vec![latch];
        while let Some(block) = stack.pop() {
            if !self.reached[block] {
                continue;
            }
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            if inside.insert(block) {
                stack.extend(&self.blocks[block].predecessors);
            }
        }
        true
    }

    /// Returns the head of the loop that a branch at the end of a block closes, and the branch.
    pub(super) fn closed_loop(&self, function: &Function, latch: usize) -> Option<(usize, usize)> {
        let at = self.blocks[latch].end.checked_sub(1)?;
        let Statement::Instruction(branch) = function.body.as_deref()?.get(at)? else {
            return None;
        };
        let (Opcode::Bra, [Operand::Label(label)]) = (branch.opcode, &branch.operands[..]) else {
            return None;
        };
        let head = self.block_of[function.labels[label.index()].position as usize];
        (self.reached[latch] && self.dominates(head, latch)).then_some((head, at))
    }

    /// Returns the depth of a block in the tree of post-dominators.
    pub(super) fn depth(&self, block: usize) -> usize {
        self.depth[block]
    }
}

/// Computes the immediate post-dominator of each block from the successors. The last index stands
/// for the end.
fn postdominators(forward: &[Vec<usize>], reached: &[bool]) -> Vec<usize> {
    let exit = reached.len();
    let mut backward = vec![Vec::new(); exit + 1];
    for (from, next) in forward.iter().enumerate() {
        next.iter().for_each(|to| backward[*to].push(from));
    }
    // Blocks of endless loops never reach the end. They get an edge to it, so that they have
    // post-dominators.
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

/// The blocks where the threads that continue come together: post-dominators that ignore threads
/// which end early. The other threads do not wait for those.
#[derive(Debug)]
pub(super) struct LiveJoins {
    postdominator: Vec<usize>,
    visits: Vec<(usize, usize)>,
    depth: Vec<usize>,
}

impl LiveJoins {
    pub(super) fn of(function: &Function, flow: &ControlFlow) -> Self {
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
                }) && flow.blocks[block].successors == [exit]
        };
        let forward: Vec<Vec<usize>> = flow
            .blocks
            .iter()
            .map(|block| {
                let on: Vec<usize> =
                    block.successors.iter().copied().filter(|next| !ends(*next)).collect();
                if on.is_empty() { block.successors.clone() } else { on }
            })
            .chain([Vec::new()])
            .collect();
        let postdominator = postdominators(&forward, &flow.reached);
        let (visits, depth) = visits(&postdominator);
        Self { postdominator, visits, depth }
    }

    /// Returns the first block that all threads which continue from a block reach, or
    /// [`ControlFlow::exit`] if there is none.
    pub(super) fn join(&self, block: usize) -> usize {
        self.postdominator[block]
    }

    /// Returns the depth of a block in the tree.
    pub(super) fn depth(&self, block: usize) -> usize {
        self.depth[block]
    }

    /// Returns the interval of a block in the tree. It starts with the block's own number, and
    /// contains the numbers of all blocks from which every path leads to this block.
    pub(super) fn interval(&self, block: usize) -> (usize, usize) {
        self.visits[block]
    }
}

/// Marks all nodes that `root` reaches.
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

/// Walks a forest that is given by the parent of each node (a root is its own parent). Returns for
/// each node the times at which the walk enters and leaves it, and the number of its ancestors,
/// including itself.
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

/// Blocks of the tree of post-dominators that are marked along paths towards the root. The marking
/// visits each block once, however many paths lead through it.
#[derive(Debug)]
pub(super) struct BlockMarks {
    /// The next block towards the root that may be unmarked. An unmarked block points to itself.
    ahead: Vec<usize>,
}

impl BlockMarks {
    pub(super) fn new(flow: &ControlFlow) -> Self {
        Self { ahead: (0..=flow.exit()).collect() }
    }

    /// Returns the first unmarked block from here on.
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

    /// Marks the blocks that depend on the branch at the end of a block. Appends each newly marked
    /// block to `fresh`.
    pub(super) fn mark(&mut self, flow: &ControlFlow, branch: usize, fresh: &mut Vec<usize>) {
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

fn successors_of(
    body: &[Statement],
    block: &Block,
    index: usize,
    exit: usize,
    block_of_label: &dyn Fn(LabelId) -> usize,
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
                    Operand::Label(label) => next.push(block_of_label(*label)),
                    Operand::Targets(labels) => {
                        next.extend(labels.iter().map(|label| block_of_label(*label)))
                    }
                    _ => {}
                }
            }
        }
    }
    next
}

/// Returns the nodes that `root` reaches in depth-first postorder.
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

/// Computes the immediate dominator of each node that `root` reaches, by the algorithm of Cooper,
/// Harvey and Kennedy. Other nodes are their own.
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
