//! One move under way: its order, its base, and the progress of each sink.

use std::any::Any;

use crate::backend::{Backend, Failure};
use crate::command::{CommandId, End, Fault, Move, Sink};
use crate::transport::Span;

/// Why a move was broken off.
#[derive(Clone, Debug)]
pub enum Broken {
    /// Another command failed, with this fault.
    Fault(Box<Fault>),
    /// The move itself failed.
    Failure(Failure),
}

/// A move under way.
#[derive(Debug)]
pub struct Flow {
    pub id: CommandId,
    pub device: u32,
    /// Ordinal of its job on this rank.
    pub ordinal: u64,
    pub order: Move,
    /// `None` until the bytes have a place.
    pub base: Option<Base>,
    pub source: SourceProgress,
    pub sinks: Vec<SinkProgress>,
    pub command: CommandPhase,
    /// Why the move was broken off.
    pub broken: Option<Broken>,
    /// Whether nothing is copied, because the bytes are not kept.
    pub is_hollow: bool,
}

/// How far the command of a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandPhase {
    /// The waits of the command have not ended: local sinks get nothing yet.
    Held,
    Running,
    /// The outcome was reported. Other ranks may still get bytes.
    Reported,
}

/// What the source of a move does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePhase {
    /// The stream from another rank waits for admission.
    Waiting,
    /// The source is on this rank, or its stream has been admitted.
    #[default]
    Admitted,
    /// The source broke the stream off, and its fault has not arrived yet.
    AwaitsFault,
}

/// The bytes that have come from the source.
#[derive(Debug, Default)]
pub struct SourceProgress {
    pub phase: SourcePhase,
    /// Number of contiguous bytes received so far.
    pub arrived: u64,
    /// Pieces that have arrived out of order, by index.
    pub out_of_order: Vec<u64>,
    /// The next piece to ask the source for.
    pub next: u64,
    /// Number of pieces asked for that have not arrived.
    pub awaited: u64,
}

#[derive(Debug, Default)]
pub struct SinkProgress {
    /// Number of the sink's bytes that were given away.
    pub given: u64,
    /// Number of bytes that have reached the sink.
    pub there: u64,
    pub under_way: u64,
    /// The receiver was told that there are bytes.
    pub is_offered: bool,
}

/// The place through which all bytes of a move pass.
pub struct Base {
    pub start: *mut u8,
    /// Keeps the memory alive: a block of the move's own, or a buffer.
    pub _keep: Option<Box<dyn Any + Send>>,
    /// It is a buffer's memory, which later commands may change once this one has ended.
    pub is_live: bool,
    /// Index of the sink whose memory it is.
    pub sink: Option<usize>,
}

impl std::fmt::Debug for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Base")
            .field("start", &self.start)
            .field("is_live", &self.is_live)
            .finish_non_exhaustive()
    }
}

// SAFETY: one thread at a time drives the node, and only that thread uses the address.
unsafe impl Send for Base {}

impl Base {
    pub fn at(&self, offset: u64, size: u64) -> Span {
        let offset = usize::try_from(offset).unwrap_or_default();
        Span {
            start: self.start.wrapping_add(offset),
            length: usize::try_from(size).unwrap_or_default(),
        }
    }
}

impl Flow {
    pub fn piece(&self, index: u64) -> (u64, u64) {
        let start = index.saturating_mul(self.order.segment.max(1));
        (start, self.order.segment.max(1).min(self.order.size.saturating_sub(start)))
    }

    pub fn pieces(&self) -> u64 {
        self.order.size.div_ceil(self.order.segment.max(1))
    }

    pub fn has_all(&self) -> bool {
        self.source.arrived >= self.order.size
    }

    pub fn is_local(sink: &Sink) -> bool {
        !matches!(sink.to, End::Rank { .. })
    }

