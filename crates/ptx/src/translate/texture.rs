//! Textures, in software, from a descriptor of 64 bytes in an arena.

use super::TranslateError;
use super::body::Writer;
use super::operand::value_type;
use crate::ir::{Geometry, Instruction, Opcode, Operand, Symbol, Type};

impl Writer<'_> {
    pub(super) fn texture(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        match what.opcode {
            Opcode::Tex => self.sample(what),
            Opcode::Txq => self.query(what),
            _ => Err(TranslateError::Texture { instruction: what.mnemonic.to_string(), line: what.line }),
        }
    }

    /// The device address of the descriptor.
    fn descriptor(&mut self, what: &Instruction, operand: &Operand) -> Result<String, TranslateError> {
        match operand {
            // A `.texref` variable holds it.
            Operand::Symbol { symbol: symbol @ Symbol::Global(_), offset } => {
                let address = self.symbol_address(what, *symbol, *offset)?;
                Ok(format!("(*(__global a_ulong *)AT({address}))"))
            }
            other => self.read(what, other, Type::U64),
        }
    }

    fn sample(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let refused = || TranslateError::Texture { instruction: what.mnemonic.to_string(), line: what.line };
        let [destination, Operand::Texture(address), ..] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        let [result, coordinate] = what.types[..] else {
            return Err(TranslateError::operand(what, what.types.len()));
        };
        // There is one level only, whatever level or gradient is asked for. Samplers of their own, offsets and depth comparison have no
        // place in the descriptor.
        let levels = what.modifiers.level || what.modifiers.grad;
        if (!levels && !address.extra.is_empty())
            || address.sampler.is_some()
            || (!levels && what.operands.len() > 2)
        {
            return Err(refused());
        }
        let (dimensions, layered) = match what.modifiers.geometry {
            Some(Geometry::OneD) => (1, false),
            Some(Geometry::TwoD) => (2, false),
            Some(Geometry::ThreeD) => (3, false),
            Some(Geometry::OneDArray) => (1, true),
            Some(Geometry::TwoDArray) => (2, true),
            _ => return Err(refused()),
        };
        if !matches!(coordinate, Type::F32 | Type::S32)
            || !matches!(result, Type::F32 | Type::U32 | Type::S32)
        {
            return Err(refused());
        }
        let first = usize::from(layered);
        let mut arguments = Vec::new();
        for axis in 0..3 {
            arguments.push(match address.coordinates.get(first + axis) {
                Some(operand) if axis < dimensions => self.read(what, operand, coordinate)?,
                _ if coordinate == Type::F32 => String::from("0.0f"),
                _ => String::from("0"),
            });
        }
        let layer = match address.coordinates.first() {
            Some(operand) if layered => format!("(uint)max({}, 0)", self.read(what, operand, Type::S32)?),
            _ => String::from("0u"),
        };
        let handle = self.descriptor(what, &address.texture)?;
        let kind = if coordinate == Type::F32 { "sampled" } else { "fetched" };
        let place = if self.options.check {
            self.uses_faults = true;
            format!("ps_tex_checked(arena0, control, {handle}, {}u)", what.line)
        } else {
            format!("AT({handle})")
        };
        self.line(&format!("{{ __global const uchar *d = {place}; __global const uchar *t = AT(*(__global const a_ulong *)d);"));
        self.line(&format!(
            "const uint4 x = ps_tex_{kind}(d, t, {dimensions}u, {}, {layer});",
            arguments.join(", ")
        ));
        let single = [destination.clone()];
        let parts = if let Operand::Vector(parts) = destination { &parts[..] } else { &single };
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| **part != Operand::Sink) {
            let value = match result {
                Type::U32 => format!("x.s{index}"),
                other => format!("as_{}(x.s{index})", value_type(other)),
            };
            self.write(what, part, result, &value)?;
        }
        self.line("}");
        Ok(())
    }

    fn query(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let offset = match what.modifiers.query.first().copied() {
            Some("width") => 16,
            Some("height") => 20,
            Some("depth") => 56,
            _ => {
                return Err(TranslateError::Texture {
                    instruction: what.mnemonic.to_string(),
                    line: what.line,
                });
            }
        };
        let source = what.sources().first().ok_or_else(|| TranslateError::operand(what, &what.operands))?;
        let handle = match source {
            Operand::Texture(address) => self.descriptor(what, &address.texture)?,
            Operand::Address(crate::ir::Address { base: crate::ir::Base::Register(id), offset: 0 }) => {
                self.name(*id)
            }
            Operand::Address(crate::ir::Address { base: crate::ir::Base::Symbol(symbol), offset: 0 }) => {
                self.descriptor(what, &Operand::Symbol { symbol: *symbol, offset: 0 })?
            }
            other => self.descriptor(what, other)?,
        };
        let place = if self.options.check {
            self.uses_faults = true;
            format!("ps_check(arena0, control, {handle} + {offset}, 4u, {}u)", what.line)
        } else {
            format!("(AT({handle}) + {offset})")
        };
        self.result(what, Type::U32, &format!("(*(__global const a_uint *){place})"))
    }
}
