//! Memory that a client and its worker share. If the devices compute on host memory, buffers lie in
//! the arena, and a transfer is one copy by the client without the worker.
//!
//! The arena is one sparse memfd for the whole session, mapped once on each side, or a piece of the
//! memory that a guest shares with its host. The client decides which part holds which buffer. The
//! worker checks every offset and accepts any content, so a client can damage only its own data.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags};

use crate::error::LinkError;
use crate::piece::Piece;
use crate::sealed;

/// Largest arena in bytes that a peer may offer. A process's 47 address bits hold eight.
const ARENA_BYTES_MAX: usize = 1 << 44;

/// Where processes map the arenas that they make, if there is room: above programs and sanitizers,
/// and below where the kernel maps memory and libraries. CUDA's driver takes addresses for a GPU's
/// memory where its own process has room, and a program can use such memory only if it has nothing
/// there. An arena is as large as the host's memory, so elsewhere it would be in the way of many of
/// them.
static OWN: Places = Places::new(0x6800_0000_0000..0x7000_0000_0000);

/// Where processes map the arenas of their peers, if there is room. A worker registers memory with
/// CUDA's driver at the worker's address, and then a GPU may have it at this address. If the
/// program had it there as well, kernels could use pointers of the program unnoticed. That would
/// break the order of commands.
static PEERS: Places = Places::new(0x6400_0000_0000..0x6800_0000_0000);

/// Arenas begin at huge pages.
const PLACE_STEP: usize = 2 << 20;

/// Addresses for arenas.
struct Places {
    range: Range<usize>,
    taken: AtomicUsize,
}

impl Places {
    const fn new(range: Range<usize>) -> Self {
        Self { range, taken: AtomicUsize::new(0) }
    }

    /// Returns where the next arena shall lie.
    fn next(&self, bytes: usize) -> usize {
        let step = bytes.next_multiple_of(PLACE_STEP);
        let before = self.taken.fetch_add(step, Ordering::Relaxed);
        let start = self.range.start + before % self.range.len();
        if start.saturating_add(bytes) <= self.range.end {
            start
        } else if step <= self.range.len() {
            self.range.start
        } else {
            // Arenas of peers must not reach into the range above, which is that of own arenas.
            self.range.end.saturating_sub(step)
        }
    }
}

#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    memory: Memory,
}

/// What the arena is made of.
#[derive(Debug)]
enum Memory {
    /// Memory whose descriptor the peer gets.
    Sealed(OwnedFd),
    /// A piece of a region, whose mapping it owns.
    Piece { _mapping: Piece },
}

