//! Calls of functions that the driver provides (`vprintf`, `__assertfail`, `malloc`, `free`), and
//! `trap`.

use super::control::Fault;
use super::ending::Failing;
use super::error::TranslateError;
use super::linear::{Sum, Term};
use super::writer::Writer;
use crate::ir::{
    Address, Base, Call, CallTarget, Immediate, Instruction, LOCAL_WINDOW, Opcode, Operand,
    Statement, Symbol, Type, VariableId,
};

/// Bytes of the arguments of one `printf` whose format is unknown: 32 arguments of 8 bytes, CUDA's
/// limit.
const PRINTF_BYTES_MAX: u32 = 256;

/// The table of the memory that kernels allocate.
const MALLOC_TABLE: &str = "(volatile __global uint *)AT(*(__global a_ulong *)(AT(control) + 168))";

/// Number of statements before a call that are searched for the store of an argument. Compilers put
/// the store right before the call.
const STORES_MAX: usize = 256;

impl Writer<'_> {
    pub(super) fn call(&mut self, what: &Instruction) -> Result<(), TranslateError> {
        if what.opcode == Opcode::Trap {
            self.fault(Fault::Trap, "0UL", what.line);
            return Ok(());
        }
        let Some(call) = what.call.as_deref() else {
            return Err(TranslateError::unsupported(what));
        };
        let CallTarget::Direct(id) = call.target else {
            return Err(TranslateError::unsupported(what));
        };
        let name = self.module.function(id).name.clone();
        match name.as_str() {
            "vprintf" => self.printf(what, call),
            "__assertfail" => {
                let message = self.argument(what, call, 0)?;
                self.fault(Fault::Assert, &message, what.line);
                Ok(())
            }
            "malloc" => self.malloc(what, call),
            "free" => self.free(what, call),
            _ => Err(TranslateError::External { function: name, line: what.line }),
        }
    }

    /// Records a fault and ends the thread. If other threads wait for it, the thread continues, see
    /// `ending.rs`.
    fn fault(&mut self, fault: Fault, address: &str, line: u32) {
        self.uses_faults = true;
        let code = fault as u64;
        self.line(&format!("ps_fault(AT(control), {code}u, {address}, {line}u);"));
        if self.is_machine || !self.has_meetings {
            self.leave();
        } else if self.failing == Failing::OwnFlag {
            self.line("dead = true;");
        }
    }

    /// Returns the 64-bit value that a call passes.
    fn argument(
        &mut self,
        what: &Instruction,
        call: &Call,
        index: usize,
    ) -> Result<String, TranslateError> {
        match call.arguments.get(index) {
            Some(Operand::Symbol { symbol: Symbol::Variable(id), .. }) => {
                Ok(format!("(*(a_ulong *)v{})", id.0))
            }
            Some(value @ (Operand::Register(_) | Operand::Immediate(_))) => {
                self.read(what, value, Type::U64)
            }
            other => Err(TranslateError::operand(what, other)),
        }
    }

    fn printf(&mut self, what: &Instruction, call: &Call) -> Result<(), TranslateError> {
        self.uses_printf = true;
        let (format, arguments) = (self.argument(what, call, 0)?, self.argument(what, call, 1)?);
        let known = self.format_of(call).map(|text| arguments_of(&text));
        let has_frame = self.function.frame_bytes > 0;
        self.line(&format!("{{ const ulong form = {format}, from = {arguments};"));
        match known {
            // The format may ask for more than the call passes: `printf("50% done")` passes
            // nothing.
            Some((bytes, _)) if has_frame => {
                let frame = self.frame_bytes();
                self.line(&format!("const uint bytes = from >> 56 == {:#x}UL ? min({bytes}u, {frame}u - min((uint)from, {frame}u)) : from == 0 ? 0u : {bytes}u;", LOCAL_WINDOW >> 56));
            }
            Some((bytes, _)) => {
                self.line(&format!("const uint bytes = from == 0 ? 0u : {bytes}u;"))
            }
            None if has_frame => {
                let frame = self.frame_bytes();
                self.line(&format!("const uint bytes = from >> 56 == {:#x}UL ? min({PRINTF_BYTES_MAX}u, {frame}u - min((uint)from, {frame}u)) : from == 0 ? 0u : {PRINTF_BYTES_MAX}u;", LOCAL_WINDOW >> 56));
            }
            None => self.line(&format!("const uint bytes = from == 0 ? 0u : {PRINTF_BYTES_MAX}u;")),
        }
        self.line("__global uchar *slot = ps_printf_slot(AT(control), AT(*(__global a_ulong *)(AT(control) + 128)), bytes, form);");
        let global = if self.options.check {
            self.uses_faults = true;
            format!("*ps_check(arena0, control, from + i, 1u, {}u)", what.line)
        } else {
            String::from("((__global const uchar *)AT(from))[i]")
        };
        let byte = if has_frame {
            self.uses_frame = true;
            format!("from >> 56 == {:#x}UL ? frame[(uint)from + i] : {global}", LOCAL_WINDOW >> 56)
        } else {
            global
        };
        self.line(&format!("if (slot) for (uint i = 0; i < bytes; i++) slot[i] = {byte};"));
        let count = known.map_or(0, |(_, count)| count);
        match call.returns.first() {
            Some(Operand::Symbol { symbol: Symbol::Variable(id), .. }) => {
                self.line(&format!("*(a_int *)v{} = slot ? {count} : -1;", id.0))
            }
            Some(register @ Operand::Register(_)) => {
                self.write(what, register, Type::S32, &format!("(slot ? {count} : -1)"))?
            }
            _ => {}
        }
        self.line("}");
        Ok(())
    }

    fn malloc(&mut self, what: &Instruction, call: &Call) -> Result<(), TranslateError> {
        let size = self.argument(what, call, 0)?;
        let block = format!("ps_malloc(AT(control), {MALLOC_TABLE}, {size})");
        match call.returns.first() {
            Some(Operand::Symbol { symbol: Symbol::Variable(id), .. }) => {
                self.line(&format!("*(a_ulong *)v{} = {block};", id.0));
                Ok(())
            }
            Some(register @ Operand::Register(_)) => self.write(what, register, Type::U64, &block),
            other => Err(TranslateError::operand(what, other)),
        }
    }

    fn free(&mut self, what: &Instruction, call: &Call) -> Result<(), TranslateError> {
        self.uses_faults = true;
        let address = self.argument(what, call, 0)?;
        self.line(&format!("ps_free(AT(control), {MALLOC_TABLE}, {address}, {}u);", what.line));
        Ok(())
    }

    /// Returns the text of the format, if the call's argument is the address of a variable.
    fn format_of(&self, call: &Call) -> Option<Vec<u8>> {
        let sum = match call.arguments.first()? {
            Operand::Symbol { symbol: Symbol::Variable(id), .. } => self.stored(*id)?,
            Operand::Register(id) => self.sums.register(*id, self.at),
            _ => return None,
        };
        let [(Term::Data, 1)] = sum.terms[..] else { return None };
        let bytes = self.module.data().bytes.get(usize::try_from(sum.constant).ok()?..)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(bytes[..end].to_vec())
    }

    /// Returns the value last stored into a `.param` variable before the call, in the same block.
    fn stored(&self, wanted: VariableId) -> Option<Sum> {
        let body = self.function.body.as_deref()?;
        let start = self.flow.blocks[self.flow.block_of[self.at]].start;
        for at in (start..self.at).rev().take(STORES_MAX) {
            let Statement::Instruction(store) = &body[at] else { continue };
            let Some(Operand::Address(Address {
                base: Base::Symbol(Symbol::Variable(id)),
                offset: 0,
            })) = store.operands.first()
            else {
                continue;
            };
            if *id == wanted && store.opcode == Opcode::St && store.guard.is_none() {
                return match store.operands.get(1)? {
                    Operand::Register(id) => Some(self.sums.register(*id, at)),
                    Operand::Immediate(Immediate::Integer(number)) => {
                        Some(Sum { constant: number.cast_signed(), ..Sum::default() })
                    }
                    _ => None,
                };
            }
        }
        None
    }
}

