//! Loads on which the threads of a block agree.
//!
//! All threads that read one address of global memory get the same value, unless another block
//! writes there at that moment: for example a flag that ends a loop, or a counter of the remaining
//! work. On a GPU the threads that see the new value late continue alone. Here not all threads
//! would reach a barrier behind such a branch. So if a barrier depends on such a load, every thread
//! takes the value that the first thread of the block loaded.

use std::collections::HashSet;

use super::convergence;
use super::effects;
use super::effects::is_meeting;
use super::flow::ControlFlow;
use super::uniform::Uniformity;
use crate::ir::{Function, Instruction, Opcode, RegisterId, Space, Statement};

/// Largest number of passes over the branches that a barrier may depend on. Each pass goes at least
/// one branch deeper. Code that is nested deeper becomes a state machine.
const PASSES_MAX: u32 = 64;

/// Returns the uniform values of a kernel, including the loads on which the threads must agree.
pub(super) fn uniform_with_agreement(function: &Function, flow: &ControlFlow) -> Uniformity {
    let none = HashSet::new;
    let plain = Uniformity::of(function, flow, &none(), none());
    if !effects::has_meetings(function) || convergence::needs_machine(function, flow, &plain) {
        return plain;
    }
    let mut racing = racing(function, flow, &plain);
    if racing.is_empty() {
        return plain;
    }
    let apart = Uniformity::of(function, flow, &racing, none());
    if !convergence::needs_machine(function, flow, &apart) {
        // No barrier depends on these loads.
        return plain;
    }
    let agreed = BarrierSlice::of(function, flow, &racing).agreed;
    racing.retain(|at| !agreed.contains(at));
    let result = Uniformity::of(function, flow, &racing, agreed);
    let body = function.body.as_deref().unwrap_or_default();
    let together = result.agreed.iter().all(|at| match &body[*at] {
        Statement::Instruction(load) => result.instruction(load, flow.block_of[*at]),
        Statement::Label(_) => false,
    });
    if together && !convergence::needs_machine(function, flow, &result) { result } else { apart }
}

/// Returns the uniform values of a kernel that becomes a state machine although its barriers do not
/// ask for it. Its threads come to a load one after the other, so they agree on none.
pub(super) fn uniform_apart(function: &Function, flow: &ControlFlow) -> Uniformity {
    let none = HashSet::new;
    let racing = racing(function, flow, &Uniformity::of(function, flow, &none(), none()));
    Uniformity::of(function, flow, &racing, none())
}

/// Returns the loads of global memory that all threads reach together, in a kernel that also writes
/// there.
fn racing(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> HashSet<usize> {
    let body = function.body.as_deref().unwrap_or_default();
    let instructions = || {
        body.iter().enumerate().filter_map(|(at, statement)| match statement {
            Statement::Instruction(instruction) => Some((at, instruction)),
            Statement::Label(_) => None,
        })
    };
    let in_global = |instruction: &Instruction| {
        matches!(instruction.modifiers.space, None | Some(Space::Generic | Space::Global))
    };
    let writes = instructions().any(|(_, instruction)| {
        matches!(instruction.opcode, Opcode::St | Opcode::Atom | Opcode::Red)
            && in_global(instruction)
    });
    if !writes {
        return HashSet::new();
    }
    let races = |at: usize, load: &Instruction| {
        let block = flow.block_of[at];
        load.opcode == Opcode::Ld
            && load.modifiers.space == Some(Space::Global)
            && !load.modifiers.non_coherent
            && load.ty().bits() <= 64
            && flow.reached[block]
            && uniform.instruction(load, block)
    };
    instructions().filter(|(at, load)| races(*at, load)).map(|(at, _)| at).collect()
}

/// Everything that the barriers of a kernel depend on.
struct BarrierSlice<'a> {
    body: &'a [Statement],
    flow: &'a ControlFlow,
    racing: &'a HashSet<usize>,
    /// The statements that write each register.
    writers: Vec<Vec<usize>>,
    seen: Vec<bool>,
    registers: Vec<RegisterId>,
    /// Blocks that all threads must pass together.
    blocks: Vec<bool>,
    agreed: HashSet<usize>,
}

impl<'a> BarrierSlice<'a> {
    fn of(function: &'a Function, flow: &'a ControlFlow, racing: &'a HashSet<usize>) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut writers = vec![Vec::new(); function.registers.len()];
        let mut this = Self {
            body,
            flow,
            racing,
            writers: Vec::new(),
            seen: vec![false; function.registers.len()],
            registers: Vec::new(),
            blocks: vec![false; flow.blocks.len()],
            agreed: HashSet::new(),
        };
        for (at, statement) in body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            if !flow.reached[flow.block_of[at]] {
                continue;
            }
            effects::written(instruction, &mut |id| writers[id.index()].push(at));
            if is_meeting(instruction.opcode) {
                this.require_reach(at, instruction);
            }
        }
        this.writers = writers;
        for _ in 0..PASSES_MAX {
            this.follow();
            if !this.require_branches() {
                break;
            }
        }
        this
    }

    /// Records that it matters which threads reach a statement.
    fn require_reach(&mut self, at: usize, instruction: &Instruction) {
        self.blocks[self.flow.block_of[at]] = true;
        if let Some(guard) = instruction.guard {
            self.require_register(guard.register);
        }
    }

    fn require_register(&mut self, id: RegisterId) {
        if !std::mem::replace(&mut self.seen[id.index()], true) {
            self.registers.push(id);
        }
    }

    /// Follows registers to the statements that write them.
    fn follow(&mut self) {
        while let Some(id) = self.registers.pop() {
            let writers = std::mem::take(&mut self.writers[id.index()]);
            for &at in &writers {
                let Statement::Instruction(instruction) = &self.body[at] else { continue };
                if writers.len() > 1 || instruction.guard.is_some() || self.racing.contains(&at) {
                    self.require_reach(at, instruction);
                }
                if self.racing.contains(&at) {
                    self.agreed.insert(at);
                } else {
                    effects::read(instruction, &mut |id| self.require_register(id));
                }
            }
        }
    }

    /// Records the branches that decide which threads reach a block that matters. Returns whether
    /// it found more than before.
    fn require_branches(&mut self) -> bool {
        let flow = self.flow;
        let mut order: Vec<usize> =
            (0..flow.blocks.len()).filter(|block| flow.reached[*block]).collect();
        order.sort_by_key(|block| flow.depth(*block));
        // Depth of the nearest block that matters on the way to the end.
        let mut nearest = vec![0; flow.blocks.len() + 1];
        for block in order {
            nearest[block] = if self.blocks[block] {
                flow.depth(block)
            } else {
                nearest[flow.postdominator(block)]
            };
        }
        let mut more = false;
        for (block, range) in
            flow.blocks.iter().enumerate().filter(|(block, _)| flow.reached[*block])
        {
            let (next, stop) = flow.dependents(block);
            if next.len() < 2 || !next.iter().any(|next| nearest[*next] > stop) {
                continue;
            }
            let Some(Statement::Instruction(branch)) = self.body[range.start..range.end].last()
            else {
                continue;
            };
            more |= !std::mem::replace(&mut self.blocks[block], true);
            effects::read(branch, &mut |id| self.require_register(id));
        }
        more || !self.registers.is_empty()
    }
}
