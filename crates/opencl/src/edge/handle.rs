//! Handles: what programs hold, and how we know that what they give us is one.
//!
//! A handle is the address of a [`Slot`] with the two words of the ICD loader. Nothing is read through a handle that a program
//! gave: its address is looked up among those of living objects. So `NULL`, garbage, handles of
//! other drivers, released handles and handles of another kind are told from good ones, wherever they stand.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;

use super::error::{ClError, ClResult};
use super::slot::Slot;
use penstock_cl_sys::cl_int;

/// An object that programs hold handles of.
pub trait Object: Any + Send + Sync + Sized {
    /// What OpenCL's handle points to: `_cl_mem` for a `cl_mem`.
    type Raw;
    /// The code for something that is no such handle.
    const INVALID: cl_int;

    /// The object of a handle.
    ///
    /// # Errors
    /// [`Object::INVALID`].
    #[inline]
    fn borrow(raw: *mut Self::Raw) -> ClResult<Arc<Handle<Self>>> {
        find(raw.addr()).and_then(|found| found.downcast().ok()).ok_or(ClError(Self::INVALID))
    }

    /// The objects of several handles.
    ///
    /// # Errors
    /// [`Object::INVALID`].
    fn borrow_all(raw: &[*mut Self::Raw]) -> ClResult<Vec<Arc<Handle<Self>>>> {
        raw.iter().map(|raw| Self::borrow(*raw)).collect()
    }

    /// `clRetain...`.
    ///
    /// # Errors
    /// [`Object::INVALID`].
    fn retain(raw: *mut Self::Raw) -> ClResult {
        let handle = Self::borrow(raw)?;
        let mut living = shard(raw.addr());
        handle.references.fetch_add(1, Ordering::Relaxed);
        living.insert(raw.addr(), Entry::Held(handle.clone()));
        Ok(())
    }

    /// `clRelease...`. With the last reference the object goes, unless something else of OpenCL keeps it (a queue its
    /// context); then its handle stays valid, because queries still give it out.
    ///
    /// # Errors
    /// [`Object::INVALID`].
    fn release(raw: *mut Self::Raw) -> ClResult {
        let handle = Self::borrow(raw)?;
        let mut living = shard(raw.addr());
        let released =
            handle
                .references
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        // More releases than references.
        let before = released.map_err(|_| ClError(Self::INVALID))?;
        let last = (before == 1).then(|| {
            let kept: Weak<Handle<Self>> = Arc::downgrade(&handle);
            living.insert(raw.addr(), Entry::Kept(kept))
        });
        // Dropping may drop other objects, in any shard.
        drop(living);
        drop(last);
        drop(handle);
        Ok(())
    }
}

/// The object behind a handle.
pub struct Handle<T: Object> {
    references: AtomicU32,
    value: T,
    /// Last, so that the address is free only when all of the object is gone.
    slot: Slot,
}

/// A counted reference to an object, as all code of ours holds it.
pub type Ref<T> = Arc<Handle<T>>;

impl<T: Object> Handle<T> {
    /// A new object with one reference, which belongs to the program. `like` is any object of the same platform.
    pub fn create<P: Object>(like: &Handle<P>, value: T) -> Arc<Self> {
        Self::create_in(Slot::take(like.slot.dispatch_data()), value)
    }

    /// A new object of no other's platform: a platform.
    pub fn create_first(value: T) -> Arc<Self> {
        Self::create_in(Slot::take(null_mut()), value)
    }

    fn create_in(slot: Slot, value: T) -> Arc<Self> {
        let handle = Arc::new(Self { references: AtomicU32::new(1), value, slot });
        let address = handle.slot.address().addr();
        let before = shard(address).insert(address, Entry::Held(handle.clone()));
        debug_assert!(before.is_none(), "a slot is free only after its handle was forgotten");
        handle
    }

    /// The handle, as programs hold it.
    pub fn raw(self: &Arc<Self>) -> *mut T::Raw {
        self.slot.address().cast()
    }

    /// `CL_..._REFERENCE_COUNT`. What only other objects keep still has theirs.
    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed).max(1)
    }

    /// Takes the loader's own word.
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

enum Entry {
    /// The program has references.
    Held(Arc<Erased>),
    /// It has none, but other objects do.
    Kept(Weak<Erased>),
}

type Living = FxHashMap<usize, Entry>;

/// A power of two. Threads of a program that use different objects seldom meet.
const SHARDS: usize = 64;

static LIVING: [Mutex<Living>; SHARDS] =
    [const { Mutex::new(Living::with_hasher(rustc_hash::FxBuildHasher)) }; SHARDS];

fn shard(address: usize) -> MutexGuard<'static, Living> {
    // Slots are of 16 bytes, so lower bits say nothing.
    let index = (address >> 4) % SHARDS;
    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    LIVING[index].lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn find(address: usize) -> Option<Arc<Erased>> {
    match shard(address).get(&address)? {
        Entry::Held(object) => Some(object.clone()),
        Entry::Kept(object) => object.upgrade(),
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
        // Its keeper gives it out, and the program retains it, as C++ wrappers do.
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
    #[ignore = "a measurement: cargo test --release -- --ignored --nocapture lookup"]
    fn a_lookup_is_cheap() {
        let handles: Vec<_> = (0..1000).map(|_| one()).collect();
        let start = std::time::Instant::now();
        for turn in 0..1_000_000 {
            std::hint::black_box(One::borrow(handles[turn % 1000].raw()).unwrap());
        }
        println!("{:?} each", start.elapsed() / 1_000_000);
    }
}
