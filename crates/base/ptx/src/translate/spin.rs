//! Loops in which a thread only waits for a value in memory.
//!
//! If only other threads of the block can store the value, these threads must run while the waiting
//! thread stops. So the waiting thread stops in each turn ([`Stop::Yield`]). A value in global
//! memory may also come from elsewhere, so such a loop never counts as one that waits in vain
//! ([`Stop::Pause`]).
//!
//! Lanes that leave such a loop in different turns do not come together again before their next
//! meeting. So a loop must not count as one that waits if no branch depends on what it finds in
//! memory, neither in the loop nor in the loops around it.

use std::collections::{HashMap, HashSet};

use super::effects;
use super::effects::is_meeting;
use super::flow::{self, ControlFlow};
use super::peers::{Peers, WaitingLoop};
use super::uniform::Uniformity;
use crate::ir::{
    Atomic, Entry, Function, Instruction, Module, Opcode, Operand, RegisterId, Space, Special,
    Statement, Stop,
};

/// Largest number of statements of a loop that only waits. Compilers write some ten. A longer loop
/// does other work.
const STATEMENTS_MAX: usize = 64;

/// Largest number of statements of all loops around such a loop that the analysis reads. Beyond it,
/// the loop counts as one that waits, as if a branch of theirs depended on what it finds.
const AROUND_MAX: usize = 4_000;

/// Returns the branches that close such loops. A loop that waits for a value in global memory is
/// included if another thread of the block may store the value, and with `all` in any case.
pub(super) fn stops_of_waiting_loops(
    module: &Module,
    entry: &Entry,
    function: &Function,
    (flow, uniform): (&ControlFlow, &Uniformity),
    all: bool,
) -> Vec<(usize, Stop)> {
    let body = function.body.as_deref().unwrap_or_default();
    let mut peers = None;
    let mut found = Vec::new();
    for (latch, block) in flow.blocks.iter().enumerate().filter(|(latch, _)| flow.reached[*latch]) {
        let at = block.end - 1;
        let Some(Statement::Instruction(branch)) = body.get(at) else { continue };
        let (Opcode::Bra, [Operand::Label(label)]) = (branch.opcode, &branch.operands[..]) else {
            continue;
        };
        let head = flow.block_of[function.labels[label.index()].position as usize];
        if !flow.dominates(head, latch) {
            continue;
        }
        let turn = LoopTurn::of(body, flow, (head, latch));
        let Some(turn) = turn.filter(|turn| turn.decides(body, flow, head)) else { continue };
        let polls = |space: Option<Space>| turn.polls.iter().any(|(_, asked)| *asked == space);
        if polls(Some(Space::Shared)) {
            found.push((at, Stop::Yield));
        } else if all && polls(Some(Space::Global)) {
            found.push((at, Stop::Pause));
        } else if !turn.polls.is_empty() && !turn.ends_by_itself(body, flow, (head, latch)) {
            let is_generic = polls(None) || polls(Some(Space::Generic));
            let polls = turn.polls.iter().map(|(at, _)| *at).collect();
            let peers =
                peers.get_or_insert_with(|| Peers::of(module, entry, function, flow, uniform));
            if peers.may_store(&WaitingLoop { head, polls, is_generic }) {
                found.push((at, Stop::Pause));
            }
        }
    }
    found
}

/// One turn of a loop that only looks at memory.
struct LoopTurn {
    inside: HashSet<usize>,
    /// The registers that depend on the values that the turn finds in memory.
    found: HashSet<RegisterId>,
    /// The instructions that poll a value, and the space of each.
    polls: Vec<(usize, Option<Space>)>,
}

impl LoopTurn {
    /// Returns the turn of the loop between two blocks, if the loop only looks at memory.
    fn of(body: &[Statement], flow: &ControlFlow, (head, latch): (usize, usize)) -> Option<Self> {
        let mut inside = HashSet::from([head, latch]);
        let mut stack = if head == latch { Vec::new() } else { vec![latch] };
        let mut statements = 0;
        while let Some(block) = stack.pop() {
            stack.extend(
                flow.blocks[block].predecessors.iter().filter(|before| inside.insert(**before)),
            );
            if inside.len() > STATEMENTS_MAX {
                return None;
            }
        }
        let found = registers_from_memory(body, flow, &inside);
        let mut polls = Vec::new();
        for block in &inside {
            let range = flow.blocks[*block].start..flow.blocks[*block].end;
            statements += range.len();
            if statements > STATEMENTS_MAX {
                return None;
            }
            for at in range {
                let Statement::Instruction(what) = &body[at] else { continue };
                if has_effect(what) {
                    return None;
                }
                if is_poll(what) && !uses_found_value(what, &found) {
                    polls.push((at, what.modifiers.space));
                }
            }
        }
        Some(Self { inside, found, polls })
    }

