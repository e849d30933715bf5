//! Loops in which a thread only waits for a value in memory.
//!
//! If only other threads of the block can store the value, these threads must run while the waiting
//! thread stops. So the waiting thread stops in each turn ([`Stop::Yield`]). A value in global
//! memory may also come from elsewhere, so such a loop never counts as one that waits in vain
//! ([`Stop::Pause`]).
//!
//! Lanes that leave such a loop in different turns do not come together again before their next
//! meeting. So a loop must not count as one that waits if it cannot wait. That is so if no branch
//! in it, or in a loop around it, depends on what a thread reads from memory, from another thread
//! or from a clock: then the thread goes the same way whatever other threads do.

use std::collections::{HashMap, HashSet};

use super::effects;
use super::effects::is_meeting;
use super::flow::{self, ControlFlow};
use super::peers::{Peers, WaitingLoop};
use super::uniform::{self, Uniformity};
use crate::ir::{
    Atomic, Entry, Function, Instruction, Module, Opcode, Operand, RegisterId, Space, Special,
    Statement, Stop,
};

/// Largest number of statements of a loop that only waits. Compilers write some ten. A longer loop
/// does other work.
const STATEMENTS_MAX: usize = 64;

/// Most blocks and statements that the analysis visits to learn which loops of a kernel cannot
/// wait. Beyond it, all loops count as if they could. It is enough for 250 such loops in a cycle of
/// 2,000 blocks, and takes about a second without optimisation.
const VISITS_MAX: usize = 1_000_000;

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
    let mut visits = VISITS_MAX;
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
        let Some(turn) = LoopTurn::of(body, flow, (head, latch)) else { continue };
        if turn.polls.is_empty() || cannot_wait(body, flow, head, &mut visits) {
            continue;
        }
        let polls = |space: Option<Space>| turn.polls.iter().any(|(_, asked)| *asked == space);
        if polls(Some(Space::Shared)) {
            found.push((at, Stop::Yield));
        } else if all && polls(Some(Space::Global)) {
            found.push((at, Stop::Pause));
        } else if !turn.ends_by_itself(body, flow, (head, latch)) {
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

/// Whether a thread goes the same way through a loop and the loops around it whatever other threads
/// do. Takes what this costs from `visits`, and returns `false` if they do not suffice.
fn cannot_wait(body: &[Statement], flow: &ControlFlow, head: usize, visits: &mut usize) -> bool {
    let Some(around) = blocks_around(flow, head, visits) else { return false };
    let instructions = instructions_of(body, flow, &around);
    let Some(left) = visits.checked_sub(instructions.len()) else { return false };
    *visits = left;
    let mut open = HashSet::new();
    for what in instructions.iter().filter(|what| is_open(what)) {
        effects::written(what, &mut |id| _ = open.insert(id));
    }
    spread(&instructions, &mut open);
    !instructions.iter().any(|what| {
        let mut depends = false;
        effects::read(what, &mut |id| depends |= open.contains(&id));
        depends && flow::ends_block(what)
    })
}

/// Whether the result of an instruction depends on more than its operands: on memory, on another
/// thread, on a clock, or on the carry flag.
fn is_open(what: &Instruction) -> bool {
    match what.opcode {
        Opcode::Ld | Opcode::Ldu => what.modifiers.space != Some(Space::Const),
        Opcode::Tex | Opcode::Tld4 | Opcode::BarRed => true,
        _ => uniform::result_varies(what) || what.sources().iter().any(is_clock),
    }
}

/// Returns the blocks that lie on a way from a block back to it. Takes the number of blocks that it
/// visits from `visits`, and returns `None` if they do not suffice.
fn blocks_around(flow: &ControlFlow, head: usize, visits: &mut usize) -> Option<HashSet<usize>> {
    let mut reach = |next: &dyn Fn(usize) -> Vec<usize>| {
        let (mut seen, mut stack) = (HashSet::new(), vec![head]);
        while let Some(block) = stack.pop() {
            *visits = visits.checked_sub(1)?;
            stack.extend(next(block).into_iter().filter(|next| seen.insert(*next)));
        }
        Some(seen)
    };
    let behind = reach(&|block| {
        let next = flow.blocks[block].successors.iter().copied();
        next.filter(|next| *next != flow.exit()).collect()
    })?;
    let before = reach(&|block| flow.blocks[block].predecessors.clone())?;
    Some(behind.intersection(&before).copied().collect())
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

/// Adds all registers that depend on those of a set. Takes time in proportion to the instructions.
fn spread(instructions: &[&Instruction], set: &mut HashSet<RegisterId>) {
    let mut readers: HashMap<RegisterId, Vec<&Instruction>> = HashMap::new();
    for what in instructions {
        effects::read(what, &mut |id| readers.entry(id).or_default().push(what));
    }
    let mut stack: Vec<RegisterId> = set.iter().copied().collect();
    while let Some(id) = stack.pop() {
        for what in readers.get(&id).into_iter().flatten() {
            effects::written(what, &mut |id| {
                if set.insert(id) {
                    stack.push(id);
                }
            });
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
