//! `atom` and `red`.
//!
//! An operation that OpenCL 1.2 lacks becomes a loop around compare-and-exchange. The device's
//! atomics determine the memory order. An operation that acquires, releases or is `.sc` gets fences
//! around it.

use super::c_type::value_type;
use super::error::TranslateError;
use super::lvalue::{AccessType, memory_type};
use super::writer::Writer;
use crate::ir::{Address, Atomic, Instruction, Opcode, Operand, Space, Type};

impl Writer<'_> {
    pub(super) fn atomic(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let ty = what.ty();
        let refused = || TranslateError::unsupported(what);
        let operation = what.modifiers.atomic.ok_or_else(refused)?;
        if what.modifiers.vector > 1 {
            return Err(refused());
        }
        if ty.bits() == 128 {
            return Err(TranslateError::Atomics128 {
                instruction: what.mnemonic.to_string(),
                line: what.line,
            });
        }
        if ty.bits() == 64 && !self.options.int64_atomics {
            return Err(TranslateError::Atomics64 {
                instruction: what.mnemonic.to_string(),
                line: what.line,
            });
        }
        // The type of the operation, and the function.
        let (done, function) = function(operation, ty).ok_or_else(refused)?;
        let [Operand::Address(address), values @ ..] = what.sources() else {
            return Err(TranslateError::operand(what, what.sources()));
        };
        let wanted = if operation == Atomic::Cas { 2 } else { 1 };
        if values.len() < wanted {
            return Err(TranslateError::operand(what, values));
        }
        let mut arguments = Vec::with_capacity(wanted);
        for value in &values[..wanted] {
            arguments.push(self.read(what, value, done)?);
        }
        self.write_call(what, address, done, function, &arguments.join(", "))?;
        if what.opcode == Opcode::Atom {
            self.result(what, done, "x")?;
        }
        self.line("}");
        Ok(())
    }

    /// Writes the call, whose result is `x` in a block of C that stays open.
    fn write_call(
        &mut self,
        what: &Instruction,
        address: &Address,
        done: Type,
        function: &str,
        arguments: &str,
    ) -> Result<(), TranslateError> {
        let c = value_type(done);
        let memory = memory_type(done);
        let space = what.modifiers.space.unwrap_or(Space::Generic);
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return Err(TranslateError::unsupported(what));
        }
        let lvalue = self.lvalue(
            what,
            address,
            space,
            AccessType { ty: &memory, bytes: what.ty().bytes() },
        )?;
        let call = |object: &str, space: &str| {
            let name = if function.starts_with("ps_") {
                format!("{function}_{space}")
            } else {
                function.to_owned()
            };
            format!("{name}((volatile __{space} {c} *)&{object}, {arguments})")
        };
        self.fence_before(&what.modifiers);
        self.line(&format!("{{ {c} x = 0;"));
        let done = |object: &str, space: &str| format!("x = {};", call(object, space));
        self.by_window(what, lvalue, &done);
        self.fence_behind(&what.modifiers);
        Ok(())
    }
}

/// Returns the type of the operation, and the name of the function: an OpenCL function, or one of
/// the prelude without the suffix of the space.
fn function(operation: Atomic, ty: Type) -> Option<(Type, &'static str)> {
    Some(match (operation, ty) {
        (Atomic::Add, Type::F32) => (Type::F32, "ps_atomic_add_float"),
        (Atomic::Add, Type::F64) => (Type::F64, "ps_atomic_add_double"),
        (Atomic::Add, Type::F16x2) => (Type::U32, "ps_atomic_add_half2"),
        (Atomic::Add, Type::Bf16x2) => (Type::U32, "ps_atomic_add_bf162"),
        (Atomic::Add, Type::F16) => (Type::U16, "ps_atomic_add_half"),
        (Atomic::Add, Type::Bf16) => (Type::U16, "ps_atomic_add_bf16"),
        (Atomic::Cas, _) if ty.bits() == 16 => (Type::U16, "ps_atomic_cas16"),
        _ if ty.is_float() || !matches!(ty.bits(), 32 | 64) => return None,
        (Atomic::Inc, _) if ty.bits() == 32 => (Type::U32, "ps_atomic_inc"),
        (Atomic::Dec, _) if ty.bits() == 32 => (Type::U32, "ps_atomic_dec"),
        (Atomic::Inc | Atomic::Dec, _) => return None,
        (Atomic::Min, Type::S32) => (Type::S32, "atomic_min"),
        (Atomic::Max, Type::S32) => (Type::S32, "atomic_max"),
        (Atomic::Min, Type::S64) => (Type::S64, "atom_min"),
        (Atomic::Max, Type::S64) => (Type::S64, "atom_max"),
        _ if ty.bits() == 32 => (
            Type::U32,
            match operation {
                Atomic::And => "atomic_and",
                Atomic::Or => "atomic_or",
                Atomic::Xor => "atomic_xor",
                Atomic::Cas => "atomic_cmpxchg",
                Atomic::Exch => "atomic_xchg",
                Atomic::Add => "atomic_add",
                Atomic::Min => "atomic_min",
                _ => "atomic_max",
            },
        ),
        _ => (
            Type::U64,
            match operation {
                Atomic::And => "atom_and",
                Atomic::Or => "atom_or",
                Atomic::Xor => "atom_xor",
                Atomic::Cas => "atom_cmpxchg",
                Atomic::Exch => "atom_xchg",
                Atomic::Add => "atom_add",
                Atomic::Min => "atom_min",
                _ => "atom_max",
            },
        ),
    })
}
