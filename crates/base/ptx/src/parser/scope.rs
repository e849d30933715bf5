//! Names inside a function: registers, variables and labels of nested blocks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{
    FunctionId, Label, LabelId, Operand, Register, RegisterId, SharedId, Signature, Statement,
    Symbol, Type, Variable, VariableId,
};
use crate::lexer::TextPosition;

/// Largest number of used registers of a function. Compilers stay below 100,000; a table of this
/// size takes some 40 MiB.
const REGISTERS_MAX: usize = 1 << 20;

/// Deepest nesting of blocks. Compilers use two or three.
const BLOCKS_MAX: usize = 64;

/// Meaning of a name inside a function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Local {
    Register(RegisterId),
    /// A variable with an address.
    Symbol(Symbol),
}

#[derive(Debug, Clone)]
pub(super) enum LabelKind<'a> {
    /// A position in the body.
    Position(LabelId),
    /// The list of targets of a `brx.idx`.
    Branches(Vec<(&'a str, TextPosition)>),
    /// The list of targets of an indirect call.
    Calls(Vec<FunctionId>),
    /// The signature of an indirect call.
    Prototype(Arc<Signature>),
}

/// A block `{ ... }`, with its names.
#[derive(Debug, Default)]
struct Block<'a> {
    parent: Option<usize>,
    names: HashMap<&'a str, Local>,
    /// `%r<10>` declares the names `%r0` to `%r9`.
    ranges: HashMap<&'a str, NameRange>,
    labels: HashMap<&'a str, LabelKind<'a>>,
}

/// Registers that are declared together, with numbered names.
#[derive(Clone, Copy, Debug)]
struct NameRange {
    /// Number of registers.
    count: u64,
    ty: Type,
    lanes: u8,
}

/// A use of a name of the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mention<'a> {
    pub(crate) name: &'a str,
    pub(crate) position: TextPosition,
    pub(crate) is_call: bool,
}

/// A use of a label, to be resolved at the end of the function.
#[derive(Debug)]
struct Reference<'a> {
    statement: usize,
    operand: usize,
    block: usize,
    name: &'a str,
    position: TextPosition,
}

/// The names of a function while the parser reads it.
#[derive(Debug)]
pub(crate) struct FunctionScope<'a> {
    blocks: Vec<Block<'a>>,
    /// Index of the open block. `depth` is its nesting depth.
    current: usize,
    depth: usize,
    references: Vec<Reference<'a>>,
    /// Uses of names of the module, which may repeat.
    pub(crate) mentions: Vec<Mention<'a>>,
    /// Words of skipped statements that are names of the module, unless they are labels.
    pub(super) skipped: Vec<Mention<'a>>,
    pub(crate) registers: Vec<Register>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) labels: Vec<Label>,
}

