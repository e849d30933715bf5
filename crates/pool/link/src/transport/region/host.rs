//! The host's side of a region: the daemon owns the file and gives parts to workers.
//!
//! The daemon never maps the file. Processes that the administrator lets write to the file, such as
//! QEMU, could make the file smaller, and then a process that has mapped it gets SIGBUS. Such a
//! process ends workers of its own guest, and not the daemon.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_process::Lock;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{Header, Layout, PAGE_BYTES, PART_BYTES_MIN, Place};
use super::lock::lock;
use super::parts::Parts;
use crate::error::LinkError;
use crate::key::{Key, fill_random};
use crate::piece::Held;
use crate::sealed::is_of_ordinary_pages;
use crate::transport::contract::Side;

/// Size of a region that does not exist yet, in bytes: room for buffers of 48 MiB in each of the
/// [`PARTS`].
const REGION_BYTES: u64 = 256 << 20;
/// Number of sessions that a guest can have in its region at a time. Further sessions use the
/// connection alone.
const PARTS: usize = 4;
/// Most parts of a region. A daemon has no more sessions.
const PARTS_MAX: usize = penstock_wire::limits::SESSIONS_PER_DAEMON_MAX;
/// Largest region in bytes. Larger ones would only be typing errors.
const REGION_BYTES_MAX: u64 = 1 << 40;

/// What a daemon is told of the memory that a guest shares with this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestMemory {
    /// File that the hypervisor gives to the guest. It lies in a tmpfs.
    pub path: PathBuf,
    /// Size in bytes, a power of two. Without it, an existing file keeps its size.
    pub bytes: Option<u64>,
    /// Number of sessions that can use the memory at a time.
    pub sessions: Option<usize>,
}

/// Memory that one guest shares with this host.
#[derive(Debug)]
pub struct Region {
    file: OwnedFd,
    path: PathBuf,
    part_bytes: u64,
    parts: Lock<Parts>,
}

impl Region {
    /// Creates the file, or takes over an existing one, and writes a fresh header.
    ///
    /// # Errors
    /// Fails if the file is not this user's alone, another daemon uses it, the host lacks memory,
    /// or the numbers do not fit together.
    pub fn open(memory: &GuestMemory) -> Result<Arc<Self>, LinkError> {
        let path = &memory.path;
        let wrong = |why: String| LinkError::GuestMemory { path: path.clone(), why };
        let failed = |error: rustix::io::Errno| wrong(io::Error::from(error).to_string());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A pipe must not block us, and a terminal must not become ours.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(path, flags, mode).map_err(failed)?;
        check_file(&file).map_err(wrong)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|_| wrong("another daemon uses it; give each guest its own".to_owned()))?;
        let bytes = size_of_region(&file, memory.bytes).map_err(wrong)?;
        let count = memory.sessions.unwrap_or(PARTS);
        let part_bytes = part_bytes(bytes, count).map_err(wrong)?;
        // Gives a new file its size. A page that the host cannot provide at its first touch would
        // end the process with SIGBUS.
        let filled = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
        filled.map_err(|error| {
            wrong(format!("the host has no {} MiB for it: {error}", bytes >> 20))
        })?;
        write_header(&file, bytes).map_err(|error| wrong(error.to_string()))?;
        let parts = Lock::new(Parts::new(count));
        Ok(Arc::new(Self { file, path: path.clone(), part_bytes, parts }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of sessions that can use the region at a time.
    pub fn parts(&self) -> usize {
        self.parts.lock().count()
    }

    /// Returns the number of parts that are in use.
    pub fn taken(&self) -> usize {
        self.parts.lock().taken()
    }

    /// Takes a part for a session. Returns `None` if all are taken.
    pub fn take(self: &Arc<Self>) -> Option<Part> {
        let index = self.parts.lock().take()?;
        Some(Part { region: self.clone(), index })
    }
}

/// Part of a region that one session has. Dropping this value lets another session have the part,
/// so it is kept until the worker's process has ended.
#[derive(Debug)]
pub struct Part {
    region: Arc<Region>,
    index: usize,
}

impl Part {
    /// Opens the file once more, for a worker. A copy of the daemon's descriptor would share the
    /// daemon's lock, and a worker that outlives the daemon would keep it.
    ///
    /// # Errors
    /// Fails if the process lacks descriptors.
    pub fn open(&self) -> Result<OwnedFd, LinkError> {
        let name = format!("/proc/self/fd/{}", self.region.file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let opened = rustix::fs::open(name, flags, Mode::empty());
        opened.map_err(LinkError::system("opening the guest's memory"))
    }

    /// Returns the offset and the size of the part in bytes.
    pub fn place(&self) -> (u64, u64) {
        let bytes = self.region.part_bytes;
        (PAGE_BYTES as u64 + self.index as u64 * bytes, bytes)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.region.parts.lock().free(self.index);
    }
}

/// A part as its worker has it: the region's file, and the place of the part in it.
#[derive(Debug)]
pub struct WorkersPart {
    /// The file, with the lock on the part: a worker of an earlier daemon may still have it.
    pub(super) file: Arc<Held>,
    pub(super) place: Place,
    pub(super) layout: Layout,
    pub(super) key: Key,
}

impl WorkersPart {
    /// Makes a part of what the daemon sent: the file and [`Part::place`].
    ///
    /// # Errors
    /// Fails if the file has no such part, or a worker of an earlier daemon still has it.
    pub fn new(file: OwnedFd, (offset, bytes): (u64, u64)) -> Result<Self, LinkError> {
        let doing = "looking at the guest's memory";
        let size = rustix::fs::fstat(&file).map_err(LinkError::system(doing))?.st_size;
        let mut header = Header::new_zeroed();
        read_exact_at(&file, header.as_mut_bytes(), 0).map_err(LinkError::system(doing))?;
        let size = u64::try_from(size).unwrap_or(0);
        let key = header.key(size).ok_or(LinkError::Ring("the guest's memory has no header"))?;
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(LinkError::Ring("the part does not lie within the guest's memory"));
        }
        let layout = usize::try_from(bytes).ok().and_then(Layout::of);
        let layout =
            layout.ok_or(LinkError::Ring("the part of the guest's memory is too small"))?;
        let locked = lock(file.as_fd(), Side::Worker, offset, bytes);
        if !locked.map_err(LinkError::system(doing))? {
            return Err(LinkError::Ring("a worker of an earlier daemon has not ended yet"));
        }
        Ok(Self { file: Arc::new(Held(file)), place: Place { offset, bytes }, layout, key })
    }

    /// Fills the part with zeros, except for its marks.
    pub(super) fn clear(&self) -> io::Result<()> {
        static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
        let end = self.place.offset + self.place.bytes;
        let mut at = self.place.offset + PAGE_BYTES as u64;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
            at += rustix::io::pwrite(&self.file, zeros, at)? as u64;
        }
        Ok(())
    }
}

fn check_file(file: &OwnedFd) -> Result<(), String> {
    let about = rustix::fs::fstat(file).map_err(|error| error.to_string())?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err("is not a regular file".to_owned());
    }
    let user = rustix::process::geteuid().as_raw();
    if about.st_uid != user && about.st_uid != 0 {
        return Err(format!("belongs to user {}, not to user {user}", about.st_uid));
    }
    if about.st_mode & 0o007 != 0 {
        return Err("everybody may open it; run chmod o= on it".to_owned());
    }
    let is_memory = is_of_ordinary_pages(file).map_err(|error| error.to_string())?;
    if !is_memory {
        return Err("is not in memory; choose a path in a tmpfs, such as /dev/shm".to_owned());
    }
    Ok(())
}

