//! Prints a program as a C file that needs only OpenCL.

mod acts;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::cl::SOURCE;
use crate::finding::Finding;
use crate::model::Bytes;
use crate::plan::{Act, Op, Platform};
use crate::run::Prepared;

/// Largest number of words of one look that are compared. The words around the first wrong one are
/// among them.
const WORDS_MAX: usize = 40;

/// Returns the text of the C file.
pub fn print(prepared: &Prepared<'_>, platform: &Platform, finding: &Finding) -> String {
    let program = prepared.program;
    let mut text = String::new();
    let place = finding.op.map_or_else(String::new, |op| format!(" in operation {op}"));
    // Writing to a string cannot fail, here and below.
    _ = writeln!(
        text,
        "/* {}{place}: {}.\n * Expected is what a sequential execution gives that respects the order of the commands: {}\n * Seen on: \
         {} ({}). Seed {}.\n *\n * cc -O1 NAME.c -lOpenCL -lpthread; ./a.out [TIMES [PART OF THE PLATFORM'S NAME]]\n * Exit \
         status: 0 right in all runs, 1 wrong, 2 cannot be tried here. */",
        finding.kind.name(),
        comment(&finding.what),
        explain(prepared, finding),
        platform.name,
        comment(&platform.version),
        program.seed
    );
    text.push_str(HEAD);
    _ = writeln!(text, "static const char *source =\n{};", quoted(SOURCE));
    declare(&mut text, prepared);
    for (index, expected) in sorted(&prepared.expected.checks) {
        looks(&mut text, index, expected, finding);
    }
    for thread in 0..program.threads {
        if program.ops.iter().any(|op| op.thread == thread) {
            body(&mut text, prepared, thread);
        }
    }
    main(&mut text, prepared);
    text
}

pub(crate) fn comment(text: &str) -> String {
    text.replace("*/", "* /").trim_end_matches('.').to_owned()
}

/// Returns one line that says which operations wrote the expected and the seen value.
fn explain(prepared: &Prepared<'_>, finding: &Finding) -> String {
    let (Some(op), Some(at)) = (finding.op, finding.at) else {
        return "see the comments below.".to_owned();
    };
    let Some(expected) = prepared.expected.checks.get(&op) else { return String::new() };
    let origins = crate::model::origins(prepared.program, &prepared.ledger);
    let word = at / 4 * 4;
    let Some(bytes) = expected.data.get(word..word + 4) else {
        return "see the comments below.".to_owned();
    };
    let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match origins.get(&value) {
        Some(writer) => {
            format!("the expected word {value:#010x} is first written by operation {writer}.")
        }
        None => "see the comments below.".to_owned(),
    }
}

fn sorted(checks: &std::collections::HashMap<usize, Bytes>) -> Vec<(usize, &Bytes)> {
    let mut all: Vec<_> = checks.iter().map(|(&index, bytes)| (index, bytes)).collect();
    all.sort_by_key(|(index, _)| *index);
    all
}

