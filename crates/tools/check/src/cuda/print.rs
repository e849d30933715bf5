//! Prints a CUDA program as a C file that needs only `libcuda.so.1` at run time.

mod acts;

use std::fmt::Write as _;

use super::driver::KERNELS;
use super::plan::{Act, Context, Job, Platform, Work};
use super::run::Prepared;
use crate::c::{comment, ids, list, look_table, quoted, run_threads};
use crate::finding::Finding;

/// Largest number of launches of a graph that one look distinguishes.
const TURNS_MAX: usize = 16;

/// Returns the text of the C file.
pub(super) fn print(prepared: &Prepared<'_>, platform: &Platform, finding: &Finding) -> String {
    let program = prepared.program;
    let mut text = String::new();
    let place = finding.op.map_or_else(String::new, |op| format!(" in operation {op}"));
    // Writing to a string cannot fail, here and below.
    _ = writeln!(
        text,
        "/* {}{place}: {}.\n * Expected is what a sequential execution gives that respects CUDA's order of streams and events.\n * \
         Seen on: {} ({}). Seed {}.\n *\n * cc -O1 NAME.c -ldl -lpthread; ./a.out [TIMES]\n * Exit status: 0 right in all runs, 1 \
         wrong, 2 cannot be tried here. */",
        finding.kind.name(),
        comment(&finding.what),
        platform.name,
        comment(&platform.version),
        program.seed
    );
    text.push_str(include_str!("print/head.c"));
    _ = writeln!(text, "static const char *source =\n{};", quoted(KERNELS));
    declare(&mut text, prepared);
    tables(&mut text, prepared, finding);
    for thread in 0..program.threads {
        if program.ops.iter().any(|op| op.thread == thread) {
            body(&mut text, prepared, thread);
        }
    }
    main(&mut text, prepared);
    text.push_str("static const char *wanted_platform;\n");
    text.push_str(include_str!("../c/tail.c"));
    text
}

fn declare(text: &mut String, prepared: &Prepared<'_>) {
    let (program, ledger) = (prepared.program, &prepared.ledger);
    let contexts: Vec<usize> = (0..program.contexts.len()).collect();
    list(text, "handle", "context", contexts.clone());
    for context in contexts {
        _ = writeln!(text, "__attribute__((unused)) static handle kernels{context}[3];");
    }
    list(text, "handle", "stream", ledger.streams.keys().copied().collect());
    list(text, "handle", "event", ledger.events.keys().copied().collect());
    list(text, "memory", "mem", ledger.mems.keys().copied().collect());
    list(text, "handle", "graph", ledger.graphs.keys().copied().collect());
    list(text, "unsigned char", "*area", (0..program.areas.len()).collect());
    let signals = ids(&program.ops, |act| match act {
        Act::Signal { id } => Some(*id),
        _ => None,
    });
    list(text, "atomic_int", "signal", signals);
}

/// Writes tables of what looks must see and what host functions do.
fn tables(text: &mut String, prepared: &Prepared<'_>, finding: &Finding) {
    let mut looks: Vec<_> = prepared.expected.looks.iter().collect();
    looks.sort_by_key(|(op, _)| **op);
    for (op, all) in looks {
        for (place, bytes) in all {
            let wrong = finding.at.filter(|_| finding.op == Some(*op));
            look_table(text, &format!("look{op}_{place}"), bytes, wrong);
        }
    }
    for (index, op) in prepared.program.ops.iter().enumerate() {
        let works: Vec<&Work> = match &op.act {
            Act::Enqueue { work, .. } => vec![work],
            Act::NewGraph { parts, .. } => parts.iter().map(|part| &part.work).collect(),
            _ => Vec::new(),
        };
        for (place, work) in works.iter().enumerate() {
            if matches!(work, Work::Function { .. }) {
                _ = writeln!(text, "static struct job job{index}_{place};");
            }
        }
    }
}

/// Returns the looks of a host function in the order of the operations that perform it.
fn looks_of(prepared: &Prepared<'_>, ops: &[usize], place: usize) -> Vec<String> {
    let known = |op: &&usize| prepared.expected.look(**op, place).is_some_and(has_words);
    let ops: Vec<&usize> = ops.iter().take(TURNS_MAX).collect();
    let mut all = Vec::new();
    for (turn, op) in ops.iter().enumerate() {
        if known(op) {
            let name = format!("look{op}_{place}");
            all.push(format!(
                ".looks[{turn}] = {name}, .counts[{turn}] = sizeof {name} / sizeof *{name}"
            ));
        }
    }
    all
}

/// Whether a look compares at least one word.
fn has_words(bytes: &crate::model::Bytes) -> bool {
    bytes.known.chunks_exact(4).any(|word| word.iter().all(|&known| known))
}

fn body(text: &mut String, prepared: &Prepared<'_>, thread: usize) {
    _ = writeln!(text, "\nstatic void *thread{thread}(void *unused) {{\n    (void)unused;");
    let mut current = None;
    for (index, op) in prepared.program.ops.iter().enumerate().filter(|(_, op)| op.thread == thread)
    {
        if op.delay_us > 0 {
            _ = writeln!(text, "    usleep({});", op.delay_us);
        }
        let context = acts::context(prepared, op);
        if context.is_some() && context != current {
            current = context;
            _ = writeln!(
                text,
                "    CODE({index}, cuCtxSetCurrent(context{}));",
                current.unwrap_or(0)
            );
        }
        for line in acts::lines(prepared, index, op) {
            _ = writeln!(text, "    {line}");
        }
    }
    text.push_str("    return NULL;\n}\n");
}

fn main(text: &mut String, prepared: &Prepared<'_>) {
    let program = prepared.program;
    let devices = program.contexts.iter().map(|context| context.device + 1).max().unwrap_or(1);
    _ = writeln!(text, "\nstatic void run(void) {{\n    open_driver({devices});");
    for (number, Context { device, primary }) in program.contexts.iter().enumerate() {
        let primary = u8::from(*primary);
        _ = writeln!(
            text,
            "    context{number} = new_context({device}, {primary}, kernels{number});"
        );
    }
    for (number, area) in program.areas.iter().enumerate() {
        let make = if area.pinned { "new_pinned" } else { "new_array" };
        _ = writeln!(text, "    area{number} = {make}({});", area.len);
    }
    let threads: Vec<usize> = (0..program.threads)
        .filter(|&thread| program.ops.iter().any(|op| op.thread == thread))
        .collect();
    run_threads(text, &threads);
    for number in 0..program.contexts.len() {
        _ = writeln!(
            text,
            "    SETUP(cuCtxSetCurrent(context{number}));\n    SETUP(cuCtxSynchronize());"
        );
    }
    text.push_str("}\n");
}

/// Returns the C initialiser of a job.
fn job(job: &Job) -> String {
    let at = |at: &crate::plan::Ptr| format!("area{} + {}", at.area, at.offset);
    match job {
        Job::Store { to, len, seed } => {
            format!(".kind = STORE, .to = {}, .len = {len}, .seed = 0x{seed:08x}u", at(to))
        }
        Job::Check { at: from, len } => format!(".kind = LOOK, .from = {}, .len = {len}", at(from)),
        Job::Move { to, from, len } => {
            format!(".kind = MOVE, .to = {}, .from = {}, .len = {len}", at(to), at(from))
        }
        Job::Rest => ".kind = REST".to_owned(),
    }
}
