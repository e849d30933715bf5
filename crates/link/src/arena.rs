//! Memory that a client and its worker both see: where devices compute on the host's memory, buffers live in it, and a
//! transfer is one copy by the client, without the worker.
//!
//! One sparse file in memory for the whole session, mapped once on each side. The client decides which part is which
//! buffer. The worker trusts it with nothing but that client's own data: offsets are checked, the content is any bytes.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::FallocateFlags;
use rustix::mm::MapFlags;

use crate::error::LinkError;
use crate::sealed;

/// The most bytes that a peer may offer: the 47 bits of a process's addresses hold it eight times.
const ARENA_BYTES_MAX: usize = 1 << 44;

/// A mapping of the shared memory.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    memory: OwnedFd,
}

// SAFETY: the mapping belongs to this value until it is dropped; who may touch which part when is the callers' business,
// as it is for all memory that devices write.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes an arena. Its pages cost nothing until they are touched.
    ///
    /// # Errors
    /// When the system has no memory, descriptors or addresses for it.
    pub fn create(bytes: usize) -> Result<Self, LinkError> {
        Self::map(sealed::create("penstock-arena", bytes)?)
    }

    /// Makes an arena that can hold as much as this host has memory.
    ///
    /// # Errors
    /// As [`Arena::create`].
    pub fn of_host_size() -> Result<Self, LinkError> {
        let host = rustix::system::sysinfo();
        #[allow(
            clippy::unnecessary_cast,
            reason = "the field's type differs between architectures"
        )]
        let bytes = (host.totalram as u64).saturating_mul(u64::from(host.mem_unit));
        Self::create(usize::try_from(bytes).unwrap_or(ARENA_BYTES_MAX).min(ARENA_BYTES_MAX))
    }

    /// Maps an arena that this side or the peer made, after checking that it is one.
    ///
    /// # Errors
    /// When it is none, or there are no addresses for it.
    pub fn map(memory: OwnedFd) -> Result<Self, LinkError> {
        let bytes = sealed::size(&memory)?;
        if !(1..=ARENA_BYTES_MAX).contains(&bytes) {
            return Err(LinkError::Ring("the arena's size is not within the limits"));
        }
        let base = sealed::map(&memory, bytes, MapFlags::NORESERVE)?;
        Ok(Self { base, bytes, memory })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The descriptor, for the peer.
    pub(crate) fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Where the part of `size` bytes at `offset` begins in this process; nothing if it is not within the arena. Valid as
    /// long as the arena lives.
    pub fn pointer(&self, offset: u64, size: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(size)?;
        if end > self.bytes as u64 {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: `offset` is at most the size of the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    /// Copies bytes in. `false`: they do not fit there.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(place) = self.pointer(offset, bytes.len() as u64) else { return false };
        // SAFETY: `bytes.len()` bytes from `place` on lie within the mapping. A source within the arena may overlap the
        // target, so the copy is one that allows it. Devices may write there at the same time if the program races: then
        // the bytes are anything, as the specification says.
        unsafe { std::ptr::copy(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        true
    }

    /// Copies bytes out. `false`: there are not so many.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.pointer(offset, into.len() as u64) else { return false };
        // SAFETY: as in `write`, the other way.
        unsafe { std::ptr::copy(place.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Gives the pages of a part back to the system; its content is zero afterwards. Parts of pages are left alone.
    pub fn discard(&self, offset: u64, size: u64) {
        const PAGE: u64 = 4096;
        let start = offset.next_multiple_of(PAGE);
        let end = (offset.saturating_add(size)).min(self.bytes as u64) / PAGE * PAGE;
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // What can not be given back is merely kept.
            _ = rustix::fs::fallocate(&self.memory, flags, start, end - start);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, with its length; pointers into it are valid only as long as this value lives.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn both_sides_see_the_same_bytes() {
        let ours = Arena::create(1 << 40).unwrap();
        let theirs = Arena::map(ours.memory().try_clone().unwrap()).unwrap();
        assert!(ours.write(5 << 30, b"water"));
        let mut bytes = [0; 5];
        assert!(theirs.read(5 << 30, &mut bytes));
        assert_eq!(&bytes, b"water");
        ours.discard(5 << 30, 4096);
        assert!(theirs.read(5 << 30, &mut bytes));
        assert_eq!(bytes, [0; 5]);
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
