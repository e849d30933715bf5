//! The text of a kernel while the translation writes it, and what the text needs so far.

use std::collections::{HashMap, HashSet};

use super::c_type::register_type;
use super::ending::Failing;
use super::flow::{ControlFlow, LiveJoins};
use super::kept::KeptRegisters;
use super::linear::LinearSums;
use super::options::Options;
use super::turns::SharedExits;
use super::uniform::Uniformity;
use super::vote_rows::VoteRows;
use crate::ir::{BLOCK_THREADS_MAX, Entry, Function, Module, RegisterId};

/// A line of the text of a kernel.
pub(super) struct TextLine {
    /// If set, the line is only needed if the kernel uses this register's step.
    pub step: Option<RegisterId>,
    pub text: String,
}

/// The kernel that is being translated, what the analyses know about it, and its text so far.
pub(super) struct Writer<'a> {
    pub module: &'a Module,
    pub entry: &'a Entry,
    pub function: &'a Function,
    pub options: &'a Options,
    pub flow: &'a ControlFlow,
    pub joins: &'a LiveJoins,
    pub sums: &'a LinearSums<'a>,
    pub uniform: &'a Uniformity,
    /// Index of the current statement.
    pub at: usize,
    pub is_machine: bool,
    /// The registers that are no variables.
    pub kept: KeptRegisters,
    pub uses_lid: bool,
    pub uses_shared: bool,
    pub uses_frame: bool,
    pub uses_carry: bool,
    pub uses_dynamic_size: bool,
    pub uses_printf: bool,
    pub uses_faults: bool,
    pub uses_barriers: bool,
    pub uses_exchange: bool,
    /// Whether the kernel counts predicates of a block.
    pub uses_sums: bool,
    pub votes: VoteRows,
    /// Whether threads agree on loaded values.
    pub uses_agreement: bool,
    /// How a thread knows that it must not continue.
    pub failing: Failing,
    /// For each branch that closes a loop, the block behind the loop that failed threads go to.
    /// `left_to` is the set of these blocks.
    pub exits: HashMap<usize, usize>,
    pub left_to: HashSet<usize>,
    /// The branches out of loops with barriers, which all threads take behind a fault.
    pub shared_exits: SharedExits,
    /// Whether generic addresses may refer to parameters.
    pub has_param_window: bool,
    /// Whether the kernel has any meeting.
    pub has_meetings: bool,
    /// The next free state of the machine.
    pub next_state: u32,
    /// Outcome of each meeting of a warp, by the state behind the meeting.
    pub outcomes: Vec<(u32, String)>,
    pub steps_used: Vec<bool>,
    /// Next number for C variables of single statements.
    pub temporary: u32,
    pub lines: Vec<TextLine>,
}

impl Writer<'_> {
    pub(super) fn line(&mut self, text: &str) {
        self.lines.push(TextLine { step: None, text: text.to_owned() });
    }

    /// Returns the C object of a register.
    pub(super) fn name(&self, id: RegisterId) -> String {
        self.kept.object(id, register_type(self.function.registers[id.index()].ty))
    }

    pub(super) fn step_unit(&self, id: RegisterId) -> i64 {
        self.sums.step(id).map_or(1, |step| step.unit)
    }

    /// Returns the bytes of static shared memory.
    pub(super) fn shared_bytes(&self) -> u32 {
        self.entry.static_shared.max(16).next_multiple_of(16)
    }

    /// Returns the bytes of the thread's local memory.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.function.frame_bytes.max(16).next_multiple_of(16)
    }

    /// Returns the number of threads of the largest block that can be launched.
    pub(super) fn threads_most(&self) -> u32 {
        let required = self
            .entry
            .required
            .map(|sizes| sizes.iter().fold(1, |all: u32, size| all.saturating_mul(*size)));
        required
            .or(self.entry.max_threads)
            .unwrap_or(BLOCK_THREADS_MAX)
            .clamp(1, BLOCK_THREADS_MAX)
            .next_multiple_of(32)
    }
}
