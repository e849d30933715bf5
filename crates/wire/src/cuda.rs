//! What a node tells beside OpenCL's own queries where it drives CUDA's driver itself: query numbers of a range that no vendor
//! has, and codes that keep CUDA's numbers.
//!
//! Such a node shows a platform of the name [`PLATFORM_NAME`] with one device of the type `CL_DEVICE_TYPE_CUSTOM` for each GPU: it
//! takes modules (PTX text, cubin, fat binary) for program binaries, no OpenCL C. A kernel there has three arguments: the whole packed
//! parameter buffer ([`ARG_PARAMS`]), local memory of as many bytes as the launch has dynamic shared memory
//! ([`ARG_SHARED`]), and the view of a symmetric heap whose address is among the parameters ([`ARG_HEAP`]). Work-groups are blocks; the global size is grid times block. A buffer's address is told by
//! [`crate::calls::to_worker::MemAddress`]; a variable of a module, which lies in no buffer, becomes one by
//! [`crate::calls::to_worker::AllocSvm`] with an address and size that lie within it.

use crate::status::Status;

/// `CL_PLATFORM_NAME` of the platform.
pub const PLATFORM_NAME: &str = "NVIDIA CUDA driver";

/// Kernel argument with the packed parameters, as `CU_LAUNCH_PARAM_BUFFER_POINTER` takes them. Not set for a kernel without any.
pub const ARG_PARAMS: u32 = 0;
/// Kernel argument that is the dynamic shared memory. May stay unset: none.
pub const ARG_SHARED: u32 = 1;
/// Kernel argument that tells of a view of a symmetric heap: it is kept until the launch has ended, and the launch may have to run as a
/// whole. May stay unset, and be set to none.
pub const ARG_HEAP: u32 = 2;

/// `clGetDeviceInfo`: this plus a `CUdevice_attribute` asks for that attribute; the answer is an `i32`.
pub const DEVICE_ATTRIBUTE: u32 = 0x4F00_0000;
/// Attributes that may be asked: over a hundred more than there were in CUDA 13.0.
pub const DEVICE_ATTRIBUTES_MAX: u32 = 256;
/// `clGetDeviceInfo`: what `cuDriverGetVersion` tells, an `i32`.
pub const DEVICE_DRIVER_VERSION: u32 = 0x4F00_1000;
/// `clGetDeviceInfo`: what `cuDeviceGetUuid` tells, 16 bytes.
pub const DEVICE_UUID: u32 = 0x4F00_1001;
/// `clGetDeviceInfo`: what `cuDeviceGetPCIBusId` tells, a text.
pub const DEVICE_PCI_BUS_ID: u32 = 0x4F00_1002;

/// `clGetKernelWorkGroupInfo`: this plus a `CUfunction_attribute` asks for that attribute; the answer is an `i32`.
pub const KERNEL_ATTRIBUTE: u32 = 0x4F01_0000;
/// Attributes of kernels that are asked for: those of CUDA 13.0.
pub const KERNEL_ATTRIBUTES_MAX: u32 = 16;
/// `clGetKernelWorkGroupInfo`: where each parameter is in the buffer: pairs of `u64`, offset and size. There is no answer where the
/// driver can not tell (before CUDA 12.4).
pub const KERNEL_PARAMS: u32 = 0x4F01_1000;

/// `clGetKernelWorkGroupInfo`: this plus a number of threads of a block asks how many such blocks, with the dynamic shared memory that
/// the kernel's argument has, the GPU runs at the same time if it does nothing else; the answer is a `u64`. There is no answer where the
/// driver can not tell.
pub const KERNEL_RESIDENT: u32 = 0x4F01_2000;
/// Threads of a block that may be asked for: four times those of any GPU.
pub const KERNEL_RESIDENT_THREADS_MAX: u32 = 4096;

/// `clGetProgramBuildInfo`: the module's variables, see [`globals`].
pub const BUILD_GLOBALS: u32 = 0x4F02_0000;
/// Build option: names of variables that the answer to [`BUILD_GLOBALS`] shall have, if the module has them, separated by commas.
/// Without it those are told that can be seen in the module (PTX text, or the symbol table of a cubin).
pub const GLOBALS_OPTION: &str = "--globals=";

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name, as in the module.
    pub name: String,
    /// Where it is on the device.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Writes the answer to [`BUILD_GLOBALS`]: for each variable address, size, length of the name, name.
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

/// Reads the answer to [`BUILD_GLOBALS`]; none where the bytes are no such answer.
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

/// A status is this minus CUDA's code: far below OpenCL's own and those of its extensions, which end above -10,000.
const STATUS_BASE: i32 = -700_000;
/// CUDA's codes end with `CUDA_ERROR_UNKNOWN`.
const CODE_MAX: u32 = 999;

/// A failure of CUDA's driver as a status. Codes beyond CUDA's own become `CUDA_ERROR_UNKNOWN`.
pub fn status(code: u32) -> Status {
    // At most 999, see above.
    let code = i32::try_from(code.clamp(1, CODE_MAX)).unwrap_or_default();
    Status(STATUS_BASE - code)
}

/// CUDA's code (`CUresult`) in a status that has one.
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
