//! Inlines the device functions that a kernel calls.
//!
//! A copy of the callee's body replaces the call. The callee's registers, labels and variables
//! become new ones of the kernel, and its parameters are the `.param` variables of the call. So the
//! rest of the translation sees a single function, and a barrier in a callee is a barrier of the
//! kernel. OpenCL compilers for CPUs inline in the same way.

use std::sync::Arc;

use super::error::TranslateError;
use super::promote::promote;
use crate::ir::{
    Address, Base, Call, CallTarget, Compare, Entry, FUNCTION_WINDOW, Formal, Function, FunctionId,
    Immediate, Instruction, Label, LabelId, Modifiers, Module, Opcode, Operand, RegisterId,
    Signature, Space, Statement, Symbol, TextureAddress, Type, Variable, VariableId,
};

/// Largest number of statements of a kernel with its callees. The largest kernels in use have some
/// ten thousand. OpenCL compilers take minutes for this many.
const STATEMENTS_MAX: usize = 400_000;

/// Largest numbers of operands, registers, variables and labels: some ten operands for each
/// statement. These have limits too, because each call copies all that its callee declares, used or
/// not.
const OPERANDS_MAX: usize = 10 * STATEMENTS_MAX;
const REGISTERS_MAX: usize = 1 << 20;

/// Deepest nesting of calls, so that a malformed module cannot overflow the stack.
const DEPTH_MAX: u32 = 200;

/// Returns the function of `entry`, in which only calls of functions without a body remain.
pub(super) fn flatten(module: &Module, entry: &Entry) -> Result<Function, TranslateError> {
    let function = module.function(entry.function);
    if entry.recursive {
        let name =
            entry.callees.last().map_or(entry.name.clone(), |id| module.function(*id).name.clone());
        return Err(TranslateError::Recursion { function: name, line: function.line });
    }
    if let Some(error) = &function.refusal {
        return Err(TranslateError::refused(function, error));
    }
    let mut flat = function.clone();
    let body = flat.body.take().unwrap_or_default();
    let frame = flat.frame_bytes;
    let length = body.len().min(STATEMENTS_MAX);
    let mut inliner = Inliner {
        module,
        entry,
        flat,
        body: Vec::with_capacity(length),
        frame_most: frame,
        operands: 0,
    };
    for statement in body {
        inliner.statement(statement, frame, 0)?;
    }
    let Inliner { mut flat, mut body, frame_most, .. } = inliner;
    promote(&mut flat, &mut body);
    flat.frame_bytes = frame_most;
    flat.body = Some(body);
    place_labels(&mut flat);
    Ok(flat)
}

/// Notes where each label of a function is now.
pub(super) fn place_labels(function: &mut Function) {
    for (position, statement) in function.body.iter().flatten().enumerate() {
        if let Statement::Label(label) = statement {
            function.labels[label.index()].position = u32::try_from(position).unwrap_or(u32::MAX);
        }
    }
}

struct Inliner<'a> {
    module: &'a Module,
    entry: &'a Entry,
    flat: Function,
    body: Vec<Statement>,
    frame_most: u32,
    /// Operands of the statements so far, and of the calls that were replaced.
    operands: usize,
}

/// Mapping of a callee's numbers to numbers of the kernel.
struct CalleeNumbers {
    registers: u32,
    labels: u32,
    variables: u32,
    params: Vec<VariableId>,
    returns: Vec<VariableId>,
    end: LabelId,
}

