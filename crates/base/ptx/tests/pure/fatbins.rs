//! Fat binaries that nvcc produced.

use penstock_ptx::fatbin::{ImageKind, images, total_size};
use penstock_ptx::module::parse;

const ZSTD: &[u8] = include_bytes!("../ptx/small.zstd.fatbin");
const LZ4: &[u8] = include_bytes!("../ptx/small.lz4.fatbin");
const PLAIN: &[u8] = include_bytes!("../ptx/small.plain.fatbin");

#[test]
fn ptx_of_every_compression_is_the_same_module() {
    for (name, bytes) in [("Zstandard", ZSTD), ("LZ4", LZ4), ("none", PLAIN)] {
        let images = images(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ptx = images
            .iter()
            .find(|image| image.kind == ImageKind::Ptx && image.arch == 75)
            .expect(name);
        let module = parse(std::str::from_utf8(&ptx.bytes).expect("PTX is text")).expect(name);
        assert_eq!(module.target(), 75);
        let names: Vec<&str> = module.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["add"], "{name}");
        assert_eq!(module.entries()[0].params_size, 20, "{name}");
    }
}

#[test]
fn machine_code_and_ptx_for_several_architectures_are_told_apart() {
    let mut kinds: Vec<(ImageKind, u32)> =
        images(ZSTD).expect("made by nvcc").iter().map(|image| (image.kind, image.arch)).collect();
    kinds.sort_by_key(|(kind, arch)| (*kind == ImageKind::Elf, *arch));
    assert_eq!(kinds, [(ImageKind::Ptx, 75), (ImageKind::Ptx, 90), (ImageKind::Elf, 75)]);
    let elf = images(ZSTD)
        .expect("made by nvcc")
        .into_iter()
        .find(|image| image.kind == ImageKind::Elf)
        .expect("there is one");
    let alone = images(&elf.bytes).expect("an ELF file");
    assert_eq!((alone[0].kind, alone[0].arch), (ImageKind::Elf, 75));
}

#[test]
fn the_size_in_the_header_is_the_files() {
    for bytes in [ZSTD, LZ4, PLAIN] {
        assert_eq!(total_size(bytes.first_chunk().expect("a header")), Ok(bytes.len() as u64));
    }
}

#[test]
fn every_truncation_and_every_changed_byte_is_an_image_or_an_error() {
    for bytes in [ZSTD, LZ4, PLAIN] {
        for length in 0..bytes.len() {
            assert!(images(&bytes[..length]).is_err());
        }
        let mut changed = bytes.to_vec();
        for at in 0..changed.len() {
            changed[at] ^= 0xff;
            _ = images(&changed);
            changed[at] ^= 0xff;
        }
    }
}
