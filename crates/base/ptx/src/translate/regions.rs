//! Finds where lanes separate, and where they come together again.

use super::flow::{ControlFlow, LiveJoins};
use super::uniform::Uniformity;
use crate::ir::{Function, Opcode, Operand, Statement};

/// Largest number of blocks that are visited for all regions of a kernel; see [`Regions::of`].
const STEPS_MAX: usize = 4_000_000;

/// Largest number of passes over the branches to find regions with stops. Each pass goes at least
/// one branch further out.
const PASSES_MAX: u32 = 64;

/// The blocks between a branch that may separate lanes and the block where the lanes are together
/// again.
#[derive(Debug)]
pub(super) struct Region {
    /// The block that the branch ends.
    pub branch: usize,
    /// The block where all lanes are together again; [`ControlFlow::exit`] if there is none.
    pub join: usize,
    /// Number of blocks in between.
    pub size: usize,
}

#[derive(Debug)]
pub(super) struct Regions {
    /// The blocks that end with such a branch.
    pub branches: Vec<usize>,
    pub all: Vec<Region>,
    /// The regions that contain each block, the smallest first.
    pub around: Vec<Vec<usize>>,
    /// Whether each block can reach itself.
    pub in_loop: Vec<bool>,
    tree: LiveJoins,
}

impl Regions {
    /// Finds the regions of a kernel. Returns `None` if the kernel is too large to analyse.
    pub(super) fn of(
        function: &Function,
        flow: &ControlFlow,
        uniform: &Uniformity,
    ) -> Option<Self> {
        let mut steps = 0;
        let mut this = Self {
            branches: Vec::new(),
            all: Vec::new(),
            around: vec![Vec::new(); flow.blocks.len()],
            in_loop: loops(flow),
            tree: LiveJoins::of(function, flow),
        };
        for branch in (0..flow.blocks.len()).filter(|block| flow.reached[*block]) {
            if !parts(function, flow, uniform, branch) {
                continue;
            }
            this.branches.push(branch);
            let join = this.tree.join(branch);
            let mut seen = vec![false; flow.blocks.len()];
            let mut stack = flow.blocks[branch].successors.clone();
            let mut inside = Vec::new();
            while let Some(block) = stack.pop() {
                steps += 1;
                if block != join
                    && block != flow.exit()
                    && !std::mem::replace(&mut seen[block], true)
                {
                    inside.push(block);
                    stack.extend(&flow.blocks[block].successors);
                }
            }
            steps += flow.blocks.len() / 64;
            if steps > STEPS_MAX {
                return None;
            }
            let number = this.all.len();
            inside.iter().for_each(|block| this.around[*block].push(number));
            this.all.push(Region { branch, join, size: inside.len() });
        }
        let all = &this.all;
        this.around.iter_mut().for_each(|list| list.sort_by_key(|number| all[*number].size));
        Some(this)
    }

    /// Returns the smallest region that contains two blocks.
    pub(super) fn common(&self, one: usize, other: usize) -> Option<&Region> {
        let number = self.around[one].iter().find(|number| self.around[other].contains(number))?;
        Some(&self.all[*number])
    }

    /// Returns the blocks in front of which lanes must wait for each other if they stop in the
    /// marked blocks: the ends of the regions that contain a stop.
    pub(super) fn joins(&self, flow: &ControlFlow, stops: &[bool]) -> Vec<bool> {
        let mut order: Vec<usize> =
            (0..flow.blocks.len()).filter(|block| flow.reached[*block]).collect();
        order.sort_by_key(|block| self.tree.depth(*block));
        let mut matters = stops.to_vec();
        let mut joins = vec![false; flow.blocks.len()];
        let mut nearest = vec![0; flow.blocks.len() + 1];
        for _ in 0..PASSES_MAX {
            for &block in &order {
                nearest[block] = if matters[block] {
                    self.tree.depth(block)
                } else {
                    nearest[self.tree.join(block)]
                };
            }
            let mut more = false;
            for region in &self.all {
                let stop = self.tree.depth(region.join);
                if !flow.blocks[region.branch].successors.iter().any(|next| nearest[*next] > stop) {
                    continue;
                }
                more |= !std::mem::replace(&mut matters[region.branch], true);
                if region.join != flow.exit() {
                    more |= !std::mem::replace(&mut joins[region.join], true);
                    more |= !std::mem::replace(&mut matters[region.join], true);
                }
            }
            if !more {
                break;
            }
        }
        joins
    }
}

/// Whether the branch at the end of a block may separate threads that reach it together.
fn parts(function: &Function, flow: &ControlFlow, uniform: &Uniformity, block: usize) -> bool {
    if flow.blocks[block].successors.len() < 2 {
        return false;
    }
    let body = function.body.as_deref().unwrap_or_default();
    let Some(Statement::Instruction(branch)) = body.get(flow.blocks[block].end - 1) else {
        return false;
    };
    let index = match (branch.opcode, branch.operands.first()) {
        (Opcode::BrxIdx, Some(Operand::Register(id))) => !uniform.register(*id),
        (Opcode::BrxIdx, _) => true,
        _ => false,
    };
    index || branch.guard.is_some_and(|guard| !uniform.register(guard.register))
}

/// Returns whether each block can reach itself: whether it is in a strongly connected component
/// with an edge.
fn loops(flow: &ControlFlow) -> Vec<bool> {
    let mut in_loop = vec![false; flow.blocks.len()];
    // Tarjan's algorithm, without recursion.
    let (mut index, mut low) = (vec![usize::MAX; flow.blocks.len()], vec![0; flow.blocks.len()]);
    let (mut on_stack, mut stack, mut count) = (vec![false; flow.blocks.len()], Vec::new(), 0);
    for root in 0..flow.blocks.len() {
        let mut work = if index[root] == usize::MAX { vec![(root, 0)] } else { Vec::new() };
        while let Some((block, edge)) = work.pop() {
            if edge == 0 {
                (index[block], low[block]) = (count, count);
                count += 1;
                stack.push(block);
                on_stack[block] = true;
            }
            if let Some(&next) = flow.blocks[block].successors.get(edge) {
                work.push((block, edge + 1));
                if next == flow.exit() {
                } else if index[next] == usize::MAX {
                    work.push((next, 0));
                } else if on_stack[next] {
                    low[block] = low[block].min(index[next]);
                }
                continue;
            }
            if let Some((above, _)) = work.last() {
                low[*above] = low[*above].min(low[block]);
            }
            if low[block] == index[block] {
                let start = stack.iter().rposition(|member| *member == block).unwrap_or(0);
                let members = stack.split_off(start);
                let is_loop = members.len() > 1 || flow.blocks[block].successors.contains(&block);
                for member in members {
                    on_stack[member] = false;
                    in_loop[member] = is_loop;
                }
            }
        }
    }
    in_loop
}
