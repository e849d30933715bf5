//! Answers to information queries (`clGet...Info`): sizes and copies.

use std::ffi::c_void;

use super::error::{ClResult, require};
use super::memory::store;
use penstock_cl_sys::{CL_INVALID_VALUE, cl_bool, cl_image_format, cl_name_version};

/// Destination of the answer to a query. Each arm of a query ends with one of its methods.
#[derive(Debug)]
#[must_use]
pub struct Answer {
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
}

/// Type of which an answer may consist.
///
/// # Safety
/// The type has no padding, so every byte has a value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: a number has no padding.
        unsafe impl Plain for $type {}
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);
// SAFETY: a pointer has no padding. The program gets its address.
unsafe impl<T> Plain for *mut T {}
// SAFETY: as above.
unsafe impl<T> Plain for *const T {}
// SAFETY: there is no padding between the elements of an array.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: a number of 4 bytes and 64 characters.
unsafe impl Plain for cl_name_version {}
// SAFETY: two numbers of 4 bytes.
unsafe impl Plain for cl_image_format {}

impl Answer {
    /// Takes the last three parameters of a query.
    ///
    /// # Safety
    /// `value` is `NULL` or points to `size` writable bytes; `size_ret` is `NULL` or writable.
    pub const unsafe fn new(size: usize, value: *mut c_void, size_ret: *mut usize) -> Self {
        Self { size, value, size_ret }
    }

    /// Returns the number of bytes the program has room for; 0 if it asks only for the size.
    pub fn room(&self) -> usize {
        if self.value.is_null() { 0 } else { self.size }
    }

    /// Answers with bytes.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the room is too small.
    pub fn bytes(self, bytes: &[u8]) -> ClResult {
        // "CL_INVALID_VALUE ... if size in bytes specified by param_value_size is < size of return
        // type and param_value is not a NULL value."
        require(self.value.is_null() || self.size >= bytes.len(), CL_INVALID_VALUE)?;
        if !self.value.is_null() {
            // SAFETY: there is room for `size` bytes, which suffice; `bytes` is not the program's.
            unsafe {
                self.value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        }
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { store(self.size_ret, bytes.len()) };
        Ok(())
    }

    /// Answers with one value.
    ///
    /// # Errors
    /// See [`Answer::bytes`].
    pub fn value<T: Plain>(self, value: T) -> ClResult {
        self.values(&[value])
    }

    /// Answers with an array.
    ///
    /// # Errors
    /// See [`Answer::bytes`].
    pub fn values<T: Plain>(self, values: &[T]) -> ClResult {
        // SAFETY: `Plain` has no padding, and any byte is a valid `u8`.
        self.bytes(unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        })
    }

    /// Answers with a `cl_bool`.
    ///
    /// # Errors
    /// See [`Answer::bytes`].
    pub fn bool(self, value: bool) -> ClResult {
        self.value(cl_bool::from(value))
    }

    /// Answers with a string and its final 0.
    ///
    /// # Errors
    /// See [`Answer::bytes`].
    pub fn text(self, text: &str) -> ClResult {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        self.bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::{from_mut, null_mut};

    use super::*;
    use crate::edge::ClError;

    fn answer(room: &mut [u8], size_ret: &mut usize) -> Answer {
        // SAFETY: both outlive the answer in these tests.
        unsafe { Answer::new(room.len(), room.as_mut_ptr().cast(), from_mut(size_ret)) }
    }

    #[test]
    fn answers_are_copied_and_measured() {
        let (mut room, mut size) = ([0xffu8; 8], 0);
        answer(&mut room, &mut size).text("abc").unwrap();
        assert_eq!((&room, size), (b"abc\0\xff\xff\xff\xff", 4));
        answer(&mut room, &mut size).value(7u64).unwrap();
        assert_eq!((u64::from_ne_bytes(room), size), (7, 8));
        answer(&mut room, &mut size).bool(true).unwrap();
        assert_eq!((room[0], size), (1, 4));
        answer(&mut room, &mut size).values::<u32>(&[]).unwrap();
        assert_eq!(size, 0);
    }

    #[test]
    fn too_little_room_is_an_error_and_writes_nothing() {
        let (mut room, mut size) = ([0xffu8; 3], 99);
        assert_eq!(answer(&mut room, &mut size).value(7u32), Err(ClError(CL_INVALID_VALUE)));
        assert_eq!((room, size), ([0xff; 3], 99));
    }

    #[test]
    fn the_size_alone_can_be_asked() {
        let mut size = 0;
        // SAFETY: no room is given; `size` outlives the call.
        unsafe { Answer::new(0, null_mut(), from_mut(&mut size)) }.value([0usize; 3]).unwrap();
        assert_eq!(size, 24);
        // SAFETY: nothing is written.
        unsafe { Answer::new(5, null_mut(), null_mut()) }.text("abcdef").unwrap();
    }
}