pub(crate) fn quoted(source: &str) -> String {
    let line =
        |line: &str| format!("    \"{}\\n\"", line.replace('\\', "\\\\").replace('"', "\\\""));
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Declares variables of a type: one for each number, with the number behind their common name.
pub(crate) fn list(text: &mut String, kind: &str, name: &str, ids: Vec<usize>) {
    if !ids.is_empty() {
        let names: Vec<_> = ids.iter().map(|id| format!("{name}{id}")).collect();
        _ = writeln!(text, "static {kind} {};", names.join(", "));
    }
}

/// Returns the numbers that `id` finds in the operations, in their order and without doubles.
pub(crate) fn ids<A>(ops: &[Op<A>], id: impl Fn(&A) -> Option<usize>) -> Vec<usize> {
    let ids: BTreeSet<usize> = ops.iter().filter_map(|op| id(&op.act)).collect();
    ids.into_iter().collect()
}

fn declare(text: &mut String, prepared: &Prepared<'_>) {
    let (program, ledger) = (prepared.program, &prepared.ledger);
    let contexts = program.contexts.len();
    list(text, "cl_context", "context", (0..contexts).collect());
    list(text, "cl_program", "program", (0..contexts).collect());
    list(text, "cl_command_queue", "queue", ledger.queues.keys().copied().collect());
    let svm = |id: &&usize| ledger.mems[id].kind == crate::ledger::MemKind::Svm;
    list(text, "cl_mem", "mem", ledger.mems.keys().filter(|id| !svm(id)).copied().collect());
    list(text, "unsigned char", "*svm", ledger.mems.keys().filter(svm).copied().collect());
    list(text, "cl_event", "event", ledger.events.keys().copied().collect());
    list(text, "unsigned char", "*area", ledger.areas.keys().copied().collect());
    let signals = ids(&program.ops, |act| match act {
        Act::Signal { id } => Some(*id),
        _ => None,
    });
    list(text, "atomic_int", "signal", signals);
    let callbacks = ids(&program.ops, |act| match act {
        Act::Callback { callback, .. } => Some(*callback),
        _ => None,
    });
    list(text, "struct callback", "callback", callbacks);
    if program.ops.iter().any(|op| matches!(op.act, Act::TooBig { .. })) {
        text.push_str("static int refused;\n");
    }
}

/// Writes the words that one look must see, as a table.
fn looks(text: &mut String, index: usize, expected: &Bytes, finding: &Finding) {
    look_table(
        text,
        &format!("look{index}"),
        expected,
        finding.at.filter(|_| finding.op == Some(index)),
    );
}

/// Writes a table of the words that a look must see. `wrong` is the first wrong byte.
pub(crate) fn look_table(text: &mut String, name: &str, expected: &Bytes, wrong: Option<usize>) {
    let words: Vec<usize> = (0..expected.data.len() / 4)
        .filter(|word| expected.known[word * 4..word * 4 + 4].iter().all(|&known| known))
        .collect();
    let wrong = wrong.map_or(usize::MAX, |at| at / 4);
    let step = (words.len() / (WORDS_MAX / 2)).max(1);
    let near = |word: usize| word >= wrong && word < wrong.saturating_add(WORDS_MAX / 4);
    let last = words.len().saturating_sub(4);
    let wanted =
        |&(place, &word): &(usize, &usize)| place % step == 0 || place >= last || near(word);
    let entry = |(_, &word): (usize, &usize)| {
        let bytes = &expected.data[word * 4..word * 4 + 4];
        format!(
            "{{{}, 0x{:08x}}}",
            word * 4,
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        )
    };
    let all: Vec<String> = words.iter().enumerate().filter(wanted).map(entry).collect();
    if all.is_empty() {
        return;
    }
    _ = writeln!(text, "static const struct look {name}[] = {{");
    for line in all.chunks(5) {
        _ = writeln!(text, "    {},", line.join(", "));
    }
    text.push_str("};\n");
}

fn body(text: &mut String, prepared: &Prepared<'_>, thread: usize) {
    _ = writeln!(text, "\nstatic void *thread{thread}(void *unused) {{\n    (void)unused;");
    for (index, op) in prepared.program.ops.iter().enumerate().filter(|(_, op)| op.thread == thread)
    {
        if op.delay_us > 0 {
            _ = writeln!(text, "    usleep({});", op.delay_us);
        }
        for line in acts::lines(prepared, index, op) {
            _ = writeln!(text, "    {line}");
        }
    }
    text.push_str("    return NULL;\n}\n");
}

fn main(text: &mut String, prepared: &Prepared<'_>) {
    let (program, ledger) = (prepared.program, &prepared.ledger);
    text.push_str("\nstatic void run(void) {\n    open_platform();\n");
    for (context, devices) in program.contexts.iter().enumerate() {
        let list: Vec<_> = devices.iter().map(|device| format!("device({device})")).collect();
        _ = writeln!(
            text,
            "    context{context} = new_context({}, (cl_device_id[]){{{}}}, &program{context});",
            devices.len(),
            list.join(", ")
        );
    }
    for (area, len) in program.arrays.iter().enumerate() {
        _ = writeln!(text, "    area{area} = new_array({len});");
    }
    let threads: Vec<usize> = (0..program.threads)
        .filter(|&thread| program.ops.iter().any(|op| op.thread == thread))
        .collect();
    run_threads(text, &threads);
    // A user event may be released only when it is set. At this point all are set.
    for event in ledger.events.iter().filter(|(_, it)| it.alive).map(|(id, _)| id) {
        _ = writeln!(text, "    if (event{event} != NULL) clReleaseEvent(event{event});");
    }
    let svm = |mem: &crate::ledger::Mem| mem.kind == crate::ledger::MemKind::Svm;
    for mem in ledger.mems.iter().filter(|(_, it)| it.alive && !svm(it)).map(|(id, _)| id) {
        _ = writeln!(text, "    clReleaseMemObject(mem{mem});");
    }
    for queue in ledger.queues.iter().filter(|(_, it)| it.alive).map(|(id, _)| id) {
        _ = writeln!(text, "    clReleaseCommandQueue(queue{queue});");
    }
    text.push_str("}\n");
    text.push_str(TAIL);
}

/// Writes the calls that run the functions `thread0`, `thread1` and so on of a program, and that
/// wait for their ends. One thread alone needs no other thread of the system.
pub(crate) fn run_threads(text: &mut String, threads: &[usize]) {
    if let [only] = threads {
        _ = writeln!(text, "    thread{only}(NULL);");
        return;
    }
    _ = writeln!(text, "    pthread_t threads[{}];", threads.len());
    for (place, thread) in threads.iter().enumerate() {
        _ = writeln!(text, "    pthread_create(&threads[{place}], NULL, thread{thread}, NULL);");
    }
    _ = writeln!(
        text,
        "    for (int i = 0; i < {}; i++) pthread_join(threads[i], NULL);",
        threads.len()
    );
}

const HEAD: &str = include_str!("c/head.c");
const TAIL: &str = include_str!("c/tail.c");
