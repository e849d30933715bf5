//! Memory that two processes map and whose size is sealed.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::LinkError;
use crate::standard::beyond_standard;

/// Seals that fix the size for both sides: access beyond a shrunk size would raise SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// `f_type` of memory that consists of ordinary pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Returns the largest size of memory that this process may make: `ulimit -f` counts for memory as
/// for any file.
pub(crate) fn bytes_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    limit.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Makes `bytes` bytes of memory. A page costs nothing until it is touched.
pub(crate) fn create(name: &str, bytes: usize) -> Result<OwnedFd, LinkError> {
    let doing = "making shared memory";
    // The kernel would end the program by SIGXFSZ.
    if bytes > bytes_max() {
        return Err(LinkError::system(doing)(Errno::FBIG));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(name, flags).and_then(beyond_standard);
    let memory = memory.map_err(LinkError::system(doing))?;
    rustix::fs::ftruncate(&memory, bytes as u64).map_err(LinkError::system(doing))?;
    rustix::fs::fcntl_add_seals(&memory, SEALS).map_err(LinkError::system(doing))?;
    Ok(memory)
}

/// Returns the size of memory that the peer may have made, after checking that it is safe to map.
pub(crate) fn size(memory: &OwnedFd) -> Result<usize, LinkError> {
    let doing = "looking at shared memory";
    // Only a memfd has seals. A file on a server's disk, whose pages may never arrive, has none.
    // Huge pages are refused too: if none is left at the first touch, the process dies.
    let seals = rustix::fs::fcntl_get_seals(memory)
        .map_err(|_| LinkError::Ring("it is not shared memory"))?;
    if !seals.contains(SEALS) {
        return Err(LinkError::Ring("its size is not sealed"));
    }
    if !is_of_ordinary_pages(memory).map_err(LinkError::system(doing))? {
        return Err(LinkError::Ring("it is not made of ordinary pages"));
    }
    let about = rustix::fs::fstat(memory).map_err(LinkError::system(doing))?;
    usize::try_from(about.st_size).map_err(|_| LinkError::Ring("its size is invalid"))
}

/// Returns whether a file consists of ordinary pages in memory.
pub(crate) fn is_of_ordinary_pages(memory: &OwnedFd) -> rustix::io::Result<bool> {
    let kind = rustix::fs::fstatfs(memory)?;
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
    Ok(kind.f_type as u64 == TMPFS_MAGIC)
}

/// Maps memory of the size that [`size`] returned, at `place` if nothing is there; 0 leaves the
/// place to the kernel. The caller unmaps it.
pub(crate) fn map(
    memory: &OwnedFd,
    bytes: usize,
    place: usize,
    flags: MapFlags,
) -> Result<NonNull<u8>, LinkError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | flags;
    let place = std::ptr::without_provenance_mut(place);
    // SAFETY: without MAP_FIXED, `place` is a hint, and a new mapping touches nothing that exists.
    // The seals fix the memory's size.
    let base = unsafe { rustix::mm::mmap(place, bytes, protection, flags, memory.as_fd(), 0) };
    let base = base.map_err(LinkError::system("mapping shared memory"))?;
    NonNull::new(base.cast()).ok_or(LinkError::Ring("it was mapped at address 0"))
}
