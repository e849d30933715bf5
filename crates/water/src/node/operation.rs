//! Translates work into the back end's operation.

use crate::backend::Operation;
use crate::command::{End, Move, Work};
use crate::transport::Span;

/// Returns the operation for `work`, which must be neither a marker nor a move between ranks.
pub fn operation(work: &Work) -> Operation<'_> {
    match work {
        Work::CreateBuffer { buffer, size, flags } => {
            Operation::CreateBuffer { buffer: *buffer, size: *size, flags: *flags }
        }
        Work::ReleaseBuffer { buffer } => Operation::ReleaseBuffer { buffer: *buffer },
        Work::CreateKernel { kernel, code, name, options } => {
            Operation::CreateKernel { kernel: *kernel, code, name, options }
        }
        Work::ReleaseKernel { kernel } => Operation::ReleaseKernel { kernel: *kernel },
        Work::Run { kernel, range, args } => Operation::Run { kernel: *kernel, range, args },
        Work::Move(order) => move_operation(order),
        Work::CreateHeap { plan, member } => Operation::CreateHeap { plan, member: *member },
        Work::ReleaseHeap { heap } => Operation::ReleaseHeap { heap: *heap },
        Work::AbortHeap { heap, reason } => Operation::AbortHeap { heap: *heap, reason },
        Work::ResetHeap { heap, generation } => {
            Operation::ResetHeap { heap: *heap, generation: *generation }
        }
        Work::Marker => unreachable!("a marker has no operation"),
    }
}

fn move_operation(order: &Move) -> Operation<'_> {
    let sink = order.sinks.first().map(|sink| sink.to);
    match (order.source, sink) {
        (End::Host { address }, Some(End::Buffer { buffer, offset })) => {
            Operation::Write { buffer, offset, from: span(address, order.size) }
        }
        (End::Buffer { buffer, offset }, Some(End::Host { address })) => {
            Operation::Read { buffer, offset, into: span(address, order.size) }
        }
        (
            End::Buffer { buffer: from, offset: from_offset },
            Some(End::Buffer { buffer: to, offset: to_offset }),
        ) => Operation::Copy { from, from_offset, to, to_offset, size: order.size },
        _ => unreachable!("only a single move within the rank is one operation"),
    }
}

/// Returns a span of the program's memory.
pub fn span(address: u64, size: u64) -> Span {
    Span {
        start: std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default()),
        length: usize::try_from(size).unwrap_or_default(),
    }
}
