//! The order of memory accesses by the lanes of a warp.
//!
//! On a GPU, the lanes of a warp that are together execute one instruction after the other, each in
//! all lanes. Programs rely on that: one lane stores and another one loads, without a
//! `bar.warp.sync` in between. Here a thread runs alone up to its next meeting. So if a lane may
//! load what another one has stored, or store over a value that another one has yet to load, the
//! lanes that are together stop in between ([`Stop::Order`]), and lanes that took different paths
//! meet again where the paths do ([`Stop::Rejoin`]). This analysis finds such pairs of accesses. A
//! kernel without pairs stays unchanged.
//!
//! Many kernels exchange values between barriers only, and update their own values in place, at
//! addresses that cannot be compared: the steps of a fast Fourier transform are an example. A
//! first, lenient search decides whether the kernel has any pair that no such kernel has. Only in
//! that case do the lanes stop between all possible pairs.

use std::collections::HashSet;

use super::alias::{self, Form, Forms, Overlap};
use super::flow::Flow;
use super::guards::{Conditions, Guards};
use super::linear::Sums;
use super::regions::Regions;
use super::roots::{self, Roots};
use super::uniform::Uniform;
use super::warp::is_meeting;
use super::{machine, spin};
use crate::ir::{
    Atomic, Cache, Entry, Function, Instruction, Modifiers, Module, Opcode, Semantics, Space,
    Statement, Stop,
};

/// Largest number of accesses of a kernel that are compared with each other. Beyond it, the pairs
/// would need more memory than the text itself, and lanes stop in front of every access.
const ACCESSES_MAX: usize = 4_000;

/// Largest number of passes that look for places of stops. Each pass finds at least one.
const PASSES_MAX: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    Atomic,
}

/// An access to memory that the lanes of a warp share.
struct Access {
    at: usize,
    block: usize,
    kind: Kind,
    form: Form,
    guards: Guards,
    is_global: bool,
    /// Operation of an atomic.
    operation: Option<Atomic>,
}

/// Inserts stops into a kernel that needs them.
pub(super) fn put_in(module: &Module, entry: &Entry, function: &mut Function) {
    let stops = {
        let flow = Flow::of(function);
        let uniform = Uniform::of(function, &flow, &HashSet::new(), HashSet::new());
        let mut stops = find(module, entry, function, &flow, &uniform);
        let all = !stops.is_empty();
        stops.extend(spin::yields(module, entry, function, (&flow, &uniform), all));
        stops
    };
    if !stops.is_empty() {
        insert(function, stops);
    }
}

/// Returns the statements in front of which lanes stop, and why.
fn find(
    module: &Module,
    entry: &Entry,
    function: &Function,
    flow: &Flow,
    uniform: &Uniform,
) -> Vec<(usize, Stop)> {
    let body = function.body.as_deref().unwrap_or_default();
    let wanted = |kinds: &[Opcode]| {
        body.iter().any(|statement| match statement {
            Statement::Instruction(what) => {
                kinds.contains(&what.opcode) && is_shared(&what.modifiers)
            }
            Statement::Label(_) => false,
        })
    };
    let exchanges = wanted(&[Opcode::Ld, Opcode::Atom])
        && wanted(&[Opcode::St, Opcode::Atom, Opcode::Red, Opcode::CpAsync]);
    let asks_who_is_here = asks_who_is_here(body) && machine::is_needed(function, flow, uniform);
    if !exchanges && !asks_who_is_here {
        return Vec::new();
    }
    let Some(regions) = Regions::of(function, flow, uniform) else {
        return everywhere(body, flow);
    };
    let sums = Sums::of(module, entry, function, flow, uniform);
    let forms = Forms::of(function, flow, &sums, uniform, &regions.in_loop);
    let conditions = Conditions::of(function, flow, &sums, uniform, &forms);
    let accesses = accesses(function, flow, &forms, &conditions);
    if accesses.len() > ACCESSES_MAX {
        return everywhere(body, flow);
    }
    let mut search = Search::of(body, flow, uniform, &regions, &accesses, forms.dimensions);
    let rejoins = |joins: &[bool]| -> Vec<(usize, Stop)> {
        let joins = joins.iter().enumerate().filter(|(_, is_join)| **is_join);
        joins.map(|(block, _)| (behind_labels(body, flow, block), Stop::Rejoin)).collect()
    };
    if !search.has_exchange() {
        if asks_who_is_here {
            search.find_joins();
            return rejoins(&search.joins);
        }
        return Vec::new();
    }
    search.is_strict = true;
    search.lifts = true;
    search.places();
    let is_machine = machine::is_needed(function, flow, uniform)
        || search.orders.iter().any(|at| !uniform.block(flow.block_of[*at]));
    if is_machine {
        search.lifts = false;
        search.places();
        // Once more, because the lanes now come together in more places.
        search.keep_joins();
        search.places();
        search.keep_joins();
    } else {
        search.joins.fill(false);
    }
    let mut stops = rejoins(&search.joins);
    stops.extend(search.orders.iter().map(|at| (*at, Stop::Order)));
    stops
}

