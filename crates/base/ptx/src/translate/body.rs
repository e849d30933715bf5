//! The body of a kernel: declarations, labels, and one statement after the other.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::c_type::register_type;
use super::effects::keeps_bits;
use super::ending::{self, Failing};
use super::error::TranslateError;
use super::flow::{ControlFlow, LiveJoins};
use super::kept::KeptRegisters;
use super::linear::LinearSums;
use super::options::Options;
use super::turns::SharedExits;
use super::uniform::Uniformity;
use super::vote_rows::VoteRows;
use super::writer::Writer;
use super::{agree, broadcast, convergence, effects};
use crate::ir::{Entry, Function, Module, RegisterId, Space, Statement, Type};

/// The text between the braces of a kernel, and what the text uses.
pub(super) struct KernelBody {
    pub text: String,
    pub uses_printf: bool,
    pub uses_faults: bool,
    pub uses_barriers: bool,
    pub uses_dynamic_size: bool,
    pub is_machine: bool,
}

/// Replaces doubles by their bits on a device without double precision. The bits can be loaded,
/// stored and moved.
pub(super) fn doubles_as_bits(function: &mut Function) {
    for register in function.registers.iter_mut().filter(|register| register.ty == Type::F64) {
        register.ty = Type::B64;
    }
    for statement in function.body.iter_mut().flatten() {
        let Statement::Instruction(what) = statement else { continue };
        if keeps_bits(what.opcode) {
            what.types.iter_mut().filter(|ty| **ty == Type::F64).for_each(|ty| *ty = Type::B64);
        }
    }
}

/// Returns the ways out of loops without barriers and of those with barriers.
fn ways_out(
    function: &Function,
    flow: &ControlFlow,
    uniform: &Uniformity,
    failing: Failing,
) -> (HashMap<usize, usize>, SharedExits) {
    let alone = || ending::loop_exits(function, flow, uniform);
    match failing {
        Failing::Never => Default::default(),
        Failing::OwnFlag => (alone(), SharedExits::default()),
        Failing::AnyFault => (alone(), SharedExits::of(function, flow, uniform)),
    }
}

impl KernelBody {
    pub(super) fn of(
        module: &Module,
        entry: &Entry,
        function: &Function,
        options: &Options,
        stays_open: bool,
    ) -> Result<Self, TranslateError> {
        let flow = ControlFlow::of(function);
        let joins = LiveJoins::of(function, &flow);
        let uniform = match stays_open {
            true => agree::uniform_apart(function, &flow),
            false => agree::uniform_with_agreement(function, &flow),
        };
        let sums = LinearSums::of(module, entry, function, &flow, &uniform);
        let is_machine = stays_open || convergence::needs_machine(function, &flow, &uniform);
        // An agreement contains a barrier, and in a machine not all threads reach it.
        debug_assert!(!is_machine || uniform.agreed.is_empty(), "a machine with agreements");
        let has_meetings = effects::has_meetings(function);
        let failing = match has_meetings && !is_machine {
            _ if options.check => Failing::AnyFault,
            true if function.may_fail => Failing::OwnFlag,
            _ => Failing::Never,
        };
        let (exits, shared_exits) = match has_meetings && !is_machine {
            true => ways_out(function, &flow, &uniform, failing),
            false => Default::default(),
        };
        let mut writer = Writer {
            module,
            entry,
            function,
            options,
            flow: &flow,
            joins: &joins,
            sums: &sums,
            uniform: &uniform,
            at: 0,
            is_machine,
            kept: KeptRegisters::default(),
            uses_lid: false,
            uses_shared: false,
            uses_frame: false,
            uses_carry: false,
            uses_dynamic_size: false,
            uses_printf: false,
            uses_faults: false,
            uses_barriers: false,
            uses_exchange: false,
            uses_sums: false,
            votes: VoteRows::of(function.body.as_deref().unwrap_or_default()),
            uses_agreement: false,
            has_param_window: super::param::has_window(function),
            failing,
            left_to: exits.values().copied().collect(),
            exits,
            shared_exits,
            has_meetings,
            next_state: 0,
            outcomes: Vec::new(),
            steps_used: vec![false; function.registers.len()],
            temporary: 0,
            lines: Vec::new(),
        };
        if writer.is_machine {
            writer.write_machine()?;
        } else {
            writer.write_plain()?;
        }
        Ok(writer.finish())
    }
}

