//! Handles: the values that programs hold, and how we recognise invalid ones.
//!
//! A handle is a number that we chose, and we never read memory through it. So we can tell `NULL`,
//! garbage, released handles and handles of another kind from valid ones. No number is used twice.

use std::any::Any;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_cuda_sys::driver::CUresult;
use penstock_process::SharedLock;
use rustc_hash::FxHashMap;

use super::error::CuResult;
use super::process::check_process;

/// An object that has a handle.
pub(crate) trait Object: Any + Send + Sync + Sized {
    /// Type that the handle points to, such as `CUstream_st` for a `CUstream`.
    type Raw;
    /// Code for an invalid handle of this kind.
    const INVALID: CUresult;

    fn number(&self) -> u64;

    /// Number of the context with which the object ends; 0 if none.
    fn owner(&self) -> u64 {
        0
    }

    /// Returns the handle for the program.
    fn raw(&self) -> *mut Self::Raw {
        without_provenance_mut(usize::try_from(self.number()).unwrap_or(0))
    }

    /// Returns the object of a handle.
    #[inline]
    fn borrow(raw: *mut Self::Raw) -> CuResult<Arc<Self>> {
        Self::of_number(raw.addr() as u64)
    }

    /// Returns the object with a number.
    #[inline]
    fn of_number(number: u64) -> CuResult<Arc<Self>> {
        // A forked child must not wait for a lock that a thread of its parent held.
        check_process()?;
        find(number).and_then(|found| found.downcast().ok()).ok_or(Self::INVALID)
    }
}

/// Implements [`Object`] for a type with a field `number`: the type behind the handle, and the code
/// for an invalid handle. `ends with` names the field with the context with which the object ends.
macro_rules! has_handle {
    ($type:ident: $raw:ty, $invalid:expr $(, ends with $($owner:ident).+)?) => {
        impl $crate::edge::Object for $type {
            type Raw = $raw;
            const INVALID: ::penstock_cuda_sys::driver::CUresult = $invalid;

            fn number(&self) -> u64 {
                self.number
            }

            $(fn owner(&self) -> u64 {
                self.$($owner).+
            })?
        }
    };
}
pub(crate) use has_handle;

type Erased = dyn Any + Send + Sync;
/// Key: number. Value: number of the context with which the object ends, and the object.
type Living = FxHashMap<u64, (u64, Arc<Erased>)>;

/// Number of locks. Threads that use different objects seldom share one.
const SHARDS: usize = 16;

/// Handles are multiples of this number, as addresses of objects would be.
const STEP: u64 = 64;

/// The first handle. It is above all addresses of processes and all small numbers with another
/// meaning.
const FIRST: u64 = 0x0001_5000_0000_0000;

static LIVING: [SharedLock<Living>; SHARDS] =
    [const { SharedLock::new(Living::with_hasher(rustc_hash::FxBuildHasher)) }; SHARDS];

fn shard(number: u64) -> &'static SharedLock<Living> {
    let index = usize::try_from(number / STEP).unwrap_or(0) % SHARDS;
    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    &LIVING[index]
}

fn find(number: u64) -> Option<Arc<Erased>> {
    shard(number).read().get(&number).map(|(_, it)| it.clone())
}

/// Returns a number for a new object.
pub(crate) fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST);
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// Makes an object known by its number.
pub(crate) fn publish<T: Object>(object: &Arc<T>) {
    let (number, entry) = (object.number(), (object.owner(), object.clone() as Arc<Erased>));
    shard(number).write().insert(number, entry);
}

/// Invalidates a handle. Calls that already use the object continue. Returns `None` if the handle
/// was invalid before.
pub(crate) fn forget<T: Object>(object: &T) -> Option<()> {
    let number = object.number();
    // Dropped without the lock, because the drop may forget other objects.
    let removed = shard(number).write().remove(&number);
    removed.map(drop)
}

/// Invalidates the handles of all objects that end with a context.
pub(crate) fn forget_of(owner: u64) {
    for shard in &LIVING {
        let mut living = shard.write();
        let gone: Vec<_> = living.extract_if(|_, (of, _)| *of == owner).collect();
        drop(living);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};

    struct One(u64);
    struct Other(u64);
    enum Raw {}

    impl Object for One {
        type Raw = Raw;
        const INVALID: CUresult = CUDA_ERROR_INVALID_HANDLE;
        fn number(&self) -> u64 {
            self.0
        }
    }
    impl Object for Other {
        type Raw = Raw;
        const INVALID: CUresult = CUDA_ERROR_INVALID_VALUE;
        fn number(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn garbage_released_and_foreign_handles_are_none() {
        for garbage in [0, 1, 2, 0xdead_beef, usize::MAX, std::ptr::from_ref(&0).addr()] {
            assert_eq!(
                One::borrow(without_provenance_mut(garbage)).err(),
                Some(CUDA_ERROR_INVALID_HANDLE)
            );
        }
        let one = Arc::new(One(new_number()));
        publish(&one);
        let raw = one.raw();
        assert_eq!(One::borrow(raw).unwrap().0, one.0);
        assert_eq!(Other::borrow(raw).err(), Some(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(forget(&*one), Some(()));
        assert_eq!(forget(&*one), None);
        assert_eq!(One::borrow(raw).err(), Some(CUDA_ERROR_INVALID_HANDLE));
        assert_ne!(new_number(), one.0);
    }

    #[test]
    fn what_ends_with_a_context_is_forgotten_with_it() {
        struct Owned(u64, u64);
        impl Object for Owned {
            type Raw = Raw;
            const INVALID: CUresult = CUDA_ERROR_INVALID_HANDLE;
            fn number(&self) -> u64 {
                self.0
            }
            fn owner(&self) -> u64 {
                self.1
            }
        }
        let (owner, other) = (new_number(), new_number());
        let made: Vec<_> = [owner, other, owner].map(|of| Arc::new(Owned(new_number(), of))).into();
        made.iter().for_each(publish);
        forget_of(owner);
        let known: Vec<_> = made.iter().map(|it| Owned::of_number(it.0).is_ok()).collect();
        assert_eq!(known, [false, true, false]);
        assert_eq!(Arc::strong_count(&made[0]), 1);
        assert_eq!(forget(&*made[1]), Some(()));
    }
}
