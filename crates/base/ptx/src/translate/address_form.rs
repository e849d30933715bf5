//! Addresses as forms that can be compared between the lanes of a warp.
//!
//! An address is split into a part that differs between lanes in a known way (a factor times the
//! thread's number), a part that all lanes of a warp share, and an unknown part.

use super::flow::ControlFlow;
use super::linear::{LinearSums, Sum, Term};
use super::uniform::Uniformity;
use super::values;
use crate::ir::{
    Address, Axis, Base, Function, Immediate, Opcode, Operand, RegisterId, SHARED_WINDOW, Special,
    Statement, WARP_SIZE,
};

/// Largest depth of definitions that are followed to see whether an index is the same in a whole
/// warp.
const DEPTH_MAX: u32 = 8;

/// An address, split into its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressForm {
    /// The shared variables that the address can lie in, one bit each; see [`super::roots`].
    pub roots: u64,
    /// Size of the access in bytes.
    pub bytes: i64,
    pub constant: i64,
    /// Factor of the thread's number in the x dimension.
    pub thread: i64,
    /// Factor of the lane's number.
    pub lane: i64,
    /// Factors of the thread's numbers in the y and z dimensions.
    pub axes: [i64; 2],
    /// Numbers that all lanes of a warp share and that never change.
    pub fixed: Vec<(Term, i64)>,
    /// Numbers that all lanes of a warp share and that change in loops.
    pub changing: Vec<(Term, i64)>,
    /// A further summand for each thread of [`values::threads`]; empty if there is none.
    pub table: Vec<i64>,
    /// Numbers about which nothing is known.
    pub unknown: Vec<(Term, i64)>,
    /// Whether the address contains a number with which each thread walks through its part of the
    /// work: it starts from the thread's own number, and all threads add the same step.
    pub strides: bool,
}

/// Knowledge about the numbers that make up addresses.
pub(super) struct AddressForms<'a> {
    function: &'a Function,
    flow: &'a ControlFlow,
    sums: &'a LinearSums<'a>,
    uniform: &'a Uniformity,
    /// Whether each block lies in a loop.
    in_loop: &'a [bool],
    /// Whether the kernel reads the thread's number in y and in z.
    pub dimensions: [bool; 2],
}

/// How a register's value varies between the lanes of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variation {
    /// The value is the same in all lanes.
    Uniform,
    /// The value is the thread's number.
    Thread,
    /// The value is the lane's number.
    Lane,
    Unknown,
}

impl<'a> AddressForms<'a> {
    pub(super) fn of(
        function: &'a Function,
        flow: &'a ControlFlow,
        sums: &'a LinearSums<'a>,
        uniform: &'a Uniformity,
        in_loop: &'a [bool],
    ) -> Self {
        let mut dimensions = [false; 2];
        for statement in function.body.iter().flatten() {
            let Statement::Instruction(what) = statement else { continue };
            for operand in what.sources() {
                match operand {
                    Operand::Special(Special::Tid(Axis::Y)) => dimensions[0] = true,
                    Operand::Special(Special::Tid(Axis::Z)) => dimensions[1] = true,
                    _ => {}
                }
            }
        }
        Self { function, flow, sums, uniform, in_loop, dimensions }
    }

    /// Splits the address of an access of `bytes` bytes in statement `at`, which lies in the
    /// variables `roots`.
    pub(super) fn form(&self, address: &Address, at: usize, bytes: u32, roots: u64) -> AddressForm {
        let mut form = AddressForm { roots, bytes: i64::from(bytes), ..AddressForm::default() };
        let sum = match address.base {
            Base::Register(id) => self.sums.register(id, at),
            Base::Symbol(symbol) => self.sums.symbol(symbol, 0).unwrap_or_default(),
            Base::Absolute => Sum::default(),
        };
        form.constant = sum.constant.wrapping_add(address.offset);
        if form.constant >> 56 == SHARED_WINDOW.cast_signed() >> 56 {
            form.constant = form.constant.wrapping_sub(SHARED_WINDOW.cast_signed());
        }
        for (term, factor) in &sum.terms {
            self.add(&mut form, *term, *factor, at, true);
        }
        for list in [&mut form.fixed, &mut form.changing, &mut form.unknown] {
            list.sort_by_key(|(term, factor)| (format!("{term:?}"), *factor));
        }
        form
    }

