//! The order of what the lanes of a warp do in shared memory.
//!
//! On a GPU the lanes of a warp that are together do one instruction after the other, all of them
//! each. Programs rely on that: a lane stores and another one loads, with no `bar.warp.sync`
//! between. Here a thread runs alone up to its next meeting. So where a lane may load what another
//! one has stored, or store over what another one has yet to load, the lanes that are together stop
//! in between ([`Stop::Order`]), and lanes that went different ways meet again where their ways do
//! ([`Stop::Rejoin`]). What may be such a pair of accesses is found here. A kernel that has none
//! stays as it is.
//!
//! Many kernels exchange values between barriers only, and update what is their own in place, at
//! addresses which nobody can compare: as the steps of a fast Fourier transform do. A search that
//! is not strict says whether the kernel has any pair that no such kernel has. Only if it has, the
//! lanes stop between all pairs that may be one.

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

/// Accesses of a kernel that are compared with each other: above this, pairs would need more memory
/// than the text itself. A kernel with more stops in front of every access.
const ACCESSES_MAX: usize = 4_000;

/// How often the places of stops are looked for again. Each time finds one at least.
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
    /// What an atomic does.
    operation: Option<Atomic>,
}

/// Puts stops into a kernel that needs them.
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

/// The statements in front of which lanes stop, and why.
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
        // Once more, as the lanes come together in more places now.
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

/// Whether some instruction takes the lanes that are here together, whoever they are.
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

/// A stop in front of every access, where there is too much to look at.
fn everywhere(body: &[Statement], flow: &Flow) -> Vec<(usize, Stop)> {
    let accesses = body.iter().enumerate().filter(|(at, statement)| match statement {
        Statement::Instruction(what) => {
            flow.reached[flow.block_of[*at]] && kind(what).is_some() && is_shared(&what.modifiers)
        }
        Statement::Label(_) => false,
    });
    accesses.map(|(at, _)| (at, Stop::Order)).collect()
}

/// Whether an access may be one of shared memory.
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

/// Bytes of the largest `cp.async`.
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
            // Other blocks and the host exchange values in global memory too; that is no matter of
            // warps.
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

/// What can be under way between two lanes at one place: an access since the last stop, and the
/// block from which on it counts again if lanes that did not come by the last stop may come by.
type Pending = HashSet<(usize, usize)>;

/// It counts now.
const AWAKE: usize = usize::MAX;

/// Looks for pairs of accesses without a stop between.
struct Search<'a> {
    body: &'a [Statement],
    flow: &'a Flow,
    uniform: &'a Uniform,
    regions: &'a Regions,
    accesses: &'a [Access],
    dimensions: [bool; 2],
    /// The access of each statement that is one.
    access_of: Vec<Option<usize>>,
    /// What was said of each pair: 0 nothing yet, else an [`Overlap`].
    known: Vec<Option<Overlap>>,
    /// Accesses whose address is loaded, too: a store there may be one in place.
    in_place: Vec<bool>,
    /// Accesses whose address a compare-and-swap has, too: a load there is a first guess of what it
    /// finds.
    swapped: Vec<bool>,
    /// Ways around loops with barriers, which such a kernel does not take: it goes through these
    /// loops once at least.
    around: HashSet<(usize, usize)>,
    /// Whether every pair counts that may be one.
    is_strict: bool,
    /// Whether a stop goes in front of the branch where all threads are still together.
    lifts: bool,
    /// The statements that have a stop in front.
    orders: HashSet<usize>,
    /// The blocks at whose beginning lanes meet again; and those that stay so.
    joins: Vec<bool>,
    kept: Vec<bool>,
    /// What is pending behind each block.
    behind: Vec<Pending>,
    /// Blocks so that most come behind those before them.
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

    /// Whether the kernel has a pair that none has whose lanes exchange values at barriers only.
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

    /// Where lanes meet again, with the stops so far.
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

    /// What is pending behind each block, with the stops so far.
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

    /// What is pending behind a block, and if that is asked for, where the first stop is missing in
    /// it.
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

    /// What is still pending behind a meeting of the text.
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

    /// Where a stop is missing before an access, if there is one.
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
        // In front of the last branch that all threads come to together, if what comes before it is
        // the reason.
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
            // Of two operations on one word that all lanes do, or one lane does, the order is the lanes' own.
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

/// The ways past loops with barriers that all threads go through together: from the branch that
/// goes there to where it leads.
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
        // A branch in the loop is one that leaves it.
        let is_outside = inner != flow.exit() && !flow.dominates(inner, branch);
        if is_outside && meeting.iter().any(leads) {
            found.insert((branch, join));
        }
    }
    found
}

/// Whether two lanes may store into one word in an order that matters, in a kernel that may
/// exchange values at barriers only. Such a kernel stores to places that it has computed, each for
/// one thread; two of these are not compared.
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

/// Whether a store may change what another lane loads before it, in a kernel that may exchange
/// values at barriers only.
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
                // A lane that loads from so far ahead is below that, so that nobody stores there.
                Some((distance, true)) => !store.guards.below.contains(&distance),
                Some((_, false)) => true,
                None => false,
            }
        }
    }
}

/// Behind the labels at the beginning of a block.
fn behind_labels(body: &[Statement], flow: &Flow, block: usize) -> usize {
    let range = flow.blocks[block].start..flow.blocks[block].end;
    range.clone().find(|at| matches!(body[*at], Statement::Instruction(_))).unwrap_or(range.end)
}

/// Puts the stops in front of their statements. Lanes meet again before anything else.
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
