//! Addresses as linear sums: a constant plus terms times factors.
//!
//! The definition of a register is followed upwards as long as the value is still valid at the
//! place of use: through registers that are written once, whose definitions fulfil the same
//! condition. Sums are exact modulo 2 to the power of the register's width.

use std::cell::Cell;
use std::collections::HashMap;

use super::effects;
use super::flow::ControlFlow;
use super::uniform::Uniformity;
use crate::ir::{
    Entry, Function, Half, Immediate, Instruction, Kind, LOCAL_WINDOW, Module, Opcode, Operand,
    RegisterId, SHARED_WINDOW, Space, Special, Statement, Symbol,
};

/// A term of a sum, without its factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Term {
    /// A register as wide as the sum.
    Register(RegisterId),
    /// A 32-bit register, sign-extended.
    Signed(RegisterId),
    /// A 32-bit register, zero-extended.
    Unsigned(RegisterId),
    /// The start of the module's data block.
    Data,
    /// A 32-bit read-only register. Each use reads it again: a value that is kept across a barrier
    /// costs memory, and compilers no longer see what it is.
    Special(Special),
    /// The total of what was added to a register since it got its first value: see [`Step`].
    Step(RegisterId),
}

/// `constant` plus each term times its factor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub constant: i64,
    pub terms: Vec<(Term, i64)>,
}

/// A register that gets one first value and is then only added to, such as a pointer in a loop. It
/// is the first value plus a counter, the step, which the translation maintains beside the
/// register.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Statement that assigns the first value.
    pub first: usize,
    pub start: Sum,
    /// The statements that add, and the sums that they add.
    pub adds: Vec<(usize, Sum)>,
    /// Unit in bytes in which the step counts. Everything that is added is a multiple of it.
    pub unit: i64,
}

/// Largest unit of a step: the largest common access size.
const UNIT_MAX: i64 = 16;

/// Largest number of terms. Adding up more of them is slower than keeping the sum in a register.
const TERMS_MAX: usize = 6;

/// Largest depth of definitions that are followed.
const DEPTH_MAX: u32 = 24;

/// Largest number of definitions that are visited for one address. Sums of sums of one register
/// double with each level.
const BUDGET: u32 = 200;

/// Knowledge about the registers of a kernel.
#[derive(Debug)]
pub(super) struct LinearSums<'a> {
    module: &'a Module,
    entry: &'a Entry,
    function: &'a Function,
    body: &'a [Statement],
    flow: &'a ControlFlow,
    uniform: &'a Uniformity,
    /// The statements that write each register.
    definitions: Vec<Vec<usize>>,
    steps: Vec<Option<Step>>,
    /// Whether each step is the same for all threads. A step only consists of steps of registers
    /// with a lower number.
    uniform_steps: Vec<bool>,
    /// The registers whose step each statement changes.
    changes: HashMap<usize, Vec<RegisterId>>,
    /// Number of definitions that the current query may still follow.
    budget: Cell<u32>,
}

impl<'a> LinearSums<'a> {
    pub(super) fn of(
        module: &'a Module,
        entry: &'a Entry,
        function: &'a Function,
        flow: &'a ControlFlow,
        uniform: &'a Uniformity,
    ) -> Self {
        let body = function.body.as_deref().unwrap_or_default();
        let mut definitions = vec![Vec::new(); function.registers.len()];
        for (index, statement) in body.iter().enumerate() {
            if let Statement::Instruction(instruction) = statement {
                effects::written(instruction, &mut |id| definitions[id.index()].push(index));
            }
        }
        let steps = vec![None; function.registers.len()];
        let mut sums = Self {
            module,
            entry,
            function,
            body,
            flow,
            uniform,
            definitions,
            steps,
            uniform_steps: vec![false; function.registers.len()],
            changes: HashMap::new(),
            budget: Cell::new(0),
        };
        for index in 0..function.registers.len() {
            let id = RegisterId(u32::try_from(index).unwrap_or(u32::MAX));
            sums.budget.set(BUDGET);
            let step = sums.find_step(id);
            for place in
                step.iter().flat_map(|step| step.adds.iter().map(|(at, _)| *at).chain([step.first]))
            {
                sums.changes.entry(place).or_default().push(id);
            }
            sums.uniform_steps[index] =
                step.as_ref().is_some_and(|step| sums.is_uniform_step(step));
            sums.steps[index] = step;
        }
        sums
    }

