//! Decides whether accesses to shared memory by different lanes of one warp can overlap.
//!
//! An address is split into a part that differs between lanes in a known way (a factor times the
//! thread's number), a part that all lanes of a warp share, and an unknown part. Two addresses can
//! then be compared for all pairs of lanes. In blocks of more than one dimension, only the forms of
//! two addresses are compared. If both have the same form, which contains every dimension that the
//! kernel reads, the address is taken for the thread's own.

use super::flow::Flow;
use super::guards::{Guards, Range};
use super::linear::{Sum, Sums, Term};
use super::uniform::Uniform;
use super::values;
use crate::ir::{
    Address, Axis, Base, Function, Immediate, Instruction, Opcode, Operand, RegisterId,
    SHARED_WINDOW, Special, Statement, WARP_SIZE,
};

/// Number of lanes of a warp, as a signed integer.
const LANES: i64 = WARP_SIZE as i64;

/// Largest depth of definitions that are followed to see whether an index is the same in a whole
/// warp.
const DEPTH_MAX: u32 = 8;

/// Result of the comparison of two accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// No two lanes of a warp access the same byte.
    Never,
    /// Two lanes may access the same byte.
    Perhaps {
        /// Whether the unknown part is a number that the warp shares.
        even: bool,
    },
    /// Two lanes of a warp access the same byte.
    Surely,
}

/// An address, split into its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// The shared variables that the address can lie in, one bit each; see [`super::roots`].
    pub roots: u64,
    /// Size of the access in bytes.
    pub bytes: i64,
    constant: i64,
    /// Factor of the thread's number in the x dimension.
    thread: i64,
    /// Factor of the lane's number.
    lane: i64,
    /// Factors of the thread's numbers in the y and z dimensions.
    axes: [i64; 2],
    /// Numbers that all lanes of a warp share and that never change.
    fixed: Vec<(Term, i64)>,
    /// Numbers that all lanes of a warp share and that change in loops.
    even: Vec<(Term, i64)>,
    /// A further summand for each thread of [`values::threads`]; empty if there is none.
    table: Vec<i64>,
    /// Numbers about which nothing is known.
    own: Vec<(Term, i64)>,
    /// Whether the address contains a number with which each thread walks through its part of the
    /// work: it starts from the thread's own number, and all threads add the same step.
    pub strides: bool,
}

/// Knowledge about the numbers that make up addresses.
pub(super) struct Forms<'a> {
    function: &'a Function,
    flow: &'a Flow,
    sums: &'a Sums<'a>,
    uniform: &'a Uniform,
    /// Whether each block lies in a loop.
    in_loop: &'a [bool],
    /// Whether the kernel reads the thread's number in y and in z.
    pub dimensions: [bool; 2],
}

/// How a register's value varies between the lanes of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// The value is the same in all lanes.
    Even,
    /// The value is the thread's number.
    Thread,
    /// The value is the lane's number.
    Lane,
    Own,
}

