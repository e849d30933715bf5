//! The search for pairs of accesses between which lanes must stop.

use std::collections::HashSet;

use super::access::{Access, AccessKind};
use super::address_form::AddressForm;
use super::alias::{self, Overlap};
use super::effects::is_meeting;
use super::flow::ControlFlow;
use super::regions::Regions;
use super::uniform::Uniformity;
use crate::ir::{Atomic, Instruction, Opcode, Statement};

/// Largest number of passes that look for places of stops. Each pass finds at least one.
const PASSES_MAX: usize = 2_000;

/// The accesses that may conflict with a later one at some place: each access since the last stop,
/// with the block from which on it counts again, because lanes that did not pass the last stop may
/// join there.
type Pending = HashSet<(usize, usize)>;

/// The access counts now.
const AWAKE: usize = usize::MAX;

/// A search for pairs of accesses without a stop in between.
pub(super) struct StopSearch<'a> {
    body: &'a [Statement],
    flow: &'a ControlFlow,
    uniform: &'a Uniformity,
    regions: &'a Regions,
    accesses: &'a [Access],
    dimensions: [bool; 2],
    /// The access of each statement that is one.
    access_of: Vec<Option<usize>>,
    /// Results of the comparisons so far.
    known: Vec<Option<Overlap>>,
    /// For each access, whether a load has the same address. A store there may be an update in
    /// place.
    in_place: Vec<bool>,
    /// For each access, whether a compare-and-swap has the same address. A load there is a first
    /// guess of the value that the compare-and-swap finds.
    swapped: Vec<bool>,
    /// Edges that bypass loops with barriers. A lenient search ignores them, because it assumes
    /// that a kernel executes these loops at least once.
    bypasses: HashSet<(usize, usize)>,
    /// Whether every possible pair counts.
    pub is_strict: bool,
    /// Whether a stop is put in front of the branch at which all threads are still together.
    pub lifts: bool,
    /// The statements that have a stop in front.
    pub orders: HashSet<usize>,
    /// The blocks at whose beginning lanes meet again; `kept` are those that do so permanently.
    pub joins: Vec<bool>,
    kept: Vec<bool>,
    /// The pending accesses behind each block.
    behind: Vec<Pending>,
    /// The blocks, mostly in the order in which control reaches them.
    sequence: Vec<usize>,
}

impl<'a> StopSearch<'a> {
    pub(super) fn of(
        body: &'a [Statement],
        flow: &'a ControlFlow,
        uniform: &'a Uniformity,
        regions: &'a Regions,
        accesses: &'a [Access],
        dimensions: [bool; 2],
    ) -> Self {
        let mut access_of = vec![None; body.len()];
        accesses
            .iter()
            .enumerate()
            .for_each(|(number, access)| access_of[access.at] = Some(number));
        let same = |wanted: &dyn Fn(&Access) -> bool| -> Vec<bool> {
            let has = |form: &AddressForm| {
                accesses.iter().any(|access| wanted(access) && access.form.is_same(form))
            };
            accesses.iter().map(|access| has(&access.form)).collect()
        };
        let blocks = flow.blocks.len();
        Self {
            body,
            flow,
            uniform,
            regions,
            accesses,
            dimensions,
            access_of,
            known: vec![None; accesses.len() * accesses.len()],
            in_place: same(&|access| access.kind == AccessKind::Load),
            swapped: same(&|access| access.operation == Some(Atomic::Cas)),
            bypasses: bypasses(body, flow, uniform, regions),
            is_strict: false,
            lifts: false,
            orders: HashSet::new(),
            joins: vec![false; blocks],
            kept: vec![false; blocks],
            behind: vec![Pending::new(); blocks],
            sequence: (0..blocks).filter(|block| flow.reached[*block]).collect(),
        }
    }

    /// Whether the kernel has a pair that kernels which exchange values at barriers only do not
    /// have.
    pub(super) fn has_exchange(&mut self) -> bool {
        self.propagate();
        for index in 0..self.sequence.len() {
            let block = self.sequence[index];
            if self.pass_block(block, true).1.is_some() {
                return true;
            }
        }
        false
    }

    /// Finds stops until no pair is left.
    pub(super) fn find_stops(&mut self) {
        self.orders.clear();
        for _ in 0..PASSES_MAX {
            self.find_joins();
            self.propagate();
            let mut fresh = Vec::new();
            for index in 0..self.sequence.len() {
                if let (_, Some(found)) = self.pass_block(self.sequence[index], true) {
                    fresh.push(found);
                }
            }
            if fresh.is_empty() {
                return;
            }
            self.orders.extend(fresh);
        }
    }

    pub(super) fn keep_joins(&mut self) {
        self.find_joins();
        self.kept = self.joins.clone();
    }

