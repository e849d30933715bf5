//! Handles: pointers to reference-counted objects. The first word of an object is the dispatch
//! table for the ICD loader; the second is a tag that says which kind of object it is.

use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_cl_sys::{CL_SUCCESS, cl_icd_dispatch, cl_int};
use penstock_wire::status::Status;

use super::table;

/// A kind of object that a handle can point to.
pub(super) trait Body: Send + Sync + Sized + 'static {
    /// C's type of the object.
    type Raw;
    /// Number that tells this kind from all others.
    const TAG: usize;
    /// Code for a handle that is null or of another kind.
    const WRONG: Status;
}

/// An object: the dispatch table and the tag, followed by the body.
#[repr(C)]
pub(super) struct Object<B> {
    dispatch: *const cl_icd_dispatch,
    tag: usize,
    body: B,
}

// SAFETY: the table is never changed, and the body is `Send` and `Sync`.
unsafe impl<B: Send + Sync> Send for Object<B> {}
// SAFETY: as above.
unsafe impl<B: Send + Sync> Sync for Object<B> {}

/// A counted reference to an object.
pub(super) type Ref<B> = Arc<Object<B>>;

impl<B> Deref for Object<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.body
    }
}

impl<B: Body> Object<B> {
    pub(super) fn new(body: B) -> Ref<B> {
        Arc::new(Self::plain(body))
    }

    /// Makes an object that is not counted: a platform or device, which is never freed.
    pub(super) fn plain(body: B) -> Self {
        Self { dispatch: table::dispatch(), tag: B::TAG, body }
    }

    /// Returns the handle and takes no reference.
    pub(super) fn handle(&self) -> *mut B::Raw {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Returns the handle and passes the reference to the caller.
pub(super) fn give<B: Body>(object: Ref<B>) -> *mut B::Raw {
    Arc::into_raw(object).cast_mut().cast()
}

/// Returns the object behind a handle.
///
/// # Safety
/// The handle is null, or belongs to an object of any of our kinds that lives while the result is
/// used.
pub(super) unsafe fn get<'a, B: Body>(handle: *mut B::Raw) -> Result<&'a Object<B>, Status> {
    let object = handle.cast::<Object<B>>();
    if object.is_null() || !object.is_aligned() {
        return Err(B::WRONG);
    }
    // SAFETY: all kinds begin with the same two words, and the caller says that it lives.
    let tag = unsafe { (&raw const (*object).tag).read() };
    if tag != B::TAG {
        return Err(B::WRONG);
    }
    // SAFETY: the tag says that it is of this kind, and the caller says that it lives.
    Ok(unsafe { &*object })
}

/// Takes another reference to the counted object behind a handle.
///
/// # Safety
/// As for [`get`]; the object is a counted one.
pub(super) unsafe fn share<B: Body>(handle: *mut B::Raw) -> Result<Ref<B>, Status> {
    // SAFETY: the caller keeps the conditions of `get`.
    let object = std::ptr::from_ref(unsafe { get::<B>(handle) }?);
    // SAFETY: the pointer came from `Arc::into_raw`, and the object lives.
    unsafe { Arc::increment_strong_count(object) };
    // SAFETY: this takes the reference that the line above added.
    Ok(unsafe { Arc::from_raw(object) })
}

/// Gives back a reference.
///
/// # Safety
/// As for [`share`], and the caller owns one reference.
pub(super) unsafe fn release<B: Body>(handle: *mut B::Raw) -> cl_int {
    code(|| {
        // SAFETY: the caller keeps the conditions of `get`.
        let object = std::ptr::from_ref(unsafe { get::<B>(handle) }?);
        // SAFETY: the reference is the caller's, and is given back once.
        drop(unsafe { Arc::from_raw(object) });
        Ok(())
    })
}

/// Takes references to all objects of a list. The list must be null exactly if `count` is 0.
///
/// # Safety
/// The list has `count` handles, each as for [`share`].
pub(super) unsafe fn share_list<B: Body>(
    count: u32,
    list: *const *mut B::Raw,
    wrong: Status,
) -> Result<Vec<Ref<B>>, Status> {
    if (count == 0) != list.is_null() {
        return Err(wrong);
    }
    let mut objects = Vec::with_capacity(count as usize);
    for index in 0..count as usize {
        // SAFETY: the index is within the list, whose handles are as for `share`.
        objects.push(unsafe { share::<B>(list.add(index).read()) }.map_err(|_| wrong)?);
    }
    Ok(objects)
}

/// Runs a function and returns its code. A panic must not reach C, so it becomes an error code.
pub(super) fn code(function: impl FnOnce() -> Result<(), Status>) -> cl_int {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => CL_SUCCESS,
        Ok(Err(status)) => status.0,
        Err(_) => Status::OUT_OF_RESOURCES.0,
    }
}

/// Runs a function that makes an object. Returns its handle and writes its code to `place`.
///
/// # Safety
/// `place` is null or writable.
pub(super) unsafe fn made<T>(
    place: *mut cl_int,
    make: impl FnOnce() -> Result<*mut T, Status>,
) -> *mut T {
    let made = catch_unwind(AssertUnwindSafe(make)).unwrap_or(Err(Status::OUT_OF_RESOURCES));
    if !place.is_null() {
        // SAFETY: not null, so the caller says that it is writable.
        unsafe { place.write(made.as_ref().map_or_else(|status| status.0, |_| CL_SUCCESS)) };
    }
    made.unwrap_or(std::ptr::null_mut())
}

/// An address of C's, sent between threads. Its users keep to what the call that passed it
/// promised.
pub(super) struct Address<T>(*mut T, PhantomData<T>);

// SAFETY: it is only an address; each use says why it may be dereferenced.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Address<T> {}

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Address<T> {}

impl<T> Address<T> {
    pub(super) fn new(address: *mut T) -> Self {
        Self(address, PhantomData)
    }

    pub(super) fn get(self) -> *mut T {
        self.0
    }
}
