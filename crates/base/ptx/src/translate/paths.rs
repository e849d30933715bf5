//! The number of paths through a kernel that pass different barriers.
//!
//! A barrier that only some paths through a kernel pass becomes a barrier in a branch of OpenCL C.
//! PoCL copies all code behind such a barrier, once for each of the paths that lead there. So the
//! time to build a kernel doubles with each such branch in a row.

use std::collections::HashSet;

use super::effects::is_meeting;
use super::flow::ControlFlow;
use super::uniform::Uniformity;
use crate::ir::{Function, Statement};

/// Number of paths that a compiler may always copy, however long they are. Three branches in a row
/// make 8 paths.
const WAYS_MIN: usize = 8;

/// Largest number of statements in all copies except the first. A kernel with more paths and more
/// statements becomes a state machine. That is some 30 times slower, so only a long build time is
/// worse. PoCL took 4 s for 1,200 statements on 64 paths, 2 s for 1,900 on 16, 13 s for 2,400 on
/// 128 and 9 s for 3,800 on 32. The time grows with the square of the number.
const COPIES_MAX: usize = 2_000;

/// Whether more paths lead through the kernel than a device's compiler can copy in time.
pub(super) fn are_too_many(function: &Function, flow: &ControlFlow, uniform: &Uniformity) -> bool {
    let (always, sometimes) = barriers(function, flow, uniform);
    if always.len() + sometimes.len() < WAYS_MIN.ilog2() as usize {
        return false;
    }
    let is_back = |from: usize, to: usize| flow.dominates(to, from);
    let mut waits: Vec<usize> = (0..flow.blocks.len())
        .map(|block| {
            let before = flow.blocks[block].predecessors.iter();
            before.filter(|from| flow.reached[**from] && !is_back(**from, block)).count()
        })
        .collect();
    // For each block, the paths that lead to it: a number for each sequence of barriers.
    let mut ways: Vec<HashSet<u64>> = vec![HashSet::new(); flow.blocks.len()];
    ways[0].insert(0);
    let (mut copies, mut most) = (0, 0);
    let mut ready = vec![0];
    while let Some(block) = ready.pop() {
        let mut here = std::mem::take(&mut ways[block]);
        let passed = |way: u64| extended(way, block);
        if sometimes.contains(&block) {
            here.extend(here.clone().into_iter().map(passed));
        } else if always.contains(&block) {
            here = here.into_iter().map(passed).collect();
        }
        let more = here.len().saturating_sub(1);
        copies += more * (flow.blocks[block].end - flow.blocks[block].start);
        most = most.max(here.len());
        if most > WAYS_MIN && copies > COPIES_MAX {
            return true;
        }
        for &next in flow.blocks[block].successors.iter().filter(|next| **next != flow.exit()) {
            if !is_back(block, next) {
                ways[next].extend(&here);
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }
    }
    false
}

/// Returns the number of a path that continues through a block (FNV-1a).
fn extended(way: u64, block: usize) -> u64 {
    (way ^ (block as u64 + 1)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Returns the blocks with barriers that not all paths pass. In the first set every thread that
/// reaches the block takes part in the barrier; in the second set a predicate decides.
fn barriers(
    function: &Function,
    flow: &ControlFlow,
    uniform: &Uniformity,
) -> (HashSet<usize>, HashSet<usize>) {
    let (mut always, mut sometimes) = (HashSet::new(), HashSet::new());
    for (at, statement) in function.body.iter().flatten().enumerate() {
        let Statement::Instruction(what) = statement else { continue };
        let block = flow.block_of[at];
        if !flow.reached[block] || !is_meeting(what.opcode) && !uniform.agreed.contains(&at) {
            continue;
        }
        if what.guard.is_some() {
            sometimes.insert(block);
        } else if !flow.postdominates(block, 0) {
            always.insert(block);
        }
    }
    (always, sometimes)
}
