//! Handles that programs hold, and the check that a given value is a handle.
//!
//! A handle is the address of a [`Slot`], which holds the two words of the ICD loader. Nothing is
//! read through a handle that a program passes: its address is looked up among those of living
//! objects. So `NULL`, garbage, handles of other drivers, released handles and handles of another
//! kind are always recognised.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use penstock_process::Lock;
use rustc_hash::FxHashMap;

use super::error::{ClError, ClResult};
use super::slot::Slot;
use penstock_cl_sys::cl_int;

/// Object that programs hold handles of.
pub trait Object: Any + Send + Sync + Sized {
    /// Type that OpenCL's handle points to: `_cl_mem` for a `cl_mem`.
    type Raw;
    /// Code for a value that is not such a handle.
    const INVALID: cl_int;

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// [`Object::INVALID`] if `raw` is no such handle.
    #[inline]
    fn borrow(raw: *mut Self::Raw) -> ClResult<Arc<Handle<Self>>> {
        find(raw.addr()).and_then(|found| found.downcast().ok()).ok_or(ClError(Self::INVALID))
    }

    /// Returns the objects of several handles.
    ///
    /// # Errors
    /// [`Object::INVALID`] if one of them is no such handle.
    fn borrow_all(raw: &[*mut Self::Raw]) -> ClResult<Vec<Arc<Handle<Self>>>> {
        raw.iter().map(|raw| Self::borrow(*raw)).collect()
    }

    /// Implements `clRetain...`.
    ///
    /// # Errors
    /// [`Object::INVALID`] if `raw` is no such handle.
    fn retain(raw: *mut Self::Raw) -> ClResult {
        let handle = Self::borrow(raw)?;
        let mut living = shard(raw.addr());
        handle.references.fetch_add(1, Ordering::Relaxed);
        living.insert(raw.addr(), LivingObject::Held(handle.clone()));
        Ok(())
    }

    /// Implements `clRelease...`. The last release drops the object, unless another object keeps
    /// it, as a queue keeps its context. Its handle then stays valid, as queries still return it.
    ///
    /// # Errors
    /// [`Object::INVALID`] if `raw` is no such handle or has no reference left.
    fn release(raw: *mut Self::Raw) -> ClResult {
        let handle = Self::borrow(raw)?;
        let mut living = shard(raw.addr());
        let released =
            handle
                .references
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        // There were more releases than references.
        let before = released.map_err(|_| ClError(Self::INVALID))?;
        let last = (before == 1).then(|| {
            let kept: Weak<Handle<Self>> = Arc::downgrade(&handle);
            living.insert(raw.addr(), LivingObject::Kept(kept))
        });
        // Dropping may drop other objects, in any shard.
        drop(living);
        drop(last);
        drop(handle);
        Ok(())
    }
}

/// Object behind a handle.
pub struct Handle<T: Object> {
    references: AtomicU32,
    value: T,
    /// Last field, so that the address becomes free only when the whole object is gone.
    slot: Slot,
}

/// Counted reference to an object, as our code holds it.
pub type Ref<T> = Arc<Handle<T>>;

impl<T: Object> Handle<T> {
    /// Creates an object with one reference, which belongs to the program. `like` has the same
    /// platform.
    pub fn create<P: Object>(like: &Handle<P>, value: T) -> Arc<Self> {
        Self::create_in(Slot::take(like.slot.dispatch_data()), value)
    }

    /// Creates a platform, which takes no dispatch data from another object.
    pub fn create_first(value: T) -> Arc<Self> {
        Self::create_in(Slot::take(null_mut()), value)
    }

    fn create_in(slot: Slot, value: T) -> Arc<Self> {
        let handle = Arc::new(Self { references: AtomicU32::new(1), value, slot });
        let address = handle.slot.address().addr();
        let before = shard(address).insert(address, LivingObject::Held(handle.clone()));
        debug_assert!(before.is_none(), "a slot is free only after its handle was forgotten");
        handle
    }

    /// Returns the handle for the program.
    pub fn raw(self: &Arc<Self>) -> *mut T::Raw {
        self.slot.address().cast()
    }

    /// Returns `CL_..._REFERENCE_COUNT`; 1 for an object that only other objects keep.
    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed).max(1)
    }

    /// Stores the loader's dispatch data.
    pub fn set_dispatch_data(&self, data: *mut ()) {
        self.slot.set_dispatch_data(data);
    }
}

impl<T: Object> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        let address = self.slot.address().addr();
        let forgotten = shard(address).remove(&address);
        drop(forgotten);
    }
}

impl<T: Object> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("references", &self.references()).finish_non_exhaustive()
    }
}

type Erased = dyn Any + Send + Sync;

