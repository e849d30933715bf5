//! The registers of a state machine that live from one state to another. If there are many, they
//! are elements of arrays. All other registers are variables.
//!
//! As variables, all of them would meet where the machine chooses its next state. PoCL (3.1) makes
//! memory of such a variable, and asks of each whether it has the same value in all threads. For
//! each it copies what it knows about the whole kernel, and it forgets the answers about others on
//! the way to a `no`. CUB's selection has 430 such registers in 513 states: 32 s to compile with
//! variables and 10 s with arrays. PoCL answers `no` at once about an array. But a kernel with
//! arrays runs about half as fast.
//!
//! A register also counts if it only lives from a state to one that the thread jumps forward to.
//! Without those, the selection has 359 registers in arrays, and compiles in the same time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::c_type::register_type;
use super::effects::{self, is_meeting};
use super::flow::ControlFlow;
use crate::ir::{Function, RegisterId, Statement};

/// Number of registers that live from one state to another from which on they are elements of
/// arrays. The time to compile variables grows with the cube of their number, and was about three
/// seconds here before machines jumped forward by `goto`.
const ARRAYS_MIN: usize = 256;

/// Where a register lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// No statement names it yet.
    Unused,
    /// Only one state names it, and writes it before it reads it. The state is a block, behind this
    /// number of meetings of the kernel.
    State { block: usize, meetings: usize },
    /// States leave values in it for others.
    Kept,
}

/// The registers that are elements of arrays.
#[derive(Debug, Default)]
pub(super) struct KeptRegisters {
    /// Index in the array of the register's type, by register. Empty if the kernel has no array.
    index: Vec<Option<usize>>,
    /// Length of the array of each C type.
    lengths: BTreeMap<&'static str, usize>,
}

impl KeptRegisters {
    /// Finds the registers of a state machine that are needed behind the state that writes them.
    /// Returns none if they are few.
    pub(super) fn of(function: &Function, flow: &ControlFlow) -> Self {
        let mut kept = Self::default();
        let places = places(function, flow);
        if places.iter().filter(|place| **place == Place::Kept).count() < ARRAYS_MIN {
            return kept;
        }
        for (register, place) in function.registers.iter().zip(places) {
            let index = (place == Place::Kept && register.lanes == 1).then(|| {
                let length = kept.lengths.entry(register_type(register.ty)).or_default();
                *length += 1;
                *length - 1
            });
            kept.index.push(index);
        }
        kept
    }

    pub(super) fn has(&self, id: RegisterId) -> bool {
        self.index.get(id.index()).is_some_and(Option::is_some)
    }

    /// Returns the C object of a register of this C type: an element or a variable.
    pub(super) fn object(&self, id: RegisterId, ty: &str) -> String {
        match self.index.get(id.index()) {
            Some(Some(index)) => format!("kept_{ty}[{index}]"),
            _ => format!("r{}", id.0),
        }
    }

    /// Declares the arrays.
    pub(super) fn declare(&self, text: &mut String) {
        for (ty, length) in &self.lengths {
            let _ = writeln!(text, "{ty} kept_{ty}[{length}];");
        }
    }

    /// Returns a statement that does nothing, if there are arrays. A compiler cannot know this,
    /// because it does not know that no control block has the address 1. As the statement names
    /// elements that the compiler does not know either, the compiler cannot turn the elements into
    /// variables.
    pub(super) fn hold(&self) -> Option<String> {
        if self.lengths.is_empty() {
            return None;
        }
        let mut text = String::from("if (control == 1UL) {");
        for (ty, length) in &self.lengths {
            let _ = write!(
                text,
                " for (uint i = 0; i < {length}u; i++) kept_{ty}[(i * 7u + lid) % {length}u] = 0;"
            );
        }
        text.push_str(" }");
        Some(text)
    }
}

/// Finds the place of each register.
fn places(function: &Function, flow: &ControlFlow) -> Vec<Place> {
    let mut places = vec![Place::Unused; function.registers.len()];
    let mut meetings = 0;
    for (index, statement) in function.body.iter().flatten().enumerate() {
        let block = flow.block_of[index];
        let Statement::Instruction(what) = statement else { continue };
        if !flow.reached[block] {
            continue;
        }
        let own = Place::State { block, meetings };
        let is_met = is_meeting(what.opcode);
        effects::read(what, &mut |id| {
            let place = &mut places[id.index()];
            // The round behind a meeting reads its operands, too.
            if *place != own || is_met {
                *place = Place::Kept;
            }
        });
        meetings += usize::from(is_met);
        let own = Place::State { block, meetings };
        effects::written(what, &mut |id| {
            let place = &mut places[id.index()];
            let is_first = *place == Place::Unused && what.guard.is_none();
            *place = if is_first || *place == own { own } else { Place::Kept };
        });
    }
    places
}
