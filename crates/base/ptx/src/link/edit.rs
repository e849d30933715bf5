//! Changes the texts of modules so that they are one module.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::table::{Group, Table};
use super::{Input, Linked, Member};
use crate::symbols::{Declaration, Linkage, SymbolKind};

/// Stands, with a number and a `$` behind it, at the end of a name that the linker has made. The
/// last `$` keeps the number from being one of a range of registers.
const MARK: &str = "$link";

/// A change of a text.
#[derive(Debug)]
struct Edit {
    at: Range<usize>,
    to: String,
}

/// Returns the text of all modules.
pub(super) fn joined(inputs: &[Input], table: &Table) -> Linked {
    let mut edits: Vec<Vec<Edit>> = inputs.iter().map(|_| Vec::new()).collect();
    head(inputs, &mut edits);
    debug(inputs, &mut edits);
    let mut left_out: Vec<Vec<&Declaration>> = inputs.iter().map(|_| Vec::new()).collect();
    let mut merged = 0;
    for group in &table.groups {
        if let Some(chosen) = group.chosen {
            merged += leave_out(inputs, group, chosen, &mut left_out, &mut edits);
        }
    }
    for (edits, declarations) in edits.iter_mut().zip(left_out) {
        for declaration in &declarations {
            edits.extend(declaration.alias.clone().map(|at| Edit { at, to: String::new() }));
        }
        edits.extend(statements(declarations));
    }
    rename(inputs, table, &mut edits);
    let mut text = String::with_capacity(inputs.iter().map(|input| input.text.len() + 2).sum());
    for (index, (input, edits)) in inputs.iter().zip(edits).enumerate() {
        if index > 0 {
            text.push('\n');
        }
        apply(&input.text, edits, &mut text);
        if index > 0 && !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Linked { text, renamed: table.renamed.len(), merged }
}

/// Leaves only the first module's head, which gets the newest version and target of all.
fn head(inputs: &[Input], edits: &mut [Vec<Edit>]) {
    for (input, edits) in inputs.iter().zip(&mut *edits).skip(1) {
        let removed = input.symbols.head.directives.iter().map(|directive| Edit {
            at: whole_line(&input.text, directive.clone()),
            to: String::new(),
        });
        edits.extend(removed);
    }
    let (Some(first), Some(edits)) = (inputs.first(), edits.first_mut()) else { return };
    let own = &first.symbols.head;
    // Of several with the same number, the first.
    let newest = inputs.iter().rev().max_by_key(|input| input.symbols.head.version);
    if let Some(newest) = newest.filter(|it| it.symbols.head.version > own.version) {
        let to = newest.text[newest.symbols.head.version_at.clone()].to_owned();
        edits.push(Edit { at: own.version_at.clone(), to });
    }
    let newest = inputs.iter().rev().max_by_key(|input| input.symbols.head.target);
    if let Some(newest) = newest.filter(|it| it.symbols.head.target > own.target) {
        let word = &newest.text[newest.symbols.head.target_at.clone()];
        let comma = if own.target_at.is_empty() { ", " } else { "" };
        let to = format!("{word}{comma}");
        edits.push(Edit { at: own.target_at.clone(), to });
    }
}

/// Leaves only one module's debug information: each module numbers its files from 1, and one text
/// must not have a number twice.
fn debug(inputs: &[Input], edits: &mut [Vec<Edit>]) {
    let having = inputs.iter().zip(edits).filter(|(input, _)| !input.symbols.debug.is_empty());
    for (input, edits) in having.skip(1) {
        let nothing = |at: &Range<usize>| Edit { at: at.clone(), to: String::new() };
        edits.extend(input.symbols.debug.iter().map(nothing));
    }
}

/// Returns the line of a directive, with its end, if nothing else but a comment is in that line.
fn whole_line(text: &str, directive: Range<usize>) -> Range<usize> {
    let start = text[..directive.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[directive.end..].find('\n').map_or(text.len(), |at| directive.end + at + 1);
    let behind = text[directive.end..end].trim();
    let is_alone = text[start..directive.start].trim().is_empty()
        && (behind.is_empty() || behind.starts_with("//"));
    if is_alone { start..end } else { directive }
}

/// Leaves out all declarations of a name in modules other than the chosen one's. If one of them
/// precedes the chosen definition, the first becomes a declaration of it. Returns how many are left
/// out.
fn leave_out<'i>(
    inputs: &'i [Input],
    group: &Group,
    chosen: Member,
    left_out: &mut [Vec<&'i Declaration>],
    edits: &mut [Vec<Edit>],
) -> usize {
    let mut count = 0;
    for member in group.members.iter().filter(|member| member.module != chosen.module) {
        let symbol = &inputs[member.module].symbols.list[member.symbol];
        for declaration in &symbol.declarations {
            if count == 0
                && member.module < chosen.module
                && let Some(text) = announced(&inputs[chosen.module], chosen.symbol)
            {
                let start = declaration.whole.start;
                edits[member.module].push(Edit { at: start..start, to: text });
            }
            left_out[member.module].push(declaration);
            count += 1;
        }
    }
    count
}

/// Returns a declaration of a symbol without its body or value.
fn announced(input: &Input, symbol: usize) -> Option<String> {
    let symbol = &input.symbols.list[symbol];
    let main = symbol.main()?;
    let head = &input.text[main.head.clone()];
    Some(match main.kind {
        SymbolKind::Function { .. } => {
            // ptxas takes no definition behind an `.extern` declaration of a function.
            let linkage = if symbol.linkage() == Linkage::Weak { ".weak" } else { ".visible" };
            format!("{linkage} {head};")
        }
        SymbolKind::Variable { .. } => {
            format!(".extern {head} {};", &input.text[main.shape.clone()])
        }
    })
}

/// Returns the changes that leave declarations of one module out.
fn statements(mut declarations: Vec<&Declaration>) -> Vec<Edit> {
    declarations.sort_by_key(|declaration| declaration.name_at);
    let mut edits = Vec::new();
    for statement in declarations.chunk_by(|one, next| one.whole.start == next.whole.start) {
        let nothing = |at: Range<usize>| Edit { at, to: String::new() };
        if let [first, ..] = statement
            && first.place.1 == statement.len()
        {
            edits.push(nothing(first.whole.clone()));
            continue;
        }
        // Others of the statement's names stay. A name goes with the comma before it, or with the
        // one behind it if no name before it stays.
        for (index, declaration) in statement.iter().enumerate() {
            let Range { start, end } = declaration.item.clone();
            edits.push(nothing(if declaration.place.0 == index {
                start..declaration.next
            } else {
                declaration.previous..end
            }));
        }
    }
    edits
}

/// Gives the names that modules have for themselves other names.
fn rename(inputs: &[Input], table: &Table, edits: &mut [Vec<Edit>]) {
    let mut names: HashMap<Member, String> = HashMap::new();
    if !table.renamed.is_empty() {
        let numbers = free_numbers(inputs);
        for member in &table.renamed {
            let name = inputs[member.module].named(member.symbol);
            let number = numbers[member.module];
            names.insert(*member, format!("{name}{MARK}{number}$"));
        }
    }
    for (member, name) in &names {
        let symbol = &inputs[member.module].symbols.list[member.symbol];
        for declaration in &symbol.declarations {
            let at = declaration.name_at..declaration.name_at + symbol.name.len();
            edits[member.module].push(Edit { at, to: name.clone() });
        }
    }
    for (module, input) in inputs.iter().enumerate() {
        for it in &input.symbols.uses {
            if let Some(name) = names.get(&Member { module, symbol: it.symbol }) {
                let length = input.symbols.list[it.symbol].name.len();
                let at = it.offset..it.offset + length;
                edits[module].push(Edit { at, to: name.clone() });
            }
        }
    }
}

/// Returns a number for each module that stands behind the mark in none of the texts: no other name
/// is equal to a new one, whatever it names.
fn free_numbers(inputs: &[Input]) -> Vec<u64> {
    let mut taken = HashSet::new();
    for input in inputs {
        for (at, _) in input.text.match_indices(MARK) {
            let rest = &input.text[at + MARK.len()..];
            let end = rest.bytes().take_while(u8::is_ascii_digit).count();
            // A number that is too large for 64 bits is none of ours.
            taken.extend(rest[..end].parse::<u64>());
        }
    }
    (1..).filter(|number| !taken.contains(number)).take(inputs.len()).collect()
}

/// Writes a text with its changes. A change inside a part that is left out has no effect.
fn apply(text: &str, mut edits: Vec<Edit>, result: &mut String) {
    // An insertion comes before the removal that starts at the same place.
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    let mut done = 0;
    for edit in edits {
        if edit.at.start < done {
            continue;
        }
        result.push_str(&text[done..edit.at.start]);
        result.push_str(&edit.to);
        done = edit.at.end;
    }
    result.push_str(&text[done..]);
}
