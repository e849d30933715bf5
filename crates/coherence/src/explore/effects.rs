//! What commands do to memory, and what a sequential run gives.

use super::plan::{Act, Command, HOST_CELL_BYTES, HOST_CELLS, HOST_START, Op, Program, Step, host_cells};
use super::random::mix;
use crate::{Access, HostShape};

/// The content that an allocation is made with.
pub(super) fn initial(allocation: usize, cell: usize) -> u64 {
    mix(0xA110C + 100 * allocation as u64 + cell as u64)
}

/// What the host stores in an operation.
pub(super) fn stored(index: usize) -> u64 {
    mix(0x57_012E + index as u64)
}

/// The program's memory that a command reads and writes.
pub(super) fn host_use(command: &Command) -> (Option<HostShape>, Option<HostShape>) {
    let shape = |first: usize, pitch: usize, count: usize| HostShape {
        start: HOST_START + first as u64 * HOST_CELL_BYTES,
        row: HOST_CELL_BYTES,
        rows: count as u64,
        row_pitch: pitch as u64 * HOST_CELL_BYTES,
        slices: 1,
        slice_pitch: count as u64 * pitch as u64 * HOST_CELL_BYTES,
    };
    match &command.act {
        Act::Write(span, first, pitch) => (Some(shape(*first, *pitch, span.count)), None),
        Act::Read(span, first, pitch) => (None, Some(shape(*first, *pitch, span.count))),
        Act::Run(cell) => (None, Some(shape(*cell, 1, 1))),
        _ => (None, None),
    }
}

/// What a command does to the memory of a place. `host` gives the value of the payload's cell of an index, or takes
/// what goes to a cell of the program's memory.
pub(super) fn apply(
    index: usize,
    act: &Act,
    memory: &mut [Vec<u64>],
    host: &mut dyn FnMut(usize, Option<u64>) -> u64,
) -> bool {
    match act {
        Act::Kernel { is_refused: true, .. } => return false,
        Act::Kernel { uses, .. } => {
            let mut seen = stored(index);
            for (span, _) in uses.iter().filter(|(_, access)| *access != Access::Overwrite) {
                for value in &memory[span.of][span.at..span.at + span.count] {
                    seen = mix(seen ^ value);
                }
            }
            for (span, access) in uses.iter().filter(|(_, access)| *access != Access::Read) {
                let cells = memory[span.of].iter_mut().enumerate().skip(span.at).take(span.count);
                for (cell, value) in cells {
                    // A kernel that may write some of its bytes leaves others as they are.
                    if *access == Access::Overwrite || cell % 2 == 0 {
                        *value = mix(seen ^ cell as u64);
                    }
                }
            }
        }
        Act::Write(span, ..) => {
            for at in 0..span.count {
                memory[span.of][span.at + at] = host(at, None);
            }
        }
        Act::Read(span, first, pitch) => {
            for (cell, to) in (span.at..).zip(host_cells(*first, *pitch, span.count)) {
                host(to, Some(memory[span.of][cell]));
            }
        }
        Act::Copy(from, to) => {
            for at in 0..from.count {
                memory[to.of][to.at + at] = memory[from.of][from.at + at];
            }
        }
        Act::Marker | Act::Barrier | Act::Run(_) => {}
    }
    true
}

type Memory = (Vec<Vec<u64>>, [u64; HOST_CELLS]);

/// A sequential run: the memory at its end.
pub(super) fn reference(program: &Program) -> Memory {
    let content = |(of, (cells, _, has_initial)): (usize, &(usize, bool, bool))| -> Vec<u64> {
        (0..*cells).map(|cell| if *has_initial { initial(of, cell) } else { 0 }).collect()
    };
    let mut memory: Vec<_> = program.allocations.iter().enumerate().map(content).collect();
    let mut host: [u64; HOST_CELLS] = std::array::from_fn(|cell| mix(0x1057 + cell as u64));
    let failing = program.failing();
    for step in program.sequence() {
        match step {
            Step::Do(index) => {
                if let Op::Store(cell) = &program.ops[index].1 {
                    host[*cell] = stored(index);
                }
            }
            Step::Run(index) => {
                let Op::Enqueue(command) = &program.ops[index].1 else { continue };
                if failing[index] {
                    continue;
                }
                if let Act::Run(cell) = command.act {
                    host[cell] = mix(host[cell] ^ stored(index));
                }
                let taken: Vec<u64> = match &command.act {
                    Act::Write(span, first, pitch) => {
                        host_cells(*first, *pitch, span.count).map(|cell| host[cell]).collect()
                    }
                    _ => Vec::new(),
                };
                apply(index, &command.act, &mut memory, &mut |cell, value| match value {
                    Some(value) => {
                        host[cell] = value;
                        0
                    }
                    None => taken.get(cell).copied().unwrap_or_default(),
                });
            }
        }
    }
    (memory, host)
}
