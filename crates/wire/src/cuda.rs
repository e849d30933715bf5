//! What a node that drives CUDA's driver itself tells beside the answers to OpenCL's queries: query
//! numbers from a range that no vendor uses, and statuses that keep CUDA's error codes.
//!
//! Such a node shows a platform with the name [`PLATFORM_NAME`], with one device of type
//! `CL_DEVICE_TYPE_CUSTOM` for each GPU. Program binaries are modules (PTX text, cubin, fat
//! binary); OpenCL C is not accepted. A kernel has three arguments: the whole packed parameter
//! buffer ([`ARG_PARAMS`]), the dynamic shared memory, given as local memory of that size
//! ([`ARG_SHARED`]), and the view of a symmetric heap whose address is among the parameters
//! ([`ARG_HEAP`]). Work-groups are blocks; the global size is grid times block.
//! [`crate::calls::to_worker::MemAddress`] tells a buffer's address. A variable of a module lies in
//! no buffer; [`crate::calls::to_worker::AllocSvm`] with an address and size within the variable
//! makes a buffer of it.

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

/// Query of `clGetDeviceInfo`: this number plus a `CUdevice_attribute`. The answer is an `i32`.
pub const DEVICE_ATTRIBUTE: u32 = 0x4F00_0000;
/// Number of device attributes that may be asked for: over a hundred more than CUDA 13.0 has.
pub const DEVICE_ATTRIBUTES_MAX: u32 = 256;
/// Query of `clGetDeviceInfo`: the answer of `cuDriverGetVersion`, an `i32`.
pub const DEVICE_DRIVER_VERSION: u32 = 0x4F00_1000;
/// Query of `clGetDeviceInfo`: the answer of `cuDeviceGetUuid`, 16 bytes.
pub const DEVICE_UUID: u32 = 0x4F00_1001;
/// Query of `clGetDeviceInfo`: the answer of `cuDeviceGetPCIBusId`, a text.
pub const DEVICE_PCI_BUS_ID: u32 = 0x4F00_1002;

/// Query of `clGetKernelWorkGroupInfo`: this number plus a `CUfunction_attribute`. The answer is an
/// `i32`.
pub const KERNEL_ATTRIBUTE: u32 = 0x4F01_0000;
/// Number of kernel attributes that may be asked for: those of CUDA 13.0.
pub const KERNEL_ATTRIBUTES_MAX: u32 = 16;
/// Query of `clGetKernelWorkGroupInfo`: the place of each parameter in the buffer, as pairs of
/// `u64`, offset and size. There is no answer if the driver cannot tell (before CUDA 12.4).
pub const KERNEL_PARAMS: u32 = 0x4F01_1000;

/// Query of `clGetKernelWorkGroupInfo`: this number plus the number of threads of a block. The
/// answer, a `u64`, is the number of such blocks, with the dynamic shared memory of the kernel's
/// argument, that an otherwise idle GPU runs at the same time. There is no answer if the driver
/// cannot tell.
pub const KERNEL_RESIDENT: u32 = 0x4F01_2000;
/// Largest number of threads per block in such a query: four times the limit of any GPU.
pub const KERNEL_RESIDENT_THREADS_MAX: u32 = 4096;

/// Query of `clGetProgramBuildInfo`: the module's variables, see [`globals`].
pub const BUILD_GLOBALS: u32 = 0x4F02_0000;
/// Build option: names, separated by commas, of the variables that the answer to [`BUILD_GLOBALS`]
/// shall list if the module has them. Without this option the answer lists the variables that are
/// visible in the module (PTX text, or the symbol table of a cubin).
pub const GLOBALS_OPTION: &str = "--globals=";

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name in the module.
    pub name: String,
    /// Address on the device.
    pub address: u64,
    /// Size of the variable in bytes.
    pub size: u64,
}

/// Encodes the answer to [`BUILD_GLOBALS`]: for each variable its address, its size, the length of
/// its name, and the name.
pub fn write_globals(globals: &[Global]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for global in globals {
        bytes.extend_from_slice(&global.address.to_le_bytes());
        bytes.extend_from_slice(&global.size.to_le_bytes());
        bytes.extend_from_slice(&(global.name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(global.name.as_bytes());
    }
    bytes
}

/// Decodes the answer to [`BUILD_GLOBALS`]. Returns `None` if the bytes are not such an answer.
pub fn globals(mut bytes: &[u8]) -> Option<Vec<Global>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let mut word = || {
            let (head, rest) = bytes.split_first_chunk::<8>()?;
            bytes = rest;
            Some(u64::from_le_bytes(*head))
        };
        let (address, size, length) = (word()?, word()?, usize::try_from(word()?).ok()?);
        let (name, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        found.push(Global { name: String::from_utf8(name.to_vec()).ok()?, address, size });
    }
    Some(found)
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
    fn variables_come_back_as_they_were_written() {
        let table = Global { name: "table".into(), address: 0x7000_0000, size: 256 };
        let empty = Global { name: String::new(), address: 1, size: 0 };
        let written = write_globals(&[table.clone(), empty.clone()]);
        assert_eq!(globals(&written), Some(vec![table, empty]));
        assert_eq!(globals(&[]), Some(Vec::new()));
        for length in 1..written.len() {
            let cut = globals(written.get(..length).unwrap());
            assert!(cut.is_none() || cut.is_some_and(|cut| cut.len() == 1), "{length}");
        }
        assert_eq!(globals(&[0xFF; 24]), None);
    }
}
