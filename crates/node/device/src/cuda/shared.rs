//! How much dynamic shared memory each function of a module may use. CUDA's attribute is
//! overwritten, not raised, so concurrent launches could leave the smaller of their sizes.

use std::collections::BTreeMap;

use penstock_process::Lock;

/// Limit of each function by its address. Several kernels of a module may name one function.
#[derive(Debug, Default)]
pub(super) struct SharedLimits(Lock<BTreeMap<usize, u32>>);

impl SharedLimits {
    /// Allows a function at least `bytes` of dynamic shared memory and returns its limit. `known`
    /// is the limit that it has by default. `set` asks the driver; other callers wait for it,
    /// because a caller that finds the size allowed launches at once.
    ///
    /// # Errors
    /// The error of `set`; the limit then stays as it was.
    pub(super) fn allow<E>(
        &self,
        function: usize,
        bytes: u32,
        known: u32,
        set: impl FnOnce() -> Result<(), E>,
    ) -> Result<u32, E> {
        let mut limits = self.0.lock();
        let limit = limits.entry(function).or_insert(known);
        if *limit < bytes {
            set()?;
            *limit = bytes;
        }
        Ok(*limit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_is_allowed_never_becomes_less() {
        let (limits, allowed) = (SharedLimits::default(), AtomicU32::new(48));
        let launch = |bytes| {
            let set = || {
                // Long enough for other threads to arrive.
                std::thread::sleep(std::time::Duration::from_millis(1));
                allowed.store(bytes, Ordering::SeqCst);
                Ok::<_, ()>(())
            };
            let told = limits.allow(0x10, bytes, 48, set).unwrap();
            let now = allowed.load(Ordering::SeqCst);
            assert!(now >= bytes && told >= bytes, "{now} for {bytes}");
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    (0..20).for_each(|turn| launch(40 + (turn * 7 + thread * 13) % 60))
                });
            }
        });
    }

    #[test]
    fn functions_are_told_apart_and_refusals_change_nothing() {
        let limits = SharedLimits::default();
        assert_eq!(limits.allow(1, 100, 48, || Err("no")), Err("no"));
        assert_eq!(limits.allow(1, 100, 48, || Ok::<_, ()>(())), Ok(100));
        assert_eq!(limits.allow(2, 48, 48, || Err("not asked")), Ok(48));
        assert_eq!(limits.allow(1, 80, 48, || Err("not asked")), Ok(100));
    }
}
