//! Handles: pointers to counted objects whose first word is the dispatch table, for the ICD loader, and whose second one says what
//! they are.

use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use penstock_cl_sys::{CL_SUCCESS, cl_icd_dispatch, cl_int};
use penstock_wire::status::Status;

use super::table;

/// What can be behind a handle.
pub(super) trait Body: Send + Sync + Sized + 'static {
    /// What the handle points to, for C.
    type Raw;
    /// Told apart by this. Any number that no other kind has.
    const TAG: usize;
    /// What a wrong handle is answered with.
    const WRONG: Status;
}

/// An object: a body behind what the loader reads.
#[repr(C)]
pub(super) struct Object<B> {
    dispatch: *const cl_icd_dispatch,
    tag: usize,
    body: B,
}

// SAFETY: the table is never changed, and the body may go and be used anywhere.
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

    /// One that is not counted: platforms and devices, which stay.
    pub(super) fn plain(body: B) -> Self {
        Self { dispatch: table::dispatch(), tag: B::TAG, body }
    }

    /// The handle, without a reference of its own.
    pub(super) fn handle(&self) -> *mut B::Raw {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The handle of an object, with the caller's reference.
pub(super) fn give<B: Body>(object: Ref<B>) -> *mut B::Raw {
    Arc::into_raw(object).cast_mut().cast()
}

/// The object behind a handle.
///
/// # Safety
/// The handle is null, or one of any of our kinds that lives as long as the result is used.
pub(super) unsafe fn get<'a, B: Body>(handle: *mut B::Raw) -> Result<&'a Object<B>, Status> {
    let object = handle.cast::<Object<B>>();
    if object.is_null() || !object.is_aligned() {
        return Err(B::WRONG);
    }
    // SAFETY: all kinds begin with the same two words.
    let tag = unsafe { (&raw const (*object).tag).read() };
    if tag != B::TAG {
        return Err(B::WRONG);
    }
    // SAFETY: the tag says that it is of this kind; the caller says that it lives.
    Ok(unsafe { &*object })
}

/// A reference more to the counted object behind a handle.
///
/// # Safety
/// As [`get`]; the object is a counted one.
pub(super) unsafe fn share<B: Body>(handle: *mut B::Raw) -> Result<Ref<B>, Status> {
    // SAFETY: as the caller says.
    let object = std::ptr::from_ref(unsafe { get::<B>(handle) }?);
    // SAFETY: it came from `Arc::into_raw`, and lives.
    unsafe { Arc::increment_strong_count(object) };
    // SAFETY: the reference of the line above.
    Ok(unsafe { Arc::from_raw(object) })
}

/// Gives back a reference that the caller has.
///
/// # Safety
/// As [`share`], and one reference is the caller's.
pub(super) unsafe fn release<B: Body>(handle: *mut B::Raw) -> cl_int {
    code(|| {
        // SAFETY: as the caller says.
        let object = std::ptr::from_ref(unsafe { get::<B>(handle) }?);
        // SAFETY: the reference is the caller's, and given back once.
        drop(unsafe { Arc::from_raw(object) });
        Ok(())
    })
}

/// The objects of a list. Null with a count is a wrong list.
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
        // SAFETY: within the list; what it has is as for `share`.
        objects.push(unsafe { share::<B>(list.add(index).read()) }.map_err(|_| wrong)?);
    }
    Ok(objects)
}

/// The code of a function that returns one. A panic must not reach C: it is a failure like any.
pub(super) fn code(function: impl FnOnce() -> Result<(), Status>) -> cl_int {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => CL_SUCCESS,
        Ok(Err(status)) => status.0,
        Err(_) => Status::OUT_OF_RESOURCES.0,
    }
}

/// The handle of a function that makes an object, its code in `place`.
///
/// # Safety
/// `place` is null or can be written.
pub(super) unsafe fn made<T>(
    place: *mut cl_int,
    make: impl FnOnce() -> Result<*mut T, Status>,
) -> *mut T {
    let made = catch_unwind(AssertUnwindSafe(make)).unwrap_or(Err(Status::OUT_OF_RESOURCES));
    if !place.is_null() {
        // SAFETY: the caller says so.
        unsafe { place.write(made.as_ref().map_or_else(|status| status.0, |_| CL_SUCCESS)) };
    }
    made.unwrap_or(std::ptr::null_mut())
}

/// An address that belongs to C, to be sent between threads: whoever holds it keeps to what the call said about it.
pub(super) struct Address<T>(*mut T, PhantomData<T>);

// SAFETY: it is only an address; each use says why it may be used.
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
