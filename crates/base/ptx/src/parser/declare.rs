//! Declarations of variables and parameters, and the layout of the module's variables.

use std::collections::HashMap;

use super::constant;
use super::cursor::Cursor;
use super::draft::{GlobalDraft, ModuleName, Parser};
use super::initial::{self, INITIAL_BYTES_MAX, Initial, InitialisedShape};
use super::recorder::Directive;
use super::scope::FunctionScope;
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{
    FUNCTION_WINDOW, Formal, FunctionId, Global, GlobalId, ModuleData, Opaque, Relocation, Space,
    Type, Variable,
};
use crate::layout::align_up;
use crate::lexer::{TextPosition, Token};
use crate::symbols::{Linkage, SymbolKind};

/// Largest alignment: the largest page size that programs ask for.
const ALIGN_MAX: u64 = 1 << 21;

/// Largest `.global` or `.const` variable and data block. No device has that much memory.
const GLOBAL_BYTES_MAX: u64 = 1 << 42;

/// Largest `.shared`, `.local` or `.param` variable. CUDA allows 227 KiB, 512 KiB and 32 KiB.
pub(super) const LOCAL_BYTES_MAX: u64 = 1 << 20;

/// Largest number of dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

/// The part of a declaration before the variable's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeclarationHead {
    pub(super) ty: Type,
    pub(super) lanes: u8,
    /// Whether it has `.attribute(.managed)`.
    is_managed: bool,
    align: Option<u64>,
}

/// A variable's name and size.
#[derive(Debug)]
pub(super) struct Declarator<'a> {
    pub(super) name: &'a str,
    pub(super) position: TextPosition,
    /// Size in bytes of an element of each dimension, outermost first.
    strides: Vec<u64>,
    /// Size in bytes; `None` for `x[]`.
    pub(super) size: Option<u64>,
}

/// A formal parameter or a return value, and where its name stands in the text.
pub(super) struct NamedFormal<'a> {
    pub(super) formal: Formal,
    pub(super) name: &'a str,
    pub(super) position: TextPosition,
}

impl DeclarationHead {
    /// Reads `.align 4 .v2 .u32`, and words that have no effect.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let (mut align, mut lanes, mut is_managed) = (None, 1, false);
        loop {
            let Token::Dotted(word) = cursor.token() else {
                return Err(cursor.unexpected("a type"));
            };
            match word {
                "align" => align = Some(read_align(cursor)?),
                "v2" | "v4" => {
                    cursor.advance()?;
                    lanes = if word == "v2" { 2 } else { 4 };
                }
                "attribute" => {
                    cursor.advance()?;
                    while !cursor.accept(')')? {
                        if matches!(cursor.token(), Token::End | Token::Sign(';')) {
                            return Err(cursor.unexpected("`)`"));
                        }
                        is_managed |= matches!(cursor.token(), Token::Dotted("managed"));
                        cursor.advance()?;
                    }
                }
                _ => {
                    let Some(ty) = Type::from_name(word) else {
                        return Err(cursor.unexpected("a type"));
                    };
                    cursor.advance()?;
                    return Ok(Self { ty, lanes, is_managed, align });
                }
            }
        }
    }

    /// Returns the size of one element in bytes.
    fn element(self) -> u64 {
        u64::from(self.ty.bytes()) * u64::from(self.lanes)
    }

    pub(super) fn alignment(self) -> u64 {
        self.align.unwrap_or(0).max(if self.align.is_some() { 1 } else { self.element() })
    }
}

fn read_align(cursor: &mut Cursor<'_>) -> Result<u64, ParseError> {
    cursor.advance()?;
    let position = cursor.position();
    let align = constant::integer(cursor)?;
    if !align.is_power_of_two() || align > ALIGN_MAX {
        return Err(position.error(ParseErrorKind::Alignment(align)));
    }
    Ok(align)
}

impl<'a> Declarator<'a> {
    /// Reads a name with its dimensions, such as `name[3][4]`.
    pub(super) fn read(
        cursor: &mut Cursor<'a>,
        head: DeclarationHead,
        bytes_max: u64,
    ) -> Result<Self, ParseError> {
        let (name, position) = cursor.word("the name of a variable")?;
        Self::read_dimensions(cursor, name, position, head, bytes_max)
    }

