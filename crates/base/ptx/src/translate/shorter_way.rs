//! The shorter way of CUB's radix sort, which is left out.
//!
//! If all keys of a block have the same digit, CUB copies them without ranking them:
//!
//! ```text
//! bar.red.or.pred %p2, 0, %p1;        does a thread count all keys of the block?
//! selp.u32 %r1, 1, 0, %p2;  setp.eq.s32 %p3, %r1, 0;  @%p3 bra RANK;
//! ```
//!
//! The other way is right for all keys. Without the branch, all threads reach each barrier of the
//! kernel. With it, a device's compiler copies what is behind barriers, because they are in a
//! branch (`closing`, `paths`): with values beside the keys, so much that the kernel would become a
//! state machine.

use std::collections::HashMap;

use super::flow::ControlFlow;
use super::inline::place_labels;
use crate::ir::{
    Compare, Function, Immediate, Instruction, Kind, Modifiers, Opcode, Operand, Reduce,
    RegisterId, Statement, Type,
};

/// Makes a branch whose condition is a `bar.red.or` take the way of the answer no.
pub(super) fn leave_out(function: &mut Function) {
    let flow = ControlFlow::of(function);
    let body = function.body.as_deref().unwrap_or_default();
    let asks = body.iter().enumerate().find_map(|(at, statement)| {
        let answer = answer_of(statement)?;
        let behind = at + 1..flow.blocks[flow.block_of[at]].end;
        Some((at, answer, branch_without(&body[behind], answer)?))
    });
    let Some((at, answer, branch)) = asks else { return };
    let mut body = function.body.take().unwrap_or_default();
    if let Some(Statement::Instruction(what)) = body.get_mut(at + 1 + branch.place) {
        what.guard = None;
        if !branch.is_taken {
            what.opcode = Opcode::Hint;
            what.operands.clear();
        }
    }
    if let Some(Statement::Instruction(what)) = body.get_mut(at) {
        what.opcode = Opcode::BarSync;
        what.operands.retain(|operand| matches!(operand, Operand::Immediate(_)));
        what.destinations = 0;
        let no = no(what, answer);
        body.insert(at + 1, Statement::Instruction(no));
    }
    function.body = Some(body);
    place_labels(function);
}

/// Returns the register of the answer if a statement asks all threads of the block whether one of
/// them says yes.
fn answer_of(statement: &Statement) -> Option<RegisterId> {
    let Statement::Instruction(what) = statement else { return None };
    let asks = what.opcode == Opcode::BarRed
        && what.modifiers.reduce == Some(Reduce::Or)
        && what.guard.is_none();
    match what.operands[..] {
        [
            Operand::Register(answer),
            Operand::Immediate(_),
            Operand::Register(_) | Operand::Not(_),
        ] if asks => Some(answer),
        _ => None,
    }
}

/// A branch whose condition is known.
struct Branch {
    /// Number of statements between the question and the branch.
    place: usize,
    is_taken: bool,
}

/// Returns the branch at the end of these statements if its condition is known because the register
/// `answer` is false in front of them.
fn branch_without(statements: &[Statement], answer: RegisterId) -> Option<Branch> {
    let mut known = HashMap::from([(answer, 0)]);
    for (place, statement) in statements.iter().enumerate() {
        let Statement::Instruction(what) = statement else { continue };
        if let (Opcode::Bra, Some(guard)) = (what.opcode, what.guard) {
            let condition = known.get(&guard.register)?;
            return Some(Branch { place, is_taken: (*condition != 0) != guard.negated });
        }
        let value = value_of(what, &known).filter(|_| what.guard.is_none());
        super::effects::written(what, &mut |id| {
            known.remove(&id);
        });
        if let (Some(value), [Operand::Register(id), ..]) = (value, &what.operands[..]) {
            known.insert(*id, value);
        }
    }
    None
}

/// Returns what an instruction computes from registers with known values, if it is a choice or a
/// comparison for equality.
fn value_of(what: &Instruction, known: &HashMap<RegisterId, u64>) -> Option<u64> {
    let value = |operand: &Operand| match operand {
        Operand::Immediate(Immediate::Integer(value)) => Some(*value),
        Operand::Register(id) => known.get(id).copied(),
        _ => None,
    };
    match (what.opcode, what.sources()) {
        (Opcode::Selp, [yes, no, condition]) => {
            value(if value(condition)? == 0 { no } else { yes })
        }
        (Opcode::Setp, [left, right]) if what.ty().kind() != Kind::Float => {
            // The text may write one value with a sign and without.
            let counted =
                |value: u64| value.checked_shl(64_u32.checked_sub(8 * what.ty().bytes())?);
            let are_equal = counted(value(left)?)? == counted(value(right)?)?;
            match what.modifiers.compare? {
                Compare::Eq => Some(are_equal.into()),
                Compare::Ne => Some((!are_equal).into()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns an instruction that sets a predicate to false.
fn no(at: &Instruction, answer: RegisterId) -> Instruction {
    let zero = Operand::Immediate(Immediate::Integer(0));
    Instruction {
        line: at.line,
        guard: None,
        opcode: Opcode::Setp,
        types: vec![Type::U32],
        modifiers: Modifiers { compare: Some(Compare::Ne), ..Modifiers::default() },
        operands: vec![Operand::Register(answer), zero.clone(), zero],
        destinations: 1,
        call: None,
        mnemonic: "setp.ne.u32".into(),
    }
}