    fn add(&self, form: &mut AddressForm, term: Term, factor: i64, at: usize, widens: bool) {
        match term {
            Term::Special(Special::Tid(Axis::X)) => form.thread = form.thread.wrapping_add(factor),
            Term::Special(Special::Tid(Axis::Y)) => {
                form.axes[0] = form.axes[0].wrapping_add(factor)
            }
            Term::Special(Special::Tid(Axis::Z)) => {
                form.axes[1] = form.axes[1].wrapping_add(factor)
            }
            Term::Special(_) | Term::Data => form.fixed.push((term, factor)),
            Term::Step(id) => {
                form.strides |= self.is_stride(id);
                if self.sums.is_uniform(term) { &mut form.changing } else { &mut form.unknown }
                    .push((term, factor));
            }
            Term::Signed(id) | Term::Unsigned(id) if widens => {
                let sum = self.sums.register(id, at);
                form.constant = form.constant.wrapping_add(sum.constant.wrapping_mul(factor));
                for (inner, times) in &sum.terms {
                    self.add(form, *inner, times.wrapping_mul(factor), at, false);
                }
            }
            Term::Register(id) | Term::Signed(id) | Term::Unsigned(id) => {
                match self.variation(id, DEPTH_MAX) {
                    Variation::Thread => form.thread = form.thread.wrapping_add(factor),
                    Variation::Lane => form.lane = form.lane.wrapping_add(factor),
                    Variation::Uniform if self.is_fixed(id) => form.fixed.push((term, factor)),
                    Variation::Uniform => form.changing.push((term, factor)),
                    Variation::Unknown if self.tabulates(form, id, factor) => {}
                    Variation::Unknown => {
                        form.strides |= self.comes_from_stride(id, DEPTH_MAX);
                        form.unknown.push((term, factor));
                    }
                }
            }
        }
    }

