//! Parses statements: labels, instructions and calls.

use std::sync::Arc;

use super::cursor::shorten;
use super::draft::{FunctionDraft, ModuleName, Parser};
use super::operand::{Misfit, OperandCheck, label_name};
use super::raw::{self, RawOperand, RawOperandKind};
use super::scope::{LabelKind, Local, Mention};
use crate::error::{OperandProblem, ParseError, ParseErrorKind};
use crate::forms::{self, Form, Suffixes};
use crate::ir::{
    Address, BARRIERS, Base, Call, CallTarget, Compare, Guard, Immediate, Instruction, Kind,
    Modifiers, Opcode, Operand, Semantics, SharedId, SharedVariable, Signature, Space, Statement,
    Symbol, Type,
};
use crate::lexer::{TextPosition, Token};

/// Largest number of suffixes of an opcode. The longest that exist have about ten.
const SUFFIXES_MAX: usize = 24;

/// Prefix of the names of shared memory that the driver reserves.
const RESERVED_SHARED: &str = "%reserved_smem_offset_";

/// Size of the memory behind each such name: CUDA reserves 1 KiB of each block's shared memory for
/// all of them.
const RESERVED_SHARED_BYTES: u32 = 1024;

/// An alignment that any vector accepts.
const RESERVED_SHARED_ALIGN: u32 = 16;

/// The part of an instruction before its operands.
struct InstructionHead<'a> {
    name: &'a str,
    words: Vec<&'a str>,
    position: TextPosition,
    guard: Option<Guard>,
    /// The opcode with its suffixes.
    mnemonic: Arc<str>,
}

impl<'a> Parser<'a> {
    /// Reads a label or an instruction.
    pub(super) fn statement(&mut self, draft: &mut FunctionDraft<'a>) -> Result<(), ParseError> {
        let start = self.cursor.position();
        let guard = if self.cursor.accept('@')? {
            if self.cursor.token() == Token::Sign('@') {
                return self.cursor.skip_line();
            }
            let negated = self.cursor.accept('!')?;
            let (name, position) = self.cursor.word("a predicate")?;
            let register = self.check(draft, &[], &Modifiers::default()).predicate(name, position);
            let register = register.map_err(|misfit| self.misfit(misfit, start, position, 0))?;
            Some(Guard { register, negated })
        } else {
            None
        };
        let (name, position) = self.cursor.word("an instruction")?;
        if guard.is_none() && self.cursor.accept(':')? {
            return self.label(name, position, draft);
        }
        let mut words = Vec::new();
        while let Token::Dotted(word) = self.cursor.token() {
            if words.len() >= SUFFIXES_MAX {
                return Err(self.cursor.error(ParseErrorKind::TooMany {
                    what: "suffixes",
                    limit: SUFFIXES_MAX as u64,
                }));
            }
            words.push(word);
            self.cursor.advance()?;
        }
        let head =
            InstructionHead { name, words, position, guard, mnemonic: self.mnemonic(position) };
        let forms = forms::of(name);
        if forms.is_empty() {
            return Err(
                position.error(ParseErrorKind::UnknownInstruction(self.cursor.quote(position)))
            );
        }
        let instruction = if name == "call" {
            self.call(&head, &forms[0], draft)?
        } else {
            let operands = raw::operands(&mut self.cursor)?;
            self.declare_reserved(&operands)?;
            self.instruction(&head, forms, &operands, draft)?
        };
        draft.body.push(Statement::Instruction(instruction));
        Ok(())
    }

    /// Declares `%reserved_smem_offset_1` and the like: shared memory that the driver reserves for
    /// the toolkit's own functions. Here each is an ordinary variable, which only kernels that name
    /// it have.
    fn declare_reserved(&mut self, operands: &[RawOperand<'a>]) -> Result<(), ParseError> {
        for raw in operands {
            let RawOperandKind::Name { name, .. } = raw.kind else { continue };
            let number =
                name.strip_prefix(RESERVED_SHARED).and_then(|number| number.parse::<u8>().ok());
            if number.is_none() || self.names.contains_key(name) {
                continue;
            }
            let id = SharedId(u32::try_from(self.shared.len()).unwrap_or(u32::MAX));
            self.declare(name, ModuleName::Shared(id), raw.position)?;
            let (size, align) = (RESERVED_SHARED_BYTES, RESERVED_SHARED_ALIGN);
            self.shared.push(SharedVariable {
                name: name.to_owned(),
                size,
                align,
                offset: 0,
                dynamic: false,
            });
        }
        Ok(())
    }

    fn check<'p>(
        &'p self,
        draft: &'p mut FunctionDraft<'a>,
        types: &'p [Type],
        modifiers: &'p Modifiers,
    ) -> OperandCheck<'p, 'a> {
        OperandCheck {
            names: &mut draft.names,
            module: &self.names,
            globals: &self.globals,
            shared: &self.shared,
            types,
            modifiers,
        }
    }

