//! Names that no module defines although one needs them.
//!
//! nvlink drops functions that no kernel reaches, and takes modules in which only those call a
//! function that nobody defines. The address of such a function is an error everywhere, as is any
//! declaration of such a variable.

use std::collections::HashSet;

use super::problem::{LinkError, LinkProblem, shorten};
use super::table::{Group, Table, is_dynamic};
use super::{Input, Member};
use crate::symbols::{SymbolKind, Use};

/// Functions that the driver provides.
const PROVIDED: [&str; 4] = ["vprintf", "__assertfail", "malloc", "free"];

/// Whether a function needs no definition. The device's runtime library (`cudadevrt`), which starts
/// kernels from kernels, brings no PTX. A kernel that calls it is refused when it is launched, and
/// the program's other kernels are not.
fn is_provided(name: &str) -> bool {
    let of_runtime = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_uppercase());
    PROVIDED.contains(&name)
        || name.trim_start_matches('_').strip_prefix("cuda").is_some_and(of_runtime)
}

/// Finds what is missing.
pub(super) fn check(inputs: &[Input], table: &Table, problems: &mut LinkError) {
    let mut functions = HashSet::new();
    for group in table.groups.iter().filter(|group| group.chosen.is_none()) {
        if !is_undefined(inputs, group) {
            continue;
        }
        for member in &group.members {
            let input = &inputs[member.module];
            let Some(main) = input.symbols.list[member.symbol].main() else { continue };
            let is_function = matches!(main.kind, SymbolKind::Function { .. });
            if is_function && !is_provided(input.named(member.symbol)) {
                functions.insert(*member);
            } else if !is_function && !is_dynamic(main) {
                problems.add(undefined(input, member.symbol));
            }
        }
    }
    // Usually nothing is missing, and then no function needs to be followed.
    if functions.is_empty() {
        return;
    }
    let reached = reached(inputs, table);
    let mut told = HashSet::new();
    for (module, input) in inputs.iter().enumerate() {
        for it in &input.symbols.uses {
            let member = Member { module, symbol: it.symbol };
            let by = it.by.map(|symbol| Member { module, symbol });
            let counts = match by {
                Some(by) if table.meaning(by) != by => false,
                Some(by) if it.is_call => reached.contains(&by),
                _ => true,
            };
            if counts && functions.contains(&member) && told.insert(member) {
                problems.add(undefined(input, it.symbol));
            }
        }
    }
}

/// Whether nothing was chosen because there is no definition, and not because two declarations
/// contradict each other, which is an error already.
fn is_undefined(inputs: &[Input], group: &Group) -> bool {
    group.members.iter().all(|member| {
        let symbol = &inputs[member.module].symbols.list[member.symbol];
        symbol.declarations.iter().all(|declaration| !declaration.is_definition)
    })
}

fn undefined(input: &Input, symbol: usize) -> LinkProblem {
    LinkProblem::Undefined { name: shorten(input.named(symbol)), module: shorten(&input.name) }
}

/// Returns the functions that kernels reach by calls, or whose address the modules have.
fn reached(inputs: &[Input], table: &Table) -> HashSet<Member> {
    // For each module the calls, sorted by the function that makes them.
    let mut calls: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut open = Vec::new();
    for (module, input) in inputs.iter().enumerate() {
        let call = |it: &Use| it.by.filter(|_| it.is_call).map(|by| (by, it.symbol));
        let mut found: Vec<(usize, usize)> = input.symbols.uses.iter().filter_map(call).collect();
        found.sort_unstable();
        found.dedup();
        calls.push(found);
        let addresses = input.symbols.uses.iter().filter(|it| !it.is_call).map(|it| it.symbol);
        let is_kernel = |symbol: &usize| {
            let main = input.symbols.list[*symbol].main();
            main.is_some_and(|it| matches!(it.kind, SymbolKind::Function { is_entry: true, .. }))
        };
        let kernels = (0..input.symbols.list.len()).filter(is_kernel);
        open.extend(addresses.chain(kernels).map(|symbol| Member { module, symbol }));
    }
    let mut reached = HashSet::new();
    while let Some(member) = open.pop() {
        let meant = table.meaning(member);
        if !reached.insert(meant) {
            continue;
        }
        let of_module = &calls[meant.module];
        let from = of_module.partition_point(|(by, _)| *by < meant.symbol);
        let called = of_module[from..].iter().take_while(|(by, _)| *by == meant.symbol);
        open.extend(called.map(|(_, symbol)| Member { module: meant.module, symbol: *symbol }));
    }
    reached
}
