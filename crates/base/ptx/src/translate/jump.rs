//! Jumps: branches, the end of a thread, and the way out of loops for threads that must not
//! continue.

use super::ending::Failing;
use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{Instruction, LabelId, Operand, Type};

impl Writer<'_> {
    pub(super) fn branch(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        let [Operand::Label(label)] = what.operands[..] else {
            return Err(TranslateError::operand(what, &what.operands));
        };
        self.leave_loop(what);
        let text = self.go(label);
        self.line(&text);
        Ok(())
    }

    pub(super) fn switch(&mut self, what: &Instruction) -> Result<(), TranslateError> {
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

    pub(super) fn leave(&mut self) {
        let text = self.leaving();
        self.line(&text);
    }

    pub(super) fn leaving(&self) -> String {
        String::from("goto END;")
    }

    /// Returns the C text of a jump to a label.
    fn go(&self, label: LabelId) -> String {
        if !self.is_machine {
            return format!("goto L{};", label.0);
        }
        let position = self.function.labels[label.index()].position as usize;
        let to = self.flow.block_of[position];
        match to > self.flow.block_of[self.at] {
            true => format!("goto S{to};"),
            false => format!("{{ pc = {to}; continue; }}"),
        }
    }

    /// Before a branch that closes a loop, makes a thread leave the loop if the thread must not
    /// continue.
    fn leave_loop(&mut self, branch: &Instruction) {
        let test = match self.failing {
            Failing::Never => return,
            Failing::OwnFlag => "dead",
            Failing::AnyFault => "*(volatile __global const uint *)AT(control) != 0u",
        };
        let goes = if self.has_meetings && !self.is_machine {
            match self.exits.get(&self.at) {
                Some(exit) if *exit == self.flow.exit() => String::from("goto END;"),
                Some(exit) => format!("goto X{exit};"),
                None => return,
            }
        } else {
            let position = |label: &LabelId| self.function.labels[label.index()].position as usize;
            let goes_back = branch.operands.iter().any(|operand| match operand {
                Operand::Label(label) => position(label) <= self.at,
                Operand::Targets(labels) => labels.iter().any(|label| position(label) <= self.at),
                _ => false,
            });
            if !goes_back {
                return;
            }
            self.leaving()
        };
        self.line(&format!("if ({test}) {{ {goes} }}"));
    }
}
