//! Compares operands with a form: looks names up, checks types, converts numbers.

use std::collections::HashMap;

use super::constant::Number;
use super::draft::{GlobalDraft, ModuleName};
use super::raw::{RawOperand, RawOperandKind};
use super::scope::{FunctionScope, Local, Mention};
use super::special;
use crate::error::{OperandProblem, ParseError, ParseErrorKind};
use crate::forms::{OperandForm, OperandKind, TypeRule};
use crate::ir::{
    Address, Base, Immediate, Kind, LabelId, Modifiers, Operand, RegisterId, SharedVariable, Space,
    Symbol, TextureAddress, Type,
};
use crate::lexer::TextPosition;

/// The context in which an operand is checked.
pub(super) struct OperandCheck<'p, 'a> {
    pub(super) names: &'p mut FunctionScope<'a>,
    pub(super) module: &'p HashMap<&'a str, ModuleName>,
    pub(super) globals: &'p [GlobalDraft<'a>],
    pub(super) shared: &'p [SharedVariable],
    pub(super) types: &'p [Type],
    pub(super) modifiers: &'p Modifiers,
}

/// Why an operand was refused: it does not fit, or a name in it is unknown.
#[derive(Debug)]
pub(super) enum Misfit {
    Problem(OperandProblem),
    Error(ParseError),
}

impl From<OperandProblem> for Misfit {
    fn from(problem: OperandProblem) -> Self {
        Self::Problem(problem)
    }
}

impl From<ParseError> for Misfit {
    fn from(error: ParseError) -> Self {
        Self::Error(error)
    }
}

const fn kind(needed: &'static str) -> Misfit {
    Misfit::Problem(OperandProblem::Kind(needed))
}

/// Meaning of a name in an operand.
enum Meaning {
    Register(RegisterId),
    Symbol(Symbol),
}