    fn read_dimensions(
        cursor: &mut Cursor<'a>,
        name: &'a str,
        position: TextPosition,
        head: DeclarationHead,
        bytes_max: u64,
    ) -> Result<Self, ParseError> {
        let mut counts = Vec::new();
        while cursor.accept('[')? {
            if counts.len() >= DIMENSIONS_MAX {
                return Err(cursor.error(ParseErrorKind::TooMany {
                    what: "dimensions",
                    limit: DIMENSIONS_MAX as u64,
                }));
            }
            if cursor.accept(']')? {
                counts.push(None);
            } else {
                counts.push(Some(constant::integer(cursor)?));
                cursor.expect(']', "`]`")?;
            }
        }
        let too_many = || {
            position
                .error(ParseErrorKind::TooMany { what: "bytes of a variable", limit: bytes_max })
        };
        let mut size = Some(head.element());
        let mut strides = Vec::new();
        for count in counts.iter().rev() {
            let stride = size.ok_or_else(too_many)?;
            strides.push(stride);
            size = match count {
                Some(count) => Some(
                    stride
                        .checked_mul(*count)
                        .filter(|size| *size <= bytes_max)
                        .ok_or_else(too_many)?,
                ),
                None => None,
            };
        }
        strides.reverse();
        Ok(Self { name, position, strides, size })
    }
}