    /// Returns the statements that write a register.
    pub(super) fn definitions(&self, id: RegisterId) -> &[usize] {
        &self.definitions[id.index()]
    }

    /// Returns the step of a register that is added to.
    pub(super) fn step(&self, id: RegisterId) -> Option<&Step> {
        self.steps[id.index()].as_ref()
    }

    /// Returns the registers whose step changes in a statement.
    pub(super) fn changed_steps(&self, at: usize) -> &[RegisterId] {
        self.changes.get(&at).map_or(&[], Vec::as_slice)
    }

    /// Whether a term is the same for all threads of the block.
    pub(super) fn is_uniform(&self, term: Term) -> bool {
        match term {
            Term::Register(id) | Term::Signed(id) | Term::Unsigned(id) => self.uniform.register(id),
            Term::Data => true,
            Term::Special(special) => super::uniform::special_is_uniform(special),
            Term::Step(id) => self.uniform_steps[id.index()],
        }
    }

    fn is_uniform_step(&self, step: &Step) -> bool {
        step.adds.iter().all(|(at, sum)| {
            self.uniform.block(self.flow.block_of[*at])
                && sum.terms.iter().all(|(term, _)| self.is_uniform(*term))
        })
    }

    /// Returns the value of a register at statement `at`, which reads it.
    pub(super) fn register(&self, id: RegisterId, at: usize) -> Sum {
        self.budget.set(BUDGET);
        self.follow(id, at, DEPTH_MAX)
    }

    fn follow(&self, id: RegisterId, at: usize, depth: u32) -> Sum {
        let itself = Sum { constant: 0, terms: vec![(Term::Register(id), 1)] };
        let Some(left) = self.budget.get().checked_sub(1).filter(|_| depth > 0) else {
            return itself;
        };
        self.budget.set(left);
        if let Some(step) = &self.steps[id.index()] {
            if !self.precedes(step.first, at) {
                return itself;
            }
            let mut sum = step.start.clone();
            sum.add(&Sum { terms: vec![(Term::Step(id), 1)], ..Sum::default() }, 1);
            return sum;
        }
        let [definition] = self.definitions[id.index()][..] else { return itself };
        if !self.uniform.written_once(id) || !self.precedes(definition, at) {
            return itself;
        }
        let Statement::Instruction(instruction) = &self.body[definition] else { return itself };
        match self.result(instruction, definition, at, depth) {
            Some(sum) if sum.terms.len() <= TERMS_MAX => sum,
            _ => itself,
        }
    }

    /// Whether statement `first` is always executed before `at`.
    fn precedes(&self, first: usize, at: usize) -> bool {
        let (block, target) = (self.flow.block_of[first], self.flow.block_of[at]);
        if block == target { first < at } else { self.flow.dominates(block, target) }
    }

    /// Returns the result of an instruction, as a sum that is valid at `at`.
    fn result(&self, what: &Instruction, here: usize, at: usize, depth: u32) -> Option<Sum> {
        let ty = what.ty();
        let bits = ty.bits();
        if what.modifiers.sat
            || what.modifiers.carry
            || (bits != 32 && bits != 64)
            || ty.kind() == Kind::IntegerPair
            || what.types.iter().any(|ty| ty.is_float())
        {
            return None;
        }
        if let (
            Opcode::Mov,
            32,
            Some(Operand::Special(
                special @ (Special::Tid(_) | Special::Ctaid(_) | Special::Ntid(_)),
            )),
        ) = (what.opcode, bits, what.sources().first())
        {
            return Some(Sum { constant: 0, terms: vec![(Term::Special(*special), 1)] });
        }
        let value =
            |index: usize| self.value(what.sources().get(index)?, bits, here, at, depth - 1);
        let constant = |index: usize| constant(what.sources().get(index)?);
        let mut sum = Sum::default();
        match what.opcode {
            Opcode::Mov => return value(0),
            Opcode::Add => {
                sum.add(&value(0)?, 1);
                sum.add(&value(1)?, 1);
            }
            Opcode::Sub => {
                sum.add(&value(0)?, 1);
                sum.add(&value(1)?, -1);
            }
            Opcode::Shl => sum.add(
                &value(0)?,
                1_i64
                    .checked_shl(u32::try_from(constant(1)?).ok()?)
                    .filter(|_| constant(1) < Some(31))?,
            ),
            Opcode::Mul | Opcode::Mad => return self.product(what, here, at, depth),
            Opcode::Cvt if bits == 64 && what.source_type().bits() == 32 => {
                return self.extended(
                    what.sources().first()?,
                    what.source_type().is_signed(),
                    here,
                    at,
                );
            }
            Opcode::Cvt if bits == 64 && what.source_type().bits() == 64 => return value(0),
            Opcode::Cvta => {
                sum.add(&value(0)?, 1);
                let window = window(what.modifiers.space?)?;
                sum.constant = sum.constant.wrapping_add(if what.modifiers.to {
                    window.wrapping_neg()
                } else {
                    window
                });
            }
            _ => return None,
        }
        Some(sum)
    }

