//! Points in a stream (CUDA's events) and the times between them. Events are reused and never
//! destroyed, so there are as many as were in use at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_cuda_sys::driver::{
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUevent, CUstream,
};
use penstock_wire::status::Status;

use super::address::Address;
use super::device::Device;
use super::driver::check;

/// Time that a thread polls before it sleeps. A sleeping thread needs some 20 µs to wake up.
const LOOK_MAX: Duration = Duration::from_micros(30);
/// CUDA's `f32` milliseconds are 0.25 µs apart after 4 s; then a later point becomes the base.
const BASE_MS_MAX: f32 = 4_000.0;

/// Most attempts to measure a base.
const BASE_TRIES: usize = 10;
/// An idle stream's event is seen after some 10 µs. A measurement of up to this time is exact
/// enough.
const UNDISTURBED_NS: u64 = 50_000;

/// Returns the time of this host's monotonic clock in ns. All times here are on this clock.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// A point that a stream reaches when all work before it is done.
pub(super) struct Stamp {
    raw: Address<penstock_cuda_sys::driver::CUevent_st>,
    device: &'static Device,
    timed: bool,
}

impl Stamp {
    /// Records a point at the end of `stream`. The device's context must be current.
    pub(super) fn record(
        device: &'static Device,
        stream: CUstream,
        timed: bool,
    ) -> Result<Arc<Self>, Status> {
        let raw = match device.spare_events(timed).pop() {
            Some(raw) => raw,
            None => {
                let flags =
                    CU_EVENT_BLOCKING_SYNC | if timed { 0 } else { CU_EVENT_DISABLE_TIMING };
                let mut raw: CUevent = std::ptr::null_mut();
                // SAFETY: `raw` outlives the call.
                check(unsafe { (device.cuda().cuEventCreate)(&mut raw, flags) })?;
                Address::new(raw)
            }
        };
        let stamp = Arc::new(Self { raw, device, timed });
        // SAFETY: the caller holds the stream, and this stamp holds the event.
        check(unsafe { (device.cuda().cuEventRecord)(stamp.raw(), stream) })?;
        Ok(stamp)
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw.get()
    }

    /// Blocks until the stream has reached the point. The device's context must be current.
    pub(super) fn wait(&self) -> Result<(), Status> {
        let start = Instant::now();
        while start.elapsed() < LOOK_MAX {
            // SAFETY: this stamp holds the event.
            let code = unsafe { (self.device.cuda().cuEventQuery)(self.raw()) };
            if code != CUDA_ERROR_NOT_READY {
                return check(code);
            }
            std::thread::yield_now();
        }
        // SAFETY: as above.
        check(unsafe { (self.device.cuda().cuEventSynchronize)(self.raw()) })
    }

    /// Returns the milliseconds from `self` to `later`. Both points have been reached.
    fn until(&self, later: &Self) -> Result<f32, Status> {
        let mut ms = 0.0;
        // SAFETY: the stamps hold both events; `ms` outlives the call.
        check(unsafe {
            (self.device.cuda().cuEventElapsedTime)(&mut ms, self.raw(), later.raw())
        })?;
        Ok(ms)
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // May be recorded anew at once: a stream waits for what was recorded when it was told to.
        self.device.spare_events(self.timed).push(self.raw);
    }
}

/// A point in a stream whose time on this host's clock is known.
pub(super) struct Base {
    stamp: Arc<Stamp>,
    at_ns: u64,
}

impl Base {
    /// Measures the end of an idle stream and blocks until it is reached. Repeats the measurement
    /// until one was not disturbed, and takes the shortest.
    pub(super) fn of(device: &'static Device, stream: CUstream) -> Result<Self, Status> {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..BASE_TRIES {
            let before = now();
            let stamp = Stamp::record(device, stream, true)?;
            stamp.wait()?;
            let took = now().saturating_sub(before);
            if best.as_ref().is_none_or(|(least, _)| took < *least) {
                best = Some((took, Self { stamp, at_ns: before + took / 2 }));
            }
            if took < UNDISTURBED_NS {
                break;
            }
        }
        best.map(|(_, base)| base).ok_or(Status::OUT_OF_RESOURCES)
    }

    /// Returns when the stream reached two points, in ns. They must be later than those of earlier
    /// calls.
    pub(super) fn times(
        &mut self,
        start: &Arc<Stamp>,
        end: &Arc<Stamp>,
    ) -> Result<(u64, u64), Status> {
        let (to_start, to_end) = (self.stamp.until(start)?, self.stamp.until(end)?);
        let times = (self.at_ns + nanoseconds(to_start), self.at_ns + nanoseconds(to_end));
        if to_end > BASE_MS_MAX {
            *self = Self { stamp: end.clone(), at_ns: times.1 };
        }
        Ok(times)
    }
}

/// Converts milliseconds to ns; returns 0 for negative values and NaN.
fn nanoseconds(ms: f32) -> u64 {
    let ns = f64::from(ms) * 1e6;
    // A year has 3e16 ns, so a real time always fits. Negative values and NaN become 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let ns = ns as u64;
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_become_nanoseconds() {
        assert_eq!(nanoseconds(1.5), 1_500_000);
        assert_eq!(nanoseconds(-1.0), 0);
        assert_eq!(nanoseconds(f32::NAN), 0);
    }

    #[test]
    fn the_clock_goes_on() {
        let first = now();
        assert!(first > 0 && now() >= first);
    }
}
