//! What a linker needs of a module's text: the names that it declares, and where it has them.
//!
//! All places are offsets into the text in bytes.

use std::ops::Range;

use crate::ir::{Formal, Space};

/// The linking directive of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Linkage {
    Extern,
    /// Without a directive: only the module itself sees the name.
    Local,
    Common,
    Weak,
    Visible,
}

#[derive(Debug)]
pub(crate) struct Symbols {
    pub(crate) head: Head,
    pub(crate) list: Vec<Symbol>,
    /// Sorted by their offset. Declarations are no uses.
    pub(crate) uses: Vec<Use>,
    /// Places of the directives with debug information.
    pub(crate) debug: Vec<Range<usize>>,
}

/// `.version`, `.target` and `.address_size`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) version: (u32, u32),
    /// Number of the target, and how few devices take its code: `sm_90` 0, `sm_100f` 1, `sm_90a` 2.
    pub(crate) target: (u32, u8),
    /// Place of the version's number.
    pub(crate) version_at: Range<usize>,
    /// Place of the word with the number. It is empty, before the first word, if there is none.
    pub(crate) target_at: Range<usize>,
    /// Places of the whole directives.
    pub(crate) directives: Vec<Range<usize>>,
}

/// A name, with all its declarations in one module.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: Range<usize>,
    pub(crate) declarations: Vec<Declaration>,
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) linkage: Linkage,
    pub(crate) kind: SymbolKind,
    pub(crate) is_definition: bool,
    /// Offset of the name.
    pub(crate) name_at: usize,
    /// The statement, from its linking directive to its end.
    pub(crate) whole: Range<usize>,
    /// Of a function, all before its body but the linking directive. Of a variable, the part of
    /// the statement between the linking directive and the first name.
    pub(crate) head: Range<usize>,
    /// Of a variable, its name and dimensions.
    pub(crate) shape: Range<usize>,
    /// Of a variable, its name, dimensions and initial value.
    pub(crate) item: Range<usize>,
    /// Number of names that the statement declares before this one, and of all of them.
    pub(crate) place: (usize, usize),
    /// End of the name before it in the statement, and start of the name behind it.
    pub(crate) previous: usize,
    pub(crate) next: usize,
    /// The `.alias` statement that makes it a definition.
    pub(crate) alias: Option<Range<usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function {
        is_entry: bool,
        returns: Vec<FormalShape>,
        params: Vec<FormalShape>,
    },
    Variable {
        space: Space,
        /// Size in bytes; 0 if the declaration does not say it.
        size: u64,
        is_managed: bool,
        has_value: bool,
    },
}

/// What must agree in two declarations of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormalShape {
    size: u32,
    is_array: bool,
    is_float: bool,
}

impl FormalShape {
    pub(crate) fn of(formal: &Formal) -> Self {
        let Formal { size, is_array, ty, .. } = formal;
        Self { size: *size, is_array: *is_array, is_float: ty.is_float() }
    }
}

/// A place where the text uses a name of the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) offset: usize,
    /// Index of the symbol.
    pub(crate) symbol: usize,
    /// Index of the function that contains the use. `None` in an initial value.
    pub(crate) by: Option<usize>,
    /// Whether the use is a call, and not the address of a function or variable.
    pub(crate) is_call: bool,
}

impl Symbol {
    /// Returns the declaration that defines the name, or the first if none does.
    pub(crate) fn main(&self) -> Option<&Declaration> {
        self.declarations.iter().find(|it| it.is_definition).or(self.declarations.first())
    }

    /// Returns the linkage of the name. A name without a definition is external, and an external
    /// one that an `.alias` statement defines is visible.
    pub(crate) fn linkage(&self) -> Linkage {
        if self.declarations.iter().any(|declaration| declaration.is_definition) {
            let linkage = self.declarations.iter().map(|it| it.linkage).max();
            linkage.filter(|it| *it != Linkage::Extern).unwrap_or(Linkage::Visible)
        } else {
            Linkage::Extern
        }
    }
}