    /// Returns the result of `mul` or `mad`, as a sum that is valid at `at`.
    fn product(&self, what: &Instruction, here: usize, at: usize, depth: u32) -> Option<Sum> {
        let (ty, bits) = (what.ty(), what.ty().bits());
        let wide = what.modifiers.half == Some(Half::Wide);
        if what.modifiers.half == Some(Half::Hi) || (wide && bits != 32) {
            return None;
        }
        let factor_at = |index: usize| Some(factor(what, constant(what.sources().get(index)?)?));
        let (factor, other) =
            factor_at(1).map(|factor| (factor, 0)).or_else(|| Some((factor_at(0)?, 1)))?;
        let operand = what.sources().get(other)?;
        let product = match wide {
            true => self.extended(operand, ty.is_signed(), here, at)?,
            false => self.value(operand, bits, here, at, depth - 1)?,
        };
        let mut sum = Sum::default();
        sum.add(&product, factor);
        if what.opcode == Opcode::Mad {
            let bits = if wide { 64 } else { bits };
            sum.add(&self.value(what.sources().get(2)?, bits, here, at, depth - 1)?, 1);
        }
        Some(sum)
    }

    /// Returns an operand of an instruction at `here`, as a sum that is valid at `at`.
    fn value(
        &self,
        operand: &Operand,
        bits: u32,
        here: usize,
        at: usize,
        depth: u32,
    ) -> Option<Sum> {
        match operand {
            Operand::Immediate(Immediate::Integer(number)) => {
                let number = number.cast_signed();
                // Only the lower half counts, and it may be negative.
                let constant = if bits == 32 { number << 32 >> 32 } else { number };
                Some(Sum { constant, ..Sum::default() })
            }
            Operand::Symbol { symbol, offset } => self.symbol(*symbol, *offset),
            Operand::Register(id) => {
                let register = &self.function.registers[id.index()];
                if register.ty.bits() != bits
                    || register.ty.is_float()
                    || register.lanes != 1
                    || !self.keeps(*id, here, at)
                {
                    return None;
                }
                Some(if self.steps[id.index()].is_some() {
                    self.follow(*id, here, depth)
                } else {
                    self.follow(*id, at, depth)
                })
            }
            _ => None,
        }
    }

    /// Returns the address of a variable in its own space.
    pub(super) fn symbol(&self, symbol: Symbol, offset: i64) -> Option<Sum> {
        Some(match symbol {
            Symbol::Global(id) => {
                let base = self.module.globals()[id.index()].offset.cast_signed();
                Sum { constant: base + offset, terms: vec![(Term::Data, 1)] }
            }
            Symbol::Shared(id) => {
                let variable = &self.module.shared()[id.index()];
                let base =
                    if variable.dynamic { self.entry.static_shared } else { variable.offset };
                Sum { constant: i64::from(base) + offset, terms: Vec::new() }
            }
            Symbol::Variable(id) if self.function.variables[id.index()].space == Space::Local => {
                let base = i64::from(self.function.variables[id.index()].offset);
                Sum { constant: base + offset, terms: Vec::new() }
            }
            _ => return None,
        })
    }

    /// Returns a 32-bit register, extended to 64 bits.
    fn extended(&self, operand: &Operand, signed: bool, here: usize, at: usize) -> Option<Sum> {
        let Operand::Register(id) = operand else { return None };
        let register = &self.function.registers[id.index()];
        if register.ty.bits() != 32
            || register.ty.is_float()
            || register.lanes != 1
            || !self.keeps(*id, here, at)
        {
            return None;
        }
        let term = if signed { Term::Signed(*id) } else { Term::Unsigned(*id) };
        Some(Sum { terms: vec![(term, 1)], ..Sum::default() })
    }

