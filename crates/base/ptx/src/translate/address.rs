//! Translation of addresses to C pointers.

use std::fmt::Write as _;

use super::control::Fault;
use super::error::TranslateError;
use super::linear::{Sum, Term};
use super::lvalue::{AccessType, Lvalue, is_in};
use super::writer::Writer;
use crate::ir::{
    Address, Base, FUNCTION_WINDOW, Instruction, LOCAL_WINDOW, Opcode, PARAM_WINDOW, SHARED_WINDOW,
    Space, Symbol,
};

/// Returns the lower half of a number, sign-extended.
const fn low_half(number: i64) -> i64 {
    number << 32 >> 32
}

/// Length of shared memory that appears in types: more bytes than any block has.
const SHARED_LENGTH: u32 = 1 << 20;

impl Writer<'_> {
    /// Returns the object at an address.
    pub(super) fn lvalue(
        &mut self,
        what: &Instruction,
        address: &Address,
        space: Space,
        access: AccessType<'_>,
    ) -> Result<Lvalue, TranslateError> {
        match address.base {
            Base::Symbol(symbol @ (Symbol::Param(_) | Symbol::Return(_))) => {
                return self.parameter(what, symbol, address.offset, access);
            }
            Base::Symbol(Symbol::Variable(id))
                if self.function.variables[id.index()].space == Space::Param =>
            {
                let bytes = address.offset;
                // The memory is a multiple of 16 bytes.
                let most = i64::from(self.function.variables[id.index()].size.next_multiple_of(16));
                if bytes < 0 || bytes.saturating_add(i64::from(access.bytes)) > most {
                    return Err(TranslateError::operand(what, address));
                }
                return Ok(Lvalue::Known(format!(
                    "(*({} *)((uchar *)v{} + {bytes}))",
                    access.ty, id.0
                )));
            }
            _ => {}
        }
        let (sum, narrow) = self.address_sum(what, address)?;
        let space = match (space, address.base) {
            (Space::Generic, Base::Symbol(Symbol::Shared(_))) => Space::Shared,
            (Space::Generic, Base::Symbol(Symbol::Variable(_))) => Space::Local,
            (Space::Generic, Base::Symbol(_)) => Space::Global,
            (space, _) => space,
        };
        match space {
            Space::Global | Space::Const => {
                Ok(Lvalue::Known(self.in_global(&sum, access, what.line)))
            }
            Space::Shared => Ok(Lvalue::Known(self.in_shared(&sum, narrow, access, what.line))),
            Space::Local => Ok(Lvalue::Known(self.in_local(&sum, access, what.line))),
            Space::Param => {
                let text = self.bytes_of(&sum);
                Ok(Lvalue::Known(self.parameter_at(&text, access, what.line)))
            }
            Space::Generic => self.generic(what, address, access),
        }
    }

    /// Returns an address in brackets as a sum, and whether the address has 32 bits.
    pub(super) fn address_sum(
        &self,
        what: &Instruction,
        address: &Address,
    ) -> Result<(Sum, bool), TranslateError> {
        let (mut sum, narrow) = match address.base {
            Base::Register(id) => {
                let register = &self.function.registers[id.index()];
                if register.ty.is_float()
                    || register.lanes != 1
                    || !matches!(register.ty.bits(), 32 | 64)
                {
                    return Err(TranslateError::operand(what, address));
                }
                (self.sums.register(id, self.at), register.ty.bits() == 32)
            }
            Base::Symbol(symbol) => {
                let sum = self
                    .sums
                    .symbol(symbol, 0)
                    .ok_or_else(|| TranslateError::operand(what, address))?;
                (sum, !matches!(symbol, Symbol::Global(_)))
            }
            Base::Absolute => (Sum::default(), false),
        };
        sum.constant = sum.constant.wrapping_add(address.offset);
        Ok((sum, narrow))
    }

    /// Returns a sum as a device address in C.
    pub(super) fn bytes_of(&mut self, sum: &Sum) -> String {
        let mut text = String::new();
        for (term, factor) in &sum.terms {
            self.append(&mut text, *term, *factor, 64);
        }
        if sum.constant != 0 || text.is_empty() {
            let plus = if text.is_empty() { "" } else { " + " };
            let _ = write!(text, "{plus}{:#x}UL", sum.constant.cast_unsigned());
        }
        text
    }

    /// Returns a sum divided by `unit`. All factors must be multiples of `unit`.
    pub(super) fn divided(&mut self, sum: &Sum, unit: i64) -> String {
        let terms = sum.terms.iter().map(|(term, factor)| (*term, factor / unit)).collect();
        self.bytes_of(&Sum { constant: sum.constant / unit, terms })
    }

    /// Appends one term times its factor to the text of a sum.
    fn append(&mut self, text: &mut String, term: Term, factor: i64, bits: u32) {
        // 32-bit sums are offsets in shared memory. They are signed in C, where signed sums do not
        // overflow, so the compiler may factor constants out.
        let unsigned = if bits == 32 { "int" } else { "ulong" };
        let value = match term {
            Term::Register(id)
                if bits == 64 && self.function.registers[id.index()].ty.bits() == 64 =>
            {
                self.name(id)
            }
            Term::Register(id) | Term::Unsigned(id) => format!("({unsigned}){}", self.name(id)),
            Term::Signed(id) => format!("({unsigned})(long)(int){}", self.name(id)),
            Term::Data => String::from("module_data"),
            Term::Special(special) => format!("({unsigned}){}", self.special(special).0),
            Term::Step(id) => {
                self.steps_used[id.index()] = true;
                format!("({unsigned})q{}", id.0)
            }
        };
        let unit = match term {
            Term::Step(id) => self.step_unit(id),
            _ => 1,
        };
        let factor = factor.wrapping_mul(unit);
        let plus = if text.is_empty() { "" } else { " + " };
        if factor == 1 {
            let _ = write!(text, "{plus}{value}");
        } else if bits == 32 {
            let _ = write!(text, "{plus}{value} * {}", low_half(factor));
        } else {
            let _ = write!(text, "{plus}{value} * {:#x}UL", factor.cast_unsigned());
        }
    }

    fn factor_of(&self, term: Term, factor: i64) -> i64 {
        if let Term::Step(id) = term { factor.wrapping_mul(self.step_unit(id)) } else { factor }
    }

    /// Returns an object in an arena: `((type *)(uniform part))[varying part]`, if the size divides
    /// the varying part.
    fn in_global(&mut self, sum: &Sum, access: AccessType<'_>, line: u32) -> String {
        if self.options.check {
            self.uses_faults = true;
            let address = self.bytes_of(sum);
            let checked =
                format!("ps_check(arena0, control, {address}, {}u, {line}u)", access.bytes);
            let place = self.unless_in_heap(&address, checked);
            return format!("(*(__global {} *){place})", access.ty);
        }
        if sum.terms.is_empty() && !self.is_in_arena(sum.constant, access.bytes) {
            // No memory can be there. As a rule the address is null, on a path that the program
            // does not take.
            self.uses_faults = true;
            let address = sum.constant.cast_unsigned();
            return format!(
                "(*(__global {} *)ps_nowhere(AT(control), {address:#x}UL, {line}u))",
                access.ty
            );
        }
        let size = i64::from(access.bytes);
        let (uniform, varying): (Vec<_>, Vec<_>) =
            sum.terms.iter().partition(|(term, _)| self.sums.is_uniform(*term));
        let even = varying.iter().all(|(term, factor)| self.factor_of(*term, *factor) % size == 0);
        // A base that is not uniform is still a base, if the size divides all other terms.
        let fits = |(term, factor): &(Term, i64)| self.factor_of(*term, *factor) % size == 0;
        let (index, mut base): (Vec<_>, Vec<_>) =
            if even { (varying, uniform) } else { varying.into_iter().partition(fits) };
        if !even {
            base.extend(sum.terms.iter().filter(|(term, _)| self.sums.is_uniform(*term)));
        }
        let whole = sum.constant % size == 0;
        if index.is_empty() || self.options.arenas.len() > 1 || self.options.heap {
            return format!("(*(__global {} *)AT({}))", access.ty, self.bytes_of(sum));
        }
        let constant = if whole { 0 } else { sum.constant };
        let base = self.bytes_of(&Sum { constant, terms: base });
        let mut text = String::new();
        for (term, factor) in index {
            let unit = if let Term::Step(id) = term { self.step_unit(id) } else { 1 };
            // The term is multiplied by the unit again.
            match factor % size == 0 {
                true => self.append(&mut text, term, factor / size, 64),
                false => self.append_scaled(&mut text, term, factor.wrapping_mul(unit) / size),
            }
        }
        if whole && sum.constant != 0 {
            let _ = write!(text, " + {:#x}UL", (sum.constant / size).cast_unsigned());
        }
        format!("((__global {} *)AT({base}))[(long)({text})]", access.ty)
    }

    /// Returns the place of an address: `checked`, unless the address lies in the heap.
    pub(super) fn unless_in_heap(&self, address: &str, checked: String) -> String {
        if self.options.heap {
            format!("(IN_HEAP({address}) ? AT({address}) : {checked})")
        } else {
            checked
        }
    }

    fn is_in_arena(&self, address: i64, bytes: u32) -> bool {
        let address = address.cast_unsigned();
        self.options.arenas.iter().any(|(base, size)| {
            address
                .checked_sub(*base)
                .is_some_and(|offset| offset.saturating_add(u64::from(bytes)) <= *size)
        })
    }

    /// Appends a step whose factor already includes the unit.
    fn append_scaled(&mut self, text: &mut String, term: Term, factor: i64) {
        let Term::Step(id) = term else { return self.append(text, term, factor, 64) };
        self.steps_used[id.index()] = true;
        let plus = if text.is_empty() { "" } else { " + " };
        let _ = write!(text, "{plus}(ulong)q{} * {:#x}UL", id.0, factor.cast_unsigned());
    }

    /// Returns an object in shared memory: `((type *)sh)[index]` if the size divides all terms.
    fn in_shared(&mut self, sum: &Sum, narrow: bool, access: AccessType<'_>, line: u32) -> String {
        self.uses_shared = true;
        let size = i64::from(access.bytes);
        let bits = if narrow { 32 } else { 64 };
        let even =
            sum.constant % size == 0 && sum.terms.iter().all(|(_, factor)| factor % size == 0);
        let divisor = if even { size } else { 1 };
        let mut text = String::new();
        let varies = sum.terms.iter().any(|(term, _)| !self.sums.is_uniform(*term));
        if varies && even && self.has_meetings && !self.is_machine && !self.options.check {
            text.push_str("zero");
        }
        for (term, factor) in &sum.terms {
            self.append(&mut text, *term, factor / divisor, bits);
        }
        let constant = sum.constant / divisor;
        if constant != 0 || text.is_empty() {
            let plus = if text.is_empty() { "" } else { " + " };
            let _ = match bits {
                32 => write!(text, "{plus}{}", low_half(constant)),
                _ => write!(text, "{plus}{:#x}UL", constant.cast_unsigned()),
            };
        }
        if self.options.check {
            let scale = if divisor == 1 { String::new() } else { format!(" * {divisor}u") };
            let offset = self.bounded_shared(&format!("(uint)({text}){scale}"), access, line);
            return format!("(*(__local {} *)(sh + {offset}))", access.ty);
        }
        if even {
            // Intel's compiler only recognises neighbouring accesses through a pointer to an array.
            // The length has no meaning.
            format!(
                "(*(__local {} (*)[{}])sh)[(int)({text})]",
                access.ty,
                SHARED_LENGTH / access.bytes
            )
        } else {
            // Intel's compiler loses a sign-extended offset that a 64-bit variable keeps across a
            // barrier's loop, so the offset is unsigned.
            format!("(*(__local {} *)(sh + (uint)({text})))", access.ty)
        }
    }

    /// Returns an object in the thread's local memory.
    fn in_local(&mut self, sum: &Sum, access: AccessType<'_>, line: u32) -> String {
        self.uses_frame = true;
        let text = self.bytes_of(sum);
        let offset = self.bounded_local(&format!("(uint)({text})"), access, line);
        format!("(*({} *)(frame + {offset}))", access.ty)
    }

    /// Returns an offset in shared memory, with a check if addresses are checked.
    fn bounded_shared(&mut self, offset: &str, access: AccessType<'_>, line: u32) -> String {
        if !self.options.check {
            return offset.to_owned();
        }
        let limit = if self.entry.uses_dynamic_shared {
            format!("{}u + {}", self.entry.static_shared, self.dynamic_bytes())
        } else {
            format!("{}u", self.shared_bytes())
        };
        self.bounded(offset, access, &limit, line)
    }

    /// Returns an offset in the thread's local memory, with a check if addresses are checked.
    fn bounded_local(&mut self, offset: &str, access: AccessType<'_>, line: u32) -> String {
        if !self.options.check {
            return offset.to_owned();
        }
        let limit = format!("{}u", self.frame_bytes());
        self.bounded(offset, access, &limit, line)
    }

    fn bounded(&mut self, offset: &str, access: AccessType<'_>, limit: &str, line: u32) -> String {
        self.uses_faults = true;
        format!("ps_bound(arena0, control, {offset}, {}u, {limit}, {line}u)", access.bytes)
    }

    fn generic(
        &mut self,
        what: &Instruction,
        address: &Address,
        access: AccessType<'_>,
    ) -> Result<Lvalue, TranslateError> {
        let (sum, _) = self.address_sum(what, address)?;
        let bytes = self.bytes_of(&sum);
        let has_shared = self.entry.static_shared > 0 || self.entry.uses_dynamic_shared;
        let has_local = self.function.frame_bytes > 0;
        // The address belongs to a variable, so control never takes the path to global memory, and
        // it is not a fault.
        let is_elsewhere = sum.terms.is_empty()
            && [(has_shared, SHARED_WINDOW), (has_local, LOCAL_WINDOW)]
                .iter()
                .any(|(has, start)| *has && sum.constant.cast_unsigned() >> 56 == start >> 56);
        let global = match is_elsewhere {
            true => format!("(*(__global {} *)AT(control))", access.ty),
            false => self.in_global(&sum, access, what.line),
        };
        if !has_shared && !has_local && !self.has_param_window {
            return Ok(Lvalue::Known(global));
        }
        // The address is tested several times.
        self.temporary += 1;
        let name = format!("a{}", self.temporary);
        self.line(&format!("const ulong {name} = {bytes};"));
        let shared = has_shared.then(|| {
            self.uses_shared = true;
            let offset = self.bounded_shared(&format!("(uint){name}"), access, what.line);
            format!("(*(__local {} *)(sh + {offset}))", access.ty)
        });
        let local = has_local.then(|| {
            self.uses_frame = true;
            let offset = self.bounded_local(&format!("(uint){name}"), access, what.line);
            format!("(*({} *)(frame + {offset}))", access.ty)
        });
        let param = self.has_param_window.then(|| self.parameter_at(&name, access, what.line));
        Ok(Lvalue::ByWindow { address: name, shared, local, param, global })
    }

    /// Writes a statement for each window of the address. An access that the window does not allow
    /// is a fault.
    pub(super) fn by_window(
        &mut self,
        what: &Instruction,
        lvalue: Lvalue,
        each: &dyn Fn(&str, &str) -> String,
    ) {
        let (address, shared, local, param, global) = match lvalue {
            Lvalue::Known(object) => {
                let space = if self.leads_to_shared(what) { "local" } else { "global" };
                return self.line(&each(&object, space));
            }
            Lvalue::ByWindow { address, shared, local, param, global } => {
                (address, shared, local, param, global)
            }
        };
        let mut text = String::new();
        if let Some(shared) = shared {
            let _ = write!(
                text,
                "if ({}) {} else ",
                is_in(&address, SHARED_WINDOW),
                each(&shared, "local")
            );
        }
        let illegal = Fault::IllegalAddress as u64;
        let fault = format!("ps_fault(AT(control), {illegal}u, {address}, {}u);", what.line);
        if let Some(local) = local {
            // Atomics work only on memory that threads share.
            let own =
                if what.opcode == Opcode::St { each(&local, "private") } else { fault.clone() };
            self.uses_faults |= what.opcode != Opcode::St;
            let _ = write!(text, "if ({}) {own} else ", is_in(&address, LOCAL_WINDOW));
        }
        if param.is_some() {
            self.uses_faults = true;
            let _ = write!(text, "if ({}) {fault} else ", is_in(&address, PARAM_WINDOW));
        }
        self.line(&format!("{text}{}", each(&global, "global")));
    }

    /// Whether the place that an instruction names is in shared memory.
    fn leads_to_shared(&self, what: &Instruction) -> bool {
        let named = what.operands.iter().any(|operand| {
            matches!(
                operand,
                crate::ir::Operand::Address(Address { base: Base::Symbol(Symbol::Shared(_)), .. })
            )
        });
        match what.modifiers.space.unwrap_or(Space::Generic) {
            Space::Shared => true,
            Space::Generic => named,
            _ => false,
        }
    }

    /// Returns the address of a variable as a value: the result of a `mov` of its name.
    pub(super) fn symbol_address(
        &mut self,
        what: &Instruction,
        symbol: Symbol,
        offset: i64,
    ) -> Result<String, TranslateError> {
        Ok(match symbol {
            Symbol::Function(id) => format!("{:#x}UL", FUNCTION_WINDOW + u64::from(id.0)),
            Symbol::Param(index) => {
                let formal = self
                    .function
                    .params
                    .get(index as usize)
                    .ok_or_else(|| TranslateError::operand(what, symbol))?;
                format!("{:#x}UL", (i64::from(formal.offset) + offset).cast_unsigned())
            }
            _ => {
                let sum = self
                    .sums
                    .symbol(symbol, offset)
                    .ok_or_else(|| TranslateError::operand(what, symbol))?;
                format!("({})", self.bytes_of(&sum))
            }
        })
    }
}