// SAFETY: the mapping belongs to this value until it is dropped. The callers decide who may access
// which part at what time, as for all memory that devices write.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates an arena. A page costs nothing until it is touched.
    ///
    /// # Errors
    /// Fails if the system lacks memory, descriptors or addresses.
    pub fn create(bytes: usize) -> Result<Self, LinkError> {
        Self::map_at(sealed::create("penstock-arena", bytes)?, &OWN)
    }

    /// Creates an arena as large as the memory of this host.
    ///
    /// # Errors
    /// See [`Arena::create`].
    pub fn of_host_size() -> Result<Self, LinkError> {
        let host = rustix::system::sysinfo();
        #[allow(
            clippy::unnecessary_cast,
            reason = "the field's type differs between architectures"
        )]
        let bytes = (host.totalram as u64).saturating_mul(u64::from(host.mem_unit));
        let bytes = usize::try_from(bytes).unwrap_or(ARENA_BYTES_MAX);
        Self::create(bytes.min(ARENA_BYTES_MAX).min(sealed::bytes_max()))
    }

    /// Maps an arena that the peer created, after checking that it is one.
    ///
    /// # Errors
    /// Fails if the memory is no arena, or if the process has no free range of addresses of its
    /// size.
    pub fn map(memory: OwnedFd) -> Result<Self, LinkError> {
        Self::map_at(memory, &PEERS)
    }

    fn map_at(memory: OwnedFd, places: &Places) -> Result<Self, LinkError> {
        let bytes = sealed::size(&memory)?;
        if !(1..=ARENA_BYTES_MAX).contains(&bytes) {
            return Err(LinkError::Ring("the arena's size is not within the limits"));
        }
        let base = sealed::map(&memory, bytes, places.next(bytes), MapFlags::NORESERVE)?;
        Ok(Self { base, bytes, memory: Memory::Sealed(memory) })
    }

    /// Makes an arena of a piece of a region.
    pub(crate) fn of_piece(piece: Piece) -> Self {
        Self {
            base: piece.window.base(),
            bytes: piece.window.bytes(),
            memory: Memory::Piece { _mapping: piece },
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the descriptor to send to the peer, if the peer needs one.
    pub(crate) fn memory(&self) -> Option<&OwnedFd> {
        match &self.memory {
            Memory::Sealed(memory) => Some(memory),
            Memory::Piece { .. } => None,
        }
    }

    /// Returns whether the kernel can lend the pages to other processes, as for `process_vm_readv`.
    /// It cannot if they are memory of a device in a guest.
    pub fn is_lendable(&self) -> bool {
        self.memory().is_some()
    }

    /// Returns the address of the `size` bytes at `offset` in this process, or `None` if they do
    /// not lie within the arena. The pointer is valid as long as the arena lives.
    pub fn pointer(&self, offset: u64, size: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(size)?;
        if end > self.bytes as u64 {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `offset` is at most the size of the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// Copies `bytes` into the arena. Returns `false` if they do not fit at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(place) = self.pointer(offset, bytes.len() as u64) else { return false };
        // SAFETY: the `bytes.len()` bytes at `place` lie within the mapping. The source may lie in
        // the arena and overlap the target, which `copy` allows. If the program races, devices may
        // write there at the same time; the content is then undefined, as the specification says.
        unsafe { std::ptr::copy(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        true
    }

    /// Copies bytes out of the arena. Returns `false` if the range does not lie within the arena.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.pointer(offset, into.len() as u64) else { return false };
        // SAFETY: as in `write`, in the other direction.
        unsafe { std::ptr::copy(place.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Makes the pages of a range exist, as memory of this process and not of the peer, which may
    /// be the first to need them. Returns `false` if the host has too few, or if the range does not
    /// lie within the arena.
    #[must_use]
    pub fn populate(&self, offset: u64, size: u64) -> bool {
        let Some(place) = self.pointer(offset, size) else { return false };
        let Ok(bytes) = usize::try_from(size) else { return false };
        // SAFETY: the bytes lie within the mapping, and their content stays.
        let made = unsafe {
            rustix::mm::madvise(place.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)
        };
        // Linux before 5.14 does not know the advice. There the pages come with their first use.
        made.is_ok() || made == Err(Errno::INVAL)
    }

    /// Returns the pages of a range to the system; their content is zero afterwards. Pages that lie
    /// only partly in the range are kept. A region keeps all its pages and only clears them.
    pub fn discard(&self, offset: u64, size: u64) {
        const PAGE: u64 = 4096;
        let Some(memory) = self.memory() else { return self.clear(offset, size) };
        let start = offset.next_multiple_of(PAGE);
        let end = (offset.saturating_add(size)).min(self.bytes as u64) / PAGE * PAGE;
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A page that cannot be returned is kept.
            _ = rustix::fs::fallocate(memory, flags, start, end - start);
        }
    }

    fn clear(&self, offset: u64, size: u64) {
        let Some(place) = self.pointer(offset, size) else { return };
        let Ok(bytes) = usize::try_from(size) else { return };
        // SAFETY: the bytes lie within the mapping, and the caller has the range for itself.
        unsafe { std::ptr::write_bytes(place.as_ptr(), 0, bytes) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.memory().is_none() {
            return;
        }
        // SAFETY: `map` made this mapping with this length; no pointer into it outlives this value.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;
    use rustix::mm::ProtFlags;

    use super::*;

    #[test]
    fn both_sides_see_the_same_bytes() {
        let ours = Arena::create(1 << 40).unwrap();
        let theirs = Arena::map(ours.memory().unwrap().try_clone().unwrap()).unwrap();
        assert!(ours.write(5 << 30, b"water"));
        let mut bytes = [0; 5];
        assert!(theirs.read(5 << 30, &mut bytes));
        assert_eq!(&bytes, b"water");
        ours.discard(5 << 30, 4096);
        assert!(theirs.read(5 << 30, &mut bytes));
        assert_eq!(bytes, [0; 5]);
    }

    /// Returns whether a process may have memory in these places.
    fn are_free(places: &Places) -> bool {
        let wanted = std::ptr::without_provenance_mut(places.range.end - PLACE_STEP);
        // SAFETY: without MAP_FIXED, the address is a hint, and a new mapping touches nothing.
        let page = unsafe {
            rustix::mm::mmap_anonymous(wanted, 4096, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        let Ok(page) = page else { return false };
        // SAFETY: nothing refers to the new mapping.
        unsafe { rustix::mm::munmap(page, 4096) }.unwrap();
        page == wanted
    }

    #[test]
    fn arenas_lie_apart_from_what_the_kernel_places() {
        if !are_free(&OWN) || !are_free(&PEERS) {
            let why = "the system maps nothing where arenas shall lie";
            return penstock_trial::skip(penstock_trial::Need::Addresses, why);
        }
        // Other tests may have taken some of the places; nothing else lies there.
        let lies_in = |arenas: &[Arena], places: &Places| {
            let start = |arena: &Arena| arena.pointer(0, 1).unwrap().addr().get();
            arenas.iter().any(|arena| places.range.contains(&start(arena)))
        };
        let ours = [0; 3].map(|_| Arena::create(1 << 20).unwrap());
        assert!(lies_in(&ours, &OWN) && !lies_in(&ours, &PEERS));
        let same = |arena: &Arena| arena.memory().unwrap().try_clone().unwrap();
        let theirs = ours.each_ref().map(|arena| Arena::map(same(arena)).unwrap());
        assert!(lies_in(&theirs, &PEERS) && !lies_in(&theirs, &OWN));
    }

    #[test]
    fn places_begin_anew_where_there_is_no_room() {
        let places = Places::new(100 * PLACE_STEP..104 * PLACE_STEP);
        let next = |bytes| places.next(bytes) / PLACE_STEP;
        assert_eq!([1, 2 * PLACE_STEP, PLACE_STEP + 1].map(next), [100, 101, 100]);
        assert_eq!([1, 9 * PLACE_STEP].map(next), [101, 95]);
    }

    #[test]
    fn pages_of_a_range_outside_cannot_exist() {
        let arena = Arena::create(1 << 20).unwrap();
        assert!(arena.populate(4096, 8192));
        assert!(!arena.populate(4096, 1 << 20));
    }

    #[test]
    fn parts_outside_are_refused() {
        let arena = Arena::create(1 << 20).unwrap();
        assert!(arena.pointer(0, 1 << 20).is_some());
        assert!(arena.pointer(1, 1 << 20).is_none());
        assert!(arena.pointer(u64::MAX, 1).is_none());
        assert!(arena.pointer(1, u64::MAX).is_none());
        assert!(!arena.write((1 << 20) - 1, &[0; 2]));
    }

    #[test]
    fn what_is_no_arena_is_refused() {
        let unsealed =
            rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        assert!(Arena::map(unsealed).is_err());
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert!(Arena::map(file).is_err());
    }
}