    /// Whether a register that was read at `here` has the same value at `at`, which `here`
    /// precedes.
    fn keeps(&self, id: RegisterId, here: usize, at: usize) -> bool {
        let definitions = &self.definitions[id.index()];
        if self.uniform.written_once(id) {
            return definitions.iter().all(|definition| self.precedes(*definition, here));
        }
        let same = self.flow.block_of[here] == self.flow.block_of[at] && here <= at;
        // The definitions are in the order of the statements.
        let next = definitions.partition_point(|definition| *definition < here);
        same && definitions.get(next).is_none_or(|definition| *definition >= at)
    }

    fn find_step(&self, id: RegisterId) -> Option<Step> {
        let definitions = &self.definitions[id.index()];
        let register = &self.function.registers[id.index()];
        if !(2..=8).contains(&definitions.len())
            || !matches!(register.ty.bits(), 32 | 64)
            || register.ty.is_float()
            || register.lanes != 1
        {
            return None;
        }
        let (mut first, mut adds) = (None, Vec::new());
        for &definition in definitions {
            let Statement::Instruction(instruction) = &self.body[definition] else { return None };
            if instruction.guard.is_some() {
                return None;
            }
            let mut sum = self.result(instruction, definition, definition, DEPTH_MAX)?;
            match sum
                .terms
                .iter()
                .position(|(term, factor)| (*term, *factor) == (Term::Register(id), 1))
            {
                Some(own) => {
                    sum.terms.remove(own);
                    if sum.terms.iter().any(|(term, _)| *term == Term::Register(id)) {
                        return None;
                    }
                    adds.push((definition, sum));
                }
                None if first.is_none() && self.lasts(&sum) => first = Some((definition, sum)),
                None => return None,
            }
        }
        let (first, start) = first?;
        let all_after = adds.iter().all(|(add, _)| self.precedes(first, *add));
        let numbers = || {
            adds.iter().flat_map(|(_, sum)| {
                sum.terms.iter().map(|(_, factor)| *factor).chain([sum.constant])
            })
        };
        let unit = numbers().fold(UNIT_MAX, |unit, number| {
            if number == 0 { unit } else { unit.min(1 << number.trailing_zeros().min(10)) }
        });
        (all_after && !adds.is_empty()).then_some(Step { first, start, adds, unit })
    }

    /// Whether every term keeps its value forever, because its registers are written once.
    fn lasts(&self, sum: &Sum) -> bool {
        sum.terms.iter().all(|(term, _)| match term {
            Term::Register(id) | Term::Signed(id) | Term::Unsigned(id) => {
                self.uniform.written_once(*id)
            }
            Term::Data | Term::Special(_) => true,
            Term::Step(_) => false,
        })
    }
}

fn constant(operand: &Operand) -> Option<i64> {
    match operand {
        Operand::Immediate(Immediate::Integer(number)) => Some(number.cast_signed()),
        _ => None,
    }
}

/// Returns a number by which an instruction multiplies. A 32-bit instruction uses the lower half,
/// as a number of its own type.
fn factor(what: &Instruction, number: i64) -> i64 {
    let is_unsigned = what.modifiers.half == Some(Half::Wide) && !what.ty().is_signed();
    match what.ty().bits() {
        32 if is_unsigned => number & 0xffff_ffff,
        32 => number << 32 >> 32,
        _ => number,
    }
}

/// Returns the difference between a generic address and the address in the space.
fn window(space: Space) -> Option<i64> {
    match space {
        Space::Global | Space::Const => Some(0),
        Space::Shared => Some(SHARED_WINDOW.cast_signed()),
        Space::Local => Some(LOCAL_WINDOW.cast_signed()),
        Space::Generic | Space::Param => None,
    }
}

impl Sum {
    /// Adds `other` times `factor`.
    pub(super) fn add(&mut self, other: &Self, factor: i64) {
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
        for (term, times) in &other.terms {
            let times = times.wrapping_mul(factor);
            match self.terms.iter_mut().find(|(known, _)| known == term) {
                Some((_, known)) => *known = known.wrapping_add(times),
                None => self.terms.push((*term, times)),
            }
        }
        self.terms.retain(|(_, times)| *times != 0);
    }
}
