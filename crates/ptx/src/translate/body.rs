//! The body of a kernel: declarations, labels, and one statement after the other.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::ending::{self, Failing};
use super::flow::{Flow, Joins};
use super::linear::Sums;
use super::operand::register_type;
use super::uniform::Uniform;
use super::{Options, TranslateError};
use crate::ir::{
    Entry, Function, Instruction, Module, Opcode, Operand, RegisterId, Space, Statement, Type,
};

/// The text between the braces of a kernel, and what the text uses.
pub(super) struct Body {
    pub text: String,
    pub uses_printf: bool,
    pub uses_faults: bool,
    pub uses_barriers: bool,
    pub uses_dynamic_size: bool,
    pub is_machine: bool,
}

struct Line {
    /// If set, the line is only needed if the kernel uses this register's step.
    step: Option<RegisterId>,
    text: String,
}

pub(super) struct Writer<'a> {
    pub module: &'a Module,
    pub entry: &'a Entry,
    pub function: &'a Function,
    pub options: &'a Options,
    pub flow: &'a Flow,
    pub joins: &'a Joins,
    pub sums: &'a Sums<'a>,
    pub uniform: &'a Uniform,
    /// Index of the current statement.
    pub at: usize,
    pub is_machine: bool,
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
    /// Whether threads agree on loaded values.
    pub uses_agreement: bool,
    /// How a thread knows that it must not continue.
    pub failing: Failing,
    /// For each branch that closes a loop, the block behind the loop that failed threads go to.
    /// `left_to` is the set of these blocks.
    pub exits: HashMap<usize, usize>,
    pub left_to: HashSet<usize>,
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
    lines: Vec<Line>,
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

const fn keeps_bits(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Ld | Opcode::Ldu | Opcode::St | Opcode::Mov)
}

impl Body {
    pub(super) fn of(
        module: &Module,
        entry: &Entry,
        function: &Function,
        options: &Options,
    ) -> Result<Self, TranslateError> {
        let flow = Flow::of(function);
        let joins = Joins::of(function, &flow);
        let uniform = super::agree::uniform(function, &flow);
        let sums = Sums::of(module, entry, function, &flow, &uniform);
        let is_machine = super::machine::is_needed(function, &flow, &uniform);
        let has_meetings = super::machine::has_meetings(function);
        let failing = match has_meetings && !is_machine {
            _ if options.check => Failing::Any,
            true if ending::has_traps(module, function) => Failing::Own,
            _ => Failing::Never,
        };
        let exits = match has_meetings && !is_machine && failing != Failing::Never {
            true => ending::exits(function, &flow),
            false => HashMap::new(),
        };
        let left_to = exits.values().copied().collect();
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
            uses_agreement: false,
            has_param_window: super::param::has_window(function),
            failing,
            exits,
            left_to,
            has_meetings,
            next_state: 0,
            outcomes: Vec::new(),
            steps_used: vec![false; function.registers.len()],
            temporary: 0,
            lines: Vec::new(),
        };
        if writer.is_machine {
            writer.machine()?;
        } else {
            writer.plain()?;
        }
        Ok(writer.finish())
    }
}