    /// Whether the values that a turn finds in memory decide how this loop or a loop around it goes
    /// on.
    fn decides(&self, body: &[Statement], flow: &ControlFlow, head: usize) -> bool {
        let around = blocks_around(flow, head);
        let ranges = around.iter().map(|block| flow.blocks[*block].start..flow.blocks[*block].end);
        if ranges.map(|range| range.len()).sum::<usize>() > AROUND_MAX {
            return true;
        }
        let instructions = instructions_of(body, flow, &around);
        let mut found = self.found.clone();
        spread(&instructions, &mut found);
        instructions.iter().any(|what| {
            let mut depends = false;
            effects::read(what, &mut |id| depends |= found.contains(&id));
            depends && flow::ends_block(what)
        })
    }

    /// Whether the loop may end although no other thread stores anything: after a number of turns,
    /// after a time, or by a compare-and-swap that succeeds unless another thread was faster.
    fn ends_by_itself(
        &self,
        body: &[Statement],
        flow: &ControlFlow,
        (head, latch): (usize, usize),
    ) -> bool {
        let own = self.counted_registers(body, flow, latch);
        self.retries_swap(body, flow, head)
            || self.inside.iter().any(|block| {
                let leaves =
                    flow.blocks[*block].successors.iter().any(|next| !self.inside.contains(next));
                let mut depends = false;
                if let (true, Statement::Instruction(branch)) =
                    (leaves, &body[flow.blocks[*block].end - 1])
                {
                    effects::read(branch, &mut |id| depends |= own.contains(&id));
                }
                depends
            })
    }

    /// Whether a compare-and-swap changes a word from the value that a turn found in this word. If
    /// it fails, then another thread has made progress in the meantime.
    fn retries_swap(&self, body: &[Statement], flow: &ControlFlow, head: usize) -> bool {
        let is_polled = |place: &Operand| {
            self.polls.iter().any(|(at, _)| match &body[*at] {
                Statement::Instruction(what) => what.sources().first() == Some(place),
                Statement::Label(_) => false,
            })
        };
        body.iter().enumerate().any(|(at, statement)| match statement {
            Statement::Instruction(what) => {
                what.modifiers.atomic == Some(Atomic::Cas)
                    && uses_found_value(what, &self.found)
                    && what.sources().first().is_some_and(is_polled)
                    && flow.dominates(head, flow.block_of[at])
            }
            Statement::Label(_) => false,
        })
    }

    /// Returns the registers that change from turn to turn regardless of the values in memory:
    /// those that depend on a clock, or on a register that each turn computes from its own last
    /// value.
    fn counted_registers(
        &self,
        body: &[Statement],
        flow: &ControlFlow,
        latch: usize,
    ) -> HashSet<RegisterId> {
        let mut sources: HashMap<RegisterId, Vec<RegisterId>> = HashMap::new();
        let (mut instructions, mut own) = (Vec::new(), HashSet::new());
        for block in &self.inside {
            for statement in &body[flow.blocks[*block].start..flow.blocks[*block].end] {
                let Statement::Instruction(what) = statement else { continue };
                instructions.push(what);
                if what.sources().iter().any(is_clock) {
                    effects::written(what, &mut |id| _ = own.insert(id));
                }
                if what.guard.is_none() && flow.dominates(*block, latch) {
                    effects::written(what, &mut |id| {
                        if !self.found.contains(&id) {
                            effects::read(what, &mut |from| {
                                sources.entry(id).or_default().push(from)
                            });
                        }
                    });
                }
            }
        }
        for start in sources.keys() {
            let (mut stack, mut seen) = (sources[start].clone(), HashSet::new());
            while let Some(id) = stack.pop().filter(|_| !own.contains(start)) {
                if id == *start {
                    own.insert(id);
                } else if seen.insert(id) {
                    stack.extend(sources.get(&id).into_iter().flatten());
                }
            }
        }
        spread(&instructions, &mut own);
        own
    }
}

