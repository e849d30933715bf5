//! The control block, through which translated kernels report faults and print.

/// Offsets in the control block, in bytes; all values are little-endian. `ulong`: code of the first
/// fault, a [`Fault`].
pub const CONTROL_FAULT_CODE: u64 = 0;
/// `ulong`: the address that was accessed.
pub const CONTROL_FAULT_ADDRESS: u64 = 8;
/// `uint`: line of the PTX text.
pub const CONTROL_FAULT_LINE: u64 = 16;
/// `uint`: always 0, on which translated kernels rely.
pub const CONTROL_ZERO: u64 = 20;
/// `ulong`: a counter that replaces the clock on devices without one.
pub const CONTROL_CLOCK: u64 = 64;
/// `ulong` address of the ring, `ulong` bytes of the ring, `uint` bytes written, `uint` records
/// lost.
pub const CONTROL_PRINTF: u64 = 128;
/// `ulong`: address of the bitmap of allocated blocks of 256 bytes of the first arena.
pub const CONTROL_SHADOW: u64 = 160;
/// `ulong`: address of the table of the memory that kernels allocate. Then three `uint`: the number
/// of its units; the sum of the units that all calls of `malloc` wanted, which modulo the number of
/// units is the place where the next call begins to search; and the number of free units.
/// `prelude/malloc.cl` says what the table contains.
pub const CONTROL_MALLOC: u64 = 168;
/// Bytes of a unit of the memory that kernels allocate. CUDA's `malloc` aligns to 16 bytes.
pub const MALLOC_UNIT_BYTES: u64 = 64;
/// 64 bytes that take the place of refused accesses.
pub const CONTROL_SINK: u64 = 192;
/// Size of a control block in bytes.
pub const CONTROL_BYTES: u64 = 256;

/// Fault codes: the values at [`CONTROL_FAULT_CODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// An address at which no memory is allocated.
    IllegalAddress = 1,
    /// An address that is not a multiple of the access's size.
    Misaligned = 2,
    /// `trap`, or threads that wait for each other forever.
    Trap = 3,
    Assert = 4,
    /// Threads that wait for an action that no other thread will take. The address is the kernel's
    /// [`name_number`].
    Stuck = 5,
}

/// Returns the 64-bit number that names a kernel in a fault: the FNV-1a hash of its name in PTX.
pub fn name_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
