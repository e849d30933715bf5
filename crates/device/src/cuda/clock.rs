//! Points in a stream: CUDA's events, used again and again (they are never given back: as many as were in use at once), and the times
//! between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_cuda_sys::driver::{
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUevent, CUstream,
};
use penstock_wire::status::Status;

use super::device::Device;
use super::driver::check;
use super::object::Address;

/// Looking costs a core, sleeping some 20 µs until the thread is awake again: so first it looks, about as long.
const LOOK_MAX: Duration = Duration::from_micros(30);
/// CUDA tells times as `f32` milliseconds. After four seconds they are off by at most 0.25 µs; then a later point becomes the new base.
const BASE_MS_MAX: f32 = 4_000.0;

/// So many times a base is tried.
const BASE_TRIES: usize = 10;
/// A recorded event of an idle stream is seen after some 10 µs. What took no longer than this is exact enough.
const UNDISTURBED_NS: u64 = 50_000;

/// This host's monotonic clock, in ns: the clock of all times here.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// A point that a stream reaches when all before it is done.
pub(super) struct Stamp {
    raw: Address<penstock_cuda_sys::driver::CUevent_st>,
    device: &'static Device,
    timed: bool,
}

impl Stamp {
    /// A point at the end of `stream`. The device's context is current.
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
                // SAFETY: the place lives through the call.
                check(unsafe { (device.cuda().cuEventCreate)(&mut raw, flags) })?;
                Address::new(raw)
            }
        };
        let stamp = Arc::new(Self { raw, device, timed });
        // SAFETY: event and stream live.
        check(unsafe { (device.cuda().cuEventRecord)(stamp.raw(), stream) })?;
        Ok(stamp)
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw.get()
    }

    /// Blocks until the stream has come here. The device's context is current.
    pub(super) fn wait(&self) -> Result<(), Status> {
        let start = Instant::now();
        while start.elapsed() < LOOK_MAX {
            // SAFETY: the event lives.
            let code = unsafe { (self.device.cuda().cuEventQuery)(self.raw()) };
            if code != CUDA_ERROR_NOT_READY {
                return check(code);
            }
            std::thread::yield_now();
        }
        // SAFETY: as above.
        check(unsafe { (self.device.cuda().cuEventSynchronize)(self.raw()) })
    }

    /// Milliseconds from `self` to `later`, both reached.
    fn until(&self, later: &Self) -> Result<f32, Status> {
        let mut ms = 0.0;
        // SAFETY: both events live; the place lives through the call.
        check(unsafe {
            (self.device.cuda().cuEventElapsedTime)(&mut ms, self.raw(), later.raw())
        })?;
        Ok(ms)
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // Streams that were told to wait for it keep to what was recorded then, so it may be recorded anew at once.
        self.device.spare_events(self.timed).push(self.raw);
    }
}

/// A point in a stream whose time on this host's clock is known.
pub(super) struct Base {
    stamp: Arc<Stamp>,
    at_ns: u64,
}

impl Base {
    /// The end of an idle stream. Waits for it: some times, until one was not disturbed.
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

    /// When the stream reached these two points, in ns. They are later ones than all that were asked before.
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

/// Milliseconds in ns; 0 for what is no time.
fn nanoseconds(ms: f32) -> u64 {
    let ns = f64::from(ms) * 1e6;
    // Far below what does not fit: a year has 3e16 ns. Negative and NaN become 0.
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
