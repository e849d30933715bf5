//! Detects, with one load, that this process is a forked child of the process that made a link.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Process that created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Returns the running process.
    pub(crate) fn this_process() -> Self {
        let word = mark();
        let found = word.load(Relaxed);
        if found != 0 {
            return Self(found);
        }
        // First use, or first use after a fork: the fork zeroed the word.
        let fresh = number();
        match word.compare_exchange(0, fresh, Relaxed, Relaxed) {
            Ok(_) => Self(fresh),
            Err(other) => Self(other),
        }
    }

    /// Returns whether the owner is the running process.
    pub(crate) fn is_this_process(self) -> bool {
        mark().load(Relaxed) == self.0
    }
}

/// Returns a number that no ancestor of this process has. Mixes in the clock, because ids are
/// reused.
fn number() -> u64 {
    let pid = u64::from(std::process::id());
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    ((pid << 32) ^ u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)) | 1
}

/// Returns a word that the kernel zeroes in a forked child.
fn mark() -> &'static AtomicU64 {
    static MARK: OnceLock<&'static AtomicU64> = OnceLock::new();
    // Used if the system cannot zero pages on fork; a child is then not detected.
    static FALLBACK: AtomicU64 = AtomicU64::new(0);
    MARK.get_or_init(|| wiped_page().unwrap_or(&FALLBACK))
}

fn wiped_page() -> Option<&'static AtomicU64> {
    const BYTES: usize = 4096;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
    let page = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), BYTES, protection, MapFlags::PRIVATE)
    };
    let page = NonNull::new(page.ok()?)?;
    // SAFETY: the range is the mapping made above; the advice changes it in a forked child only.
    unsafe { rustix::mm::madvise(page.as_ptr(), BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the page is aligned, zeroed, never unmapped, and used only as this atomic.
    Some(unsafe { page.cast().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_itself() {
        let owner = Owner::this_process();
        assert!(owner.is_this_process());
        assert_eq!(owner, Owner::this_process());
    }

    #[test]
    fn a_forked_child_is_another_process() {
        let owner = Owner::this_process();
        // SAFETY: the child calls only async-signal-safe functions: a load and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(owner.is_this_process());
            // SAFETY: ends the child without running any code of the parent.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; the pointer refers to a local variable.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child took itself for its parent");
    }
}
