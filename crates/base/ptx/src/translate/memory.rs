use super::c_type::{unsigned, value_type};
use super::effects::is_strong;
use super::error::TranslateError;
use super::lvalue::{AccessType, Lvalue, memory_type, value_of};
use super::writer::Writer;
use crate::ir::{
    Address, Base, Instruction, LOCAL_WINDOW, Modifiers, Opcode, Operand, PARAM_WINDOW,
    SHARED_WINDOW, Semantics, Space, Symbol, Type,
};

impl Writer<'_> {
    pub(super) fn memory(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        match what.opcode {
            Opcode::Ld | Opcode::Ldu => self.load(what),
            Opcode::St => self.store(what),
            Opcode::Mov => self.copy(what),
            Opcode::Cvta => self.window(what),
            Opcode::Isspacep => self.is_space(what),
            Opcode::CpAsync => self.copy_async(what),
            _ => {
                self.fence(what.modifiers.semantics.unwrap_or(Semantics::Sc));
                Ok(())
            }
        }
    }

    fn address<'o>(
        &self,
        what: &Instruction,
        operand: &'o Operand,
    ) -> Result<&'o Address, TranslateError> {
        match operand {
            Operand::Address(address) => Ok(address),
            other => Err(TranslateError::operand(what, other)),
        }
    }

    fn load(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let [destination, source] = &what.operands[..2.min(what.operands.len())] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let address = self.address(what, source)?;
        let space = what.modifiers.space.unwrap_or(Space::Generic);
        let lanes = u32::from(what.modifiers.vector.max(1));
        let element = value_type(ty);
        let name = if lanes > 1 { format!("a_{element}{lanes}") } else { memory_type(ty) };
        let name = if is_strong(&what.modifiers) { format!("volatile {name}") } else { name };
        let access = AccessType { ty: &name, bytes: ty.bytes() * lanes };
        let lvalue = self.lvalue(what, address, space, access)?;
        let value = value_of(&lvalue);
        if lanes == 1 {
            self.write(what, destination, ty, &value)?;
            self.fence_behind(&what.modifiers);
            return Ok(());
        }
        let Operand::Vector(parts) = destination else {
            return Err(TranslateError::operand(what, destination));
        };
        self.line(&format!("{{ const {element}{lanes} v = {value};"));
        for (index, part) in parts.iter().enumerate() {
            if *part != Operand::Sink {
                self.write(what, part, ty, &format!("v.s{index}"))?;
            }
        }
        self.line("}");
        self.fence_behind(&what.modifiers);
        Ok(())
    }

    /// Writes the fence in front of an access that releases or is sequentially consistent.
    pub(super) fn fence_before(&mut self, modifiers: &Modifiers) {
        if let Some(semantics @ (Semantics::Release | Semantics::AcqRel | Semantics::Sc)) =
            modifiers.semantics
        {
            self.fence(semantics);
        }
    }

    /// Writes the fence behind an access that acquires or is sequentially consistent.
    pub(super) fn fence_behind(&mut self, modifiers: &Modifiers) {
        if let Some(semantics @ (Semantics::Acquire | Semantics::AcqRel | Semantics::Sc)) =
            modifiers.semantics
        {
            self.fence(semantics);
        }
    }

    fn fence(&mut self, semantics: Semantics) {
        self.line(if semantics == Semantics::Sc { "ps_fence_all();" } else { "ps_fence();" });
    }

    fn store(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let [target, source] = &what.operands[..2.min(what.operands.len())] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let address = self.address(what, target)?;
        let lanes = u32::from(what.modifiers.vector.max(1));
        let element = value_type(ty);
        let value = match source {
            Operand::Vector(parts) if lanes > 1 => {
                let mut texts = Vec::with_capacity(parts.len());
                for part in parts {
                    texts.push(self.read(what, part, ty)?);
                }
                format!("({element}{lanes})({})", texts.join(", "))
            }
            other => self.read(what, other, ty)?,
        };
        let name = if lanes > 1 { format!("a_{element}{lanes}") } else { memory_type(ty) };
        let name = if is_strong(&what.modifiers) { format!("volatile {name}") } else { name };
        let access = AccessType { ty: &name, bytes: ty.bytes() * lanes };
        let space = what.modifiers.space.unwrap_or(Space::Generic);
        // A kernel can write the variables of its calls, but not its parameters.
        if space == Space::Param && !matches!(address.base, Base::Symbol(Symbol::Variable(_))) {
            return Err(TranslateError::operand(what, address));
        }
        self.fence_before(&what.modifiers);
        let lvalue = self.lvalue(what, address, space, access)?;
        self.by_window(what, lvalue, &|object, _| format!("{object} = {value};"));
        Ok(())
    }

    fn copy(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [destination, source] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let ty = what.ty();
        // Vector registers are copied component by component.
        if let (Operand::Register(to), Operand::Register(from)) = (destination, source) {
            let lanes = self.function.registers[to.index()].lanes;
            if lanes > 1 && lanes == self.function.registers[from.index()].lanes {
                for lane in 0..lanes {
                    self.line(&format!("r{}_{lane} = r{}_{lane};", to.0, from.0));
                }
                return Ok(());
            }
        }
        let value = self.read(what, source, ty)?;
        self.write(what, destination, ty, &value)
    }

    fn window(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [destination, source] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let ty = unsigned(what.ty());
        let value = self.read(what, source, ty)?;
        let start = match what.modifiers.space {
            Some(Space::Shared) => SHARED_WINDOW,
            Some(Space::Local) => LOCAL_WINDOW,
            Some(Space::Param) => PARAM_WINDOW,
            _ => 0,
        };
        let text = match (start, what.modifiers.to) {
            (0, _) => value,
            (start, true) => format!("({value} - {start:#x}UL)"),
            (start, false) => format!("({value} + {start:#x}UL)"),
        };
        self.write(what, destination, ty, &text)
    }

    fn is_space(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [destination, source] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let value = self.read(what, source, Type::U64)?;
        let text = match what.modifiers.space {
            Some(Space::Shared) => format!("({value} >> 56 == {:#x}UL)", SHARED_WINDOW >> 56),
            Some(Space::Local) => format!("({value} >> 56 == {:#x}UL)", LOCAL_WINDOW >> 56),
            Some(Space::Param) => format!("({value} >> 56 == {:#x}UL)", PARAM_WINDOW >> 56),
            Some(Space::Global) => format!("({value} >> 56 == 0)"),
            // Constants lie among global variables, so their addresses cannot be distinguished.
            _ => return Err(TranslateError::unsupported(what)),
        };
        self.write(what, destination, Type::Pred, &text)
    }

    /// Writes a copy of 4, 8 or 16 bytes from global to shared memory, which is done at once.
    fn copy_async(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [target, source, Operand::Immediate(size), rest @ ..] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let crate::ir::Immediate::Integer(bytes) = *size else {
            return Err(TranslateError::operand(what, size));
        };
        let ty = match bytes {
            4 => "a_uint",
            8 => "a_ulong",
            16 => "a_uint4",
            _ => return Err(TranslateError::unsupported(what)),
        };
        let whole = AccessType { ty, bytes: u32::try_from(bytes).unwrap_or(16) };
        let (target, source) = (self.address(what, target)?, self.address(what, source)?);
        for (address, is_shared) in [(target, true), (source, false)] {
            let fits = match address.base {
                Base::Symbol(symbol) => {
                    matches!(
                        (symbol, is_shared),
                        (Symbol::Shared(_), true) | (Symbol::Global(_), false)
                    )
                }
                _ => true,
            };
            if !fits {
                return Err(TranslateError::operand(what, address));
            }
        }
        let Lvalue::Known(to) = self.lvalue(what, target, Space::Shared, whole)? else {
            return Err(TranslateError::unsupported(what));
        };
        match rest {
            [] => {
                let Lvalue::Known(from) = self.lvalue(what, source, Space::Global, whole)? else {
                    return Err(TranslateError::unsupported(what));
                };
                self.line(&format!("{to} = {from};"));
            }
            // Bytes behind those to be read are zero. They may lie outside all memory, so they are
            // not read.
            [count, ..] if !matches!(count, Operand::Register(id) if self.function.registers[id.index()].ty == Type::Pred) =>
            {
                let count = self.read(what, count, Type::U32)?;
                self.line(&format!("{{ {ty} nothing = 0; const uint count = min((uint){count}, {bytes}u); __local {ty} *to = &{to}; *to = nothing;"));
                let from = self.global_bytes(what, source, "count")?;
                self.line(&format!("if (count != 0u) {{ __global const uchar *from = {from}; for (uint i = 0; i < count; i++) ((__local uchar *)to)[i] = from[i]; }} }}"));
            }
            _ => return Err(TranslateError::unsupported(what)),
        }
        Ok(())
    }

    /// Returns the start of bytes in global memory, whose number is only known at run time.
    fn global_bytes(
        &mut self,
        what: &Instruction,
        address: &Address,
        count: &str,
    ) -> Result<String, TranslateError> {
        if self.options.check {
            self.uses_faults = true;
            let (sum, _) = self.address_sum(what, address)?;
            let text = self.bytes_of(&sum);
            let checked =
                format!("ps_check_bytes(arena0, control, {text}, {count}, {}u)", what.line);
            return Ok(self.unless_in_heap(&text, checked));
        }
        match self.lvalue(what, address, Space::Global, AccessType { ty: "a_uchar", bytes: 1 })? {
            Lvalue::Known(object) => Ok(format!("(__global const uchar *)&{object}")),
            Lvalue::ByWindow { .. } => Err(TranslateError::unsupported(what)),
        }
    }
}
