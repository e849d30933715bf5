//! Programs: a module image for the context's device, loaded by a build.

use std::sync::Arc;

use penstock_cl_sys::{
    CL_BUILD_ERROR, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_PROGRAM_BINARY_TYPE_NONE,
    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS,
    CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_KERNELS,
};
use penstock_process::{Guard, Lock};
use penstock_wire::describe::{BuildReport, Info};
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::device::Device as OwnDevice;
use super::kernel::Kernel;
use super::module::Module;
use crate::answer::{int, sizes, text, uint};
use crate::driver::{Device, KernelDriver, ProgramDriver};

pub(super) struct Program {
    device: &'static OwnDevice,
    image: Vec<u8>,
    built: Lock<Built>,
    /// Names of the variables that reports list; `None` for those that the image shows.
    variables: Lock<Option<Vec<String>>>,
}

/// Result of the last build.
#[derive(Default)]
struct Built {
    /// `None` before the first build.
    module: Option<Result<Arc<Module>, Status>>,
    options: String,
    log: String,
}

impl Program {
    pub(super) fn new(device: &'static OwnDevice, image: Vec<u8>) -> Self {
        Self { device, image, built: Lock::default(), variables: Lock::default() }
    }

    fn built(&self) -> Guard<'_, Built> {
        self.built.lock()
    }

    /// Returns the module, if the program has been built.
    fn module(&self) -> Result<Arc<Module>, Status> {
        match &self.built().module {
            Some(Ok(module)) => Ok(module.clone()),
            _ => Err(Status::INVALID_PROGRAM_EXECUTABLE),
        }
    }

    fn build_status(&self) -> Info {
        let (status, kind) = match &self.built().module {
            None => (CL_BUILD_NONE, CL_PROGRAM_BINARY_TYPE_NONE),
            Some(Ok(_)) => (CL_BUILD_SUCCESS, CL_PROGRAM_BINARY_TYPE_EXECUTABLE),
            Some(Err(_)) => (CL_BUILD_ERROR, CL_PROGRAM_BINARY_TYPE_NONE),
        };
        vec![(CL_PROGRAM_BUILD_STATUS, int(status)), (CL_PROGRAM_BINARY_TYPE, uint(kind))]
    }

    fn build_info(&self) -> Info {
        let mut info = self.build_status();
        let built = self.built();
        info.extend([
            (CL_PROGRAM_BUILD_OPTIONS, text(&built.options)),
            (CL_PROGRAM_BUILD_LOG, text(&built.log)),
            (CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, sizes(&[0])),
        ]);
        info
    }
}

impl ProgramDriver for Program {
    fn build(&self, _devices: &[Device], options: Option<&str>) -> Result<(), Status> {
        // Loaded without the lock: it may take long, and others may ask meanwhile.
        let (loaded, log) = Module::load(self.device, &self.image);
        let loaded = loaded.map(Arc::new);
        let status = loaded.as_ref().map(|_| ()).map_err(|&status| status);
        let log = match status {
            Ok(()) => log,
            Err(status) => {
                format!("{log}\nthe module could not be loaded: {status}").trim().to_owned()
            }
        };
        let options = options.unwrap_or_default().to_owned();
        *self.built() = Built { module: Some(loaded), options, log };
        status
    }

    fn name_variables(&self, names: Option<Vec<String>>) {
        *self.variables.lock() = names;
    }

    fn report(&self, status: Result<(), Status>, devices: &[(u32, Device)]) -> BuildReport {
        let mut report = BuildReport {
            status: status.err().unwrap_or(Status::OK).0,
            devices: devices.iter().map(|(index, _)| (*index, self.build_info())).collect(),
            ..BuildReport::default()
        };
        let Ok(module) = self.module() else { return report };
        let names = module.kernel_names();
        report.info = vec![
            (CL_PROGRAM_NUM_KERNELS, sizes(&[names.len()])),
            (CL_PROGRAM_KERNEL_NAMES, text(&names.join(";"))),
        ];
        let describe =
            |name: String| Some(Kernel::new(&module, &name).ok()?.describe(name, devices));
        report.kernels = names.into_iter().filter_map(describe).collect();
        let variables = self.variables.lock();
        report.globals = module.globals(variables.as_deref());
        report
    }

    fn load_report(&self, devices: &[(u32, Device)]) -> Vec<(u32, Info)> {
        devices.iter().map(|(index, _)| (*index, self.build_status())).collect()
    }

    fn binaries(&self, devices: &[(u32, Device)]) -> Result<Vec<(u32, Vec<u8>)>, Status> {
        if self.image.len() as u64 > limits::REPLY_BYTES_MAX {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let is_own = |device: &Device| {
            device.driver::<&'static OwnDevice>().is_ok_and(|own| std::ptr::eq(*own, self.device))
        };
        let own = devices.iter().filter(|(_, device)| is_own(device));
        Ok(own.map(|(index, _)| (*index, self.image.clone())).collect())
    }

    fn kernel(&self, name: &str) -> Result<Box<dyn KernelDriver>, Status> {
        Ok(Box::new(Kernel::new(&self.module()?, name)?))
    }
}
