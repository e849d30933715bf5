//! Textures and surfaces, emulated in software with a descriptor of 64 bytes in an arena.

use super::c_type::value_type;
use super::error::TranslateError;
use super::lvalue::memory_type;
use super::writer::Writer;
use crate::ir::{Geometry, Instruction, Opcode, Operand, Symbol, TextureAddress, Type};

/// The coordinates of an instruction.
#[derive(Clone, Copy)]
struct TextureShape {
    dimensions: usize,
    /// Whether a layer precedes the coordinates.
    layered: bool,
    /// Whether the coordinates are a direction.
    cube: bool,
}

impl TextureShape {
    fn of(what: &Instruction) -> Result<Self, TranslateError> {
        let (dimensions, layered, cube) = match what.modifiers.geometry {
            Some(Geometry::OneD) => (1, false, false),
            Some(Geometry::TwoD) => (2, false, false),
            Some(Geometry::ThreeD) => (3, false, false),
            Some(Geometry::OneDArray) => (1, true, false),
            Some(Geometry::TwoDArray) => (2, true, false),
            Some(Geometry::Cube) => (3, false, true),
            Some(Geometry::CubeArray) => (3, true, true),
            _ => return Err(refused(what)),
        };
        Ok(Self { dimensions, layered, cube })
    }
}

fn refused(what: &Instruction) -> TranslateError {
    TranslateError::Texture { instruction: what.mnemonic.to_string(), line: what.line }
}

/// Returns the destination of a texel, and its place in the texture.
fn texture_operands(what: &Instruction) -> Result<(&Operand, &TextureAddress), TranslateError> {
    match &what.operands[..] {
        [destination, Operand::Texture(address), ..] => Ok((destination, address)),
        other => Err(TranslateError::operand(what, other)),
    }
}

