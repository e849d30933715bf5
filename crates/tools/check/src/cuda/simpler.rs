//! Makes CUDA programs smaller: drops operations, and replaces single operations by simpler forms.

use super::ledger::Ledger;
use super::plan::{Act, Job, Kernel, Platform, Program, Work};

/// Drops the operations that the ledger rejects.
pub(super) fn repair(program: &Program, platform: &Platform) -> Program {
    let mut ledger = Ledger::new(platform, program);
    let mut ops = Vec::new();
    for op in &program.ops {
        if let Ok(prepared) = ledger.prepare(op, false) {
            ledger.admit(op, prepared);
            ops.push(op.clone());
        }
    }
    Program { ops, ..program.clone() }
}

/// Returns simpler forms of an operation.
pub(super) fn simpler(act: &Act) -> Vec<Act> {
    match act {
        Act::Enqueue { stream, work } => simpler_work(work)
            .into_iter()
            .map(|work| Act::Enqueue { stream: *stream, work })
            .collect(),
        Act::NewStream { stream, context, blocking: true } => {
            vec![Act::NewStream { stream: *stream, context: *context, blocking: false }]
        }
        Act::EventWait { event, query: true } => {
            vec![Act::EventWait { event: *event, query: false }]
        }
        Act::StreamSync { stream, query: true } => {
            vec![Act::StreamSync { stream: *stream, query: false }]
        }
        Act::NewGraph { graph, context, parts } => {
            let with = |parts| Act::NewGraph { graph: *graph, context: *context, parts };
            let without = |index: usize| {
                let mut fewer = parts.clone();
                fewer.remove(index);
                with(fewer)
            };
            let one_branch =
                parts.iter().map(|part| super::plan::Part { second: false, ..*part }).collect();
            let branches = parts.iter().any(|part| part.second).then(|| with(one_branch));
            (0..parts.len()).map(without).chain(branches).collect()
        }
        _ => Vec::new(),
    }
}

fn simpler_work(work: &Work) -> Vec<Work> {
    match *work {
        Work::Launch { kernel, a, a_offset, count, seed, .. } if kernel != Kernel::Put => {
            let kernel = Kernel::Put;
            vec![Work::Launch { kernel, a, a_offset, b: None, b_offset: 0, count, seed, spin: 0 }]
        }
        Work::Function { job, delay_us } if delay_us > 0 || job != Job::Rest => {
            let still = Work::Function { job, delay_us: 0 };
            let rest = Work::Function { job: Job::Rest, delay_us };
            vec![still, rest].into_iter().filter(|it| it != work).collect()
        }
        _ => Vec::new(),
    }
}