impl Inliner<'_> {
    fn statement(
        &mut self,
        statement: Statement,
        frame: u32,
        depth: u32,
    ) -> Result<(), TranslateError> {
        if self.body.len() >= STATEMENTS_MAX {
            return Err(self.too_large("instructions", STATEMENTS_MAX));
        }
        if let Statement::Instruction(instruction) = &statement {
            self.operands += operands_of(instruction);
            if self.operands > OPERANDS_MAX {
                return Err(self.too_large("operands", OPERANDS_MAX));
            }
        }
        match statement {
            Statement::Instruction(instruction) if instruction.call.is_some() => {
                self.call(instruction, frame, depth)
            }
            other => {
                self.body.push(other);
                Ok(())
            }
        }
    }

    fn too_large(&self, what: &'static str, most: usize) -> TranslateError {
        TranslateError::TooLarge { kernel: self.entry.name.clone(), what, most }
    }

    fn call(
        &mut self,
        instruction: Instruction,
        frame: u32,
        depth: u32,
    ) -> Result<(), TranslateError> {
        let Some(call) = instruction.call.as_deref() else { return Ok(()) };
        let known = if let CallTarget::Direct(id) = call.target { Some(id) } else { None };
        if known.is_some_and(|id| self.module.function(id).body.is_none()) {
            self.body.push(Statement::Instruction(instruction));
            return Ok(());
        }
        let over = self.new_label();
        if let Some(guard) = instruction.guard {
            self.branch(
                Some(crate::ir::Guard { negated: !guard.negated, ..guard }),
                over,
                instruction.line,
            );
        }
        match &call.target {
            CallTarget::Direct(id) => self.insert(*id, call, &instruction, frame, depth)?,
            CallTarget::Indirect { register, signature, targets } => {
                let candidates = targets.clone().unwrap_or_else(|| self.candidates(signature));
                for id in candidates {
                    let next = self.new_label();
                    self.unless(*register, id, next, instruction.line);
                    self.insert(id, call, &instruction, frame, depth)?;
                    self.branch(None, over, instruction.line);
                    self.body.push(Statement::Label(next));
                }
                // The address is not that of a candidate. There may be none: virtual functions are
                // called in code that never runs, and kernels of other modules implement them.
                self.push(plain(Opcode::Trap, instruction.line, Vec::new()), Type::Pred, 0, false);
            }
        }
        self.body.push(Statement::Label(over));
        Ok(())
    }

    /// Returns the functions that a pointer with this signature can refer to.
    fn candidates(&self, signature: &Signature) -> Vec<FunctionId> {
        let numbered = (0..).map(FunctionId).zip(self.module.functions());
        let fitting =
            numbered.filter(|(_, function)| function.body.is_some() && function.fits(signature));
        fitting.map(|(id, _)| id).collect()
    }

    fn branch(&mut self, guard: Option<crate::ir::Guard>, to: LabelId, line: u32) {
        let mut branch = plain(Opcode::Bra, line, vec![Operand::Label(to)]);
        branch.guard = guard;
        self.body.push(Statement::Instruction(branch));
    }

    /// Emits a branch to `next` that is taken unless `register` holds the address of function `id`.
    fn unless(&mut self, register: RegisterId, id: FunctionId, next: LabelId, line: u32) {
        let differs = RegisterId(u32::try_from(self.flat.registers.len()).unwrap_or(u32::MAX));
        self.flat.registers.push(crate::ir::Register {
            name: String::from("%differs"),
            ty: Type::Pred,
            lanes: 1,
        });
        let address = Operand::Immediate(Immediate::Integer(FUNCTION_WINDOW + u64::from(id.0)));
        let mut compare = plain(
            Opcode::Setp,
            line,
            vec![Operand::Register(differs), Operand::Register(register), address],
        );
        compare.types = vec![Type::U64];
        compare.destinations = 1;
        compare.modifiers.compare = Some(Compare::Ne);
        self.body.push(Statement::Instruction(compare));
        self.branch(Some(crate::ir::Guard { register: differs, negated: false }), next, line);
    }

    /// Inserts a copy of the callee.
    fn insert(
        &mut self,
        id: FunctionId,
        call: &Call,
        instruction: &Instruction,
        frame: u32,
        depth: u32,
    ) -> Result<(), TranslateError> {
        let callee = self.module.function(id);
        if let Some(error) = &callee.refusal {
            return Err(TranslateError::refused(callee, error));
        }
        if depth >= DEPTH_MAX {
            return Err(TranslateError::Recursion {
                function: callee.name.clone(),
                line: instruction.line,
            });
        }
        let end = self.new_label();
        let shift = self.enter(callee, call, frame, end, instruction)?;
        let callee_frame = frame.next_multiple_of(callee.frame_align.max(1)) + callee.frame_bytes;
        self.frame_most = self.frame_most.max(callee_frame);
        for statement in callee.body.iter().flatten() {
            let shifted = shift.statement(statement);
            self.statement(shifted, callee_frame, depth + 1)?;
        }
        self.body.push(Statement::Label(end));
        self.leave(callee, call, &shift, instruction.line);
        Ok(())
    }

    /// Adds the callee's registers and variables to the kernel, and passes the arguments.
    fn enter(
        &mut self,
        callee: &Function,
        call: &Call,
        frame: u32,
        end: LabelId,
        at: &Instruction,
    ) -> Result<CalleeNumbers, TranslateError> {
        let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        self.has_room(callee)?;
        let (registers, variables) =
            (number(self.flat.registers.len()), number(self.flat.variables.len()));
        self.flat.registers.extend(callee.registers.iter().cloned());
        let base = frame.next_multiple_of(callee.frame_align.max(1));
        self.flat.variables.extend(callee.variables.iter().cloned().map(|mut variable| {
            if variable.space == Space::Local {
                variable.offset += base;
            }
            variable
        }));
        let labels = number(self.flat.labels.len());
        self.flat.labels.extend(callee.labels.iter().cloned());
        let mut shift = CalleeNumbers {
            registers,
            labels,
            variables,
            params: Vec::new(),
            returns: Vec::new(),
            end,
        };
        if call.arguments.len() != callee.params.len() || call.returns.len() > callee.returns.len()
        {
            return Err(TranslateError::operand(at, &callee.name));
        }
        for (formal, argument) in callee.params.iter().zip(&call.arguments) {
            if let Some(register) = formal.register {
                let register = RegisterId(register.0 + registers);
                let register = Operand::Register(register);
                match argument {
                    Operand::Symbol {
                        symbol: symbol @ (Symbol::Variable(_) | Symbol::Return(_)),
                        ..
                    } => {
                        self.load(register, *symbol, formal.ty, at.line);
                    }
                    value => self.copy(register, value.clone(), formal.ty, at.line),
                }
                // No statement looks it up, because the callee names the register.
                shift.params.push(VariableId(u32::MAX));
                continue;
            }
            let variable = self.passed(call, formal, argument, at)?;
            shift.params.push(variable);
        }
        for (index, formal) in callee.returns.iter().enumerate() {
            let variable = match call.returns.get(index) {
                Some(Operand::Symbol { symbol: Symbol::Variable(id), .. })
                    if formal.register.is_none() && self.is_param(*id) =>
                {
                    self.holds(*id, formal, at)?;
                    *id
                }
                _ => self.new_variable(formal.ty, formal.size, formal.align),
            };
            shift.returns.push(variable);
        }
        Ok(shift)
    }

    /// Checks that the callee's registers, variables and labels stay within the limit.
    fn has_room(&self, callee: &Function) -> Result<(), TranslateError> {
        for (what, has, more) in [
            ("registers", self.flat.registers.len(), callee.registers.len()),
            ("variables", self.flat.variables.len(), callee.variables.len()),
            ("labels", self.flat.labels.len(), callee.labels.len()),
        ] {
            if has + more > REGISTERS_MAX {
                return Err(self.too_large(what, REGISTERS_MAX));
            }
        }
        Ok(())
    }

    /// Returns the variable that holds an argument.
    fn passed(
        &mut self,
        call: &Call,
        formal: &Formal,
        argument: &Operand,
        at: &Instruction,
    ) -> Result<VariableId, TranslateError> {
        let shared = match argument {
            Operand::Symbol { symbol: Symbol::Variable(id), .. } if self.is_param(*id) => {
                self.holds(*id, formal, at)?;
                if call.names(*id) == 1 {
                    return Ok(*id);
                }
                Some(*id)
            }
            _ => None,
        };
        let own = self.new_variable(formal.ty, formal.size, formal.align);
        match shared {
            // The callee may write one while it still reads the other.
            Some(id) => self.copy_variable(own, id, formal, at.line),
            None => self.store(Symbol::Variable(own), argument.clone(), formal.ty, at.line),
        }
        Ok(own)
    }

    /// Checks that a variable is at least as large as the callee's parameter.
    fn holds(
        &self,
        id: VariableId,
        formal: &Formal,
        at: &Instruction,
    ) -> Result<(), TranslateError> {
        let variable = &self.flat.variables[id.index()];
        if variable.size < formal.size {
            return Err(TranslateError::operand(at, &variable.name));
        }
        Ok(())
    }

    /// Copies all bytes of an argument, in the largest pieces that its alignment allows.
    fn copy_variable(&mut self, to: VariableId, from: VariableId, formal: &Formal, line: u32) {
        let mut offset = 0;
        while offset < formal.size {
            let fits = |ty: &Type| {
                let bytes = ty.bytes();
                offset.is_multiple_of(bytes)
                    && formal.align.is_multiple_of(bytes)
                    && offset + bytes <= formal.size
            };
            let ty = [Type::B64, Type::B32, Type::B16].into_iter().find(fits).unwrap_or(Type::B8);
            let register = if ty == Type::B8 { Type::B16 } else { ty };
            let through = self.new_register(register);
            let at = |id: VariableId| {
                Operand::Address(Address {
                    base: Base::Symbol(Symbol::Variable(id)),
                    offset: i64::from(offset),
                })
            };
            self.push(plain(Opcode::Ld, line, vec![through.clone(), at(from)]), ty, 1, true);
            self.push(plain(Opcode::St, line, vec![at(to), through]), ty, 0, true);
            offset += ty.bytes();
        }
    }

    fn new_register(&mut self, ty: Type) -> Operand {
        let id = RegisterId(u32::try_from(self.flat.registers.len()).unwrap_or(u32::MAX));
        self.flat.registers.push(crate::ir::Register {
            name: String::from("%through"),
            ty,
            lanes: 1,
        });
        Operand::Register(id)
    }

    fn is_param(&self, id: VariableId) -> bool {
        self.flat.variables[id.index()].space == Space::Param
    }

    /// Moves the return values to the destinations of the call.
    fn leave(&mut self, callee: &Function, call: &Call, shift: &CalleeNumbers, line: u32) {
        for (index, (formal, wanted)) in callee.returns.iter().zip(&call.returns).enumerate() {
            let own = formal
                .register
                .map(|register| Operand::Register(RegisterId(register.0 + shift.registers)));
            match (own, wanted) {
                (_, Operand::Sink) => {}
                (Some(own), Operand::Symbol { symbol, .. }) => {
                    self.store(*symbol, own, formal.ty, line)
                }
                (Some(own), register) => self.copy(register.clone(), own, formal.ty, line),
                (None, Operand::Symbol { symbol: Symbol::Variable(id), .. })
                    if *id == shift.returns[index] => {}
                (None, Operand::Symbol { symbol, .. }) => {
                    // A return value that the caller returns in turn is copied through a register.
                    let through = self.new_register(formal.ty);
                    self.load(
                        through.clone(),
                        Symbol::Variable(shift.returns[index]),
                        formal.ty,
                        line,
                    );
                    self.store(*symbol, through, formal.ty, line);
                }
                (None, register) => self.load(
                    register.clone(),
                    Symbol::Variable(shift.returns[index]),
                    formal.ty,
                    line,
                ),
            }
        }
    }

    fn new_label(&mut self) -> LabelId {
        let id = LabelId(u32::try_from(self.flat.labels.len()).unwrap_or(u32::MAX));
        self.flat.labels.push(Label { name: String::from("end"), position: 0 });
        id
    }

    fn new_variable(&mut self, ty: Type, size: u32, align: u32) -> VariableId {
        let id = VariableId(u32::try_from(self.flat.variables.len()).unwrap_or(u32::MAX));
        self.flat.variables.push(Variable {
            name: String::from("passed"),
            space: Space::Param,
            ty,
            size,
            align,
            offset: 0,
        });
        id
    }

    fn push(&mut self, mut instruction: Instruction, ty: Type, destinations: u8, param: bool) {
        instruction.types = vec![ty];
        instruction.destinations = destinations;
        instruction.modifiers =
            Modifiers { space: param.then_some(Space::Param), ..Modifiers::default() };
        self.body.push(Statement::Instruction(instruction));
    }

    fn copy(&mut self, to: Operand, from: Operand, ty: Type, line: u32) {
        self.push(plain(Opcode::Mov, line, vec![to, from]), ty, 1, false);
    }

    fn load(&mut self, to: Operand, from: Symbol, ty: Type, line: u32) {
        let address = Operand::Address(Address { base: Base::Symbol(from), offset: 0 });
        self.push(plain(Opcode::Ld, line, vec![to, address]), ty, 1, true);
    }

    fn store(&mut self, to: Symbol, value: Operand, ty: Type, line: u32) {
        let address = Operand::Address(Address { base: Base::Symbol(to), offset: 0 });
        self.push(plain(Opcode::St, line, vec![address, value]), ty, 0, true);
    }
}

