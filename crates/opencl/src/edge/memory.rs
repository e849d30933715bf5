//! The only places where memory of the program is read or written through its pointers, but for the bytes of transfers.

use std::ffi::{CStr, c_char};

use super::error::{ClError, ClResult};
use penstock_cl_sys::cl_int;

/// The array of `count` elements at `pointer`. `code` if it is `NULL`, not aligned, or longer than an address space.
///
/// # Safety
/// `pointer` is `NULL` or leads to `count` elements, which do not change while the result is used.
///
/// # Errors
/// As described.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize, code: cl_int) -> ClResult<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let fits =
        count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return Err(ClError(code));
    }
    // SAFETY: checked above, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Pairs of a property list that ends with a 0, or is `NULL`. `code` if it has over 1,024 pairs: then its end is missing.
///
/// # Safety
/// `list` is `NULL` or leads to such a list.
///
/// # Errors
/// As described.
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
        // SAFETY: no 0 was met before it, so the list goes on here (caller).
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

/// The string at `pointer`, or `code` for `NULL`.
///
/// # Safety
/// `pointer` is `NULL` or leads to a string that ends with a 0 and does not change while the result is used.
///
/// # Errors
/// As described.
pub unsafe fn text<'a>(pointer: *const c_char, code: cl_int) -> ClResult<&'a CStr> {
    if pointer.is_null() {
        return Err(ClError(code));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Stores a result where the program wants it; nowhere for `NULL`.
///
/// # Safety
/// `place` is `NULL` or may be written.
pub unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise. C programs may pack their structures.
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
        // SAFETY: `values` has three; the other calls must not look.
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
