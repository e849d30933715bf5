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

use super::access::{accesses, is_shared, kind};
use super::address_form::AddressForms;
use super::conditions::BranchConditions;
use super::flow::ControlFlow;
use super::linear::LinearSums;
use super::regions::Regions;
use super::stop_search::StopSearch;
use super::uniform::Uniformity;
use super::{convergence, spin};
use crate::ir::{Entry, Function, Instruction, Modifiers, Module, Opcode, Statement, Stop};

/// Largest number of accesses of a kernel that are compared with each other. Beyond it, the pairs
/// would need more memory than the text itself, and lanes stop in front of every access.
const ACCESSES_MAX: usize = 4_000;

/// Inserts stops into a kernel that needs them. With `must_be_machine` the kernel becomes a state
/// machine, also if its own code does not ask for it.
pub(super) fn insert_stops(
    module: &Module,
    entry: &Entry,
    function: &mut Function,
    must_be_machine: bool,
) {
    let stops = {
        let flow = ControlFlow::of(function);
        let uniform = Uniformity::of(function, &flow, &HashSet::new(), HashSet::new());
        let is_machine = must_be_machine || convergence::needs_machine(function, &flow, &uniform);
        let mut stops = find_stops(module, entry, function, (&flow, &uniform), is_machine);
        let all = !stops.is_empty();
        stops.extend(spin::stops_of_waiting_loops(module, entry, function, (&flow, &uniform), all));
        stops
    };
    if !stops.is_empty() {
        insert(function, stops);
    }
}

/// Returns the statements in front of which lanes stop, and why.
fn find_stops(
    module: &Module,
    entry: &Entry,
    function: &Function,
    (flow, uniform): (&ControlFlow, &Uniformity),
    is_machine: bool,
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
    let asks_who_is_here = is_machine && asks_who_is_here(body);
    if !exchanges && !asks_who_is_here {
        return Vec::new();
    }
    let Some(regions) = Regions::of(function, flow, uniform) else {
        return everywhere(body, flow);
    };
    let sums = LinearSums::of(module, entry, function, flow, uniform);
    let forms = AddressForms::of(function, flow, &sums, uniform, &regions.in_loop);
    let conditions = BranchConditions::of(function, flow, &sums, uniform, &forms);
    let accesses = accesses(function, flow, &forms, &conditions);
    if accesses.len() > ACCESSES_MAX {
        return everywhere(body, flow);
    }
    let mut search = StopSearch::of(body, flow, uniform, &regions, &accesses, forms.dimensions);
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
    search.find_stops();
    if is_machine || search.orders.iter().any(|at| !uniform.block(flow.block_of[*at])) {
        search.lifts = false;
        search.find_stops();
        // Once more, because the lanes now come together in more places.
        search.keep_joins();
        search.find_stops();
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
fn everywhere(body: &[Statement], flow: &ControlFlow) -> Vec<(usize, Stop)> {
    let accesses = body.iter().enumerate().filter(|(at, statement)| match statement {
        Statement::Instruction(what) => {
            flow.reached[flow.block_of[*at]] && kind(what).is_some() && is_shared(&what.modifiers)
        }
        Statement::Label(_) => false,
    });
    accesses.map(|(at, _)| (at, Stop::Order)).collect()
}

/// Returns the index behind the labels at the beginning of a block.
fn behind_labels(body: &[Statement], flow: &ControlFlow, block: usize) -> usize {
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
            fresh.push(Statement::Instruction(stop_instruction(stop)));
        }
        if let Some(Statement::Label(label)) = &statement {
            function.labels[label.index()].position =
                u32::try_from(fresh.len()).unwrap_or(u32::MAX);
        }
        fresh.extend(statement);
    }
    function.body = Some(fresh);
}

pub(super) fn stop_instruction(stop: Stop) -> Instruction {
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
