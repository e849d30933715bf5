//! Devices, their primary contexts, and the context that a thread uses.

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_cuda_sys::driver::{CUcontext, CUdevice, CUstream};
use penstock_cuda_sys::runtime_codes as code;
use penstock_process::Lock;

use super::registry;
use crate::driver::{Functions, driver, driver_if_used};
use crate::edge::{RtError, RtResult, THREAD, forget_sticky};

/// One device of the driver.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) handle: CUdevice,
    /// The primary context, retained once. `None` before the first use and after a reset.
    primary: Lock<Option<usize>>,
}

/// Number of device resets so far. A thread that was bound to a context before a reset is bound
/// anew. One count for all devices keeps the check cheap.
static RESETS: AtomicU64 = AtomicU64::new(0);

static DEVICES: OnceLock<RtResult<Vec<Device>>> = OnceLock::new();

/// A context that is current on this thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) driver: &'static Functions,
    pub(crate) context: CUcontext,
}

/// Returns all devices; the list is never empty.
///
/// # Errors
/// There is no driver or no device.
pub(crate) fn devices() -> RtResult<&'static [Device]> {
    match DEVICES.get_or_init(find_devices) {
        Ok(devices) if devices.is_empty() => Err(RtError(code::NO_DEVICE)),
        Ok(devices) => Ok(devices),
        Err(error) => Err(*error),
    }
}

fn find_devices() -> RtResult<Vec<Device>> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuDeviceGetCount(&raw mut count) }?;
    (0..count)
        .map(|ordinal| {
            let mut handle = 0;
            // SAFETY: the pointer is valid for a write of the answer.
            unsafe { driver.cuDeviceGet(&raw mut handle, ordinal) }?;
            Ok(Device { handle, primary: Lock::new(None) })
        })
        .collect()
}

/// Returns the device with an ordinal.
///
/// # Errors
/// There is no such device.
pub(crate) fn device(ordinal: c_int) -> RtResult<&'static Device> {
    let devices = devices()?;
    usize::try_from(ordinal)
        .ok()
        .and_then(|index| devices.get(index))
        .ok_or(RtError(code::INVALID_DEVICE))
}

impl Device {
    /// Returns the primary context, which the first call creates.
    ///
    /// # Errors
    /// The driver returns an error.
    pub(crate) fn primary(&self) -> RtResult<CUcontext> {
        let mut primary = self.primary.lock();
        if let Some(context) = *primary {
            return Ok(std::ptr::with_exposed_provenance_mut(context));
        }
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write of the answer.
        unsafe { driver()?.cuDevicePrimaryCtxRetain(&raw mut context, self.handle) }?;
        *primary = Some(context.expose_provenance());
        Ok(context)
    }

    /// Makes the primary context current on this thread.
    fn bind(&self) -> RtResult<Current> {
        let driver = driver()?;
        let resets = RESETS.load(Ordering::Acquire);
        let context = self.primary()?;
        // SAFETY: `context` is a context of the driver.
        unsafe { driver.cuCtxSetCurrent(context) }?;
        THREAD.with(|thread| thread.bound.set((context.addr(), resets)));
        Ok(Current { driver, context })
    }

    /// Returns an attribute, or zero if the driver does not know it.
    pub(crate) fn attribute(&self, attribute: c_uint) -> c_int {
        let mut value = 0;
        let Ok(driver) = driver() else { return 0 };
        // SAFETY: the pointer is valid for a write of the answer.
        match unsafe { driver.cuDeviceGetAttribute(&raw mut value, attribute, self.handle) } {
            Ok(()) => value,
            Err(_) => 0,
        }
    }

    /// Destroys the primary context and everything in it.
    fn reset(&self) -> RtResult {
        let driver = driver()?;
        let mut primary = self.primary.lock();
        RESETS.fetch_add(1, Ordering::AcqRel);
        if let Some(context) = primary.take() {
            registry::forget_context(context);
            // SAFETY: this library has retained the context once.
            let released = unsafe { driver.cuDevicePrimaryCtxRelease_v2(self.handle) };
            forget_sticky(context);
            released?;
        }
        // SAFETY: the handle is a device of the driver.
        unsafe { driver.cuDevicePrimaryCtxReset_v2(self.handle) }
    }
}