    /// Whether the command has ended. That is when all local sinks have their bytes, or all sinks
    /// if none is local or if later commands may change the base. A move without sinks is done when
    /// its bytes have arrived.
    pub fn is_done(&self) -> bool {
        if self.order.sinks.is_empty() {
            return self.has_all();
        }
        let live = self.base.as_ref().is_some_and(|base| base.is_live && base.sink.is_none());
        let local = self.order.sinks.iter().any(Self::is_local);
        self.order.sinks.iter().zip(&self.sinks).all(|(sink, state)| {
            (local && !live && !Self::is_local(sink)) || state.there >= sink.size
        })
    }

    /// Whether nothing of the move is under way any more.
    pub fn is_over(&self) -> bool {
        let taken = self.has_all() && self.source.awaited == 0;
        taken
            && self
                .order
                .sinks
                .iter()
                .zip(&self.sinks)
                .all(|(sink, state)| state.there >= sink.size)
    }
}

pub fn arrive(flow: &mut Flow, index: u64) {
    flow.source.out_of_order.push(index);
    while let Some(position) = flow
        .source
        .out_of_order
        .iter()
        .position(|early| flow.piece(*early).0 == flow.source.arrived)
    {
        let index = flow.source.out_of_order.swap_remove(position);
        let (_, size) = flow.piece(index);
        flow.source.arrived += size;
    }
}

/// Chooses the place for a move's bytes. Returns `None` if there is no memory.
pub fn base(order: &Move, backend: &dyn Backend) -> Option<Base> {
    let at = |start, is_live, sink| Some(Base { start, _keep: None, is_live, sink });
    match order.source {
        End::Host { address } => {
            return at(Span::of_address(address, order.size).start, false, None);
        }
        End::Buffer { buffer, offset } => {
            if let Some(memory) = backend.memory(buffer, offset, order.size) {
                return Some(Base {
                    start: memory.span.start,
                    _keep: Some(memory.keep),
                    is_live: true,
                    sink: None,
                });
            }
        }
        End::Rank { .. } => {}
    }
    if backend.is_hollow() {
        return Some(scratch_block(order));
    }
    // A later command must not be able to change bytes that are forwarded.
    let forwards = order.sinks.iter().any(|sink| matches!(sink.to, End::Rank { .. }));
    for (index, sink) in order
        .sinks
        .iter()
        .enumerate()
        .filter(|(_, sink)| sink.first == 0 && sink.size == order.size)
    {
        match sink.to {
            End::Host { address } => {
                return at(Span::of_address(address, order.size).start, false, Some(index));
            }
            End::Buffer { buffer, offset } if !forwards => {
                if let Some(memory) = backend.memory(buffer, offset, order.size) {
                    return Some(Base {
                        start: memory.span.start,
                        _keep: Some(memory.keep),
                        is_live: true,
                        sink: Some(index),
                    });
                }
            }
            _ => {}
        }
    }
    block(order)
}

/// Allocates room for all bytes. Returns `None` if there is no memory.
pub fn block(order: &Move) -> Option<Base> {
    let mut block = Vec::new();
    let size = usize::try_from(order.size).ok()?;
    block.try_reserve_exact(size).ok()?;
    block.resize(size, 0);
    let mut block = block.into_boxed_slice();
    Some(Base {
        start: block.as_mut_ptr(),
        _keep: Some(Box::new(block)),
        is_live: false,
        sink: None,
    })
}

/// Allocates room for one piece, for bytes that nobody wants.
pub fn scratch_block(order: &Move) -> Base {
    let size = order.segment.min(order.size).max(1);
    if let Some(start) = crate::simulator::room(size) {
        return Base { start, _keep: None, is_live: false, sink: None };
    }
    let size = usize::try_from(size).unwrap_or_default().max(1);
    let mut block = vec![0; size].into_boxed_slice();
    Base { start: block.as_mut_ptr(), _keep: Some(Box::new(block)), is_live: false, sink: None }
}

pub fn copy(from: Span, to: Span) {
    // SAFETY: both spans are memory of this move's ends, and the shorter length bounds the copy.
    // `copy` allows overlap: a program that reads and writes one place at the same time gets the
    // bytes of either.
    unsafe { std::ptr::copy(from.start, to.start, from.length.min(to.length)) };
}
