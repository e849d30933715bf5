//! What each name of several modules means: which definition is chosen, which names are apart.
//!
//! The quotations are from the section "Linking Directives" of NVIDIA's manual of PTX. Where the
//! manual is silent, the rule is what nvlink does.

use std::collections::HashMap;

use super::problem::{LinkError, LinkProblem, shorten};
use super::{Input, Member};
use crate::ir::Space;
use crate::symbols::{Declaration, Linkage, SymbolKind};

/// A name that modules share, or that another module should define.
#[derive(Debug)]
pub(super) struct Group {
    /// The symbols that other modules see, in the order of the modules.
    pub(super) members: Vec<Member>,
    /// The chosen definition.
    pub(super) chosen: Option<Member>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) groups: Vec<Group>,
    /// Index of a symbol's group, for symbols that other modules see.
    pub(super) group_of: HashMap<Member, usize>,
    /// The symbols that get another name.
    pub(super) renamed: Vec<Member>,
}

/// All symbols of one name.
#[derive(Default)]
struct Named {
    seen: Vec<Member>,
    own: Vec<Member>,
}

impl Table {
    pub(super) fn of(inputs: &[Input], problems: &mut LinkError) -> Self {
        let mut index: HashMap<&str, usize> = HashMap::new();
        let mut names: Vec<Named> = Vec::new();
        for (module, input) in inputs.iter().enumerate() {
            for (symbol, found) in input.symbols.list.iter().enumerate() {
                let entry = index.entry(input.named(symbol)).or_insert(names.len());
                if *entry == names.len() {
                    names.push(Named::default());
                }
                let named = &mut names[*entry];
                let is_own = found.linkage() == Linkage::Local;
                let list = if is_own { &mut named.own } else { &mut named.seen };
                list.push(Member { module, symbol });
            }
        }
        let mut table = Self { groups: Vec::new(), group_of: HashMap::new(), renamed: Vec::new() };
        for named in names {
            table.add(inputs, named, problems);
        }
        table
    }

    fn add(&mut self, inputs: &[Input], named: Named, problems: &mut LinkError) {
        // "PTX identifiers are visible only within the current module unless declared .visible
        // outside the current module."
        let keeps = usize::from(named.seen.is_empty());
        self.renamed.extend(named.own.into_iter().skip(keeps));
        if named.seen.is_empty() {
            return;
        }
        let chosen = choose(inputs, &named.seen, problems);
        let group = self.groups.len();
        self.group_of.extend(named.seen.iter().map(|member| (*member, group)));
        self.groups.push(Group { members: named.seen, chosen });
    }

    /// Returns the definition that a symbol stands for, or the symbol itself.
    pub(super) fn meaning(&self, member: Member) -> Member {
        let group = self.group_of.get(&member).map(|group| &self.groups[*group]);
        group.and_then(|group| group.chosen).unwrap_or(member)
    }
}

/// A symbol with what a choice depends on.
#[derive(Clone, Copy)]
struct Candidate<'i> {
    member: Member,
    input: &'i Input,
    linkage: Linkage,
    main: &'i Declaration,
}

impl Candidate<'_> {
    fn size(&self) -> u64 {
        match self.main.kind {
            SymbolKind::Variable { size, .. } => size,
            SymbolKind::Function { .. } => 0,
        }
    }

    fn has_value(&self) -> bool {
        matches!(self.main.kind, SymbolKind::Variable { has_value: true, .. })
    }

    fn name(&self) -> String {
        shorten(self.input.named(self.member.symbol))
    }

    fn module(&self) -> String {
        shorten(&self.input.name)
    }
}

