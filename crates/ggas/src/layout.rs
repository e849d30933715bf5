//! Where everything lies in a heap: the one place on this side. `include/ggas.h` says the same to kernels, and a test has
//! a kernel print its offsets.
//!
//! A view is `[head][part of PE 0][part of PE 1]...`; a part is `[flags of barriers][the user's bytes]`.

use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

/// The first word of a head: "GGASHEAP" as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GGASHEAP");
/// The version of this layout.
pub const VERSION: u32 = 1;

/// PEs of one heap at most. Flags, counts and paths are arrays of so many; 64 devices are eight full nodes.
pub const PES_MAX: u32 = 64;
/// Teams that may be in use at a time.
pub const TEAM_SLOTS: usize = 8;
/// The unit in which cores share memory: what different writers write lies in different lines.
pub const LINE_BYTES: usize = 64;
/// The unit in which memory is mapped.
pub const PAGE_BYTES: usize = 4096;

/// Entries of a PE's ring: as much as a work-group of 256 work-items posts without waiting. A power of two.
pub const RING_ENTRIES: usize = 256;

/// Bytes of flags in front of the user's bytes: one line for each team slot and PE, so that each has one writer.
pub const FLAGS_BYTES: usize = TEAM_SLOTS * PES_MAX as usize * LINE_BYTES;
/// The user's bytes of one PE at most: 64 parts of 1 TiB are half of the addresses that a process has.
pub const BYTES_MAX: u64 = 1 << 40;
/// Bytes of a head.
pub const HEAD_BYTES: usize = size_of::<Head>();

/// From one part to the next.
pub const fn stride(bytes: u64) -> u64 {
    (FLAGS_BYTES as u64 + bytes).next_multiple_of(PAGE_BYTES as u64)
}

/// Where the flag of PE `from` for a team slot lies in a part.
pub const fn flag_offset(slot: usize, from: u32) -> u64 {
    ((slot * PES_MAX as usize + from as usize) * LINE_BYTES) as u64
}

/// How a PE reaches another, in [`Head::paths`].
pub mod path {
    /// By stores into the mapped part.
    pub const MAPPED: u8 = 1;
    /// By entries in the ring.
    pub const PROXY: u8 = 2;
}

/// What an entry of the ring asks for, in [`Entry::kind`].
pub mod kind {
    /// Bytes of the own part to another one, and then a signal if [`super::NO_SIGNAL`] is not given.
    pub const PUT: u32 = 1;
    /// Four bytes, which are in the entry's `value`.
    pub const STORE_32: u32 = 2;
    /// Eight bytes, which are in the entry's `value`.
    pub const STORE_64: u32 = 3;
    /// No bytes: that all before it be acknowledged.
    pub const QUIET: u32 = 4;
}

/// In [`Entry::signal_at`]: none.
pub const NO_SIGNAL: u64 = u64::MAX;

/// What one PE has for itself, and shares with its member's threads alone.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The PE.
    pub me: AtomicU32,
    /// How many there are.
    pub count: AtomicU32,
    /// Looks of a wait between two yields.
    pub looks: AtomicU32,
    /// From one part to the next, in bytes.
    pub stride: AtomicU64,
    /// The user's bytes of a part.
    pub bytes: AtomicU64,
    /// The bound of waits, in milliseconds of `clock_ms`.
    pub timeout_ms: AtomicU64,
    /// The bound of waits, in yields, where the clock stands still.
    pub rounds_max: AtomicU64,
    _line0: [AtomicU8; 8],

    /// Not 0: every wait ends.
    pub abort: AtomicU64,
    /// Milliseconds while kernels run; kernels have no clock of their own.
    pub clock_ms: AtomicU64,
    /// The first status that was not OK of an operation of this PE through the proxy, or in a group.
    pub status: AtomicI32,
    /// Changed where a fence of the compiler is too weak.
    pub fences: AtomicU32,
    _line1: [AtomicU8; 40],

    /// How each PE is reached: see [`path`].
    pub paths: [AtomicU8; PES_MAX as usize],
    _lines2: [AtomicU8; 64],

    /// The next free position of the ring; written by kernels.
    pub tail: Line<AtomicU64>,
    /// All positions below are known to be complete at their targets; written by the proxy.
    pub done: Line<AtomicU64>,
    /// All positions below are complete or flags of barriers, which nobody waits for; written by kernels.
    pub settled: Line<AtomicU64>,
    _lines3: [AtomicU8; 64],

    /// Work-groups of this PE at a barrier, by team slot.
    pub teams: [Team; TEAM_SLOTS],
    /// How many barriers this PE has had with each other one, by team slot.
    pub met: [[AtomicU64; PES_MAX as usize]; TEAM_SLOTS],
    _pad: [AtomicU8; 3072],
    /// The ring.
    pub ring: [Entry; RING_ENTRIES],
}

/// A value alone in its line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line<T>(pub T);

/// How the work-groups of one PE meet.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Team {
    /// Those that have come.
    pub arrived: AtomicU32,
    /// The first status of a barrier that was not OK; all later ones of this slot have it too.
    pub status: AtomicI32,
    /// Barriers that are over.
    pub epoch: AtomicU64,
}

/// One entry of the ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// Position + 1: filled, for the proxy. Position + [`RING_ENTRIES`]: free again, its bytes have been taken.
    pub sequence: AtomicU64,
    /// See [`kind`].
    pub kind: AtomicU32,
    /// For which PE.
    pub pe: AtomicU32,
    /// Where the bytes go, in the part of that PE.
    pub target_at: AtomicU64,
    /// Where the bytes are, in the own part; or the value itself.
    pub value: AtomicU64,
    /// How many bytes.
    pub length: AtomicU64,
    /// Where the signal lies, in the part of that PE; or [`NO_SIGNAL`].
    pub signal_at: AtomicU64,
    /// The signal's value.
    pub signal: AtomicU64,
    _spare: AtomicU64,
}

const _: () = {
    assert!(HEAD_BYTES.is_multiple_of(PAGE_BYTES));
    assert!(FLAGS_BYTES.is_multiple_of(PAGE_BYTES));
    assert!(RING_ENTRIES.is_power_of_two());
    assert!(size_of::<Entry>() == LINE_BYTES && size_of::<Team>() == LINE_BYTES);
    assert!(offset_of!(Head, abort) == 64);
    assert!(offset_of!(Head, paths) == 128);
    assert!(offset_of!(Head, tail) == 256);
    assert!(offset_of!(Head, teams) == 512);
    assert!(offset_of!(Head, met) == 1024);
    assert!(offset_of!(Head, ring) == 8192);
    assert!(HEAD_BYTES == 24_576);
};
