//! The memory of the program that a read writes to.

use std::sync::Arc;

use penstock_client::Target;
use penstock_process::Lock;
use penstock_wire::{FrameError, Payload};

use crate::transport::Span;

/// Target of a read, until the read is reported. After that the memory belongs to the program
/// again: the loss of a node ends a read while another thread may still receive its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Landing(Arc<Lock<Option<Span>>>);

impl Landing {
    pub(super) fn new(target: Span) -> Self {
        Self(Arc::new(Lock::new(Some(target))))
    }

    /// Forbids further writes to the memory.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }
}

impl Target for Landing {
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        // Locked while the bytes arrive.
        let open = self.0.lock();
        let Some(span) = *open else { return Err(FrameError::Broken) };
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (start, count) = range.ok_or(FrameError::PayloadTooShort)?;
        // These are the peer's numbers. Nothing outside the read's own range is ever written.
        if start.checked_add(count).is_none_or(|end| end > span.length) {
            return Err(FrameError::BadPayload("ReadData"));
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the range is inside the span, which the caller of `Backend::start` keeps valid
        // until the operation is reported. The lock is held, so it has not been reported.
        let into = unsafe { std::slice::from_raw_parts_mut(span.start.wrapping_add(start), count) };
        payload.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload of this number of bytes, all 7.
    struct Sevens(u64);

    impl Payload for Sevens {
        fn left(&self) -> u64 {
            self.0
        }

        fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
            self.0 = self.0.checked_sub(into.len() as u64).ok_or(FrameError::PayloadTooShort)?;
            into.fill(7);
            Ok(())
        }
    }

    fn landing(bytes: &mut [u8]) -> Landing {
        Landing::new(Span { start: bytes.as_mut_ptr(), length: bytes.len() })
    }

    #[test]
    fn bytes_land_where_the_read_asked_for_them_and_nowhere_else() {
        let mut bytes = [0; 8];
        let mut landing = landing(&mut bytes);
        assert!(landing.take(2, &mut Sevens(3)).is_ok());
        assert!(landing.take(8, &mut Sevens(0)).is_ok());
        assert_eq!(landing.take(6, &mut Sevens(3)), Err(FrameError::BadPayload("ReadData")));
        assert_eq!(landing.take(u64::MAX, &mut Sevens(3)), Err(FrameError::BadPayload("ReadData")));
        assert_eq!(bytes, [0, 0, 7, 7, 7, 0, 0, 0]);
    }

    #[test]
    fn nothing_lands_once_the_read_was_reported() {
        let mut bytes = [0; 8];
        let landing = landing(&mut bytes);
        landing.close();
        assert_eq!(landing.clone().take(0, &mut Sevens(3)), Err(FrameError::Broken));
        assert_eq!(bytes, [0; 8]);
    }
}
