//! The effects of commands on memory.

use super::program::{Act, Command, HOST_CELL_BYTES, HOST_START, host_cells};
use super::random::mix;
use crate::{Access, HostShape};

/// Returns a cell of the content that an allocation is made with.
pub(super) fn initial(allocation: usize, cell: usize) -> u64 {
    mix(0xA110C + 100 * allocation as u64 + cell as u64)
}

/// Returns a cell of the program's memory at the start.
pub(super) fn host_initial(cell: usize) -> u64 {
    mix(0x1057 + cell as u64)
}

/// Returns the value that the operation with this index stores.
pub(super) fn stored(index: usize) -> u64 {
    mix(0x57_012E + index as u64)
}

/// Returns the parts of the program's memory that a command reads and writes.
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

/// Applies a command to the memory of a place. `host` returns a cell of the payload, or takes the
/// value for a cell of the program's memory.
pub(super) fn apply(
    index: usize,
    act: &Act,
    memory: &mut [Vec<u64>],
    host: &mut dyn FnMut(usize, Option<u64>) -> u64,
) {
    match act {
        Act::Kernel(uses) => {
            let mut seen = stored(index);
            for (span, _) in uses.iter().filter(|(_, access)| *access != Access::Overwrite) {
                for value in &memory[span.of][span.at..span.at + span.count] {
                    seen = mix(seen ^ value);
                }
            }
            for (span, access) in uses.iter().filter(|(_, access)| *access != Access::Read) {
                let cells = memory[span.of].iter_mut().enumerate().skip(span.at).take(span.count);
                for (cell, value) in cells {
                    // A kernel that may write some of its bytes leaves others unchanged.
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
}
