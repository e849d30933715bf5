//! The program's device code, and how it is loaded as a module.

use std::ffi::{CStr, CString, c_uint, c_void};

use penstock_cuda_sys::driver::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INPUT_FATBINARY,
    CUlinkState, CUmodule,
};
use penstock_cuda_sys::runtime::{FATBIN_WRAPPER_MAGIC, FatbinWrapper};
use penstock_cuda_sys::runtime_codes as code;

use super::context::Current;
use crate::edge::unserved::line;
use crate::edge::{RtError, RtResult};

/// Size of the buffer for the driver's message about a module that cannot be loaded.
const LOG_BYTES: usize = 4096;

/// Version of a wrapper whose code was linked from several files (`nvcc -rdc=true`). Such a wrapper
/// also lists the code of those files.
const LINKED_VERSION: c_uint = 2;

/// Magic number of a fat binary.
const FATBIN_MAGIC: u32 = 0xba55_ed50;

/// Maximum number of files that device code is linked from. Their list ends with a null; the limit
/// protects against a list without an end.
const LINKED_MAX: usize = 1 << 16;

/// A fat binary of the program, which is never freed. Fields are addresses, so that it is `Send`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    data: usize,
    /// Address of the list of linked parts, or 0.
    linked: usize,
}

/// Whether loading a module that failed with this error would always fail.
pub(crate) const fn is_of_the_program(error: RtError) -> bool {
    matches!(
        error.0,
        code::INVALID_KERNEL_IMAGE
            | code::NO_KERNEL_IMAGE_FOR_DEVICE
            | code::INVALID_PTX
            | code::UNSUPPORTED_PTX_VERSION
            // The device lacks what the code needs.
            | code::NOT_SUPPORTED
    )
}

impl Image {
    /// Reads what a program registers. Returns `None` if it is not device code.
    pub(crate) fn of(wrapper: &FatbinWrapper) -> Option<Self> {
        if wrapper.magic != FATBIN_WRAPPER_MAGIC || wrapper.data.is_null() {
            return None;
        }
        let linked =
            if wrapper.version >= LINKED_VERSION { wrapper.linked.expose_provenance() } else { 0 };
        Some(Self { data: wrapper.data.expose_provenance(), linked })
    }

    /// Loads the code into the current context.
    ///
    /// # Errors
    /// The driver returns an error. Its message about the code goes to standard error.
    pub(crate) fn load(self, current: Current) -> RtResult<CUmodule> {
        // Linked code is machine code for the architectures that the linker was given. Its parts
        // may have PTX, which suits every device.
        let mut linked = None;
        if self.linked != 0 {
            match self.load_parts(current) {
                Ok(parts) if !parts.is_refused() => return parts.told(),
                Ok(parts) => linked = Some(parts),
                Err(error) if error.0 == code::NO_KERNEL_IMAGE_FOR_DEVICE => {}
                Err(error) => return Err(error),
            }
        }
        // SAFETY: the address is the program's device code, which is never freed.
        let own = unsafe { load(current, std::ptr::with_exposed_provenance(self.data)) };
        match linked {
            // There is no machine code either, so the reason is what the driver said about the PTX.
            Some(linked) if own.has_no_image() => linked.told(),
            _ => own.told(),
        }
    }

    /// Links the parts for the device and loads the result.
    ///
    /// # Errors
    /// The parts cannot be linked.
    fn load_parts(self, current: Current) -> RtResult<Loading> {
        let driver = current.driver;
        let mut state: CUlinkState = std::ptr::null_mut();
        let mut log = ErrorLog::new();
        let (names, values) = log.options();
        // SAFETY: the options live until the state is destroyed, and the pointer is valid for a
        // write of the answer.
        unsafe { driver.cuLinkCreate_v2(2, names, values, &raw mut state) }?;
        let (mut image, mut bytes): (*mut c_void, usize) = (std::ptr::null_mut(), 0);
        let linked = self.add_parts(current, state).and_then(|()| {
            // SAFETY: the state is from above, and the pointers are valid for writes of the
            // answers.
            unsafe { driver.cuLinkComplete(state, &raw mut image, &raw mut bytes) }
        });
        log.tell(linked, "the device code of the program's files cannot be linked");
        // SAFETY: the image is device code, and lives as long as the state.
        let loading = linked.map(|()| unsafe { load(current, image) });
        // SAFETY: the state is from above, and nothing uses it any more.
        unsafe { driver.cuLinkDestroy(state) }?;
        loading
    }

