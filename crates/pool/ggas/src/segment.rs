//! The memory of one member: its parts, which other members map, too, and the views of its PEs.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use penstock_link::{Addresses, SharedMemory};

use crate::error::HeapError;
use crate::layout::{self, FLAGS_BYTES, HEAD_BYTES, Head, MAGIC, VERSION, path};
use crate::plan::Plan;

/// Parts of this member's PEs, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Parts {
    memory: SharedMemory,
    mapped: Addresses,
    stride: usize,
    pes: Vec<u32>,
}

impl Parts {
    pub(crate) fn create(plan: &Plan) -> Result<Self, HeapError> {
        let pes: Vec<u32> = plan.pes_of(plan.me).collect();
        let stride = stride_of(plan)?;
        // No overflow: 64 parts of 1 TiB and a page.
        let bytes = stride * pes.len();
        let memory = SharedMemory::create("penstock-heap", bytes)?;
        let mut mapped = Addresses::reserve(bytes)?;
        mapped.map_shared(0, &memory, 0, bytes)?;
        Ok(Self { memory, mapped, stride, pes })
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    pub(crate) fn pes(&self) -> &[u32] {
        &self.pes
    }

    /// Returns the address of `length` bytes at `offset` of an own part, or `None` if they exceed
    /// it. Valid as long as this value.
    pub(crate) fn place(&self, pe: u32, offset: u64, length: u64) -> Option<NonNull<u8>> {
        let index = self.pes.binary_search(&pe).ok()?;
        let end = offset.checked_add(length)?;
        if end > self.stride as u64 {
            return None;
        }
        let at = index * self.stride + usize::try_from(offset).ok()?;
        // SAFETY: part and offset lie within the mapping, as checked.
        Some(unsafe { self.mapped.base().add(at) })
    }

    /// Like [`Parts::place`], for user bytes.
    pub(crate) fn user_place(&self, pe: u32, offset: u64, length: u64) -> Option<NonNull<u8>> {
        self.place(pe, offset.checked_add(FLAGS_BYTES as u64)?, length)
    }
}

/// Mapped view of the heap for one of this member's PEs.
#[derive(Clone, Debug)]
pub(crate) struct MappedView {
    pub(crate) pe: u32,
    pub(crate) memory: Arc<Addresses>,
    /// The head and the mapped parts. Unmapped parts may lie between them.
    pub(crate) pieces: Arc<[Range<usize>]>,
}

impl MappedView {
    /// Maps the view of an own PE. `theirs` returns the memory of another member, if it is shared.
    pub(crate) fn new<'a>(
        plan: &Plan,
        parts: &'a Parts,
        pe: u32,
        looks: u32,
        theirs: &dyn Fn(u32) -> Option<&'a SharedMemory>,
    ) -> Result<Self, HeapError> {
        let stride = stride_of(plan)?;
        let mut memory = Addresses::reserve(HEAD_BYTES + stride * plan.members.len())?;
        memory.map_private(0, HEAD_BYTES)?;
        let mut paths = Vec::new();
        // One range per piece, because the pieces are mapped one by one.
        let mut pieces: Vec<_> = std::iter::once(0..HEAD_BYTES).collect();
        for (index, &member) in plan.members.iter().enumerate() {
            let from = if member == plan.me { Some(&parts.memory) } else { theirs(member) };
            if let Some(from) = from {
                let position =
                    plan.members[..index].iter().filter(|&&other| other == member).count();
                let at = HEAD_BYTES + index * stride;
                memory.map_shared(at, from, position * stride, stride)?;
                pieces.push(at..at + stride);
            }
            paths.push(if from.is_some() { path::MAPPED } else { path::PROXY });
        }
        let mapped = Self { pe, memory: Arc::new(memory), pieces: pieces.into() };
        mapped.fill(plan, looks, &paths, stride);
        Ok(mapped)
    }

    fn fill(&self, plan: &Plan, looks: u32, paths: &[u8], stride: usize) {
        let head = self.head();
        head.version.store(VERSION, Relaxed);
        head.me.store(self.pe, Relaxed);
        head.count.store(plan.count(), Relaxed);
        head.looks.store(looks, Relaxed);
        head.stride.store(stride as u64, Relaxed);
        head.bytes.store(plan.bytes, Relaxed);
        head.timeout_ms.store(plan.timeout_ms(), Relaxed);
        head.rounds_max.store(rounds_max(plan), Relaxed);
        for (to, &path) in head.paths.iter().zip(paths) {
            to.store(path, Relaxed);
        }
        for (position, entry) in (0..).zip(&head.ring) {
            entry.sequence.store(position, Relaxed);
        }
        head.magic.store(MAGIC, Release);
    }

    /// Returns the head. Kernels write to it at any time, so all its fields are atomic.
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: a head is mapped at the start of the view, page-aligned, as long as `memory`
        // lives. Every field is atomic, and all bits are valid.
        unsafe { self.memory.base().cast::<Head>().as_ref() }
    }
}

/// Returns the size of the memory that a member must offer.
pub(crate) fn memory_bytes(plan: &Plan, member: u32) -> Result<usize, HeapError> {
    Ok(stride_of(plan)? * plan.pes_of(member).count())
}

fn stride_of(plan: &Plan) -> Result<usize, HeapError> {
    let stride = layout::stride(plan.bytes);
    usize::try_from(stride).map_err(|_| HeapError::Limit {
        what: "bytes per PE",
        given: plan.bytes,
        min: 1,
        max: usize::MAX as u64,
    })
}

/// Returns the rounds of a wait that take about as long as the timeout. They are used if nobody
/// told the heap that a kernel runs, so that the head's clock stands still. A yield with its looks
/// takes at least 0.2 µs. A nap counts as `GGAS_NAP_ROUNDS` rounds.
fn rounds_max(plan: &Plan) -> u64 {
    const ROUNDS_PER_MS: u64 = 5_000;
    plan.timeout_ms().saturating_mul(ROUNDS_PER_MS)
}
