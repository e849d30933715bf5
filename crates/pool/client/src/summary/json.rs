//! The summary as a line of JSON.

use super::figures::{Counts, Figures};
use super::kinds::{Command, Reason};
use super::sentences;

pub(super) fn of(figures: &Figures) -> String {
    let Figures { process, threads, open, .. } = figures;
    let nodes = figures.nodes.iter().map(|node| {
        let (name, counts) = (quoted(&node.name), counts(&node.counts));
        format!("{{\"name\":{name},\"lost\":{},{counts}}}", node.is_lost)
    });
    let nodes = list(nodes);
    let (program, face) = (quoted(&figures.program), quoted(figures.face));
    let (seconds, total) = (figures.ran.as_secs_f64(), counts(&figures.total()));
    let sentences = list(sentences::of(figures).iter().map(|it| quoted(it)));
    format!(
        "{{\"process\":{process},\"program\":{program},\"interface\":{face},\"seconds\":{seconds},\
         \"waiting_threads\":{threads},\"open_waits\":{open},{total},\"nodes\":[{nodes}],\
         \"sentences\":[{sentences}]}}\n"
    )
}

fn counts(counts: &Counts) -> String {
    let commands = Command::ALL.iter().map(|command| {
        let amount = counts.command(*command);
        let bytes = command.has_bytes().then(|| format!(",\"bytes\":{}", amount.sum));
        let (key, bytes) = (command.key(), bytes.unwrap_or_default());
        format!("\"{key}\":{{\"count\":{}{bytes}}}", amount.count)
    });
    let waits = Reason::ALL.iter().map(|reason| {
        let (key, amount) = (reason.key(), counts.wait(*reason));
        let seconds = amount.time().as_secs_f64();
        format!("\"{key}\":{{\"count\":{},\"seconds\":{seconds}}}", amount.count)
    });
    format!("\"commands\":{{{}}},\"waits\":{{{}}}", list(commands), list(waits))
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

fn quoted(text: &str) -> String {
    let quoted = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        _ if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    });
    format!("\"{}\"", quoted.collect::<String>())
}
