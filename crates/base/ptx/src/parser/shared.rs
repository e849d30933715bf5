//! Declarations of `.shared` variables.

use super::declare::{DeclarationHead, Declarator, LOCAL_BYTES_MAX, bytes};
use super::draft::{ModuleName, Parser};
use super::recorder::Directive;
use super::scope::FunctionScope;
use crate::error::{ParseError, ParseErrorKind};
use crate::ir::{SharedId, SharedVariable, Space};
use crate::lexer::TextPosition;
use crate::symbols::{Linkage, SymbolKind};

impl<'a> Parser<'a> {
    /// Reads `.shared` variables of the module, or of the function whose names are passed.
    pub(super) fn shared_variable(
        &mut self,
        directive: Directive,
        mut names: Option<&mut FunctionScope<'a>>,
    ) -> Result<(), ParseError> {
        let start = self.cursor.position().offset;
        self.cursor.advance()?;
        let head = DeclarationHead::read(&mut self.cursor)?;
        let head_at = start..self.cursor.end();
        let external = directive.linkage == Linkage::Extern;
        loop {
            let declarator = Declarator::read(&mut self.cursor, head, LOCAL_BYTES_MAX)?;
            let (name, position) = (declarator.name, declarator.position);
            let size = declarator.size.unwrap_or(0);
            let variable = SharedVariable {
                name: name.to_owned(),
                size: bytes(size),
                align: bytes(head.alignment()),
                offset: 0,
                dynamic: external && size == 0,
            };
            match &mut names {
                // The block's own variables cannot be those of another module.
                Some(_) if external && !variable.dynamic => {
                    return Err(position.error(ParseErrorKind::ExternalVariable(name.to_owned())));
                }
                Some(names) => {
                    names.declare_shared(name, self.next_shared(), position)?;
                    self.shared.push(variable);
                }
                None => {
                    let (space, is_managed, has_value) = (Space::Shared, false, false);
                    let kind = SymbolKind::Variable { space, size, is_managed, has_value };
                    let shape = position.offset..self.cursor.end();
                    self.record_variable(directive, name, (head_at.clone(), shape), kind);
                    self.declare_shared(variable, external, name, position)?;
                }
            }
            if !self.cursor.accept(',')? {
                return match names {
                    Some(_) => self.cursor.expect(';', "`;`"),
                    None => self.end_of_variables(),
                };
            }
        }
    }

    fn next_shared(&self) -> SharedId {
        SharedId(u32::try_from(self.shared.len()).unwrap_or(u32::MAX))
    }

    /// Declares a `.shared` variable of the module. A definition may follow `.extern` declarations,
    /// which may repeat: "Extern declaration of symbol may appear multiple times and references to
    /// that get resolved against the single definition of that symbol."
    fn declare_shared(
        &mut self,
        variable: SharedVariable,
        external: bool,
        name: &'a str,
        position: TextPosition,
    ) -> Result<(), ParseError> {
        let is_awaited = external && !variable.dynamic;
        let Some(ModuleName::Shared(id)) = self.names.get(name).copied() else {
            let id = self.next_shared();
            self.declare(name, ModuleName::Shared(id), position)?;
            self.shared.push(variable);
            if is_awaited {
                self.awaited_shared.insert(id);
            }
            return Ok(());
        };
        let known = &mut self.shared[id.index()];
        let sizes = [known.size, variable.size];
        if sizes[0] != sizes[1] && !sizes.contains(&0) {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        if external {
            known.align = known.align.max(variable.align);
        } else if known.dynamic || self.awaited_shared.remove(&id) {
            *known = variable;
        } else {
            return Err(position.error(ParseErrorKind::Duplicate(name.to_owned())));
        }
        Ok(())
    }
}
