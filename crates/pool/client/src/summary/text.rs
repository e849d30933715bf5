//! The summary as text of 80 columns, with the numbers first.

use super::figures::{Counts, Figures};
use super::kinds::{Command, Reason};
use super::number::{bytes, number, time};
use super::sentences;

/// Width of a line, in characters: that of the narrowest terminals in use.
const COLUMNS: usize = 80;

pub(super) fn of(figures: &Figures) -> String {
    let Figures { process, program, face, .. } = figures;
    let mut out = wrapped(&format!("penstock: summary of process {process} ({program}, {face})"));
    out += &row(&time(figures.ran), "since its first call");
    out += &rows(&figures.total());
    let is_only = figures.nodes.len() == 1;
    for node in &figures.nodes {
        let lost = if node.is_lost { ", which was lost" } else { "" };
        let (colon, rows) = if is_only { ("", String::new()) } else { (":", rows(&node.counts)) };
        // In one line, because people copy addresses.
        out += &format!("On node {}{lost}{colon}\n", node.name);
        out += &rows;
    }
    sentences::of(figures).iter().for_each(|sentence| out += &wrapped(sentence));
    out
}

fn rows(counts: &Counts) -> String {
    let waits = Reason::ALL.iter().map(|reason| {
        let amount = counts.wait(*reason);
        let (count, words) = (number(amount.count), reason.words(amount.count));
        (amount.count, time(amount.time()), format!("in {count} {words}"))
    });
    let commands = Command::ALL.iter().map(|command| {
        let amount = counts.command(*command);
        let moved = command.has_bytes().then(|| format!(", {}", bytes(amount.sum)));
        let words = format!("{}{}", command.words(amount.count), moved.unwrap_or_default());
        (amount.count, number(amount.count), words)
    });
    let is_there = |(count, number, words): (u64, String, String)| match count {
        0 => String::new(),
        _ => row(&number, &words),
    };
    waits.chain(commands).map(is_there).collect()
}

/// Returns a line whose number ends in column 12. A count of seven digits has nine characters.
fn row(number: &str, words: &str) -> String {
    format!("{number:>12}  {words}\n")
}

/// Returns text in lines of at most [`COLUMNS`]. A longer word has a line of its own.
fn wrapped(text: &str) -> String {
    let (mut lines, mut columns) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let between = match columns {
            0 => "",
            _ if columns + 1 + length > COLUMNS => "\n",
            _ => " ",
        };
        columns = if between == " " { columns + 1 + length } else { length };
        lines += between;
        lines += word;
    }
    lines + "\n"
}
