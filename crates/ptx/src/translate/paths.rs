//! How many ways lead through a kernel that pass different barriers.
//!
//! A barrier that only some ways through a kernel pass becomes a barrier in a branch of OpenCL C.
//! PoCL copies all that comes behind such a barrier, once for each of the ways that lead there, so
//! the time to build a kernel grows like two to the power of such branches in a row.

use std::collections::HashSet;

use super::flow::Flow;
use super::uniform::Uniform;
use super::warp::is_meeting;
use crate::ir::{Function, Statement};

/// A compiler may copy this number of ways, however long they are. Three branches in a row make 8 ways.
const WAYS_MIN: usize = 8;

/// Statements of all copies beside the first, above which a kernel with more ways is a state machine. Such a
/// kernel is some 30 times slower, so only a long time to build it is worse. PoCL took 4 s for 1,200
/// statements on 64 ways, 2 s for 1,900 on 16, 13 s for 2,400 on 128 and 9 s for 3,800 on 32, and the
/// time grows with the square of the number.
const COPIES_MAX: usize = 2_000;

/// Whether more ways lead through the kernel than a device's compiler can copy in time.
pub(super) fn are_too_many(function: &Function, flow: &Flow, uniform: &Uniform) -> bool {
    let (always, sometimes) = barriers(function, flow, uniform);
    if always.len() + sometimes.len() < WAYS_MIN.ilog2() as usize {
        return false;
    }
    let is_back = |from: usize, to: usize| flow.dominates(to, from);
    let mut waits: Vec<usize> = (0..flow.blocks.len())
        .map(|block| {
            let before = flow.blocks[block].before.iter();
            before.filter(|from| flow.reached[**from] && !is_back(**from, block)).count()
        })
        .collect();
    // Of each block, the ways that lead to it: a number for each sequence of barriers.
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
        for &next in flow.blocks[block].next.iter().filter(|next| **next != flow.exit()) {
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

/// The number of a way that goes on through a block (FNV-1a).
fn extended(way: u64, block: usize) -> u64 {
    (way ^ (block as u64 + 1)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The blocks that not all ways through the kernel pass, and that have barriers: those where every
/// thread that comes by meets the barrier, and those where a predicate says so.
fn barriers(
    function: &Function,
    flow: &Flow,
    uniform: &Uniform,
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