enum LivingObject {
    /// The program holds references.
    Held(Arc<Erased>),
    /// Only other objects hold references.
    Kept(Weak<Erased>),
}

type Living = FxHashMap<usize, LivingObject>;

/// Number of shards, a power of two. Threads that use different objects seldom share a shard.
const SHARDS: usize = 64;

static LIVING: [Lock<Living>; SHARDS] =
    [const { Lock::new(Living::with_hasher(rustc_hash::FxBuildHasher)) }; SHARDS];

fn shard(address: usize) -> MutexGuard<'static, Living> {
    // Slots have 16 bytes, so the lower bits are always zero.
    let index = (address >> 4) % SHARDS;
    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    LIVING[index].lock()
}

#[inline]
fn find(address: usize) -> Option<Arc<Erased>> {
    match shard(address).get(&address)? {
        LivingObject::Held(object) => Some(object.clone()),
        LivingObject::Kept(object) => object.upgrade(),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    struct One(AtomicUsize);
    struct Other(Arc<Handle<One>>);
    enum RawOne {}
    enum RawOther {}

    impl Object for One {
        type Raw = RawOne;
        const INVALID: cl_int = -1001;
    }
    impl Object for Other {
        type Raw = RawOther;
        const INVALID: cl_int = -1002;
    }

    fn one() -> Arc<Handle<One>> {
        Handle::create_first(One(AtomicUsize::new(7)))
    }

    #[test]
    fn garbage_is_no_handle() {
        for garbage in [0, 1, 8, 0xdead_beef, usize::MAX, std::ptr::from_ref(&0).addr()] {
            assert_eq!(One::borrow(without_provenance_mut(garbage)).err(), Some(ClError(-1001)));
            assert_eq!(One::retain(without_provenance_mut(garbage)), Err(ClError(-1001)));
            assert_eq!(One::release(without_provenance_mut(garbage)), Err(ClError(-1001)));
        }
    }

    #[test]
    fn a_handle_of_another_kind_is_none() {
        let handle = one();
        assert_eq!(Other::borrow(handle.raw().cast()).err(), Some(ClError(-1002)));
        assert_eq!(One::borrow(handle.raw()).unwrap().0.load(Ordering::Relaxed), 7);
        One::release(handle.raw()).unwrap();
    }

    #[test]
    fn references_are_counted() {
        let raw = one().raw();
        One::retain(raw).unwrap();
        assert_eq!(One::borrow(raw).unwrap().references(), 2);
        One::release(raw).unwrap();
        One::release(raw).unwrap();
        assert_eq!(One::borrow(raw).err(), Some(ClError(-1001)));
        assert_eq!(One::release(raw), Err(ClError(-1001)));
    }

    #[test]
    fn what_another_object_keeps_stays_valid() {
        let first = one();
        let raw = first.raw();
        let other = Handle::create(&first, Other(first.clone()));
        drop(first);
        One::release(raw).unwrap();
        assert_eq!(One::release(raw), Err(ClError(-1001)));
        // Its keeper returns it, and the program retains it, as C++ wrappers do.
        assert_eq!(other.0.raw(), raw);
        One::retain(raw).unwrap();
        let raw_other = other.raw();
        drop(other);
        Other::release(raw_other).unwrap();
        assert_eq!(One::borrow(raw).unwrap().references(), 1);
        One::release(raw).unwrap();
        assert!(One::borrow(raw).is_err());
    }

    #[test]
    fn the_loaders_word_is_passed_on() {
        let first = one();
        first.set_dispatch_data(without_provenance_mut(0x77));
        let next = Handle::create(&first, Other(first.clone()));
        assert_eq!(next.slot.dispatch_data().addr(), 0x77);
        Other::release(next.raw()).unwrap();
        One::release(first.raw()).unwrap();
    }

    #[test]
    fn threads_may_race() {
        let shared = one();
        let raw = shared.raw().addr();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        One::retain(without_provenance_mut(raw)).unwrap();
                        let own = one();
                        assert!(One::borrow(own.raw()).is_ok());
                        One::release(own.raw()).unwrap();
                        One::release(without_provenance_mut(raw)).unwrap();
                    }
                });
            }
        });
        assert_eq!(shared.references(), 1);
    }

    #[test]
    #[ignore = "perf: it prints a figure: cargo test --release -- --ignored --nocapture lookup"]
    fn perf_a_lookup_is_cheap() {
        let handles: Vec<_> = (0..1000).map(|_| one()).collect();
        let start = std::time::Instant::now();
        for turn in 0..1_000_000 {
            std::hint::black_box(One::borrow(handles[turn % 1000].raw()).unwrap());
        }
        println!("{:?} each", start.elapsed() / 1_000_000);
    }
}