impl<'a> FunctionScope<'a> {
    pub(super) fn new() -> Self {
        Self {
            blocks: vec![Block::default()],
            current: 0,
            depth: 0,
            references: Vec::new(),
            mentions: Vec::new(),
            skipped: Vec::new(),
            registers: Vec::new(),
            variables: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Opens a nested block.
    pub(super) fn open(&mut self, position: TextPosition) -> Result<(), ParseError> {
        if self.depth >= BLOCKS_MAX {
            return Err(position.error(ParseErrorKind::TooMany {
                what: "nested blocks",
                limit: BLOCKS_MAX as u64,
            }));
        }
        self.depth += 1;
        self.blocks.push(Block { parent: Some(self.current), ..Block::default() });
        self.current = self.blocks.len() - 1;
        Ok(())
    }

    /// Closes the open block. Returns false if it is the function's own block.
    pub(super) fn close(&mut self) -> bool {
        match self.blocks[self.current].parent {
            Some(parent) => {
                self.current = parent;
                self.depth -= 1;
                true
            }
            None => false,
        }
    }

    fn declare(
        &mut self,
        name: &'a str,
        local: Local,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        if self.blocks[self.current].names.insert(name, local).is_some() {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        Ok(())
    }

    fn add_register(
        &mut self,
        register: Register,
        position: TextPosition,
    ) -> Result<RegisterId, ParseError> {
        match u32::try_from(self.registers.len()) {
            Ok(number) if self.registers.len() < REGISTERS_MAX => {
                self.registers.push(register);
                Ok(RegisterId(number))
            }
            _ => Err(position.error(ParseErrorKind::TooMany {
                what: "registers in a function",
                limit: REGISTERS_MAX as u64,
            })),
        }
    }

    /// Declares a register: `.reg .ty name;`
    pub(super) fn declare_register(
        &mut self,
        name: &'a str,
        ty: Type,
        lanes: u8,
        position: TextPosition,
    ) -> Result<RegisterId, ParseError> {
        let id = self.add_register(Register { name: name.to_owned(), ty, lanes }, position)?;
        self.declare(name, Local::Register(id), position)?;
        Ok(id)
    }

    /// Declares a range of registers: `.reg .ty name<count>;`
    pub(super) fn declare_range(
        &mut self,
        name: &'a str,
        count: u64,
        ty: Type,
        lanes: u8,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        if self.blocks[self.current].ranges.insert(name, NameRange { count, ty, lanes }).is_some() {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        Ok(())
    }

    /// Declares a `.local` or `.param` variable.
    pub(super) fn declare_variable(
        &mut self,
        name: &'a str,
        variable: Variable,
        position: TextPosition,
    ) -> Result<VariableId, ParseError> {
        let id = VariableId(u32::try_from(self.variables.len()).unwrap_or(u32::MAX));
        self.variables.push(variable);
        self.declare(name, Local::Symbol(Symbol::Variable(id)), position)?;
        Ok(id)
    }

    /// Declares a `.shared` variable of the function.
    pub(super) fn declare_shared(
        &mut self,
        name: &'a str,
        id: SharedId,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        self.declare(name, Local::Symbol(Symbol::Shared(id)), position)
    }

    /// Declares a parameter or return value.
    pub(super) fn declare_symbol(
        &mut self,
        name: &'a str,
        symbol: Symbol,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        self.declare(name, Local::Symbol(symbol), position)
    }

    /// Looks a name up, from the innermost block outwards.
    pub(crate) fn find(
        &mut self,
        name: &'a str,
        position: TextPosition,
    ) -> Result<Option<Local>, ParseError> {
        let mut block = Some(self.current);
        while let Some(index) = block {
            if let Some(local) = self.blocks[index].names.get(name) {
                return Ok(Some(*local));
            }
            if let Some((ty, lanes)) = self.blocks[index].in_range(name) {
                let id =
                    self.add_register(Register { name: name.to_owned(), ty, lanes }, position)?;
                self.blocks[index].names.insert(name, Local::Register(id));
                return Ok(Some(Local::Register(id)));
            }
            block = self.blocks[index].parent;
        }
        Ok(None)
    }

    /// Declares `name:` before the statement with index `statement`.
    pub(super) fn declare_label(
        &mut self,
        name: &'a str,
        statement: usize,
        position: TextPosition,
    ) -> Result<LabelId, ParseError> {
        let id = LabelId(u32::try_from(self.labels.len()).unwrap_or(u32::MAX));
        self.labels.push(Label {
            name: name.to_owned(),
            position: u32::try_from(statement).unwrap_or(u32::MAX),
        });
        self.declare_label_kind(name, LabelKind::Position(id), position)?;
        Ok(id)
    }

    /// Declares `name: .branchtargets ...;` and the like.
    pub(super) fn declare_label_kind(
        &mut self,
        name: &'a str,
        kind: LabelKind<'a>,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        if self.blocks[self.current].labels.insert(name, kind).is_some() {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        Ok(())
    }

    /// Records that an operand of a statement is a label, which may be declared later in the text.
    pub(super) fn refer(
        &mut self,
        statement: usize,
        operand: usize,
        name: &'a str,
        position: TextPosition,
    ) {
        self.references.push(Reference { statement, operand, block: self.current, name, position });
    }

    /// Returns the meaning of a label, seen from the open block.
    pub(super) fn label(&self, name: &str) -> Option<&LabelKind<'a>> {
        self.label_from(self.current, name)
    }

    fn label_from(&self, block: usize, name: &str) -> Option<&LabelKind<'a>> {
        let mut block = Some(block);
        while let Some(index) = block {
            if let Some(kind) = self.blocks[index].labels.get(name) {
                return Some(kind);
            }
            block = self.blocks[index].parent;
        }
        None
    }

    /// Returns the uses of names of the module, when all labels are known.
    pub(super) fn take_mentions(&mut self) -> Vec<Mention<'a>> {
        let mut mentions = std::mem::take(&mut self.mentions);
        let skipped = std::mem::take(&mut self.skipped);
        if !skipped.is_empty() {
            let labels: HashSet<&str> =
                self.blocks.iter().flat_map(|block| block.labels.keys().copied()).collect();
            mentions.extend(skipped.into_iter().filter(|it| !labels.contains(it.name)));
        }
        mentions
    }

    /// Replaces the placeholders in operands by their labels.
    pub(super) fn resolve(&self, body: &mut [Statement]) -> Result<(), ParseError> {
        for reference in &self.references {
            let resolved = match self.label_from(reference.block, reference.name) {
                Some(LabelKind::Position(id)) => Operand::Label(*id),
                Some(LabelKind::Branches(names)) => {
                    Operand::Targets(self.targets(reference.block, names)?)
                }
                Some(_) => return Err(wrong_label(reference.name, reference.position)),
                None => {
                    return Err(reference
                        .position
                        .error(ParseErrorKind::UnknownName(reference.name.to_owned())));
                }
            };
            let Some(Statement::Instruction(instruction)) = body.get_mut(reference.statement)
            else {
                continue;
            };
            let Some(operand) = instruction.operands.get_mut(reference.operand) else { continue };
            if std::mem::discriminant(operand) != std::mem::discriminant(&resolved) {
                return Err(wrong_label(reference.name, reference.position));
            }
            *operand = resolved;
        }
        Ok(())
    }

    fn targets(
        &self,
        block: usize,
        names: &[(&'a str, TextPosition)],
    ) -> Result<Vec<LabelId>, ParseError> {
        let target = |(name, position): &(&'a str, TextPosition)| match self.label_from(block, name)
        {
            Some(LabelKind::Position(id)) => Ok(*id),
            Some(_) => Err(wrong_label(name, *position)),
            None => Err(position.error(ParseErrorKind::UnknownName((*name).to_owned()))),
        };
        names.iter().map(target).collect()
    }
}

impl Block<'_> {
    /// Returns the type of `name` if it is the prefix of a range `%r<count>` and a number below the
    /// count.
    fn in_range(&self, name: &str) -> Option<(Type, u8)> {
        if self.ranges.is_empty() {
            return None;
        }
        // `%rd12` may be number 12 of `%rd` or number 2 of `%rd1`.
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        (1..=digits).find_map(|count| {
            let (prefix, number) = name.split_at(name.len() - count);
            let range = self.ranges.get(prefix)?;
            let is_plain = number == "0" || !number.starts_with('0');
            let number = number.parse::<u64>().ok()?;
            (is_plain && number < range.count).then_some((range.ty, range.lanes))
        })
    }
}

fn wrong_label(name: &str, position: TextPosition) -> ParseError {
    position
        .error(ParseErrorKind::WrongName { name: name.to_owned(), needed: "a label of this kind" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_a_range_are_made_when_they_are_used() {
        let mut names = FunctionScope::new();
        let position = TextPosition::default();
        names.declare_range("%r", 13, Type::B32, 1, position).expect("the first");
        names.declare_range("%r1", 3, Type::F32, 1, position).expect("another prefix");
        let mut kind = |name| match names.find(name, position).expect("few registers") {
            Some(Local::Register(id)) => Some(names.registers[id.index()].ty),
            _ => None,
        };
        assert_eq!(kind("%r0"), Some(Type::B32));
        assert_eq!(kind("%r12"), Some(Type::F32), "number 2 of %r1");
        assert_eq!(kind("%r13"), None);
        assert_eq!(kind("%r00"), None);
        assert_eq!(kind("%r"), None);
        assert_eq!(names.registers.len(), 2);
    }

    #[test]
    fn a_block_hides_names_until_it_closes() {
        let mut names = FunctionScope::new();
        let position = TextPosition::default();
        let outer = names.declare_register("%a", Type::B32, 1, position).expect("new");
        names.open(position).expect("not deep");
        let inner = names.declare_register("%a", Type::F64, 1, position).expect("another block");
        assert_eq!(names.find("%a", position), Ok(Some(Local::Register(inner))));
        assert!(names.close());
        assert_eq!(names.find("%a", position), Ok(Some(Local::Register(outer))));
        assert!(!names.close(), "the function's own block");
        assert!(names.declare_register("%a", Type::B32, 1, position).is_err());
    }
}