    /// Finds where lanes meet again, given the stops so far.
    pub(super) fn find_joins(&mut self) {
        let mut stops = self.kept.clone();
        for (at, statement) in self.body.iter().enumerate() {
            let block = self.flow.block_of[at];
            let meets =
                matches!(statement, Statement::Instruction(what) if is_meeting(what.opcode));
            if self.flow.reached[block] && (meets || self.orders.contains(&at)) {
                stops[block] = true;
            }
        }
        self.joins = self.regions.joins(self.flow, &stops);
        self.joins.iter_mut().zip(&self.kept).for_each(|(join, kept)| *join |= kept);
    }

    /// Computes the pending accesses behind each block, given the stops so far.
    fn propagate(&mut self) {
        self.behind.iter_mut().for_each(HashSet::clear);
        let mut changed = true;
        while changed {
            changed = false;
            for index in 0..self.sequence.len() {
                let block = self.sequence[index];
                let (behind, _) = self.pass_block(block, false);
                if behind != self.behind[block] {
                    self.behind[block] = behind;
                    changed = true;
                }
            }
        }
    }

    /// Returns the pending accesses behind a block and, if `looks` is set, the place of the first
    /// missing stop in it.
    fn pass_block(&mut self, block: usize, looks: bool) -> (Pending, Option<usize>) {
        let mut pending = Pending::new();
        for before in &self.flow.blocks[block].predecessors {
            if !self.is_strict && self.bypasses.contains(&(*before, block)) {
                continue;
            }
            pending.extend(&self.behind[*before]);
        }
        if self.is_strict && self.joins[block] {
            pending.clear();
        }
        pending = pending
            .into_iter()
            .map(|(access, from)| (access, if from == block { AWAKE } else { from }))
            .collect();
        let mut missing = None;
        for at in self.flow.blocks[block].start..self.flow.blocks[block].end {
            let Statement::Instruction(what) = &self.body[at] else { continue };
            if self.orders.contains(&at) {
                pending.clear();
            }
            if is_meeting(what.opcode) {
                self.pass_meeting(what, block, &mut pending);
            }
            if let Some(number) = self.access_of[at] {
                if looks && missing.is_none() {
                    missing = self.missing_stop(number, &pending);
                }
                pending.insert((number, AWAKE));
            }
        }
        (pending, missing)
    }

    /// Removes the accesses that are no longer pending behind a meeting of the text.
    fn pass_meeting(&self, what: &Instruction, block: usize, pending: &mut Pending) {
        let is_sure = what.guard.is_none_or(|guard| self.uniform.register(guard.register));
        if what.opcode == Opcode::BarArrive || !is_sure {
            return;
        }
        if self.is_strict {
            pending.clear();
            return;
        }
        let sleeps = |access: &usize| {
            let region = self.regions.common(self.accesses[*access].block, block)?;
            (region.join != self.flow.exit()).then_some(region.join)
        };
        *pending = pending
            .iter()
            .filter_map(|(access, from)| match *from {
                AWAKE => sleeps(access).map(|join| (*access, join)),
                from => Some((*access, from)),
            })
            .collect();
    }

    /// Returns the place where a stop is missing before an access, if there is one.
    fn missing_stop(&mut self, later: usize, pending: &Pending) -> Option<usize> {
        let mut earlier: Vec<usize> =
            pending.iter().filter(|(_, from)| *from == AWAKE).map(|(access, _)| *access).collect();
        earlier.retain(|earlier| self.is_pair(*earlier, later));
        if earlier.is_empty() {
            return None;
        }
        let Access { at, block, .. } = self.accesses[later];
        if !self.lifts || self.uniform.block(block) {
            return Some(at);
        }
        // If an access before it is the reason, the stop goes in front of the last branch that all
        // threads reach together.
        let above = self.regions.branches.iter().copied().filter(|branch| *branch != block);
        let above = above
            .filter(|branch| self.uniform.block(*branch) && self.flow.dominates(*branch, block));
        let above =
            above.reduce(|one, other| if self.flow.dominates(one, other) { other } else { one });
        let lifted = above.and_then(|branch| {
            let place = self.flow.blocks[branch].end - 1;
            let is_reason =
                earlier.iter().any(|access| self.behind[branch].contains(&(*access, AWAKE)));
            (is_reason && !self.orders.contains(&place)).then_some(place)
        });
        Some(lifted.unwrap_or(at))
    }

    fn overlap(&mut self, earlier: usize, later: usize) -> Overlap {
        let place = earlier * self.accesses.len() + later;
        let (one, other) = (&self.accesses[earlier], &self.accesses[later]);
        *self.known[place].get_or_insert_with(|| {
            alias::overlap(
                (&one.form, &one.conditions),
                (&other.form, &other.conditions),
                self.dimensions,
            )
        })
    }