/// Returns the size in bytes and the number of the arguments that a format asks for, after C's
/// promotions: integers have 4 or 8 bytes, all other arguments have 8.
fn arguments_of(format: &[u8]) -> (u32, u32) {
    let (mut bytes, mut count) = (0_u32, 0);
    let mut letters = format.iter().copied().peekable();
    while let Some(letter) = letters.next() {
        if letter != b'%' {
            continue;
        }
        if letters.next_if_eq(&b'%').is_some() {
            continue;
        }
        let mut long = false;
        for letter in letters.by_ref() {
            let size = match letter {
                b'*' => 4,
                b'l' | b'j' | b'z' | b't' | b'q' => {
                    long = true;
                    continue;
                }
                b'-' | b'+' | b' ' | b'#' | b'.' | b'h' | b'L' | b'0'..=b'9' => continue,
                b'd' | b'i' | b'u' | b'o' | b'x' | b'X' | b'c' if !long => 4,
                _ => 8,
            };
            bytes = bytes.next_multiple_of(size) + size;
            count += 1;
            if letter != b'*' {
                break;
            }
        }
    }
    (bytes, count)
}

#[cfg(test)]
mod tests {
    use super::arguments_of;

    #[test]
    fn the_size_of_printf_arguments_follows_the_format() {
        assert_eq!(arguments_of(b"nothing"), (0, 0));
        assert_eq!(arguments_of(b"%d"), (4, 1));
        assert_eq!(arguments_of(b"100%% %d %f"), (16, 2));
        assert_eq!(arguments_of(b"%d %d %s"), (16, 3));
        assert_eq!(arguments_of(b"%lld%c"), (12, 2));
        assert_eq!(arguments_of(b"%-*.3f|"), (16, 2));
        assert_eq!(arguments_of(b"%08x %p"), (16, 2));
        assert_eq!(arguments_of(b"%Lf %qd"), (16, 2));
        assert_eq!(arguments_of(b"broken %"), (0, 0));
    }
}
