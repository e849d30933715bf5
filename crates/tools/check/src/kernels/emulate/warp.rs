//! What the lanes of a warp tell each other.

use super::{Block, Here, Refusal, folded, number};
use crate::kernels::program::{Exchange, LANES, Mask, Shuffle, Value, Vote};

impl Block<'_> {
    /// Checks that the mask here names all active threads, and no others that have not ended: "the
    /// executing thread waits until all non-exited threads corresponding to membermask have
    /// executed" the instruction "with the same membermask value".
    pub(super) fn all_here(&self, here: Here) -> Result<(), Refusal> {
        let named = here.known.ok_or(Refusal::Mask)? & self.alive;
        if named == here.active { Ok(()) } else { Err(Refusal::Mask) }
    }

    /// Returns the groups of threads that take part together.
    pub(super) fn groups(&self, here: Here, mask: Mask) -> Result<Vec<Vec<usize>>, Refusal> {
        let size = match mask {
            Mask::Group(size) => {
                self.all_here(here)?;
                (size as usize).clamp(1, LANES)
            }
            Mask::Here => {
                self.all_here(here)?;
                LANES
            }
            Mask::All => {
                // Each warp that is here at all must be here as a whole.
                for warp in 0..self.threads.len().div_ceil(LANES) {
                    let lanes = 0xffff_ffff_u128 << (warp * LANES);
                    let active = here.active & lanes;
                    if active != 0 && active != self.alive & lanes {
                        return Err(Refusal::Mask);
                    }
                }
                LANES
            }
        };
        let starts = (0..self.threads.len()).step_by(size);
        let group = |start: usize| -> Vec<usize> {
            let end = (start + size).min(self.threads.len());
            (start..end).filter(|thread| here.active >> thread & 1 == 1).collect()
        };
        Ok(starts.map(group).filter(|group| !group.is_empty()).collect())
    }

    pub(super) fn exchange(
        &mut self,
        here: Here,
        to: u8,
        what: &Exchange,
        mask: Mask,
    ) -> Result<(), Refusal> {
        let mut results = Vec::new();
        for group in self.groups(here, mask)? {
            for &thread in &group {
                results.push((thread, self.told(thread, &group, what)?));
            }
        }
        for (thread, result) in results {
            *self.register(thread, to) = result;
        }
        Ok(())
    }

    /// Returns what a thread gets from the threads of its group.
    fn told(&self, thread: usize, group: &[usize], what: &Exchange) -> Result<u32, Refusal> {
        let bit = |thread: &usize| 1_u32 << (thread % LANES);
        let mask = |threads: &mut dyn Iterator<Item = &usize>| {
            threads.fold(0, |all, thread| all | bit(thread))
        };
        let all = mask(&mut group.iter());
        Ok(match what {
            Exchange::Shuffle { mode, from, lane, segment, holds } => {
                let by = self.value(thread, *lane) & 31;
                let (source, is_in) = source(number(thread % LANES), by, *mode, *segment);
                let other = thread / LANES * LANES + source as usize;
                // "The result is undefined if the source lane is inactive or not in membermask."
                if !group.contains(&other) {
                    return Err(Refusal::Mask);
                }
                let value = self.value(other, Value::Register(*from));
                value.wrapping_add(u32::from(*holds && is_in))
            }
            Exchange::Lead { from } => {
                let last = group.last().copied().unwrap_or(thread);
                self.value(last, Value::Register(*from))
            }
            // "vote.all: true if the predicate is true for all non-exited threads in membermask;
            // uni: if it has the same value in all of them; ballot: the predicate from each
            // thread in the corresponding bit."
            Exchange::Vote { mode, condition } => {
                let mut yes = group.iter().filter(|thread| self.holds(**thread, condition));
                let yes = mask(&mut yes);
                match mode {
                    Vote::All => u32::from(yes == all),
                    Vote::Any => u32::from(yes != 0),
                    Vote::Uniform => u32::from(yes == all || yes == 0),
                    Vote::Ballot => yes,
                }
            }
            // "match.any: d is the mask of the non-exited threads in membermask whose a has the
            // same value; match.all: d is this membermask if all have the same value, else 0".
            Exchange::Match { all: wants_all, from } => {
                let value = |thread: usize| self.value(thread, Value::Register(*from));
                let own = value(thread);
                let same = mask(&mut group.iter().filter(|thread| value(**thread) == own));
                if *wants_all && same != all { 0 } else { same }
            }
            Exchange::Reduce { how, from } => {
                let values = group.iter().map(|thread| self.value(*thread, Value::Register(*from)));
                values.reduce(|one, other| folded(*how, one, other)).unwrap_or(0)
            }
        })
    }
}

/// Returns the source lane, and the predicate: "
/// `segmask = c[12:8]; maxLane = (lane & segmask) | (cval & ~segmask); minLane = lane & segmask`;
/// `.up: j = lane - bval; pval = (j >= maxLane)`; `.down: j = lane + bval; pval = (j <= maxLane)`;
/// `.bfly: j = lane ^ bval; pval = (j <= maxLane)`; `.idx: j = minLane | (bval & ~segmask); pval =
/// (j <= maxLane)`; `if (!pval) j = lane`". `c` is that of CUDA's functions with a width.
fn source(lane: u32, by: u32, mode: Shuffle, segment: u32) -> (u32, bool) {
    let [clamp, segments] = parts(mode, segment);
    let highest = lane & segments | clamp & !segments & 31;
    let (source, is_in) = match mode {
        Shuffle::Up => {
            let source = lane.checked_sub(by);
            (source.unwrap_or(0), source.is_some_and(|source| source >= highest))
        }
        Shuffle::Down => (lane + by, lane + by <= highest),
        Shuffle::Butterfly => (lane ^ by, lane ^ by <= highest),
        Shuffle::Index => {
            let source = lane & segments | by & !segments & 31;
            (source, source <= highest)
        }
    };
    (if is_in { source } else { lane }, is_in)
}

/// Returns the two parts of the third operand.
pub fn parts(mode: Shuffle, segment: u32) -> [u32; 2] {
    let segments = 32_u32.wrapping_sub(segment) & 31;
    [if mode == Shuffle::Up { 0 } else { 31 }, segments]
}