impl<'a> Parser<'a> {
    /// Reads the declaration of `.global` or `.const` variables.
    pub(super) fn global(&mut self, directive: Directive) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        let is_const = self.cursor.advance()? == Token::Dotted("const");
        let head = DeclarationHead::read(&mut self.cursor)?;
        let head_at = start..self.cursor.end();
        loop {
            let declarator = Declarator::read(&mut self.cursor, head, GLOBAL_BYTES_MAX)?;
            let shape_end = self.cursor.end();
            let opaque = match head.ty {
                Type::Texref => Some(Opaque::Texture),
                Type::Samplerref => Some(Opaque::Sampler),
                Type::Surfref => Some(Opaque::Surface),
                _ => None,
            };
            let mut initial = Initial::default();
            let has_value = self.cursor.accept('=')?;
            if has_value {
                if opaque.is_some() {
                    // For example `.samplerref s = { filter_mode = linear };`. The parser skips
                    // these properties: the object behind the handle brings its own at run time.
                    self.skip_braces()?;
                } else {
                    let shape = InitialisedShape {
                        name: declarator.name,
                        ty: head.ty,
                        strides: &declarator.strides,
                        size: declarator.size,
                    };
                    initial = initial::read(&mut self.cursor, shape)?;
                }
            }
            let size = match declarator.size {
                Some(size) => size,
                None => initial.end,
            };
            let draft = GlobalDraft {
                name: declarator.name,
                size,
                align: head.alignment(),
                is_const,
                is_managed: head.is_managed,
                opaque,
                initial,
                external: directive.linkage == Linkage::Extern,
            };
            let space = if is_const { Space::Const } else { Space::Global };
            let kind = SymbolKind::Variable { space, size, is_managed: head.is_managed, has_value };
            let (name, shape) = (declarator.name, declarator.position.offset..shape_end);
            self.record_variable(directive, name, (head_at.clone(), shape), kind);
            self.record_value(&draft.initial);
            self.declare_global(draft, declarator.position)?;
            if !self.cursor.accept(',')? {
                return self.end_of_variables();
            }
        }
    }

    /// Declares a variable. A definition may follow an `.extern` declaration, which may leave its
    /// size open but must not contradict it.
    fn declare_global(
        &mut self,
        draft: GlobalDraft<'a>,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        if let Some(ModuleName::Global(id)) = self.names.get(draft.name).copied() {
            let known = &mut self.globals[id.index()];
            let is_twice = !known.external && !draft.external;
            let sizes = [known.size, draft.size];
            let is_other =
                known.is_const != draft.is_const || (sizes[0] != sizes[1] && !sizes.contains(&0));
            if is_twice || is_other {
                return Err(position.error(ParseErrorKind::Duplicate(draft.name.to_owned())));
            }
            if !draft.external || (known.external && known.size == 0) {
                *known = draft;
            }
            return Ok(());
        }
        let id = GlobalId(u32::try_from(self.globals.len()).unwrap_or(u32::MAX));
        self.declare(draft.name, ModuleName::Global(id), position)?;
        self.globals.push(draft);
        Ok(())
    }

    fn skip_braces(&mut self) -> Result<(), ParseError> {
        self.cursor.expect('{', "`{`")?;
        while !self.cursor.accept('}')? {
            if self.cursor.token() == Token::End {
                return Err(self.cursor.unexpected("`}`"));
            }
            self.cursor.advance()?;
        }
        Ok(())
    }

    /// Reads `.local` and `.param` variables of a function.
    pub(super) fn local_variable(
        &mut self,
        space: Space,
        names: &mut FunctionScope<'a>,
    ) -> Result<(), ParseError> {
        self.cursor.advance()?;
        let head = DeclarationHead::read(&mut self.cursor)?;
        loop {
            let declarator = Declarator::read(&mut self.cursor, head, LOCAL_BYTES_MAX)?;
            let variable = Variable {
                name: declarator.name.to_owned(),
                space,
                ty: head.ty,
                size: bytes(declarator.size.unwrap_or(0)),
                align: bytes(head.alignment()),
                offset: 0,
            };
            names.declare_variable(declarator.name, variable, declarator.position)?;
            if !self.cursor.accept(',')? {
                return self.cursor.expect(';', "`;`");
            }
        }
    }

    /// Reads a `.reg` declaration.
    pub(super) fn register(&mut self, names: &mut FunctionScope<'a>) -> Result<(), ParseError> {
        self.cursor.advance()?;
        let head = DeclarationHead::read(&mut self.cursor)?;
        loop {
            let (name, position) = self.cursor.word("the name of a register")?;
            if self.cursor.accept('<')? {
                let count = constant::integer(&mut self.cursor)?;
                self.cursor.expect('>', "`>`")?;
                names.declare_range(name, count, head.ty, head.lanes, position)?;
            } else {
                names.declare_register(name, head.ty, head.lanes, position)?;
            }
            if !self.cursor.accept(',')? {
                return self.cursor.expect(';', "`;`");
            }
        }
    }

    /// Reads `(.param .b32 a, .param .align 8 .b8 b[16])` after its opening parenthesis. Registers
    /// are declared in `names`, if that is given.
    pub(super) fn formals(
        &mut self,
        mut names: Option<&mut FunctionScope<'a>>,
    ) -> Result<Vec<NamedFormal<'a>>, ParseError> {
        let mut formals = Vec::new();
        let mut offset = 0u64;
        while !self.cursor.accept(')')? {
            let is_register = match self.cursor.advance()? {
                Token::Dotted("reg") => true,
                Token::Dotted("param") => false,
                _ => return Err(self.cursor.unexpected("`.param`")),
            };
            let head = DeclarationHead::read(&mut self.cursor)?;
            self.pointer_attributes()?;
            let declarator = Declarator::read(&mut self.cursor, head, LOCAL_BYTES_MAX)?;
            let register = match &mut names {
                Some(names) if is_register => Some(names.declare_register(
                    declarator.name,
                    head.ty,
                    head.lanes,
                    declarator.position,
                )?),
                _ => None,
            };
            let size = declarator.size.unwrap_or(0);
            offset = align_up(offset, head.alignment());
            let end = offset + size;
            if end > LOCAL_BYTES_MAX {
                return Err(declarator.position.error(ParseErrorKind::TooMany {
                    what: "bytes of parameters",
                    limit: LOCAL_BYTES_MAX,
                }));
            }
            let name =
                if declarator.name == "_" { String::new() } else { declarator.name.to_owned() };
            let is_array = !declarator.strides.is_empty();
            let (align, at) = (bytes(head.alignment()), bytes(offset));
            let formal = Formal {
                name,
                register,
                ty: head.ty,
                offset: at,
                size: bytes(size),
                align,
                is_array,
            };
            formals.push(NamedFormal {
                formal,
                name: declarator.name,
                position: declarator.position,
            });
            offset = end;
            if !self.cursor.accept(',')? && self.cursor.token() != Token::Sign(')') {
                return Err(self.cursor.unexpected("`,` or `)`"));
            }
        }
        Ok(formals)
    }

    /// Skips `.ptr .global .align 4`, which says what a parameter points to.
    fn pointer_attributes(&mut self) -> Result<(), ParseError> {
        if !self.cursor.accept_dotted("ptr")? {
            return Ok(());
        }
        loop {
            match self.cursor.token() {
                Token::Dotted("global" | "const" | "shared" | "local" | "generic") => {
                    _ = self.cursor.advance()?
                }
                Token::Dotted("align") => _ = read_align(&mut self.cursor)?,
                _ => return Ok(()),
            }
        }
    }
}

