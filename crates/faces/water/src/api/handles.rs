//! Maps the handles that C holds to objects.

use std::marker::PhantomData;

use rustc_hash::FxHashMap;

use super::Opaque;
use crate::error::Error;

/// The handles of one kind of object.
#[derive(Debug)]
pub struct Handles<T> {
    /// Name of the kind in error messages.
    name: &'static str,
    /// Value of the low bits of each handle, by which a handle of another kind is recognised.
    tag: usize,
    next: usize,
    objects: FxHashMap<usize, T>,
    _kind: PhantomData<T>,
}

/// Number of low bits of a handle that tell its kind.
const TAG_BITS: u32 = 4;

impl<T> Handles<T> {
    pub fn new(name: &'static str, tag: usize) -> Self {
        Self { name, tag, next: 1, objects: FxHashMap::default(), _kind: PhantomData }
    }

    pub fn add(&mut self, object: T) -> *mut Opaque {
        let handle = (self.next << TAG_BITS) | self.tag;
        self.next += 1;
        self.objects.insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    pub fn get(&self, handle: *mut Opaque) -> Result<&T, Error> {
        self.objects.get(&handle.addr()).ok_or_else(|| self.wrong(handle))
    }

    /// Returns the object of a handle for changes.
    pub fn get_mut(&mut self, handle: *mut Opaque) -> Result<&mut T, Error> {
        if self.objects.contains_key(&handle.addr()) {
            return self.objects.get_mut(&handle.addr()).ok_or(Error::State("a handle vanished"));
        }
        Err(self.wrong(handle))
    }

    /// Removes an object. Its handle becomes invalid.
    pub fn remove(&mut self, handle: *mut Opaque) -> Result<T, Error> {
        self.objects.remove(&handle.addr()).ok_or_else(|| self.wrong(handle))
    }

    fn wrong(&self, handle: *mut Opaque) -> Error {
        let (name, value) = (self.name, handle.addr());
        Error::Invalid(if value == 0 {
            format!("the {name} is NULL")
        } else if value & ((1 << TAG_BITS) - 1) == self.tag && value >> TAG_BITS < self.next {
            format!("the {name} was released already")
        } else {
            format!("this is no {name}: {value:#x}")
        })
    }
}
