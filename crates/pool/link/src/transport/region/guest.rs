//! The guest's side of a region: finds the device, takes the part that the worker offers, and keeps
//! other processes of the guest away from it.
//!
//! A process holds a lock on its part of the device's file as long as it has the part mapped. The
//! kernel of the guest releases the lock when no process has the descriptor any more, and a process
//! that ends loses its mappings before its descriptors. So no two processes of a guest use the same
//! part, also if the daemon has started anew and knows nothing of the first one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use penstock_process::variable;
use rustix::mm::MapFlags;
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{Header, Layout, MemoryUse, Offer, PAGE_BYTES, Place};
use super::lock::lock;
use crate::key::Key;
use crate::piece::{Held, Window, read_own_words};
use crate::standard::beyond_standard;
use crate::transport::contract::Side;

/// Folder with the PCI devices of this machine.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// Identity of QEMU's device: vendor and device.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");
/// File of the device's shared memory (BAR 2). Its twin `resource2_wc` would be mapped without a
/// cache and with delayed writes.
const MEMORY_FILE: &str = "resource2";

/// Value of the variable for users who want no shared memory.
const NONE: &str = "none";

/// Number of bytes of the trial that tells cached memory from memory without a cache.
const TRIAL_BYTES: usize = 16 << 10;
/// Longest time of the trial: 100 MB/s, which vsock reaches as well. Reads without a cache take
/// about 100 ns for 8 bytes, and the trial then more than this. Cached reads take less than 10 µs.
const TRIAL_MAX: Duration = Duration::from_micros(160);
/// A trial that takes longer than this many times the trial of ordinary memory is slow because of
/// the memory. Without a cache it takes more than 16 times as long. If both take as long, the clock
/// or the processor is slow, as those of an emulated guest on a busy host can be.
const TRIAL_RATIO: u32 = 4;
/// Number of trials, of which the fastest counts. An interrupt may have had the core.
const TRIALS: u32 = 6;

/// File of a device's memory whose header is that of the worker's region.
pub(super) struct Device {
    file: File,
    key: Key,
    bytes: u64,
}

/// Part that this process has locked.
pub(super) struct Taken {
    pub(super) held: Arc<Held>,
    pub(super) place: Place,
    pub(super) layout: Layout,
    pub(super) key: Key,
}

/// Returns the device that shows the region of this offer. With a path, no other file is looked at.
pub(super) fn find(offer: &Offer, only: Option<&Path>) -> Result<Device, MemoryUse> {
    let mut why = MemoryUse::Absent;
    let candidates = match only {
        Some(path) => vec![path.to_owned()],
        None => candidates()?,
    };
    for path in candidates {
        match look_at(&path) {
            Ok(device) if offer.is_proved(&device.key) => return Ok(device),
            Ok(_) => why = MemoryUse::Foreign,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                why = MemoryUse::Denied;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => why = MemoryUse::Foreign,
        }
    }
    Err(why)
}

fn candidates() -> Result<Vec<PathBuf>, MemoryUse> {
    if let Some(path) = variable::GUEST_MEMORY.value() {
        return if path == NONE { Err(MemoryUse::Off) } else { Ok(vec![path.into()]) };
    }
    let devices = devices(Path::new(PCI_DEVICES));
    // Elsewhere the kernel maps memory of a device so that atomic operations and accesses without
    // alignment do not work.
    if !devices.is_empty() && !cfg!(target_arch = "x86_64") {
        return Err(MemoryUse::Processor);
    }
    Ok(devices)
}

/// Returns the files of the memory of all ivshmem devices.
fn devices(folder: &Path) -> Vec<PathBuf> {
    let says = |device: &Path, file: &str, wanted: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim() == wanted)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (vendor, device) = IVSHMEM;
    let ours = entries.filter(|it| says(it, "vendor", vendor) && says(it, "device", device));
    let mut files: Vec<PathBuf> = ours.map(|it| it.join(MEMORY_FILE)).collect();
    files.sort();
    files
}

fn look_at(path: &Path) -> io::Result<Device> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let file = File::from(beyond_standard(file.into())?);
    let about = file.metadata()?;
    let bytes = about.len();
    if !about.is_file() || bytes < PAGE_BYTES as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let window = Window::map(file.as_fd(), 0, PAGE_BYTES, MapFlags::empty());
    let window = window.map_err(io::Error::other)?;
    let mut header = Header::new_zeroed();
    window.read(0, header.as_mut_bytes());
    let key = header.key(bytes).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Device { file, key, bytes })
}

impl Device {
    /// Locks the part at `place`.
    pub(super) fn take(self, place: Place) -> Result<Taken, MemoryUse> {
        let page = PAGE_BYTES as u64;
        let end = place.offset.checked_add(place.bytes);
        let is_inside = end.is_some_and(|end| end <= self.bytes)
            && place.offset >= page
            && place.offset.is_multiple_of(page);
        let layout = usize::try_from(place.bytes).ok().and_then(Layout::of);
        // A worker that sees the region offers nothing else.
        let layout = layout.filter(|_| is_inside).ok_or(MemoryUse::Foreign)?;
        let locked = lock(self.file.as_fd(), Side::Client, place.offset, place.bytes);
        if !locked.map_err(|_| MemoryUse::Lacking)? {
            return Err(MemoryUse::Held);
        }
        Ok(Taken { held: Arc::new(Held(self.file.into())), place, layout, key: self.key })
    }
}

/// Returns whether this process reads the memory as slowly as memory without a cache.
pub(super) fn is_uncached(window: &Window) -> bool {
    let ordinary = vec![1_u64; TRIAL_BYTES / size_of::<u64>()];
    let mut fastest = [Duration::MAX; 2];
    // The first trial only makes the pages known to the processor. The trials alternate, so that
    // both kinds of memory meet the same conditions. They read and do not copy: an emulated
    // processor finds pages in a table with one place for many pages, and a copy between two pages
    // of one place takes ten times as long.
    for _ in 0..TRIALS {
        let before = time_of_thread();
        window.read_words(0, TRIAL_BYTES);
        let between = time_of_thread();
        read_own_words(&ordinary);
        let after = time_of_thread();
        let times = [between.saturating_sub(before), after.saturating_sub(between)];
        fastest = [fastest[0].min(times[0]), fastest[1].min(times[1])];
    }
    is_slow(fastest[0], fastest[1])
}

/// Returns the time that this thread has had a core. Waits for one on a busy machine do not count.
fn time_of_thread() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Returns whether the trial of the shared memory says that the memory has no cache.
fn is_slow(shared: Duration, ordinary: Duration) -> bool {
    shared >= TRIAL_MAX && shared > ordinary * TRIAL_RATIO
}

const _: () = assert!(size_of::<Header>() <= PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_memory_itself_makes_a_trial_slow() {
        let micros = Duration::from_micros;
        // Memory without a cache, memory with one, and memory of a slow machine.
        assert!(is_slow(micros(200), micros(8)));
        assert!(!is_slow(micros(8), micros(1)));
        assert!(!is_slow(micros(400), micros(380)));
    }

    #[test]
    fn only_ivshmem_devices_are_looked_at() {
        let folder = std::env::temp_dir().join(format!("penstock-pci-{}", std::process::id()));
        for (name, vendor, device) in
            [("a", "0x1af4", "0x1000"), ("b", "0x1af4", "0x1110"), ("c", "0x8086", "0x1110")]
        {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(folder.join(name).join("device"), format!("{device}\n")).unwrap();
        }
        assert_eq!(devices(&folder), [folder.join("b/resource2")]);
        assert!(devices(&folder.join("absent")).is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