impl<'a> OperandCheck<'_, 'a> {
    /// Converts an operand to what the form requires. Labels come back as placeholders.
    pub(super) fn operand(
        &mut self,
        raw: &RawOperand<'a>,
        form: &OperandForm,
    ) -> Result<Operand, Misfit> {
        match form.kind {
            OperandKind::Value => self.value(raw, form, self.rule(form.rule)),
            OperandKind::VectorOrValue => self.vector_or_value(raw, form),
            OperandKind::Symbol => self.symbol_or_pack(raw, form),
            OperandKind::Texel => self.texel(raw, form),
            OperandKind::Address => self.address(raw).map(Operand::Address),
            OperandKind::Texture => {
                self.texture(raw).map(|texture| Operand::Texture(Box::new(texture)))
            }
            OperandKind::Handle => self.handle(raw),
            OperandKind::Label => label_name(raw).map(|_| Operand::Label(LabelId(0))),
            OperandKind::Targets => label_name(raw).map(|_| Operand::Targets(Vec::new())),
            OperandKind::Immediate => match raw.kind {
                RawOperandKind::Number(Number::Integer(value)) => {
                    Ok(Operand::Immediate(Immediate::Integer(value)))
                }
                _ => Err(kind("an integer")),
            },
            OperandKind::Call => Err(kind("a function")),
        }
    }

    fn rule(&self, rule: TypeRule) -> Type {
        let first = self.types.first().copied().unwrap_or(Type::B32);
        match rule {
            TypeRule::First => first,
            TypeRule::Last => self.types.last().copied().unwrap_or(first),
            TypeRule::Exactly(ty) => ty,
            TypeRule::Wide => match first {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::U32 => Type::U64,
                _ => Type::S64,
            },
        }
    }

    /// Converts a register, or a number if the operand is read.
    fn value(
        &mut self,
        raw: &RawOperand<'a>,
        form: &OperandForm,
        ty: Type,
    ) -> Result<Operand, Misfit> {
        match &raw.kind {
            RawOperandKind::Name { name: "_", component: None, offset: None, negated: false }
                if form.written =>
            {
                Ok(Operand::Sink)
            }
            RawOperandKind::Name { name, component, offset: None, negated } => {
                if let Some(special) = special::find(name, *component) {
                    let fits =
                        !form.written && !negated && !ty.is_float() && ty.kind() != Kind::Predicate;
                    return if fits {
                        Ok(Operand::Special(special))
                    } else {
                        Err(kind("a register"))
                    };
                }
                let Meaning::Register(register) = self.meaning(name, raw.position)? else {
                    return Err(kind("a register"));
                };
                self.fits(register, component.is_some(), ty, form.relaxed)?;
                match (component, negated) {
                    (None, false) => Ok(Operand::Register(register)),
                    (None, true) if form.negatable => Ok(Operand::Not(register)),
                    (Some(component), false) => self.component(register, component),
                    _ => Err(kind("an operand without `!`")),
                }
            }
            RawOperandKind::Number(number) if !form.written => {
                Ok(Operand::Immediate(immediate(*number, ty)?))
            }
            _ => Err(kind(if form.written { "a register" } else { "a register or a number" })),
        }
    }

    fn component(&self, register: RegisterId, component: &str) -> Result<Operand, Misfit> {
        let lane = match component {
            "x" | "r" => 0,
            "y" | "g" => 1,
            "z" | "b" => 2,
            "w" | "a" => 3,
            _ => return Err(kind("a component of a vector")),
        };
        let lanes = self.names.registers[register.index()].lanes;
        if lane < lanes {
            Ok(Operand::Component(register, lane))
        } else {
            Err(kind("a component of a vector"))
        }
    }

    /// Checks that a register can hold a value of a type.
    fn fits(
        &self,
        register: RegisterId,
        is_component: bool,
        ty: Type,
        relaxed: bool,
    ) -> Result<(), Misfit> {
        let register = &self.names.registers[register.index()];
        let is_vector = register.lanes > 1;
        if is_vector == is_component && compatible(register.ty, ty, relaxed) {
            return Ok(());
        }
        Err(OperandProblem::Type {
            name: register.name.clone(),
            found: register.ty.name(),
            needed: ty.name(),
        }
        .into())
    }

    fn vector_or_value(
        &mut self,
        raw: &RawOperand<'a>,
        form: &OperandForm,
    ) -> Result<Operand, Misfit> {
        let needed = usize::from(self.modifiers.vector);
        let ty = self.rule(form.rule);
        match &raw.kind {
            // `suld.b.2d.b32.trap {%r1}, ...`: a vector of one element is a value.
            RawOperandKind::Braces(elements) if needed == 0 && elements.len() == 1 => {
                self.value(&elements[0], form, ty)
            }
            _ if needed == 0 => self.value(raw, form, ty),
            RawOperandKind::Braces(elements) if elements.len() == needed => {
                self.elements(elements, form, ty)
            }
            RawOperandKind::Braces(elements) => {
                Err(OperandProblem::Length { found: elements.len(), needed }.into())
            }
            // A register that is declared as a vector stands for its components.
            RawOperandKind::Name { name, component: None, offset: None, negated: false } => {
                let Meaning::Register(register) = self.meaning(name, raw.position)? else {
                    return Err(kind("a vector"));
                };
                let lanes = self.names.registers[register.index()].lanes;
                if usize::from(lanes) != needed {
                    return Err(kind("a vector"));
                }
                self.fits(register, true, ty, form.relaxed)?;
                Ok(Operand::Vector(
                    (0..lanes).map(|lane| Operand::Component(register, lane)).collect(),
                ))
            }
            _ => Err(kind("a vector")),
        }
    }

    fn elements(
        &mut self,
        elements: &[RawOperand<'a>],
        form: &OperandForm,
        ty: Type,
    ) -> Result<Operand, Misfit> {
        elements
            .iter()
            .map(|element| self.value(element, form, ty))
            .collect::<Result<_, _>>()
            .map(Operand::Vector)
    }

    /// Converts an operand of `mov` or `cvta`.
    fn symbol_or_pack(
        &mut self,
        raw: &RawOperand<'a>,
        form: &OperandForm,
    ) -> Result<Operand, Misfit> {
        let ty = self.rule(form.rule);
        match &raw.kind {
            RawOperandKind::Braces(elements) => self.pack(elements, form, ty),
            RawOperandKind::Name { name, component: None, offset, negated: false }
                if !form.written =>
            {
                if special::find(name, None).is_some() {
                    return self.value(raw, form, ty);
                }
                match self.meaning(name, raw.position)? {
                    Meaning::Symbol(symbol) if matches!(ty.bits(), 32 | 64) && !ty.is_float() => {
                        Ok(Operand::Symbol { symbol, offset: offset.unwrap_or(0) })
                    }
                    Meaning::Symbol(_) => Err(kind("a type that holds an address")),
                    Meaning::Register(_) => self.value(raw, form, ty),
                }
            }
            _ => self.value(raw, form, ty),
        }
    }

    /// Converts `{a, b}`, whose elements together have as many bits as the type.
    fn pack(
        &mut self,
        elements: &[RawOperand<'a>],
        form: &OperandForm,
        ty: Type,
    ) -> Result<Operand, Misfit> {
        let element = match (ty.bits(), elements.len()) {
            (16, 2) | (32, 4) => Type::B8,
            (32, 2) | (64, 4) => Type::B16,
            (64, 2) | (128, 4) => Type::B32,
            (128, 2) => Type::B64,
            _ => return Err(kind("a vector whose elements make up the type")),
        };
        let relaxed = element == Type::B8;
        self.elements(elements, &OperandForm { relaxed, ..*form }, element)
    }

    /// Converts `{r, g, b, a}` of a texture instruction.
    fn texel(&mut self, raw: &RawOperand<'a>, form: &OperandForm) -> Result<Operand, Misfit> {
        let ty = self.rule(form.rule);
        match &raw.kind {
            RawOperandKind::Braces(elements) if matches!(elements.len(), 1..=4) => {
                self.elements(elements, form, ty)
            }
            _ => Err(kind("a vector")),
        }
    }

    fn address(&mut self, raw: &RawOperand<'a>) -> Result<Address, Misfit> {
        let RawOperandKind::Brackets(inside) = &raw.kind else {
            return Err(kind("an address in brackets"));
        };
        let [inside] = inside.as_slice() else { return Err(kind("one address")) };
        match &inside.kind {
            RawOperandKind::Name { name, component: None, offset, negated: false } => {
                let offset = offset.unwrap_or(0);
                match self.meaning(name, inside.position)? {
                    Meaning::Register(register) => {
                        let found = &self.names.registers[register.index()];
                        let holds_address =
                            matches!(found.ty.kind(), Kind::Bits | Kind::Unsigned | Kind::Signed);
                        if !holds_address || !matches!(found.ty.bits(), 32 | 64) || found.lanes != 1
                        {
                            let problem = OperandProblem::Type {
                                name: found.name.clone(),
                                found: found.ty.name(),
                                needed: "b64",
                            };
                            return Err(problem.into());
                        }
                        Ok(Address { base: Base::Register(register), offset })
                    }
                    Meaning::Symbol(symbol) => {
                        self.check_space(symbol)?;
                        Ok(Address { base: Base::Symbol(symbol), offset })
                    }
                }
            }
            RawOperandKind::Number(Number::Integer(value)) => {
                Ok(Address { base: Base::Absolute, offset: value.cast_signed() })
            }
            _ => Err(kind("an address")),
        }
    }

    /// Checks that a variable lies in the space that the instruction names.
    fn check_space(&self, symbol: Symbol) -> Result<(), Misfit> {
        let space = self.space(symbol);
        match self.modifiers.space {
            Some(named) if space != Some(named) => {
                Err(kind("a variable of the space that the instruction names"))
            }
            _ if space.is_none() => Err(kind("a variable")),
            _ => Ok(()),
        }
    }

    /// Returns the space of a symbol; `None` for a function.
    pub(super) fn space(&self, symbol: Symbol) -> Option<Space> {
        match symbol {
            Symbol::Global(id) => {
                Some(if self.globals[id.index()].is_const { Space::Const } else { Space::Global })
            }
            Symbol::Shared(id) => self.shared.get(id.index()).map(|_| Space::Shared),
            Symbol::Variable(id) => {
                self.names.variables.get(id.index()).map(|variable| variable.space)
            }
            Symbol::Param(_) | Symbol::Return(_) => Some(Space::Param),
            Symbol::Function(_) => None,
        }
    }

    /// Converts `[texture, {x, y}]` or `[texture, sampler, {x, y}]`.
    fn texture(&mut self, raw: &RawOperand<'a>) -> Result<TextureAddress, Misfit> {
        let RawOperandKind::Brackets(inside) = &raw.kind else {
            return Err(kind("a texture and coordinates in brackets"));
        };
        let (texture, sampler, coordinates) = match inside.as_slice() {
            [texture, coordinates] => (texture, None, coordinates),
            [texture, sampler, coordinates] => (texture, Some(sampler), coordinates),
            _ => return Err(kind("a texture and coordinates")),
        };
        let texture = self.texture_handle(texture)?;
        let sampler = sampler.map(|sampler| self.texture_handle(sampler)).transpose()?;
        let single;
        let elements = match &coordinates.kind {
            RawOperandKind::Braces(elements) if matches!(elements.len(), 1..=4) => {
                elements.as_slice()
            }
            RawOperandKind::Name { name, component, .. } => {
                single = [RawOperand {
                    kind: RawOperandKind::Name {
                        name,
                        component: *component,
                        offset: None,
                        negated: false,
                    },
                    position: coordinates.position,
                    second: false,
                }];
                &single
            }
            _ => return Err(kind("coordinates")),
        };
        let ty = if self.types.len() > 1 { self.rule(TypeRule::Last) } else { Type::B32 };
        let form = OperandForm {
            kind: OperandKind::Value,
            rule: TypeRule::Exactly(ty),
            relaxed: false,
            optional: false,
            negatable: false,
            written: false,
            second: false,
        };
        // The layer of an array is an integer, beside coordinates of any type.
        let coordinate = |element: &RawOperand<'a>| match self.value(element, &form, ty) {
            Err(Misfit::Problem(OperandProblem::Type { .. })) => {
                self.value(element, &form, Type::U32)
            }
            other => other,
        };
        let coordinates = elements.iter().map(coordinate).collect::<Result<_, _>>()?;
        Ok(TextureAddress { texture, sampler, coordinates, extra: Vec::new() })
    }

    fn handle(&mut self, raw: &RawOperand<'a>) -> Result<Operand, Misfit> {
        match &raw.kind {
            RawOperandKind::Brackets(inside) if inside.len() == 1 => {
                self.texture_handle(&inside[0])
            }
            _ => Err(kind("a texture in brackets")),
        }
    }

    fn texture_handle(&mut self, raw: &RawOperand<'a>) -> Result<Operand, Misfit> {
        let RawOperandKind::Name { name, component: None, offset: None, negated: false } = raw.kind
        else {
            return Err(kind("a texture"));
        };
        match self.meaning(name, raw.position)? {
            Meaning::Register(register) => {
                self.fits(register, false, Type::U64, false)?;
                Ok(Operand::Register(register))
            }
            Meaning::Symbol(symbol) => Ok(Operand::Symbol { symbol, offset: 0 }),
        }
    }

    /// Converts an argument or a return value of a call.
    pub(super) fn argument(
        &mut self,
        raw: &RawOperand<'a>,
        written: bool,
    ) -> Result<Operand, Misfit> {
        match &raw.kind {
            RawOperandKind::Name { name: "_", component: None, offset: None, negated: false }
                if written =>
            {
                Ok(Operand::Sink)
            }
            RawOperandKind::Name { name, component: None, offset: None, negated: false } => {
                match self.meaning(name, raw.position)? {
                    Meaning::Register(register) => Ok(Operand::Register(register)),
                    Meaning::Symbol(symbol) if self.space(symbol) == Some(Space::Param) => {
                        Ok(Operand::Symbol { symbol, offset: 0 })
                    }
                    Meaning::Symbol(_) => Err(kind("a variable of the param space")),
                }
            }
            RawOperandKind::Number(number) if !written => Ok(Operand::Immediate(match *number {
                Number::Integer(value) => Immediate::Integer(value),
                Number::Single(bits) => Immediate::Single(bits),
                Number::Double(bits) => Immediate::Double(bits),
                Number::Decimal(value) => Immediate::Double(value.to_bits()),
            })),
            _ => Err(kind("a parameter")),
        }
    }

    /// Returns the register of a guard's predicate.
    pub(super) fn predicate(
        &mut self,
        name: &'a str,
        position: TextPosition,
    ) -> Result<RegisterId, Misfit> {
        match self.meaning(name, position)? {
            Meaning::Register(register) => {
                self.fits(register, false, Type::Pred, false).map(|()| register)
            }
            Meaning::Symbol(_) => Err(kind("a predicate")),
        }
    }

    fn meaning(&mut self, name: &'a str, position: TextPosition) -> Result<Meaning, Misfit> {
        match self.names.find(name, position)? {
            Some(Local::Register(register)) => return Ok(Meaning::Register(register)),
            Some(Local::Symbol(symbol)) => return Ok(Meaning::Symbol(symbol)),
            None => {}
        }
        match self.module.get(name) {
            Some(found) => {
                self.names.mentions.push(Mention { name, position, is_call: false });
                Ok(Meaning::Symbol(match found {
                    ModuleName::Global(id) => Symbol::Global(*id),
                    ModuleName::Shared(id) => Symbol::Shared(*id),
                    ModuleName::Function(id) => Symbol::Function(*id),
                }))
            }
            None => Err(position.error(ParseErrorKind::UnknownName(name.to_owned())).into()),
        }
    }
}

