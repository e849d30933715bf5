//! Finds the values and the basic blocks that are the same for all threads of a thread block.
//!
//! A register is uniform if it has the same value in all threads that have it; then a branch on it
//! does not separate threads. It is divergent if it comes from the thread's number, from a race
//! between threads, or from a place that only some threads reach. If there are no races, all
//! threads that read one address together get the same value. If a barrier depends on such a load,
//! the threads agree on the first thread's value (`agree.rs`).

use std::collections::HashSet;

use super::convergence;
use super::effects;
use super::flow::{BlockMarks, ControlFlow};
use crate::ir::{Address, Base};
use crate::ir::{
    Axis, Cache, Function, Instruction, Opcode, Operand, RegisterId, Semantics, Space, Special,
    Statement, Symbol,
};

#[derive(Debug)]
pub(super) struct Uniformity {
    divergent: Vec<bool>,
    /// Blocks that some threads may skip, or pass more often than others.
    scattered: Vec<bool>,
    /// Number of instructions that write each register. A guarded one counts twice, because it may
    /// leave the old value.
    writes: Vec<u32>,
    /// Loads whose value every thread takes from the first thread: see `agree.rs`.
    pub agreed: HashSet<usize>,
}

/// Work list of the analysis. Each instruction is examined once, and again if something that it
/// reads has changed.
struct DivergenceSpread<'a> {
    this: Uniformity,
    function: &'a Function,
    body: &'a [Statement],
    flow: &'a ControlFlow,
    /// The statements that read each register.
    readers: Vec<Vec<usize>>,
    marks: BlockMarks,
    /// Registers that have become divergent. `blocks` are the blocks that have become scattered.
    registers: Vec<RegisterId>,
    blocks: Vec<usize>,
}

impl Uniformity {
    /// Analyses a kernel. The loads in `racing` may give threads different values although they
    /// read one address; those in `agreed` always give all threads the same value.
    pub(super) fn of(
        function: &Function,
        flow: &ControlFlow,
        racing: &HashSet<usize>,
        agreed: HashSet<usize>,
    ) -> Self {
        let this = Self {
            divergent: vec![false; function.registers.len()],
            scattered: vec![false; flow.blocks.len()],
            writes: vec![0; function.registers.len()],
            agreed,
        };
        let body = function.body.as_deref().unwrap_or_default();
        let readers = vec![Vec::new(); function.registers.len()];
        let marks = BlockMarks::new(flow);
        let mut spread = DivergenceSpread {
            this,
            function,
            body,
            flow,
            readers,
            marks,
            registers: Vec::new(),
            blocks: Vec::new(),
        };
        spread.start(racing);
        spread.run();
        spread.this
    }

    pub(super) fn register(&self, id: RegisterId) -> bool {
        !self.divergent[id.index()]
    }

    pub(super) fn written_once(&self, id: RegisterId) -> bool {
        self.writes[id.index()] == 1
    }

    /// Whether all threads reach this block together.
    pub(super) fn block(&self, block: usize) -> bool {
        !self.scattered[block]
    }

    /// Whether all threads reach this instruction together, and either all or none execute it.
    pub(super) fn instruction(&self, instruction: &Instruction, block: usize) -> bool {
        self.block(block) && instruction.guard.is_none_or(|guard| self.register(guard.register))
    }
}

