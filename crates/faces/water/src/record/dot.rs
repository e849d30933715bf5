//! Graphs in the language of Graphviz. Everything is ordered by ids, so the graphs of two runs only
//! differ where the runs do.

use std::collections::BTreeMap;
use std::io::{Result, Write};

use super::{Recorder, Step, path, sized, timed};
use crate::command::{CommandId, Rank};

/// Writes the graph of the program's commands, as the program issued them.
///
/// # Errors
/// The writer fails.
pub fn commands(recorder: &Recorder, out: &mut impl Write) -> Result<()> {
    graph(recorder, "commands", recorder.commands(), |step| step.waits.clone(), out)
}

/// Writes the graph of the ranks' jobs, after replacement.
///
/// # Errors
/// The writer fails.
pub fn jobs(recorder: &Recorder, out: &mut impl Write) -> Result<()> {
    graph(recorder, "jobs", recorder.jobs(), |step| recorder.predecessors(step), out)
}

fn graph(
    recorder: &Recorder,
    title: &str,
    steps: &BTreeMap<CommandId, Step>,
    before: impl Fn(&Step) -> Vec<CommandId>,
    out: &mut impl Write,
) -> Result<()> {
    let critical = path::critical(steps, &before);
    let mut note = format!("{title}: {} steps; bold: the path of what ended last", steps.len());
    if recorder.forgotten() > 0 {
        note.push_str(&format!(
            "; {} more are not kept, the limit is {}",
            recorder.forgotten(),
            recorder.steps_max()
        ));
    }
    writeln!(out, "digraph {title} {{")?;
    writeln!(out, "  graph [label={}, labelloc=t, fontname=\"sans-serif\"];", quoted(&note))?;
    writeln!(
        out,
        "  node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\", fontsize=10];"
    )?;
    let mut ranks: BTreeMap<Rank, Vec<&Step>> = BTreeMap::new();
    for step in steps.values() {
        ranks.entry(step.rank).or_default().push(step);
    }
    for (rank, steps) in ranks {
        writeln!(out, "  subgraph cluster_{rank} {{")?;
        writeln!(out, "    label={};", quoted(&recorder.rank_name(rank)))?;
        for step in steps {
            let width = if critical.contains(&step.id) { 3 } else { 1 };
            let (color, style) = match (&step.outcome, step.times.ended) {
                (Some(Err(_)), _) => ("red", "filled"),
                (None, _) => ("gray40", "filled,dashed"),
                _ => ("black", "filled"),
            };
            writeln!(
                out,
                "    c{} [label={}, fillcolor={}, color={color}, style=\"{style}\", penwidth={width}];",
                step.id.0,
                quoted(&label(recorder, step)),
                fill(step)
            )?;
        }
        writeln!(out, "  }}")?;
    }
    for step in steps.values() {
        for id in before(step) {
            // A predecessor that was forgotten is not drawn.
            let Some(earlier) = steps.get(&id) else { continue };
            let is_critical = critical.contains(&step.id) && critical.contains(&id);
            let width = if is_critical { 3 } else { 1 };
            let style = if step.senders.contains(&id) { ", style=dashed" } else { "" };
            writeln!(out, "  c{} -> c{} [penwidth={width}{style}];", earlier.id.0, step.id.0)?;
        }
    }
    writeln!(out, "}}")
}

fn label(recorder: &Recorder, step: &Step) -> String {
    let mut label = format!("{} {}", step.id.0, step.what);
    if !step.also.is_empty() {
        let also: Vec<String> = step.also.iter().map(|id| id.0.to_string()).collect();
        label.push_str(&format!(" (and {})", also.join(", ")));
    }
    if !step.name.is_empty() {
        label.push_str(&format!("\n{}", step.name));
    }
    if step.bytes > 0 {
        label.push_str(&format!("\n{}", sized(step.bytes)));
    }
    if recorder.ranks().get(step.rank as usize).is_some_and(|rank| rank.devices.len() > 1) {
        label.push_str(&format!("\ndevice {}", step.device));
    }
    match &step.outcome {
        Some(Ok(())) => label.push_str(&format!("\n{}", timed(recorder.duration(step)))),
        Some(Err(_)) => label.push_str("\nfailed"),
        None => label.push_str("\nnot ended"),
    }
    label
}

fn fill(step: &Step) -> &'static str {
    match step.what {
        "run_kernel" => "lightgoldenrod1",
        "create_kernel" => "khaki3",
        "write_buffer" | "receive" | "forward" => "lightblue1",
        "read_buffer" | "send" => "lightcyan3",
        "copy_buffer" | "move" => "lightsteelblue1",
        _ => "gray95",
    }
}

/// Returns a string literal of the language. A line break stays one.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
