//! Splits work among devices: `wtr_partition*` and `wtr_self_schedule`.

use std::ffi::{c_int, c_uint, c_void};

use penstock_cl_sys::{CL_DEVICE_MAX_CLOCK_FREQUENCY, CL_DEVICE_MAX_COMPUTE_UNITS};

use super::run::{self, Run};
use super::{Opaque, coded};
use crate::command::CommandId;
use crate::error::Error;
use crate::partition::{Guide, Slice, Unsplittable, split};

/// The C type `wtr_probe`.
pub type Probe = unsafe extern "C" fn(index: c_uint, units: usize, user: *mut c_void);

/// The C type `wtr_slice`.
pub type Body = unsafe extern "C" fn(
    index: c_uint,
    first: usize,
    units: usize,
    evt: *mut *mut Opaque,
    user: *mut c_void,
);

impl From<Unsplittable> for Error {
    fn from(why: Unsplittable) -> Self {
        Self::Invalid(why.to_string())
    }
}

fn not_null<T>(pointer: *const T, what: &str) -> Result<(), Error> {
    if pointer.is_null() { Err(Error::Invalid(format!("{what} is NULL"))) } else { Ok(()) }
}

/// Splits work in multiples of `granularity`.
///
/// # Safety
/// `weights` is null or has `count` numbers. `parts` has room for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_partition(
    total: usize,
    granularity: usize,
    count: c_uint,
    weights: *const f64,
    parts: *mut usize,
) -> c_int {
    coded("wtr_partition", || {
        not_null(parts, "the array for the parts")?;
        let even = vec![1.0; count as usize];
        let weights = if weights.is_null() || count == 0 {
            &even
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { std::slice::from_raw_parts(weights, count as usize) }
        };
        for (index, part) in split(total, granularity, weights)?.into_iter().enumerate() {
            // SAFETY: the caller guarantees it.
            unsafe { parts.add(index).write(part) };
        }
        Ok(())
    })
}

/// Computes weights as compute units times clock, or as compute units alone if any device does not
/// report its clock.
///
/// # Safety
/// `devices` has `count` devices. `weights` has room for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_partition_weights(
    count: c_uint,
    devices: *const *mut Opaque,
    weights: *mut f64,
) -> c_int {
    coded("wtr_partition_weights", || {
        not_null(devices, "the list of devices")?;
        not_null(weights, "the array for the weights")?;
        let run = run::current()?;
        let mut found = Vec::with_capacity(count as usize);
        for index in 0..count as usize {
            // SAFETY: the caller guarantees it.
            let device = run.device(unsafe { devices.add(index).read() })?;
            let number = |name| device.info.get(name).and_then(number);
            found.push((
                number(CL_DEVICE_MAX_COMPUTE_UNITS).unwrap_or(1).max(1),
                number(CL_DEVICE_MAX_CLOCK_FREQUENCY).unwrap_or(0),
            ));
        }
        let clocks = found.iter().all(|(_, clock)| *clock > 0);
        for (index, (units, clock)) in found.into_iter().enumerate() {
            let weight = f64::from(units) * if clocks { f64::from(clock) } else { 1.0 };
            // SAFETY: the caller guarantees it.
            unsafe { weights.add(index).write(weight) };
        }
        Ok(())
    })
}

/// Reads a `cl_uint` value.
fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Runs a probe for each device, one after the other, and computes the weights.
///
/// # Safety
/// `probe` may be called. `weights` has room for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_partition_measure(
    count: c_uint,
    units: usize,
    probe: Option<Probe>,
    user: *mut c_void,
    weights: *mut f64,
) -> c_int {
    coded("wtr_partition_measure", || {
        let probe = probe.ok_or_else(|| Error::Invalid("the probe is NULL".into()))?;
        not_null(weights, "the array for the weights")?;
        if count == 0 {
            return Err(Unsplittable::NoDevices.into());
        }
        if units == 0 {
            return Err(Error::Invalid("the speed of 0 units cannot be measured".into()));
        }
        let run = run::current()?;
        for index in 0..count {
            let began = run.runtime().now();
            // SAFETY: the program gave the function for this call.
            unsafe { probe(index, units, user) };
            let ns = run.runtime().now().saturating_sub(began).max(1);
            // SAFETY: the caller guarantees it.
            unsafe { weights.add(index as usize).write(speed(units, ns)) };
        }
        Ok(())
    })
}

/// Returns units per second.
#[expect(clippy::cast_precision_loss)]
fn speed(units: usize, ns: u64) -> f64 {
    units as f64 / (ns as f64 * 1e-9)
}