impl DivergenceSpread<'_> {
    fn start(&mut self, racing: &HashSet<usize>) {
        let mut varying = Vec::new();
        for (at, statement) in self.body.iter().enumerate() {
            let Statement::Instruction(instruction) = statement else { continue };
            let weight = if instruction.guard.is_some() { 2 } else { 1 };
            effects::written(instruction, &mut |id| self.this.writes[id.index()] += weight);
            if !self.flow.reached[self.flow.block_of[at]] {
                continue;
            }
            effects::read(instruction, &mut |id| self.readers[id.index()].push(at));
            if result_varies(instruction)
                || racing.contains(&at)
                || instruction.sources().iter().any(operand_varies)
            {
                varying.push((at, instruction));
            }
        }
        for (at, instruction) in varying {
            self.differs(at, instruction);
        }
    }

    fn run(&mut self) {
        loop {
            if let Some(id) = self.registers.pop() {
                for at in std::mem::take(&mut self.readers[id.index()]) {
                    let Statement::Instruction(instruction) = &self.body[at] else { continue };
                    self.differs(at, instruction);
                }
            } else if let Some(block) = self.blocks.pop() {
                self.this.scattered[block] = true;
                let range = self.flow.blocks[block].start..self.flow.blocks[block].end;
                for statement in &self.body[range] {
                    if let Statement::Instruction(instruction) = statement {
                        self.diverge(instruction, !self.reduces_block(instruction));
                    }
                }
                self.split(block);
            } else {
                return;
            }
        }
    }

    /// Records that an instruction's result or effect differs between threads.
    fn differs(&mut self, at: usize, instruction: &Instruction) {
        let block = self.flow.block_of[at];
        let is_agreed = self.this.agreed.contains(&at) || self.reduces_block(instruction);
        if !is_agreed {
            self.diverge(instruction, false);
        }
        if at + 1 == self.flow.blocks[block].end {
            self.split(block);
        }
    }

    /// Whether an instruction gives all threads of the block one result, if all of them reach it
    /// together. A thread that has failed does not take part.
    fn reduces_block(&self, instruction: &Instruction) -> bool {
        instruction.opcode == Opcode::BarRed
            && instruction.guard.is_none()
            && !convergence::counts_some(instruction)
            && !self.function.may_fail
    }

    /// Marks the registers that an instruction writes as divergent; with `repeated`, only those
    /// that others also write.
    fn diverge(&mut self, instruction: &Instruction, repeated: bool) {
        let Self { this, registers, .. } = self;
        effects::written(instruction, &mut |id| {
            let counts = !repeated || this.writes[id.index()] > 1;
            if counts && !std::mem::replace(&mut this.divergent[id.index()], true) {
                registers.push(id);
            }
        });
    }

    /// Marks the blocks that depend on the branch at the end of a block, which separates threads or
    /// which not all threads pass.
    fn split(&mut self, block: usize) {
        if self.flow.blocks[block].successors.len() > 1 {
            self.marks.mark(self.flow, block, &mut self.blocks);
        }
    }
}

/// Whether an operand differs between threads even if all registers are the same.
fn operand_varies(operand: &Operand) -> bool {
    match operand {
        Operand::Special(special) => !special_is_uniform(*special),
        Operand::Vector(parts) => parts.iter().any(operand_varies),
        Operand::Address(Address { base: Base::Symbol(Symbol::Variable(_)), .. }) => true,
        _ => false,
    }
}

/// Whether an instruction's result differs between threads even if its operands are the same.
pub(super) fn result_varies(instruction: &Instruction) -> bool {
    match instruction.opcode {
        Opcode::Atom
        | Opcode::Shfl
        | Opcode::Vote
        | Opcode::Match
        | Opcode::Activemask
        | Opcode::Redux
        | Opcode::Elect
        | Opcode::Call => true,
        // Other threads may write the surface meanwhile.
        Opcode::Suld => true,
        // They read the carry flag, which the analysis does not track.
        Opcode::Addc | Opcode::Subc | Opcode::Madc => true,
        Opcode::Ld | Opcode::Ldu => {
            let modifiers = &instruction.modifiers;
            // A generic address may refer to local memory.
            let own = matches!(modifiers.space, Some(Space::Local | Space::Generic) | None);
            own || modifiers.volatile
                || modifiers.cache == Some(Cache::Cv)
                || !matches!(modifiers.semantics, None | Some(Semantics::Weak))
        }
        _ => false,
    }
}

pub(super) fn special_is_uniform(special: Special) -> bool {
    match special {
        Special::Tid(Axis::W) => true,
        Special::Tid(_)
        | Special::Laneid
        | Special::Warpid
        | Special::LanemaskEq
        | Special::LanemaskGe
        | Special::LanemaskGt
        | Special::LanemaskLe
        | Special::LanemaskLt
        | Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::Globaltimer
        | Special::GlobaltimerLo
        | Special::GlobaltimerHi => false,
        _ => true,
    }
}
