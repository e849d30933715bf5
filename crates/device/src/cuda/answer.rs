//! Answers of `clGet*Info`, and how they are written.

use std::ffi::c_void;

use penstock_wire::status::Status;

/// Destination of an answer.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Number of bytes at `value`.
    pub(super) size: usize,
    /// Null if the caller only wants the size.
    pub(super) value: *mut c_void,
    /// Receives the answer's full size; may be null.
    pub(super) true_size: *mut usize,
}

impl Place {
    /// Writes an answer.
    ///
    /// # Safety
    /// `value` is null or has `size` bytes; `true_size` is null or writable.
    pub(super) unsafe fn write(self, answer: &Answer) -> Result<(), Status> {
        let bytes = &answer.0;
        if !self.value.is_null() {
            // "CL_INVALID_VALUE if size in bytes specified by param_value_size is < size of return
            // type and param_value is not a NULL value."
            if self.size < bytes.len() {
                return Err(Status::INVALID_VALUE);
            }
            // SAFETY: the caller says that `size` bytes are writable; the answer is our own memory.
            unsafe {
                self.value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        }
        if !self.true_size.is_null() {
            // SAFETY: not null, so the caller says that it is writable.
            unsafe { self.true_size.write(bytes.len()) };
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Encodes a text with a terminating NUL.
    pub(super) fn text(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        Self(bytes)
    }

    pub(super) fn int(value: i32) -> Self {
        Self(value.to_ne_bytes().to_vec())
    }

    pub(super) fn uint(value: u32) -> Self {
        Self(value.to_ne_bytes().to_vec())
    }

    pub(super) fn yes(value: bool) -> Self {
        Self::uint(u32::from(value))
    }

    pub(super) fn ulong(value: u64) -> Self {
        Self(value.to_ne_bytes().to_vec())
    }

    pub(super) fn sizes(values: &[usize]) -> Self {
        Self(values.iter().flat_map(|value| value.to_ne_bytes()).collect())
    }

    pub(super) fn pointer<T>(value: *const T) -> Self {
        Self::sizes(&[value.expose_provenance()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_its_room() {
        let answer = Answer::text("abc");
        let mut size = 0;
        let ask = |size, value, true_size| {
            // SAFETY: the places below are as large as their sizes say.
            unsafe { Place { size, value, true_size }.write(&answer) }
        };
        assert_eq!(ask(0, std::ptr::null_mut(), &raw mut size), Ok(()));
        assert_eq!(size, 4);
        let mut bytes = [7_u8; 4];
        assert_eq!(
            ask(3, bytes.as_mut_ptr().cast(), std::ptr::null_mut()),
            Err(Status::INVALID_VALUE)
        );
        assert_eq!(bytes, [7; 4], "nothing is written if the place is too small");
        assert_eq!(ask(4, bytes.as_mut_ptr().cast(), std::ptr::null_mut()), Ok(()));
        assert_eq!(&bytes, b"abc\0");
    }
}
