//! What a node that drives CUDA's driver itself tells of its GPUs, kernels and modules, and
//! statuses that keep CUDA's error codes.
//!
//! Such a node shows a platform with the name [`PLATFORM_NAME`], with one device of type
//! `CL_DEVICE_TYPE_CUSTOM` for each GPU. Program binaries are modules (PTX text, cubin, fat
//! binary); OpenCL C is not accepted. A kernel has three arguments: the whole packed parameter
//! buffer ([`ARG_PARAMS`]), the dynamic shared memory, given as local memory of that size
//! ([`ARG_SHARED`]), and the view of a symmetric heap whose address is among the parameters
//! ([`ARG_HEAP`]). Work-groups are blocks; the global size is grid times block.
//!
//! [`crate::calls::to_worker::MemAddress`] tells a buffer's address. A variable of a module lies in
//! no buffer; [`crate::calls::to_worker::CreateVariableBuffer`] makes a buffer of it.
//! [`crate::calls::to_worker::ResidentGroups`] asks how many blocks a GPU runs at the same time.

use serde::{Deserialize, Serialize};

use crate::status::Status;

/// `CL_PLATFORM_NAME` of the platform.
pub const PLATFORM_NAME: &str = "NVIDIA CUDA driver";

/// Kernel argument with the packed parameters, as `CU_LAUNCH_PARAM_BUFFER_POINTER` takes them. Not
/// set for a kernel without parameters.
pub const ARG_PARAMS: u32 = 0;
/// Kernel argument whose size is that of the dynamic shared memory. May stay unset, for none.
pub const ARG_SHARED: u32 = 1;
/// Kernel argument that names a view of a symmetric heap. The worker keeps the view until the
/// launch has ended, and the blocks of the launch may have to run at the same time. May stay unset,
/// or be set to none.
pub const ARG_HEAP: u32 = 2;

/// Number of device attributes that a node asks for: over a hundred more than CUDA 13.0 has.
pub const DEVICE_ATTRIBUTES_MAX: u32 = 256;
/// Number of kernel attributes that a node asks for: those of CUDA 13.0.
pub const KERNEL_ATTRIBUTES_MAX: u32 = 16;
/// Largest number of threads per block in [`crate::calls::to_worker::ResidentGroups`]: four times
/// the limit of any GPU.
pub const RESIDENT_THREADS_MAX: u32 = 4096;

/// Attributes that the driver reports, by the number of their `CUdevice_attribute` or
/// `CUfunction_attribute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes(pub Vec<(u32, i32)>);

impl Attributes {
    /// Asks for the attributes with the numbers below `max`.
    pub fn ask(max: u32, ask: impl Fn(u32) -> Option<i32>) -> Self {
        Self((0..max).filter_map(|number| Some((number, ask(number)?))).collect())
    }

    /// Returns an attribute if the driver knows it.
    pub fn get(&self, number: u32) -> Option<i32> {
        self.0.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
    }
}

/// A GPU that its node drives through CUDA's driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDescription {
    /// The result of `cuDriverGetVersion`.
    pub driver_version: i32,
    /// The result of `cuDeviceGetUuid`.
    pub uuid: Option<[u8; 16]>,
    /// The result of `cuDeviceGetPCIBusId`.
    pub pci_bus_id: Option<String>,
    pub attributes: Attributes,
}

/// A kernel of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionDescription {
    pub attributes: Attributes,
    /// The parameters, or `None` if the driver cannot tell (before CUDA 12.4).
    pub params: Option<Vec<Param>>,
}

/// The place of a parameter in the buffer of [`ARG_PARAMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    pub offset: u64,
    /// Size of the parameter in bytes.
    pub size: u64,
}

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Global {
    /// Name in the module.
    pub name: String,
    /// Address on the device.
    pub address: u64,
    /// Size of the variable in bytes.
    pub size: u64,
}

/// A status is this number minus CUDA's code. It is far below the codes of OpenCL and its
/// extensions, which end above -10,000.
const STATUS_BASE: i32 = -700_000;
/// The largest of CUDA's codes, `CUDA_ERROR_UNKNOWN`.
const CODE_MAX: u32 = 999;

/// Returns the status for a failure of CUDA's driver. Codes beyond CUDA's own become
/// `CUDA_ERROR_UNKNOWN`.
pub fn status(code: u32) -> Status {
    // `code` is at most CODE_MAX (999), so the conversion cannot fail.
    let code = i32::try_from(code.clamp(1, CODE_MAX)).unwrap_or_default();
    Status(STATUS_BASE - code)
}

/// Returns CUDA's code (`CUresult`) if the status has one.
pub fn code(status: Status) -> Option<u32> {
    let code = u32::try_from(STATUS_BASE.checked_sub(status.0)?).ok()?;
    (1..=CODE_MAX).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_from_their_status() {
        for wanted in [1, 2, 218, 700, 999] {
            assert!(status(wanted).is_error());
            assert_eq!(code(status(wanted)), Some(wanted));
        }
        assert_eq!(code(status(123_456)), Some(CODE_MAX));
        for none in [0, -1, -59, -9999, i32::MIN, i32::MAX] {
            assert_eq!(code(Status(none)), None);
        }
    }

    #[test]
    fn attributes_are_those_that_the_driver_knows() {
        let even =
            |number: u32| number.is_multiple_of(2).then(|| i32::try_from(number).unwrap() * 10);
        let attributes = Attributes::ask(5, even);
        assert_eq!(attributes.0, [(0, 0), (2, 20), (4, 40)]);
        assert_eq!(
            (attributes.get(2), attributes.get(3), attributes.get(6)),
            (Some(20), None, None)
        );
    }
}