/// Returns the size of an existing file, or the size that a new file shall have.
fn size_of_region(file: &OwnedFd, wanted: Option<u64>) -> Result<u64, String> {
    let about = rustix::fs::fstat(file).map_err(|error| error.to_string())?;
    let found = u64::try_from(about.st_size).unwrap_or(0);
    let bytes = if found == 0 { wanted.unwrap_or(REGION_BYTES) } else { found };
    if wanted.is_some_and(|wanted| wanted != bytes) {
        return Err(format!(
            "it has {bytes} bytes already; leave the size out, or remove the file while no guest \
             uses it"
        ));
    }
    // The size of a PCI device's memory is a power of two.
    if !bytes.is_power_of_two() || bytes > REGION_BYTES_MAX {
        return Err(format!("{bytes} bytes are no power of two up to 1 TiB"));
    }
    Ok(bytes)
}

/// Returns the size of each part.
fn part_bytes(bytes: u64, count: usize) -> Result<u64, String> {
    if !(1..=PARTS_MAX).contains(&count) {
        return Err(format!("the number of its sessions is not from 1 to {PARTS_MAX}"));
    }
    let page = PAGE_BYTES as u64;
    let part = bytes.saturating_sub(page) / count as u64 / page * page;
    if part < PART_BYTES_MIN as u64 {
        return Err(format!(
            "{count} sessions would have {} KiB each, and a session needs {} KiB; make it larger, \
             or allow fewer sessions",
            part >> 10,
            PART_BYTES_MIN >> 10
        ));
    }
    Ok(part)
}

fn write_header(file: &OwnedFd, bytes: u64) -> Result<(), LinkError> {
    let mut secret = [0; 32];
    fill_random(&mut secret)?;
    let header = Header::new(usize::try_from(bytes).unwrap_or(usize::MAX), secret);
    // The file is in memory, so a few bytes are written at once.
    let written = rustix::io::pwrite(file, header.as_bytes(), 0);
    let written = written.map_err(LinkError::system("writing the header"))?;
    debug_assert_eq!(written, size_of::<Header>());
    Ok(())
}

fn read_exact_at(file: &OwnedFd, into: &mut [u8], at: u64) -> io::Result<()> {
    let wanted = into.len();
    let got = rustix::io::pread(file, into, at)?;
    if got == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