    /// Adds a register that follows from the thread's number alone. Returns false if it does not.
    fn tabulates(&self, form: &mut AddressForm, id: RegisterId, factor: i64) -> bool {
        if self.dimensions != [false; 2] {
            return false;
        }
        let Some(values) = values::of(self.function, self.sums, id) else { return false };
        form.table.resize(values.len(), 0);
        form.table
            .iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value.wrapping_mul(factor));
        true
    }

    /// Whether a register starts from the thread's number, and all threads add the same number to
    /// it.
    fn is_stride(&self, id: RegisterId) -> bool {
        let body = self.function.body.as_deref().unwrap_or_default();
        let own = Operand::Register(id);
        let adds = |at: &usize| match &body[*at] {
            Statement::Instruction(what) if what.opcode == Opcode::Add => match what.sources() {
                [left, Operand::Register(step)] if *left == own => self.uniform.register(*step),
                [Operand::Register(step), right] if *right == own => self.uniform.register(*step),
                [left, Operand::Immediate(_)] => *left == own,
                _ => false,
            },
            _ => false,
        };
        !self.uniform.register(id) && self.sums.definitions(id).iter().any(adds)
    }

    /// Whether a value is computed from such a register.
    fn comes_from_stride(&self, id: RegisterId, depth: u32) -> bool {
        if self.is_stride(id) {
            return true;
        }
        let ([at], Some(depth)) = (self.sums.definitions(id), depth.checked_sub(1)) else {
            return false;
        };
        let Some(Statement::Instruction(what)) =
            self.function.body.as_deref().and_then(|body| body.get(*at))
        else {
            return false;
        };
        what.sources().iter().any(|operand| match operand {
            Operand::Register(id) => self.comes_from_stride(*id, depth),
            _ => false,
        })
    }

    /// Whether a register is written once, outside all loops.
    fn is_fixed(&self, id: RegisterId) -> bool {
        match self.sums.definitions(id) {
            [at] => !self.in_loop[self.flow.block_of[*at]],
            _ => false,
        }
    }

    /// Returns how a register's value varies between the lanes of a warp.
    pub(super) fn variation(&self, id: RegisterId, depth: u32) -> Variation {
        if self.uniform.register(id) {
            return Variation::Uniform;
        }
        let [at] = self.sums.definitions(id)[..] else { return Variation::Unknown };
        let Some(Statement::Instruction(what)) =
            self.function.body.as_deref().and_then(|body| body.get(at))
        else {
            return Variation::Unknown;
        };
        let Some(depth) = depth.checked_sub(1).filter(|_| what.guard.is_none()) else {
            return Variation::Unknown;
        };
        let is_thread = |operand: &Operand| self.is_thread(operand, at);
        let number = |index: usize| match what.sources().get(index) {
            Some(Operand::Immediate(Immediate::Integer(number))) => Some(*number & 0xffff_ffff),
            _ => None,
        };
        let lanes = u64::from(WARP_SIZE - 1);
        match (what.opcode, what.sources()) {
            (Opcode::Mov, [Operand::Special(Special::Laneid)]) => Variation::Lane,
            (Opcode::Mov, [Operand::Special(Special::Warpid)]) => Variation::Uniform,
            (Opcode::Mov | Opcode::Cvt, [operand]) if is_thread(operand) => Variation::Thread,
            (Opcode::And, [thread, _]) if is_thread(thread) && number(1) == Some(lanes) => {
                Variation::Lane
            }
            (Opcode::And, [thread, _])
                if is_thread(thread) && number(1).is_some_and(|mask| mask & lanes == 0) =>
            {
                Variation::Uniform
            }
            (Opcode::Shr, [thread, _])
                if is_thread(thread)
                    && number(1).is_some_and(|by| by >= WARP_SIZE.ilog2().into()) =>
            {
                Variation::Uniform
            }
            (
                Opcode::Add
                | Opcode::Sub
                | Opcode::Mul
                | Opcode::Mad
                | Opcode::Shl
                | Opcode::Shr
                | Opcode::And
                | Opcode::Or
                | Opcode::Cvt
                | Opcode::Mov,
                sources,
            ) if sources.iter().all(|operand| match operand {
                Operand::Immediate(_) => true,
                Operand::Register(id) => self.variation(*id, depth) == Variation::Uniform,
                _ => false,
            }) =>
            {
                Variation::Uniform
            }
            _ => Variation::Unknown,
        }
    }

    /// Whether an operand is the thread's number, in a kernel whose blocks have one dimension.
    fn is_thread(&self, operand: &Operand, at: usize) -> bool {
        let is_one = !self.dimensions[0] && !self.dimensions[1];
        match operand {
            Operand::Special(Special::Tid(Axis::X)) => is_one,
            Operand::Register(id) => {
                let sum = self.sums.register(*id, at);
                is_one
                    && sum.constant == 0
                    && sum.terms == [(Term::Special(Special::Tid(Axis::X)), 1)]
            }
            _ => false,
        }
    }

    /// If a register is the number of the thread or the lane plus a constant, returns whether it is
    /// the thread's number, and the constant.
    pub(super) fn thread_plus(&self, id: RegisterId, at: usize) -> Option<(bool, i64)> {
        let sum = self.sums.register(id, at);
        match sum.terms[..] {
            [(Term::Special(Special::Tid(Axis::X)), 1)] => Some((true, sum.constant)),
            [(Term::Register(id), 1)] => match self.variation(id, DEPTH_MAX) {
                Variation::Thread => Some((true, sum.constant)),
                Variation::Lane => Some((false, sum.constant)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl AddressForm {
    /// Whether the other address consists of the same numbers, even if these are unknown.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.constant == other.constant
            && self.lane == other.lane
            && self.thread == other.thread
            && self.axes == other.axes
            && self.fixed == other.fixed
            && self.changing == other.changing
            && self.unknown == other.unknown
            && self.table == other.table
    }

    /// Whether the other address starts from the same numbers that all lanes share.
    pub(super) fn has_base_of(&self, other: &Self) -> bool {
        self.fixed == other.fixed && self.changing == other.changing
    }

    /// Whether lanes differ only by the thread's number.
    pub(super) fn is_linear(&self) -> bool {
        self.unknown.is_empty() && self.table.is_empty()
    }

    /// If this address differs from the other one only by a register, in units of the factor of the
    /// thread's number, returns the register, and whether this address is the larger one.
    pub(super) fn apart_by(&self, other: &Self) -> Option<(RegisterId, bool)> {
        let list =
            |form: &Self| form.fixed.iter().chain(&form.changing).copied().collect::<Vec<_>>();
        let (own, others) = (list(self), list(other));
        let mut more = own.iter().filter(|entry| !others.contains(entry));
        let (Some((Term::Register(id) | Term::Signed(id) | Term::Unsigned(id), factor)), None) =
            (more.next(), more.next())
        else {
            return None;
        };
        let same = others.iter().all(|entry| own.contains(entry))
            && self.constant == other.constant
            && self.lane == other.lane
            && self.thread == other.thread
            && self.unknown == other.unknown
            && self.table == other.table
            && self.axes == other.axes;
        let unit = self.lane + self.thread;
        (same && factor.abs() == unit.abs()).then_some((*id, *factor == unit))
    }

    /// Whether lanes have different addresses.
    pub(super) fn differs_in_warp(&self) -> bool {
        self.lane != 0 || self.thread != 0 || self.axes != [0; 2] || !self.is_linear()
    }
}