impl<'a> Forms<'a> {
    pub(super) fn of(
        function: &'a Function,
        flow: &'a Flow,
        sums: &'a Sums<'a>,
        uniform: &'a Uniform,
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
    pub(super) fn form(&self, address: &Address, at: usize, bytes: u32, roots: u64) -> Form {
        let mut form = Form { roots, bytes: i64::from(bytes), ..Form::default() };
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
        for list in [&mut form.fixed, &mut form.even, &mut form.own] {
            list.sort_by_key(|(term, factor)| (format!("{term:?}"), *factor));
        }
        form
    }

    fn add(&self, form: &mut Form, term: Term, factor: i64, at: usize, widens: bool) {
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
                if self.sums.is_uniform(term) { &mut form.even } else { &mut form.own }
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
                match self.nature(id, DEPTH_MAX) {
                    Nature::Thread => form.thread = form.thread.wrapping_add(factor),
                    Nature::Lane => form.lane = form.lane.wrapping_add(factor),
                    Nature::Even if self.is_fixed(id) => form.fixed.push((term, factor)),
                    Nature::Even => form.even.push((term, factor)),
                    Nature::Own if self.tabulates(form, id, factor) => {}
                    Nature::Own => {
                        form.strides |= self.comes_from_stride(id, DEPTH_MAX);
                        form.own.push((term, factor));
                    }
                }
            }
        }
    }

    /// Adds a register that follows from the thread's number alone. Returns false if it does not.
    fn tabulates(&self, form: &mut Form, id: RegisterId, factor: i64) -> bool {
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
    pub(super) fn nature(&self, id: RegisterId, depth: u32) -> Nature {
        if self.uniform.register(id) {
            return Nature::Even;
        }
        let [at] = self.sums.definitions(id)[..] else { return Nature::Own };
        let Some(Statement::Instruction(what)) =
            self.function.body.as_deref().and_then(|body| body.get(at))
        else {
            return Nature::Own;
        };
        let Some(depth) = depth.checked_sub(1).filter(|_| what.guard.is_none()) else {
            return Nature::Own;
        };
        let is_thread = |operand: &Operand| self.is_thread(operand, at);
        let number = |index: usize| match what.sources().get(index) {
            Some(Operand::Immediate(Immediate::Integer(number))) => Some(*number & 0xffff_ffff),
            _ => None,
        };
        let lanes = u64::from(WARP_SIZE - 1);
        match (what.opcode, what.sources()) {
            (Opcode::Mov, [Operand::Special(Special::Laneid)]) => Nature::Lane,
            (Opcode::Mov, [Operand::Special(Special::Warpid)]) => Nature::Even,
            (Opcode::Mov | Opcode::Cvt, [operand]) if is_thread(operand) => Nature::Thread,
            (Opcode::And, [thread, _]) if is_thread(thread) && number(1) == Some(lanes) => {
                Nature::Lane
            }
            (Opcode::And, [thread, _])
                if is_thread(thread) && number(1).is_some_and(|mask| mask & lanes == 0) =>
            {
                Nature::Even
            }
            (Opcode::Shr, [thread, _])
                if is_thread(thread)
                    && number(1).is_some_and(|by| by >= WARP_SIZE.ilog2().into()) =>
            {
                Nature::Even
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
                Operand::Register(id) => self.nature(*id, depth) == Nature::Even,
                _ => false,
            }) =>
            {
                Nature::Even
            }
            _ => Nature::Own,
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
            [(Term::Register(id), 1)] => match self.nature(id, DEPTH_MAX) {
                Nature::Thread => Some((true, sum.constant)),
                Nature::Lane => Some((false, sum.constant)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns the greatest common divisor of `start` and the factors of the numbers that are in only
/// one of the two lists.
fn differing(left: &[(Term, i64)], right: &[(Term, i64)], start: i64) -> i64 {
    let missing = |from: &[(Term, i64)], other: &[(Term, i64)], start: i64| {
        from.iter()
            .filter(|entry| !other.contains(entry))
            .fold(start, |sum, (_, factor)| gcd(sum, *factor))
    };
    missing(right, left, missing(left, right, start))
}

fn gcd(left: i64, right: i64) -> i64 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    i64::try_from(left).unwrap_or(1)
}

/// Decides whether two accesses by different lanes of a warp share a byte.
pub(super) fn overlap(
    left: (&Form, &Guards),
    right: (&Form, &Guards),
    dimensions: [bool; 2],
) -> Overlap {
    let ((left, left_guards), (right, right_guards)) = (left, right);
    if left.roots & right.roots == 0 {
        return Overlap::Never;
    }
    let even = left.even.iter().chain(&right.even).fold(0, |sum, (_, factor)| gcd(sum, *factor));
    let even = differing(&left.fixed, &right.fixed, even);
    let own = left.own.iter().chain(&right.own).fold(0, |sum, (_, factor)| gcd(sum, *factor));
    let step = gcd(even, own);
    let distance = left.constant.wrapping_sub(right.constant);
    let is_flat = !dimensions[0] && !dimensions[1];
    let same_lanes = left.lane == right.lane && left.thread == right.thread;
    let only_even = own == 0 && same_lanes && left.table == right.table && left.axes == right.axes;
    if !is_flat || left.axes != [0; 2] || right.axes != [0; 2] {
        return of_dimensions((left, right), step, distance, dimensions, only_even);
    }
    let is_plain = left.table.is_empty() && right.table.is_empty();
    if is_plain && same_lanes && left_guards.range == Range::ALL && right_guards.range == Range::ALL
    {
        let meets = (1 - LANES..LANES).any(|apart| {
            apart != 0
                && touches(
                    (left.lane + left.thread) * apart + distance,
                    step,
                    left.bytes,
                    right.bytes,
                )
        });
        return match (meets, step) {
            (false, _) => Overlap::Never,
            (true, 0) => Overlap::Surely,
            (true, _) => Overlap::Perhaps { even: only_even },
        };
    }
    let place = |form: &Form, guards: &Guards| -> Vec<Option<i64>> {
        let threads = values::threads().map(i64::from).enumerate();
        let place = |(index, thread): (usize, i64)| {
            let more = form.table.get(index).copied().unwrap_or(0);
            guards
                .range
                .has(thread, thread % LANES)
                .then_some(form.thread * thread + form.lane * (thread % LANES) + more)
        };
        threads.map(place).collect()
    };
    let (ones, others) = (place(left, left_guards), place(right, right_guards));
    let warps = ones.chunks(WARP_SIZE as usize).zip(others.chunks(WARP_SIZE as usize));
    let meets = warps.into_iter().any(|(ones, others)| {
        ones.iter().enumerate().any(|(lane, one)| {
            others.iter().enumerate().any(|(other_lane, other)| match (one, other) {
                (Some(one), Some(other)) if lane != other_lane => {
                    touches(one - other + distance, step, left.bytes, right.bytes)
                }
                _ => false,
            })
        })
    });
    match (meets, step) {
        (false, _) => Overlap::Never,
        (true, 0) => Overlap::Surely,
        (true, _) => Overlap::Perhaps { even: only_even },
    }
}

/// Whether two accesses share a byte if they are `distance` bytes apart, plus any multiple of
/// `step`.
fn touches(distance: i64, step: i64, left_bytes: i64, right_bytes: i64) -> bool {
    let shares = |distance: i64| -left_bytes < distance && distance < right_bytes;
    if step == 0 {
        return shares(distance);
    }
    let rest = distance.rem_euclid(step);
    shares(rest) || shares(rest - step)
}

/// Like [`overlap`], for a kernel that reads more than one dimension of the thread's number.
fn of_dimensions(
    (left, right): (&Form, &Form),
    step: i64,
    distance: i64,
    dimensions: [bool; 2],
    only_even: bool,
) -> Overlap {
    let is_same = left.lane == right.lane && left.thread == right.thread && left.axes == right.axes;
    let names_all = left.thread != 0
        && dimensions.iter().zip(left.axes).all(|(is_read, factor)| !is_read || factor != 0);
    let apart = |distance: i64, step: i64| !touches(distance, step, left.bytes, right.bytes);
    if is_same && names_all && step == 0 && distance == 0 {
        return Overlap::Never;
    }
    let shape = left.axes.iter().chain(&right.axes).chain([
        &left.lane,
        &right.lane,
        &left.thread,
        &right.thread,
    ]);
    let all = shape.fold(step, |sum, factor| gcd(sum, *factor));
    if all == 0 && apart(distance, 0) || all != 0 && apart(distance, all) {
        return Overlap::Never;
    }
    Overlap::Perhaps { even: only_even }
}

impl Form {
    /// Whether the other address consists of the same numbers, even if these are unknown.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.constant == other.constant
            && self.lane == other.lane
            && self.thread == other.thread
            && self.axes == other.axes
            && self.fixed == other.fixed
            && self.even == other.even
            && self.own == other.own
            && self.table == other.table
    }

    /// Whether the other address starts from the same numbers that all lanes share.
    pub(super) fn has_base_of(&self, other: &Self) -> bool {
        self.fixed == other.fixed && self.even == other.even
    }

    /// Whether lanes differ only by the thread's number.
    pub(super) fn is_linear(&self) -> bool {
        self.own.is_empty() && self.table.is_empty()
    }

    /// If this address differs from the other one only by a register, in units of the factor of the
    /// thread's number, returns the register, and whether this address is the larger one.
    pub(super) fn apart_by(&self, other: &Self) -> Option<(RegisterId, bool)> {
        let list = |form: &Self| form.fixed.iter().chain(&form.even).copied().collect::<Vec<_>>();
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
            && self.own == other.own
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

/// Returns the address operand of an access, and its size in bytes.
pub(super) fn accessed(what: &Instruction) -> Option<(&Address, u32)> {
    let lanes = u32::from(what.modifiers.vector.max(1));
    let bytes = what.ty().bytes() * lanes;
    what.operands.iter().find_map(|operand| match operand {
        Operand::Address(address) => Some((address, bytes)),
        _ => None,
    })
}
