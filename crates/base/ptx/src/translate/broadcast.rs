//! Loads whose value every thread of a block takes from the first thread; `agree` finds them.

use super::error::TranslateError;
use super::writer::Writer;
use crate::ir::{Instruction, Operand, Type};

/// Largest number of values of one load: the elements of the longest vector.
const VALUES_MAX: usize = 8;

impl Writer<'_> {
    /// Gives every thread the values that the first thread loaded. Two halves of the memory
    /// alternate, so that one barrier is enough.
    pub(super) fn broadcast(&mut self, load: &Instruction) -> Result<(), TranslateError> {
        let destinations = &load.operands[..usize::from(load.destinations)];
        let mut values = Vec::new();
        for operand in destinations {
            match operand {
                Operand::Vector(parts) => values.extend(parts),
                other => values.push(other),
            }
        }
        values.retain(|operand| **operand != Operand::Sink);
        self.uses_agreement = true;
        self.uses_lid = true;
        self.line("if (lid == 0) {");
        for (index, operand) in values.iter().enumerate() {
            let value = self.read(load, operand, Type::U64)?;
            self.line(&format!("wa[both + {index}u] = {value};"));
        }
        self.line("}");
        self.barrier();
        for (index, operand) in values.iter().enumerate() {
            self.write(load, operand, Type::U64, &format!("wa[both + {index}u]"))?;
        }
        self.line(&format!("both ^= {VALUES_MAX}u;"));
        Ok(())
    }
}

/// Declares the memory for the first thread's values, and the index of the half in use.
pub(super) fn declare(text: &mut String) {
    text.push_str(&format!("__local ulong wa[{}];\nuint both = 0;\n", 2 * VALUES_MAX));
}