/// Returns the blocks that lie on a way from a block back to it.
fn blocks_around(flow: &ControlFlow, head: usize) -> HashSet<usize> {
    let reach = |next: &dyn Fn(usize) -> Vec<usize>| {
        let (mut seen, mut stack) = (HashSet::new(), vec![head]);
        while let Some(block) = stack.pop() {
            stack.extend(next(block).into_iter().filter(|next| seen.insert(*next)));
        }
        seen
    };
    let behind = reach(&|block| {
        let next = flow.blocks[block].successors.iter().copied();
        next.filter(|next| *next != flow.exit()).collect()
    });
    let before = reach(&|block| flow.blocks[block].predecessors.clone());
    behind.intersection(&before).copied().collect()
}

/// Returns the instructions of some blocks, in no order.
fn instructions_of<'a>(
    body: &'a [Statement],
    flow: &ControlFlow,
    blocks: &HashSet<usize>,
) -> Vec<&'a Instruction> {
    let statements =
        blocks.iter().flat_map(|block| &body[flow.blocks[*block].start..flow.blocks[*block].end]);
    statements
        .filter_map(|statement| match statement {
            Statement::Instruction(what) => Some(what),
            Statement::Label(_) => None,
        })
        .collect()
}

fn is_clock(operand: &Operand) -> bool {
    matches!(
        operand,
        Operand::Special(
            Special::Clock
                | Special::ClockHi
                | Special::Clock64
                | Special::Globaltimer
                | Special::GlobaltimerLo
                | Special::GlobaltimerHi
        )
    )
}

/// Adds all registers that depend on those of a set.
fn spread(instructions: &[&Instruction], set: &mut HashSet<RegisterId>) {
    let mut count = None;
    while count.replace(set.len()) != Some(set.len()) {
        for what in instructions {
            let mut depends = false;
            effects::read(what, &mut |id| depends |= set.contains(&id));
            if depends {
                effects::written(what, &mut |id| _ = set.insert(id));
            }
        }
    }
}

/// Returns the registers of a loop that depend on the values that it finds in memory.
fn registers_from_memory(
    body: &[Statement],
    flow: &ControlFlow,
    inside: &HashSet<usize>,
) -> HashSet<RegisterId> {
    let mut instructions = instructions_of(body, flow, inside);
    instructions.truncate(STATEMENTS_MAX);
    let mut found = HashSet::new();
    for what in &instructions {
        if matches!(what.opcode, Opcode::Ld | Opcode::Atom) {
            effects::written(what, &mut |id| _ = found.insert(id));
        }
    }
    spread(&instructions, &mut found);
    found
}

/// Whether an atomic uses a value that the loop has found. Such a compare-and-swap succeeds in some
/// turns regardless of other threads.
fn uses_found_value(what: &Instruction, found: &HashSet<RegisterId>) -> bool {
    let mut takes = false;
    if what.opcode == Opcode::Atom {
        for operand in what.sources() {
            effects::registers_of(operand, &mut |id| takes |= found.contains(&id));
        }
    }
    takes
}

/// Whether an instruction looks for a value that another thread stores.
fn is_poll(what: &Instruction) -> bool {
    let is_seen =
        matches!(what.modifiers.space, None | Some(Space::Shared | Space::Global | Space::Generic));
    let polls = what.opcode == Opcode::Ld && effects::is_strong(&what.modifiers)
        || what.opcode == Opcode::Atom;
    is_seen && polls
}

/// Whether an instruction does more than look at memory.
fn has_effect(what: &Instruction) -> bool {
    match what.opcode {
        Opcode::Atom => {
            !matches!(
                what.modifiers.atomic,
                Some(Atomic::Cas | Atomic::Exch | Atomic::Or | Atomic::And)
            ) && !effects::keeps_word(what)
        }
        Opcode::St | Opcode::Red | Opcode::Call | Opcode::Trap | Opcode::CpAsync | Opcode::Sust => {
            true
        }
        opcode => is_meeting(opcode),
    }
}