impl Writer<'_> {
    pub(super) fn line(&mut self, text: &str) {
        self.lines.push(Line { step: None, text: text.to_owned() });
    }

    /// Writes labels and gotos in the order of the text.
    fn plain(&mut self) -> Result<(), TranslateError> {
        let body = self.function.body.as_deref().unwrap_or_default();
        for (index, statement) in body.iter().enumerate() {
            if !self.flow.reached[self.flow.block_of[index]] {
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

    /// Writes one instruction with its guard.
    pub(super) fn guarded(&mut self, instruction: &Instruction) -> Result<(), TranslateError> {
        let from = self.lines.len();
        if let Some(guard) = instruction.guard {
            let not = if guard.negated { "!" } else { "" };
            let name = self.name(guard.register);
            self.line(&format!("if ({not}{name}) {{"));
        }
        self.unless_failed(instruction)?;
        if self.uniform.agreed.contains(&self.at) {
            self.agree(instruction)?;
        }
        if instruction.guard.is_some() {
            self.line("}");
        } else if self.lines[from..].iter().any(|line| line.text.starts_with("const ")) {
            // The C variables belong to this statement only.
            self.lines.insert(from, Line { step: None, text: String::from("{") });
            self.line("}");
        }
        self.count_steps();
        Ok(())
    }

    /// Updates the steps that the current statement changes.
    fn count_steps(&mut self) {
        let sums = self.sums;
        for &id in sums.changed_steps(self.at) {
            let Some(step) = sums.step(id) else { continue };
            if step.first == self.at {
                self.lines.push(Line { step: Some(id), text: format!("q{} = 0;", id.0) });
            }
            let at = self.at;
            for (_, add) in step.adds.iter().filter(|(place, _)| *place == at) {
                let text = self.divided(add, step.unit);
                self.lines
                    .push(Line { step: Some(id), text: format!("q{} += (long)({text});", id.0) });
            }
        }
    }

    pub(super) fn step_unit(&self, id: RegisterId) -> i64 {
        self.sums.step(id).map_or(1, |step| step.unit)
    }

    fn finish(self) -> Body {
        let mut text = String::new();
        self.declare(&mut text);
        for line in &self.lines {
            if line.step.is_none_or(|id| self.steps_used[id.index()]) {
                text.push_str(&line.text);
                text.push('\n');
            }
        }
        Body {
            text,
            uses_printf: self.uses_printf,
            uses_faults: self.uses_faults,
            uses_barriers: self.uses_barriers,
            uses_dynamic_size: self.uses_dynamic_size,
            is_machine: self.is_machine,
        }
    }

    /// Returns the bytes of static shared memory.
    pub(super) fn shared_bytes(&self) -> u32 {
        self.entry.static_shared.max(16).next_multiple_of(16)
    }

    /// Returns the bytes of the thread's local memory.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.function.frame_bytes.max(16).next_multiple_of(16)
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
        } else if self.uses_exchange {
            super::warp::declare(self.threads_most(), self.uses_sums, text);
        }
        if self.uses_agreement {
            super::agree::declare(text);
        }
        if self.uses_lid || self.uses_exchange || self.is_machine {
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
        if self.failing == Failing::Own {
            text.push_str("bool dead = false;\n");
        }
        if self.uses_carry {
            text.push_str("uint carry = 0;\n");
        }
        if self.uses_sums && !self.is_machine {
            text.push_str("if (lid == 0) wr[0] = 0;\nbarrier(CLK_LOCAL_MEM_FENCE);\n");
        }
        for (index, register) in self.function.registers.iter().enumerate() {
            let ty = register_type(register.ty);
            match register.lanes {
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

    /// Writes one instruction, without its guard.
    pub(super) fn instruction(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        if !self.options.fp64 && self.is_double(what) {
            return Err(TranslateError::DoublePrecision {
                instruction: what.mnemonic.to_string(),
                line: what.line,
            });
        }
        match what.opcode {
            Opcode::Bra => {
                let [Operand::Label(label)] = what.operands[..] else {
                    return Err(TranslateError::operand(what, &what.operands));
                };
                self.leave_loop(what);
                let text = self.go(label);
                self.line(&text);
                Ok(())
            }
            Opcode::BrxIdx => self.switch(what),
            Opcode::Ret | Opcode::Exit => {
                self.leave();
                Ok(())
            }
            Opcode::Hint | Opcode::CpAsyncFence | Opcode::Brkpt => Ok(()),
            Opcode::Nanosleep => {
                let [duration] = &what.operands[..] else {
                    return Err(TranslateError::operand(what, &what.operands));
                };
                let duration = self.read(what, duration, Type::U32)?;
                self.line(&format!("ps_nanosleep({duration});"));
                Ok(())
            }
            Opcode::Ld
            | Opcode::Ldu
            | Opcode::St
            | Opcode::Cvta
            | Opcode::Isspacep
            | Opcode::CpAsync
            | Opcode::Mov
            | Opcode::Fence => self.memory(what),
            Opcode::Atom | Opcode::Red => self.atomic(what),
            Opcode::Cvt => self.convert(what),
            Opcode::Call | Opcode::Trap => self.call(what),
            Opcode::Tex | Opcode::Tld4 | Opcode::Txq | Opcode::Suld | Opcode::Sust => {
                self.texture(what)
            }
            Opcode::Shfl
            | Opcode::Vote
            | Opcode::Match
            | Opcode::Activemask
            | Opcode::Redux
            | Opcode::Elect
            | Opcode::BarSync
            | Opcode::BarRed
            | Opcode::BarArrive
            | Opcode::BarWarpSync => self.together(what),
            _ if what.types.iter().any(|ty| {
                matches!(ty.bits(), 16) && ty.is_float()
                    || matches!(ty.kind(), crate::ir::Kind::FloatPair)
            }) =>
            {
                self.half(what)
            }
            _ if what.types.iter().any(|ty| ty.is_float()) || what.opcode == Opcode::Testp => {
                self.float(what)
            }
            _ => self.integer(what),
        }
    }

    fn is_double(&self, what: &Instruction) -> bool {
        !keeps_bits(what.opcode) && what.types.contains(&Type::F64)
    }

    fn switch(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [index, Operand::Targets(labels)] = &what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        self.leave_loop(what);
        let index = self.read(what, index, Type::U32)?;
        self.line(&format!("switch ({index}) {{"));
        for (number, label) in labels.iter().enumerate() {
            // The last label is the default, because an index that is too large has no defined
            // meaning.
            let case = if number + 1 == labels.len() {
                String::from("default")
            } else {
                format!("case {number}")
            };
            let text = self.go(*label);
            self.line(&format!("{case}: {text}"));
        }
        self.line("}");
        Ok(())
    }
}
