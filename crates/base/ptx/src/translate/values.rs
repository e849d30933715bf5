//! Numbers that follow from the thread's number alone, such as `lane ^ 5` or `(3 * lane + 1) & 31`,
//! and their value in each thread.

use super::linear::LinearSums;
use crate::ir::{
    Axis, Function, Half, Immediate, Instruction, Opcode, Operand, RegisterId, Special, Statement,
    WARP_SIZE,
};

/// The warps whose threads are evaluated: the first ones, and the last one of the largest block.
const WARPS: [u32; 4] = [0, 1, 2, crate::ir::BLOCK_THREADS_MAX / WARP_SIZE - 1];

/// Largest depth of definitions that are followed.
const DEPTH_MAX: u32 = 12;

/// Returns the threads that are evaluated, warp by warp.
pub(super) fn threads() -> impl Iterator<Item = u32> {
    WARPS.into_iter().flat_map(|warp| (0..WARP_SIZE).map(move |lane| warp * WARP_SIZE + lane))
}

/// Returns the value of a register in each of these threads, if it follows from their numbers in a
/// block of one dimension.
pub(super) fn of(function: &Function, sums: &LinearSums<'_>, id: RegisterId) -> Option<Vec<i64>> {
    let body = function.body.as_deref()?;
    let values = threads().map(|thread| {
        let value = register(body, sums, id, thread, DEPTH_MAX)?;
        Some(i64::from(value.cast_signed()))
    });
    values.collect()
}

fn register(
    body: &[Statement],
    sums: &LinearSums<'_>,
    id: RegisterId,
    thread: u32,
    depth: u32,
) -> Option<u32> {
    let [at] = sums.definitions(id)[..] else { return None };
    let Statement::Instruction(what) = body.get(at)? else { return None };
    if what.guard.is_some() || what.destinations != 1 || what.modifiers.sat || what.modifiers.carry
    {
        return None;
    }
    let depth = depth.checked_sub(1)?;
    let value = |index: usize| match what.sources().get(index)? {
        Operand::Immediate(Immediate::Integer(number)) => u32::try_from(number & 0xffff_ffff).ok(),
        Operand::Special(Special::Tid(Axis::X)) => Some(thread),
        Operand::Special(Special::Laneid) => Some(thread % WARP_SIZE),
        Operand::Register(id) => register(body, sums, *id, thread, depth),
        _ => None,
    };
    compute(what, &value)
}

/// Computes the result of a 32-bit instruction.
fn compute(what: &Instruction, value: &dyn Fn(usize) -> Option<u32>) -> Option<u32> {
    if what.ty().bits() != 32 || what.source_type().bits() != 32 || what.ty().is_float() {
        return None;
    }
    let is_low = what.modifiers.half == Some(Half::Lo);
    Some(match what.opcode {
        Opcode::Mov => value(0)?,
        Opcode::Cvt if !what.source_type().is_float() => value(0)?,
        Opcode::Not => !value(0)?,
        Opcode::And => value(0)? & value(1)?,
        Opcode::Or => value(0)? | value(1)?,
        Opcode::Xor => value(0)? ^ value(1)?,
        Opcode::Add => value(0)?.wrapping_add(value(1)?),
        Opcode::Sub => value(0)?.wrapping_sub(value(1)?),
        Opcode::Mul if is_low => value(0)?.wrapping_mul(value(1)?),
        Opcode::Mad if is_low => value(0)?.wrapping_mul(value(1)?).wrapping_add(value(2)?),
        Opcode::Shl => value(0)?.checked_shl(value(1)?).unwrap_or(0),
        Opcode::Shr if what.ty().is_signed() => {
            (value(0)?.cast_signed() >> value(1)?.min(31)).cast_unsigned()
        }
        Opcode::Shr => value(0)?.checked_shr(value(1)?).unwrap_or(0),
        _ => return None,
    })
}