/// Returns this thread's context: the one that the program made current through the driver,
/// otherwise the primary context of the thread's device, which is created at its first use.
///
/// # Errors
/// There is no driver or no device, or the driver returns an error.
#[inline]
pub(crate) fn current() -> RtResult<Current> {
    let driver = driver()?;
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuCtxGetCurrent(&raw mut context) }?;
    if !context.is_null() {
        let (bound, resets) = THREAD.with(|thread| thread.bound.get());
        // Either the program made the context current through the driver, or this library did and
        // the context still exists.
        if context.addr() != bound || resets == RESETS.load(Ordering::Acquire) {
            return Ok(Current { driver, context });
        }
    }
    bind_chosen()
}

/// Returns the address of this thread's context, if the context already exists.
pub(crate) fn current_if_there() -> Option<usize> {
    let driver = driver_if_used()?;
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuCtxGetCurrent(&raw mut context) }.ok()?;
    let (bound, resets) = THREAD.with(|thread| thread.bound.get());
    if !context.is_null() && (context.addr() != bound || resets == RESETS.load(Ordering::Acquire)) {
        return Some(context.addr());
    }
    let device = device(THREAD.with(|thread| thread.device.get())).ok()?;
    *device.primary.lock()
}

/// Returns the ordinal of a stream's device.
///
/// # Errors
/// There is no such stream or the driver returns an error.
pub(crate) fn ordinal_of(stream: CUstream) -> RtResult<c_int> {
    let Current { driver, context } = current()?;
    let mut owner: CUcontext = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuStreamGetCtx(stream, &raw mut owner) }?;
    if owner == context {
        return current_ordinal();
    }
    let mut handle = 0;
    // The driver only reports the device of the current context.
    // SAFETY: `owner` is a context of the driver.
    unsafe { driver.cuCtxSetCurrent(owner) }?;
    // SAFETY: the pointer is valid for a write of the answer.
    let told = unsafe { driver.cuCtxGetDevice(&raw mut handle) };
    // SAFETY: `context` was current before.
    unsafe { driver.cuCtxSetCurrent(context) }?;
    told?;
    ordinal(handle)
}

/// Returns the ordinal of a device of the driver.
fn ordinal(handle: CUdevice) -> RtResult<c_int> {
    let place = devices()?.iter().position(|device| device.handle == handle);
    place
        .and_then(|place| c_int::try_from(place).ok())
        .ok_or(RtError(code::INCOMPATIBLE_DRIVER_CONTEXT))
}

#[cold]
fn bind_chosen() -> RtResult<Current> {
    device(THREAD.with(|thread| thread.device.get()))?.bind()
}

/// Returns the ordinal of the device that this thread uses.
///
/// # Errors
/// There is no driver or no device.
pub(crate) fn current_ordinal() -> RtResult<c_int> {
    devices()?;
    let driver = driver()?;
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuCtxGetCurrent(&raw mut context) }?;
    let chosen = THREAD.with(|thread| (thread.device.get(), thread.bound.get().0));
    if context.is_null() || context.addr() == chosen.1 {
        return Ok(chosen.0);
    }
    let mut handle = 0;
    // SAFETY: the pointer is valid for a write of the answer.
    unsafe { driver.cuCtxGetDevice(&raw mut handle) }?;
    ordinal(handle)
}

/// Implements `cudaSetDevice`: makes this thread use the device and its context.
///
/// # Errors
/// There is no such device or the driver returns an error.
pub(crate) fn choose(ordinal: c_int) -> RtResult {
    device(ordinal)?.bind()?;
    THREAD.with(|thread| thread.device.set(ordinal));
    Ok(())
}

/// Implements `cudaDeviceReset` for the device that this thread uses.
///
/// # Errors
/// The driver returns an error.
pub(crate) fn reset() -> RtResult {
    device(current_ordinal()?)?.reset()?;
    let driver = driver()?;
    // SAFETY: a null context is always valid.
    unsafe { driver.cuCtxSetCurrent(std::ptr::null_mut()) }
}