/// Whether some instruction works on the lanes that happen to be together.
fn asks_who_is_here(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(what) => match what.opcode {
            Opcode::Activemask => true,
            Opcode::Vote | Opcode::Shfl => !what.modifiers.sync,
            _ => false,
        },
        Statement::Label(_) => false,
    })
}

/// Returns a stop in front of every access, for kernels that are too large to analyse.
fn everywhere(body: &[Statement], flow: &Flow) -> Vec<(usize, Stop)> {
    let accesses = body.iter().enumerate().filter(|(at, statement)| match statement {
        Statement::Instruction(what) => {
            flow.reached[flow.block_of[*at]] && kind(what).is_some() && is_shared(&what.modifiers)
        }
        Statement::Label(_) => false,
    });
    accesses.map(|(at, _)| (at, Stop::Order)).collect()
}

/// Whether an access may be ordered by stops: it may be to shared memory, or is a strong access to
/// global memory.
fn is_shared(modifiers: &Modifiers) -> bool {
    matches!(modifiers.space, Some(Space::Shared | Space::Generic) | None)
        || modifiers.space == Some(Space::Global) && is_strong(modifiers)
}

/// Whether other threads may change or see the memory meanwhile.
fn is_strong(modifiers: &Modifiers) -> bool {
    modifiers.volatile
        || modifiers.cache == Some(Cache::Cv)
        || modifiers.semantics.is_some_and(|semantics| semantics != Semantics::Weak)
}

fn kind(what: &Instruction) -> Option<Kind> {
    match what.opcode {
        Opcode::Ld | Opcode::Ldu => Some(Kind::Load),
        Opcode::St | Opcode::CpAsync => Some(Kind::Store),
        Opcode::Atom | Opcode::Red => Some(Kind::Atomic),
        _ => None,
    }
}

/// Largest number of bytes that a `cp.async` copies.
const COPY_BYTES: u32 = 16;

fn accesses(
    function: &Function,
    flow: &Flow,
    forms: &Forms<'_>,
    conditions: &Conditions<'_>,
) -> Vec<Access> {
    let body = function.body.as_deref().unwrap_or_default();
    let roots = Roots::of(function);
    let mut found = Vec::new();
    let mut guards = (usize::MAX, Guards::default());
    for (at, statement) in body.iter().enumerate() {
        let Statement::Instruction(what) = statement else { continue };
        let (block, Some(kind)) = (flow.block_of[at], kind(what)) else { continue };
        let Some((address, bytes)) = alias::accessed(what).filter(|_| flow.reached[block]) else {
            continue;
        };
        let bytes = if what.opcode == Opcode::CpAsync { COPY_BYTES } else { bytes };
        let own = roots.operand(&crate::ir::Operand::Address(*address));
        let (is_global, variables) = match (what.modifiers.space, own) {
            (Some(Space::Shared), 0) => (false, roots::ANY),
            (Some(Space::Shared), own) => (false, own),
            (None | Some(Space::Generic), 0) if what.opcode != Opcode::CpAsync => {
                (false, roots.escaped)
            }
            (None | Some(Space::Generic), own) => (false, own),
            // Other blocks and the host also exchange values in global memory, but that does not
            // concern warps.
            (Some(Space::Global), _) if is_strong(&what.modifiers) && kind != Kind::Atomic => {
                (true, roots::ANY)
            }
            (_, own) if what.opcode == Opcode::CpAsync => {
                (false, if own == 0 { roots::ANY } else { own })
            }
            _ => continue,
        };
        if variables == 0 {
            continue;
        }
        let form = forms.form(address, at, bytes, variables);
        if is_global && !form.differs_in_warp() {
            continue;
        }
        if guards.0 != block {
            guards = (block, conditions.in_block(block));
        }
        let guards = conditions.with(what, at, &guards.1);
        let operation = what.modifiers.atomic;
        found.push(Access { at, block, kind, form, guards, is_global, operation });
    }
    found
}

