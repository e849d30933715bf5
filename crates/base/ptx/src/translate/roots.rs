//! Finds the shared variables into which an address can point, by following the values from which
//! the address is computed.

use super::effects;
use crate::ir::{Function, Instruction, Opcode, Operand, Statement, Symbol};

/// The set of all shared variables.
pub(super) const ANY: u64 = u64::MAX;

/// Last bit, which stands for all variables from this number on.
const LAST: usize = 63;

/// The shared variables that the registers of a kernel point into.
pub(super) struct SharedRoots {
    registers: Vec<u64>,
    /// Variables whose address is stored somewhere.
    pub escaped: u64,
}

/// Largest number of passes over all instructions. Addresses propagate in two or three passes. In a
/// kernel that needs more, every address may lie anywhere.
const PASSES_MAX: u32 = 16;

impl SharedRoots {
    pub(super) fn of(function: &Function) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut this = Self { registers: vec![0; function.registers.len()], escaped: 0 };
        for pass in 0..PASSES_MAX {
            let mut changed = false;
            for statement in body {
                if let Statement::Instruction(what) = statement {
                    changed |= this.pass(what);
                }
            }
            if !changed {
                return this;
            }
            if pass + 1 == PASSES_MAX {
                this.registers.fill(ANY);
                this.escaped = ANY;
            }
        }
        this
    }

    fn pass(&mut self, what: &Instruction) -> bool {
        let moves = !matches!(
            what.opcode,
            Opcode::Ld | Opcode::Ldu | Opcode::Atom | Opcode::Setp | Opcode::Call | Opcode::Tex
        );
        let mut roots = 0;
        for operand in what.sources() {
            match operand {
                Operand::Address(_) => {}
                other => roots |= self.operand(other),
            }
        }
        if matches!(what.opcode, Opcode::St | Opcode::Atom | Opcode::Red | Opcode::Call) {
            let stored =
                what.operands.iter().filter(|operand| !matches!(operand, Operand::Address(_)));
            let stored = stored.fold(roots, |sum, operand| sum | self.operand(operand));
            let changed = stored & !self.escaped != 0;
            self.escaped |= stored;
            return changed;
        }
        let mut changed = false;
        if moves && roots != 0 {
            effects::written(what, &mut |id| {
                changed |= roots & !self.registers[id.index()] != 0;
                self.registers[id.index()] |= roots;
            });
        }
        changed
    }

    /// Returns the variables that a value points into.
    pub(super) fn operand(&self, operand: &Operand) -> u64 {
        if let Operand::Symbol { symbol: Symbol::Shared(id), .. } = operand {
            return 1 << id.index().min(LAST);
        }
        let mut roots = 0;
        effects::registers_of(operand, &mut |id| roots |= self.registers[id.index()]);
        if let Operand::Address(address) = operand
            && let crate::ir::Base::Symbol(Symbol::Shared(id)) = address.base
        {
            roots |= 1 << id.index().min(LAST);
        }
        roots
    }
}
