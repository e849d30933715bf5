//! Turns variables of calls that only pass values into registers, because compilers of OpenCL C can
//! track the content of registers.

use crate::ir::{
    Address, Base, Function, Instruction, Modifiers, Opcode, Operand, RegisterId, Space, Statement,
    Symbol, Type, VariableId,
};

/// Replaces the `.param` variables that are only loaded and stored as a whole by registers.
pub(super) fn promote(flat: &mut Function, body: &mut [Statement]) {
    let mut types: Vec<Option<Type>> = vec![None; flat.variables.len()];
    let mut barred: Vec<bool> =
        flat.variables.iter().map(|variable| variable.space != Space::Param).collect();
    for instruction in body.iter().filter_map(instruction_of) {
        let whole = moved_variable(instruction);
        for id in variables_of(instruction) {
            let known = &mut types[id.index()];
            if whole != Some(id) || known.is_some_and(|ty| ty.bits() != instruction.ty().bits()) {
                barred[id.index()] = true;
            }
            known.get_or_insert(instruction.ty());
        }
    }
    let mut registers = vec![None; flat.variables.len()];
    for (index, ty) in types.into_iter().enumerate() {
        if let (Some(ty), false) = (ty, barred[index]) {
            registers[index] =
                Some(RegisterId(u32::try_from(flat.registers.len()).unwrap_or(u32::MAX)));
            flat.registers.push(crate::ir::Register {
                name: flat.variables[index].name.clone(),
                ty,
                lanes: 1,
            });
        }
    }
    for statement in body {
        let Statement::Instruction(instruction) = statement else { continue };
        let Some(register) = moved_variable(instruction).and_then(|id| registers[id.index()])
        else {
            continue;
        };
        let (from, to) = match instruction.opcode {
            Opcode::Ld => (Operand::Register(register), instruction.operands[0].clone()),
            _ => (instruction.operands[1].clone(), Operand::Register(register)),
        };
        instruction.opcode = Opcode::Mov;
        instruction.operands = vec![to, from];
        instruction.destinations = 1;
        instruction.modifiers = Modifiers::default();
    }
}

fn instruction_of(statement: &Statement) -> Option<&Instruction> {
    match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    }
}

/// Returns the variable that an instruction loads or stores as a whole.
fn moved_variable(instruction: &Instruction) -> Option<VariableId> {
    let address = match (instruction.opcode, instruction.operands.as_slice()) {
        (Opcode::Ld, [Operand::Register(_), Operand::Address(address)])
        | (
            Opcode::St,
            [
                Operand::Address(address),
                Operand::Register(_) | Operand::Immediate(_) | Operand::Special(_),
            ],
        ) => address,
        _ => return None,
    };
    match address {
        Address { base: Base::Symbol(Symbol::Variable(id)), offset: 0 }
            if instruction.modifiers.vector == 0 =>
        {
            Some(*id)
        }
        _ => None,
    }
}

/// Returns every `.param` or `.local` variable that an instruction names.
fn variables_of(instruction: &Instruction) -> Vec<VariableId> {
    let call = instruction.call.as_deref();
    let passed = call.into_iter().flat_map(|call| call.arguments.iter().chain(&call.returns));
    let symbols = instruction.operands.iter().chain(passed).filter_map(|operand| match operand {
        Operand::Symbol { symbol, .. }
        | Operand::Address(Address { base: Base::Symbol(symbol), .. }) => Some(*symbol),
        _ => None,
    });
    symbols
        .filter_map(|symbol| if let Symbol::Variable(id) = symbol { Some(id) } else { None })
        .collect()
}