/// The accesses that may conflict with a later one at some place: each access since the last stop,
/// with the block from which on it counts again, because lanes that did not pass the last stop may
/// join there.
type Pending = HashSet<(usize, usize)>;

/// The access counts now.
const AWAKE: usize = usize::MAX;

/// A search for pairs of accesses without a stop in between.
struct Search<'a> {
    body: &'a [Statement],
    flow: &'a Flow,
    uniform: &'a Uniform,
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
    around: HashSet<(usize, usize)>,
    /// Whether every possible pair counts.
    is_strict: bool,
    /// Whether a stop is put in front of the branch at which all threads are still together.
    lifts: bool,
    /// The statements that have a stop in front.
    orders: HashSet<usize>,
    /// The blocks at whose beginning lanes meet again; `kept` are those that do so permanently.
    joins: Vec<bool>,
    kept: Vec<bool>,
    /// The pending accesses behind each block.
    behind: Vec<Pending>,
    /// The blocks, mostly in the order in which control reaches them.
    sequence: Vec<usize>,
}

impl<'a> Search<'a> {
    fn of(
        body: &'a [Statement],
        flow: &'a Flow,
        uniform: &'a Uniform,
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
            let has = |form: &Form| {
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
            in_place: same(&|access| access.kind == Kind::Load),
            swapped: same(&|access| access.operation == Some(Atomic::Cas)),
            around: around(body, flow, uniform, regions),
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
    fn has_exchange(&mut self) -> bool {
        self.settle();
        for index in 0..self.sequence.len() {
            let block = self.sequence[index];
            if self.walk(block, true).1.is_some() {
                return true;
            }
        }
        false
    }

    /// Finds stops until no pair is left.
    fn places(&mut self) {
        self.orders.clear();
        for _ in 0..PASSES_MAX {
            self.find_joins();
            self.settle();
            let mut fresh = Vec::new();
            for index in 0..self.sequence.len() {
                if let (_, Some(found)) = self.walk(self.sequence[index], true) {
                    fresh.push(found);
                }
            }
            if fresh.is_empty() {
                return;
            }
            self.orders.extend(fresh);
        }
    }

    fn keep_joins(&mut self) {
        self.find_joins();
        self.kept = self.joins.clone();
    }

    /// Finds where lanes meet again, given the stops so far.
    fn find_joins(&mut self) {
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
    fn settle(&mut self) {
        self.behind.iter_mut().for_each(HashSet::clear);
        let mut changed = true;
        while changed {
            changed = false;
            for index in 0..self.sequence.len() {
                let block = self.sequence[index];
                let (behind, _) = self.walk(block, false);
                if behind != self.behind[block] {
                    self.behind[block] = behind;
                    changed = true;
                }
            }
        }
    }

    /// Returns the pending accesses behind a block and, if `looks` is set, the place of the first
    /// missing stop in it.
    fn walk(&mut self, block: usize, looks: bool) -> (Pending, Option<usize>) {
        let mut pending = Pending::new();
        for before in &self.flow.blocks[block].before {
            if !self.is_strict && self.around.contains(&(*before, block)) {
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
                self.meet(what, block, &mut pending);
            }
            if let Some(number) = self.access_of[at] {
                if looks && missing.is_none() {
                    missing = self.missing(number, &pending);
                }
                pending.insert((number, AWAKE));
            }
        }
        (pending, missing)
    }

    /// Removes the accesses that are no longer pending behind a meeting of the text.
    fn meet(&self, what: &Instruction, block: usize, pending: &mut Pending) {
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
    fn missing(&mut self, later: usize, pending: &Pending) -> Option<usize> {
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
            alias::overlap((&one.form, &one.guards), (&other.form, &other.guards), self.dimensions)
        })
    }

    /// Whether lanes have to stop between two accesses.
    fn is_pair(&mut self, earlier: usize, later: usize) -> bool {
        let (one, other) = (&self.accesses[earlier], &self.accesses[later]);
        let kinds = (one.kind, other.kind);
        if one.is_global != other.is_global
            || kinds == (Kind::Load, Kind::Load)
            || kinds == (Kind::Atomic, Kind::Atomic) && one.operation == other.operation
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
            (Kind::Store, Kind::Load) if !self.is_strict => {
                !(one.form.strides && other.form.strides && self.in_place[earlier])
            }
            (Kind::Atomic, Kind::Load) if !self.is_strict => !self.swapped[later],
            (Kind::Store, Kind::Load | Kind::Atomic) | (Kind::Atomic, Kind::Load) => true,
            // If all lanes, or one lane, execute two operations on one word, the lanes' own order
            // is right.
            (Kind::Atomic, Kind::Atomic) => {
                overlap == Overlap::Surely && !one.form.is_same(&other.form)
            }
            _ if is_global => self.is_strict,
            _ if self.is_strict => true,
            (Kind::Load, Kind::Store) => overwrites(one, other, overlap, self.in_place[later]),
            // A load of the same word may be a first look that the atomic does not rely on.
            (Kind::Load, Kind::Atomic) => match overlap {
                Overlap::Surely => !one.form.is_same(&other.form),
                _ => same_base && one.form.is_linear() != other.form.is_linear(),
            },
            (Kind::Atomic, Kind::Store) => same_base || overlap == Overlap::Surely,
            (Kind::Store, Kind::Store) => {
                let in_place = self.in_place[earlier] && self.in_place[later];
                earlier != later && same_base && scatters(one, other, overlap, in_place)
            }
            _ => false,
        }
    }
}

/// Returns the edges that bypass loops whose barriers all threads reach together, from the branch
/// to the block behind the loop.
fn around(
    body: &[Statement],
    flow: &Flow,
    uniform: &Uniform,
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
        let [one, other] = block.next[..] else { continue };
        if join == flow.exit() || !block.next.contains(&join) {
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
        Overlap::Surely => !(one.guards.others && other.guards.others),
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
    let is_chosen = load.guards.others && store.guards.others;
    match overlap {
        Overlap::Never => false,
        Overlap::Surely => !(in_place && is_chosen),
        Overlap::Perhaps { even } if !in_place => !even && load.form.has_base_of(&store.form),
        Overlap::Perhaps { .. } => {
            if is_chosen || !load.form.is_linear() || !store.form.is_linear() {
                return false;
            }
            match load.form.apart_by(&store.form) {
                // A lane that loads from this distance ahead is below the bound, so no lane stores
                // there.
                Some((distance, true)) => !store.guards.below.contains(&distance),
                Some((_, false)) => true,
                None => false,
            }
        }
    }
}

/// Returns the index behind the labels at the beginning of a block.
fn behind_labels(body: &[Statement], flow: &Flow, block: usize) -> usize {
    let range = flow.blocks[block].start..flow.blocks[block].end;
    range.clone().find(|at| matches!(body[*at], Statement::Instruction(_))).unwrap_or(range.end)
}

/// Inserts the stops in front of their statements. A rejoining stop comes first.
fn insert(function: &mut Function, mut stops: Vec<(usize, Stop)>) {
    stops.sort_by_key(|(at, stop)| (*at, *stop != Stop::Rejoin));
    stops.dedup();
    let body = function.body.take().unwrap_or_default();
    let mut fresh = Vec::with_capacity(body.len() + stops.len());
    let mut stops = stops.into_iter().peekable();
    let end = body.len();
    for (at, statement) in body.into_iter().map(Some).chain([None]).enumerate() {
        while let Some((_, stop)) = stops.next_if(|(place, _)| *place == at.min(end)) {
            fresh.push(Statement::Instruction(instruction(stop)));
        }
        if let Some(Statement::Label(label)) = &statement {
            function.labels[label.index()].position =
                u32::try_from(fresh.len()).unwrap_or(u32::MAX);
        }
        fresh.extend(statement);
    }
    function.body = Some(fresh);
}

fn instruction(stop: Stop) -> Instruction {
    Instruction {
        line: 0,
        guard: None,
        opcode: Opcode::BarWarpSync,
        types: Vec::new(),
        modifiers: Modifiers { stop: Some(stop), ..Modifiers::default() },
        operands: Vec::new(),
        destinations: 0,
        call: None,
        mnemonic: stop.name().into(),
    }
}