/// Chooses the definition of a name and checks that all its declarations fit together.
fn choose(inputs: &[Input], members: &[Member], problems: &mut LinkError) -> Option<Member> {
    let candidate = |member: &Member| {
        let input = &inputs[member.module];
        let symbol = &input.symbols.list[member.symbol];
        let (linkage, main) = (symbol.linkage(), symbol.main()?);
        Some(Candidate { member: *member, input, linkage, main })
    };
    let all: Vec<Candidate<'_>> = members.iter().filter_map(candidate).collect();
    let first = all.first()?;
    for other in &all[1..] {
        if let Some(problem) = kinds(first, other) {
            problems.add(problem);
            return None;
        }
    }
    let of = |linkage| all.iter().filter(move |candidate| candidate.linkage == linkage);
    // "The module defining such identifier must define it as .weak or .visible only once in a
    // single object file."
    let mut strong = of(Linkage::Visible);
    let chosen = strong.next();
    for other in strong {
        twice(chosen, other, problems);
    }
    // "Weak symbols are similar to globally visible symbols, except during linking, weak symbols
    // are only chosen after globally visible symbols during symbol resolution. Unlike globally
    // visible symbols, multiple object files may declare the same weak symbol, and references to a
    // symbol get resolved against a weak symbol only if no global symbols have the same name."
    let chosen = chosen.or_else(|| of(Linkage::Weak).next());
    let chosen = common(&of(Linkage::Common).collect::<Vec<_>>(), chosen, problems);
    sizes(&all, chosen, problems);
    chosen.map(|chosen| chosen.member)
}

fn twice(first: Option<&Candidate<'_>>, other: &Candidate<'_>, problems: &mut LinkError) {
    let first = first.map_or(String::new(), Candidate::module);
    problems.add(LinkProblem::Twice { name: other.name(), module: other.module(), first });
}

/// Chooses among `.common` variables and a definition of another kind, if there is one.
///
/// "Multiple object files may declare the same common symbol and they may have different types and
/// sizes and references to a symbol get resolved against a common symbol with the largest size.
/// Only one object file can initialize a common symbol and that must have the largest size among
/// all other definitions of that common symbol from different object files."
fn common<'c, 'i>(
    commons: &[&'c Candidate<'i>],
    other: Option<&'c Candidate<'i>>,
    problems: &mut LinkError,
) -> Option<&'c Candidate<'i>> {
    let mut chosen = other;
    for candidate in commons.iter().filter(|candidate| candidate.has_value()) {
        match chosen {
            Some(first) => twice(Some(first), candidate, problems),
            None => chosen = Some(candidate),
        }
    }
    let Some(initial) = chosen else {
        // Of several with the largest size, the first.
        return commons.iter().copied().rev().max_by_key(|candidate| candidate.size());
    };
    for larger in commons.iter().filter(|candidate| candidate.size() > initial.size()) {
        problems.add(LinkProblem::Common { name: larger.name(), module: larger.module() });
    }
    Some(initial)
}

/// Returns why two declarations cannot be of one thing. Alignments and the types of variables may
/// differ, as they may for nvlink.
fn kinds(first: &Candidate<'_>, other: &Candidate<'_>) -> Option<LinkProblem> {
    let (name, module, before) = (other.name(), other.module(), first.module());
    match (&first.main.kind, &other.main.kind) {
        (
            SymbolKind::Function { is_entry, returns, params },
            SymbolKind::Function { is_entry: is_kernel, returns: given, params: taken },
        ) => {
            if is_entry != is_kernel {
                Some(LinkProblem::Kernel { name, module, first: before })
            } else if (returns, params) != (given, taken) {
                Some(LinkProblem::Prototype { name, module, first: before })
            } else {
                None
            }
        }
        (
            SymbolKind::Variable { space, is_managed, .. },
            SymbolKind::Variable { space: lies_in, is_managed: is_shown, .. },
        ) if space == lies_in => {
            (is_managed != is_shown).then_some(LinkProblem::Managed { name, module, first: before })
        }
        _ => Some(LinkProblem::Space { name, module, first: before }),
    }
}

/// Checks that all declarations but those of `.common` variables say the same size. The others are
/// compared with each other, and if a `.common` variable is chosen, with that.
fn sizes(all: &[Candidate<'_>], chosen: Option<&Candidate<'_>>, problems: &mut LinkError) {
    let is_counted = |it: &Candidate<'_>| {
        it.size() > 0
            && (it.linkage != Linkage::Common || chosen.is_some_and(|by| by.member == it.member))
    };
    let mut counted = all.iter().filter(|candidate| is_counted(candidate));
    let Some(first) = counted.next() else { return };
    if let Some(other) = counted.find(|other| other.size() != first.size()) {
        let (name, module, first) = (other.name(), other.module(), first.module());
        problems.add(LinkProblem::Size { name, module, first });
    }
}

/// Whether a variable without a definition is the launch's dynamic shared memory, which needs none.
pub(super) fn is_dynamic(declaration: &Declaration) -> bool {
    matches!(declaration.kind, SymbolKind::Variable { space: Space::Shared, size: 0, .. })
}