impl Writer<'_> {
    pub(super) fn texture(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        match what.opcode {
            Opcode::Tex => self.sample(what),
            Opcode::Tld4 => self.gather(what),
            Opcode::Txq => self.query(what),
            _ => self.surface(what),
        }
    }

    /// Returns the device address of the descriptor.
    fn descriptor(
        &mut self,
        what: &Instruction,
        operand: &Operand,
    ) -> Result<String, TranslateError> {
        match operand {
            // A `.texref` variable holds the address.
            Operand::Symbol { symbol: symbol @ Symbol::Global(_), offset } => {
                let address = self.symbol_address(what, *symbol, *offset)?;
                Ok(format!("(*(__global a_ulong *)AT({address}))"))
            }
            other => self.read(what, other, Type::U64),
        }
    }

    fn sample(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let (destination, address) = texture_operands(what)?;
        let [result, coordinate] = what.types[..] else {
            return Err(TranslateError::operand(what, what.types.len()));
        };
        // The only level serves all levels and gradients. The descriptor has no place for separate
        // samplers, offsets and depth comparison.
        let levels = what.modifiers.level || what.modifiers.grad;
        if (!levels && !address.extra.is_empty())
            || address.sampler.is_some()
            || (!levels && what.operands.len() > 2)
        {
            return Err(refused(what));
        }
        let shape = TextureShape::of(what)?;
        if !matches!(coordinate, Type::F32 | Type::S32)
            || (shape.cube && coordinate != Type::F32)
            || !matches!(result, Type::F32 | Type::U32 | Type::S32)
        {
            return Err(refused(what));
        }
        let places = self.coordinates(what, address, shape, coordinate)?.join(", ");
        let layer = self.layer(what, address, shape)?;
        self.open_descriptor(what, &address.texture, "const ")?;
        let value = match (shape.cube, coordinate) {
            (true, _) => format!("ps_tex_cube(d, t, {places}, {layer})"),
            (_, Type::F32) => {
                format!("ps_tex_sampled(d, t, {}u, {places}, {layer})", shape.dimensions)
            }
            _ => format!("ps_tex_fetched(d, t, {}u, {places}, {layer})", shape.dimensions),
        };
        self.texel(what, destination, result, &value)
    }

    fn gather(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let (destination, address) = texture_operands(what)?;
        let [result, Type::F32] = what.types[..] else { return Err(refused(what)) };
        if !address.extra.is_empty() || address.sampler.is_some() || what.operands.len() > 2 {
            return Err(refused(what));
        }
        let channel = match what.modifiers.query.first().copied() {
            Some("r") => 0,
            Some("g") => 1,
            Some("b") => 2,
            Some("a") => 3,
            _ => return Err(refused(what)),
        };
        let shape = TextureShape::of(what)?;
        let mut places = Vec::new();
        for axis in 0..2 {
            let operand = address.coordinates.get(usize::from(shape.layered) + axis);
            let operand = operand.ok_or_else(|| TranslateError::operand(what, &what.operands))?;
            places.push(self.read(what, operand, Type::F32)?);
        }
        let layer = self.layer(what, address, shape)?;
        self.open_descriptor(what, &address.texture, "const ")?;
        let value = format!("ps_tex_gathered(d, t, {channel}u, {}, {layer})", places.join(", "));
        self.texel(what, destination, result, &value)
    }

    /// Returns the coordinates behind the layer. Those that the shape does not have are 0.
    fn coordinates(
        &mut self,
        what: &Instruction,
        address: &TextureAddress,
        shape: TextureShape,
        ty: Type,
    ) -> Result<[String; 3], TranslateError> {
        let mut places = [const { String::new() }; 3];
        for (axis, place) in places.iter_mut().enumerate() {
            *place = match address.coordinates.get(usize::from(shape.layered) + axis) {
                Some(operand) if axis < shape.dimensions => self.read(what, operand, ty)?,
                _ if ty == Type::F32 => String::from("0.0f"),
                _ => String::from("0"),
            };
        }
        Ok(places)
    }

    fn layer(
        &mut self,
        what: &Instruction,
        address: &TextureAddress,
        shape: TextureShape,
    ) -> Result<String, TranslateError> {
        Ok(match address.coordinates.first() {
            Some(operand) if shape.layered => {
                format!("(uint)max({}, 0)", self.read(what, operand, Type::S32)?)
            }
            _ => String::from("0u"),
        })
    }

    /// Opens a block of C in which `d` is the descriptor and `t` the texels.
    fn open_descriptor(
        &mut self,
        what: &Instruction,
        operand: &Operand,
        access: &str,
    ) -> Result<(), TranslateError> {
        let handle = self.descriptor(what, operand)?;
        let place = if self.options.check {
            self.uses_faults = true;
            format!("ps_tex_checked(arena0, control, {handle}, {}u)", what.line)
        } else {
            format!("AT({handle})")
        };
        self.line(&format!(
            "{{ __global const uchar *d = {place}; __global {access}uchar *t = AT(*(__global const a_ulong *)d);"
        ));
        Ok(())
    }

    /// Writes the four words of a texel, and closes the block.
    fn texel(
        &mut self,
        what: &Instruction,
        destination: &Operand,
        result: Type,
        value: &str,
    ) -> Result<(), TranslateError> {
        self.line(&format!("const uint4 x = {value};"));
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

    /// Writes `suld.b` or `sust.b`, which copy bytes unchanged. The first coordinate counts bytes.
    fn surface(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let loads = what.opcode == Opcode::Suld;
        let (address, value) = match &what.operands[..] {
            [value, Operand::Texture(address)] if loads => (address, value),
            [Operand::Texture(address), value] if !loads => (address, value),
            other => return Err(TranslateError::operand(what, other)),
        };
        let shape = TextureShape::of(what)?;
        let (ty, lanes) = (what.ty(), u32::from(what.modifiers.vector.max(1)));
        let bytes = ty.bytes() * lanes;
        let element = value_type(ty);
        let access = if lanes > 1 { format!("a_{element}{lanes}") } else { memory_type(ty) };
        let mode = what.modifiers.query.first().copied();
        let [x, y, mut z] = self.coordinates(what, address, shape, Type::S32)?;
        // Layers are slices. A shape with layers has no third coordinate of its own.
        if let Some(layer) = address.coordinates.first().filter(|_| shape.layered) {
            z = self.read(what, layer, Type::S32)?;
        }
        let stored = if loads { String::new() } else { self.vector(what, value, ty)? };
        self.open_descriptor(what, &address.texture, "")?;
        let clamps = u32::from(mode == Some("clamp"));
        self.line(&format!(
            "__global uchar *s = ps_surface(d, t, {x}, {y}, {z}, {bytes}u, {clamps}u);"
        ));
        if !matches!(mode, Some("clamp" | "zero")) {
            // "traps ... on out-of-bounds addresses".
            self.uses_faults = true;
            let handle = self.descriptor(what, &address.texture)?;
            self.line(&format!(
                "if (s == 0) s = ps_nowhere(AT(control), {handle}, {}u);",
                what.line
            ));
        }
        if loads {
            let full = if lanes > 1 { format!("{element}{lanes}") } else { element.to_owned() };
            self.line(&format!(
                "{full} v = ({full})(0); if (s != 0) v = *(__global const {access} *)s;"
            ));
            let single = [value.clone()];
            let parts = if let Operand::Vector(parts) = value { &parts[..] } else { &single };
            for (index, part) in
                parts.iter().enumerate().filter(|(_, part)| **part != Operand::Sink)
            {
                let text = if lanes > 1 { format!("v.s{index}") } else { String::from("v") };
                self.write(what, part, ty, &text)?;
            }
        } else {
            self.line(&format!("if (s != 0) *(__global {access} *)s = {stored};"));
        }
        self.line("}");
        Ok(())
    }

    /// Returns a value, or a vector of values.
    fn vector(
        &mut self,
        what: &Instruction,
        value: &Operand,
        ty: Type,
    ) -> Result<String, TranslateError> {
        let Operand::Vector(parts) = value else { return self.read(what, value, ty) };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            texts.push(self.read(what, part, ty)?);
        }
        Ok(format!("({}{})({})", value_type(ty), parts.len(), texts.join(", ")))
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
        let source =
            what.sources().first().ok_or_else(|| TranslateError::operand(what, &what.operands))?;
        let handle = match source {
            Operand::Texture(address) => self.descriptor(what, &address.texture)?,
            Operand::Address(crate::ir::Address {
                base: crate::ir::Base::Register(id),
                offset: 0,
            }) => self.name(*id),
            Operand::Address(crate::ir::Address {
                base: crate::ir::Base::Symbol(symbol),
                offset: 0,
            }) => self.descriptor(what, &Operand::Symbol { symbol: *symbol, offset: 0 })?,
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