/// Converts a size below [`LOCAL_BYTES_MAX`] or an alignment below [`ALIGN_MAX`] to 32 bits.
pub(super) fn bytes(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Layout of the `.global` and `.const` variables.
pub(super) struct DataLayout {
    pub(super) globals: Vec<Global>,
    pub(super) block: ModuleData,
    /// Functions whose address is in an initial value.
    pub(super) functions_taken: Vec<FunctionId>,
}

/// Lays out the data block. Variables with initial values come first, so that few bytes must be
/// sent.
pub(super) fn data(
    drafts: &[GlobalDraft<'_>],
    names: &HashMap<&str, ModuleName>,
) -> Result<DataLayout, ParseError> {
    let mut order: Vec<usize> =
        (0..drafts.len()).filter(|index| !drafts[*index].external).collect();
    order.sort_by_key(|index| drafts[*index].initial.bytes.is_empty());
    let mut offsets = vec![0u64; drafts.len()];
    let mut block = ModuleData { size: 0, align: 8, bytes: Vec::new(), relocations: Vec::new() };
    let too_many =
        |what, limit| TextPosition::default().error(ParseErrorKind::TooMany { what, limit });
    for index in &order {
        let draft = &drafts[*index];
        let offset = align_up(block.size, draft.align);
        block.align = block.align.max(draft.align);
        block.size = offset.saturating_add(draft.size);
        if block.size > GLOBAL_BYTES_MAX {
            return Err(too_many("bytes of variables", GLOBAL_BYTES_MAX));
        }
        offsets[*index] = offset;
        if !draft.initial.bytes.is_empty() {
            if offset.saturating_add(draft.initial.bytes.len() as u64) > INITIAL_BYTES_MAX {
                return Err(too_many("bytes of initial values", INITIAL_BYTES_MAX));
            }
            block.bytes.resize(usize::try_from(offset).unwrap_or(0), 0);
            block.bytes.extend_from_slice(&draft.initial.bytes);
        }
    }
    let functions_taken = relocate(drafts, &offsets, names, &mut block)?;
    let global = |(draft, offset): (&GlobalDraft<'_>, &u64)| Global {
        name: if draft.external { String::new() } else { draft.name.to_owned() },
        offset: *offset,
        size: if draft.external { 0 } else { draft.size },
        is_const: draft.is_const,
        is_managed: draft.is_managed,
        opaque: draft.opaque,
    };
    let globals = drafts.iter().zip(&offsets).map(global).collect();
    Ok(DataLayout { globals, block, functions_taken })
}

/// Writes the addresses in initial values. Addresses of variables become relocations, those of
/// functions are written at once. Returns the functions whose address was written.
fn relocate(
    drafts: &[GlobalDraft<'_>],
    offsets: &[u64],
    names: &HashMap<&str, ModuleName>,
    block: &mut ModuleData,
) -> Result<Vec<FunctionId>, ParseError> {
    let mut functions_taken = Vec::new();
    for (draft, base) in drafts.iter().zip(offsets) {
        for pointer in &draft.initial.pointers {
            let offset = base + pointer.offset;
            match names.get(pointer.name) {
                Some(ModuleName::Global(id)) if !drafts[id.index()].external => {
                    let target = offsets[id.index()].cast_signed().wrapping_add(pointer.addend);
                    block.relocations.push(Relocation { offset, target, width: pointer.width });
                }
                Some(ModuleName::Function(id)) if pointer.width == 8 => {
                    let start = usize::try_from(offset).unwrap_or(0);
                    block.bytes[start..start + 8]
                        .copy_from_slice(&(FUNCTION_WINDOW + u64::from(id.0)).to_le_bytes());
                    functions_taken.push(*id);
                }
                Some(ModuleName::Global(_)) => {
                    return Err(pointer
                        .position
                        .error(ParseErrorKind::ExternalVariable(pointer.name.to_owned())));
                }
                Some(_) => {
                    let needed = "a variable of the module or a function";
                    return Err(pointer.position.error(ParseErrorKind::WrongName {
                        name: pointer.name.to_owned(),
                        needed,
                    }));
                }
                None => {
                    return Err(pointer
                        .position
                        .error(ParseErrorKind::UnknownName(pointer.name.to_owned())));
                }
            }
        }
    }
    Ok(functions_taken)
}