/// Returns the number of operands that an instruction carries.
fn operands_of(instruction: &Instruction) -> usize {
    let of = |operand: &Operand| match operand {
        Operand::Vector(parts) => parts.len(),
        Operand::Targets(labels) => labels.len(),
        _ => 1,
    };
    let passed =
        instruction.call.as_deref().map_or(0, |call| call.arguments.len() + call.returns.len());
    passed + instruction.operands.iter().map(of).sum::<usize>()
}

impl Call {
    /// Counts the arguments and return values that are the variable `id`.
    fn names(&self, id: VariableId) -> usize {
        let is_in = |operand: &&Operand| matches!(operand, Operand::Symbol { symbol: Symbol::Variable(found), .. } if *found == id);
        self.arguments.iter().chain(&self.returns).filter(is_in).count()
    }
}

/// Creates an instruction without suffixes.
fn plain(opcode: Opcode, line: u32, operands: Vec<Operand>) -> Instruction {
    Instruction {
        line,
        guard: None,
        opcode,
        types: Vec::new(),
        modifiers: Modifiers::default(),
        operands,
        destinations: 0,
        call: None,
        mnemonic: Arc::from(opcode.name()),
    }
}

impl CalleeNumbers {
    fn register(&self, id: RegisterId) -> RegisterId {
        RegisterId(id.0 + self.registers)
    }

