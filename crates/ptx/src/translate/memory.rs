//! Loads, stores, moves, and addresses.

use super::TranslateError;
use super::body::Writer;
use super::operand::{unsigned, value_type};
use super::place::{Access, Place};
use crate::ir::{
    Address, Base, Cache, Instruction, LOCAL_WINDOW, Modifiers, Opcode, Operand, SHARED_WINDOW, Semantics,
    Space, Type,
};

/// Whether other threads may change or see the memory meanwhile, so that each access has to happen: a thread may wait in a loop of them.
fn is_strong(modifiers: &Modifiers) -> bool {
    modifiers.volatile
        || modifiers.cache == Some(Cache::Cv)
        || modifiers.semantics.is_some_and(|semantics| semantics != Semantics::Weak)
}

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
                self.fence();
                Ok(())
            }
        }
    }

    fn address<'o>(&self, what: &Instruction, operand: &'o Operand) -> Result<&'o Address, TranslateError> {
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
        let name = if lanes > 1 { format!("a_{element}{lanes}") } else { Self::memory_type(ty) };
        let name = if is_strong(&what.modifiers) { format!("volatile {name}") } else { name };
        let access = Access { ty: &name, bytes: ty.bytes() * lanes };
        let place = match address.base {
            // Parameters of kernels are looked up by type.
            Base::Symbol(_) if lanes == 1 => self.place(
                what,
                address,
                space,
                Access { ty: name.trim_start_matches("volatile "), ..access },
            )?,
            _ => self.place(what, address, space, access)?,
        };
        let value = loaded(&place);
        if lanes == 1 {
            self.write(what, destination, ty, &value)?;
            self.fence_if(&what.modifiers, Semantics::Acquire);
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
        self.fence_if(&what.modifiers, Semantics::Acquire);
        Ok(())
    }

    /// What comes before a release, or after an acquire, stays there.
    fn fence_if(&mut self, modifiers: &Modifiers, semantics: Semantics) {
        if modifiers.semantics == Some(semantics) {
            self.fence();
        }
    }

    /// OpenCL 1.2 has one scope for fences: the device's.
    pub(super) fn fence(&mut self) {
        self.line("mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);");
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
        let name = if lanes > 1 { format!("a_{element}{lanes}") } else { Self::memory_type(ty) };
        let name = if is_strong(&what.modifiers) { format!("volatile {name}") } else { name };
        let access = Access { ty: &name, bytes: ty.bytes() * lanes };
        let space = what.modifiers.space.unwrap_or(Space::Generic);
        self.fence_if(&what.modifiers, Semantics::Release);
        match self.place(what, address, space, access)? {
            Place::Known(object) => self.line(&format!("{object} = {value};")),
            Place::Generic { address, shared, local, global } => {
                let mut text = String::new();
                if let Some(shared) = shared {
                    text = format!(
                        "if ({address} >> 56 == {:#x}UL) {shared} = {value}; else ",
                        SHARED_WINDOW >> 56
                    );
                }
                if let Some(local) = local {
                    text = format!(
                        "{text}if ({address} >> 56 == {:#x}UL) {local} = {value}; else ",
                        LOCAL_WINDOW >> 56
                    );
                }
                self.line(&format!("{text}{global} = {value};"));
            }
        }
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
            Some(Space::Param) => Self::param_window(),
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
            Some(Space::Param) => format!("({value} >> 56 == {:#x}UL)", Self::param_window() >> 56),
            Some(Space::Global) => format!("({value} >> 56 == 0)"),
            // Constants lie among global variables; an address cannot tell.
            _ => return Err(TranslateError::not_served(what)),
        };
        self.write(what, destination, Type::Pred, &text)
    }

    /// Copies of 4, 8 or 16 bytes from global to shared memory are done at once.
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
            _ => return Err(TranslateError::not_served(what)),
        };
        let access = Access { ty, bytes: u32::try_from(bytes).unwrap_or(16) };
        let (target, source) = (self.address(what, target)?, self.address(what, source)?);
        let (Place::Known(to), Place::Known(from)) = (
            self.place(what, target, Space::Shared, access)?,
            self.place(what, source, Space::Global, access)?,
        ) else {
            return Err(TranslateError::not_served(what));
        };
        match rest {
            [] => self.line(&format!("{to} = {from};")),
            // Bytes behind those that are to be read are zero.
            [count, ..] if !matches!(count, Operand::Register(id) if self.function.registers[id.index()].ty == Type::Pred) =>
            {
                let count = self.read(what, count, Type::U32)?;
                self.line(&format!("{{ {ty} zero = 0; {to} = zero; for (uint i = 0; i < {count} && i < {bytes}u; i++) ((__local uchar *)&{to})[i] = ((__global const uchar *)&{from})[i]; }}"));
            }
            _ => return Err(TranslateError::not_served(what)),
        }
        Ok(())
    }
}

/// The value of a place.
pub(super) fn loaded(place: &Place) -> String {
    match place {
        Place::Known(object) => object.clone(),
        Place::Generic { address, shared, local, global } => {
            let mut text = String::from("(");
            if let Some(shared) = shared {
                text.push_str(&format!("{address} >> 56 == {:#x}UL ? {shared} : ", SHARED_WINDOW >> 56));
            }
            if let Some(local) = local {
                text.push_str(&format!("{address} >> 56 == {:#x}UL ? {local} : ", LOCAL_WINDOW >> 56));
            }
            text.push_str(global);
            text.push(')');
            text
        }
    }
}