/// Hands slices to the devices that are free until all work is done.
///
/// # Safety
/// `body` may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_self_schedule(
    count: c_uint,
    total: usize,
    minimum: usize,
    body: Option<Body>,
    user: *mut c_void,
) -> c_int {
    coded("wtr_self_schedule", || {
        let body = body.ok_or_else(|| Error::Invalid("the body is NULL".into()))?;
        let run = run::current()?;
        let mut scheduler = Scheduler {
            run: &run,
            guide: Guide::new(count as usize, total, minimum)?,
            under_way: Vec::new(),
        };
        let issue = |device: usize, slice: Slice| {
            let mut event = std::ptr::null_mut();
            let index = c_uint::try_from(device).unwrap_or_default();
            // SAFETY: the program gave the function for this call.
            unsafe { body(index, slice.first, slice.units, &raw mut event, user) };
            event
        };
        scheduler.work(issue)
    })
}

/// A slice whose event has not ended.
struct UnderWay {
    device: usize,
    units: usize,
    event: *mut Opaque,
    commands: Vec<CommandId>,
    /// When it was issued, in ns.
    issued: u64,
}

struct Scheduler<'a> {
    run: &'a Run,
    guide: Guide,
    under_way: Vec<UnderWay>,
}

impl Scheduler<'_> {
    fn work(&mut self, mut issue: impl FnMut(usize, Slice) -> *mut Opaque) -> Result<(), Error> {
        // The end of each device's last slice. The next slice cannot have begun before it.
        let mut free_at: Vec<u64> = Vec::new();
        loop {
            while let Some(device) = self.guide.hungry() {
                let Some(slice) = self.guide.take(device) else { break };
                let issued = self.run.runtime().now();
                let event = issue(device, slice);
                if let Err(error) = self.issued(device, slice, event, issued) {
                    // Slices under way use the program's memory, which may be freed when this
                    // returns.
                    self.finish();
                    return Err(error);
                }
            }
            if self.under_way.is_empty() {
                return Ok(());
            }
            let groups: Vec<&[CommandId]> =
                self.under_way.iter().map(|slice| slice.commands.as_slice()).collect();
            let first = self.run.runtime().wait_any(&groups).unwrap_or_default();
            let slice = self.under_way.swap_remove(first);
            let ended = self.ended_at(&slice.commands);
            if free_at.len() <= slice.device {
                free_at.resize(slice.device + 1, 0);
            }
            if let Some(free) = free_at.get_mut(slice.device) {
                self.guide.ended(
                    slice.device,
                    slice.units,
                    ended.saturating_sub(slice.issued.max(*free)),
                );
                *free = ended.max(*free);
            }
            if let Err(error) = self.close(&slice) {
                self.finish();
                return Err(error);
            }
        }
    }

    /// Records a slice. A slice without an event has already ended.
    fn issued(
        &mut self,
        device: usize,
        slice: Slice,
        event: *mut Opaque,
        issued: u64,
    ) -> Result<(), Error> {
        if event.is_null() {
            let now = self.run.runtime().now();
            self.guide.ended(device, slice.units, now.saturating_sub(issued));
            return Ok(());
        }
        let commands = {
            let objects = self.run.objects();
            let found = objects.events.get(event)?;
            if !found.is_bound {
                return Err(Error::Invalid(
                    "the body stored an event that was not given to any command, so it would never end"
                        .into(),
                ));
            }
            found.commands.clone()
        };
        self.under_way.push(UnderWay { device, units: slice.units, event, commands, issued });
        Ok(())
    }

    /// Returns when the last of these commands ended, in ns.
    fn ended_at(&self, commands: &[CommandId]) -> u64 {
        let last = |root: &mut crate::root::Root| {
            commands
                .iter()
                .filter_map(|command| root.times(*command))
                .map(|(_, times)| times.ended)
                .max()
        };
        let known = self.run.runtime().with_root(last).flatten().filter(|ended| *ended > 0);
        known.unwrap_or_else(|| self.run.runtime().now())
    }

    /// Reports the outcome of an ended slice, and releases its event.
    fn close(&self, slice: &UnderWay) -> Result<(), Error> {
        let outcome = self.run.wait(&slice.commands);
        let event = self.run.objects().events.remove(slice.event);
        // The program may have released the event itself.
        if let Ok(event) = event {
            self.run.let_go(&event.commands);
        }
        outcome
    }

    /// Waits for all slices under way. The caller has already reported a failure.
    fn finish(&mut self) {
        for slice in std::mem::take(&mut self.under_way) {
            _ = self.close(&slice);
        }
    }
}