    /// Returns the opcode's text up to the next token, shared by all instructions with that opcode.
    fn mnemonic(&mut self, position: TextPosition) -> Arc<str> {
        let text = shorten(self.cursor.text_from(position));
        Arc::clone(self.mnemonics.entry(text).or_insert_with(|| Arc::from(text)))
    }

    fn misfit(
        &self,
        misfit: Misfit,
        start: TextPosition,
        position: TextPosition,
        number: usize,
    ) -> ParseError {
        match misfit {
            Misfit::Error(error) => error,
            Misfit::Problem(problem) => position.error(ParseErrorKind::Operand {
                number,
                text: self.cursor.quote(start),
                problem,
            }),
        }
    }

    /// Returns the instruction in the first form that fits, or the error of the first form that
    /// does not.
    fn instruction(
        &mut self,
        head: &InstructionHead<'a>,
        forms: &'static [Form],
        operands: &[RawOperand<'a>],
        draft: &mut FunctionDraft<'a>,
    ) -> Result<Instruction, ParseError> {
        let mut first_error = None;
        for form in forms {
            let Some(suffixes) = form
                .suffixes(&head.words)
                .filter(|suffixes| fits_together(form.row.opcode, suffixes))
            else {
                continue;
            };
            match self.operands(head, form, &suffixes, operands, draft) {
                Ok(converted) => {
                    if let Some(number) =
                        barrier(form.row.opcode, &converted).filter(|it| *it >= u64::from(BARRIERS))
                    {
                        return Err(head
                            .position
                            .error(ParseErrorKind::Number(number.to_string())));
                    }
                    let statement = draft.body.len();
                    for (index, (operand, raw)) in converted.iter().zip(operands).enumerate() {
                        if let (Operand::Label(_) | Operand::Targets(_), Ok(name)) =
                            (operand, label_name(raw))
                        {
                            draft.names.refer(statement, index, name, raw.position);
                        }
                    }
                    let written = form
                        .operands
                        .iter()
                        .filter(|operand| operand.written && !operand.second)
                        .count()
                        + operands.iter().filter(|operand| operand.second).count();
                    let symbol = converted.iter().find_map(|operand| match operand {
                        Operand::Address(Address { base: Base::Symbol(symbol), .. }) => {
                            Some(*symbol)
                        }
                        _ => None,
                    });
                    let space = symbol.and_then(|symbol| {
                        self.check(draft, &[], &suffixes.modifiers).space(symbol)
                    });
                    return Ok(
                        self.finish_instruction(head, form, suffixes, converted, written, space)
                    );
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| {
            let text = self.cursor.quote(head.position);
            head.position.error(ParseErrorKind::UnknownForm { opcode: head.name.to_owned(), text })
        }))
    }

    fn finish_instruction(
        &mut self,
        head: &InstructionHead<'a>,
        form: &Form,
        suffixes: Suffixes,
        mut operands: Vec<Operand>,
        written: usize,
        space: Option<Space>,
    ) -> Instruction {
        let Suffixes { mut modifiers, types } = suffixes;
        for operand in &operands {
            if let Operand::Symbol { symbol: Symbol::Function(id), .. } = operand {
                self.functions[id.index()].address_taken = true;
            }
        }
        if matches!(form.row.opcode, Opcode::Tex | Opcode::Tld4) {
            // Level and gradients belong to the address.
            let extra: Vec<Operand> = operands.drain(2..).collect();
            if let Some(Operand::Texture(texture)) = operands.get_mut(1) {
                texture.extra = extra;
            }
        }
        // If the suffixes name no space, the instruction uses the variable's space.
        if let (None, Some(space)) = (modifiers.space, space) {
            modifiers.space = Some(space);
        }
        Instruction {
            line: head.position.line,
            guard: head.guard,
            opcode: form.row.opcode,
            types,
            modifiers,
            operands,
            destinations: u8::try_from(written).unwrap_or(u8::MAX),
            call: None,
            mnemonic: Arc::clone(&head.mnemonic),
        }
    }

    fn operands(
        &self,
        head: &InstructionHead<'a>,
        form: &Form,
        suffixes: &Suffixes,
        operands: &[RawOperand<'a>],
        draft: &mut FunctionDraft<'a>,
    ) -> Result<Vec<Operand>, ParseError> {
        let wrong_count =
            || head.position.error(ParseErrorKind::OperandCount(self.cursor.quote(head.position)));
        let plain = |second: &bool| !*second;
        let given = operands.iter().map(|raw| raw.second).filter(plain).count();
        let required =
            form.operands.iter().filter(|operand| !operand.second && !operand.optional).count();
        // Optional operands are filled from the left.
        let mut optional_given = given.checked_sub(required).ok_or_else(wrong_count)?;
        let mut check = self.check(draft, &suffixes.types, &suffixes.modifiers);
        let mut raws = operands.iter().enumerate().peekable();
        let mut converted = Vec::with_capacity(operands.len());
        for form in &form.operands {
            let is_second_there = raws.peek().is_some_and(|(_, raw)| raw.second);
            if form.optional && !form.second {
                let Some(left) = optional_given.checked_sub(1) else { continue };
                optional_given = left;
            }
            if form.second && !is_second_there && form.optional {
                continue;
            }
            let Some((index, raw)) = raws.next().filter(|(_, raw)| raw.second == form.second)
            else {
                return Err(wrong_count());
            };
            let operand = check
                .operand(raw, form)
                .map_err(|misfit| self.misfit(misfit, head.position, raw.position, index + 1))?;
            converted.push(operand);
        }
        if raws.next().is_some() { Err(wrong_count()) } else { Ok(converted) }
    }

    /// Reads `call (results), function, (arguments), prototype;`. Most parts are optional.
    fn call(
        &mut self,
        head: &InstructionHead<'a>,
        form: &Form,
        draft: &mut FunctionDraft<'a>,
    ) -> Result<Instruction, ParseError> {
        let Some(suffixes) = form.suffixes(&head.words) else {
            let text = self.cursor.quote(head.position);
            return Err(head
                .position
                .error(ParseErrorKind::UnknownForm { opcode: head.name.to_owned(), text }));
        };
        let mut results = Vec::new();
        if self.cursor.accept('(')? {
            results = raw::arguments(&mut self.cursor)?;
            self.cursor.expect(',', "`,`")?;
        }
        let (name, position) = self.cursor.word("whom to call")?;
        let (mut arguments, mut label) = (Vec::new(), None);
        if self.cursor.accept(',')? {
            if self.cursor.accept('(')? {
                arguments = raw::arguments(&mut self.cursor)?;
                if self.cursor.accept(',')? {
                    label = Some(self.cursor.word("a label")?);
                }
            } else {
                label = Some(self.cursor.word("`(` or a label")?);
            }
        }
        self.cursor.expect(';', "`;`")?;
        let returns = self.arguments(head, &results, true, draft)?;
        let arguments = self.arguments(head, &arguments, false, draft)?;
        let target = self.call_target(head, name, position, label, draft)?;
        let Suffixes { modifiers, types } = suffixes;
        Ok(Instruction {
            line: head.position.line,
            guard: head.guard,
            opcode: Opcode::Call,
            types,
            modifiers,
            operands: Vec::new(),
            destinations: 0,
            call: Some(Box::new(Call { returns, target, arguments })),
            mnemonic: Arc::clone(&head.mnemonic),
        })
    }

    fn arguments(
        &self,
        head: &InstructionHead<'a>,
        raws: &[RawOperand<'a>],
        written: bool,
        draft: &mut FunctionDraft<'a>,
    ) -> Result<Vec<Operand>, ParseError> {
        let modifiers = Modifiers::default();
        let mut check = self.check(draft, &[], &modifiers);
        let convert = |(index, raw): (usize, &RawOperand<'a>)| {
            check
                .argument(raw, written)
                .map_err(|misfit| self.misfit(misfit, head.position, raw.position, index + 1))
        };
        raws.iter().enumerate().map(convert).collect()
    }

    fn call_target(
        &self,
        head: &InstructionHead<'a>,
        name: &'a str,
        position: TextPosition,
        label: Option<(&'a str, TextPosition)>,
        draft: &mut FunctionDraft<'a>,
    ) -> Result<CallTarget, ParseError> {
        let Some(Local::Register(register)) = draft.names.find(name, position)? else {
            draft.names.mentions.push(Mention { name, position, is_call: true });
            return self.known_function(name, position).map(CallTarget::Direct);
        };
        let found = &draft.names.registers[register.index()];
        if found.ty.bits() != 64 || found.ty.is_float() {
            let problem = OperandProblem::Type {
                name: name.to_owned(),
                found: found.ty.name(),
                needed: "b64",
            };
            return Err(self.misfit(Misfit::Problem(problem), head.position, position, 1));
        }
        let Some((label, position)) = label else {
            return Err(position.error(ParseErrorKind::WrongName {
                name: name.to_owned(),
                needed: "a function, and there is no prototype",
            }));
        };
        let wrong = || {
            position.error(ParseErrorKind::WrongName {
                name: label.to_owned(),
                needed: "a prototype or a list of functions",
            })
        };
        match draft.names.label(label) {
            Some(LabelKind::Prototype(signature)) => Ok(CallTarget::Indirect {
                register,
                signature: Arc::clone(signature),
                targets: None,
            }),
            Some(LabelKind::Calls(targets)) => {
                let first = targets
                    .first()
                    .and_then(|id| self.functions.get(id.index()))
                    .ok_or_else(wrong)?;
                let signature =
                    Signature { returns: first.returns.clone(), params: first.params.clone() };
                Ok(CallTarget::Indirect {
                    register,
                    signature: Arc::new(signature),
                    targets: Some(targets.clone()),
                })
            }
            _ => Err(wrong()),
        }
    }
}

/// Checks which suffixes exclude each other, which the table cannot express.
fn fits_together(opcode: Opcode, suffixes: &Suffixes) -> bool {
    let first = suffixes.types.first().copied().unwrap_or(Type::Pred);
    let last = suffixes.types.last().copied().unwrap_or(Type::Pred);
    let modifiers = &suffixes.modifiers;
    match opcode {
        Opcode::Setp | Opcode::Set => {
            modifiers.compare.is_none_or(|compare| can_compare(compare, last))
        }
        Opcode::Cvt => {
            // A conversion to a narrower float must name a rounding mode.
            let narrows = first.kind() == Kind::Float
                && last.kind() == Kind::Float
                && first.bits() < last.bits();
            let can_relu = first.is_float() && first.bits() != 64 && first != Type::F32;
            (!narrows || modifiers.rounding.is_some()) && (!modifiers.relu || can_relu)
        }
        Opcode::Ld | Opcode::Ldu | Opcode::St => {
            // Only global memory can be accessed in more than 16 bytes.
            let bits = first.bits() * u32::from(modifiers.vector.max(1));
            let most = if modifiers.space == Some(Space::Global) { 256 } else { 128 };
            bits <= most && has_semantics(opcode, modifiers)
        }
        Opcode::Atom | Opcode::Red | Opcode::Fence => has_semantics(opcode, modifiers),
        _ => true,
    }
}

/// Whether an instruction can have its `.acquire`, `.release` and the like, with its scope.
fn has_semantics(opcode: Opcode, modifiers: &Modifiers) -> bool {
    let Some(semantics) = modifiers.semantics else {
        // A weak access needs no scope. Atomics without a word are relaxed, fences `.acq_rel`.
        return match opcode {
            Opcode::Atom | Opcode::Red | Opcode::Fence => !modifiers.volatile,
            _ => modifiers.scope.is_none(),
        };
    };
    match opcode {
        Opcode::Ld => match semantics {
            Semantics::Weak => modifiers.scope.is_none(),
            other => matches!(other, Semantics::Relaxed | Semantics::Acquire | Semantics::Mmio),
        },
        Opcode::St => match semantics {
            Semantics::Weak => modifiers.scope.is_none(),
            other => matches!(other, Semantics::Relaxed | Semantics::Release | Semantics::Mmio),
        },
        Opcode::Atom => !matches!(semantics, Semantics::Weak | Semantics::Sc | Semantics::Mmio),
        Opcode::Red => matches!(semantics, Semantics::Relaxed | Semantics::Release),
        _ => matches!(
            semantics,
            Semantics::Sc | Semantics::AcqRel | Semantics::Acquire | Semantics::Release
        ),
    }
}

/// Returns the number of the barrier that an instruction names, if it is a constant.
fn barrier(opcode: Opcode, operands: &[Operand]) -> Option<u64> {
    let operand = match opcode {
        Opcode::BarSync | Opcode::BarArrive => operands.first(),
        Opcode::BarRed => operands.get(1),
        _ => None,
    };
    match operand {
        Some(Operand::Immediate(Immediate::Integer(number))) => Some(*number),
        _ => None,
    }
}

/// Whether a comparison is defined for a type.
fn can_compare(compare: Compare, ty: Type) -> bool {
    match compare {
        Compare::Eq | Compare::Ne => true,
        Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge => ty.kind() != Kind::Bits,
        Compare::Lo | Compare::Ls | Compare::Hi | Compare::Hs => ty.kind() == Kind::Unsigned,
        _ => ty.is_float(),
    }
}
