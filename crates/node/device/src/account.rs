//! Counts the device memory of this worker's client, until the driver has deleted the objects.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_wire::limits;
use penstock_wire::status::Status;

/// Bytes of all memory objects of this process, which serves one client.
static USED: AtomicU64 = AtomicU64::new(0);

/// What this module must know of the node's drivers.
#[derive(Debug)]
pub(crate) struct Drivers {
    /// Returns the memory of all devices of the node together.
    pub(crate) memory_bytes: fn() -> u64,
    /// Waits until all released memory is free; returns false if there was none.
    pub(crate) drain: fn() -> bool,
}

static DRIVERS: OnceLock<Drivers> = OnceLock::new();

/// What a session may have beyond the limits of this process.
pub trait Lender: Send + Sync {
    /// Takes some bytes.
    ///
    /// # Errors
    /// Fails with the reason, for the person who runs the program.
    fn take(&self, bytes: u64) -> Result<(), String>;

    /// Gives back what was taken. Does not block.
    fn give(&self, bytes: u64);

    /// Tells the reason of a refusal.
    fn tell(&self, why: String);
}

static LENDER: OnceLock<Box<dyn Lender>> = OnceLock::new();

/// Introduces the lender of all device memory. Only the first one counts.
pub fn borrow_from(lender: Box<dyn Lender>) {
    _ = LENDER.set(lender);
}

/// Introduces the node's drivers. Without them, a session has no share.
pub(crate) fn set_drivers(drivers: Drivers) {
    _ = DRIVERS.set(drivers);
}

/// Some bytes of the session's share, given back when dropped.
#[derive(Debug)]
pub struct Share {
    bytes: u64,
    /// Whether the lender was asked for them, too.
    borrowed: bool,
}

impl Share {
    /// Takes some bytes of device memory.
    ///
    /// # Errors
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE` beyond [`limits::MEMORY_SHARE_MAX`].
    pub fn take(bytes: u64) -> Result<Self, Status> {
        static MAX: OnceLock<u64> = OnceLock::new();
        let Some(drivers) = DRIVERS.get() else {
            return Err(Status::MEM_OBJECT_ALLOCATION_FAILURE);
        };
        let share = || (drivers.memory_bytes)().saturating_mul(limits::MEMORY_SHARE_MAX);
        let max = *MAX.get_or_init(share);
        // Memory that was released may not be free yet.
        let again = |why| if (drivers.drain)() { Self::borrow(bytes, max) } else { Err(why) };
        Self::borrow(bytes, max).or_else(again).map_err(|why| {
            if let (Some(why), Some(lender)) = (why, LENDER.get()) {
                lender.tell(why);
            }
            Status::MEM_OBJECT_ALLOCATION_FAILURE
        })
    }

    /// Takes some bytes from the session and from its lender. Fails with the lender's reason if the
    /// lender refuses.
    fn borrow(bytes: u64, max: u64) -> Result<Self, Option<String>> {
        let mut share = Self::take_of(bytes, max).map_err(|_| None)?;
        if let Some(lender) = LENDER.get() {
            lender.take(bytes).map_err(Some)?;
            share.borrowed = true;
        }
        Ok(share)
    }

    /// Returns the bytes of all shares of this process.
    #[must_use]
    pub fn held() -> u64 {
        USED.load(Ordering::Relaxed)
    }

    fn take_of(bytes: u64, max: u64) -> Result<Self, Status> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= max);
        match USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self { bytes, borrowed: false }),
            Err(_) => Err(Status::MEM_OBJECT_ALLOCATION_FAILURE),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        USED.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(lender) = LENDER.get().filter(|_| self.borrowed) {
            lender.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back() {
        let max = USED.load(Ordering::Relaxed) + 100;
        let first = Share::take_of(60, max).unwrap();
        assert_eq!(Share::take_of(41, max).unwrap_err(), Status::MEM_OBJECT_ALLOCATION_FAILURE);
        assert_eq!(
            Share::take_of(u64::MAX, max).unwrap_err(),
            Status::MEM_OBJECT_ALLOCATION_FAILURE
        );
        assert!(Share::held() >= 60);
        drop(Share::take_of(40, max).unwrap());
        drop(first);
        assert!(Share::take_of(100, max).is_ok());
    }
}