impl Writer<'_> {
    /// Writes labels and gotos in the order of the text.
    fn write_plain(&mut self) -> Result<(), TranslateError> {
        let body = self.function.body.as_deref().unwrap_or_default();
        for (index, statement) in body.iter().enumerate() {
            if !self.flow.reached[self.flow.block_of[index]] || index < self.votes.written_to {
                continue;
            }
            self.at = index;
            let block = self.flow.block_of[index];
            if self.left_to.contains(&block) && self.flow.blocks[block].start == index {
                self.line(&format!("X{block}:;"));
            }
            match statement {
                Statement::Label(label) => self.line(&format!("L{}:;", label.0)),
                Statement::Instruction(instruction) => self.guarded(instruction)?,
            }
        }
        self.line("END:;");
        Ok(())
    }

    fn finish(self) -> KernelBody {
        let mut text = String::new();
        self.declare(&mut text);
        for line in &self.lines {
            if line.step.is_none_or(|id| self.steps_used[id.index()]) {
                text.push_str(&line.text);
                text.push('\n');
            }
        }
        KernelBody {
            text,
            uses_printf: self.uses_printf,
            uses_faults: self.uses_faults,
            uses_barriers: self.uses_barriers,
            uses_dynamic_size: self.uses_dynamic_size,
            is_machine: self.is_machine,
        }
    }

    fn declare(&self, text: &mut String) {
        if self.uses_shared && self.entry.uses_dynamic_shared {
            text.push_str("__local uchar *const sh = (__local uchar *)dynamic;\n");
        } else if self.uses_shared {
            let _ = writeln!(
                text,
                "__local uchar sh[{}] __attribute__((aligned(128)));",
                self.shared_bytes()
            );
        }
        if self.is_machine {
            super::machine::declare(self.function, self.threads_most(), text);
        } else {
            self.declare_exchange(text);
        }
        self.declare_votes(text);
        if self.uses_agreement {
            broadcast::declare(text);
        }
        let uses_sums = self.uses_sums || self.votes.are_used;
        if self.uses_lid || self.uses_exchange || uses_sums || self.is_machine {
            text.push_str("const uint lid = (uint)get_local_id(0) + (uint)get_local_size(0) * ((uint)get_local_id(1) + (uint)get_local_size(1) * (uint)get_local_id(2));\n");
            text.push_str(
                "const uint threads = (uint)(get_local_size(0) * get_local_size(1) * get_local_size(2));\n",
            );
        }
        if self.uses_frame {
            let _ =
                writeln!(text, "uchar frame[{}] __attribute__((aligned(16)));", self.frame_bytes());
        }
        if self.has_meetings && !self.is_machine {
            text.push_str("int zero = 0;\n");
        }
        self.declare_failure(text);
        if self.failing == Failing::OwnFlag {
            text.push_str("bool dead = false;\n");
        }
        if self.uses_carry {
            text.push_str("uint carry = 0;\n");
        }
        self.clear_sums(text);
        self.kept.declare(text);
        for (index, (id, register)) in
            (0..).map(RegisterId).zip(&self.function.registers).enumerate()
        {
            let ty = register_type(register.ty);
            match register.lanes {
                1 if self.kept.has(id) => {}
                1 => {
                    let _ = writeln!(text, "{ty} r{index};");
                }
                lanes => {
                    for lane in 0..lanes {
                        let _ = writeln!(text, "{ty} r{index}_{lane};");
                    }
                }
            }
            if self.steps_used[index] {
                let _ = writeln!(text, "long q{index} = 0;");
            }
        }
        for (index, variable) in self.function.variables.iter().enumerate() {
            if variable.space == Space::Param {
                let _ = writeln!(text, "ulong2 v{index}[{}];", variable.size.div_ceil(16).max(1));
            }
        }
    }
}
