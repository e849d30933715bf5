//! Loads the ICD loader and lists its platforms.

use std::ffi::{CString, c_void};
use std::path::Path;

use penstock_cl_sys::cl_platform_id;
use penstock_wire::describe::Info;
use penstock_wire::status::Status;

use super::api::{self, Functions, function};
use super::context::Context;
use super::device::Device;
use super::platform::Platform;
use crate::driver;
use crate::driver::{ContextDriver, DeviceDriver, Notify, PlatformDriver};

/// Name of Penstock's own platform. A worker that drove it would call itself for ever.
const OUR_PLATFORM: &str = "Penstock";
/// Ranges of `clGetPlatformInfo`'s queries: core, the ICD's, external memory and semaphores. Whole
/// ranges are asked to include queries of newer versions; a driver refuses what it does not know.
const QUERIES: &[std::ops::RangeInclusive<u32>] = &[0x0900..=0x093F, 0x2036..=0x2053];
/// Most platforms that are listed. A loader that reports more has a defect.
const LISTED_MAX: u32 = 1 << 12;

/// Opens the loader at `path`. Returns its platforms in its order, without Penstock's own platform
/// and platforms older than OpenCL 1.2.
///
/// # Errors
/// The message of the dynamic linker.
pub(crate) fn platforms(path: &Path) -> Result<Vec<Box<dyn PlatformDriver>>, libloading::Error> {
    // SAFETY: runs the constructors of the loader and the drivers, which are trusted.
    let library = unsafe { libloading::Library::new(path) }?;
    Functions::load(&|name: &CString| {
        // SAFETY: the symbol is only kept as an address; it has the type of OpenCL's function.
        let symbol = unsafe { library.get::<*const c_void>(name.as_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    });
    // Drivers keep threads running and callbacks pending, so the code must stay loaded.
    std::mem::forget(library);
    let platforms = list().unwrap_or_default();
    Ok(platforms.into_iter().map(|platform| Box::new(platform) as _).collect())
}

fn list() -> Result<Vec<Platform>, Status> {
    let list = function!(clGetPlatformIDs)?;
    let mut count = 0;
    // SAFETY: only the length of the list is asked for.
    let code = unsafe { list(0, std::ptr::null_mut(), &mut count) };
    if code != 0 {
        // CL_PLATFORM_NOT_FOUND_KHR: a loader without drivers. After other errors there are none
        // either.
        return Ok(Vec::new());
    }
    let mut handles: Vec<cl_platform_id> =
        vec![std::ptr::null_mut(); count.min(LISTED_MAX) as usize];
    // SAFETY: the list has as many entries as the call is told.
    api::check(unsafe {
        list(api::count(handles.len())?, handles.as_mut_ptr(), std::ptr::null_mut())
    })?;
    let platforms =
        handles.into_iter().filter(|handle| !handle.is_null()).map(Platform::from_handle);
    Ok(platforms
        .filter(|platform: &Platform| platform.name() != OUR_PLATFORM && platform.is_at_least(1, 2))
        .collect())
}

impl PlatformDriver for Platform {
    fn name(&self) -> String {
        Platform::name(*self)
    }

    fn info(&self) -> Info {
        let numbers = QUERIES.iter().cloned().flatten();
        numbers.filter_map(|name| Some((name, self.ask(name).ok()?))).collect()
    }

    fn devices(&self) -> Vec<Box<dyn DeviceDriver>> {
        let devices = Device::list(*self).unwrap_or_default();
        devices.into_iter().map(|device| Box::new(device) as _).collect()
    }

    fn context(
        &self,
        devices: &[driver::Device],
        notify: Notify,
    ) -> Result<Box<dyn ContextDriver>, Status> {
        Ok(Box::new(Context::new(*self, devices, notify)?))
    }

    fn unload_compiler(&self) {
        if let Ok(unload) = function!(clUnloadPlatformCompiler) {
            // SAFETY: the platform is one of the loader's. A failure does not matter.
            let _ = unsafe { unload(self.raw()) };
        }
    }
}
