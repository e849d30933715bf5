/// An address of C's, sent between threads. Its users keep to what the call that passed it
/// promised.
#[derive(Debug)]
pub(super) struct Address<T>(*mut T);

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
        Self(address)
    }

    pub(super) fn get(self) -> *mut T {
        self.0
    }
}
