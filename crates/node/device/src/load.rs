//! Finds the drivers of the node.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_process::variable;

use crate::account::{self, Drivers};
use crate::driver::{Platform, PlatformDriver};
use crate::{cuda, null, opencl};

/// Name under which every ICD loader of Linux installs its library.
const LOADER: &str = "libOpenCL.so.1";

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error(
        "no OpenCL loader at {path}: {reason}; install one (Debian: ocl-icd-libopencl1) or name \
         one in PENSTOCK_LIBOPENCL"
    )]
    Missing {
        /// Path of the library.
        path: String,
        /// Message of the dynamic linker.
        reason: String,
    },
    #[error("the simulated device has no thread")]
    NoThread,
}

/// All platforms that this process can use: the loader's and CUDA's. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Driver {
    platforms: Vec<Platform>,
}

static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
static IS_SIMULATED: AtomicBool = AtomicBool::new(false);

impl Driver {
    /// Lets [`Driver::load`] find one simulated device, and nothing else. For tests, before the
    /// first [`Driver::load`]. Loads and starts nothing.
    pub fn simulate() {
        IS_SIMULATED.store(true, Ordering::Release);
    }

    /// Loads the platforms, once per process.
    ///
    /// # Errors
    /// Fails if there is neither a loader nor CUDA's driver. A loader without platforms suffices.
    pub fn load() -> Result<Self, LoadError> {
        let open = || {
            account::set_drivers(Drivers { memory_bytes, drain: cuda::drain });
            Self::open()
        };
        DRIVER.get_or_init(open).clone()
    }

    /// Returns the platforms in the loader's order, without Penstock's own platform and platforms
    /// older than OpenCL 1.2. CUDA's platform comes last.
    pub fn platforms(&self) -> Vec<Platform> {
        self.platforms.clone()
    }

    fn open() -> Result<Self, LoadError> {
        if IS_SIMULATED.load(Ordering::Acquire) {
            let platform = null::platform().ok_or(LoadError::NoThread)?;
            return Ok(Self { platforms: vec![Platform::new(platform)] });
        }
        let cuda = cuda::platform();
        let path = variable::LIBOPENCL.path().unwrap_or_else(|| PathBuf::from(LOADER));
        let mut drivers: Vec<Box<dyn PlatformDriver>> = Vec::new();
        match opencl::platforms(&path) {
            Ok(found) => drivers.extend(found),
            Err(_) if cuda.is_some() => {}
            Err(error) => {
                let (path, reason) = (path.display().to_string(), error.to_string());
                return Err(LoadError::Missing { path, reason });
            }
        }
        drivers.extend(cuda);
        Ok(Self { platforms: drivers.into_iter().map(Platform::new).collect() })
    }
}

/// Returns the memory of all devices of the node together.
fn memory_bytes() -> u64 {
    let platforms = Driver::load().map(|driver| driver.platforms()).unwrap_or_default();
    let devices = platforms.iter().flat_map(Platform::devices);
    devices.map(|device| device.0.driver.limits().memory).fold(0, u64::saturating_add)
}