    fn label(&self, id: LabelId) -> LabelId {
        LabelId(id.0 + self.labels)
    }

    fn symbol(&self, symbol: Symbol) -> Symbol {
        match symbol {
            Symbol::Variable(id) => Symbol::Variable(VariableId(id.0 + self.variables)),
            Symbol::Param(index) => Symbol::Variable(self.params[index as usize]),
            Symbol::Return(index) => Symbol::Variable(self.returns[index as usize]),
            other => other,
        }
    }

    fn operand(&self, operand: &Operand) -> Operand {
        match operand {
            Operand::Register(id) => Operand::Register(self.register(*id)),
            Operand::Not(id) => Operand::Not(self.register(*id)),
            Operand::Component(id, lane) => Operand::Component(self.register(*id), *lane),
            Operand::Vector(parts) => Operand::Vector(self.operands(parts)),
            Operand::Symbol { symbol, offset } => {
                Operand::Symbol { symbol: self.symbol(*symbol), offset: *offset }
            }
            Operand::Address(Address { base, offset }) => {
                let base = match base {
                    Base::Register(id) => Base::Register(self.register(*id)),
                    Base::Symbol(symbol) => Base::Symbol(self.symbol(*symbol)),
                    Base::Absolute => Base::Absolute,
                };
                Operand::Address(Address { base, offset: *offset })
            }
            Operand::Texture(address) => Operand::Texture(Box::new(TextureAddress {
                texture: self.operand(&address.texture),
                sampler: address.sampler.as_ref().map(|sampler| self.operand(sampler)),
                coordinates: self.operands(&address.coordinates),
                extra: self.operands(&address.extra),
            })),
            Operand::Label(id) => Operand::Label(self.label(*id)),
            Operand::Targets(labels) => {
                Operand::Targets(labels.iter().map(|id| self.label(*id)).collect())
            }
            Operand::Special(_) | Operand::Immediate(_) | Operand::Sink => operand.clone(),
        }
    }

    fn operands(&self, operands: &[Operand]) -> Vec<Operand> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    fn statement(&self, statement: &Statement) -> Statement {
        let instruction = match statement {
            Statement::Label(id) => return Statement::Label(self.label(*id)),
            Statement::Instruction(instruction) => instruction,
        };
        let mut shifted = instruction.clone();
        shifted.operands = self.operands(&instruction.operands);
        if let Some(guard) = &mut shifted.guard {
            guard.register = self.register(guard.register);
        }
        if let Some(call) = &mut shifted.call {
            call.arguments = self.operands(&call.arguments);
            call.returns = self.operands(&call.returns);
            if let CallTarget::Indirect { register, .. } = &mut call.target {
                *register = self.register(*register);
            }
        }
        if instruction.opcode == Opcode::Ret {
            shifted.opcode = Opcode::Bra;
            shifted.operands = vec![Operand::Label(self.end)];
        }
        Statement::Instruction(shifted)
    }
}
