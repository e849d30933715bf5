//! Device code of the program, and how it becomes a module.

use std::ffi::{CStr, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INPUT_FATBINARY,
    CUlinkState, CUmodule,
};
use penstock_cuda_sys::runtime::{FATBIN_WRAPPER_MAGIC, FatbinWrapper};
use penstock_cuda_sys::runtime_codes as code;

use super::context::Current;
use crate::edge::unserved::line;
use crate::edge::{RtError, RtResult};

/// Room for what the driver says about a module that it does not load.
const LOG_BYTES: usize = 4096;

/// A wrapper whose code was linked of several files' (`nvcc -rdc=true`): it leads to theirs, too.
const LINKED_VERSION: c_uint = 2;

/// How a fat binary begins.
const FATBIN_MAGIC: u32 = 0xba55_ed50;

/// Files that a program's device code is linked of: the list ends with a null, and one without an end must not be followed for ever.
const LINKED_MAX: usize = 1 << 16;

/// A fat binary of the program, which stays. Addresses, so that threads can share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    data: usize,
    /// The list of what was linked; 0 if nothing was.
    linked: usize,
}

/// Whether a module that failed so will fail so again.
pub(crate) const fn is_of_the_program(error: RtError) -> bool {
    matches!(
        error.0,
        code::INVALID_KERNEL_IMAGE
            | code::NO_KERNEL_IMAGE_FOR_DEVICE
            | code::INVALID_PTX
            | code::UNSUPPORTED_PTX_VERSION
    )
}

impl Image {
    /// Of what a program registers; none if that is no device code.
    pub(crate) fn of(wrapper: &FatbinWrapper) -> Option<Self> {
        if wrapper.magic != FATBIN_WRAPPER_MAGIC || wrapper.data.is_null() {
            return None;
        }
        let linked =
            if wrapper.version >= LINKED_VERSION { wrapper.linked.expose_provenance() } else { 0 };
        Some(Self { data: wrapper.data.expose_provenance(), linked })
    }

    /// Loads it into the current context.
    ///
    /// # Errors
    /// The driver's; what it says about the code goes to standard error.
    pub(crate) fn load(self, current: Current) -> RtResult<CUmodule> {
        // Linked code is machine code of the linker's choice alone. Its parts, which may have PTX, suit every device.
        if self.linked != 0
            && let Ok(module) = self.load_parts(current)
        {
            return Ok(module);
        }
        // SAFETY: the program's device code.
        unsafe { load(current, std::ptr::with_exposed_provenance(self.data)) }
    }

    /// Links the parts for the device, and loads the result.
    fn load_parts(self, current: Current) -> RtResult<CUmodule> {
        let driver = current.driver;
        let mut state: CUlinkState = std::ptr::null_mut();
        // SAFETY: no options, and a place for the answer.
        unsafe {
            driver.cuLinkCreate(0, std::ptr::null_mut(), std::ptr::null_mut(), &raw mut state)
        }?;
        let linked = self.add_parts(current, state).and_then(|()| {
            let (mut image, mut bytes): (*const c_void, usize) = (std::ptr::null(), 0);
            // SAFETY: the state from above, places for the answers; the image lives as long as the state.
            unsafe {
                driver.cuLinkComplete(state, &raw mut image, &raw mut bytes)?;
                load(current, image)
            }
        });
        // SAFETY: the state from above, which nothing uses any more.
        unsafe { driver.cuLinkDestroy(state) }?;
        linked
    }

    fn add_parts(self, current: Current, state: CUlinkState) -> RtResult {
        let list: *const *const c_void = std::ptr::with_exposed_provenance(self.linked);
        for index in 0..LINKED_MAX {
            // SAFETY: the compiler's list, which ends with a null.
            let part = unsafe { list.add(index).read() };
            if part.is_null() {
                return Ok(());
            }
            // SAFETY: a fat binary of the program.
            let bytes = unsafe { fatbin_bytes(part) }.ok_or(RtError(code::INVALID_KERNEL_IMAGE))?;
            let (none, no_values) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the state of the caller, so many bytes of the program, a string, no options.
            unsafe {
                let kind = CU_JIT_INPUT_FATBINARY;
                current.driver.cuLinkAddData(
                    state,
                    kind,
                    part,
                    bytes,
                    c"part".as_ptr(),
                    0,
                    none,
                    no_values,
                )
            }?;
        }
        Err(RtError(code::INVALID_KERNEL_IMAGE))
    }
}

/// Size of a fat binary, with its header: magic, version, size of the header, size of the rest.
///
/// # Safety
/// `data` leads to one, or to 16 other bytes.
unsafe fn fatbin_bytes(data: *const c_void) -> Option<usize> {
    // SAFETY: as the caller promises.
    let (magic, header, rest) = unsafe {
        let bytes = data.cast::<u8>();
        let header = bytes.add(6).cast::<u16>().read_unaligned();
        (bytes.cast::<u32>().read_unaligned(), header, bytes.add(8).cast::<u64>().read_unaligned())
    };
    if magic != FATBIN_MAGIC {
        return None;
    }
    usize::from(header).checked_add(usize::try_from(rest).ok()?)
}

/// Loads device code, and passes on what the driver says if it does not.
///
/// # Safety
/// `image` is device code in one of the forms that the driver takes.
unsafe fn load(current: Current, image: *const c_void) -> RtResult<CUmodule> {
    let mut log: Vec<u8> = vec![0; LOG_BYTES];
    let mut options: [c_uint; 2] = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // The size is a number in the place of a pointer; the driver stores there how much it wrote.
    let mut values: [*mut c_void; 2] =
        [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG_BYTES - 1)];
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: the image as the caller promises; options and values are two each; the log is as large as is said.
    let loaded = unsafe {
        current.driver.cuModuleLoadDataEx(
            &raw mut module,
            image,
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    // Of code that is not there for the device the code says enough.
    if loaded.is_err_and(|error| error.0 != code::NO_KERNEL_IMAGE_FOR_DEVICE) {
        let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
        if !said.trim().is_empty() {
            line(format_args!("a module of the program cannot be loaded: {}", said.trim()));
        }
    }
    loaded.map(|()| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_fat_binary_is_in_its_header() {
        let mut header = [0_u8; 16];
        header[..4].copy_from_slice(&FATBIN_MAGIC.to_le_bytes());
        header[6] = 16;
        header[8..].copy_from_slice(&100_u64.to_le_bytes());
        // SAFETY: 16 bytes each.
        unsafe {
            assert_eq!(fatbin_bytes(header.as_ptr().cast()), Some(116));
            header[8..].copy_from_slice(&u64::MAX.to_le_bytes());
            assert_eq!(fatbin_bytes(header.as_ptr().cast()), None);
            header[0] = 0;
            assert_eq!(fatbin_bytes(header.as_ptr().cast()), None);
        }
    }

    #[test]
    fn what_is_no_device_code_is_none() {
        let data = std::ptr::from_ref(&0_u64).cast();
        let wrapper = FatbinWrapper {
            magic: FATBIN_WRAPPER_MAGIC,
            version: 1,
            data,
            linked: std::ptr::null(),
        };
        assert!(Image::of(&wrapper).is_some());
        assert!(Image::of(&FatbinWrapper { magic: 1, ..wrapper }).is_none());
        assert!(Image::of(&FatbinWrapper { data: std::ptr::null(), ..wrapper }).is_none());
    }
}
