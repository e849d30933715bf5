//! Any bytes as a fat binary, an ELF file or PTX: images within the limit, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_ptx::fatbin;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk() {
        _ = fatbin::total_size(header);
    }
    for image in fatbin::images(bytes).unwrap_or_default() {
        assert!(image.bytes.len() as u64 <= fatbin::IMAGE_BYTES_MAX);
    }
});
