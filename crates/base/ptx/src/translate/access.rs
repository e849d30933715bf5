//! The accesses to memory that the lanes of a warp share.

use super::address_form::{AddressForm, AddressForms};
use super::conditions::{BranchConditions, ThreadConditions};
use super::effects::{self, is_strong};
use super::flow::ControlFlow;
use super::roots::{self, SharedRoots};
use crate::ir::{Atomic, Function, Instruction, Modifiers, Opcode, Operand, Space, Statement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Load,
    Store,
    Atomic,
}

/// An access to memory that the lanes of a warp share.
pub(super) struct Access {
    pub at: usize,
    pub block: usize,
    pub kind: AccessKind,
    pub form: AddressForm,
    pub conditions: ThreadConditions,
    pub is_global: bool,
    /// Operation of an atomic.
    pub operation: Option<Atomic>,
}

/// Whether an access may be ordered by stops: it may be to shared memory, or is a strong access to
/// global memory.
pub(super) fn is_shared(modifiers: &Modifiers) -> bool {
    matches!(modifiers.space, Some(Space::Shared | Space::Generic) | None)
        || modifiers.space == Some(Space::Global) && is_strong(modifiers)
}

pub(super) fn kind(what: &Instruction) -> Option<AccessKind> {
    match what.opcode {
        Opcode::Ld | Opcode::Ldu => Some(AccessKind::Load),
        Opcode::St | Opcode::CpAsync => Some(AccessKind::Store),
        Opcode::Atom | Opcode::Red => Some(AccessKind::Atomic),
        _ => None,
    }
}

/// Largest number of bytes that a `cp.async` copies.
const COPY_BYTES: u32 = 16;

pub(super) fn accesses(
    function: &Function,
    flow: &ControlFlow,
    forms: &AddressForms<'_>,
    branches: &BranchConditions<'_>,
) -> Vec<Access> {
    let body = function.body.as_deref().unwrap_or_default();
    let roots = SharedRoots::of(function);
    let mut found = Vec::new();
    let mut of_block = (usize::MAX, ThreadConditions::default());
    for (at, statement) in body.iter().enumerate() {
        let Statement::Instruction(what) = statement else { continue };
        let (block, Some(kind)) = (flow.block_of[at], kind(what)) else { continue };
        let Some((address, bytes)) = effects::accessed(what).filter(|_| flow.reached[block]) else {
            continue;
        };
        let bytes = if what.opcode == Opcode::CpAsync { COPY_BYTES } else { bytes };
        let own = roots.operand(&Operand::Address(*address));
        let (is_global, variables) = match (what.modifiers.space, own) {
            (Some(Space::Shared), 0) => (false, roots::ANY),
            (Some(Space::Shared), own) => (false, own),
            (None | Some(Space::Generic), 0) if what.opcode != Opcode::CpAsync => {
                (false, roots.escaped)
            }
            (None | Some(Space::Generic), own) => (false, own),
            // Other blocks and the host also exchange values in global memory, but that does not
            // concern warps.
            (Some(Space::Global), _)
                if is_strong(&what.modifiers) && kind != AccessKind::Atomic =>
            {
                (true, roots::ANY)
            }
            (_, own) if what.opcode == Opcode::CpAsync => {
                (false, if own == 0 { roots::ANY } else { own })
            }
            _ => continue,
        };
        if variables == 0 {
            continue;
        }
        let form = forms.form(address, at, bytes, variables);
        if is_global && !form.differs_in_warp() {
            continue;
        }
        if of_block.0 != block {
            of_block = (block, branches.in_block(block));
        }
        let conditions = branches.with(what, at, &of_block.1);
        let operation = what.modifiers.atomic;
        found.push(Access { at, block, kind, form, conditions, is_global, operation });
    }
    found
}
