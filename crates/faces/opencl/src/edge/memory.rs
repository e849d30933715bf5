//! Access to the program's memory through its pointers, except for the bytes of transfers.

use std::ffi::{CStr, c_char};

use super::error::{ClError, ClResult};
use penstock_cl_sys::cl_int;

/// Returns the array of `count` elements at `pointer`.
///
/// # Safety
/// `pointer` is `NULL` or points to `count` elements that do not change while the result is used.
///
/// # Errors
/// `code` if `pointer` is `NULL` or misaligned, or the array exceeds the address space.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize, code: cl_int) -> ClResult<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let fits =
        count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return Err(ClError(code));
    }
    // SAFETY: checked above, and guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Returns the pairs of a property list that ends with a 0 or is `NULL`.
///
/// # Safety
/// `list` is `NULL` or points to such a list.
///
/// # Errors
/// `code` if the list has over 1,024 pairs: its end is then missing.
pub unsafe fn properties<T: Copy + Default + PartialEq>(
    list: *const T,
    code: cl_int,
) -> ClResult<Vec<(T, T)>> {
    const PAIRS_MAX: usize = 1024;
    let mut pairs = Vec::new();
    if list.is_null() {
        return Ok(pairs);
    }
    loop {
        // SAFETY: no 0 has been read, so the list continues here (guaranteed by the caller).
        let name = unsafe { list.add(2 * pairs.len()).read_unaligned() };
        if name == T::default() {
            return Ok(pairs);
        }
        if pairs.len() == PAIRS_MAX {
            return Err(ClError(code));
        }
        // SAFETY: a name that is not 0 has a value.
        let value = unsafe { list.add(2 * pairs.len() + 1).read_unaligned() };
        pairs.push((name, value));
    }
}

/// Returns the string at `pointer`.
///
/// # Safety
/// `pointer` is `NULL` or points to a string with a final 0 that does not change while the result
/// is used.
///
/// # Errors
/// `code` if `pointer` is `NULL`.
pub unsafe fn text<'a>(pointer: *const c_char, code: cl_int) -> ClResult<&'a CStr> {
    if pointer.is_null() {
        return Err(ClError(code));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Stores a result at `place`, unless `place` is `NULL`.
///
/// # Safety
/// `place` is `NULL` or writable.
pub unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: guaranteed by the caller. C programs may pack their structures.
        unsafe { place.write_unaligned(value) };
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    #[test]
    fn arrays_are_checked() {
        let values = [1u32, 2, 3];
        // SAFETY: `values` has three elements; the other calls must not read.
        unsafe {
            assert_eq!(array(values.as_ptr(), 3, -1).unwrap(), [1, 2, 3]);
            assert_eq!(array::<u32>(null(), 0, -1).unwrap(), []);
            assert_eq!(array::<u32>(null(), 1, -1), Err(ClError(-1)));
            assert_eq!(array(values.as_ptr(), usize::MAX, -2), Err(ClError(-2)));
            assert_eq!(
                array(values.as_ptr().cast::<u8>().add(1).cast::<u32>(), 1, -3),
                Err(ClError(-3))
            );
        }
    }

    #[test]
    fn property_lists_end() {
        // SAFETY: each list ends with a 0, or is longer than what is read.
        unsafe {
            assert_eq!(properties::<u64>(null(), -1).unwrap(), []);
            assert_eq!(properties([0u64].as_ptr(), -1).unwrap(), []);
            assert_eq!(properties([1u64, 0, 3, 4, 0].as_ptr(), -1).unwrap(), [(1, 0), (3, 4)]);
            assert_eq!(properties([1u64; 2052].as_ptr(), -1), Err(ClError(-1)));
        }
    }
}
