//! Devices. The driver's answers are passed on unchanged, except where the pool differs.

use std::fmt;
use std::sync::Arc;

use penstock_cl_sys::*;
use rustc_hash::FxHashMap;

use super::extensions;
use super::platform::Platform;
use crate::edge::{Handle, Object, Ref};

/// Object behind a `cl_device_id`.
pub(crate) struct Device {
    pub(crate) pool: Arc<penstock_client::Device>,
    pub(crate) platform: Ref<Platform>,
    /// Device of which this is a sub-device.
    pub(crate) parent: Option<Ref<Device>>,
    /// Constant answers to `clGetDeviceInfo`.
    answers: FxHashMap<cl_device_info, Box<[u8]>>,
}

impl Object for Device {
    type Raw = _cl_device_id;
    const INVALID: cl_int = CL_INVALID_DEVICE;
}

impl Device {
    pub(crate) fn create(
        pool: Arc<penstock_client::Device>,
        platform: &Ref<Platform>,
        parent: Option<Ref<Device>>,
    ) -> Ref<Self> {
        let is_unified = platform.is_one_place && pool.shares_client_memory();
        let answers = answers(&pool, is_unified);
        Handle::create(&**platform, Self { pool, platform: platform.clone(), parent, answers })
    }

    /// Returns the answer to a query if it is constant and no handle.
    pub(crate) fn answer(&self, name: cl_device_info) -> Option<&[u8]> {
        self.answers.get(&name).map(|bytes| &**bytes)
    }

    /// Returns the answer to a query for a number of at most 8 bytes, or 0 without an answer.
    pub(crate) fn number(&self, name: cl_device_info) -> u64 {
        number(self.answer(name).unwrap_or_default())
    }

    /// Returns the answer to a query for an array of `size_t` or pointers.
    pub(crate) fn words(&self, name: cl_device_info) -> Vec<usize> {
        let words = self.answer(name).unwrap_or_default().as_chunks::<{ size_of::<usize>() }>().0;
        words.iter().map(|word| usize::from_ne_bytes(*word)).collect()
    }

    /// Returns the device's `CL_DEVICE_TYPE`.
    pub(crate) fn device_type(&self) -> cl_device_type {
        self.number(CL_DEVICE_TYPE)
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    // All hosts of a pool have the same byte order: the hello refuses others.
    u64::from_le_bytes(wide)
}

/// Queries of functions that we do not have, or whose answers mean nothing in another process.
const NOT_PASSED: &[cl_device_info] = &[
    CL_DEVICE_PLATFORM,
    CL_DEVICE_PARENT_DEVICE,
    CL_DEVICE_REFERENCE_COUNT,
    CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR,
    CL_DEVICE_SVM_CAPABILITIES_ARM,
    CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL,
    CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL,
    CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL,
    CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL,
    CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL,
];

fn answers(
    device: &penstock_client::Device,
    is_unified: bool,
) -> FxHashMap<cl_device_info, Box<[u8]>> {
    let mut answers: FxHashMap<_, Box<[u8]>> = FxHashMap::default();
    for (name, bytes) in device.all_info().iter().filter(|(name, _)| !NOT_PASSED.contains(name)) {
        answers.insert(
            *name,
            changed(device, is_unified, *name, bytes).unwrap_or_else(|| bytes.as_slice().into()),
        );
    }
    answers
}

/// Returns the pool's answer to a query if it differs from the driver's. `is_unified` says whether
/// every buffer that this device may get is shared with the program.
fn changed(
    device: &penstock_client::Device,
    is_unified: bool,
    name: cl_device_info,
    bytes: &[u8],
) -> Option<Box<[u8]>> {
    let kept = |mask: u64| Some(number(bytes) & mask).map(|value| value.to_le_bytes().into());
    match name {
        // With `CL_TRUE` programs map a buffer once and then access it without further calls.
        CL_DEVICE_HOST_UNIFIED_MEMORY if is_unified => None,
        CL_DEVICE_HOST_UNIFIED_MEMORY => Some(CL_FALSE.to_ne_bytes().into()),
        // Fine-grained memory would have to be coherent without any call.
        CL_DEVICE_SVM_CAPABILITIES if device.shares_host_memory() => {
            kept(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)
        }
        CL_DEVICE_SVM_CAPABILITIES => kept(0),
        // A native kernel is a function of the program's own process.
        CL_DEVICE_EXECUTION_CAPABILITIES => kept(CL_EXEC_KERNEL),
        CL_DEVICE_EXTENSIONS => {
            let mut names = extensions::names(bytes, device.shares_host_memory()).into_bytes();
            names.push(0);
            Some(names.into())
        }
        CL_DEVICE_EXTENSIONS_WITH_VERSION => {
            Some(extensions::with_version(bytes, device.shares_host_memory()).into())
        }
        CL_DEVICE_VERSION => Some(capped(bytes).into()),
        CL_DEVICE_NUMERIC_VERSION => {
            let version =
                cl_version::from_ne_bytes(*bytes.first_chunk()?).min(extensions::version(3, 0, 0));
            Some(version.to_ne_bytes().into())
        }
        _ => None,
    }
}

/// "OpenCL<space><major_version.minor_version><space><vendor-specific information>". Reduces any
/// version 3.x to 3.0.
fn capped(bytes: &[u8]) -> Vec<u8> {
    const BEGINNING: &[u8] = b"OpenCL 3.";
    let mut text = bytes.to_vec();
    if text.starts_with(BEGINNING)
        && let Some(minor) = text.get_mut(BEGINNING.len())
        && minor.is_ascii_digit()
    {
        *minor = b'0';
    }
    text
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("pool", &self.pool).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_capped() {
        assert_eq!(capped(b"OpenCL 3.1 x\0"), b"OpenCL 3.0 x\0");
        assert_eq!(capped(b"OpenCL 1.2 x\0"), b"OpenCL 1.2 x\0");
        assert_eq!(capped(b"OpenCL 3."), b"OpenCL 3.");
        assert_eq!(capped(b""), b"");
    }

    #[test]
    fn numbers_of_any_width_are_read() {
        assert_eq!(number(&[]), 0);
        assert_eq!(number(&[1, 2]), 0x201);
        assert_eq!(number(&u64::MAX.to_ne_bytes()), u64::MAX);
        assert_eq!(number(&[1; 16]), 0x0101_0101_0101_0101);
    }
}
