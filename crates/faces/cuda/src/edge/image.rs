//! Finds the length of a module from its address alone.

use std::ffi::c_void;

use penstock_cuda_sys::driver::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_VALUE};

use super::error::CuResult;

/// Wrapper of a fat binary: magic number, version, and the fat binary's address.
const WRAPPER: u32 = 0x4662_43b1;
/// A fat binary: magic number, `u16` version, `u16` size of the header, `u64` size of the rest.
const FAT_BINARY: u32 = 0xba55_ed50;
/// Magic number `\x7fELF`, little-endian.
const ELF: u32 = 0x464c_457f;

/// The largest module that a worker accepts. A larger size is garbage.
const IMAGE_BYTES_MAX: u64 = penstock_wire::limits::PROGRAM_BYTES_MAX;

/// Text is searched for its end in pieces that do not cross a multiple of this many bytes, a page.
const PIECE_BYTES: usize = 4096;

/// Returns the bytes of a module: a fat binary with or without its wrapper, an ELF file, or text
/// with a terminating 0.
///
/// # Safety
/// `image` is `NULL` or leads to a module. A module that overstates its size is rejected if the
/// system can tell which memory is readable.
pub(crate) unsafe fn image(image: *const c_void) -> CuResult<Vec<u8>> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let address = image.expose_provenance();
    let head = copy(address, 4)?;
    match u32_at(&head, 0) {
        WRAPPER => {
            let wrapper = copy(address, 16)?;
            let inner =
                usize::try_from(u64_at(&wrapper, 8)).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
            // A wrapper in a wrapper is garbage, and could be endless.
            if inner == 0 || u32_at(&copy(inner, 4)?, 0) == WRAPPER {
                return Err(CUDA_ERROR_INVALID_IMAGE);
            }
            binary(inner)
        }
        FAT_BINARY | ELF => binary(address),
        _ => text(address),
    }
}

fn binary(address: usize) -> CuResult<Vec<u8>> {
    let head = copy(address, 16)?;
    let size = match u32_at(&head, 0) {
        FAT_BINARY => u64::from(u16_at(&head, 6)).checked_add(u64_at(&head, 8)),
        ELF => {
            let head = copy(address, 64)?;
            let table = |offset: usize, size: usize, count: usize| {
                u64_at(&head, offset)
                    .checked_add(u64::from(u16_at(&head, size)) * u64::from(u16_at(&head, count)))
            };
            // In all files of NVIDIA's tools the section table is last. The program header table
            // counts, too.
            table(0x28, 0x3a, 0x3c)
                .zip(table(0x20, 0x36, 0x38))
                .map(|(sections, segments)| sections.max(segments))
        }
        _ => return text(address),
    };
    let size = size
        .filter(|size| (16..=IMAGE_BYTES_MAX).contains(size))
        .ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    copy(address, usize::try_from(size).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?)
}

fn text(address: usize) -> CuResult<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let at = address + bytes.len();
        let piece = copy(at, PIECE_BYTES - at % PIECE_BYTES)?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(piece.get(..end).unwrap_or_default());
            return Ok(bytes);
        }
        bytes.extend(piece);
        if bytes.len() as u64 > IMAGE_BYTES_MAX {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
    }
}

/// Copies memory of this process. The system copies it and fails if it is not readable. If the
/// system denies that service (in a strict container), the memory is read directly.
fn copy(address: usize, size: usize) -> CuResult<Vec<u8>> {
    let mut bytes = vec![0u8; size];
    let from = std::ptr::with_exposed_provenance_mut(address);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: from, iov_len: size };
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    // SAFETY: `local` describes `bytes`, and the system checks `remote` itself.
    let copied =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if usize::try_from(copied) == Ok(size) {
        return Ok(bytes);
    }
    let error = std::io::Error::last_os_error().raw_os_error();
    if copied >= 0 || error == Some(libc::EFAULT) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // SAFETY: the caller of `image` promises that the module is readable.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>().cast_const(), bytes.as_mut_ptr(), size)
    };
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> CuResult<Vec<u8>> {
        // SAFETY: the bytes of each test end with a 0 or contain their size.
        unsafe { image(bytes.as_ptr().cast()) }
    }

    #[test]
    fn text_ends_with_its_zero_also_behind_a_page() {
        let long = [vec![b'x'; 3 * PIECE_BYTES], vec![0, 1]].concat();
        assert_eq!(of(&long).unwrap(), long[..3 * PIECE_BYTES]);
        assert_eq!(of(b".version\0...").unwrap(), b".version");
    }

    #[test]
    fn binaries_say_their_size_and_lies_are_refused() {
        let mut fat = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        fat.extend([7; 8]);
        assert_eq!(of(&fat).unwrap(), fat);
        let mut wrapper = vec![0xb1, 0x43, 0x62, 0x46, 1, 0, 0, 0];
        wrapper.extend((fat.as_ptr().expose_provenance() as u64).to_le_bytes());
        assert_eq!(of(&wrapper).unwrap(), fat);
        // More than there is, then more than is possible.
        fat[11] = 0x0f;
        assert_eq!(of(&fat), Err(CUDA_ERROR_INVALID_IMAGE));
        fat[15] = 0xff;
        assert_eq!(of(&fat), Err(CUDA_ERROR_INVALID_IMAGE));
        wrapper[8..].fill(0);
        assert_eq!(of(&wrapper), Err(CUDA_ERROR_INVALID_IMAGE));
        // SAFETY: null is rejected before any access.
        assert_eq!(unsafe { image(std::ptr::null()) }, Err(CUDA_ERROR_INVALID_VALUE));
    }
}