    /// Whether lanes have to stop between two accesses.
    fn is_pair(&mut self, earlier: usize, later: usize) -> bool {
        let (one, other) = (&self.accesses[earlier], &self.accesses[later]);
        let kinds = (one.kind, other.kind);
        if one.is_global != other.is_global
            || kinds == (AccessKind::Load, AccessKind::Load)
            || kinds == (AccessKind::Atomic, AccessKind::Atomic) && one.operation == other.operation
        {
            return false;
        }
        let (is_global, same_base) = (one.is_global, one.form.has_base_of(&other.form));
        if is_global && !same_base {
            return false;
        }
        let overlap = self.overlap(earlier, later);
        if overlap == Overlap::Never {
            return false;
        }
        let (one, other) = (&self.accesses[earlier], &self.accesses[later]);
        match kinds {
            (AccessKind::Store, AccessKind::Load) if !self.is_strict => {
                !(one.form.strides && other.form.strides && self.in_place[earlier])
            }
            (AccessKind::Atomic, AccessKind::Load) if !self.is_strict => !self.swapped[later],
            (AccessKind::Store, AccessKind::Load | AccessKind::Atomic)
            | (AccessKind::Atomic, AccessKind::Load) => true,
            // If all lanes, or one lane, execute two operations on one word, the lanes' own order
            // is right.
            (AccessKind::Atomic, AccessKind::Atomic) => {
                overlap == Overlap::Surely && !one.form.is_same(&other.form)
            }
            _ if is_global => self.is_strict,
            _ if self.is_strict => true,
            (AccessKind::Load, AccessKind::Store) => {
                overwrites(one, other, overlap, self.in_place[later])
            }
            // A load of the same word may be a first look that the atomic does not rely on.
            (AccessKind::Load, AccessKind::Atomic) => match overlap {
                Overlap::Surely => !one.form.is_same(&other.form),
                _ => same_base && one.form.is_linear() != other.form.is_linear(),
            },
            (AccessKind::Atomic, AccessKind::Store) => same_base || overlap == Overlap::Surely,
            (AccessKind::Store, AccessKind::Store) => {
                let in_place = self.in_place[earlier] && self.in_place[later];
                earlier != later && same_base && scatters(one, other, overlap, in_place)
            }
            _ => false,
        }
    }
}

/// Returns the edges that bypass loops whose barriers all threads reach together, from the branch
/// to the block behind the loop.
fn bypasses(
    body: &[Statement],
    flow: &ControlFlow,
    uniform: &Uniformity,
    regions: &Regions,
) -> HashSet<(usize, usize)> {
    let meets = |block: usize| {
        let range = flow.blocks[block].start..flow.blocks[block].end;
        regions.in_loop[block]
            && uniform.block(block)
            && body[range].iter().any(|statement| match statement {
                Statement::Instruction(what) => is_meeting(what.opcode) && what.guard.is_none(),
                Statement::Label(_) => false,
            })
    };
    let meeting: Vec<usize> =
        (0..flow.blocks.len()).filter(|block| flow.reached[*block] && meets(*block)).collect();
    let mut found = HashSet::new();
    for (branch, block) in
        flow.blocks.iter().enumerate().filter(|(branch, _)| flow.reached[*branch])
    {
        let join = flow.postdominator(branch);
        let [one, other] = block.successors[..] else { continue };
        if join == flow.exit() || !block.successors.contains(&join) {
            continue;
        }
        let inner = if one == join { other } else { one };
        let leads =
            |meeting: &usize| flow.dominates(inner, *meeting) && !flow.dominates(join, *meeting);
        // A branch inside the loop leaves the loop; it does not bypass it.
        let is_outside = inner != flow.exit() && !flow.dominates(inner, branch);
        if is_outside && meeting.iter().any(leads) {
            found.insert((branch, join));
        }
    }
    found
}

/// Whether the order in which two lanes store into one word may matter, in a kernel that may
/// exchange values at barriers only. Such a kernel stores to computed places, each of which belongs
/// to one thread. Two such places are not compared.
fn scatters(one: &Access, other: &Access, overlap: Overlap, in_place: bool) -> bool {
    match overlap {
        Overlap::Never => false,
        Overlap::Surely => !(one.conditions.others && other.conditions.others),
        Overlap::Perhaps { .. } => {
            one.form.is_linear() != other.form.is_linear()
                && !in_place
                && !(one.form.strides && other.form.strides)
        }
    }
}

/// Whether a store may change a value that another lane loads before it, in a kernel that may
/// exchange values at barriers only.
fn overwrites(load: &Access, store: &Access, overlap: Overlap, in_place: bool) -> bool {
    let is_chosen = load.conditions.others && store.conditions.others;
    match overlap {
        Overlap::Never => false,
        Overlap::Surely => !(in_place && is_chosen),
        Overlap::Perhaps { warp_shares } if !in_place => {
            !warp_shares && load.form.has_base_of(&store.form)
        }
        Overlap::Perhaps { .. } => {
            if is_chosen || !load.form.is_linear() || !store.form.is_linear() {
                return false;
            }
            match load.form.apart_by(&store.form) {
                // A lane that loads from this distance ahead is below the bound, so no lane stores
                // there.
                Some((distance, true)) => !store.conditions.below.contains(&distance),
                Some((_, false)) => true,
                None => false,
            }
        }
    }
}
