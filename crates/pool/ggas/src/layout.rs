//! The layout of a heap on the host's side. `include/ggas.h` repeats it for kernels; a test has a
//! kernel print its offsets.
//!
//! A view is `[head][part of PE 0][part of PE 1]...`; a part is `[flags of barriers][user bytes]`.

use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

/// First word of a head: "GGASHEAP" as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GGASHEAP");
/// Version of this layout.
pub const VERSION: u32 = 1;

/// Maximum number of PEs of a heap and length of arrays by PE: eight full nodes have 64 devices.
pub const PES_MAX: u32 = 64;
/// Number of teams that may be in use at a time.
pub const TEAM_SLOTS: usize = 8;
/// Size of a cache line. Data of different writers lies in different lines.
pub const LINE_BYTES: usize = 64;
/// Unit of mappings in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Number of entries of a PE's ring, a power of two: 256 work-items can post without waiting.
pub const RING_ENTRIES: usize = 256;

/// Bytes of flags before the user bytes: a line per team slot and PE, so each has one writer.
pub const FLAGS_BYTES: usize = TEAM_SLOTS * PES_MAX as usize * LINE_BYTES;
/// Maximum number of user bytes of one PE: 64 parts of 1 TiB are half of a process's addresses.
pub const BYTES_MAX: u64 = 1 << 40;
/// Size of a head in bytes.
pub const HEAD_BYTES: usize = size_of::<Head>();

/// Returns the distance between two parts in bytes.
pub const fn stride(bytes: u64) -> u64 {
    (FLAGS_BYTES as u64 + bytes).next_multiple_of(PAGE_BYTES as u64)
}

/// Returns the offset in a view of the user bytes of a PE's part.
pub const fn user_offset(pe: u32, bytes: u64) -> u64 {
    HEAD_BYTES as u64 + pe as u64 * stride(bytes) + FLAGS_BYTES as u64
}

/// How a PE reaches another, in [`Head::paths`].
pub mod path {
    /// By stores into the mapped part.
    pub const MAPPED: u8 = 1;
    /// By entries in the ring.
    pub const PROXY: u8 = 2;
}

/// Request of a ring entry, in [`Entry::kind`].
pub mod kind {
    /// Sends bytes of the PE's own part, then the signal unless it is [`super::NO_SIGNAL`].
    pub const PUT: u32 = 1;
    /// Sends four bytes, which are in the entry's `value`.
    pub const STORE_32: u32 = 2;
    /// Sends eight bytes, which are in the entry's `value`.
    pub const STORE_64: u32 = 3;
    /// Sends nothing; completes when all earlier entries have been acknowledged.
    pub const QUIET: u32 = 4;
}

/// Value of [`Entry::signal_at`] for no signal.
pub const NO_SIGNAL: u64 = u64::MAX;

/// Private data of one PE, shared only with the threads of its member.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// Always the value [`MAGIC`].
    pub magic: AtomicU64,
    /// Always the value [`VERSION`].
    pub version: AtomicU32,
    /// Number of this PE.
    pub me: AtomicU32,
    /// Number of PEs of the heap.
    pub count: AtomicU32,
    /// Number of looks between two yields of a wait.
    pub looks: AtomicU32,
    /// Distance between two parts in bytes.
    pub stride: AtomicU64,
    /// Number of user bytes of a part.
    pub bytes: AtomicU64,
    /// Bound of waits in milliseconds of `clock_ms`.
    pub timeout_ms: AtomicU64,
    /// Bound of waits in yields, used while the clock stands still.
    pub rounds_max: AtomicU64,
    _line0: [AtomicU8; 8],

    /// Every wait ends if this is not 0.
    pub abort: AtomicU64,
    /// Time in milliseconds while kernels run; kernels have no clock of their own.
    pub clock_ms: AtomicU64,
    /// First error status of an operation of this PE through the proxy or in a group.
    pub status: AtomicI32,
    /// Changed where a fence of the compiler is too weak.
    pub fences: AtomicU32,
    _line1: [AtomicU8; 40],

    /// How this PE reaches each PE: see [`path`].
    pub paths: [AtomicU8; PES_MAX as usize],
    _lines2: [AtomicU8; 64],

    /// Next free position of the ring; written by kernels.
    pub tail: Line<AtomicU64>,
    /// All lower positions are known to be complete at their targets; written by the proxy.
    pub done: Line<AtomicU64>,
    /// All lower positions are complete or flags of barriers, which nothing awaits; written by
    /// kernels.
    pub settled: Line<AtomicU64>,
    _lines3: [AtomicU8; 64],

    /// Work-groups of this PE at a barrier, by team slot.
    pub teams: [Team; TEAM_SLOTS],
    /// Number of barriers of this PE with each other PE, by team slot.
    pub met: [[AtomicU64; PES_MAX as usize]; TEAM_SLOTS],
    _pad: [AtomicU8; 3072],
    pub ring: [Entry; RING_ENTRIES],
}

/// Value alone in its cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line<T>(pub T);

/// Meeting point of the work-groups of one PE.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Team {
    /// Number of work-groups that have arrived.
    pub arrived: AtomicU32,
    /// First error status of a barrier; all later barriers of this slot return it, too.
    pub status: AtomicI32,
    /// Number of completed barriers.
    pub epoch: AtomicU64,
}

/// Entry of the ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// Position + 1: filled for the proxy. Position + [`RING_ENTRIES`]: taken and free.
    pub sequence: AtomicU64,
    /// Request of the kernel: see [`kind`].
    pub kind: AtomicU32,
    /// Number of the target PE.
    pub pe: AtomicU32,
    /// Offset of the bytes in the target PE's part.
    pub target_at: AtomicU64,
    /// Offset of the bytes in the PE's own part, or the value itself.
    pub value: AtomicU64,
    /// Number of bytes to send.
    pub length: AtomicU64,
    /// Offset of the signal in the target PE's part, or [`NO_SIGNAL`].
    pub signal_at: AtomicU64,
    /// Value of the signal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_bytes_lie_behind_the_head_all_lower_parts_and_the_own_flags() {
        let (head, flags) = (HEAD_BYTES as u64, FLAGS_BYTES as u64);
        assert_eq!(user_offset(0, 1), head + flags);
        assert_eq!(user_offset(1, 1), head + (flags + 4096) + flags);
        assert_eq!(user_offset(63, 4097), head + 63 * (flags + 8192) + flags);
    }
}