    fn add_parts(self, current: Current, state: CUlinkState) -> RtResult {
        let list: *const *const c_void = std::ptr::with_exposed_provenance(self.linked);
        for index in 0..LINKED_MAX {
            // SAFETY: the compiler made the list, which ends with a null.
            let part = unsafe { list.add(index).read() };
            if part.is_null() {
                return Ok(());
            }
            // SAFETY: the part is a fat binary of the program.
            let bytes = unsafe { fatbin_bytes(part) }.ok_or(RtError(code::INVALID_KERNEL_IMAGE))?;
            let name = CString::new(format!("file {}", index + 1)).unwrap_or_default();
            let (none, no_values) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the state is the caller's, the program's part is `bytes` long, the name is a
            // C string, and there are no options.
            unsafe {
                let kind = CU_JIT_INPUT_FATBINARY;
                current.driver.cuLinkAddData_v2(
                    state,
                    kind,
                    part.cast_mut(),
                    bytes,
                    name.as_ptr(),
                    0,
                    none,
                    no_values,
                )
            }?;
        }
        Err(RtError(code::INVALID_KERNEL_IMAGE))
    }
}

/// Returns the size of a fat binary in bytes, including its header of magic, version, size of the
/// header and size of the rest. Returns `None` if `data` is not a fat binary.
///
/// # Safety
/// `data` is valid for reads of 16 bytes.
unsafe fn fatbin_bytes(data: *const c_void) -> Option<usize> {
    // SAFETY: the caller upholds the contract of this function.
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

/// A buffer for the driver's messages about device code, with the options that name it.
struct ErrorLog {
    text: Vec<u8>,
    names: [c_uint; 2],
    values: [*mut c_void; 2],
}

impl ErrorLog {
    fn new() -> Box<Self> {
        let names = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        Box::new(Self { text: vec![0; LOG_BYTES], names, values: [std::ptr::null_mut(); 2] })
    }

    /// Returns the two options and their values.
    fn options(&mut self) -> (*mut c_uint, *mut *mut c_void) {
        // The size is passed as a number in place of a pointer, and leaves room for a final null.
        // The driver overwrites it with the length of its message.
        let size = std::ptr::without_provenance_mut(LOG_BYTES - 1);
        self.values = [self.text.as_mut_ptr().cast(), size];
        (self.names.as_mut_ptr(), self.values.as_mut_ptr())
    }

    /// Writes the driver's message to standard error if there was an error. If the code has no
    /// image for the device, the error code says enough.
    fn tell<T>(&self, result: RtResult<T>, what: &str) {
        if result.is_err_and(|error| error.0 != code::NO_KERNEL_IMAGE_FOR_DEVICE) {
            let said = CStr::from_bytes_until_nul(&self.text);
            let said = said.map(CStr::to_string_lossy).unwrap_or_default();
            if !said.trim().is_empty() {
                line(format_args!("{what}: {}", said.trim()));
            }
        }
    }
}

/// A module that the driver has loaded, or why it has not.
struct Loading {
    result: RtResult<CUmodule>,
    log: Box<ErrorLog>,
}

impl Loading {
    /// Whether the driver cannot use this code, but may be able to use other code of the program.
    fn is_refused(&self) -> bool {
        self.has_no_image()
            || self.result.is_err_and(|error| {
                matches!(error.0, code::INVALID_PTX | code::UNSUPPORTED_PTX_VERSION)
            })
    }

    fn has_no_image(&self) -> bool {
        self.result.is_err_and(|error| error.0 == code::NO_KERNEL_IMAGE_FOR_DEVICE)
    }

    /// Returns the module. On failure, writes the driver's message to standard error.
    fn told(self) -> RtResult<CUmodule> {
        self.log.tell(self.result, "a module of the program cannot be loaded");
        self.result
    }
}

/// Loads device code.
///
/// # Safety
/// `image` is device code in a form that the driver accepts.
unsafe fn load(current: Current, image: *const c_void) -> Loading {
    let mut log = ErrorLog::new();
    let (names, values) = log.options();
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: the caller guarantees the image. There are two options with two values.
    let loaded =
        unsafe { current.driver.cuModuleLoadDataEx(&raw mut module, image, 2, names, values) };
    Loading { result: loaded.map(|()| module), log }
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
        // SAFETY: the header is 16 bytes long.
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