/// Returns the name in an operand that must be a label.
pub(super) fn label_name<'a>(raw: &RawOperand<'a>) -> Result<&'a str, Misfit> {
    match raw.kind {
        RawOperandKind::Name { name, component: None, offset: None, negated: false } => Ok(name),
        _ => Err(kind("a label")),
    }
}

/// Whether a register of type `register` can be an operand of type `operand`.
fn compatible(register: Type, operand: Type, relaxed: bool) -> bool {
    let (held, needed) = (register.kind(), operand.kind());
    if held == Kind::Predicate || needed == Kind::Predicate {
        return held == needed;
    }
    let is_whole =
        |kind| matches!(kind, Kind::Bits | Kind::Unsigned | Kind::Signed | Kind::IntegerPair);
    if register.bits() != operand.bits() {
        return relaxed
            && register.bits() > operand.bits()
            && is_whole(held)
            && (is_whole(needed) || operand.bits() == 16);
    }
    // Loads and stores move bits, so any register of the width fits.
    held == Kind::Bits
        || needed == Kind::Bits
        || relaxed
        || (is_whole(held) && is_whole(needed))
        || register == operand
}

/// Converts a number to a value of a type.
fn immediate(number: Number, ty: Type) -> Result<Immediate, Misfit> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a double is rounded to single where the instruction works on single"
    )]
    let single = |value: f64| Immediate::Single((value as f32).to_bits());
    let wrong = || Misfit::Problem(OperandProblem::Number(ty.name()));
    match (number, ty) {
        (Number::Integer(_), Type::F32 | Type::F64 | Type::F32x2) => Err(wrong()),
        (Number::Integer(value), _) => Ok(Immediate::Integer(value)),
        (Number::Single(bits), Type::F32 | Type::B32) => Ok(Immediate::Single(bits)),
        (Number::Single(bits), Type::F64) => {
            Ok(Immediate::Double(f64::from(f32::from_bits(bits)).to_bits()))
        }
        (Number::Double(bits), Type::F64 | Type::B64) => Ok(Immediate::Double(bits)),
        (Number::Double(bits), Type::F32) => Ok(single(f64::from_bits(bits))),
        (Number::Decimal(value), Type::F64) => Ok(Immediate::Double(value.to_bits())),
        (Number::Decimal(value), Type::F32) => Ok(single(value)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_fit_by_width_and_kind() {
        assert!(compatible(Type::B32, Type::F32, false));
        assert!(compatible(Type::U32, Type::S32, false));
        assert!(compatible(Type::F32, Type::B32, false));
        assert!(compatible(Type::B32, Type::F16x2, false));
        assert!(!compatible(Type::F32, Type::S32, false));
        assert!(!compatible(Type::U64, Type::U32, false));
        assert!(!compatible(Type::B32, Type::Pred, false));
        assert!(compatible(Type::B32, Type::U8, true), "a load may fill a wider register");
        assert!(!compatible(Type::B16, Type::U32, true), "but not a narrower one");
        assert!(!compatible(Type::F64, Type::F32, true));
    }

    #[test]
    fn numbers_become_the_type_of_the_instruction() {
        assert_eq!(
            immediate(Number::Decimal(1.0), Type::F32).ok(),
            Some(Immediate::Single(0x3F80_0000))
        );
        assert_eq!(
            immediate(Number::Single(0x3F80_0000), Type::F64).ok(),
            Some(Immediate::Double(1f64.to_bits()))
        );
        assert_eq!(immediate(Number::Single(1), Type::B32).ok(), Some(Immediate::Single(1)));
        assert!(immediate(Number::Integer(1), Type::F32).is_err());
        assert!(immediate(Number::Decimal(1.0), Type::U32).is_err());
    }
}
