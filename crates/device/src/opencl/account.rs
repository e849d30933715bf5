//! Counts the device memory of this worker's client, until the driver has deleted the objects.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_cl_sys::CL_DEVICE_GLOBAL_MEM_SIZE;
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::driver::Driver;
use crate::cuda;

/// Bytes of all memory objects of this process, which serves one client.
static USED: AtomicU64 = AtomicU64::new(0);

/// Some bytes of the session's share, given back when dropped.
#[derive(Debug)]
pub struct Share(u64);

impl Share {
    ///
    /// # Errors
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE` beyond [`limits::MEMORY_SHARE_MAX`].
    pub fn take(bytes: u64) -> Result<Self, Status> {
        // CUDA memory that was released may not be freed yet.
        let again =
            |status| if cuda::drain() { Self::take_of(bytes, memory_max()) } else { Err(status) };
        Self::take_of(bytes, memory_max()).or_else(again)
    }

    fn take_of(bytes: u64, max: u64) -> Result<Self, Status> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= max);
        match USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(Status::MEM_OBJECT_ALLOCATION_FAILURE),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Returns the memory of all devices of the node together, times the share.
fn memory_max() -> u64 {
    static MAX: OnceLock<u64> = OnceLock::new();
    *MAX.get_or_init(|| {
        let platforms = Driver::load().map(|driver| driver.platforms()).unwrap_or_default();
        let devices = platforms.iter().flat_map(|platform| platform.devices());
        let sizes =
            devices.map(|device| device.number::<u64>(CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0));
        sizes.fold(0, u64::saturating_add).saturating_mul(limits::MEMORY_SHARE_MAX)
    })
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
        drop(Share::take_of(40, max).unwrap());
        drop(first);
        assert!(Share::take_of(100, max).is_ok());
    }
}
