//! From what C holds to what it means.

use std::marker::PhantomData;

use rustc_hash::FxHashMap;

use super::Opaque;
use crate::error::Error;

/// The handles of one kind of object.
#[derive(Debug)]
pub struct Handles<T> {
    /// How an error names the kind.
    name: &'static str,
    /// In the low bits of each handle, so that one of another kind is told as such.
    tag: usize,
    next: usize,
    objects: FxHashMap<usize, T>,
    _kind: PhantomData<T>,
}

/// Low bits of a handle that say its kind.
const TAG_BITS: u32 = 4;

impl<T> Handles<T> {
    /// None yet.
    pub fn new(name: &'static str, tag: usize) -> Self {
        Self { name, tag, next: 1, objects: FxHashMap::default(), _kind: PhantomData }
    }

    /// A new handle.
    pub fn add(&mut self, object: T) -> *mut Opaque {
        let handle = (self.next << TAG_BITS) | self.tag;
        self.next += 1;
        self.objects.insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    /// What a handle means.
    pub fn get(&self, handle: *mut Opaque) -> Result<&T, Error> {
        self.objects.get(&handle.addr()).ok_or_else(|| self.wrong(handle))
    }

    /// As above, to change it.
    pub fn get_mut(&mut self, handle: *mut Opaque) -> Result<&mut T, Error> {
        if self.objects.contains_key(&handle.addr()) {
            return self.objects.get_mut(&handle.addr()).ok_or(Error::State("a handle vanished"));
        }
        Err(self.wrong(handle))
    }

    /// Takes it away: the handle means nothing from now on.
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
